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

from ampc.codegen.layout import G, H
from ampc.data.dataset import Dataset
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.ir.nodes import Output
from ampc.ir.scope import declaration
from ampc.place import usable_cores
from ampc.place.assign import Placement
from ampc.runtime import native, packing
from ampc.runtime.assistant import Assistant
from ampc.runtime.binding import Binding
from ampc.runtime.engine import Engine
from ampc.runtime.events import Array
from ampc.runtime.footprint import TOKENS
from ampc.runtime.forward import ForwardEngine
from ampc.runtime.options import EngineOptions
from ampc.runtime.predictions import targets
from ampc.runtime.result import UNWRITTEN
from ampc.runtime.runner import Pass, room_of

GROWTH = 1.25
"""How much longer than an instance the room for it is made, where it finds none."""


NOTHING = int(UNWRITTEN)
LARGE = 30_000
"""Weights of a layer from which on some of its products may be large enough to be shared."""
ONLY = np.zeros(1, np.int64)
"""The number of the one instance."""


class _Refill:
    """Puts one instance in the place of the one that a binding was made for. It keeps the room of the longer one, so every place stays.

    For a forward only: what an instance weighs for a layer is not made anew.
    """

    def __init__(self, b: Binding) -> None:
        self._b = b
        self._most = list(b.extents.most.items())
        self._axes: list[tuple[str, int, Array]] = []
        """Each axis with its most elements and the place of its two offsets, of which the first is 0."""
        self._columns: list[tuple[str, Array, bool]] = []
        """Each field with its place, and whether its values are in one dimension."""
        self._copies: list[tuple[Array, Callable[[Dataset], Array]]] = []
        self._lists: list[tuple[int, str, str, int, int]] = []
        """Place of an index field's values, the axes on which they stand and that they name, places of the starts and of the list."""
        self._made: list[tuple[Array, Array, str]] = []
        """The same lists of a field whose values are in no place."""
        at = {key: start for key, _, start in b.parts}
        unread = targets(b.graph)
        for key, kind, start in b.parts:
            target, name = (b.XI if kind == "i" else b.XF)[start:], str(key[1])
            match key[0]:
                case "axis":
                    self._axes.append((name, b.extents.longest[name], target))
                case "starts":
                    self._copies.append((target, lambda data, name=name: data.inner[name]))  # type: ignore[misc]  # mypy and defaults
                case "field" if name in b.data.columns and name in unread:
                    pass  # for losses and metrics alone, which a predictor does without
                case "field" if name in b.data.columns:
                    self._columns.append((name, target, b.data.columns[name].ndim == 1))
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
        """Return whether the instance found room; if not, there has to be a binding with more."""
        axes, columns, b = data.axes, data.columns, self._b
        for name, most, target in self._axes:
            n = axes[name].item(1)
            if n > most:
                return False
            target[1] = n
        for name, most in self._most:
            if np.diff(data.inner[name]).max(initial=0) > most:
                return False
        b.data = b.extents.data = data
        for name, target, flat in self._columns:
            values = columns[name]
            target[: values.size] = values if flat else values.reshape(-1)
        for target, column in self._copies:
            values = column(data)
            target[: values.size] = values if values.ndim == 1 else values.reshape(-1)
        for field, axis, of, starts, listed in self._lists:
            self._invert(self._place, field, int(axes[axis][1]), int(axes[of][1]), starts, listed)
        for first, second, name in self._made:
            found = b.extents.inverse(name)
            first[: found[0].size], second[: found[1].size] = found
        return True


