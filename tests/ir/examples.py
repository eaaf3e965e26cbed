"""One or more examples of every operation: operands for which it has a derivative, fields, parameters, attributes, types."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ampc.ir import FieldDecl, RowIndex, Scope, Segments
from ampc.ir.nodes import Type


@dataclasses.dataclass
class Example:
    """`types` are those of the operands; `result` is the inferred output (None for losses and metrics)."""

    op: str
    operands: list[np.ndarray]
    types: tuple[Type, ...]
    result: Type | None
    fields: list[Any] = dataclasses.field(default_factory=list)
    declared: tuple[FieldDecl, ...] = ()
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    params: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scope: Scope = dataclasses.field(default_factory=Scope)

    def __str__(self) -> str:
        return self.op


def numbers(rows: int, cols: int, seed: int = 0, low: float = -1.5, high: float = 1.5) -> np.ndarray:
    """Distinct values, none near 0 (kinks) and none near another (ties)."""
    values = np.linspace(low, high, rows * cols + 2)[1:-1] + 0.0123
    return np.random.default_rng(seed).permutation(values).reshape(rows, cols)


A, ROW = Type("atom", 3), Type("", 3)
UNIT = np.zeros((1, 0))
NESTED = Scope({"bond": "atom"})
INDEX = FieldDecl("source", "index", "bond", of="atom", optional=True)
POSITIONS = RowIndex(np.array([2, 0, -1, 2, 1]), 4)
STARTS = Segments(np.array([0, 2, 2, 5]))
WHOLE = Segments(np.array([0, 4]))
LABEL = FieldDecl("label", "int", "atom", below=3, optional=True)
LABELS = np.array([2, 0, -1, 1])
TARGET = FieldDecl("t", "float", "atom", columns=2, optional=True)
TARGETS = np.where(np.arange(4)[:, None] == 2, np.nan, numbers(4, 2, 9))


def unary(name: str, low: float = -1.5, high: float = 1.5, **attrs: Any) -> Example:
    return Example(name, [numbers(4, 3, 1, low, high)], (A,), A, attrs=attrs)


def binary(name: str, low: float = -1.5) -> list[Example]:
    return [
        Example(name, [numbers(4, 3, 1), numbers(4, 3, 2, low)], (A, A), A),
        Example(name, [numbers(4, 3, 1), numbers(4, 1, 2, low)], (A, Type("atom", 1)), A),
        Example(name, [numbers(1, 3, 1), numbers(4, 3, 2, low)], (ROW, A), A),
        Example(name, [numbers(4, 1, 1), numbers(1, 3, 2, low)], (Type("atom", 1), ROW), A),
    ]


def reduced(name: str, reduce: str) -> list[Example]:
    if name == "scatter":
        return [Example(name, [numbers(5, 3)], (Type("bond", 3),), A, [POSITIONS], (INDEX,), {"reduce": reduce})]
    return [
        Example(name, [numbers(4, 3)], (A,), ROW, [WHOLE], attrs={"reduce": reduce}),
        Example(name, [numbers(5, 3)], (Type("bond", 3),), A, [STARTS], attrs={"reduce": reduce}, scope=NESTED),
        Example(name, [numbers(0, 3)], (Type("*", 3),), ROW, [Segments(np.array([0, 0]))], attrs={"reduce": reduce}),
    ]


def losses() -> list[Example]:
    x, two = numbers(4, 2, 5), Type("atom", 2)
    out = []
    for name, attrs in (("squared", {}), ("absolute", {}), ("huber", {"delta": 0.5}), ("binary_cross_entropy", {})):
        out += [Example(name, [x], (two,), None, [TARGETS], (TARGET,), attrs), Example(name, [x, numbers(4, 2, 6)], (two, two), None, attrs=attrs)]
    flag = FieldDecl("f", "flag", "atom", optional=True)
    out.append(Example("binary_cross_entropy", [numbers(4, 1)], (Type("atom", 1),), None, [np.array([1, 0, -1, 1])], (flag,)))
    out.append(Example("cross_entropy", [numbers(4, 3)], (A,), None, [LABELS], (LABEL,)))
    out.append(Example("cross_entropy", [numbers(4, 3), np.array([[0], [1], [2], [0]])], (A, Type("atom", 1, True)), None))
    for name in ("value", "score", "error"):
        out += [Example(name, [x], (two,), None), Example(name, [numbers(0, 2)], (two,), None)]
    for name in ("absolute_error", "squared_error", "root_mean_square_error", "binary_accuracy"):
        out.append(Example(name, [x], (two,), None, [TARGETS], (TARGET,)))
    out.append(Example("accuracy", [numbers(4, 3)], (A,), None, [LABELS], (LABEL,)))
    out.append(Example("top_k", [numbers(4, 3)], (A,), None, [LABELS], (LABEL,), {"k": 2}))
    return out


def integers() -> list[Example]:
    one, result = Type("atom", 1), Type("atom", 1, True)
    x, bits = [numbers(4, 1, 1), numbers(4, 1, 2)], [np.array([[0], [1], [0], [1]]), np.array([[0], [0], [1], [1]])]
    out = [Example(name, x, (one, one), result) for name in ("less", "less_equal", "equal")]
    out += [Example(name, x[:1], (one,), result, attrs={"threshold": 0.5}) for name in ("at_least", "above", "is")]
    out += [Example(name, bits, (result, result), result) for name in ("both", "either")]
    return [*out, Example("not", bits[:1], (result,), result), Example("argmax", [numbers(4, 3)], (A,), result)]


def parameters() -> list[Example]:
    w, b, kinds = numbers(3, 2, 3), numbers(1, 2, 4)[0], np.array([1, 0, 1, -1])
    kind = FieldDecl("kind", "int", "atom", below=2, optional=True)
    table, out = numbers(5, 2, 4), Type("atom", 2)
    family = {f"{i}.{n}": v for i in range(2) for n, v in (("w", numbers(3, 2, i)), ("b", numbers(1, 2, i)[0]))}
    return [
        Example("linear", [numbers(4, 3)], (A,), out, params={"w": w, "b": b}),
        Example("linear", [numbers(4, 3)], (A,), out, params={"w": w}),
        Example("linear_part", [numbers(4, 3)], (A,), out, attrs={"first": 1}, params={"w": numbers(5, 2, 3), "b": b}),
        Example("linear_by", [numbers(4, 3)], (A,), out, [kinds], (kind,), {"members": 2}, family),
        Example("linear_by", [numbers(4, 3)], (A,), out, [kinds], (kind,), {"members": 2}, {k: v for k, v in family.items() if k[-1] == "w"}),
        Example("lookup", [UNIT], (Type(),), out, [kinds], (kind,), params={"table": table}),
        Example("lookup", [np.array([[3], [0]])], (Type("bond", 1, True),), Type("bond", 2), params={"table": table}),
        Example("layer_norm", [numbers(4, 3)], (A,), A, attrs={"eps": 1e-5}, params={"gain": numbers(1, 3, 2)[0], "bias": numbers(1, 3, 3)[0]}),
    ]


def sources() -> list[Example]:
    kind = FieldDecl("kind", "int", "atom", below=3, optional=True)
    return [
        Example("unit", [numbers(4, 3)], (A,), Type("atom")),
        Example("fill", [UNIT], (Type(),), ROW, attrs={"cols": 3, "value": 1.5}),
        Example("constant", [UNIT], (Type(),), Type("", 1, True), attrs={"value": 3}),
        Example("constant", [np.zeros((4, 0))], (Type("atom"),), Type("atom", 1, True), attrs={"value": 0}),
        Example("fill", [np.zeros((4, 0))], (Type("atom"),), A, attrs={"cols": 3, "value": 0.0}),
        Example("field", [UNIT], (Type(),), Type("atom", 2), [numbers(4, 2)], (TARGET,)),
        Example("one_hot", [UNIT], (Type(),), A, [LABELS], (kind,), {"cols": 3}),
        Example("one_hot", [np.array([[1]])], (Type("", 1, True),), ROW, attrs={"cols": 3}),
        Example("number", [UNIT], (Type(),), Type("atom", 1), [LABELS], (kind,)),
    ]


EXAMPLES: list[Example] = [
    *(unary(n) for n in ("neg", "relu", "sigmoid", "tanh", "sin", "cos", "exp", "abs", "square", "softplus", "elu", "gelu", "silu", "sign", "reciprocal")),
    unary("stop_gradient"), unary("log", 0.1), unary("sqrt", 0.1), unary("leaky_relu", slope=0.1), unary("affine", scale=-2.0, shift=0.5),
    unary("power", exponent=3), unary("power", 0.1, exponent=0.5), unary("power", 0.1, exponent=-1.0),
    Example("clip", [numbers(4, 3, 1)], (A,), A, attrs={"low": -0.5, "high": 0.7}),
    *(e for name in ("add", "sub", "mul", "minimum", "maximum") for e in binary(name)), *binary("div", 0.3),
    Example("identity", [numbers(4, 3)], (A,), A),
    Example("pad", [numbers(4, 3)], (A,), Type("atom", 5), attrs={"cols": 5}),
    Example("columns", [numbers(4, 3)], (A,), Type("atom", 2), attrs={"start": 1, "stop": 3}),
    *(Example(n, [numbers(4, 3)], (A,), A) for n in ("softmax", "log_softmax")),
    *(Example(n, [numbers(4, 3)], (A,), Type("atom", 1)) for n in ("sum_columns", "mean_columns", "max_columns")),
    Example("dot", [numbers(4, 3), numbers(4, 3, 1)], (A, A), Type("atom", 1)),
    Example("dot", [numbers(4, 3), numbers(1, 3, 1)], (A, ROW), Type("atom", 1)),
    Example("gate", [numbers(1, 3), np.array([[1]])], (ROW, Type("", 1, True)), ROW),
    Example("dropout", [numbers(4, 3)], (A,), A, [numbers(4, 3) > 0], attrs={"rate": 0.25}),
    Example("dropout", [numbers(4, 3)], (A,), A, attrs={"rate": 0.25}),
    Example("gather", [numbers(4, 3)], (A,), Type("bond", 3), [POSITIONS], (INDEX,)),
    *(e for name in ("scatter", "reduce_rows") for how in ("sum", "mean", "max") for e in reduced(name, how)),
    Example("softmax_rows", [numbers(4, 3)], (A,), A, [WHOLE]),
    Example("softmax_rows", [numbers(5, 3)], (Type("bond", 3),), Type("bond", 3), [STARTS], scope=NESTED),
    Example("expand_rows", [numbers(1, 3)], (ROW,), A, [WHOLE], scope=Scope(declared=(A,))),
    Example("expand_rows", [numbers(3, 3)], (A,), Type("bond", 3), [STARTS], scope=Scope({"bond": "atom"}, (Type("bond", 3),))),
    *parameters(), *sources(), *integers(), *losses(),
]
