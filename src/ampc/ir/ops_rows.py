"""Operations that mix the rows of a payload: gather, scatter, reductions, softmax and repetition over an axis.

Zero cases: a sum, mean or maximum over nothing is 0, a softmax over nothing is empty, none as an index gathers zeros and scatters nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Type
from ampc.ir.op import Array, AttrDecl, Attrs, FieldValue, Op, Params, RowIndex, Scope, Segments, ShapeError, Shapes, shown, want_float

Types = tuple[Type, ...]
Fields = tuple[FieldDecl, ...]
Grads = tuple[list[Array], dict[str, Array]]
REDUCE = AttrDecl("reduce", str, "sum", choices=("sum", "mean", "max"))


def _index(op: str, fields: Fields) -> FieldDecl:
    if fields[0].kind != "index":
        raise ShapeError(f"`{op}` needs an index field, `{fields[0].name}` is of kind {fields[0].kind}")
    return fields[0]


def _row_index(fields: Sequence[FieldValue]) -> RowIndex:
    assert isinstance(fields[0], RowIndex)
    return fields[0]


def _segments(fields: Sequence[FieldValue]) -> Segments:
    assert isinstance(fields[-1], Segments)
    return fields[-1]


# -------------------------------------------------------------------------------------------- gather and scatter


def _gather_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("gather", types[0])
    field = _index("gather", fields)
    if types[0].rows != field.of:
        raise ShapeError(f"`{field.name}` holds positions on `{field.of}`, `gather` got {shown(types[0])}")
    return (msgspec.structs.replace(types[0], rows=field.axis),)


def _gather(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x, index = operands[0], _row_index(fields).values
    y = np.zeros((len(index), x.shape[1]), x.dtype)
    y[index >= 0] = x[index[index >= 0]]
    return y


def _gather_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    index = _row_index(fields).values
    return [add_rows(dy, index, operands[0].shape[0])], {}


def _scatter_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("scatter", types[0])
    field = _index("scatter", fields)
    if not field.axis or types[0].rows != field.axis:
        raise ShapeError(f"`scatter` needs a row for each position of whole index field `{field.name}`, got {shown(types[0])}")
    return (msgspec.structs.replace(types[0], rows=field.of),)


def add_rows(x: Array, owner: Array, n: int) -> Array:
    """Return [n, cols]: row i is the sum of the rows of `x` whose owner is i (-1: nobody's), added in float64, rounded once."""
    real = owner >= 0
    y = np.zeros((n, x.shape[1]), x.dtype)
    for c in range(x.shape[1]):
        y[:, c] = np.bincount(owner[real], x[real, c], n)[:n]
    return y


def _reduce(x: Array, owner: Array, n: int, how: object) -> Array:
    """Return [n, cols]: the rows of `x` with owner i reduced to row i; owner -1 goes nowhere, no rows give 0."""
    x, owner = x[owner >= 0], owner[owner >= 0]
    if how == "max":
        y = np.full((n, x.shape[1]), -np.inf, x.dtype)
        np.maximum.at(y, owner, x)
        y[np.bincount(owner, minlength=n) == 0] = 0
        return y
    y = add_rows(x, owner, n)
    return y / _counts(owner, n).astype(x.dtype) if how == "mean" else y


def _counts(owner: Array, n: int) -> Array:
    """Return [n, 1]: how many rows each owner has, at least 1 (nothing is divided by 0)."""
    return np.maximum(np.bincount(owner[owner >= 0], minlength=n), 1)[:, None]


def _reduce_bwd(x: Array, owner: Array, n: int, how: object, y: Array, dy: Array) -> Array:
    dx = np.zeros(x.shape, dy.dtype)
    real = owner >= 0
    if how == "sum":
        dx[real] = dy[owner[real]]
    elif how == "mean":
        dx[real] = (dy / _counts(owner, n).astype(dy.dtype))[owner[real]]
    else:
        first = np.full(y.shape, len(x))
        rows = np.arange(len(x))[real, None]
        np.minimum.at(first, owner[real], np.where(x[real] == y[owner[real]], rows, len(x)))
        at, col = np.nonzero(first < len(x))
        dx[first[at, col], col] = dy[at, col]
    return dx


def _scatter(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    index = _row_index(fields)
    return _reduce(operands[0], index.values, index.rows, attrs["reduce"])


def _scatter_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    index = _row_index(fields)
    return [_reduce_bwd(operands[0], index.values, index.rows, attrs["reduce"], y, dy)], {}


# ------------------------------------------------------------------------------------------------- over segments


def _many(op: str, t: Type) -> None:
    want_float(op, t)
    if not t.rows:
        raise ShapeError(f"`{op}` works over the rows of an axis, got a single row {shown(t)}")


def _reduce_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    _many("reduce_rows", types[0])
    return (msgspec.structs.replace(types[0], rows=scope.parents.get(types[0].rows, "")),)


def _reduce_rows(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    segments = _segments(fields)
    return _reduce(operands[0], segments.owner, len(segments.lengths), attrs["reduce"])


def _reduce_rows_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    segments = _segments(fields)
    return [_reduce_bwd(operands[0], segments.owner, len(segments.lengths), attrs["reduce"], y, dy)], {}


def _softmax_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    _many("softmax_rows", types[0])
    return types


def _softmax_rows(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x, owner, n = operands[0], _segments(fields).owner, len(_segments(fields).lengths)
    with np.errstate(over="ignore"):
        e = np.exp(x - _reduce(x, owner, n, "max")[owner])
    result: Array = (e / _reduce(e, owner, n, "sum")[owner]).astype(x.dtype, copy=False)
    return result


def _softmax_rows_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    owner, n = _segments(fields).owner, len(_segments(fields).lengths)
    return [y * (dy - _reduce(y * dy, owner, n, "sum")[owner])], {}


def _expand_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    if types[0].integer:
        raise ShapeError(f"`expand_rows` works on floats, got {shown(types[0])}")
    if not scope.declared or scope.declared[0].rows in ("", "*"):
        raise ShapeError("`expand_rows` needs to be told the axis of its result")
    axis = scope.declared[0].rows
    if types[0].rows != scope.parents.get(axis, ""):
        raise ShapeError(f"`expand_rows` to `{axis}` repeats {_of(scope.parents.get(axis, ''))}, got {shown(types[0])}")
    return (msgspec.structs.replace(types[0], rows=axis),)


def _of(parent: str) -> str:
    return f"rows of `{parent}`" if parent else "a single row"


def _expand_rows(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return operands[0][_segments(fields).owner]


def _expand_rows_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [_reduce(dy, _segments(fields).owner, operands[0].shape[0], "sum")], {}


ROWS = (
    Op("gather", "rows", _gather_rule, _gather, _gather_bwd, "the rows that an index field names; zeros for none", fields=(1, 1)),
    Op(
        "scatter", "rows", _scatter_rule, _scatter, _scatter_bwd,
        "row i to the position that an index field gives it, reduced there; 0 where none comes",
        fields=(1, 1), attrs=(REDUCE,),
    ),
    Op(
        "reduce_rows", "rows", _reduce_rule, _reduce_rows, _reduce_rows_bwd,
        "sum, mean or max over the rows of an axis, or over those of each parent of a nested axis; 0 over nothing", attrs=(REDUCE,), segmented=True,
    ),
    Op(
        "softmax_rows", "rows", _softmax_rule, _softmax_rows, _softmax_rows_bwd, "softmax of each column over the rows (of each parent)",
        segmented=True,
    ),
    Op("expand_rows", "rows", _expand_rule, _expand_rows, _expand_rows_bwd, "a row (or each parent's row) repeated over an axis", segmented=True),
)
