"""Strategies: complete, one device a layer, within memory, never worse than their starting points; refusals with their messages."""

from __future__ import annotations

import functools

import msgspec
import pytest

from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT, Loss, Metric, Output
from ampc.passes.replicate import replicate
from ampc.passes.split import split
from ampc.place import STRATEGIES, Placement, Target, guess, load_target, place
from ampc.place.cost import estimate
from ampc.place.loads import Loads
from ampc.place.memory import devices_needed
from ampc.place.problem import Problem
from ampc.place.report import report
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


HARD = ("child_sum_tree_lstm", "typed_steps", "mixture_of_experts")
"""Models whose best placement on many devices the solver searches for some seconds."""
MODELS = [pytest.param(name, marks=pytest.mark.long) if name in HARD else name for name in bundled_models()]


@functools.cache
def compiled(name: str) -> Graph:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    return graph


@functools.cache
def roomy(target: str) -> Target:
    return shrunk(load_target(target), 1 << 40)


@functools.cache
def placed(name: str, target: str, strategy: str) -> Placement:
    return place(compiled(name), roomy(target), strategy)


@pytest.mark.parametrize(
    ("strategy", "target"), [("balanced", "cpu-1"), ("balanced", "cpu-2"), ("balanced", "fpga_1tflops"), ("round_robin", "cpu-2"), ("round_robin", "fpga_1tflops")]
)
@pytest.mark.parametrize("name", MODELS)
def test_every_node_has_a_device_and_a_layer_has_one(name: str, strategy: str, target: str) -> None:
    graph, hardware, p = compiled(name), roomy(target), placed(name, target, strategy)
    assert set(p.device_of) == {n.id for n in graph.nodes}
    assert all(0 <= d < len(hardware.devices) for d in p.device_of.values())
    assert all(len(devices) == 1 for devices in device_of_layers(graph, p).values())
    for n in graph.nodes:
        if isinstance(n, Loss | Metric | Output):
            assert p.device_of[n.id] == p.device_of[n.inputs[0][0]]
    assert p.busy_s[p.bottleneck] == max(p.busy_s)
    assert p.instances_per_s == pytest.approx(1 / max(p.busy_s), rel=1e-4) or p.bottleneck_link
    assert p.instances_per_s <= 1 / max(p.busy_s) * (1 + 1e-4)
    if len(hardware.devices) == 1:
        assert p.crossing_messages == 0


HARDWARE = ("cpu-4", pytest.param("cpu-8", marks=pytest.mark.long), "fpga_1tflops", "fpga_tiny_memory")


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("name", MODELS)
def test_balanced_is_not_slower_than_dealing_and_not_worse_than_one_device(name: str, hardware: str) -> None:
    graph, target = compiled(name), roomy(hardware)
    best, dealt = placed(name, hardware, "balanced"), placed(name, hardware, "round_robin")
    assert best.instances_per_s >= dealt.instances_per_s * (1 - 1e-5)
    problem = Problem(graph, target, estimate(graph, guess(graph)), fine=True)
    dealt_s = 1 / dealt.instances_per_s
    together = Loads(problem, [0] * len(problem.units))
    if together.busiest_s() <= dealt_s:
        chosen = Loads(problem, [best.device_of[u.nodes[0]] for u in problem.units])
        assert chosen.score()[2] <= together.score()[2] * (1 + 1e-5)
    assert 0 <= best.gap < 1


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


