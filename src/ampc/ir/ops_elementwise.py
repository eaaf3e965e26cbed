"""Element-wise operations: the same scalar function for every number, as numpy and as kernel text.

The text is what the code generator emits, with its own definitions of the functions; a test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ampc.ir.graph import FieldDecl
from ampc.ir.nodes import Type
from ampc.ir.op import Array, AttrDecl, Attrs, FieldValue, Op, Params, Scope, ShapeError, Shapes, number, shown, unbroadcast, want_float

Unary = Callable[[Array, Attrs], Array]
UnaryGrad = Callable[[Array, Array, Array, Attrs], Array]

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small)).astype(x.dtype, copy=False)


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[x.dtype])(x)  # type: ignore[no-any-return]  # numpy types vectorize as Any


def _same(name: str) -> Callable[..., tuple[Type, ...]]:
    def rule(types: tuple[Type, ...], fields: tuple[FieldDecl, ...], attrs: Attrs, params: Shapes, scope: Scope) -> tuple[Type, ...]:
        want_float(name, types[0])
        return types

    return rule


def _unary(
    name: str, f: Unary, df: UnaryGrad, expr: str, grad: str, help: str, attrs: tuple[AttrDecl, ...] = (),
    constants: Mapping[str, float] | None = None, rule: Callable[..., tuple[Type, ...]] | None = None,
) -> Op:
    def fwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
        return f(operands[0], attrs)

    def bwd(
        operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        return [df(operands[0], y, dy, attrs)], {}

    return Op(name, "unary", rule or _same(name), fwd, bwd, help, attrs=attrs, expr=expr, grads=(grad,), constants=constants or {})


def _clip_rule(types: tuple[Type, ...], fields: tuple[FieldDecl, ...], attrs: Attrs, params: Shapes, scope: Scope) -> tuple[Type, ...]:
    want_float("clip", types[0])
    if number(attrs, "low") > number(attrs, "high"):
        raise ShapeError(f"`clip` has low {attrs['low']} above high {attrs['high']}")
    return types


def _power_grad(x: Array, y: Array, g: Array, attrs: Attrs) -> Array:
    e = number(attrs, "exponent")
    with np.errstate(divide="ignore", invalid="ignore"):
        d = g * e * np.power(x, e - 1)
    return d if e >= 1 else np.where(x != 0, d, 0).astype(g.dtype)


def _gelu(x: Array, attrs: Attrs) -> Array:
    result: Array = 0.5 * x * (1 + erf(x * SQRT_HALF))
    return result


def _gelu_grad(x: Array, y: Array, g: Array, attrs: Attrs) -> Array:
    return g * (0.5 * (1 + erf(x * SQRT_HALF)) + x * INV_SQRT_2PI * np.exp(-0.5 * x * x))


def _sqrt_grad(x: Array, y: Array, g: Array, attrs: Attrs) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(y > 0, g * 0.5 / y, 0).astype(g.dtype)


UNARY = (
    _unary("neg", lambda x, a: -x, lambda x, y, g, a: -g, "-x0", "-g", "-x"),
    _unary("relu", lambda x, a: np.maximum(x, 0), lambda x, y, g, a: np.where(y > 0, g, 0), "max(x0, F0)", "g if y > F0 else F0", "max(x, 0)"),
    _unary("sigmoid", lambda x, a: sigmoid(x), lambda x, y, g, a: g * y * (1 - y), "sigmoid(x0)", "g * y * (F1 - y)", "1 / (1 + exp(-x))"),
    _unary("tanh", lambda x, a: np.tanh(x), lambda x, y, g, a: g * (1 - y * y), "tanh(x0)", "g * (F1 - y * y)", "hyperbolic tangent"),
    _unary("sin", lambda x, a: np.sin(x), lambda x, y, g, a: g * np.cos(x), "sin(x0)", "g * cos(x0)", "sine, in radians"),
    _unary("cos", lambda x, a: np.cos(x), lambda x, y, g, a: -g * np.sin(x), "cos(x0)", "-g * sin(x0)", "cosine, in radians"),
    _unary("exp", lambda x, a: np.exp(x), lambda x, y, g, a: g * y, "exp(x0)", "g * y", "exponential"),
    _unary("log", lambda x, a: np.log(x), lambda x, y, g, a: g / x, "log(x0)", "g / x0", "natural logarithm; -inf at 0"),
    _unary("sqrt", lambda x, a: np.sqrt(x), _sqrt_grad, "sqrt(x0)", "g * FH / y if y > F0 else F0", "square root; its gradient at 0 is 0"),
    _unary(
        "abs", lambda x, a: np.abs(x), lambda x, y, g, a: g * np.sign(x),
        "abs(x0)", "g if x0 > F0 else (-g if x0 < F0 else F0)", "absolute value; its gradient at 0 is 0",
    ),
    _unary("square", lambda x, a: x * x, lambda x, y, g, a: 2 * g * x, "x0 * x0", "F2 * g * x0", "x * x"),
    _unary("softplus", lambda x, a: softplus(x), lambda x, y, g, a: g * sigmoid(x), "softplus(x0)", "g * sigmoid(x0)", "log(1 + exp(x))"),
    _unary(
        "leaky_relu", lambda x, a: np.where(x > 0, x, number(a, "slope") * x), lambda x, y, g, a: np.where(x > 0, g, number(a, "slope") * g),
        "x0 if x0 > F0 else a_slope * x0", "g if x0 > F0 else a_slope * g", "x, or slope * x below 0", (AttrDecl("slope", float, 0.01),),
    ),
    _unary(
        "elu", lambda x, a: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1), lambda x, y, g, a: np.where(x > 0, g, g * (y + 1)),
        "x0 if x0 > F0 else exp(min(x0, F0)) - F1", "g if x0 > F0 else g * (y + F1)", "x, or exp(x) - 1 below 0",
    ),
    _unary(
        "gelu", _gelu, _gelu_grad, "FH * x0 * (F1 + erf(x0 * c_sqrt_half))",
        "g * (FH * (F1 + erf(x0 * c_sqrt_half)) + x0 * c_inv_sqrt_2pi * exp(-FH * x0 * x0))", "x times the normal distribution function of x",
        constants={"sqrt_half": SQRT_HALF, "inv_sqrt_2pi": INV_SQRT_2PI},
    ),
    _unary(
        "silu", lambda x, a: x * sigmoid(x), lambda x, y, g, a: g * (sigmoid(x) + y * (1 - sigmoid(x))),
        "x0 * sigmoid(x0)", "g * (sigmoid(x0) + y * (F1 - sigmoid(x0)))", "x * sigmoid(x)",
    ),
    _unary(
        "sign", lambda x, a: np.sign(x), lambda x, y, g, a: np.zeros_like(g),
        "F1 if x0 > F0 else (-F1 if x0 < F0 else F0)", "F0", "-1, 0 or 1; no gradient",
    ),
    _unary("reciprocal", lambda x, a: 1 / x, lambda x, y, g, a: -g * y * y, "F1 / x0", "-g * y * y", "1 / x"),
    _unary("stop_gradient", lambda x, a: x.copy(), lambda x, y, g, a: np.zeros_like(g), "x0", "F0", "x; its gradient is zero"),
    _unary(
        "affine", lambda x, a: number(a, "scale") * x + number(a, "shift"), lambda x, y, g, a: g * number(a, "scale"),
        "a_scale * x0 + a_shift", "g * a_scale", "scale * x + shift", (AttrDecl("scale", float, 1.0), AttrDecl("shift", float, 0.0)),
    ),
    _unary(
        "power", lambda x, a: np.power(x, number(a, "exponent")), _power_grad, "pow(x0, a_exponent)",
        "g * a_exponent * pow(x0, a_exponent - F1) if x0 != F0 or a_exponent >= F1 else F0",
        "x ** exponent; where it has no finite gradient at 0, that is 0", (AttrDecl("exponent", float),),
    ),
    _unary(
        "clip", lambda x, a: np.minimum(np.maximum(x, number(a, "low")), number(a, "high")),
        lambda x, y, g, a: np.where((x >= number(a, "low")) & (x <= number(a, "high")), g, 0),
        "min(max(x0, a_low), a_high)", "g if x0 >= a_low and x0 <= a_high else F0", "x held between low and high",
        (AttrDecl("low", float), AttrDecl("high", float)), rule=_clip_rule,
    ),
)

# ----------------------------------------------------------------------------------------------------- binary


def broadcast(op: str, a: Type, b: Type) -> Type:
    """Return the common type: equal columns or one side has 1, equal rows or one side is a single row."""
    want_float(op, a)
    want_float(op, b)
    if a.cols != b.cols and 1 not in (a.cols, b.cols):
        raise ShapeError(f"`{op}` needs equal columns, or 1 on one side, got {shown(a)} and {shown(b)}")
    if a.rows != b.rows and "" not in (a.rows, b.rows):
        raise ShapeError(f"`{op}` needs rows of the same axis, or a single row on one side, got {shown(a)} and {shown(b)}")
    return Type(a.rows or b.rows, max(a.cols, b.cols))


Binary = Callable[[Array, Array], Array]
BinaryGrad = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def _binary(name: str, f: Binary, df: BinaryGrad, expr: str, grads: tuple[str, str], help: str) -> Op:
    def rule(types: tuple[Type, ...], fields: tuple[FieldDecl, ...], attrs: Attrs, params: Shapes, scope: Scope) -> tuple[Type, ...]:
        return (broadcast(name, *types),)

    def fwd(operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs) -> Array:
        return f(operands[0], operands[1])

    def bwd(
        operands: Sequence[Array], fields: Sequence[FieldValue], params: Params, attrs: Attrs, y: Array, dy: Array,
    ) -> tuple[list[Array], dict[str, Array]]:
        a, b = operands
        da, db = df(a, b, y, dy)
        return [unbroadcast(np.broadcast_to(da, y.shape), a.shape), unbroadcast(np.broadcast_to(db, y.shape), b.shape)], {}

    return Op(name, "binary", rule, fwd, bwd, help, messages=(2, 2), expr=expr, grads=grads)


BINARY = (
    _binary("add", lambda a, b: a + b, lambda a, b, y, g: (g, g), "x0 + x1", ("g", "g"), "x + y"),
    _binary("sub", lambda a, b: a - b, lambda a, b, y, g: (g, -g), "x0 - x1", ("g", "-g"), "x - y"),
    _binary("mul", lambda a, b: a * b, lambda a, b, y, g: (g * b, g * a), "x0 * x1", ("g * x1", "g * x0"), "x * y, element by element"),
    _binary("div", lambda a, b: a / b, lambda a, b, y, g: (g / b, -g * y / b), "x0 / x1", ("g / x1", "-g * y / x1"), "x / y"),
    _binary(
        "minimum", lambda a, b: np.minimum(a, b), lambda a, b, y, g: (np.where(a <= b, g, 0), np.where(a <= b, 0, g)),
        "min(x0, x1)", ("g if x0 <= x1 else F0", "F0 if x0 <= x1 else g"), "the smaller; of equal ones the first gets the gradient",
    ),
    _binary(
        "maximum", lambda a, b: np.maximum(a, b), lambda a, b, y, g: (np.where(a >= b, g, 0), np.where(a >= b, 0, g)),
        "max(x0, x1)", ("g if x0 >= x1 else F0", "F0 if x0 >= x1 else g"), "the larger; of equal ones the first gets the gradient",
    ),
)
