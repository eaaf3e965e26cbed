"""The stopping condition: `accuracy >= 0.97 and loss < 0.1`, parsed by hand into comparisons, `and`, `or` and parentheses.

The compiler checks those of a `train:` block, a run all others. A value that is undefined (None) makes its comparison false, whichever way
it points. Nothing is ever evaluated as code.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NoReturn

from ampc.diagnostics import AmpError, Diagnostic, Label, Span, did_you_mean, error
from ampc.ir.graph import Graph

Operator = Literal[">=", "<=", ">", "<"]
LIMIT = 1000
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?)|(?P<op>>=|<=|==|!=|=|>|<)|(?P<paren>[()]))"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Compare:
    """`name operator number`."""

    name: str
    operator: Operator
    number: float
    column: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class All:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Any:
    """At least one part holds."""

    parts: tuple[Condition, ...]


Condition = Compare | All | Any


def parse(text: str) -> Condition:
    """Return the condition that `text` says; `and` binds tighter than `or`, `97%` is 0.97. Raises AmpError AMP703 with the place."""
    if len(text) > LIMIT:
        _fail(text[:60] + "...", 0, f"expects at most {LIMIT} characters, got {len(text)}")
    parser = _Parser(text)
    condition = parser.either()
    if parser.kind != "end":
        parser.expected("`and`, `or` or the end")
    return condition


def holds(condition: Condition, values: Mapping[str, float | None]) -> bool:
    """Return whether the condition holds for `values`; a name that is missing or None makes its comparison false."""
    match condition:
        case All(parts):
            return all(holds(p, values) for p in parts)
        case Any(parts):
            return any(holds(p, values) for p in parts)
        case Compare(name, operator, number):
            value = values.get(name)
            if value is None:
                return False
            return {">=": value >= number, "<=": value <= number, ">": value > number, "<": value < number}[operator]


def names(condition: Condition) -> list[str]:
    """Return the names that the condition reads, in order."""
    return [condition.name] if isinstance(condition, Compare) else [n for p in condition.parts for n in names(p)]


def values(graph: Graph) -> list[str]:
    """Return the values that a run of the program has: what `until` and `watch` may name."""
    metrics = list(graph.metrics)
    return ["loss", *metrics, "train.loss", *(f"train.{m}" for m in metrics)]


def check_watch(name: str, known: Iterable[str]) -> None:
    """Raise AmpError AMP704 if `watch` names no value of the run."""
    known = list(known)
    if name not in known:
        raise error("AMP704", f"`watch` names `{name}`, which is no value of this run", help=_suggest(name, known))


def _suggest(name: str, known: list[str]) -> str:
    for prefix in ("valid.", "validation.", "val."):
        if name.removeprefix(prefix) in known:
            return f"did you mean `{name.removeprefix(prefix)}`? That is the value of the validation"
    return did_you_mean(name, known) or "this run has " + ", ".join(f"`{k}`" for k in known)


def check_names(condition: Condition, text: str, known: Iterable[str]) -> None:
    """Raise AmpError AMP704 if the condition reads a value that this run doesn't have."""
    known = list(known)
    if isinstance(condition, Compare):
        if condition.name not in known:
            raise _error("AMP704", text, condition.column, f"`{condition.name}` is no value of this run", _suggest(condition.name, known))
        return
    for part in condition.parts:
        check_names(part, text, known)


class _Parser:
    """One token of look-ahead: `kind` ("name", "number", "op", "paren", "and", "or", "end"), `word`, `column` (from 0)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.advance()

    def advance(self) -> None:
        rest = self.text[self.position :]
        self.column = self.position + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.kind, self.word = "end", ""
            return
        found = _TOKEN.match(self.text, self.position)
        if found is None or found.lastgroup is None:
            _fail(self.text, self.column, f"can't read `{self.text[self.column]}`")
        self.kind, self.word = found.lastgroup, found[found.lastgroup]
        if self.kind == "name" and self.word in ("and", "or"):
            self.kind = self.word
        self.position = found.end()

    def expected(self, what: str) -> NoReturn:
        _fail(self.text, self.column, f"expects {what}, got " + (f"`{self.word}`" if self.word else "the end"))

    def either(self) -> Condition:
        parts = [self.both()]
        while self.kind == "or":
            self.advance()
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def both(self) -> Condition:
        parts = [self.one()]
        while self.kind == "and":
            self.advance()
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def one(self) -> Condition:
        if self.word == "(":
            self.depth += 1
            if self.depth > 50:
                _fail(self.text, self.column, "nests parentheses deeper than 50")
            self.advance()
            inside = self.either()
            if self.word != ")":
                self.expected("`)`")
            self.depth -= 1
            self.advance()
            return inside
        if self.kind != "name":
            self.expected("the name of a metric, or `loss`")
        name, column = self.word, self.column
        self.advance()
        if self.word not in (">=", "<=", ">", "<"):
            self.expected("`>=`, `<=`, `>` or `<`")
        operator = self.word
        self.advance()
        if self.kind != "number":
            self.expected("a number")
        number = float(self.word[:-1]) / 100 if self.word.endswith("%") else float(self.word)
        self.advance()
        return Compare(name, operator, number, column)  # type: ignore[arg-type]  # tested above


def _fail(text: str, column: int, what: str) -> NoReturn:
    raise _error("AMP703", text, column, what, "for instance `accuracy >= 0.97` or `loss < 0.1 and accuracy > 0.9`")


def _error(code: str, text: str, column: int, what: str, help: str) -> AmpError:
    span = Span("--until", 1, column + 1, 1, column + 2)
    return AmpError(Diagnostic(code, f"`until` {what}" if code == "AMP703" else what, Label(span), notes=(text, " " * column + "^"), help=help))
