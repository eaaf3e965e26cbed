"""What stays the same in all turns of a loop is multiplied once, in front of it: the same numbers, one layer."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from differential import compare
from parts import partial_products
from programs import assert_same, numbers, random_instances, random_parameters
from support import dataset, engine, model_of, random_rows

from ampc.codegen.kernels import generate
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT
from ampc.passes import run_passes
from ampc.place.work import product_flops

HOIST = sys.modules["ampc.passes.hoist"]
"""The module; the package has a function of that name."""
FIELDS = (
    "        axis token, node\n        axis char[token]\n        x: float[token, 2]\n        word: int[token] < 4\n        z: float[3]\n        v: float[node, 2]\n"
    "        c: float[char, 2]\n        y: float\n"
)
BODIES = {
    "one_part_of_three": ("e = Embedding(4, 3)\na = Linear(8, 2)\nw = Linear(3, 3)\ns = tanh(w(z))\nh = zeros(2)\nloop t in token carry h:\n    h = tanh(a([e(word[t]), s, h]))\nloss squared(sum(h), y)", 1),
    "two_parts_apart": ("a = Linear(10, 2)\nw = Linear(3, 3)\ns = tanh(w(z))\nh = zeros(2)\nloop t in token carry h:\n    h = tanh(a([s, x[t], z, h]))\nloss squared(sum(h), y)", 2),
    "neighbours_together": ("a = Linear(10, 2)\nw = Linear(3, 3)\ns = tanh(w(z))\nh = zeros(2)\nloop t in reversed(token) carry h:\n    h = tanh(a([x[t], s, z, h]))\nloss squared(sum(h), y)", 1),
    "all_of_it": ("a = Linear(3, 2)\nb = Linear(3, 2, bias = false)\nh = zeros(2)\nloop t in token carry h:\n    h = tanh(a(z) * h + b(tanh(2 * z)) + x[t])\nloss squared(sum(h), y)", 2),
    "rows_of_an_axis": ("a = Linear(4, 2)\nh = v\nloop i in range(3) carry h:\n    h = tanh(a([v, h]))\nloss squared(sum(sum(node, h)), y)", 1),
    "out_of_two_loops": ("a = Linear(5, 2)\nh = zeros(2)\nloop t in token carry h:\n    loop i in range(2) carry h:\n        h = tanh(a([z, h])) + x[t]\nloss squared(sum(h), y)", 1),
}  # fmt: skip


def compiled(body: str, passes: bool = True) -> Graph:
    return model_of(FIELDS, body, passes)


@pytest.mark.parametrize("name", BODIES)
def test_products_of_what_does_not_change_are_in_front_of_the_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOIST, "LEAST", 1)
    body, count = BODIES[name]
    whole = run_passes(compiled(body, passes=False), ["hoist", "peel"])
    hoisted = HOIST.hoist(whole)
    assert [n.region for n in partial_products(hoisted)] == [0] * count
    assert HOIST.hoist(hoisted) is hoisted
    instances, parameters = random_instances(whole, 4, 7), random_parameters(whole)
    assert_same(numbers(whole, parameters, instances), numbers(hoisted, parameters, instances))
    assert compare(hoisted, random_rows(hoisted, 5, 3), [{}, {"workers": 2}]) is None


@pytest.mark.parametrize(
    "body",
    [
        "a = Linear(5, 2)\nh = zeros(3)\nloop t in token carry h:\n    h = pad(tanh(a([x[t], h])), 3)\nloss squared(sum(h), y)",  # all of it changes
        "a = Linear(4, 2)\nh = zeros(3)\nloop t in token carry h:\n    h = pad(tanh(a([number(t), h])), 3)\nloss squared(sum(h), y)",
        "a = Linear(6, 2)\nh = zeros(3)\nloop t in token carry h:\n    h = pad(tanh(a([dropout(z, 0.5), h])), 3)\nloss squared(sum(h), y)",
        "a = Linear(4, 2)\nh = zeros(2)\nloop t in token carry h:\n    h = tanh(sum(char, a([c, c])) + h)\nloss squared(sum(h), y)",  # rows of the turn's element
        "a = Linear(5, 2, rows = 2)\nh = zeros(2)\nloop t in token carry h:\n    h = tanh(a([z, h]))\nloss squared(sum(h), y)",  # its parts may be elsewhere
        "a = Linear(5, 2)\nh = zeros(2)\nloop while sum(h) < 1 at most 4 carry h:\n    h = h + abs(a([z, h])) + 0.1\nloss squared(sum(h), y)",  # carries z round
    ],
)
def test_what_may_change_stays_in_the_loop(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOIST, "LEAST", 1)
    assert not partial_products(compiled(body))


def test_the_loop_multiplies_only_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = compiled(BODIES["one_part_of_three"][0])
    assert not partial_products(graph)  # that little is not worth it
    monkeypatch.setattr(HOIST, "LEAST", 1)
    graph = compiled(BODIES["one_part_of_three"][0])
    inside = frozenset(n.id for n in graph.nodes)
    flops = {n.op: product_flops(graph, n, inside) for n in graph.nodes if isinstance(n, PPT) and n.layer == "a"}
    assert flops == {"linear_part": (2 * 3 * 2,), "linear": (2 * 2 * 2,)}, "the embedding is folded, the sum is hoisted"
    program = generate(graph, {})
    assert len(program.folds) == 1
    made = [n.outputs[0].cols for n in graph.nodes if isinstance(n, NPT) and n.op == "fill"]
    assert sorted(made) == [2, 3] and program.text.count("fill(F, b") == 1, "h begins as zeros; those in the sum's place are never made"


def test_a_loop_of_no_turns_does_not_reach_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances weigh for a layer what they did before: 1 / (its firings), nothing where the loop makes no turn."""
    monkeypatch.setattr(HOIST, "LEAST", 1)
    graph = compiled(BODIES["neighbours_together"][0])
    rows = random_rows(graph, 6, 3)
    lengths = [len(r["word"]) for r in rows]
    assert 0 in lengths
    e = engine(graph)
    e.bind(dataset(graph, rows))
    assert e._binding is not None
    weight = e._binding.weights()[:, e.plan.layers.index("a")]
    np.testing.assert_allclose(weight, [1 / (n + 1) if n else 0 for n in lengths])
