"""Row kernels: what generated code calls for operations that are more than an element-wise loop.

All operands are blocks of `F` (float32) given by their offset, row-major [m, c]; integers per row are in `I` at an offset. A `_bwd` adds
to its gradient outputs if `add` is 1 and writes them otherwise. Segments of rows: group i is rows `I[s + i] : I[s + i + 1]`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from ampc.runtime.native import F0, F1, add_rows_to, add_to, at, copy, exp, gemm, helper, kernel, plus, put, set_to, signed, times, unsigned

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@kernel()
def zero(F, x, count):
    set_to(F, x, count, F0)


@kernel(floats="value")
def fill(F, x, count, value):
    set_to(F, x, count, value)


@kernel()
def add(F, y, x, count):
    """y += x"""
    add_to(F, y, x, count)


@kernel()
def store(F, y, x, count, more):
    """y = x, or y += x if `more`."""
    if more:
        add_to(F, y, x, count)
    else:
        copy(F, y, F, x, count)


@kernel()
def repeat_row(F, y, x, m, c):
    """Write row x to each of the m rows of y."""
    for r in range(m):
        copy(F, y + r * c, F, x, c)


@kernel()
def add_row_sum(F, y, x, m, c):
    """y[c] += sum over the rows of x."""
    add_rows_to(F, y, x, m, c)


@kernel()
def put_columns(F, y, yc, start, x, xc, first, m, c):
    """y[:, start:start+c] = x[:, first:first+c]; yc and xc are the widths of y and x."""
    for r in range(m):
        copy(F, y + r * yc + start, F, x + r * xc + first, c)


@kernel()
def add_broadcast_sum(F, y, yc, x, xc, m, more):
    """y = (y if more) + x summed to y's width (yc is 1 or xc)."""
    if yc == xc:
        store(F, y, x, m * xc, more)
    else:
        for r in range(m):
            s = at(F, y + r) if more else F0
            for j in range(xc):
                s += at(F, x + r * xc + j)
            put(F, y + r, s)


@kernel()
def lookup(F, I, y, table, ids, m, c):
    """y[r] = table[ids[r]]; zeros for -1."""
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            copy(F, y + r * c, F, table + e * c, c)
        else:
            set_to(F, y + r * c, c, F0)


@kernel()
def scatter_add(F, I, table, ids, x, m, c):
    """table[ids[r]] += x[r]; -1 goes nowhere."""
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            add_to(F, table + e * c, x + r * c, c)


@kernel()
def touch(I, marks, ids, m):
    """Note the rows of a sparse table that got a gradient: `I[marks]` counts them, then the list, then a flag a row (see `optimizer`)."""
    room = at(I, marks + 1)
    for r in range(m):
        row = at(I, ids + r)
        if row >= 0 and at(I, marks + 2 + room + row) == 0:
            put(I, marks + 2 + room + row, 1)
            n = at(I, marks)
            put(I, marks + 2 + n, row)
            put(I, marks, n + 1)


@kernel()
def one_hot(F, I, y, ids, m, c):
    """Rows of zeros but for a 1 in column ids[r]; none (-1) has no 1."""
    zero(F, y, m * c)
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            put(F, y + r * c + e, F1)


@kernel()
def softmax(F, y, x, m, c):
    for r in range(m):
        a = x + r * c
        top = at(F, a)
        for j in range(1, c):
            v = at(F, a + j)
            top = v if v > top else top
        total = F0
        for j in range(c):
            e = exp(at(F, a + j) - top)
            put(F, y + r * c + j, e)
            total += e
        for j in range(c):
            put(F, y + r * c + j, at(F, y + r * c + j) / total)


@kernel()
def softmax_bwd(F, dx, y, dy, m, c, more):
    for r in range(m):
        dot = F0
        for j in range(c):
            dot += at(F, y + r * c + j) * at(F, dy + r * c + j)
        for j in range(c):
            p = r * c + j
            old = at(F, dx + p) if more else F0
            put(F, dx + p, old + at(F, y + p) * (at(F, dy + p) - dot))


