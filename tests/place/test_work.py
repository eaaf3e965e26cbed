"""What a node does row by row, how long a device takes for it, and what a precision changes."""

from __future__ import annotations

import msgspec
import pytest

import ampc
from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, AnyNode, Loss
from ampc.place import AxisStatistics, Device, Statistics, Target, bundled_targets, estimate, guess, load_target, place, precision_of, terms
from ampc.place.problem import Problem
from ampc.place.target import NOTHING, Handling, Links
from ampc.place.work import handling, memory_bytes, product_flops, product_sides, spared_at_first, update_frequency
from ampc.source import bundled_models, read_source, remember
from sample_graphs import list_reduction

DEVICE = Device(
    name="d", kind="cpu", matrix_flops_per_s={"fp32": 100e9, "bf16": 200e9}, vector_flops_per_s=10e9, memory_bytes=1 << 30, message_overhead_s=2e-7,
    firing_overhead_s=16e-7, matrix_half_rows=4.0, memory_bytes_per_s=1e9, cores=2,
)  # fmt: skip


def compiled(name: str) -> Graph:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    return graph


def layer_node(graph: Graph, layer: str) -> AnyNode:
    return next(n for n in graph.nodes if isinstance(n, PPT) and n.layer == layer)


def test_a_matrix_product_is_apart_from_the_rest() -> None:
    graph = list_reduction(hidden=128)
    step = layer_node(graph, "step")
    (term,) = terms(graph, step)
    assert (term.axis, term.matrix_fwd, term.matrix_bwd, term.vector_fwd) == ("", 2 * 256 * 128, 4 * 256 * 128, 128)
    assert term.bytes_fwd == 4 * (256 + 128)
    assert product_flops(graph, step) == (2 * 256 * 128,)


def test_what_fires_together_leaves_out_what_the_engine_leaves_out() -> None:
    """A Concat before a Linear is never made, and an embedding of few rows is folded into the Linear."""
    graph = list_reduction(hidden=128)
    step, embed = layer_node(graph, "step"), layer_node(graph, "embed")
    concat = graph.by_id[step.inputs[0][0]]
    together = {step.id, embed.id, concat.id}
    assert terms(graph, concat) != ()
    assert terms(graph, embed) != ()
    assert terms(graph, concat, inside=together) == terms(graph, embed, inside=together) == ()
    (term,) = terms(graph, step, inside=together)
    assert (term.matrix_fwd, term.vector_fwd, term.bytes_fwd) == (2 * 128 * 128, 128 + 128, 4 * (128 + 128 + 128))
    assert product_flops(graph, step, together) == (2 * 128 * 128,)
    # Elsewhere, or with a policy that keeps versions of weights, it is looked up and multiplied.
    for apart, folding in (({step.id, concat.id}, True), (together, False)):
        assert terms(graph, embed, inside=apart, folding=folding) != ()
        assert terms(graph, step, inside=apart, folding=folding)[0].matrix_fwd == 2 * 256 * 128
        assert product_flops(graph, step, apart, folding) == (2 * 256 * 128,)


def test_an_estimate_of_a_placed_graph_folds_what_is_together() -> None:
    graph = list_reduction(hidden=128)
    step, embed = layer_node(graph, "step"), layer_node(graph, "embed")
    seen = guess(graph)
    one = dict.fromkeys(graph.by_id, 0)
    assert estimate(graph, seen, together=one) == estimate(graph, seen)
    apart = estimate(graph, seen, together=one | {embed.id: 1}).nodes
    folded = estimate(graph, seen).nodes[step.id]
    assert apart[step.id].fwd_matrix_flops == folded.fwd_matrix_flops + folded.fires * 2 * 128 * 128
    assert apart[embed.id].bytes > 0


def test_a_large_embedding_is_not_folded() -> None:
    text = """model words():
    instance:
        word: int < 513
        x: float[8]
        y: float
    embed = Embedding(513, 8)
    last = Linear(16, 1)
    loss squared(last([embed(word), x]), y)
"""
    for rows, columns in ((513, 16), (512, 8)):
        source = remember("words.amp", text.replace("513", str(rows)).encode(), "words")
        graph = compiler.compile_source(source, stop_after="passes").graph
        assert graph is not None
        assert product_flops(graph, layer_node(graph, "last"), graph.by_id) == (2 * columns,)


