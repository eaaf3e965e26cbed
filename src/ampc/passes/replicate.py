"""Makes the copies of replicated layers real: `step` with `replicas = 2` becomes layers `step~0` and `step~1`, each in an arm of its own.

An instance is dealt to one arm, forward and backward. What computes the operands of copies is copied too, so that an arm is whole. The
numbers stay the same as long as the copies are equal; keeping them close is the run's part (`average_every`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, Label
from ampc.ir.copies import copy_name
from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import PPT, AnyNode, Cond, Dealt, Decided, Group, Isu, Leave, Loss, Metric, Output, Phi, Ref, Source
from ampc.ir.rules_structure import origin_label
from ampc.ir.scope import members


def replicate(graph: Graph) -> Graph:
    """Return the graph with an arm for each copy of the layers that have `replicas`. Raises AMP402 if these differ in number."""
    count = _count(graph)
    if count == 1:
        return graph
    open_ = fan_in(graph)
    copied = _copied(open_)
    made = msgspec.structs.replace(open_, layers=tuple(_layers(graph, count)), nodes=tuple(_Arms(open_, copied, count).nodes()))
    return fan_out(made)


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


def _layers(graph: Graph, count: int) -> Iterator[Layer]:
    for x in graph.layers:
        if x.replicas == 1:
            yield x
        else:
            yield from (msgspec.structs.replace(x, name=copy_name(x.name, i), replicas=1) for i in range(count))


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


# --------------------------------------------------------------------------------------------------------- the arms


class _Arms:
    """Writes the nodes of the replicated graph in the order of the old one; ids are provisional and unique."""

    def __init__(self, graph: Graph, copied: set[int], count: int) -> None:
        self.graph, self.copied, self.count = graph, copied, count
        self.test = Dealt(count)
        self.fresh = max(n.id for n in graph.nodes) + 1
        readers: dict[Ref, set[bool]] = defaultdict(set)
        for n in graph.nodes:
            for ref in n.inputs:
                readers[ref].add(n.id in copied)
        self.id_of = {(n, i): self._number() for n in sorted(copied) for i in range(count)}
        self.dealt = {ref: self._number() for ref, sides in readers.items() if ref[0] not in copied and True in sides}
        self.collected = {ref: self._number() for ref, sides in readers.items() if ref[0] in copied and False in sides}

    def _number(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    def nodes(self) -> Iterator[AnyNode]:
        for n in self.graph.nodes:
            if n.id in self.copied:
                yield from (self._copy(n, i) for i in range(self.count))
            else:
                yield msgspec.structs.replace(n, inputs=tuple((self.collected[r], 0) if r in self.collected else r for r in n.inputs))
            yield from self._border(n)

    def _copy(self, n: AnyNode, i: int) -> AnyNode:
        """Return the node as arm `i` has it."""
        inputs = tuple((self.id_of[r[0], i], r[1]) if r[0] in self.copied else (self.dealt[r], i) for r in n.inputs)
        made = msgspec.structs.replace(n, id=self.id_of[n.id, i], inputs=inputs)
        if isinstance(made, PPT):
            return msgspec.structs.replace(made, layer=copy_name(made.layer, i))
        if isinstance(made, Cond | Phi) and isinstance(made.test, Decided):
            return msgspec.structs.replace(made, test=msgspec.structs.replace(made.test, by=self.id_of[made.test.by, i]))
        return made

    def _border(self, n: AnyNode) -> Iterator[AnyNode]:
        """Behind each output that is read on the other side: what deals it to the arms, or collects it from them."""
        region = self.graph.region_out(n)
        for port, kind in enumerate(n.outputs):
            ref = (n.id, port)
            if ref in self.dealt:
                outputs = (kind,) * self.count
                yield Cond(id=self.dealt[ref], region=region, inputs=(ref,), outputs=outputs, origin=n.origin, name=n.name, test=self.test)
            if ref in self.collected:
                inputs = tuple((self.id_of[n.id, i], port) for i in range(self.count))
                yield Phi(id=self.collected[ref], region=region, inputs=inputs, outputs=(kind,), origin=n.origin, name=n.name, test=self.test)
