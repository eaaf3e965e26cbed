"""It ends: empty structures everywhere, more workers than cores; and what stands still is reported instead of waited for."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from differential import compare, executed, interpreted, parameters
from support import dataset, engine, graph_of, model_names, random_rows, small

import ampc.runtime.binding as binding_module
import ampc.runtime.watch as watch_module
from ampc.codegen.layout import SEG, H, S
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph

DRIVERS = ("step", "threads")


def empty_rows(graph: Graph, n: int = 3) -> list[dict[str, Any]]:
    """Instances without an element on any axis; index fields of the instance that may be none are."""
    rows = random_rows(graph, n, seed=5)
    return [{f.name: [] if f.axis else row[f.name] for f in graph.fields} for row in rows]


@pytest.mark.parametrize("name", model_names())
@pytest.mark.parametrize("passes", [False, True])
def test_instances_without_any_element_end(name: str, passes: bool) -> None:
    graph = small(name, passes)
    if any(f.kind == "index" and not f.axis and not f.optional for f in graph.fields):
        pytest.skip("an index of the instance needs an element")
    rows = empty_rows(graph, 2)
    runs: list[dict[str, Any]] = [{"workers": 3, "driver": "step", "max_active_keys": 2}, {"workers": 1, "driver": "threads"}]
    assert compare(graph, rows, runs, seed=2, tolerance=1e-4) is None


@pytest.mark.parametrize("name", model_names())
def test_empty_instances_among_others_end(name: str) -> None:
    graph = small(name)
    if any(f.kind == "index" and not f.axis and not f.optional for f in graph.fields):
        pytest.skip("an index of the instance needs an element")
    rows = [*empty_rows(graph, 2), *random_rows(graph, 2, 1), *empty_rows(graph, 1)]
    runs: list[dict[str, Any]] = [{"workers": 2, "driver": "step", "group": 2}, {"workers": 2, "driver": "threads", "max_active_keys": 3}]
    assert compare(graph, rows, runs, seed=2, tolerance=1e-4) is None


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_training_on_nothing_but_empty_instances_updates_what_was_reached(mode: str, driver: str) -> None:
    graph = small("list_reduction")
    data = dataset(graph, empty_rows(graph, 5))
    e = engine(graph, 2, driver=driver, mode=mode, min_update_frequency=2, learning_rate=0.1)
    before = e.parameters
    result = e.run(data, np.arange(5), train=True)
    assert result.instances == 5 and result.updates == {"embed": 0, "step": 0, "head": 3}
    assert all(np.array_equal(before[k], w) for k, w in e.parameters.items() if not k.startswith("head"))
    assert not np.array_equal(before["head.b"], e.parameters["head.b"])


LOOPS = """model m():
    instance:
        axis token
        x: float[token]
        z: float[2]
        k: int < 3
        hot: flag
        y: float
    a = Linear(2, 2)
    never = Linear(2, 2)
    h = z
    loop i in range(0) carry h:
        h = never(h)
    loop while sum(h) > 1000000 at most 4 carry h:
        h = never(h)
    loop t in token carry h:
        loop i in range(0) carry h:
            h = never(h)
        branch k:
            0: h = a(h) + x[t]
            else: h = h
        merge h
    branch hot:
        true:
            loop t in reversed(token) carry h:
                loop s in token carry h:
                    h = tanh(a(h) * x[s])
        false: h = h * 1
    merge h
    loss squared(sum(h), y)
    output h
