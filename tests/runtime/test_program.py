"""The public Python calls of a program, on a small engine: training, weights, predictions, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from ampc.diagnostics import AmpError
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program, cores, program_hash, targets
from runtime.fake import Q
from runtime.small_run import GRAPH, MANIFEST, ROWS, TARGET

pytestmark = pytest.mark.usefixtures("small_run")


def test_python_calls_take_rows_tables_files_and_folders() -> None:
    program = Program(MANIFEST)
    summary = program.train(ROWS, ROWS, epochs=3, until="loss < 1e9")
    assert summary.epochs == 1 and summary.run_folder is None and program.parameters is not None
    w = float(program.parameters["w.w"][0, 0])
    table = pa.Table.from_pylist(ROWS)
    for data in (ROWS, table, "data/valid.jsonl", "data", Path("data")):
        assert program.evaluate(data)["loss"] == pytest.approx(program.evaluate(ROWS)["loss"])
    assert [float(a[0, 0]) for a in program.predict([{"x": [1.0]}, {"x": [2.0]}])["pred"]] == pytest.approx([w, 2 * w])
    program.save_weights("w.safetensors")
    again = Program(MANIFEST)
    assert again.load_weights("w.safetensors") == [] and again.evaluate(ROWS) == program.evaluate(ROWS)
    assert "q: 5 nodes, 1 layers, 1 parameters" in repr(program)


def test_python_run_folder_and_resume() -> None:
    Program(MANIFEST).train("data", run_folder="r", epochs=1)
    program = Program(MANIFEST)
    assert program.train("data", resume="r", epochs=3).epochs == 3
    with pytest.raises(AmpError, match=r"AMP707"):
        program.train("data", run_folder="r")
    with pytest.raises(AmpError, match=r"AMP701.*`epoch`"):
        program.train("data", epoch=1)
    with pytest.raises(AmpError, match=r"AMP717.*no weights yet"):
        Program(MANIFEST).save_weights("w.safetensors")


def test_training_goes_on_from_the_weights_of_the_program() -> None:
    program = Program(MANIFEST)
    program.train(ROWS, epochs=1, shuffle=False)
    program.train(ROWS, epochs=1, shuffle=False)
    twice = Program(MANIFEST)
    twice.train(ROWS, epochs=2, shuffle=False)
    assert program.parameters is not None and twice.parameters is not None
    assert program.parameters["w.w"] == pytest.approx(twice.parameters["w.w"], rel=1e-6)


def test_program_hash_ignores_where_the_source_stands() -> None:
    moved = msgspec.structs.replace(GRAPH, nodes=tuple(msgspec.structs.replace(n, origin=("other.amp:1:1",)) for n in GRAPH.nodes), train={})
    assert program_hash(moved) == program_hash(GRAPH)
    renamed = msgspec.structs.replace(GRAPH, layers=(msgspec.structs.replace(GRAPH.layers[0], name="v"),))
    assert program_hash(renamed) != program_hash(GRAPH)


def test_fields_that_only_losses_read_are_found() -> None:
    assert targets(Q) == {"y"}


def test_placement_follows_the_number_of_workers() -> None:
    two = cores(TARGET, 2)
    assert [d.name for d in two.devices] == ["core:0", "core:1"] and two.devices[0].kind == "cpu"
    program = Program(MANIFEST)
    assert program.placement(1) is MANIFEST.placement
    assert program.options({"workers": 3}).workers == 3 and program.options().workers == 1
    assert program.options({"driver": "step"}).workers == 1
    assert isinstance(program.options().engine(), EngineOptions)


def refused(call: Any, *args: Any, **how: Any) -> tuple[str, str, str | None]:
    with pytest.raises(AmpError) as caught:
        call(*args, **how)
    d = caught.value.diagnostics[0]
    return d.code, d.message, d.help


def test_without_weights_nothing_is_predicted() -> None:
    program = Program(MANIFEST)
    remedy = "train it, or take over weights: `--init RUN_DIR`, in Python `program.load_weights(RUN_DIR)`"
    for call in (program.predict, program.evaluate):
        assert refused(call, ROWS) == ("AMP717", "the program has no weights yet", remedy)
    two = msgspec.structs.replace(GRAPH, layers=(*GRAPH.layers, msgspec.structs.replace(GRAPH.layers[0], name="v")))
    half = Program(msgspec.structs.replace(MANIFEST, graph=two))
    half.parameters = {"v.w": np.zeros((1, 1), np.float32)}
    assert refused(half.evaluate, ROWS) == ("AMP717", "the program has no weights yet for `w.w`", remedy)
    program.train(ROWS, epochs=0)
    assert program.evaluate(ROWS)["loss"] is not None


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("init", "weights to begin with: `program.load_weights(...)` before the call, or `--init`"),
        ("valid", "validation data: the argument `validation=`, or `--valid`"),
        ("output", "where a run is written: the argument `run_folder=`, or `-o`"),
        ("lr", "did you mean `learning_rate`?"),
        ("epoch", "did you mean `epochs`?"),
        ("frobnicate", "`ampc run MANIFEST --print-config` lists all settings"),
    ],
)
def test_arguments_that_are_no_settings(name: str, remedy: str) -> None:
    program = Program(MANIFEST)
    for call in (program.train, program.predict):
        assert refused(call, ROWS, **{name: 1}) == ("AMP701", f"unknown setting `{name}` (`{name}=`)", remedy)


def test_a_folder_is_predicted_by_its_test_data_else_its_validation_data() -> None:
    program = Program(MANIFEST)
    program.train(ROWS, epochs=1)
    assert len(program.predict("data")["pred"]) == 6
    Path("data/test.jsonl").write_text('{"x": [1.0]}\n')
    assert len(program.predict("data")["pred"]) == 1
    assert len(program.predict("data", split="train")["pred"]) == 6
    for split in ("test", "valid"):
        Path(f"data/{split}.jsonl").unlink()
    assert refused(program.predict, "data") == (
        "AMP802", "`data` has neither test nor valid data: found `train.jsonl`", "name the file itself, or another split",
    )  # fmt: skip
