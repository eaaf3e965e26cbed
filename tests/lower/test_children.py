"""Values of an element's children, in an `each` and in a visit: the engine gives what the interpreter gives, whatever the drivers and workers."""

from __future__ import annotations

from typing import Any

import pytest
from differential import compare
from programs import BODIES, lowered, text
from support import random_rows, spread

from ampc.passes import run_passes

NAMES = [name for name in BODIES if "child" in name or name in ("attention_of_each_element", "attention_as_a_local")]
RUNS: list[dict[str, Any]] = [
    {"driver": "step"},
    {"driver": "step", "workers": 2, "max_active_keys": 1},
    {"driver": "threads", "workers": 3, "max_active_keys": 4},
    {"driver": "threads", "workers": 2, "max_active_keys": 8, "group": 3},
]
ORDERED = ["ordered_children", "attention_as_a_local", "attention_of_each_element"]


@pytest.mark.parametrize("passes", [False, True], ids=["lowered", "passes"])
@pytest.mark.parametrize("name", NAMES)
def test_any_schedule_gives_what_the_interpreter_gives(name: str, passes: bool) -> None:
    graph = lowered(text(name))
    graph = run_passes(graph) if passes else graph
    # Instances without nodes, leaves, nodes that several name; the interpreter's sums are exact.
    assert compare(graph, random_rows(graph, 6, seed=1) + random_rows(graph, 3, seed=2, longest=7), RUNS, seed=1) is None


@pytest.mark.compiled
@pytest.mark.parametrize("name", ORDERED)
def test_compiled_kernels_give_what_the_interpreter_gives(name: str) -> None:
    graph = run_passes(lowered(text(name)))
    placement = spread(graph, 2, seed=1, loose=False)
    runs = [{**run, "workers": 2, "placement": placement} for run in RUNS]
    assert compare(graph, random_rows(graph, 20, seed=1, longest=6), runs, seed=1) is None
