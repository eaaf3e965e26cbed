"""The loops that are timed: the same BLAS, functions and atomics as the engine's kernels, called from machine code without the GIL.

Each repeats its work inside, so that the call itself does not count.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from ampc.codegen.layout import G as Words
from ampc.runtime.native import (
    ENTRY, F0, F1, JIT, at, ensure, flush_denormals, gemm, gemm_half, load_acquire, pause, pointer, put, restore_denormals, sigmoid, store_release,
    tanh,
)  # fmt: skip
from ampc.runtime.saving import compiled

from ampc.runtime.half import to_half

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

_F, _I, _n = types.float32[::1], types.int64[::1], types.int64


def _compiled(*arguments: Any) -> Any:
    def wrap(function: Any) -> Any:
        made = compiled(ENTRY)(function)
        if JIT:
            ensure(made)
            made.compile(arguments)
        return made

    return wrap


def scratch() -> npt.NDArray[np.int64]:
    """Return what a product is called with beside its numbers: a worker's words, whose `HELPER` says that no other thread shares in it."""
    return np.zeros(Words.END, np.int64)


@_compiled(_F, _I, _n, _n, _n, _n)
def products(F, G, rows, k, n, repeats):
    """The three products of a layer of k x n weights over `rows` rows: y = x w, dx = y w', dw += x' y.

    F: x [rows, k], w [k, n], y [rows, n], dx [rows, k], dw [k, n], one behind the other; G: `scratch()`.
    """
    control = flush_denormals()
    f, g = pointer(F), pointer(G)
    w = rows * k
    y = w + k * n
    dx = y + rows * n
    dw = dx + rows * k
    for _ in range(repeats):
        gemm(f, g, 0, 0, 0, rows, n, k, F1, 0, k, w, n, F0, y, n)
        gemm(f, g, 0, 0, 1, rows, k, n, F1, y, n, w, n, F0, dx, k)
        gemm(f, g, 0, 1, 0, k, n, rows, F1, 0, k, y, n, F1, dw, n)
    restore_denormals(control)


def _products_half(F, G, rows, k, n, repeats):
    """The same with bf16 factors, as `runtime.half` makes them: weights are rounded already, rows and gradients before each product.

    F: as above, then as 16-bit words x [rows, k], w [k, n] and the gradients [rows, n].
    """
    control = flush_denormals()
    f = pointer(F)
    w = rows * k
    y = w + k * n
    dx = y + rows * n
    dw = dx + rows * k
    x_half = 2 * (dw + k * n)
    w_half = x_half + rows * k
    y_half = w_half + k * n
    for _ in range(repeats):
        to_half(f, x_half, 0, rows * k)
        gemm_half(f, 0, 0, rows, n, k, F1, x_half, k, w_half, n, F0, y, n)
        to_half(f, y_half, y, rows * n)
        gemm_half(f, 0, 1, rows, k, n, F1, y_half, n, w_half, n, F0, dx, k)
        to_half(f, x_half, 0, rows * k)
        gemm_half(f, 1, 0, k, n, rows, F1, x_half, k, y_half, n, F1, dw, n)
    restore_denormals(control)


@functools.cache
def products_half() -> Callable[..., None]:
    """Return the compiled loop. Only where `blas.half_lacks` finds nothing: the products' address is MKL's."""
    ensure("gemm_half", "to_half")
    found: Callable[..., None] = _compiled(_F, _I, _n, _n, _n, _n)(_products_half)
    return found


@_compiled(_F, _n, _n)
def elementwise(F, n, repeats):
    """A gate of a recurrent cell: F[n + i] = sigmoid(F[i]) tanh(F[i])."""
    control = flush_denormals()
    f = pointer(F)
    for r in range(repeats):
        put(f, r % n, F1)  # so that the rounds differ and none is left out
        for i in range(n):
            put(f, n + i, sigmoid(at(f, i)) * tanh(at(f, i)))
    restore_denormals(control)


@_compiled(_F, _n, _n)
def stream(F, n, repeats):
    """F[n + i] = F[i] + 1: reads n numbers and writes n."""
    f = pointer(F)
    for r in range(repeats):
        put(f, r % n, F1)
        for i in range(n):
            put(f, n + i, at(f, i) + F1)


@_compiled(_F, _I, _n, _n, _n, _n)
def exchange(F, G, side, n, first, rounds):
    """Two threads take turns: side 0 writes F[:n], side 1 reads them. G[0] counts the turns; `first` is the round that it stands at."""
    f, flag = pointer(F), pointer(G)
    total = F0
    for r in range(first, first + rounds):
        idle = 0
        while load_acquire(flag, 0) != 2 * r + side:
            idle += 1
            pause(idle)
        if side == 0:
            for i in range(n):
                put(f, i, np.float32(r))
        else:
            for i in range(n):
                total += at(f, i)
            put(f, n, total)
        store_release(flag, 0, 2 * r + side + 1)


__all__ = ["elementwise", "exchange", "products", "products_half", "scratch", "stream"]
