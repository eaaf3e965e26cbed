"""Passes that don't train: what they leave out, who does them, and that they give what the program means."""

from __future__ import annotations

import numpy as np
import pytest
from copies import with_copies
from differential import compare, parameters
from support import dataset, engine, graph_of, random_rows, small, spread

from ampc.codegen.kernels import generate
from ampc.ir.copies import plain_name
from ampc.diagnostics import AmpError
from ampc.place import estimate, measure
from ampc.runtime import footprint
from ampc.runtime.engine import Engine
from ampc.runtime.events import Array
from ampc.runtime.options import EngineOptions

NAMES = ("list_reduction", "sentiment_tree_lstm", "qm9_ggsnn", "mixture_of_experts", "early_exit_rnn")


def outputs(e: Engine, data: object, n: int, **how: bool) -> dict[str, list[Array]]:
    return {name: list(rows) for name, rows in e.run(data, np.arange(n), train=False, outputs=True, **how).outputs.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_workers_and_copies_predict_the_same(name: str) -> None:
    graph = small(name)
    data = dataset(graph, random_rows(graph, 12, 3))
    drawn = parameters(graph, 1)
    expected: dict[str, list[Array]] = {}
    for made, workers, driver in ((graph, 1, "step"), (graph, 3, "step"), (graph, 2, "threads"), (with_copies(graph, [graph.layers[0].name.partition(".")[0]], 2), 2, "step")):
        params = {f"{x.name}.{p.name}": drawn[plain_name(f"{x.name}.{p.name}")] for x in made.layers for p in x.params}
        options = EngineOptions(workers=workers, driver=driver, max_active_keys=2, seed=5)  # type: ignore[arg-type]
        e = Engine(made, spread(made, workers), options=options, parameters=params)
        found = outputs(e, data, data.n)
        expected = expected or found
        for key, rows in expected.items():
            assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(found[key], rows, strict=True))


def test_every_worker_has_instances_of_its_own_and_each_as_many_in_flight() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 40, 3))
    for workers in (1, 3):
        e = engine(graph, workers, driver="step", max_active_keys=4)
        result = e.run(data, np.arange(data.n), train=False)
        assert result.instances == 40 and result.in_flight is not None and result.in_flight.number == 4 * workers
        fired = {what: tokens for what, _, tokens in e.firings() if "head" in what}
        assert len(fired) == 2 * workers  # a forward queue and an idle backward one of each
        assert sum(fired.values()) == 40 and sum(tokens > 0 for tokens in fired.values()) == workers


def test_where_there_is_no_room_all_workers_together_have_as_many_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "SLOT_BITS", 3)
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 40, 3))
    result = engine(graph, 2, driver="step", max_active_keys=6).run(data, np.arange(data.n), train=False)
    assert result.instances == 40 and result.in_flight is not None and result.in_flight.number == 6
    with pytest.raises(AmpError, match="8 instances in flight are more than 7"):
        engine(graph, 2, driver="step", max_active_keys=8).run(data, np.arange(data.n), train=False)


def test_arms_share_the_room_of_an_instance() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 10, 3))
    sizes = set()
    for workers in (1, 2, 4):
        found = engine(graph, workers, driver="step").run(data, np.arange(10), train=False).in_flight
        assert found is not None
        sizes.add(found.largest_bytes)
    assert len(sizes) == 1
    trained = engine(graph, driver="step").run(data, np.arange(10), train=True).in_flight
    assert trained is not None and sizes.pop() < trained.largest_bytes  # nothing is kept for a way back


def test_losses_and_metrics_are_left_out_where_nobody_asks() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 10, 3))
    e = engine(graph, driver="step")
    whole = e.run(data, np.arange(10), train=False, outputs=True)
    alone = e.run(data, np.arange(10), train=False, outputs=True, measured=False)
    assert whole.loss > 0 and whole.metrics["accuracy"] is not None
    assert alone.loss == 0 and alone.metrics["accuracy"] is None
    assert np.array_equal(np.stack(list(whole.outputs["logits"])), np.stack(list(alone.outputs["logits"])))


