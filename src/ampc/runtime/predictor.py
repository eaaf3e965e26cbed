"""Predictions for one instance at a time, without what a pass over a data set costs beside the work.

The tables of the engine are made once for an instance that is long enough; another instance only takes its place in the data. The calling thread
fires everything itself: no thread starts, nothing polls. Gives what `Program.predict` gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.codegen.layout import H
from ampc.data.dataset import Dataset
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.ir.nodes import Output
from ampc.place.assign import Placement
from ampc.runtime import worker
from ampc.runtime.binding import Binding
from ampc.runtime.engine import UNWRITTEN, Engine
from ampc.runtime.events import Array
from ampc.runtime.options import EngineOptions

GROWTH = 1.25
"""How much longer than an instance the room for it is made, where it finds none."""
RESET = [int(h) for h in (H.STOP, H.ERROR, H.HALT, H.DONE, H.ADMITTED, H.ACKS, H.NONFINITE, H.NONFINITE_COUNT, H.IN_BATCH)]
MOST_ROUNDS = 1 << 20
"""Of 4096 turns, in one pass over one instance; the engine is at fault if these do not suffice."""


class SingleEngine(Engine):
    """Runs one instance forward; its weights are those of its making."""

    def __init__(self, graph: Graph, placement: Placement, *, options: EngineOptions, parameters: dict[str, Array]) -> None:
        alone = dataclasses.replace(options, workers=1, driver="threads", max_active_keys=1, group=1, mode="async", staleness="plain")
        super().__init__(graph, placement, options=alone, parameters=parameters)
        self._lengths = {a.name: 0 for a in graph.axes}
        self._most = {a.name: 0 for a in graph.axes if a.parent}
        self._outputs: list[tuple[Output, int, int, int]] = []
        self._O = np.zeros(1, np.float32)

    def one(self, data: Dataset) -> dict[str, Array]:
        """Return for each output float32 [rows, columns] of the one instance in `data`."""
        b = self._binding
        if b is None or not b.refill(data):
            b = self._make_room(data)
        I = b.I
        I[RESET] = 0
        order = I[H.ORDER0]
        I[order] = I[order + 1] = 0
        self._O.view(np.uint32)[:] = UNWRITTEN
        with np.errstate(all="ignore"):
            for _ in range(MOST_ROUNDS):
                worker.run(self._fire, self._F, I, b.D, b.XF, b.XI, self._O, -1)
                if I[H.STOP] != 0 or I[H.ERROR] != 0:
                    break
        if I[H.STOP] == 0:
            self._binding = None
            raise error("AMP799", f"internal fault {int(I[H.ERROR])} of the engine", help="please report it, with the model", exit_code=70)
        return {node.name: self._rows(b, node, start, rows, cols) for node, start, rows, cols in self._outputs}

    def _rows(self, b: Binding, node: Output, start: int, rows: int, cols: int) -> Array:
        own = b.output_slice(node, 0)
        table: Array = self._O[start + own.start * cols : start + min(own.stop, rows) * cols].reshape(-1, cols)
        written = table[:, 0].view(np.uint32) != UNWRITTEN
        found: Array = table[written]
        return found

    def _make_room(self, data: Dataset) -> Binding:
        """Bind an instance that is longer than all so far, and put `data` in its place."""
        for a in self.graph.axes:
            self._lengths[a.name] = max(self._lengths[a.name], _grown(int(data.axes[a.name][1])))
            if a.parent:
                self._most[a.name] = max(self._most[a.name], _grown(int(np.diff(data.inner[a.name]).max(initial=0))))
                self._lengths[a.name] = self._lengths[a.parent] * self._most[a.name]
        self._bindings.clear()
        room = self._longest(data)
        self.bind(room)
        b = self._binding
        assert b is not None
        self._prepare(b, np.zeros(1, np.int64), False, False, 0)
        places, size = b.outputs()
        self._O = np.zeros(max(1, size), np.float32)
        self._outputs = []
        for node in self.graph.nodes:
            if isinstance(node, Output):
                start, rows = places[node.id]
                self._outputs.append((node, start, rows, self.graph.type_of(node.inputs[0]).cols))
                if ("out", node.id) in self.program.cells:
                    b.I[self.program.cells["out", node.id]] = start
        fits = b.refill(data)
        assert fits
        return b

    def _longest(self, like: Dataset) -> Dataset:
        """An instance that is as long in each axis as there is to be room for, with zeros in its fields."""
        axes = {name: np.array([0, n], np.int64) for name, n in self._lengths.items()}
        inner = {a.name: np.arange(self._lengths[a.parent] + 1, dtype=np.int64) * self._most[a.name] for a in self.graph.axes if a.parent}
        columns: dict[str, npt.NDArray[Any]] = {}
        for f in self.graph.fields:
            known = like.columns[f.name]
            columns[f.name] = np.zeros((self._lengths[f.axis] if f.axis else 1, *known.shape[1:]), known.dtype)
        return dataclasses.replace(like, axes=axes, inner=inner, columns=columns)


def _grown(n: int) -> int:
    return int(n * GROWTH) + 1


class Predictor:
    """What `Program.predictor` returns: call it with one instance, a mapping of its fields. Not for use by two threads at once."""

    def __init__(self, engine: SingleEngine, read: Any, integer: frozenset[str]) -> None:
        self._engine, self._read, self._integer = engine, read, integer

    def __call__(self, instance: Mapping[str, Any]) -> dict[str, Array]:
        """Return output -> [rows, columns] for one instance: float32, or int64 where the program computes integers. Raises AmpError 8xx."""
        found = self._engine.one(self._read([instance]))
        return {name: np.rint(a).astype(np.int64) if name in self._integer else a for name, a in found.items()}


__all__ = ["Predictor", "SingleEngine"]
