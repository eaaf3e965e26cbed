"""Vectors of 16 float32 lanes of which the first n are used, and products of few columns made with them.

A BLAS is made for wide matrices: below some 16 columns its call, its packing and its idle lanes cost more than the product. Here a row of at most
16 numbers is one masked load, and what lies behind it is neither read nor written. All is compiled code: in plain Python numpy does the same.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from ampc.runtime.settings import F0, F1, helper

# mypy sees no types here: the arguments are pointers and integers throughout.
# mypy: disable-error-code="no-untyped-def"

LANES = 16
_features = llvm.get_host_cpu_features()
MASKED = bool(_features.get("avx512f") or _features.get("avx2"))
"""Whether this processor loads and stores under a mask. Elsewhere that would be branches: products go to the BLAS then, copies to memcpy."""
_float16 = ir.VectorType(ir.FloatType(), LANES)
_mask16 = ir.VectorType(ir.IntType(1), LANES)


class Lanes(types.Type):  # type: ignore[misc]
    """numba's type of a vector of 16 float32."""

    def __init__(self) -> None:
        super().__init__(name="ampc_lanes")


LANES_TYPE = Lanes()


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _float16)


def _mask(builder: Any, count: Any) -> Any:
    """The first `count` lanes."""
    word = count.type
    numbers = ir.Constant(ir.VectorType(word, LANES), [ir.Constant(word, i) for i in range(LANES)])
    return builder.icmp_signed("<", numbers, _splat(builder, count))


def _vector_pointer(builder: Any, base: Any, index: Any) -> Any:
    return builder.bitcast(builder.gep(base, [index], inbounds=True), _float16.as_pointer())


def _load(builder: Any, pointer: Any, mask: Any) -> Any:
    kind = ir.FunctionType(_float16, [pointer.type, ir.IntType(32), _mask16, _float16])
    f = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v16f32.p0v16f32")
    return builder.call(f, [pointer, ir.Constant(ir.IntType(32), 4), mask, ir.Constant(_float16, [0.0] * LANES)])


def _store(builder: Any, pointer: Any, mask: Any, value: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_float16, pointer.type, ir.IntType(32), _mask16])
    f = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.store.v16f32.p0v16f32")
    builder.call(f, [value, pointer, ir.Constant(ir.IntType(32), 4), mask])


@intrinsic
def load_lanes(typingctx, array, index, count):
    """`array[index : index + count]`, zeros behind; all lanes if `count` is 16 or more."""
    signature = LANES_TYPE(array, types.intp, types.intp)

    def codegen(context, builder, sig, args):
        return _load(builder, _vector_pointer(builder, args[0], args[1]), _mask(builder, args[2]))

    return signature, codegen


@intrinsic
def store_lanes(typingctx, array, index, count, value):
    """`array[index : index + count] = value`; nothing behind is touched."""
    signature = types.void(array, types.intp, types.intp, LANES_TYPE)

    def codegen(context, builder, sig, args):
        _store(builder, _vector_pointer(builder, args[0], args[1]), _mask(builder, args[2]), args[3])
        return context.get_dummy_value()

    return signature, codegen


def copy_few(builder: Any, to: Any, frm: Any, count: Any) -> None:
    """Write a copy of `count` floats, by vectors."""
    step = ir.Constant(count.type, LANES)
    with cgutils.for_range_slice(builder, ir.Constant(count.type, 0), count, step, count.type) as (j, _):
        mask = _mask(builder, builder.sub(count, j))
        _store(builder, _vector_pointer(builder, to, j), mask, _load(builder, _vector_pointer(builder, frm, j), mask))


def _splat(builder: Any, value: Any) -> Any:
    """A number in all lanes."""
    nothing = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


@intrinsic
def spread(typingctx, value):
    """A float32 in all lanes."""
    signature = LANES_TYPE(types.float32)

    def codegen(context, builder, sig, args):
        return _splat(builder, args[0])

    return signature, codegen


@intrinsic
def plus_times(typingctx, value, array, index, other):
    """`value + array[index] * other`, in one rounding."""
    signature = LANES_TYPE(LANES_TYPE, array, types.intp, LANES_TYPE)

    def codegen(context, builder, sig, args):
        x = _splat(builder, builder.load(builder.gep(args[1], [args[2]], inbounds=True)))
        f = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_float16, [_float16] * 3), "llvm.fma.v16f32")
        return builder.call(f, [x, args[3], args[0]])

    return signature, codegen


