"""What the engine itself costs, from passes of small programs through it: a token, a firing, a message to another core.

The programs compute next to nothing, so that their time is the engine's. Firings and tokens are counted by its queues.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable

import numpy as np

from ampc.calibrate.threads import together
from ampc.compiler import compile_source
from ampc.place import load_target
from ampc.runtime import worker
from ampc.runtime.binding import Binding
from ampc.runtime.engine import Engine
from ampc.runtime.events import Array, Progress
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program
from ampc.runtime.trace import Trace
from ampc.source import remember

INSTANCES = 16_384
TURNS = 16
"""Longest sequence of an instance; lengths differ, so that the instances in flight do not go in step."""


@dataclasses.dataclass(frozen=True)
class Count:
    """One pass: firings and tokens of all queues but the Source's, and seconds (of the processor, where one thread does all)."""

    firings: int
    tokens: int
    seconds: float
    queues: tuple[tuple[int, int], ...] = ()
    """Firings and tokens of each queue, the Source's too."""


class _Pinned(Engine):
    """An engine whose workers stay on a core each: on a busy machine they would be put on one core at times, and wait for each other there."""

    def _drive(
        self, b: Binding, outputs: Array, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None, began: float
    ) -> None:
        arguments = (self._F, b.I, b.D, b.XF, b.XI, outputs)
        together([functools.partial(worker.run, *arguments, w) for w in range(self.options.workers)])
        self._check(b)


class Passes:
    """An engine with a program and instances for it. Two workers have a thread and a core each."""

    def __init__(self, text: str, workers: int, in_flight: int) -> None:
        source = remember("calibrate.amp", text.encode(), "a program of the calibration")
        manifest = compile_source(source, target=load_target(f"cpu-{workers}"), strategy="manual" if workers > 1 else "balanced").manifest
        assert manifest is not None
        options = EngineOptions(
            workers=workers, max_active_keys=in_flight, min_update_frequency=10**6, optimizer="sgd", learning_rate=0.0
        )
        self.engine = (_Pinned if workers > 1 else Engine)(manifest.graph, manifest.placement, options=options)
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, TURNS + 1, INSTANCES)
        self.data = Program(manifest).read([{"x": k / INSTANCES, "symbol": [0] * int(n)} for k, n in enumerate(lengths)])
        self.rate = 0.0
        for _ in range(2):  # what is met for the first time takes longer
            self.once(max(64, 2 * in_flight))

    def measure(self, seconds: float) -> Count:
        """Pass over as many instances as take about `seconds`."""
        return self.once(self._instances(seconds))

    def _instances(self, seconds: float) -> int:
        """Return how many instances take about `seconds`: at least twice as many as are in flight."""
        return int(min(max(2 * self.engine.options.max_active_keys, 8, self.rate * seconds), INSTANCES))

    def once(self, n: int) -> Count:
        """Pass over `n` instances."""
        began = time.process_time()
        took = float(self.engine.run(self.data, np.arange(n, dtype=np.int64), train=True).seconds)
        if self.engine.options.workers == 1:
            took = time.process_time() - began  # what else the machine does does not count
        self.rate = n / took
        queues = tuple((f, t) for _, f, t in self.engine.firings())
        return Count(sum(f for f, _ in queues[2:]), sum(t for _, t in queues[2:]), took, queues)

    def recorded(self, seconds: float) -> Trace:
        """Return the log of a pass over as many instances as take about `seconds`."""
        self.engine.run(self.data, np.arange(self._instances(seconds), dtype=np.int64), train=True, record=True)
        assert self.engine.trace is not None
        return self.engine.trace


def latency(trace: Trace) -> float:
    """Return the median seconds from a message's sending to its arrival at the other worker.

    A message that meets a thread which does not run waits for long, but few do: with one in flight, no more than one at a time.
    """
    return float(np.nanmedian(trace.arrived_s - trace.sent_s))


__all__ = ["Count", "Passes", "latency"]
