"""Looks at a running pass from outside, now and then: progress, the wish to stop, workers that stand still."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ampc.codegen.layout import STALENESS_BINS, H
from ampc.runtime import worker
from ampc.runtime.binding import Binding
from ampc.runtime.events import Progress

PROGRESS_S = 0.1
WATCHDOG_S = 30.0
LONGEST_LOOK_S = 2.0
"""What the time between two looks counts for at most: a process that was stopped itself (SIGSTOP, a debugger) could not move meanwhile."""
STUCK = 99
"""The fault that it sets where nothing moves."""


class Watch:
    """Looks at a running pass from outside: progress, the wish to stop, workers that stand still."""

    def __init__(
        self, b: Binding, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None, began: float,
    ) -> None:
        self.b, self.on_progress, self.stop, self.began = b, on_progress, stop, began
        self.beats = -1
        self.shown = self.looked = began
        self.still_s = 0.0

    @property
    def wanted(self) -> bool:
        return self.on_progress is not None or self.stop is not None

    def look(self) -> None:
        b, now = self.b, time.perf_counter()
        if self.stop is not None and self.stop():
            b.I[H.HALT] = 1
        if now - self.shown >= PROGRESS_S:
            self.shown = now
            self.last()
        beat = b.I[H.WORK0] + 4 * b.I[H.CAP] + worker.BEAT
        beats = int(sum(b.I[beat + w * b.work_stride] for w in range(b.workers)))
        self.still_s = 0.0 if beats != self.beats else self.still_s + min(now - self.looked, LONGEST_LOOK_S)
        self.beats, self.looked = beats, now
        if self.still_s > WATCHDOG_S:
            b.I[H.ERROR] = STUCK

    def last(self) -> None:
        if self.on_progress is not None:
            self.on_progress(progress(self.b, time.perf_counter() - self.began))


def progress(b: Binding, seconds: float) -> Progress:
    """Return how far a pass has come after so many seconds, measured or virtual."""
    I, D = b.I, b.D
    losses = float(D[0 : I[H.HYPER0] : I[H.STATS]].sum())
    counts = b.staleness.sum(axis=0)
    total = int(np.sum(counts))
    stale = float((counts * np.arange(STALENESS_BINS)).sum() / total) if total else None
    done = int(I[H.DONE])
    return Progress(done=done, total=int(I[H.TOTAL]), loss_sum=losses, in_flight=int(I[H.ADMITTED]) - done, seconds=seconds, staleness=stale)
