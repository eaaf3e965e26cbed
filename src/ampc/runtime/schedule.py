"""Learning-rate schedules as pure functions of a tick: the number of epochs (or instances) that have been *finished* before.

A schedule has no state of its own, so that a resumed run can't lag: the rate is computed anew from the tick each time.
"""

from __future__ import annotations

import math

from ampc.runtime.options import RunOptions

PARTS = 20
"""With the clock `instances`, a pass is divided into at most so many parts, and the rate moves between two of them."""


def factor(options: RunOptions, tick: int, total: int) -> float:
    """Return what the learning rate is multiplied by at `tick` (from 0) of `total` ticks of the whole run.

    warmup: tick t < warmup gives (t + 1) / (warmup + 1) of what the schedule says. step: `schedule_factor` to the power of
    tick // schedule_every. linear, cosine: from 1 at tick 0 to `schedule_floor` at tick `schedule_span` (0: the last tick), then flat.
    """
    value = 1.0
    if options.schedule == "step":
        value = options.schedule_factor ** (tick // options.schedule_every)
    elif options.schedule in ("cosine", "linear"):
        span = options.schedule_span or total - 1
        share = min(1.0, tick / span) if span > 0 else 0.0
        curve = (1 + math.cos(math.pi * share)) / 2 if options.schedule == "cosine" else 1 - share
        value = options.schedule_floor + (1 - options.schedule_floor) * curve
    if tick < options.warmup:
        value *= (tick + 1) / (options.warmup + 1)
    return value


def moves_within_epoch(options: RunOptions) -> bool:
    """Return whether the rate can change between two instances of one epoch."""
    return options.schedule_clock == "instances" and (options.schedule != "constant" or options.warmup > 0)


def tick(options: RunOptions, epoch: int, instances_per_epoch: int, done: int) -> tuple[int, int]:
    """Return (tick, total ticks) once `epoch` epochs and `done` instances of the next have been trained."""
    if options.schedule_clock == "epochs":
        return epoch, options.epochs
    return epoch * instances_per_epoch + done, options.epochs * instances_per_epoch
