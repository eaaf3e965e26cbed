"""A program bound to a data set: the tables `I` and `D`, the data as flat arrays, and where everything lies in `F`.

Sizes follow from the graph, the data's axes and the options; memory is checked before any of it is allocated. What instances in flight take
follows from the largest that can be in flight at once, buffers of one firing from the longest; pages are the system's until something writes to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.codegen.arena import DYNAMIC, parts, static_count, width
from ampc.codegen.firing import Fold
from ampc.codegen.kernels import Program
from ampc.codegen.layout import (
    FIRST_CELL, FLOATS, FOLD, HYPER, INDEX_BITS, LAYER, LINE_BYTES, POOL, SEG, SLOT, SLOT_BITS, STALENESS_BINS, WORDS, G, H, Key, L, M, Q, R, S, T,
)  # fmt: skip
from ampc.codegen.plan import layer_names
from ampc.data.dataset import Dataset
from ampc.data.memory import available_bytes
from ampc.diagnostics import error
from ampc.ir.nodes import PPT, Cond, Dealt, Group, Metric, Output
from ampc.place import usable_cores
from ampc.runtime.extents import Extents
from ampc.runtime.events import InFlight
from ampc.runtime.options import EngineOptions
from ampc.runtime.room import BLOCK
from ampc.runtime.tokens import QUEUE, RING

Ints = npt.NDArray[np.int64]

TOKENS = 256
"""Most tokens in one firing."""
POOL_SHARE = 0.7
"""Of the free memory that a pool may take; a larger one would only be touched if all instances in flight were the largest."""
ROWS = 1024
"""Rows that one firing should not exceed by much: their buffers then stay in a core's cache."""


@dataclasses.dataclass(frozen=True)
class LayerMemory:
    """Where a layer lies in F: parameters, gradients and moments, each contiguous; `sparse` tables update touched rows only.

    half: 16-bit word at which the parameters are as bf16, 0 if nowhere.
    """

    name: str
    param: int
    grad: int
    moment1: int
    moment2: int
    size: int
    offsets: dict[str, int]
    sparse: bool
    rows: int
    cols: int
    stash: int = 0
    stash_depth: int = 0
    half: int = 0


def _align(count: int) -> int:
    return (count + 15) // 16 * 16


def _power_of_two(count: int) -> int:
    return 1 << max(3, (count - 1).bit_length())


