"""A run killed with SIGKILL at random moments and resumed ends as if it had never been disturbed; signals to a whole process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[2]

CHILD = """
import sys, time
from pathlib import Path
from ampc.diagnostics import AmpError
from ampc.runtime.options import RunOptions
from ampc.runtime.run_folder import RunFolder
from ampc.runtime.session import Session
from runtime.fake import FakeEngine, Q, q_data

class Exact(FakeEngine):  # keeps its weight in float32, as a real engine does, so that equality is bit for bit
    def update(self, held):
        import numpy as np
        time.sleep(0.0005)
        super().update(held)
        self.w = float(np.float32(self.w))

folder, epochs = Path(sys.argv[1]), int(sys.argv[2])
rows = q_data([[1.0]] * 64, [float(y) for y in range(64)])
options = RunOptions(optimizer="momentum", learning_rate=0.001, min_update_frequency=1, workers=1, epochs=epochs, checkpoint_instances=7)
session = Session(Q, options, lambda o, p: Exact(o, p), program="p", folder=RunFolder(folder), on_event=lambda e: None)
resume = folder if folder.exists() and any(folder.glob("checkpoints/[0-9]*")) else None
session.folder.force = resume is None
print("go", flush=True)
raise SystemExit(session.train(rows, rows, resume=resume).exit_code)
"""


def start(folder: Path, epochs: int = 4) -> subprocess.Popen[str]:
    path = os.pathsep.join(str(ROOT / p) for p in ("src", "tests"))
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(epochs)],
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == "go\n"
    return process


def finish(process: subprocess.Popen[str]) -> int:
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return process.returncode


def test_killed_at_random_moments_and_resumed(tmp_path: Path) -> None:
    assert finish(start(tmp_path / "whole")) == 0
    chance = random.Random(7)
    for _ in range(4):
        process = start(tmp_path / "killed")
        time.sleep(chance.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert finish(start(tmp_path / "killed")) == 0
    whole, killed = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "killed"))
    assert whole["w.w"].tobytes() == killed["w.w"].tobytes()
    for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["instances"] == 64
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert epochs == [1, 2, 3, 4]
    assert not [p for p in (tmp_path / "killed" / "checkpoints").iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_drains_and_writes_a_checkpoint(tmp_path: Path, number: int, code: int) -> None:
    process = start(tmp_path / "r", epochs=1000)
    time.sleep(0.3)
    process.send_signal(number)
    assert finish(process) == code
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["interrupted"] is True and summary["stopped"] == "interrupted" and summary["exit_code"] == code
