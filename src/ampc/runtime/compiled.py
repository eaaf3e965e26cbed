"""The primitives of kernels as machine code: raw memory access, atomics, BLAS, the control word, functions called by address.

`native` chooses between these and their plain twins in `plain`. Nothing here checks bounds: callers own that.
"""

from __future__ import annotations

import platform
import time
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from ampc.runtime import blas, lanes
from ampc.runtime.by_address import kernel
from ampc.runtime.settings import F0, F1, FH, helper

# Fused loops touch more than the default number of pointers for which LLVM inserts overlap checks; without the checks it would not vectorise.
llvm.initialize_native_asmparser()
llvm.set_option("ampc", "-runtime-memory-check-threshold=128")

# Names of the libraries' functions: those that begin with "ampc_" are kernels (`by_address.kernel`).
PROVIDER, _address = blas.choose()
llvm.add_symbol("blas_sgemm", _address)
_vp, _i4, _f4 = types.voidptr, types.int32, types.float32
_gemm_half = types.ExternalFunction("blas_gemm_bf16", types.void(*[_i4] * 6, _f4, _vp, _i4, _vp, _i4, _f4, _vp, _i4))
if (_half := blas.half_address()) is not None:
    llvm.add_symbol("blas_gemm_bf16", _half)


_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, _vp))
FEW = 4 * lanes.LANES
"""Floats up to which a copy is written out."""
_MONOTONIC = np.int32(time.CLOCK_MONOTONIC)


def _element(builder: Any, base: Any, index: Any) -> Any:
    return builder.gep(base, [index], inbounds=True)


@intrinsic
def pointer(typingctx, array):  # type: ignore[no-untyped-def]
    """The data pointer of an array."""
    signature = types.CPointer(array.dtype)(array)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return context.make_array(sig.args[0])(context, builder, args[0]).data

    return signature, codegen


@intrinsic
def wide_vectors(typingctx):  # type: ignore[no-untyped-def]
    """Let LLVM make loops of the function that says so of 512-bit vectors, where the processor has them: it prefers 256 bits."""
    signature = types.void()

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite's own `add` knows no attributes with values
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def at(typingctx, array, index):  # type: ignore[no-untyped-def]
    """`array[index]` without wrap-around, so that LLVM sees an affine address."""
    signature = array.dtype(array, types.intp)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.load(_element(builder, args[0], args[1]))

    return signature, codegen


@intrinsic
def put(typingctx, array, index, value):  # type: ignore[no-untyped-def]
    """`array[index] = value` without wrap-around."""
    signature = types.void(array, types.intp, array.dtype)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        builder.store(args[2], _element(builder, args[0], args[1]))
        return context.get_dummy_value()

    return signature, codegen


def _apart(module: Any, instruction: Any, number: int) -> None:
    """Tell LLVM that an access touches nothing that accesses of other numbers in the same 32 touch, so that it need not test for overlap."""
    made = module.__dict__.setdefault("ampc_scopes", {})
    group, member = divmod(number, 32)
    if group not in made:
        domain = module.add_metadata([ir.MetaDataString(module, f"loop {group}")])
        scopes = [module.add_metadata([ir.MetaDataString(module, f"{k}"), domain]) for k in range(32)]
        lists = [module.add_metadata([s]) for s in scopes]
        others = [module.add_metadata([s for s in scopes if s is not own]) for own in scopes]
        made[group] = list(zip(lists, others, strict=True))
    own, others = made[group][member]
    instruction.set_metadata("alias.scope", own)
    instruction.set_metadata("noalias", others)


@intrinsic(prefer_literal=True)
def load(typingctx, array, index, number):  # type: ignore[no-untyped-def]
    """`array[index]`, of a piece of memory that the loop knows by a constant `number`: see `_apart`."""
    signature = array.dtype(array, types.intp, number)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        value = builder.load(_element(builder, args[0], args[1]))
        _apart(builder.module, value, sig.args[2].literal_value)
        return value

    return signature, codegen


