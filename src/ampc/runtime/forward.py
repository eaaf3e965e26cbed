"""Passes that don't train: predictions, losses and metrics, on the parameters of the engine that trains.

Weights are only read, so every worker has the whole program for instances of its own: the graph has an arm for each, and all arms have one memory
of a layer's parameters. Nothing is kept for a way back, and nobody answers: an instance retires when no message of it is left (`tokens.outstanding`).
"""

from __future__ import annotations

import dataclasses
import time

from ampc.codegen.kernels import Program
from ampc.data.dataset import Dataset
from ampc.diagnostics import AmpError
from ampc.ir.arms import arm_of, whole
from ampc.ir.copies import copy_name, uncopied
from ampc.ir.graph import Graph
from ampc.place.assign import Placement
from ampc.runtime.binding import LayerMemory
from ampc.runtime.engine import Engine
from ampc.runtime.options import EngineOptions
from ampc.runtime.runner import Runner, generated_for

TOO_MANY = frozenset({"AMP731", "AMP733"})
"""Codes of more instances in flight than there is room for."""


class ForwardEngine(Runner):
    """Runs the program of an engine forward, in the memory of that engine. Copies of a layer count as one: the first has the parameters.

    Each worker has `max_active_keys` instances in flight, where there is room for so many; if not, all together.
    """

    def __init__(self, of: Engine) -> None:
        started = time.perf_counter()
        graph, device_of, program = generated_alone(of.graph, of.options)
        layers = {name: dataclasses.replace(_memory_of(of, name), name=name, stash=0, stash_depth=0) for name in program.plan.layers}
        owner_of = {s.id: device_of.get(s.nodes[0].id, 0) for s in program.plan.segments}
        super().__init__(graph, forward_options(of.options), program, owner_of, layers, of.memory, of.persistent, of.devices)
        self.compile_seconds = time.perf_counter() - started

    def bind(self, dataset: Dataset) -> None:
        try:
            super().bind(dataset)
        except AmpError as e:
            if self.options.workers == 1 or not {d.code for d in e.diagnostics} & TOO_MANY:
                raise
            fewer = dataclasses.replace(self.options, max_active_keys=self.options.max_active_keys // self.options.workers)
            wanted, self.options = self.options, fewer
            try:
                super().bind(dataset)
            finally:
                self.options = wanted


def generated_alone(graph: Graph, options: EngineOptions) -> tuple[Graph, dict[int, int], Program]:
    """Return what passes that don't train run of a program: the graph, the worker of each node (0 if it isn't listed), the functions."""
    made = whole(graph, options.workers)
    device_of = arm_of(made)
    return made, device_of, generated_for(made, Placement("whole", (), device_of), forward_options(options), alone=True)


def forward_options(options: EngineOptions) -> EngineOptions:
    """Return the settings of passes that don't train, of a run with these."""
    return dataclasses.replace(options, mode="async", staleness="plain", max_active_keys=options.workers * options.max_active_keys)


def _memory_of(engine: Engine, name: str) -> LayerMemory:
    """Return where the parameters of a layer, or of an arm's copy of it, lie in an engine's memory."""
    plain = uncopied(name)
    found = engine.layers.get(plain)
    return engine.layers[copy_name(plain, 0)] if found is None else found


__all__ = ["ForwardEngine", "forward_options", "generated_alone"]
