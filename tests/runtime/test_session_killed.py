"""Whole processes of `ampc run`: killed at random moments and resumed, or interrupted by signals; the real engine as plain Python."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

import ampc.api as api
from runtime.test_session_programs import Q

ROOT = Path(__file__).parents[2]
ROWS = 64
SETTINGS = ["--set", "optimizer=momentum", "--learning-rate", "0.0005", "--min-update-frequency", "5", "--set", "checkpoint_instances=20"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a compiled program and the numbers 0 to 63 as targets."""
    api.save(api.compile(Q, target="cpu-2"), tmp_path / "manifest.json")
    (tmp_path / "train.jsonl").write_text("".join(f'{{"x": [1.0], "y": {y}.0}}\n' for y in range(ROWS)))
    return tmp_path


def start(place: Path, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "ampc", "run", "manifest.json", "--data", "train.jsonl", *SETTINGS, *args]
    return subprocess.Popen(command, cwd=place, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[str], timeout: float = 120) -> tuple[int, str]:
    out, err = process.communicate(timeout=timeout)
    assert "Traceback" not in err and "AMP970" not in err, err
    return process.returncode, out


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def newest(folder: Path) -> str:
    return max((p.name for p in folder.glob("checkpoints/[0-9]*")), default="")


def wait_for_checkpoint(process: subprocess.Popen[str], folder: Path) -> None:
    """Return once the process has written another checkpoint (or has ended)."""
    before, deadline = newest(folder), time.monotonic() + 100
    while newest(folder) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def again(place: Path) -> list[str]:
    return ["--resume", "killed"] if newest(place / "killed") else ["-o", "killed", "--force"]


