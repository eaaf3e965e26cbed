"""What a program takes for a data set: where instances' values, each function's buffers and the data lie, and how large all of it is.

Sizes follow from the graph, the data's axes and the options. What instances in flight take follows from the largest that can be in flight at once,
buffers of one firing from the longest; pages are the system's until something writes to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.codegen.arena import DYNAMIC, parts, static_count
from ampc.codegen.kernels import Program
from ampc.codegen.layout import FLOATS, INDEX_BITS, LINE_BYTES, SLOT_BITS, WORDS, G, Key
from ampc.codegen.plan import layer_names
from ampc.data.dataset import Dataset
from ampc.data.memory import available_bytes
from ampc.diagnostics import error
from ampc.ir.nodes import PPT, Output
from ampc.runtime.extents import Extents
from ampc.runtime.options import EngineOptions

Ints = npt.NDArray[np.int64]

TOKENS = 256
"""Most tokens in one firing."""
POOL_SHARE = 0.7
"""Of the free memory that a pool may take; a larger one would only be touched if all instances in flight were the largest."""
ROWS = 1024
"""Rows that one firing should not exceed by much: their buffers then stay in a core's cache."""


def aligned(count: int) -> int:
    """Return `count` floats made up to a cache line."""
    return (count + 15) // 16 * 16


