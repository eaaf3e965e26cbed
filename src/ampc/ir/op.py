"""What an entry of the operation table is: shape rule, forward, backward and, for element-wise operations, kernel text.

Everything here is plain numpy over arrays [rows, cols] and works in float32 and float64. No operation knows of graphs or states.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Attr, Type

Array = npt.NDArray[Any]
GroupName = Literal["unary", "binary", "columns", "rows", "parameter", "loss", "metric", "source", "integer", "random"]


class ShapeError(ValueError):
    """Operands that do not fit an operation. The message stands alone: what was expected and what came."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowIndex:
    """An index field as an operand: `values` int64 [n] are positions among `rows` rows; -1 is none."""

    values: Array
    rows: int


@dataclasses.dataclass(frozen=True, slots=True)
class Segments:
    """How rows fall into groups: group i is rows `starts[i] : starts[i + 1]`; `starts` is int64 [groups + 1].

    Operations with `segmented` set get it as the last of their fields: one group for a whole axis, one a parent for a nested axis.
    """

    starts: Array

    @property
    def lengths(self) -> Array:
        return np.diff(self.starts)

    @property
    def owner(self) -> Array:
        """int64 [rows]: the group of each row."""
        return np.repeat(np.arange(len(self.starts) - 1), self.lengths)

    @property
    def position(self) -> Array:
        """int64 [rows]: the place of each row in its group."""
        place: Array = np.arange(self.starts[-1]) - np.repeat(self.starts[:-1], self.lengths)
        return place


FieldValue = Array | RowIndex | Segments
"""float field: [n, columns]; int or flag: int64 [n]; index: `RowIndex`. An element's or an instance's field has n = 1."""

