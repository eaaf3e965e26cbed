"""The explanations of the front end's codes: each wrong program raises its code, each right one passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ampc.frontend
from ampc.diagnostics import AmpError
from ampc.frontend import check, parse, warnings
from ampc.frontend.codes import CODES


def codes_of(text: str) -> list[str]:
    try:
        check(parse(text, "m.amp"))
    except AmpError as e:
        return [d.code for d in e.diagnostics]
    return []


@pytest.mark.parametrize("code", [c for c, e in CODES.items() if e.wrong])
def test_the_wrong_program_raises_its_code_and_no_other(code: str) -> None:
    assert codes_of(CODES[code].wrong) == [code]


@pytest.mark.parametrize("code", [c for c, e in CODES.items() if e.right])
def test_the_right_program_passes(code: str) -> None:
    check(parse(CODES[code].right, "m.amp"))


def test_every_code_in_the_source_has_an_explanation() -> None:
    folder = Path(ampc.frontend.__file__).parent
    raised = {
        code for file in folder.glob("*.py") if file.name != "codes.py" for code in re.findall(r'"(AMP\d{3})"', file.read_text(encoding="utf-8"))
    }
    assert raised == set(CODES)


def test_unused_layers_and_fields_are_warnings() -> None:
    model = parse("model m():\n    instance:\n        a, b: float\n    u = Linear(1, 1)\n    w = Linear(1, 1)\n    loss squared(w(a), 1)\n", "m.amp")
    check(model)
    assert [(d.code, d.severity, d.message) for d in warnings(model)] == [
        ("AMP290", "warning", "layer `u` is never used"),
        ("AMP291", "warning", "field `b` is never read"),
    ]