"""


@pytest.mark.parametrize("passes", [False, True])
def test_loops_of_no_turns_and_arms_that_are_not_taken(passes: bool) -> None:
    graph = graph_of(LOOPS, passes)
    rows = [{"x": x, "z": [0.5, -1.0], "k": k, "hot": hot, "y": 1.0} for x in ([], [1.0], [0.5, 2.0]) for k in (0, 2) for hot in (False, True)]
    runs: list[dict[str, Any]] = [{"workers": w, "driver": d, "max_active_keys": m} for w, d, m in ((1, "step", 1), (3, "step", 64), (3, "threads", 64))]
    assert compare(graph, rows, runs, seed=1, tolerance=1e-4) is None
    e = engine(graph, driver="step", min_update_frequency=1, weight_decay=0.5)
    data = dataset(graph, rows)
    before = e.parameters
    result = e.run(data, np.arange(len(rows)), train=True)
    assert result.updates["never"] == 0 if "never" in result.updates else True
    assert np.array_equal(before["never.w"], e.parameters["never.w"]), "neither decay nor anything else touches what was not reached"


SHAPES: dict[str, dict[str, Any]] = {
    "nothing": {"word": [], "left": [], "right": [], "label": []},
    "one leaf": {"word": [1], "left": [None], "right": [None], "label": [0]},
    "forest of leaves": {"word": [1, 2, 3], "left": [None] * 3, "right": [None] * 3, "label": [0, 1, 2]},
    "the root first": {"word": [None, 1, 2], "left": [1, None, None], "right": [2, None, None], "label": [4, 1, 2]},
    "the same child twice": {"word": [1, None], "left": [None, 0], "right": [None, 0], "label": [1, 1]},
    "a comb": {"word": [1, 2, None, 3, None], "left": [None, None, 0, None, 2], "right": [None, None, 1, None, 3], "label": [0, 1, 2, 3, 4]},
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_trees_of_every_shape(driver: str) -> None:
    graph = small("sentiment_tree_lstm")
    runs: list[dict[str, Any]] = [{"workers": 2, "driver": driver}, {"workers": 1, "driver": driver, "max_active_keys": 1}]
    assert compare(graph, list(SHAPES.values()), runs, seed=3, tolerance=1e-4) is None


def test_children_of_every_number() -> None:
    graph = small("child_sum_tree_lstm")
    kids: list[list[list[int]]] = [[], [[]], [[], [0], [1], [2]], [[], [], [], [0, 1, 2]], [[1, 2], [], []], [[], [0, 0, 0]], [[], [0], [0, 1], [0, 1, 2]]]
    rows = [{"word": [i % 5 for i in range(len(k))], "kid": k, "label": [i % 3 for i in range(len(k))]} for k in kids]
    runs: list[dict[str, Any]] = [{"workers": w, "driver": d, "max_active_keys": m} for w, d, m in ((1, "step", 1), (3, "step", 64), (3, "threads", 64))]
    assert compare(graph, rows, runs, seed=3, tolerance=1e-4) is None


def test_graphs_of_one_node_with_itself_and_of_many_edges_between_two() -> None:
    graph = small("qm9_ggsnn")
    rng = np.random.default_rng(0)

    def row(atoms: int, bonds: list[tuple[int, int]]) -> dict[str, Any]:
        return {
            "feature": rng.normal(size=(atoms, 5)).astype(np.float32).tolist(), "source": [a for a, _ in bonds], "target": [b for _, b in bonds],
            "kind": [i % 4 for i in range(len(bonds))], "dipole": 0.5,
        }  # fmt: skip

    rows = [row(1, [(0, 0)]), row(1, []), row(2, [(0, 1)] * 9), row(3, [(0, 0), (0, 0), (2, 2)]), row(0, [])]
    runs: list[dict[str, Any]] = [{"workers": w, "driver": d} for w, d in ((1, "threads"), (4, "step"))]
    assert compare(graph, rows, runs, seed=3, tolerance=1e-4) is None


# --------------------------------------------------------------------------------------------- workers and watchdog


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_eight_workers_finish(mode: str) -> None:
    graph = small("typed_steps")
    data = dataset(graph, random_rows(graph, 8, 1, longest=3))
    e = engine(graph, 8, driver="threads", max_active_keys=64, min_update_frequency=3, mode=mode)
    assert e.run(data, np.arange(8), train=True).instances == 8


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_workers_beyond_the_cores_share_threads_and_keep_the_meaning(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each core and no more: workers that wait for the processor would hold up the messages of the others."""
    monkeypatch.setattr(binding_module, "usable_cores", lambda: cores)
    graph = small("gated_counter")
    data = dataset(graph, random_rows(graph, 20, 2))
    params = parameters(graph, 1)
    e = engine(graph, 8, seed=1, driver="threads", max_active_keys=64)
    e.set_parameters(dict(params))
    e.bind(data)
    assert e._binding is not None and e._binding.I[H.THREADS] == cores
    np.testing.assert_allclose(executed(e, data).gradients["count.w"], interpreted(graph, data, params).gradients["count.w"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_message_that_never_comes_is_reported(driver: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "WATCHDOG_S", 0.6)
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 4, 1))
    e = engine(graph, workers, driver=driver, max_active_keys=2)
    e.bind(data)
    assert e._binding is not None
    table = e._binding.I
    last = table[H.SEG0] + (len(e.plan.segments) - 1) * SEG
    table[last + S.NEED] += 1  # a segment that waits for one message more than anybody sends
    table[last + S.COUNTED] = 1
    with pytest.raises(AmpError) as caught:
        e.run(data, np.arange(4), train=True)
    assert caught.value.exit_code == 3
    (found,) = caught.value.diagnostics
    assert found.code == "AMP741" and "in flight" in found.message
    # The place of the node that waits, and the rows that it waits with.
    segment = e.plan.segments[-1]
    waits = rf"segment {segment.id} \({re.escape(segment.nodes[0].origin[0])}\): (1 state has got a part of its|2 states have got a part of their) messages"
    assert re.fullmatch(waits, found.notes[0])
    assert found.notes[1:] == ("in flight: row 0 of `data`, row 1 of `data`",)


