"""The engine in virtual time: the numbers of a real run, and times that can be reckoned by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT
from ampc.manifest import Manifest
from ampc.passes import run_passes
from ampc.place import Placement, Target, guess, load_target, place
from ampc.place.target import Device, Links, resized
from ampc.runtime.events import EpochResult
from ampc.runtime.options import EngineOptions
from ampc.simulate import study
from ampc.simulate.critical import critical_path
from ampc.simulate.report import report, text
from ampc.simulate.simulator import Conditions, Simulator
from tests.parts import joined
from tests.support import dataset, engine, graph_of, model_names, random_rows, small

EXACT = Conditions()
FREE = Target("free", (Device("one", "cpu", {"fp32": 1e21}, 1e21, 1 << 40, 0.0),), Links("shared", 1e18, 0.0))


def slow(n: int, **more: Any) -> Target:
    """Devices that take a second for each element-wise operation of 1e9, and links of a second a megabyte."""
    device = Device("tile", "fpga", {"fp32": 1e9}, 1e9, 1 << 40, 0.0, messages_per_firing=1)
    target = Target("slow", (device,), Links("full", 1e6, 0.0))
    return msgspec.structs.replace(resized(target, n), **more)


def simulator(graph: Graph, target: Target, placement: Placement | None = None, conditions: Conditions = EXACT, **options: Any) -> Simulator:
    placement = placement or place(graph, target, "round_robin")
    return Simulator(graph, placement, target, options=EngineOptions(**options), conditions=conditions)


def passed(s: Simulator, rows: list[dict[str, Any]], train: bool = True, **how: Any) -> EpochResult:
    return s.run(dataset(s.graph, rows), np.arange(len(rows)), train=train, **how)


@pytest.mark.parametrize("name", model_names())
def test_one_free_device_is_one_worker_bit_for_bit(name: str) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 12, seed=5))
    options = {"max_active_keys": 4, "min_update_frequency": 3, "learning_rate": 0.01}
    real, virtual = engine(graph, workers=1, **options), simulator(graph, FREE, **options)
    a, b = real.run(data, np.arange(12), train=True), virtual.run(data, np.arange(12), train=True)
    assert a.loss == b.loss and a.updates == b.updates and a.staleness == b.staleness
    for parameter, value in real.parameters.items():
        assert (value == virtual.parameters[parameter]).all(), parameter


@pytest.mark.parametrize("target", ["fpga_1tflops", "fpga_mesh_4x4", "cluster_2x16", "cpu-2"])
@pytest.mark.parametrize("name", model_names())
def test_gradients_do_not_depend_on_the_hardware(name: str, target: str) -> None:
    graph = small(name)
    rows = random_rows(graph, 6, seed=7)
    data = dataset(graph, rows)
    s = simulator(graph, load_target(target), conditions=Conditions(jitter=0.5, seed=3, events=100_000), max_active_keys=3)
    expected = engine(graph, workers=1).gradients(data, np.arange(6))
    for parameter, value in s.gradients(data, np.arange(6)).items():
        assert np.allclose(value, expected[parameter], rtol=1e-4, atol=1e-5), parameter
    assert s.trace is not None and s.totals is not None
    assert s.trace.problems() == []
    assert s.totals.instances == 6 and s.totals.events > 0
    assert sorted(s.trace.instance) == list(range(6))
    _, flying = s.trace.in_flight()
    assert flying.max() <= 3 and flying[-1] == 0
    # What was taken from queues had been sent, once, or made by admission and by neighbours: every firing took what it says.
    assert np.bincount(s.trace.taken_firing, minlength=len(s.trace.tokens)).tolist() == s.trace.tokens.tolist()
    assert np.isfinite(s.trace.arrived_s).all()
    assert s.totals.link_bytes.sum() >= s.trace.message_bytes.sum() * 0.999  # more where a way has several links
    path = critical_path(s.trace)
    parts = sum(path.by_device.values()) + path.messages_s + path.waiting_s
    assert path.seconds == pytest.approx(float(s.trace.end_s.max())) and parts == pytest.approx(path.seconds)


CHAIN = """
model chain(size = 4):
    instance:
        x: float[4]
        y: float[4]
    a = Linear(size, size, bias = false)
    b = Linear(size, size, bias = false)
    loss squared(b(a(x)), y)
