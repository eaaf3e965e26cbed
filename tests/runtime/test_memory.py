"""What instances in flight take: room by their own size, as predicted, without overlap; one always fits, and many do by waiting for room."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import dataset, engine, model_names, random_rows, small

from ampc.codegen.arena import predicted_bytes
from ampc.codegen.layout import LINE_BYTES, POOL, H, M
from ampc.place.statistics import guess, measure
from ampc.runtime import footprint as footprint_module
from ampc.runtime import room
from ampc.runtime.engine import Engine
from ampc.runtime.events import InFlight, merge_flights


def bound(e: Engine) -> Any:
    assert e._binding is not None
    return e._binding


FORWARD = ("babi15_ggsnn", "digits_mlp", "sentiment_tree_lstm")


@pytest.mark.parametrize(("name", "train"), [*((name, True) for name in model_names()), *((name, False) for name in FORWARD)])
def test_a_run_takes_what_was_predicted(name: str, train: bool) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 40, 3, longest=9))
    e = engine(graph, driver="step", max_active_keys=8)
    found = e.run(data, np.arange(data.n), train=train).in_flight
    mean, largest = predicted_bytes((e if train else e.forward).program, measure(graph, data))
    assert found is not None
    lines = 2 * LINE_BYTES  # which even nothing takes
    assert found.instance_bytes == pytest.approx(mean, rel=0.1) or found.instance_bytes == lines > mean
    assert found.largest_bytes <= max(1.1 * largest, lines)
    assert found.number == 8
    assert found.instance_bytes <= found.peak_bytes <= found.pool_bytes <= 8 * found.largest_bytes * 1.5


def test_axes_of_one_length_are_predicted_to_the_byte() -> None:
    graph = small("list_reduction")
    data = dataset(graph, [{"symbol": [1] * 7, "label": 0}] * 5)
    e = engine(graph, driver="step")
    found = e.run(data, np.arange(5), train=True).in_flight
    mean, largest = predicted_bytes(e.program, measure(graph, data))
    assert found is not None and mean == largest
    assert found.instance_bytes == mean


def test_guessed_lengths_predict_too() -> None:
    graph = small("char_word_rnn")
    e = engine(graph)
    mean, largest = predicted_bytes(e.program, guess(graph))
    assert 0 < mean < largest


def test_one_long_instance_does_not_make_the_others_long() -> None:
    graph = small("list_reduction")
    rows = [{"symbol": [1, 2, 3], "label": 0} for _ in range(200)]
    rows[100] = {"symbol": [1] * 5000, "label": 1}
    e = engine(graph, driver="threads", max_active_keys=64)
    data = dataset(graph, rows)
    e.bind(data)
    b = bound(e)
    assert LINE_BYTES * (b.values + b.counts) < 3 * b.largest_bytes  # not 64 times the longest
    assert max(b.extents.shapes.most_of(b.domain[s.id], b.slots) for s in e.plan.segments) < 5500  # nor do queues hold as much
    assert b.I.nbytes < 40 * 5000 * 8


@pytest.mark.parametrize("driver", ["step", "threads"])
@pytest.mark.parametrize("group", [1, 3])
def test_instances_wait_for_room_and_all_come_to_their_turn(driver: str, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that holds little more than the largest: fewer are in flight than asked for, and the sums are those of a large pool."""
    graph = small("sentiment_tree_lstm")
    data = dataset(graph, random_rows(graph, 18, 5, longest=6))

    def run() -> tuple[float, InFlight, dict[str, Any]]:
        e = engine(graph, 2, driver=driver, max_active_keys=8, group=group, seed=2)
        e.run(data, np.arange(18), train=True, update=False)
        again = e.run(data, np.arange(18), train=True, update=False)
        assert again.instances == 18 and again.in_flight is not None
        for word in (H.VALUES0, H.COUNTS0):
            pool = bound(e).I[bound(e).I[word] :]
            assert pool[M.LIVE] == 0 and pool[M.FULL] == 0
        return again.loss, again.in_flight, e.gradients(data, np.arange(18))

    loss, wide, gradients = run()
    monkeypatch.setattr(footprint_module, "POOL_SHARE", 0.0)
    tight_loss, tight, tight_gradients = run()
    assert tight.pool_bytes < wide.pool_bytes and tight.number < wide.number
    assert tight_loss == pytest.approx(loss, rel=1e-5)
    for name, value in gradients.items():
        np.testing.assert_allclose(tight_gradients[name], value, rtol=1e-3, atol=1e-4)


