"""Products of a few rows by weights that don't change: those of a predictor, which wait for memory and for calls more than for arithmetic.

The weights lie a second time, in panels (see `packing`): what a tile of registers reads of them is one stretch of memory. A single row that is zero
in many places, as what a relu gives or the pixels of a drawn digit, is multiplied by the weights' rows as they lie: those that meet a zero are not
read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ampc.codegen.layout import W
from ampc.runtime import tiles
from ampc.runtime.by_address import kernel
from ampc.runtime.compiled import at, bits_from_float, load, put, save, wide_vectors
from ampc.runtime.packing import HEADER, RECORD, TILE
from ampc.runtime.settings import F0, F1, helper

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

MOST_ROWS = 24
"""Up to so many rows products are made here; the bound is measured."""
HIGH = 9
"""Rows of a tile: 9 * 3 sums, 3 numbers of the panel and a factor are 31 of 32 registers."""
BEGIN, END, COLS, PLACE, ROWS, FINITE = (w.value for w in W)
DENSE = 0.65
"""Share of numbers that are not zero above which a row is multiplied by panels; the bound is measured."""


def _of_any_height(vectors: int) -> Any:
    """Return what makes a tile of `rows` rows and 16 * `vectors` columns, of which the last 16 may be fewer."""
    t1, t2, t3, t4, t5, t6, t7, t8, t9 = (tiles.tile(rows, vectors, ahead=8) for rows in range(1, HIGH + 1))
    width = 16 * vectors

    @helper
    def tile(F, rows, c, ldc, a, lda, w, k, count, more):
        if rows == 9:
            t9(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 8:
            t8(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 7:
            t7(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 6:
            t6(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 5:
            t5(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 4:
            t4(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 3:
            t3(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        elif rows == 2:
            t2(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)
        else:
            t1(F, c, ldc, a, lda, 1, w, width, k, count, F1, more)

    return tile


_one, _two, _three = (_of_any_height(vectors) for vectors in (1, 2, 3))


@kernel()
def by_panels(F, m, n, k, a, lda, place, height, first, more, c, ldc):
    """C[m, n] = A[m, k] P + (C if more), with the columns of P in panels of `height` rows from `place` on, of which k rows count from `first` on."""
    blocks = (m + HIGH - 1) // HIGH
    r = 0
    for block in range(blocks):
        rows = (m - r + blocks - block - 1) // (blocks - block)
        y = c + r * ldc
        x = a + r * lda
        for j in range(0, n, TILE):
            left = n - j
            w = place + j * height
            if left > 32:
                _three(F, rows, y + j, ldc, x, lda, w + first * 48, k, left - 32, more)
            elif left > 16:
                _two(F, rows, y + j, ldc, x, lda, w + first * 32, k, left - 16, more)
            else:
                _one(F, rows, y + j, ldc, x, lda, w + first * 16, k, left, more)
        r += rows


@helper
def nonzeros(F, G, place, x, k):
    """List the places of x, [k], that are not zero, from G[place] on; return how many there are."""
    count = 0
    for p in range(k):
        put(G, place + count, p)
        count += 1 if bits_from_float(at(F, x + p)) & np.int32(0x7FFFFFFF) != 0 else 0  # floats would mind NaN: twice as long
    return count


@kernel()
def by_rows(F, G, n, count, a, place, b, ldb, more, c):
    """C[n] = the sum of the `count` rows of B listed from G[place] on, each times its number of A, + (C if more). Four rows at once."""
    wide_vectors()
    if more == 0:
        for j in range(n):
            save(F, c + j, F0, 4)
    i = 0
    while i + 4 <= count:
        p0, p1, p2, p3 = at(G, place + i), at(G, place + i + 1), at(G, place + i + 2), at(G, place + i + 3)
        x0, x1, x2, x3 = at(F, a + p0), at(F, a + p1), at(F, a + p2), at(F, a + p3)
        b0, b1, b2, b3 = b + p0 * ldb, b + p1 * ldb, b + p2 * ldb, b + p3 * ldb
        for j in range(n):
            s = load(F, c + j, 4) + x0 * load(F, b0 + j, 0) + x1 * load(F, b1 + j, 1)
            save(F, c + j, s + x2 * load(F, b2 + j, 2) + x3 * load(F, b3 + j, 3), 4)
        i += 4
    while i < count:
        p = at(G, place + i)
        v = at(F, a + p)
        for j in range(n):
            save(F, c + j, load(F, c + j, 4) + v * load(F, b + p * ldb + j, 0), 4)
        i += 1


@kernel(returns=types.int64)
def find(G, table, b):
    """The record of the matrix in which the parameter at F[b] is, or 0."""
    record = table + HEADER
    for _ in range(at(G, table)):
        if at(G, record + BEGIN) <= b < at(G, record + END):
            return record
        record += RECORD
    return 0


__all__ = ["COLS", "DENSE", "FINITE", "MOST_ROWS", "PLACE", "ROWS", "by_panels", "by_rows", "find", "nonzeros"]
