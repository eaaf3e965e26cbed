"""Every code of the data layer is explained, every explained code is used, and the right data of each explanation would do."""

from __future__ import annotations

import re
from pathlib import Path

import ampc.data
from ampc.data.codes import CODES

SOURCES = [p for p in Path(ampc.data.__file__).parent.rglob("*.py") if p.name != "codes.py"]


def test_codes_and_explanations_agree() -> None:
    used = {code for p in SOURCES for code in re.findall(r'"(AMP8\d\d)"', p.read_text())}
    assert used == set(CODES)


def test_every_code_is_raised_by_a_test() -> None:
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py") if p.name != "test_codes.py")
    assert not [c for c in CODES if c not in tests]


def test_explanations_are_whole_sentences() -> None:
    for code, e in CODES.items():
        assert e.title and e.title[0].islower() and not e.title.endswith("."), code
        assert e.text.endswith(".") and bool(e.wrong) <= bool(e.right), code
