"""One simulated run, or a sweep over many: which program, on which target, with which data, under which conditions.

Joins the compiler's products, a session and a simulator; what comes out are rows of plain data.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ampc.data import Dataset
from ampc.diagnostics import AmpError, did_you_mean, error, printable
from ampc.ir.init import initial_parameters
from ampc.manifest import Manifest
from ampc.place import Placement, Precision, Target, place
from ampc.place.factors import NONE, Factors
from ampc.place.target import resized
from ampc.runtime.events import Listener, ignore
from ampc.runtime.options import SETTINGS, EngineOptions, RunOptions, Value, parse_value
from ampc.runtime.program import Program
from ampc.runtime.run_folder import RunFolder
from ampc.runtime.summary import Summary
from ampc.simulate import cost_only as cost_pass
from ampc.simulate.flow import Flow, sampled
from ampc.simulate.report import report
from ampc.simulate.simulator import Conditions, Simulator

CONDITIONS = {"jitter": 10.0, "failures_per_s": 1e6, "repair_s": 1e6}
"""Conditions of a simulation that a sweep may go through, and the largest value of each."""
FREE = ("max_active_keys", "min_update_frequency", "seed", "mode", "precision")
"""Settings of a run that a simulation without numerics looks at."""
ELSEWHERE = {"workers": "the target's devices take part: sweep `devices`", "driver": "the driver is the simulator"}
"""Settings of a run that mean nothing here, and why."""
NO_FIT = ("AMP504", "AMP513", "AMP552")
"""Errors that make a point of a sweep one without figures: this many devices cannot be, or the program does not fit them."""
MAX_POINTS = 4096
TEMPLATES = 64
"""Instances that stand for all of the data where nothing is computed."""
LOADS, LEAST_LOADED = 8, 256
"""Times `max_active_keys` that instances pass to tell the rate of a loaded pipeline, and how many do at least."""


@dataclasses.dataclass(frozen=True)
class Hardware:
    """Where a program is placed and run: the target, the strategy that places it there, what else is simulated."""

    target: Target
    strategy: str
    conditions: Conditions
    at: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Layer -> the device that it has to be on."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A simulated run: what the placement promised, what the last training pass did, what the session says."""

    placement: Placement
    simulator: Simulator
    summary: Summary
    report: dict[str, Any]
    wall_s: float


def run(
    manifest: Manifest, hardware: Hardware, options: RunOptions, training: Dataset, validation: Dataset | None = None, *,
    folder: RunFolder | None = None, inputs: dict[str, Any] | None = None, on_event: Listener = ignore,
) -> Outcome:  # fmt: skip
    """Train in virtual time on `hardware`. Raises AmpError as placement and a run do."""
    began = time.perf_counter()
    placement = placed(manifest, hardware)
    made: list[Simulator] = []

    def make(o: EngineOptions, parameters: Any) -> Simulator:
        made.append(Simulator(manifest.graph, placement, hardware.target, options=o, parameters=parameters, conditions=hardware.conditions))
        return made[-1]

    program = Program(manifest, make_engine=make)
    used = len(set(placement.device_of.values()))
    session = program.session(dataclasses.replace(options, driver="simulate", workers=used), folder=folder, inputs=inputs, on_event=on_event)
    summary = session.train(training, validation)
    simulator = made[-1]
    assert simulator.totals is not None
    stale = {layer: h["mean"] for layer, h in summary.staleness.items()}
    found = report(simulator.totals, simulator.trace, stale)
    return Outcome(placement, simulator, summary, found, time.perf_counter() - began)


def placed(manifest: Manifest, hardware: Hardware, in_flight: int = 0) -> Placement:
    """Return the manifest's own placement where it is on this target by this strategy, else a new one.

    in_flight: instances for whose values devices must have room (0: as many as the program says), where there is such a placement.
    """
    c, graph = hardware.conditions, manifest.graph
    if in_flight and in_flight != graph.train.get("max_active_keys"):
        roomier = msgspec.structs.replace(graph, train={**graph.train, "max_active_keys": in_flight})
        try:
            return place(roomier, hardware.target, hardware.strategy, manifest.statistics, c.precision, hardware.at, c.factors)
        except AmpError as e:
            if any(d.code != "AMP513" for d in e.diagnostics):
                raise
    own = manifest.target == hardware.target and manifest.placement.strategy == hardware.strategy
    if own and not hardware.at and c.precision == manifest.placement.precision and not c.factors:
        return manifest.placement
    return place(graph, hardware.target, hardware.strategy, manifest.statistics, c.precision, hardware.at, c.factors)


