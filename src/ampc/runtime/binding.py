"""A program bound to a data set: the tables `I` and `D` that kernels and workers read, beside the data and the places of `footprint`.

Memory is checked before any of it is allocated.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.codegen.arena import width
from ampc.codegen.firing import Fold
from ampc.codegen.kernels import Program
from ampc.codegen.layout import (
    FIRST_CELL, FOLD, HYPER, LAYER, LINE_BYTES, SEG, SLOT, STALENESS_BINS, WORDS, B, G, H, L, M, Q, R, S, T,
)  # fmt: skip
from ampc.data.dataset import Dataset
from ampc.data.memory import available_bytes
from ampc.diagnostics import error
from ampc.ir.nodes import Cond, Dealt, Group, Metric
from ampc.place import usable_cores
from ampc.runtime import packing
from ampc.runtime.events import InFlight
from ampc.runtime.footprint import TOKENS, Footprint, Ints, aligned
from ampc.runtime.options import EngineOptions
from ampc.runtime.room import clear_pool, pool_words, stretch
from ampc.runtime.tokens import QUEUE, RING


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


@dataclasses.dataclass
class _Rooms:
    """Where parts of I begin, beside those that its header names (`head`).

    numbers: constants of each function. lists: layers of each segment. marks: touched rows of sparse tables, 0 for other layers.
    buffers: of each queue, with its tokens (a power of two). rings: of each ordered pair of workers, of `ring` tokens each.
    """

    head: dict[H, int]
    layouts: int
    counters: int
    numbers: list[int]
    lists: dict[int, int]
    histograms: int
    marks: dict[str, int]
    buffers: list[tuple[int, int]]
    rings: list[int]
    ring: int
    size: int


def _power_of_two(count: int) -> int:
    return 1 << max(3, (count - 1).bit_length())


class Binding(Footprint):
    """Tables for one data set."""

    def __init__(
        self, program: Program, data: Dataset, options: EngineOptions, owner_of: dict[int, int], layers: dict[str, LayerMemory],
        folds: list[tuple[Fold, int]], persistent: int, addresses: dict[int, int],
    ) -> None:
        super().__init__(program, data, options, persistent)
        self.owner_of = owner_of
        self.layers = layers
        self.folds = folds
        self.addresses = addresses
        self.copies = max((n.test.count for n in self.graph.nodes if isinstance(n, Cond) and isinstance(n.test, Dealt)), default=1)
        self.live = 2 * self._live_messages()
        rooms = self._rooms()
        self._check_memory(rooms.size)
        self._histograms = rooms.histograms
        self.I = self._integers(rooms)
        self.D = self._doubles(self.I)

    def clear_pools(self) -> None:
        """Nothing is in flight: the pools are empty, no copy has anything to do."""
        self.I[H.NEXT_COPY] = 0
        self.I[self.I[H.LOAD0] : self.I[H.LOAD0] + self.copies] = 0
        for word, largest in ((H.VALUES0, self.values_largest), (H.COUNTS0, self.counts_largest)):
            clear_pool(self.I, int(self.I[word]), largest)

    @property
    def staleness(self) -> Ints:
        """How many gradients were how many updates late, by layer of the plan: int64 [layers, STALENESS_BINS], a view."""
        count = len(self.plan.layers)
        bins: Ints = self.I[self._histograms : self._histograms + count * STALENESS_BINS].reshape(count, STALENESS_BINS)
        return bins

    def in_flight(self, admitted: Ints) -> InFlight:
        """Return what the last pass measured; `admitted` are the instances that entered."""
        sizes = self.size_bytes[self.extents.shapes.of[admitted]] if len(admitted) else np.zeros(1)
        number = int(self.I[self.I[H.VALUES0] + M.FLIGHT])
        pools = [int(self.I[word]) for word in (H.VALUES0, H.COUNTS0)]
        peak, high = (LINE_BYTES * sum(lines) for lines in ([int(self.I[p + M.PEAK]) for p in pools], [stretch(self.I, p) for p in pools]))
        return InFlight(float(sizes.mean()), int(sizes.max()), number, peak, high)

    def limit(self, segment: int, most: int) -> None:
        """Let a firing of `segment` take at most so many messages; 0 is as many as its buffers hold."""
        record = self.I[H.SEG0] + segment * SEG + S.TAKE
        self.I[record] = min(self.take[segment], most) if most else self.take[segment]

    # ------------------------------------------------------------------------------------------------ tables

    def _rooms(self) -> _Rooms:
        table = _Table(FIRST_CELL + len(self.program.cells))
        head: dict[H, int] = {}
        segments, queues = len(self.plan.segments), 2 * len(self.plan.segments)
        head[H.SEG0] = table.room(segments * SEG)
        head[H.LAYER0] = table.room(max(1, len(self.plan.layers)) * LAYER)
        head[H.QUEUE0] = table.room(queues * QUEUE)
        pairs = 1 if self.virtual else self.workers * self.workers
        head[H.RING0] = table.room(pairs * RING)
        head[H.FOLD0] = table.room(max(1, len(self.folds)) * FOLD)
        head[H.COHORT0] = table.room(2 * self.cohorts)
        head[H.LOAD0] = table.room(self.copies)
        head[H.ORDER0] = table.room(2 * max(1, self.data.n))
        head[H.BREAKS0] = table.room(max(1, self.data.n))
        head[H.SLOT0] = table.room(self.slots * SLOT)
        head[H.VALUES0], head[H.COUNTS0] = (table.room(pool_words(self.cohorts, self.copies)) for _ in range(2))
        head[H.SHAPE0] = table.room(max(1, self.data.n))
        layouts = table.room(self.layouts.size)
        counters = table.room(self.counts * WORDS)
        head[H.WORK0] = table.room(self.work_room * (1 if self.virtual else self.workers))
        head[H.KERNEL0] = table.room(2 * queues)
        self.box = table.room(B.END) if self.program.alone else 0
        """Where a worker may share products with another thread,"""
        weights = [p.shape for name in self.plan.layers for p in self.graph.layer[name].params if p.name == "w"]
        self.panels = table.room(packing.words(weights)) if self.program.alone else 0
        """and where it may find which weights lie in panels."""
        numbers = [table.room(len(f.numbers)) for f in self.program.functions]
        lists = {s.id: table.room(max(1, len(s.layers))) for s in self.plan.segments}
        histograms = table.room(len(self.plan.layers) * STALENESS_BINS)
        marks = {name: table.room(2 + 2 * m.rows) if m.sparse else 0 for name, m in self.layers.items()}
        tokens = {s.id: _power_of_two(self.extents.shapes.most_of(self.domain[s.id], self.slots)) for s in self.plan.segments}
        sizes = [8 if self.program.alone and q & 1 and q > 1 else tokens[q // 2] for q in range(queues)]
        buffers = [(table.room(n), n) for n in sizes]
        ring = _power_of_two(self.live) if self.workers > 1 and not self.virtual else 8
        rings = [table.room(2 * ring) if k // self.workers != k % self.workers else 0 for k in range(pairs)]
        if self.virtual:
            head[H.OUTBOX], head[H.OUTBOX_ROOM] = table.room(1 + 3 * self.live), self.live
        return _Rooms(head, layouts, counters, numbers, lists, histograms, marks, buffers, rings, ring, table.size)

    def _integers(self, rooms: _Rooms) -> Ints:
        I = zeros(rooms.size, np.int64)  # the name it has in kernels
        head = rooms.head | {
            H.WORKERS: self.workers, H.THREADS: min(self.workers, usable_cores()), H.SLOTS: self.slots, H.GROUP: self.group,
            H.COHORTS: self.cohorts, H.COPIES: self.copies,
            H.WORK_STRIDE: self.work_stride, H.SCRATCH0: self.scratch0, H.SCRATCH_STRIDE: self.scratch_stride, H.CAP: TOKENS,
            H.SEGMENTS: len(self.plan.segments), H.LAYERS: len(self.plan.layers), H.FOLDS: len(self.folds),
        }  # fmt: skip
        for word, value in head.items():
            I[word] = value
        for index, value in self.cells.items():
            I[index] = value
        for f, start in zip(self.program.functions, rooms.numbers):
            I[head[H.KERNEL0] + 2 * f.queue : head[H.KERNEL0] + 2 * f.queue + 2] = self.addresses[f.queue], start
            I[start : start + len(f.numbers)] = f.numbers
        for pool, lines, start in ((H.VALUES0, self.values, self.arena0), (H.COUNTS0, self.counts, rooms.counters)):
            I[head[pool] + M.LINES], I[head[pool] + M.START] = lines, start
        I[rooms.layouts : rooms.layouts + self.layouts.size] = self.layouts.reshape(-1)
        I[head[H.SHAPE0] : head[H.SHAPE0] + self.data.n] = rooms.layouts + self.extents.shapes.of * self.layouts.shape[1]
        for k, buffer in enumerate(rooms.rings):
            c = head[H.RING0] + k * RING
            I[c + R.BUFFER], I[c + R.MASK] = buffer, rooms.ring - 1
        self._half_places(I, head[H.WORK0])
        numbers = {name: k for k, name in enumerate(self.plan.layers)}
        self._segment_records(I, rooms, numbers)
        self._layer_records(I, rooms)
        self._fold_records(I, head[H.FOLD0], numbers)
        return I

    def _segment_records(self, I: Ints, rooms: _Rooms, numbers: dict[str, int]) -> None:
        for s in self.plan.segments:
            record = rooms.head[H.SEG0] + s.id * SEG
            need = sum(1 for node, port in s.triggers if not (isinstance(self.graph.by_id[node], Group) and port == 0))
            I[record + S.OWNER] = self.owner_of[s.id]
            I[record + S.NEED] = need
            I[record + S.TAKE] = self.take[s.id]
            I[record + S.WIDTH] = width(s, self.program.alone)
            I[record + S.COUNTED] = int(need > 1 or bool(s.groups))
            I[record + S.LAYERS_FROM], I[record + S.LAYERS_N] = rooms.lists[s.id], len(s.layers)
            for k, name in enumerate(s.layers):
                I[rooms.lists[s.id] + k] = numbers[name]
            for q in (2 * s.id, 2 * s.id + 1):
                c = rooms.head[H.QUEUE0] + q * QUEUE
                I[c + Q.BUFFER], I[c + Q.MASK] = rooms.buffers[q][0], rooms.buffers[q][1] - 1
                I[c + Q.ROWS] = self.rows[s.id]

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

    def _layer_records(self, I: Ints, rooms: _Rooms) -> None:
        for name, m in self.layers.items():
            for param, at in m.offsets.items():
                for what, start in (("par", m.param), ("grad", m.grad)):
                    cell = self.program.cells.get((what, name, param))
                    if cell is not None:
                        I[cell] = start + at
            cell = self.program.cells.get(("marks", name))
            if cell is not None:
                I[cell] = rooms.marks[name]
            if m.sparse:
                I[rooms.marks[name] + 1] = m.rows
        for k, name in enumerate(self.plan.layers):
            m = self.layers[name]
            record = rooms.head[H.LAYER0] + k * LAYER
            user = next(s for s in self.plan.segments if name in s.layers)
            I[record + L.OWNER] = self.owner_of[user.id]
            I[record + L.PARAM], I[record + L.SIZE], I[record + L.GRAD] = m.param, m.size, m.grad
            I[record + L.MOMENT1], I[record + L.MOMENT2] = m.moment1, m.moment2
            I[record + L.HALF] = m.half
            I[record + L.STASH], I[record + L.STASH_DEPTH] = m.stash, m.stash_depth
            I[record + L.HISTOGRAM] = rooms.histograms + k * STALENESS_BINS
            I[record + L.MARKS], I[record + L.COLS] = rooms.marks[name], m.cols
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
            I[record + T.PRODUCT], I[record + T.GRAD_PRODUCT] = product, product + aligned(fold.rows * fold.cols) + 16
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