class SingleEngine(ForwardEngine):
    """Runs one instance forward; its weights are those of its making. With more than one worker, a second thread makes half of large products."""

    def __init__(self, graph: Graph, placement: Placement, *, options: EngineOptions, parameters: dict[str, Array]) -> None:
        alone = dataclasses.replace(options, workers=1, driver="threads", max_active_keys=1, group=1, mode="async", staleness="plain")
        super().__init__(Engine(graph, placement, options=alone, parameters=parameters))
        graph = self.graph
        self._lengths = {a.name: 0 for a in graph.axes}
        self._most = {a.name: 0 for a in graph.axes if a.parent}
        self._outputs: list[tuple[Output, int, int]] = []
        """Those of any number of rows, with their place in the outputs and their columns."""
        self._rows_of_one: list[tuple[str, int, Array]] = []
        """Those that are one row, whatever the instance, with their first number and their place, [1, columns]."""
        self._in_order = tuple(dict.fromkeys(n.name for n in graph.nodes if isinstance(n, Output)))
        self._written = memoryview(b"")
        self._O = np.zeros(1, np.float32)
        self._bits = self._O.view(np.uint32)
        self._arguments: tuple[Any, ...] = ()
        """Of `single.answer`; as machine code reads them, and the place of that."""
        self._words, self._call = np.zeros(8, np.int64), 0
        self._refill: _Refill | None = None
        weights = [p.shape for x in graph.layers for p in x.params if p.name == "w"]
        self._shares = options.workers > 1 and native.JIT and usable_cores() > 1 and any(k * n >= LARGE for k, n in weights)
        self._assistant: Assistant | None = None
        self._packed = self._lay_out_panels()
        self._answer = native.enter("answer_at" if native.JIT else "answer")

    def _lay_out_panels(self) -> list[packing.Packed]:
        """Find room for the panels of weights, where there are kernels for them."""
        packed = []
        if native.JIT and native.WIDE and self.options.precision == "fp32":
            for name, m in self.layers.items():
                for p in self.graph.layer[name].params:
                    if p.name == "w" and p.shape[1] >= packing.LEAST_COLUMNS:
                        rows, cols = p.shape
                        packed.append(packing.Packed(m.param + m.offsets["w"], rows, cols, self.persistent))
                        self.persistent += room_of(packing.room(rows, cols))
        return packed

    def one(self, data: Dataset) -> dict[str, Array]:
        """Return for each output float32 [rows, columns] of the one instance in `data`."""
        if self._refill is None or not self._refill(data):
            self._make_room(data)
        if self._assistant is not None:
            self._assistant.wake()
        wrong = self._answer(self._call) if native.JIT else self._plainly()
        if wrong:
            self._refill = None
            raise error("AMP799", f"internal fault {wrong} of the engine", help="please report it, with the model", exit_code=70)
        written = self._written
        found = {name: table.copy() if written[begin] != NOTHING else table[:0].copy() for name, begin, table in self._rows_of_one}
        if self._outputs:
            found |= {node.name: self._rows(node, start, cols) for node, start, cols in self._outputs}
            found = {name: found[name] for name in self._in_order}
        return found

    def _plainly(self) -> int:
        self._bits.fill(UNWRITTEN)
        with np.errstate(all="ignore"):
            return int(self._answer(*self._arguments))

    def _rows(self, node: Output, start: int, cols: int) -> Array:
        assert self._binding is not None
        rows = int(self._binding.output_spans(node, ONLY)[1][0])
        begin, end = start, start + rows * cols
        table: Array = self._O[begin:end].reshape(-1, cols)
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
        self._prepare(b, np.zeros(1, np.int64), Pass(train=False))
        b.I[H.MEASURE] = 0
        places, size = b.outputs()
        self._O = np.zeros(max(1, size), np.float32)
        self._bits = self._O.view(np.uint32)
        self._written = self._bits.data
        self._outputs, self._rows_of_one = [], []
        for node in self.graph.nodes:
            if isinstance(node, Output):
                start, _ = places[node.id]
                kind = self.graph.type_of(node.inputs[0])
                if node.region or kind.rows:
                    self._outputs.append((node, start, kind.cols))
                else:
                    self._rows_of_one.append((node.name, start, self._O[start : start + kind.cols].reshape(1, -1)))
                if ("out", node.id) in self.program.cells:
                    b.I[self.program.cells["out", node.id]] = start
        self._arguments = (*(native.place(memory) for memory in (self._F, b.I, b.D, b.XF, b.XI, self._O)), 0)
        if native.JIT:
            self._words[:] = (*self._arguments, self._O.size)
            self._call = native.place(self._words)
        words = b.I[H.WORK0] + 4 * TOKENS
        if self._packed:
            packing.write(self._F, b.I, b.panels, self._packed)
            b.I[words + G.PANELS] = b.panels
        if self._shares:
            if self._assistant is not None:
                self._assistant.leave()
            self._assistant = Assistant(self._F, b.I, b.box)
            b.I[words + G.HELPER] = b.box
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
