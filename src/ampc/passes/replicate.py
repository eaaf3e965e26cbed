"""Makes the copies of replicated layers real: `step` with `replicas = 2` becomes layers `step~0` and `step~1`, each in an arm of its own.

An instance is dealt to one arm, forward and backward. What computes the operands of copies is copied too, so that an arm is whole. The
numbers stay the same as long as the copies are equal; keeping them close is the run's part (`average_every`).
"""

from __future__ import annotations

from collections import defaultdict

from ampc.diagnostics import AmpError, Diagnostic, Label
from ampc.ir.arms import in_arms
from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import PPT, Cond, Decided, Group, Isu, Leave, Loss, Metric, Output, Phi, Source
from ampc.ir.rules_structure import origin_label
from ampc.ir.scope import members


def replicate(graph: Graph) -> Graph:
    """Return the graph with an arm for each copy of the layers that have `replicas`. Raises AMP402 if these differ in number."""
    count = _count(graph)
    if count == 1:
        return graph
    open_ = fan_in(graph)
    return fan_out(in_arms(open_, _copied(open_), count))


def _count(graph: Graph) -> int:
    """Return the number of copies, 1 if there are none."""
    replicated = [x for x in graph.layers if x.replicas > 1]
    other = next((x for x in replicated if x.replicas != replicated[0].replicas), None)
    if other is None:
        return replicated[0].replicas if replicated else 1
    first = replicated[0]
    places = [(_use(graph, x), f"`{x.name}` has {x.replicas} replicas") for x in (other, first)]
    labels = [Label(found.span, text) for node, text in places if node is not None and (found := origin_label(node.origin)) is not None]
    raise AmpError(Diagnostic(
        "AMP402", f"layer `{other.name}` has {other.replicas} replicas, but `{first.name}` has {first.replicas}",
        primary=labels[0] if labels else None, secondary=tuple(labels[1:]),
        help=f"give all replicated layers the same number: an instance is dealt to one copy of each, `replicas = {first.replicas}`",
    ))  # fmt: skip


def _use(graph: Graph, layer: Layer) -> PPT | None:
    return next((n for n in graph.nodes if isinstance(n, PPT) and any(x is layer for _, x in members(graph, n.op, n.layer, n.attrs))), None)


# ---------------------------------------------------------------------------------------------------- what is copied


def _copied(graph: Graph) -> set[int]:
    """Return the nodes (of a graph without Bcasts) that every arm has.

    These are the uses of replicated layers and, backward from them, what computes their operands, up to other layers and the Source. Beyond
    that go along: all tests on a computed integer with the node that computes it (both must know of the same states), all that touches rows
    that a Group collected (they have no place outside its arm), what leaves a loop or stacks elements (one message instead of many), and the
    losses, metrics and outputs that no other layer comes before, with what computes their operands: an instance then stays on one device.
    """
    replicated = {n.id for n in graph.nodes if isinstance(n, PPT) and any(x.replicas > 1 for _, x in members(graph, n.op, n.layer, n.attrs))}
    fixed = {n.id for n in graph.nodes if isinstance(n, Source | PPT | Loss | Metric | Output)}
    makers: dict[int, set[int]] = defaultdict(set)  # node -> nodes that must be copied if it is
    for n in graph.nodes:
        makers[n.id] |= {ref[0] for ref in n.inputs}
        if isinstance(n, Cond | Phi) and isinstance(n.test, Decided):
            makers[n.id].add(n.test.by)
    copied = _closed(replicated, makers, fixed)
    along: dict[int, set[int]] = defaultdict(set)  # the same for what goes along
    for n in graph.nodes:
        if isinstance(n, Cond | Phi) and isinstance(n.test, Decided):
            along[n.test.by].add(n.id)
            along[n.id].add(n.test.by)
        if (isinstance(n, Isu) and isinstance(n.map, Leave)) or (isinstance(n, Group) and n.key is None):
            along[n.inputs[0][0]].add(n.id)
        for maker, port in n.inputs:
            if graph.by_id[maker].outputs[port].rows == "*":
                along[maker].add(n.id)
                along[n.id].add(maker)
    copied = _closed(copied, along, fixed)
    layers = {n.id for n in graph.nodes if isinstance(n, PPT)}
    both = {i: makers[i] | along[i] for i in makers}
    for n in graph.nodes:
        if isinstance(n, Loss | Metric | Output):
            needed = _closed({n.id}, both, fixed)
            before = set().union(*(makers[i] for i in needed)) & layers
            if before and before <= copied:
                copied |= needed
    return copied


def _closed(start: set[int], needed: dict[int, set[int]], fixed: set[int]) -> set[int]:
    """Return `start` and all that is needed by something in it, except what is `fixed`."""
    found, todo = set(start), list(start)
    while todo:
        new = needed[todo.pop()] - found - fixed
        found |= new
        todo += new
    return found
