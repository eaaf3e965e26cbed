"""The stopping condition: what it means, and the message and place of everything that it isn't."""

from __future__ import annotations

import pytest

from ampc.diagnostics import AmpError
from ampc import until

VALUES = {"accuracy": 0.97, "loss": 0.2, "f1": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accuracy >= 0.97", True),
        ("accuracy>=97%", True),
        ("accuracy > 0.97", False),
        ("loss < .3", True),
        ("loss <= 2e-1", True),
        ("loss > -1", True),
        ("accuracy >= 0.97 and loss < 0.1", False),
        ("accuracy >= 0.97 or loss < 0.1", True),
        ("accuracy >= 1 and loss < 1 or loss < 1", True),
        ("accuracy >= 1 and (loss < 1 or loss < 1)", False),
        ("((accuracy >= 0.5))", True),
        ("f1 > 0", False),
        ("f1 < 1", False),
        ("missing < 1", False),
    ],
)
def test_condition(text: str, expected: bool) -> None:
    assert until.holds(until.parse(text), VALUES) is expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "`until` expects the name of a metric, or `loss`, got the end"),
        ("accuracy", 9, "`until` expects `>=`, `<=`, `>` or `<`, got the end"),
        ("accuracy => 0.9", 10, "`until` expects `>=`, `<=`, `>` or `<`, got `=`"),
        ("accuracy == 0.9", 10, "`until` expects `>=`, `<=`, `>` or `<`, got `==`"),
        ("accuracy >=", 12, "`until` expects a number, got the end"),
        ("accuracy >= high", 13, "`until` expects a number, got `high`"),
        ("0.9 < accuracy", 1, "`until` expects the name of a metric, or `loss`, got `0.9`"),
        ("accuracy > 1 loss < 2", 14, "`until` expects `and`, `or` or the end, got `loss`"),
        ("accuracy > 1 and", 17, "`until` expects the name of a metric, or `loss`, got the end"),
        ("and > 1", 1, "`until` expects the name of a metric, or `loss`, got `and`"),
        ("(accuracy > 1", 14, "`until` expects `)`, got the end"),
        ("accuracy > 1)", 13, "`until` expects `and`, `or` or the end, got `)`"),
        ("__import__('os') > 1", 11, "`until` expects `>=`, `<=`, `>` or `<`, got `(`"),
        ("accuracy > 1; loss", 13, "`until` can't read `;`"),
        ("(" * 60 + "a > 1", 51, "`until` nests parentheses deeper than 50"),
        ("a" * 1001, 1, "`until` expects at most 1000 characters, got 1001"),
    ],
)
def test_wrong_condition(text: str, column: int, message: str) -> None:
    with pytest.raises(AmpError) as e:
        until.parse(text)
    (d,) = e.value.diagnostics
    assert (d.code, d.message) == ("AMP703", message)
    assert d.primary is not None and d.primary.span.column == column
    assert d.notes[1] == " " * (column - 1) + "^"


def test_unknown_name_has_a_suggestion() -> None:
    text = "loss < 1 and acuracy > 1"
    with pytest.raises(AmpError) as e:
        until.check_names(until.parse(text), text, ["loss", "accuracy"])
    (d,) = e.value.diagnostics
    assert (d.code, d.message, d.help) == ("AMP704", "`acuracy` is no value of this run", "did you mean `accuracy`?")
    assert d.primary is not None and d.primary.span.column == 14
