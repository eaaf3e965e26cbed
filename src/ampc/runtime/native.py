"""The few machine-level things that generated kernels and the workers need, compiled or (with `NUMBA_DISABLE_JIT=1`) as plain Python.

The twins have one meaning, so that the very same kernel text and worker loop also run as ordinary Python: for tests of thousands of
schedules without compilation, and for a debugger.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ampc.runtime.settings import ENTRY, F0, F1, F2, FH, JIT, KERNEL, helper

if TYPE_CHECKING or JIT:
    from ampc.runtime.by_address import KERNELS, call_kernel, ensure, enter, kernel, place
    from ampc.runtime.compiled import (
        PROVIDER, add_rows_to, add_to, at, copy, exp, flush_denormals, gemm_half, load, load_acquire, now, pause, plus, pointer, put, put_half,
        put_halves, restore_denormals, save, set_to, signed, store_release, times, unsigned, wide_vectors,
    )  # fmt: skip
    from ampc.runtime.products import gemm
    from ampc.runtime.tiles import WIDE
else:
    from ampc.runtime.plain import (
        KERNELS, PROVIDER, add_rows_to, add_to, at, call_kernel, copy, ensure, enter, exp, flush_denormals, gemm, gemm_half, kernel, load,
        load_acquire, now, pause, place, plus, pointer, put, put_half, put_halves, restore_denormals, save, set_to, signed, store_release, times,
        unsigned, wide_vectors,
    )  # fmt: skip

    WIDE = False

@helper
def sigmoid(x):  # type: ignore[no-untyped-def]
    return F1 / (F1 + exp(-x))


@helper
def tanh(x):  # type: ignore[no-untyped-def]
    # 1 - 2/(e^2x + 1) loses digits near 0; there the odd Taylor polynomial is exact to float32.
    e = F1 - F2 / (exp(F2 * x) + F1)
    s = x * x
    p = x * (F1 + s * (np.float32(-0.33333333) + s * (np.float32(0.13333333) + s * np.float32(-0.053968254))))
    return p if s < np.float32(0.04) else e


@helper
def log(x):  # type: ignore[no-untyped-def]
    return np.float32(math.log(x)) if x > F0 else (np.float32(-np.inf) if x == F0 else np.float32(np.nan))


@helper
def sqrt(x):  # type: ignore[no-untyped-def]
    return np.float32(math.sqrt(x))


@helper
def sin(x):  # type: ignore[no-untyped-def]
    return np.float32(math.sin(x))


@helper
def cos(x):  # type: ignore[no-untyped-def]
    return np.float32(math.cos(x))


@helper
def erf(x):  # type: ignore[no-untyped-def]
    return np.float32(math.erf(x))


@helper
def softplus(x):  # type: ignore[no-untyped-def]
    """log(1 + e^x) without overflow."""
    return max(x, F0) + np.float32(math.log1p(exp(-abs(x))))


@helper
def maximum(a, b):  # type: ignore[no-untyped-def]
    """The larger of two; NaN if the first is."""
    return a if a > b or a != a else b


@helper
def minimum(a, b):  # type: ignore[no-untyped-def]
    return a if a < b or a != a else b


@helper
def power(a, b):  # type: ignore[no-untyped-def]
    return np.float32(math.pow(a, b))


__all__ = [
    "ENTRY", "F0", "F1", "F2", "FH", "JIT", "KERNEL", "KERNELS", "PROVIDER", "WIDE", "add_rows_to", "add_to", "at", "call_kernel", "copy", "cos",
    "ensure", "enter", "erf", "exp", "flush_denormals", "gemm", "gemm_half", "helper", "kernel", "load", "load_acquire", "log", "maximum", "minimum",
    "now", "pause", "place", "plus", "pointer", "power", "put", "put_half", "put_halves", "restore_denormals", "save", "set_to", "sigmoid", "signed",
    "sin", "softplus", "sqrt", "store_release", "tanh", "times", "unsigned", "wide_vectors",
]  # fmt: skip