@kernel()
def log_softmax(F, y, x, m, c):
    for r in range(m):
        a = x + r * c
        top = at(F, a)
        for j in range(1, c):
            v = at(F, a + j)
            top = v if v > top else top
        total = F0
        for j in range(c):
            total += exp(at(F, a + j) - top)
        shift = np.float32(math.log(total))
        for j in range(c):
            put(F, y + r * c + j, at(F, a + j) - top - shift)


@kernel()
def log_softmax_bwd(F, dx, y, dy, m, c, more):
    for r in range(m):
        total = F0
        for j in range(c):
            total += at(F, dy + r * c + j)
        for j in range(c):
            p = r * c + j
            old = at(F, dx + p) if more else F0
            put(F, dx + p, old + at(F, dy + p) - exp(at(F, y + p)) * total)


@kernel(floats="scale")
def sum_columns(F, y, x, m, c, scale):
    for r in range(m):
        s = F0
        for j in range(c):
            s += at(F, x + r * c + j)
        put(F, y + r, s * scale)


@kernel(floats="scale")
def sum_columns_bwd(F, dx, dy, m, c, scale, more):
    for r in range(m):
        g = at(F, dy + r) * scale
        for j in range(c):
            old = at(F, dx + r * c + j) if more else F0
            put(F, dx + r * c + j, old + g)


@kernel()
def argmax(F, y, x, m, c):
    """y[r] = the first greatest column of row r, as a float that holds an integer."""
    for r in range(m):
        best = 0
        for j in range(1, c):
            if at(F, x + r * c + j) > at(F, x + r * c + best):
                best = j
        put(F, y + r, np.float32(best))


@kernel()
def max_columns_bwd(F, dx, x, dy, m, c, more):
    for r in range(m):
        best = 0
        for j in range(1, c):
            if at(F, x + r * c + j) > at(F, x + r * c + best):
                best = j
        for j in range(c):
            old = at(F, dx + r * c + j) if more else F0
            put(F, dx + r * c + j, old + (at(F, dy + r) if j == best else F0))


@kernel()
def max_columns(F, y, x, m, c):
    for r in range(m):
        best = at(F, x + r * c)
        for j in range(1, c):
            v = at(F, x + r * c + j)
            best = v if v > best else best
        put(F, y + r, best)


@kernel()
def dot(F, y, a, b, m, c):
    for r in range(m):
        s = F0
        for j in range(c):
            s += at(F, a + r * c + j) * at(F, b + r * c + j)
        put(F, y + r, s)


@kernel()
def dot_bwd(F, da, b, dy, m, c, more):
    for r in range(m):
        g = at(F, dy + r)
        for j in range(c):
            old = at(F, da + r * c + j) if more else F0
            put(F, da + r * c + j, old + g * at(F, b + r * c + j))


@kernel()
def linear(F, I, args, y, x, w, b, m, k, n):
    """y = x @ w + b; x [m, k], w [k, n]; b < 0: no bias."""
    if m == 0:
        return
    if b >= 0:
        repeat_row(F, y, b, m, n)
        gemm(F, I, args, 0, 0, m, n, k, F1, x, k, w, n, F1, y, n)
    else:
        gemm(F, I, args, 0, 0, m, n, k, F1, x, k, w, n, F0, y, n)


@kernel()
def linear_part(F, I, args, y, x, w, m, k, n, more):
    """y = (y if more) + x @ w"""
    if m > 0:
        gemm(F, I, args, 0, 0, m, n, k, F1, x, k, w, n, F1 if more else F0, y, n)


@kernel()
def add_bias(F, y, b, m, n, more):
    """y = (y if more) + b in each row"""
    if more:
        for r in range(m):
            add_to(F, y + r * n, b, n)
    else:
        for r in range(m):
            copy(F, y + r * n, F, b, n)


@kernel()
def linear_dx(F, I, args, dx, dy, w, m, k, n, more):
    if m > 0:
        gemm(F, I, args, 0, 1, m, k, n, F1, dy, n, w, n, F1 if more else F0, dx, k)


