"""Random numbers by counting: the same place in the same run always draws the same number, on any worker and in any order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """Return the 64-bit finalizer of splitmix64: every bit of the result depends on every bit of `x`."""
    x = (x + STEP) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fold(*numbers: int) -> int:
    """Return one 64-bit number from several, order and all: h = mix(h ^ n) from h = 0."""
    h = 0
    for n in numbers:
        h = mix(h ^ (n & MASK))
    return h


def keep_mask(seed: int, draw: int, node: int, state: tuple[int, ...], shape: tuple[int, int], rate: float) -> npt.NDArray[np.bool_]:
    """Return which values dropout keeps, each with probability 1 - rate.

    Value k (counted through the rows) is kept if `mix(h ^ k) >> 40` is at least `rate * 2**24`, with h = fold(seed, draw, node, *state).
    """
    h = np.uint64(fold(seed, draw, node, *state))
    x = np.arange(shape[0] * shape[1], dtype=np.uint64) ^ h
    x += np.uint64(STEP)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    kept: npt.NDArray[np.bool_] = (x >> np.uint64(40)).astype(np.float64) >= rate * 2.0**24
    return kept.reshape(shape)
