"""From times to the figures of a target: least squares of relative errors, medians, and how much the measurements differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

NOISY = 0.2
"""Spread from which on a figure is called noisy."""


@dataclasses.dataclass(frozen=True)
class Figure:
    """One figure as measured several times. `unit` is spelt out where it is printed: "FLOP/s", "B/s", "s", "rows"."""

    name: str
    what: str
    unit: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return float(np.median(self.samples))

    @property
    def spread(self) -> float:
        """Return the width of the middle half of the samples, as a part of the median: 0 for figures that are always the same."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        if high == low:
            return 0.0
        return float((high - low) / abs(self.median)) if self.median else math.inf

    @property
    def noisy(self) -> bool:
        return self.spread > NOISY


HALVES = tuple(1.3**k - 1 for k in range(16))
"""Rows and columns that are tried as halves: 0, 0.3, ... 50."""


class Products(NamedTuple):
    """What matrix products take: see `Device`. error: the median relative one. far_bytes_per_s: 0 where large matrices take no longer."""

    flops_per_s: float
    half_rows: float
    half_columns: float
    far_bytes_per_s: float
    error: float


def products(shapes: Sequence[tuple[float, float, float]], seconds: Sequence[float], cache_bytes: float = math.inf) -> Products:
    """Return figures so that a time a call, 6 (rows + half rows) (k + half columns) (n + half columns) / rate, and 16 k n bytes at the far rate where
    k n weights and as many gradients are more than `cache_bytes`, come near `seconds`, in relative terms.

    shapes: (rows, k, n) of three products each, as many as `seconds`. The halves are of a grid; the time a call is the loop's, and not returned.
    """
    rows, k, n = np.asarray(shapes, np.float64).T
    took = np.asarray(seconds, np.float64)
    far = 16 * k * n * (8 * k * n > cache_bytes)
    best: Products | None = None
    least = math.inf
    for half in HALVES:
        for columns in HALVES:
            flops = 6 * (rows + half) * (k + columns) * (n + columns)
            terms = np.stack([flops, np.ones(len(took)), far], axis=1)
            each = _fitted(terms, took)
            errors = np.abs(terms @ np.array(each) / took - 1)
            if each[0] > 0 and errors.mean() < least:
                best = Products(1.0 / each[0], half, columns, 1.0 / each[2] if each[2] else 0.0, float(np.median(errors)))
                least = float(errors.mean())
    if best is None:  # times that do not grow with the work: all of them are noise
        return Products(float(np.sum(6 * rows * k * n) / np.sum(took)), 0.0, 0.0, 0.0, math.inf)
    return best


def _fitted(terms: np.ndarray[tuple[int, int], np.dtype[np.float64]], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, ...]:
    """Return what to multiply the columns of `terms` [n, k] with, at least 0 each, so that their sum comes near `values` [n] in relative terms."""
    from scipy.optimize import nnls

    found, _ = nnls(terms / values[:, None], np.ones(len(values)))
    return tuple(float(x) for x in found)


__all__ = ["HALVES", "NOISY", "Figure", "Products", "products"]