def test_the_step_driver_stays_repeatable_where_instances_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint_module, "POOL_SHARE", 0.0)
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 40, 5, longest=8))

    def run() -> dict[str, Any]:
        e = engine(graph, 2, driver="step", max_active_keys=6, min_update_frequency=2, seed=4)
        e.run(data, np.arange(40), train=True)
        return e.parameters

    first, second = run(), run()
    assert all((first[name] == second[name]).all() for name in first)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 40), st.data())
def test_blocks_never_overlap_and_lie_in_the_part_of_their_copy_while_it_has_room(cohorts: int, copies: int, largest: int, data: st.DataObject) -> None:
    size = 40
    blocks = 200
    I = np.zeros(400, np.int64)  # noqa: E741  # its name in kernels
    I[H.COHORTS], I[H.COPIES] = cohorts, copies
    pool = I[blocks : blocks + POOL]
    pool[M.LINES] = size
    room.clear_pool(I, blocks, largest)
    borders = [size // copies * c for c in range(copies)] if size // copies >= largest else [0]
    live: dict[int, tuple[int, int]] = {}
    copy_of: dict[int, int] = {}
    reached = 0
    for _ in range(data.draw(st.integers(1, 30))):
        idle = [c for c in range(cohorts) if c not in live]
        if live and (not idle or data.draw(st.booleans())):
            gone = data.draw(st.sampled_from(sorted(live)))
            room.give_block(I, blocks, copy_of[gone], gone)
            del live[gone]
        else:
            cohort, copy, lines = idle[0], data.draw(st.integers(0, copies - 1)), data.draw(st.integers(1, largest))
            gaps = []
            for begin, end in itertools.pairwise((*borders, size)):
                at = begin
                for start, length in sorted(b for b in live.values() if begin <= b[0] < end):
                    gaps.append((begin, start - at))
                    at = start + length
                gaps.append((begin, end - at))
            fits = max(g for _, g in gaps) >= lines
            assert room.take_block(I, blocks, copy, cohort, lines) == int(fits)
            assert fits or pool[M.FULL] == 1
            if fits:
                block = I[blocks + POOL + cohort * room.BLOCK :]
                live[cohort], copy_of[cohort] = (int(block[room.START]), int(block[room.LENGTH])), copy
                reached = max(reached, sum(live[cohort]))
                own = borders[copy] if len(borders) > 1 else 0
                if max(g for begin, g in gaps if begin == own) >= lines and all(b[0] >= borders[copy_of[c] % len(borders)] for c, b in live.items()):
                    assert live[cohort][0] >= own
        ordered = sorted(live.values())
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(ordered))
        assert all(a >= 0 and a + n <= size for a, n in ordered)
        assert pool[M.LIVE] == sum(n for _, n in ordered)
        assert pool[M.PEAK] >= pool[M.LIVE]
    for cohort in sorted(live):
        room.give_block(I, blocks, copy_of[cohort], cohort)
    assert room.stretch(I, blocks) <= reached
    assert room.take_block(I, blocks, 0, 0, size // len(borders)) == 1


def test_figures_of_parts_are_those_of_the_whole() -> None:
    a, b = InFlight(10.0, 20, 4, 50, 60), InFlight(40.0, 45, 3, 90, 95)
    assert merge_flights([(2, a), (1, b)]) == InFlight(20.0, 45, 4, 90, 95)
    assert merge_flights([]) is None
