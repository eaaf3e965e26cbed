"""Operations over the columns of each row, the start of chains (sources of payloads), integers for computed branches, dropout.

Rows never mix here: an operation on many rows equals the operation on each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Type
from ampc.ir.op import (
    Array,
    AttrDecl,
    Attrs,
    FieldValue,
    Op,
    Params,
    RowIndex,
    Scope,
    ShapeError,
    Shapes,
    integer,
    no_bwd,
    number,
    shown,
    want_float,
    want_unit,
)

Types = tuple[Type, ...]
Fields = tuple[FieldDecl, ...]
Grads = tuple[list[Array], dict[str, Array]]

# ------------------------------------------------------------------------------------------------ width changes


def _pad_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("pad", types[0])
    if integer(attrs, "cols") < types[0].cols:
        raise ShapeError(f"`pad` to {attrs['cols']} columns needs no more than that, got {shown(types[0])}")
    return (Type(types[0].rows, integer(attrs, "cols")),)


def _pad(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x = operands[0]
    y = np.zeros((x.shape[0], integer(attrs, "cols")), x.dtype)
    y[:, : x.shape[1]] = x
    return y


def _pad_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [dy[:, : operands[0].shape[1]].copy()], {}


def _columns_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("columns", types[0])
    start, stop = integer(attrs, "start"), integer(attrs, "stop")
    if not 0 <= start < stop <= types[0].cols:
        raise ShapeError(f"columns {start}:{stop} lie outside of {shown(types[0])}")
    return (Type(types[0].rows, stop - start),)


def _columns(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return operands[0][:, integer(attrs, "start") : integer(attrs, "stop")].copy()


def _columns_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    dx = np.zeros(operands[0].shape, dy.dtype)
    dx[:, integer(attrs, "start") : integer(attrs, "stop")] = dy
    return [dx], {}


# ------------------------------------------------------------------------------------------- softmax, reductions


def softmax(x: Array) -> Array:
    """Return the softmax over the columns, stable for any finite values."""
    with np.errstate(over="ignore"):
        e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]  # sums of Any


def log_softmax(x: Array) -> Array:
    """Return the logarithm of `softmax`, without taking a logarithm of 0."""
    with np.errstate(over="ignore"):
        z = x - x.max(axis=1, keepdims=True)
    result: Array = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return result


def _same(name: str) -> Callable[..., Types]:
    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        want_float(name, types[0])
        return types

    return rule


def _one_column(name: str) -> Callable[..., Types]:
    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        want_float(name, types[0])
        return (Type(types[0].rows, 1),)

    return rule


def _softmax_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [y * (dy - (y * dy).sum(axis=1, keepdims=True))], {}


def _log_softmax_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [dy - np.exp(y) * dy.sum(axis=1, keepdims=True)], {}


def _sum_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [np.repeat(dy, operands[0].shape[1], axis=1)], {}


def _mean_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [np.repeat(dy / operands[0].shape[1], operands[0].shape[1], axis=1)], {}


def _max_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    dx = np.zeros(operands[0].shape, dy.dtype)
    dx[np.arange(len(dx)), operands[0].argmax(axis=1)] = dy[:, 0]
    return [dx], {}


def _dot_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    for t in types:
        want_float("dot", t)
    a, b = types
    if a.cols != b.cols:
        raise ShapeError(f"`dot` needs equal columns, got {shown(a)} and {shown(b)}")
    if a.rows != b.rows and "" not in (a.rows, b.rows):
        raise ShapeError(f"`dot` needs rows of the same axis, or a single row on one side, got {shown(a)} and {shown(b)}")
    return (Type(a.rows or b.rows, 1),)


def _dot_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    a, b = operands
    da, db = dy * b, dy * a
    return [d.sum(axis=0, keepdims=True) if x.shape[0] == 1 != d.shape[0] else d for x, d in ((a, da), (b, db))], {}


def _gate_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    if not types[1].integer or types[1].cols != 1 or types[1].rows:
        raise ShapeError(f"`gate` waits for one integer, got {shown(types[1])}")
    return (types[0],)


def _gate_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [dy, np.zeros(operands[1].shape, dy.dtype)], {}


def _any_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    return types


COLUMNS = (
    Op(
        "identity", "columns", _any_rule, lambda o, f, p, a: o[0], lambda o, f, p, a, y, dy: ([dy], {}),
        "x, whatever it is: a place where a message that only passes through comes to rest", expr="x0", grads=("g",),
    ),
    Op(
        "gate", "columns", _gate_rule, lambda o, f, p, a: o[0], _gate_bwd,
        "x, once the integer is there: holds a message back until its branch is decided", messages=(2, 2),
    ),
    Op("pad", "columns", _pad_rule, _pad, _pad_bwd, "zeros appended up to `cols` columns", attrs=(AttrDecl("cols", int, low=1),)),
    Op(
        "columns", "columns", _columns_rule, _columns, _columns_bwd, "columns `start` to `stop`, exclusive",
        attrs=(AttrDecl("start", int, low=0), AttrDecl("stop", int, low=1)),
    ),
    Op("softmax", "columns", _same("softmax"), lambda o, f, p, a: softmax(o[0]), _softmax_bwd, "exp(x) over its sum, in each row"),
    Op("log_softmax", "columns", _same("log_softmax"), lambda o, f, p, a: log_softmax(o[0]), _log_softmax_bwd, "logarithm of softmax"),
    Op("sum_columns", "columns", _one_column("sum_columns"), lambda o, f, p, a: o[0].sum(axis=1, keepdims=True), _sum_bwd, "sum of each row"),
    Op("mean_columns", "columns", _one_column("mean_columns"), lambda o, f, p, a: o[0].mean(axis=1, keepdims=True), _mean_bwd, "mean of each row"),
    Op(
        "max_columns", "columns", _one_column("max_columns"), lambda o, f, p, a: o[0].max(axis=1, keepdims=True), _max_bwd,
        "greatest of each row; the first of equal ones gets the gradient",
    ),
    Op(
        "dot", "columns", _dot_rule, lambda o, f, p, a: (o[0] * o[1]).sum(axis=1, keepdims=True), _dot_bwd, "inner product of each row",
        messages=(2, 2),
    ),
)

# --------------------------------------------------------------------------------------------------- sources


def _fill_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_unit("fill", types[0])
    return (Type(types[0].rows, integer(attrs, "cols")),)


def _fill(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return np.full((operands[0].shape[0], integer(attrs, "cols")), number(attrs, "value"), operands[0].dtype)


def _constant_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_unit("constant", types[0])
    return (Type(types[0].rows, 1, True),)


def _constant(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return np.full((operands[0].shape[0], 1), integer(attrs, "value"), np.int64)


def _source_rows(op: str, types: Types, fields: Fields) -> str:
    """Rows of what a source makes of its field; its trigger is a single unit row."""
    want_unit(op, types[0])
    if types[0].rows:
        raise ShapeError(f"`{op}` is started by a single unit message, got {shown(types[0])}")
    return fields[0].axis


def _field_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    rows = _source_rows("field", types, fields)
    if fields[0].kind != "float":
        raise ShapeError(f"`field` reads a float field, `{fields[0].name}` is of kind {fields[0].kind}")
    return (Type(rows, fields[0].columns),)


def _field(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    value = fields[0]
    assert isinstance(value, np.ndarray)
    return value.astype(operands[0].dtype)


def integers(value: FieldValue | Array) -> Array:
    """Return an int, flag or index field, or an integer message, as int64 [n]."""
    if isinstance(value, RowIndex):
        return value.values
    assert isinstance(value, np.ndarray)
    return value.reshape(-1).astype(np.int64)


def integer_rows(op: str, types: Types, fields: Fields) -> str:
    """Rows of an operation that takes its integers from `fields[0]` (and a unit message) or from an integer message."""
    if fields:
        rows = _source_rows(op, types, fields)
        if fields[0].kind == "float":
            raise ShapeError(f"`{op}` reads integers, `{fields[0].name}` is a float field")
        return rows
    if not types[0].integer or types[0].cols != 1:
        raise ShapeError(f"`{op}` reads one integer a row, got {shown(types[0])}")
    return types[0].rows


def want_bound(op: str, field: FieldDecl, most: int, what: str) -> None:
    """Raise ShapeError unless a field's integers surely lie below `most`; `what` is counted by that."""
    if field.kind == "index":
        raise ShapeError(f"`{op}` needs an int or a flag, `{field.name}` holds positions on `{field.of}`")
    below = 2 if field.kind == "flag" else field.below
    if not below:
        raise ShapeError(f"`{op}` of `{field.name}`, which may be any integer, needs a bound: there are {most} {what}")
    if below > most:
        raise ShapeError(f"`{op}` of `{field.name}`, an int below {below}, needs as many {what}, got {most}")