@pytest.mark.parametrize("name", bundled_models())
def test_the_rules_of_folding_are_those_of_the_kernels(name: str) -> None:
    from ampc.codegen.kernels import generate

    graph = compiled(name)
    program = generate(graph, dict.fromkeys((n.id for n in graph.nodes), 0))
    priced = set()
    for segment in program.plan.segments:
        inside = {n.id for n in segment.nodes}
        priced |= {n.layer for n in segment.nodes if isinstance(n, PPT) and n.op == "lookup" and not terms(graph, n, inside=inside)}
    assert priced == {f.table for f in program.folds}


ROWS = """model rows():
    instance:
        axis item
        x: float[item, 8]
        y: float
    wide = Linear(8, 16)
    last = Linear(16, 1)
    h = relu(wide(x))
    s = last(sum(item, h))
    loss squared(s, y)
"""


def test_rows_of_an_axis_are_counted_by_the_data() -> None:
    source = remember("rows.amp", ROWS.encode(), "rows")
    graph = compiler.compile_source(source, stop_after="passes").graph
    assert graph is not None
    wide = layer_node(graph, "wide")
    assert {t.axis: t.matrix_fwd for t in terms(graph, wide) if t.matrix_fwd} == {"item": 2 * 8 * 16}
    cost = estimate(graph, Statistics(axes={"item": AxisStatistics(5.0, 9.0)})).nodes[wide.id]
    assert cost.fwd_matrix_flops == 5 * 2 * 8 * 16 * cost.fires
    assert cost.product_flops == 2 * 8 * 16


@pytest.mark.parametrize("name", bundled_models())
def test_means_follow_from_the_terms(name: str) -> None:
    """A node whose payloads have one row costs its term times its firings, less the zeros that it leaves out when its loop begins."""
    graph = compiled(name)
    cost = estimate(graph, guess(graph))
    for n in graph.nodes:
        found = terms(graph, n, inside=graph.by_id)
        assert all(min(t.matrix_fwd, t.matrix_bwd, t.vector_fwd, t.vector_bwd, t.bytes_fwd, t.bytes_bwd) >= 0 for t in found)
        if all(t.axis == "" for t in found):
            c = cost.nodes[n.id]
            whole = c.fires * sum(t.matrix_fwd + t.matrix_bwd + t.vector_fwd + t.vector_bwd for t in found)
            spared = 3 * c.fires * spared_at_first(graph, n, graph.by_id)
            assert whole - spared < c.flops < whole if spared else c.flops == pytest.approx(whole)
            assert c.bytes == pytest.approx(c.fires * sum(t.bytes_fwd + t.bytes_bwd for t in found))


def test_seconds_of_a_device() -> None:
    quiet = msgspec.structs.replace(DEVICE, memory_bytes_per_s=0.0, cores=1)
    assert quiet.seconds(100e9, 0, 0) == 1.0
    assert quiet.seconds(0, 10e9, 0) == 1.0
    assert quiet.seconds(100e9, 10e9, 1e12) == 2.0
    # 12 rows of a product: 12 of it and 4 rows of start-up.
    assert quiet.seconds(12 * 1e6, 0, 0, product_flops=1e6) == pytest.approx(16e6 / 100e9)
    assert quiet.seconds(100e9, 0, 0, precision="bf16") == 0.5
    assert DEVICE.seconds(100e9, 0, 0) == 0.5
    assert DEVICE.seconds(100e9, 0, 3e9) == 3.0


def test_a_message_pays_its_share_of_a_firing() -> None:
    one = msgspec.structs.replace(DEVICE, messages_per_firing=1, cores=1)
    assert one.message_s == pytest.approx(2e-7 + 16e-7)
    assert msgspec.structs.replace(one, messages_per_firing=0).message_s == pytest.approx(2e-7 + 1e-7)


@pytest.mark.parametrize(
    ("limit", "settings", "taken"),
    [(0, {"max_active_keys": 300}, 32), (0, {"max_active_keys": 300, "min_update_frequency": 200}, 100), (0, {"max_active_keys": 30}, 16),
     (0, {"max_active_keys": 4}, 4), (0, {"max_active_keys": 4, "group": 100}, 100), (1, {"max_active_keys": 64}, 1), (1, {"max_active_keys": 4, "group": 10}, 10),
     (64, {"max_active_keys": 8}, 8)],
)  # fmt: skip
def test_a_firing_takes_what_is_in_flight_together(limit: int, settings: dict[str, int], taken: int) -> None:
    from ampc.place.problem import loaded

    graph = msgspec.structs.replace(list_reduction(), train=settings)
    assert loaded(msgspec.structs.replace(DEVICE, messages_per_firing=limit), graph).messages_per_firing == taken