def cost_only(
    manifest: Manifest, hardware: Hardware, options: RunOptions, training: Dataset, mode: str = "async", *, templates: int = TEMPLATES,
) -> tuple[Placement, cost_pass.Result, dict[str, Any]]:  # fmt: skip
    """Run as many instances as `training` has without numerics; return (placement, result, report).

    templates: so many instances, drawn from the data, are recorded with fresh weights, and stand for all. mode: as of `cost_only.Settings`.
    Raises AmpError as placement does, and AMP551 to AMP553.
    """
    placement, c = placed(manifest, hardware, options.max_active_keys), hardware.conditions
    flow = _flow(manifest, placement, hardware, options, training, templates)
    settings = cost_pass.Settings(
        options.max_active_keys, mode,  # type: ignore[arg-type]  # checked by it
        options.min_update_frequency, c.jitter, c.failures_per_s, c.repair_s, c.seed, c.events, c.crossings,
    )
    result = cost_pass.simulate(flow, hardware.target, training.n, settings)
    stale = {layer: None if math.isnan(x) else float(x) for layer, x in zip(flow.layers, result.mean_staleness())}
    return placement, result, report(result.totals, result.trace, stale)


def _flow(manifest: Manifest, placement: Placement, hardware: Hardware, options: RunOptions, training: Dataset, templates: int) -> Flow:
    c, graph = hardware.conditions, manifest.graph
    given = {layer: float(own["min_update_frequency"]) for layer, own in options.per_layer.items() if "min_update_frequency" in own}
    frequency = {x.name: float(options.min_update_frequency) for x in graph.layers if "min_update_frequency" not in x.settings} | given
    parameters = initial_parameters(graph, options.seed)
    return sampled(graph, placement, hardware.target, training, parameters, templates, c.seed, frequency, c.precision, c.factors)


def loaded(manifest: Manifest, training: Dataset, factors: Factors = NONE, precision: Precision | None = None) -> tuple[float, int]:
    """Return (instances/s of the program as it is placed, while `max_active_keys` of its instances are in flight, how many these are).

    What waits, how many messages a firing finds and what that costs are in it, the start and the end of a pass are not. Raises AmpError AMP552 and
    AMP553 as `cost_only` does.
    """
    options = Program(manifest).options({})
    hardware = Hardware(manifest.target, manifest.placement.strategy, Conditions(precision or options.precision, factors=factors))
    flow = _flow(manifest, manifest.placement, hardware, options, training, TEMPLATES)
    settings = cost_pass.Settings(options.max_active_keys, "sync" if options.mode == "sync" else "async", options.min_update_frequency)
    result = cost_pass.simulate(flow, manifest.target, max(LEAST_LOADED, LOADS * options.max_active_keys), settings)
    return result.loaded_instances_per_s, result.in_flight


# --------------------------------------------------------------------------------------------------- sweeps


def parse_axis(text: str, parameters: Sequence[str]) -> tuple[str, list[Value]]:
    """Return (name, values) of `NAME=V1,V2,...`; raises AmpError AMP902 for another form, an unknown name or a value that is no number.

    parameters: those of the model. A name is `devices`, one of them, a setting of a run, or a condition of the simulation.
    """
    name, equals, values = (x.strip() for x in text.partition("="))
    known = ["devices", *parameters, *SETTINGS, *CONDITIONS]
    if not equals or not values:
        remedy = "for instance `--sweep devices=1,2,4,8`"
        raise error("AMP902", f"`--sweep {printable(text)}` expects `NAME=VALUE,VALUE,...`", help=remedy, exit_code=2)
    if name not in known:
        remedy = did_you_mean(name, known) or "names are `devices`, the model's parameters, the settings of a run, " + ", ".join(CONDITIONS)
        raise error("AMP902", f"`--sweep` knows no `{printable(name)}`", help=remedy, exit_code=2)
    found = [parse_value(v) for v in values.split(",") if v.strip()]
    for text, v in zip((v.strip() for v in values.split(",") if v.strip()), found):
        wanted = _wanted(name, v, parameters)
        if wanted:
            raise error("AMP902", f"`--sweep {name}=` expects {wanted}, got `{printable(text)}`", exit_code=2)
    return name, found


