"""The first turn of a loop that begins with padded rows, in front of the loop: the same numbers from fewer multiplications."""

from __future__ import annotations

import sys

import pytest
from differential import compare
from programs import MODELS, assert_same, numbers, random_instances, random_parameters
from support import graph_of, model_of, random_rows

from ampc.codegen.kernels import generate
from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT
from ampc.passes import run_passes
from ampc.place.work import product_flops

PEEL = sys.modules["ampc.passes.peel"]
"""The module; the package has a function of that name."""
FIELDS = "        axis node, edge\n        x: float[node, 2]\n        source, target: node[edge]\n        kind: int[edge] < 3\n        z: float[2]\n        y: float\n"
BODIES = {
    "kinds": "w = Linear(5, 5) for k in 3\nu = Linear(10, 5)\nh = pad(x, 5)\nloop i in range(3) carry h:\n    each e in edge:\n        branch kind[e] as k:\n            m = w[k](h[source[e]])\n"
    "        merge m\n        a[target[e]] += m\n    h = tanh(u([a, h]))\nloss squared(sum(sum(node, h)), y)",
    "products_with_padded_rows": "w = Linear(5, 5)\nu = Linear(10, 5)\nh = pad(tanh(2 * x), 5)\nloop i in range(2) carry h:\n    g = sigmoid(u([w(h), h]))\n    h = tanh(u([g, g * h])) + h\nloss squared(sum(sum(node, h)), y)",
    "gathered_rows_without_kinds": "w = Linear(5, 5)\nv = Linear(2, 2)\nh = pad(v(x), 5)\nloop i in range(2) carry h:\n    each e in edge:\n        a[target[e]] += w(h[source[e]])\n    h = tanh(h + a)\nloss squared(sum(sum(node, h)), y)",
    "two_carried_and_one_from_outside": "w = Linear(10, 5)\nv = Linear(2, 5)\nq = v(z)\nh = pad(z, 5)\nn = ones(1)\nloop i in range(3) carry h, n:\n    h = tanh(w([h, q])) * n\n    n = n + sum(h)\nloss squared(sum(h) * n, y)",
}  # fmt: skip


def compiled(body: str, passes: bool = True) -> Graph:
    return model_of(FIELDS, body, passes)


def turns(graph: Graph) -> list[int]:
    return [r.count for r in graph.regions if r.form == "loop"]


@pytest.mark.parametrize("name", BODIES)
def test_the_first_turn_multiplies_what_is_not_zero(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEEL, "LEAST", 1)
    whole = run_passes(compiled(BODIES[name], passes=False), ["peel"])
    peeled = PEEL.peel(whole)
    assert turns(peeled) == [n - 1 for n in turns(whole)]
    assert PEEL.peel(peeled) is peeled
    instances, parameters = random_instances(whole, 4, 7), random_parameters(whole)
    assert_same(numbers(whole, parameters, instances), numbers(peeled, parameters, instances))
    assert compare(peeled, random_rows(peeled, 5, 3), [{}, {"workers": 2}]) is None


def test_only_columns_before_the_padding_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEEL, "LEAST", 1)
    graph = compiled(BODIES["kinds"])
    inside = frozenset(n.id for n in graph.nodes)
    flops = [product_flops(graph, n, inside) for n in graph.nodes if isinstance(n, PPT)]
    assert flops == [(2 * 2 * 5,) * 3, (2 * (5 + 2) * 5,), (2 * 5 * 5,) * 3, (2 * 10 * 5,)]


def test_a_padded_value_that_linears_alone_read_is_never_made() -> None:
    body = "w = Linear(5, 5)\nh = pad(tanh(x), 5)\nloss squared(sum(sum(node, w(h){})), y)"
    assert "put_columns" not in generate(compiled(body.format("")), {}).text
    assert "put_columns" in generate(compiled(body.format(") + sum(node, h")), {}).text


@pytest.mark.parametrize(
    "changed",
    [
        ("in range(3)", "in range(1)"),  # nothing would be left of it
        ("in range(3)", "in node"),
        ("in range(3)", "while sum(h) < 1 at most 3"),
        ("tanh(w([h, q]))", "dropout(tanh(w([h, q])), 0.5)"),  # draws by turns
        ("tanh(w([h, q]))", "tanh(w([h, q])) + number(i)"),
        ("n = n + sum(h)", "n = n + sum(h)\n    loss squared(sum(h), y)"),
        ("pad(z, 5)", "q"),
    ],
)
def test_what_knows_of_its_turn_stays_in_the_loop(changed: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEEL, "LEAST", 1)
    body = BODIES["two_carried_and_one_from_outside"]
    assert changed[0] in body
    graph = compiled(body.replace(*changed).replace("loop i while", "loop while"))
    assert PEEL.peel(graph) is graph
    assert turns(graph)[0] in (0, 1, 3)


def test_a_turn_is_written_twice_where_that_spares_enough() -> None:
    text = (MODELS / "qm9_ggsnn.amp").read_text(encoding="utf-8")
    assert turns(graph_of(text, hidden=100)) == [3]
    assert turns(graph_of(text, hidden=20)) == [4]


def test_nothing_is_added_where_nothing_is_gained() -> None:
    """A loop that could be peeled but for its gain: no slice or pad is left over from the attempt."""
    graph = run_passes(compiled(BODIES["products_with_padded_rows"], passes=False), ["peel"])
    assert PEEL.peel(graph) is graph
    assert sum(isinstance(n, NPT) and n.op == "pad" for n in graph.nodes) == 1
