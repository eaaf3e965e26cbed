"""The rate of large matrix products on one core, by the BLAS that the kernels call: what a program's own rate is a share of."""

from __future__ import annotations

import time

import numpy as np

from ampc.calibrate import loops
from ampc.runtime import blas

SIDE = 512
"""Rows, inputs and outputs: three matrices of a megabyte, which the second cache holds two of."""
FLOPS = 6.0 * SIDE**3
"""Of the three products of a layer."""


class Peak:
    """Measures in windows, so that it can take turns with what it is compared with."""

    def __init__(self) -> None:
        blas.one_thread_per_call()
        n = SIDE * SIDE
        self._numbers = np.concatenate([np.full(n, 0.5, np.float32), np.full(n, 1e-3, np.float32), np.zeros(3 * n, np.float32)])
        self._words = loops.scratch()
        self.run(0.0)

    def run(self, seconds: float) -> float:
        """Multiply for about `seconds`; return the FLOPs that were done."""
        done, began = 0, time.perf_counter()
        while not done or time.perf_counter() - began < seconds:
            loops.products(self._numbers, self._words, SIDE, SIDE, SIDE, 1)
            done += 1
        return done * FLOPS

    def window(self, seconds: float) -> float:
        """Return FLOP/s over about `seconds`, of processor time: waiting for the core does not count."""
        used = time.thread_time()
        done = self.run(seconds)
        return done / max(1e-9, time.thread_time() - used)


__all__ = ["FLOPS", "SIDE", "Peak"]
