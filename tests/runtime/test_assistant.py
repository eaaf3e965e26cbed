"""A second thread that makes half of a predictor's large products: what it is offered it makes right, and nobody needs it."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from support import dataset, graph_of, random_rows, small, spread

from ampc.codegen.layout import B
from ampc.codegen.layout import G as Words
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.runtime import predictor as predictor_module
from ampc.runtime.options import EngineOptions
from ampc.runtime.predictor import SingleEngine

pytestmark = pytest.mark.compiled

BOX = 64
LARGE = "model m():\n    instance:\n        x: float[300]\n    a = Linear(300, 300)\n    b = Linear(300, 256)\n    y = b(tanh(a(x)))\n    output y\n"


def single(graph: Graph, workers: int) -> SingleEngine:
    return SingleEngine(graph, spread(graph, 1), options=EngineOptions(workers=workers), parameters=initial_parameters(graph, 3))


def test_halves_of_products_are_put_together() -> None:
    """Both ways: the caller makes both halves, or a helper that looks for offers takes one."""
    from ampc.runtime import native, rows

    assert rows.linear_part is not None
    product, assist = native.enter("linear_part"), native.enter("assist")
    rng = np.random.default_rng(0)
    for m, k, n, more, helped in ((1, 400, 300, 0, False), (9, 260, 257, 1, False), (60, 128, 160, 0, True), (3, 512, 1280, 1, True)):
        x, w, y = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
        F = np.concatenate([x.ravel(), w.ravel(), y.ravel(), np.full(64, 7.0, np.float32)])
        I = np.zeros(BOX + B.END, np.int64)  # noqa: E741  # the name it has in kernels
        I[Words.HELPER] = BOX
        made: list[int] = []
        arguments = native.place(F), native.place(I), BOX
        helper = threading.Thread(target=lambda at=arguments, made=made: made.append(assist(*at)))
        if helped:
            helper.start()
        for number in range(1, 41):
            F[m * k + k * n : m * k + k * n + m * n] = y.ravel()
            product(native.place(F), native.place(I), 0, m * k + k * n, 0, m * k, m, k, n, more)
            assert I[BOX + B.OFFER] == I[BOX + B.CLAIMED] == number
            found = F[m * k + k * n : m * k + k * n + m * n].reshape(m, n)
            np.testing.assert_allclose(found, more * y + x @ w, rtol=1e-4, atol=1e-3)
            assert (F[m * k + k * n + m * n :] == 7.0).all()
        if helped:
            I[BOX + B.LEAVE] = 1
            helper.join()
            assert 0 <= made[0] <= 40 and I[BOX + B.DONE] <= 40


def test_a_helper_makes_what_it_is_offered_and_leaves_in_the_end() -> None:
    from ampc.runtime import native, rows

    assert rows.linear_part is not None
    m, k, n = 2, 30, 40
    F = np.random.default_rng(0).standard_normal(m * k + k * n + m * n).astype(np.float32)
    I = np.zeros(BOX + B.END, np.int64)  # noqa: E741
    words = {B.M: m, B.N: n, B.K: k, B.A: 0, B.LDA: k, B.B: m * k, B.LDB: n, B.C: m * k + k * n, B.LDC: n, B.MORE: 0, B.OFFER: 1, B.AWAKE: 1}
    for word, value in words.items():
        I[BOX + word] = value
    assert native.enter("assist")(native.place(F), native.place(I), BOX) == 1
    assert (I[BOX + B.CLAIMED], I[BOX + B.DONE], I[BOX + B.AWAKE]) == (1, 1, 0)
    np.testing.assert_allclose(F[m * k + k * n :].reshape(m, n), F[: m * k].reshape(m, k) @ F[m * k : m * k + k * n].reshape(k, n), rtol=1e-4, atol=1e-5)


def test_predictors_with_and_without_an_assistant_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor_module, "usable_cores", lambda: 2)
    graph = graph_of(LARGE)
    data = dataset(graph, random_rows(graph, 6, 1))
    alone, helped = single(graph, 1), single(graph, 2)
    before = threading.active_count()
    for i in (*range(6), *range(6)):
        found: Any = [e.one(data.select([i]))["y"] for e in (alone, helped)]
        np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
        if i == 5:
            until = time.monotonic() + 60
            while threading.active_count() > before and time.monotonic() < until:
                time.sleep(0.01)
            assert threading.active_count() == before  # nobody asks, nothing runs
    assert alone._assistant is None and helped._assistant is not None


def test_small_layers_and_one_worker_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor_module, "usable_cores", lambda: 2)
    assert not single(small("list_reduction"), 2)._shares
    assert not single(graph_of(LARGE), 1)._shares
    monkeypatch.setattr(predictor_module, "usable_cores", lambda: 1)
    assert not single(graph_of(LARGE), 2)._shares
