"""Takes out operations that do nothing, and folds operations on constants and chains of simple ones.

Sums and products are not reordered; results change by rounding at most, where two constant factors become one.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, AnyNode, Attr, Concat, Cond, Phi, Ref
from ampc.ir.ops import OPS
from ampc.passes.rewrite import Rewriter, columns_of, joined


def simplify(graph: Graph) -> Graph:
    """Return the graph without needless operations."""
    r = Rewriter(graph)
    todo = list(r.order)
    while todo:
        node = r.nodes[todo.pop(0)]
        readers = {reader for port in range(len(node.outputs)) for reader in r.readers[node.id, port]}
        if _simplified(r, node):
            todo += [node.id, *sorted(readers)]
    return r.finish()


def _simplified(r: Rewriter, node: AnyNode) -> bool:
    """Try all rules on a node; return whether one fitted."""
    match node:
        case Concat():
            return _concat(r, node)
        case Phi():
            return _phi(r, node)
        case NPT() if r.readers[node.id, 0]:
            return any(rule(r, node) for rule in RULES)
        case _:
            return False


def _instead(r: Rewriter, node: AnyNode, ref: Ref) -> bool:
    """Let the readers of `node` read `ref`; False if nobody read it, or if the message isn't the same."""
    out = (node.id, 0)
    if not r.readers[out] or r.type_of(ref) != node.outputs[0] or r.graph.region_out(r.node(ref)) != node.region:
        return False
    r.reroute(out, ref)
    return True


# ------------------------------------------------------------------------------------------------- whole nodes


def _concat(r: Rewriter, node: Concat) -> bool:
    """A Concat of one part is the part; a Concat in a Concat is one Concat."""
    if len(node.inputs) == 1:
        return _instead(r, node, node.inputs[0])
    for i, ref in enumerate(node.inputs):
        inner = r.node(ref)
        if isinstance(inner, Concat) and r.single(ref):
            inputs = (*node.inputs[:i], *inner.inputs, *node.inputs[i + 1 :])
            r.put(msgspec.structs.replace(node, inputs=inputs, origin=joined(node.origin, inner.origin)))
            return True
    return False


def _phi(r: Rewriter, node: Phi) -> bool:
    """A Phi that merges what its own Cond has parted, untouched in every arm, is the value before the branch."""
    makers = [r.node(ref) for ref in node.inputs]
    first = makers[0]
    if not isinstance(first, Cond) or first.test != node.test or len(first.outputs) != len(node.inputs):
        return False
    if any(ref != (first.id, port) for port, ref in enumerate(node.inputs)):
        return False
    return _instead(r, node, first.inputs[0])


# -------------------------------------------------------------------------------------------------- operations


def _does_nothing(r: Rewriter, node: NPT) -> bool:
    a = node.attrs
    x = node.inputs[0]
    idle = {
        "affine": lambda: a["scale"] == 1 and a["shift"] == 0,
        "pad": lambda: r.type_of(x) == node.outputs[0],
        "columns": lambda: r.type_of(x) == node.outputs[0],
        "power": lambda: a["exponent"] == 1,
        "dropout": lambda: a["rate"] == 0,
    }
    return node.op in idle and idle[node.op]() and _instead(r, node, x)


