"""What one firing of a node does, row by row: the figures that `cost` multiplies by means, and a simulation by the rows that really come.

A firing's work is a sum of terms, one for each axis of its payloads: so many operations and bytes a row of that axis. Matrix products are apart
from all other operations, since devices have different rates for them. So is *handling*, what is no arithmetic: values that are looked for and
copied, rows that are taken one by one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Bcast, Concat, Cond, Enter, First, Flatmap, Group, Isu, Loss, Metric, Output, Phi, Ref, Split, Type, Ungroup, Within,
)  # fmt: skip
from ampc.ir.ops import OPS
from ampc.ir.scope import chain, members
from ampc.place.target import FACTOR_BYTES, NOTHING, NUMBER_BYTES, Handling, Precision

Settings = Mapping[str, int | float | str | bool]

# Floating-point operations a number of the result, forward; transcendental functions as measured for vectorised polynomials.
_CHEAP = 1.0
_FLOPS_PER_NUMBER = {
    "sigmoid": 10.0, "tanh": 12.0, "exp": 8.0, "sin": 12.0, "cos": 12.0, "log": 10.0, "softplus": 16.0, "gelu": 16.0, "elu": 9.0,
    "sqrt": 4.0, "power": 16.0, "div": 4.0,
    "reciprocal": 4.0, "softmax": 12.0, "log_softmax": 12.0, "softmax_rows": 12.0, "layer_norm": 8.0, "dropout": 4.0, "cross_entropy": 14.0,
    "binary_cross_entropy": 20.0, "squared": 3.0, "huber": 5.0, "dot": 2.0, "scatter": 2.0, "reduce_rows": 1.0,
}
_UNLIKE = 15.0
"""The same of an element-wise operation over operands of unlike widths, which no vector instructions serve."""
_MOVES_ONLY = frozenset({"fill", "constant", "field", "number", "one_hot", "pad", "columns", "stop_gradient", "expand_rows", "gather", "lookup"})

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
    handled_fwd: Handling = NOTHING
    handled_bwd: Handling = NOTHING


def terms(graph: Graph, node: AnyNode, inside: Container[int] = (), folding: bool = True) -> tuple[Term, ...]:
    """Return what one message costs at `node` of a verified graph, by axis; nothing for nodes that only change the state of a message.

    inside: nodes that fire as one with it, of which the engine leaves some out: a Concat whose parts a Linear multiplies one by one, and, with
    `folding`, an embedding that is folded into it. What is no arithmetic comes on top: `handling`.
    """
    taken = _columns(graph, node.region, [graph.type_of(r) for r in node.inputs])
    given = _columns(graph, graph.region_out(node), node.outputs)
    keys: list[tuple[str, int]] = []
    match node:
        case Concat() if _linear_behind(graph, node, inside) is not None:
            pass
        case PPT(op="lookup") if folding and _folded_into(graph, node, inside) is not None:
            pass
        case PPT() | NPT() | Loss() | Metric() | Bcast() | Flatmap() | Concat() | Split() | Group() | Ungroup():
            keys = sorted(taken.keys() | given.keys())
    folds = _folds(graph, node, inside) if folding else []
    product = 2.0 * _inner(graph, node, folds, inside) * node.outputs[0].cols if _multiplies(node) else 0.0
    rows = _key(graph, node.outputs[0].rows, node.region) if product or folds else ("", 0)
    unlike = isinstance(node, NPT) and OPS[node.op].expr is not None and len({graph.type_of(r).cols for r in node.inputs}) > 1
    found = []
    for key in keys:
        took, gave = taken.get(key, 0), given.get(key, 0)
        fwd, bwd = _vector(node, took, gave, unlike)
        matrix = product if key == rows else 0.0
        if folds and key == rows:  # rows of the product are added in place of the embedding's columns
            took += sum(gave - cols for cols in folds)
            fwd, bwd = fwd + len(folds) * gave, bwd + len(folds) * gave
        moved = (took + gave) * NUMBER_BYTES
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
    flops = 2.0 * _inner(graph, node, _folds(graph, node, inside) if folding else [], inside) * node.outputs[0].cols
    return (flops,) * len(members(graph, node.op, node.layer, node.attrs)) if flops else ()


def product_sides(graph: Graph, node: AnyNode, inside: Container[int] = (), folding: bool = True) -> tuple[float, ...]:
    """Return k + n of each matrix product that a forward firing of `node` calls for (backward: twice as many): of each part of a Concat that is
    multiplied by itself, of each member of a family."""
    if not product_flops(graph, node, inside, folding):
        return ()
    assert isinstance(node, PPT)
    columns = node.outputs[0].cols
    concat = graph.by_id[node.inputs[0][0]]
    if node.op == "linear" and isinstance(concat, Concat) and _linear_behind(graph, concat, inside) is node:
        folds = {x.id for x in _folded(graph, node, inside)} if folding else set()
        multiplied = ((r, graph.type_of(r).cols - _zeros(graph, concat, port, inside)) for port, r in enumerate(concat.inputs))
        return tuple(float(cols + columns) for r, cols in multiplied if cols and r[0] not in folds)
    inner = _inner(graph, node, [], inside)
    return (float(inner + columns),) * len(members(graph, node.op, node.layer, node.attrs))


# --------------------------------------------------------------------------------------------------- handling


def handling(graph: Graph, node: AnyNode, inside: Container[int] = (), folding: bool = True) -> tuple[Term, ...]:
    """Return what one message costs at `node` beside arithmetic, as the engine does it: fields that are read, results that are kept for backward,
    rows that are taken one by one."""
    size = NUMBER_BYTES
    found: dict[tuple[str, int], list[Handling]] = {}

    def add(rows: str, fwd: Handling, bwd: Handling) -> None:
        both = found.setdefault(_key(graph, rows, node.region), [NOTHING, NOTHING])
        both[0], both[1] = both[0] + fwd, both[1] + bwd

    look = Handling(values=looks(graph, node.region))
    rows = _rows_of(graph, node)
    by_row = isinstance(node, PPT | NPT | Loss | Metric) and node.op in _BY_ROW
    if isinstance(node, PPT | NPT | Loss | Metric):
        for _ in node.fields:
            each = looks(graph, node.region, rows) + (isinstance(node, NPT) and by_row)  # which row of the firing's an index means is found next
            again = 0.0 if isinstance(node, Metric) or (isinstance(node, NPT) and not by_row) else 1.0
            add("", Handling(values=each), Handling(values=each * again))
    if isinstance(node, PPT):
        add("", look, look * LAYER_LOOKS)  # forward notes versions
    if isinstance(node, Output):
        add("", Handling(values=looks(graph, node.region, rows)), NOTHING)
        add(rows, Handling(copied_bytes=size * graph.type_of(node.inputs[0]).cols), NOTHING)
    sides = product_sides(graph, node, inside, folding)
    if sides:  # a row of a family's operand meets one member
        met = 1 if isinstance(node, PPT) and node.op == "linear_by" else len(sides)
        one = Handling(sides=sum(sides[:met]), corners=met)
        add(node.outputs[0].rows, one, one * 2)
    if isinstance(node, Group):
        one = Handling(rows=1, copied_bytes=size * graph.type_of(node.inputs[0]).cols) + look
        add(rows, one, one)
    elif isinstance(node, Loss) and node.op == "cross_entropy":
        one = Handling(numbers=graph.type_of(node.inputs[0]).cols)
        add(rows, one, one)
    elif by_row:
        numbers = graph.type_of(node.inputs[0]).cols if isinstance(node, NPT) and node.op in _SOFTMAX else 0
        add(rows, Handling(rows=1, numbers=numbers), Handling(rows=0 if isinstance(node, Metric) else 1))
    for port, kind in enumerate(node.outputs):
        if kind.cols and not is_remade(node) and _kept(graph, node, port, inside):
            one = Handling(values=looks(graph, node.region, kind.rows))
            add("", one, one)
            one = Handling(copied_bytes=size * kind.cols)
            add(kind.rows, one, one)
    return tuple(Term(axis, region=region, handled_fwd=f, handled_bwd=b) for (axis, region), (f, b) in found.items())


def looks(graph: Graph, region: int, rows: str = "") -> float:
    """Return what a value counts for among those that a firing looks for: of several rows twice; a division takes each counter but the first out of
    the state, which counts for two."""
    depth = sum(r.form != "instance" for r in chain(graph, region))
    return max(1.0, 2.0 * depth - 1.0) * (2.0 if rows else 1.0)


LAYER_LOOKS = 5.0
"""What a layer's gradient of a message counts for among the values that a firing looks for: its weight is looked at before the firing, for the next
update, and claimed within it; versions are compared, and how stale it is and that it came is counted."""

_BY_ROW = frozenset({
    "gather", "scatter", "lookup", "reduce_rows", "expand_rows", "softmax", "log_softmax", "softmax_rows", "layer_norm", "argmax", "one_hot",
    "max_columns", "dot", "accuracy",
})  # fmt: skip
"""Operations that go from row to row, beside those of losses and metrics."""

_SOFTMAX = frozenset({"softmax", "log_softmax", "softmax_rows"})

REMADE = frozenset({
    "fill", "constant", "field", "one_hot", "number", "pad", "columns", "lookup", "expand_rows", "identity", "gate", "stop_gradient", "affine", "neg",
    "gather",
})  # fmt: skip
"""Operations whose results backward makes again rather than have them kept."""


def is_remade(node: AnyNode) -> bool:
    """Whether backward makes the node's result again rather than have it kept."""
    return isinstance(node, Concat | Split | Group) or (isinstance(node, NPT | PPT) and node.op in REMADE)


