"""What is measured: a program and its data in an engine, driven in passes of about a window's length.

Clocks run around whole passes: their start, their drain and the flush of part-filled accumulators count, compiling and reading do not.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ampc.codegen.arena import predicted_bytes
from ampc.data.dataset import Dataset
from ampc.place import Cost
from ampc.place import estimate as estimate_cost
from ampc.place import measure as measure_data
from ampc.runtime.engine import Engine
from ampc.runtime.events import InFlight
from ampc.runtime.options import RunOptions
from ampc.runtime.predictor import SingleEngine
from ampc.runtime.profile import Profile, profile
from ampc.runtime.program import Program

Work = Literal["training", "inference"]


@dataclasses.dataclass(frozen=True)
class Window:
    """Instances of some passes, the seconds that these took, those of the processor, and the cores that other programs used meanwhile."""

    instances: int
    seconds: float
    processor_s: float
    others: float = 0.0

    @property
    def rate(self) -> float:
        """Instances a second."""
        return self.instances / self.seconds if self.seconds > 0 else 0.0

    @property
    def thrift(self) -> float:
        """Instances a second of processor time."""
        return self.instances / self.processor_s if self.processor_s > 0 else 0.0


class Subject:
    """A program on `data` with the settings `options`. Raises `AmpError` 73x where memory does not suffice."""

    def __init__(self, program: Program, data: Dataset, options: RunOptions, work: Work) -> None:
        # A program of its own: an engine is for one subject, and the program would hand the same one to two with equal settings.
        own = Program(program.manifest)
        own.parameters = program.parameters
        self.graph = program.graph
        self._program = own
        self._single: SingleEngine | None = None
        self._instances: list[Dataset] = []
        engine = own.session(options).engine
        assert isinstance(engine, Engine)
        self.engine = engine
        self.in_flight: InFlight | None = None
        """What instances in flight took in the pass that had most of them."""
        self.data, self.work, self.options = data, work, options
        self._random = np.random.default_rng(0)
        self._rate = 0.0
        self._epoch = 0
        self.engine.bind(data, train=work == "training")

    def warm_up(self) -> None:
        """Run two short passes: what is met for the first time takes longer."""
        for _ in range(2):
            self._pass(max(1, self.data.n // 50))

    def window(self, seconds: float) -> Window:
        """Run passes for about `seconds`; at least one instance."""
        used, busy, began = time.process_time(), busy_seconds(), time.perf_counter()
        instances, took = 0, 0.0
        while took < 0.7 * seconds or not instances:
            size = min(self.data.n, max(1, int(self._rate * (seconds - took))))
            took += self._pass(size)
            instances += size
        wall, used = time.perf_counter() - began, time.process_time() - used
        return Window(instances, took, used, max(0.0, (busy_seconds() - busy - used) / wall))

    def _pass(self, size: int, record: bool = False) -> float:
        order = self._random.permutation(self.data.n)[:size]
        began = time.perf_counter()
        train = self.work == "training"
        result = self.engine.run(self.data, order, train=train, epoch=self._epoch, outputs=not train, measured=train, record=record)
        took = time.perf_counter() - began
        self._epoch += 1
        self._rate = size / took
        known, new = self.in_flight, result.in_flight
        if known is None or (new is not None and new.number >= known.number):
            self.in_flight = new
        return took

    def profile(self, seconds: float) -> Profile:
        """Return where the time of a pass of about `seconds` went."""
        size = min(self.data.n, max(1, int(self._rate * seconds)))
        rate = self._rate
        self._pass(size, record=True)
        self._rate = rate  # recording slows a pass down
        trace = self.engine.trace
        assert trace is not None
        return profile(trace, self.engine.traced, measure_data(self.graph, self.data))

    def cost(self) -> Cost:
        """Return what the cost model says of an instance, with the means of this data."""
        together = {n.id: s.id for s in self.engine.plan.segments for n in s.nodes}
        return estimate_cost(self.graph, measure_data(self.graph, self.data), together=together)

    def calls(self, seconds: float) -> list[float]:
        """Return the seconds of calls of one instance each, one after the other, for about `seconds`; at least ten.

        Predictions are those of a predictor whose instance is read already, training steps those of passes over one instance.
        """
        if self._single is None and self.work == "inference":
            where, options = self._program.placement(1), self.options.engine()
            self._single = SingleEngine(self.graph, where, options=options, parameters=self.engine.parameters)
            self._instances = [self.data.select([i]) for i in range(self.data.n)]
            for instance in self._instances:  # makes room for the longest
                self._single.one(instance)
        found: list[float] = []
        until = time.perf_counter() + seconds
        while len(found) < 10 or (time.perf_counter() < until and len(found) < 100_000):
            k = len(found) % self.data.n
            began = time.perf_counter()
            if self._single is not None:
                self._single.one(self._instances[k])
            else:
                self.engine.run(self.data, np.array([k]), train=True, epoch=self._epoch)
            found.append(time.perf_counter() - began)
            self._epoch += 1
        return found

    def predicted_bytes(self) -> float:
        """Return the bytes of an instance of mean lengths in flight, as `ampc compile` predicts them."""
        return predicted_bytes(self.engine.program, measure_data(self.graph, self.data))[0]


def busy_seconds() -> float:
    """Return the core-seconds that all programs of this machine have used; 0 where the system doesn't say."""
    import os

    try:
        with open("/proc/stat", encoding="ascii") as f:
            words = [int(x) for x in f.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")


def quantile(values: Sequence[float], q: float) -> float:
    """Return the `q`-quantile (0 to 1) of some values."""
    return float(np.quantile(np.asarray(values), q))


__all__ = ["Subject", "Window", "Work", "busy_seconds", "quantile"]
