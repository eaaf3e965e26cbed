"""Random programs: element by element, in bulk and in threads, each against the interpreter in float64: losses, metrics, outputs, gradients.

`AMPC_PROGRAMS=3000` runs so many of each world instead of the few of an ordinary session, each in all forms; `AMPC_PROGRAMS_FROM` says at which seed
to begin. Kernels run as plain Python, but for the last test.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from differential import compare
from generated import WORLDS, generate
from support import graph_of, random_rows

from ampc.diagnostics import AmpError
from ampc.runtime import kernels

PROGRAMS = int(os.environ.get("AMPC_PROGRAMS", "12"))
FIRST = int(os.environ.get("AMPC_PROGRAMS_FROM", "0"))
CHUNK = 4
FORMS: list[tuple[bool, str]] = [(False, "step"), (True, "step"), (True, "threads"), (False, "threads")]
"""With the passes that make whole values of elements, or without; the driver."""


def check(text: str, seed: int, forms: Sequence[tuple[bool, str]] = FORMS) -> str | None:
    """Return what differs for one program under schedules drawn with `seed`; None if nothing does."""
    draw = random.Random(seed)
    for passes in (False, True):
        runs: list[dict[str, Any]] = [
            {"workers": draw.randint(1, 3), "max_active_keys": draw.choice([1, 2, 64]), "driver": driver, "group": draw.choice([1, 1, 2]), "seed": seed}
            for bulk, driver in forms if bulk == passes
        ]
        if not runs:
            continue
        try:
            graph = graph_of(text, passes)
        except AmpError as refused:
            if "AMP268" in {d.code for d in refused.diagnostics}:
                return None  # reads one word's characters from what lies over all of them: the generator doesn't keep track of that
            raise
        problem = compare(graph, random_rows(graph, 3, seed, longest=3), runs, seed)
        if problem not in (None, "ill"):
            return f"seed {seed}, passes {passes}: {problem}\n{text}"
    return None


@pytest.fixture(autouse=True)
def forget_kernels() -> None:
    for name in [m for m in sys.modules if m.startswith(kernels.PREFIX)]:
        del sys.modules[name]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, CHUNK))
def test_generated_programs(first: int, world: str) -> None:
    every = "AMPC_PROGRAMS" in os.environ
    problems = [check(generate(random.Random(k), world), k, FORMS if every else [FORMS[k % 4]]) for k in range(first, first + CHUNK)]
    assert not any(problems), next(p for p in problems if p)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [6, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 18, 21, 33))])
def test_generated_programs_compiled(seed: int) -> None:
    problem = check(generate(random.Random(seed), "graphs" if seed % 2 else "words"), seed, [FORMS[seed % 4]])
    assert problem is None, problem