def needed(graph: Graph, ref: Ref, inside: Container[int] = ()) -> bool:
    """Whether the backward of a node in `inside` (of any, if there is none) reads the value at an output port, or what is made again of it."""
    stack, seen = [ref], set()
    while stack:
        at = stack.pop()
        reader_at = graph.readers.get(at)
        if at in seen or reader_at is None:
            continue
        seen.add(at)
        reader, port = graph.by_id[reader_at[0]], reader_at[1]
        if isinstance(reader, Bcast) or ((not inside or reader.id in inside) and is_remade(reader)):
            stack += [(reader.id, p) for p in range(len(reader.outputs))]
        elif inside and reader.id not in inside:
            continue
        elif _reads_again(reader, port):
            return True
    return False


def _reads_again(node: AnyNode, port: int) -> bool:
    """Whether the backward of a node reads what came at an input port."""
    if isinstance(node, NPT):
        return f"x{port}" in OPS[node.op].needs or node.op in ("dot", "softmax_rows")
    return isinstance(node, Loss) or (isinstance(node, PPT) and node.op != "lookup")


def _kept(graph: Graph, node: AnyNode, port: int, inside: Container[int]) -> bool:
    """Whether forward keeps a result for backward."""
    own = isinstance(node, NPT) and ("y" in OPS[node.op].needs or node.op in ("softmax", "log_softmax", "softmax_rows"))
    return own or needed(graph, (node.id, port), inside)


