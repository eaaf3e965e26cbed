"""A Linear that is split computes, learns and stores what the whole one does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
from copies import families, with_copies
from programs import MODELS, assert_same, numbers, random_instances, random_parameters, small

import ampc
from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.ir.nodes import PPT, Concat, Split
from ampc.ir.text import from_text, to_text
from ampc.ir.verify import verify
from ampc.passes import run_passes
from ampc.passes.split import split, widths
from ampc.place import load_target, place
from ampc.runtime.weights import divided, fit, name_map, shapes, to_torch
from ampc.source import remember

MODEL = """
model parts(wide = 20):
    instance:
        axis token
        symbol: int[token] < 7
        x: float[6]
        label: int < 3
    embed = Embedding(7, 6)
    big   = Linear(6, wide{big})
    step  = Linear(26, 10{step})
    head  = Linear(10, 3)
    h = big(x)
    loop t in token carry h:
        h = pad(tanh(step([embed(symbol[t]), h])), wide)
    logits = head(h[0:10])
    loss   cross_entropy(logits, label)
    metric accuracy(logits, label)
    train:
        optimizer = adam
        learning_rate = 0.01
        min_update_frequency = 4
        max_active_keys = 1
"""
FAMILY = """
model kinds():
    instance:
        axis bond
        kind: int[bond] < 3
        x: float[bond, 8]
        y: float[5]
    each_kind = Linear(8, 5{big}) for k in 3
    t = zeros(5)
    loop b in bond carry t:
        branch kind[b] as k:
            m = each_kind[k](x[b])
        merge m
        t = t + m
    loss squared(t, y)
    train:
        min_update_frequency = 4
        max_active_keys = 1
