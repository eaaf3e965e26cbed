"""Products of rows that many others read are made once a row: the same numbers, fewer multiplications."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from differential import compare
from parts import partial_products, with_parts
from programs import assert_same, numbers, random_instances, random_parameters
from support import model_of, random_rows

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT
from ampc.ir.verify import verify
from ampc.passes import run_passes
from ampc.place.work import product_flops
from ampc.runtime.weights import divided, shapes

ROWS = sys.modules["ampc.passes.rows_first"]
"""The module; the package has a function of that name."""
FIELDS = (
    "        axis node, edge, choice\n        chosen: node[choice]\n        next: node[node]\n        x: float[node, 2]\n        f: float[edge, 1]\n        source, target: node[edge]\n"
    "        away: node[edge] or none\n        kind: int[edge] < 3\n        z: float[2]\n        y: float\n"
)
BODIES = {
    "both_ends": ("w = Linear(5, 2)\neach e in edge:\n    a[target[e]] += tanh(w([x[source[e]], x[target[e]], f[e]]))\nloss squared(sum(sum(node, a)), y)", ["node", "node"]),
    "one_end_is_all": ("w = Linear(2, 2)\neach e in edge:\n    a[target[e]] += tanh(w(x[away[e]]))\nloss squared(sum(sum(node, a)), y)", ["node"]),
    "nothing_else_and_no_bias": ("w = Linear(4, 2, bias = false)\neach e in edge:\n    a[target[e]] += tanh(w([x[source[e]], x[target[e]]]))\nloss squared(sum(sum(node, a)), y)", ["node", "node"]),
    "the_graph_to_each_node": ("w = Linear(4, 2)\nu = Linear(2, 2)\ns = tanh(u(z))\neach n in node:\n    h = tanh(w([x[n], s]))\nloss squared(sum(sum(node, h)), y)", [""]),
    "in_a_loop": ("w = Linear(4, 2)\nh = x\nloop i in range(2) carry h:\n    each e in edge:\n        a[target[e]] += w([h[source[e]], h[target[e]]])\n    h = tanh(h + a)\nloss squared(sum(sum(node, h)), y)", ["node", "node"]),
}  # fmt: skip


def compiled(body: str, passes: bool = True) -> Graph:
    return model_of(FIELDS, body, passes)


@pytest.mark.parametrize("name", BODIES)
def test_rows_are_multiplied_before_they_are_gathered_or_repeated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROWS, "LEAST", 1)
    body, rows = BODIES[name]
    whole = run_passes(compiled(body, passes=False), ["rows-first"])
    early = ROWS.rows_first(whole)
    assert [n.outputs[0].rows for n in partial_products(early)] == rows
    assert ROWS.rows_first(early) is early
    instances, parameters = random_instances(whole, 4, 7), random_parameters(whole)
    assert_same(numbers(whole, parameters, instances), numbers(early, parameters, instances))
    assert compare(early, random_rows(early, 5, 3), [{}, {"workers": 2}]) is None


@pytest.mark.parametrize("how", ["columns", "rows"])
def test_a_layer_whose_products_are_in_several_places_can_be_split(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROWS, "LEAST", 1)
    graph = compiled(BODIES["both_ends"][0])
    made = with_parts(graph, ["w"], 3, how)
    verify(made)
    instances, parameters = random_instances(graph, 4, 7), random_parameters(graph)
    found = numbers(made, divided(parameters, shapes(made)), instances)
    assert_same(numbers(graph, parameters, instances), dataclasses.replace(found, gradients=divided(found.gradients, shapes(graph))))


def test_zeros_joined_are_zeros_without_a_bias() -> None:
    graph = compiled("w = Linear(4, 2, bias = false)\nloss squared(sum(w([0 * z, zeros(2)])) + sum(w([zeros(2), zeros(2)])), y)")
    assert compare(graph, random_rows(graph, 5, 3), [{}]) is None


def test_edges_multiply_only_what_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODIES["both_ends"][0]
    assert not partial_products(compiled(body))  # that little is not worth it
    monkeypatch.setattr(ROWS, "LEAST", 1)
    graph = compiled(body)
    inside = frozenset(n.id for n in graph.nodes)
    flops = [(n.outputs[0].rows, product_flops(graph, n, inside)) for n in graph.nodes if isinstance(n, PPT)]
    assert sorted(flops) == [("edge", (2 * 1 * 2,)), ("node", (2 * 2 * 2,)), ("node", (2 * 2 * 2,))]
    gathered = [n.outputs[0].cols for n in graph.nodes if isinstance(n, NPT) and n.op == "gather"]
    assert gathered == [2, 2]


@pytest.mark.parametrize(
    "body",
    [
        "w = Linear(2, 2) for k in 3\neach e in edge:\n    branch kind[e] as k:\n        m = w[k](x[source[e]])\n    merge m\n    a[target[e]] += m\nloss squared(sum(sum(node, a)), y)",  # families see to it
        "w = Linear(2, 2)\neach c in choice:\n    a[chosen[c]] += tanh(w(x[chosen[c]]))\nloss squared(sum(sum(node, a)), y)",  # perhaps few of many nodes
        "w = Linear(2, 2)\neach n in node:\n    h = tanh(w(x[next[n]]))\nloss squared(sum(sum(node, h)), y)",  # as many
        "w = Linear(2, 5)\neach e in edge:\n    a[target[e]] += tanh(w(x[source[e]]))\nloss squared(sum(sum(node, a)), y)",  # wider than what is gathered
        "w = Linear(4, 2, columns = 2)\neach e in edge:\n    a[target[e]] += tanh(w([x[source[e]], x[target[e]]]))\nloss squared(sum(sum(node, a)), y)",
    ],
)
def test_other_products_stay_as_they_are(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ROWS, "LEAST", 1)
    assert not partial_products(compiled(body))
