"""Lowered programs in the interpreter: gradients by finite differences, values by the same program in plain numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import BODIES, MODELS, lowered, numbers, program, random_instances, random_parameters, small, text

from ampc.ir.graph import Graph
from ampc.ir.interpret import Interpreter
from ampc.ir.state import Instance

CASES = Path(__file__).parent.parent / "cases"


def assert_gradients(graph: Graph, n: int, seed: int) -> None:
    """Assert that the gradients of the summed loss are those of finite differences, at two entries of each parameter."""
    instances, parameters = random_instances(graph, n, seed), random_parameters(graph)
    found = numbers(graph, parameters, instances)
    rng = np.random.default_rng(seed)
    for name, value in parameters.items():
        for _ in range(2):
            at = tuple(int(rng.integers(0, extent)) for extent in value.shape)
            here, step, sides = value[at], 1e-6, []
            for sign in (1, -1):
                value[at] = here + sign * step
                sides.append(numbers(graph, parameters, instances).loss)
            value[at] = here
            expected = (sides[0] - sides[1]) / (2 * step)
            assert found.gradients[name][at] == pytest.approx(expected, rel=1e-5, abs=1e-6), f"{name}{list(at)}"


@pytest.mark.parametrize("name", BODIES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    assert_gradients(lowered(text(name)), 5, 1)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.amp")), ids=lambda p: p.stem)
def test_bundled_models_have_the_gradients_of_finite_differences(path: Path) -> None:
    assert_gradients(small(path), 3, 2)


@pytest.mark.parametrize("name", BODIES)
def test_any_order_of_messages_gives_the_same(name: str) -> None:
    graph = lowered(text(name))
    instances, parameters = random_instances(graph, 3, 3), random_parameters(graph)
    a, b = (numbers(graph, parameters, instances, schedule) for schedule in (None, 5))
    assert a.loss == pytest.approx(b.loss, rel=1e-12)
    for key, gradient in a.gradients.items():
        np.testing.assert_allclose(b.gradients[key], gradient, rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------------------------- the same in plain numpy


def losses(name: str, seed: int = 4, n: int = 6) -> tuple[Graph, dict[str, Any], list[Instance], list[float]]:
    """Return the graph, its parameters, instances, and the loss of each by the interpreter."""
    graph = lowered(text(name))
    instances, parameters = random_instances(graph, n, seed), random_parameters(graph)
    interpreter = Interpreter(graph, parameters, np.float64)
    return graph, parameters, instances, [interpreter.run(i).loss for i in instances]


def linear(p: dict[str, Any], layer: str, x: Any) -> Any:
    return x @ p[f"{layer}.w"] + p[f"{layer}.b"]


def test_loop_over_an_axis_in_both_directions() -> None:
    for name, step in (("loop_over_axis", 1), ("loop_backwards", -1)):
        _, p, instances, found = losses(name)
        for instance, loss in zip(instances, found, strict=True):
            h = np.zeros(3)
            for x in instance.fields["x"][::step]:
                h = np.tanh(linear(p, "a", np.concatenate([x, h])))
            assert loss == pytest.approx((h.sum() - instance.fields["y"][0, 0]) ** 2)


def test_while_loop_takes_the_turns_that_its_condition_asks_for() -> None:
    _, p, instances, found = losses("while_loop")
    turns = set()
    for instance, loss in zip(instances, found, strict=True):
        z, n = instance.fields["z"][0], 0
        h = z
        while n < 6 and h.mean() < 0.4:
            h, n = h + np.abs(linear(p, "a", z)) * 0.3, n + 1
        turns.add(n)
        assert loss == pytest.approx((h.sum() + n - instance.fields["y"][0, 0]) ** 2)
    assert len(turns) > 1


def test_places_and_turns_are_counted_from_0() -> None:
    _, p, instances, found = losses("places_and_turns")
    for instance, loss in zip(instances, found, strict=True):
        x = instance.fields["x"]
        h, g = np.zeros(3), linear(p, "a", instance.fields["z"][0])
        for t in reversed(range(len(x))):
            h = np.tanh(linear(p, "a", h * np.cos(0.3 * t)) + x[t])
            for i in range(3):
                h = h + 0.1 * i * t * linear(p, "a", h)
        place = sum((x[t] * np.sin(t) + t for t in range(len(x))), np.zeros(3))
        for i in range(4):
            if not g.sum() + i < 3:
                break
            g = g + 0.2 * i
        assert loss == pytest.approx((h.sum() + place.sum() + g.sum() - instance.fields["y"][0, 0]) ** 2)


def test_places_of_children_are_counted_within_their_parent() -> None:
    _, p, instances, found = losses("places_of_children")
    for instance, loss in zip(instances, found, strict=True):
        starts, total = instance.starts["char"], 0.0
        for i, t in enumerate(instance.fields["t"][:, 0]):
            v = p["e.table"][instance.fields["letter"][starts[i] : starts[i + 1]]]
            s = np.zeros(2)
            for c, row in enumerate(v):
                s = np.tanh(s + row * c + 0.1 * i)
            s = s + v.sum(axis=0) * i
            q = [row * (1 + c) for c, row in enumerate(v)]
            total += ((s + (np.max(q, axis=0) if q else 0)).sum() - t) ** 2
        assert loss == pytest.approx(total)


def test_branch_on_a_computed_integer_takes_the_expert_that_it_names() -> None:
    _, p, instances, found = losses("branch_on_argmax")
    for instance, loss in zip(instances, found, strict=True):
        z = instance.fields["z"][0]
        r = np.exp(linear(p, "r", z))
        r /= r.sum()
        k = int(r.argmax())
        h = linear(p, f"w.{k}", z) * r[k]
        assert loss == pytest.approx((h.sum() - instance.fields["y"][0, 0]) ** 2)


def test_messages_by_kind_along_the_edges_of_a_graph() -> None:
    _, p, instances, found = losses("gather_by_kind")
    for instance, loss in zip(instances, found, strict=True):
        f = instance.fields
        h = f["x"]
        for _ in range(2):
            a = np.zeros_like(h)
            for source, target, kind in zip(f["source"], f["target"], f["kind"], strict=True):
                a[target] += linear(p, f"w.{kind}", h[source])
            h = np.tanh(h + a)
        assert loss == pytest.approx((h.sum() - f["y"][0, 0]) ** 2)


def test_binary_tree_reads_zero_where_a_child_is_none() -> None:
    _, p, instances, found = losses("binary_tree")
    for instance, loss in zip(instances, found, strict=True):
        f = instance.fields
        h = np.zeros((len(f["x"]) + 1, 2))  # row -1 is none
        expected = 0.0
        for n, (left, right) in enumerate(zip(f["left"], f["right"], strict=True)):
            h[n] = linear(p, "w", f["x"][n]) if left < 0 else np.tanh(linear(p, "u", np.concatenate([h[left], h[right]])))
            expected += (h[n].sum() - f["t"][n, 0]) ** 2
        assert loss == pytest.approx(expected + (h.sum() - f["y"][0, 0]) ** 2)


def test_attention_over_children_sums_to_one_or_to_nothing() -> None:
    _, p, instances, found = losses("attention_over_children")
    for instance, loss in zip(instances, found, strict=True):
        f, starts = instance.fields, instance.starts["child"]
        h = np.zeros((len(f["x"]), 2))
        expected = 0.0
        for n, x in enumerate(f["x"]):
            kids = f["kid"][starts[n] : starts[n + 1]]
            scores = np.array([linear(p, "s", np.concatenate([x, h[k]]))[0] for k in kids])
            weights = np.exp(scores) / np.exp(scores).sum() if len(kids) else scores
            h[n] = np.tanh(linear(p, "w", x) + (weights[:, None] * h[kids]).sum(axis=0) if len(kids) else linear(p, "w", x))
            expected += (h[n].sum() - f["t"][n, 0]) ** 2
        assert loss == pytest.approx(expected)


def test_children_of_a_node_in_their_order() -> None:
    _, p, instances, found = losses("ordered_children", n=12)
    shared = 0
    for instance, loss in zip(instances, found, strict=True):
        f, starts = instance.fields, instance.starts["child"]
        h = np.zeros((len(f["x"]), 2))
        expected = 0.0
        for n, x in enumerate(f["x"]):  # the kids of a node come before it
            s = linear(p, "w", x)
            for c in range(starts[n], starts[n + 1]):
                s = np.tanh(linear(p, "u", np.concatenate([s, h[f["kid"][c]]])) + f["g"][c])
            h[n] = s
            expected += (s.sum() - f["t"][n, 0]) ** 2
        shared += len(f["kid"]) - len(set(f["kid"].tolist()))
        assert loss == pytest.approx(expected)
    assert shared, "some node is a child of two"


def test_attention_over_the_children_of_each_node() -> None:
    _, p, instances, found = losses("attention_of_each_element", n=12)
    for instance, loss in zip(instances, found, strict=True):
        f, starts = instance.fields, instance.starts["child"]
        h = np.tanh(linear(p, "w", f["x"]))
        for _ in range(2):
            r = h.copy()
            for n in range(len(h)):
                near = h[f["kid"][starts[n] : starts[n + 1]]]
                a = np.exp(linear(p, "k", near))
                r[n] += (a / a.sum(axis=0) * near).sum(axis=0)
            h = np.tanh(r)
        assert loss == pytest.approx((h.sum() - f["y"][0, 0]) ** 2)


def test_loop_over_the_characters_of_each_word() -> None:
    _, p, instances, found = losses("loop_over_a_nested_axis")
    for instance, loss in zip(instances, found, strict=True):
        f, starts = instance.fields, instance.starts["char"]
        total, expected = 0.0, 0.0
        for i, h in enumerate(f["w"]):
            for letter in f["letter"][starts[i] : starts[i + 1]]:
                h = np.tanh(linear(p, "a", np.concatenate([p["e.table"][letter], h])))
            expected += (h.sum() - f["t"][i, 0]) ** 2
            total += h.sum()
        assert loss == pytest.approx(expected + (total - f["y"][0, 0]) ** 2)


def test_means_and_maxima_of_nothing_are_zero() -> None:
    _, p, instances, found = losses("means_maxima_and_none")
    for instance, loss in zip(instances, found, strict=True):
        f = instance.fields
        n = len(f["x"])
        m = np.array([linear(p, "w", f["x"][s]) for s in f["source"]]).reshape(-1, 2)
        expected = 0.0
        for i in range(n):
            a = m[f["away"] == i].mean(axis=0) if (f["away"] == i).any() else np.zeros(2)
            b = m[f["target"] == i].max(axis=0) if (f["target"] == i).any() else np.zeros(2)
            c = m[f["target"] == i].sum(axis=0) + 2 * m[f["source"] == i].sum(axis=0)
            expected += ((a + b * c).sum() - f["t"][i, 0]) ** 2
        assert loss == pytest.approx(expected)


# -------------------------------------------------------------------------------------------- problems of other tools


def from_json(graph: Graph, row: dict[str, Any]) -> Instance:
    """Return a row of a JSON lines file as an instance."""
    parents = {a.name: a.parent for a in graph.axes}
    lengths: dict[str, int] = {}
    starts: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for f in graph.fields:
        value = row[f.name]
        if f.axis and parents[f.axis]:
            lengths[parents[f.axis]] = len(value)
            starts[f.axis] = np.cumsum([0] + [len(part) for part in value])
            value = [x for part in value for x in part]
        value = value if f.axis else [value]
        if f.axis:
            lengths[f.axis] = len(value)
        if f.kind == "float":
            fields[f.name] = np.array(value, float).reshape(len(value), f.columns)
        else:
            fields[f.name] = np.array([-1 if x is None else int(x) for x in value], np.int64)
    return Instance(lengths, fields, starts)


UNIT = "w = Linear(1, 1, bias = false, init = ones)\n"
WITH_WEIGHT_1 = {
    "g": (("axis node, edge", "x: float[node]", "source, target: node[edge]", "y: float"), UNIT + "each e in edge:\n    a[target[e]] += w(x[source[e]])\np = sum(node, a)\nloss squared(p, y)"),
    "q": (("axis token", "x: float[token]", "y: float"), UNIT + "h = zeros(1)\nloop t in token carry h:\n    h = h + w(x[t])\nloss squared(h, y)"),
    "a": (("axis item", "s, x: float[item]", "y: float"), UNIT + "p = w(sum(item, softmax(item, s) * x))\nloss squared(p, y)"),
    "k": (
        ("axis node, child[node]", "v: float[node]", "kid: node[child]", "t: float[node]"),
        UNIT + "visit n in node after kid[n] carry h:\n    h = w(v[n]) + sum(child, h[kid])\n    loss squared(h, t[n])",
    ),
}


@pytest.mark.parametrize(("model", "file", "outputs"), [
    ("g", "E01/train", [0, 0, 1]), ("q", "E05/train", [3, 0, 4, 0]), ("a", "E11/rows", [0, 3, 4]), ("k", "E07/rows", [[2], [1, 2, 3], [1, 2, 3, 10]]),
])
def test_empty_structures_end_and_give_zero(model: str, file: str, outputs: list[Any]) -> None:
    fields, body = WITH_WEIGHT_1[model]
    graph = lowered(program(model, fields, body))
    rows = CASES / f"{file}.jsonl"
    interpreter = Interpreter(graph, {f"{x.name}.{p.name}": np.ones(p.shape) for x in graph.layers for p in x.params}, np.float64)
    for line, expected in zip(rows.read_text(encoding="utf-8").splitlines(), outputs, strict=True):
        result = interpreter.run(from_json(graph, json.loads(line)))
        (rows_,) = result.outputs.values()
        np.testing.assert_allclose(np.concatenate([x for _, x in rows_]).ravel(), expected, atol=1e-12)
        assert all(np.isfinite(g).all() for g in result.gradients.values())