Params = Mapping[str, Array]
Attrs = Mapping[str, Attr]
Forward = Callable[[Sequence[Array], Sequence[FieldValue], Params, Attrs], Array]
Backward = Callable[[Sequence[Array], Sequence[FieldValue], Params, Attrs, Array, Array], tuple[list[Array], dict[str, Array]]]
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What a shape rule may know of the node's surroundings.

    `parents`: nested axis -> the axis that is left when its rows are reduced ("" where the node already stands at an element of it).
    `declared`: the node's output types, for operations whose result the operands do not tell (`expand_rows`).
    """

    parents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    declared: tuple[Type, ...] = ()


Rule = Callable[[tuple[Type, ...], tuple[FieldDecl, ...], Attrs, Shapes, Scope], tuple[Type, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class AttrDecl:
    """One attribute: its Python type, its range (both ends allowed), and what the lowering fills in where the program is silent."""

    name: str
    kind: type
    default: Attr | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation. `fwd` and `bwd` are its meaning; `expr` and `grads` are the same in scalar text for the code generator.

    `messages` and `fields` are the least and the greatest number of operands of each kind. `expr` is over `x0`, `x1`, `a_<attr>`, `c_<constant>`;
    each of `grads` (one an operand) over these and `y`, `g`; both may use F0 F1 F2 FH (0, 1, 2, 1/2) and the functions
    sin cos exp log sqrt sigmoid tanh softplus erf pow max min abs. An op without text has `expr` None. `finish` and `better` are for metrics.
    """

    name: str
    group: GroupName
    rule: Rule
    fwd: Forward
    bwd: Backward
    help: str
    messages: tuple[int, int] = (1, 1)
    fields: tuple[int, int] = (0, 0)
    attrs: tuple[AttrDecl, ...] = ()
    params: tuple[str, ...] = ()
    expr: str | None = None
    grads: tuple[str, ...] = ()
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    segmented: bool = False
    finish: Literal["mean", "root"] = "mean"
    better: Literal["high", "low"] = "low"

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Which of "x0", "x1", "y" the gradients of an element-wise operation read."""
        names = {n.id for text in self.grads for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}
        return tuple(n for n in ("x0", "x1", "y") if n in names)

    @property
    def defaults(self) -> dict[str, Attr]:
        """The attributes that have a default, for whoever builds a node; a node itself always carries all of them."""
        return {a.name: a.default for a in self.attrs if a.default is not None}

    def infer(
        self, types: tuple[Type, ...], fields: tuple[FieldDecl, ...] = (), attrs: Attrs | None = None, params: Shapes | None = None,
        scope: Scope | None = None,
    ) -> tuple[Type, ...]:
        """Return the types of the outputs (none for a loss or metric); raise `ShapeError` if the operands do not fit.

        `fields` are declarations as seen from the node: a field read at one element has the axis "".
        """
        attrs = attrs or {}
        _check_count(self, "message", len(types), self.messages)
        _check_count(self, "field", len(fields), self.fields)
        for declared in self.attrs:
            _check_attr(self.name, declared, attrs)
        known = {a.name for a in self.attrs}
        for name in attrs:
            if name not in known:
                raise ShapeError(f"`{self.name}` has no attribute `{name}`")
        return self.rule(types, fields, attrs, params or {}, scope or Scope())


def _check_count(op: Op, what: str, n: int, allowed: tuple[int, int]) -> None:
    low, high = allowed
    if not low <= n <= high:
        wanted = str(low) if low == high else f"{low} to {high}"
        raise ShapeError(f"`{op.name}` takes {wanted} {what} operand{'' if wanted == '1' else 's'}, got {n}")


def _check_attr(op: str, declared: AttrDecl, attrs: Attrs) -> None:
    value = attrs.get(declared.name)
    if value is None:
        raise ShapeError(f"`{op}` needs attribute `{declared.name}`")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {int: isinstance(value, int) and number, float: number, bool: isinstance(value, bool), str: isinstance(value, str)}[declared.kind]
    if not fits:
        raise ShapeError(f"attribute `{declared.name}` of `{op}` is {_kind_name(declared.kind)}, got `{value}`")
    if isinstance(value, int | float) and not (
        np.isfinite(value) and (declared.low is None or value >= declared.low) and (declared.high is None or value <= declared.high)
    ):
        low = "" if declared.low is None else f"{declared.low:g} <= "
        high = "" if declared.high is None else f" <= {declared.high:g}"
        raise ShapeError(f"attribute `{declared.name}` of `{op}` is {value}, allowed is {low}`{declared.name}`{high}, finite")
    if declared.choices and value not in declared.choices:
        raise ShapeError(f"attribute `{declared.name}` of `{op}` is one of {', '.join(declared.choices)}, got `{value}`")


def _kind_name(kind: type) -> str:
    return {int: "an integer", float: "a number", bool: "true or false", str: "a word"}[kind]


# ------------------------------------------------------------------------------------------- shared by the tables


def shown(t: Type) -> str:
    """Return the type as people read it: `[atom, 5]`, `[100]`, `int [1]`, `unit`."""
    if t == Type():
        return "unit"
    body = f"[{t.rows}, {t.cols}]" if t.rows else f"[{t.cols}]"
    return f"int {body}" if t.integer else body


def want_float(op: str, t: Type) -> None:
    if t.integer:
        raise ShapeError(f"`{op}` works on floats, got {shown(t)}")
    if t.cols < 1:
        raise ShapeError(f"`{op}` needs at least one column, got {shown(t)}")


def want_unit(op: str, t: Type) -> None:
    if t.cols or t.integer:
        raise ShapeError(f"`{op}` is started by a unit message, got {shown(t)}")


def no_bwd(
    operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array,
) -> tuple[list[Array], dict[str, Array]]:
    """The backward of everything that has no gradient: zeros of the operands' shapes."""
    return [np.zeros(x.shape, dy.dtype) for x in operands], {}


def number(attrs: Attrs, name: str) -> float:
    """Return a numeric attribute; the shape rule has checked it."""
    value = attrs[name]
    assert isinstance(value, int | float)
    return value


def integer(attrs: Attrs, name: str) -> int:
    value = attrs[name]
    assert isinstance(value, int)
    return value


def unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return `gradient` summed over the rows and columns along which an operand of `shape` was repeated."""
    if shape[0] == 1 and gradient.shape[0] != 1:
        gradient = gradient.sum(axis=0, keepdims=True)
    if shape[1] == 1 and gradient.shape[1] != 1:
        gradient = gradient.sum(axis=1, keepdims=True)
    return gradient
