"""The choice of the next queue as plain Python is that of the worker's own loops, for any state of the queues."""

from __future__ import annotations

import functools
import time

import numpy as np
import pytest
from support import dataset, engine, random_rows, small

from ampc.codegen.layout import SEG, H, Q, S
from ampc.runtime import plain, plain_queues, worker
from ampc.runtime.tokens import QUEUE


@pytest.mark.parametrize("workers", [1, 3])
def test_the_choice_of_the_next_queue_is_that_of_the_compiled_loops(workers: int) -> None:
    graph = small("typed_steps")
    e = engine(graph, workers)
    e.bind(dataset(graph, random_rows(graph, 3, 1)))
    assert e._binding is not None
    table, n, rng = e._binding.I, len(e.plan.segments), np.random.default_rng(0)
    queues = table[table[H.QUEUE0] : table[H.QUEUE0] + 2 * n * QUEUE].reshape(2 * n, QUEUE)
    owners = table[table[H.SEG0] + S.OWNER :][: n * SEG : SEG]
    table[H.RANDOM] = 12345
    drawn = functools.partial(plain_queues.choose_any, worker.random)
    for round_ in range(60):
        queues[:, Q.HEAD] = rng.integers(0, 5, 2 * n)
        queues[:, Q.TAIL] = queues[:, Q.HEAD] + rng.integers(1, 40, 2 * n) * (rng.random(2 * n) < (0.0, 0.1, 0.6)[round_ % 3])
        queues[:, Q.ROWS] = rng.integers(0, 9, 2 * n)
        owners[:] = rng.integers(0, workers, n)
        for w in range(workers):
            assert plain_queues.choose(table, w) == worker.choose(table, w)
            state = int(table[H.RANDOM])
            found = worker.choose_any(table, w)
            after = int(table[H.RANDOM])
            table[H.RANDOM] = state
            assert (drawn(table, w), int(table[H.RANDOM])) == (found, after)


def test_a_worker_with_nothing_to_do_leaves_the_lock_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    plain.pause(1)
    assert slept and slept[0] > 0
