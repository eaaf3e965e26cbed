"""The paper's estimate: known values, and its inputs taken from a program."""

from __future__ import annotations

import dataclasses

import pytest

from ampc.diagnostics import AmpError
from ampc.place.statistics import AxisStatistics, Statistics
from ampc.simulate.estimate import MEANINGS, Inputs, estimate, inputs_of
from tests.support import MODELS, graph_of, small

STATISTICS = Statistics({"atom": AxisStatistics(18.0, 29.0), "bond": AxisStatistics(37.3, 60.0)}, {}, "data", 100)


@pytest.mark.parametrize(
    ("changes", "graphs", "gigabits"),
    [({}, 5787, 1.11), ({"nodes": 29}, 5987, 1.15), ({"gates": 1}, 17361, 3.33), ({"hidden": 100}, 23148, 2.22)],
)
def test_the_formula_gives_the_values_that_were_reckoned_for_the_paper(changes: dict[str, float], graphs: int, gigabits: float) -> None:
    found = estimate(dataclasses.replace(Inputs(), **changes))
    assert round(found.graphs_per_s) == graphs
    assert round(found.bits_per_s / 1e9, 2) == gigabits


def test_the_device_of_an_edge_sets_the_pace_where_edges_are_many() -> None:
    few, many = estimate(Inputs(edges=30)), estimate(Inputs(edges=30_000))
    assert few.cell_flops > few.edge_flops and many.edge_flops > many.cell_flops
    assert many.graphs_per_s == pytest.approx(1e12 / many.edge_flops)


@pytest.mark.parametrize("passes", [True, False], ids=["in bulk", "edge by edge"])
def test_inputs_follow_from_the_program_and_its_data(passes: bool) -> None:
    graph = graph_of((MODELS / "qm9_ggsnn.amp").read_text("utf-8"), passes, hidden=200)
    assert inputs_of(graph, STATISTICS) == Inputs(steps=4, nodes=18.0, edges=37.3, kinds=4, hidden=200, gates=3)
    assert inputs_of(graph, STATISTICS, 2e12, apart=True) == Inputs(4, 18.0, 37.3, 4, 200, 2e12, gates=2)


def test_another_program_is_refused_by_name() -> None:
    with pytest.raises(AmpError, match="AMP554.*`list_reduction` is no gated graph network"):
        inputs_of(small("list_reduction"), Statistics({"token": AxisStatistics(9.0, 10.0)}))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_inputs_are_positive_numbers(value: float) -> None:
    with pytest.raises(AmpError, match="AMP554.*`kinds` of the estimate must be a positive number"):
        Inputs(kinds=value)


def test_every_input_is_printed_with_what_it_means() -> None:
    lines = estimate().lines()
    for name in MEANINGS:
        assert any(line.startswith(name + " ") for line in lines)
    assert lines[-2].split()[1] == "5,787" and set(MEANINGS) == {f.name for f in dataclasses.fields(Inputs)}
