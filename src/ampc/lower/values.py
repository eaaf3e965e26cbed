"""What an expression or a name stands for while a program is lowered.

These exist at compile time only; a `Value` alone is a message of the graph. No graph is built here.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ampc.diagnostics import Span
from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import FieldRef, Index, Ref, Type

if TYPE_CHECKING:
    from ampc.lower.scope import Scope

UNKNOWN = -1
"""Columns of a value whose shape isn't known (yet, or because of a mistake that was reported); it fits everywhere."""


@dataclasses.dataclass(frozen=True, slots=True)
class Const:
    """A number that is known at compile time."""

    value: int | float | bool
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A bare word as a setting's or an option's value: `adam`, `glorot`."""

    name: str
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A message: one at each state of `scope`; `span` is where it was defined, `name` how the program calls it.

    `present`: the index fields that must not be none for the message to exist (it is absent at other states).
    """

    scope: Scope
    ref: Ref
    type: Type
    span: Span
    name: str = ""
    present: FieldRef | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FieldValue:
    """A field that hasn't been read into a message: at one element, or whole (`ref.at` None)."""

    decl: FieldDecl
    ref: FieldRef
    rows: str
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Element:
    """An element of `axis`: the variable of an each, visit or loop, or an index field at one.

    `scope` is that of the region whose coordinate it hangs on; `optional` holds the fields on the way that may be none.
    """

    index: Index
    axis: str
    scope: Scope
    optional: tuple[FieldRef, ...]
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """The variable of a loop over `range` or `while`, in `scope`: it counts, and is no element of an axis."""

    name: str
    scope: Scope
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """A bare index field outside of its axis's elements: `h[source]` gathers a row for every element."""

    field: FieldValue


@dataclasses.dataclass(slots=True)
class Collected:
    """A name assigned in each element of `axis`; read outside, it is one value with a row an element."""

    element: Value
    axis: str
    region: int
    scope: Scope
    variable: str
    value: Value | None = None


@dataclasses.dataclass(slots=True)
class Carry:
    """A name that a visit carries: `h[left[n]]` reads what another element ended with.

    `source` stands for that final value until the body has been lowered.
    """

    name: str
    axis: str
    scope: Scope
    source: Value
    after: tuple[str, ...]
    span: Span


Binding = Const | Value | FieldValue | Element | Turn | Collected | Carry
"""What a name may be bound to."""

Result = Const | Value | FieldValue | Element
"""What an expression may evaluate to."""


def shape(value_type: Type) -> str:
    """Return the type as users read it: `[64]`, `[atom, 64]`, `int`."""
    if value_type.integer:
        return f"int[{value_type.rows}]" if value_type.rows else "int"
    cols = "?" if value_type.cols == UNKNOWN else str(value_type.cols)
    return f"[{value_type.rows}, {cols}]" if value_type.rows else f"[{cols}]"


def unknown(value_type: Type) -> bool:
    return value_type.cols == UNKNOWN
