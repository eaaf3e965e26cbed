"""Arms: what a graph has several times, so that an instance can be dealt to one of them; and the way back, to the graph with one.

A `Cond` with the test `Dealt` leads an instance's messages to one arm, a `Phi` with that test takes them from it. Checks nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set

import msgspec

from ampc.ir.copies import copy_name, copy_number, uncopied
from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import PPT, AnyNode, Cond, Dealt, Decided, Phi, Ref, Source


def in_arms(graph: Graph, copied: Set[int], count: int) -> Graph:
    """Return the graph (without Bcasts, as it is given) with `count` arms that each have the nodes `copied`, and copies of layers with `replicas`.

    Node ids are provisional and unique: `fan_out` gives others.
    """
    return msgspec.structs.replace(graph, layers=tuple(_layers(graph, count)), nodes=tuple(_Arms(graph, copied, count).nodes()))


def whole(graph: Graph, count: int) -> Graph:
    """Return the graph with `count` arms of all that it computes: only the Source is left outside. The copies of a layer are `layer~0` and on.

    Copies that the graph has already count as one layer. With `count` 1 it has no arms, and layers have their plain names.
    """
    one = _with_one_arm(fan_in(graph))
    if count > 1:
        replicated = msgspec.structs.replace(one, layers=tuple(msgspec.structs.replace(x, replicas=count) for x in one.layers))
        one = in_arms(replicated, {n.id for n in one.nodes if not isinstance(n, Source)}, count)
    return fan_out(one)


def arm_of(graph: Graph) -> dict[int, int]:
    """Return the arm that each node is in; those that are in none are left out."""
    readers: dict[int, list[AnyNode]] = defaultdict(list)
    found: dict[int, int] = {}
    todo: list[tuple[AnyNode, int]] = []
    for n in graph.nodes:
        for maker, way in n.inputs:
            readers[maker].append(n)
            at = graph.by_id[maker]
            if isinstance(at, Cond) and isinstance(at.test, Dealt):
                todo.append((n, way))
    while todo:
        n, arm = todo.pop()
        if n.id in found or (isinstance(n, Phi) and isinstance(n.test, Dealt)):
            continue
        found[n.id] = arm
        todo += ((reader, arm) for reader in readers[n.id])
    return found


def _with_one_arm(graph: Graph) -> Graph:
    """Return the graph (without Bcasts) with the first of its arms alone, which is none then, and layers under their plain names."""
    arm = arm_of(graph)
    border = {n.id: n.inputs[0] for n in graph.nodes if isinstance(n, Cond | Phi) and isinstance(n.test, Dealt)}

    def beyond(ref: Ref) -> Ref:
        while ref[0] in border:
            ref = border[ref[0]]
        return ref

    nodes: list[AnyNode] = []
    for n in graph.nodes:
        if n.id in border or arm.get(n.id, 0):
            continue
        made = msgspec.structs.replace(n, inputs=tuple(beyond(r) for r in n.inputs))
        nodes.append(msgspec.structs.replace(made, layer=uncopied(made.layer)) if isinstance(made, PPT) else made)
    layers = tuple(msgspec.structs.replace(x, name=uncopied(x.name)) for x in graph.layers if not copy_number(x.name))
    return msgspec.structs.replace(graph, layers=layers, nodes=tuple(nodes))


def _layers(graph: Graph, count: int) -> Iterator[Layer]:
    for x in graph.layers:
        if x.replicas == 1:
            yield x
        else:
            yield from (msgspec.structs.replace(x, name=copy_name(x.name, i), replicas=1) for i in range(count))


class _Arms:
    """Writes the nodes of the replicated graph in the order of the old one; ids are provisional and unique."""

    def __init__(self, graph: Graph, copied: Set[int], count: int) -> None:
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