def _wanted(name: str, value: Value, parameters: Sequence[str]) -> str:
    """Return what an axis of this name expects, "" where the value is that. Settings of a run are checked with the run's."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    if name in CONDITIONS:
        most = CONDITIONS[name]
        return "" if number and 0 <= float(value) <= most else f"numbers from 0 to {most:g}"
    if name in parameters:
        return "" if number or isinstance(value, bool) else "numbers, `true` or `false`"
    if name == "devices":
        return "" if whole else "whole numbers"
    return ""


def points(axes: Sequence[tuple[str, list[Value]]]) -> list[dict[str, Value]]:
    """Return every combination, the last axis fastest. Raises AMP902 for a name that stands twice, or more than 4096 points."""
    names = [name for name, _ in axes]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise error("AMP902", f"`--sweep` gives `{twice}` twice", help="give all its values at once", exit_code=2)
    count = int(np.prod([len(values) for _, values in axes]))
    if count > MAX_POINTS:
        raise error("AMP902", f"the sweep has {count} points, more than {MAX_POINTS}", help="leave values out", exit_code=2)
    return [dict(zip(names, values)) for values in itertools.product(*(values for _, values in axes))]


def sweep(
    axes: Sequence[tuple[str, list[Value]]], compile_with: Callable[[Mapping[str, Value]], Manifest], hardware: Hardware,
    simulate: Callable[[Manifest, Hardware, Mapping[str, Value]], dict[str, Any]],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield one row a point: the point's own values, then what `simulate` returns for it.

    compile_with: gives the program with other values of its parameters. simulate: gets a manifest, the hardware, and settings of the run. What does
    not fit or cannot be placed gives a row with `error` set; all other mistakes are raised.
    """
    parameters = set(compile_with({}).graph.parameters)
    for point in points(axes):
        changed = {k: v for k, v in point.items() if k in parameters}
        settings = {k: v for k, v in point.items() if k not in parameters and k in SETTINGS}
        try:
            yield {**point, **simulate(compile_with(changed), adapted(hardware, point), settings), "error": ""}
        except AmpError as e:
            if not any(d.code in NO_FIT for d in e.diagnostics):
                raise
            yield {**point, "error": e.diagnostics[0].message}


def adapted(hardware: Hardware, point: Mapping[str, Value]) -> Hardware:
    """Return hardware with another number of devices and other conditions, as a point says."""
    target = hardware.target
    if "devices" in point:
        target = resized(target, int(point["devices"]))
    changed: dict[str, Any] = {k: float(v) for k, v in point.items() if k in CONDITIONS}
    changed |= {"seed": int(point["seed"])} if "seed" in point else {}
    return dataclasses.replace(hardware, target=target, conditions=dataclasses.replace(hardware.conditions, **changed))


def row(found: Mapping[str, Any], predicted: float) -> dict[str, Any]:
    """Return the figures of a report that a sweep compares; `predicted`: what the placement allows."""
    busiest = max((x["utilisation"] for x in found["links"]), default=0.0)
    stale = [x for x in found.get("staleness", {}).values() if x is not None]
    return {
        "instances_per_s": found["instances_per_s"], "predicted_instances_per_s": predicted, "bottleneck": found["bottleneck"],
        "mean_utilisation": found["mean_utilisation"], "busiest_device": max((d["utilisation"] for d in found["devices"]), default=0.0),
        "busiest_link": busiest, "largest_staleness": max(stale, default=0.0), "virtual_s": found["seconds"],
    }  # fmt: skip


def first(data: Dataset, instances: int) -> Dataset:
    """Return the first so many instances (0: all)."""
    return data if not 0 < instances < data.n else data.select(np.arange(instances))


__all__ = ["Hardware", "Outcome", "adapted", "cost_only", "first", "loaded", "parse_axis", "placed", "points", "row", "run", "sweep"]
