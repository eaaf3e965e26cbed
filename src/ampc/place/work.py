"""What one firing of a node does, row by row: the figures that `cost` multiplies by means, and a simulation by the rows that really come.

A firing's work is a sum of terms, one for each axis of its payloads: so many operations and bytes a row of that axis. Matrix products are apart
from all other operations, since devices have different rates for them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import NPT, PPT, AnyNode, Bcast, Concat, Flatmap, Group, Loss, Metric, Split, Type, Ungroup
from ampc.ir.scope import members
from ampc.place.target import NUMBER_BYTES, Precision

Settings = Mapping[str, int | float | str | bool]

# Floating-point operations a number of the result, forward; transcendental functions as measured for vectorised polynomials.
_CHEAP = 1.0
_FLOPS_PER_NUMBER = {
    "sigmoid": 10.0, "tanh": 12.0, "exp": 8.0, "sin": 12.0, "cos": 12.0, "log": 10.0, "softplus": 16.0, "gelu": 16.0, "elu": 9.0,
    "sqrt": 4.0, "power": 16.0, "div": 4.0,
    "reciprocal": 4.0, "softmax": 12.0, "log_softmax": 12.0, "softmax_rows": 12.0, "layer_norm": 8.0, "dropout": 4.0, "cross_entropy": 14.0,
    "binary_cross_entropy": 20.0, "squared": 3.0, "huber": 5.0, "dot": 2.0, "scatter": 2.0, "reduce_rows": 1.0,
}
_MOVES_ONLY = frozenset({"fill", "field", "number", "one_hot", "pad", "columns", "stop_gradient", "expand_rows", "gather", "lookup"})

_UPDATE_FLOPS = {"sgd": 2.0, "momentum": 4.0, "adam": 14.0, "adamw": 16.0}
"""Floating-point operations a parameter at an update; element-wise."""
_STATE_FLOATS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


FOLD_ROWS = 512
"""An embedding of at most this many rows is folded into a Linear that reads it: a lookup in their product takes the place of both. Making the
product anew after an update costs as much as that many rows."""


class Term(msgspec.Struct, frozen=True):
    """Operations and bytes of one firing a row of `axis`: "" is once a message, "*" a row of a group.

    `region`: from which region's states the axis is seen (all its elements, or those of the parent element that the state is at).
    """

    axis: str
    matrix_fwd: float = 0.0
    matrix_bwd: float = 0.0
    vector_fwd: float = 0.0
    vector_bwd: float = 0.0
    bytes_fwd: float = 0.0
    bytes_bwd: float = 0.0
    region: int = 0


def terms(
    graph: Graph, node: AnyNode, precision: Precision = "fp32", inside: Container[int] = (), folding: bool = True
) -> tuple[Term, ...]:
    """Return what one message costs at `node` of a verified graph, by axis; nothing for nodes that only change the state of a message.

    inside: nodes that fire as one with it, of which the engine leaves some out: a Concat whose parts a Linear multiplies one by one, and, with
    `folding`, an embedding that is folded into it.
    """
    taken = _columns(graph, node, node.region, [graph.type_of(r) for r in node.inputs])
    given = _columns(graph, node, graph.region_out(node), node.outputs)
    keys: list[tuple[str, int]] = []
    match node:
        case Concat() if _linear_behind(graph, node, inside) is not None:
            pass
        case PPT(op="lookup") if folding and _folded_into(graph, node, inside) is not None:
            pass
        case PPT() | NPT() | Loss() | Metric() | Bcast() | Flatmap() | Concat() | Split() | Group() | Ungroup():
            keys = sorted(taken.keys() | given.keys())
    folds = _folds(graph, node, inside) if folding else []
    product = 2.0 * _inner(graph, node, folds) * node.outputs[0].cols if _multiplies(node) else 0.0
    rows = _key(graph, node.outputs[0].rows, node.region) if product or folds else ("", 0)
    found = []
    for key in keys:
        took, gave = taken.get(key, 0), given.get(key, 0)
        fwd, bwd = _vector(node, took, gave)
        matrix = product if key == rows else 0.0
        if folds and key == rows:  # rows of the product are added in place of the embedding's columns
            took += sum(gave - cols for cols in folds)
            fwd, bwd = fwd + len(folds) * gave, bwd + len(folds) * gave
        moved = (took + gave) * NUMBER_BYTES[precision]
        term = Term(key[0], matrix, 2 * matrix, fwd, bwd, moved, 2 * moved, key[1])
        if fwd or bwd or moved or matrix:
            found.append(term)
    return tuple(found)


def product_flops(graph: Graph, node: AnyNode, inside: Container[int] = (), folding: bool = True) -> tuple[float, ...]:
    """Return 2·K·N of each matrix product in a forward firing of `node` (backward has two of each): one, or one for each member of a family.

    `inside` and `folding` as for `terms`.
    """
    if not _multiplies(node):
        return ()
    assert isinstance(node, PPT)
    flops = 2.0 * _inner(graph, node, _folds(graph, node, inside) if folding else []) * node.outputs[0].cols
    return (flops,) * len(members(graph, node.op, node.layer, node.attrs)) if flops else ()


def flops_per_number(op: str) -> float:
    """Return what the element-wise operation `op` counts for, forward, a number of its result."""
    return _FLOPS_PER_NUMBER.get(op, _CHEAP)


def update_flops(layer: Layer, train: Settings) -> float:
    """Return the element-wise operations of one update of `layer`, given the program's training settings."""
    return _UPDATE_FLOPS.get(_optimizer(layer, train), 14.0) * parameters(layer)