def _of_same(r: Rewriter, node: NPT) -> bool:
    """Two of a kind in a row: affine, columns, neg, relu, stop_gradient, pad."""
    inner = r.node(node.inputs[0])
    if not isinstance(inner, NPT) or inner.op != node.op or not r.single(node.inputs[0]):
        return False
    a, b = inner.attrs, node.attrs
    attrs: dict[str, Attr]
    match node.op:
        case "neg":
            return _instead(r, node, inner.inputs[0])
        case "affine":
            attrs = {"scale": _number(a["scale"]) * _number(b["scale"]), "shift": _number(a["shift"]) * _number(b["scale"]) + _number(b["shift"])}
        case "columns":
            outer, inside = columns_of(inner), columns_of(node)
            attrs = {"start": outer[0] + inside[0], "stop": outer[0] + inside[1]}
        case "pad" | "relu" | "abs" | "stop_gradient":
            attrs = dict(b)
        case _:
            return False
    r.put(msgspec.structs.replace(node, inputs=inner.inputs, attrs=attrs, origin=joined(node.origin, inner.origin)))
    return True


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _filled(r: Rewriter, ref: Ref) -> float | None:
    """Return the number that `ref` is filled with, or None."""
    node = r.node(ref)
    return _number(node.attrs["value"]) if isinstance(node, NPT) and node.op == "fill" else None


def _with_fill(r: Rewriter, node: NPT) -> bool:
    """A binary operation with a constant row becomes an affine one, or nothing at all."""
    if OPS[node.op].group != "binary":
        return False
    for port in (1, 0):
        c, other = _filled(r, node.inputs[port]), node.inputs[1 - port]
        if c is None or r.type_of(other) != node.outputs[0]:
            continue
        scale, shift = {
            "add": (1.0, c),
            "sub": (1.0, -c) if port == 1 else (-1.0, c),
            "mul": (c, 0.0),
            "div": (1 / c, 0.0) if port == 1 and c else (None, 0.0),
        }.get(node.op, (None, 0.0))
        if scale is None:
            continue
        if scale == 1 and shift == 0:
            return _instead(r, node, other)
        attrs = {"scale": scale, "shift": shift}
        r.put(msgspec.structs.replace(node, op="affine", inputs=(other,), attrs=attrs, origin=joined(node.origin, r.node(node.inputs[port]).origin)))
        return True
    return False


def _of_fill(r: Rewriter, node: NPT) -> bool:
    """An operation on a constant row is a constant row, where all its columns stay equal."""
    if len(node.inputs) != 1 or not (OPS[node.op].group == "unary" or node.op in ("columns", "sum_columns", "mean_columns", "max_columns")):
        return False
    c = _filled(r, node.inputs[0])
    if c is None or node.op == "stop_gradient":
        return False
    with np.errstate(all="ignore"):
        y = OPS[node.op].fwd([np.full((1, r.type_of(node.inputs[0]).cols), c)], [], {}, node.attrs)
    if not np.isfinite(y).all():
        return False
    inner = r.node(node.inputs[0])
    r.put(msgspec.structs.replace(node, op="fill", inputs=inner.inputs, attrs={"cols": node.outputs[0].cols, "value": float(y[0, 0])}))
    return True


def _of_concat(r: Rewriter, node: NPT) -> bool:
    """Columns that are just one part of a Concat are that part."""
    inner = r.node(node.inputs[0])
    if node.op != "columns" or not isinstance(inner, Concat):
        return False
    start = 0
    for ref in inner.inputs:
        stop = start + r.type_of(ref).cols
        if (start, stop) == columns_of(node):
            return _instead(r, node, ref)
        start = stop
    return False


def _of_expanded(r: Rewriter, node: NPT) -> bool:
    """A binary operation repeats a single row by itself."""
    if OPS[node.op].group != "binary":
        return False
    for port, ref in enumerate(node.inputs):
        inner = r.node(ref)
        if (
            isinstance(inner, NPT)
            and inner.op == "expand_rows"
            and r.type_of(inner.inputs[0]).rows == ""
            and r.type_of(node.inputs[1 - port]).rows == node.outputs[0].rows
        ):
            inputs = tuple(inner.inputs[0] if i == port else other for i, other in enumerate(node.inputs))
            if node.inputs[0] != node.inputs[1]:
                r.put(msgspec.structs.replace(node, inputs=inputs))
                return True
    return False


RULES: tuple[Callable[[Rewriter, NPT], bool], ...] = (_does_nothing, _of_same, _with_fill, _of_fill, _of_concat, _of_expanded)
