"""A small engine in plain numpy with the methods of the real one: pred = w * sum(x), squared loss, one instance at a time.

It lets the session's tests run in milliseconds and decides by itself when to stop or to give a loss that isn't finite.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ampc.data.dataset import Dataset
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import PPT, FieldRef, Metric, Output, Region, Source, Type
from ampc.runtime.events import EpochResult, Progress
from ampc.runtime.options import EngineOptions

Q = Graph(
    name="q",
    axes=(AxisDecl("token"),),
    fields=(FieldDecl("x", "float", "token"), FieldDecl("y", "float")),
    layers=(Layer("w", "linear", (Param("w", (1, 1), "ones"),)),),
    regions=(Region(0, "instance"),),
    nodes=(
        Source(id=0, outputs=(Type(),)),
        Metric(id=1, op="absolute_error", name="absolute_error", fields=(FieldRef("y"),)),
        Metric(id=2, op="accuracy", name="accuracy", fields=(FieldRef("y"),)),
        PPT(id=3, op="linear", layer="w", fields=(FieldRef("x"),), outputs=(Type(cols=1),)),
        Output(id=4, name="pred", inputs=((3, 0),)),
    ),
)


def q_data(xs: list[list[float]], ys: list[float], source: str = "train.jsonl") -> Dataset:
    """Return instances of `Q`."""
    offsets = np.cumsum([0] + [len(x) for x in xs])
    flat = np.array([v for x in xs for v in x], np.float32).reshape(-1, 1)
    columns = {"x": flat, "y": np.array(ys, np.float32).reshape(-1, 1)}
    return Dataset(len(xs), {"token": offsets}, {}, columns, source, Q.axes, Q.fields)


class FakeEngine:
    """SGD or momentum on `Q`; gradients of `min_update_frequency` instances are averaged. `seen` lists the instances of every training pass."""

    def __init__(self, options: EngineOptions, parameters: dict[str, Any] | None = None) -> None:
        self.options = options
        self.w = 1.0
        self.moment = 0.0
        if parameters:
            self.set_parameters(parameters)
        self.learning_rate = options.learning_rate
        self.compile_seconds = 0.0
        self.blas = "none"
        self.seen: list[list[int]] = []
        self.bound: list[str] = []
        self.rates: list[float] = []
        self.on_pass: Callable[[bool, int], None] = lambda train, epoch: None
        self.nan_epochs: set[int] = set()

    def bind(self, dataset: Dataset, train: bool = True) -> None:
        self.bound.append(dataset.source)

    def run(
        self, dataset: Dataset, order: Any, *, train: bool, epoch: int = 0, outputs: bool = False, measured: bool = True, on_progress: Any = None,
        stop: Any = None,
    ) -> EpochResult:  # fmt: skip
        began = time.perf_counter()
        self.on_pass(train, epoch)
        if train:
            self.rates.append(self.learning_rate)
        loss, error, seen, held, updates, predictions = 0.0, 0.0, [], [], 0, []
        for i in order:
            if stop is not None and stop():
                break
            a, b = dataset.axes["token"][i], dataset.axes["token"][i + 1]
            total = float(dataset.columns["x"][a:b].sum())
            difference = self.w * total - float(dataset.columns["y"][i, 0])
            loss += difference**2
            error += abs(difference)
            predictions.append(np.array([[self.w * total]], np.float32))
            seen.append(int(i))
            if train:
                held.append(2 * difference * total)
                if len(held) == self.options.min_update_frequency:
                    self.update(held)
                    updates += 1
            if on_progress is not None:
                on_progress(Progress(len(seen), len(order), loss, 1, time.perf_counter() - began))
        if train:
            if held:
                self.update(held)
                updates += 1
            self.seen.append(seen)
        n = len(seen)
        mean = float("nan") if train and epoch in self.nan_epochs else loss / n if n else 0.0
        metrics = {"absolute_error": error / n if n else None, "accuracy": None}
        return EpochResult(
            n, time.perf_counter() - began + 1e-6, mean, metrics, {"w": updates}, {"w": [updates]},
            {"pred": predictions} if outputs else {}, n < len(order), np.array(seen, np.int64),
        )  # fmt: skip

    def update(self, held: list[float]) -> None:
        self.moment = 0.9 * self.moment + sum(held) / len(held)
        self.w -= self.learning_rate * (self.moment if self.options.optimizer == "momentum" else sum(held) / len(held))
        held.clear()

    @property
    def parameters(self) -> dict[str, Any]:
        return {"w.w": np.full((1, 1), self.w, np.float32)}

    def set_parameters(self, parameters: dict[str, Any]) -> None:
        self.w = float(parameters["w.w"][0, 0])

    def optimizer_state(self) -> dict[str, Any]:
        return {"w.w.moment": np.full((1, 1), self.moment, np.float64)}

    def set_optimizer_state(self, state: dict[str, Any]) -> None:
        self.moment = float(state["w.w.moment"][0, 0])
