"""The few machine-level things that generated kernels and the workers need: raw array access, atomics, BLAS, vectorisable maths.

Each has a plain Python twin of the same meaning, used when numba's JIT is disabled (`NUMBA_DISABLE_JIT=1`), so that the very same
kernel text and worker loop run as ordinary Python. Nothing here checks bounds: callers own that.
"""

from __future__ import annotations

import math
import os
import platform
import time
from typing import Any

import numpy as np
from numba import config, njit, types

from ampc.runtime import cache

JIT = not config.DISABLE_JIT
config.CACHE_DIR = str(cache.folder())

# `nnan` and `ninf` stay out: they would let LLVM drop tests for NaN and infinity.
FASTMATH = {"contract", "afn", "arcp", "nsz", "reassoc"}
ENTRY: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": FASTMATH}
"""Options of what Python calls, or what is passed on as a function."""
KERNEL: dict[str, Any] = {**ENTRY, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Options of what only compiled code calls. Such functions take bare pointers in place of arrays: far less for LLVM to carry around."""

F0, F1, F2, FH = np.float32(0), np.float32(1), np.float32(2), np.float32(0.5)

PROVIDER = "numpy"


def _openblas_address() -> int:
    """Address of the sgemm that scipy's wheel brings. The extension is loaded by itself: importing all of scipy.linalg takes half a second."""
    import ctypes
    import importlib.machinery
    import importlib.util
    from pathlib import Path

    scipy = importlib.util.find_spec("scipy")
    assert scipy is not None and scipy.origin is not None, "scipy is a dependency"
    name = "scipy.linalg.cython_blas"
    file = next((Path(scipy.origin).parent / "linalg").glob("cython_blas*.so"))
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    capsule = module.__pyx_capi__["sgemm"]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


def _mkl_address() -> int | None:
    """Address of MKL's sgemm if the optional `mkl` package is installed, else None."""
    import ctypes
    import sys
    from pathlib import Path

    for root in (sys.prefix, sys.base_prefix):
        for path in sorted(Path(root, "lib").glob("libmkl_rt.so*")):
            os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
            try:
                return ctypes.cast(ctypes.CDLL(str(path)).sgemm_, ctypes.c_void_p).value
            except (OSError, AttributeError):
                return None
    return None


def one_thread_per_call() -> None:
    """Tell every loaded BLAS to use one thread a call: the workers are the parallelism."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


if JIT:
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba.core import cgutils
    from numba.extending import intrinsic

    # Fused loops touch more than the default number of pointers for which LLVM inserts overlap checks; without the checks it would not vectorise.
    llvm.set_option("ampc", "-runtime-memory-check-threshold=128")

    def _choose_blas() -> tuple[str, int]:
        wanted = os.environ.get("AMPC_BLAS", "")
        address = None if wanted == "openblas" else _mkl_address()
        return ("mkl", address) if address else ("scipy-openblas", _openblas_address())

    PROVIDER, _address = _choose_blas()
    llvm.add_symbol("ampc_sgemm", _address)
    _vp = types.voidptr
    _sgemm = types.ExternalFunction("ampc_sgemm", types.void(*[_vp] * 13))
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())
    _usleep = types.ExternalFunction("usleep", types.int32(types.uint32))

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

    @intrinsic
    def load_acquire(typingctx, array, index):  # type: ignore[no-untyped-def]
        """Atomic load of int64 `array[index]` with acquire order."""
        signature = types.int64(array, types.intp)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.load_atomic(_element(builder, args[0], args[1]), "acquire", 8, typ=ir.IntType(64))

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
            cgutils.raw_memcpy(
                builder, _element(builder, args[0], args[1]), _element(builder, args[2], args[3]), args[4], size
            )
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

    @intrinsic
    def _float_from_bits(typingctx, bits):  # type: ignore[no-untyped-def]
        signature = types.float32(types.int32)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(args[0], ir.FloatType())

        return signature, codegen

    @intrinsic
    def _bits_from_float(typingctx, value):  # type: ignore[no-untyped-def]
        signature = types.int32(types.float32)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.bitcast(args[0], ir.IntType(32))

        return signature, codegen

    class Kernel:
        """A function that is compiled once, kept, and called by its address: callers are neither inlined into nor compiled again with it."""

        def __init__(self, function: Any, symbol: Any) -> None:
            self.function, self.symbol = function, symbol
            self.dispatcher: Any = None

    KERNELS: dict[str, Kernel] = {}
    _POINTERS = {"F": types.float32, "XF": types.float32, "O": types.float32, "I": types.int64, "XI": types.int64, "G": types.int64, "D": types.float64}

    def kernel(floats: str = "", doubles: str = "", unsigned: str = "", returns: Any = types.void) -> Any:
        """Make a function one that others call by address. Its types follow from names: memory, `floats`, `doubles`, `unsigned`, else int64."""
        special = {**dict.fromkeys(floats.split(), types.float32), **dict.fromkeys(doubles.split(), types.float64), **dict.fromkeys(unsigned.split(), types.uint64)}

        def wrap(function: Any) -> Any:
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            arguments = [types.CPointer(_POINTERS[n]) if n in _POINTERS else special.get(n, types.int64) for n in names]
            symbol = types.ExternalFunction(f"ampc_{function.__name__}", returns(*arguments))
            KERNELS[function.__name__] = Kernel(function, symbol)
            return symbol

        return wrap

    def ensure(names: Any) -> None:
        """Compile (or load from the cache) the kernels `names` and those that they call, and tell LLVM their addresses."""
        for name in names:
            entry = KERNELS.get(name)
            if entry is None or entry.dispatcher is not None:
                continue
            entry.dispatcher = ()  # a kernel may call itself
            ensure(entry.function.__code__.co_names)
            entry.dispatcher = _publish(entry.function, entry.symbol)

    def _publish(function: Any, symbol: Any) -> Any:
        """Compile a function and tell LLVM its address under the symbol's name; return what keeps the code alive."""
        dispatcher = njit(symbol.sig, **{**ENTRY, "no_cpython_wrapper": True})(function)
        compiled = dispatcher.overloads[tuple(symbol.sig.args)]
        llvm.add_symbol(symbol.symbol, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))
        return dispatcher

    _f, _i, _d = types.CPointer(types.float32), types.CPointer(types.int64), types.CPointer(types.float64)
    FIRING = types.void(_f, _i, _d, _f, _i, _f, types.int64, types.int64)
    FIRE = types.void(*FIRING.args, types.int64)
    _alive: list[Any] = []

    def firing(function: Any) -> Any:
        """Make a generated function of a segment one that `fire` calls by address."""
        symbol = types.ExternalFunction(f"{function.__module__}_{function.__name__}", FIRING)
        _alive.append(_publish(function, symbol))
        return symbol

    def dispatch(function: Any) -> Any:
        """Compile a generated `fire`."""
        return njit(FIRE, **ENTRY)(function)

    @kernel(floats="alpha beta")
    def gemm(F, G, args, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # type: ignore[no-untyped-def]
        """C = alpha op(A) op(B) + beta C, row-major, all in `F` at offsets a, b, c; op transposes where ta, tb are 1.

        op(A): [m, k]; op(B): [k, n]; C: [m, n]. `G[args:args + 4]` (int64) is the caller's scratch for the Fortran arguments.
        """
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

    @intrinsic
    def _offset(typingctx, pointer, count):  # type: ignore[no-untyped-def]
        signature = types.voidptr(types.voidptr, types.intp)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.gep(args[0], [args[1]])

        return signature, codegen

    @njit(**KERNEL)
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
        y = p * _float_from_bits((np.int32(k) + np.int32(127)) << np.int32(23))
        # Below the smallest normal number the result is 0: denormals would slow down all that is made of it. min and max drop a NaN.
        return y if x >= np.float32(-87.33) else (F0 if x == x else x)

    @njit(**KERNEL)
    def times(a, b):  # type: ignore[no-untyped-def]
        """a * b modulo 2**64."""
        return np.uint64(a) * np.uint64(b)

    @njit(**KERNEL)
    def signed(a):  # type: ignore[no-untyped-def]
        return np.int64(a)

    @njit(**KERNEL)
    def unsigned(a):  # type: ignore[no-untyped-def]
        return np.uint64(a)

    @njit(**KERNEL)
    def plus(a, b):  # type: ignore[no-untyped-def]
        """a + b modulo 2**64."""
        return np.uint64(a) + np.uint64(b)

    @njit(**KERNEL)
    def pause(turns):  # type: ignore[no-untyped-def]
        """Back off after `turns` idle turns: spin, then yield, then sleep."""
        if turns > 2000:
            _usleep(np.uint32(50))
        elif turns > 100:
            _sched_yield()

else:
    FIRE: Any = None

    def flush_denormals() -> int:
        return 0

    def restore_denormals(old: int) -> None:
        pass

    def kernel(**types: Any) -> Any:
        return lambda function: function

    def ensure(names: Any) -> None:
        pass

    def firing(function: Any) -> Any:
        return function

    def dispatch(function: Any) -> Any:
        return function

    def pointer(array: Any) -> Any:
        return array

    def at(array: Any, index: Any) -> Any:
        return array[index]

    def put(array: Any, index: Any, value: Any) -> None:
        array[index] = value

    def load_acquire(array: Any, index: Any) -> Any:
        return array[index]

    def store_release(array: Any, index: Any, value: Any) -> None:
        array[index] = value

    def copy(target: Any, to: Any, source: Any, start: Any, count: Any) -> None:
        target[to : to + count] = source[start : start + count]

    def gemm(F: Any, G: Any, args: Any, ta: Any, tb: Any, m: Any, n: Any, k: Any, alpha: Any, a: Any, lda: Any, b: Any, ldb: Any, beta: Any, c: Any, ldc: Any) -> None:
        def view(start: int, rows: int, columns: int, stride: int) -> Any:
            return np.lib.stride_tricks.as_strided(F[start:], (rows, columns), (4 * stride, 4))

        x = view(a, k, m, lda).T if ta else view(a, m, k, lda)
        y = view(b, n, k, ldb).T if tb else view(b, k, n, ldb)
        z = view(c, m, n, ldc)
        product = np.float32(alpha) * (x @ y)
        z[...] = product if beta == 0 else product + np.float32(beta) * z

    def exp(x: Any) -> Any:
        return np.float32(x if x != x else 0.0 if x < -87.33 else math.exp(min(float(x), 88.37)))

    def times(a: Any, b: Any) -> Any:
        return np.uint64(int(a) * int(b) & (1 << 64) - 1)

    def signed(a: Any) -> Any:
        return np.uint64(a).astype(np.int64)

    def unsigned(a: Any) -> Any:
        return np.uint64(int(a) & (1 << 64) - 1)

    def plus(a: Any, b: Any) -> Any:
        return np.uint64(int(a) + int(b) & (1 << 64) - 1)

    def pause(turns: int) -> None:
        if turns > 100:
            time.sleep(0)


@njit(**KERNEL)
def sigmoid(x):  # type: ignore[no-untyped-def]
    return F1 / (F1 + exp(-x))


@njit(**KERNEL)
def tanh(x):  # type: ignore[no-untyped-def]
    # 1 - 2/(e^2x + 1) loses digits near 0; there the odd Taylor polynomial is exact to float32.
    e = F1 - F2 / (exp(F2 * x) + F1)
    s = x * x
    p = x * (F1 + s * (np.float32(-0.33333333) + s * (np.float32(0.13333333) + s * np.float32(-0.053968254))))
    return p if s < np.float32(0.04) else e


@njit(**KERNEL)
def log(x):  # type: ignore[no-untyped-def]
    return np.float32(math.log(x)) if x > F0 else (np.float32(-np.inf) if x == F0 else np.float32(np.nan))


@njit(**KERNEL)
def sqrt(x):  # type: ignore[no-untyped-def]
    return np.float32(math.sqrt(x))


@njit(**KERNEL)
def erf(x):  # type: ignore[no-untyped-def]
    return np.float32(math.erf(x))


@njit(**KERNEL)
def softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + e^x) without overflow."""
    return max(x, F0) + np.float32(math.log1p(exp(-abs(x))))


@njit(**KERNEL)
def maximum(a, b):  # type: ignore[no-untyped-def]
    """The larger of two; NaN if the first is."""
    return a if a > b or a != a else b


@njit(**KERNEL)
def minimum(a, b):  # type: ignore[no-untyped-def]
    return a if a < b or a != a else b


@njit(**KERNEL)
def power(a, b):  # type: ignore[no-untyped-def]
    return np.float32(math.pow(a, b))
