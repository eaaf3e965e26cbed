"""Matrix products by tiles that stay in registers, reading both factors where they lie.

A BLAS copies its factors into an order of its own first. That pays for large products: with some dozens of rows it may take as long as the
product itself. 24 vectors of 16 sums are kept in registers here, so only processors with 32 such
registers take part.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ampc.runtime.lanes import LANES, _float16, _load, _mask, _splat, _store, _vector_pointer

# mypy sees no types here: the arguments are pointers and integers throughout.
# mypy: disable-error-code="no-untyped-def"

WIDE = bool(llvm.get_host_cpu_features().get("avx512f"))
"""Whether there are 32 registers of 16 numbers."""
VECTORS = 3
TILE = VECTORS * LANES


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    f = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_float16, [_float16] * 3), "llvm.fma.v16f32")
    return builder.call(f, [a, b, c])


def _ask_for(builder: Any, pointer: Any) -> None:
    """Have the cache line at an address fetched."""
    flags = [ir.Constant(ir.IntType(32), x) for x in (0, 3, 1)]  # to read, into all caches, data
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, *(x.type for x in flags)])
    f = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    builder.call(f, [builder.bitcast(pointer, cgutils.voidptr_t), *flags])


def tile(rows: int, vectors: int, ahead: int = 0) -> Any:
    """A kernel for `rows` rows and 16 * `vectors` columns of a result; one of a single vector may have fewer columns.

    ahead: the other factor is padded to whole vectors, of which the result's last may have fewer columns, and its row so many ahead is asked for.
    """

    @intrinsic
    def kernel(typingctx, F, y, ldy, a, row, inner, w, ldw, k, count, alpha, more):
        """y[r, j] = (y[r, j] if more) + alpha * sum over p < k of F[a + r * row + p * inner] * F[w + p * ldw + j]; `count`: of the last vector"""
        word = types.intp
        signature = types.void(F, *[word] * 9, types.float32, word)

        def codegen(context, builder, sig, args):
            F, y, ldy, a, row, inner, w, ldw, k, count, alpha, more = args
            kind = y.type
            zero = ir.Constant(_float16, [0.0] * LANES)
            masks = [None] * (vectors - 1) + [_mask(builder, count) if ahead or vectors == 1 else None]

            def load(at: Any, mask: Any) -> Any:
                pointer = _vector_pointer(builder, F, at)
                return builder.load(pointer, align=4) if mask is None else _load(builder, pointer, mask)

            def shifted(base: Any, number: int, step: Any) -> Any:
                return builder.add(base, builder.mul(ir.Constant(kind, number), step))

            sums = [[cgutils.alloca_once(builder, _float16) for _ in range(vectors)] for _ in range(rows)]
            for line in sums:
                for s in line:
                    builder.store(zero, s)
            starts = [shifted(a, r, row) for r in range(rows)]
            with cgutils.for_range(builder, k, intp=kind) as loop:
                base = builder.add(w, builder.mul(loop.index, ldw))
                columns = [load(builder.add(base, ir.Constant(kind, LANES * v)), None if ahead else masks[v]) for v in range(vectors)]
                for v in range(vectors if ahead else 0):
                    later = builder.add(base, builder.mul(ldw, ir.Constant(kind, ahead)))
                    _ask_for(builder, builder.gep(F, [builder.add(later, ir.Constant(kind, LANES * v))]))
                step = builder.mul(loop.index, inner)
                for r in range(rows):
                    factor = _splat(builder, builder.load(builder.gep(F, [builder.add(starts[r], step)], inbounds=True)))
                    for v in range(vectors):
                        builder.store(_fma(builder, factor, columns[v], builder.load(sums[r][v])), sums[r][v])
            scale = _splat(builder, alpha)
            places = [[builder.add(shifted(y, r, ldy), ir.Constant(kind, LANES * v)) for v in range(vectors)] for r in range(rows)]

            def put(at: Any, value: Any, mask: Any) -> None:
                pointer = _vector_pointer(builder, F, at)
                if mask is None:
                    builder.store(value, pointer, align=4)
                else:
                    _store(builder, pointer, mask, value)

            with builder.if_else(builder.icmp_signed("!=", more, ir.Constant(kind, 0))) as (old, new):
                with old:
                    for r in range(rows):
                        for v in range(vectors):
                            put(places[r][v], _fma(builder, scale, builder.load(sums[r][v]), load(places[r][v], masks[v])), masks[v])
                with new:
                    for r in range(rows):
                        for v in range(vectors):
                            put(places[r][v], builder.fmul(scale, builder.load(sums[r][v])), masks[v])
            return context.get_dummy_value()

        return signature, codegen

    return kernel


_wide8, _wide4, _wide2, _wide1 = (tile(r, VECTORS) for r in (8, 4, 2, 1))
_slim8, _slim4, _slim2, _slim1 = (tile(r, 1) for r in (8, 4, 2, 1))


def product_by_tiles(F, m, n, k, alpha, a, row, inner, b, ldb, more, c, ldc):
    """C[m, n] = alpha * A B + (C if more), B [k, n]; A[r, p] is at `a + r * row + p * inner`. 48 columns of B at a time, for all rows."""
    j = 0
    while j + TILE <= n:
        r = 0
        while r + 8 <= m:
            _wide8(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, TILE, alpha, more)
            r += 8
        if m - r >= 4:
            _wide4(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, TILE, alpha, more)
            r += 4
        if m - r >= 2:
            _wide2(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, TILE, alpha, more)
            r += 2
        if m - r >= 1:
            _wide1(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, TILE, alpha, more)
        j += TILE
    while j < n:
        r = 0
        while r + 8 <= m:
            _slim8(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, n - j, alpha, more)
            r += 8
        if m - r >= 4:
            _slim4(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, n - j, alpha, more)
            r += 4
        if m - r >= 2:
            _slim2(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, n - j, alpha, more)
            r += 2
        if m - r >= 1:
            _slim1(F, c + r * ldc + j, ldc, a + r * row, row, inner, b + j, ldb, k, n - j, alpha, more)
        j += LANES


__all__ = ["TILE", "WIDE", "product_by_tiles", "tile"]