@intrinsic(prefer_literal=True)
def save(typingctx, array, index, value, number):  # type: ignore[no-untyped-def]
    """`array[index] = value`, of a piece of memory that the loop knows by a constant `number`: see `_apart`."""
    signature = types.void(array, types.intp, array.dtype, number)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        _apart(builder.module, builder.store(args[2], _element(builder, args[0], args[1])), sig.args[3].literal_value)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def load_acquire(typingctx, array, index):  # type: ignore[no-untyped-def]
    """Atomic load of int64 `array[index]` with acquire order."""
    signature = types.int64(array, types.intp)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.load_atomic(_element(builder, args[0], args[1]), "acquire", 8, typ=ir.IntType(64))

    return signature, codegen


@intrinsic
def swap_if(typingctx, array, index, old, new):  # type: ignore[no-untyped-def]
    """Whether int64 `array[index]` was `old`; then it is `new`, atomically and before all that follows."""
    signature = types.boolean(array, types.intp, types.int64, types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        found = builder.cmpxchg(_element(builder, args[0], args[1]), args[2], args[3], "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return signature, codegen


@intrinsic
def store_release(typingctx, array, index, value):  # type: ignore[no-untyped-def]
    """Atomic store of an int64 to `array[index]` with release order."""
    signature = types.void(array, types.intp, types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        builder.store_atomic(args[2], _element(builder, args[0], args[1]), "release", 8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy(typingctx, target, to, source, start, count):  # type: ignore[no-untyped-def]
    """memcpy of `count` elements from `source[start:]` to `target[to:]` (same dtype, no overlap)."""
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        size = context.get_abi_sizeof(context.get_value_type(sig.args[0].dtype))
        to, frm, count = _element(builder, args[0], args[1]), _element(builder, args[2], args[3]), args[4]
        if sig.args[0].dtype == types.float32 and lanes.MASKED:  # a call costs more than a few vectors
            with builder.if_else(builder.icmp_signed("<=", count, ir.Constant(count.type, FEW))) as (few, many):
                with few:
                    lanes.copy_few(builder, to, frm, count)
                with many:
                    cgutils.raw_memcpy(builder, to, frm, count, size)
        else:
            cgutils.raw_memcpy(builder, to, frm, count, size)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def address(typingctx, array, index):  # type: ignore[no-untyped-def]
    """The address of `array[index]`."""
    signature = types.voidptr(array, types.intp)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(_element(builder, args[0], args[1]), cgutils.voidptr_t)

    return signature, codegen


def _denormals(builder: Any, module: Any) -> tuple[str, str, Any, int] | None:
    """How to read and write the processor's floating-point control word, and its bits for flushing denormals; None if unknown."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "llvm.x86.sse.stmxcsr", "llvm.x86.sse.ldmxcsr", ir.IntType(32), 0x8040  # flush to zero, denormals are zero
    if machine in ("aarch64", "arm64"):
        return "llvm.aarch64.get.fpcr", "llvm.aarch64.set.fpcr", ir.IntType(64), 1 << 24
    return None


@intrinsic
def flush_denormals(typingctx):  # type: ignore[no-untyped-def]
    """Make this thread treat denormal numbers as 0 (they are many times slower); return the control word as it was."""
    signature = types.int64()

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        found = _denormals(builder, builder.module)
        if found is None:
            return ir.Constant(ir.IntType(64), 0)
        read, write, word, bits = found
        if word.width == 32:
            cell = cgutils.alloca_once(builder, word)
            place = builder.bitcast(cell, cgutils.voidptr_t)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, read), [place])
            old = builder.load(cell)
            builder.store(builder.or_(old, ir.Constant(word, bits)), cell)
            builder.call(cgutils.get_or_insert_function(builder.module, kind, write), [place])
            return builder.zext(old, ir.IntType(64))
        get = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, []), read)
        put_word = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [word]), write)
        old = builder.call(get, [])
        builder.call(put_word, [builder.or_(old, ir.Constant(word, bits))])
        return old

    return signature, codegen


@intrinsic
def restore_denormals(typingctx, old):  # type: ignore[no-untyped-def]
    """Give this thread the control word back that `flush_denormals` returned."""
    signature = types.void(types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        found = _denormals(builder, builder.module)
        if found is not None:
            _, write, word, _ = found
            if word.width == 32:
                cell = cgutils.alloca_once(builder, word)
                builder.store(builder.trunc(args[0], word), cell)
                kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t])
                builder.call(cgutils.get_or_insert_function(builder.module, kind, write), [builder.bitcast(cell, cgutils.voidptr_t)])
            else:
                kind = ir.FunctionType(ir.VoidType(), [word])
                builder.call(cgutils.get_or_insert_function(builder.module, kind, write), [args[0]])
        return context.get_dummy_value()

    return signature, codegen


def _pointer_at(kind: Any) -> Any:
    @intrinsic
    def pointer_at(typingctx, words, index):  # type: ignore[no-untyped-def]
        """The address that `words[index]` holds, as a pointer."""
        signature = types.CPointer(kind)(words, types.intp)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.inttoptr(builder.load(_element(builder, args[0], args[1])), context.get_value_type(sig.return_type))

        return signature, codegen

    return pointer_at


floats_at, words_at, doubles_at = (_pointer_at(kind) for kind in (types.float32, types.int64, types.float64))


@intrinsic
def float_from_bits(typingctx, bits):  # type: ignore[no-untyped-def]
    signature = types.float32(types.int32)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.FloatType())

    return signature, codegen


@intrinsic
def bits_from_float(typingctx, value):  # type: ignore[no-untyped-def]
    signature = types.int32(types.float32)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.bitcast(args[0], ir.IntType(32))

    return signature, codegen


def _as_half(builder: Any, values: Any) -> Any:
    """Vector of float32 -> vector of bf16 as 16-bit words: to the nearest, ties to even; a NaN stays one, what is below the normal numbers is 0."""
    count = values.type.count
    words, shorts = ir.VectorType(ir.IntType(32), count), ir.VectorType(ir.IntType(16), count)
    if count == 16 and config.CPU_NAME is None and llvm.get_host_cpu_features().get("avx512bf16"):
        return builder.asm(ir.FunctionType(shorts, [values.type]), "vcvtneps2bf16 $1, $0", "=v,v", [values], False)

    def all_of(value: int) -> Any:
        return ir.Constant(words, [ir.Constant(ir.IntType(32), value)] * count)

    bits = builder.bitcast(values, words)
    size, upper = builder.and_(bits, all_of(0x7FFFFFFF)), builder.lshr(bits, all_of(16))
    near = builder.lshr(builder.add(builder.add(bits, all_of(0x7FFF)), builder.and_(upper, all_of(1))), all_of(16))
    near = builder.select(builder.icmp_unsigned(">", size, all_of(0x7F800000)), builder.or_(upper, all_of(0x40)), near)
    near = builder.select(builder.icmp_unsigned("<", size, all_of(0x00800000)), builder.and_(upper, all_of(0x8000)), near)
    return builder.trunc(near, shorts)


def _put_half(count: int) -> Any:
    @intrinsic
    def put(typingctx, array, to, start):  # type: ignore[no-untyped-def]
        signature = types.void(array, types.intp, types.intp)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            floats, shorts = ir.VectorType(ir.FloatType(), count), ir.VectorType(ir.IntType(16), count)
            source = builder.bitcast(_element(builder, args[0], args[2]), floats.as_pointer())
            target = builder.gep(builder.bitcast(args[0], ir.IntType(16).as_pointer()), [args[1]], inbounds=True)
            builder.store(_as_half(builder, builder.load(source, align=4)), builder.bitcast(target, shorts.as_pointer()), align=2)
            return context.get_dummy_value()

        return signature, codegen

    return put


put_half, put_halves = _put_half(1), _put_half(16)
"""(F, to, start): store the float32 (the 16) at F[start] as bf16 at 16-bit word `to` of F, rounded as `_as_half` says."""


@intrinsic
def half_address(typingctx, array, index):  # type: ignore[no-untyped-def]
    """The address of number `index` of the 16-bit words that `array` begins with."""
    signature = types.voidptr(array, types.intp)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        return builder.gep(builder.bitcast(args[0], cgutils.voidptr_t), [builder.shl(args[1], ir.Constant(args[1].type, 1))], inbounds=True)

    return signature, codegen


@kernel(floats="alpha beta")
def gemm_half(F, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
    """C = alpha op(A) op(B) + beta C, row-major; C in `F` at offset c, A and B bf16 at 16-bit words a, b; op transposes where ta, tb are 1.

    Products and sums are float32. Only where `blas.half_lacks` finds nothing: MKL's function is called by its address.
    """
    _gemm_half(
        np.int32(101), np.int32(112 if ta else 111), np.int32(112 if tb else 111), np.int32(m), np.int32(n), np.int32(k), alpha,
        half_address(F, a), np.int32(lda), half_address(F, b), np.int32(ldb), beta, address(F, c), np.int32(ldc),
    )  # fmt: skip


@helper
def exp(x):  # type: ignore[no-untyped-def]
    """e**x in float32 within 2 ulp (Cephes' polynomial), written so that LLVM can vectorise it; saturates at 2.4e38."""
    v = min(max(x, np.float32(-87.33)), np.float32(88.37))
    k = np.floor(v * np.float32(1.44269504) + FH)
    r = v - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + F1
    y = p * float_from_bits((np.int32(k) + np.int32(127)) << np.int32(23))
    # Below the smallest normal number the result is 0: denormals would slow down all that is made of it. min and max drop a NaN.
    return y if x >= np.float32(-87.33) else (F0 if x == x else x)


@helper
def times(a, b):  # type: ignore[no-untyped-def]
    """a * b modulo 2**64."""
    return np.uint64(a) * np.uint64(b)


@helper
def signed(a):  # type: ignore[no-untyped-def]
    return np.int64(a)


@helper
def unsigned(a):  # type: ignore[no-untyped-def]
    return np.uint64(a)


@helper
def plus(a, b):  # type: ignore[no-untyped-def]
    """a + b modulo 2**64."""
    return np.uint64(a) + np.uint64(b)


@helper
def pause(turns):  # type: ignore[no-untyped-def]
    """Back off after `turns` idle turns: spin, then yield, then sleep."""
    if turns > 2000:
        _usleep(np.uint32(50))
    elif turns > 100:
        _sched_yield()


@helper
def now(I, scratch):  # type: ignore[no-untyped-def]
    """Nanoseconds of the monotonic clock, that of `time.monotonic_ns`; `I[scratch:scratch + 2]` is the caller's."""
    _clock_gettime(_MONOTONIC, address(I, scratch))
    return at(I, scratch) * 1_000_000_000 + at(I, scratch + 1)


@helper
def add_to(F, y, x, count):  # type: ignore[no-untyped-def]
    """F[y : y + count] += F[x : x + count]"""
    lanes.add_few(F, y, x, count)


@helper
def add_rows_to(F, y, x, m, c):  # type: ignore[no-untyped-def]
    """F[y : y + c] += the sum of the m rows of c from x on"""
    if lanes.MASKED and c <= FEW:
        lanes.add_rows_few(F, y, x, m, c)
    else:
        for r in range(m):
            lanes.add_few(F, y, x + r * c, c)


@helper
def set_to(F, x, count, value):  # type: ignore[no-untyped-def]
    """F[x : x + count] = value"""
    if lanes.MASKED:
        lanes.fill_few(F, x, count, value)
    else:
        for i in range(count):
            put(F, x + i, value)
