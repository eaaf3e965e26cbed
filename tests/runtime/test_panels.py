"""Products of a few rows by a predictor's weights: by panels, and by the rows that no zero meets; alone and shared with a helper."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support import dataset, graph_of, random_rows, spread

from ampc.codegen.layout import B
from ampc.codegen.layout import G as Words
from ampc.ir.init import initial_parameters
from ampc.runtime import packing
from ampc.runtime.options import EngineOptions
from ampc.runtime.predictor import SingleEngine

pytestmark = pytest.mark.compiled

BOX, TABLE = 64, 128
ROWS = "model m():\n    instance:\n        x: float[90]\n    a = Linear(90, 130)\n    b = Linear(220, 50)\n    h = relu(a(x))\n    y = b([h, x])\n    output y\n"


class Case:
    """Weights [rows, cols] in panels, and a product `linear_part` of some of their rows."""

    def __init__(self, m: int, rows: int, cols: int, first: int, k: int, zeros: float = 0.0) -> None:
        from ampc.runtime import native
        from ampc.runtime import rows as kernels

        assert kernels.linear_part is not None
        self.rng = np.random.default_rng(m * cols + k)
        self.shape = m, k, cols
        self.w = self.rng.standard_normal((rows, cols)).astype(np.float32)
        self.x = (self.rng.standard_normal((m, k)) * (self.rng.random((m, k)) >= zeros)).astype(np.float32)
        self.y = self.rng.standard_normal((m, cols)).astype(np.float32)
        self.first, self.at_y = first, m * k
        self.at_w = self.at_y + m * cols + 16
        self.packed = packing.Packed(self.at_w, rows, cols, self.at_w + rows * cols)
        self.F = np.full(self.packed.place + packing.room(rows, cols) + 64, 7.0, np.float32)
        self.F[: m * k], self.F[self.at_w : self.packed.end] = self.x.ravel(), self.w.ravel()
        self.I = np.zeros(TABLE + packing.words([self.w.shape]), np.int64)
        self.I[Words.PANELS] = TABLE
        packing.write(self.F, self.I, TABLE, [self.packed])
        self.place, self.product, self.assist = native.place, native.enter("linear_part"), native.enter("assist")

    def run(self, more: int) -> np.ndarray:
        m, k, n = self.shape
        self.F[self.at_y : self.at_y + m * n] = self.y.ravel()
        self.product(self.place(self.F), self.place(self.I), 0, self.at_y, 0, self.at_w + self.first * n, m, k, n, more)
        assert (self.F[self.at_y + m * n : self.at_w] == 7.0).all() and (self.F[-64:] == 7.0).all()
        return self.F[self.at_y : self.at_y + m * n].reshape(m, n)

    def expected(self, more: int) -> np.ndarray:
        return more * self.y + self.x @ self.w[self.first : self.first + self.shape[1]]


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("cols", [32, 47, 48, 49, 64, 100, 130])
def test_products_by_panels(cols: int) -> None:
    for m in (1, 2, 3, 5, 8, 9, 10, 13, 24, 25):
        for first, k in ((0, 70), (33, 37)):
            case = Case(m, 70, cols, first, k)
            for more in (0, 1):
                close(case.run(more), case.expected(more))


def test_what_is_multiplied_are_the_panels_and_not_the_weights() -> None:
    """But for a row with many zeros: its product reads the weights' own rows, and those that meet a zero not at all."""
    for m, zeros, read in ((3, 0.0, False), (3, 0.8, False), (1, 0.0, False), (1, 0.8, True), (30, 0.0, True)):
        case = Case(m, 60, 96, 0, 60, zeros)
        case.F[case.at_w : case.packed.end] = 0.0
        assert (np.abs(case.run(0)).max() == 0.0) == read
    case = Case(1, 60, 96, 20, 40, 0.8)
    weights = case.F[case.at_w : case.packed.end].reshape(60, 96)
    weights[20:][case.x[0] == 0] = np.nan
    close(case.run(1), case.expected(1))
    case.x[:], case.F[:40] = 0.0, 0.0
    assert (case.run(0) == 0.0).all()


def test_weights_that_are_not_finite_meet_zeros() -> None:
    case = Case(1, 60, 96, 0, 60, 0.8)
    zero = int(np.flatnonzero(case.x[0] == 0)[0])
    case.F[case.at_w + zero * 96 + 5] = np.inf
    packing.write(case.F, case.I, TABLE, [case.packed])
    found = case.run(0)
    assert np.isnan(found[0, 5]) and np.isfinite(np.delete(found[0], 5)).all()


@pytest.mark.parametrize(("m", "zeros"), [(2, 0.0), (1, 0.0), (1, 0.5), (20, 0.0)])
def test_halves_are_put_together(m: int, zeros: float) -> None:
    """By the caller alone, then with a helper that looks for offers."""
    case = Case(m, 500, 650, 12, 480, zeros)
    case.I[Words.HELPER] = BOX
    close(case.run(1), case.expected(1))
    assert case.I[BOX + B.OFFER] == case.I[BOX + B.CLAIMED] == 1
    helper = threading.Thread(target=lambda: case.assist(case.place(case.F), case.place(case.I), BOX))
    helper.start()
    for number in range(2, 40):
        close(case.run(number % 2), case.expected(number % 2))
        assert case.I[BOX + B.OFFER] == case.I[BOX + B.CLAIMED] == number
    case.I[BOX + B.LEAVE] = 1
    helper.join()


def test_a_helper_makes_halves_of_each_kind() -> None:
    for m, zeros, how in ((2, 0.0, 1), (1, 0.5, 2)):
        case = Case(m, 500, 650, 0, 500, zeros)
        case.I[Words.HELPER] = BOX
        close(case.run(0), case.expected(0))
        assert case.I[BOX + B.HOW] == how
        n, c = int(case.I[BOX + B.N]), int(case.I[BOX + B.C]) - case.at_y
        y = case.F[case.at_y : case.at_w - 16].reshape(m, 650)
        y[:, c : c + n] = 0.0
        case.I[BOX + B.CLAIMED] = 0
        assert case.assist(case.place(case.F), case.place(case.I), BOX) == 1
        close(y, case.expected(0))


def test_a_predictor_gives_what_a_pass_over_the_data_gives() -> None:
    graph = graph_of(ROWS)
    data = dataset(graph, random_rows(graph, 5, 1))
    parameters = initial_parameters(graph, 3)
    engine = SingleEngine(graph, spread(graph, 1), options=EngineOptions(workers=1), parameters=parameters)
    assert len(engine._packed) == 2
    for i in range(5):
        x = data.columns["x"][i : i + 1].astype(np.float64)
        h = np.maximum(x @ parameters["a.w"] + parameters["a.b"], 0)
        y = np.concatenate([h, x], 1) @ parameters["b.w"] + parameters["b.b"]
        np.testing.assert_allclose(engine.one(data.select(np.array([i])))["y"], y, rtol=1e-4, atol=1e-5)


def test_narrow_layers_and_half_precision_have_no_panels() -> None:
    graph = graph_of(ROWS.replace("130", "20").replace("220", "110").replace("50", "20"))
    assert not SingleEngine(graph, spread(graph, 1), options=EngineOptions(workers=1), parameters=initial_parameters(graph, 3))._packed
