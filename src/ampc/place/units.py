"""What is placed as one: a layer with all its uses, and the nodes without parameters that go along with it.

Nodes join the layer with which they exchange most, their producer where that is a tie; none joins two layers. A node that reaches no layer
forms a unit of its own with its neighbours. The Source is a unit, so that it may go to the least loaded device.
"""

from __future__ import annotations

from math import prod

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT, Loss, Metric, Output, Source
from ampc.ir.scope import members
from ampc.place.cost import Cost, NodeCost
from ampc.place.target import NOTHING
from ampc.place.traffic import Route, is_stop


class Unit(msgspec.Struct, frozen=True):
    """`layer` is "" for nodes that own no parameters, `layers` all that it owns (a family's members are one unit where one node uses them together).

    The rest is per instance, forward and backward together; `work` is that of each node, for a device takes the longer of operations and bytes;
    `tokens` counts messages within the unit that wait in a queue, of `token_bytes`; `instances`: 1 for the unit of the Source. `layer_bytes`:
    weights, gradients and optimiser state; `value_bytes`: what its nodes give, and the gradients of that, for all instances in flight.
    """

    id: int
    nodes: tuple[int, ...]
    layer: str
    layers: tuple[str, ...]
    device: str
    work: tuple[NodeCost, ...]
    update_flops: float
    updates: float
    tokens: float
    layer_bytes: int
    value_bytes: int
    token_bytes: float = 0.0
    instances: int = 0

    @property
    def memory_bytes(self) -> int:
        return self.layer_bytes + self.value_bytes


class _Sets:
    """Disjoint sets of nodes, each with at most one anchor (a layer)."""

    def __init__(self, items: list[int]) -> None:
        self.parent = {i: i for i in items}
        self.anchored = dict.fromkeys(items, False)

    def find(self, x: int) -> int:
        while self.parent[x] != x:
            self.parent[x] = self.parent[self.parent[x]]
            x = self.parent[x]
        return x

    def join(self, a: int, b: int) -> None:
        a, b = sorted((self.find(a), self.find(b)))
        if a != b:
            self.parent[b] = a
            self.anchored[a] = self.anchored[a] or self.anchored[b]


def units_of(graph: Graph, cost: Cost, ways: list[Route], fine: bool = False) -> list[Unit]:
    """Return the units of a verified graph in the order of their first nodes; `fine` leaves nodes without parameters by themselves.

    Only stops are in units: what lies between them goes along.
    """
    sets = _Sets([n.id for n in graph.nodes if is_stop(n)])
    owner = _layer_uses(graph, sets)
    place_of = {n.id: i for i, n in enumerate(graph.nodes)}
    sources = {n.id for n in graph.nodes if isinstance(n, Source)}
    # A sink goes where its operand comes from, whatever the traffic: its answer starts the backward there.
    for route in ways:
        if isinstance(graph.by_id[route.reader], Loss | Metric | Output) and route.source not in sources:
            sets.join(route.source, route.reader)
    for route in [] if fine else sorted(ways, key=lambda r: (not r.direct, -r.messages * (r.size + 1), place_of[r.source], place_of[r.reader])):
        a, b = sets.find(route.source), sets.find(route.reader)
        if a != b and not sources & {a, b} and not (sets.anchored[a] and sets.anchored[b]):
            sets.join(a, b)
    return _built(graph, cost, sets, owner, ways)


def in_flight(graph: Graph) -> int:
    """Return how many instances are in flight at once, as the program says it (a run may say otherwise)."""

    def setting(name: str, default: int) -> int:
        given = graph.train.get(name, default)
        return max(1, int(given)) if isinstance(given, int | float) else default  # a run refuses what is no number, by name

    return setting("max_active_keys", 64) * setting("group", 1)


def _layer_uses(graph: Graph, sets: _Sets) -> dict[str, int]:
    """Join all uses of each layer, and the members of a family that one node uses together; return layer -> one of its nodes."""
    owner: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node, PPT):
            sets.anchored[sets.find(node.id)] = True
            for _, layer in members(graph, node.op, node.layer, node.attrs):
                sets.join(owner.setdefault(layer.name, node.id), node.id)
    return owner


def _built(graph: Graph, cost: Cost, sets: _Sets, owner: dict[str, int], ways: list[Route]) -> list[Unit]:
    groups: dict[int, list[int]] = {}
    for node in graph.nodes:
        if is_stop(node):
            groups.setdefault(sets.find(node.id), []).append(node.id)
    tokens: dict[int, float] = {}
    token_bytes: dict[int, float] = {}
    for route in ways:
        root = sets.find(route.source)
        if root == sets.find(route.reader) and not route.direct:
            tokens[root] = tokens.get(root, 0.0) + 2 * route.messages
            token_bytes[root] = token_bytes.get(root, 0.0) + 2 * route.messages * route.size
    layers: dict[int, list[str]] = {}
    for name, use in owner.items():
        layers.setdefault(sets.find(use), []).append(name)
    units = []
    for number, (root, nodes) in enumerate(groups.items()):
        names = layers.get(root, [])
        owned = [graph.layer[n] for n in names]
        costs = [cost.nodes[n] for n in nodes]
        units.append(Unit(
            id=number,
            nodes=tuple(nodes),
            layer=names[0] if names else "",
            layers=tuple(names),
            device=next((x.device for x in owned if x.device), ""),
            work=tuple(c for c in costs if c.flops or c.bytes or c.handled != NOTHING),
            update_flops=sum(cost.layers[n].update_flops for n in names),
            updates=sum(cost.layers[n].updates for n in names),
            tokens=tokens.get(root, 0.0),
            token_bytes=token_bytes.get(root, 0.0),
            instances=sum(isinstance(graph.by_id[n], Source) for n in nodes),
            layer_bytes=sum(cost.layers[n].memory_bytes for n in names),
            value_bytes=int(in_flight(graph) * sum(2.0 * prod(cost.messages[n, port]) for n in nodes for port in range(len(graph.by_id[n].outputs)))),
        ))
    return units