"""
SPLITS = {"columns": (", columns = 3", ", columns = 2"), "rows": (", rows = 2", ", rows = 3"), "both": (", columns = 2", ", rows = 4")}


def text(big: str = "", step: str = "", model: str = MODEL) -> str:
    return model.format(big=big, step=step)


def graph_of(source: str) -> Graph:
    made = compiler.compile_source(remember("parts.amp", source.encode(), "the text"), stop_after="passes").graph
    assert made is not None
    return made


def rows(n: int, family: bool = False) -> list[dict[str, object]]:
    draw = np.random.default_rng(3)
    out: list[dict[str, object]] = []
    for _ in range(n):
        length = int(draw.integers(1, 6))
        if family:
            out.append({"kind": draw.integers(0, 3, length).tolist(), "x": draw.normal(size=(length, 8)).tolist(), "y": draw.normal(size=5).tolist()})
        else:
            out.append({"symbol": draw.integers(0, 7, length).tolist(), "x": draw.normal(size=6).tolist(), "label": int(draw.integers(3))})
    return out


@pytest.mark.parametrize("how", SPLITS)
def test_the_parts_are_slices_and_joined_where_the_whole_was(how: str) -> None:
    whole, made = graph_of(text()), graph_of(text(*SPLITS[how]))
    verify(made)
    assert sum(isinstance(n, Concat) for n in made.nodes) == sum(isinstance(n, Concat) for n in whole.nodes) + {"columns": 2, "rows": 0, "both": 1}[how]
    assert sum(isinstance(n, Split) for n in made.nodes) - sum(isinstance(n, Split) for n in whole.nodes) == {"columns": 0, "rows": 2, "both": 1}[how]
    a, b = initial_parameters(whole, 5), initial_parameters(made, 5)
    axis = {"columns": (1, 1), "rows": (0, 0), "both": (1, 0)}[how]
    for layer, cut in zip(("big", "step"), axis):
        parts = [b[n] for n in b if n.startswith(f"{layer}@") and n.endswith(".w")]
        np.testing.assert_array_equal(np.concatenate(parts, cut), a[f"{layer}.w"])
    assert from_text(to_text(made)) == made
    assert {n.layer for n in made.nodes if isinstance(n, PPT)} >= {"big@0", "big@1", "step@0", "step@1", "head"}


@pytest.mark.parametrize("direction", ["columns", "rows"])
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.amp")), ids=lambda p: p.stem)
def test_parts_of_any_linear_of_bundled_models_give_the_same(path: Path, direction: str) -> None:
    graph = run_passes(small(path))
    instances, parameters = random_instances(graph, 4, 7), random_parameters(graph)
    whole = numbers(graph, parameters, instances)
    split_some = 0
    for family in families(graph):
        layers = tuple(msgspec.structs.replace(x, **{direction: 2}) if x.name.partition(".")[0] == family else x for x in graph.layers)
        first = next(x for x in layers if x.name.partition(".")[0] == family)
        if first.form != "linear" or first.params[0].shape[direction == "columns"] < 2:
            continue
        made = split(msgspec.structs.replace(graph, layers=layers))
        verify(made)
        assert from_text(to_text(made)) == made
        found = numbers(made, divided(parameters, shapes(made)), instances, schedule=3)
        assert_same(whole, dataclasses.replace(found, gradients=divided(found.gradients, shapes(graph))), 1e-9)
        split_some += 1
    assert split_some


@pytest.mark.parametrize("model", ["plain", "family"])
@pytest.mark.parametrize("how", SPLITS)
def test_training_is_the_same_up_to_rounding(how: str, model: str) -> None:
    data = rows(24, model == "family")
    source = MODEL if model == "plain" else FAMILY
    results = []
    for big, step in (("", ""), SPLITS[how]):
        program = ampc.compile(text(big, step, source), target="cpu-1")
        results.append((program.train(data, driver="step", epochs=3, seed=2, shuffle=False), program))
    (whole, a), (parts, b) = results
    assert parts.training["loss"] == pytest.approx(whole.training["loss"], rel=1e-4)
    assert a.parameters is not None and b.parameters is not None
    back, left = fit(b.parameters, shapes(a.graph), "the split program")
    assert not left
    for name, value in a.parameters.items():
        np.testing.assert_allclose(back[name], value, rtol=2e-3, atol=2e-5)  # Adam divides by roots of sums in another order


@pytest.mark.parametrize("how", SPLITS)
def test_weights_of_the_whole_program_and_of_parts_are_taken_over_by_each_other(how: str, tmp_path: Path) -> None:
    whole, parts = ampc.compile(text(), target="cpu-1"), ampc.compile(text(*SPLITS[how]), target="cpu-1")
    other = ampc.compile(text(", columns = 4", ", rows = 2"), target="cpu-1")
    whole.parameters = initial_parameters(whole.graph, 7)
    whole.save_weights(tmp_path / "whole.safetensors")
    whole.save_weights(tmp_path / "torch.safetensors", names="torch")
    parts.load_weights(tmp_path / "whole.safetensors")
    assert parts.parameters is not None
    parts.save_weights(tmp_path / "parts.safetensors")
    parts.save_weights(tmp_path / "torch2.safetensors", names="torch")
    assert (tmp_path / "torch.safetensors").read_bytes()[-1000:] == (tmp_path / "torch2.safetensors").read_bytes()[-1000:]
    again = ampc.compile(text(), target="cpu-1")
    again.load_weights(tmp_path / "parts.safetensors")
    other.load_weights(tmp_path / "parts.safetensors")
    assert again.parameters is not None and other.parameters is not None
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], value)
    np.testing.assert_array_equal(np.concatenate([other.parameters[f"big@{i}.w"] for i in range(4)], 1), whole.parameters["big.w"])
    parts.parameters = None
    parts.load_weights(tmp_path / "torch.safetensors", names="torch")
    back, _ = fit(parts.parameters or {}, shapes(whole.graph), "parts")
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(back[name], value)


def test_parts_and_copies_go_together() -> None:
    whole, both = graph_of(text()), graph_of(text(", columns = 2, replicas = 2", ", replicas = 2"))
    assert {x.name for x in both.layers} >= {"big@0~0", "big@1~0", "big@0~1", "step~1"}
    parameters = initial_parameters(whole, 3)
    found, left = fit(parameters, shapes(both), "whole")
    assert not left
    np.testing.assert_array_equal(found["big@1~0.w"], parameters["big.w"][:, 10:])
    back, _ = fit(found, shapes(whole), "copies of parts")
    for name, value in parameters.items():
        np.testing.assert_array_equal(back[name], value)
    assert with_copies(graph_of(text(", columns = 2")), ["head"], 2) is not None


def test_torch_gets_the_whole() -> None:
    parts = graph_of(text(", rows = 3"))
    parameters = initial_parameters(parts, 3)
    state = to_torch(parameters, parts, name_map(parts, None))
    np.testing.assert_array_equal(state["big.weight"], initial_parameters(graph_of(text()), 3)["big.w"].T)


def test_parts_go_to_different_devices() -> None:
    graph = graph_of(text(", columns = 4").replace("wide = 20", "wide = 4000").replace("Linear(26", "Linear(4006"))
    p = place(graph, load_target("fpga_1tflops"))
    assert len({p.device_of[n.id] for n in graph.nodes if isinstance(n, PPT) and n.layer.startswith("big@")}) > 1


def test_widths() -> None:
    assert widths(10, 4) == [3, 3, 2, 2]
    assert widths(4, 4) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("option", "code", "message"),
    [
        (", columns = 21", "AMP254", "`columns` of `big` has to be within 1 and 20, got 21"),
        (", rows = 7", "AMP254", "`rows` of `big` has to be within 1 and 6, got 7"),
        (", rows = 0", "AMP254", "`rows` of `big` has to be within 1 and 6, got 0"),
        (", columns = 2, rows = 2", "AMP255", "`big` is split by `columns` and by `rows`, but only one is possible"),
    ],
)
def test_refusals(option: str, code: str, message: str) -> None:
    with pytest.raises(AmpError) as caught:
        graph_of(text(option))
    assert (code, message) in [(d.code, d.message) for d in caught.value.diagnostics]
