"""The compiled engine: parameters, one pass over data by workers, gradients without updates.

Owns the memory that outlives a pass (parameters, moments, update counts). Knows nothing of epochs, files or the command line.
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
from ampc.ir.init import initial_parameters
from ampc.ir.nodes import Output
from ampc.place.assign import Placement
from ampc.runtime import blas, native, worker
from ampc.runtime.averaging import average, copies_of
from ampc.runtime.binding import Binding, LayerMemory, zeros
from ampc.runtime.events import Array, EpochResult, Progress, join_results, shifted
from ampc.runtime.half import rounded
from ampc.runtime.kernels import Loaded, load
from ampc.runtime.options import EngineOptions
from ampc.runtime.recording import Recording
from ampc.runtime.result import UNWRITTEN, layer_records, result_of
from ampc.runtime.stuck import waiting
from ampc.runtime.tokens import QUEUE
from ampc.runtime.trace import Trace, join
from ampc.runtime.watch import PROGRESS_S, STUCK, WATCHDOG_S, Watch

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
SPARSE_ROWS = 1024
"""A table of more rows than this updates only the rows that got a gradient; a smaller one is updated whole."""
STASH_VERSIONS = 16
"""Versions of a layer's parameters that the policy `stash` keeps; an older gradient gets the oldest of them."""
FEW = 4
"""Instances of a pass that one worker runs on the calling thread."""


