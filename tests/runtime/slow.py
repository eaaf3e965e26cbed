"""An engine on the interpreter: synchronous, exact, slow. What a run must give with `mode = sync` and `sgd`, for tests of whole programs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ampc.data.dataset import Dataset
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.ir.interpret import Interpreter
from ampc.ir.state import instance_of
from ampc.runtime.events import EpochResult, Progress
from ampc.runtime.options import EngineOptions
from ampc.runtime.predictions import output_types


class SlowEngine:
    """SGD with the mean gradient of `min_update_frequency` instances; the rest is flushed at the end of a pass."""

    compile_seconds = 0.0
    blas = "none"

    def __init__(self, graph: Graph, options: EngineOptions, parameters: dict[str, Any] | None = None) -> None:
        self.graph, self.options = graph, options
        self.learning_rate = options.learning_rate
        self._parameters = initial_parameters(graph, options.seed)
        self._parameters.update(parameters or {})

    def bind(self, dataset: Dataset, train: bool = True) -> None:
        pass

    def run(
        self, dataset: Dataset, order: Any, *, train: bool, epoch: int = 0, outputs: bool = False, measured: bool = True, on_progress: Any = None,
        stop: Any = None,
    ) -> EpochResult:  # fmt: skip
        began, loss, sums, done, updates = time.perf_counter(), 0.0, {}, [], {x.name: 0 for x in self.graph.layers}
        predicted: dict[str, list[Any]] = {}
        held: list[dict[str, Any]] = []
        for i in order:
            if stop is not None and stop():
                break
            result = Interpreter(self.graph, self._parameters, seed=self.options.seed).run(instance_of(dataset, self.graph, int(i)), train)
            loss += result.loss
            for name, (total, count) in result.metrics.items():
                old = sums.get(name, (0.0, 0.0))
                sums[name] = (old[0] + total, old[1] + count)
            for name, kind in output_types(self.graph).items():
                rows = [a for _, a in result.outputs.get(name, [])]
                predicted.setdefault(name, []).append(np.concatenate([np.zeros((0, kind.cols), np.float32), *rows]))
            done.append(int(i))
            if train:
                held.append(result.gradients)
                if len(held) == self.options.min_update_frequency:
                    self.update(held, updates)
            if on_progress is not None:
                on_progress(Progress(len(done), len(order), loss, 1, time.perf_counter() - began))
        if held:
            self.update(held, updates)
        metrics = {name: total / count if count else None for name, (total, count) in sums.items()}
        seconds = time.perf_counter() - began + 1e-9
        return EpochResult(
            len(done), seconds, loss / len(done) if done else 0.0, metrics, updates, {}, predicted if outputs else {}, len(done) < len(order),
            np.array(done, np.int64),
        )  # fmt: skip

    def update(self, held: list[dict[str, Any]], updates: dict[str, int]) -> None:
        for name, w in self._parameters.items():
            gradients = [g[name] for g in held if name in g]
            if gradients:
                rate = np.float32(self.learning_rate)
                self._parameters[name] = (w - rate * (sum(gradients) / np.float32(len(gradients)))).astype(np.float32)
        for layer in updates:
            updates[layer] += 1
        held.clear()

    @property
    def parameters(self) -> dict[str, Any]:
        return {name: a.copy() for name, a in self._parameters.items()}

    def set_parameters(self, parameters: dict[str, Any]) -> None:
        self._parameters = {name: np.asarray(a, np.float32).copy() for name, a in parameters.items()}

    def optimizer_state(self) -> dict[str, Any]:
        return {}

    def set_optimizer_state(self, state: dict[str, Any]) -> None:
        pass
