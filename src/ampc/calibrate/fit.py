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


def products(flops_per_row: Sequence[float], rows: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return (FLOP/s, half rows) so that (rows + half) · flops_per_row / rate comes near `seconds`, in relative terms.

    All three are of equal length, one entry a shape. The half is at least 0.
    """
    per_flop = np.asarray(seconds) / np.asarray(flops_per_row)
    terms = np.stack([np.asarray(rows, np.float64), np.ones(len(per_flop))], axis=1)
    slope, start = _fitted(terms, per_flop)
    if slope <= 0:  # times that do not grow with rows: all of them are noise
        return float(np.sum(rows) / np.sum(per_flop)), 0.0
    return 1.0 / slope, max(0.0, start / slope)


def overheads(firings: Sequence[float], tokens: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Return (seconds a firing, seconds a token) that explain the `seconds` of passes with so many of both; neither below 0."""
    each = _fitted(np.stack([np.asarray(firings, np.float64), np.asarray(tokens, np.float64)], axis=1), np.asarray(seconds, np.float64))
    return each[0], each[1]


def _fitted(terms: np.ndarray[tuple[int, int], np.dtype[np.float64]], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, ...]:
    """Return what to multiply the columns of `terms` [n, k] with, at least 0 each, so that their sum comes near `values` [n] in relative terms."""
    from scipy.optimize import nnls

    found, _ = nnls(terms / values[:, None], np.ones(len(values)))
    return tuple(float(x) for x in found)


__all__ = ["NOISY", "Figure", "overheads", "products"]