class Binding:
    """Tables for one data set. `floats` is what F must hold at least; the first `persistent` floats (parameters) are the engine's."""

    def __init__(
        self, program: Program, data: Dataset, options: EngineOptions, owner_of: dict[int, int], layers: dict[str, LayerMemory],
        folds: list[tuple[Fold, int]], persistent: int, addresses: dict[int, int],
    ) -> None:
        self.program = program
        self.plan = program.plan
        self.graph = program.plan.graph
        self.data = data
        self.options = options
        self.owner_of = owner_of
        self.layers = layers
        self.folds = folds
        self.addresses = addresses
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
        self.I, self.D = self._tables()

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
                floats[where] = floats.get(where, 0) + _align(rows * int(width))
            else:
                self._cell(key, base + words.get(where, 0))
                words[where] = words.get(where, 0) + ((rows + 1) * int(width) if kind == "table" else rows + int(width))
        self.halves = _align(max(floats.values(), default=0)) + 64
        self.half_words = self._half_words()
        scratch = self.scratch_stride = self.halves + _align(sum(self.half_words)) // 2
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
        return _align(left), _align(right), _align(older)

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

    def clear_pools(self) -> None:
        """Nothing is in flight: the pools are empty, no copy has anything to do."""
        self.I[H.NEXT_COPY] = 0
        self.I[self.I[H.LOAD0] : self.I[H.LOAD0] + self.copies] = 0
        for word in (H.VALUES0, H.COUNTS0):
            pool = self.I[word]
            blocks = pool + POOL
            self.I[pool + M.ROVER] = self.cohorts
            self.I[pool + M.FULL : pool + M.FLIGHT + 1] = 0
            self.I[blocks + self.cohorts * BLOCK : blocks + (self.cohorts + 1) * BLOCK] = (0, 0, self.cohorts, self.cohorts)

    def in_flight(self, admitted: Ints) -> InFlight:
        """Return what the last pass measured; `admitted` are the instances that entered."""
        sizes = self.size_bytes[self.extents.shapes.of[admitted]] if len(admitted) else np.zeros(1)
        number = int(self.I[self.I[H.VALUES0] + M.FLIGHT])
        peak, high = (LINE_BYTES * sum(int(self.I[self.I[pool] + word]) for pool in (H.VALUES0, H.COUNTS0)) for word in (M.PEAK, M.HIGH))
        return InFlight(float(sizes.mean()), int(sizes.max()), number, peak, high)

    def limit(self, segment: int, most: int) -> None:
        """Let a firing of `segment` take at most so many messages; 0 is as many as its buffers hold."""
        record = self.I[H.SEG0] + segment * SEG + S.TAKE
        self.I[record] = min(self.take[segment], most) if most else self.take[segment]

    def weights(self) -> npt.NDArray[np.float64]:
        """float64 [n, layers]: 1 / (firings of an instance for a layer), 1 where they are counted as they happen; 0 if no row ever reaches it."""
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

    # ------------------------------------------------------------------------------------------------ tables

    def _tables(self) -> tuple[Ints, npt.NDArray[np.float64]]:
        table = _Table(FIRST_CELL + len(self.program.cells))
        head: dict[H, int] = {}
        segments, queues = len(self.plan.segments), 2 * len(self.plan.segments)
        layers = len(self.plan.layers)
        head[H.SEG0] = table.room(segments * SEG)
        head[H.LAYER0] = table.room(max(1, layers) * LAYER)
        head[H.QUEUE0] = table.room(queues * QUEUE)
        pairs = 1 if self.virtual else self.workers * self.workers
        head[H.RING0] = table.room(pairs * RING)
        head[H.FOLD0] = table.room(max(1, len(self.folds)) * FOLD)
        head[H.COHORT0] = table.room(2 * self.cohorts)
        self.copies = max((n.test.count for n in self.graph.nodes if isinstance(n, Cond) and isinstance(n.test, Dealt)), default=1)
        head[H.LOAD0] = table.room(self.copies)
        head[H.ORDER0] = table.room(2 * max(1, self.data.n))
        head[H.BREAKS0] = table.room(max(1, self.data.n))
        head[H.SLOT0] = table.room(self.slots * SLOT)
        head[H.VALUES0], head[H.COUNTS0] = (table.room(POOL + (self.cohorts + 1) * BLOCK) for _ in range(2))
        head[H.SHAPE0] = table.room(max(1, self.data.n))
        layouts = table.room(self.layouts.size)
        counters = table.room(self.counts * WORDS)
        head[H.WORK0] = table.room(self.work_room * (1 if self.virtual else self.workers))
        head[H.KERNEL0] = table.room(2 * queues)
        numbers_of = [(f, table.room(len(f.numbers))) for f in self.program.functions]
        lists = {s.id: table.room(max(1, len(s.layers))) for s in self.plan.segments}
        histograms = {name: table.room(STALENESS_BINS) for name in self.plan.layers}
        marks = {name: table.room(2 + 2 * m.rows) if m.sparse else 0 for name, m in self.layers.items()}
        tokens = {s.id: _power_of_two(self.extents.shapes.most_of(self.domain[s.id], self.slots)) for s in self.plan.segments}
        buffers = {q: (table.room(tokens[q // 2]), tokens[q // 2]) for q in range(queues)}
        self.live = 2 * self._live_messages()
        ring = _power_of_two(self.live) if self.workers > 1 and not self.virtual else 8
        rings = [table.room(2 * ring) if k // self.workers != k % self.workers else 0 for k in range(pairs)]
        if self.virtual:
            head[H.OUTBOX], head[H.OUTBOX_ROOM] = table.room(1 + 3 * self.live), self.live
        self._check_memory(table.size)

        I = zeros(table.size, np.int64)  # the name it has in kernels
        head |= {
            H.WORKERS: self.workers, H.THREADS: min(self.workers, usable_cores()), H.SLOTS: self.slots, H.GROUP: self.group,
            H.COHORTS: self.cohorts, H.COPIES: self.copies,
            H.WORK_STRIDE: self.work_stride, H.SCRATCH0: self.scratch0, H.SCRATCH_STRIDE: self.scratch_stride, H.CAP: TOKENS,
            H.SEGMENTS: segments, H.LAYERS: layers, H.FOLDS: len(self.folds),
        }  # fmt: skip
        for word, value in head.items():
            I[word] = value
        for index, value in self.cells.items():
            I[index] = value
        for f, start in numbers_of:
            I[head[H.KERNEL0] + 2 * f.queue : head[H.KERNEL0] + 2 * f.queue + 2] = self.addresses[f.queue], start
            I[start : start + len(f.numbers)] = f.numbers
        for pool, lines, start in ((H.VALUES0, self.values, self.arena0), (H.COUNTS0, self.counts, counters)):
            I[head[pool] + M.LINES], I[head[pool] + M.START] = lines, start
        I[layouts : layouts + self.layouts.size] = self.layouts.reshape(-1)
        I[head[H.SHAPE0] : head[H.SHAPE0] + self.data.n] = layouts + self.extents.shapes.of * self.layouts.shape[1]
        for name, m in self.layers.items():
            for param, at in m.offsets.items():
                for what, start in (("par", m.param), ("grad", m.grad)):
                    cell = self.program.cells.get((what, name, param))
                    if cell is not None:
                        I[cell] = start + at
            cell = self.program.cells.get(("marks", name))
            if cell is not None:
                I[cell] = marks[name]
            if m.sparse:
                I[marks[name] + 1] = m.rows
        self._half_places(I, head[H.WORK0])
        numbers = {name: k for k, name in enumerate(self.plan.layers)}
        for s in self.plan.segments:
            record = head[H.SEG0] + s.id * SEG
            need = sum(1 for node, port in s.triggers if not (isinstance(self.graph.by_id[node], Group) and port == 0))
            I[record + S.OWNER] = self.owner_of[s.id]
            I[record + S.NEED] = need
            I[record + S.TAKE] = self.take[s.id]
            I[record + S.WIDTH] = width(s)
            I[record + S.COUNTED] = int(need > 1 or bool(s.groups))
            I[record + S.LAYERS_FROM], I[record + S.LAYERS_N] = lists[s.id], len(s.layers)
            for k, name in enumerate(s.layers):
                I[lists[s.id] + k] = numbers[name]
            for q in (2 * s.id, 2 * s.id + 1):
                c = head[H.QUEUE0] + q * QUEUE
                I[c + Q.BUFFER], I[c + Q.MASK] = buffers[q][0], buffers[q][1] - 1
                I[c + Q.ROWS] = self.rows[s.id]
        for k, buffer in enumerate(rings):
            c = head[H.RING0] + k * RING
            I[c + R.BUFFER], I[c + R.MASK] = buffer, ring - 1
        self._layer_records(I, head, histograms, marks)
        self._fold_records(I, head[H.FOLD0], numbers)
        self.histograms = histograms
        return I, self._doubles(I)

    def _half_places(self, I: Ints, work0: int) -> None:
        """Tell each worker where its bf16 factors go."""
        kept = next((m for m in self.layers.values() if m.half), None)
        for w in range(1 if self.virtual else self.workers):
            words = work0 + w * self.work_stride + 4 * TOKENS
            start = 2 * (self.scratch0 + w * self.scratch_stride + self.halves)
            I[words + G.LEFT], I[words + G.RIGHT], I[words + G.WEIGHTS] = start + np.cumsum([0, *self.half_words[:2]])
            I[words + G.ROUNDED] = -1
            if kept is not None:
                I[words + G.MIRROR], I[words + G.MIRRORED] = kept.half - kept.param, min(m.grad for m in self.layers.values())

    def _layer_records(self, I: Ints, head: dict[H, int], histograms: dict[str, int], marks: dict[str, int]) -> None:
        for k, name in enumerate(self.plan.layers):
            m = self.layers[name]
            record = head[H.LAYER0] + k * LAYER
            user = next(s for s in self.plan.segments if name in s.layers)
            I[record + L.OWNER] = self.owner_of[user.id]
            I[record + L.PARAM], I[record + L.SIZE], I[record + L.GRAD] = m.param, m.size, m.grad
            I[record + L.MOMENT1], I[record + L.MOMENT2] = m.moment1, m.moment2
            I[record + L.HALF] = m.half
            I[record + L.STASH], I[record + L.STASH_DEPTH] = m.stash, m.stash_depth
            I[record + L.HISTOGRAM] = histograms[name]
            I[record + L.MARKS], I[record + L.COLS] = marks[name], m.cols
            I[record + L.COUNTER] = self.layer_counter.get(name, -1)

    def _fold_records(self, I: Ints, start: int, numbers: dict[str, int]) -> None:
        for k, (fold, product) in enumerate(self.folds):
            record = start + k * FOLD
            self_cell = self.program.cells[("fold", fold.table, fold.linear, fold.start)]
            table, linear = self.layers[fold.table], self.layers[fold.linear]
            rows_of_w = linear.offsets["w"] + fold.start * fold.cols
            I[self_cell] = record
            I[record + T.TABLE], I[record + T.GRAD_TABLE] = table.param, table.grad
            I[record + T.W], I[record + T.GRAD_W] = linear.param + rows_of_w, linear.grad + rows_of_w
            I[record + T.BIAS] = linear.param + linear.offsets["b"] if fold.bias else -1
            I[record + T.GRAD_BIAS] = linear.grad + linear.offsets["b"] if fold.bias else -1
            I[record + T.PRODUCT], I[record + T.GRAD_PRODUCT] = product, product + _align(fold.rows * fold.cols) + 16
            I[record + T.ROWS], I[record + T.INNER], I[record + T.COLS] = fold.rows, fold.inner, fold.cols
            I[record + T.TABLE_LAYER], I[record + T.LINEAR_LAYER] = numbers[fold.table], numbers[fold.linear]

    def _doubles(self, I: Ints) -> npt.NDArray[np.float64]:
        metrics = sum(isinstance(n, Metric) for n in self.graph.nodes)
        stats = (1 + 2 * metrics + 15) // 8 * 8
        weights = self.weights()
        layers = max(1, len(self.plan.layers))
        D = zeros(self.workers * stats + layers * HYPER + weights.size + 8, np.float64)
        I[H.STATS], I[H.STAT0] = stats, 0
        I[H.HYPER0] = self.workers * stats
        I[H.WEIGHT0] = I[H.HYPER0] + layers * HYPER
        D[I[H.WEIGHT0] : I[H.WEIGHT0] + weights.size] = weights.reshape(-1)
        return D

    def _live_messages(self) -> int:
        """Most messages of one kind of direction that can be on the way at once: a ring of this size never fills."""
        shapes = self.extents.shapes
        total = 0 * shapes.counts
        for s in self.plan.segments:
            for node_id, port in s.triggers:
                node = self.graph.by_id[node_id]
                elements = isinstance(node, Group) and port == 0
                total += shapes.spread(shapes.sizes.states(node.region)) if elements else self.domain[s.id]
        return shapes.most_of(np.maximum(total, 1), self.slots) + 2 * len(self.plan.layers) + 2

    def _check_memory(self, words: int) -> None:
        pools = LINE_BYTES * (self.values + self.counts)
        expected = min(pools, int(max(self.largest_bytes, self.slots * self.instance_bytes)))
        need = 4 * self.floats + 8 * words + self.data.size_bytes - (pools - expected)
        free = available_bytes()
        if free is None:
            return
        if need > 0.9 * free:
            raise error(
                "AMP733",
                f"this run needs {need / 2**30:.1f} GiB of memory for {self.slots} instances in flight, and {free / 2**30:.1f} GiB are free",
                help=f"lower `max_active_keys` (now {self.options.max_active_keys}): an instance takes {self.instance_bytes / 2**20:.2f} MiB, "
                f"the largest {self.largest_bytes / 2**20:.2f} MiB",
                exit_code=4,
            )

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


def zeros(size: int, dtype: Any) -> npt.NDArray[Any]:
    """Return an array of zeros that begins on a cache line; those of numpy lie 16 bytes behind one if they are large."""
    width = np.dtype(dtype).itemsize
    room = np.zeros(size + LINE_BYTES // width, dtype)
    first = -room.ctypes.data % LINE_BYTES // width
    return room[first : first + size]


class _Table:
    """Hands out room in I, each part on a cache line of its own."""

    def __init__(self, size: int) -> None:
        self.size = (size + 7) // 8 * 8

    def room(self, words: int) -> int:
        start = self.size
        self.size += (words + 7) // 8 * 8
        return start



