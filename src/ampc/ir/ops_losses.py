"""Losses and metrics. The target is a field, or a second message; rows whose target is none are left out.

A loss gives [1, 1], the sum over the rows. A metric gives [1, 2]: a sum and how many rows it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Type
from ampc.ir.op import Array, AttrDecl, Attrs, FieldValue, Op, Params, Scope, ShapeError, Shapes, integer, no_bwd, number, shown, want_float
from ampc.ir.ops_columns import integers, log_softmax, softmax, want_bound
from ampc.ir.ops_elementwise import sigmoid

Types = tuple[Type, ...]
Fields = tuple[FieldDecl, ...]
Grads = tuple[list[Array], dict[str, Array]]


# ---------------------------------------------------------------------------------------------------- shape rules


def _one_target(op: str, types: Types, fields: Fields) -> None:
    want_float(op, types[0])
    if len(types) + len(fields) != 2:
        raise ShapeError(f"`{op}` needs one target: a field or a second value")


def _same_rows(op: str, value: Type, rows: str) -> None:
    if value.rows != rows:
        raise ShapeError(f"`{op}` needs a target for each row, got {shown(value)} and {f'a target over `{rows}`' if rows else 'a single target'}")


def _label_rule(op: str) -> Callable[..., Types]:
    """Logits and an int: a field, or an integer message."""

    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        _one_target(op, types, fields)
        if fields:
            if fields[0].kind == "float":
                raise ShapeError(f"`{op}` needs an int target, `{fields[0].name}` is a float field")
            want_bound(op, fields[0], types[0].cols, "columns")
            _same_rows(op, types[0], fields[0].axis)
        elif not types[1].integer or types[1].cols != 1:
            raise ShapeError(f"`{op}` needs an int target, got {shown(types[1])}")
        else:
            _same_rows(op, types[0], types[1].rows)
        return ()

    return rule


def _value_rule(op: str) -> Callable[..., Types]:
    """A prediction and a float target of as many columns (an int, flag field counts as one column)."""

    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        _one_target(op, types, fields)
        if fields:
            target = Type(fields[0].axis, fields[0].columns if fields[0].kind == "float" else 1)
            if fields[0].kind == "index":
                raise ShapeError(f"`{op}` needs a number as its target, `{fields[0].name}` is an index field")
        else:
            want_float(op, types[1])
            target = types[1]
        if target.cols != types[0].cols:
            raise ShapeError(f"`{op}` needs a target of as many columns, got {shown(types[0])} and {shown(target)}")
        _same_rows(op, types[0], target.rows)
        return ()

    return rule


def _alone_rule(op: str) -> Callable[..., Types]:
    """A float value without a target."""

    def rule(types: Types, fields: Fields, attrs: Attrs, params: Shapes, scope: Scope) -> Types:
        want_float(op, types[0])
        return ()

    return rule


# -------------------------------------------------------------------------------------------------- cross entropy


def _labels(operands: Sequence[Array], fields: Sequence[FieldValue]) -> Array:
    return integers(fields[0] if fields else operands[1])


def _cross_entropy(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x, label = operands[0], _labels(operands, fields)
    rows = np.flatnonzero(label >= 0)
    result: Array = -log_softmax(x)[rows, label[rows]].sum(keepdims=True).reshape(1, 1)
    return result


def _cross_entropy_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    x, label = operands[0], _labels(operands, fields)
    dx = softmax(x)
    rows = np.flatnonzero(label >= 0)
    dx[rows, label[rows]] -= 1
    dx[label < 0] = 0
    return [dx * dy, *(np.zeros(t.shape, dy.dtype) for t in operands[1:])], {}


# --------------------------------------------------------------------------------------- losses of value and target


def _target(operands: Sequence[Array], fields: Sequence[FieldValue]) -> tuple[Array, Array]:
    """Return (target, known), both of the prediction's shape; an unknown target is 0."""
    x = operands[0]
    if not fields:
        return operands[1], np.ones(x.shape, bool)
    value = fields[0]
    assert isinstance(value, np.ndarray)
    if value.dtype.kind == "f":
        known = ~np.isnan(value).any(axis=1, keepdims=True) & np.ones(x.shape, bool)
        return np.where(known, value, 0).astype(x.dtype), known
    known = np.broadcast_to((value >= 0)[:, None], x.shape)
    return np.where(known, value[:, None], 0).astype(x.dtype), known


PerElement = Callable[[Array, Array, Attrs], Array]


def _loss(name: str, f: PerElement, dx: PerElement, dt: PerElement, help: str, attrs: tuple[AttrDecl, ...] = ()) -> Op:
    """A loss that is the sum of `f(prediction, target)` over all numbers; `dx` and `dt` are its derivatives."""

    def fwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
        target, known = _target(operands, fields)
        result: Array = np.where(known, f(operands[0], target, attrs), 0).sum(keepdims=True).reshape(1, 1).astype(operands[0].dtype)
        return result

    def bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
        target, known = _target(operands, fields)
        derivatives = (dx, dt)[: len(operands)]
        return [np.where(known, d(operands[0], target, attrs) * dy, 0).astype(dy.dtype) for d in derivatives], {}

    return Op(name, "loss", _value_rule(name), fwd, bwd, help, messages=(1, 2), fields=(0, 1), attrs=attrs)


