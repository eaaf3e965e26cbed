"""Which BLAS multiplies matrices: MKL if it is installed and not refused (`AMPC_BLAS=openblas`), else the OpenBLAS of scipy's wheel.

Products of bf16 factors (`precision = bf16`) are MKL's alone, and only where the processor has instructions for them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from pathlib import Path

from ampc.diagnostics import error

HALF_FLAGS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512"}
"""Flags of a processor with products of bf16, the faster first -> the instructions' name."""


def _openblas_address() -> int:
    """Address of the sgemm that scipy's wheel brings. The extension is loaded by itself: importing all of scipy.linalg takes half a second."""
    import importlib.machinery
    import importlib.util

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


@functools.cache
def _mkl() -> ctypes.CDLL | None:
    """MKL if the optional `mkl` package is installed, else None."""
    for root in (sys.prefix, sys.base_prefix):
        for path in sorted(Path(root, "lib").glob("libmkl_rt.so*")):
            os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                return None
    return None


def _address(name: str) -> int | None:
    """Address of a function of MKL; None without MKL, or where it is refused or has no such function."""
    library = None if _refused() else _mkl()
    try:
        return None if library is None else ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None


def _refused() -> bool:
    return os.environ.get("AMPC_BLAS", "") == "openblas"


def choose() -> tuple[str, int]:
    """Return (name, address of its Fortran sgemm)."""
    return provider(), _address("sgemm_") or _openblas_address()


def provider() -> str:
    """Return the name of the BLAS that multiplies matrices."""
    return "mkl" if _address("sgemm_") else "scipy-openblas"


# ------------------------------------------------------------------------------------------ products of bf16


def half_address() -> int | None:
    """Address of MKL's C function for products of bf16 factors, or None."""
    return _address("cblas_gemm_bf16bf16f32")


def half_lacks() -> tuple[str, str] | None:
    """Return (why products of bf16 can't be made here, what would help), or None if they can."""
    from ampc.runtime.settings import JIT  # here, so that `ampc doctor` need not import numba for the rest

    if not half_instructions():
        return "this processor has neither AMX-BF16 nor AVX512-BF16 instructions", "run it on one that has, such as a Xeon of the 4th generation"
    if not JIT:
        return "kernels run as plain Python", "unset NUMBA_DISABLE_JIT"
    if _refused():
        return "`AMPC_BLAS=openblas` refuses MKL, which alone has these products", "unset AMPC_BLAS"
    if _mkl() is None:
        return "MKL is not installed, which alone has these products", "install it: `pip install 'ampc[mkl]'`"
    if half_address() is None:
        return "this MKL is too old for products of bf16", "upgrade it: `pip install --upgrade 'ampc[mkl]'`"
    return None


def half_instructions() -> str:
    """The instructions that this processor has for products of bf16, "" for none. MKL asks the system for AMX by itself."""
    return next((name for flag, name in HALF_FLAGS.items() if flag in _processor_flags()), "")


@functools.cache
def _processor_flags() -> frozenset[str]:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), []))


def require(precision: str) -> None:
    """Raise AMP734 (exit 4) if matrix products can't be made in `precision` here."""
    lacks = half_lacks() if precision == "bf16" else None
    if lacks is not None:
        raise error("AMP734", f"`precision` is `bf16`, but {lacks[0]}", help=f"{lacks[1]}, or leave `precision` at `fp32`", exit_code=4)


def one_thread_per_call() -> None:
    """Tell every loaded BLAS to use one thread a call: the workers are the parallelism."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