def _rows_of(graph: Graph, node: AnyNode) -> str:
    """Return the axis of the rows that a node goes through: its operand's, or its result's where only that has any."""
    taken = next((graph.type_of(r).rows for r in node.inputs if graph.type_of(r).rows), "")
    given = next((t.rows for t in node.outputs if t.rows), "")
    return given if isinstance(node, Group) or (isinstance(node, NPT | PPT) and node.op in ("gather", "expand_rows")) else taken or given


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
    """Return the bytes that `layer` occupies: weights, gradients and the optimiser's state in float32, and weights rounded to `precision` too."""
    floats = 2 + _STATE_FLOATS.get(_optimizer(layer, train), 2)
    return parameters(layer) * (floats * NUMBER_BYTES + FACTOR_BYTES[precision])


def parameters(layer: Layer) -> int:
    """Return how many numbers `layer` learns."""
    return sum(_product(p.shape) for p in layer.params)


def _optimizer(layer: Layer, train: Settings) -> str:
    return str(layer.settings.get("optimizer", train.get("optimizer", "adam")))


def _vector(node: AnyNode, taken: int, given: int, unlike: bool) -> tuple[float, float]:
    """Return the element-wise operations of a row, forward and backward, from the numbers that it takes and gives; `unlike`: of operands that
    are not of one width."""
    match node:
        case PPT(op="linear" | "linear_part" | "linear_by"):
            return given, given  # the bias and its gradient
        case PPT(op="lookup") | Bcast() | Flatmap():
            return 0.0, given  # the gradient is added, or the answers are
        case PPT() | NPT():
            if node.op in _MOVES_ONLY:
                return 0.0, taken
            each = max(flops_per_number(node.op), _UNLIKE if unlike else 0.0)
            numbers = max(taken, given)
            return each * numbers, (each if each <= 4 else each / 3) * numbers
        case Loss() | Metric():
            return flops_per_number(node.op) * taken, float(taken) if isinstance(node, Loss) else 0.0
        case _:
            return 0.0, 0.0


def _multiplies(node: AnyNode) -> bool:
    return isinstance(node, PPT) and node.op in ("linear", "linear_part", "linear_by")


