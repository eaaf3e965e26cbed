"""What the engine spends beside arithmetic, from passes of small programs that differ in what they spend it on.

A firing, a message, a value that is looked for, a row that is taken by itself, a copied byte, a call for a product: six figures of which a pass
is the sum, so many times each; the counts are the cost model's (`codegen.carried`), the arithmetic is taken off by figures that loops have
measured. Several programs with few and with many instances in flight tell the figures apart, by least squares of relative errors.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from ampc.codegen.carried import segment_terms
from ampc.codegen.plan import Plan
from ampc.compiler import compile_source
from ampc.place import Statistics, load_target, measure
from ampc.place.cost import rows_of
from ampc.place.target import NOTHING, Device
from ampc.place.target import Handling as Handled
from ampc.place.work import product_flops, product_sides
from ampc.runtime.engine import Engine
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program
from ampc.source import remember

INSTANCES = 4096
IN_FLIGHT, FEW = 64, 8
"""Instances in flight: as many as usual, and for programs of little else than firings few as well."""
TOKENS, NODES = 24, 16
"""The longest axes of an instance; lengths differ, as those of real data do."""

_HEAD = "model calibration():\n    instance:\n        axis token\n        x: float\n        symbol: int[token] < 8\n"
_LOOP = "    loop t in token carry "
_FEW = "        axis node, edge  # few\n        source, target: node[edge]\n        v: float[node, 8]\n"
_WORDS = "        axis word\n        axis char[word]\n        letter: int[char] < 8\n"
_GRAPH = "        axis node, edge\n        source, target: node[edge]\n        v: float[node, 8]\n"
_ROUNDS = """
    start = Linear(8, 8)
    end = Linear(8, 1)
    h = start(v)
    loop t in range(4) carry h:
        each e in edge:
            s[target[e]] += h[source[e]]
        h = tanh(s)
    loss squared(end(sum(node, h)), x)
"""

PROGRAMS: dict[str, str] = {
    "narrow values": f"""{_HEAD}
    start = Linear(1, 1)
    h = start(x)
{_LOOP}h:
        h = relu(h)
    loss squared(h, x)
""",
    "wide values": f"""{_HEAD}
    start = Linear(1, 128)
    end = Linear(128, 1)
    h = start(x)
{_LOOP}h:
        h = relu(h)
    loss squared(end(h), x)
""",
    "several values": f"""{_HEAD}
    start = Linear(1, 32)
    end = Linear(32, 1)
    a = start(x)
    b = relu(a)
    c = relu(b)
    d = relu(c)
{_LOOP}a, b, c, d:
        e = a + d
        a = relu(e + b)
        b = e + c
        c = b + e
        d = a + b
    loss squared(end(a + b + c + d), x)
""",
    "small products": f"""{_HEAD}
    start = Linear(1, 16)
    one = Linear(16, 16)
    two = Linear(16, 16)
    end = Linear(16, 1)
    h = start(x)
{_LOOP}h:
        h = relu(two(relu(one(h))))
    loss squared(end(h), x)
""",
    "one step": """model calibration():
    instance:
        x: float
    start = Linear(1, 8)
    end = Linear(8, 1)
    loss squared(end(relu(start(x))), x)
""",
    "layers": f"""{_HEAD}
    start = Linear(1, 64)
    one = Linear(64, 64)
    two = Linear(64, 64)
    three = Linear(64, 64)
    end = Linear(64, 1)
    h = start(x)
{_LOOP}h:
        h = relu(three(relu(two(relu(one(h))))))
    loss squared(end(h), x)
""",
    "large layers": f"""{_HEAD}
    start = Linear(1, 256)
    one = Linear(256, 256)
    two = Linear(256, 256)
    end = Linear(256, 1)
    h = start(x)
{_LOOP}h:
        h = relu(two(relu(one(h))))
    loss squared(end(h), x)
""",
    "a cell": f"""{_HEAD}
    start = Linear(1, 48)
    gates = Linear(96, 96)
    end = Linear(48, 1)
    h = start(x)
    c = tanh(h)
{_LOOP}h, c:
        g = gates([h, c])
        c = sigmoid(g[0:48]) * c + tanh(g[48:])
        h = tanh(c)
    loss squared(end(h), x)
