"""What training does: updates, when they happen, staleness, groups; against plain loops in numpy with the interpreter's gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from differential import difference, executed, interpreted, parameters
from support import dataset, engine, graph_of, model_names, random_rows, small

from ampc.data.dataset import Dataset
from ampc.ir.graph import Graph
from ampc.ir.interpret import Interpreter
from ampc.ir.state import instance_of
from ampc.runtime.engine import Engine
from ampc.runtime.runner import grouped

Array = np.ndarray[Any, Any]
CHAINS = ["digits_mlp", "mnist_mlp"]


def prepared(name: str, n: int, seed: int = 1, longest: int = 4) -> tuple[Graph, Dataset]:
    graph = small(name)
    return graph, dataset(graph, random_rows(graph, n, seed, longest))


# ------------------------------------------------------------------------------------------ plain SGD, repeatability


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("driver", ["step", "threads"])
def test_one_instance_in_flight_on_a_chain_is_plain_sgd_bit_for_bit(name: str, driver: str) -> None:
    assert_plain_sgd(name, driver)


@pytest.mark.compiled
@pytest.mark.parametrize("driver", ["step", "threads"])
def test_compiled_one_instance_in_flight_on_a_chain_is_plain_sgd_bit_for_bit(driver: str) -> None:
    assert_plain_sgd("digits_mlp", driver)


def assert_plain_sgd(name: str, driver: str) -> None:
    graph, data = prepared(name, 12)
    rate = np.float32(0.05)
    order = np.random.default_rng(3).permutation(data.n)
    plain = engine(graph, driver="step")
    for i in order:
        gradients = plain.gradients(data, np.array([i]))
        plain.set_parameters({k: w - rate * gradients[k] for k, w in plain.parameters.items()})
    e = engine(graph, driver=driver, optimizer="sgd", learning_rate=float(rate), min_update_frequency=1, max_active_keys=1)
    e.run(data, order, train=True)
    for k, w in plain.parameters.items():
        assert np.array_equal(w, e.parameters[k]), k


@pytest.mark.parametrize("name", ["list_reduction", "qm9_ggsnn", "typed_steps", "sentiment_tree_lstm"])
def test_step_driver_repeats_bit_for_bit(name: str) -> None:
    graph, data = prepared(name, 10)

    def trained(seed: int) -> dict[str, Array]:
        e = engine(graph, 3, seed=5, driver="step", max_active_keys=4, min_update_frequency=2, learning_rate=0.05, placement=None)
        for epoch in range(2):
            e.run(data, np.random.default_rng(seed + epoch).permutation(data.n), train=True, epoch=epoch)
        return e.parameters

    first, again = trained(1), trained(1)
    assert all(np.array_equal(first[k], again[k]) for k in first)
    other = trained(2)
    assert any(not np.array_equal(first[k], other[k]) for k in first)


# ------------------------------------------------------------------------------------------------ reference loops


class Reference:
    """Optimizers as in their papers, in float64; moments by parameter."""

    def __init__(self, kind: str, parameters: dict[str, Array], **settings: float) -> None:
        self.kind = kind
        self.w = {k: v.astype(np.float64) for k, v in parameters.items()}
        self.m = {k: np.zeros(v.shape) for k, v in parameters.items()}
        self.v = {k: np.zeros(v.shape) for k, v in parameters.items()}
        self.t: dict[str, int] = {}
        self.s = {"learning_rate": 0.01, "momentum": 0.9, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0, "l2": 0.0,
                  "clip_norm": 0.0, "clip_value": 0.0, **settings}  # fmt: skip

    def update(self, layer: str, gradients: dict[str, Array]) -> None:
        """Update one layer's parameters with their mean gradients."""
        s = self.s
        self.t[layer] = t = self.t.get(layer, 0) + 1
        g = {k: v + s["l2"] * self.w[k] for k, v in gradients.items()}
        if s["clip_value"]:
            g = {k: np.clip(v, -s["clip_value"], s["clip_value"]) for k, v in g.items()}
        norm = math.sqrt(sum(float((v * v).sum()) for v in g.values()))
        if s["clip_norm"] and norm > s["clip_norm"]:
            g = {k: v * (s["clip_norm"] / norm) for k, v in g.items()}
        for k, d in g.items():
            w = self.w[k]
            match self.kind:
                case "sgd":
                    step = d
                case "momentum":
                    self.m[k] = step = s["momentum"] * self.m[k] + d
                case _:
                    self.m[k] = s["beta1"] * self.m[k] + (1 - s["beta1"]) * d
                    self.v[k] = s["beta2"] * self.v[k] + (1 - s["beta2"]) * d * d
                    step = (self.m[k] / (1 - s["beta1"] ** t)) / (np.sqrt(self.v[k] / (1 - s["beta2"] ** t)) + s["epsilon"])
            self.w[k] = w - s["learning_rate"] * step - s["learning_rate"] * s["weight_decay"] * w