@kernel(floats="rate")
def linear_descend(F, I, args, w, gw, gb, x, dy, m, k, n, rate):
    """Take the gradient's step of w at once, w -= rate * x' dy, or (rate 0) accumulate it; that of b is accumulated."""
    gemm(F, I, args, 1, 0, k, n, m, -rate if rate > F0 else F1, x, k, dy, n, F1, w if rate > F0 else gw, n)
    if gb >= 0:
        add_row_sum(F, gb, dy, m, n)


@kernel()
def linear_dw(F, I, args, gw, gb, x, dy, m, k, n):
    """Accumulate the gradients of w and (gb >= 0) b."""
    if m == 0:
        return
    gemm(F, I, args, 1, 0, k, n, m, F1, x, k, dy, n, F1, gw, n)
    if gb >= 0:
        add_row_sum(F, gb, dy, m, n)


@kernel(floats="epsilon")
def layer_norm(F, y, x, gain, bias, m, c, epsilon):
    for r in range(m):
        p = x + r * c
        mean = F0
        for j in range(c):
            mean += at(F, p + j)
        mean /= np.float32(c)
        var = F0
        for j in range(c):
            d = at(F, p + j) - mean
            var += d * d
        scale = F1 / np.float32(math.sqrt(var / np.float32(c) + epsilon))
        for j in range(c):
            put(F, y + r * c + j, (at(F, p + j) - mean) * scale * at(F, gain + j) + at(F, bias + j))


@kernel(floats="epsilon")
def layer_norm_bwd(F, dx, x, gain, ggain, gbias, dy, m, c, epsilon, wanted, more):
    """`wanted`: whether dx is asked for. With u = (x - mean) / std and v = dy * gain: dx = (v - mean(v) - u * mean(v * u)) / std."""
    size = np.float32(c)
    for r in range(m):
        p = x + r * c
        q = dy + r * c
        mean = F0
        for j in range(c):
            mean += at(F, p + j)
        mean /= size
        var = F0
        for j in range(c):
            d = at(F, p + j) - mean
            var += d * d
        scale = F1 / np.float32(math.sqrt(var / size + epsilon))
        a = F0
        b = F0
        for j in range(c):
            u = (at(F, p + j) - mean) * scale
            g = at(F, q + j)
            put(F, ggain + j, at(F, ggain + j) + g * u)
            put(F, gbias + j, at(F, gbias + j) + g)
            v = g * at(F, gain + j)
            a += v
            b += v * u
        if wanted:
            a /= size
            b /= size
            for j in range(c):
                u = (at(F, p + j) - mean) * scale
                old = at(F, dx + r * c + j) if more else F0
                put(F, dx + r * c + j, old + (at(F, q + j) * at(F, gain + j) - a - u * b) * scale)


@helper
def mix(x):
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014), as in `ampc.ir.draw`."""
    z = plus(x, 0x9E3779B97F4A7C15)
    z = times(z ^ (z >> np.uint64(30)), 0xBF58476D1CE4E5B9)
    z = times(z ^ (z >> np.uint64(27)), 0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@helper
def fold(h, n):
    """One number more into a hash."""
    return mix(h ^ unsigned(n))


@kernel(floats="rate", unsigned="key")
def dropout(F, y, x, key, count, rate, more):
    """y = (y if more) + x * mask / (1 - rate); the mask is a function of `key` alone, so that backward draws the same."""
    keep = F1 / (F1 - rate)
    limit = np.float64(rate) * 16777216.0
    for k in range(count):
        kept = np.float64(signed(mix(key ^ unsigned(k)) >> np.uint64(40))) >= limit
        v = at(F, x + k) * keep if kept else F0
        put(F, y + k, (at(F, y + k) + v) if more else v)


@kernel(returns=types.int64)
def finite(F, x, count):
    """1 if none of the numbers is NaN or infinite. Looks at x - x, which fast-math leaves alone without nnan and ninf."""
    for i in range(count):
        v = at(F, x + i)
        if not (abs(v) <= np.float32(3.4028235e38)):
            return 0
    return 1
