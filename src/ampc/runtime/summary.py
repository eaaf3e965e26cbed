"""How a run ended, and how the figures of its epochs are read: which values are defined, which is better.

Plain data and pure functions; writing it down is the run folder's business.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ampc.ir.graph import Graph
from ampc.runtime.events import Epoch, EpochResult, mean_staleness


@dataclasses.dataclass(slots=True)
class Summary:
    """How a run ended; `summary.json`. Times in seconds. `stopped`: "epochs", "target", "patience", "interrupted" or "failed".

    train_instances_per_s: median over the epochs. validation: the last one (`loss` and metrics; None where undefined, `undefined` says why).
    time_to_target_s: training and validation until `until` first held, without compilation; None if it never did.
    wall_s: all of `train`, with compilation and with the runs that it resumes. staleness: layer -> mean, max, histogram over the whole run.
    precision: what matrix products were made of. blas: the library that made them.
    in_flight: what instances in flight took in training, see `events.InFlight`; `ampc compile` predicts `instance_bytes`.
    """

    model: str
    epochs: int = 0
    train_instances_per_s: float | None = None
    training: dict[str, float | None] = dataclasses.field(default_factory=dict)
    validation: dict[str, float | None] = dataclasses.field(default_factory=dict)
    undefined: dict[str, str] = dataclasses.field(default_factory=dict)
    target: str = ""
    target_reached: bool = False
    time_to_target_s: float | None = None
    elapsed_s: float = 0.0
    wall_s: float = 0.0
    compile_s: float = 0.0
    best: dict[str, Any] = dataclasses.field(default_factory=dict)
    staleness: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    updates: dict[str, int] = dataclasses.field(default_factory=dict)
    in_flight: dict[str, float] = dataclasses.field(default_factory=dict)
    instances: int = 0
    skipped: int = 0
    workers: int = 0
    precision: str = "fp32"
    blas: str = ""
    seed: int = 0
    stopped: str = "epochs"
    interrupted: bool = False
    exit_code: int = 0
    resumed_from: str | None = None
    run_folder: str | None = None

    def add(self, result: EpochResult, epoch: Epoch) -> None:
        """Take an epoch's figures into those of the run."""
        self.training = {"loss": epoch.loss, **epoch.metrics}
        self.validation, self.undefined = epoch.validation, epoch.undefined
        if result.in_flight is not None:
            self.in_flight = dataclasses.asdict(result.in_flight)
        for layer, n in result.updates.items():
            self.updates[layer] = self.updates.get(layer, 0) + n
        for layer, histogram in result.staleness.items():
            old = self.staleness.get(layer, {}).get("histogram", [])
            size = max(len(old), len(histogram))
            total = [(old[i] if i < len(old) else 0) + (histogram[i] if i < len(histogram) else 0) for i in range(size)]
            largest = max((i for i, n in enumerate(total) if n), default=None)
            self.staleness[layer] = {"mean": mean_staleness(total), "max": largest, "histogram": total}


def is_better_when_higher(graph: Graph, name: str) -> bool:
    """Return whether a larger value of a loss or metric is the better one: all but losses and errors."""
    bare = name.removeprefix("train.")
    op = graph.metrics[bare][0].op if bare in graph.metrics else bare
    return not (op == "loss" or "error" in op or "loss" in op or "entropy" in op)


def defined_values(result: EpochResult) -> dict[str, float | None]:
    values = {"loss": result.loss if result.instances else None, **result.metrics}
    return {name: None if v is None or not math.isfinite(v) else float(v) for name, v in values.items()}


def values_of(result: EpochResult, checked: EpochResult | None) -> dict[str, float | None]:
    """Return what `until` and `watch` may name: the validation's values, or the training's where there is none, and these as `train.` too."""
    trained = defined_values(result)
    return {f"train.{k}": v for k, v in trained.items()} | ((defined_values(checked) if checked is not None else {}) or trained)


def undefined_reasons(trained: dict[str, float | None], validated: dict[str, float | None]) -> dict[str, str]:
    """Return why a value is None."""
    reason = "no row evaluated it, or it isn't finite"
    return {
        name: reason
        for where, values in (("train.", trained), ("", validated))
        for name, v in ((where + k, v) for k, v in values.items())
        if v is None
    }
