"""The choice of the next queue as plain Python: the same as `worker.choose` and `worker.choose_any`, by one look at the whole table.

A look at each queue, which compiled code takes a microsecond for, is most of the time of a pass that runs as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ampc.codegen.layout import FIRST, FULL, PLENTY, SEG, H, Q, S
from ampc.runtime.tokens import QUEUE


def _waiting(I: Any, w: int) -> tuple[Any, Any]:
    """Return the queues of worker w that are not empty, in order, and what waits there in rows."""
    n, first, queues = int(I[H.SEGMENTS]), int(I[H.SEG0]) + S.OWNER, int(I[H.QUEUE0])
    table = I[queues : queues + 2 * n * QUEUE].reshape(2 * n, QUEUE)
    tokens = table[:, Q.TAIL] - table[:, Q.HEAD]
    found = np.flatnonzero((tokens > 0) & np.repeat(I[first : first + n * SEG : SEG] == w, 2))
    return found, tokens[found] * table[found, Q.ROWS]


def choose(I: Any, w: int) -> int:
    """The queue of worker w to fire next, or -1; see `worker.choose`."""
    found, weight = _waiting(I, w)
    if not len(found):
        return -1
    control = found < 2
    weight = weight + np.where(control, FIRST, 0) + np.where(~control & (found % 2 == 1) & (weight >= PLENTY), FULL, 0)
    best = int(np.argmax(weight))
    return int(found[best]) if weight[best] > 0 else -1


def choose_any(random: Callable[[Any], Any], I: Any, w: int) -> int:
    """One of worker w's queues that are not empty, drawn by `random(I)`; -1 if all are."""
    found, _ = _waiting(I, w)
    return int(found[int(random(I)) % len(found)]) if len(found) else -1
