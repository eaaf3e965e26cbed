"""Between two views of one graph: each output has at most one reader (as verified and run), or any number (as rewritten).

`fan_in` takes the Bcasts out and `fan_out` puts one behind each output that several inputs read. Neither checks anything.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import AnyNode, Bcast, Cond, Decided, Phi, Ref


def fan_in(graph: Graph) -> Graph:
    """Return the graph without Bcasts: whatever read a copy reads the original."""
    copies = {n.id: n.inputs[0] for n in graph.nodes if isinstance(n, Bcast)}
    if not copies:
        return graph

    def original(ref: Ref) -> Ref:
        while ref[0] in copies:
            ref = copies[ref[0]]
        return ref

    kept = (n for n in graph.nodes if n.id not in copies)
    return graph.with_nodes(tuple(msgspec.structs.replace(n, inputs=tuple(original(r) for r in n.inputs)) for n in kept))


def fan_out(graph: Graph) -> Graph:
    """Return the graph with ids 0, 1, ... in the order of its nodes and a Bcast right behind each output with several readers."""
    readers: dict[Ref, list[tuple[int, int]]] = defaultdict(list)
    for node in graph.nodes:
        for port, ref in enumerate(node.inputs):
            readers[ref].append((node.id, port))
    fresh, copies, count = {}, {}, 0
    for node in graph.nodes:
        fresh[node.id], count = count, count + 1
        for port in range(len(node.outputs)):
            if len(readers[node.id, port]) > 1:
                copies[node.id, port], count = count, count + 1
    source: dict[tuple[int, int], Ref] = {}
    for ref, uses in readers.items():
        for i, use in enumerate(uses):
            source[use] = (copies[ref], i) if ref in copies else (fresh[ref[0]], ref[1])
    nodes: list[AnyNode] = []
    for node in graph.nodes:
        inputs = tuple(source[node.id, port] for port in range(len(node.inputs)))
        nodes.append(_renumbered(node, fresh, inputs))
        for port, kind in enumerate(node.outputs):
            if (copy := copies.get((node.id, port))) is not None:
                outputs, inputs = (kind,) * len(readers[node.id, port]), ((fresh[node.id], port),)
                nodes.append(Bcast(id=copy, region=graph.region_out(node), inputs=inputs, outputs=outputs, origin=node.origin, name=node.name))
    return graph.with_nodes(tuple(nodes))


def _renumbered(node: AnyNode, fresh: dict[int, int], inputs: tuple[Ref, ...]) -> AnyNode:
    """Return the node under its new id, with new inputs; a test that names a node follows it."""
    if isinstance(node, Cond | Phi) and isinstance(node.test, Decided):
        test = msgspec.structs.replace(node.test, by=fresh[node.test.by])
        return msgspec.structs.replace(node, id=fresh[node.id], inputs=inputs, test=test)
    return msgspec.structs.replace(node, id=fresh[node.id], inputs=inputs)
