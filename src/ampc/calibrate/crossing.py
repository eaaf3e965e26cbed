"""What a message to another core costs, from programs whose layers are on two cores in turn: beside what they would cost on one core.

Both cores are at work, as they are in a run: each writes where the other has just read, and what that costs is part of it. The work of the two is
the same and many instances are in flight, so that neither waits for long: what the two spend together is twice the time of a pass. What firings
cost on one core is the cost model's, corrected by the time of the same layers on one core. What is left is a time for each firing that sends, each
message and each byte, by least squares. The latency is that of a message which goes alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from ampc.calibrate.handling import FEATURES, Spent, spent_by
from ampc.calibrate.passes import Passes, latency
from ampc.place import measure
from ampc.place.target import NUMBER_BYTES, Device

WIDTHS = (1, 16, 128)
IN_FLIGHT = (16, 64, 256)
"""Numbers that a message carries, and instances that are under way: the more, the more messages cross together."""
PASSES = 4
"""Passes in a round, of which the one at the lower quartile counts, as of the rounds: anything else that runs makes passes longer only."""


def text(width: int, apart: bool) -> str:
    """Return a program: layers of so many columns in turn, on two cores or on one."""
    here, there = (', device = "core:0"', ', device = "core:1"') if apart else ("", "")
    return f"""model crossing():
    instance:
        axis token
        x: float
        symbol: int[token] < 8
    start = Linear(1, {width}{here})
    end = Linear({width}, 1{here})
    one = LayerNorm({width}{here})
    two = LayerNorm({width}{there})
    h = start(x)
    loop t in token carry h:
        h = two(one(h))
    loss squared(end(h), x)
"""


Sample = tuple[list["Crossed"], list[Spent], float]
"""Of one round: passes on two cores, passes of each width on one, the latency of a message."""


@dataclasses.dataclass(frozen=True)
class Crossed:
    """A pass on two cores: what it spent as on one (`spent`, with its seconds), firings that sent to the other core, messages and their bytes."""

    spent: Spent
    bursts: float
    messages: float
    bytes: float


NO_LIMIT = 1e15
"""Bytes a second where no time was found for them."""


class _Program:
    def __init__(self, width: int, in_flight: int, apart: bool) -> None:
        self.width = width
        self.passes = Passes(text(width, apart), 2 if apart else 1, in_flight)
        graph = self.passes.engine.graph
        self.statistics = measure(graph, self.passes.data)
        self.queues = [
            2 * s.id + direction
            for s in self.passes.engine.plan.segments if any(getattr(n, "layer", "") in ("one", "two") for n in s.nodes)
            for direction in (0, 1)
        ]  # fmt: skip

    def sample(self, seconds: float) -> Crossed:
        """Return the one at the lower quartile of some passes that take about `seconds` together."""
        found = sorted((self.passes.measure(seconds / PASSES) for _ in range(PASSES)), key=lambda c: c.seconds / c.tokens)
        quick = found[PASSES // 4]
        spent = spent_by(self.passes.engine.plan, self.statistics, quick.seconds, [(q, *fired) for q, fired in enumerate(quick.queues)])
        bursts, messages = (float(sum(quick.queues[q][k] for q in self.queues)) for k in (0, 1))
        return Crossed(spent, bursts, messages, NUMBER_BYTES * self.width * messages)


class Crossing:
    """The programs on two cores and on one: `sample` measures all of them once."""

    def __init__(self, seconds: float) -> None:
        self.apart = [_Program(width, n, True) for width in WIDTHS for n in IN_FLIGHT]
        self.one = [_Program(width, n, False) for width in WIDTHS for n in IN_FLIGHT]
        self.alone = Passes(text(1, True), 2, 1)
        self.seconds = seconds / (len(self.apart) + len(self.one) + 1)

    def sample(self) -> Sample:
        """Return what one round tells."""
        found = min(latency(self.alone.recorded(self.seconds / PASSES)) for _ in range(PASSES))
        return [p.sample(self.seconds) for p in self.apart], [p.sample(self.seconds).spent for p in self.one], found


def figures(rounds: Sequence[Sample], device: Device, costs: dict[str, float]) -> dict[str, float]:
    """Return the figures of links. costs: `handling.FEATURES` as measured, which with `device`'s products say what a pass costs on one core."""
    each = np.array([costs[name] for name in FEATURES])

    def modelled(s: Spent) -> float:
        return float(np.dot(s.counts(device), each))

    at = (len(rounds) - 1) // 4
    apart = [sorted(found, key=lambda c: c.spent.seconds / c.messages)[at] for found in zip(*(a for a, _, _ in rounds))]
    one = [sorted(found, key=lambda s: s.seconds / s.tokens)[at] for found in zip(*(o for _, o, _ in rounds))]
    longer = np.array([s.seconds / max(modelled(s), 1e-12) for s in one])
    both = 2 * np.array([c.spent.seconds for c in apart])
    rest = np.maximum(both - longer * [modelled(c.spent) for c in apart], 0.0)
    counts = np.array([(2 * c.bursts, 2 * c.messages, c.bytes) for c in apart])
    (burst_s, message_s, byte_s), _ = nnls(counts / both[:, None], rest / both)
    return {
        "latency_s": float(np.median([x for _, _, x in rounds])), "link_overhead_s": burst_s, "link_message_s": message_s,
        "link_bytes_per_s": 1 / byte_s if byte_s > 0 else NO_LIMIT,
    }  # fmt: skip


__all__ = ["IN_FLIGHT", "WIDTHS", "Crossed", "Crossing", "Sample", "figures", "text"]
