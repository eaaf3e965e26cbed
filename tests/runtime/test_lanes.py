"""Products of few columns and short copies by vectors under a mask: the same numbers as numpy's, and nothing behind them touched."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ampc.codegen.layout import G

pytestmark = pytest.mark.compiled

GUARD = 7.0


@pytest.fixture(scope="module")
def calls() -> dict[str, Any]:
    from numba import njit

    from ampc.runtime import native

    native.ensure("gemm")
    gemm, pointer, copy, add_to, add_rows_to, set_to = native.gemm, native.pointer, native.copy, native.add_to, native.add_rows_to, native.set_to
    one, zero = np.float32(1), np.float32(0)

    @njit(error_model="numpy")
    def product(F, I, ta, tb, m, n, k, alpha, a, b, beta, c):  # type: ignore[no-untyped-def]  # noqa: E741
        gemm(pointer(F), pointer(I), 0, ta, tb, m, n, k, alpha, a, m if ta else k, b, k if tb else n, one if beta else zero, c, n)

    @njit(error_model="numpy")
    def copied(F, to, frm, count):  # type: ignore[no-untyped-def]
        copy(pointer(F), to, pointer(F), frm, count)

    @njit(error_model="numpy")
    def added(F, to, frm, count):  # type: ignore[no-untyped-def]
        add_to(pointer(F), to, frm, count)

    @njit(error_model="numpy")
    def summed(F, to, frm, m, count):  # type: ignore[no-untyped-def]
        add_rows_to(pointer(F), to, frm, m, count)

    @njit(error_model="numpy")
    def filled(F, to, count, value):  # type: ignore[no-untyped-def]
        set_to(pointer(F), to, count, value)

    return {"product": product, "copied": copied, "added": added, "summed": summed, "filled": filled}


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0)])
def test_products(calls: dict[str, Any], ta: int, tb: int) -> None:
    """All sides of the limits at which a BLAS takes over: 16 columns, inner dimension 32, 16 rows of a gradient."""
    rng = np.random.default_rng(0)
    sizes = [(m, n, k) for m, n, k in itertools.product((1, 3, 4, 5, 9, 16, 17), (1, 5, 15, 16, 17), (1, 2, 7, 32, 33))]
    # Of products by tiles of 8, 4, 2 and 1 rows by 48 and up to 16 columns, too.
    sizes += [(m, n, k) for m, n, k in itertools.product((4, 13, 15, 64, 65), (16, 48, 100), (16, 40, 128))]
    for (m, n, k), beta, alpha in itertools.product(sizes, (0, 1), (1.0, -0.25)):
        x, y, z = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
        a = np.ascontiguousarray(x.T) if ta else x
        b = np.ascontiguousarray(y.T) if tb else y
        F = np.concatenate([a.ravel(), b.ravel(), z.ravel(), np.full(64, GUARD, np.float32)])
        c = a.size + b.size
        calls["product"](F, np.zeros(G.END, np.int64), ta, tb, m, n, k, np.float32(alpha), 0, a.size, beta, c)
        wanted = alpha * (x.astype(np.float64) @ y) + beta * z
        np.testing.assert_allclose(F[c : c + m * n].reshape(m, n), wanted, rtol=2e-5, atol=2e-5, err_msg=f"{m, n, k, alpha, beta}")
        assert np.array_equal(F[: a.size], a.ravel()) and (F[c + m * n :] == GUARD).all()


def test_short_rows(calls: dict[str, Any]) -> None:
    for count in (*range(36), 63, 64, 65, 130):
        F = np.arange(600, dtype=np.float32)
        for name, wanted in (("copied", F[300 : 300 + count]), ("added", F[7 : 7 + count] + F[300 : 300 + count]), ("filled", np.full(count, 2.5))):
            G = F.copy()
            calls[name](G, 7, *((count, np.float32(2.5)) if name == "filled" else (300, count)))
            expected = F.copy()
            expected[7 : 7 + count] = wanted
            assert np.array_equal(G, expected), (name, count)
        if 0 < count < 40:
            for m in (0, 1, 3, 4, 7):
                G = F.copy()
                calls["summed"](G, 7, 100, m, count)
                expected = F.copy()
                expected[7 : 7 + count] += F[100 : 100 + m * count].reshape(m, count).sum(axis=0)
                assert np.array_equal(G, expected), (m, count)
