"""Training rates of the bundled models on this machine's cores, placed in several ways: what predictions are held against.

Measured once and kept as JSON, so that the predicting side can be worked at without measuring again.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ampc.calibrate import calibrate
from ampc.calibrate.report import target_text
from ampc.codegen.plan import make_plan
from ampc.place import Statistics, Target, load_target, measure, place, resized
from ampc.runtime import profile
from ampc.runtime.engine import Engine
from ampc.runtime.trace import Trace
from benchmarks.ours import ROOT, data_folder, graph_of

DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "babi15_ggsnn": ("babi15", {"train": 1000, "fold": 1}), "list_reduction": ("list_reduction", {}), "mnist_mlp": ("mnist", {}),
    "qm9_ggsnn": ("qm9", {"limit": 8000}), "sentiment_tree_lstm": ("sst", {}),
}  # fmt: skip
"""Model -> its data; the others get random instances."""
RANDOM, REPEATED, LONGEST = 2000, 8, 12
"""Random instances, how often each is there (so that passes are long beside what they begin with), longest axis."""
EVEN = "even"
"""The placement that `balanced` finds where messages cost nothing: its work is shared out as evenly as it can be."""


class Measured(msgspec.Struct, frozen=True):
    """A model as placed on so many cores: instances/s of each pass over the first `instances` of its data, and the profile of another pass: of
    several that were recorded, the one at the lower quartile.

    messages, bursts: between workers in that pass, and firings that sent some.
    """

    model: str
    workers: int
    strategy: str
    device_of: dict[int, int]
    instances: int
    rates: tuple[float, ...]
    profile: profile.Profile
    messages: int = 0
    bursts: int = 0

    @property
    def rate(self) -> float:
        """Of two passes in a row the quicker one, of these pairs the one at the upper quartile, as `ampc calibrate` takes its own: what else the
        machine does makes them slower only."""
        pairs = sorted((max(self.rates[k : k + 2]) for k in range(0, len(self.rates), 2)), reverse=True)
        return pairs[(len(pairs) - 1) // 4]


class Program:
    """A bundled model with its data."""

    def __init__(self, model: str) -> None:
        self.model, self.program = model, graph_of(model)
        self.graph = self.program.graph
        if model in DATA:
            recipe, options = DATA[model]
            self.data = self.program.read(data_folder(recipe, **options), "train")
        else:
            sys.path.insert(0, str(ROOT))
            from tests.support import random_rows

            self.data = self.program.read([*random_rows(self.graph, RANDOM, seed=0, longest=LONGEST)] * REPEATED)
        self.seen: Statistics = measure(self.graph, self.data)
        self.options = self.program.options({"workers": 1}).engine()

    def placements(self, target: Target, workers: Sequence[int]) -> list[tuple[int, str, dict[int, int]]]:
        """Return (workers, strategy, device of each node), each placement once: a core that nothing is placed on is not counted."""
        found: list[tuple[int, str, dict[int, int]]] = []
        for n in workers:
            ways = [("balanced", target)] if n == 1 else [("balanced", target), ("round_robin", target), (EVEN, _free(load_target("cpu-2")))]
            for strategy, on in ways:
                given = strategy if strategy != EVEN else "balanced"
                device_of = place(self.graph, resized(on, n), given, self.seen).device_of
                if not any(device_of == known for *_, known in found):
                    found.append((n, strategy, device_of))
        return found

    def engine(self, workers: int, device_of: dict[int, int]) -> Engine:
        from ampc.place import Placement

        placement = Placement("manual", tuple(f"core:{k}" for k in range(workers)), device_of)
        return Engine(self.graph, placement, options=dataclasses.replace(self.options, workers=workers))

    def order(self, instances: int) -> Any:
        return np.arange(self.data.n)[:instances]


def _free(target: Target) -> Target:
    """Return a target on which messages cost nothing."""
    devices = tuple(msgspec.structs.replace(d, message_overhead_s=0.0, firing_overhead_s=0.0, value_overhead_s=0.0) for d in target.devices)
    return msgspec.structs.replace(target, devices=devices, links=msgspec.structs.replace(target.links, bytes_per_s=1e15, overhead_s=0.0))


class Period(msgspec.Struct, frozen=True):
    """What was measured in one period, in turn with the calibration: the target file that came of it."""

    target: str
    found: list[Measured]


class Collection:
    """The engines of one model, as placed in each way; `sample` measures all of them once."""

    def __init__(self, model: str, target: Target, workers: Sequence[int], seconds: float) -> None:
        self.program = p = Program(model)
        self.placed = p.placements(target, workers)
        self.engines = [p.engine(n, device_of) for n, _, device_of in self.placed]
        self.order = p.order(_count(self.engines[0], p.data, seconds))
        self.rates: list[list[float]] = [[] for _ in self.engines]
        self.recorded: list[list[tuple[float, profile.Profile, int, int]]] = [[] for _ in self.engines]
        for engine in self.engines[1:]:
            engine.run(p.data, self.order[: max(1, len(self.order) // 4)], train=True)

    def sample(self, rounds: int) -> None:
        """Take `rounds` passes of each, in turn."""
        for _ in range(rounds):
            for engine, found in zip(self.engines, self.rates):
                result = engine.run(self.program.data, self.order, train=True)
                found.append(result.instances / result.seconds)

    def record(self) -> None:
        """Take a pass of the first with its log, by which all are predicted, and the first time of the others too."""
        p = self.program
        for (_, _, device_of), engine, found in zip(self.placed, self.engines, self.recorded):
            if found and engine is not self.engines[0]:
                continue
            engine.run(p.data, self.order, train=True, record=True)
            trace = engine.trace
            assert trace is not None
            told = profile.profile(trace, make_plan(p.graph, device_of), p.seen)
            found.append((told.seconds, told, len(trace.sent_s), _bursts(trace)))

    def results(self) -> list[Measured]:
        """Return what was measured."""
        out = []
        for (n, strategy, device_of), rates, recorded in zip(self.placed, self.rates, self.recorded):
            _, told, messages, bursts = sorted(recorded, key=lambda r: r[0])[(len(recorded) - 1) // 4]
            out.append(Measured(self.program.model, n, strategy, device_of, len(self.order), tuple(rates), told, messages, bursts))
        return out


def collect(models: Sequence[str], placed_by: Target, workers: Sequence[int], rounds: int, seconds: float) -> Period:
    """Measure models, placed by what a target says: `rounds` passes of each in turn after each round of a calibration, so that a time in which the
    machine is slow hits all alike, and what predicts them as well.

    Raises NoData.
    """
    made = [Collection(model, placed_by, workers, seconds) for model in models]

    def sweep() -> None:
        for c in made:
            c.sample(rounds)
            c.record()

    told = calibrate(between=sweep)
    return Period(target_text(told), [m for c in made for m in c.results()])


def _bursts(trace: Trace) -> int:
    """Return how many firings sent something to another device, counted for each."""
    return len(np.unique(trace.sender.astype(np.int64) * len(trace.devices) + trace.receiver_device))


def _count(engine: Engine, data: Any, seconds: float) -> int:
    """Return how many instances take about so long, compilation and what is met for the first time left out."""
    n = min(data.n, 200)
    for _ in range(3):
        engine.run(data, np.arange(n), train=True)
        began = time.perf_counter()
        engine.run(data, np.arange(n), train=True)
        n = int(max(min(data.n, 50), min(data.n, n * seconds / max(1e-6, time.perf_counter() - began))))
    return n


def save(path: Path, found: Period) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(found))


def load(path: Path) -> Period:
    return msgspec.json.decode(path.read_bytes(), type=Period)


__all__ = ["DATA", "EVEN", "Measured", "Period", "Program", "collect", "load", "save"]
