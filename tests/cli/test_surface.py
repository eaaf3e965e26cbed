"""Every verb meets every kind of bad file: a message and an exit code of the list, never a bug report, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ampc.cli.main import main

VERBS = {
    "compile": ["compile", "FILE", "-o", "out"],
    "compile target": ["compile", "list_reduction", "--target", "FILE.toml"],
    "compile data": ["compile", "list_reduction", "--data", "FILE"],
    "compile into": ["compile", "list_reduction", "-o", "FILE/x"],
    "compile over": ["compile", "list_reduction", "-o", "FILE"],
    "dump": ["compile", "list_reduction", "--stop-after", "passes", "--dump-passes", "FILE"],
    "view model": ["view", "FILE"],
    "view manifest": ["view", "FILE.json"],
    "view into": ["view", "list_reduction", "-o", "FILE/x.dot"],
    "check": ["check", "FILE", "FILE.json", "FILE.toml"],
    "bench model": ["bench", "FILE", "--data", "."],
    "bench data": ["bench", "list_reduction", "--data", "FILE", "--seconds", "0.01", "--rounds", "1"],
    "data into": ["data", "list_reduction", "--set", "train=2", "--set", "valid=1", "-o", "FILE"],
    "data from": ["data", "mnist", "--from", "FILE", "-o", "out"],
    "run manifest": ["run", "FILE.json"],
    "run": ["run", "FILE"],
}

FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda p: None,
    "empty": lambda p: p.write_bytes(b""),
    "folder": lambda p: (p.mkdir(), (p / "notes.txt").write_text("mine")),
    "binary": lambda p: p.write_bytes(bytes(range(256)) * 8),
    "not UTF-8": lambda p: p.write_bytes("model größe():\n".encode("latin-1")),
    "null": lambda p: p.write_bytes(b"\0" * 100),
    "brackets": lambda p: p.write_bytes(b"[" * 50_000),
    "long line": lambda p: p.write_bytes(b"model m(): " + b"x" * 900_000),
    "large": lambda p: _large(p),
    "unreadable": lambda p: (p.write_text("model m():"), p.chmod(0)),
    "dangling link": lambda p: p.symlink_to("nowhere"),
    "link to itself": lambda p: p.symlink_to(p.name),
    "device": lambda p: p.symlink_to("/dev/null"),
}


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 30)  # a hole: no space is taken


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("verb", VERBS)
def test_bad_files(verb: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name in {w.removesuffix("/x").removesuffix("/x.dot") for w in VERBS[verb] if "FILE" in w}:
        FILES[kind](Path(name))
    status = main(VERBS[verb])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "AMP970" not in err, err
    assert status in (0, 1, 2, 4), err
    assert status == 0 or "error[" in err
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]  # nothing half-written is left


NAMES = ["a\nb.amp", "\x1b[31m.amp", "-", "--", "", " ", "x" * 300, "a/" * 200, "\udcff.amp", "~", "model.amp\0"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verb", ["compile", "view", "check", "run"])
def test_odd_names(verb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        status = main([verb, name])
    err = capsys.readouterr().err
    assert status in (1, 2), err
    assert "\x1b" not in err
    assert "AMP970" not in err


@pytest.mark.parametrize("argv", [["doctor"], ["compile", "list_reduction", "--emit", "placement"], ["data"], ["passes"], ["explain"]])
def test_no_home_no_path_and_a_folder_that_cannot_be_written(argv: list[str], tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "VIRTUAL_ENV")} | {"PATH": "/nowhere"}
    done = subprocess.run([sys.executable, "-m", "ampc", *argv], capture_output=True, cwd="/", env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


def test_closed_output(tmp_path: Path) -> None:
    done = subprocess.run(["/bin/sh", "-c", f"{sys.executable} -m ampc explain >&-; echo $?"], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() == "0"


def test_full_device(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.fail("this system has no /dev/full to test with")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "ampc", "explain"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 4, done.stderr
    assert "error[AMP932]: the system refused: no space left on device" in done.stderr
    assert "Traceback" not in done.stderr
