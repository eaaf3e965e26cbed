"""Names and where they can be seen: the bookkeeping of `check`.

A scope is the model, a `def`, a loop, a visit, an each or an arm of a branch. What a name stands for is a `Binding`; shapes are not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

from ampc.diagnostics import Diagnostic, Label, Span, did_you_mean
from ampc.frontend import ast

Kind = Literal["parameter", "axis", "field", "layer", "function", "value", "carried", "element", "turn", "member", "broken"]
Form = Literal["model", "def", "loop", "visit", "each", "arm"]

NOUN = {
    "parameter": "a parameter of the model",
    "axis": "an axis",
    "field": "a field",
    "layer": "a layer",
    "function": "a function",
    "value": "a value",
    "carried": "a value",
    "element": "the variable of a block",
    "turn": "the variable of a loop",
    "member": "the variable of a branch",
    "broken": "a name",
}
DECLARED = ("parameter", "axis", "field", "layer", "function")
VARIABLES = ("element", "turn", "member")


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """What a name stands for; "broken" is one whose mistake was reported, so that its uses aren't.

    `axis` is the axis of an element, or the one that a value is known to lie over ("" if unknown).
    """

    name: str
    kind: Kind
    span: Span
    axis: str = ""


@dataclasses.dataclass(slots=True)
class Scope:
    """One block. `bare` and `indexed` are the outer names that were read in it; `stale` those whose newer value ended with its block.

    `narrowed` is the selector that isn't none in an arm; `excused` are names whose missing `carry` was reported;
    `unsure` a loop whose `carry` names something unknown, perhaps one of the names that it should carry.
    """

    form: Form
    outer: Scope | None = None
    axis: str = ""
    after: tuple[str, ...] = ()
    carry: frozenset[str] = frozenset()
    names: dict[str, Binding] = dataclasses.field(default_factory=dict)
    assigned: dict[str, Span] = dataclasses.field(default_factory=dict)
    bare: dict[str, Span] = dataclasses.field(default_factory=dict)
    indexed: dict[str, Span] = dataclasses.field(default_factory=dict)
    stale: dict[str, tuple[Span, Form]] = dataclasses.field(default_factory=dict)
    gone: dict[str, tuple[Span, Form]] = dataclasses.field(default_factory=dict)
    gathered: dict[str, ast.Accumulate] = dataclasses.field(default_factory=dict)
    narrowed: object = None
    excused: set[str] = dataclasses.field(default_factory=set)
    unsure: bool = False

    def chain(self) -> Iterator[Scope]:
        """Yield the scopes from this one outwards."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def find(self, name: str) -> Binding | None:
        return next((s.names[name] for s in self.chain() if name in s.names), None)

    def read(self, name: str, span: Span, indexed: bool) -> Binding | None:
        """Return what `name` stands for, and note in each block on the way out that it was read there."""
        for scope in self.chain():
            if name in scope.names:
                return scope.names[name]
            (scope.indexed if indexed else scope.bare).setdefault(name, span)
        return None

    def lost(self, name: str) -> tuple[Span, Form] | None:
        """Return where a newer value of `name` ended with its block, if reading it here would give the older one."""
        for scope in self.chain():
            if name in scope.stale:
                return scope.stale[name]
            if name in scope.names:
                return None
        return None

    def ended(self, name: str) -> tuple[Span, Form] | None:
        """Return where a value of this name was assigned in a block that is over."""
        return next((s.gone[name] for s in self.chain() if name in s.gone), None)

    def visible(self) -> list[str]:
        return [n for s in self.chain() for n in s.names]


class Reporter:
    """Collects the mistakes of one model, each once for each place and code."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.seen: set[tuple[str, Span]] = set()
        self.undefined: set[str] = set()

    def once(self, name: str) -> bool:
        """Whether an unknown name is met for the first time."""
        known = name in self.undefined
        self.undefined.add(name)
        return not known

    def report(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *,
        also: tuple[Label, ...] = (),
        help: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        if (code, span) in self.seen:
            return
        self.seen.add((code, span))
        self.errors.append(Diagnostic(code, message, Label(span, label), also, notes, help))


PYTHON = {"True": "true", "False": "false"}


def suggestion(name: str, known: list[str]) -> str | None:
    """Return the nearest known name as a question, or what a word of Python is called here."""
    if name == "None":
        return "`none` is an arm of a `branch`, not a value"
    return f"write `{PYTHON[name]}`" if name in PYTHON else did_you_mean(name, dict.fromkeys(known))


def written(e: ast.Expr) -> str:
    """Return a short expression as it is written; `…` for a long one."""
    match e:
        case ast.Name():
            return e.id
        case ast.Number():
            return str(e.value)
        case ast.Index():
            return f"{e.base.id}[{written(e.index)}]"
        case _:
            return "…"


def name_span(k: ast.Keyword) -> Span:
    """Return the place of an option's name."""
    return Span(k.span.file, k.span.line, k.span.column, k.span.line, k.span.column + len(k.name))


def shape_of(e: ast.Expr) -> object:
    """Return the expression without its places, to tell whether two say the same."""
    match e:
        case ast.Name():
            return e.id
        case ast.Number() | ast.Bool() | ast.Text():
            return ("constant", e.value)
        case ast.Index():
            return (e.base.id, shape_of(e.index))
        case _:
            return ("other", id(e))