def _arithmetic(name: str) -> Any:
    @intrinsic
    def operation(typingctx, a, b):
        def codegen(context, builder, sig, args):
            return getattr(builder, name)(args[0], args[1])

        return LANES_TYPE(LANES_TYPE, LANES_TYPE), codegen

    return operation


sum_lanes = _arithmetic("fadd")
scale_lanes = _arithmetic("fmul")


@intrinsic
def _block(typingctx):
    """The caller's own INNER x 16 floats, on its stack."""
    signature = types.CPointer(types.float32)()

    def codegen(context, builder, sig, args):
        whole = cgutils.alloca_once(builder, ir.ArrayType(_float16, INNER))
        return builder.bitcast(whole, ir.FloatType().as_pointer())

    return signature, codegen


@intrinsic
def _get(typingctx, array, index):
    def codegen(context, builder, sig, args):
        return builder.load(builder.gep(args[0], [args[1]], inbounds=True))

    return array.dtype(array, types.intp), codegen


@intrinsic
def _set(typingctx, array, index, value):
    def codegen(context, builder, sig, args):
        builder.store(args[2], builder.gep(args[0], [args[1]], inbounds=True))
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), codegen


INNER = 32
"""Longest inner dimension of a product that is computed here; a BLAS is faster above."""


def narrow(F, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Compute a product as `compiled.gemm` means it if its result has few columns; return whether it was done."""
    if n > LANES or (beta != F0 and beta != F1):
        return False
    if ta == 1:
        if tb == 1 or m > LANES:
            return False
        _rows_by_rows(F, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
        return True
    if alpha != F1 or k > INNER:
        return False
    if tb == 1:
        block = _block()
        for p in range(k):
            for j in range(n):
                _set(block, p * LANES + j, _get(F, b + j * ldb + p))
        _rows(F, m, n, k, a, lda, block, 0, LANES, beta, c, ldc)
    else:
        _rows(F, m, n, k, a, lda, F, b, ldb, beta, c, ldc)
    return True


@helper
def _rows(F, m, n, k, a, lda, B, b, ldb, beta, c, ldc):
    """C[m, n] = A[m, k] B[k, n] + beta C, four rows at once.

    What of C is added to is loaded before the rows above it are stored: a load waits for a store whose 16 lanes it overlaps, used or not.
    """
    r = 0
    left = n if beta == F1 else 0
    some = left if m >= 4 else 0
    t0 = load_lanes(F, c, some)
    t1 = load_lanes(F, c + ldc, some)
    t2 = load_lanes(F, c + 2 * ldc, some)
    t3 = load_lanes(F, c + 3 * ldc, some)
    while r + 4 <= m:
        y = c + r * ldc
        x = a + r * lda
        s0, s1, s2, s3 = t0, t1, t2, t3
        some = left if r + 8 <= m else 0
        z = y + 4 * ldc
        t0 = load_lanes(F, z, some)
        t1 = load_lanes(F, z + ldc, some)
        t2 = load_lanes(F, z + 2 * ldc, some)
        t3 = load_lanes(F, z + 3 * ldc, some)
        for p in range(k):
            v = load_lanes(B, b + p * ldb, n)
            s0 = plus_times(s0, F, x + p, v)
            s1 = plus_times(s1, F, x + lda + p, v)
            s2 = plus_times(s2, F, x + 2 * lda + p, v)
            s3 = plus_times(s3, F, x + 3 * lda + p, v)
        store_lanes(F, y, n, s0)
        store_lanes(F, y + ldc, n, s1)
        store_lanes(F, y + 2 * ldc, n, s2)
        store_lanes(F, y + 3 * ldc, n, s3)
        r += 4
    while r < m:
        s0 = load_lanes(F, c + r * ldc, left)
        for p in range(k):
            s0 = plus_times(s0, F, a + r * lda + p, load_lanes(B, b + p * ldb, n))
        store_lanes(F, c + r * ldc, n, s0)
        r += 1


@helper
def _rows_by_rows(F, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """C[m, n] = alpha A' B + beta C with A [k, m] and B [k, n], eight rows of C at once."""
    i = 0
    while i < m:
        last = m - 1 - i  # of the columns of A from i on; a column after it is that one again, and not stored
        x0, x1, x2, x3, x4, x5, x6, x7 = 0, min(1, last), min(2, last), min(3, last), min(4, last), min(5, last), min(6, last), min(7, last)
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(F0)
        x = a + i
        for r in range(k):
            v = load_lanes(F, b + r * ldb, n)
            s0 = plus_times(s0, F, x + x0, v)
            s1 = plus_times(s1, F, x + x1, v)
            s2 = plus_times(s2, F, x + x2, v)
            s3 = plus_times(s3, F, x + x3, v)
            s4 = plus_times(s4, F, x + x4, v)
            s5 = plus_times(s5, F, x + x5, v)
            s6 = plus_times(s6, F, x + x6, v)
            s7 = plus_times(s7, F, x + x7, v)
            x += lda
        y = c + i * ldc
        _add_scaled(F, y, n, s0, alpha, beta)
        if last >= 1:
            _add_scaled(F, y + ldc, n, s1, alpha, beta)
        if last >= 2:
            _add_scaled(F, y + 2 * ldc, n, s2, alpha, beta)
        if last >= 3:
            _add_scaled(F, y + 3 * ldc, n, s3, alpha, beta)
        if last >= 4:
            _add_scaled(F, y + 4 * ldc, n, s4, alpha, beta)
        if last >= 5:
            _add_scaled(F, y + 5 * ldc, n, s5, alpha, beta)
        if last >= 6:
            _add_scaled(F, y + 6 * ldc, n, s6, alpha, beta)
        if last >= 7:
            _add_scaled(F, y + 7 * ldc, n, s7, alpha, beta)
        i += 8


@helper
def _add_scaled(F, y, n, s, alpha, beta):
    old = load_lanes(F, y, n if beta == F1 else 0)
    store_lanes(F, y, n, sum_lanes(old, scale_lanes(s, spread(alpha))))


def _adder(width: int) -> Any:
    @intrinsic
    def add_vector(typingctx, array, y, x):
        def codegen(context, builder, sig, args):
            kind = ir.VectorType(ir.FloatType(), width).as_pointer()
            to = builder.bitcast(builder.gep(args[0], [args[1]], inbounds=True), kind)
            frm = builder.bitcast(builder.gep(args[0], [args[2]], inbounds=True), kind)
            builder.store(builder.fadd(builder.load(to, align=4), builder.load(frm, align=4)), to, align=4)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.intp), codegen

    return add_vector


