"""The engine gives what the interpreter gives, for every bundled model, any placement, schedule, grouping and number in flight.

Most schedules run the generated text as plain Python; those marked `compiled` run it through numba.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from differential import compare
from support import dataset, model_names, random_rows, shared, small

PLAIN = [
    {"workers": 1 + k % 4, "max_active_keys": (1, 2, 4, 64)[(k + k // 4) % 4], "driver": ("step", "threads")[k // 4], "group": 3 if k in (2, 4) else 1, "seed": k}
    for k in range(8)  # every number of workers with every driver
]
COMPILED = [
    {"workers": workers, "max_active_keys": mak, "driver": driver, "seed": 7}
    for workers, mak, driver in itertools.product((2, 4), (1, 4, 64), ("threads", "step"))
]


@pytest.mark.parametrize("name", model_names())
def test_any_schedule_gives_what_the_interpreter_gives(name: str) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 4, seed=1, longest=3))
    assert compare(graph, data, PLAIN, seed=3, tolerance=1e-4) is None


@pytest.mark.parametrize("name", model_names())
def test_graphs_without_passes_give_the_same(name: str) -> None:
    graph = small(name, passes=False)
    data = dataset(graph, random_rows(graph, 4, seed=2))
    runs: list[dict[str, Any]] = [{"workers": 2, "driver": "step"}, {"workers": 1, "driver": "threads"}]
    assert compare(graph, data, runs, seed=3, tolerance=1e-4) is None


ALIKE = ("babi15_ggsnn", "child_sum_tree_lstm", "digits_mlp", "mnist_mlp", "gated_counter", "qm9_ggsnn", "seq2seq")
"""Models whose kernels, and what they are made of, others have as well (those of children: `lower/test_children.py`)."""


@pytest.mark.compiled
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) if name in ALIKE else name for name in model_names()])
def test_compiled_kernels_give_what_the_interpreter_gives(name: str) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 40, seed=1, longest=6))
    placement = shared(graph)  # one placement is one text: it compiles once, with further workers idle
    assert compare(graph, data, [{**run, "placement": placement} for run in COMPILED], seed=7, tolerance=1e-4) is None