def loop(graph: Graph, data: Dataset, reference: Reference, order: Array, batch: int) -> list[float]:
    """Train by minibatches with the interpreter's gradients; return the loss of each batch."""
    losses = []
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        interpreter = Interpreter(graph, reference.w, np.float64)
        total = {k: np.zeros(w.shape) for k, w in reference.w.items()}
        loss, reached = 0.0, set[str]()
        for i in chosen:
            result = interpreter.run(instance_of(data, graph, int(i)))
            loss += result.loss
            reached |= result.rows.keys()
            for k, g in result.gradients.items():
                total[k] += g
        for layer in sorted(reached):
            reference.update(layer, {k: v / len(chosen) for k, v in total.items() if k.rpartition(".")[0] == layer})
        losses.append(loss / len(chosen))
    return losses


OPTIMIZERS: list[tuple[str, dict[str, float]]] = [
    ("sgd", {}),
    ("sgd", {"l2": 0.1}),
    ("sgd", {"weight_decay": 0.1}),
    ("sgd", {"clip_norm": 0.5}),
    ("sgd", {"clip_value": 0.05}),
    ("momentum", {"momentum": 0.8}),
    ("momentum", {"weight_decay": 0.05, "clip_norm": 1.0}),
    ("adam", {"learning_rate": 0.003}),
    ("adam", {"learning_rate": 0.003, "l2": 0.02, "clip_value": 0.1, "clip_norm": 0.2, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4}),
    ("adamw", {"learning_rate": 0.003, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("optimizer", "settings"), OPTIMIZERS, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "plain")
def test_synchronous_mode_is_the_plain_loop_with_every_optimizer(optimizer: str, settings: dict[str, float]) -> None:
    graph, data = prepared("list_reduction", 24)
    reference = Reference(optimizer, engine(graph).parameters, **settings)
    e = engine(graph, 2, driver="step", mode="sync", optimizer=optimizer, min_update_frequency=4, max_active_keys=3, **{"learning_rate": 0.01, **settings})
    for epoch in range(4):
        order = np.random.default_rng(epoch).permutation(data.n)
        expected = loop(graph, data, reference, order, 4)
        result = e.run(data, order, train=True, epoch=epoch)
        assert result.loss == pytest.approx(np.mean(expected), rel=1e-4)
        assert set(result.updates.values()) == {6}
    for k, w in e.parameters.items():
        np.testing.assert_allclose(w, reference.w[k], rtol=1e-3, atol=1e-5, err_msg=k)


@pytest.mark.parametrize("name", ["digits_mlp", "gated_counter", "qm9_ggsnn"])
def test_a_hundred_synchronous_steps_follow_the_plain_loop(name: str) -> None:
    graph, data = prepared(name, 50, longest=3)
    reference = Reference("momentum", engine(graph).parameters, learning_rate=0.003)
    e = engine(graph, 2, driver="step", mode="sync", optimizer="momentum", min_update_frequency=2, learning_rate=0.003)
    for epoch in range(4):
        order = np.random.default_rng(epoch).permutation(data.n)
        expected = loop(graph, data, reference, order, 2)
        assert e.run(data, order, train=True, epoch=epoch).loss == pytest.approx(np.mean(expected), rel=1e-4)


def test_groups_of_a_chain_are_minibatches() -> None:
    graph, data = prepared("digits_mlp", 20)
    reference = Reference("sgd", engine(graph).parameters, learning_rate=0.05)
    order = np.random.default_rng(2).permutation(data.n)
    loop(graph, data, reference, order, 5)
    e = engine(graph, 2, driver="step", optimizer="sgd", learning_rate=0.05, group=5, max_active_keys=1, min_update_frequency=5)
    result = e.run(data, order, train=True)
    assert all(h == [20] for h in result.staleness.values())
    for k, w in e.parameters.items():
        np.testing.assert_allclose(w, reference.w[k], rtol=1e-4, atol=1e-6, err_msg=k)


# ------------------------------------------------------------------------------------- sums of asynchronous epochs


@pytest.mark.parametrize("name", model_names())
def test_without_learning_an_asynchronous_epoch_sums_what_a_synchronous_one_does(name: str) -> None:
    """Learning rate 0, one flush at the end: Momentum 0 leaves the mean gradient of all instances that reached a layer in its first moment."""
    graph, data = prepared(name, 6)
    params = engine(graph, seed=4).parameters
    want = interpreted(graph, data, params, seed=4).gradients
    interpreter = Interpreter(graph, params, np.float32, seed=4)
    reached: dict[str, int] = {}
    for i in range(data.n):
        for layer in interpreter.run(instance_of(data, graph, i)).rows:
            reached[layer] = reached.get(layer, 0) + 1
    for workers, mak, driver in ((1, 1, "step"), (2, 4, "step"), (3, 16, "threads"), (4, 64, "step")):
        still = {x.name: {"learning_rate": 0.0, "min_update_frequency": 10**6} for x in graph.layers}  # also where a model has settings of its own
        e = engine(graph, workers, seed=4, driver=driver, max_active_keys=mak, optimizer="momentum", momentum=0.0, per_layer=still)
        result = e.run(data, np.random.default_rng(mak).permutation(data.n), train=True)
        assert result.updates == {layer: int(layer in reached) for layer in result.updates}
        for layer in result.updates:
            got = e.optimizer_state()[f"{layer}.moment1"] * reached.get(layer, 0)
            flat = np.concatenate([want[f"{layer}.{p.name}"].ravel() for p in graph.layer[layer].params])
            np.testing.assert_allclose(got, flat, rtol=1e-4, atol=1e-4 * max(1e-2, float(np.abs(flat).max())), err_msg=layer)
        assert all(np.array_equal(w, params[k]) for k, w in e.parameters.items())


# ------------------------------------------------------------------------------------------------- when updates happen


@pytest.mark.parametrize(("n", "frequency"), [(12, 1), (12, 4), (13, 4), (3, 4), (7, 100)])
def test_a_chain_updates_once_for_so_many_instances_and_for_the_rest(n: int, frequency: int) -> None:
    graph, data = prepared("digits_mlp", n)
    for driver, mak in (("step", 1), ("step", 5), ("threads", 64)):
        result = engine(graph, 2, driver=driver, max_active_keys=mak, min_update_frequency=frequency).run(data, np.arange(n), train=True)
        assert result.updates == {"first": math.ceil(n / frequency), "second": math.ceil(n / frequency), "head": math.ceil(n / frequency)}


def test_instances_count_once_for_a_layer_however_many_rows_they_send() -> None:
    graph, data = prepared("list_reduction", 12, longest=6)
    full = int((np.diff(data.axes["token"]) > 0).sum())
    result = engine(graph, driver="step", max_active_keys=1, min_update_frequency=3).run(data, np.arange(data.n), train=True)
    assert result.updates == {"embed": math.ceil(full / 3), "step": math.ceil(full / 3), "head": 4}


@pytest.mark.parametrize("turns", [2, 5])
def test_gradients_of_an_instance_that_has_counted_are_applied_in_the_same_pass(turns: int) -> None:
    """A loss in a turn of a `while` answers before the instance has fired its last: it counts whole then, and more gradients follow."""
    graph = graph_of(
        "model m():\n    instance:\n        y: float\n    w = Linear(1, 1, bias = false)\n    n = ones(1)\n"
        f"    loop while n <= {turns} at most 8 carry n:\n        loss value(w(n))\n        n = n + 1\n"
    )
    data = dataset(graph, [{"y": 0.0}])
    updates = set()
    for seed in range(8):
        e = engine(graph, seed=seed, driver="step", optimizer="sgd", learning_rate=1.0, min_update_frequency=1)
        before = float(e.parameters["w.w"][0, 0])
        updates.add(e.run(data, np.array([0]), train=True).updates["w"])
        assert before - float(e.parameters["w.w"][0, 0]) == pytest.approx(turns * (turns + 1) / 2, rel=1e-5), "the sum over the turns"
    assert updates - {1}, "in some order the layer updates itself before the last gradient has come"


def test_staleness_counts_every_backward_firing_and_is_zero_for_one_instance_in_flight() -> None:
    graph, data = prepared("list_reduction", 12, longest=6)
    rows = int(np.diff(data.axes["token"]).sum())
    expected = {"embed": rows, "step": rows, "head": 12}
    calm = engine(graph, driver="step", max_active_keys=1, min_update_frequency=1).run(data, np.arange(12), train=True)
    assert calm.staleness == {layer: [count] for layer, count in expected.items()}
    busy = engine(graph, 3, driver="step", max_active_keys=8, min_update_frequency=1).run(data, np.arange(12), train=True)
    assert {layer: sum(h) for layer, h in busy.staleness.items()} == expected
    assert any(len(h) > 1 for h in busy.staleness.values()), "with eight instances in flight something is stale"


def test_layers_may_have_their_own_frequency_and_rate() -> None:
    graph, data = prepared("digits_mlp", 12)
    own: dict[str, dict[str, Any]] = {"first": {"min_update_frequency": 6}, "head": {"learning_rate": 0.0}, "second": {"optimizer": "momentum", "momentum": 0.5}}
    e = engine(graph, driver="step", max_active_keys=1, min_update_frequency=3, optimizer="sgd", learning_rate=0.1, per_layer=own)
    before = e.parameters
    result = e.run(data, np.arange(12), train=True)
    assert result.updates == {"first": 2, "second": 4, "head": 4}
    changed = {k.split(".")[0] for k, w in e.parameters.items() if not np.array_equal(w, before[k])}
    assert changed == {"first", "second"}
    assert np.any(e.optimizer_state()["second.moment1"]) and not np.any(e.optimizer_state()["first.moment1"])


def test_settings_of_the_model_apply_to_a_layer() -> None:
    text = (
        "model m():\n    instance:\n        x: float[2]\n        y: float\n    a = Linear(2, 2)\n    b = Linear(2, 1)\n    loss squared(b(tanh(a(x))), y)\n"
        "    train:\n        a.learning_rate = 0.0\n        a.min_update_frequency = 2\n"
    )
    graph = graph_of(text)
    data = dataset(graph, random_rows(graph, 6, 1))
    e = engine(graph, driver="step", optimizer="sgd", learning_rate=0.1, min_update_frequency=1)
    before = e.parameters
    assert e.run(data, np.arange(6), train=True).updates == {"a": 3, "b": 6}
    assert np.array_equal(before["a.w"], e.parameters["a.w"]) and not np.array_equal(before["b.w"], e.parameters["b.w"])


# ----------------------------------------------------------------------------------------------------- large tables

TABLE = (
    "model m(rows = {rows}):\n    instance:\n        axis token\n        word: int[token] < rows\n        y: float\n    embed = Embedding(rows, 3)\n"
    "    head = Linear(3, 1)\n    loss squared(head(sum(token, tanh(embed(word)))), y)\n"
)


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize(("optimizer", "settings"), [("sgd", {}), ("sgd", {"clip_norm": 0.02, "l2": 0.1}), ("momentum", {}), ("adam", {}), ("adamw", {"weight_decay": 0.1})])
def test_a_large_table_updates_the_rows_that_were_looked_up(optimizer: str, settings: dict[str, float], passes: bool) -> None:
    graph = graph_of(TABLE.format(rows=1500), passes)
    rng = np.random.default_rng(0)
    rows = [{"word": [int(w) for w in rng.choice([3, 7, 1499, 500, 8], rng.integers(1, 5))], "y": float(rng.normal())} for _ in range(12)]
    data = dataset(graph, rows)
    e = engine(graph, driver="step", mode="sync", optimizer=optimizer, min_update_frequency=3, learning_rate=0.05, **settings)
    start = e.parameters
    reference = Reference(optimizer, start, learning_rate=0.05, **settings)
    for begin in range(0, 12, 3):
        interpreter = Interpreter(graph, reference.w, np.float64)
        results = [interpreter.run(instance_of(data, graph, i)) for i in range(begin, begin + 3)]
        touched = sorted({w for r in rows[begin : begin + 3] for w in r["word"]})
        total = {k: sum(r.gradients.get(k, 0) for r in results) / 3 for k in reference.w}
        reference.update("head", {k: total[k] for k in ("head.w", "head.b")})
        # Only these rows move, and only their moments; the clock of Adam is the layer's.
        whole = {name: getattr(reference, name)["embed.table"] for name in ("w", "m", "v")}
        for name in whole:
            getattr(reference, name)["embed.table"] = whole[name][touched]
        reference.update("embed", {"embed.table": total["embed.table"][touched]})
        for name in whole:
            whole[name][touched] = getattr(reference, name)["embed.table"]
            getattr(reference, name)["embed.table"] = whole[name]
    result = e.run(data, np.arange(12), train=True)
    assert result.updates == {"embed": 4, "head": 4}
    for k, w in e.parameters.items():
        np.testing.assert_allclose(w, reference.w[k], rtol=1e-4, atol=1e-6, err_msg=k)
    others = np.setdiff1d(np.arange(1500), [3, 7, 1499, 500, 8])
    assert np.array_equal(e.parameters["embed.table"][others], start["embed.table"][others])


@pytest.mark.parametrize("rows", [6, 1500])
def test_none_is_a_row_of_zeros_in_embeddings_and_one_hot(rows: int) -> None:
    graph = graph_of(
        f"model m(rows = {rows}):\n    instance:\n        axis token\n        word: int[token] < rows or none\n        k: int < 4 or none\n        y: float\n"
        "    embed = Embedding(rows, 3)\n    head = Linear(3, 1)\n    other = Linear(4, 1)\n"
        "    loss squared(head(sum(token, tanh(embed(word)))) + other(one_hot(k, 4)), y)\n    h = zeros(3)\n"
        "    loop t in token carry h:\n        h = tanh(h + embed(word[t]))\n    loss squared(head(h), y)\n"
    )
    data = dataset(graph, [{"word": w, "k": k, "y": 1.0} for w in ([None], [2, None, 5], [None, None, 0], []) for k in (None, 0, 3)])
    params = engine(graph, seed=2).parameters
    want = interpreted(graph, data, params)
    e = engine(graph, 2, seed=2, driver="step")
    assert difference(executed(e, data), want)[0] < 1e-4
    sync = engine(graph, seed=2, driver="step", mode="sync", optimizer="sgd", learning_rate=0.1, min_update_frequency=data.n)
    sync.run(data, np.arange(data.n), train=True)
    for k, w in sync.parameters.items():
        np.testing.assert_allclose(w, params[k] - 0.1 * want.gradients[k] / data.n, rtol=1e-4, atol=1e-6, err_msg=k)


def test_gradients_of_a_large_table_are_cleared_between_passes() -> None:
    graph = graph_of(TABLE.format(rows=1200))
    data = dataset(graph, [{"word": [1, 2, 1], "y": 1.0}, {"word": [5], "y": 0.0}])
    e = engine(graph, driver="step", optimizer="sgd", learning_rate=0.1, min_update_frequency=1)
    first = e.gradients(data, np.array([0]))
    assert np.flatnonzero(np.abs(first["embed.table"]).sum(axis=1)).tolist() == [1, 2]
    second = e.gradients(data, np.array([1]))
    assert np.flatnonzero(np.abs(second["embed.table"]).sum(axis=1)).tolist() == [5]
    before = e.parameters["embed.table"]
    e.run(data, np.array([1]), train=True)
    moved = np.flatnonzero(np.abs(e.parameters["embed.table"] - before).sum(axis=1))
    assert moved.tolist() == [5]
    np.testing.assert_allclose(e.parameters["embed.table"][5], before[5] - np.float32(0.1) * second["embed.table"][5], rtol=1e-6)


# ----------------------------------------------------------------------------------------------------------- groups


def test_groups_by_length_hold_equal_lengths_and_every_instance_once() -> None:
    graph, data = prepared("list_reduction", 30)
    e: Engine = engine(graph, driver="step", group=4, group_by_length=True, max_active_keys=2)
    e.bind(data)
    assert e._binding is not None
    order, breaks = grouped(np.random.default_rng(1).permutation(30), e._binding, e.options)
    assert sorted(order.tolist()) == list(range(30)) and breaks[0] == 1
    lengths = np.diff(data.axes["token"])
    for group in np.split(order, np.flatnonzero(breaks)[1:]):
        assert len(set(lengths[group].tolist())) == 1 and len(group) <= 4
    assert e.run(data, np.arange(30), train=True).instances == 30


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_grouped_passes_finish_and_keep_the_order_of_outputs(by_length: bool, mode: str) -> None:
    graph, data = prepared("list_reduction", 17)
    alone = engine(graph, driver="step").run(data, np.arange(17), train=False, outputs=True)
    e = engine(graph, 2, driver="step", group=5, group_by_length=by_length, max_active_keys=2, mode=mode, learning_rate=0.0)
    e.run(data, np.arange(17), train=True)
    order = np.random.default_rng(1).permutation(17)
    together = e.run(data, order, train=False, outputs=True)
    for place, i in enumerate(order):
        np.testing.assert_allclose(together.outputs["logits"][place], alone.outputs["logits"][i], rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------- parts of a pass


def test_a_pass_over_part_of_the_data_and_over_none() -> None:
    graph, data = prepared("list_reduction", 10)
    e = engine(graph, 2, driver="step")
    part = e.run(data, np.array([3, 9, 7]), train=True)
    assert part.instances == 3
    for twice in ([3, 3, 7], [10], [-1]):
        with pytest.raises(ValueError, match="different instances of the 10"):
            e.run(data, np.array(twice), train=True)
    none = e.run(data, np.zeros(0, np.int64), train=True)
    assert none.instances == 0 and none.loss == 0.0 and none.metrics == {"accuracy": None} and set(none.updates.values()) == {0}


@pytest.mark.parametrize("driver", ["step", "threads"])
def test_a_pass_that_is_told_to_stop_drains_and_names_what_is_done(driver: str) -> None:
    graph, data = prepared("list_reduction", 400)
    e = engine(graph, 2, driver=driver, max_active_keys=3)
    result = e.run(data, np.arange(400)[::-1].copy(), train=True, stop=lambda: True)
    if driver == "step":  # threads may be through before anyone looks
        assert result.interrupted
    if result.interrupted:
        assert result.instances_done is not None
        assert sorted(result.instances_done.tolist()) == list(range(400 - result.instances, 400))
    assert e.run(data, np.arange(5), train=False).instances == 5, "the engine goes on after a drain"


@pytest.mark.parametrize("name", ["list_reduction", "babi15_ggsnn", "sentiment_tree_lstm"])
def test_parameters_that_are_set_count_from_the_next_pass_on(name: str) -> None:
    graph, data = prepared(name, 5)
    e = engine(graph, 2, driver="step", max_active_keys=3)
    e.run(data, np.arange(5), train=True)
    for seed in (1, 2):
        params = parameters(graph, seed)
        e.set_parameters(dict(params))
        assert difference(executed(e, data), interpreted(graph, data, params))[0] < 1e-4
