"""`ampc run` from flags to files and exit codes, on a small engine; wrong command lines with their messages."""

from __future__ import annotations

import json
import re
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ampc.cli.errors import OUTPUT
from ampc.diagnostics import AmpError
from ampc.runtime.program import Program
from runtime.fake import FakeEngine
from runtime.small_run import APP, MANIFEST, ampc_run, done, refused_run

pytestmark = pytest.mark.usefixtures("small_run")


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


def test_resume_without_a_manifest_takes_that_of_the_run() -> None:
    done("--data", "data", "-o", "out")
    result = CliRunner().invoke(APP, ["--resume", "out", "--epochs", "3", "--json"])
    assert result.exception is None and json.loads(result.stdout)["epochs"] == 3
    for args, code in (([], "AMP901"), (["--resume", "nowhere"], "AMP708"), (["--evaluate", "--init", "out"], "AMP901")):
        refused = CliRunner().invoke(APP, args)
        assert isinstance(refused.exception, AmpError) and refused.exception.diagnostics[0].code == code


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
