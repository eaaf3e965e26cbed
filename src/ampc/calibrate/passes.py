"""What the engine itself costs, from passes of small programs through it: a token, a firing, a message to another core.

The programs compute next to nothing, so that their time is the engine's. Firings and tokens are counted by its queues.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from ampc.codegen.layout import H
from ampc.compiler import compile_source
from ampc.place import load_target
from ampc.runtime.engine import Engine
from ampc.runtime.options import Value
from ampc.runtime.program import Program
from ampc.source import remember

TURNS = 100
INSTANCES = 16_384

RELAY = f"""model relay():
    instance:
        x: float
    start = LayerNorm(1)
    h = start(x)
    loop t in range({TURNS}) carry h:
        h = relu(h)
    loss squared(h, x)
"""
"""Tokens through one node, again and again."""

SAME = f"""model crossing():
    instance:
        x: float
    here = LayerNorm(1)
    there = LayerNorm(1)
    h = x
    loop t in range({TURNS}) carry h:
        h = there(here(h))
    loss squared(h, x)
"""
"""Two layers in turn; on one core a turn is one token forward and one back."""

CROSSING = SAME.replace(
    "    here = LayerNorm(1)\n    there = LayerNorm(1)\n",
    '    here = LayerNorm(1, device = "core:0")\n    there = LayerNorm(1, device = "core:1")\n',
)
"""The same with a message to the other core for each, forward and back."""


@dataclasses.dataclass(frozen=True)
class Count:
    """One pass: firings and tokens of all queues but the Source's, and seconds (of the processor, where one thread does all)."""

    firings: int
    tokens: int
    seconds: float


class Passes:
    """An engine with a program and instances for it. `threads` 1 lets one thread do the work of both workers."""

    def __init__(self, text: str, workers: int, in_flight: int, threads: int = 0) -> None:
        source = remember("calibrate.amp", text.encode(), "a program of the calibration")
        manifest = compile_source(source, target=load_target(f"cpu-{workers}"), strategy="manual" if workers > 1 else "balanced").manifest
        assert manifest is not None
        program = Program(manifest)
        settings: dict[str, Value | None] = {
            "workers": workers, "max_active_keys": in_flight, "optimizer": "sgd", "learning_rate": 0.0, "min_update_frequency": 10**6,
        }  # fmt: skip
        self.data = program.read([{"x": float(v)} for v in np.linspace(0.5, 1.0, INSTANCES)])
        engine = program.session(program.options(settings)).engine
        assert isinstance(engine, Engine)
        self.engine = engine
        engine.bind(self.data)
        assert engine._binding is not None
        if threads:
            engine._binding.I[H.THREADS] = threads  # kept from pass to pass, since the data are the same
        self.apart = workers > 1 and threads != 1
        self.rate = 0.0
        self.measure(0.0)

    def measure(self, seconds: float) -> Count:
        """Pass over as many instances as take about `seconds`."""
        return self.once(int(min(max(8, self.rate * seconds), INSTANCES)))

    def once(self, n: int) -> Count:
        """Pass over `n` instances."""
        began = time.process_time()
        took = float(self.engine.run(self.data, np.arange(n, dtype=np.int64), train=True).seconds)
        if not self.apart:
            took = time.process_time() - began  # what else the machine does does not count
        self.rate = n / took
        rows = [(f, t) for what, f, t in self.engine.firings() if not what.startswith("0 ")]
        return Count(sum(f for f, _ in rows), sum(t for _, t in rows), took)


__all__ = ["CROSSING", "RELAY", "SAME", "TURNS", "Count", "Passes"]
