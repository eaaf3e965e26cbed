"""Matrix products whose factors are bf16 (`precision = bf16`): twins of the kernels of `rows` that generated text then names in their place.

Sums, results, parameters and gradients stay float32. A layer's parameters are kept as bf16 too, and made anew when it updates itself; other
factors are rounded into the worker's scratch right before a product. A place of bf16 numbers counts the 16-bit words of `F`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from ampc.codegen.layout import G
from ampc.runtime.native import F0, F1, at, gemm_half, kernel, put, put_half, put_halves
from ampc.runtime.rows import add_row_sum, linear, linear_descend, linear_dw, linear_dx, linear_part, repeat_row

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

LEFT, RIGHT, WEIGHTS, MIRROR, MIRRORED, ROUNDED = (g.value for g in (G.LEFT, G.RIGHT, G.WEIGHTS, G.MIRROR, G.MIRRORED, G.ROUNDED))
FEW_ROWS = 16
SMALL = 1 << 20
"""A product of fewer rows or multiplications is made of float32: rounding its factors would cost what it saves."""


def rounded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return x as bf16, as `to_half` rounds: to the nearest, ties to even; a NaN stays one; numbers below the normal ones are 0."""
    bits = x.view(np.uint32)
    size, upper = bits & np.uint32(0x7FFFFFFF), bits >> np.uint32(16)
    near = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    near = np.where(size > 0x7F800000, upper | np.uint32(0x40), near)
    return np.where(size < 0x00800000, upper & np.uint32(0x8000), near).astype(np.uint16)


@kernel()
def to_half(F, h, x, count):
    """h = x, rounded to bf16."""
    whole = count - count % 16
    for i in range(0, whole, 16):
        put_halves(F, h + i, x + i)
    for i in range(whole, count):
        put_half(F, h + i, x + i)


@kernel(returns=types.int64)
def worth(m, k, n):
    """Whether a product of m rows by [k, n] is made of bf16; the same for the three products of a layer."""
    return 1 if m >= FEW_ROWS and m * k * n >= SMALL else 0


@kernel(returns=types.int64)
def half_weights(F, I, args, w, size):
    """Where `size` parameters from w on are as bf16: kept with the layer's, or (older versions of them) rounded now."""
    if w < at(I, args + MIRRORED):
        return at(I, args + MIRROR) + w
    h = at(I, args + WEIGHTS)
    to_half(F, h, w, size)
    return h


@kernel()
def linear_half(F, I, args, y, x, w, b, m, k, n):
    """y = x @ w + b; x [m, k], w [k, n]; b < 0: no bias."""
    if worth(m, k, n) == 0:
        linear(F, I, args, y, x, w, b, m, k, n)
        return
    if b >= 0:
        repeat_row(F, y, b, m, n)
    multiply(F, I, args, y, x, w, m, k, n, 1 if b >= 0 else 0)


@kernel()
def linear_part_half(F, I, args, y, x, w, m, k, n, more):
    """y = (y if more) + x @ w"""
    if worth(m, k, n) == 0:
        linear_part(F, I, args, y, x, w, m, k, n, more)
    else:
        multiply(F, I, args, y, x, w, m, k, n, more)


@kernel()
def multiply(F, I, args, y, x, w, m, k, n, more):
    """y = (y if more) + x @ w, of bf16"""
    a = at(I, args + LEFT)
    to_half(F, a, x, m * k)
    gemm_half(F, 0, 0, m, n, k, F1, a, k, half_weights(F, I, args, w, k * n), n, F1 if more else F0, y, n)


@kernel()
def linear_dx_half(F, I, args, dx, dy, w, m, k, n, more):
    """dx = (dx if more) + dy @ w'. The rounded dy stays for the product that makes the gradient of w: it follows at once, with the same dy."""
    if worth(m, k, n) == 0:
        linear_dx(F, I, args, dx, dy, w, m, k, n, more)
        return
    g = at(I, args + RIGHT)
    to_half(F, g, dy, m * n)
    put(I, args + ROUNDED, dy)
    gemm_half(F, 0, 1, m, k, n, F1, g, n, half_weights(F, I, args, w, k * n), n, F1 if more else F0, dx, k)


@kernel(floats="alpha")
def accumulate(F, I, args, gw, x, dy, m, k, n, alpha):
    """gw += alpha * x' dy, of bf16"""
    a = at(I, args + LEFT)
    g = at(I, args + RIGHT)
    to_half(F, a, x, m * k)
    if at(I, args + ROUNDED) != dy:
        to_half(F, g, dy, m * n)
    put(I, args + ROUNDED, -1)
    gemm_half(F, 1, 0, k, n, m, alpha, a, k, g, n, F1, gw, n)


@kernel()
def linear_dw_half(F, I, args, gw, gb, x, dy, m, k, n):
    """Accumulate the gradients of w and (gb >= 0) b."""
    if worth(m, k, n) == 0:
        linear_dw(F, I, args, gw, gb, x, dy, m, k, n)
        return
    accumulate(F, I, args, gw, x, dy, m, k, n, F1)
    if gb >= 0:
        add_row_sum(F, gb, dy, m, n)


@kernel(floats="rate")
def linear_descend_half(F, I, args, w, gw, gb, x, dy, m, k, n, rate):
    """Take the gradient's step of w at once, w -= rate * x' dy, or (rate 0) accumulate it; that of b is accumulated."""
    if worth(m, k, n) == 0:
        linear_descend(F, I, args, w, gw, gb, x, dy, m, k, n, rate)
        return
    accumulate(F, I, args, w if rate > F0 else gw, x, dy, m, k, n, -rate if rate > F0 else F1)
    if gb >= 0:
        add_row_sum(F, gb, dy, m, n)
