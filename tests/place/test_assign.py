"""Strategies: complete, one device a layer, within memory, never worse than their starting points; refusals with their messages."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT, Loss, Metric, Output
from ampc.passes.replicate import replicate
from ampc.place import STRATEGIES, Placement, Target, guess, load_target, place
from ampc.place.cost import estimate
from ampc.place.problem import Problem, objective
from ampc.source import bundled_models, read_source
from sample_graphs import list_reduction, two_arms


def device_of_layers(graph: Graph, p: Placement) -> dict[str, set[int]]:
    out: dict[str, set[int]] = {}
    for n in graph.nodes:
        if isinstance(n, PPT):
            out.setdefault(n.layer, set()).add(p.device_of[n.id])
    return out


def shrunk(target: Target, memory_bytes: int) -> Target:
    return msgspec.structs.replace(target, devices=tuple(msgspec.structs.replace(d, memory_bytes=memory_bytes) for d in target.devices))


@pytest.mark.parametrize("target", ["cpu-1", "cpu-2", "fpga_1tflops"])
@pytest.mark.parametrize("strategy", ["balanced", "round_robin"])
@pytest.mark.parametrize("name", bundled_models())
def test_every_node_has_a_device_and_a_layer_has_one(name: str, strategy: str, target: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    hardware = load_target(target)
    hardware = shrunk(hardware, 1 << 40)
    p = place(graph, hardware, strategy)
    assert set(p.device_of) == {n.id for n in graph.nodes}
    assert all(0 <= d < len(hardware.devices) for d in p.device_of.values())
    assert all(len(devices) == 1 for devices in device_of_layers(graph, p).values())
    for n in graph.nodes:
        if isinstance(n, Loss | Metric | Output):
            assert p.device_of[n.id] == p.device_of[n.inputs[0][0]]
    assert p.busy_s[p.bottleneck] == max(p.busy_s)
    assert p.instances_per_s == pytest.approx(1 / max(p.busy_s), rel=1e-4)
    if len(hardware.devices) == 1:
        assert p.crossing_messages == 0


@pytest.mark.parametrize("name", bundled_models())
def test_balanced_is_not_worse_than_dealing_or_one_device(name: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    target = load_target("cpu-4")
    best = objective(place(graph, target, "balanced").busy_s)
    assert best <= objective(place(graph, target, "round_robin").busy_s) * (1 + 1e-5)
    problem = Problem(graph, target, estimate(graph, guess(graph)))
    assert best <= objective(problem.state([0] * len(problem.units))[0]) * (1 + 1e-5)


@pytest.mark.parametrize("name", ["list_reduction", "mnist_mlp", "sentiment_tree_lstm"])
def test_balanced_is_near_the_best_of_all_placements_of_units(name: str) -> None:
    """Few units, so that every placement can be tried; single nodes may move too, which can only be better."""
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    target = load_target("cpu-2")
    problem = Problem(graph, target, estimate(graph, guess(graph)))
    assert len(problem.units) <= 10
    best = min(objective(problem.state(list(c))[0]) for c in itertools.product(range(2), repeat=len(problem.units)))
    assert objective(place(graph, target).busy_s) <= best * (1 + 1e-5)


def test_loads_kept_up_by_differences_equal_loads_computed_afresh() -> None:
    graph = list_reduction()
    target = load_target("cpu-4")
    problem = Problem(graph, target, estimate(graph, guess(graph)), fine=True)
    choice = [u % 4 for u in range(len(problem.units))]
    loads, memory = problem.state(choice)
    for unit in problem.units:
        old, choice[unit.id] = choice[unit.id], -1
        problem.add(unit, old, choice, loads, memory, -1)
        choice[unit.id] = (old + 1) % 4
        problem.add(unit, choice[unit.id], choice, loads, memory)
    again, memory_again = problem.state(choice)
    assert loads == pytest.approx(again)
    assert memory == memory_again


def test_round_robin_deals_layers_in_order() -> None:
    graph = list_reduction()
    p = place(graph, load_target("cpu-2"), "round_robin")
    assert sorted(d for (d,) in device_of_layers(graph, p).values()) == [0, 0, 1]


def test_placement_does_not_depend_on_the_order_of_dictionaries() -> None:
    graph = list_reduction()
    assert place(graph, load_target("cpu-4")) == place(msgspec.convert(msgspec.to_builtins(graph), Graph), load_target("cpu-4"))


def test_manual_takes_the_layers_devices() -> None:
    graph = list_reduction(devices=("core:1", "core:0", "core:1"))
    p = place(graph, load_target("cpu-2"), "manual")
    assert device_of_layers(graph, p) == {"embed": {1}, "step": {0}, "head": {1}}


def test_balanced_keeps_the_devices_that_layers_ask_for() -> None:
    graph = list_reduction(devices=("core:3", "", ""))
    assert device_of_layers(graph, place(graph, load_target("cpu-4")))["embed"] == {3}


def refused(graph: Graph, target: Target, strategy: str) -> tuple[str, str, str | None]:
    with pytest.raises(AmpError) as caught:
        place(graph, target, strategy)
    d = caught.value.diagnostics[0]
    return d.code, d.message, d.help


def test_refusals() -> None:
    cpu2 = load_target("cpu-2")
    assert refused(two_arms(), cpu2, "balance") == ("AMP510", "there is no placement strategy `balance`", "did you mean `balanced`?")
    assert refused(two_arms(), cpu2, "manual") == (
        "AMP512", "manual placement needs a device for layer `first`", 'write `device = "core:0"`, or leave the choice to `--strategy balanced`',
    )
    assert refused(list_reduction(devices=("core:9", "", "")), cpu2, "balanced") == (
        "AMP511", "layer `embed` asks for device `core:9`, which target `cpu-2` lacks", "did you mean `core:1`?",
    )
    assert refused(list_reduction(devices=("gpu", "x", "core:0")), cpu2, "manual")[1] == (
        "layer `step` asks for device `x`, which target `cpu-2` lacks"
    )
    code, message, _ = refused(list_reduction(), shrunk(cpu2, 100_000), "balanced")
    assert (code, message) == ("AMP513", "device `core:0` of target `cpu-2` has 100,000 bytes, but its layers need 526,336")


def test_memory_is_kept_where_it_can_be() -> None:
    graph = list_reduction()
    tight = shrunk(load_target("cpu-2"), 540_000)  # the step's layer takes 526,336
    p = place(graph, tight)
    assert all(used <= 540_000 for used in p.memory_bytes)


def test_each_arm_of_a_replicated_layer_is_on_one_device_and_they_are_on_different_ones() -> None:
    graph = replicate(list_reduction(replicas=2))
    p = place(graph, load_target("cpu-4"))
    of = device_of_layers(graph, p)
    assert of["embed~0"] == of["step~0"] != of["embed~1"] == of["step~1"]


def test_strategies_are_what_the_help_says() -> None:
    assert list(STRATEGIES) == ["balanced", "round_robin", "manual"]


def test_many_devices_and_idle_ones() -> None:
    big = load_target("fpga_1tflops")
    many = msgspec.structs.replace(
        big, devices=tuple(msgspec.structs.replace(big.devices[0], name=f"tile:{i}", memory_bytes=1 << 32) for i in range(512))
    )
    p = place(list_reduction(), many)
    assert len(p.busy_s) == 512
    assert p.instances_per_s > 0
