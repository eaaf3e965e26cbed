"""Every setting of a run: its type, default, range and one line of help, in one table; how the sources of settings are combined.

`resolve` takes flags over `--set` over the model's `train:` block over `ampc.toml` over the defaults, and refuses unknown names and
values out of range, naming where they came from. It reads no file but `ampc.toml` and starts nothing.
"""

from __future__ import annotations

import dataclasses
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error

Value = int | float | str | bool


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What a setting accepts. `low` and `high` are inclusive; `above` is an exclusive lower bound. `per_layer`: a layer may have its own."""

    kind: Literal["int", "float", "bool", "str"]
    help: str
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    per_layer: bool = False

    def expected(self) -> str:
        """Return what the setting accepts, in words."""
        if self.choices:
            return "one of " + ", ".join(f"`{c}`" for c in self.choices)
        noun = {"int": "an integer", "float": "a number", "bool": "`true` or `false`", "str": "a text"}[self.kind]
        bounds = []
        if self.low is not None:
            bounds.append(f"at least {self.low:g}")
        if self.above is not None:
            bounds.append(f"above {self.above:g}")
        if self.high is not None:
            bounds.append(f"at most {self.high:g}")
        if self.below is not None:
            bounds.append(f"below {self.below:g}")
        return f"{noun} {' and '.join(bounds)}".rstrip()


def _f(default: Any, kind: Literal["int", "float", "bool", "str"], help: str, **limits: Any) -> Any:
    return dataclasses.field(default=default, metadata={"setting": Setting(kind, help, **limits)})


@dataclasses.dataclass(frozen=True, slots=True)
class EngineOptions:
    """What an engine needs to know. `per_layer`: layer name -> the settings in which it differs (names as here).

    seed also draws the initial parameters and dropout masks. learning_rate is the base; a schedule scales it between passes.
    """

    workers: int = 1
    max_active_keys: int = 64
    min_update_frequency: int = 32
    per_layer: dict[str, dict[str, Value]] = dataclasses.field(default_factory=dict)
    group: int = 1
    group_by_length: bool = False
    mode: Literal["async", "sync"] = "async"
    driver: Literal["threads", "step"] = "threads"
    seed: int = 0
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = "adam"
    learning_rate: float = 0.001
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    l2: float = 0.0
    clip_norm: float = 0.0
    clip_value: float = 0.0
    staleness: str = "plain"
    average_every: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """All settings of a run, resolved and checked. `per_layer` as in `EngineOptions`; `origins`: setting -> where its value came from."""

    epochs: int = _f(10, "int", "how often the training data is passed through", low=0, high=10**9)
    until: str = _f("", "str", "stop once this holds after a validation, e.g. `accuracy >= 0.97`")
    workers: int = _f(0, "int", "worker threads; 0 takes one for each usable core", low=0, high=256)
    max_active_keys: int = _f(64, "int", "instances in flight at once (groups, where `group` is above 1)", low=1, high=1_000_000)
    min_update_frequency: int = _f(32, "int", "instances whose gradients a layer gathers before it updates itself", low=1, high=10**9, per_layer=True)
    group: int = _f(1, "int", "instances admitted and fired together", low=1, high=65536)
    group_by_length: bool = _f(False, "bool", "put instances of equal length into one group")
    mode: Literal["async", "sync"] = _f("async", "str", "`sync` drains before every update", choices=("async", "sync"))
    driver: Literal["threads", "step"] = _f("threads", "str", "`step` is one thread, repeatable bit for bit", choices=("threads", "step"))
    seed: int = _f(0, "int", "seeds initial weights, order and dropout", low=0, high=2**63 - 1)
    shuffle: bool = _f(True, "bool", "draw a new order for each epoch, from the seed and the epoch alone")
    optimizer: Literal["sgd", "momentum", "adam", "adamw"] = _f(
        "adam", "str", "how a layer updates itself", choices=("sgd", "momentum", "adam", "adamw"), per_layer=True
    )
    learning_rate: float = _f(0.001, "float", "step size before the schedule's factor", low=0, per_layer=True)
    momentum: float = _f(0.9, "float", "of `momentum`", low=0, below=1, per_layer=True)
    beta1: float = _f(0.9, "float", "of `adam` and `adamw`", low=0, below=1, per_layer=True)
    beta2: float = _f(0.999, "float", "of `adam` and `adamw`", low=0, below=1, per_layer=True)
    epsilon: float = _f(1e-8, "float", "of `adam` and `adamw`", above=0, per_layer=True)
    weight_decay: float = _f(0.0, "float", "decoupled decay of the weights (`adamw`)", low=0, per_layer=True)
    l2: float = _f(0.0, "float", "adds l2 times the weight to its gradient", low=0, per_layer=True)
    clip_norm: float = _f(0.0, "float", "largest norm of a layer's gradient at an update; 0 is no limit", low=0, per_layer=True)
    clip_value: float = _f(0.0, "float", "largest absolute value in a gradient at an update; 0 is no limit", low=0, per_layer=True)
    staleness: str = _f("plain", "str", "what a backward uses: the weights of now (`plain`) or of its forward (`stash`)", choices=("plain", "stash"))
    average_every: int = _f(0, "int", "instances between averaging the replicas of a layer; 0 averages at the end of an epoch", low=0)
    schedule: str = _f(
        "constant", "str", "how the learning rate moves", choices=("constant", "step", "cosine", "linear")
    )
    schedule_clock: str = _f("epochs", "str", "what the schedule counts", choices=("epochs", "instances"))
    schedule_every: int = _f(10, "int", "`step`: ticks of the clock between two drops", low=1)
    schedule_factor: float = _f(0.1, "float", "`step`: what the rate is multiplied by at a drop", above=0, high=1)
    schedule_span: int = _f(0, "int", "`cosine`, `linear`: ticks until the lowest rate; 0 is the whole run", low=0)
    schedule_floor: float = _f(0.0, "float", "`cosine`, `linear`: lowest rate as a share of learning_rate", low=0, high=1)
    warmup: int = _f(0, "int", "ticks in which the rate first rises to its full value", low=0)
    patience: int = _f(0, "int", "stop after so many epochs without a better `watch`; 0 is never", low=0)
    watch: str = _f("", "str", "the value that decides what is best: a metric or `loss`; empty takes the first metric, else the loss")
    on_nan: Literal["stop", "skip", "ignore"] = _f("stop", "str", "when a loss or value is not finite", choices=("stop", "skip", "ignore"))
    checkpoint_every: int = _f(1, "int", "epochs between checkpoints; 0 writes only the last", low=0)
    checkpoint_instances: int = _f(0, "int", "also write one after so many instances within an epoch; 0 is never", low=0)
    keep: int = _f(3, "int", "checkpoints that are kept, beside the best", low=1, high=10_000)
    per_layer: dict[str, dict[str, Value]] = dataclasses.field(default_factory=dict)
    origins: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def engine(self) -> EngineOptions:
        """Return the part that an engine needs; `workers` 0 becomes the number of usable cores."""
        names = [f.name for f in dataclasses.fields(EngineOptions)]
        values = {name: getattr(self, name) for name in names}
        values["workers"] = self.workers or usable_cores()
        if self.driver == "step":
            values["workers"] = self.workers or 1
        return EngineOptions(**values)


SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in dataclasses.fields(RunOptions) if "setting" in f.metadata}
PER_LAYER: tuple[str, ...] = tuple(name for name, s in SETTINGS.items() if s.per_layer)