@pytest.mark.long
def test_a_precision_changes_rates_and_memory_and_what_is_sent_stays_float32() -> None:
    graph = list_reduction(hidden=128)
    mesh = load_target("fpga_mesh_4x4")
    mesh = msgspec.structs.replace(mesh, links=msgspec.structs.replace(mesh.links, bytes_per_s=1e12))  # links carry as much either way
    single, half = place(graph, mesh, precision="fp32"), place(graph, mesh, precision="bf16")
    assert half.instances_per_s > 1.25 * single.instances_per_s
    layer = graph.layer["step"]
    parameters = 256 * 128 + 128
    assert memory_bytes(layer, graph.train) == parameters * 16
    assert memory_bytes(layer, graph.train, "bf16") == parameters * (16 + 2)  # rounded for products; weights and gradients stay float32
    assert estimate(graph, guess(graph), "bf16").messages == estimate(graph, guess(graph)).messages
    with pytest.raises(AmpError, match=r"AMP506.*target `cpu-2` states no fp16 rate for `core:0`, `core:1`"):
        place(graph, load_target("cpu-2"), precision="fp16")


def test_a_program_of_bf16_products_is_estimated_by_the_rate_that_the_target_states() -> None:
    from ampc.place import placement_report

    plain = list_reduction(hidden=128)
    graph = msgspec.structs.replace(plain, train={**plain.train, "precision": "bf16"})
    fast = load_target("fpga_1tflops")
    slow = msgspec.structs.replace(fast, devices=tuple(msgspec.structs.replace(d, matrix_flops_per_s={"fp32": 1e12}) for d in fast.devices))
    assert (precision_of(graph, fast), precision_of(graph, slow), precision_of(plain, fast)) == ("bf16", "fp32", "fp32")
    for target, missing in ((fast, ""), (slow, "bf16")):
        placed = place(graph, target, "round_robin", precision=precision_of(graph, target))
        found = placement_report(graph, target, placed, guess(graph))
        assert (found["precision"], found["missing_rate"]) == (placed.precision, missing) == (precision_of(graph, target), missing)


def test_a_device_that_batches_little_pays_more_for_small_products() -> None:
    graph = list_reduction(hidden=128)
    slow = load_target("cpu-1")
    device = msgspec.structs.replace(slow.devices[0], matrix_half_rows=16.0)
    rates = [
        place(graph, msgspec.structs.replace(slow, devices=(msgspec.structs.replace(device, messages_per_firing=n),))).instances_per_s
        for n in (1, 4, 64)
    ]
    assert rates[0] < rates[1] < rates[2] < place(graph, slow).instances_per_s


@pytest.mark.parametrize("target", bundled_targets())
@pytest.mark.parametrize("model", ["list_reduction", "mnist_mlp", "sentiment_tree_lstm"])
def test_every_bundled_target_takes_a_model_or_says_what_does_not_fit(model: str, target: str) -> None:
    graph, hardware = compiled(model), load_target(target)
    try:
        p = place(graph, hardware, "round_robin")
    except AmpError as e:
        assert target == "fpga_tiny_memory"
        assert {d.code for d in e.diagnostics} == {"AMP513"}
        return
    assert len(p.busy_s) == len(hardware.devices)
    assert p.instances_per_s > 0
    assert all(b >= 0 for b in p.busy_s)
    # Fewer layers than devices: the others are idle, and said to be.
    assert sum(b == 0 for b in p.busy_s) >= len(hardware.devices) - len(graph.nodes)


def test_what_is_no_arithmetic_is_told_apart() -> None:
    """A cross-entropy goes through its numbers, a recurrent step keeps its result for backward and reads a field for the symbol."""
    graph = list_reduction(hidden=128)
    relu = next(n for n in graph.nodes if isinstance(n, NPT) and n.op == "relu")
    total = sum((t.handled_fwd for t in handling(graph, relu)), NOTHING)
    assert (total.values, total.copied_bytes) == (1, 4 * 128)
    loss = next(n for n in graph.nodes if isinstance(n, Loss))
    numbers = sum(t.handled_fwd.numbers for t in handling(graph, loss))
    assert numbers == graph.type_of(loss.inputs[0]).cols
    embed = layer_node(graph, "embed")
    assert sum(t.handled_fwd.rows for t in handling(graph, embed)) == 1
    step = layer_node(graph, "step")
    assert sum(t.handled_fwd.sides for t in handling(graph, step)) == 256 + 128
    assert product_sides(graph, step, {step.id, step.inputs[0][0]}) == (256.0, 256.0)  # each part of what is concatenated by itself


