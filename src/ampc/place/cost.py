"""What a node costs per instance: how often it fires, floating-point operations, bytes, forward and backward.

An estimate from the graph and the statistics alone: loops multiply by their mean extent, arms of a branch by their share. Nothing is run.
Every forward message is answered by one backward message, so counts hold for both directions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping

import msgspec

from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import (
    AnyNode, Cond, Dealt, Decided, Dependents, First, Flatmap, Group, Match, Over, Phi, Ref, Region, Source, Test, Through, Type, Ungroup, Within,
)
from ampc.ir.scope import chain
from ampc.place import work
from ampc.place.statistics import Statistics, field_of
from ampc.place.target import NOTHING, NUMBER_BYTES, Handling, Precision


class NodeCost(msgspec.Struct, frozen=True):
    """Of one node, a mean over instances. `fires` counts forward firings of one message each; the backward ones are as many.

    `product_flops`: 2·K·N of its matrix products, of one forward firing; `product_sides`: K + N of them; `product_calls`: how many there are.
    """

    fires: float
    fwd_matrix_flops: float
    bwd_matrix_flops: float
    fwd_vector_flops: float
    bwd_vector_flops: float
    fwd_bytes: float
    bwd_bytes: float
    product_flops: float = 0.0
    product_sides: float = 0.0
    product_calls: float = 0.0
    fwd_handled: Handling = NOTHING
    bwd_handled: Handling = NOTHING

    @property
    def handled(self) -> Handling:
        return self.fwd_handled + self.bwd_handled

    @property
    def fwd_flops(self) -> float:
        return self.fwd_matrix_flops + self.fwd_vector_flops

    @property
    def bwd_flops(self) -> float:
        return self.bwd_matrix_flops + self.bwd_vector_flops

    @property
    def matrix_flops(self) -> float:
        return self.fwd_matrix_flops + self.bwd_matrix_flops

    @property
    def vector_flops(self) -> float:
        return self.fwd_vector_flops + self.bwd_vector_flops

    @property
    def flops(self) -> float:
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> float:
        return self.fwd_bytes + self.bwd_bytes

    @property
    def products(self) -> float:
        """2·K·N of all matrix products an instance, were each message fired by itself: one forward, two backward."""
        return 3 * self.fires * self.product_flops


class LayerCost(msgspec.Struct, frozen=True):
    """Of one layer: `memory_bytes` for weights, gradients and optimiser state, `updates` and their `update_flops` an instance."""

    parameters: int
    memory_bytes: int
    update_flops: float
    updates: float = 0.0


class Cost(msgspec.Struct, frozen=True):
    """`nodes`: id -> cost. `messages`: edge (its output port) -> (messages an instance, bytes of one). `arena_bytes`: one mean instance's values."""

    nodes: dict[int, NodeCost]
    layers: dict[str, LayerCost]
    messages: dict[Ref, tuple[float, float]]
    arena_bytes: float
    precision: Precision = "fp32"

    @property
    def flops(self) -> float:
        """Floating-point operations of an instance, forward and backward, with its share of the updates."""
        return sum(n.flops for n in self.nodes.values()) + sum(x.update_flops for x in self.layers.values())


def estimate(graph: Graph, statistics: Statistics, precision: Precision = "fp32", together: Mapping[int, int] | None = None) -> Cost:
    """Return the cost of a verified graph, were its products made of factors of `precision`, as the engine computes what is on one device.

    together: node id -> number of what it fires with (a segment, a device); only nodes of one number are folded into each other. Without it, all
    are taken to be together: before placement nothing else is known.
    """
    groups: defaultdict[int | None, set[int]] = defaultdict(set)
    for i, number in (together or {}).items():
        groups[number].add(i)
    inside: Mapping[int | None, Container[int]] = {**groups, None: graph.by_id}
    rates = _Rates(graph, statistics)
    nodes: dict[int, NodeCost] = {}
    messages: dict[Ref, tuple[float, float]] = {}
    arena = 0.0
    for node in graph.nodes:
        nodes[node.id] = _node_cost(graph, node, rates, inside[None if together is None else together.get(node.id)])
        where = graph.region_out(node)
        for port, t in enumerate(node.outputs):
            count, size = rates.ref((node.id, port)), _numbers(t, rates, where) * NUMBER_BYTES
            messages[node.id, port] = (count, size)
            arena += 2 * count * size
    layers = {x.name: _layer_cost(graph, x, precision) for x in graph.layers}
    return Cost(nodes, layers, messages, arena, precision)


