"""The engine gives what the interpreter gives, for every bundled model, any placement, schedule and number in flight.

With `NUMBA_DISABLE_JIT=1` the same generated text runs as plain Python, and these tests then cover many more schedules.
"""

from __future__ import annotations

import numpy as np
import pytest

from ampc.runtime import native
from tests.support import dataset, engine, meaning, model_names, random_rows, small

SCHEDULES = 2 if native.JIT else 6


@pytest.mark.parametrize("name", model_names())
def test_gradients_of_any_schedule_are_those_of_the_interpreter(name: str) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 6, seed=1))
    loss, _, expected = meaning(graph, data)
    for k in range(SCHEDULES):
        workers = (1, 2, 3, 4)[k % 4]
        driver = "threads" if k % 3 == 2 else "step"
        e = engine(graph, workers, seed=0, max_active_keys=(1, 4, 64)[k % 3], driver=driver)
        got = e.gradients(data, np.random.default_rng(k).permutation(data.n))
        for key, value in got.items():
            want = expected.get(key, np.zeros_like(value))
            scale = max(1e-3, float(np.abs(want).max(initial=0)))
            assert np.abs(value - want).max(initial=0) <= 1e-4 * scale, (key, workers, driver)
        result = e.run(data, np.arange(data.n), train=True, update=False)
        assert result.loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