class Footprint:
    """Sizes and places for one data set. `floats` is what F must hold at least; the first `persistent` floats (parameters) are the engine's."""

    def __init__(self, program: Program, data: Dataset, options: EngineOptions, persistent: int) -> None:
        self.program = program
        self.plan = program.plan
        self.graph = program.plan.graph
        self.data = data
        self.options = options
        self.extents = Extents(self.graph, data)
        self.cells: dict[int, int] = {}
        self.workers = options.workers
        self.virtual = options.driver == "simulate"
        self.group = options.group
        wanted = -(-max(data.n, 1) // self.group)
        self.cohorts = max(1, min(options.max_active_keys, wanted))
        self.slots = self.cohorts * self.group
        if self.slots >= 1 << SLOT_BITS:
            raise error("AMP731", f"{self.slots} instances in flight are more than {(1 << SLOT_BITS) - 1}", help="lower `max_active_keys` or `group`")
        self._arena(persistent)
        self._blocks()
        self.XI, self.XF = self._data()

    # ------------------------------------------------------------------------------------------------ memory

    def _arena(self, persistent: int) -> None:
        """Lay out an instance of each shape, and size the pool for those that are in flight at once."""
        shapes = self.extents.shapes
        found = parts(self.program, shapes.sizes)
        self.domain: dict[int, Ints] = {s.id: np.maximum(shapes.spread(shapes.sizes.states(s.region)), 1) for s in self.plan.segments}
        most = max(int(d.max()) for d in self.domain.values())
        if most >= 1 << INDEX_BITS:
            raise error("AMP732", f"an instance has {most} states of one kind, more than {(1 << INDEX_BITS) - 1}")
        self.layer_counter = {name: DYNAMIC * k for k, name in enumerate(n for n in self.plan.layers if not static_count(self.plan, n))}
        values = np.maximum(-(-shapes.spread(found.floats) // FLOATS), 1)
        counts = np.maximum(-(-shapes.spread(found.words) // WORDS), 1)
        self.layouts = np.stack([values, counts, *(shapes.spread(x) for x in (*found.segments, *found.storages))], axis=1)
        self.size_bytes = LINE_BYTES * (values + counts)
        """int64, by shape."""
        self.values_largest, self.counts_largest = (shapes.most_of(lines, self.group) for lines in (values, counts))
        """Lines of the largest cohort."""
        self.values, self.counts = self._pool(values), self._pool(counts)
        """Lines of the two pools."""
        self.arena0 = persistent
        self.scratch0 = self.arena0 + self.values * FLOATS

    def _pool(self, lines: Ints) -> int:
        """Return how many lines a pool has in which instances of so many lines (by shape) lie."""
        shapes = self.extents.shapes
        largest, wanted = shapes.most_of(lines, self.group), shapes.most_of(lines, self.slots)
        if len(lines) > 1:  # blocks of different sizes leave gaps, which cost nothing until they are touched
            wanted += wanted // 4 + largest
        free = available_bytes()
        return max(largest, wanted if free is None else min(wanted, int(POOL_SHARE * free) // LINE_BYTES))

    def _blocks(self) -> None:
        """Place the buffers of each function in a worker's scratch."""
        self.take: dict[int, int] = {}
        self.rows: dict[int, int] = {}
        spaces: dict[int, set[str]] = {s.id: {""} for s in self.plan.segments}
        for key in self.program.cells:
            if key[0] in ("buf", "ints", "table") and key[5] != "#":
                spaces[int(key[1])].add(str(key[5]))
        for s in self.plan.segments:
            most = max(self.extents.most_of_space(x, s.region) for x in spaces[s.id])
            self.rows[s.id] = max(1, most)
            self.take[s.id] = max(1, min(TOKENS, ROWS // max(1, most)))
        floats: dict[tuple[int, int], int] = {}
        words: dict[tuple[int, int], int] = {}
        base = 4 * TOKENS + G.END
        for key in self.program.cells:
            if key[0] not in ("buf", "ints", "table"):
                continue
            kind, segment, direction, _, width, space = key
            where = (int(segment), int(direction))
            rows = 0 if space == "#" else self.take[where[0]] * self.extents.most_of_space(str(space), self.plan.segments[where[0]].region)
            if kind == "buf":
                self._cell(key, floats.get(where, 0))
                floats[where] = floats.get(where, 0) + aligned(rows * int(width))
            else:
                self._cell(key, base + words.get(where, 0))
                words[where] = words.get(where, 0) + ((rows + 1) * int(width) if kind == "table" else rows + int(width))
        self.halves = aligned(max(floats.values(), default=0)) + 64
        self.half_words = self._half_words()
        scratch = self.scratch_stride = self.halves + aligned(sum(self.half_words)) // 2
        self.work_stride = (base + max(words.values(), default=0) + 15) // 8 * 8
        blocks = self.workers
        if self.virtual:  # one thread fires for all devices, one after the other: they share its scratch
            blocks, self.scratch_stride, self.work_stride, self.work_room = 1, 0, 0, self.work_stride
        else:
            self.work_room = self.work_stride
        self.floats = self.scratch0 + blocks * scratch

    def _half_words(self) -> tuple[int, int, int]:
        """16-bit words of a worker's scratch for the factors of one product: rows read, gradients, parameters that are not those of now."""
        if self.options.precision != "bf16":
            return 0, 0, 0
        shapes = [(s.id, *p.shape) for s in self.plan.segments for name in s.layers for p in self.graph.layer[name].params if p.name == "w"]
        left, right = (max((self.take[s] * self.rows[s] * size[i] for s, *size in shapes), default=0) for i in (0, 1))
        older = max((k * n for _, k, n in shapes), default=0) if self.options.staleness != "plain" else 0
        return aligned(left), aligned(right), aligned(older)

    def _cell(self, key: tuple[str | int, ...], value: int) -> None:
        index = self.program.cells.get(key)
        if index is not None:
            self.cells[index] = value

    # -------------------------------------------------------------------------------------------------- data

    def _arrays(self) -> Iterator[tuple[tuple[str | int, ...], npt.NDArray[Any]]]:
        """Yield the arrays of the data with the cells that say where each begins: float32 go to XF, int64 to XI."""
        for axis in self.graph.axes:
            yield ("axis", axis.name), self.data.axes[axis.name]
            if axis.parent:
                yield ("starts", axis.name), self.data.inner[axis.name]
        for key in self.program.cells:
            if key[0] == "field":
                column = self.extents.column(str(key[1]))
                yield key, column.astype(np.float32 if column.dtype.kind == "f" else np.int64, copy=False)
            elif key[0] == "inverse_starts":
                starts, listed = self.extents.inverse(str(key[1]))
                yield key, starts
                yield ("inverse_list", key[1]), listed

    def _data(self) -> tuple[Ints, npt.NDArray[np.float32]]:
        """Return the data as one array of integers and one of floats, and note where each part begins."""
        ints: list[Ints] = []
        floats: list[npt.NDArray[np.float32]] = []
        sizes = {"i": 0, "f": 0}
        self.parts: list[tuple[Key, str, int]] = []
        """What lies in XI ("i") and XF ("f"), from which place on, in the order of `_arrays`."""
        for key, array in self._arrays():
            kind = array.dtype.kind
            self.parts.append((key, kind, sizes[kind]))
            self._cell(key, sizes[kind])
            (ints if kind == "i" else floats).append(array.reshape(-1))
            sizes[kind] += array.size
        for axis in self.graph.axes:
            if axis.parent:
                self._cell(("most", axis.name), self.extents.most[axis.name])
            self._cell(("most_rows", axis.name), self.extents.longest[axis.name])
        self._cell(("most_rows", ""), 1)
        for key in self.program.cells:
            if key[0] == "states":
                self._cell(key, max(1, self.extents.most_states(int(key[1]))))
        empty_i, empty_f = np.zeros(8, np.int64), np.zeros(8, np.float32)
        return np.concatenate([*ints, empty_i]), np.concatenate([*floats, empty_f])

    def weights(self) -> npt.NDArray[np.float64]:
        """float64 [n, layers]: 1 / (firings of an instance for a layer), 1 where they are counted as they happen; 0 if no row ever reaches it.

        Nothing where there is no way back.
        """
        if self.program.alone:
            return np.zeros((0, 0))
        out = np.zeros((self.data.n, len(self.plan.layers)))
        for k, name in enumerate(self.plan.layers):
            found = [(s, n) for s in self.plan.segments for n in s.nodes if isinstance(n, PPT) and name in layer_names(n)]
            reached = np.zeros(self.data.n, bool)
            for segment, node in found:
                if node.op == "linear_part":
                    continue  # the layer is reached where the rest of its product is made, by loops of no turns and graphs without edges never
                reached |= (self.extents.states(segment.region) > 0) & self._has_rows(node, name)
            total = sum(self.extents.states(s.region) for s in self.plan.segments if name in s.layers) if static_count(self.plan, name) else 1
            out[:, k] = reached / np.maximum(total, 1)
        return out

    def _has_rows(self, node: PPT, layer: str) -> npt.NDArray[np.bool_]:
        """Whether each instance has a row for a layer at a node: an element of the rows' axis, of the layer's kind where rows are told apart."""
        axis = node.outputs[0].rows
        if not axis:
            return np.ones(self.data.n, bool)
        offsets = self.data.axes[axis]
        if node.op != "linear_by":
            return np.diff(offsets) > 0
        mine = self.extents.column(node.fields[0].field).reshape(-1) == int(layer.rpartition(".")[2])
        return np.diff(np.concatenate([[0], np.cumsum(mine)])[offsets]) > 0

    @property
    def instance_bytes(self) -> float:
        """Bytes of values and counters of an instance, a mean over the data."""
        counts = self.extents.shapes.counts
        return float((self.size_bytes * counts).sum() / max(1, counts.sum()))

    @property
    def largest_bytes(self) -> int:
        """Bytes of values and counters of the largest instance."""
        return int(self.size_bytes.max())

    # ----------------------------------------------------------------------------------------------- outputs

    def outputs(self) -> tuple[dict[int, tuple[int, int]], int]:
        """Return (Output node id -> (place in O, rows), size of O). Copies of an output, which different instances write to, have one place."""
        places: dict[int, tuple[int, int]] = {}
        by_name: dict[str, tuple[int, int]] = {}
        size = 0
        for node in self.graph.nodes:
            if isinstance(node, Output):
                if node.name not in by_name:
                    rows = self.output_rows(node)
                    by_name[node.name] = (size, rows)
                    size += rows * self.graph.type_of(node.inputs[0]).cols
                places[node.id] = by_name[node.name]
        return places, size

    def output_rows(self, node: Output) -> int:
        kind = self.graph.type_of(node.inputs[0])
        region = self.graph.regions[node.region]
        if not region.id:
            return int(self.data.axes[kind.rows][-1]) if kind.rows else self.data.n
        if region.axis and not region.parent and not kind.rows:
            return int(self.data.axes[region.axis][-1])
        most = self.extents.longest[kind.rows] if kind.rows else 1
        return self.data.n * max(1, self.extents.most_states(region.id)) * most

    def output_spans(self, node: Output, instances: Ints) -> tuple[Ints, Ints]:
        """Return the first row of an Output's array that belongs to each instance, and the one after its last."""
        kind = self.graph.type_of(node.inputs[0])
        region = self.graph.regions[node.region]
        axis = kind.rows if not region.id else region.axis if not region.parent and not kind.rows else ""
        if axis:
            return self.data.axes[axis][instances], self.data.axes[axis][instances + 1]
        if not region.id:
            return instances, instances + 1
        most = self.extents.longest[kind.rows] if kind.rows else 1
        room = max(1, self.extents.most_states(region.id)) * most
        return instances * room, instances * room + self.extents.states(region.id)[instances] * most
