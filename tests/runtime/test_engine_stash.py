"""The policies `stash` and `corrected`: a backward uses the parameters that its forward used, or an estimate of them."""

from __future__ import annotations

import numpy as np
import pytest

from ampc.data.dataset import Dataset
from ampc.runtime.engine import Engine
from tests.support import dataset, engine, graph_of

CHAIN = """model chain():
    instance:
        x: float
        y: float
    a = Linear(1, 1, bias = false, init = ones)
    b = Linear(1, 1, bias = false, init = ones)
    loss squared(b(a(x)), y)
"""


@pytest.mark.parametrize(("policy", "a"), [("plain", 1.96), ("stash", 1.8)])
def test_second_gradient_uses_the_weights_of_the_policy(policy: str, a: float) -> None:
    """Both forwards see weights of 1, so both losses have the slope -4. The first update makes b 1.4; `a` then gets -4 b of then or of now."""
    graph = graph_of(CHAIN)
    data = dataset(graph, [{"x": 1.0, "y": 3.0}] * 2)
    e = engine(graph, max_active_keys=2, min_update_frequency=1, optimizer="sgd", learning_rate=0.1, staleness=policy)
    result = e.run(data, np.arange(2), train=True)
    assert e.parameters["b.w"][0, 0] == pytest.approx(1.8)
    assert e.parameters["a.w"][0, 0] == pytest.approx(a)
    assert result.staleness["a"] == [1, 1]


def test_nothing_in_flight_makes_the_policies_equal() -> None:
    graph = graph_of(CHAIN)
    data = dataset(graph, [{"x": float(i % 3), "y": 1.0} for i in range(12)])
    weights = []
    for policy in ("plain", "stash", "corrected"):
        e = engine(graph, max_active_keys=1, min_update_frequency=2, optimizer="adam", learning_rate=0.1, staleness=policy)
        e.run(data, np.arange(12), train=True)
        weights.append(e.parameters)
    for name, value in weights[0].items():
        assert np.array_equal(value, weights[1][name]) and np.array_equal(value, weights[2][name])


def drifting(policy: str) -> tuple[Engine, Dataset]:
    """A chain in which `b` moves by 0.01 with every update, and `a`, which nearly stands still, adds up the weights of `b` that its backward used."""
    graph = graph_of(CHAIN.replace("squared", "absolute"))
    data = dataset(graph, [{"x": 1.0, "y": 1e6}] * 400)
    layers = {"a": {"learning_rate": 1e-6}}
    settings = {"max_active_keys": 8, "min_update_frequency": 1, "optimizer": "sgd", "learning_rate": 0.01}
    return engine(graph, staleness=policy, per_layer=layers, driver="step", seed=3, **settings), data


def test_a_steady_drift_is_corrected_nearly_whole() -> None:
    """With one velocity all the time, going back along it leads to the very weights of the forward, but for the mean in place of each staleness."""
    moved = {}
    for policy in ("plain", "stash", "corrected"):
        e, data = drifting(policy)
        e.run(data, np.arange(100), train=True)  # the drift and the mean staleness settle
        before = e.parameters["a.w"][0, 0].astype(np.float64)
        result = e.run(data, np.arange(100, 400), train=True)
        assert max(i for i, n in enumerate(result.staleness["b"]) if n) >= 3
        moved[policy] = (e.parameters["a.w"][0, 0] - before) / 1e-6 / 300
    lag = moved["plain"] - moved["stash"]
    assert lag > 0.01
    assert abs(moved["corrected"] - moved["stash"]) < 0.25 * lag


def test_the_drift_is_a_part_of_the_optimizer_s_state() -> None:
    e, data = drifting("corrected")
    e.run(data, np.arange(100), train=True)
    state = e.optimizer_state()
    assert state["b.drift"][0] > 0
    other, _ = drifting("corrected")
    other.set_optimizer_state(state)
    assert np.array_equal(other.optimizer_state()["b.drift"], state["b.drift"])
