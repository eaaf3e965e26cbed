"""The event core: order of events, messages on links, growth, chance."""

from __future__ import annotations

import dataclasses
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampc.simulate import core


@dataclasses.dataclass(frozen=True)
class Wire:
    bytes_per_s: float
    latency_s: float


@dataclasses.dataclass(frozen=True)
class Line:
    """Devices in a row, a link from each to the next."""

    links: list[Wire]

    def path(self, a: int, b: int, /) -> range:
        return range(a, b)


times = st.integers(0, 20).map(float)  # few values, so that ties are common


@given(st.lists(times))
def test_events_come_by_time_and_ties_in_the_order_in_which_they_were_pushed(given_times: list[float]) -> None:
    heap = core.events(len(given_times))
    for i, time in enumerate(given_times):
        core.push(heap, time, 1, i, 0)
    taken = [core.pop(heap) for _ in given_times]
    assert [(t, a) for t, _, a, _ in taken] == sorted((t, i) for i, t in enumerate(given_times))


@given(st.lists(st.tuples(st.booleans(), times), max_size=200))
def test_time_never_runs_back_when_events_make_events(steps: list[tuple[bool, float]]) -> None:
    heap, last = core.events(8), 0.0
    under_way = core.flight(8)
    for take, delay in steps:
        if take and heap.counts[0]:
            time, *_ = core.pop(heap)
            assert time >= last
            last = time
        else:
            if not core.room(heap):
                heap, under_way = core.grown(heap, under_way)
            core.push(heap, last + delay, 1, 0, 0)
    assert heap.counts[1] == heap.counts[0] + heap.counts[2]


def test_an_event_in_the_past_is_a_fault() -> None:
    heap = core.events(8)
    core.push(heap, 2.0, 1, 0, 0)
    core.pop(heap)
    with pytest.raises(AssertionError):
        core.push(heap, 1.0, 1, 0, 0)
    with pytest.raises(AssertionError):
        core.push(heap, math.nan, 1, 0, 0)


def deliver(line: Line, sent: list[tuple[float, int, int, float]], capacity: int = 64) -> list[tuple[float, int]]:
    """Send (time, from, to, bytes) and return (arrival, number of the message) in order of arrival."""
    links, _ = core.links_between(line, [(a, b) for _, a, b, _ in sent], len(line.links) + 1)
    capacity = max(capacity, len(sent))
    heap, under_way = core.events(capacity), core.flight(capacity)
    for i, (time, *_) in enumerate(sent):
        core.push(heap, time, 1, i, 0)
    out = []
    while heap.counts[0]:
        if core.room(heap) < 1:
            heap, under_way = core.grown(heap, under_way)
        time, kind, a, _ = core.pop(heap)
        if kind == 1:
            _, sender, receiver, size = sent[a]
            core.send(heap, links, under_way, time, core.route(links, sender, receiver), size, a, 0, 0)
        elif core.arrived(heap, links, under_way, time, a):
            out.append((time, int(under_way.a[a])))
            core.release(under_way, a)
    assert under_way.counts[0] == len(under_way.idle)
    assert links.carried_bytes.sum() == sum(size * (b - a) for _, a, b, size in sent)
    return out


def test_a_message_occupies_one_link_after_the_other() -> None:
    """100 bytes over 100 B/s and 50 B/s, latencies 1 s and 0.5 s: 1 + 1 + 2 + 0.5 = 4.5 s."""
    line = Line([Wire(100.0, 1.0), Wire(50.0, 0.5)])
    assert deliver(line, [(0.0, 0, 2, 100.0)]) == [(4.5, 0)]


def test_messages_wait_for_a_link_in_the_order_in_which_they_reach_it() -> None:
    """Message 0 is at device 1 after 2 s and occupies link 1 until 4; message 1 comes to link 1 at 1.5 (first: until 3.5), so 0 waits till 5.5."""
    line = Line([Wire(100.0, 1.0), Wire(50.0, 0.0)])
    assert deliver(line, [(0.0, 0, 2, 100.0), (1.5, 1, 2, 100.0)]) == [(3.5, 1), (5.5, 0)]


@given(st.lists(st.tuples(times, st.integers(0, 2), st.integers(1, 100)), max_size=40))
def test_a_link_keeps_the_order_of_each_pair_and_loses_nothing(sent: list[tuple[float, int, int]]) -> None:
    line = Line([Wire(10.0, 0.25), Wire(3.0, 0.0), Wire(7.0, 2.0)])
    messages = [(time, a, 3, float(size)) for time, a, size in sent]
    got = deliver(line, messages, capacity=1)
    assert sorted(i for _, i in got) == list(range(len(sent)))
    for a in range(3):
        arrived = [i for _, i in got if messages[i][1] == a]
        assert arrived == sorted(arrived, key=lambda i: (messages[i][0], i))


def test_a_route_that_nobody_asked_for_is_not_there() -> None:
    links, used = core.links_between(Line([Wire(1.0, 0.0)] * 4), [(1, 3), (1, 2), (2, 2)], 5)
    assert core.route(links, 1, 2) == 0 and core.route(links, 1, 3) == 1
    assert core.route(links, 0, 1) == -1 and core.route(links, 2, 2) == -1 and core.route(links, 1, 4) == -1
    assert used == (1, 2)


def test_durations_vary_as_asked_for_and_repeat_by_seed() -> None:
    state = core.random_state(7)
    drawn = [core.jitter(state, 0.3) for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(1.0, abs=0.01)
    assert statistics.stdev(drawn) == pytest.approx(0.3, abs=0.015)
    again = core.random_state(7)
    assert [core.jitter(again, 0.3) for _ in range(100)] == drawn[:100]
    before = again.copy()
    assert core.jitter(again, 0.0) == 1.0 and np.array_equal(before, again)


def test_random_numbers_are_spread_evenly() -> None:
    state = core.random_state(0)
    drawn = np.array([core.uniform(state) for _ in range(20_000)])
    assert drawn.min() > 0.0 and drawn.max() <= 1.0
    counts = np.histogram(drawn, bins=10, range=(0.0, 1.0))[0]
    assert counts.min() > 1800 and counts.max() < 2200
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
