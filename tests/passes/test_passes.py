"""Passes keep the numbers: each one after the other, each left out, on every small program and bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import BODIES, GRAPH, MODELS, assert_same, lowered, numbers, program, random_instances, random_parameters, small, text

from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, FieldRef, Split
from ampc.ir.verify import verify
from ampc.passes import PIPELINE, run_passes


def assert_passes_keep_the_numbers(graph: Graph) -> None:
    instances, parameters = random_instances(graph, 4, 7), random_parameters(graph)
    expected = numbers(graph, parameters, instances)
    for p in PIPELINE:
        before, graph = graph, p.run(graph)
        if graph is not before:
            verify(graph)
            assert_same(expected, numbers(graph, parameters, instances))
            assert p.run(graph) is graph or p.name == "simplify", f"{p.name} has something left to do"


@pytest.mark.parametrize("name", BODIES)
def test_every_pass_keeps_the_numbers(name: str) -> None:
    assert_passes_keep_the_numbers(lowered(text(name)))


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.amp")), ids=lambda p: p.stem)
def test_every_pass_keeps_the_numbers_of_bundled_models(path: Path) -> None:
    assert_passes_keep_the_numbers(small(path))


@pytest.mark.parametrize("left_out", [p.name for p in PIPELINE])
@pytest.mark.parametrize("name", ["functions", "branch_on_argmax", "gather_by_kind", "two_carried", "slices_and_joins"])
def test_any_pass_can_be_left_out(name: str, left_out: str) -> None:
    graph = lowered(text(name))
    instances, parameters = random_instances(graph, 4, 8), random_parameters(graph)
    assert_same(numbers(graph, parameters, instances), numbers(run_passes(graph, [left_out]), parameters, instances))


def test_unknown_pass_is_refused_with_a_suggestion() -> None:
    with pytest.raises(AmpError) as caught:
        run_passes(lowered(text("functions")), ["simplfy"])
    (found,) = caught.value.diagnostics
    assert (found.code, found.message, found.help) == ("AMP401", "there is no pass `simplfy`", "did you mean `simplify`?")


def test_dead_code_is_dropped_with_its_layers_and_regions() -> None:
    graph = lowered(
        "model m():\n    instance:\n        axis token\n        x: float[token]\n        y: float\n    a = Linear(1, 1)\n    b = Linear(1, 1)\n"
        "    h = zeros(1)\n    loop t in token carry h:\n        h = h + b(x[t])\n    loss squared(a(zeros(1)), y)\n"
    )
    lean = run_passes(graph)
    assert [x.name for x in graph.layers] == ["a", "b"]
    assert [x.name for x in lean.layers] == ["a"]
    assert len(lean.regions) == 1


def ops(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes if isinstance(n, NPT))


def flat(body: str) -> Graph:
    return lowered("model m():\n    instance:\n        z: float[4]\n        y: float\n" + "".join(f"    {line}\n" for line in body.splitlines()))


def test_chains_of_constant_arithmetic_become_one_operation() -> None:
    assert ops(run_passes(flat("loss squared(sum(2 * (z * 3 + 1) - 4), y)"))) == ["affine", "field", "sum_columns"]
    assert ops(run_passes(flat("loss squared(sum(z + zeros(4) * 3), y)"))) == ["field", "sum_columns"]
    assert ops(run_passes(flat("loss squared(sum(-(-z)), y)"))) == ["field", "sum_columns"]


def test_equal_work_is_done_once() -> None:
    graph = run_passes(flat("a = Linear(4, 4)\nloss squared(sum(a(z) * a(z)), y)"))
    assert sum(type(n).__name__ == "PPT" for n in graph.nodes) == 1


def test_gates_are_parted_by_one_split() -> None:
    graph = run_passes(flat("a = Linear(4, 6)\ng = a(z)\nloss squared(sum(tanh(g[0:2]) * g[4:6]), y)"))
    (split,) = (n for n in graph.nodes if isinstance(n, Split))
    assert [t.cols for t in split.outputs] == [2, 2, 2]
    assert "columns" not in ops(graph)


def test_overlapping_slices_stay_slices() -> None:
    graph = run_passes(flat("a = Linear(4, 6)\ng = a(z)\nloss squared(sum(g[0:3] * g[2:5]), y)"))
    assert not any(isinstance(n, Split) for n in graph.nodes)


# ----------------------------------------------------------------------------------------------------------- bulk


def forms(graph: Graph) -> set[str]:
    return {r.form for r in run_passes(graph).regions}


@pytest.mark.parametrize("name", ["gather_and_sum", "gather_by_kind", "means_maxima_and_none", "none_gives_zero", "attention_over_neighbours", "sums_over_a_nested_axis"])
def test_elements_that_know_nothing_of_each_other_are_computed_in_bulk(name: str) -> None:
    assert "each" not in forms(lowered(text(name)))


def test_edges_by_kind_become_gather_one_product_for_each_kind_and_scatter() -> None:
    graph = run_passes(lowered(text("gather_by_kind")))
    (by,) = (n for n in graph.nodes if isinstance(n, PPT))
    assert (by.op, by.layer, by.attrs, by.fields) == ("linear_by", "w", {"members": 3}, (FieldRef("kind"),))
    assert {"gather", "scatter"} <= set(ops(graph))


@pytest.mark.parametrize("name", ["loop_inside_each", "all_pairs", "loop_over_a_nested_axis"])
def test_elements_with_loops_of_their_own_stay_elements(name: str) -> None:
    assert {"each", "loop"} <= forms(lowered(text(name)))


@pytest.mark.parametrize("name", ["binary_tree", "children", "two_carried"])
def test_visits_stay_element_by_element(name: str) -> None:
    assert "visit" in forms(lowered(text(name)))


def test_what_bulk_and_elements_both_need_is_computed_once() -> None:
    body = "w = Linear(3, 3)\neach n in node:\n    h = tanh(w(x[n]))\n    g = h\n    loop i in range(2) carry g:\n        g = tanh(g + h)\n    r = g\nloss squared(sum(sum(node, h * r)), y)"
    graph = lowered(program("m", GRAPH, body))
    lean = run_passes(graph)
    assert sum(isinstance(n, PPT) for n in lean.nodes) == 1
    instances, parameters = random_instances(graph, 4, 9), random_parameters(graph)
    assert_same(numbers(graph, parameters, instances), numbers(lean, parameters, instances))


def test_a_large_family_is_compiled_in_good_time() -> None:
    body = "w = Linear(3, 3) for i in 300\neach e in edge:\n    branch mark[e] as i:\n        m = tanh(w[i](x[source[e]]))\n    merge m\n    a[target[e]] += m\nloss squared(sum(sum(node, a)), y)"
    graph = run_passes(lowered(program("m", (*GRAPH, "mark: int[edge] < 300"), body)))
    assert len(graph.nodes) < 20
