"""Losses and metrics over rows of `F`; targets are integers in `I` (-1 is none) or floats (NaN is none), which are left out.

Sums are kept in float64. Memory and arguments as in `rows`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ampc.runtime.native import F0, F1, at, exp, kernel, put

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@kernel(returns=types.float64)
def cross_entropy(F, I, x, ids, m, c):
    """Return the sum over rows of -log softmax(x)[id], in float64 from the difference to the largest, finite for any finite logits."""
    total = 0.0
    for r in range(m):
        a = x + r * c
        top = at(F, a)
        for j in range(1, c):
            v = at(F, a + j)
            top = v if v > top or v != v else top
        s = 0.0
        for j in range(c):
            s += math.exp(np.float64(at(F, a + j)) - np.float64(top))
        if at(I, ids + r) >= 0:
            total += math.log(s) + (np.float64(top) - np.float64(at(F, a + at(I, ids + r))))
    return total


@kernel(floats="weight")
def cross_entropy_bwd(F, I, dx, x, ids, m, c, weight, more):
    for r in range(m):
        a = x + r * c
        d = dx + r * c
        top = at(F, a)
        for j in range(1, c):
            v = at(F, a + j)
            top = v if v > top else top
        s = F0
        for j in range(c):
            s += exp(at(F, a + j) - top)
        label = at(I, ids + r)
        mine = weight if label >= 0 else F0
        scale = mine / s
        for j in range(c):
            g = exp(at(F, a + j) - top) * scale - (mine if j == label else F0)
            put(F, d + j, (at(F, d + j) + g) if more else g)


@kernel(returns=types.float64)
def accuracy(F, I, x, ids, m, c):
    hits = 0
    for r in range(m):
        a = x + r * c
        best = 0
        for j in range(1, c):
            if at(F, a + j) > at(F, a + best):
                best = j
        hits += 1 if best == at(I, ids + r) else 0
    return np.float64(hits)


@kernel(returns=types.float64)
def top_k(F, I, x, ids, m, c, k):
    hits = 0
    for r in range(m):
        a = x + r * c
        label = at(I, ids + r)
        if label < 0:
            continue
        mine = at(F, a + label)
        above = 0
        for j in range(c):
            v = at(F, a + j)
            above += 1 if v > mine or (v == mine and j < label) else 0
        hits += 1 if above < k else 0
    return np.float64(hits)


@kernel(returns=types.int64)
def known_labels(I, ids, m):
    k = 0
    for r in range(m):
        k += 1 if at(I, ids + r) >= 0 else 0
    return k


@kernel(returns=types.int64)
def known_values(F, t, count):
    k = 0
    for i in range(count):
        k += 1 if at(F, t + i) == at(F, t + i) else 0
    return k


@kernel(returns=types.float64)
def squared(F, x, t, count):
    total = 0.0
    for i in range(count):
        d = np.float64(at(F, x + i)) - np.float64(at(F, t + i))
        total += d * d if at(F, t + i) == at(F, t + i) else 0.0
    return total


@kernel(floats="weight")
def squared_bwd(F, g, x, t, count, weight):
    for i in range(count):
        d = weight * np.float32(2) * (at(F, x + i) - at(F, t + i))
        put(F, g + i, d if at(F, t + i) == at(F, t + i) else F0)


@kernel(returns=types.float64)
def absolute(F, x, t, count):
    total = 0.0
    for i in range(count):
        d = abs(np.float64(at(F, x + i)) - np.float64(at(F, t + i)))
        total += d if at(F, t + i) == at(F, t + i) else 0.0
    return total


@kernel(floats="weight")
def absolute_bwd(F, g, x, t, count, weight):
    for i in range(count):
        d = at(F, x + i) - at(F, t + i)
        put(F, g + i, weight if d > F0 else (-weight if d < F0 else F0))


@kernel(floats="delta", returns=types.float64)
def huber(F, x, t, count, delta):
    total = 0.0
    wide = np.float64(delta)
    for i in range(count):
        d = abs(np.float64(at(F, x + i)) - np.float64(at(F, t + i)))
        v = 0.5 * d * d if d <= wide else wide * (d - 0.5 * wide)
        total += v if at(F, t + i) == at(F, t + i) else 0.0
    return total


@kernel(floats="delta weight")
def huber_bwd(F, g, x, t, count, delta, weight):
    for i in range(count):
        d = at(F, x + i) - at(F, t + i)
        v = delta if d > delta else (-delta if d < -delta else d)
        put(F, g + i, weight * v if at(F, t + i) == at(F, t + i) else F0)


@kernel(returns=types.float64)
def binary_cross_entropy(F, x, t, count):
    """Sum of max(z, 0) - z * t + log(1 + exp(-|z|)): stable for any finite logit z."""
    total = 0.0
    for i in range(count):
        z = np.float64(at(F, x + i))
        v = (z if z > 0.0 or z != z else 0.0) - z * np.float64(at(F, t + i)) + math.log1p(math.exp(-abs(z)))
        total += v if at(F, t + i) == at(F, t + i) else 0.0
    return total


@kernel(floats="weight")
def binary_cross_entropy_bwd(F, g, x, t, count, weight):
    for i in range(count):
        s = F1 / (F1 + exp(-at(F, x + i)))
        put(F, g + i, weight * (s - at(F, t + i)) if at(F, t + i) == at(F, t + i) else F0)


@kernel(returns=types.float64)
def total_value(F, x, count):
    total = 0.0
    for i in range(count):
        total += np.float64(at(F, x + i))
    return total


@kernel(returns=types.float64)
def binary_accuracy(F, x, t, count):
    hits = 0
    for i in range(count):
        known = at(F, t + i) == at(F, t + i)
        hits += 1 if known and (at(F, x + i) > F0) == (at(F, t + i) >= np.float32(0.5)) else 0
    return np.float64(hits)


@kernel()
def subtract(F, y, x, count, more):
    """y = (y if more) - x"""
    for i in range(count):
        old = at(F, y + i) if more else F0
        put(F, y + i, old - at(F, x + i))


@kernel(floats="weight")
def subtract_product(F, y, x, weight, count, more):
    """y = (y if more) - weight * x"""
    for i in range(count):
        old = at(F, y + i) if more else F0
        put(F, y + i, old - weight * at(F, x + i))
