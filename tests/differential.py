"""Compares the engine with the interpreter in float64 on any graph: loss, metrics, outputs, gradients, whatever placement and schedule.

Programs whose numbers float32 cannot carry (a computed branch on the edge, a tie, an overflow) are told by the interpreter itself in
float32 and left out; nothing else is.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from support import dataset, engine

from ampc.data.dataset import Dataset
from ampc.ir.graph import Graph
from ampc.ir.interpret import Interpreter
from ampc.ir.nodes import Metric
from ampc.ir.ops import metric_value
from ampc.ir.state import instance_of
from ampc.runtime.engine import Engine

Array = np.ndarray[Any, Any]


@dataclasses.dataclass
class Numbers:
    """The mean loss of a training pass and of a forward pass, each metric's value and each instance's outputs (forward), the summed gradients."""

    training: float
    loss: float
    metrics: dict[str, float | None]
    gradients: dict[str, Array]
    outputs: list[dict[str, Array]]


def parameters(graph: Graph, seed: int, scale: float = 0.5) -> dict[str, Array]:
    """Random parameters, biases too, so that nothing is zero by chance; a parameter depends on its name and the seed alone."""

    def draw(name: str, shape: tuple[int, ...]) -> Array:
        return (np.random.default_rng([seed, zlib.crc32(name.encode())]).normal(size=shape) * scale).astype(np.float32)

    return {name: draw(name, p.shape) for x in graph.layers for p in x.params for name in [f"{x.name}.{p.name}"]}


def interpreted(graph: Graph, data: Dataset, params: Mapping[str, Array], dtype: Any = np.float64, seed: int = 0, schedule: int | None = None) -> Numbers:
    """What the interpreter gives; instances are numbered by their place in the data."""
    interpreter = Interpreter(graph, params, dtype, seed=seed, schedule=schedule)
    draws = any(getattr(n, "op", "") == "dropout" for n in graph.nodes)
    training, loss, sums = 0.0, 0.0, {}
    gradients = {name: np.zeros(value.shape) for name, value in params.items()}
    outputs = []
    for i in range(data.n):
        trained = interpreter.run(instance_of(data, graph, i))
        forward = interpreter.run(instance_of(data, graph, i), train=False) if draws else trained
        training += trained.loss
        loss += forward.loss
        for name, (total, count) in forward.metrics.items():
            a, b = sums.get(name, (0.0, 0.0))
            sums[name] = (a + total, b + count)
        for name, g in trained.gradients.items():
            gradients[name] = gradients[name] + g
        rows = {name: np.concatenate([rows for _, rows in found]) for name, found in forward.outputs.items() if found}
        outputs.append({name: values for name, values in rows.items() if len(values)})
    found = [n for n in graph.nodes if isinstance(n, Metric)]
    # Two metrics of one operation are told apart by the engine, added up by the interpreter.
    ops = {n.name or n.op: n.op for n in found if [m.op for m in found].count(n.op) == 1}
    metrics = {name: metric_value(ops[name], *sums.get(name, (0.0, 0.0))) for name in ops}
    n = max(1, data.n)
    return Numbers(training / n, loss / n, metrics, gradients, outputs)


def executed(e: Engine, data: Dataset, order: Array | None = None) -> Numbers:
    """What an engine gives: gradients in a pass that changes nothing, the rest in a forward pass; the training loss is that of one more pass."""
    order = np.arange(data.n) if order is None else order
    before = e.parameters
    gradients = e.gradients(data, order)
    training = e.run(data, order[::-1], train=True, update=False).loss
    result = e.run(data, np.arange(data.n), train=False, outputs=True)
    assert all(np.array_equal(value, before[name]) for name, value in e.parameters.items()), "a pass without updates changed a parameter"
    outputs = [{name: values[i] for name, values in result.outputs.items() if len(values[i])} for i in range(data.n)]
    assert result.instances == data.n
    return Numbers(training, result.loss, dict(result.metrics), gradients, outputs)


def difference(got: Numbers, want: Numbers, floor: float = 1e-2) -> tuple[float, str]:
    """Return the largest relative difference and where it is.

    Each array is measured against its own largest entry, or `floor` where that is smaller; a gradient against a hundredth of the largest
    of all gradients at least, since what cancels in one parameter is rounded at the size of the terms.
    """
    worst, where = 0.0, ""

    def look(a: Any, b: Any, name: str, floor: float) -> None:
        nonlocal worst, where
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape:
            worst, where = float("inf"), f"{name}: shape {a.shape} for {b.shape}"
            return
        if not a.size:
            return
        scale = max(floor, float(np.abs(b).max()))
        d = np.abs(a - b).max() / scale
        d = float("inf") if np.isnan(d) else float(d)
        if d > worst:
            worst, where = d, f"{name}: {a.ravel()[:6]} for {b.ravel()[:6]}"

    look(got.training, want.training, "training loss", floor)
    look(got.loss, want.loss, "loss", floor)
    for name, value in want.metrics.items():
        found = got.metrics.get(name)
        if (value is None) != (found is None):
            return float("inf"), f"metric {name}: {found} for {value}"
        if value is not None:
            look(found, value, name, floor)
    largest = max((float(np.abs(g).max()) for g in want.gradients.values() if g.size), default=0.0)
    for name, g in want.gradients.items():
        look(got.gradients[name], g, f"gradient of {name}", max(floor, 1e-2 * largest))
    for i, (a, b) in enumerate(zip(got.outputs, want.outputs, strict=True)):
        if a.keys() != b.keys():
            return float("inf"), f"outputs of instance {i}: {sorted(a)} for {sorted(b)}"
        for name in b:
            look(a[name], b[name], f"output {name} of instance {i}", floor)
    return worst, where


def well_conditioned(graph: Graph, data: Dataset, params: Mapping[str, Array], want: Numbers, seed: int = 0) -> bool:
    """Say whether float32 arithmetic, in two orders and with parameters that differ in the last bits, gives the same numbers."""
    near = {name: value * np.float32(1 + 3e-6) for name, value in params.items()}
    return all(difference(interpreted(graph, data, p, np.float32, seed, s), want)[0] < 3e-4 for p, s in ((params, None), (near, 1)))


def compare(
    graph: Graph, rows: Sequence[dict[str, Any]] | Dataset, runs: Sequence[dict[str, Any]], seed: int = 0, tolerance: float = 1e-3, floor: float = 1e-2,
) -> str | None:
    """Run the engine under each of the options `runs`; return what differs (None: nothing, "ill": the program is ill-conditioned).

    Parameters and the order of the instances follow `seed`, masks of dropout the seed in a run's options.
    """
    data = rows if isinstance(rows, Dataset) else dataset(graph, rows)
    params = parameters(graph, seed)
    masks = any(getattr(n, "op", "") == "dropout" for n in graph.nodes)
    wanted: dict[int, Numbers] = {}
    for k, run in enumerate(runs):
        options = {"seed": seed, **run}
        mask = options["seed"] if masks else 0
        if mask not in wanted:
            wanted[mask] = interpreted(graph, data, params, seed=mask)
        want = wanted[mask]
        if not np.isfinite(want.loss + want.training):
            return "ill"
        e = engine(graph, options.pop("workers", 1), options.pop("seed"), **options)
        e.set_parameters(dict(params))
        got = executed(e, data, np.random.default_rng([seed, k]).permutation(data.n))
        worst, where = difference(got, want, floor)
        if worst > tolerance:
            return f"{worst:.3g} at {where} under {run}" if well_conditioned(graph, data, params, want, mask) else "ill"
    return None
