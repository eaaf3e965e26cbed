"""`ampc run` from flags to files and exit codes, on a small engine; wrong command lines with their messages; the public Python calls."""

from __future__ import annotations

import io
import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

import ampc.manifest
from ampc.cli.errors import OUTPUT
from ampc.cli.run import run
from ampc.diagnostics import AmpError
from ampc.manifest import Manifest
from ampc.place import Statistics, load_target
from ampc.place.assign import Placement
from ampc.runtime.events import Epoch, Note, Phase, Progress
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program, cores, program_hash, targets
from ampc.runtime.progress import Display
from runtime.fake import FakeEngine, Q

GRAPH = msgspec.structs.replace(
    Q, train={"epochs": 2, "optimizer": "sgd", "learning_rate": 0.01, "min_update_frequency": 1}, parameters={"hidden": 3}
)
TARGET = load_target("cpu-1")
MANIFEST = Manifest(GRAPH, Placement("balanced", ("core",), {n.id: 0 for n in Q.nodes}, instances_per_s=100.0), TARGET, Statistics(axes={}))

APP = typer.Typer()
APP.command()(run)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A place of its own with data, and the small engine in place of the compiled one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ampc.manifest, "load", lambda path: MANIFEST)
    monkeypatch.setattr(Program, "_real_engine", lambda self, o, p: FakeEngine(o, p))
    Path("data").mkdir()
    rows = [{"x": [1.0, float(i)], "y": float(i)} for i in range(6)]
    for split in ("train", "valid"):
        Path(f"data/{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def ampc_run(*args: str) -> Result:
    return CliRunner().invoke(APP, ["m.json", *args])


def refused_run(*args: str) -> tuple[str, str, str | None]:
    result = ampc_run(*args)
    assert isinstance(result.exception, AmpError), result.output
    d = result.exception.diagnostics[0]
    return d.code, d.message, d.help


def done(*args: str) -> Result:
    result = ampc_run(*args)
    assert result.exception is None, result.exception
    return result


def test_train_writes_a_run_folder_and_prints_a_table() -> None:
    result = done("--data", "data", "-o", "out")
    assert "epoch 1/2  loss" in result.stderr and "epoch 2/2" in result.stderr and "\r" not in result.stderr and "\x1b" not in result.stderr
    assert "loss" not in result.stderr.splitlines()[-1] or "epoch 2/2" in result.stderr.splitlines()[-1]
    table = dict(line.split(maxsplit=1) for line in result.stdout.splitlines() if line.split()[0] in ("epochs", "workers", "model"))
    assert table == {"epochs": "2 (all epochs are done)", "workers": "1", "model": "q"}
    assert "placement predicts 100" in result.stdout and re.search(r"run folder +out", result.stdout)
    assert len(Path("out/metrics.jsonl").read_text().splitlines()) == 2
    config = tomllib.loads(Path("out/config.toml").read_text())
    assert config["run"]["epochs"] == 2 and config["input"] == {"manifest": "m.json", "data": "data"}


def test_json_is_one_object_on_stdout() -> None:
    result = done("--data", "data", "--json", "--quiet", "--until", "loss < -1", "--epochs", "1")
    summary = json.loads(result.stdout)
    assert (summary["epochs"], summary["target_reached"], summary["run_folder"]) == (1, False, "runs/q-1")
    assert summary["validation"]["accuracy"] is None and summary["undefined"]["accuracy"]
    assert result.stderr == ""


def test_flags_win_over_set_over_train_block_over_config_file() -> None:
    Path("ampc.toml").write_text("[run]\nepochs = 9\nseed = 9\ngroup = 9\n")
    printed = tomllib.loads(done("--set", "seed=3", "--seed", "4", "--set", "w.learning_rate=0.5", "--print-config").stdout)
    assert printed["run"]["epochs"] == 2 and printed["run"]["seed"] == 4 and printed["run"]["group"] == 9
    assert printed["run"]["layer"] == {"w": {"learning_rate": 0.5}}
    shown = json.loads(done("--seed", "4", "--print-config", "--json").stdout)["settings"]
    assert shown["seed"] == {"value": 4, "from": "`--seed`"} and shown["keep"] == {"value": 3, "from": "default"}
    assert not Path("runs").exists()


def test_folders_are_numbered_and_never_overwritten() -> None:
    for n in (1, 2):
        done("--data", "data")
        assert Path(f"runs/q-{n}/summary.json").is_file()
    result = ampc_run("--data", "data", "-o", "runs/q-1")
    assert isinstance(result.exception, AmpError) and result.exception.diagnostics[0].code == "AMP707"
    done("--data", "data", "-o", "runs/q-1", "--force", "--epochs", "1")


def test_resume_goes_on_with_the_settings_and_data_of_the_run() -> None:
    done("--data", "data", "-o", "out", "--learning-rate", "0.02", "--seed", "3", "--set", "w.momentum=0.5")
    result = done("--resume", "out", "--epochs", "4", "--json")
    summary = json.loads(result.stdout)
    assert summary["epochs"] == 4 and summary["resumed_from"].endswith("000002") and summary["seed"] == 3
    lines = [json.loads(line) for line in Path("out/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4] and {line["learning_rate"] for line in lines} == {0.02}
    assert tomllib.loads(Path("out/config.toml").read_text())["run"]["layer"] == {"w": {"momentum": 0.5}}
    other = ampc_run("--resume", "out", "--epochs", "5", "--seed", "9")
    assert isinstance(other.exception, AmpError) and other.exception.diagnostics[0].code == "AMP716"


def test_verbose_says_what_is_done_with_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OUTPUT, "verbose", True)
    said = re.sub(r"\d+\.\d+ s", "T", done("--data", "data", "-o", "out").stderr).splitlines()
    assert said[:2] == ["read m.json T", "read data T"] and said[-1] == "compiled kernels T, trained and validated T, in all T"
    said = re.sub(r"\d+\.\d+ s", "T", done("--evaluate", "--init", "out", "--data", "data").stderr).splitlines()
    assert said == ["read m.json T", "read weights T", "read data T", "compiled kernels and evaluated T"]


def test_an_interrupted_run_says_how_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import signal

    slow = FakeEngine.run

    def run(self: FakeEngine, *args: Any, **how: Any) -> Any:
        if how.get("epoch") == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return slow(self, *args, **how)

    monkeypatch.setattr(FakeEngine, "run", run)
    result = ampc_run("--data", "data", "-o", "out", "--epochs", "5")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "note: interrupted; `--resume out` goes on from the last checkpoint"


def test_the_time_of_a_resumed_run_holds_that_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = FakeEngine.run

    def run(self: FakeEngine, *args: Any, **how: Any) -> Any:
        time.sleep(0.02)
        return slow(self, *args, **how)

    monkeypatch.setattr(FakeEngine, "run", run)
    done("--data", "data", "-o", "out")
    first = json.loads(Path("out/summary.json").read_text())
    monkeypatch.setattr(FakeEngine, "run", slow)
    done("--resume", "out", "--epochs", "3")
    then = json.loads(Path("out/summary.json").read_text())
    assert then["wall_s"] >= then["elapsed_s"] > first["elapsed_s"]


def test_infer_needs_no_labels_and_writes_predictions() -> None:
    done("--data", "data", "-o", "out")
    Path("new.jsonl").write_text('{"x": [1, 2]}\n{"x": []}\n')
    result = done("--infer", "--init", "out", "--data", "new.jsonl", "-o", "p.parquet")
    assert result.stdout == "2 predictions (pred) in p.parquet\n"
    assert done("--infer", "--init", "out", "--data", "data", "-o", "v.parquet").stdout == "6 predictions of the valid data (pred) in v.parquet\n"
    table = pq.read_table("p.parquet")
    w = json.loads(done("--evaluate", "--init", "out", "--data", "data", "--json").stdout)
    assert table.column("pred").to_pylist()[1] == 0 and table.column("pred").to_pylist()[0] > 1
    assert w["instances"] == 6 and w["accuracy"] is None
    rows = [json.loads(line) for line in done("--infer", "--init", "out", "--data", "new.jsonl", "-o", "-").stdout.splitlines()]
    assert [r["pred"] for r in rows] == pytest.approx(table.column("pred").to_pylist())
    done("--infer", "--init", "out", "--data", "data", "-o", "p.arrow")
    assert pa.ipc.open_file("p.arrow").read_all().num_rows == 6


def test_pytorch_names_out_and_in() -> None:
    done("--data", "data", "-o", "out", "--export-torch", "t.safetensors")
    from safetensors.numpy import load_file

    assert list(load_file("t.safetensors")) == ["w.weight"]
    for args in (["--init", "t.safetensors"], ["--init", "t.safetensors", "--init-partial"]):
        assert refused_run("--evaluate", "--data", "data", *args) == (
            "AMP710", "the weights in `t.safetensors` have the names of a PyTorch state dict",
            'add `--names torch`, in Python `names="torch"`; `--names FILE` maps other names',
        )  # fmt: skip
    done("--evaluate", "--data", "data", "--init", "w=t.safetensors", "--names", "torch")
    done("--data", "data", "-o", "next", "--init", "t.safetensors", "--names", "torch", "--epochs", "0")
    assert Path("next/summary.json").is_file()


def test_the_export_is_the_best_epoch_as_a_run_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import load_file

    done("--data", "data", "-o", "out", "--export-torch", "t.safetensors", "--learning-rate", "0.2", "--set", "watch=loss", "--on-nan", "ignore")
    best, last = load_file("out/best.safetensors")["w.w"], load_file("out/weights.safetensors")["w.w"]
    assert load_file("t.safetensors")["w.weight"] == best != last


def test_weights_of_a_folder_and_of_one_layer() -> None:
    from ampc.runtime.weights import save_weights

    done("--data", "data", "-o", "out")
    for source in ("out/checkpoints/000002", "w=out", "w=out/checkpoints/000001"):
        done("--evaluate", "--data", "data", "--init", source)
    save_weights(Path("all.safetensors"), {"w.w": np.full((1, 1), 3, np.float32), "mind.b": np.zeros(3, np.float32)})
    program = Program(MANIFEST)
    program.load_weights("w=all.safetensors")
    assert program.parameters is not None and program.parameters["w.w"] == 3
    assert refused_run("--evaluate", "--data", "data", "--init", "out/checkpoints") == (
        "AMP711", "the folder `out/checkpoints` holds no weights", "give a run folder, one of its `checkpoints/<n>`, or a safetensors file",
    )  # fmt: skip
    save_weights(Path("mind.safetensors"), {"mind.b": np.zeros(3, np.float32), "mind.w": np.zeros(3, np.float32)})
    result = ampc_run("--evaluate", "--data", "data", "--init", "w=mind.safetensors")
    assert isinstance(result.exception, AmpError)
    assert result.exception.diagnostics[0].notes == ("`w.w` [1, 1] is missing in the file",)


def test_names_that_dont_fit_are_listed_in_order_and_not_all() -> None:
    from ampc.runtime.weights import fit

    arrays = {f"x{i:02}.w": np.zeros(1, np.float32) for i in range(30)}
    with pytest.raises(AmpError) as caught:
        fit(arrays, {"w.w": (1, 1)}, "f")
    d = caught.value.diagnostics[0]
    assert d.notes[0] == "`w.w` [1, 1] is missing in the file"
    assert d.notes[1:3] == tuple(f"`x{i:02}.w` [1] is in the file, but the program has no such parameter" for i in (0, 1))
    assert len(d.notes) == 13 and d.notes[-1] == "19 more of the kind" and d.help is None


def test_a_run_without_validation_data_says_so() -> None:
    Path("data/valid.jsonl").rename("data/validate.jsonl")
    looked = "looked for `valid.*`, `validation.*`, `val.*`, `dev.*`; `validate.jsonl` would have to be called `valid.jsonl`"
    assert (
        f"note: no validation data in `data` ({looked}): `until` (`loss`) and the best epoch (`absolute_error`) are judged by the training data\n"
        in done("--data", "data", "--until", "loss < 1 and train.loss < 1").stderr
    )
    assert (
        "note: no validation data (`--valid FILE`, in Python `validation=`): the best epoch (`absolute_error`) is judged by the training data\n"
        in done("--data", "data/train.jsonl", "--until", "train.loss < 1").stderr
    )
    assert "no validation" not in done("--data", "data/train.jsonl", "--valid", "data/validate.jsonl").stderr


def test_a_data_error_leaves_nothing_behind() -> None:
    Path("data/valid.jsonl").write_text('{"x": [1.0], "y": 0}\n{"x": [1.0], "y')
    for text in ("", '{"x": [1.0]}\n'):
        Path("data/train.jsonl").write_text(text)
        result = ampc_run("--data", "data")
        assert isinstance(result.exception, AmpError) and result.exception.exit_code == 1
        assert not Path("runs").exists()


def test_poisoned_rows_are_named_or_skipped() -> None:
    bad = {"x": [[1.0], [float("nan")], [2.0]], "y": [1.0, 1.0, 1.0]}
    pq.write_table(pa.table(bad), "train.parquet")
    result = ampc_run("--data", "train.parquet")
    assert isinstance(result.exception, AmpError)
    assert "row 1" in str(result.exception) and "`x[0]`" in str(result.exception)
    skipped = done("--data", "train.parquet", "--on-nan", "skip", "--json")
    assert json.loads(skipped.stdout)["skipped"] == 1
    assert "note: 1 of 3 training instances are left out" in skipped.stderr


@pytest.mark.parametrize(
    ("args", "code", "message", "exit_code"),
    [
        (["--infer", "--data", "data"], "AMP719", "a run without training needs weights", 2),
        (["--infer", "--evaluate", "--init", "x"], "AMP719", "`--infer` and `--evaluate` exclude each other", 2),
        (["--resume", "x", "--infer"], "AMP719", "`--resume` continues a training run", 2),
        (["--resume", "x", "--init", "y"], "AMP719", "`--resume` and `--init` both say which weights to begin with", 2),
        (["--resume", "x", "--force"], "AMP719", "`--resume` continues what `--force` would overwrite", 2),
        (["--split", "test", "--data", "data"], "AMP719", "`--split` belongs to `--infer` and `--evaluate`", 2),
        (["--split", "tset", "--infer", "--init", "x"], "AMP719", "`--split` expects `train`, `valid` or `test`", 2),
        (["--names", "torch", "--data", "data"], "AMP719", "`--names` belongs to `--init` and `--export-torch`", 2),
        (["--valid", "v", "--infer", "--init", "x"], "AMP719", "`--valid` belongs to a training run", 2),
        (["-o", "m.json", "--evaluate", "--init", "x"], "AMP719", "`--evaluate` writes no file, but `-o` names one", 2),
        (["--force", "--evaluate", "--init", "x"], "AMP719", "`--force` overwrites, but `--evaluate` writes nothing", 2),
        (["--export-torch", "t", "--infer", "--init", "x"], "AMP719", "`--export-torch` belongs to a training run", 2),
        ([], "AMP719", "a run needs data", 2),
        (["--data", "data", "--resume", "absent"], "AMP708", "`absent` is no run folder: it has no readable `config.toml`", 1),
        (["--data", "absent"], "AMP801", "there is no data folder or file `absent`", 1),
        (["--data", "data", "--init", "absent"], "AMP711", "`absent` can't be read: no such file or directory", 1),
        (["--data", "data", "--init", "v=absent"], "AMP705", "`--init v=absent`: the model has no layer `v`", 1),
        (["--data", "data", "--config", "absent.toml"], "AMP706", "there is no settings file `absent.toml`", 1),
        (["--data", "data", "--epochs", "-1"], "AMP702", "`epochs` (`--epochs`) expects an integer at least 0 and at most 1e+09, got `-1`", 2),
        (["--data", "data", "--workers", "999"], "AMP702", "`workers` (`--workers`) expects an integer at least 0 and at most 256, got `999`", 2),
        (["--data", "data", "--mode", "asink"], "AMP702", "`mode` (`--mode`) expects one of `async`, `sync`, got `asink`", 2),
        (["--data", "data", "--driver", "thread"], "AMP702", "`driver` (`--driver`) expects one of `threads`, `step`, got `thread`", 2),
        (["--data", "data", "--learning-rate", "nan"], "AMP702", "`learning_rate` (`--learning-rate`) expects a number at least 0, got `nan`", 2),
        (["--data", "data", "--set", "hidden=64"], "AMP701", "`hidden` in `--set` is a parameter of the model and was fixed when it was compiled", 2),
        (["--data", "data", "--set", "epoch=64"], "AMP701", "unknown setting `epoch` in `--set`", 2),
        (["--data", "data", "--group-by-length"], "AMP714", "`group_by_length` needs groups, but `group` is 1", 2),
        (["--data", "data", "--until", "acuracy > 1"], "AMP704", "`acuracy` is no value of this run", 2),
        (["--data", "data", "--until", "accuracy >> 1"], "AMP703", "`until` expects a number, got `>`", 2),
        (["--infer", "--init", "x", "--data", "data", "-o", "p.csv"], "AMP711", "`x` can't be read: no such file or directory", 1),
    ],
)
def test_wrong_command_line(args: list[str], code: str, message: str, exit_code: int) -> None:
    result = ampc_run(*args)
    assert isinstance(result.exception, AmpError), result.output
    d = result.exception.diagnostics[0]
    assert (d.code, d.message, result.exception.exit_code) == (code, message, exit_code)
    assert d.help or d.code in ("AMP702", "AMP711")
    assert not Path("runs").exists()


def test_predictions_overwrite_nothing_unasked() -> None:
    done("--data", "data", "-o", "out")
    done("--infer", "--init", "out", "--data", "data")
    for extra in ([], ["-o", "predictions.parquet"]):
        assert refused_run("--infer", "--init", "out", "--data", "data", *extra) == (
            "AMP718", "`predictions.parquet` is there already", "`--force` overwrites it, `-o` gives another name",
        )  # fmt: skip
    done("--infer", "--init", "out", "--data", "data", "--force")


def test_predictions_need_a_folder_that_is_there() -> None:
    done("--data", "data", "-o", "out")
    assert refused_run("--infer", "--init", "out", "--data", "data", "-o", "nodir/p.parquet") == (
        "AMP730", "`nodir/p.parquet` can't be written: no such file or directory", "make the folder `nodir` first, or give another path with `-o`",
    )  # fmt: skip


def test_data_that_isnt_there() -> None:
    for args, remedy in (
        (["--data", "data", "--valid", "nope.jsonl"], "give the path of a data file, from the current folder on"),
        (["--data", "dta"], "did you mean `data`?"),
        (["--data", "elsewhere"], "`ampc data` makes the bundled data sets, for instance `ampc data list_reduction -o DIR`"),
    ):
        assert refused_run(*args) == ("AMP801", f"there is no data folder or file `{args[-1]}`", remedy)


def test_watch_of_the_validation() -> None:
    assert refused_run("--data", "data", "--set", "watch=valid.loss") == (
        "AMP704", "`watch` names `valid.loss`, which is no value of this run", "did you mean `loss`? That is the value of the validation",
    )  # fmt: skip


def test_a_condition_in_a_file_has_no_place_in_a_flag() -> None:
    Path("ampc.toml").write_text("[run]\nuntil = 'acc > 1'\n")
    result = ampc_run("--data", "data")
    assert isinstance(result.exception, AmpError) and result.exception.exit_code == 1
    assert "-->" not in str(result.exception) and "= note: `until` in `ampc.toml`" in str(result.exception)


def test_unknown_flag_is_a_usage_error() -> None:
    assert ampc_run("--epoch", "3").exit_code == 2
    assert ampc_run("--epochs", "three").exit_code == 2


def test_predictions_cant_go_to_a_form_that_isnt_known() -> None:
    done("--data", "data", "-o", "out")
    result = ampc_run("--infer", "--init", "out", "--data", "data", "-o", "p.csv")
    assert isinstance(result.exception, AmpError) and result.exception.diagnostics[0].code == "AMP718"


# ------------------------------------------------------------------------------------------ from Python

ROWS = [{"x": [1.0, float(i)], "y": float(i)} for i in range(6)]


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


def test_integer_outputs_are_int64() -> None:
    from ampc.ir.nodes import NPT, Output, Region, Type
    from ampc.runtime.predictions import with_integers

    nodes = (NPT(id=0, op="argmax", outputs=(Type("", 1, True),)), Output(id=1, name="word", inputs=((0, 0),)))
    graph = msgspec.structs.replace(Q, nodes=nodes, regions=(Region(0, "instance"),))
    (word,) = with_integers(graph, {"word": [np.full((1, 1), 3, np.float32)]})["word"]
    assert word.dtype == np.int64 and word.tolist() == [[3]]


# ------------------------------------------------------------------------------------------ the display


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(display: Display) -> None:
    with display:
        display(Phase("train", 0, 2, 10))
        for i in range(1, 11):
            display(Progress(i, 10, 0.5 * i, 3, 0.1 * i, 1.5))
        display(Note("row \x1b[31m left out"))
        display(Epoch(1, 0.5, {"accuracy": None}, {"loss": 0.25}, {}, 0.1, 10, 0, 1.0, 0.5, 1.5, 10.0, {"w": 1}, {"w": 1.5}, True))


def test_plain_display_is_one_line_an_epoch() -> None:
    stream = io.StringIO()
    show(Display(stream=stream))
    assert stream.getvalue() == (
        "note: row \\x1b[31m left out\n"
        "epoch 1/2  loss 0.5     accuracy undefined  | valid  loss 0.25    |        10 instances/s    1.5 s  staleness 1.5  best\n"
    )  # fmt: skip


@pytest.mark.parametrize("term", ["dumb", ""])
def test_terminal_that_cant_move_its_cursor_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal()
    show(Display(stream=stream))
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    show(Display(stream=stream))
    assert "3 in flight" in stream.getvalue() and "10/10" in stream.getvalue() and "epoch 1/2  loss 0.5" in stream.getvalue()


def test_quiet_shows_notes_only() -> None:
    stream = io.StringIO()
    show(Display(stream=stream, quiet=True))
    assert stream.getvalue() == "note: row \\x1b[31m left out\n"


def test_a_reader_that_has_gone_doesnt_stop_the_run() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    show(Display(stream=Closed()))


def test_predictions_of_every_shape() -> None:
    from ampc.ir.nodes import NPT, Output, Region, Type
    from ampc.runtime import predictions

    shapes = [
        ("one", Type("", 1), 0),
        ("vector", Type("", 2), 0),
        ("word", Type("", 1, True), 0),
        ("rows", Type("token", 2), 0),
        ("each", Type("", 1), 1),
    ]
    nodes: list[Any] = []
    for i, (name, kind, region) in enumerate(shapes):
        nodes += [NPT(id=2 * i, op="relu", outputs=(kind,)), Output(id=2 * i + 1, name=name, region=region, inputs=((2 * i, 0),))]
    graph = msgspec.structs.replace(Q, nodes=tuple(nodes), regions=(Region(0, "instance"), Region(1, "each", 0, "token")))
    outputs = {
        "one": [np.ones((1, 1), np.float32)], "vector": [np.ones((1, 2), np.float32)], "word": [np.full((1, 1), 3, np.float32)],
        "rows": [np.ones((3, 2), np.float32)], "each": [np.ones((1, 1), np.float32)],
    }  # fmt: skip
    unwritten = {name: [a[0][:0]] for name, a in outputs.items()}
    predictions.write("u.parquet", graph, unwritten)
    assert pq.read_table("u.parquet").to_pylist() == [{"one": None, "vector": None, "word": None, "rows": [], "each": []}]
    expected = {"one": 1.0, "vector": [1.0, 1.0], "word": 3, "rows": [[1.0, 1.0]] * 3, "each": [1.0]}
    for path in ("p.parquet", "p.jsonl"):
        predictions.write(path, graph, outputs)
    assert pq.read_table("p.parquet").to_pylist() == [expected]
    assert json.loads(Path("p.jsonl").read_text()) == expected
