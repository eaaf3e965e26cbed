"""Arms of a whole program: what is in them, that together they compute what one does, and the way back to one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from copies import families, for_copies, with_copies
from programs import MODELS, assert_same, numbers, random_instances, random_parameters, small

from ampc.ir.arms import arm_of, whole
from ampc.ir.copies import copy_number
from ampc.ir.nodes import PPT, Cond, Dealt, Source
from ampc.ir.verify import verify
from ampc.passes import run_passes

PATHS = sorted(MODELS.glob("*.amp"))


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_arms_of_all_but_the_source_compute_what_the_program_does(path: Path) -> None:
    graph = run_passes(small(path))
    made = whole(graph, 3)
    verify(made)
    arms = arm_of(made)
    outside = [n for n in made.nodes if n.id not in arms]
    assert all(isinstance(n, Source) or (isinstance(n, Cond) and isinstance(n.test, Dealt)) for n in outside)
    assert len(made.nodes) - len(outside) == 3 * sum(arm == 1 for arm in arms.values())
    assert all(copy_number(n.layer) == arms[n.id] for n in made.nodes if isinstance(n, PPT))
    instances, parameters = random_instances(graph, 5, 7), random_parameters(graph)
    expected = numbers(graph, parameters, instances)
    found = numbers(made, for_copies(made, parameters), instances, schedule=3)
    assert_same(dataclasses.replace(expected, gradients={}), dataclasses.replace(found, gradients={}), 1e-9)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_arms_are_taken_away_again(path: Path) -> None:
    graph = run_passes(small(path))
    names = families(graph)
    assert whole(graph, 1) == graph
    for layers in (names, names[:1]):
        assert whole(with_copies(graph, layers, 2), 1) == graph
        assert whole(with_copies(graph, layers, 2), 3) == whole(graph, 3)