def _one_hot_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    rows = integer_rows("one_hot", types, fields)
    if fields:
        want_bound("one_hot", fields[0], integer(attrs, "cols"), "columns")
    return (Type(rows, integer(attrs, "cols")),)


def _one_hot(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    values, cols = integers(fields[0] if fields else operands[0]), integer(attrs, "cols")
    dtype = operands[0].dtype if operands[0].dtype.kind == "f" else np.float32
    result: Array = (values[:, None] == np.arange(cols)[None, :]).astype(dtype)
    return result


def _number_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    return (Type(integer_rows("number", types, fields), 1),)


def _number(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    dtype = operands[0].dtype if operands[0].dtype.kind == "f" else np.float32
    return integers(fields[0] if fields else operands[0])[:, None].astype(dtype)


def _unit_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    return (Type(types[0].rows),)


def _unit(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    dtype = operands[0].dtype if operands[0].dtype.kind == "f" else np.float32
    return np.zeros((operands[0].shape[0], 0), dtype)


def _unit_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [np.zeros(operands[0].shape, dy.dtype)], {}


SOURCES = (
    Op("unit", "source", _unit_rule, _unit, _unit_bwd, "a unit message when any message comes; no gradient"),
    Op(
        "fill", "source", _fill_rule, _fill, no_bwd, "`value` in each of `cols` columns, a row for each unit row",
        attrs=(AttrDecl("cols", int, low=1), AttrDecl("value", float, 0.0)),
    ),
    Op(
        "constant", "source", _constant_rule, _constant, no_bwd, "the integer `value`, a row for each unit row",
        attrs=(AttrDecl("value", int, low=0, high=1 << 24),),
    ),
    Op("field", "source", _field_rule, _field, no_bwd, "a float field as a payload; NaN where it has none", fields=(1, 1)),
    Op(
        "one_hot", "source", _one_hot_rule, _one_hot, no_bwd, "1 in the column that an int field (or integer message) names; none gives zeros",
        fields=(0, 1), attrs=(AttrDecl("cols", int, low=1),),
    ),
    Op("number", "source", _number_rule, _number, no_bwd, "an int or flag field (or integer message) as a float", fields=(0, 1)),
)

# -------------------------------------------------------------------------------------------------- integers


def _argmax_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("argmax", types[0])
    return (Type(types[0].rows, 1, True),)


def _argmax(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    result: Array = operands[0].argmax(axis=1, keepdims=True).astype(np.int64)
    return result


def _compare(name: str, f: Callable[[Array, Array], Array], help: str) -> Op:
    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        a, b = types
        if a.cols != 1 or b.cols != 1 or a.integer != b.integer:
            raise ShapeError(f"`{name}` compares two numbers of one kind, got {shown(a)} and {shown(b)}")
        if a.rows != b.rows and "" not in (a.rows, b.rows):
            raise ShapeError(f"`{name}` needs rows of the same axis, got {shown(a)} and {shown(b)}")
        return (Type(a.rows or b.rows, 1, True),)

    return Op(name, "integer", rule, lambda o, fs, p, a: f(o[0], o[1]).astype(np.int64), no_bwd, help, messages=(2, 2))


def _threshold(name: str, f: Callable[[Array, float], Array], help: str) -> Op:
    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        if types[0].cols != 1:
            raise ShapeError(f"`{name}` compares one number a row, got {shown(types[0])}")
        return (Type(types[0].rows, 1, True),)

    def fwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
        return f(operands[0], number(attrs, "threshold")).astype(np.int64)

    return Op(name, "integer", rule, fwd, no_bwd, help, attrs=(AttrDecl("threshold", float),))


def _logic(name: str, n: int, f: Callable[[list[Array]], Array], help: str) -> Op:
    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        for t in types:
            if not t.integer or t.cols != 1:
                raise ShapeError(f"`{name}` joins results of comparisons, got {shown(t)}")
        if len({t.rows for t in types}) > 1:
            raise ShapeError(f"`{name}` needs rows of the same axis, got {' and '.join(shown(t) for t in types)}")
        return (types[0],)

    return Op(name, "integer", rule, lambda o, fs, p, a: f([x != 0 for x in o]).astype(np.int64), no_bwd, help, messages=(n, n))


INTEGERS = (
    Op("argmax", "integer", _argmax_rule, _argmax, no_bwd, "column of the greatest value, the first of equal ones"),
    _compare("less", lambda a, b: a < b, "1 where x < y, else 0"),
    _compare("less_equal", lambda a, b: a <= b, "1 where x <= y, else 0"),
    _compare("equal", lambda a, b: a == b, "1 where x = y, else 0"),
    _threshold("at_least", lambda a, t: a >= t, "1 where x >= threshold, else 0"),
    _threshold("above", lambda a, t: a > t, "1 where x > threshold, else 0"),
    _threshold("is", lambda a, t: a == t, "1 where x = threshold, else 0"),
    _logic("both", 2, lambda o: o[0] & o[1], "1 where neither is 0"),
    _logic("either", 2, lambda o: o[0] | o[1], "1 where not both are 0"),
    _logic("not", 1, lambda o: ~o[0], "1 where x is 0"),
)

# --------------------------------------------------------------------------------------------------- dropout


def _dropout(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return operands[0] * _mask(operands[0], fields, attrs)


def _dropout_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [dy * _mask(operands[0], fields, attrs)], {}


def _mask(x: Array, fields: Sequence[FieldValue], attrs: Attrs) -> Array:
    """The factors: 1 / (1 - rate) for kept values, 0 for dropped ones; without a field (no training) all are 1."""
    if not fields:
        return np.ones_like(x)
    kept = fields[0]
    assert isinstance(kept, np.ndarray)
    return (kept / (1.0 - number(attrs, "rate"))).astype(x.dtype)


RANDOM = (
    Op(
        "dropout", "random", _same("dropout"), _dropout, _dropout_bwd,
        "in training a share `rate` of the values set to 0 and the others scaled up; the identity otherwise",
        attrs=(AttrDecl("rate", float, 0.5, low=0.0, high=0.999999),),
    ),
)
