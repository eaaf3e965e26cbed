"""The few machine-level things that generated kernels and the workers need, compiled or (with `NUMBA_DISABLE_JIT=1`) as plain Python.

The twins have one meaning, so that the very same kernel text and worker loop also run as ordinary Python: for tests of thousands of
schedules without compilation, and for a debugger.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from ampc.runtime.settings import ENTRY, F0, F1, F2, FH, JIT, KERNEL

if TYPE_CHECKING or JIT:
    from ampc.runtime.compiled import (
        FIRE, KERNELS, PROVIDER, add_rows_to, add_to, at, copy, dispatch, ensure, exp, firing, flush_denormals, gemm, gemm_half, kernel, load,
        load_acquire, now, pause, plus, pointer, put, put_half, put_halves, restore_denormals, save, set_to, signed, store_release, times, unsigned,
    )  # fmt: skip
else:
    from ampc.runtime.plain import (
        FIRE, KERNELS, PROVIDER, add_rows_to, add_to, at, copy, dispatch, ensure, exp, firing, flush_denormals, gemm, gemm_half, kernel, load,
        load_acquire, now, pause, plus, pointer, put, put_half, put_halves, restore_denormals, save, set_to, signed, store_release, times, unsigned,
    )  # fmt: skip

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
def sin(x):  # type: ignore[no-untyped-def]
    return np.float32(math.sin(x))


@njit(**KERNEL)
def cos(x):  # type: ignore[no-untyped-def]
    return np.float32(math.cos(x))


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


__all__ = [
    "ENTRY", "F0", "F1", "F2", "FH", "FIRE", "JIT", "KERNEL", "KERNELS", "PROVIDER", "add_rows_to", "add_to", "at", "copy", "cos", "dispatch",
    "ensure", "erf", "exp", "firing", "flush_denormals", "gemm", "gemm_half", "kernel", "load", "load_acquire", "log", "maximum", "minimum", "now",
    "pause", "plus", "pointer", "power", "put", "put_half", "put_halves", "restore_denormals", "save", "set_to", "sigmoid", "signed", "sin",
    "softplus", "sqrt", "store_release", "tanh", "times", "unsigned",
]  # fmt: skip
