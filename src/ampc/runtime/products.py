"""Matrix products: which of lanes, tiles and BLAS makes one, and how one thread shares a large one with another.

A helper is a thread that runs `assist`. It makes half of the columns of products that it is offered, if it takes them before the other thread has
finished its own half: neither ever waits for a thread that does not run, but while that has a product in hand. `layout.B` has the words between them.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from ampc.codegen.layout import B
from ampc.codegen.layout import G as Words
from ampc.runtime import lanes, panels, tiles
from ampc.runtime.by_address import kernel
from ampc.runtime.compiled import (
    PROVIDER, bits_from_float, address, at, flush_denormals, load_acquire, pause, put, restore_denormals, store_release, swap_if,
)  # fmt: skip
from ampc.runtime.settings import F0, F1, helper

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

_sgemm = types.ExternalFunction("blas_sgemm", types.void(*[types.voidptr] * 13))
OWN = tiles.WIDE and PROVIDER != "mkl"
"""Whether products by tiles are faster than those of the BLAS. MKL reads small matrices where they lie itself."""
FEW_ROWS = 64
SMALL = 80_000
"""Numbers of a matrix that stays in a core's cache whatever else is done."""


narrow = kernel(floats="alpha beta", returns=types.int64)(lanes.narrow)
product_by_tiles = kernel(floats="alpha")(tiles.product_by_tiles)


@helper
def by_tiles(ta, tb, m, n, k):
    """Whether a product had better be made by tiles than by the BLAS; the bounds are measured."""
    if not OWN or tb == 1 or n < lanes.LANES:
        return False
    return m * n <= SMALL and 16 <= k <= 2 * FEW_ROWS if ta == 1 else m >= 4 and (m <= FEW_ROWS or n * k <= SMALL)


@intrinsic
def _offset(typingctx, pointer, count):
    signature = types.voidptr(types.voidptr, types.intp)

    def codegen(context, builder, sig, args):
        return builder.gep(args[0], [args[1]])

    return signature, codegen


