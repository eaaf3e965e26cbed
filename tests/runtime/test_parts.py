"""Parts of layers at run time: gradients and updates as of the whole layer, settings and files by plain names, devices of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from differential import difference, executed, interpreted, parameters
from parts import for_parts, joined, splittable, with_parts
from programs import lowered, without_dropout
from support import MODELS, dataset, engine, graph_of, random_rows, small

from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.passes import run_passes
from ampc.runtime import weights
from ampc.runtime.options import resolve

RUNS: list[dict[str, Any]] = [{"workers": 3, "driver": "step", "max_active_keys": 4}, {"workers": 1, "driver": "step", "group": 2}]


def list_reduction(replicas: int = 1, hidden: int = 6, **counts: int) -> Graph:
    """List reduction with `step` in parts: columns = n or rows = n."""
    graph = lowered((MODELS / "list_reduction.amp").read_text(encoding="utf-8"), hidden=hidden, copies=replicas)
    layers = tuple(msgspec.structs.replace(x, **counts) if x.name == "step" else x for x in graph.layers)
    return run_passes(msgspec.structs.replace(graph, layers=layers))


@pytest.mark.parametrize("how", ["columns", "rows"])
@pytest.mark.parametrize("name", ["list_reduction", "babi15_ggsnn", "qm9_ggsnn", "sentiment_tree_lstm"])
def test_gradients_of_parts_are_those_of_the_whole_layer(name: str, how: str) -> None:
    graph = without_dropout(small(name))  # draws depend on the numbers of nodes
    data, given = dataset(graph, random_rows(graph, 5, seed=1, longest=3)), parameters(graph, 3)
    want = interpreted(graph, data, given)
    made = with_parts(graph, splittable(graph), 3, how)
    for k, run in enumerate(RUNS):
        options = dict(run)
        e = engine(made, options.pop("workers"), k, **options)
        e.set_parameters(for_parts(made, given))
        got = executed(e, data, np.random.default_rng(k).permutation(data.n))
        got.gradients = joined(made, got.gradients)
        worst, where = difference(got, want)
        assert worst < 1e-3, where


@pytest.mark.compiled
def test_compiled_kernels_of_parts() -> None:
    graph, made = list_reduction(), list_reduction(columns=3)
    data, given = dataset(graph, random_rows(graph, 9, seed=1)), parameters(graph, 3)
    e = engine(made, 2, 0)
    e.set_parameters(for_parts(made, given))
    got = executed(e, data)
    got.gradients = joined(made, got.gradients)
    assert difference(got, interpreted(graph, data, given))[0] < 1e-3


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("counts", [{"columns": 4}, {"rows": 3}])
def test_training_with_parts_is_training_the_whole_layer(counts: dict[str, int], optimizer: str) -> None:
    whole, cut = list_reduction(), list_reduction(**counts)
    data = dataset(whole, random_rows(whole, 10, seed=4))
    options = {"driver": "step", "optimizer": optimizer, "learning_rate": 0.05, "min_update_frequency": 2, "max_active_keys": 1, "weight_decay": 0.1}
    a, b = engine(whole, 1, 7, **options), engine(cut, 1, 7, **options)
    for _ in range(3):
        first, second = (e.run(data, np.arange(10), train=True) for e in (a, b))
        assert second.loss == pytest.approx(first.loss, rel=1e-4)
    assert second.updates == {"embed": 5, "head": 5} | {f"step@{i}": 5 for i in range(next(iter(counts.values())))}
    for name, value in joined(cut, b.parameters).items():
        np.testing.assert_allclose(value, a.parameters[name], rtol=2e-3, atol=2e-4, err_msg=name)


def test_settings_by_the_plain_name_reach_all_parts() -> None:
    layers: dict[str, dict[str, Any]] = {f"step@{k}~{i}": {} for i in range(2) for k in range(2)} | {f"m@{k}.{i}": {} for k in range(2) for i in range(2)}

    def of(name: str) -> list[str]:
        return sorted(resolve(sets=[f"{name}.learning_rate=0.5"], layers=layers).per_layer)

    assert of("step") == ["step@0~0", "step@0~1", "step@1~0", "step@1~1"]
    assert of("step~1") == ["step@0~1", "step@1~1"]
    assert of("step@1") == ["step@1~0", "step@1~1"]
    assert of("step@0~1") == ["step@0~1"]
    assert of("m") == sorted(n for n in layers if n.startswith("m"))
    assert of("m.1") == ["m@0.1", "m@1.1"]
    assert of("m@0") == ["m@0.0", "m@0.1"]
    e = engine(list_reduction(columns=2), per_layer={"step": {"learning_rate": 0.5}, "step@1": {"learning_rate": 0.25}})
    assert [e.settings(x)["learning_rate"] for x in ("step@0", "step@1", "head")] == [0.5, 0.25, 0.001]


def test_copies_of_each_part_are_averaged() -> None:
    graph = list_reduction(2, columns=2)
    data = dataset(graph, random_rows(graph, 8, seed=2))
    e = engine(graph, 1, min_update_frequency=1)
    e.run(data, np.arange(8), train=True)
    for i in range(2):
        assert np.array_equal(e.parameters[f"step@{i}~0.w"], e.parameters[f"step@{i}~1.w"])
    assert not np.array_equal(e.parameters["step@0~0.w"], e.parameters["step@1~0.w"])


PROGRAMS: list[dict[str, int]] = [{}, {"columns": 2}, {"columns": 4}, {"rows": 2}, {"rows": 5}, {"replicas": 2}, {"replicas": 2, "columns": 3}]


@pytest.mark.parametrize("there", PROGRAMS)
@pytest.mark.parametrize("here", PROGRAMS)
def test_files_fit_whatever_parts_they_have(here: dict[str, int], there: dict[str, int], tmp_path: Path) -> None:
    plain, wrote, reads = parameters(list_reduction(), 2), list_reduction(**there), list_reduction(**here)
    file = tmp_path / "w.safetensors"
    weights.save_weights(file, for_parts(wrote, plain))
    found, left = weights.load_weights(file, reads)
    wanted = for_parts(reads, plain)
    assert left == [] and found.keys() == wanted.keys() and all(np.array_equal(found[n], wanted[n]) for n in wanted)


def test_the_same_copies_stay_as_they_are_when_parts_change(tmp_path: Path) -> None:
    two, halves = list_reduction(2), list_reduction(2, columns=2)
    given, file = parameters(two, 2), tmp_path / "w.safetensors"
    weights.save_weights(file, given)
    found, _ = weights.load_weights(file, halves)
    for i in range(2):
        assert np.array_equal(np.concatenate([found[f"step@{k}~{i}.w"] for k in range(2)], axis=1), given[f"step~{i}.w"])


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    graph, file = list_reduction(columns=2), tmp_path / "w.safetensors"
    plain = parameters(list_reduction(), 2)
    cases = [
        ({"step.w": np.zeros((12, 3), np.float32)}, "`step.w` [12, 3] in the file can't be joined and cut into `step@0.w` [12, 3], `step@1.w` [12, 3]"),
        ({"step.w": None, **{f"step@{i}.w": np.zeros((12, 2), np.float32) for i in (0, 1, 3)}}, "`step@0.w` has shape [12, 2], the program wants [12, 3]"),
        ({"step.w": None, **{f"step@{i}.w": np.zeros((12, 3), np.float32) for i in (0, 2)}},
         "`step@2.w` [12, 3] in the file can't be joined and cut into `step@1.w` [12, 3]"),
    ]  # fmt: skip
    for change, note in cases:
        changed = {**plain, **change}
        weights.save_weights(file, {n: a for n, a in changed.items() if a is not None})
        for partial in (False, True):
            with pytest.raises(AmpError) as caught:
                weights.load_weights(file, graph, partial=partial)
            assert note in caught.value.diagnostics[0].notes


def test_one_layers_file_sets_all_parts_or_one(tmp_path: Path) -> None:
    graph, file = list_reduction(columns=2), tmp_path / "v.safetensors"
    w, b = np.arange(72, dtype=np.float32).reshape(12, 6), np.arange(6, dtype=np.float32)
    for prefix in ("", "step."):
        weights.save_weights(file, {f"{prefix}w": w, f"{prefix}b": b})
        found = weights.initialise([f"step={file}"], graph)[0]
        assert sorted(found) == ["step@0.b", "step@0.w", "step@1.b", "step@1.w"]
        assert np.array_equal(found["step@1.w"], w[:, 3:]) and np.array_equal(found["step@0.b"], b[:3])
    weights.save_weights(file, {"step@0.w": w[:, :2], "step@1.w": w[:, 2:4], "step@2.w": w[:, 4:], **{f"step@{i}.b": b[:2] for i in range(3)}})
    assert np.array_equal(weights.initialise([f"step={file}"], graph)[0]["step@1.w"], w[:, 3:])
    weights.save_weights(file, {"w": w[:, 3:], "b": b[3:]})
    found = weights.initialise([f"step@1={file}"], graph)[0]
    assert sorted(found) == ["step@1.b", "step@1.w"] and np.array_equal(found["step@1.w"], w[:, 3:])


@pytest.mark.parametrize("counts", [{"columns": 4}, {"rows": 5}, {"replicas": 2, "columns": 2}])
def test_pytorch_gets_and_gives_whole_layers(counts: dict[str, int]) -> None:
    graph = list_reduction(**counts)
    plain = parameters(list_reduction(), 1)
    names = weights.name_map(graph, None)
    assert names == {"embed.table": "embed.weight", "step.w": "step.weight", "step.b": "step.bias", "head.w": "head.weight", "head.b": "head.bias"}
    given = for_parts(graph, plain)
    state = weights.to_torch(given, graph, names)
    assert np.array_equal(state["step.weight"], plain["step.w"].T) and np.array_equal(state["step.bias"], plain["step.b"])
    back, left = weights.from_torch(state, graph, names, "f")
    assert left == [] and back.keys() == given.keys() and all(np.array_equal(back[n], given[n]) for n in given)


def test_a_model_may_say_it() -> None:
    text = (MODELS / "list_reduction.amp").read_text(encoding="utf-8").replace("Linear(2 * hidden, hidden, replicas = copies)", "Linear(2 * hidden, hidden, columns = copies)").replace(
        ", replicas = copies", ""
    )
    assert [x.name for x in graph_of(text, copies=3).layers if x.name.startswith("step")] == ["step@0", "step@1", "step@2"]
