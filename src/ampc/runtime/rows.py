"""Row kernels: what generated code calls for operations that are more than an element-wise loop.

All operands are blocks of `F` (float32) given by their offset, row-major [m, c]; integers per row are in `I` at an offset. A `_bwd` adds
to its gradient outputs if `add` is 1 and writes them otherwise. Segments of rows: group i is rows `I[s + i] : I[s + i + 1]`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types

from ampc.runtime.native import F0, F1, KERNEL, at, copy, exp, gemm, kernel, plus, put, signed, times, unsigned

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@kernel()
def zero(F, x, count):
    for i in range(count):
        put(F, x + i, F0)


@kernel(floats="value")
def fill(F, x, count, value):
    for i in range(count):
        put(F, x + i, value)


@kernel()
def add(F, y, x, count):
    """y += x"""
    for i in range(count):
        put(F, y + i, at(F, y + i) + at(F, x + i))


@kernel()
def store(F, y, x, count, more):
    """y = x, or y += x if `more`."""
    if more:
        add(F, y, x, count)
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
    for r in range(m):
        p = x + r * c
        for j in range(c):
            put(F, y + j, at(F, y + j) + at(F, p + j))


@kernel()
def put_columns(F, y, yc, start, x, xc, first, m, c):
    """y[:, start:start+c] = x[:, first:first+c]; yc and xc are the widths of y and x."""
    for r in range(m):
        copy(F, y + r * yc + start, F, x + r * xc + first, c)


@kernel()
def add_columns(F, y, yc, start, x, xc, first, m, c):
    """y[:, start:start+c] += x[:, first:first+c]"""
    for r in range(m):
        a = y + r * yc + start
        b = x + r * xc + first
        for j in range(c):
            put(F, a + j, at(F, a + j) + at(F, b + j))


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


# ------------------------------------------------------------------------------------------- rows and segments


@kernel()
def lookup(F, I, y, table, ids, m, c):
    """y[r] = table[ids[r]]; zeros for -1."""
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            copy(F, y + r * c, F, table + e * c, c)
        else:
            zero(F, y + r * c, c)


@kernel()
def scatter_add(F, I, table, ids, x, m, c):
    """table[ids[r]] += x[r]; -1 goes nowhere."""
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            add(F, table + e * c, x + r * c, c)


@kernel()
def unpack(F, I, y, x, order, m, c):
    """y[order[r]] = x[r]"""
    for r in range(m):
        copy(F, y + at(I, order + r) * c, F, x + r * c, c)


@kernel()
def sort_rows(I, order, starts, ids, m, k):
    """Stable counting sort of rows by ids in 0..k-1: member j has `order[starts[j]:starts[j+1]]`; -1 comes last, after `starts[k]`."""
    for j in range(2 * k + 2):
        put(I, starts + j, 0)
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            put(I, starts + e + 1, at(I, starts + e + 1) + 1)
    for j in range(k):
        put(I, starts + j + 1, at(I, starts + j + 1) + at(I, starts + j))
        put(I, starts + k + 1 + j, at(I, starts + j))
    put(I, starts + 2 * k + 1, at(I, starts + k))
    for r in range(m):
        e = at(I, ids + r)
        e = e if e >= 0 else k
        p = at(I, starts + k + 1 + e)
        put(I, order + p, r)
        put(I, starts + k + 1 + e, p + 1)


@kernel()
def scatter_sum(F, I, y, x, ids, m, n, c):
    """y[n, c] = for each row the sum of the rows of x that `ids` sends there. Long sums are kept in float64 where there is one column."""
    if c == 1:
        # A star of many edges: float32 alone would lose the small ones. The second pass adds what rounding left over (Kahan, per row).
        zero(F, y, n)
        _scatter_column(F, I, y, x, ids, m, n)
        return
    zero(F, y, n * c)
    scatter_add(F, I, y, ids, x, m, c)


@kernel()
def _scatter_column(F, I, y, x, ids, m, n):
    r = 0
    while r < m:
        e = at(I, ids + r)
        total = 0.0
        while r < m and at(I, ids + r) == e:
            total += np.float64(at(F, x + r))
            r += 1
        if e >= 0:
            put(F, y + e, np.float32(np.float64(at(F, y + e)) + total))


@kernel()
def count_rows(I, counts, ids, m, n):
    """counts[e] = how many of the m rows `ids` sends to e, for each of n."""
    for e in range(n):
        put(I, counts + e, 0)
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            put(I, counts + e, at(I, counts + e) + 1)


@kernel()
def scatter_mean(F, I, y, x, ids, m, n, c, counts):
    """`counts`: n words in I to work with."""
    scatter_sum(F, I, y, x, ids, m, n, c)
    count_rows(I, counts, ids, m, n)
    for e in range(n):
        if at(I, counts + e) > 1:
            scale = F1 / np.float32(at(I, counts + e))
            for j in range(c):
                put(F, y + e * c + j, at(F, y + e * c + j) * scale)


@kernel()
def scatter_max(F, I, y, x, ids, m, n, c, seen):
    """`seen`: n words in I to work with."""
    zero(F, y, n * c)
    for e in range(n):
        put(I, seen + e, 0)
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            first = at(I, seen + e) == 0
            put(I, seen + e, 1)
            for j in range(c):
                v = at(F, x + r * c + j)
                if first or v > at(F, y + e * c + j):
                    put(F, y + e * c + j, v)


@kernel()
def scatter_sum_bwd(F, I, dx, x, y, dy, ids, m, n, c, more):
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            store(F, dx + r * c, dy + e * c, c, more)
        elif not more:
            zero(F, dx + r * c, c)


@kernel()
def scatter_mean_bwd(F, I, dx, x, y, dy, ids, m, n, c, more, counts):
    count_rows(I, counts, ids, m, n)
    for r in range(m):
        e = at(I, ids + r)
        if e >= 0:
            scale = F1 / np.float32(at(I, counts + e))
            for j in range(c):
                old = at(F, dx + r * c + j) if more else F0
                put(F, dx + r * c + j, old + at(F, dy + e * c + j) * scale)
        elif not more:
            zero(F, dx + r * c, c)


@kernel()
def scatter_max_bwd(F, I, dx, x, y, dy, ids, m, n, c, more, done):
    """To the first of equal rows, column by column. `done`: n words in I to work with: the columns that have been given."""
    if not more:
        zero(F, dx, m * c)
    for e in range(n):
        put(I, done + e, 0)
    for j in range(c):
        for r in range(m):
            e = at(I, ids + r)
            if e >= 0 and at(I, done + e) == j and at(F, x + r * c + j) == at(F, y + e * c + j):
                put(F, dx + r * c + j, at(F, dx + r * c + j) + at(F, dy + e * c + j))
                put(I, done + e, j + 1)
        for e in range(n):
            put(I, done + e, j + 1)


@kernel()
def touch(I, marks, ids, m):
    """Note the rows of a sparse table that got a gradient: `I[marks]` counts them, then the list, then a flag a row (see `optimizer`)."""
    room = at(I, marks + 1)
    for r in range(m):
        row = at(I, ids + r)
        if at(I, marks + 2 + room + row) == 0:
            put(I, marks + 2 + room + row, 1)
            n = at(I, marks)
            put(I, marks + 2 + n, row)
            put(I, marks, n + 1)


@kernel()
def one_hot(F, I, y, ids, m, c):
    zero(F, y, m * c)
    for r in range(m):
        put(F, y + r * c + at(I, ids + r), F1)


@kernel()
def numbers(F, I, y, ids, m):
    for r in range(m):
        put(F, y + r, np.float32(at(I, ids + r)))


@kernel()
def expand(F, I, y, x, s, n, c):
    """Row i of x to each row of segment i of y."""
    for i in range(n):
        for r in range(at(I, s + i), at(I, s + i + 1)):
            copy(F, y + r * c, F, x + i * c, c)


@kernel()
def reduce_sum(F, I, y, x, s, n, c, more):
    """y[i] = (y[i] if more) + sum of segment i, in pairs of partial sums of 128 rows, so that long sums keep their digits."""
    for i in range(n):
        if not more:
            zero(F, y + i * c, c)
        _sum_rows(F, y + i * c, x + at(I, s + i) * c, at(I, s + i + 1) - at(I, s + i), c)


@kernel()
def _sum_rows(F, y, x, m, c):
    if m <= 128:
        add_row_sum(F, y, x, m, c)
        return
    for j in range(c):
        total = 0.0
        for r in range(m):
            total += np.float64(at(F, x + r * c + j))
        put(F, y + j, np.float32(at(F, y + j) + total))


@kernel()
def reduce_mean(F, I, y, x, s, n, c):
    reduce_sum(F, I, y, x, s, n, c, 0)
    for i in range(n):
        m = at(I, s + i + 1) - at(I, s + i)
        if m > 0:
            scale = F1 / np.float32(m)
            for j in range(c):
                put(F, y + i * c + j, at(F, y + i * c + j) * scale)


@kernel()
def reduce_max(F, I, y, x, s, n, c):
    for i in range(n):
        first = at(I, s + i)
        last = at(I, s + i + 1)
        for j in range(c):
            best = at(F, x + first * c + j) if last > first else F0
            for r in range(first + 1, last):
                v = at(F, x + r * c + j)
                best = v if v > best else best
            put(F, y + i * c + j, best)


@kernel()
def spread_mean(F, I, dx, dy, s, n, c, more):
    """Backward of reduce_mean."""
    for i in range(n):
        m = at(I, s + i + 1) - at(I, s + i)
        if m > 0:
            scale = F1 / np.float32(m)
            for r in range(at(I, s + i), at(I, s + i + 1)):
                for j in range(c):
                    old = at(F, dx + r * c + j) if more else F0
                    put(F, dx + r * c + j, old + at(F, dy + i * c + j) * scale)


@kernel()
def spread_sum(F, I, dx, dy, s, n, c, more):
    """Backward of reduce_sum."""
    for i in range(n):
        for r in range(at(I, s + i), at(I, s + i + 1)):
            store(F, dx + r * c, dy + i * c, c, more)


@kernel()
def spread_max(F, I, dx, x, dy, s, n, c, more):
    """Backward of reduce_max: to the first of equal rows."""
    for i in range(n):
        first = at(I, s + i)
        last = at(I, s + i + 1)
        if not more:
            zero(F, dx + first * c, (last - first) * c)
        for j in range(c):
            best = first
            for r in range(first + 1, last):
                if at(F, x + r * c + j) > at(F, x + best * c + j):
                    best = r
            if last > first:
                put(F, dx + best * c + j, at(F, dx + best * c + j) + at(F, dy + i * c + j))


@kernel()
def softmax_segments(F, I, y, x, s, n, c):
    for i in range(n):
        first = at(I, s + i)
        last = at(I, s + i + 1)
        for j in range(c):
            if last > first:
                top = at(F, x + first * c + j)
                for r in range(first + 1, last):
                    v = at(F, x + r * c + j)
                    top = v if v > top else top
                total = F0
                for r in range(first, last):
                    e = exp(at(F, x + r * c + j) - top)
                    put(F, y + r * c + j, e)
                    total += e
                for r in range(first, last):
                    put(F, y + r * c + j, at(F, y + r * c + j) / total)


@kernel()
def softmax_segments_bwd(F, I, dx, y, dy, s, n, c, more):
    for i in range(n):
        first = at(I, s + i)
        last = at(I, s + i + 1)
        for j in range(c):
            dot = F0
            for r in range(first, last):
                dot += at(F, y + r * c + j) * at(F, dy + r * c + j)
            for r in range(first, last):
                p = r * c + j
                old = at(F, dx + p) if more else F0
                put(F, dx + p, old + at(F, y + p) * (at(F, dy + p) - dot))


# ------------------------------------------------------------------------------------------------- columns


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


# ---------------------------------------------------------------------------------------------- parameters


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
    for r in range(m):
        store(F, y + r * n, b, n, more)


@kernel()
def linear_dx(F, I, args, dx, dy, w, m, k, n, more):
    if m > 0:
        gemm(F, I, args, 0, 1, m, k, n, F1, dy, n, w, n, F1 if more else F0, dx, k)


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


# ------------------------------------------------------------------------------------------------- dropout


@njit(**KERNEL)
def mix(x):
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014), as in `ampc.ir.draw`."""
    z = plus(x, 0x9E3779B97F4A7C15)
    z = times(z ^ (z >> np.uint64(30)), 0xBF58476D1CE4E5B9)
    z = times(z ^ (z >> np.uint64(27)), 0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(**KERNEL)
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


# ------------------------------------------------------------------------------------------ losses, metrics


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


# Targets that are NaN (none) are left out of everything below.


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


@kernel(returns=types.int64)
def finite(F, x, count):
    """1 if none of the numbers is NaN or infinite. Looks at x - x, which fast-math leaves alone without nnan and ninf."""
    for i in range(count):
        v = at(F, x + i)
        if not (abs(v) <= np.float32(3.4028235e38)):
            return 0
    return 1
