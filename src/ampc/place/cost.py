"""What a node costs per instance: how often it fires, floating-point operations, bytes, forward and backward.

An estimate from the graph and the statistics alone: loops multiply by their mean extent, arms of a branch by their share. Nothing is run.
Every forward message is answered by one backward message, so counts hold for both directions.
"""

from __future__ import annotations

import msgspec

from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Bcast, Concat, Cond, Dealt, Decided, Dependents, First, Flatmap, Group, Loss, Match, Metric, Over, Phi, Ref, Region, Source,
    Split, Test, Through, Type, Ungroup, Within,
)
from ampc.ir.scope import chain, members
from ampc.place.statistics import Statistics, field_of

FLOAT_BYTES = 4

# Floating-point operations a number of the result, forward; transcendental functions as measured for vectorised polynomials.
_CHEAP = 1.0
_FLOPS_PER_NUMBER = {
    "sigmoid": 10.0, "tanh": 12.0, "exp": 8.0, "log": 10.0, "softplus": 16.0, "gelu": 16.0, "elu": 9.0, "sqrt": 4.0, "power": 16.0, "div": 4.0,
    "reciprocal": 4.0, "softmax": 12.0, "log_softmax": 12.0, "softmax_rows": 12.0, "layer_norm": 8.0, "dropout": 4.0, "cross_entropy": 14.0,
    "binary_cross_entropy": 20.0, "squared": 3.0, "huber": 5.0, "dot": 2.0, "scatter": 2.0, "reduce_rows": 1.0,
}
_MOVES_ONLY = frozenset({"fill", "field", "number", "one_hot", "pad", "columns", "stop_gradient", "expand_rows", "gather", "lookup"})

# Floating-point operations a parameter at an update.
_UPDATE_FLOPS = {"sgd": 2.0, "momentum": 4.0, "adam": 14.0, "adamw": 16.0}
_STATE_FLOATS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


class NodeCost(msgspec.Struct, frozen=True):
    """Of one node, a mean over instances. `fires` counts forward firings; the backward ones are as many."""

    fires: float
    fwd_flops: float
    bwd_flops: float
    fwd_bytes: float
    bwd_bytes: float

    @property
    def flops(self) -> float:
        return self.fwd_flops + self.bwd_flops

    @property
    def bytes(self) -> float:
        return self.fwd_bytes + self.bwd_bytes


class LayerCost(msgspec.Struct, frozen=True):
    """Of one layer: `memory_bytes` for weights, gradients and optimiser state, `update_flops` an instance."""

    parameters: int
    memory_bytes: int
    update_flops: float


class Cost(msgspec.Struct, frozen=True):
    """`nodes`: id -> cost. `messages`: edge (its output port) -> (messages an instance, bytes of one). `arena_bytes`: one mean instance's values."""

    nodes: dict[int, NodeCost]
    layers: dict[str, LayerCost]
    messages: dict[Ref, tuple[float, float]]
    arena_bytes: float

    @property
    def flops(self) -> float:
        """Floating-point operations of an instance, forward and backward, with its share of the updates."""
        return sum(n.flops for n in self.nodes.values()) + sum(x.update_flops for x in self.layers.values())


def estimate(graph: Graph, statistics: Statistics) -> Cost:
    """Return the cost of a verified graph."""
    rates = _Rates(graph, statistics)
    nodes: dict[int, NodeCost] = {}
    messages: dict[Ref, tuple[float, float]] = {}
    arena = 0.0
    for node in graph.nodes:
        fires = rates.node(node)
        per_fire_fwd, per_fire_bwd, width = _work(graph, node, rates)
        nodes[node.id] = NodeCost(fires, fires * per_fire_fwd, fires * per_fire_bwd, fires * width, 2 * fires * width)
        where = graph.region_out(node)
        for port, t in enumerate(node.outputs):
            count, size = rates.ref((node.id, port)), _numbers(t, rates, where) * FLOAT_BYTES
            messages[node.id, port] = (count, size)
            arena += 2 * count * size
    return Cost(nodes, {x.name: _layer_cost(graph, x) for x in graph.layers}, messages, arena)


def _layer_cost(graph: Graph, layer: Layer) -> LayerCost:
    parameters = sum(_product(p.shape) for p in layer.params)

    def setting(name: str, default: int | float | str) -> int | float | str:
        return layer.settings.get(name, graph.train.get(name, default))

    optimizer, given = str(setting("optimizer", "adam")), setting("min_update_frequency", 32)
    frequency = float(given) if isinstance(given, int | float) else 32.0  # a run refuses what is no number, by name
    floats = parameters * (2 + _STATE_FLOATS.get(optimizer, 2))
    return LayerCost(parameters, floats * FLOAT_BYTES, _UPDATE_FLOPS.get(optimizer, 14.0) * parameters / max(1.0, frequency))


# ------------------------------------------------------------------------------------------------ work of one firing


def _work(graph: Graph, node: AnyNode, rates: _Rates) -> tuple[float, float, float]:
    """Return (forward FLOPs, backward FLOPs, payload bytes read and written) of one firing of `node`."""
    taken = sum(_numbers(graph.type_of(r), rates, node.region) for r in node.inputs)
    given = sum(_numbers(t, rates, graph.region_out(node)) for t in node.outputs)
    width = (taken + given) * FLOAT_BYTES
    match node:
        case PPT(op="linear" | "linear_by"):
            _, layer = members(graph, node.op, node.layer, node.attrs)[0]
            shape = next(p.shape for p in layer.params if len(p.shape) == 2)
            rows = _rows(node.outputs[0], rates, node.region)
            gemm = 2.0 * rows * _product(shape)
            return gemm + given, 2 * gemm + given, width
        case PPT(op="lookup"):
            return 0.0, given, width
        case PPT() | NPT():
            if node.op in _MOVES_ONLY:
                return 0.0, taken, width
            each = _FLOPS_PER_NUMBER.get(node.op, _CHEAP)
            numbers = max(taken, given)
            return each * numbers, (each if each <= 4 else each / 3) * numbers, width
        case Loss() | Metric():
            each = _FLOPS_PER_NUMBER.get(node.op, _CHEAP)
            return each * taken, taken if isinstance(node, Loss) else 0.0, width
        case Bcast() | Flatmap():
            return 0.0, given, width  # backward adds the answers
        case Concat() | Split() | Group() | Ungroup():
            return 0.0, 0.0, width
        case _:
            return 0.0, 0.0, 0.0  # the state changes, the payload stays where it is


def _rows(t: Type, rates: _Rates, region: int) -> float:
    if t.rows == "":
        return 1.0
    return rates.group_size if t.rows == "*" else rates.length(t.rows, region)


def _numbers(t: Type, rates: _Rates, region: int) -> float:
    return _rows(t, rates, region) * t.cols


def _product(shape: tuple[int, ...]) -> int:
    out = 1
    for s in shape:
        out *= s
    return out


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
                return self._states(regions[r]) * self._points(at)
            case Group(region=r) if len(node.inputs) == 1:
                return inputs[0] / max(1.0, self.extent(regions[r]))
            case _:
                return inputs[0] if inputs else 1.0

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

    def length(self, axis: str, region: int) -> float:
        """Return the mean elements of `axis` as seen from a state of `region`: of all parents, or of the one that the state is at."""
        found = self.statistics.axes.get(axis)
        mean = found.mean if found is not None else 1.0
        parent = next((a.parent for a in self.graph.axes if a.name == axis), "")
        if parent and parent not in {r.axis for r in chain(self.graph, region)}:
            return mean * self.length(parent, region)
        return mean
