"""From times to the figures of a target: least squares of relative errors, medians, and how much the measurements differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

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


def products(shapes: Sequence[tuple[float, float, float]], seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return (FLOP/s, half rows, half columns) so that a time a call and 6 (rows + half rows) (k + half columns) (n + half columns) / rate come near
    `seconds`, in relative terms.

    shapes: (rows, k, n) of three products each, as many as `seconds`. The halves are of a grid; the time a call is the loop's, and not returned.
    """
    return _products(shapes, seconds)[0]


def error(shapes: Sequence[tuple[float, float, float]], seconds: Sequence[float]) -> float:
    """Return the median relative error of what `products` says."""
    return _products(shapes, seconds)[1]


def _products(shapes: Sequence[tuple[float, float, float]], seconds: Sequence[float]) -> tuple[tuple[float, float, float], float]:
    rows, k, n = np.asarray(shapes, np.float64).T
    took = np.asarray(seconds, np.float64)
    best: tuple[tuple[float, float, float], float] | None = None
    least = math.inf
    for half in HALVES:
        for columns in HALVES:
            flops = 6 * (rows + half) * (k + columns) * (n + columns)
            terms = np.stack([flops, np.ones(len(took))], axis=1)
            each = _fitted(terms, took)
            errors = np.abs(terms @ np.array(each) / took - 1)
            if each[0] > 0 and errors.mean() < least:
                best, least = ((1.0 / each[0], half, columns), float(np.median(errors))), float(errors.mean())
    if best is None:  # times that do not grow with the work: all of them are noise
        return (float(np.sum(6 * rows * k * n) / np.sum(took)), 0.0, 0.0), math.inf
    return best


def _fitted(terms: np.ndarray[tuple[int, int], np.dtype[np.float64]], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, ...]:
    """Return what to multiply the columns of `terms` [n, k] with, at least 0 each, so that their sum comes near `values` [n] in relative terms."""
    from scipy.optimize import nnls

    found, _ = nnls(terms / values[:, None], np.ones(len(values)))
    return tuple(float(x) for x in found)


__all__ = ["HALVES", "NOISY", "Figure", "error", "products"]
