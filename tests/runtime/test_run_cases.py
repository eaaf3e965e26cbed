"""Problems that users of other tools reported with runs: damaged checkpoints, weights that don't fit, empty validation data, logs full of progress."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ampc.diagnostics import AmpError
from runtime.small_run import ROWS, ampc_run, done, refused_run
from support import ROOT

pytestmark = pytest.mark.usefixtures("small_run")

CASES = ROOT / "tests" / "cases"


def cut(share: float) -> Callable[[Path], str]:
    def damage(checkpoint: Path) -> str:
        file = checkpoint / "weights.safetensors"
        file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
        return file.name

    return damage


def flip(checkpoint: Path) -> str:
    file = checkpoint / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    return file.name


def without_index(checkpoint: Path) -> str:
    (checkpoint / "index.json").unlink()
    return "index.json"


def emptied(checkpoint: Path) -> str:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    return "index.json"


@pytest.mark.parametrize("damage", [cut(0), cut(0.5), flip, without_index, emptied], ids=["to 0 bytes", "half", "one byte", "index", "emptied"])
def test_a_damaged_checkpoint_is_named_and_the_older_one_resumed(damage: Callable[[Path], str]) -> None:
    """R03"""
    done("--data", "data", "-o", "out", "--epochs", "3")
    checkpoints = sorted(Path("out/checkpoints").iterdir())
    assert [c.name for c in checkpoints] == ["000001", "000002", "000003"]
    file = damage(checkpoints[-1])
    result = done("--resume", "out", "--epochs", "4", "--json")
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("note:")]
    assert f"checkpoints/000003/{file}" in warning and "going back to an older checkpoint" in warning
    summary = json.loads(result.stdout)
    assert summary["resumed_from"].endswith("000002") and summary["epochs"] == 4
    assert [json.loads(line)["epoch"] for line in Path("out/metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4]


def test_no_sound_checkpoint_is_an_error_and_no_fresh_start() -> None:
    """R03"""
    done("--data", "data", "-o", "out", "--epochs", "3")
    for checkpoint in Path("out/checkpoints").iterdir():
        flip(checkpoint)
    before = Path("out/metrics.jsonl").read_bytes()
    result = ampc_run("--resume", "out", "--epochs", "4")
    assert isinstance(result.exception, AmpError) and result.exception.exit_code == 1
    (d,) = result.exception.diagnostics
    assert d.code == "AMP708" and "none of the 3 checkpoints" in d.message and len(d.notes) == 3
    assert Path("out/metrics.jsonl").read_bytes() == before


def test_weights_with_one_name_too_many_and_one_missing_are_refused_or_listed() -> None:
    """R06"""
    done("--data", "data", "-o", "out")
    save_file({"v.w": np.ones((1, 1), np.float32)}, "other.safetensors")
    result = ampc_run("--data", "data", "--init", "other.safetensors")
    assert isinstance(result.exception, AmpError)
    (d,) = result.exception.diagnostics
    assert d.code == "AMP710" and d.notes == (
        "`w.w` [1, 1] is missing in the file", "`v.w` [1, 1] is in the file, but the program has no such parameter (did you mean `w.w`?)",
    )  # fmt: skip
    save_file({**load_file("out/weights.safetensors"), "v.w": np.ones((1, 1), np.float32)}, "more.safetensors")
    assert refused_run("--data", "data", "--init", "more.safetensors")[0] == "AMP710"
    said = done("--data", "data", "--init", "more.safetensors", "--init-partial", "-o", "partial").stderr
    assert [line for line in said.splitlines() if line.startswith("note:")] == ["note: `v.w` is left out"]


@pytest.mark.parametrize("file", sorted(p.name for p in (CASES / "D12").iterdir() if p.name != "expected.json"))
def test_an_empty_or_damaged_file_is_an_error_as_training_and_as_validation_data(file: str) -> None:
    """D12: never a metric over nothing."""
    for args in (["--data", str(CASES / "D12" / file)], ["--data", "data", "--valid", str(CASES / "D12" / file)]):
        result = ampc_run(*args)
        assert isinstance(result.exception, AmpError) and result.exception.exit_code == 1, args
        assert file in result.exception.diagnostics[0].message
        assert not Path("runs").exists()


@pytest.mark.parametrize(
    "case", ["I02/train.jsonl", "I08/triples.jsonl", "D07/strings.parquet", "D10/scalar.jsonl"]
)
def test_rows_of_another_kind_end_a_run_before_it_begins(case: str) -> None:
    """I02, I08, D07, D10: whatever the mistake, one message, exit code 1 and no folder."""
    result = ampc_run("--data", str(CASES / case))
    assert isinstance(result.exception, AmpError) and result.exception.exit_code == 1
    assert "row 0" in result.exception.diagnostics[0].message and not Path("runs").exists()


def test_a_row_far_behind_is_named_and_nothing_is_left() -> None:
    """C02: a reader that fails in the middle."""
    rows = [json.dumps(ROWS[1])] * 6000
    rows[5000] = '{"x": [1.0, "two"], "y": 0}'
    Path("data/train.jsonl").write_text("\n".join(rows))
    code, message, _ = refused_run("--data", "data")
    assert code == "AMP809" and message.startswith("row 5000 (line 5001) of `data/train.jsonl`: `x[1]`")
    assert not Path("runs").exists()


# ------------------------------------------------------------------------------------------ O03: logs and terminals

PROGRAM = """
import sys
sys.path[:0] = [{src!r}, {tests!r}]
import ampc.manifest
from ampc.cli import entry
from ampc.runtime.program import Program
from runtime.fake import FakeEngine
from runtime.small_run import MANIFEST
ampc.manifest.load = lambda path: MANIFEST
Program._real_engine = lambda self, o, p: FakeEngine(o, p)
entry()
"""
SIGNS = re.compile(r"[\r\x1b\x08]")


def command(*args: str) -> list[str]:
    program = PROGRAM.format(src=str(ROOT / "src"), tests=str(ROOT / "tests"))
    return [sys.executable, "-c", program, "run", "m.json", "--data", "data", "--epochs", "3", *args]


@pytest.mark.parametrize("settings", [{}, {"TERM": "xterm-256color", "COLUMNS": "20"}, {"TERM": "dumb", "NO_COLOR": "1"}], ids=["plain", "narrow", "dumb"])
def test_a_log_holds_lines_alone_and_results_stand_apart(settings: dict[str, str]) -> None:
    """O03: as in `ampc run … > log 2>&1` and `ampc run … | cat`."""
    ran = subprocess.run(command(), env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    assert not SIGNS.search(ran.stdout + ran.stderr)
    assert len(ran.stderr.splitlines()) <= 2 * 3 and len(re.findall(r"(?m)^epoch \d/3 ", ran.stderr)) == 3
    assert "epoch 1/3" not in ran.stdout and re.search(r"(?m)^epochs +3", ran.stdout)


@pytest.mark.parametrize(("term", "codes"), [("dumb", False), ("xterm", True)])
def test_a_terminal_gets_a_bar_only_where_it_can_move_its_cursor(term: str, codes: bool) -> None:
    """O03: standard error is a terminal here, of 20 columns; standard output goes to a file all the same."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": "20", "NO_COLOR": "1"}
    with subprocess.Popen(command(), env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:
            pass  # the other side has closed
        assert process.stdout is not None
        results = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0 and not SIGNS.search(results)
    text = shown.decode().replace("\r\n", "\n")
    assert bool(SIGNS.search(text)) is codes
    assert not re.search(r"\x1b\[[\d;]*3\d", text), "no colours under NO_COLOR"
    assert "epoch 3/3" in text
