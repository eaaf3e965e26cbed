"""One engine on several data sets, very unequal instances, epochs that differ, state that is carried to another engine."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from differential import compare, difference, executed, interpreted, parameters
from support import dataset, engine, graph_of, random_rows, shared, small


@pytest.mark.parametrize("driver", ["step", "threads"])
def test_one_engine_goes_from_data_to_larger_data_and_back(driver: str) -> None:
    graph = small("qm9_ggsnn")
    params = parameters(graph, 3)
    e = engine(graph, 2, driver=driver, max_active_keys=3)
    e.set_parameters(dict(params))
    sets = [dataset(graph, random_rows(graph, n, seed, longest)) for n, seed, longest in ((2, 1, 2), (5, 2, 7), (1, 3, 0), (3, 1, 3))]
    for data in (*sets, sets[0], sets[1]):
        assert difference(executed(e, data), interpreted(graph, data, params))[0] < 1e-4


def long_rows(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    lengths = [n, 1, 0, 3, n // 2, 2, 5]
    return [{"symbol": rng.integers(0, 14, k).tolist(), "label": int(rng.integers(10))} for k in lengths]


def test_a_long_sequence_among_short_ones() -> None:
    graph = small("list_reduction")
    rows = long_rows(300)
    runs: list[dict[str, Any]] = [{"workers": 1, "driver": "threads", "max_active_keys": 64}, {"workers": 3, "driver": "step", "max_active_keys": 2}]
    assert compare(graph, rows, runs, seed=2) is None


@pytest.mark.compiled
def test_very_long_sequences_and_wide_axes_compiled() -> None:
    graph = small("list_reduction")
    params = {k: 0.4 * v for k, v in parameters(graph, 2).items()}
    e = engine(graph, 2, placement=shared(graph), driver="threads", max_active_keys=64)
    e.set_parameters(dict(params))
    data = dataset(graph, long_rows(4000))
    assert difference(executed(e, data), interpreted(graph, data, params))[0] < 1e-3


def test_masks_of_dropout_change_with_the_epoch_and_the_instance_but_not_with_the_schedule() -> None:
    graph = graph_of(
        "model m():\n    instance:\n        x: float[8]\n        y: float\n    a = Linear(8, 1)\n    loss squared(a(dropout(x, 0.5)), y)\n", passes=False
    )
    data = dataset(graph, [{"x": [1.0] * 8, "y": 0.0}] * 3)
    e = engine(graph, 1, seed=3, driver="step")

    def masks(e: Any, epoch: int) -> list[list[bool]]:
        found = []
        for i in range(3):
            e.run(data, np.array([i]), train=True, update=False, epoch=epoch)
            k = e.layers["a"].grad
            g = e._F[k : k + 8].copy()
            e._F[k : k + 9] = 0
            found.append((g != 0).tolist())
        return found

    first, again, later = masks(e, 0), masks(e, 0), masks(e, 1)
    assert first == again and first != later and len({tuple(m) for m in first}) > 1
    other = engine(graph, 3, seed=3, driver="threads", max_active_keys=1)
    assert masks(other, 1) == later
    assert masks(engine(graph, 1, seed=4, driver="step"), 0) != first


def test_a_rate_of_dropout_is_kept_on_average() -> None:
    graph = graph_of(
        "model m():\n    instance:\n        x: float[50]\n        y: float\n    a = Linear(50, 1, bias = false, init = ones)\n"
        "    p = a(dropout(x, 0.3))\n    loss squared(p, y)\n    output p\n"
    )
    data = dataset(graph, [{"x": [1.0] * 50, "y": 0.0}] * 100)
    e = engine(graph, 2, driver="step")
    trained = e.run(data, np.arange(100), train=True, update=False, outputs=True)
    values = np.concatenate([t.ravel() for t in trained.outputs["p"]]) * 0.7
    assert np.allclose(values, values.round(), atol=1e-3), "each column is dropped or scaled by 1 / 0.7"
    assert 33 < values.mean() < 37
    plain = e.run(data, np.arange(3), train=False, outputs=True)
    assert all(t.item() == 50 for t in plain.outputs["p"])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_state_carried_to_another_engine_goes_on_bit_for_bit(optimizer: str, mode: str) -> None:
    graph = small("typed_steps")
    data = dataset(graph, random_rows(graph, 9, 1))
    options: dict[str, Any] = {
        "driver": "step", "mode": mode, "optimizer": optimizer, "min_update_frequency": 2, "max_active_keys": 3, "learning_rate": 0.02, "clip_norm": 1.0,
    }  # fmt: skip
    whole = engine(graph, 2, seed=5, **options)
    for epoch in range(3):
        whole.run(data, np.random.default_rng(epoch).permutation(9), train=True, epoch=epoch)
    first = engine(graph, 2, seed=5, **options)
    first.run(data, np.random.default_rng(0).permutation(9), train=True, epoch=0)
    then = engine(graph, 2, seed=5, **options)
    then.set_parameters(first.parameters)
    then.set_optimizer_state(first.optimizer_state())
    for epoch in (1, 2):
        then.run(data, np.random.default_rng(epoch).permutation(9), train=True, epoch=epoch)
    assert all(np.array_equal(w, then.parameters[k]) for k, w in whole.parameters.items())
    assert all(np.array_equal(v, then.optimizer_state()[k]) for k, v in whole.optimizer_state().items())


@pytest.mark.parametrize(("name", "workers"), [("list_reduction", 1), ("list_reduction", 3), ("typed_steps", 1)])
def test_training_beside_other_workers_learns(name: str, workers: int) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 16, 1))
    e = engine(graph, workers, driver="threads", max_active_keys=8, min_update_frequency=4, learning_rate=0.02)
    losses = [e.run(data, np.random.default_rng(epoch).permutation(16), train=True, epoch=epoch).loss for epoch in range(12)]
    assert losses[-1] < 0.8 * losses[0], losses


def test_a_schedule_scales_the_rate_of_every_layer() -> None:
    graph = small("digits_mlp")
    data = dataset(graph, random_rows(graph, 4, 1))
    own: dict[str, dict[str, Any]] = {"head": {"learning_rate": 0.4}}
    options: dict[str, Any] = {"driver": "step", "optimizer": "sgd", "mode": "sync", "min_update_frequency": 4, "per_layer": own}
    slow, fast = (engine(graph, learning_rate=0.1, **options) for _ in range(2))
    slow.learning_rate = 0.05
    assert slow.learning_rate == pytest.approx(0.05) and fast.learning_rate == pytest.approx(0.1)
    before = slow.parameters
    slow.run(data, np.arange(4), train=True)
    fast.run(data, np.arange(4), train=True)
    for k, w in before.items():
        np.testing.assert_allclose(slow.parameters[k] - w, (fast.parameters[k] - w) / 2, rtol=1e-3, atol=1e-6, err_msg=k)


def test_progress_is_reported_while_a_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    import ampc.runtime.watch as watch_module

    monkeypatch.setattr(watch_module, "PROGRESS_S", 0.01)
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 200, 1))
    for driver in ("step", "threads"):
        seen: list[Any] = []
        began = time.perf_counter()
        e = engine(graph, 2, driver=driver, max_active_keys=4, min_update_frequency=2)
        result = e.run(data, np.arange(200), train=True, on_progress=seen.append)
        assert seen and seen[-1].done == seen[-1].total == 200 and seen[-1].in_flight == 0
        assert [p.done for p in seen] == sorted(p.done for p in seen)
        assert all(0 <= p.in_flight <= 4 for p in seen) and seen[-1].seconds <= time.perf_counter() - began
        assert seen[-1].loss_sum / 200 == pytest.approx(result.loss)
        assert seen[-1].staleness is not None and seen[-1].staleness >= 0
