"""The command line from outside: wrong command lines with their messages and exit codes, streams, files, signals, start-up time."""

from __future__ import annotations

import glob
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ampc.cli.main import globals_first, main

ROOT = Path(__file__).parents[2]


class Done:
    """What a command line did, in this process."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def errors(self) -> list[str]:
        return re.findall(r"(?m)^error\[\w+\]: .*$", self.err)


@pytest.fixture
def ampc(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*argv: str) -> Done:
        status = main(argv)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Done(status, captured.out, captured.err)

    return run


UNTIL = """model m():
    instance:
        y: float
    layer = Linear(1, 1)
    p = layer(y)
    loss squared(p, y)
    metric absolute_error(p, y)
    train:
        until = absolute_error < 1 and acc >= 0.97
        watch = valid.loss
"""

WRONG: list[tuple[str, int, str, str]] = [
    # command line, exit code, message, help
    ("complie m.amp", 2, "error[AMP901]: `ampc` has no verb `complie`", "did you mean `compile`?"),
    ("frobnicate", 2, "error[AMP901]: `ampc` has no verb `frobnicate`", "verbs are `compile`, `run`, `place`, `simulate`, `bench`, `view`, `trace`, `check`, `explain`, `passes`, `data`, `calibrate`, `doctor`"),
    ("compile", 2, "error[AMP901]: `ampc compile` needs `MODEL`", "`ampc compile --help` says what it is"),
    ("compile a.amp b.amp", 2, "error[AMP901]: `ampc compile` does not expect `b.amp`", "`ampc compile --help` shows what there is"),
    ("compile a.amp --targt cpu-2", 2, "error[AMP901]: `ampc compile` has no option `--targt`", "did you mean `--target`?"),
    ("compile a.amp -x", 2, "error[AMP901]: `ampc compile` has no option `-x`", ""),
    ("compile a.amp --target", 2, "error[AMP901]: `--target` of `ampc compile` needs a value", ""),
    ("compile a.amp --emit asm", 2, "error[AMP901]: `--emit` of `ampc compile` must be one of `ast`, `ir`, `placement`, `kernels`, `manifest`, got `asm`", ""),
    ("compile a.amp --stop-after place --emit x", 2, "error[AMP901]: `--emit` of `ampc compile` must be one of", ""),
    ("compile list_reduction --stop-after parse --emit ir", 2, "error[AMP903]: `--emit ir` needs stage `lower`, but `--stop-after parse` ends before it", "leave `--stop-after` out, or stop after `lower`"),
    ("compile list_reduction --set hidden", 2, "error[AMP902]: `--set hidden` expects `NAME=VALUE`", "for instance `--set hidden=64`"),
    ("compile list_reduction --set hidden=big", 2, "error[AMP902]: `--set hidden=` expects a number, `true` or `false`, got `big`", ""),
    ("compile list_reduction --set hidden=1 --set hidden=2", 2, "error[AMP902]: `--set` gives `hidden` twice", ""),
    ("compile list_reduction --set hiden=64", 2, "error[AMP250]: unknown model parameter `hiden`", "did you mean `hidden`?"),
    ("compile list_reducton", 1, "error[AMP910]: there is no file `list_reducton`", "did you mean `list_reduction`?"),
    ("compile .", 1, "error[AMP910]: `.` is a folder, expected a file with a model", ""),
    ("compile binary.amp", 1, "error[AMP912]: `binary.amp` is not UTF-8 text: byte 0 is 0xff", "is this a model?"),
    ("compile big.amp", 1, "error[AMP911]: `big.amp` is larger than 1048576 bytes, which no model is", ""),
    ("compile list_reduction --target cpu3", 1, "error[AMP501]: there is no target `cpu3`", "did you mean `cpu-8`?"),
    ("compile list_reduction --strategy best", 2, "error[AMP510]: there is no placement strategy `best`", "strategies are `balanced`, `round_robin`, `manual`"),
    ("compile list_reduction --strategy manual", 1, "error[AMP512]: manual placement needs a device for layer `embed`", ""),
    ("compile list_reduction --disable-pass fold", 2, "error[AMP401]: there is no pass `fold`", ""),
    ("compile list_reduction -o full", 1, "error[AMP920]: `full` is there already and holds no compiled model", "give another folder with `-o`"),
    ("compile list_reduction -o binary.amp", 1, "error[AMP920]: `binary.amp` is there already and holds no compiled model", ""),
    ("compile list_reduction -o binary.amp/x", 4, "error[AMP921]: `binary.amp/x` cannot be written: ", ""),
    ("view list_reduction -o x.jpg", 2, "error[AMP904]: `-o x.jpg` must end in one of `.dot`, `.svg`, `.png`, `.pdf`", ""),
    ("view list_reduction -o picture", 2, "error[AMP904]: `-o picture` must end in one of `.dot`, `.svg`, `.png`, `.pdf`", ""),
    ("view none.json", 1, "error[AMP601]: there is no manifest `none.json`", "`ampc compile model.amp` writes one"),
    ("view full", 1, "error[AMP601]: there is no manifest `full/manifest.json`", ""),
    ("view full --target cpu-2", 2, "error[AMP903]: `--target`, `--set`, `--strategy`, `--at` and `--data` are for a model; a manifest is placed already", "name the `.amp` file"),
    ("view list_reduction --detail most", 2, "error[AMP901]: `--detail` of `ampc view` must be one of `paper`, `layers`, got `most`", ""),
    ("view list_reduction -o none/x.dot", 4, "error[AMP690]: `none/x.dot` cannot be written: no such file or directory", "make the folder `none` first, or give another path with `-o`"),
    ("explain AMP000", 1, "error[AMP900]: there is no code `AMP000`", ""),
    ("explain AMP999", 1, "error[AMP900]: there is no code `AMP999`", "`ampc explain` lists all of them: 1xx and 2xx models, 3xx graphs, 4xx passes, 5xx placement, 6xx manifests, 7xx runs, 8xx data, 9xx the command line"),
    ("run m.ampx --replicas auto", 2, "error[AMP901]: `ampc run` has no option `--replicas`", "`ampc compile` and `ampc place` have it"),
    ("run m.ampx --lr 0.1", 2, "error[AMP901]: `ampc run` has no option `--lr`", "did you mean `--learning-rate`?"),
    ("run m.ampx --eval", 2, "error[AMP901]: `ampc run` has no option `--eval`", "did you mean `--evaluate`?"),
    ("run wrong.amp", 1, "error[AMP604]: `wrong.amp` is a program, not a manifest", "compile it first: `ampc compile wrong.amp`"),
    ("run empty", 1, "error[AMP603]: `empty/manifest.json` is not JSON: it is empty", "compile the program again: `ampc compile model.amp` writes the manifest anew"),
    ("compile empty", 1, "error[AMP910]: `empty` is a folder, expected a file with a model", "it is a compiled model: `ampc run empty` runs it; to compile again, name the `.amp` file"),
    ("compile list_reduction --set hidden=2000000", 1, "error[AMP301]: parameter `step.w` [4000000, 2000000] of layer `step` has 8,000,000,000,000 numbers", "make the layer smaller: the sizes that it is declared with, or the parameters of the model in them"),
    ("compile list_reduction --set hidden=1.5", 2, "error[AMP251]: parameter `hidden` is an integer, got `1.5`", ""),
    ("compile wrong.amp --set hiden=1", 2, "error[AMP250]: unknown model parameter `hiden`", ""),
    ("data listreduction", 2, "error[AMP909]: there is no data set `listreduction`", "did you mean `list_reduction`?"),
    ("data list_reduction --set train", 2, "error[AMP902]: `--set train` expects `NAME=VALUE`", "for instance `--set train=1000`"),
    ("data list_reduction --seed x", 2, "error[AMP901]: `--seed` of `ampc data` expects an integer, got `x`", ""),
    ("check", 2, "error[AMP901]: `ampc check` needs `FILE`", ""),
    ("check none.toml", 1, "error[AMP501]: there is no target file `none.toml`", ""),
    ("run none.json", 1, "error[AMP601]: there is no manifest `none.json`", ""),
    ("run none.json --epochs many", 2, "error[AMP901]: `--epochs` of `ampc run` expects an integer, got `many`", ""),
    ("--color blue doctor", 2, "error[AMP901]: `--color` of `ampc` must be one of `auto`, `always`, `never`, got `blue`", ""),
    ("doctor --color", 2, "error[AMP901]: `--color` of `ampc` needs a value", ""),
    ("doctor --quiet=yes", 2, "error[AMP901]: ", ""),
]


@pytest.mark.parametrize(("line", "status", "message", "remedy"), WRONG, ids=[w[0] for w in WRONG])
def test_wrong_command_line(ampc: Any, line: str, status: int, message: str, remedy: str) -> None:
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    Path("binary.amp").write_bytes(b"\xff\xfe\x00")
    Path("big.amp").write_bytes(b"#" * ((1 << 20) + 1))
    Path("wrong.amp").write_text(UNTIL)
    Path("empty").mkdir()
    Path("empty/manifest.json").touch()
    before = sorted(p.name for p in Path().rglob("*"))
    done = ampc(*line.split())
    assert done.out == ""
    assert done.errors()[0].startswith(message), done.err
    if remedy:
        assert f"= help: {remedy}" in done.err
    assert done.status == status
    assert sorted(p.name for p in Path().rglob("*")) == before  # nothing is left behind


def test_compile_writes_the_folder(ampc: Any) -> None:
    done = ampc("compile", "list_reduction", "--target", "cpu-2", "--set", "hidden=16")
    assert done.status == 0, done.err
    assert done.err == ""
    assert done.out.splitlines()[0] == "compiled list_reduction: 18 nodes, 3 layers, 922 parameters"
    folder = Path("list_reduction.ampx")
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} >= {
        "manifest.json", "kernels.py", "graph.dot", "graph.svg", "report/cost.json", "report/placement.json", "report/passes.json",
        "report/memory.json",
    }
    for report in folder.glob("report/*.json"):
        json.loads(report.read_text())
    assert [p.name for p in Path().iterdir()] == ["list_reduction.ampx"]


def test_compile_prepares_the_kernels_of_a_run(ampc: Any) -> None:
    done = ampc("compile", "list_reduction", "--target", "cpu-2", "--set", "hidden=4", "--kernels")
    assert done.status == 0, done.err
    assert done.err.startswith("kernels ready in ")
    assert re.search(r"(?m)^  kernels +\S+ s  14 functions of 11 shapes, ", done.out)
    found = json.loads(Path("list_reduction.ampx/report/steps.json").read_text())["kernels"]
    assert (found["functions"], found["shapes"]) == (14, 11)  # those that train, and those of passes that do not
    refused = ampc("compile", "list_reduction", "--kernels", "--emit", "ir")
    assert refused.status == 2 and "`--kernels` needs the whole compilation" in refused.err


@pytest.mark.parametrize("verb", ["check", "compile"])
def test_conditions_of_the_train_block_are_checked_in_their_place(ampc: Any, verb: str) -> None:
    Path("m.amp").write_text(UNTIL)
    done = ampc(verb, "m.amp")
    assert done.err.splitlines()[:10] == [
        "error[AMP704]: `acc` is no value of this run",
        "  --> m.amp:9:40",
        "  9 |         until = absolute_error < 1 and acc >= 0.97",
        "    |                                        ^",
        "    = help: this run has `loss`, `absolute_error`, `train.loss`, `train.absolute_error`",
        "error[AMP704]: `watch` names `valid.loss`, which is no value of this run",
        "  --> m.amp:10:17",
        "  10 |         watch = valid.loss",
        "     |                 ^^^^^^^^^^",
        "     = help: did you mean `loss`? That is the value of the validation",
    ]
    Path("m.amp").write_text(UNTIL.replace("absolute_error < 1 and acc >= 0.97", '"mean_error => 1"').replace("valid.loss", "loss"))
    done = ampc(verb, "m.amp")
    assert done.status == 1 and done.err.splitlines()[:2] == ["error[AMP703]: `until` expects `>=`, `<=`, `>` or `<`, got `=`", "  --> m.amp:9:29"]


def test_compile_replaces_what_it_wrote_and_nothing_else(ampc: Any) -> None:
    assert ampc("compile", "list_reduction", "-o", "x").status == 0
    Path("x/old.txt").write_text("")
    assert ampc("compile", "list_reduction", "-o", "x").status == 0
    assert not Path("x/old.txt").exists()
    Path("empty").mkdir()
    assert ampc("compile", "list_reduction", "-o", "empty").status == 0


def test_quiet_prints_the_folder_alone(ampc: Any) -> None:
    done = ampc("compile", "list_reduction", "-q")
    assert (done.out, done.err) == ("list_reduction.ampx\n", "")


def test_compile_leaves_the_model_of_another_file_alone(ampc: Any) -> None:
    for name in ("one", "two"):
        Path(f"{name}.amp").write_text(UNTIL.replace("mean_error", "error").replace("        until", "        # until").replace("        watch", "        # watch").replace("    train:\n", ""))
    assert ampc("compile", "one.amp").status == 0
    assert ampc("compile", "one.amp", "-q").err == ""
    done = ampc("compile", "two.amp")
    assert (done.status, done.errors()) == (1, ["error[AMP920]: `m.ampx` holds a model that was compiled from another file, `one.amp`"])
    assert "= help: give another folder with `-o`, or replace it with `--force`" in done.err
    assert ampc("compile", "two.amp", "--force").status == 0
    assert '"two.amp"' in Path("m.ampx/manifest.json").read_text()


def test_spaces_and_letters_of_any_kind_in_paths(ampc: Any) -> None:
    """S03: every verb, and the compiled folder still runs after it was moved."""
    folder = Path("my models/über #1")
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "models_cases" / "q.amp", folder / "größe 2.amp")
    (folder / "data 1").mkdir()
    for split in ("train", "valid"):
        (folder / "data 1" / f"{split}.jsonl").write_text('{"x": [1.0, 2.0], "y": 3}\n{"x": [], "y": 0}\n')
    model, out, data, ran = (str(folder / name) for name in ("größe 2.amp", "out put", "data 1", "run 1"))

    def works(*line: str) -> None:
        done = ampc(*line)
        assert done.status == 0, done.err

    works("check", model)
    works("compile", model, "-o", out, "--data", data)
    works("view", out, "-o", str(folder / "a b.svg"))
    works("place", model, "--target", "cpu-2")
    works("run", out, "--data", data, "-o", ran, "--driver", "step", "--epochs", "1", "--trace")
    works("run", out, "--resume", ran, "--epochs", "2")
    works("trace", ran, "-o", str(folder / "trace 1.perfetto-trace"))
    works("simulate", model, "--data", data, "--target", "cpu-2", "--cost-only")
    moved = Path("elsewhere")
    shutil.move(out, moved)
    works("check", str(moved))
    assert str(Path.cwd()) not in (moved / "manifest.json").read_text()
    works("run", str(moved), "--infer", "--init", ran, "--data", data, "-o", str(folder / "p 1.jsonl"), "--driver", "step")
    assert len((folder / "p 1.jsonl").read_text().splitlines()) == 2


def test_json_output_is_one_object(ampc: Any) -> None:
    summary = json.loads(ampc("compile", "list_reduction", "--json").out)
    assert summary["model"] == "list_reduction"
    assert Path(summary["manifest"]).exists()
    for line in ("doctor --json", "passes --json", "explain --json", "explain AMP501 --json", "data --json"):
        json.loads(ampc(*line.split()).out)


@pytest.mark.parametrize(("stage", "words"), [("ast", "Model name='list_reduction'"), ("ir", "graph list_reduction"), ("placement", "core:0"), ("manifest", '"ampc-manifest"'), ("kernels", "Kernels of model list_reduction")])
def test_emit_prints_a_stage_and_writes_nothing(ampc: Any, stage: str, words: str) -> None:
    done = ampc("compile", "list_reduction", "--emit", stage, "--target", "cpu-2")
    assert done.status == 0
    assert words in done.out
    assert list(Path().iterdir()) == []


def test_stop_after_and_verbose_say_what_was_done(ampc: Any) -> None:
    done = ampc("compile", "list_reduction", "--stop-after", "lower", "--verbose")
    assert done.out == ""
    assert re.fullmatch(r"parse .* s\ncheck .* s\nlower .* s  18 nodes\nlist_reduction\.amp: stopped after `lower`, no mistakes\n", done.err)
    assert ampc("compile", "list_reduction", "--stop-after", "lower", "-q").err == ""


def test_dump_passes_writes_each_graph(ampc: Any) -> None:
    from ampc.ir import from_text

    assert ampc("compile", "list_reduction", "--stop-after", "passes", "--dump-passes", "d").status == 0
    files = sorted(p.name for p in Path("d").iterdir())
    assert files[0] == "00-lower.ir"
    assert len(files) > 2
    for file in Path("d").iterdir():
        from_text(file.read_text())


def test_check_goes_on_after_a_mistake(ampc: Any) -> None:
    Path("bad.amp").write_text("model m():\n    instanc:\n")
    done = ampc("check", "bad.amp", "list_reduction", "--json")
    assert done.status == 1
    assert [r["ok"] for r in json.loads(done.out)] == [False, True]


def test_errors_as_json(ampc: Any) -> None:
    Path("bad.amp").write_text("model m():\n    instance:\n        y: float\n    loss squared(q, y)\n")
    done = ampc("compile", "bad.amp", "--error-format", "json")
    found = json.loads(done.err.splitlines()[0])
    assert found["level"] == "error"
    assert found["spans"][0]["line"] == 4
    assert found["rendered"].startswith("error[AMP")
    usage = json.loads(ampc("--error-format=json", "complie").err)
    assert usage["code"] == "AMP901"


def test_errors_show_the_line_of_the_source(ampc: Any) -> None:
    Path("bad.amp").write_text("model m():\n    instance:\n        y: float\n    loss squared(q, y)\n")
    done = ampc("compile", "bad.amp")
    assert done.status == 1
    assert "  --> bad.amp:4:18" in done.err
    assert "4 |     loss squared(q, y)" in done.err


def test_colour_only_where_it_is_wanted(ampc: Any) -> None:
    assert "\x1b" not in ampc("complie").err
    assert "\x1b[1;31merror[AMP901]" in ampc("complie", "--color", "always").err


def test_options_of_ampc_may_stand_anywhere() -> None:
    assert globals_first(["compile", "m", "-q", "--color", "never"]) == ["-q", "--color", "never", "compile", "m"]
    assert globals_first(["run", "m", "--quiet"], {"--quiet"}) == ["run", "m", "--quiet"]
    assert globals_first(["compile", "--", "-q"]) == ["compile", "--", "-q"]
    assert globals_first(["x", "--error-format=json"]) == ["--error-format=json", "x"]


def test_every_code_that_the_source_raises_is_explained(ampc: Any) -> None:
    from ampc.codes import all_codes

    raised = {c for f in (ROOT / "src" / "ampc").rglob("*.py") if "codes" not in f.name for c in re.findall(r'"(AMP\d{3})"', f.read_text())}
    assert sorted(raised - set(all_codes())) == []


def test_view_says_how_much_is_drawn(ampc: Any) -> None:
    assert ampc("view", "gat", "-o", "g.dot").err == "g.dot: 47 nodes\n"
    assert ampc("view", "gat", "-o", "g.dot", "--detail", "layers").err == "g.dot: 35 of 47 nodes\n"


def test_view_writes_dot_to_stdout(ampc: Any) -> None:
    done = ampc("view", "list_reduction")
    assert done.out.startswith("digraph")
    assert done.err == ""


def test_without_a_program_that_draws_only_pictures_are_missing(ampc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from ampc import view

    monkeypatch.setattr(sys.modules["ampc.view.render"], "renderer", lambda form="svg": None)
    monkeypatch.setattr(view, "renderer", lambda form="svg": None)
    assert ampc("compile", "list_reduction").status == 0
    assert not Path("list_reduction.ampx/graph.svg").exists()
    assert ampc("view", "list_reduction", "-o", "x.dot").status == 0
    done = ampc("view", "list_reduction", "-o", "x.svg")
    assert (done.status, done.errors()) == (1, ["error[AMP906]: drawing `.svg` needs Graphviz, and neither `dot` nor `graphviz-pure` was found"])


def test_a_bug_is_a_report_and_not_a_traceback(ampc: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ampc.place.place", lambda *a, **k: 1 // 0)
    done = ampc("compile", "list_reduction")
    assert done.status == 70
    assert done.errors() == ["error[AMP970]: bug in ampc: ZeroDivisionError: integer division or modulo by zero"]
    report = next(tmp_path.glob("ampc-report-*.txt"))
    assert str(report) in done.err
    assert "Traceback" in report.read_text()
    assert "command   ampc compile list_reduction" in report.read_text()


@pytest.mark.parametrize(
    ("raised", "status", "code"), [(MemoryError(), 4, "AMP931"), (OSError(28, "No space left on device"), 4, "AMP932"), (KeyboardInterrupt(), 130, None)]
)
def test_system_troubles_have_their_codes(ampc: Any, monkeypatch: pytest.MonkeyPatch, raised: BaseException, status: int, code: str | None) -> None:
    def fail(*a: object, **k: object) -> None:
        raise raised

    monkeypatch.setattr("ampc.place.place", fail)
    done = ampc("compile", "list_reduction")
    assert done.status == status
    assert f"error[{code}]" in done.err if code else done.err.strip() in ("", "interrupted")
    assert list(Path().iterdir()) == []


# ------------------------------------------------------------------------------------------------ as a process

PROCESS = [sys.executable, "-m", "ampc"]


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """Under 0.3 s of processor time, the best of some runs, since the machine may be busy; and neither numba nor numpy nor any verb's module behind it."""
    best = min(_seconds([*PROCESS, "--help"]) for _ in range(3))
    assert best < 0.3, best
    code = "import sys; from ampc.cli.main import VERBS, main; main(['--help']); print(sorted(({f'ampc.cli.{v}' for v in VERBS} | {'numba', 'pyarrow', 'numpy', 'scipy'}) & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"


