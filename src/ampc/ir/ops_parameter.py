"""Operations with parameters: their backward also gives the parameters' gradients, summed over the rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Type
from ampc.ir.op import Array, AttrDecl, Attrs, FieldValue, Op, Params, Scope, ShapeError, Shapes, integer, number, shown, want_float
from ampc.ir.ops_columns import integer_rows, integers, want_bound
from ampc.ir.ops_rows import add_rows

Types = tuple[Type, ...]
Fields = tuple[FieldDecl, ...]
Grads = tuple[list[Array], dict[str, Array]]


def _want_params(op: str, params: Shapes, needed: Sequence[str], optional: Sequence[str] = ()) -> None:
    missing = [n for n in needed if n not in params]
    extra = [n for n in params if n not in needed and n not in optional]
    if missing or extra:
        raise ShapeError(f"`{op}` needs parameters {', '.join(needed)}, the layer has {', '.join(params) or 'none'}")


def _linear_type(op: str, t: Type, params: Shapes, prefix: str = "") -> Type:
    want_float(op, t)
    w = params[prefix + "w"]
    if len(w) != 2 or w[0] != t.cols:
        raise ShapeError(f"`{op}` with weights {list(w)} takes {w[0]} columns, got {shown(t)}")
    if params.get(prefix + "b", (w[1],)) != (w[1],):
        raise ShapeError(f"`{op}` with weights {list(w)} needs a bias of [{w[1]}], got {list(params[prefix + 'b'])}")
    return Type(t.rows, w[1])


def _linear_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    _want_params("linear", params, ("w",), ("b",))
    return (_linear_type("linear", types[0], params),)


def _linear(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    y = operands[0] @ params["w"]
    return y + params["b"] if "b" in params else y


def _linear_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    d = {"w": operands[0].T @ dy}
    if "b" in params:
        d["b"] = dy.sum(axis=0)
    return [dy @ params["w"].T], d


def _part_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    _want_params("linear_part", params, ("w",), ("b",))
    want_float("linear_part", types[0])
    w, first, cols = params["w"], integer(attrs, "first"), types[0].cols
    if len(w) != 2 or first + cols > w[0]:
        raise ShapeError(f"`linear_part` of weights {list(w)} takes {w[0] - first} columns at most from row {first} on, got {shown(types[0])}")
    return (Type(types[0].rows, w[1]),)


def _part(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    first = integer(attrs, "first")
    y: Array = operands[0] @ params["w"][first : first + operands[0].shape[1]]
    return y


def _part_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    first = integer(attrs, "first")
    rows = slice(first, first + operands[0].shape[1])
    d = {name: np.zeros(p.shape, dy.dtype) for name, p in params.items()}
    d["w"][rows] = operands[0].T @ dy
    return [dy @ params["w"][rows].T], d


def _by_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    count = integer(attrs, "members")
    _want_params("linear_by", params, [f"{i}.w" for i in range(count)], [f"{i}.b" for i in range(count)])
    if fields[0].kind not in ("int", "flag") or not 0 < (fields[0].below or 2) <= count:
        raise ShapeError(f"`linear_by` needs an int field below {count}, its members, `{fields[0].name}` is {fields[0].kind} below {fields[0].below}")
    if fields[0].axis != types[0].rows:
        raise ShapeError(f"`linear_by` needs a row for each element of `{fields[0].axis}`, got {shown(types[0])}")
    results = {_linear_type("linear_by", types[0], params, f"{i}.") for i in range(count)}
    if len(results) != 1:
        raise ShapeError("`linear_by` needs members of one shape")
    return (results.pop(),)


def _linear_by(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x, kind = operands[0], integers(fields[0])
    y = np.zeros((len(x), params["0.w"].shape[1]), x.dtype)
    for i in range(integer(attrs, "members")):
        y[kind == i] = x[kind == i] @ params[f"{i}.w"] + params.get(f"{i}.b", 0)
    return y


def _linear_by_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    x, kind = operands[0], integers(fields[0])
    dx, d = np.zeros(x.shape, dy.dtype), {}
    for i in range(integer(attrs, "members")):
        mine = kind == i
        dx[mine] = dy[mine] @ params[f"{i}.w"].T
        d[f"{i}.w"] = x[mine].T @ dy[mine]
        if f"{i}.b" in params:
            d[f"{i}.b"] = dy[mine].sum(axis=0)
    return [dx], d


def _lookup_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    _want_params("lookup", params, ("table",))
    rows, table = integer_rows("lookup", types, fields), params["table"]
    if len(table) != 2:
        raise ShapeError(f"`lookup` needs a table of rows and columns, got {list(table)}")
    if fields:
        want_bound("lookup", fields[0], table[0], "rows in the table")
    return (Type(rows, table[1]),)


def _lookup(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    index, table = integers(fields[0] if fields else operands[0]), params["table"]
    y = np.zeros((len(index), table.shape[1]), table.dtype)
    y[index >= 0] = table[index[index >= 0]]
    return y


def _lookup_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    index = integers(fields[0] if fields else operands[0])
    return [np.zeros(operands[0].shape, dy.dtype)], {"table": add_rows(dy, index, params["table"].shape[0])}


def _norm_rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
    want_float("layer_norm", types[0])
    _want_params("layer_norm", params, ("gain", "bias"))
    for name in ("gain", "bias"):
        if params[name] != (types[0].cols,):
            raise ShapeError(f"`layer_norm` with a {name} of {list(params[name])} takes {params[name][0]} columns, got {shown(types[0])}")
    return (msgspec.structs.replace(types[0]),)


def _normal(x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the rows with mean 0 and variance 1, and [rows, 1] what they were divided by."""
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + number(attrs, "eps"))
    return centred / deviation, deviation


def _norm(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return _normal(operands[0], attrs)[0] * params["gain"] + params["bias"]


def _norm_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    normal, deviation = _normal(operands[0], attrs)
    g = dy * params["gain"]
    dx = (g - g.mean(axis=1, keepdims=True) - normal * (g * normal).mean(axis=1, keepdims=True)) / deviation
    return [dx], {"gain": (dy * normal).sum(axis=0), "bias": dy.sum(axis=0)}


PARAMETER = (
    Op("linear", "parameter", _linear_rule, _linear, _linear_bwd, "x @ w + b, or without b", params=("w", "b")),
    Op(
        "linear_part", "parameter", _part_rule, _part, _part_bwd, "x times as many rows of `w`, from `first` on; without b", params=("w", "b"),
        attrs=(AttrDecl("first", int, low=0),),
    ),
    Op(
        "linear_by", "parameter", _by_rule, _linear_by, _linear_by_bwd,
        "each row through the member of a family that an int field names; none gives zeros", fields=(1, 1), params=("w", "b"),
        attrs=(AttrDecl("members", int, low=1),),
    ),
    Op(
        "lookup", "parameter", _lookup_rule, _lookup, _lookup_bwd, "the row of `table` that an int field (or integer message) names; zeros for none",
        fields=(0, 1), params=("table",),
    ),
    Op(
        "layer_norm", "parameter", _norm_rule, _norm, _norm_bwd, "each row to mean 0 and variance 1, times gain, plus bias", params=("gain", "bias"),
        attrs=(AttrDecl("eps", float, 1e-5, low=0.0),),
    ),
)