def kill_and_resume(place: Path, kills: int, settings: list[str], seed: int = 7) -> None:
    """Run to the end in spite of `kills` SIGKILLs, each soon after a checkpoint: within an epoch, while one is written, between epochs."""
    chance = random.Random(seed)
    for _ in range(kills):
        process = start(place, *again(place), *settings)
        wait_for_checkpoint(process, place / "killed")
        time.sleep(chance.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert finish(start(place, *again(place), *settings))[0] == 0
    assert not [p for p in (place / "killed" / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(("kills", "epochs"), [(2, 16), pytest.param(20, 120, marks=pytest.mark.long)])
def test_killed_at_random_moments_and_resumed(place: Path, kills: int, epochs: int) -> None:
    """With `step` the resumed run equals the undisturbed one bit for bit; every instance of every epoch was trained once."""
    settings = ["--driver", "step", "--epochs", str(epochs)]
    assert finish(start(place, "-o", "whole", *settings))[0] == 0
    kill_and_resume(place, kills, settings)
    a, b = (load_file(place / name / "weights.safetensors") for name in ("whole", "killed"))
    assert a["w.w"].tobytes() == b["w.w"].tobytes()
    assert [(r["epoch"], r["instances"]) for r in records(place / "killed")] == [(e, ROWS) for e in range(1, epochs + 1)]
    assert [r["loss"] for r in records(place / "killed")] == pytest.approx([r["loss"] for r in records(place / "whole")])


@pytest.mark.parametrize(("kills", "epochs"), [pytest.param(20, 120, marks=pytest.mark.long)])
def test_killed_threads_train_every_instance_of_every_epoch_once(place: Path, kills: int, epochs: int) -> None:
    """The ledger of the epochs: as many instances as there are, in every one."""
    kill_and_resume(place, kills, ["--workers", "2", "--epochs", str(epochs)])
    assert [(r["epoch"], r["instances"]) for r in records(place / "killed")] == [(e, ROWS) for e in range(1, epochs + 1)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_drains_and_a_resumed_run_sees_each_row_once(place: Path, number: int, code: int) -> None:
    process = start(place, "-o", "r", "--workers", "2", "--epochs", "10000", "--json")
    wait_for_checkpoint(process, place / "r")
    process.send_signal(number)
    status, out = finish(process)
    assert status == code
    summary = json.loads(out)
    assert summary == json.loads((place / "r" / "summary.json").read_text())
    assert summary["interrupted"] is True and summary["stopped"] == "interrupted" and summary["exit_code"] == code
    done = summary["epochs"]
    assert finish(start(place, "--resume", "r", "--workers", "1", "--epochs", str(done + 2)))[0] == 0
    assert [(r["epoch"], r["instances"]) for r in records(place / "r")] == [(e, ROWS) for e in range(1, done + 3)]


def test_two_signals_stop_at_once(place: Path) -> None:
    process = start(place, "-o", "r", "--workers", "2", "--epochs", "10000")
    wait_for_checkpoint(process, place / "r")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    assert finish(process)[0] == 130
    before = len(records(place / "r")) if (place / "r" / "metrics.jsonl").exists() else 0
    assert finish(start(place, "--resume", "r", "--epochs", str(before + 1)))[0] == 0


@pytest.mark.parametrize("delay_s", [0.02, 0.3, 0.8])
def test_a_signal_while_it_starts_leaves_no_traceback(place: Path, delay_s: float) -> None:
    program = "from ampc.cli import entry; print('go', flush=True); entry()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", program, "run", "manifest.json", "--data", "train.jsonl", "-o", "r", "--epochs", "10000"]
    process = subprocess.Popen(command, cwd=place, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "go\n"
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert not (place / "r").exists() or (place / "r" / "config.toml").exists()


def compiled_environment(cache: Path) -> dict[str, str]:
    """Kernels are compiled, with nothing in the cache."""
    kept = {k: v for k, v in os.environ.items() if k != "NUMBA_DISABLE_JIT"}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "AMPC_CACHE_DIR": str(cache)}


def started(place: Path, cache: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ampc", "run", "manifest.json", "--data", "train.jsonl", *SETTINGS, "--driver", "step", "--epochs", "2", *args]
    return subprocess.Popen(command, cwd=place, env=compiled_environment(cache), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_runs_that_start_at_once_compile_into_one_cold_cache(place: Path) -> None:
    """C06: four processes, all with the same numbers; what the cache then holds is sound and used."""
    cache, names = place / "cold cache", [f"r{k}" for k in range(4)]
    together = [started(place, cache, "-o", name) for name in names]
    assert [finish(p, 400)[0] for p in together] == [0] * 4
    assert finish(started(place, cache, "-o", "then"))[0] == 0
    assert len({load_file(place / name / "weights.safetensors")["w.w"].tobytes() for name in (*names, "then")}) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_kernels_are_compiled_leaves_a_sound_cache(place: Path, number: int) -> None:
    """C04: no traceback, no half run; the next run compiles what is missing and gives the same numbers."""
    cache = place / "cache"
    for _ in range(3):
        process = started(place, cache, "-o", "r", "--force", "--epochs", "100000")
        while not list(cache.glob("*/locks/*")) and process.poll() is None:
            time.sleep(0.02)
        time.sleep(1.5)  # from the first lock on it compiles for some seconds
        process.send_signal(number)
        assert finish(process)[0] == 128 + number
    assert finish(started(place, cache, "-o", "whole"), 400)[0] == 0
    assert finish(start(place, "-o", "plain", "--driver", "step", "--epochs", "2"))[0] == 0
    a, b = (load_file(place / name / "weights.safetensors")["w.w"] for name in ("whole", "plain"))
    assert a == pytest.approx(b, rel=1e-5)


def test_a_run_that_is_killed_has_no_processes_and_no_shared_memory_to_leave(place: Path) -> None:
    """C02; and a process that was stopped goes on where it was."""
    process = start(place, "-o", "r", "--workers", "2", "--epochs", "10000")
    wait_for_checkpoint(process, place / "r")
    process.send_signal(signal.SIGSTOP)
    stopped = newest(place / "r")
    process.send_signal(signal.SIGCONT)
    wait_for_checkpoint(process, place / "r")
    assert newest(place / "r") > stopped and process.poll() is None
    itself = Path("/proc") / str(process.pid)
    assert "".join(f.read_text() for f in itself.glob("task/*/children")) == "", "workers are threads"
    assert "/dev/shm" not in (itself / "maps").read_text()
    process.kill()
    process.communicate()
