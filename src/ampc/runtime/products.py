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
from ampc.runtime import lanes, tiles
from ampc.runtime.by_address import kernel
from ampc.runtime.compiled import (
    PROVIDER, _bits_from_float, address, at, flush_denormals, load_acquire, pause, put, restore_denormals, store_release, swap_if,
)  # fmt: skip
from ampc.runtime.settings import F0, F1, helper

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

_sgemm = types.ExternalFunction("ampc_sgemm", types.void(*[types.voidptr] * 13))
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
    put(G, args + 4, np.int64(_bits_from_float(np.float32(alpha))) & 0xFFFFFFFF | (np.int64(_bits_from_float(np.float32(beta))) << 32))
    p = address(G, args)
    _sgemm(
        p, _offset(p, 4), _offset(p, 8), _offset(p, 12), _offset(p, 16), _offset(p, 32), address(F, b), _offset(p, 20),
        address(F, a), _offset(p, 24), _offset(p, 36), address(F, c), _offset(p, 28),
    )  # fmt: skip


SHARED_COLUMNS, SHARED_WEIGHTS, SHARED_PRODUCTS = 64, 65_536, 1_000_000
"""From so many columns a thread, and so many weights (their way to a core takes longest) or multiplications on, half of a product is a helper's."""
HELPER = Words.HELPER.value
OFFER, CLAIMED, DONE = B.OFFER.value, B.CLAIMED.value, B.DONE.value


B_M, B_N, B_K, B_A, B_LDA, B_B, B_LDB, B_C, B_LDC, B_MORE = (b.value for b in (B.M, B.N, B.K, B.A, B.LDA, B.B, B.LDB, B.C, B.LDC, B.MORE))
ARGUMENTS, AWAKE, LEAVE = B.ARGUMENTS.value, B.AWAKE.value, B.LEAVE.value
PATIENCE = 2200
"""Turns without an offer after which a helper leaves: some 10 ms."""


@helper
def offer(G, box, number, m, n, k, a, lda, b, ldb, more, c, ldc):
    """Let a helper see a product."""
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
    store_release(G, box + OFFER, number)


@kernel(floats="alpha beta")
def gemm(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C = alpha op(A) op(B) + beta C, row-major, all in `F` at offsets a, b, c; op transposes where ta, tb are 1.

    op(A): [m, k]; op(B): [k, n]; C: [m, n]; beta is 0 or 1. `G[args:args + 5]` (int64) is the caller's scratch for the Fortran arguments.
    Half of a large product may be made by another thread, see `layout.B`.
    """
    if lanes.MASKED and narrow(F, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        return
    box = at(G, args + HELPER)
    if box != 0 and ta == 0 and tb == 0 and alpha == F1 and n >= 2 * SHARED_COLUMNS and (n * k >= SHARED_WEIGHTS or m * n * k >= SHARED_PRODUCTS):
        own = (n // 2 + 15) // 16 * 16
        number = at(G, box + OFFER) + 1
        offer(G, box, number, m, n - own, k, a, lda, b + own, ldb, 0 if beta == F0 else 1, c + own, ldc)
        product(F, G, args, ta, tb, m, own, k, alpha, a, lda, b, ldb, beta, c, ldc)
        if swap_if(G, box + CLAIMED, number - 1, number):  # the helper sleeps, or has no processor
            product(F, G, args, ta, tb, m, n - own, k, alpha, a, lda, b + own, ldb, beta, c + own, ldc)
        else:
            while load_acquire(G, box + DONE) != number:
                pass
        return
    product(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)


@kernel(returns=types.int64)
def assist(F, G, box):
    """Make the products that another thread offers, until it tells to leave or nothing has come for a while; return how many."""
    control = flush_denormals()
    made = 0
    idle = 0
    while idle < PATIENCE and load_acquire(G, box + LEAVE) == 0:
        number = load_acquire(G, box + OFFER)
        if at(G, box + CLAIMED) < number and swap_if(G, box + CLAIMED, number - 1, number):
            more = F1 if at(G, box + B_MORE) else F0
            n = at(G, box + B_N)
            product(
                F, G, box + ARGUMENTS, 0, 0, at(G, box + B_M), n, at(G, box + B_K), F1, at(G, box + B_A), at(G, box + B_LDA), at(G, box + B_B),
                at(G, box + B_LDB), more, at(G, box + B_C), at(G, box + B_LDC),
            )  # fmt: skip
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
