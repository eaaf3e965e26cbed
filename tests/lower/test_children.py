"""Values of an element's children, in an `each` and in a visit: the engine gives what the interpreter gives, whatever the drivers and workers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from differential import compare
from programs import BODIES, KINDS, lowered, program, text
from support import random_rows, shared

from ampc.diagnostics import AmpError
from ampc.frontend import parse
from ampc.ir.verify import verify
from ampc.lower import lower
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
@pytest.mark.parametrize("name", [ORDERED[0], *(pytest.param(name, marks=pytest.mark.long) for name in ORDERED[1:])])
def test_compiled_kernels_give_what_the_interpreter_gives(name: str) -> None:
    graph = run_passes(lowered(text(name)))
    runs = [{**run, "workers": 2, "placement": shared(graph)} for run in RUNS]
    assert compare(graph, random_rows(graph, 20, seed=1, longest=6), runs, seed=1) is None


# ------------------------------------------------------------------------------------------------ what is refused

AROUND = {
    "each": ("h = w(x)\neach n in node:", "r = s"),
    "visit": ("visit n in node after kid[n], left[n] carry h:", "h = s"),
    "loop": ("h = w(z)\nloop n in node carry h:", "h = s"),
}
BLOCKS = {
    "none": [],
    "loop": ["loop c in child carry s:"],
    "each": ["each c in child:"],
    "other element": ["loop m in node carry s:"],
    "arm": ["branch mark[n]:", "    0:"],
    "computed arm": ["branch sum(s) > 0:", "    true:"],
    "while": ["loop while sum(s) < 1 at most 2 carry s:"],
    "inner loop": ["loop i in range(2) carry s:", "    loop c in child carry s:"],
}
READ = [
    "h[kid[c]]", "h[kid]", "v[c]", "v", "own[c]", "own", "h[may[c]]", "h[left[kid[c]]]", "h[m]", "h[left]", "q[kid]", "q[kid[c]]", "sum(child, h[kid])",
    "sum(child, own * h[kid])", "sum(child, v * h[kid])", "softmax(child, v)", "sum(child, h[kid] * s)", "v[kid]", "sum(node, q)",
]  # fmt: skip


@pytest.mark.parametrize(("around", "block"), [*itertools.product(AROUND, BLOCKS)])
def test_every_way_to_read_children_is_lowered_or_refused(around: str, block: str) -> None:
    head, end = AROUND[around]
    opening = BLOCKS[block]
    indent = "    " * len(opening)
    accepted = 0
    for read in READ:
        inner = [*opening, f"{indent}s = s + max({read})"]
        if "arm" in block:
            inner += ["    else: s = -s", "merge s"]
        if block == "each":
            inner.append("s = zeros(2)")
        lines = ["s = w(z)", "own = w(x[kid])", "q = w(x) * s", *inner, end]
        body = "w = Linear(3, 2)\nv = w(x[kid])\n" + head + "".join(f"\n    {line}" for line in lines) + "\nloss squared(sum(w(z)), y)"
        try:
            graph = lower(parse(program("m", (*KINDS, "z: float[3]"), body), "model.amp"), {})
        except AmpError as wrong:
            for d in wrong.diagnostics:
                assert d.code < "AMP300" and "``" not in d.message + (d.help or ""), f"{read}: {d.message}"
                assert d.primary is not None and d.primary.span.line > 0
            continue
        verify(graph)
        verify(run_passes(graph))
        accepted += 1
    assert accepted
