"""Row kernels over groups of rows: segments (group i is rows `I[s + i] : I[s + i + 1]`), scatters by index, families.

Memory and arguments as in `rows`.
"""

from __future__ import annotations

import numpy as np

from ampc.runtime.native import F0, F1, add_to, at, copy, exp, kernel, put
from ampc.runtime.rows import add_row_sum, scatter_add, store, zero

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@kernel()
def sort_rows(I, rows, starts, pair, kinds, m, k):
    """Stable counting sort of m rows by kinds in 0..k-1: kind j has places starts[j] to starts[j + 1]; -1 has none.

    rows[p] is the row at place p, pair[r] the place of row r or -1. `starts`: 2 k + 2 words.
    """
    for j in range(2 * k + 2):
        put(I, starts + j, 0)
    for r in range(m):
        e = at(I, kinds + r)
        if e >= 0:
            put(I, starts + e + 1, at(I, starts + e + 1) + 1)
    for j in range(k):
        put(I, starts + j + 1, at(I, starts + j + 1) + at(I, starts + j))
        put(I, starts + k + 1 + j, at(I, starts + j))
    for r in range(m):
        e = at(I, kinds + r)
        p = -1
        if e >= 0:
            p = at(I, starts + k + 1 + e)
            put(I, starts + k + 1 + e, p + 1)
            put(I, rows + p, r)
        put(I, pair + r, p)


@kernel()
def compose(I, rows, ids, m):
    """rows[p] = ids[rows[p]]"""
    for p in range(m):
        put(I, rows + p, at(I, ids + at(I, rows + p)))


@kernel()
def distinct_rows(I, rows, starts, pair, kinds, ids, m, n, k, table):
    """Number the distinct pairs of a kind (0..k-1) and a row (`ids`, 0..n-1 or -1) among m elements, kind by kind.

    rows[p] is the row of pair p, kind j has the pairs from starts[j] to starts[j + 1], pair[r] is that of element r, -1 if it has no kind.
    `table`: k (n + 1) words to work with.
    """
    width = n + 1
    for j in range(k * width):
        put(I, table + j, -1)
    for r in range(m):
        e = at(I, kinds + r)
        if e >= 0:
            put(I, table + e * width + 1 + at(I, ids + r), 0)
    p = 0
    for e in range(k):
        put(I, starts + e, p)
        for j in range(width):
            if at(I, table + e * width + j) == 0:
                put(I, table + e * width + j, p)
                put(I, rows + p, j - 1)
                p += 1
    put(I, starts + k, p)
    for r in range(m):
        e = at(I, kinds + r)
        put(I, pair + r, at(I, table + e * width + 1 + at(I, ids + r)) if e >= 0 else -1)


@kernel()
def add_rows(F, I, y, to, x, frm, m, c):
    """y[to[r]] += x[frm[r]] for each of m; -1 on either side is left out."""
    for r in range(m):
        a = at(I, to + r)
        b = at(I, frm + r)
        if a >= 0 and b >= 0:
            add_to(F, y + a * c, x + b * c, c)


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