def update_frequency(layer: Layer, train: Settings) -> float:
    """Return the instances after which `layer` updates itself."""
    given = layer.settings.get("min_update_frequency", train.get("min_update_frequency", 32))
    return max(1.0, float(given)) if isinstance(given, int | float) else 32.0  # a run refuses what is no number, by name


def memory_bytes(layer: Layer, train: Settings, precision: Precision = "fp32") -> int:
    """Return the bytes that `layer` occupies: weights and gradients in `precision`, the optimiser's state in fp32."""
    state = 4 * _STATE_FLOATS.get(_optimizer(layer, train), 2)
    return parameters(layer) * (2 * NUMBER_BYTES[precision] + state)


def parameters(layer: Layer) -> int:
    """Return how many numbers `layer` learns."""
    return sum(_product(p.shape) for p in layer.params)


def _optimizer(layer: Layer, train: Settings) -> str:
    return str(layer.settings.get("optimizer", train.get("optimizer", "adam")))


def _vector(node: AnyNode, taken: int, given: int) -> tuple[float, float]:
    """Return the element-wise operations of a row, forward and backward, from the numbers that it takes and gives."""
    match node:
        case PPT(op="linear" | "linear_by"):
            return given, given  # the bias and its gradient
        case PPT(op="lookup") | Bcast() | Flatmap():
            return 0.0, given  # the gradient is added, or the answers are
        case PPT() | NPT():
            if node.op in _MOVES_ONLY:
                return 0.0, taken
            each = flops_per_number(node.op)
            numbers = max(taken, given)
            return each * numbers, (each if each <= 4 else each / 3) * numbers
        case Loss() | Metric():
            return flops_per_number(node.op) * taken, float(taken) if isinstance(node, Loss) else 0.0
        case _:
            return 0.0, 0.0


def _multiplies(node: AnyNode) -> bool:
    return isinstance(node, PPT) and node.op in ("linear", "linear_by")


def _inner(graph: Graph, node: AnyNode, folds: list[int]) -> int:
    """Return the columns that a Linear multiplies: those of its input without what is folded."""
    return graph.type_of(node.inputs[0]).cols - sum(folds)


def _linear_behind(graph: Graph, concat: AnyNode, inside: Container[int]) -> PPT | None:
    """Return the Linear in `inside` that reads a Concat of equal rows, or None."""
    if len({graph.type_of(r).rows for r in concat.inputs}) > 1:
        return None
    reader = graph.by_id.get(graph.readers.get((concat.id, 0), (-1, 0))[0])
    return reader if isinstance(reader, PPT) and reader.op == "linear" and reader.id in inside and concat.id in inside else None


def _folded_into(graph: Graph, lookup: PPT, inside: Container[int]) -> PPT | None:
    """Return the Linear that the lookup is folded into, or None."""
    concat = graph.by_id.get(graph.readers.get((lookup.id, 0), (-1, 0))[0])
    if not isinstance(concat, Concat) or lookup.id not in inside or graph.layer[lookup.layer].params[0].shape[0] > FOLD_ROWS:
        return None
    return _linear_behind(graph, concat, inside)


def _folds(graph: Graph, node: AnyNode, inside: Container[int]) -> list[int]:
    """Return the columns of each embedding that is folded into a Linear."""
    if not isinstance(node, PPT) or node.op != "linear":
        return []
    concat = graph.by_id[node.inputs[0][0]]
    if not isinstance(concat, Concat) or _linear_behind(graph, concat, inside) is not node:
        return []
    before = [(graph.by_id[r[0]], graph.type_of(r).cols) for r in concat.inputs]
    return [cols for x, cols in before if isinstance(x, PPT) and x.op == "lookup" and _folded_into(graph, x, inside) is node]


def _columns(graph: Graph, node: AnyNode, region: int, types: Iterable[Type]) -> dict[tuple[str, int], int]:
    out: dict[tuple[str, int], int] = {}
    for t in types:
        key = _key(graph, t.rows, region)
        out[key] = out.get(key, 0) + t.cols
    return out


def _key(graph: Graph, rows: str, region: int) -> tuple[str, int]:
    """Return (axis, region that it is seen from); only nested axes look different from different regions."""
    nested = any(a.name == rows and a.parent for a in graph.axes)
    return rows, region if nested else 0


def _product(shape: tuple[int, ...]) -> int:
    out = 1
    for s in shape:
        out *= s
    return out


__all__ = [
    "FOLD_ROWS", "Settings", "Term", "flops_per_number", "memory_bytes", "parameters", "product_flops", "terms", "update_flops", "update_frequency",
]
