"""The policy `stash`: a backward uses the parameters that its forward used."""

from __future__ import annotations

import numpy as np
import pytest

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
    for policy in ("plain", "stash"):
        e = engine(graph, max_active_keys=1, min_update_frequency=2, optimizer="adam", learning_rate=0.1, staleness=policy)
        e.run(data, np.arange(12), train=True)
        weights.append(e.parameters)
    for name, value in weights[0].items():
        assert np.array_equal(value, weights[1][name])
