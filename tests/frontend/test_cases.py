"""Program texts that broke other front ends: line endings, comments, missing signs, words of Python as names, shadowing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ampc.diagnostics import AmpError, Diagnostic, render
from ampc.frontend import ast, check, parse
from ampc.ir.graph import Graph
from ampc.lower import lower

TESTS = Path(__file__).parents[1]
CASES = TESTS / "cases"


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def graph_of(path: Path) -> Graph:
    model = parse(text_of(path), path.name)
    check(model)
    return lower(model, {})


def without_places(graph: Graph) -> Graph:
    return graph.with_nodes(tuple(msgspec.structs.replace(n, origin=()) for n in graph.nodes))


def errors_of(path: Path) -> tuple[Diagnostic, ...]:
    with pytest.raises(AmpError) as caught:
        check(parse(text_of(path), path.name))
    return caught.value.diagnostics


def spans(node: Any) -> list[Any]:
    """Return the places of all nodes of a tree, in order."""
    if isinstance(node, tuple):
        return [s for x in node for s in spans(x)]
    if not dataclasses.is_dataclass(node) or not hasattr(node, "span"):
        return []
    s = node.span
    inner = [x for f in dataclasses.fields(node) if f.name != "span" for x in spans(getattr(node, f.name))]
    return [(s.line, s.column, s.end_line, s.end_column), *inner]


@pytest.mark.parametrize("name", ["crlf_no_eol", "bom"])
def test_line_endings_and_byte_order_mark_change_nothing(name: str) -> None:
    """F01"""
    plain = TESTS / "models_cases" / "q.amp"
    assert without_places(graph_of(CASES / "F01" / f"{name}.amp")) == without_places(graph_of(plain))
    assert spans(parse(text_of(CASES / "F01" / f"{name}.amp"))) == spans(parse(text_of(plain)))


def test_a_block_may_end_the_file() -> None:
    """F01: the loss stands before the loop and judges the first value."""
    model = parse(text_of(CASES / "F01" / "ends_in_block.amp"))
    check(model)
    assert isinstance(model.body[-1], ast.Loop) and len(model.body[-1].body) == 1


def test_marks_are_right_under_crlf() -> None:
    text = text_of(CASES / "F01" / "crlf_no_eol.amp").replace("h + w", "hh + w")
    with pytest.raises(AmpError) as caught:
        check(parse(text, "m.amp"))
    (d,) = caught.value.diagnostics
    assert render(d, {"m.amp": text}).split("\n")[2:4] == ["  12 |         h = hh + w(x[t])", "     |             ^^"]


def test_comments_may_stand_anywhere() -> None:
    """F04"""
    assert without_places(graph_of(CASES / "F04" / "comments.amp")) == without_places(graph_of(TESTS / "models_cases" / "q.amp"))


@pytest.mark.parametrize(
    ("name", "code", "line", "column", "words"),
    [
        ("missing_colon", "AMP111", 11, 28, "expected `:` at the end of the `loop` line"),
        ("missing_paren", "AMP104", 12, 18, "`(` is never closed"),
        ("keyword_typo", "AMP116", 11, 5, "`lop` starts no statement"),
        ("empty_block", "AMP114", 11, 5, "the block of `loop` is empty"),
    ],
)
def test_syntax_errors_speak_of_the_language(name: str, code: str, line: int, column: int, words: str) -> None:
    """F05: one error for one mistake, in words of the language."""
    (d,) = errors_of(CASES / "F05" / f"{name}.amp")
    assert d.primary is not None
    assert (d.code, d.primary.span.line, d.primary.span.column, d.message) == (code, line, column, words)
    assert not re.search(r"__ANON|_NEWLINE|_INDENT|RPAR|\$END|Token\(", render(d, {}))
    if name == "keyword_typo":
        assert d.help == "did you mean `loop`?"


def test_words_of_python_are_names() -> None:
    """F07"""
    graph = graph_of(CASES / "F07" / "keywords.amp")
    assert set(graph.field) == {"lambda", "class"} and set(graph.layer) == {"input"}


@pytest.mark.parametrize(
    "name", ["lambda", "class", "None", "self", "type", "input", "import", "async", "print", "exec", "nan", "float", "int", "range"]
)
def test_a_field_may_have_any_name(name: str) -> None:
    """F07: names of other languages are names here; only words of this language are refused."""
    model = parse(f"model m():\n    instance:\n        {name}: float[3]\n    w = Linear(3, 1)\n    loss squared(w({name}), 1)\n")
    check(model)
    assert lower(model, {}).fields[0].name == name


@pytest.mark.parametrize("name", ["def", "loop", "true", "none", "loss", "in", "and"])
def test_a_word_of_the_language_is_no_name(name: str) -> None:
    text = f"model m():\n    instance:\n        {name}: float[3]\n    w = Linear(3, 1)\n    loss squared(w(1), 1)\n"
    with pytest.raises(AmpError) as caught:
        parse(text)
    (d,) = caught.value.diagnostics
    assert d.code == "AMP119" and d.message == f"`{name}` is a word of the language and can't be a name"


def test_a_loop_variable_hides_nothing() -> None:
    """F10: errors at both loops, with both places."""
    found = errors_of(CASES / "F10" / "shadow.amp")
    assert [(d.code, d.message) for d in found] == [
        ("AMP203", "the variable `x` would hide a field"),
        ("AMP203", "the variable `w` would hide a layer"),
    ]
    places = [(d.primary.span.line, d.secondary[0].span.line) for d in found if d.primary is not None]
    assert places == [(8, 4), (10, 6)]
