"""Whole programs, compiled from text and run on the interpreter: figures that can be checked by hand, resuming, weights that don't fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ampc.api as api
from ampc.diagnostics import AmpError
from ampc.runtime.program import Program, targets
from runtime.slow import SlowEngine

Q = """
model q():
    instance:
        axis token
        x: float[token]
        y: float

    w = Linear(1, 1, bias = false, init = ones)

    h = zeros(1)
    loop t in token carry h:
        h = h + w(x[t])

    loss squared(h, y)
    metric absolute_error(h, y)
    output h
"""

PLAIN: dict[str, Any] = {"optimizer": "sgd", "shuffle": False, "epochs": 1, "max_active_keys": 1, "driver": "step"}


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "_real_engine", lambda self, o, p: SlowEngine(self.graph, o, p))


def w(program: Program) -> float:
    assert program.parameters is not None
    return float(program.parameters["w.w"][0, 0])


@pytest.mark.parametrize(("frequency", "updates"), [(4, 2), (100, 1), (6, 1)])
def test_part_filled_accumulator_is_flushed_with_the_mean_of_what_it_holds(frequency: int, updates: int) -> None:
    rows = [{"x": [1.0], "y": float(y)} for y in (2, 3, 4, 5, 6, 7)]
    program = api.compile(Q)
    summary = program.train(rows, learning_rate=0.1, min_update_frequency=frequency, **PLAIN)
    assert summary.updates == {"w": updates}
    by_hand, left = 1.0, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    while left:
        held, left = left[:frequency], left[frequency:]
        by_hand -= 0.1 * float(np.mean([2 * (by_hand - y) for y in held]))
    assert w(program) == pytest.approx(by_hand, rel=1e-6)
    if frequency == 4:
        assert w(program) == pytest.approx(2.5, rel=1e-6)


def test_empty_instances_predict_zero_and_count_in_the_mean() -> None:
    rows = [{"x": [1.0, 2.0], "y": 0.0}, {"x": [], "y": 3.0}, {"x": [4.0], "y": 4.0}, {"x": [], "y": 0.0}]
    program = api.compile(Q)
    summary = program.train(rows, learning_rate=0.0, **PLAIN)
    assert summary.training["loss"] == pytest.approx(4.5)
    assert [float(a[0, 0]) for a in program.predict(rows)["h"]] == [3.0, 0.0, 4.0, 0.0]


def test_python_and_manifest_give_the_same_program(tmp_path: Path) -> None:
    program = api.compile(Q)
    api.save(program, tmp_path / "manifest.json")
    rows = [{"x": [1.0], "y": 2.0}]
    loaded = api.load(tmp_path)
    for p in (program, loaded):
        p.train(rows, learning_rate=0.1, min_update_frequency=1, **PLAIN)
    assert w(program) == w(loaded) == pytest.approx(1.2)


def list_reduction(hidden: int) -> Program:
    return api.compile("list_reduction", hidden=hidden)


ROWS = [{"symbol": [10, 1, 2], "label": 3}, {"symbol": [11, 4], "label": 4}]


def test_resume_after_a_parameter_of_the_model_was_changed_is_refused(tmp_path: Path) -> None:
    list_reduction(8).train(ROWS, run_folder=tmp_path / "r", epochs=1)
    with pytest.raises(AmpError) as e:
        list_reduction(4).train(ROWS, resume=tmp_path / "r", epochs=2)
    (d,) = e.value.diagnostics
    assert d.code == "AMP709" and "`embed.table` has shape [14, 8], the program wants [14, 4]" in d.notes
    with pytest.raises(AmpError) as e:
        list_reduction(4).load_weights(tmp_path / "r")
    assert e.value.diagnostics[0].code == "AMP710"
    renamed = Path(__file__).parents[2].joinpath("models", "list_reduction.amp").read_text().replace("head", "top")
    with pytest.raises(AmpError) as e:
        api.compile(renamed, hidden=8).train(ROWS, resume=tmp_path / "r", epochs=2)
    assert any("`top.w`" in n and "missing in the checkpoint" in n for n in e.value.diagnostics[0].notes)
    assert any("`head.w`" in n and "not in the program" in n for n in e.value.diagnostics[0].notes)


def test_a_change_that_keeps_the_shapes_is_another_program_too(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("models", "list_reduction.amp").read_text()
    api.compile(text, hidden=4).train(ROWS, run_folder=tmp_path / "r", epochs=1)
    moved = text.replace("# ", "# a longer remark\n# ", 1)
    assert api.compile(moved, hidden=4).train(ROWS, resume=tmp_path / "r", epochs=2).epochs == 2
    with pytest.raises(AmpError, match="AMP709"):
        api.compile(text.replace("relu(", "tanh("), hidden=4).train(ROWS, resume=tmp_path / "r", epochs=3)
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["epochs"] == 2


@pytest.mark.parametrize(
    ("model", "unread"),
    [
        ("list_reduction", {"label"}),
        ("sentiment_tree_lstm", {"label"}),
        ("qm9_ggsnn", {"dipole"}),
        ("typed_steps", {"total", "alarm"}),
    ],
)
def test_prediction_doesnt_ask_for_what_only_losses_read(model: str, unread: set[str]) -> None:
    assert targets(api.compile(model).graph) == unread


def test_every_bundled_model_has_settings_that_resolve() -> None:
    from ampc.source import bundled_models

    for name in bundled_models():
        program = api.compile(name)
        options = program.options()
        assert program.session(options).watch


def test_pytorch_state_dict_goes_out_and_comes_back(tmp_path: Path) -> None:
    program = list_reduction(4)
    program.train(ROWS, epochs=1)
    program.save_weights(tmp_path / "t.safetensors", names="torch")
    from safetensors.numpy import load_file

    assert load_file(tmp_path / "t.safetensors")["step.weight"].shape == (4, 8)
    again = list_reduction(4)
    again.load_weights(tmp_path / "t.safetensors", names="torch")
    assert again.evaluate(ROWS) == program.evaluate(ROWS)
    vectors = np.ones((14, 4), np.float32)
    api_weights = tmp_path / "v.safetensors"
    from ampc.runtime.weights import save_weights

    save_weights(api_weights, {"anything": vectors})
    fresh = list_reduction(4)
    fresh.load_weights(f"embed={api_weights}")
    fresh.train(ROWS, epochs=0)
    assert fresh.parameters is not None and (fresh.parameters["embed.table"] == 1).all() and len(fresh.parameters) == 5
