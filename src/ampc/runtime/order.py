"""The order of an epoch's instances, and where its pass has to drain."""

from __future__ import annotations

import numpy as np

from ampc.runtime import schedule
from ampc.runtime.contract import Order
from ampc.runtime.options import RunOptions


def epoch_order(n: int, seed: int, epoch: int, shuffle: bool) -> Order:
    """Return int64 [n], the order of an epoch: drawn from the seed and the epoch alone, or 0, 1, ... without `shuffle`."""
    if not shuffle:
        return np.arange(n, dtype=np.int64)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch]))).permutation(n).astype(np.int64)


def ends(o: RunOptions, n: int, done: int) -> list[int]:
    """Return the positions in the epoch, beyond `done`, at which a pass has to drain; the last is n (none if all is done)."""
    ends = {n}
    if o.checkpoint_instances:
        ends.update(range(o.checkpoint_instances, n, o.checkpoint_instances))
    if o.validate_instances:
        ends.update(range(o.validate_instances, n, o.validate_instances))
    if schedule.moves_within_epoch(o):
        ends.update(range(0, n, -(-n // schedule.PARTS)))
    return sorted(e for e in ends if e > done)
