"""Random programs on the engine, run as plain Python, with passes off and on, against the interpreter in float64.

`AMPC_PROGRAMS=3000` runs so many instead of the few of an ordinary session; `AMPC_PROGRAMS_FROM` says at which seed to begin.
"""

from __future__ import annotations

import os
import random
import sys

import pytest
from differential import compare
from generated import generate
from generator import generate as generate_nested
from support import graph_of, random_rows

from ampc.diagnostics import AmpError

PROGRAMS = int(os.environ.get("AMPC_PROGRAMS", "40"))
FIRST = int(os.environ.get("AMPC_PROGRAMS_FROM", "0"))
CHUNK = 5


def check(text: str, seed: int) -> str | None:
    """Return what differs for one program, under a schedule drawn with `seed`; None if nothing does. A short session runs each with passes or without."""
    for passes in (False, True) if "AMPC_PROGRAMS" in os.environ else (bool(seed % 2),):
        try:
            graph = graph_of(text, passes)
        except AmpError as refused:
            if "AMP268" in {d.code for d in refused.diagnostics}:
                return None  # reads one word's characters from what lies over all of them: the generator doesn't keep track of that
            raise
        draw = random.Random(2 * seed + passes)
        run = {
            "workers": draw.randint(1, 3), "max_active_keys": draw.choice([1, 2, 64]), "driver": draw.choice(["step", "step", "threads"]),
            "group": draw.choice([1, 1, 2]), "seed": seed,
        }  # fmt: skip
        problem = compare(graph, random_rows(graph, 3, seed, longest=3), [run], seed)
        if problem not in (None, "ill"):
            return f"seed {seed}, passes {passes}: {problem}\n{text}"
    return None


@pytest.fixture(autouse=True)
def forget_kernels() -> None:
    for name in [m for m in sys.modules if m.startswith("ampc_kernels_")]:
        del sys.modules[name]


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS // 2, CHUNK))
def test_generated_programs(first: int) -> None:
    problems = [check(generate(random.Random(seed)), seed) for seed in range(first, first + CHUNK)]
    assert not any(problems), next(p for p in problems if p)


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS // 2, CHUNK))
def test_generated_programs_with_nested_axes_and_every_loss(first: int) -> None:
    problems = [check(generate_nested(random.Random(seed)), seed) for seed in range(first, first + CHUNK)]
    assert not any(problems), next(p for p in problems if p)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [7, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12))])
def test_generated_programs_compiled(seed: int) -> None:
    problem = check((generate if seed % 2 else generate_nested)(random.Random(seed)), seed)
    assert problem is None, problem
