"""Wrong programs and the exact text that each gives: `tests/golden/errors/NAME.amp` and `NAME.expect`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ampc.diagnostics import AmpError, render
from ampc.frontend import check, parse
from ampc.lower import lower

FOLDER = Path(__file__).parents[1] / "golden" / "errors"
NAMES = sorted(p.stem for p in FOLDER.glob("*.amp"))
INTERNAL = ("__ANON", "_NEWLINE", "_INDENT", "_DEDENT", "_SKIPPED", "RPAR", "LSQB", "$END", "Token(", "Tree(", "AT_MOST", "PLUS_EQUAL")


@functools.cache
def diagnostics(name: str) -> AmpError | None:
    text = (FOLDER / f"{name}.amp").read_text(encoding="utf-8")
    try:
        model = parse(text, f"{name}.amp")
        check(model)
        lower(model, {})
    except AmpError as e:
        return e
    return None


def test_there_are_many() -> None:
    assert len(NAMES) >= 60


@pytest.mark.parametrize("name", NAMES)
def test_wrong_program(name: str, golden: Callable[[Path, str], None]) -> None:
    found = diagnostics(name)
    assert found is not None, "the program is accepted"
    text = (FOLDER / f"{name}.amp").read_text(encoding="utf-8")
    shown = "\n\n".join(render(d, {f"{name}.amp": text}) for d in found.diagnostics)
    assert not [word for word in INTERNAL if word in shown]
    golden(FOLDER / f"{name}.expect", shown)


@pytest.mark.parametrize("name", NAMES)
def test_every_place_lies_in_the_file(name: str) -> None:
    found = diagnostics(name)
    assert found is not None
    lines = (FOLDER / f"{name}.amp").read_text(encoding="utf-8").split("\n")
    for d in found.diagnostics:
        assert d.primary is not None or d.code in ("AMP105", "AMP181")
        for label in (*([d.primary] if d.primary else []), *d.secondary):
            span = label.span
            assert span.file == f"{name}.amp"
            assert 1 <= span.line <= span.end_line <= len(lines)
            assert 1 <= span.column <= len(lines[span.line - 1]) + 1
            assert 1 <= span.end_column <= len(lines[span.end_line - 1]) + 2


SEVERAL = {
    "metric_names": 2,
    "setting_value": 3,
    "several_names": 4,
    "several_syntax_errors": 4,
    "shape_carry": 2,
    "shape_loss_classes": 2,
    "shape_several": 2,
    "shape_size_zero": 4,
}


@pytest.mark.parametrize("name", NAMES)
def test_one_mistake_gives_one_error(name: str) -> None:
    found = diagnostics(name)
    assert found is not None
    assert len(found.diagnostics) == SEVERAL.get(name, 1)


@pytest.mark.parametrize("name", NAMES)
def test_suggestions_mend_the_mistake(name: str) -> None:
    """Put the suggested word in the place that is marked: that mistake is gone."""
    found = diagnostics(name)
    assert found is not None
    text = (FOLDER / f"{name}.amp").read_text(encoding="utf-8")
    for d in found.diagnostics:
        suggested = re.fullmatch(r"did you mean `([^`]+)`\?.*", d.help or "")
        if suggested is None or d.primary is None:
            continue
        span, lines = d.primary.span, text.split("\n")
        line = lines[span.line - 1]
        lines[span.line - 1] = line[: span.column - 1] + suggested[1] + line[span.end_column - 1 :]
        try:
            check(parse("\n".join(lines), f"{name}.amp"))
        except AmpError as e:
            assert len(e.diagnostics) < len(found.diagnostics), e