def test_compile_needs_no_numba_and_no_pyarrow(tmp_path: Path) -> None:
    code = (
        "import sys; from ampc.cli.main import main; main(['compile', 'list_reduction', '--emit', 'placement']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'numba', 'pyarrow'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"


def _seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_standard_input_and_a_closed_pipe(tmp_path: Path) -> None:
    source = (ROOT / "models" / "list_reduction.amp").read_bytes()
    done = subprocess.run([*PROCESS, "compile", "-", "--emit", "ir"], input=source, capture_output=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith(b"graph list_reduction")
    piped = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {sys.executable} -m ampc explain --json | head -c 10 | cat"], capture_output=True, check=False, cwd=tmp_path
    )
    assert piped.stderr == b""


@pytest.mark.parametrize("line", ["explain", "run x --print-config", "compile list_reduction -v --stop-after lower 2>&1", "data"])
def test_a_reader_that_goes_is_no_error(tmp_path: Path, line: str) -> None:
    if line.startswith("run"):
        assert main(["compile", str(ROOT / "tests" / "models_cases" / "q.amp"), "-o", str(tmp_path / "x"), "--quiet"]) == 0
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}  # each line is written at once, and the first that fails is in the middle
    command = f"{sys.executable} -m ampc {line} | true; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert (piped.stdout, piped.stderr) == ("0\n", "")


def test_every_example_in_a_help_text_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    (tmp_path / "targets").symlink_to(ROOT / "targets")
    monkeypatch.chdir(tmp_path)
    for verb in ("compile", "view", "check", "explain", "passes", "doctor"):
        assert main([verb, "--help"]) == 0
        example = re.search(r"Example: ampc (.*(?:\n .*)*)", capsys.readouterr().out)
        assert example is not None, verb
        words = [name for word in example.group(1).split() for name in (sorted(glob.glob(word)) if "*" in word else [word])]
        assert main(words) == 0, capsys.readouterr().err
        capsys.readouterr()


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_quietly_and_leave_nothing(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    fifo = tmp_path / "slow.amp"
    os.mkfifo(fifo)  # reading it waits, so that the signal comes in the middle
    process = subprocess.Popen([*PROCESS, "compile", str(fifo)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path)
    feed = os.open(fifo, os.O_WRONLY)  # waits until the process has opened it
    time.sleep(0.3)
    process.send_signal(sent)
    _, err = process.communicate(timeout=20)
    os.close(feed)
    assert process.returncode == status
    assert b"Traceback" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["slow.amp"]
