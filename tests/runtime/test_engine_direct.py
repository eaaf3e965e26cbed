"""Plain SGD takes its step within the matrix product that makes the gradient, where a firing fills the accumulator at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import dataset, engine, random_rows, small


@pytest.mark.parametrize("settings", [{}, {"clip_norm": 1e9}, {"l2": 1e-9}, {"mode": "sync"}], ids=str)
def test_step_is_the_rule_of_sgd(settings: dict[str, Any]) -> None:
    """With and without what stands in the way of the short cut, the result is one."""
    graph = small("mnist_mlp")
    data = dataset(graph, random_rows(graph, 64, seed=3))
    e = engine(graph, max_active_keys=1, group=64, min_update_frequency=64, optimizer="sgd", learning_rate=0.1, **settings)
    before, gradients = e.parameters, e.gradients(data, np.arange(64))
    result = e.run(data, np.arange(64), train=True)
    assert set(result.updates.values()) == {1}
    for name, value in e.parameters.items():
        # A product and a sum in another order: a few units in the last place of float32.
        assert np.allclose(value, before[name] - 0.1 * gradients[name] / 64, rtol=1e-5, atol=1e-6), name
