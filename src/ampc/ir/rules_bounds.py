"""Integers that are computed, and pick a row of a table, a column or a class, stay within what they pick from.

Those of fields are bounded by their declarations, which the shape rules look at; kernels don't look.
"""

from __future__ import annotations

from collections.abc import Iterator

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, AnyNode, Loss, Metric, Ref
from ampc.ir.rules_structure import Wrongs, at_origin
from ampc.ir.scope import param_shapes

JUDGED = ("cross_entropy", "accuracy", "top_k")


def bound(graph: Graph, ref: Ref) -> int:
    """Return a number that the integers of a message are all below."""
    seen, todo, most = {ref[0]}, [ref[0]], 0
    while todo:
        node = graph.by_id[todo.pop()]
        if isinstance(node, NPT) and node.op not in ("gate", "identity", "expand_rows"):
            most = max(most, _below(graph, node))
            continue
        behind = node.inputs[:1] if isinstance(node, NPT) else node.inputs
        todo += [r[0] for r in behind if r[0] not in seen]
        seen |= {r[0] for r in behind}
    return most


def _below(graph: Graph, node: NPT) -> int:
    match node.op:
        case "argmax":
            return graph.type_of(node.inputs[0]).cols
        case "constant":
            value = node.attrs["value"]
            assert isinstance(value, int)
            return value + 1
        case _:
            return 2


def beyond(graph: Graph) -> Iterator[tuple[AnyNode, str]]:
    """Yield each node that may be asked for what isn't there, and the reason."""
    for n in graph.nodes:
        if not isinstance(n, NPT | PPT | Loss | Metric) or n.fields:
            continue
        match n:
            case PPT(op="lookup"):
                port, most, what = 0, param_shapes(graph, n.op, n.layer, n.attrs)["table"][0], f"rows of `{n.layer}`"
            case NPT(op="one_hot"):
                port, most, what = 0, n.outputs[0].cols, "columns of `one_hot`"
            case Loss(op=op) | Metric(op=op) if op in JUDGED:
                port, most, what = 1, graph.type_of(n.inputs[0]).cols, f"columns of what `{op}` judges"
            case _:
                continue
        largest = bound(graph, n.inputs[port]) - 1
        if largest >= most:
            yield n, f"the integer may be {largest}, and there are {most} {what}"


def bounds(graph: Graph) -> Wrongs:
    """Computed integers lie within what they pick from."""
    for node, reason in beyond(graph):
        yield at_origin("AMP312", node, reason)
