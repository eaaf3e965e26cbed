"""The compiled engine: parameters, passes over data that train or don't, gradients without updates.

Owns the memory that outlives a pass (parameters, moments, update counts). Knows nothing of epochs, files or the command line.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ampc.codegen.kernels import Program
from ampc.codegen.layout import CORRECTED
from ampc.data.dataset import Dataset
from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.place.assign import Placement
from ampc.runtime import blas
from ampc.runtime.averaging import average, copies_of
from ampc.runtime.binding import LayerMemory, zeros
from ampc.runtime.events import Array, EpochResult, Progress, join_results, shifted
from ampc.runtime.options import EngineOptions
from ampc.runtime.runner import Memory, Pass, Runner, generated_for, room_of
from ampc.runtime.trace import Trace, join

SPARSE_ROWS = 1024
"""A table of more rows than this updates only the rows that got a gradient; a smaller one is updated whole."""
STASH_VERSIONS = 16
"""Versions of a layer's parameters that the policy `stash` keeps; an older gradient gets the oldest of them."""


class Engine(Runner):
    """Runs one graph. Not for use by two threads at once.

    placement: which device each node is on; device d is worker d modulo the number of workers.
    parameters: "layer.param" -> array; drawn from the seed if not given. Raises `AmpError` 73x if memory does not suffice.
    """

    def __init__(self, graph: Graph, placement: Placement, *, options: EngineOptions, parameters: dict[str, Array] | None = None) -> None:
        started = time.perf_counter()
        blas.require(options.precision)
        blas.one_thread_per_call()
        program = generated_for(graph, placement, options)
        layers, persistent = lay_out(graph, program, options)
        owner_of = {s.id: placement.device_of.get(s.nodes[0].id, 0) % options.workers for s in program.plan.segments}
        names = placement.devices
        devices = names if len(names) == options.workers else tuple(f"worker {w}" for w in range(options.workers))
        super().__init__(graph, options, program, owner_of, layers, Memory(zeros(persistent, np.float32)), persistent, devices)
        self.compile_seconds = time.perf_counter() - started
        self._copies = copies_of(layers)
        self._ran: Runner = self
        """What the last pass ran on: this, or `forward`."""
        self._unused: dict[str, Array] = {}
        """Parameters of layers that no node uses."""
        self.set_parameters({**initial_parameters(graph, options.seed), **(parameters or {})})

    @functools.cached_property
    def forward(self) -> Runner:
        """What runs passes that don't train, on the same parameters: this engine in virtual time, else one without a way back."""
        if self.options.driver == "simulate":
            return self
        from ampc.runtime.forward import ForwardEngine

        return ForwardEngine(self)

    # -------------------------------------------------------------------------------------------- parameters

    def _view(self, layer: str, param: str, start: str = "param") -> Array:
        m = self.layers[layer]
        shape = next(p.shape for p in self.graph.layer[layer].params if p.name == param)
        begin = getattr(m, start) + m.offsets[param]
        return self._F[begin : begin + int(np.prod(shape))].reshape(shape)

    def _names(self) -> list[tuple[str, str]]:
        return [(x.name, p.name) for x in self.graph.layers for p in x.params]

    @property
    def parameters(self) -> dict[str, Array]:
        """Copies of all parameters: "layer.param" -> float32 array."""
        return {f"{x}.{p}": (self._view(x, p).copy() if x in self.layers else self._unused[f"{x}.{p}"].copy()) for x, p in self._names()}

    def set_parameters(self, parameters: dict[str, Array]) -> None:
        """Set parameters by name; names and shapes are the caller's to check (`weights`)."""
        for x, p in self._names():
            value = parameters.get(f"{x}.{p}")
            if value is None:
                continue
            if x in self.layers:
                self._view(x, p)[...] = value
            else:
                self._unused[f"{x}.{p}"] = np.array(value, np.float32)

    def optimizer_state(self) -> dict[str, Array]:
        """Moments and update counts of every layer, as arrays by name."""
        out: dict[str, Array] = {}
        for name, m in self.layers.items():
            for which in ("moment1", "moment2"):
                begin = getattr(m, which)
                out[f"{name}.{which}"] = self._F[begin : begin + m.size].copy()
            if m.stash_depth == CORRECTED:
                out[f"{name}.drift"] = self._F[m.stash + m.size : m.stash + 2 * m.size].copy()
            out[f"{name}.step"] = np.array([self._steps[name]], np.int64)
        return out

    def set_optimizer_state(self, state: dict[str, Array]) -> None:
        for name, m in self.layers.items():
            for which in ("moment1", "moment2"):
                if f"{name}.{which}" in state:
                    begin = getattr(m, which)
                    self._F[begin : begin + m.size] = state[f"{name}.{which}"]
            if m.stash_depth == CORRECTED and f"{name}.drift" in state:
                self._F[m.stash + m.size : m.stash + 2 * m.size] = state[f"{name}.drift"]
            if f"{name}.step" in state:
                self._steps[name] = int(state[f"{name}.step"][0])

    # --------------------------------------------------------------------------------------------------- runs

    def bind(self, dataset: Dataset, train: bool = True) -> None:
        """Size arenas and tables for passes over a data set, to train or not; check memory. `run` does this by itself."""
        if not train and self.forward is not self:
            self.forward.bind(dataset)
            self.compile_seconds += self.forward.compile_seconds
            self.forward.compile_seconds = 0.0
            return
        super().bind(dataset)

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
        how = Pass(train, epoch, outputs, measured, update, record, on_progress, stop)
        every = self.options.average_every if train and update and self._copies else 0
        order = np.asarray(order, np.int64)
        if order.size and (order.min() < 0 or order.max() >= dataset.n or np.bincount(order).max() > 1):
            raise ValueError(f"`order` has to name different instances of the {dataset.n} of the data set")
        if not 0 < every < len(order):
            self._ran = self if train else self.forward
            self.bind(dataset, train)
            result = self._ran.pass_over(dataset, order, how)
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
            parts.append(self.pass_over(dataset, order[start : start + every], dataclasses.replace(how, on_progress=shown)))
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

    def gradients(self, dataset: Dataset, order: npt.NDArray[np.int64]) -> dict[str, Array]:
        """Return the gradient of the summed loss over the instances `order`, without an update: "layer.param" -> float32 array."""
        for m in self.layers.values():
            self._F[m.grad : m.grad + m.size] = 0
        self.run(dataset, order, train=True, update=False)
        out = {}
        for x, p in self._names():
            out[f"{x}.{p}"] = self._view(x, p, "grad").copy() if x in self.layers else np.zeros_like(self._unused[f"{x}.{p}"])
        for m in self.layers.values():
            self._F[m.grad : m.grad + m.size] = 0
        return out

    def firings(self) -> list[tuple[str, int, int]]:
        return super().firings() if self._ran is self else self._ran.firings()