"""


def test_a_schedule_reckoned_by_hand() -> None:
    """Two products of 4 x 4 on two devices that take a second for 1e9 operations, joined by a link of a second a megabyte."""
    graph = graph_of(CHAIN)
    target = slow(2)
    where = {n.layer: n.id for n in graph.nodes if isinstance(n, PPT)}
    device_of = {n.id: 0 for n in graph.nodes}
    losses = [n.id for n in graph.nodes if type(n).__name__ == "Loss"]
    device_of[where["b"]] = 1
    device_of |= dict.fromkeys(losses, 1)
    placement = Placement("manual", tuple(d.name for d in target.devices), device_of)
    s = simulator(graph, target, placement, Conditions(events=1000), max_active_keys=1, min_update_frequency=10**6, optimizer="sgd")
    rows = [{"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0] * 4}] * 2
    result = passed(s, rows)
    gemm = 2 * 16 / 1e9  # one product of a row; bias-free
    assert s.trace is not None and s.trace.problems() == []
    forward_b = s.trace.start_s[(s.trace.device == 1) & (s.trace.queue % 2 == 0)]
    # The first forward on device 1 begins after a's product, and 4 floats with a token's 16 bytes over the link.
    between = [n for n in s.plan.segments if "a" in n.layers]
    assert len(between) == 1
    begun = s.trace.end_s[(s.trace.device == 0) & (s.trace.queue == 2 * between[0].id)][0]
    assert forward_b[0] == pytest.approx(begun + (4 * 4 + 16) / 1e6, rel=1e-12)
    # One instance at a time: the second begins when the first has gone forward and back, twice the products backward, and the pass is twice one.
    spent = s.trace.end_s - s.trace.start_s
    of_a = {int(q): float(spent[s.trace.queue == q][0]) for q in (2 * between[0].id, 2 * between[0].id + 1)}
    assert of_a[2 * between[0].id] >= gemm and of_a[2 * between[0].id + 1] >= 2 * gemm
    one = spent.sum() / 2 + 2 * (4 * 4 + 16) / 1e6
    assert result.seconds == pytest.approx(2 * one, rel=1e-9)


def test_more_in_flight_fill_a_pipeline() -> None:
    """Two devices with equal work, and links that cost nothing: with enough instances in flight none has to wait."""
    graph = graph_of(CHAIN.replace("size = 4", "size = 64").replace("float[4]", "float[64]"))
    target = slow(2, links=Links("full", 1e18, 0.0))
    rows = [{"x": [1.0] * 64, "y": [0.0] * 64}] * 64
    times = {}
    for flying in (1, 2, 4):
        placement = place(graph, target, "balanced")
        assert len(set(placement.device_of.values())) == 2
        times[flying] = passed(simulator(graph, target, placement, max_active_keys=flying, min_update_frequency=10**6), rows).seconds
    assert times[1] / times[2] > 1.3 and times[1] / times[4] > 1.7
    assert times[4] >= times[1] / 2 * 0.999


def test_a_seed_repeats_a_run_and_another_does_not() -> None:
    graph = small("sentiment_tree_lstm")
    rows = random_rows(graph, 10, seed=1)
    target = load_target("fpga_mesh_4x4")

    def seconds(**conditions: Any) -> float:
        return passed(simulator(graph, target, conditions=Conditions(**conditions), max_active_keys=4), rows).seconds

    exact, a, b, c = seconds(), seconds(jitter=0.3, seed=1), seconds(jitter=0.3, seed=1), seconds(jitter=0.3, seed=2)
    assert a == b and len({exact, a, c}) == 3


def test_failures_cost_time_and_lose_nothing() -> None:
    graph = small("list_reduction")
    rows = random_rows(graph, 20, seed=2)
    target = load_target("fpga_mesh_4x4")
    sound, broken = simulator(graph, target, max_active_keys=4), simulator(graph, target, conditions=Conditions(failures_per_s=1e5, repair_s=1e-3))
    a, b = passed(sound, rows), passed(broken, rows)
    assert sound.totals is not None and broken.totals is not None
    assert broken.totals.failures > 0 and b.instances == a.instances == 20
    assert broken.totals.busy_s[:, 3].sum() == pytest.approx(1e-3 * broken.totals.failures)
    assert b.seconds > a.seconds


def test_synchronous_mode_updates_by_order_and_is_slower() -> None:
    graph = small("sentiment_tree_lstm")
    rows = random_rows(graph, 24, seed=4)
    target = load_target("fpga_mesh_4x4")
    options = {"max_active_keys": 8, "min_update_frequency": 8, "learning_rate": 0.01}
    free, drained = simulator(graph, target, **options), simulator(graph, target, mode="sync", **options)
    a, b = passed(free, rows), passed(drained, rows)
    assert b.seconds > a.seconds
    assert set(b.updates.values()) == {3} and all(len(h) <= 1 for h in b.staleness.values())
    reference = engine(graph, workers=1, mode="sync", **options)
    reference.run(dataset(graph, rows), np.arange(24), train=True)
    for name, value in reference.parameters.items():
        assert np.allclose(value, drained.parameters[name], rtol=1e-4, atol=1e-5), name


def test_groups_are_one_message() -> None:
    graph = small("mnist_mlp")
    rows = random_rows(graph, 12, seed=6)
    s = simulator(graph, slow(3), conditions=Conditions(events=1000), max_active_keys=1, group=4)
    passed(s, rows)
    assert s.trace is not None
    layers = s.trace.tokens[s.trace.queue >= 2]
    assert set(layers.tolist()) == {4}


@pytest.mark.parametrize("devices", [1, 2, 64])
def test_more_devices_than_nodes_stay_idle(devices: int) -> None:
    """Devices that own nothing are told of, and do nothing."""
    graph = small("list_reduction")
    s = simulator(graph, resized(load_target("fpga_1tflops"), devices), max_active_keys=2)
    passed(s, random_rows(graph, 8, seed=8))
    assert s.totals is not None and len(s.totals.devices) == devices
    idle = sum(1 for u in s.totals.utilisation if u == 0)
    assert idle == devices - len(s.used) and s.totals.utilisation.max() <= 1.0 + 1e-9


def test_an_empty_pass_takes_no_time() -> None:
    graph = small("list_reduction")
    s = simulator(graph, load_target("fpga_1tflops"))
    result = passed(s, random_rows(graph, 1, seed=8), train=False)
    assert result.seconds > 0
    empty = s.run(dataset(graph, random_rows(graph, 1, seed=8)), np.arange(0), train=True)
    assert empty.seconds == 0 and s.totals is not None and s.totals.instances_per_s == 0


def test_a_precision_that_the_target_lacks_is_refused() -> None:
    graph = small("list_reduction")
    with pytest.raises(AmpError, match="bf16"):
        simulator(graph, FREE, conditions=Conditions(precision="bf16"))


@settings(max_examples=15)
@given(
    st.sampled_from(["sentiment_tree_lstm", "qm9_ggsnn", "seq2seq", "char_word_rnn"]), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2),
    st.sampled_from(["full", "star", "ring", "tree"]), st.integers(0, 2**31),
)  # fmt: skip
def test_whatever_the_network_all_is_conserved(name: str, devices: int, flying: int, take: int, topology: Any, seed: int) -> None:
    graph = small(name)
    links = Links(topology, 1e8, 1e-7, 1e-8, branching=2 if topology == "tree" else 0)
    target = slow(devices, links=links)
    target = msgspec.structs.replace(target, devices=tuple(msgspec.structs.replace(d, messages_per_firing=take) for d in target.devices))
    rows = random_rows(graph, 7, seed=seed)
    s = simulator(graph, target, conditions=Conditions(jitter=0.2, seed=seed, events=50_000), max_active_keys=flying, min_update_frequency=2)
    result = passed(s, rows)
    assert s.trace is not None and s.totals is not None
    assert result.instances == 7 and s.trace.problems() == []
    forward, backward = s.trace.tokens[s.trace.queue % 2 == 0].sum(), s.trace.tokens[s.trace.queue % 2 == 1].sum()
    assert forward == backward  # every firing forward is answered by one backward
    crossed = s.trace.message_queue % 2
    assert (crossed == 0).sum() == (crossed == 1).sum()  # and every message
    busy = s.trace.busy_s()
    assert np.allclose(busy, s.totals.busy_s.sum(axis=1))
    assert (busy <= s.totals.seconds * (1 + 1e-9)).all()
    if take == 1:
        assert s.trace.tokens.max() == 1


def test_totals_do_not_need_a_log() -> None:
    graph = small("list_reduction")
    rows = random_rows(graph, 9, seed=3)
    kept, bare = (simulator(graph, load_target("fpga_1tflops"), conditions=Conditions(events=n)) for n in (10_000, 0))
    a, b = passed(kept, rows), passed(bare, rows)
    assert a.seconds == b.seconds and bare.trace is None and kept.totals is not None and bare.totals is not None
    assert dataclasses.asdict(kept.totals)["events"] == bare.totals.events


def test_a_full_log_says_what_it_lacks() -> None:
    graph = small("list_reduction")
    s = simulator(graph, load_target("fpga_1tflops"), conditions=Conditions(events=5))
    passed(s, random_rows(graph, 9, seed=3))
    assert s.trace is not None and len(s.trace.start_s) == 5 and s.trace.dropped > 0 and s.trace.problems() == []


@pytest.mark.parametrize("counts", [{"columns": 3}, {"rows": 3, "replicas": 2}])
def test_parts_of_a_layer_on_devices_of_their_own(counts: dict[str, int]) -> None:
    lowered = small("list_reduction", passes=False)
    layers = tuple(msgspec.structs.replace(x, **counts) if x.name == "step" else x for x in lowered.layers)
    whole, cut = run_passes(lowered), run_passes(msgspec.structs.replace(lowered, layers=layers))
    target, names = load_target("fpga_1tflops"), [x.name for x in cut.layers]
    placement = place(cut, target, at={name: f"fpga:{i % 8}" for i, name in enumerate(names)})
    rows = random_rows(whole, 6, seed=7)
    s = simulator(cut, target, placement, Conditions(jitter=0.5, seed=3, events=100_000), max_active_keys=3)
    expected = engine(whole, workers=1).gradients(dataset(whole, rows), np.arange(6))
    found = joined(cut, s.gradients(dataset(cut, rows), np.arange(6)))
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=1e-4, atol=1e-5), name
    assert s.trace is not None and s.trace.problems() == []
    assert {i % 8 for i in range(len(names))} <= set(s.trace.device.tolist())


def test_of_many_devices_the_text_lists_those_that_did_something() -> None:
    graph = small("list_reduction")
    s = simulator(graph, resized(load_target("fpga_1tflops"), 24))
    passed(s, random_rows(graph, 4, seed=8))
    assert s.totals is not None
    found = report(s.totals)
    lines = text(found).splitlines()
    shown = [x for x in lines if x.startswith("fpga:") and "->" not in x]
    assert 0 < len(shown) == len(s.used) < 24
    assert len(found["devices"]) == 24 and f"... and {24 - len(shown)} more, less busy" in lines


def test_a_placement_makes_room_for_as_many_instances_as_a_simulation_has_in_flight() -> None:
    graph, on = small("list_reduction"), load_target("fpga_1tflops")
    manifest = Manifest(graph, place(graph, on), on, guess(graph))
    hardware = study.Hardware(on, "balanced", EXACT)
    assert study.placed(manifest, hardware) is manifest.placement
    few, many = (study.placed(manifest, hardware, n).memory_bytes for n in (1, 1024))
    assert sum(many) > 10 * sum(few)
    tight = dataclasses.replace(hardware, target=msgspec.structs.replace(on, devices=tuple(
        msgspec.structs.replace(d, memory_bytes=max(manifest.placement.memory_bytes)) for d in on.devices
    )))  # fmt: skip
    assert sum(study.placed(manifest, tight, 1 << 20).memory_bytes) == sum(manifest.placement.memory_bytes)  # the simulation tells what is too much
