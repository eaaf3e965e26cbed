"""Copies of layers at run time: gradients that sum to those of one layer, averaging, settings and files by plain names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copies import families, for_copies, summed, with_copies
from differential import difference, executed, interpreted, parameters
from programs import BODIES, dataset_of, lowered, random_instances, text
from support import MODELS, dataset, engine, graph_of, random_rows, shared, small

from ampc.codegen.layout import SLOT, H, Z
from ampc.diagnostics import AmpError
from ampc.ir.copies import plain_name
from ampc.passes import run_passes
from ampc.runtime import weights
from ampc.runtime.events import Progress
from ampc.runtime.options import resolve

RUNS: list[dict[str, Any]] = [
    {"workers": 3, "driver": "step", "max_active_keys": 4}, {"workers": 1, "driver": "step", "group": 2}, {"workers": 2, "driver": "threads", "max_active_keys": 2},
]  # fmt: skip


def list_reduction(copies: int, hidden: int = 6) -> Any:
    return graph_of((MODELS / "list_reduction.amp").read_text(encoding="utf-8"), copies=copies, hidden=hidden)


def assert_same_as_one_layer(graph: Any, data: Any, one_text: bool = False) -> None:
    """`one_text`: the same placement in all runs, so that kernels are compiled once."""
    given = parameters(graph, 3)
    want = interpreted(graph, data, given)
    made = with_copies(graph, families(graph), 3)
    for k, run in enumerate(RUNS):
        options = dict(run)
        workers = options.pop("workers")
        e = engine(made, max(workers, 2) if one_text else workers, k, placement=shared(made) if one_text else None, **options)
        e.set_parameters(for_copies(made, given))
        got = executed(e, data, np.random.default_rng(k).permutation(data.n))
        got.gradients = summed(got.gradients)
        worst, where = difference(got, want)
        assert worst < 1e-3, where


@pytest.mark.parametrize("name", ["nested_loops", "while_loop_in_a_loop", "branch_on_int", "branch_with_a_loop", "binary_tree", "children", "loop_over_a_nested_axis", "ordered_children", "attention_as_a_local",
    "ordered_children_in_an_arm", "each_child_in_a_visit", "attention_of_each_element",
])
def test_gradients_of_copies_sum_to_those_of_one_layer(name: str) -> None:
    assert name in BODIES
    graph = run_passes(lowered(text(name)))
    assert_same_as_one_layer(graph, dataset_of(graph, random_instances(graph, 5, 3)))


@pytest.mark.parametrize("name", ["list_reduction", "babi15_ggsnn", "mixture_of_experts", "early_exit_rnn"])
def test_bundled_models_with_all_layers_copied(name: str) -> None:
    graph = small(name)
    assert_same_as_one_layer(graph, dataset(graph, random_rows(graph, 5, seed=1, longest=3)))


@pytest.mark.compiled
def test_compiled_kernels_deal_to_copies() -> None:
    graph = list_reduction(1)
    assert_same_as_one_layer(graph, dataset(graph, random_rows(graph, 9, seed=1)), one_text=True)


def equal_copies(values: dict[str, Any]) -> bool:
    first: dict[str, Any] = {}
    return all(np.array_equal(first.setdefault(plain_name(name), value), value) for name, value in values.items())


def test_copies_are_averaged_at_the_end_of_a_pass() -> None:
    graph = list_reduction(2)
    data = dataset(graph, [{"symbol": [1, 2], "label": 3}, {"symbol": [4], "label": 1}])
    e = engine(graph, 1, optimizer="sgd", learning_rate=0.5, min_update_frequency=1, max_active_keys=1)
    alone = list_reduction(1)
    order = np.arange(2)
    start = engine(alone, 1).parameters
    result = e.run(data, order, train=True)
    assert result.updates == {"embed~0": 1, "embed~1": 1, "step~0": 1, "step~1": 1, "head": 2}
    assert equal_copies(e.parameters)
    # The first copy saw the first instance alone, from the start; the second the other, with a head that has moved once.
    first = engine(alone, 1, optimizer="sgd", learning_rate=0.5, min_update_frequency=1)
    first.run(data, order[:1], train=True)
    second = engine(alone, 1, optimizer="sgd", learning_rate=0.5, min_update_frequency=1)
    second.set_parameters({name: value for name, value in first.parameters.items() if name.startswith("head.")})
    second.run(data, order[1:], train=True)
    for name in ("step.w", "step.b", "embed.table"):
        mean = (first.parameters[name] + second.parameters[name]) / 2
        np.testing.assert_allclose(e.parameters[name.replace(".", "~1.")], mean, rtol=1e-6, atol=1e-7)
        assert not np.array_equal(mean, start[name])


def test_moments_stay_with_their_copy() -> None:
    graph = list_reduction(2)
    data = dataset(graph, random_rows(graph, 6, seed=2))
    e = engine(graph, 1, min_update_frequency=1)
    e.run(data, np.arange(6), train=True)
    state = e.optimizer_state()
    assert not np.array_equal(state["step~0.moment1"], state["step~1.moment1"])


def test_nothing_is_averaged_without_updates() -> None:
    graph = list_reduction(2)
    data = dataset(graph, random_rows(graph, 4, seed=2))
    e = engine(graph, 1, average_every=2)
    e.set_parameters({"step~0.b": np.ones(6, np.float32)})
    e.gradients(data, np.arange(4))
    e.run(data, np.arange(4), train=False)
    assert not equal_copies(e.parameters)


def test_average_every_divides_the_pass() -> None:
    graph = list_reduction(2)
    data = dataset(graph, random_rows(graph, 11, seed=1))
    seen: list[Progress] = []
    e = engine(graph, 2, driver="step", min_update_frequency=100, average_every=4)
    result = e.run(data, np.arange(11), train=True, outputs=True, on_progress=seen.append)
    assert (result.instances, result.interrupted, result.instances_done, len(result.outputs["logits"])) == (11, False, None, 11)
    assert result.updates["head"] == 3  # 4, 4 and 3 instances: what is gathered is flushed before the copies are averaged
    # A slow machine reports more often than at the ends.
    assert list(dict.fromkeys((p.done, p.total) for p in seen if p.done in (4, 8, 11))) == [(4, 11), (8, 11), (11, 11)]
    assert seen[-1].loss_sum == pytest.approx(11 * result.loss)
    by_hand = engine(graph, 2, driver="step", min_update_frequency=100)
    for part in (np.arange(4), np.arange(4, 8), np.arange(8, 11)):
        by_hand.run(data, part, train=True)
    assert all(np.array_equal(value, by_hand.parameters[name]) for name, value in e.parameters.items())


def test_a_stop_between_two_parts_tells_what_is_done() -> None:
    graph = list_reduction(2)
    data = dataset(graph, random_rows(graph, 12, seed=1))
    e = engine(graph, 1, driver="step", average_every=4, max_active_keys=1)
    progress: list[int] = []
    result = e.run(data, np.arange(12), train=True, outputs=True, on_progress=lambda p: progress.append(p.done), stop=lambda: 4 in progress)
    assert result.interrupted and 4 <= result.instances < 12
    assert result.instances_done is not None and sorted(result.instances_done) == list(range(result.instances))
    assert len(result.outputs["logits"]) == 12


def test_fewer_instances_than_copies_end() -> None:
    graph = list_reduction(4)
    data = dataset(graph, [{"symbol": [1, 2], "label": 3}, {"symbol": [4], "label": 1}, {"symbol": [], "label": 1}])
    e = engine(graph, 8, driver="threads", min_update_frequency=100, max_active_keys=16)
    result = e.run(data, np.arange(3), train=True)
    assert result.instances == 3 and equal_copies(e.parameters)
    assert result.updates == {"embed~0": 1, "embed~1": 1, "embed~2": 0, "embed~3": 0, "step~0": 1, "step~1": 1, "step~2": 0, "step~3": 0, "head": 1}


def test_an_instance_goes_to_the_copy_with_least_in_flight() -> None:
    graph = list_reduction(2)
    data = dataset(graph, [{"symbol": [1] * 60, "label": 3}, *({"symbol": [4], "label": 1} for _ in range(7))])
    for mode, expected in (("async", [1, 7]), ("sync", [4, 4])):
        e = engine(graph, 1, driver="step", max_active_keys=8, min_update_frequency=8, mode=mode)
        dealt = []
        e.run(data, np.arange(8), train=True, stop=lambda e=e, dealt=dealt: bool(dealt.append(copies_in_flight(e))))
        assert max(dealt, key=sum) == expected


def copies_in_flight(e: Any) -> list[int]:
    """Return how many slots hold instances of copy 0 and of copy 1."""
    b = e._binding
    slots = b.I[b.I[H.SLOT0] : b.I[H.SLOT0] + b.slots * SLOT].reshape(-1, SLOT)
    used = slots[slots[:, Z.LAYOUT] > 0]
    return [int((used[:, Z.COPY] == i).sum()) for i in range(2)]


def test_a_group_goes_to_one_copy() -> None:
    graph = list_reduction(2)
    data = dataset(graph, random_rows(graph, 4, seed=1))
    e = engine(graph, 2, driver="step", group=2, min_update_frequency=100)
    assert e.run(data, np.arange(2), train=True).updates["step~1"] == 0
    assert e.run(data, np.arange(4), train=True).updates["step~1"] == 1


def test_copies_of_an_output_give_what_one_gives() -> None:
    one, two = small("babi15_ggsnn"), with_copies(small("babi15_ggsnn"), families(small("babi15_ggsnn")), 2)
    data = dataset(one, random_rows(one, 6, seed=1, longest=3))
    given = parameters(one, 3)
    outputs = []
    for graph in (one, two):
        e = engine(graph, 2, driver="step", max_active_keys=3)
        e.set_parameters(for_copies(graph, given))
        outputs.append(e.run(data, np.arange(6), train=False, outputs=True).outputs["logits"])
    for a, b in zip(*outputs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------ names


def test_settings_by_the_plain_name_reach_all_copies() -> None:
    layers: dict[str, dict[str, Any]] = {"step~0": {}, "step~1": {}, "message~0.0": {}, "message~0.1": {}, "message~1.0": {}, "message~1.1": {}}

    def of(name: str) -> list[str]:
        return sorted(resolve(sets=[f"{name}.learning_rate=0.5"], layers=layers).per_layer)

    assert of("step") == ["step~0", "step~1"]
    assert of("step~1") == ["step~1"]
    assert of("message") == ["message~0.0", "message~0.1", "message~1.0", "message~1.1"]
    assert of("message.1") == ["message~0.1", "message~1.1"]
    assert of("message~1") == ["message~1.0", "message~1.1"]
    e = engine(list_reduction(2), per_layer={"step": {"learning_rate": 0.5}, "step~1": {"learning_rate": 0.25}})
    assert [e.settings(x)["learning_rate"] for x in ("step~0", "step~1", "head")] == [0.5, 0.25, 0.001]


def test_files_fit_whatever_copies_they_have(tmp_path: Path) -> None:
    one, two, three = (list_reduction(n) for n in (1, 2, 3))
    file = tmp_path / "w.safetensors"
    given = parameters(two, 1)
    weights.save_weights(file, given)
    same, left = weights.load_weights(file, two)
    assert left == [] and all(np.array_equal(same[n], given[n]) for n in given) and same.keys() == given.keys()
    for graph in (one, three):
        found, left = weights.load_weights(file, graph)
        assert left == [] and found.keys() == weights.shapes(graph).keys()
        for name, value in found.items():
            layer, _, p = plain_name(name).partition(".")
            wanted = given[name] if layer == "head" else (given[f"{layer}~0.{p}"] + given[f"{layer}~1.{p}"]) / 2
            np.testing.assert_allclose(value, wanted, rtol=1e-6)
    plain = parameters(one, 2)
    weights.save_weights(file, plain)
    found, left = weights.load_weights(file, three)
    assert left == [] and all(np.array_equal(found[n], plain[plain_name(n)]) for n in weights.shapes(three))
    weights.save_weights(file, {**plain, "step.w": np.zeros((2, 2), np.float32)})
    with pytest.raises(AmpError) as caught:
        weights.load_weights(file, three)
    assert "`step~0.w` has shape [2, 2], the program wants [12, 6]" in caught.value.diagnostics[0].notes


def test_one_layers_file_sets_all_copies(tmp_path: Path) -> None:
    graph, file = list_reduction(2), tmp_path / "v.safetensors"
    vectors = np.ones((14, 6), np.float32)
    weights.save_weights(file, {"anything": vectors})
    assert {n: a.sum() for n, a in weights.initialise([f"embed={file}"], graph)[0].items()} == {"embed~0.table": 84, "embed~1.table": 84}
    assert list(weights.initialise([f"embed~1={file}"], graph)[0]) == ["embed~1.table"]
    for prefix in ("", "step."):
        weights.save_weights(file, {f"{prefix}w": np.ones((12, 6), np.float32), f"{prefix}b": np.ones(6, np.float32)})
        assert sorted(weights.initialise([f"step={file}"], graph)[0]) == ["step~0.b", "step~0.w", "step~1.b", "step~1.w"]


def test_pytorch_gets_the_mean_and_gives_to_all_copies() -> None:
    graph = list_reduction(2)
    given = parameters(graph, 1)
    names = weights.name_map(graph, None)
    assert names == {"embed.table": "embed.weight", "step.w": "step.weight", "step.b": "step.bias", "head.w": "head.weight", "head.b": "head.bias"}
    state = weights.to_torch(given, graph, names)
    np.testing.assert_allclose(state["step.weight"], (given["step~0.w"] + given["step~1.w"]).T / 2, rtol=1e-6)
    back, left = weights.from_torch(state, graph, names, "f")
    assert left == [] and back.keys() == given.keys()
    assert np.array_equal(back["step~0.w"], back["step~1.w"]) and np.array_equal(back["step~0.w"], state["step.weight"].T)
