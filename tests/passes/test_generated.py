"""Random programs: passes and the order of messages keep the numbers, gradients are those of finite differences."""

from __future__ import annotations

import random

import numpy as np
from generated import generate
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from programs import assert_same, lowered, numbers, random_instances, random_parameters

from ampc.ir.verify import verify
from ampc.passes import PIPELINE

# Shrinking a program by its draws takes minutes and makes it no shorter.
PROGRAMS = settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))


@PROGRAMS
@given(st.randoms(use_true_random=False), st.integers(0, 1000))
def test_every_pass_keeps_the_numbers_of_generated_programs(rng: random.Random, seed: int) -> None:
    graph = lowered(generate(rng))
    instances, parameters = random_instances(graph, 3, seed), random_parameters(graph, seed)
    expected = numbers(graph, parameters, instances)
    for p in PIPELINE:
        before, graph = graph, p.run(graph)
        if graph is not before:
            verify(graph)
            assert_same(expected, numbers(graph, parameters, instances), 1e-7)
    assert_same(expected, numbers(graph, parameters, instances, schedule=seed), 1e-7)


@PROGRAMS
@given(st.randoms(use_true_random=False), st.integers(0, 1000))
def test_gradients_of_generated_programs_are_those_of_finite_differences(rng: random.Random, seed: int) -> None:
    program = generate(rng).replace("stop_gradient(", "softplus(")  # which has a gradient on both sides
    graph = lowered(program)
    instances, parameters = random_instances(graph, 2, seed), random_parameters(graph, seed)
    found = numbers(graph, parameters, instances)
    if abs(found.loss) > 1e4:  # differences would drown in rounding
        return
    draw = np.random.default_rng(seed)
    way = {name: draw.normal(size=value.shape) for name, value in parameters.items()}
    sides = [numbers(graph, {name: value + step * way[name] for name, value in parameters.items()}, instances).loss for step in (1e-6, -1e-6)]
    slope = sum(float((way[name] * gradient).sum()) for name, gradient in found.gradients.items())
    assert abs((sides[0] - sides[1]) / 2e-6 - slope) <= 1e-4 * (1 + abs(slope))
