"""The runs so far: a line of JSON each in docs/results/runs.jsonl."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from benchmarks.ours import ROOT

FOLDER = ROOT / "docs" / "results"
RUNS = FOLDER / "runs.jsonl"


@dataclasses.dataclass(frozen=True)
class Record:
    """One training run. epochs: passes over the training data, with the part of one in which the target was reached.

    curve: (epochs, seconds since its start without compilation, validation metric) at each validation. rate: median instances/s over the
    epochs. staleness: mean over the updates of the layer where it is largest. cpu_share: processor time by
    time, load_before: other processes that were running: both tell of disturbance.
    """

    fingerprint: str
    task: str
    mode: str
    seed: int
    workers: int
    reached: bool
    epochs: float
    seconds: float | None
    rate: float
    staleness: float
    curve: list[tuple[float, float, float]]
    cpu_share: float
    load_before: float
    finished: str

    @property
    def disturbed(self) -> bool:
        """Whether other programs took so much of the only worker's core that the clock on the wall says little."""
        return self.workers == 1 and self.cpu_share < 0.9

    @property
    def spent(self) -> float:
        """Seconds until the target; of processor time, for a worker that was disturbed."""
        return (self.seconds or 0.0) * (self.cpu_share if self.disturbed else 1.0)


def load(path: Path = RUNS) -> list[Record]:
    """Return all runs, oldest first."""
    if not path.exists():
        return []
    return [Record(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]


def append(record: Record, path: Path = RUNS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(record)) + "\n")
