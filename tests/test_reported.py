"""The table of reported problems, `cases/README.md`: every case has tests, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
TABLE = TESTS / "cases" / "README.md"


def rows() -> dict[str, list[str]]:
    """Return case -> the tests that its row names."""
    lines = [line.split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [A-Z]\d\d \|", line)]
    return {cells[1].strip(): re.findall(r"`(\S+::\w+)`", cells[4]) for cells in lines}


def test_every_case_names_tests_that_are_there() -> None:
    found = rows()
    assert len(found) == 42 and all(found.values())
    defined = {f"{f.relative_to(TESTS)}::{d.name}" for f in TESTS.rglob("test_*.py") for d in ast.parse(f.read_text()).body if isinstance(d, ast.FunctionDef)}
    assert {t for tests in found.values() for t in tests} - defined == set()


def test_every_folder_of_data_has_a_row() -> None:
    assert {p.name for p in TABLE.parent.iterdir() if p.is_dir()} <= rows().keys()
