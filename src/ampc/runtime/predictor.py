"""Predictions for one instance at a time, without what a pass over a data set costs beside the work.

The tables of the engine are made once for an instance that is long enough; another instance only takes its place in the data. The calling thread
fires everything itself: no thread starts, nothing polls. Gives what `Program.predict` gives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.data.dataset import Dataset
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.ir.nodes import Output
from ampc.ir.scope import declaration
from ampc.place.assign import Placement
from ampc.runtime import native
from ampc.runtime.binding import Binding
from ampc.runtime.engine import Engine
from ampc.runtime.events import Array
from ampc.runtime.options import EngineOptions
from ampc.runtime.result import UNWRITTEN

GROWTH = 1.25
"""How much longer than an instance the room for it is made, where it finds none."""


ONLY = np.zeros(1, np.int64)
"""The number of the one instance."""


class _Refill:
    """Puts one instance in the place of the one that a binding was made for. It keeps the room of the longer one, so every place stays.

    For a forward only: what an instance weighs for a layer is not made anew.
    """

    def __init__(self, b: Binding) -> None:
        self._b = b
        self._longest, self._most = list(b.extents.longest.items()), list(b.extents.most.items())
        self._copies: list[tuple[Array, Callable[[Dataset], Array]]] = []
        self._lists: list[tuple[int, str, str, int, int]] = []
        """Place of an index field's values, the axes on which they stand and that they name, places of the starts and of the list."""
        self._made: list[tuple[Array, Array, str]] = []
        """The same lists of a field whose values are in no place."""
        at = {key: start for key, _, start in b.parts}
        for key, kind, start in b.parts:
            target, name = (b.XI if kind == "i" else b.XF)[start:], str(key[1])
            match key[0]:
                case "axis":
                    self._copies.append((target, lambda data, name=name: data.axes[name]))  # type: ignore[misc]  # mypy and defaults
                case "starts":
                    self._copies.append((target, lambda data, name=name: data.inner[name]))  # type: ignore[misc]
                case "field" if name in b.data.columns:
                    self._copies.append((target, lambda data, name=name: data.columns[name]))  # type: ignore[misc]
                case "field":
                    self._copies.append((target, lambda data, name=name: b.extents.column(name)))  # type: ignore[misc]
                case "inverse_starts":
                    decl, listed = declaration(b.graph, name), at["inverse_list", key[1]]
                    if ("field", name) in at and decl is not None:
                        self._lists.append((at["field", name], decl.axis, decl.of, start, listed))
                    else:
                        self._made.append((target, b.XI[listed:], name))
        self._invert, self._place = native.enter("invert"), native.place(b.XI)

    def __call__(self, data: Dataset) -> bool:
        """Return whether the instance found room; if not, nothing has happened."""
        axes, b = data.axes, self._b
        for name, n in self._longest:
            if axes[name][1] > n:
                return False
        for name, n in self._most:
            if np.diff(data.inner[name]).max(initial=0) > n:
                return False
        b.data = b.extents.data = data
        for target, column in self._copies:
            values = column(data)
            target[: values.size] = values if values.ndim == 1 else values.reshape(-1)
        for field, axis, of, starts, listed in self._lists:
            self._invert(self._place, field, int(axes[axis][1]), int(axes[of][1]), starts, listed)
        for first, second, name in self._made:
            found = b.extents.inverse(name)
            first[: found[0].size], second[: found[1].size] = found
        return True


class SingleEngine(Engine):
    """Runs one instance forward; its weights are those of its making."""

    def __init__(self, graph: Graph, placement: Placement, *, options: EngineOptions, parameters: dict[str, Array]) -> None:
        alone = dataclasses.replace(options, workers=1, driver="threads", max_active_keys=1, group=1, mode="async", staleness="plain")
        super().__init__(graph, placement, options=alone, parameters=parameters)
        self._lengths = {a.name: 0 for a in graph.axes}
        self._most = {a.name: 0 for a in graph.axes if a.parent}
        self._outputs: list[tuple[Output, int, int]] = []
        self._single = {n.id: not n.region and not graph.type_of(n.inputs[0]).rows for n in graph.nodes if isinstance(n, Output)}
        """Outputs that are one row, whatever the instance."""
        self._O = np.zeros(1, np.float32)
        self._bits = self._O.view(np.uint32)
        self._memory: tuple[Any, ...] = ()
        self._refill: _Refill | None = None
        self._answer = native.enter("answer")

    def one(self, data: Dataset) -> dict[str, Array]:
        """Return for each output float32 [rows, columns] of the one instance in `data`."""
        if self._refill is None or not self._refill(data):
            self._make_room(data)
        self._bits.fill(UNWRITTEN)
        wrong = self._answer(*self._memory) if native.JIT else self._plainly()
        if wrong:
            self._refill = None
            raise error("AMP799", f"internal fault {wrong} of the engine", help="please report it, with the model", exit_code=70)
        return {node.name: self._rows(node, start, cols) for node, start, cols in self._outputs}

    def _plainly(self) -> int:
        with np.errstate(all="ignore"):
            return int(self._answer(*self._memory))

    def _rows(self, node: Output, start: int, cols: int) -> Array:
        assert self._binding is not None
        rows = 1 if self._single[node.id] else int(self._binding.output_spans(node, ONLY)[1][0])
        begin, end = start, start + rows * cols
        table: Array = self._O[begin:end].reshape(-1, cols)
        if rows == 1:
            return table.copy() if self._bits[begin] != UNWRITTEN else table[:0].copy()
        written: Array = table[self._bits[begin:end:cols] != UNWRITTEN]
        return written

    def _make_room(self, data: Dataset) -> None:
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
        self._bits = self._O.view(np.uint32)
        self._outputs = []
        for node in self.graph.nodes:
            if isinstance(node, Output):
                start, _ = places[node.id]
                self._outputs.append((node, start, self.graph.type_of(node.inputs[0]).cols))
                if ("out", node.id) in self.program.cells:
                    b.I[self.program.cells["out", node.id]] = start
        self._memory = (*(native.place(memory) for memory in (self._F, b.I, b.D, b.XF, b.XI, self._O)), 0)
        self._refill = _Refill(b)
        fits = self._refill(data)
        assert fits

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