def test_the_numbers_of_a_softmax_are_counted_within_a_loss_and_without() -> None:
    graph = ampc.compile("mixture_of_experts", target="cpu-1", experts=5).manifest.graph
    (softmax,) = (n for n in graph.nodes if isinstance(n, NPT) and n.op == "softmax")
    terms = handling(graph, softmax)
    assert (sum(t.handled_fwd.numbers for t in terms), sum(t.handled_bwd.numbers for t in terms)) == (5, 0)


def test_updates_cost_what_a_target_says() -> None:
    """An instance has its share of the next update of each layer."""
    graph = list_reduction(hidden=16)
    seconds = []
    for update_s in (0.0, 2.0):
        device = msgspec.structs.replace(DEVICE, update_overhead_s=update_s)
        problem = Problem(graph, Target("t", (device,), Links("shared", 1e9, 0.0)), estimate(graph, guess(graph)))
        seconds.append(float(problem.seconds.sum()))
    assert seconds[1] - seconds[0] == pytest.approx(sum(1 / update_frequency(layer, graph.train) for layer in graph.layers))  # of two cores


def test_a_device_counts_handling_only_where_it_states_what_it_costs() -> None:
    work = Handling(rows=2, values=3, copied_bytes=1e3, sides=100, corners=1, numbers=4)
    plain = Device("core", "cpu", {"fp32": 1e9}, 1e9, 1 << 30, 1e-7)
    assert plain.handling_s(work) == 0 == plain.calls_s(0.0, 50.0, 3.0)
    told = msgspec.structs.replace(
        plain, row_overhead_s=1e-9, value_overhead_s=1e-8, number_overhead_s=1e-10, copy_bytes_per_s=1e9, matrix_half_columns=2.0,
        matrix_half_rows=1.0, product_overhead_s=1e-6,
    )  # fmt: skip
    assert told.handling_s(work) == pytest.approx(2e-9 + 3e-8 + 4e-10 + 1e-6 + 2 * 2 * (100 + 2) / 1e9)
    assert told.calls_s(1e3, 50.0, 3.0) == pytest.approx(1e3 / 1e9 + 2 * 2 * (50 + 2 * 3) / 1e9 + 3e-6)
    far = msgspec.structs.replace(told, cache_bytes=8_000, far_bytes_per_s=1e9)
    assert far.calls_s(2e3, 0.0, 1.0) == told.calls_s(2e3, 0.0, 1.0)  # 1000 weights and their gradients are as much as the cache holds
    assert far.calls_s(2 * 2002.0, 0.0, 2.0) == pytest.approx(told.calls_s(2 * 2002.0, 0.0, 2.0) + 2 * 1001 * 16 / 3 / 1e9)
    updating = msgspec.structs.replace(told, update_overhead_s=2e-7, cores=2)
    assert (plain.update_s(1e3), updating.update_s(1e3, 3.0)) == (pytest.approx(1e-6), pytest.approx(5e-7 + 3e-7))
    assert work + work == work * 2


def test_small_products_are_of_float32_on_a_cpu_as_the_engine_makes_them() -> None:
    from ampc.place.problem import HALF_MULTIPLICATIONS, HALF_ROWS, made_of
    from ampc.runtime import half

    assert (HALF_ROWS, HALF_MULTIPLICATIONS) == (half.FEW_ROWS, half.SMALL)
    core = msgspec.structs.replace(DEVICE, messages_per_firing=64)
    tile = msgspec.structs.replace(core, kind="fpga")
    small, large = (estimate(g, guess(g)).nodes[layer_node(g, "step").id] for g in (list_reduction(hidden=32), list_reduction(hidden=512)))
    assert [made_of(c, d, "bf16") for c in (small, large) for d in (core, tile)] == ["fp32", "bf16", "bf16", "bf16"]
    assert made_of(large, msgspec.structs.replace(core, messages_per_firing=8), "bf16") == "fp32"
    assert made_of(large, core, "fp32") == "fp32"
