"""What the engine spends, from passes of small programs that differ in what they spend it on.

A firing, a message, a value that is looked for, a row that is taken by itself, a copied byte, a call for a product, an element-wise operation:
figures of which a pass is the sum, so many times each; the counts are the cost model's (`codegen.carried`). What products take by their shapes has
been measured by loops; of it passes tell one figure alone, how many times as long they take in the engine. Several programs with few and with
many instances in flight tell the figures apart, by least squares of relative errors.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import nnls

from ampc.calibrate import programs
from ampc.codegen.carried import segment_terms
from ampc.codegen.plan import Plan
from ampc.compiler import compile_source
from ampc.place import Statistics, load_target, measure
from ampc.place.cost import rows_of
from ampc.place.target import NOTHING, Device
from ampc.place.target import Handling as Handled
from ampc.place.work import product_flops, product_sides, update_flops
from ampc.runtime.engine import Engine
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program
from ampc.source import remember

FEATURES = (
    "instance_overhead_s", "firing_overhead_s", "message_overhead_s", "value_overhead_s", "row_overhead_s", "number_overhead_s", "copy_s_per_byte",
    "product_overhead_s", "update_overhead_s", "vector_s_per_flop", "product_times",
)  # fmt: skip
"""What a pass is the sum of. The last one: of the seconds that products take by themselves."""

OFTEN = 16
"""Passes over all instances that are one measurement, at most."""
NONE_UPDATED: Mapping[str, int] = {}


@dataclasses.dataclass(frozen=True)
class Spent:
    """A pass: the processor's seconds, and what was done: see `Handling` of `place.target` and `Term` of `place.work`.

    called: of nodes, (FLOPs, sides, number) of all products that they called for; vector_flops: element-wise operations, of updates too.
    updates: how many.
    """

    seconds: float
    instances: int
    firings: int
    tokens: int
    handled: Handled
    matrix_flops: float
    called: tuple[tuple[float, float, float], ...]
    vector_flops: float
    updates: int = 0

    def counts(self, device: Device) -> tuple[float, ...]:
        """Return how much there is of each of `FEATURES`, where products by themselves take as long as `device` says."""
        h = self.handled
        products_s = device.seconds(self.matrix_flops, 0.0, 0.0) + device.handling_s(Handled(sides=h.sides, corners=h.corners))
        products_s += sum(device.calls_s(*each) for each in self.called)
        number = sum(n for *_, n in self.called)
        return (
            self.instances, self.firings, self.tokens, h.values, h.rows, h.numbers, h.copied_bytes, number, self.updates, self.vector_flops,
            products_s,
        )  # fmt: skip


class Handling:
    """The programs with their engines: `sample` measures all of them once."""

    def __init__(self, seconds: float) -> None:
        self.engines = [_Measured(case) for case in programs.cases()]
        self.seconds = seconds / len(self.engines)

    def sample(self) -> list[Spent]:
        """Return the quicker of two passes of each program."""
        found = [[e.measure(self.seconds / 2) for _ in range(2)] for e in self.engines]
        return [min(passes, key=lambda p: p.seconds / p.tokens) for passes in found]


class _Measured:
    """An engine with one of the programs."""

    def __init__(self, case: programs.Case) -> None:
        self.in_flight = case.in_flight
        text = programs.PROGRAMS[case.name]
        source = remember("calibrate.amp", text.encode(), "a program of the calibration")
        manifest = compile_source(source, target=load_target("cpu-1")).manifest
        assert manifest is not None
        options = EngineOptions(
            workers=1, max_active_keys=case.in_flight, min_update_frequency=case.updated or 10**6, optimizer="adam" if case.updated else "sgd",
            learning_rate=0.0,
        )  # fmt: skip
        self.engine = Engine(manifest.graph, manifest.placement, options=options)
        self.data = Program(manifest).read(programs.instances(text))
        self.updates: dict[str, int] = {}
        self.statistics = measure(manifest.graph, self.data)
        for _ in range(2):  # what is met for the first time takes longer
            self._pass(64)
        self.rate = 512 / self._pass(512)

    def _pass(self, n: int) -> float:
        """Return the processor's seconds of a pass over `n` instances."""
        began = time.process_time()
        self.updates = self.engine.run(self.data, np.arange(n, dtype=np.int64), train=True).updates
        return time.process_time() - began

    def measure(self, seconds: float) -> Spent:
        """Pass over as many instances as take about `seconds`, several times over all where that is not enough.

        What a pass costs before and after its instances does not count.
        """
        few = max(1, self.in_flight)
        before = min(self._pass(few) for _ in range(3))
        tokens, updates = self._tokens(), self.updates
        wanted = self.rate * seconds
        n = int(min(max(4 * few, wanted), programs.INSTANCES))
        took = float(np.mean([self._pass(n) for _ in range(int(min(max(1.0, wanted / n), OFTEN)))])) - before
        self.rate = (n - few) / max(took, 1e-9)
        more = [(q, f - g, t - s) for (q, f, t), (_, g, s) in zip(self._tokens(), tokens)]
        return spent_by(self.engine.plan, self.statistics, took, more, {name: k - updates[name] for name, k in self.updates.items()})

    def _tokens(self) -> list[tuple[int, int, int]]:
        return [(q, f, t) for q, (_, f, t) in enumerate(self.engine.firings())]


