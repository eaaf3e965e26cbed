"""Options and fixtures of all tests: golden files are rewritten with `pytest --update-golden`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return a function that compares a text with a file, or rewrites the file under `--update-golden`."""

    def compare(path: Path, text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden") or os.environ.get("AMPC_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"{path.name} is missing: `pytest --update-golden` writes it")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: `pytest --update-golden` rewrites it, the diff is to be read"

    return compare
