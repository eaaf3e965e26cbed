"""Flows of real programs: a cost-only pass does what the simulator of the real behaviour does, in the same time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ampc.codegen.plan import make_plan
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.ir.state import instance_of
from ampc.place.target import Target, load_target
from ampc.runtime.options import EngineOptions
from ampc.simulate.cost_only import Result, Settings, simulate
from ampc.simulate.flow import Flow, flow_of, sampled
from ampc.simulate.record import record
from ampc.simulate.simulator import Simulator
from tests import programs
from tests.differential import parameters
from tests.simulate.networks import check_pass
from tests.support import MODELS, dataset, graph_of, model_names, random_rows, small, spread


def both(graph: Graph, on: Target, n: int = 20, **values: Any) -> tuple[Simulator, Result, Flow]:
    """Run the same instances through the simulator and without numerics."""
    data = dataset(graph, random_rows(graph, n, seed=3))
    placement, weights = spread(graph, len(on.devices), seed=1), parameters(graph, seed=0)
    # Weights stand still, so that computed branches go the recorded way; updates take their time all the same.
    options = EngineOptions(max_active_keys=6, min_update_frequency=7, group=1, optimizer="sgd", learning_rate=1e-30, **values)
    simulator = Simulator(graph, placement, on, options=options, parameters=weights)
    passed = simulator.run(data, np.arange(n), train=True)
    plan = make_plan(graph, placement.device_of)
    recordings = [record(plan, weights, instance_of(data, graph, i)) for i in range(n)]
    flow = flow_of(plan, recordings, on, {x: float(simulator.settings(x)["min_update_frequency"]) for x in plan.layers})
    result = simulate(flow, on, np.arange(n), Settings(max_active_keys=6, batch=7, events=100_000, **values))
    check_pass(flow, on, np.arange(n), 6, result)
    assert simulator.totals is not None
    assert result.totals.messages == simulator.totals.messages
    assert passed.updates == dict(zip(plan.layers, result.updates.tolist()))
    return simulator, result, flow


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("name", model_names())
def test_a_program_takes_the_time_that_it_takes_in_the_simulator(name: str, mode: str) -> None:
    """Not to the last bit: which of two equally old queues comes first differs, and with it what is batched."""
    simulator, result, _ = both(programs.without_dropout(small(name)), load_target("fpga_1tflops"), mode=mode)
    assert simulator.totals is not None
    assert result.totals.fired.sum() == simulator.totals.fired.sum()
    assert result.totals.link_bytes.sum() == pytest.approx(simulator.totals.link_bytes.sum())
    assert result.totals.busy_s.sum() == pytest.approx(simulator.totals.busy_s.sum(), rel=1e-6)
    assert result.totals.seconds == pytest.approx(simulator.totals.seconds, rel=0.02)


def test_a_chain_of_layers_takes_exactly_the_time_that_it_takes_in_the_simulator() -> None:
    """On cores that take what waits, with an overhead for each burst of messages."""
    simulator, result, _ = both(small("mnist_mlp"), load_target("cpu-4"))
    assert simulator.totals is not None
    assert result.totals.seconds == pytest.approx(simulator.totals.seconds, rel=1e-9)
    assert np.allclose(result.totals.busy_s, simulator.totals.busy_s)
    assert np.array_equal(result.totals.fired, simulator.totals.fired)


def test_an_instance_weighs_one_for_every_layer_that_it_reaches() -> None:
    _, _, flow = both(programs.without_dropout(small("typed_steps")), load_target("cpu-2"))
    t = flow.tables
    for k in range(flow.n_templates):
        weight: dict[int, float] = {}
        for firing in range(t.first[k], t.first[k + 1]):
            layers = t.layer[t.layer_first[t.segment[firing]] : t.layer_first[t.segment[firing] + 1]]
            for layer, share in zip(layers, t.share[t.share_first[firing] : t.share_first[firing + 1]]):
                weight[layer] = weight.get(layer, 0.0) + share
        assert all(w == pytest.approx(1.0) or w == 0.0 for w in weight.values())


def test_messages_go_between_the_devices_of_their_segments() -> None:
    _, result, flow = both(programs.without_dropout(small("qm9_ggsnn")), load_target("fpga_mesh_4x4"))
    pairs = {tuple(p) for p in flow.pairs().tolist()}
    assert result.trace is not None
    sender = result.trace.device[result.trace.sender]
    assert {(int(a), int(b)) for a, b in zip(sender, result.trace.receiver_device)} == pairs


def test_a_sample_of_the_data_stands_for_all_and_deals_copies_equally() -> None:
    graph = graph_of((MODELS / "list_reduction.amp").read_text("utf-8"), hidden=4, copies=3)
    data, on = dataset(graph, random_rows(graph, 40, seed=1)), load_target("cpu-4")
    placement, weights = spread(graph, 4, seed=2), parameters(graph, seed=0)
    flow = sampled(graph, placement, on, data, weights, sample=12, seed=5)
    assert flow.n_templates == 12 and sampled(graph, placement, on, data, weights, sample=99).n_templates == 40
    used = [k for k, name in enumerate(flow.layers) if "~" in name]
    t = flow.tables
    share = np.zeros(len(flow.layers))
    for firing, segment in enumerate(t.segment):
        layers = t.layer[t.layer_first[segment] : t.layer_first[segment + 1]]
        np.add.at(share, layers, t.share[t.share_first[firing] : t.share_first[firing + 1]])
    assert len(used) >= 3 and np.all(share[used] >= 1) and np.all(share[used] <= 4)  # an instance may have no turn at all
    again = sampled(graph, placement, on, data, weights, sample=12, seed=5)
    assert all(np.array_equal(a, b) for a, b in zip(again.tables, t))


def test_a_sample_is_as_long_as_the_data_on_average() -> None:
    graph = graph_of((MODELS / "list_reduction.amp").read_text("utf-8"), hidden=4)
    data = dataset(graph, random_rows(graph, 2000, seed=1, longest=30))
    placement, weights = spread(graph, 1), parameters(graph, seed=0)
    mean = np.diff(data.axes["token"]).mean()
    step = next(s.id for s in make_plan(graph, placement.device_of).segments if "step" in s.layers)
    for seed in range(3):
        flow = sampled(graph, placement, load_target("cpu-1"), data, weights, sample=40, seed=seed)
        # The standard error of 40 independent draws would be 1.4.
        assert flow.tokens()[:, step].mean() == pytest.approx(mean, abs=0.2)


def test_no_instance_and_a_missing_precision_are_refused() -> None:
    graph, on = small("mnist_mlp"), load_target("fpga_1tflops")
    plan = make_plan(graph, {})
    with pytest.raises(AmpError, match="AMP550"):
        flow_of(plan, [], on)
    data = dataset(graph, random_rows(graph, 1, seed=0))
    recorded = [record(plan, initial_parameters(graph, 0), instance_of(data, graph, 0))]
    with pytest.raises(AmpError, match="AMP506"):
        flow_of(plan, recorded, on, precision="fp16")
