"""Where a run stands between two passes; with the engine's weights and moments, all that a resumed run needs."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from ampc.runtime.checkpoint import Checkpoint
from ampc.runtime.contract import Order
from ampc.runtime.events import EpochResult


@dataclasses.dataclass(slots=True)
class Standing:
    """Where the run stands. `ledger`: instances of the unfinished epoch that are done; `parts`: the results that go with them.

    `wall_s` and `compile_s` are those of the runs that this one resumes.
    """

    epoch: int = 0
    instances: int = 0
    ledger: Order = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    parts: list[EpochResult] = dataclasses.field(default_factory=list)
    elapsed_s: float = 0.0
    best_value: float | None = None
    best_epoch: int | None = None
    best_step: int | None = None
    since_best: int = 0
    time_to_target_s: float | None = None
    rates: list[float] = dataclasses.field(default_factory=list)
    wall_s: float = 0.0
    compile_s: float = 0.0
    undone: int = 0


def resumed(found: Checkpoint, watch: str) -> Standing:
    """Return where the run stood that wrote a checkpoint; what was best counts only if the same value is watched."""
    c = found.state
    same = c.watch == watch
    return Standing(
        epoch=c.epoch,
        instances=c.instances,
        ledger=found.ledger,
        parts=[msgspec.convert(p, EpochResult, strict=False) for p in c.partial],
        elapsed_s=c.elapsed_s,
        best_value=c.best_value if same else None,
        best_epoch=c.best_epoch if same else None,
        best_step=c.best_step,
        since_best=c.epochs_since_best if same else 0,
        rates=list(c.rates),
        wall_s=max(c.wall_s, c.elapsed_s),  # a checkpoint of an older version tells none
        compile_s=c.compile_s,
    )
