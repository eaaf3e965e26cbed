"""What the drivers write down of a pass: every firing, token, message and instance once, in an order that can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ampc.runtime.recording as recording_module
from ampc.codegen.layout import H
from ampc.codegen.plan import segment_names
from ampc.ir.graph import Graph
from ampc.runtime.trace import Trace, join
from support import dataset, engine, random_rows, shared, small

MODELS = ["list_reduction", "qm9_ggsnn", "sentiment_tree_lstm", "seq2seq"]


def recorded(name: str, n: int = 24, workers: int = 3, **options: Any) -> tuple[Graph, Any, Trace]:
    graph = small(name)
    e = engine(graph, workers, **{"min_update_frequency": 4, "max_active_keys": 8, **options})
    data = dataset(graph, random_rows(graph, n, 1))
    result = e.run(data, np.arange(n), train=True, record=True)
    assert e.trace is not None
    return graph, (e, result), e.trace


@pytest.mark.parametrize("driver", ["threads", "step"])
@pytest.mark.parametrize("name", MODELS)
def test_all_is_written_down_and_can_be(name: str, driver: str) -> None:
    _, (e, result), t = recorded(name, driver=driver)
    assert t.problems() == [] and t.dropped == 0 and t.driver == driver
    assert t.segments == segment_names(e.plan) and t.devices == ("0", "1", "2")
    firings, tokens, _ = t.by_queue()
    assert [(int(f), int(n)) for f, n in zip(firings[:-1], tokens[:-1])] == [(f, n) for _, f, n in e.firings()]
    assert int(t.updates.sum()) == sum(result.updates.values())
    assert sorted(t.instance.tolist()) == list(range(24)) and np.isfinite(t.retired_s).all()
    assert t.in_flight()[1].max() <= 8 and t.in_flight()[1][-1] == 0
    assert (t.waiting >= t.tokens).all() and (t.update_s <= t.end_s - t.start_s + 1e-12).all()
    assert 0.0 < t.seconds < 60.0


@pytest.mark.parametrize("driver", ["threads", "step"])
def test_messages_are_those_between_workers(driver: str) -> None:
    _, (e, _), t = recorded("list_reduction", driver=driver)
    assert len(t.sent_s)
    owner = {s.id: s.device % 3 for s in e.plan.segments}
    assert all(t.receiver_device[k] == owner[int(t.message_queue[k]) // 2] for k in range(len(t.sent_s)))
    assert all(t.device[t.sender[k]] != t.receiver_device[k] for k in range(len(t.sent_s)))
    # What comes to a device is taken there later on: no token is ready before its last message arrived.
    came: dict[tuple[int, int, int], list[float]] = {}
    for q, slot, index, time in zip(t.message_queue, t.message_slot, t.message_index, t.arrived_s):
        came.setdefault((int(q), int(slot), int(index)), []).append(float(time))
    took: dict[tuple[int, int, int], list[float]] = {}
    for f, slot, index in zip(t.taken_firing, t.taken_slot, t.taken_index):
        took.setdefault((int(t.queue[f]), int(slot), int(index)), []).append(float(t.start_s[f]))
    for token, times in came.items():
        assert min(times) <= max(took[token])


def test_every_token_of_every_instance_is_there_once() -> None:
    _, (e, _), t = recorded("list_reduction", n=8)
    # Eight instances in eight slots: no slot is used twice, so that a token is told by its queue, slot and state.
    tokens = [(int(t.queue[f]), int(s), int(i)) for f, s, i in zip(t.taken_firing, t.taken_slot, t.taken_index)]
    assert len(set(tokens)) == len(tokens)
    states = {s.id: int(e._binding.extents.states(s.region).sum()) for s in e.plan.segments}
    assert len(tokens) == 2 * sum(states.values())


def test_synchronous_updates_have_firings_of_their_own() -> None:
    _, (_, result), t = recorded("list_reduction", mode="sync")
    assert t.problems() == [] and t.dropped == 0
    ordered = t.queue == 2 * len(t.segments)
    assert int(ordered.sum()) == int(t.updates.sum()) == sum(result.updates.values()) > 0
    orders = t.message_queue == 2 * len(t.segments)
    assert orders.any() and (t.sender[orders] == -1).all()


def test_without_it_nothing_is_kept_and_the_numbers_are_the_same() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 16, 3))
    with_log, without = (engine(graph, 2, driver="step", min_update_frequency=4) for _ in range(2))
    with_log.run(data, np.arange(16), train=True, record=True)
    without.run(data, np.arange(16), train=True)
    assert without.trace is None
    assert all(np.array_equal(with_log.parameters[k], v) for k, v in without.parameters.items())
    b = with_log._binding
    assert b is not None and b.I[H.LOG0] == 0 and without._binding is not None and len(b.I) == len(without._binding.I)
    first = with_log.trace
    with_log.run(data, np.arange(16), train=True)
    assert with_log.trace is first


def test_a_log_that_is_full_ends_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, whole = recorded("list_reduction", driver="step")
    monkeypatch.setattr(recording_module, "MOST_BYTES", 1)
    _, _, t = recorded("list_reduction", driver="step")
    assert t.problems() == []
    assert 0 < len(t.start_s) <= 3 * 8
    assert t.dropped == len(whole.start_s) + len(whole.taken_firing) - len(t.start_s) - len(t.taken_firing) + len(whole.sent_s) - len(t.sent_s)
    assert np.isfinite(t.retired_s).all() and len(t.instance) == 24


def test_parts_of_a_pass_are_one_trace() -> None:
    graph = small("list_reduction")
    e = engine(graph, 2, min_update_frequency=2, driver="step")
    data = dataset(graph, random_rows(graph, 12, 1))
    traces = []
    for start in (0, 6):
        e.run(data, np.arange(start, start + 6), train=True, record=True)
        assert e.trace is not None
        traces.append((start * 1.0, e.trace))
    whole = join(traces)
    assert whole.problems() == []
    assert whole.instance.tolist() == list(range(12))
    assert len(whole.start_s) == sum(len(t.start_s) for _, t in traces)
    assert whole.start_s[len(traces[0][1].start_s)] == 6.0 + traces[1][1].start_s[0]
    assert len(whole.update_s) == len(whole.start_s)


def test_an_inference_is_recorded_too() -> None:
    graph = small("list_reduction")
    e = engine(graph, 2)
    e.run(dataset(graph, random_rows(graph, 5, 0)), np.arange(5), train=False, record=True)
    assert e.trace is not None and e.trace.problems() == [] and int(e.trace.updates.sum()) == 0


@pytest.mark.compiled
@pytest.mark.parametrize("driver", ["threads", "step"])
def test_compiled_workers_write_the_same(driver: str) -> None:
    _, (e, result), t = recorded("list_reduction", n=200, driver=driver, workers=2, placement=shared(small("list_reduction")))
    assert t.problems() == [] and t.dropped == 0
    firings, tokens, _ = t.by_queue()
    assert [(int(f), int(n)) for f, n in zip(firings[:-1], tokens[:-1])] == [(f, n) for _, f, n in e.firings()]
    assert int(t.updates.sum()) == sum(result.updates.values())
    assert sorted(t.instance.tolist()) == list(range(200))
    assert (t.end_s > t.start_s).all() and 0.0 < t.seconds < 60.0
