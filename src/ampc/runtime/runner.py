"""One pass over data: a program's functions, bound to the data, run by workers on threads or in a drawn order.

What a pass leaves in the memory that it is given (parameters, moments) outlives it; tables and arenas are a binding's, one for each data set.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.codegen.firing import Fold
from ampc.codegen.kernels import Program, generate
from ampc.codegen.layout import CORRECTED, FOLD, HYPER, LAYER, H, L, P, Q, T
from ampc.data.dataset import Dataset
from ampc.diagnostics import error
from ampc.ir.copies import names_of
from ampc.ir.graph import Graph
from ampc.ir.nodes import Output
from ampc.place.assign import Placement
from ampc.runtime import native, worker
from ampc.runtime.binding import Binding, LayerMemory, zeros
from ampc.runtime.events import Array, EpochResult, Progress
from ampc.runtime.half import rounded
from ampc.runtime.kernels import Loaded, load
from ampc.runtime.options import EngineOptions
from ampc.runtime.recording import Recording
from ampc.runtime.result import UNWRITTEN, layer_records, result_of
from ampc.runtime.stuck import waiting
from ampc.runtime.tokens import QUEUE
from ampc.runtime.trace import Trace
from ampc.runtime.watch import PROGRESS_S, STUCK, WATCHDOG_S, Watch

AT_ONCE = 4
"""Instances of a pass that one worker runs on the calling thread."""
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """What a pass does with its instances: gradients with `train`, which layers use with `update`; outputs are collected; losses and metrics
    `measured` (a pass that trains has both); all that happens is written down with `record`."""

    train: bool
    epoch: int = 0
    outputs: bool = False
    measured: bool = True
    update: bool = True
    record: bool = False
    on_progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] | None = None


class Memory:
    """Holds F, so that it grows for all engines that share its parameters."""

    def __init__(self, floats: Array) -> None:
        self.floats = floats


_HYPERS: dict[int, str] = {
    P.FREQUENCY: "min_update_frequency", P.RATE: "learning_rate", P.MOMENTUM: "momentum", P.BETA1: "beta1", P.BETA2: "beta2", P.EPSILON: "epsilon",
    P.DECAY: "weight_decay", P.L2: "l2", P.CLIP_NORM: "clip_norm", P.CLIP_VALUE: "clip_value",
}  # fmt: skip



class Runner:
    """Runs passes of one program. Not for use by two threads at once.

    owner_of: the worker of each segment. layers: where parameters lie in `memory`, of which the first `persistent` floats are in use.
    """

    def __init__(
        self, graph: Graph, options: EngineOptions, program: Program, owner_of: dict[int, int], layers: dict[str, LayerMemory], memory: Memory,
        persistent: int, devices: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.graph, self.options, self.program, self.plan = graph, options, program, program.plan
        self.layers, self.memory, self.devices = layers, memory, devices
        self.blas = native.PROVIDER
        self.compile_seconds = 0.0
        """Seconds that text and machine code have taken so far."""
        self.trace: Trace | None = None
        """What the last recorded pass did."""
        self.traced = self.plan
        """Of the pass that `trace` is of."""
        self._owner_of = owner_of
        self.persistent = persistent
        self._folds: list[tuple[Fold, int]] = []
        for fold in program.folds:
            self._folds.append((fold, self.persistent))
            self.persistent += 2 * room_of(fold.rows * fold.cols)
        self._steps = dict.fromkeys(layers, 0)
        self._factor = 1.0
        self._bindings: list[Binding] = []
        self._binding: Binding | None = None

    @functools.cached_property
    def kernels(self) -> Loaded:
        """The program's functions, compiled now or found in the cache: those that train are not compiled where nothing trains."""
        started = time.perf_counter()
        found = load(self.program.functions)
        self.compile_seconds += time.perf_counter() - started
        return found

    @property
    def _F(self) -> Array:
        return self.memory.floats

    @property
    def learning_rate(self) -> float:
        """The base learning rate times the schedule's factor."""
        return self.options.learning_rate * self._factor

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._factor = value / self.options.learning_rate if self.options.learning_rate else 1.0

    def bind(self, dataset: Dataset) -> None:
        """Size arenas and tables for passes over a data set; check memory. A pass does this by itself. Raises `AmpError` 73x."""
        for known in self._bindings:
            if known.data is dataset:
                self._binding = known
                return
        del self._bindings[:-1]  # keep one beside the new one: training and validation take turns
        binding = Binding(self.program, dataset, self.options, self._owner_of, self.layers, self._folds, self.persistent, self.kernels.addresses)
        if binding.floats > self._F.size:
            grown = zeros(binding.floats, np.float32)
            kept = min(self.persistent, self._F.size)  # what `forward` has behind the parameters is made in each pass
            grown[:kept] = self._F[:kept]
            self.memory.floats = grown
        self._bindings.append(binding)
        self._binding = binding

    def pass_over(self, dataset: Dataset, order: npt.NDArray[np.int64], how: Pass) -> EpochResult:
        """Admit `order`, drain, flush what the accumulators hold. See `Engine.run`."""
        self.bind(dataset)
        binding = self._binding
        assert binding is not None
        recording = Recording(binding, order) if how.record and not binding.virtual else None
        self._prepare(binding, order, how)
        binding.I[H.MEASURE] = int(how.measured)
        places, size = binding.outputs() if how.outputs else ({}, 0)
        O = np.full(max(1, size), UNWRITTEN, np.uint32).view(np.float32)  # the name it has in kernels
        for node in self.graph.nodes:
            if isinstance(node, Output) and ("out", node.id) in self.program.cells:
                binding.I[self.program.cells[("out", node.id)]] = places[node.id][0] if how.outputs else -1
        if recording is not None:
            recording.begin()
        began = time.perf_counter()
        try:
            self._drive(binding, O, how.on_progress, how.stop, began)
            if how.train and self.options.mode == "async":
                with _quiet():
                    worker.run(self._F, binding.I, binding.D, binding.XF, binding.XI, O, worker.FLUSH)
            seconds = self._elapsed(began)
            if recording is not None:
                self.trace = recording.trace(self.options.driver, self.devices)
        finally:
            if recording is not None:
                recording.end()
        self._steps.update(zip(self.plan.layers, layer_records(binding)[:, L.STEP].tolist(), strict=True))
        return result_of(binding, O, places, order, seconds, how.train)

    def _elapsed(self, began: float) -> float:
        """Return the seconds of a pass that began at `began`; an engine with a clock of its own has others."""
        return time.perf_counter() - began

    def _prepare(self, b: Binding, order: npt.NDArray[np.int64], how: Pass) -> None:
        I, D, o = b.I, b.D, self.options
        order, breaks = grouped(order, b, o)
        n = len(order)
        for word in (H.STOP, H.ERROR, H.HALT, H.DONE, H.ADMITTED, H.ACKS, H.NONFINITE, H.NONFINITE_COUNT, H.IN_BATCH):
            I[word] = 0
        I[H.TRAIN], I[H.UPDATE], I[H.SYNC] = int(how.train), int(how.train and how.update), int(how.train and o.mode == "sync")
        I[H.BY_LOAD] = int(o.mode == "async" and o.driver != "simulate")  # a synchronous batch is dealt equally, and so deals the simulator
        I[H.BATCH], I[H.TOTAL], I[H.EPOCH], I[H.SEED] = o.min_update_frequency, n, how.epoch, o.seed
        I[H.SCHEDULE] = int(o.driver == "step")
        I[H.RANDOM] = (o.seed * 0x9E3779B97F4A7C15 + how.epoch * 0xBF58476D1CE4E5B9 + 0x2545F491) % (1 << 62) | 1
        I[I[H.ORDER0] : I[H.ORDER0] + n] = order
        I[I[H.ORDER0] + n : I[H.ORDER0] + 2 * n] = 0
        I[I[H.BREAKS0] : I[H.BREAKS0] + n] = breaks
        I[I[H.COHORT0] : I[H.COHORT0] + b.cohorts] = 0
        I[I[H.COHORT0] + b.cohorts : I[H.COHORT0] + 2 * b.cohorts] = np.arange(b.cohorts)[::-1]
        I[H.IDLE] = b.cohorts
        b.clear_pools()
        D[: I[H.HYPER0]] = 0
        for k in range(len(self._folds)):
            record = I[H.FOLD0] + k * FOLD
            I[record + T.TABLE_VERSION] = I[record + T.LINEAR_VERSION] = -1
        queues = I[I[H.QUEUE0] : I[H.QUEUE0] + 2 * len(self.plan.segments) * QUEUE].reshape(-1, QUEUE)
        queues[:, Q.FIRED] = queues[:, Q.TAKEN] = 0
        for m in self.layers.values():
            if m.stash_depth == CORRECTED:
                self._F[m.stash : m.stash + m.size] = self._F[m.param : m.param + m.size]
            if m.half:
                self._F.view(np.uint16)[m.half : m.half + m.size] = rounded(self._F[m.param : m.param + m.size])
        count = len(self.plan.layers)
        records = I[I[H.LAYER0] : I[H.LAYER0] + count * LAYER].reshape(count, LAYER)
        hypers = D[I[H.HYPER0] : I[H.HYPER0] + count * HYPER].reshape(count, HYPER)
        records[:, L.VERSION] = records[:, L.UPDATES] = 0
        records[:, L.STEP] = [self._steps[name] for name in self.plan.layers]
        records[:, L.OPTIMIZER], hypers[:] = self._settings_of_layers
        hypers[:, P.RATE] *= self._factor
        b.staleness[:] = 0

    @functools.cached_property
    def _settings_of_layers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """By layer of the plan: the number of its optimizer, int64 [layers], and its settings, float64 [layers, HYPER]."""
        values = [self.settings(name) for name in self.plan.layers]
        hypers = np.zeros((len(values), HYPER))
        for column, setting in _HYPERS.items():
            hypers[:, column] = [v[setting] for v in values]
        return np.array([OPTIMIZERS.index(v["optimizer"]) for v in values], np.int64), hypers

    def firings(self) -> list[tuple[str, int, int]]:
        """Of the last pass: (what, firings, tokens) of each queue; tokens by firings is how well the queue batched."""
        b = self._binding
        if b is None:
            return []
        out = []
        for s in self.plan.segments:
            for q, direction in ((2 * s.id, "forward"), (2 * s.id + 1, "backward")):
                control = b.I[H.QUEUE0] + q * QUEUE
                out.append((f"{s.id} {direction} {s.title}", int(b.I[control + Q.FIRED]), int(b.I[control + Q.TAKEN])))
        return out

    def settings(self, layer: str) -> dict[str, Any]:
        """A layer's settings: its own (a copy's and a part's those of the layer in the source too) where it has some, else the run's."""
        common = {name: getattr(self.options, name) for name in ("optimizer", *_HYPERS.values())}
        given = self.options.per_layer
        own = dict(self.graph.layer[layer].settings)
        for name in names_of(layer) if given else ():
            own |= given.get(name, {})
        own = {k: v for k, v in own.items() if k in common}
        return {**common, **own}

    def _drive(
        self, b: Binding, O: Array, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None, began: float,
    ) -> None:
        arguments = (self._F, b.I, b.D, b.XF, b.XI, O)
        watch = Watch(b, on_progress, stop, began)
        alone = self.options.workers == 1 and int(b.I[H.TOTAL]) <= AT_ONCE  # they are done before a thread would have started
        if self.options.driver == "step" or alone:
            while b.I[H.STOP] == 0 and b.I[H.ERROR] == 0:
                with _quiet():
                    worker.run(*arguments, -self.options.workers)
                watch.look()
        else:
            failures: list[BaseException] = []

            def work(w: int) -> None:
                try:
                    with _quiet():
                        worker.run(*arguments, w)
                except BaseException as problem:
                    failures.append(problem)
                    b.I[H.ERROR] = STUCK

            threads = [threading.Thread(target=work, args=(w,), name=f"ampc thread {w}", daemon=True) for w in range(int(b.I[H.THREADS]))]
            for t in threads:
                t.start()
            try:
                for t in threads:
                    while t.is_alive():
                        t.join(PROGRESS_S if watch.wanted else 0.5)
                        if t.is_alive():
                            watch.look()
            except BaseException:
                b.I[H.ERROR] = STUCK  # leave no thread behind
                for t in threads:
                    t.join()
                raise
            if failures:
                raise failures[0]
        self._check(b)
        watch.last()

    def _check(self, b: Binding) -> None:
        code = int(b.I[H.ERROR])
        if code == 0:
            return
        self._bindings.clear()  # tokens of the broken pass are still in its queues
        if code == STUCK:
            raise error(
                "AMP741", f"no progress for {WATCHDOG_S:.0f} s with {int(b.I[H.ADMITTED] - b.I[H.DONE])} instances in flight",
                notes=waiting(self.plan, b), exit_code=3,
            )  # fmt: skip
        raise error("AMP799", f"internal fault {code} of the engine ({int(b.I[H.ERROR + 1])})", help="please report it, with the model", exit_code=70)


