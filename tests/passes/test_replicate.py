"""Copies of layers: the arms, what goes between them and the rest, and that the copies together compute what one layer does."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from copies import families, for_copies, summed, with_copies
from generated import generate
from programs import BODIES, FLAT, MODELS, assert_same, lowered, numbers, program, random_instances, random_parameters, small, text, without_dropout

from ampc.diagnostics import AmpError
from ampc.ir.copies import copy_name, copy_number, plain_name
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.ir.nodes import PPT, Cond, Dealt, Loss, Metric, Output, Phi, Source
from ampc.ir.text import from_text, to_text
from ampc.ir.verify import verify
from ampc.passes import run_passes
from ampc.passes.replicate import replicate


def assert_copies_give_the_same(graph: Graph, choices: list[list[str]], count: int = 3, tolerance: float = 1e-9) -> None:
    instances, parameters = random_instances(graph, 5, 7), random_parameters(graph)  # some have axes without elements
    expected = numbers(graph, parameters, instances)
    for names in choices:
        made = with_copies(graph, names, count)
        verify(made)
        found = numbers(made, for_copies(made, parameters), instances, schedule=3)
        assert_same(expected, dataclasses.replace(found, gradients=summed(found.gradients)), tolerance)
    assert from_text(to_text(made)) == made


def one_or_all(names: list[str]) -> list[list[str]]:
    return [[x] for x in names] + ([names] if len(names) > 1 else [])


@pytest.mark.parametrize("name", BODIES)
def test_copies_of_any_layer_give_the_same(name: str) -> None:
    for graph in (lowered(text(name)), run_passes(lowered(text(name)))):
        assert_copies_give_the_same(graph, one_or_all(families(graph)))


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.amp")), ids=lambda p: p.stem)
def test_copies_of_any_layer_of_bundled_models_give_the_same(path: Path) -> None:
    graph = run_passes(small(path))
    assert_copies_give_the_same(graph, one_or_all(families(graph)))


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_copies_of_some_layers_of_generated_programs_give_the_same(seed: int) -> None:
    rng = random.Random(seed)
    graph = without_dropout(run_passes(lowered(generate(rng))))
    assert_copies_give_the_same(graph, [[x for x in families(graph) if rng.random() < 0.6] or families(graph)], 2, 1e-7)


def flat(body: str) -> Graph:
    return lowered(program("m", FLAT, body))


RECURRENT = "e = Embedding(5, 3{0})\na = Linear(6, 3{0})\nhead = Linear(3, 1)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(a([e(word[t]), h]))\nloss squared(head(h), y)"


def borders(graph: Graph) -> list[tuple[str, int]]:
    """Return (kind, region) of the nodes that deal to arms and collect from them."""
    return [(type(n).__name__, n.region) for n in graph.nodes if isinstance(n, Cond | Phi) and isinstance(n.test, Dealt)]


def test_an_arm_is_whole() -> None:
    graph = run_passes(flat(RECURRENT.format(", replicas = 2")))
    assert [x.name for x in graph.layers] == ["e~0", "e~1", "a~0", "a~1", "head"]
    assert all(x.replicas == 1 for x in graph.layers)
    assert borders(graph) == [("Cond", 0), ("Phi", 0)]  # in at the Source, out behind the loop
    assert sum(isinstance(n, Source) for n in graph.nodes) == sum(isinstance(n, Loss) for n in graph.nodes) == 1


def test_an_instance_of_a_program_whose_layers_are_all_copied_never_leaves_its_arm() -> None:
    body = RECURRENT.format(", replicas = 2").replace("head = Linear(3, 1)", "head = Linear(3, 1, replicas = 2)")
    body = body.replace("loss squared(head(h), y)", "p = 2 * head(h)\nloss squared(p, y)\nmetric absolute_error(p, y)\noutput p")
    graph = run_passes(flat(body))
    assert borders(graph) == [("Cond", 0)]
    assert [type(n) for n in graph.nodes if isinstance(n, Loss | Metric | Output)] == [Loss, Loss, Metric, Metric, Output, Output]
    assert {n.name for n in graph.nodes if isinstance(n, Output)} == {"p"} and list(graph.metrics) == ["absolute_error"]


def test_a_loss_of_two_layers_one_of_which_has_copies_exists_once() -> None:
    body = "a = Linear(3, 1, replicas = 2)\nb = Linear(3, 1)\nh = zeros(3)\nloss squared(a(h) + b(h), y)"
    graph = run_passes(flat(body))
    assert sum(isinstance(n, Loss) for n in graph.nodes) == 1


def test_another_layer_between_divides_the_arms() -> None:
    body = RECURRENT.format("").replace("a = Linear(6, 3)", "a = Linear(6, 3, replicas = 4)")
    graph = run_passes(flat(body))
    assert sorted(borders(graph)) == [("Cond", 0), ("Cond", 1), ("Phi", 0)]  # the start of h; a word's vector; h at the end
    assert sorted(n.layer for n in graph.nodes if isinstance(n, PPT)) == ["a~0", "a~1", "a~2", "a~3", "e", "head"]


def test_a_bulk_family_is_copied_as_a_whole() -> None:
    graph = run_passes(lowered(text("gather_by_kind").replace("w = Linear(3, 3)", "w = Linear(3, 3, replicas = 2)")))
    assert {n.layer for n in graph.nodes if isinstance(n, PPT)} == {"w~0", "w~1"}
    assert [x.name for x in graph.layers] == ["w~0.0", "w~1.0", "w~0.1", "w~1.1", "w~0.2", "w~1.2"]


def test_copies_start_equal_to_the_layer() -> None:
    plain, copied = (run_passes(lowered(text("gather_by_kind").replace("w = Linear(3, 3)", f"w = Linear(3, 3{r})"))) for r in ("", ", replicas = 2"))
    start = initial_parameters(plain, 5)
    assert all((value == start[plain_name(name)]).all() for name, value in initial_parameters(copied, 5).items())


def test_a_graph_without_copies_stays_as_it_is() -> None:
    graph = flat(RECURRENT.format(""))
    assert replicate(graph) is graph
    made = run_passes(flat(RECURRENT.format(", replicas = 2")))
    assert replicate(made) is made


def test_the_pass_can_be_left_out() -> None:
    graph = run_passes(flat(RECURRENT.format(", replicas = 2")), ["replicate"])
    assert [x.name for x in graph.layers] == ["e", "a", "head"] and borders(graph) == []


def test_different_numbers_are_refused() -> None:
    body = RECURRENT.format(", replicas = 2").replace("Linear(6, 3, replicas = 2)", "Linear(6, 3, replicas = 4)")
    with pytest.raises(AmpError) as caught:
        run_passes(flat(body))
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("AMP402", "layer `a` has 4 replicas, but `e` has 2")
    assert found.primary is not None and (found.primary.span.line, found.primary.text) == (17, "`a` has 4 replicas")
    assert [label.text for label in found.secondary] == ["`e` has 2 replicas"]


def test_names() -> None:
    assert [copy_name(n, 1) for n in ("step", "message.2")] == ["step~1", "message~1.2"]
    assert [plain_name(n) for n in ("step~1.w", "message~12.2.w", "step.w")] == ["step.w", "message.2.w", "step.w"]
    assert [copy_number(n) for n in ("step~1.w", "message~12.2", "step.w")] == [1, 12, None]