_add16, _add8, _add4, _add2, _add1 = (_adder(w) for w in (16, 8, 4, 2, 1))


@helper
def add_few(F, y, x, count):
    """y += x, by vectors that fit: under a mask, a load would wait for the store of the row before, whose idle lanes it overlaps."""
    j = 0
    while j + 16 <= count:
        _add16(F, y + j, x + j)
        j += 16
    if count & 8:
        _add8(F, y + j, x + j)
        j += 8
    if count & 4:
        _add4(F, y + j, x + j)
        j += 4
    if count & 2:
        _add2(F, y + j, x + j)
        j += 2
    if count & 1:
        _add1(F, y + j, x + j)


@helper
def add_rows_few(F, y, x, m, c):
    """y[c] += the sum of the m rows of x, kept in registers"""
    j = 0
    while j < c:
        s0 = s1 = s2 = s3 = spread(F0)
        p = x + j
        left = c - j
        r = 0
        while r + 4 <= m:
            s0 = sum_lanes(s0, load_lanes(F, p, left))
            s1 = sum_lanes(s1, load_lanes(F, p + c, left))
            s2 = sum_lanes(s2, load_lanes(F, p + 2 * c, left))
            s3 = sum_lanes(s3, load_lanes(F, p + 3 * c, left))
            p += 4 * c
            r += 4
        while r < m:
            s0 = sum_lanes(s0, load_lanes(F, p, left))
            p += c
            r += 1
        store_lanes(F, y + j, left, sum_lanes(load_lanes(F, y + j, left), sum_lanes(sum_lanes(s0, s1), sum_lanes(s2, s3))))
        j += 16


@helper
def fill_few(F, x, count, value):
    """x = value"""
    v = spread(value)
    for j in range(0, count, LANES):
        store_lanes(F, x + j, count - j, v)