@helper
def product(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """What `gemm` does, by one thread, of more than a few columns."""
    if by_tiles(ta, tb, m, n, k):
        more = 0 if beta == F0 else 1
        product_by_tiles(F, m, n, k, alpha, a, 1 if ta else lda, lda if ta else 1, b, ldb, more, c, ldc)
        return
    # Fortran sees the transposes, so that the row-major product is its C' = B' A'. Its integers are 32 bits: two to a word.
    put(G, args, np.int64(84 if tb else 78) | (np.int64(84 if ta else 78) << 32))
    put(G, args + 1, np.int64(n) | (np.int64(m) << 32))
    put(G, args + 2, np.int64(k) | (np.int64(ldb) << 32))
    put(G, args + 3, np.int64(lda) | (np.int64(ldc) << 32))
    put(G, args + 4, np.int64(bits_from_float(np.float32(alpha))) & 0xFFFFFFFF | (np.int64(bits_from_float(np.float32(beta))) << 32))
    p = address(G, args)
    _sgemm(
        p, _offset(p, 4), _offset(p, 8), _offset(p, 12), _offset(p, 16), _offset(p, 32), address(F, b), _offset(p, 20),
        address(F, a), _offset(p, 24), _offset(p, 36), address(F, c), _offset(p, 28),
    )  # fmt: skip


SHARED_COLUMNS, SHARED_WEIGHTS, SHARED_PRODUCTS = 64, 65_536, 1_000_000
"""From so many columns a thread, and so many weights (their way to a core takes longest) or multiplications on, half of a product is a helper's."""
SHARED_FEW, SHARED_ROW = 500_000, 100_000
"""Multiplications of a product by panels, and of one row with zeros, from which on it is shared: what two cores hand to each other takes its time."""
HELPER, PANELS = Words.HELPER.value, Words.PANELS.value
OFFER, CLAIMED, DONE = B.OFFER.value, B.CLAIMED.value, B.DONE.value


B_M, B_N, B_K, B_A, B_LDA, B_B, B_LDB, B_C, B_LDC, B_MORE, B_HOW = (
    b.value for b in (B.M, B.N, B.K, B.A, B.LDA, B.B, B.LDB, B.C, B.LDC, B.MORE, B.HOW)
)
BY_BLAS, BY_PANELS, BY_ROWS = 0, 1, 2
ARGUMENTS, AWAKE, LEAVE = B.ARGUMENTS.value, B.AWAKE.value, B.LEAVE.value
PATIENCE = 2200
"""Turns without an offer after which a helper leaves: some 10 ms."""


@helper
def offer(G, box, how, m, n, k, a, lda, b, ldb, more, c, ldc):
    """Let a helper see a product, see `B`; return its number."""
    number = at(G, box + OFFER) + 1
    put(G, box + B_M, m)
    put(G, box + B_N, n)
    put(G, box + B_K, k)
    put(G, box + B_A, a)
    put(G, box + B_LDA, lda)
    put(G, box + B_B, b)
    put(G, box + B_LDB, ldb)
    put(G, box + B_C, c)
    put(G, box + B_LDC, ldc)
    put(G, box + B_MORE, more)
    put(G, box + B_HOW, how)
    store_release(G, box + OFFER, number)
    return number


@helper
def left_over(G, box, number):
    """Whether nobody has taken an offer; if somebody has, wait until it is made. A helper may sleep, or have no processor."""
    if swap_if(G, box + CLAIMED, number - 1, number):
        return True
    while load_acquire(G, box + DONE) != number:
        pass
    return False


@helper
def row_product(F, G, box, n, count, a, listed, b, ldb, more, c):
    """The product of one row with zeros, see `panels.by_rows`."""
    if box == 0 or n < 2 * SHARED_COLUMNS or n * count < SHARED_ROW:
        panels.by_rows(F, G, n, count, a, listed, b, ldb, more, c)
        return
    own = (n // 2 + 15) // 16 * 16
    number = offer(G, box, BY_ROWS, 1, n - own, count, a, listed, b + own, ldb, more, c + own, n)
    panels.by_rows(F, G, own, count, a, listed, b, ldb, more, c)
    if left_over(G, box, number):
        panels.by_rows(F, G, n - own, count, a, listed, b + own, ldb, more, c + own)


@helper
def panel_product(F, G, box, m, n, k, a, lda, place, height, first, more, c, ldc):
    """The product of a few rows, see `panels.by_panels`."""
    if box == 0 or n <= tiles.TILE or (n * k < SHARED_WEIGHTS and m * n * k < SHARED_FEW):
        panels.by_panels(F, m, n, k, a, lda, place, height, first, more, c, ldc)
        return
    others = (n + tiles.TILE - 1) // tiles.TILE // 2 * tiles.TILE
    place_own = place + others * height
    number = offer(G, box, BY_PANELS, m, others, k, a, lda, place, height | (first << 32), more, c, ldc)
    panels.by_panels(F, m, n - others, k, a, lda, place_own, height, first, more, c + others, ldc)
    if left_over(G, box, number):
        panels.by_panels(F, m, others, k, a, lda, place, height, first, more, c, ldc)


@kernel(returns=types.int64)
def few(F, G, args, table, m, n, k, a, lda, b, ldb, more, c, ldc):
    """Make C[m, n] = A[m, k] B[k, n] + (C if more) if B lies in panels; return whether it was done."""
    record = panels.find(G, table, b)
    if record == 0 or at(G, record + panels.COLS) != n or ldb != n:
        return False
    box = at(G, args + HELPER)
    if m == 1 and at(G, record + panels.FINITE):
        listed = at(G, table + 1)
        count = panels.nonzeros(F, G, listed, a, k)
        if count < panels.DENSE * k:
            row_product(F, G, box, n, count, a, listed, b, ldb, more, c)
            return True
    first = (b - at(G, record + panels.BEGIN)) // n
    panel_product(F, G, box, m, n, k, a, lda, at(G, record + panels.PLACE), at(G, record + panels.ROWS), first, more, c, ldc)
    return True


@kernel(floats="alpha beta")
def gemm(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C = alpha op(A) op(B) + beta C, row-major, all in `F` at offsets a, b, c; op transposes where ta, tb are 1.

    op(A): [m, k]; op(B): [k, n]; C: [m, n]; beta is 0 or 1. `G[args:args + 5]` (int64) is the caller's scratch for the Fortran arguments.
    Half of a large product may be made by another thread, see `layout.B`.
    """
    if lanes.MASKED and narrow(F, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        return
    table = at(G, args + PANELS)
    if table != 0 and m <= panels.MOST_ROWS and ta == 0 and tb == 0 and alpha == F1 and beta * (beta - F1) == F0:
        if few(F, G, args, table, m, n, k, a, lda, b, ldb, 0 if beta == F0 else 1, c, ldc):
            return
    box = at(G, args + HELPER)
    if box != 0 and ta == 0 and tb == 0 and alpha == F1 and n >= 2 * SHARED_COLUMNS and (n * k >= SHARED_WEIGHTS or m * n * k >= SHARED_PRODUCTS):
        own = (n // 2 + 15) // 16 * 16
        number = offer(G, box, BY_BLAS, m, n - own, k, a, lda, b + own, ldb, 0 if beta == F0 else 1, c + own, ldc)
        product(F, G, args, ta, tb, m, own, k, alpha, a, lda, b, ldb, beta, c, ldc)
        if left_over(G, box, number):
            product(F, G, args, ta, tb, m, n - own, k, alpha, a, lda, b + own, ldb, beta, c + own, ldc)
        return
    product(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)


@helper
def made_for(F, G, box):
    """Make the product of an offer."""
    m, n, k, a, lda = at(G, box + B_M), at(G, box + B_N), at(G, box + B_K), at(G, box + B_A), at(G, box + B_LDA)
    b, ldb, c, ldc, more = at(G, box + B_B), at(G, box + B_LDB), at(G, box + B_C), at(G, box + B_LDC), at(G, box + B_MORE)
    how = at(G, box + B_HOW)
    if how == BY_PANELS:
        panels.by_panels(F, m, n, k, a, lda, b, ldb & 0xFFFFFFFF, ldb >> 32, more, c, ldc)
    elif how == BY_ROWS:
        panels.by_rows(F, G, n, k, a, lda, b, ldb, more, c)
    else:
        product(F, G, box + ARGUMENTS, 0, 0, m, n, k, F1, a, lda, b, ldb, F1 if more else F0, c, ldc)


@kernel(returns=types.int64)
def assist(F, G, box):
    """Make the products that another thread offers, until it tells to leave or nothing has come for a while; return how many."""
    control = flush_denormals()
    made = 0
    idle = 0
    while idle < PATIENCE and load_acquire(G, box + LEAVE) == 0:
        number = load_acquire(G, box + OFFER)
        if at(G, box + CLAIMED) < number and swap_if(G, box + CLAIMED, number - 1, number):
            made_for(F, G, box)
            store_release(G, box + DONE, number)
            made += 1
            idle = 0
        else:
            idle += 1
            pause(idle)
    store_release(G, box + AWAKE, 0)
    restore_denormals(control)
    return made


__all__ = ["assist", "gemm"]
