"""Every bundled model in the interpreter: any order of delivery gives the same, gradients equal differences of the loss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ir.instances import random_instance

from ampc.frontend import check, parse
from ampc.ir import Graph, Interpreter, from_text, initial_parameters, to_text, verify
from ampc.lower import lower

MODELS = sorted(Path(__file__).parents[2].joinpath("models").glob("*.amp"))
SMALL = {"hidden": 5, "vocabulary": 6, "longest": 5, "pixels": 6, "rate": 0.0}


def graph_of(path: Path) -> Graph:
    """The lowered model with few columns, so that differences are quick to take."""
    model = parse(path.read_text(encoding="utf-8"), path.name)
    check(model)
    known = {p.name for p in model.parameters}
    return lower(model, {k: v for k, v in SMALL.items() if k in known})


def parameters_of(graph: Graph) -> dict[str, np.ndarray]:
    """First values, moved a little so that no bias is zero and no value sits at a kink."""
    first = initial_parameters(graph, 1)
    return {k: v.astype(np.float64) + 0.1 * np.sin(np.arange(v.size)).reshape(v.shape) for k, v in first.items()}


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_model_is_sound_and_reads_back(path):
    graph = graph_of(path)
    verify(graph)
    assert from_text(to_text(graph)) == graph


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_order_of_delivery_does_not_matter(path):
    graph = graph_of(path)
    params = parameters_of(graph)
    for seed in range(4):
        instance = random_instance(graph, seed)
        base = Interpreter(graph, params, np.float64).run(instance)
        other = Interpreter(graph, params, np.float64, schedule=seed).run(instance)
        assert other.loss == pytest.approx(base.loss, rel=1e-12)
        assert other.messages == base.messages
        assert other.rows == base.rows
        for name, pair in base.metrics.items():
            assert other.metrics[name] == pytest.approx(pair)
        for name, value in base.gradients.items():
            np.testing.assert_allclose(other.gradients[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_gradients_equal_differences(path):
    """Three numbers of each parameter; a central difference of step 1e-6 in float64 is good to about 1e-8 here."""
    graph = graph_of(path)
    params = parameters_of(graph)
    instance = random_instance(graph, 5, longest=3)
    result = Interpreter(graph, params, np.float64).run(instance)
    rng = np.random.default_rng(0)
    for name, value in params.items():
        for at in {tuple(int(rng.integers(0, n)) for n in value.shape) for _ in range(3)}:
            ends = []
            for step in (1e-6, -1e-6):
                moved = value.copy()
                moved[at] += step
                ends.append(Interpreter(graph, params | {name: moved}, np.float64).run(instance).loss)
            found = result.gradients[name][at] if name in result.gradients else 0.0
            assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7), f"{name}{list(at)}"