def _inner(graph: Graph, node: AnyNode, folds: list[int], inside: Container[int]) -> int:
    """Return the columns that a Linear multiplies: those of its input without what is folded, and without the zeros of padded ones."""
    before = graph.by_id[node.inputs[0][0]]
    by_parts = isinstance(before, Concat) and _linear_behind(graph, before, inside) is node
    gathers = isinstance(node, PPT) and node.op == "linear_by" and isinstance(before, NPT) and before.op == "gather" and before.id in inside
    reader = before if by_parts or gathers else node
    zeros = sum(_zeros(graph, reader, port, inside) for port in range(len(reader.inputs)))
    return graph.type_of(node.inputs[0]).cols - sum(folds) - zeros


def pad_behind(graph: Graph, node: AnyNode, port: int, inside: Container[int]) -> NPT | None:
    """Return the `pad` in `inside` that gives an operand, through broadcasts; or None. A Linear multiplies the columns before its zeros alone."""
    before = graph.by_id[node.inputs[port][0]]
    while isinstance(before, Bcast):
        before = graph.by_id[before.inputs[0][0]]
    return before if isinstance(before, NPT) and before.op == "pad" and before.id in inside else None


def is_zero(node: AnyNode, inside: Container[int]) -> bool:
    """Whether a node in `inside` gives zeros, which a Linear that reads them leaves out."""
    return isinstance(node, NPT) and node.op == "fill" and node.attrs["value"] == 0 and node.id in inside


def zeros_at_first(graph: Graph, ref: Ref) -> int | None:
    """Return the loop that carries a value which is zeros at turn 0, as of `h = zeros(n)` in front of it; None for any other value."""
    node = graph.by_id[ref[0]]
    while isinstance(node, Bcast) or (isinstance(node, Cond) and isinstance(node.test, Within)):
        node = graph.by_id[node.inputs[0][0]]
    if not isinstance(node, Phi) or not isinstance(node.test, First):
        return None
    loop, node = node.test.region, graph.by_id[node.inputs[0][0]]
    while isinstance(node, Bcast) or (isinstance(node, Isu) and isinstance(node.map, Enter)):
        node = graph.by_id[node.inputs[0][0]]
    return loop if is_zero(node, graph.by_id) else None


def begins_with_zeros(graph: Graph, node: AnyNode, port: int) -> bool:
    """Whether an operand is zeros at turn 0 of an outermost loop, in which `node` is. A Linear that multiplies it as a part leaves these rows out."""
    region = graph.regions[node.region]
    return region.id > 0 and not region.parent and zeros_at_first(graph, node.inputs[port]) == region.id


def spared_at_first(graph: Graph, node: AnyNode, inside: Container[int]) -> float:
    """Return the operations a row that a Linear leaves out at turn 0 of its loop, forward."""
    if not isinstance(node, PPT) or node.op != "linear":
        return 0.0
    concat = graph.by_id[node.inputs[0][0]]
    if not isinstance(concat, Concat) or _linear_behind(graph, concat, inside) is not node:
        return 0.0
    return 2.0 * node.outputs[0].cols * sum(graph.type_of(r).cols for p, r in enumerate(concat.inputs) if begins_with_zeros(graph, concat, p))


def _zeros(graph: Graph, node: AnyNode, port: int, inside: Container[int]) -> int:
    """Return how many columns of an operand are padded ones."""
    if is_zero(graph.by_id[node.inputs[port][0]], inside):
        return graph.type_of(node.inputs[port]).cols
    pad = pad_behind(graph, node, port, inside)
    return 0 if pad is None else pad.outputs[0].cols - graph.type_of(pad.inputs[0]).cols


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
    return [x.outputs[0].cols for x in _folded(graph, node, inside)]


def _folded(graph: Graph, node: AnyNode, inside: Container[int]) -> list[PPT]:
    """Return the lookups that are folded into a Linear."""
    if not isinstance(node, PPT) or node.op != "linear":
        return []
    concat = graph.by_id[node.inputs[0][0]]
    if not isinstance(concat, Concat) or _linear_behind(graph, concat, inside) is not node:
        return []
    before = [graph.by_id[r[0]] for r in concat.inputs]
    return [x for x in before if isinstance(x, PPT) and x.op == "lookup" and _folded_into(graph, x, inside) is node]


def _columns(graph: Graph, region: int, types: Iterable[Type]) -> dict[tuple[str, int], int]:
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
    "FOLD_ROWS", "REMADE", "Settings", "Term", "flops_per_number", "handling", "is_remade", "is_zero", "looks", "memory_bytes", "needed",
    "pad_behind", "parameters", "product_flops", "product_sides", "terms", "update_flops", "update_frequency",
]
