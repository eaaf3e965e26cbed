"""Recorded firings and messages equal those that the engine counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ampc.codegen.layout import SEG, H, S
from ampc.codegen.plan import make_plan
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.ir.state import instance_of
from ampc.simulate.record import Recording, record
from tests import programs
from tests.support import dataset, engine, model_names, random_rows, small, spread


def recordings(graph: Graph, workers: int, n: int = 5) -> tuple[list[Recording], dict[int, int]]:
    """Return recordings of some random instances, and the tokens of each queue by the engine with one token a firing."""
    data = dataset(graph, random_rows(graph, n, seed=3))
    placement = spread(graph, workers, seed=1)
    parameters = initial_parameters(graph, 0)
    e = engine(graph, workers, placement=placement, driver="step", max_active_keys=1, group=1)
    e.bind(data)
    assert e._binding is not None
    for s in e.plan.segments:
        e._binding.I[e._binding.I[H.SEG0] + s.id * SEG + S.TAKE] = 1
    e.run(data, np.arange(data.n), train=True, update=False)
    counted = {q: tokens for q, (_, firings, tokens) in enumerate(e.firings())}
    assert all(firings == tokens for _, firings, tokens in e.firings())
    plan = make_plan(graph, placement.device_of)
    return [record(plan, parameters, instance_of(data, graph, i)) for i in range(data.n)], counted


def check(graph: Graph, workers: int) -> None:
    found, counted = recordings(graph, workers)
    fired = Counter(segment for r in found for segment, _ in r.firings)
    for q, tokens in counted.items():
        assert fired[q // 2] == tokens, f"queue {q}"
    for r in found:
        reached = {m.receiver for m in r.messages}
        assert reached == set(range(1, len(r.firings))), "all but the Source are waited for"
        assert len(set(r.firings)) == len(r.firings)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", model_names())
def test_firings_of_bundled_models_are_those_of_the_engine(name: str, workers: int) -> None:
    check(programs.without_dropout(small(name)), workers)


@pytest.mark.parametrize("name", sorted(programs.BODIES))
def test_firings_of_every_construct_are_those_of_the_engine(name: str) -> None:
    check(programs.lowered(programs.text(name)), 2)
