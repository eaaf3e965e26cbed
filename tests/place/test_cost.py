"""The cost model: how often nodes fire, what they cost, and statistics of data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from copies import families, with_copies

from ampc import compiler
from ampc.ir.nodes import PPT
from ampc.place import AxisStatistics, Statistics, estimate, guess, measure
from ampc.source import bundled_models, read_source
from sample_graphs import list_reduction, two_arms


@dataclasses.dataclass
class Data:
    n: int
    axes: dict[str, Any]
    columns: dict[str, Any]
    inner: dict[str, Any] = dataclasses.field(default_factory=dict)


def test_a_loop_multiplies_by_its_mean_extent() -> None:
    graph = list_reduction(hidden=8)
    cost = estimate(graph, Statistics(axes={"token": AxisStatistics(5.0, 9.0)}))
    fires = {n.layer: cost.nodes[n.id].fires for n in graph.nodes if isinstance(n, PPT)}
    assert fires == {"embed": 5.0, "step": 5.0, "head": 1.0}


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 1e6])
def test_any_extent_gives_finite_costs(length: float) -> None:
    cost = estimate(list_reduction(), Statistics(axes={"token": AxisStatistics(length, length)}))
    assert all(np.isfinite([c.fires, c.flops, c.bytes]).all() and c.fires >= 0 for c in cost.nodes.values())
    assert cost.nodes[10].fires == pytest.approx(length)  # the step


def test_a_matrix_product_costs_two_operations_a_weight_forward_and_four_back() -> None:
    graph = list_reduction(hidden=128)
    cost = estimate(graph, Statistics(axes={"token": AxisStatistics(2.0, 2.0)}))
    step = next(n for n in graph.nodes if isinstance(n, PPT) and n.layer == "step")
    # Half of the 256 columns are an embedding's, which is folded: its rows of the product are added instead, at both turns. At turn 0 the rest is zeros.
    assert cost.nodes[step.id].fwd_flops == 2 * 128 * 128 + 2 * (128 + 128)
    assert cost.nodes[step.id].bwd_flops == 4 * 128 * 128 + 2 * (128 + 128)
    head = next(n for n in graph.nodes if isinstance(n, PPT) and n.layer == "head")
    assert (cost.nodes[head.id].fwd_flops, cost.nodes[head.id].bwd_flops) == (2 * 128 * 10 + 10, 4 * 128 * 10 + 10)


def test_arms_of_a_branch_share_by_value() -> None:
    graph = two_arms()
    even = estimate(graph, guess(graph))
    skewed = estimate(graph, Statistics(axes={}, shares={"kind": {"0": 0.9, "3": 0.1}}))
    arms = [n.id for n in graph.nodes if isinstance(n, PPT)]
    assert [even.nodes[a].fires for a in arms] == [0.25, 0.75]
    assert [round(skewed.nodes[a].fires, 9) for a in arms] == [0.9, 0.1]


def test_memory_counts_weights_gradients_and_optimizer_state() -> None:
    graph = list_reduction(hidden=8)
    assert estimate(graph, guess(graph)).layers["head"].memory_bytes == (8 * 10 + 10) * 4 * 4  # adam keeps two moments


def test_statistics_of_data() -> None:
    data = Data(4, {"token": np.array([0, 2, 2, 5, 9])}, {"symbol": np.zeros(9, np.int64), "label": np.array([1, 1, 2, 3])})
    seen = measure(list_reduction(), data)
    assert seen == Statistics(axes={"token": AxisStatistics(2.25, 4.0)}, shares={}, origin="data", instances=4)
    kinds = measure(two_arms(), Data(4, {}, {"kind": np.array([0, 0, 3, -1]), "label": np.zeros(4), "x": np.zeros((4, 4))}))
    assert kinds.shares == {"kind": {"-1": 0.25, "0": 0.5, "3": 0.25}}


def test_statistics_of_no_data_are_guessed() -> None:
    graph = list_reduction()
    assert measure(graph, Data(0, {"token": np.zeros(1, np.int64)}, {})) == guess(graph)


@pytest.mark.parametrize("name", ["list_reduction", "sentiment_tree_lstm", "babi15_ggsnn", "seq2seq"])
def test_copies_share_the_work_of_one_layer(name: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    made = with_copies(graph, families(graph), 3)
    alone, shared = (sum(c.flops for c in estimate(g, guess(g)).nodes.values()) for g in (graph, made))
    assert shared == pytest.approx(alone)


@pytest.mark.parametrize("name", bundled_models())
def test_every_model_has_a_finite_cost(name: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    cost = estimate(graph, guess(graph))
    assert set(cost.nodes) == {n.id for n in graph.nodes}
    assert cost.flops > 0
    assert all(c.fires >= 0 and np.isfinite(c.flops + c.bytes) for c in cost.nodes.values())
    assert all(c.fires > 0 for n in graph.nodes if isinstance(n, PPT) for c in [cost.nodes[n.id]])
