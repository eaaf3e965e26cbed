"""What passes share: a graph without Bcasts to rewrite, and what of it still leads to a result.

`Rewriter` holds nodes by id, with any number of readers to an output; `finish` drops what the rewriting has left without readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, AnyNode, Decided, Index, Loss, Metric, Output, Ref, Source, Through, Type


def live(graph: Graph) -> set[int]:
    """Return the ids of the nodes that lead to a loss, a metric or an output, and the source."""
    todo = [n.id for n in graph.nodes if isinstance(n, Loss | Metric | Output | Source)]
    seen = set(todo)
    while todo:
        node = graph.by_id[todo.pop()]
        test = getattr(node, "test", None)
        needed = [ref[0] for ref in node.inputs] + ([test.by] if isinstance(test, Decided) else [])
        todo += [i for i in needed if i not in seen]
        seen.update(needed)
    return seen


class Rewriter:
    """A graph under change. Ids stay what they were until `finish`, new nodes get the next free ones."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.open = fan_in(graph)
        self.nodes: dict[int, AnyNode] = dict(self.open.by_id)
        self.order = [n.id for n in self.open.nodes]
        self.moved: dict[Ref, Ref] = {}
        self.readers: dict[Ref, set[int]] = defaultdict(set)
        for n in self.nodes.values():
            for ref in n.inputs:
                self.readers[ref].add(n.id)
        self._fresh = max(self.nodes, default=-1) + 1

    def node(self, ref: Ref) -> AnyNode:
        return self.nodes[ref[0]]

    def type_of(self, ref: Ref) -> Type:
        return self.nodes[ref[0]].outputs[ref[1]]

    def single(self, ref: Ref) -> bool:
        """Whether just one input reads `ref`."""
        readers = self.readers[ref]
        return len(readers) == 1 and sum(r == ref for r in self.nodes[next(iter(readers))].inputs) == 1

    def put(self, node: AnyNode) -> None:
        """Replace the node of the same id."""
        for ref in self.nodes[node.id].inputs:
            self.readers[ref].discard(node.id)
        self.nodes[node.id] = node
        for ref in node.inputs:
            self.readers[ref].add(node.id)

    def add(self, node: AnyNode, before: int) -> int:
        """Insert a node in front of `before` and return its id."""
        made = msgspec.structs.replace(node, id=self._fresh)
        self._fresh += 1
        self.nodes[made.id] = made
        self.order.insert(self.order.index(before), made.id)
        for ref in made.inputs:
            self.readers[ref].add(made.id)
        return made.id

    def reroute(self, old: Ref, new: Ref) -> None:
        """Let all that reads `old` read `new`, of the same type and region."""
        for reader in list(self.readers[old]):
            n = self.nodes[reader]
            self.put(msgspec.structs.replace(n, inputs=tuple(new if r == old else r for r in n.inputs)))

    def decide(self, old: int, new: int) -> None:
        """Let all tests that look at the integer of node `old` look at that of `new`."""
        for n in list(self.nodes.values()):
            test = getattr(n, "test", None)
            if isinstance(test, Decided) and test.by == old:
                self.put(msgspec.structs.replace(n, test=msgspec.structs.replace(test, by=new)))

    def finish(self) -> Graph:
        """Return the new graph (the old one if nothing changed), without nodes that only the rewriting made useless."""
        changed = self.open.with_nodes(tuple(self.nodes[i] for i in self.order))
        if changed is self.open:
            return self.graph
        dropped = live(self.open) | {i for i in self.nodes if i not in self.open.by_id}
        kept = live(changed)
        nodes = tuple(n for n in changed.nodes if n.id in kept or n.id not in dropped)
        return self.graph if nodes == self.open.nodes else fan_out(changed.with_nodes(nodes))


def joined(*origins: Iterable[str]) -> tuple[str, ...]:
    """Return the source places of a node that stands for several, each once."""
    return tuple(dict.fromkeys(place for origin in origins for place in origin))


def columns_of(node: NPT) -> tuple[int, int]:
    """Return the bounds of a slice (`columns`)."""
    start, stop = node.attrs["start"], node.attrs["stop"]
    assert isinstance(start, int) and isinstance(stop, int)
    return start, stop


def uses(at: Index, region: int) -> bool:
    """Whether an index depends on the element of `region`."""
    while isinstance(at, Through):
        at = at.at
    return at.region == region