def test_what_only_predicts_compiles_nothing_that_trains() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 3, 3))
    e = engine(graph, driver="step")
    e.run(data, np.arange(3), train=False)
    assert "kernels" not in vars(e) and {f.queue % 2 for f in e.forward.program.functions} == {0}
    e.run(data, np.arange(3), train=True)
    assert "kernels" in vars(e)


def test_a_pass_sees_the_parameters_of_now_and_changes_none() -> None:
    graph = small("list_reduction")
    data = dataset(graph, random_rows(graph, 20, 3))
    e = engine(graph, 2, driver="step", min_update_frequency=2, learning_rate=0.1)
    before = e.run(data, np.arange(20), train=False).loss
    e.run(data, np.arange(20), train=True)
    kept = e.parameters
    after = e.run(data, np.arange(20), train=False).loss
    assert after != before
    assert all(np.array_equal(value, kept[name]) for name, value in e.parameters.items())
    e.run(data, np.arange(20), train=True)  # which a forward pass in between has not disturbed
    assert e.run(data, np.arange(20), train=False).loss != after


# ------------------------------------------------------------------------------------------- zeros at turn 0

FIELDS = "        axis token\n        word: int[token] < 5\n        x: float[token, 3]\n        y: float\n"
BODIES = {
    "folded": "e = Embedding(5, 3)\na = Linear(6, 3)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(a([e(word[t]), h]))\nloss squared(sum(h), y)",
    "state_first": "a = Linear(6, 3)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(a([h, x[t]]))\nloss squared(sum(h), y)",
    "without_bias": "a = Linear(6, 3, bias = false)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(a([h, x[t]])) + h\nloss squared(sum(h), y)",
    "two_states": "a = Linear(9, 6)\nh = zeros(3)\nc = zeros(3)\nloop t in token carry h, c:\n    g = tanh(a([x[t], h, c]))\n    c = c * g[0:3] + g[3:6]\n    h = tanh(c)\nloss squared(sum(h), y)",
    "backwards": "a = Linear(6, 3)\nh = zeros(3)\nloop t in reversed(token) carry h:\n    h = tanh(a([x[t], h]))\nloss squared(sum(h), y)",
}  # fmt: skip


def looped(body: str) -> str:
    return "model m():\n    instance:\n" + FIELDS + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.parametrize("name", BODIES)
def test_zeros_that_a_loop_begins_with_are_not_multiplied(name: str) -> None:
    graph = graph_of(looped(BODIES[name]))
    text = generate(graph, {}).text
    assert text.count("zeros_last(I, w, n)") == 2  # forward and backward
    assert compare(graph, random_rows(graph, 9, 4), [{}, {"max_active_keys": 6}, {"workers": 2, "max_active_keys": 5, "driver": "step"}]) is None


@pytest.mark.parametrize("changed", [("zeros(3)", "ones(3)"), ("[x[t], h]", "[x[t], 2 * h]")])
def test_other_values_are_multiplied_at_every_turn(changed: tuple[str, str]) -> None:
    graph = graph_of(looped(BODIES["backwards"].replace(*changed)))
    assert "zeros_last" not in generate(graph, {}).text


def test_the_cost_model_leaves_them_out() -> None:
    graph = graph_of(looped(BODIES["folded"]))
    data = dataset(graph, [{"word": [1] * 7, "x": [[0.0] * 3] * 7, "y": 0.0}] * 2)
    cost = estimate(graph, measure(graph, data))
    assert sum(n.fwd_matrix_flops for n in cost.nodes.values()) == 6 * 2 * 3 * 3
    assert sum(n.bwd_matrix_flops for n in cost.nodes.values()) == 2 * 6 * 2 * 3 * 3