def _node_cost(graph: Graph, node: AnyNode, rates: _Rates, inside: Container[int]) -> NodeCost:
    fires = rates.node(node)
    terms = (*work.terms(graph, node, inside), *work.handling(graph, node, inside))
    found = [(t, fires * rates.rows(t.axis, t.region)) for t in terms]
    spared = fires / max(1.0, rates.extent(graph.regions[node.region])) * work.spared_at_first(graph, node, inside)
    products, sides = work.product_flops(graph, node, inside), work.product_sides(graph, node, inside)
    # A message of few rows meets few members of a family.
    met = min(len(products), max(1.0, rates.rows(node.outputs[0].rows, node.region))) if products else 0.0
    return NodeCost(
        fires=fires,
        fwd_matrix_flops=sum(n * t.matrix_fwd for t, n in found) - spared,
        bwd_matrix_flops=sum(n * t.matrix_bwd for t, n in found) - 2 * spared,
        fwd_vector_flops=sum(n * t.vector_fwd for t, n in found),
        bwd_vector_flops=sum(n * t.vector_bwd for t, n in found),
        fwd_bytes=sum(n * t.bytes_fwd for t, n in found),
        bwd_bytes=sum(n * t.bytes_bwd for t, n in found),
        product_flops=met * products[0] if products else 0.0,
        product_sides=sum(sides) * met / len(products) if products else 0.0,
        product_calls=len(sides) * met / len(products) if products else 0.0,
        fwd_handled=sum((t.handled_fwd * n for t, n in found), NOTHING),
        bwd_handled=sum((t.handled_bwd * n for t, n in found), NOTHING),
    )


def _layer_cost(graph: Graph, layer: Layer, precision: Precision) -> LayerCost:
    updates = 1.0 / work.update_frequency(layer, graph.train)
    update_flops = work.update_flops(layer, graph.train) * updates
    return LayerCost(work.parameters(layer), work.memory_bytes(layer, graph.train, precision), update_flops, updates)


def _numbers(t: Type, rates: _Rates, region: int) -> float:
    return rates.rows(t.rows, region) * t.cols


# ------------------------------------------------------------------------------------------------ how often