def generated_for(graph: Graph, placement: Placement, options: EngineOptions, alone: bool = False) -> Program:
    """Return the functions with which an engine with these options runs a placed graph; `alone`, without a way back."""
    device_of = {node: device % options.workers for node, device in placement.device_of.items()}
    return generate(graph, device_of, folding=options.staleness == "plain", half=options.precision == "bf16", alone=alone)


def _quiet() -> np.errstate:
    """Kernels look for what is not finite; run as plain Python they would warn on the way, which compiled code does not."""
    return np.errstate(all="ignore")


def room_of(size: int) -> int:
    """Return the floats that so many take: whole cache lines, and some more."""
    return (size + 31) // 16 * 16


def grouped(order: npt.NDArray[np.int64], b: Binding, options: EngineOptions) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (order, 1 where a new group must begin). By length: groups of instances with equal axis lengths, in the order in which they fill."""
    breaks = np.zeros(len(order), np.int64)
    if options.group == 1 or not options.group_by_length or not b.graph.axes:
        return order, breaks
    lengths = np.stack([np.diff(b.data.axes[a.name])[order] for a in b.graph.axes], axis=1)
    filling: dict[bytes, list[int]] = {}
    groups: list[list[int]] = []
    for instance, key in zip(order.tolist(), lengths, strict=True):
        group = filling.setdefault(key.tobytes(), [])
        group.append(instance)
        if len(group) == options.group:
            groups.append(filling.pop(key.tobytes()))
    groups += list(filling.values())
    starts = np.cumsum([0, *(len(g) for g in groups)])[:-1]
    breaks[starts] = 1
    return np.array([i for g in groups for i in g], np.int64), breaks