class Engine:
    """Runs one graph. Not for use by two threads at once.

    placement: which device each node is on; device d is worker d modulo the number of workers.
    parameters: "layer.param" -> array; drawn from the seed if not given. Raises `AmpError` 73x if memory does not suffice.
    """

    def __init__(self, graph: Graph, placement: Placement, *, options: EngineOptions, parameters: dict[str, Array] | None = None) -> None:
        self.graph = graph
        self.options = options
        started = time.perf_counter()
        blas.require(options.precision)
        blas.one_thread_per_call()
        self.program = generated_for(graph, placement, options)
        self.compile_seconds = time.perf_counter() - started
        """Seconds that text and machine code have taken so far."""
        self.plan = self.program.plan
        self.blas = native.PROVIDER
        self._owner_of = {s.id: placement.device_of.get(s.nodes[0].id, 0) % options.workers for s in self.plan.segments}
        self._layers = self._lay_out()
        self._persistent = max((m.moment2 + room_of(m.size) for m in self._layers.values()), default=16)
        if options.precision == "bf16":
            mirror = 2 * self._persistent
            for name, m in self._layers.items():
                if any(p.name == "w" for p in graph.layer[name].params):
                    self._layers[name] = dataclasses.replace(m, half=mirror + m.param)
            self._persistent += room_of(min((m.grad for m in self._layers.values()), default=0)) // 2
        self._folds: list[tuple[Fold, int]] = []
        for fold in self.program.folds:
            self._folds.append((fold, self._persistent))
            self._persistent += 2 * room_of(fold.rows * fold.cols)
        if options.staleness != "plain":
            depth, room = (STASH_VERSIONS, STASH_VERSIONS) if options.staleness == "stash" else (CORRECTED, 2)
            for name, m in self._layers.items():
                if "table" not in m.offsets:  # what looks rows up needs no weights backward
                    self._layers[name] = dataclasses.replace(m, stash=self._persistent, stash_depth=depth)
                    self._persistent += room * room_of(m.size)
        self._memory = Memory(zeros(self._persistent, np.float32))
        self._copies = copies_of(self._layers)
        self._steps = dict.fromkeys(self._layers, 0)
        self._bindings: list[Binding] = []
        self._binding: Binding | None = None
        self._factor = 1.0
        names = placement.devices
        self.devices = names if len(names) == options.workers else tuple(f"worker {w}" for w in range(options.workers))
        self.trace: Trace | None = None
        self.traced = self.plan
        """Of the pass that `trace` is of."""
        self._ran: Engine = self
        """What the last pass ran on: this, or `forward`."""
        self._unused: dict[str, Array] = {}
        self.set_parameters({**initial_parameters(graph, options.seed), **(parameters or {})})

    @functools.cached_property
    def kernels(self) -> Loaded:
        """The program's functions, compiled now or found in the cache: those that train are not compiled where nothing trains."""
        started = time.perf_counter()
        found = load(self.program.functions)
        self.compile_seconds += time.perf_counter() - started
        return found

    @functools.cached_property
    def forward(self) -> Engine:
        """What runs passes that don't train, on the same parameters: this engine in virtual time, else one without a way back."""
        if self.options.driver == "simulate":
            return self
        from ampc.runtime.forward import ForwardEngine

        return ForwardEngine(self)

    @property
    def _F(self) -> Array:
        return self._memory.floats

    def _lay_out(self) -> dict[str, LayerMemory]:
        """Place the parameters of all layers first, so that a bf16 twin of them has one distance to them, then what belongs to each."""
        sizes = {name: sum(int(np.prod(p.shape)) for p in self.graph.layer[name].params) for name in self.plan.layers}
        at, rest, out = 0, sum(map(room_of, sizes.values())), {}
        for name in self.plan.layers:
            layer = self.graph.layer[name]
            offsets, size = {}, 0
            for p in layer.params:
                offsets[p.name] = size
                size += int(np.prod(p.shape))
            table = next((p for p in layer.params if p.name == "table"), None)
            sparse = table is not None and table.shape[0] > SPARSE_ROWS
            room = room_of(size)
            rows, cols = table.shape if table is not None and sparse else (0, 0)
            out[name] = LayerMemory(name, at, rest, rest + room, rest + 2 * room, size, offsets, sparse, rows, cols)
            at, rest = at + room, rest + 3 * room
        return out

    # -------------------------------------------------------------------------------------------- parameters

    def _view(self, layer: str, param: str, start: str = "param") -> Array:
        m = self._layers[layer]
        shape = next(p.shape for p in self.graph.layer[layer].params if p.name == param)
        begin = getattr(m, start) + m.offsets[param]
        return self._F[begin : begin + int(np.prod(shape))].reshape(shape)

    def _names(self) -> list[tuple[str, str]]:
        return [(x.name, p.name) for x in self.graph.layers for p in x.params]

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of all parameters: "layer.param" -> float32 array."""
        return {f"{x}.{p}": (self._view(x, p).copy() if x in self._layers else self._unused[f"{x}.{p}"].copy()) for x, p in self._names()}

    def set_parameters(self, parameters: dict[str, Array]) -> None:
        """Set parameters by name; names and shapes are the caller's to check (`weights`)."""
        for x, p in self._names():
            value = parameters.get(f"{x}.{p}")
            if value is None:
                continue
            if x in self._layers:
                self._view(x, p)[...] = value
            else:
                self._unused[f"{x}.{p}"] = np.array(value, np.float32)

    def optimizer_state(self) -> dict[str, Array]:
        """Moments and update counts of every layer, as arrays by name."""
        out: dict[str, Array] = {}
        for name, m in self._layers.items():
            for which in ("moment1", "moment2"):
                begin = getattr(m, which)
                out[f"{name}.{which}"] = self._F[begin : begin + m.size].copy()
            if m.stash_depth == CORRECTED:
                out[f"{name}.drift"] = self._F[m.stash + m.size : m.stash + 2 * m.size].copy()
            out[f"{name}.step"] = np.array([self._steps[name]], np.int64)
        return out

    def set_optimizer_state(self, state: dict[str, Array]) -> None:
        for name, m in self._layers.items():
            for which in ("moment1", "moment2"):
                if f"{name}.{which}" in state:
                    begin = getattr(m, which)
                    self._F[begin : begin + m.size] = state[f"{name}.{which}"]
            if m.stash_depth == CORRECTED and f"{name}.drift" in state:
                self._F[m.stash + m.size : m.stash + 2 * m.size] = state[f"{name}.drift"]
            if f"{name}.step" in state:
                self._steps[name] = int(state[f"{name}.step"][0])

    @property
    def learning_rate(self) -> float:
        """The base learning rate times the schedule's factor."""
        return self.options.learning_rate * self._factor

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._factor = value / self.options.learning_rate if self.options.learning_rate else 1.0

    # --------------------------------------------------------------------------------------------------- runs

    def bind(self, dataset: Dataset, train: bool = True) -> None:
        """Size arenas and tables for passes over a data set, to train or not; check memory. `run` does this by itself."""
        if not train and self.forward is not self:
            self.forward.bind(dataset)
            self.compile_seconds += self.forward.compile_seconds
            self.forward.compile_seconds = 0.0
            return
        for known in self._bindings:
            if known.data is dataset:
                self._binding = known
                return
        del self._bindings[:-1]  # keep one beside the new one: training and validation take turns
        binding = Binding(self.program, dataset, self.options, self._owner_of, self._layers, self._folds, self._persistent, self.kernels.addresses)
        if binding.floats > self._F.size:
            grown = zeros(binding.floats, np.float32)
            kept = min(self._persistent, self._F.size)  # what `forward` has behind the parameters is made in each pass
            grown[:kept] = self._F[:kept]
            self._memory.floats = grown
        self._bindings.append(binding)
        self._binding = binding

    def run(
        self,
        dataset: Dataset,
        order: npt.NDArray[np.int64],
        *,
        train: bool,
        epoch: int = 0,
        outputs: bool = False,
        measured: bool = True,
        update: bool = True,
        record: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> EpochResult:
        """Pass over the instances `order` once. With `train` gradients are computed, with `update` layers use them; with `record` all that happens
        is written down, and `trace` is then this pass's. `measured` False leaves out losses and metrics of a pass that doesn't train.

        A pass that updates ends by averaging the copies of replicated layers; `average_every` divides it into passes over so many instances.
        Raises `AmpError` 74x (exit 3) if no worker makes progress, 79x (exit 70) for a fault of the engine; ValueError if `order` isn't
        made of different instances of the data set: queues have room for that.
        """
        every = self.options.average_every if train and update and self._copies else 0
        order = np.asarray(order, np.int64)
        if order.size and (order.min() < 0 or order.max() >= dataset.n or np.bincount(order).max() > 1):
            raise ValueError(f"`order` has to name different instances of the {dataset.n} of the data set")
        if not 0 < every < len(order):
            self._ran = self if train else self.forward
            self.bind(dataset, train)
            result = self._ran._pass(dataset, order, train, epoch, outputs, update, record, on_progress, stop, measured)
            if record:
                self.trace, self.traced = self._ran.trace, self._ran.plan
            if train and update:
                self._average()
            return result
        self._ran, self.traced = self, self.plan
        parts: list[EpochResult] = []
        traces: list[tuple[float, Trace]] = []
        began = time.perf_counter()
        while (start := len(parts) * every) < len(order):
            if parts and (parts[-1].interrupted or (stop is not None and stop())):
                break
            shown = None if on_progress is None else shifted(on_progress, parts, len(order))
            offset = time.perf_counter() - began
            parts.append(self._pass(dataset, order[start : start + every], train, epoch, outputs, update, record, shown, stop))
            if self.trace is not None and record:
                traces.append((offset, self.trace))
            self._average()
        if traces:
            self.trace = join(traces)
        return join_results(parts, order, every)

    def _average(self) -> None:
        """Give every copy of a replicated layer the mean of all; moments and what an instance holds of older versions stay."""
        for copies in self._copies:
            average(self._F, copies)

    def _pass(
        self, dataset: Dataset, order: npt.NDArray[np.int64], train: bool, epoch: int, outputs: bool, update: bool, record: bool,
        on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None, measured: bool = True,
    ) -> EpochResult:  # fmt: skip
        """Admit `order`, drain, flush what the accumulators hold."""
        self.bind(dataset)
        binding = self._binding
        assert binding is not None
        recording = Recording(binding, order) if record and not binding.virtual else None
        self._prepare(binding, order, train, update, epoch)
        binding.I[H.MEASURE] = int(measured)
        places, size = binding.outputs() if outputs else ({}, 0)
        O = np.full(max(1, size), UNWRITTEN, np.uint32).view(np.float32)  # the name it has in kernels
        for node in self.graph.nodes:
            if isinstance(node, Output) and ("out", node.id) in self.program.cells:
                binding.I[self.program.cells[("out", node.id)]] = places[node.id][0] if outputs else -1
        if recording is not None:
            recording.begin()
        began = time.perf_counter()
        try:
            self._drive(binding, O, on_progress, stop, began)
            if train and self.options.mode == "async":
                with _quiet():
                    worker.run(self._F, binding.I, binding.D, binding.XF, binding.XI, O, worker.FLUSH)
            seconds = self._elapsed(began)
            if recording is not None:
                self.trace = recording.trace(self.options.driver, self.devices)
        finally:
            if recording is not None:
                recording.end()
        self._steps.update(zip(self.plan.layers, layer_records(binding)[:, L.STEP].tolist(), strict=True))
        return result_of(binding, O, places, order, seconds, train)

    def _elapsed(self, began: float) -> float:
        """Return the seconds of a pass that began at `began`; an engine with a clock of its own has others."""
        return time.perf_counter() - began

    def gradients(self, dataset: Dataset, order: npt.NDArray[np.int64]) -> dict[str, Array]:
        """Return the gradient of the summed loss over the instances `order`, without an update: "layer.param" -> float32 array."""
        for m in self._layers.values():
            self._F[m.grad : m.grad + m.size] = 0
        self.run(dataset, order, train=True, update=False)
        out = {}
        for x, p in self._names():
            out[f"{x}.{p}"] = self._view(x, p, "grad").copy() if x in self._layers else np.zeros_like(self._unused[f"{x}.{p}"])
        for m in self._layers.values():
            self._F[m.grad : m.grad + m.size] = 0
        return out

    def _prepare(self, b: Binding, order: npt.NDArray[np.int64], train: bool, update: bool, epoch: int) -> None:
        I, D, o = b.I, b.D, self.options
        order, breaks = _grouped(order, b, o)
        n = len(order)
        for word in (H.STOP, H.ERROR, H.HALT, H.DONE, H.ADMITTED, H.ACKS, H.NONFINITE, H.NONFINITE_COUNT, H.IN_BATCH):
            I[word] = 0
        I[H.TRAIN], I[H.UPDATE], I[H.SYNC] = int(train), int(train and update), int(train and o.mode == "sync")
        I[H.BY_LOAD] = int(o.mode == "async" and o.driver != "simulate")  # a synchronous batch is dealt equally, and so deals the simulator
        I[H.BATCH], I[H.TOTAL], I[H.EPOCH], I[H.SEED] = o.min_update_frequency, n, epoch, o.seed
        I[H.SCHEDULE], I[H.RANDOM] = int(o.driver == "step"), (o.seed * 0x9E3779B97F4A7C15 + epoch * 0xBF58476D1CE4E5B9 + 0x2545F491) % (1 << 62) | 1
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
        for m in self._layers.values():
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

    def firings(self) -> list[tuple[str, int, int]]:
        """Of the last pass: (what, firings, tokens) of each queue; tokens by firings is how well the queue batched."""
        b = self._ran._binding
        if b is None:
            return []
        out = []
        for s in self._ran.plan.segments:
            for q, direction in ((2 * s.id, "forward"), (2 * s.id + 1, "backward")):
                control = b.I[H.QUEUE0] + q * QUEUE
                out.append((f"{s.id} {direction} {s.title}", int(b.I[control + Q.FIRED]), int(b.I[control + Q.TAKEN])))
        return out

    @functools.cached_property
    def _settings_of_layers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """By layer of the plan: the number of its optimizer, int64 [layers], and its settings, float64 [layers, HYPER]."""
        values = [self.settings(name) for name in self.plan.layers]
        hypers = np.zeros((len(values), HYPER))
        for column, setting in _HYPERS.items():
            hypers[:, column] = [v[setting] for v in values]
        return np.array([OPTIMIZERS.index(v["optimizer"]) for v in values], np.int64), hypers

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
        alone = self.options.workers == 1 and int(b.I[H.TOTAL]) <= FEW  # they are done before a thread would have started
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


class Memory:
    """Holds F, so that it grows for all engines that share its parameters."""

    def __init__(self, floats: Array) -> None:
        self.floats = floats


_HYPERS: dict[int, str] = {
    P.FREQUENCY: "min_update_frequency", P.RATE: "learning_rate", P.MOMENTUM: "momentum", P.BETA1: "beta1", P.BETA2: "beta2", P.EPSILON: "epsilon",
    P.DECAY: "weight_decay", P.L2: "l2", P.CLIP_NORM: "clip_norm", P.CLIP_VALUE: "clip_value",
}  # fmt: skip


def _quiet() -> np.errstate:
    """Kernels look for what is not finite; run as plain Python they would warn on the way, which compiled code does not."""
    return np.errstate(all="ignore")


def room_of(size: int) -> int:
    """Return the floats that so many take: whole cache lines, and some more."""
    return (size + 31) // 16 * 16


def _grouped(order: npt.NDArray[np.int64], b: Binding, options: EngineOptions) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
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