def test_what_does_not_fit_says_by_how_much_and_what_would_help() -> None:
    cpu2 = load_target("cpu-2")
    with pytest.raises(AmpError) as caught:
        place(list_reduction(), shrunk(cpu2, 100_000))
    d = max(caught.value.diagnostics, key=lambda d: any("`step`" in n for n in d.notes))
    assert d.code == "AMP513"
    assert "of target `cpu-2` has 100,000 bytes, but what is placed there needs " in d.message
    assert d.message.endswith(" too many")
    assert any(n.startswith("layer `step`: 526,336 bytes of weights, gradients and optimiser state, ") for n in d.notes)
    assert "no number of devices of 100,000 bytes is enough, for `step` alone needs " in str(d.help)
    assert "`columns = " in str(d.help)
    values = sum(u.value_bytes for u in Problem(list_reduction(), cpu2, estimate(list_reduction(), guess(list_reduction()))).units)
    with pytest.raises(AmpError) as caught:
        place(list_reduction(), shrunk(load_target("cpu-1"), 600_000 + values // 2))
    (d,) = caught.value.diagnostics
    assert "devices like these would be enough" in str(d.help)
    assert "it fits with 32 instances in flight (`max_active_keys`) instead of 64" in str(d.help)
    assert "sgd" not in str(d.help)  # half of the layers' bytes are not enough
    with pytest.raises(AmpError) as caught:
        place(list_reduction(), shrunk(load_target("cpu-1"), 400_000 + values))
    assert "it fits with `optimizer = sgd` in the `train:` block" in str(caught.value.diagnostics[0].help)


def test_devices_needed() -> None:
    assert devices_needed([3, 3, 3], 6) == 2
    assert devices_needed([7], 6) is None
    assert devices_needed([], 6) == 1


def test_memory_is_kept_where_it_can_be() -> None:
    graph = list_reduction()
    problem = Problem(graph, load_target("cpu-2"), estimate(graph, guess(graph)))
    room = max(u.memory_bytes for u in problem.units) + 20_000
    p = place(graph, shrunk(load_target("cpu-2"), room))
    assert all(used <= room for used in p.memory_bytes)
    assert sum(p.memory_bytes) == sum(u.memory_bytes for u in problem.units)


def test_layers_are_put_where_the_command_line_says() -> None:
    graph, cpu4 = list_reduction(devices=("core:3", "", "")), load_target("cpu-4")
    of = device_of_layers(graph, place(graph, cpu4, at={"embed": "core:1", "head": "core:2"}))
    assert (of["embed"], of["head"]) == ({1}, {2})
    copies = replicate(list_reduction(replicas=2))
    of = device_of_layers(copies, place(copies, cpu4, at={"step": "core:2", "step~1": "core:3"}))
    assert (of["step~0"], of["step~1"]) == ({2}, {3})
    with pytest.raises(AmpError) as caught:
        place(graph, cpu4, at={"stop": "core:1"})
    assert [(d.code, d.help) for d in caught.value.diagnostics] == [("AMP514", "did you mean `step`?")]


def test_members_that_one_product_takes_can_not_be_told_apart() -> None:
    graph = compiler.compile_source(read_source("qm9_ggsnn"), stop_after="passes").graph
    assert graph is not None
    with pytest.raises(AmpError) as caught:
        place(graph, load_target("cpu-4"), at={"message.1": "core:1", "message.2": "core:2"})
    assert caught.value.diagnostics[0].code == "AMP515"


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


def test_a_copy_and_a_part_are_named_on_their_own() -> None:
    graph = replicate(split(msgspec.structs.replace(list_reduction(), layers=tuple(
        msgspec.structs.replace(x, columns=2, replicas=2) if x.name == "step" else x for x in list_reduction().layers
    ))))  # fmt: skip
    at = {"step": "core:0", "step~1": "core:1", "step@1": "core:2", "step@1~1": "core:3"}
    of = device_of_layers(graph, place(graph, load_target("cpu-4"), at=at))
    assert (of["step@0~0"], of["step@0~1"], of["step@1~0"], of["step@1~1"]) == ({0}, {1}, {2}, {3})


def test_a_report_has_the_seconds_that_a_profile_refined() -> None:
    graph, target = list_reduction(32), load_target("cpu-2")
    slow = place(graph, target, factors={n.id: (3.0, 3.0) for n in graph.nodes})
    told = report(graph, target, slow, guess(graph))
    assert [d["busy_s"] for d in told["devices"]] == list(slow.busy_s)
    assert slow.instances_per_s < place(graph, target).instances_per_s
    assert max(slow.busy_s) == pytest.approx(1 / slow.instances_per_s, rel=1e-4)
