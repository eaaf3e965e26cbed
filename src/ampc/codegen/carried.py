"""What a segment's firings exchange with the arenas, in the cost model's terms: payloads that come and leave, their gradients the other way.

A node's own work, and what it keeps for its backward, is `place.work.terms`; both together are what a firing costs.
"""

from __future__ import annotations

from collections.abc import Container

from ampc.codegen.plan import Plan, Segment, is_direct
from ampc.ir.graph import Graph
from ampc.ir.nodes import AnyNode, Bcast, Group, Ref
from ampc.place.target import NUMBER_BYTES, Device, Handling, Precision
from ampc.place.work import Term, handling, looks, needed, product_flops, product_sides, terms


def segment_terms(plan: Plan, segment: Segment, folding: bool = True) -> list[tuple[AnyNode, Term]]:
    """Return what one token of a segment costs, each term with the node by which its axis is to be understood."""
    inside = {n.id for n in segment.nodes}
    found = [
        (n, t) for n in segment.nodes
        for t in (*terms(plan.graph, n, inside, folding), *handling(plan.graph, n, inside, folding))
    ]  # fmt: skip
    return found + _carried(plan, segment, inside)


def term_seconds(term: Term, device: Device, precision: Precision = "fp32") -> tuple[float, float]:
    """Return (forward, backward) seconds of one row of a term."""
    forward = device.seconds(term.matrix_fwd, term.vector_fwd, term.bytes_fwd, precision=precision) + device.handling_s(term.handled_fwd, precision)
    backward = device.seconds(term.matrix_bwd, term.vector_bwd, term.bytes_bwd, precision=precision) + device.handling_s(term.handled_bwd, precision)
    return forward, backward


def calls_seconds(
    graph: Graph, node: AnyNode, inside: Container[int], folding: bool, device: Device, precision: Precision = "fp32"
) -> tuple[float, float]:  # fmt: skip
    """Return (forward, backward) seconds of a firing of `node` for the products that it calls for, whatever their rows."""
    flops, sides = sum(product_flops(graph, node, inside, folding)), product_sides(graph, node, inside, folding)
    forward = device.calls_s(flops, sum(sides), len(sides), precision)
    return forward, 2 * forward


def _carried(plan: Plan, segment: Segment, inside: set[int]) -> list[tuple[AnyNode, Term]]:
    graph, found = plan.graph, list[tuple[AnyNode, Term]]()
    arrived = set()
    for node_id, port in segment.inputs:
        node = graph.by_id[node_id]
        ref = node.inputs[port]
        kind = graph.type_of(ref)
        if not kind.cols or isinstance(node, Group) or is_direct(graph, ref) in arrived:
            continue  # a trigger; members of a Group, which it counts itself; what another node of the segment reads as well
        arrived.add(is_direct(graph, ref))
        bwd = float(needed(graph, is_direct(graph, ref), inside)) + float(ref in plan.needs_gradient)
        each = looks(graph, node.region, kind.rows)
        found.append((node, Term("", handled_fwd=Handling(values=each), handled_bwd=Handling(values=each * bwd))))
        copied = Handling(copied_bytes=NUMBER_BYTES * kind.cols)
        found.append((node, Term(kind.rows, region=_seen_from(plan, kind.rows, node.region), handled_fwd=copied, handled_bwd=copied * bwd)))
    for node in segment.nodes:
        for port, kind in enumerate(node.outputs):
            reader = graph.readers.get((node.id, port))
            if not kind.cols or reader is None or kind.rows == "*" or not _leaves(plan, (node.id, port), inside):
                continue
            answered = float((node.id, port) in plan.needs_gradient)
            copied = Handling(copied_bytes=NUMBER_BYTES * kind.cols)
            region = _seen_from(plan, kind.rows, graph.region_out(node))
            each = looks(graph, node.region, kind.rows)
            found.append((node, Term("", handled_fwd=Handling(values=each), handled_bwd=Handling(values=each * answered))))
            found.append((node, Term(kind.rows, region=region, handled_fwd=copied, handled_bwd=copied * answered)))
    return found


def _leaves(plan: Plan, ref: Ref, inside: set[int]) -> bool:
    """Whether somebody outside of the segment reads a value."""
    graph, stack = plan.graph, [ref]
    while stack:
        reader = graph.readers.get(stack.pop())
        if reader is None:
            continue
        node = graph.by_id[reader[0]]
        if isinstance(node, Bcast):
            stack += [(node.id, p) for p in range(len(node.outputs))]
        elif node.id not in inside:
            return True
    return False


def _seen_from(plan: Plan, rows: str, region: int) -> int:
    return region if any(a.name == rows and a.parent for a in plan.graph.axes) else 0


__all__ = ["calls_seconds", "segment_terms", "term_seconds"]