class _Rates:
    """Messages an instance at each output port, from the Source on.

    Cycles are cut where the data alone tells the count: at a loop's head (its entries times its turns and one), and at `Dependents`
    (as many as there are elements that wait for another).
    """

    def __init__(self, graph: Graph, statistics: Statistics) -> None:
        self.graph, self.statistics = graph, statistics
        self.known: dict[Ref, float] = {}
        self.open: set[Ref] = set()
        groups = [n for n in graph.nodes if isinstance(n, Group) and len(n.inputs) == 2 and n.outputs[0].rows == "*"]
        members, results = sum(self.ref(n.inputs[0]) for n in groups), sum(self.ref(n.inputs[1]) for n in groups)
        self.group_size = members / results if results else 1.0
        """Mean rows of a payload of "*" rows, over all groups."""

    def node(self, node: AnyNode) -> float:
        """Return the forward firings of `node` an instance."""
        if isinstance(node, Source):
            return 1.0
        if isinstance(node, Phi):
            return self.ref((node.id, 0))
        if isinstance(node, Group):
            return self.ref((node.id, 0))
        return self.ref(node.inputs[0]) if node.inputs else 1.0

    def ref(self, ref: Ref) -> float:
        """Return the messages an instance at output port `ref`. Iterative, since chains of nodes can be long."""
        stack = [ref]
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            wanted = [r for r in self._needs(top) if r not in self.known and r not in self.open]
            if wanted and top not in self.open:
                self.open.add(top)
                stack += wanted
                continue
            self.open.discard(top)
            self.known[top] = self._value(top)
            stack.pop()
        return self.known[ref]

    def _needs(self, ref: Ref) -> tuple[Ref, ...]:
        node = self.graph.by_id[ref[0]]
        match node:
            case Source():
                return ()
            case Flatmap(to=Dependents()):
                return ()
            case Phi(test=First()):
                return node.inputs[:1]
            case Phi():
                return node.inputs
            case Group():
                return node.inputs[1:] or node.inputs[:1]
            case _:
                return node.inputs[:1]

    def _value(self, ref: Ref) -> float:
        node = self.graph.by_id[ref[0]]
        regions = self.graph.regions
        inputs = [self.known.get(r, 0.0) for r in self._needs(ref)]
        match node:
            case Source():
                return 1.0
            case Phi(test=First(region=r)):
                return inputs[0] * (self.extent(regions[r]) + 1)
            case Phi():
                return sum(inputs)
            case Cond(test=test):
                return inputs[0] * self._port_share(test, ref[1], len(node.outputs))
            case Flatmap(to=Over(region=r)) | Ungroup(to=r):
                return inputs[0] * self.extent(regions[r])
            case Flatmap(to=Dependents(region=r, at=at)):
                return self._states(regions[r]) * self._points(at) * self._arm_share(node)
            case Group(region=r) if len(node.inputs) == 1:
                return inputs[0] / max(1.0, self.extent(regions[r]))
            case _:
                return inputs[0] if inputs else 1.0

    def _arm_share(self, node: AnyNode) -> float:
        """Return the share of instances that reach `node`: those of one copy in an arm, which messages enter only by a Cond that deals; else all."""
        seen, todo = set[int](), [node.id]
        while todo:
            at = self.graph.by_id[todo.pop()]
            if isinstance(at, Cond | Phi) and isinstance(at.test, Dealt):
                return 1.0 / at.test.count if isinstance(at, Cond) else 1.0
            seen.add(at.id)
            todo += [maker for maker, _ in at.inputs if maker not in seen]
        return 1.0

    def _port_share(self, test: Test, port: int, n_ports: int) -> float:
        match test:
            case Within(region=r):
                turns = self.extent(self.graph.regions[r])
                return (turns if port == 0 else 1.0) / (turns + 1)
            case Match(ref=ref, cases=cases):
                field = field_of(self.graph, ref.field)
                if field.kind == "index":  # only none can be told apart
                    shares = [self.statistics.share(field, -1) if -1 in c else 0.0 for c in cases]
                else:
                    shares = [sum(self.statistics.share(field, v) for v in c) for c in cases]
                return max(0.0, [*shares, 1.0 - sum(shares)][port])
            case Decided() | Dealt():
                return 1.0 / n_ports
            case First():
                return 0.5

    def _points(self, at: object) -> float:
        """Return the share of elements whose index at `at` is not none."""
        return 1.0 - self.statistics.share(field_of(self.graph, at.field), -1) if isinstance(at, Through) else 1.0

    def _states(self, region: Region) -> float:
        count = 1.0
        for r in chain(self.graph, region.id):
            count *= self.extent(r)
        return count

    def extent(self, region: Region) -> float:
        """Return the mean number of turns or elements of `region` at one state of its parent."""
        if region.form == "instance":
            return 1.0
        return self.length(region.axis, region.parent) if region.axis else float(region.count)

    def rows(self, axis: str, region: int) -> float:
        """Return the mean rows of a payload of that many rows (`Type.rows`) at a state of `region`."""
        if axis == "":
            return 1.0
        return self.group_size if axis == "*" else self.length(axis, region)

    def length(self, axis: str, region: int) -> float:
        """Return the mean elements of `axis` as seen from a state of `region`: of all parents, or of the one that the state is at."""
        found = self.statistics.axes.get(axis)
        mean = found.mean if found is not None else 1.0
        parent = next((a.parent for a in self.graph.axes if a.name == axis), "")
        if parent and parent not in {r.axis for r in chain(self.graph, region)}:
            return mean * self.length(parent, region)
        return mean


def rows_of(graph: Graph, statistics: Statistics) -> Callable[[str, int], float]:
    """Return how to tell the mean rows of an axis ("" one, "*" a group's) as seen from a state of a region."""
    return _Rates(graph, statistics).rows