def spent_by(
    plan: Plan, statistics: Statistics, seconds: float, queues: Sequence[tuple[int, int, int]], updates: Mapping[str, int] = NONE_UPDATED
) -> Spent:
    """Return what a pass did, by (number, firings, tokens) of each queue, and the updates of each layer (by Adam); the Source's firings and messages
    count like others."""
    rows = rows_of(plan.graph, statistics)
    firings_n, tokens_n, matrix, vector = 0, 0, 0.0, 0.0
    handled = NOTHING
    called: list[tuple[float, float, float]] = []
    for q, firings, tokens in queues:
        segment, direction = plan.segments[q // 2], q % 2
        firings_n, tokens_n = firings_n + firings, tokens_n + tokens
        inside = {n.id for n in segment.nodes}
        for n in segment.nodes:
            sides = product_sides(plan.graph, n, inside)
            times = firings * (1 + direction)
            if sides and times:
                called.append((sum(product_flops(plan.graph, n, inside)) * times, sum(sides) * times, len(sides) * times))
        for _, t in segment_terms(plan, segment):
            k = tokens * rows(t.axis, t.region)
            handled = handled + (t.handled_bwd if direction else t.handled_fwd) * k
            matrix += k * (t.matrix_bwd if direction else t.matrix_fwd)
            vector += k * (t.vector_bwd if direction else t.vector_fwd)
    vector += sum(k * update_flops(plan.graph.layer[name], {"optimizer": "adam"}) for name, k in updates.items())
    return Spent(seconds, queues[0][2], firings_n, tokens_n, handled, matrix, tuple(called), vector, sum(updates.values()))


def quick(rounds: Sequence[Sequence[Spent]]) -> list[Spent]:
    """Return of each program the pass at the lower quartile of the time that a message took: what else a machine does makes passes longer only."""
    return [sorted(passes, key=lambda p: p.seconds / p.tokens)[(len(passes) - 1) // 4] for passes in zip(*rounds)]


def figures(passes: Sequence[Spent], device: Device) -> dict[str, float]:
    """Return each of `FEATURES`, at least 0, so that their sums come near what passes took, and products as long by themselves as `device` says."""
    took = np.array([p.seconds for p in passes])
    found, _ = nnls(np.array([p.counts(device) for p in passes]) / took[:, None], np.ones(len(took)))
    return dict(zip(FEATURES, found.tolist()))


def residuals(passes: Sequence[Spent], device: Device, figures: Mapping[str, float]) -> list[float]:
    """Return by what part of its time the sum of `figures` for each pass is longer."""
    each = np.array([figures[name] for name in FEATURES])
    return [float(np.dot(p.counts(device), each)) / p.seconds - 1 for p in passes]


__all__ = ["FEATURES", "Handling", "Spent", "figures", "quick", "residuals", "spent_by"]
