"""The two products that carry a gradient through a Linear, for large matrices and few rows.

dx = dy w' reads the weights across their order: a transposed copy of them, made when they have changed, is read along it. dw = x' dy reads and writes
a whole matrix to add what a few rows give: they are kept, until there are enough of them or the layer updates itself.
"""

from __future__ import annotations

from numba import types

from ampc.codegen.layout import KEEP as _KEEP
from ampc.codegen.layout import KEEP_ROWS as _KEEP_ROWS
from ampc.codegen.layout import LAYER as _LAYER
from ampc.codegen.layout import H, K, L
from ampc.runtime.native import F0, F1, at, gemm, kernel, put, turned_pays
from ampc.runtime.rows import linear_dw

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

WORK0, WORK_STRIDE, CAP, LAYER0, KEEPS, KEEP0 = (h.value for h in (H.WORK0, H.WORK_STRIDE, H.CAP, H.LAYER0, H.KEEPS, H.KEEP0))
KEPT_X, KEPT_DY, KEPT_ROWS, KEPT_INNER, KEPT_COLS, KEPT_GRAD, KEPT_LAYER = (
    k.value for k in (K.X, K.DY, K.ROWS, K.INNER, K.COLS, K.GRAD, K.LAYER)
)
OWNER, VERSION, PARAM, TURNED, TURNED_VERSION, TURNED_ROWS, TURNED_BEFORE, TURNED_SEEN = (
    x.value for x in (L.OWNER, L.VERSION, L.PARAM, L.TURNED, L.TURNED_VERSION, L.TURNED_ROWS, L.TURNED_BEFORE, L.TURNED_SEEN)
)
LAYER, KEEP, KEEP_ROWS = _LAYER, _KEEP, _KEEP_ROWS
BLOCK = 16
WORTH_TURNING = 64
"""Rows that went back through the last version of the weights, from which those of a new one are transposed (that costs as much as about 20)."""


@kernel()
def linear_dx(F, I, args, dx, dy, w, layer, start, inner, m, k, n, more):
    """dx = (dx if more) + dy w', w [k, n]: rows `start` and on of the `inner` rows of a layer's weights; layer: -1 if they may not be turned."""
    if m == 0:
        return
    beta = F1 if more else F0
    turned = turn(F, I, layer, inner, n, m) if layer >= 0 and turned_pays(m, k, n) else -1
    if turned >= 0:
        gemm(F, I, args, 0, 0, m, k, n, F1, dy, n, turned + start, inner, beta, dx, k)
    else:
        gemm(F, I, args, 0, 1, m, k, n, F1, dy, n, w, n, beta, dx, k)


@kernel(returns=types.int64)
def turn(F, I, layer, k, n, m):
    """Where a layer's weights [k, n] lie transposed, for m rows; made anew if the layer has updated itself. -1: too few rows use a version."""
    record = I[LAYER0] + layer * LAYER
    to = at(I, record + TURNED)
    version = at(I, record + VERSION)
    if at(I, record + TURNED_SEEN) != version:
        put(I, record + TURNED_BEFORE, at(I, record + TURNED_ROWS))
        put(I, record + TURNED_ROWS, 0)
        put(I, record + TURNED_SEEN, version)
    put(I, record + TURNED_ROWS, at(I, record + TURNED_ROWS) + m)
    if at(I, record + TURNED_VERSION) != version:
        if at(I, record + TURNED_BEFORE) < WORTH_TURNING and at(I, record + TURNED_ROWS) <= WORTH_TURNING:
            return -1
        w = at(I, record + PARAM)
        for i0 in range(0, k, BLOCK):
            for j in range(n):
                for i in range(i0, min(i0 + BLOCK, k)):
                    put(F, to + j * k + i, at(F, w + i * n + j))
        put(I, record + TURNED_VERSION, version)
    return to


@kernel(returns=types.int64)
def keep_rows(F, I, args, record, m):
    """Return the first of m rows that a Linear may keep; -1 if they are so many that they had better be multiplied now."""
    if 4 * m > KEEP_ROWS:
        return -1
    if at(I, record + KEPT_ROWS) + m > KEEP_ROWS:
        multiply_kept(F, I, args, record)
    first = at(I, record + KEPT_ROWS)
    put(I, record + KEPT_ROWS, first + m)
    return first


@kernel()
def multiply_kept(F, I, args, record):
    """Add the gradient of the rows that a Linear keeps to its accumulator."""
    inner = at(I, record + KEPT_INNER)
    cols = at(I, record + KEPT_COLS)
    rows = at(I, record + KEPT_ROWS)
    linear_dw(F, I, args, at(I, record + KEPT_GRAD), -1, at(I, record + KEPT_X), at(I, record + KEPT_DY), rows, inner, cols)
    put(I, record + KEPT_ROWS, 0)


@kernel()
def release_kept(F, I, layer):
    """Multiply the rows that are kept for a layer (-1: for all)."""
    for k in range(I[KEEPS]):
        record = I[KEEP0] + k * KEEP
        owner = at(I, record + KEPT_LAYER)
        if at(I, record + KEPT_ROWS) > 0 and (layer < 0 or layer == owner):
            multiply_kept(F, I, I[WORK0] + at(I, I[LAYER0] + owner * LAYER + OWNER) * I[WORK_STRIDE] + 4 * I[CAP], record)
