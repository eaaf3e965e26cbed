"""Every small program, as lowered and after all passes: the engine gives what the interpreter gives. Kernels run as plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from differential import compare
from programs import BODIES, dataset_of, lowered, random_instances, text

from ampc.passes import run_passes


@pytest.mark.parametrize(("number", "name"), list(enumerate(BODIES)), ids=list(BODIES))
def test_the_engine_gives_what_the_interpreter_gives(number: int, name: str) -> None:
    graph = lowered(text(name))
    run: dict[str, Any] = {"driver": "step", "workers": number % 3 + 1, "max_active_keys": (1, 4, 64)[number % 3]}
    for form in (graph, run_passes(graph)):
        assert compare(form, dataset_of(form, random_instances(form, 5, number)), [run], seed=number) is None