""",
    "edges": f"""{_HEAD}{_GRAPH}{_ROUNDS}""",
    "few edges": f"""{_HEAD}{_FEW}{_ROUNDS}""",
    "words": f"""{_HEAD}{_WORDS}
    start = Linear(1, 16)
    end = Linear(16, 1)
    each w in word:
        s = start(x)
        loop c in char carry s:
            s = relu(s)
    loss squared(end(sum(word, s)), x)
""",
    "symbols": f"""{_HEAD}
    embed = Embedding(8, 8)
    end = Linear(8, 1)
    h = zeros(8)
{_LOOP}h:
        h = relu(embed(symbol[t]) + h)
    loss squared(end(h), x)
""",
    "labels": f"""{_HEAD}
    start = Linear(1, 8)
    h = start(x)
{_LOOP}h:
        h = relu(h)
        loss cross_entropy(h, symbol[t])
        metric accuracy(h, symbol[t])
""",
}
"""What a program has much of -> its text."""
FEWER = ("narrow values", "small products", "layers", "large layers")

FEATURES = (
    "instance_overhead_s", "firing_overhead_s", "message_overhead_s", "value_overhead_s", "row_overhead_s", "number_overhead_s", "copy_s_per_byte",
    "product_overhead_s", "matrix_s_per_flop", "matrix_s_per_called_flop",
)  # fmt: skip
"""What a pass is the sum of. The last two: of every row of a product, and of every product whatever its rows."""


@dataclasses.dataclass(frozen=True)
class Spent:
    """A pass: the processor's seconds, and what was done: see `Handling` of `place.target` and `Term` of `place.work`.

    called: (FLOPs, sides, number) of all products that were called for; vectors: (operations, bytes) of nodes.
    """

    seconds: float
    instances: int
    firings: int
    tokens: int
    handled: Handled
    matrix_flops: float
    called: tuple[float, float, float]
    vectors: tuple[tuple[float, float], ...]

    def counts(self, half_columns: float) -> tuple[float, ...]:
        """Return how much there is of each of `FEATURES`."""
        h, (flops, sides, number), c = self.handled, self.called, half_columns
        rows = self.matrix_flops + 2 * c * (h.sides + c * h.corners)
        return (
            self.instances, self.firings, self.tokens, h.values, h.rows, h.numbers, h.copied_bytes, number, rows,
            flops + 2 * c * (sides + c * number),
        )  # fmt: skip

    def vectors_s(self, device: Device) -> float:
        """Return the seconds of element-wise operations."""
        return sum(device.seconds(0.0, flops, size) for flops, size in self.vectors)


class Handling:
    """The programs with their engines: `sample` measures all of them once."""

    def __init__(self, seconds: float) -> None:
        self.engines = [_Measured(name, text, n) for name, text in PROGRAMS.items() for n in ((IN_FLIGHT, FEW) if name in FEWER else (IN_FLIGHT,))]
        self.seconds = seconds / len(self.engines)

    def sample(self) -> list[Spent]:
        return [e.measure(self.seconds) for e in self.engines]


class _Measured:
    """An engine with one of the programs. Updates are left out: their cost is measured by itself."""

    def __init__(self, name: str, text: str, in_flight: int) -> None:
        self.name, self.in_flight = name, in_flight
        source = remember("calibrate.amp", text.encode(), "a program of the calibration")
        manifest = compile_source(source, target=load_target("cpu-1")).manifest
        assert manifest is not None
        options = EngineOptions(workers=1, max_active_keys=in_flight, min_update_frequency=10**6, optimizer="sgd", learning_rate=0.0)
        self.engine = Engine(manifest.graph, manifest.placement, options=options)
        self.data = Program(manifest).read(_instances(text))
        self.statistics = measure(manifest.graph, self.data)
        self.rate = 0.0
        for _ in range(2):  # what is met for the first time takes longer
            self._pass(64)

    def _pass(self, n: int) -> float:
        began = time.process_time()
        self.engine.run(self.data, np.arange(n, dtype=np.int64), train=True)
        took = time.process_time() - began
        self.rate = n / took
        return took

    def measure(self, seconds: float) -> Spent:
        """Pass over as many instances as take about `seconds`; what a pass costs before and after its instances does not count."""
        few = max(1, self.in_flight)
        before = min(self._pass(few) for _ in range(3))
        tokens = self._tokens()
        n = int(min(max(4 * few, self.rate * seconds), INSTANCES))
        took = self._pass(n) - before
        more = [(q, f - g, t - s) for (q, f, t), (_, g, s) in zip(self._tokens(), tokens)]
        return spent_by(self.engine.plan, self.statistics, took, more)

    def _tokens(self) -> list[tuple[int, int, int]]:
        return [(q, f, t) for q, (_, f, t) in enumerate(self.engine.firings())]



def spent_by(plan: Plan, statistics: Statistics, seconds: float, queues: Sequence[tuple[int, int, int]]) -> Spent:
    """Return what a pass did, by (number, firings, tokens) of each queue; the Source's firings and messages count like others."""
    rows = rows_of(plan.graph, statistics)
    firings_n, tokens_n, called, matrix = 0, 0, np.zeros(3), 0.0
    handled = NOTHING
    vectors: list[tuple[float, float]] = []
    for q, firings, tokens in queues:
        segment, direction = plan.segments[q // 2], q % 2
        firings_n, tokens_n = firings_n + firings, tokens_n + tokens
        inside = {n.id for n in segment.nodes}
        for n in segment.nodes:
            sides = product_sides(plan.graph, n, inside)
            called += np.array([sum(product_flops(plan.graph, n, inside)), sum(sides), len(sides)]) * firings * (1 + direction)
        for _, t in segment_terms(plan, segment):
            k = tokens * rows(t.axis, t.region)
            handled = handled + (t.handled_bwd if direction else t.handled_fwd) * k
            matrix += k * (t.matrix_bwd if direction else t.matrix_fwd)
            vectors.append((k * (t.vector_bwd if direction else t.vector_fwd), k * (t.bytes_bwd if direction else t.bytes_fwd)))
    flops, sides_n, calls = called.tolist()
    return Spent(seconds, queues[0][2], firings_n, tokens_n, handled, matrix, (flops, sides_n, calls), tuple(vectors))


def _instances(text: str) -> list[dict[str, object]]:
    """Return instances for a program: axes of 1 to `TOKENS` and `NODES` elements, twice as many edges."""
    rng = np.random.default_rng(0)
    out: list[dict[str, object]] = []
    for k in range(INSTANCES):
        row: dict[str, object] = {"x": k / INSTANCES, "symbol": rng.integers(0, 8, rng.integers(1, TOKENS + 1)).tolist()}
        if _GRAPH in text or _FEW in text:
            nodes = int(rng.integers(1, (NODES if _GRAPH in text else 3) + 1))
            row |= {"v": rng.uniform(-1, 1, (nodes, 8)).tolist()}
            row |= {name: rng.integers(0, nodes, 2 * nodes).tolist() for name in ("source", "target")}
        if _WORDS in text:
            row["letter"] = [rng.integers(0, 8, rng.integers(1, 8)).tolist() for _ in range(rng.integers(1, 5))]
        out.append(row)
    return out


def median(rounds: Sequence[Sequence[Spent]]) -> list[Spent]:
    """Return of each program the pass in which a message took the median time."""
    return [sorted(passes, key=lambda p: p.seconds / p.tokens)[(len(passes) - 1) // 2] for passes in zip(*rounds)]


def figures(passes: Sequence[Spent], device: Device) -> dict[str, float]:
    """Return each of `FEATURES`, at least 0, so that their sums come near what passes took beside the element-wise operations on `device`."""
    took = np.array([p.seconds for p in passes])
    rest = np.maximum(took - np.array([p.vectors_s(device) for p in passes]), 0.0)
    counts = np.array([p.counts(device.matrix_half_columns) for p in passes])
    found, _ = nnls(counts / took[:, None], rest / took)
    return dict(zip(FEATURES, found.tolist()))


__all__ = ["FEATURES", "PROGRAMS", "Handling", "Spent", "figures", "median", "spent_by"]