def _huber(x: Array, t: Array, attrs: Attrs) -> Array:
    d, delta = np.abs(x - t), number(attrs, "delta")
    result: Array = np.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))
    return result


def _huber_grad(x: Array, t: Array, attrs: Attrs) -> Array:
    delta = number(attrs, "delta")
    result: Array = np.clip(x - t, -delta, delta)
    return result


def _bce(x: Array, t: Array, attrs: Attrs) -> Array:
    """-t log s(x) - (1 - t) log(1 - s(x)), stable for any finite x."""
    result: Array = np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))
    return result


def _value(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    result: Array = operands[0].sum(keepdims=True).reshape(1, 1)
    return result


def _value_bwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array) -> Grads:
    return [np.full(operands[0].shape, dy[0, 0], dy.dtype)], {}


LOSSES = (
    Op(
        "cross_entropy", "loss", _label_rule("cross_entropy"), _cross_entropy, _cross_entropy_bwd,
        "minus the logarithm of the label's softmax, summed over the rows", messages=(1, 2), fields=(0, 1),
    ),
    _loss(
        "squared", lambda x, t, a: (x - t) ** 2, lambda x, t, a: 2 * (x - t), lambda x, t, a: 2 * (t - x),
        "(x - target) squared, without a half, summed over columns and rows",
    ),
    _loss(
        "absolute", lambda x, t, a: np.abs(x - t), lambda x, t, a: np.sign(x - t), lambda x, t, a: np.sign(t - x),
        "|x - target|, summed over columns and rows; its gradient at 0 is 0",
    ),
    _loss(
        "huber", _huber, _huber_grad, lambda x, t, a: -_huber_grad(x, t, a),
        "half the square of the difference within `delta`, a straight line beyond", (AttrDecl("delta", float, 1.0, low=0.0),),
    ),
    _loss(
        "binary_cross_entropy", _bce, lambda x, t, a: sigmoid(x) - t, lambda x, t, a: -x,
        "cross entropy of sigmoid(x) and a target between 0 and 1, summed over columns and rows",
    ),
    Op("value", "loss", _alone_rule("value"), _value, _value_bwd, "x itself, summed over columns and rows"),
)

# ------------------------------------------------------------------------------------------------------- metrics


def _counted(hits: Array, known: Array) -> Array:
    return np.array([[np.where(known, hits, 0).sum(dtype=np.float64), known.sum()]], np.float64)


def _accuracy(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    label = _labels(operands, fields)
    return _counted(operands[0].argmax(axis=1) == label, label >= 0)


def _top_k(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    x, label = operands[0], _labels(operands, fields)
    own = x[np.arange(len(x)), np.maximum(label, 0)][:, None]
    earlier = np.arange(x.shape[1])[None, :] < label[:, None]
    rank = ((x > own) | ((x == own) & earlier)).sum(axis=1)
    return _counted(rank < integer(attrs, "k"), label >= 0)


def _binary_accuracy(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    target, known = _target(operands, fields)
    return _counted((operands[0] > 0) == (target >= 0.5), known)


def _absolute_error(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    target, known = _target(operands, fields)
    return _counted(np.abs(operands[0] - target), known)


def _squared_error(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    target, known = _target(operands, fields)
    return _counted((operands[0] - target) ** 2, known)


def _itself(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
    return _counted(operands[0], np.ones(operands[0].shape, bool))


METRICS = (
    Op(
        "accuracy", "metric", _label_rule("accuracy"), _accuracy, no_bwd, "share of rows whose greatest logit is the label's",
        messages=(1, 2), fields=(0, 1), better="high",
    ),
    Op(
        "top_k", "metric", _label_rule("top_k"), _top_k, no_bwd, "share of rows whose label is among the `k` greatest logits",
        messages=(1, 2), fields=(0, 1), attrs=(AttrDecl("k", int, 5, low=1),), better="high",
    ),
    Op(
        "binary_accuracy", "metric", _value_rule("binary_accuracy"), _binary_accuracy, no_bwd, "share of logits on the target's side of 0",
        messages=(1, 2), fields=(0, 1), better="high",
    ),
    Op(
        "absolute_error", "metric", _value_rule("absolute_error"), _absolute_error, no_bwd, "mean of |x - target|", messages=(1, 2), fields=(0, 1),
    ),
    Op(
        "squared_error", "metric", _value_rule("squared_error"), _squared_error, no_bwd, "mean of (x - target) squared",
        messages=(1, 2), fields=(0, 1),
    ),
    Op(
        "root_mean_square_error", "metric", _value_rule("root_mean_square_error"), _squared_error, no_bwd, "root of the mean of (x - target) squared",
        messages=(1, 2), fields=(0, 1), finish="root",
    ),
    Op("score", "metric", _alone_rule("score"), _itself, no_bwd, "mean of x, the greater the better", better="high"),
    Op("error", "metric", _alone_rule("error"), _itself, no_bwd, "mean of x, the smaller the better"),
)