def test_time_in_which_the_process_itself_was_stopped_counts_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute between two looks, as after SIGSTOP and SIGCONT, is no minute without progress; looks that see nothing move are."""
    graph = small("list_reduction")
    e = engine(graph, driver="step")
    e.bind(dataset(graph, random_rows(graph, 2, 1)))
    assert e._binding is not None
    clock = [100.0]
    monkeypatch.setattr(watch_module.time, "perf_counter", lambda: clock[0])
    watch = watch_module.Watch(e._binding, None, None, clock[0])
    for seconds in (0.5, 60.0, 0.5):
        clock[0] += seconds
        watch.look()
    assert e._binding.I[H.ERROR] == 0
    for _ in range(60):
        clock[0] += 0.5
        watch.look()
    assert e._binding.I[H.ERROR] == watch_module.STUCK


def test_a_fault_of_the_engine_is_told_as_one() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 4, 1))
    e = engine(graph, driver="step")
    e.bind(data)
    assert e._binding is not None
    for q in range(2 * len(e.plan.segments)):
        e._binding.I[e._binding.I[H.QUEUE0] + q * 8 + 1] = 0  # queues with room for one token
    with pytest.raises(AmpError) as caught:
        e.run(data, np.arange(4), train=True)
    assert caught.value.exit_code == 70 and caught.value.diagnostics[0].code == "AMP799"


def test_the_watchdog_leaves_slow_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "WATCHDOG_S", 0.2)
    graph = small("early_exit_rnn")
    data = dataset(graph, random_rows(graph, 60, 1))
    for driver in DRIVERS:
        assert engine(graph, 2, driver=driver).run(data, np.arange(60), train=True).instances == 60


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 0], [-1], [3]])
def test_a_pass_over_other_than_different_instances_is_refused(order: list[int]) -> None:
    graph = small("list_reduction", False)
    rows = random_rows(graph, 3, seed=1)
    with pytest.raises(ValueError, match="different instances of the 3"):
        engine(graph, driver="step", workers=1).run(dataset(graph, rows), np.array(order), train=True)