def lay_out(graph: Graph, program: Program, options: EngineOptions) -> tuple[dict[str, LayerMemory], int]:
    """Return where the layers' parameters, gradients and moments lie, and how many floats all of that takes.

    The parameters of all layers come first, so that a bf16 twin of them has one distance to them, then what belongs to each layer.
    """
    sizes = {name: sum(int(np.prod(p.shape)) for p in graph.layer[name].params) for name in program.plan.layers}
    at, end, layers = 0, sum(map(room_of, sizes.values())), {}
    for name in program.plan.layers:
        layer = graph.layer[name]
        offsets, size = {}, 0
        for p in layer.params:
            offsets[p.name] = size
            size += int(np.prod(p.shape))
        table = next((p for p in layer.params if p.name == "table"), None)
        sparse = table is not None and table.shape[0] > SPARSE_ROWS
        room = room_of(size)
        rows, cols = table.shape if table is not None and sparse else (0, 0)
        layers[name] = LayerMemory(name, at, end, end + room, end + 2 * room, size, offsets, sparse, rows, cols)
        at, end = at + room, end + 3 * room
    end = end if layers else 16
    if options.precision == "bf16":
        mirror = 2 * end
        for name, m in layers.items():
            if any(p.name == "w" for p in graph.layer[name].params):
                layers[name] = dataclasses.replace(m, half=mirror + m.param)
        end += room_of(min((m.grad for m in layers.values()), default=0)) // 2
    if options.staleness != "plain":
        depth, room = (STASH_VERSIONS, STASH_VERSIONS) if options.staleness == "stash" else (CORRECTED, 2)
        for name, m in layers.items():
            if "table" not in m.offsets:  # what looks rows up needs no weights backward
                layers[name] = dataclasses.replace(m, stash=end, stash_depth=depth)
                end += room * room_of(m.size)
    return layers, end
