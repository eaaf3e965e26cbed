"""What a message to another core costs, from programs whose layers are on two cores in turn: beside what they would cost on one core.

The tokens in flight go to and fro together, so that one worker waits while the other fires: the time of a pass is that of its firings one after
the other, and of the crossings between them. What firings cost on one core is the cost model's, corrected by the time of the same layers on one
core. What is left is a time for each crossing, each message and each byte, by least squares.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from ampc.calibrate.handling import FEATURES, Spent, spent_by
from ampc.calibrate.passes import Passes, latency
from ampc.place import measure
from ampc.place.target import Device

TURNS = 16
WIDTHS = (1, 64, 512)
TOGETHER = (1, 16, 64)
"""Numbers that a message carries, and messages that cross together."""
PASSES = 4
"""Passes of two threads in a round: the fastest counts, since both have to run at the same time and anything else that runs disturbs."""


def text(width: int, apart: bool) -> str:
    """Return a program: layers of so many columns in turn, on two cores or on one."""
    here, there = (', device = "core:0"', ', device = "core:1"') if apart else ("", "")
    return f"""model crossing():
    instance:
        x: float
    start = Linear(1, {width}{here})
    end = Linear({width}, 1{here})
    one = LayerNorm({width}{here})
    two = LayerNorm({width}{there})
    h = start(x)
    loop t in range({TURNS}) carry h:
        h = two(one(h))
    loss squared(end(h), x)
"""


Sample = tuple[list["Crossed"], list[Spent], float]
"""Of one round: passes on two cores, passes of each width on one, the latency of a message."""


@dataclasses.dataclass(frozen=True)
class Crossed:
    """A pass on two cores: what it spent as on one (`spent`, with its seconds), how often tokens crossed together, how many, and their bytes."""

    spent: Spent
    crossings: float
    messages: float
    bytes: float


class _Program:
    def __init__(self, width: int, together: int, apart: bool) -> None:
        self.width, self.together = width, together
        self.passes = Passes(text(width, apart), 2 if apart else 1, 1, together)
        self.statistics = measure(self.passes.engine.graph, self.passes.data)

    def sample(self, seconds: float) -> Crossed:
        """Return the fastest of some passes that take about `seconds` together."""
        found = [self.passes.measure(seconds / PASSES) for _ in range(PASSES)]
        best = min(found, key=lambda c: c.seconds / c.tokens)
        engine = self.passes.engine
        spent = spent_by(engine.plan, self.statistics, best.seconds, [(q, *fired) for q, fired in enumerate(best.queues)])
        n = spent.instances
        crossings = 4 * TURNS * n / self.together  # two forward and two backward a turn
        return Crossed(spent, crossings, crossings * self.together, 4.0 * self.width * crossings * self.together)


class Crossing:
    """The programs on two cores and on one: `sample` measures all of them once."""

    def __init__(self, seconds: float) -> None:
        self.apart = [_Program(width, n, True) for width in WIDTHS for n in TOGETHER]
        self.one = [_Program(width, TOGETHER[-1], False) for width in WIDTHS]
        self.seconds = seconds / (len(self.apart) + len(self.one) + 1)

    def sample(self) -> Sample:
        """Return what one round tells."""
        alone = self.apart[0].passes
        found = min(latency(alone.recorded(self.seconds / PASSES)) for _ in range(PASSES))
        return [p.sample(self.seconds) for p in self.apart], [p.sample(self.seconds).spent for p in self.one], found


def figures(rounds: Sequence[Sample], device: Device, costs: dict[str, float]) -> dict[str, float]:
    """Return the figures of links. costs: `handling.FEATURES` as measured, which with `device`'s rates say what a pass costs on one core."""
    each = np.array([costs[name] for name in FEATURES])

    def modelled(s: Spent) -> float:
        return float(np.dot(s.counts(device.matrix_half_columns), each)) + s.vectors_s(device)

    apart = [min(found, key=lambda c: c.spent.seconds / c.messages) for found in zip(*(a for a, _, _ in rounds))]
    one = [min(found, key=lambda s: s.seconds / s.tokens) for found in zip(*(o for _, o, _ in rounds))]
    longer = np.repeat([s.seconds / max(modelled(s), 1e-12) for s in one], len(apart) // len(one))
    took = np.array([c.spent.seconds for c in apart])
    rest = np.maximum(took - longer * [modelled(c.spent) for c in apart], 0.0)
    counts = np.array([(c.crossings, 2 * c.messages, c.bytes) for c in apart])
    (crossing_s, message_s, byte_s), _ = nnls(counts / took[:, None], rest / took)
    latency_s = min(float(np.median([x for _, _, x in rounds])), max(crossing_s, 1e-9))
    return {
        "latency_s": latency_s, "link_overhead_s": (crossing_s - latency_s) / 2, "link_message_s": message_s,
        "link_bytes_per_s": 1 / byte_s if byte_s > 0 else device.memory_bytes_per_s,
    }  # fmt: skip


__all__ = ["TOGETHER", "WIDTHS", "Crossed", "Crossing", "Sample", "figures", "text"]
