"""The tasks: which model on which data, until which value of which metric, with which settings."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.ours import ROOT, data_folder

MODES = ("async", "sync")
RIVALS = ("torch",)
"""Others that are trained to the same targets, where they are asked for."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A model, its data, and the value of a validation metric at which a run ends; `epochs` bounds it.

    settings and overrides go over the model's own `train:` block and parameters, the same in both modes. alone: settings of the asynchronous
    mode alone. There a copy of a layer updates itself after so many instances of its own; a synchronous batch is dealt among the copies before
    all update themselves, so that each has its part of it only. Fewer instances an update make both update equally often. folds: seed s takes
    fold s + 1 of the data instead of other initial weights alone. unit: the metric is multiplied by `scale_key` of meta.json to be in it.
    """

    name: str
    title: str
    model: str
    recipe: str
    metric: str
    target: float
    epochs: int
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    alone: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    modes: tuple[str, ...] = MODES
    folds: bool = False
    checks: int = 4
    """Validations an epoch."""
    unit: str = ""
    scale_key: str = ""
    same_network: str = ""
    """Name of the task that has this one's network, so that rivals train it once."""

    @property
    def falls(self) -> bool:
        """Whether less is better."""
        return "error" in self.metric

    def data(self, seed: int) -> Path:
        """Return the data of a seed, made if it isn't there. Raises NoData."""
        return data_folder(self.recipe, **self.options, **({"fold": seed % 10 + 1} if self.folds else {}))

    def scale(self, data: Path) -> float:
        """Return by what the metric has to be multiplied to be in `unit`."""
        return float(json.loads((data / "meta.json").read_text(encoding="utf-8"))[self.scale_key]) if self.scale_key else 1.0

    def until(self, data: Path) -> str:
        return f"{self.metric} {'<=' if self.falls else '>='} {self.target / self.scale(data):.9g}"

    def settings_of(self, mode: str) -> dict[str, Any]:
        return {**self.settings, **(self.alone if mode == "async" else {})}

    def fingerprint(self, mode: str, seed: int) -> str:
        """Return a text that tells one run from all others: a changed model or setting makes another run."""
        program = hashlib.sha256((ROOT / "models" / f"{self.model}.amp").read_bytes()).hexdigest()[:12]
        what = [program, self.name, mode, seed, self.target, self.epochs, self.options, self.overrides, self.settings_of(mode), self.checks]
        return json.dumps(what, sort_keys=True, default=dict)


def of_layers(frequency: int, *layers: str) -> dict[str, Any]:
    """Return the setting that lets each of `layers` update itself after `frequency` instances."""
    return {"per_layer": {layer: {"min_update_frequency": frequency} for layer in layers}}


LISTS: dict[str, Any] = {
    "model": "list_reduction", "recipe": "list_reduction", "metric": "accuracy", "target": 0.97, "epochs": 20, "settings": {"max_active_keys": 128},
}  # fmt: skip
BABI: dict[str, Any] = {"model": "babi15_ggsnn", "metric": "accuracy", "target": 1.0, "settings": {"max_active_keys": 10}}

TASKS = (
    Task(
        "mnist", "MNIST perceptron, 98 % of the test images", "mnist_mlp", "mnist", "accuracy", 0.98, 40,
        settings={"max_active_keys": 2, "optimizer": "adam", "learning_rate": 0.0005},
    ),
    Task(
        "mnist_2", "MNIST perceptron, two copies of all layers", "mnist_mlp", "mnist", "accuracy", 0.98, 40, overrides={"copies": 2},
        settings={"max_active_keys": 4, "group": 50, "optimizer": "adam", "learning_rate": 0.0005}, alone={"min_update_frequency": 50},
        same_network="mnist",
    ),
    Task("list_reduction", "List reduction, 97 %", **LISTS),
    Task(
        "list_reduction_2", "List reduction, two copies of the recurrent layer", overrides={"copies": 2}, alone=of_layers(50, "embed", "step"),
        same_network="list_reduction", **LISTS,
    ),
    Task(
        "list_reduction_4", "List reduction, four copies of the recurrent layer", overrides={"copies": 4}, alone=of_layers(25, "embed", "step"),
        same_network="list_reduction", **LISTS,
    ),
    Task(
        "sst", "Sentiment treebank, 80.7 % of all nodes of the dev trees", "sentiment_tree_lstm", "sst", "accuracy", 0.807, 12,
        overrides={"copies": 2}, settings={"max_active_keys": 32}, alone={"min_update_frequency": 25, **of_layers(50, "embed")}, checks=8,
    ),
    Task(
        "babi15_50", "bAbI 15, all test questions, from 50 stories", recipe="babi15", options={"train": 50}, epochs=200, folds=True, checks=1, **BABI,
    ),
    Task("babi15_1000", "bAbI 15, all test questions, from 1,000 stories", recipe="babi15", options={"train": 1000}, epochs=40, folds=True, **BABI),
    Task("babi15_54", "bAbI 15 in graphs of 54 nodes, all questions", recipe="babi15_inflated", overrides={"names": 54}, epochs=100, **BABI),
    Task(
        "qm9", "QM9, dipole moment to 0.46 D", "qm9_ggsnn", "qm9", "absolute_error", 0.46, 20, overrides={"copies": 2},
        alone={"min_update_frequency": 32}, unit="D", scale_key="dipole_std", checks=2,
    ),
)  # fmt: skip
