"""What several tests need: compiled models with small sizes, random instances that fit a model, engines, the interpreter's sums."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ampc.data import read
from ampc.data.dataset import Dataset
from ampc.frontend import check, parse
from ampc.ir.graph import FieldDecl, Graph
from ampc.ir.init import initial_parameters
from ampc.ir.interpret import Interpreter
from ampc.ir.state import instance_of
from ampc.lower import lower
from ampc.passes import run_passes
from ampc.place.assign import Placement
from ampc.runtime.engine import Engine
from ampc.runtime.options import EngineOptions

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"

SMALL: dict[str, dict[str, int]] = {
    "babi15_ggsnn": {"hidden": 4},
    "char_word_rnn": {"hidden": 4, "letters": 6, "tags": 3},
    "child_sum_tree_lstm": {"hidden": 3, "vocabulary": 5},
    "digits_mlp": {"hidden": 6},
    "early_exit_rnn": {"hidden": 4},
    "gat": {"hidden": 4},
    "gated_counter": {"hidden": 4},
    "list_reduction": {"hidden": 5},
    "mixture_of_experts": {"hidden": 4},
    "mnist_mlp": {"hidden": 6},
    "qm9_ggsnn": {"hidden": 6},
    "sentiment_tree_lstm": {"hidden": 4, "vocabulary": 9},
    "seq2seq": {"hidden": 4, "vocabulary": 5, "longest": 4},
    "typed_steps": {"hidden": 4},
}
"""Model -> sizes small enough for the interpreter."""


def graph_of(text: str, passes: bool = True, **overrides: Any) -> Graph:
    """Compile program text."""
    graph = _lowered(text, **overrides)
    return run_passes(graph) if passes else graph


@functools.lru_cache(maxsize=200)
def _lowered(text: str, **overrides: Any) -> Graph:
    model = parse(text, "test.amp")
    check(model)
    return lower(model, overrides)


def model_of(fields: str, body: str, passes: bool = True) -> Graph:
    """Compile a model of declarations (with their indents) and statements (without)."""
    return graph_of("model m():\n    instance:\n" + fields + "".join(f"    {line}\n" for line in body.splitlines()), passes)


def small(name: str, passes: bool = True) -> Graph:
    """Compile a bundled model with small sizes."""
    text = (MODELS / f"{name}.amp").read_text(encoding="utf-8")
    return graph_of(text, passes, **SMALL.get(name, {}))


def model_names() -> list[str]:
    return sorted(p.stem for p in MODELS.glob("*.amp"))


def random_rows(graph: Graph, n: int, seed: int, longest: int = 4) -> list[dict[str, Any]]:
    """Return `n` instances that fit `graph`: axes of 0 to `longest` elements, index fields that make no cycle."""
    rng = np.random.default_rng(seed)
    return [_row(graph, rng, longest) for _ in range(n)]


def _row(graph: Graph, rng: np.random.Generator, longest: int) -> dict[str, Any]:
    ordered = {f for r in graph.regions for f in r.after}
    lengths = {a.name: int(rng.integers(0, longest + 1)) for a in graph.axes if not a.parent}
    # An index that must be there needs something to point at.
    for f in graph.fields:
        if f.kind == "index" and not f.optional and not (f.axis and _parent(graph, f.axis)) and lengths.get(f.of) == 0:
            if f.axis and f.axis != f.of:
                lengths[f.axis] = 0
            else:
                lengths[f.of] = 1
    children: dict[str, list[int]] = {}
    for a in graph.axes:
        if a.parent:
            named = [f for f in graph.fields if f.axis == a.name and f.name in ordered]
            most = [min([3, *(len(_room(f, lengths, p)) for f in named)]) for p in range(lengths[a.parent])]
            children[a.name] = [int(rng.integers(0, n + 1)) for n in most]
            lengths[a.name] = sum(children[a.name])
    row: dict[str, Any] = {}
    for f in graph.fields:
        if not f.axis:
            row[f.name] = _value(f, rng, _room(f, lengths, None))
        elif _parent(graph, f.axis):
            parent = f.axis
            room = [_room(f, lengths, p if f.name in ordered else None) for p in range(len(children[parent]))]
            row[f.name] = [[_value(f, rng, among) for _ in range(k)] for among, k in zip(room, children[parent], strict=True)]
        else:
            row[f.name] = [_value(f, rng, _room(f, lengths, e if f.name in ordered else None)) for e in range(lengths[f.axis])]
    _pair(graph, row)
    return row


def _pair(graph: Graph, row: dict[str, Any]) -> None:
    """Trees name both children or none."""
    names = [f.name for f in graph.fields if f.kind == "index" and f.optional]
    if {"left", "right"} <= set(names):
        for e, left in enumerate(row["left"]):
            if left is None or row["right"][e] is None:
                row["left"][e] = row["right"][e] = None
            if len(row.get("word", ())) == len(row["left"]):
                row["word"][e] = 0 if row["left"][e] is None else None


def _parent(graph: Graph, axis: str) -> str:
    return next(a.parent for a in graph.axes if a.name == axis)


def _room(f: FieldDecl, lengths: dict[str, int], element: int | None) -> range:
    """Return what an index field may name; where a visit waits for it, elements before the one that names them (`up`: behind)."""
    if f.kind != "index":
        return range(0)
    if element is None:
        return range(lengths[f.of])
    return range(element + 1, lengths[f.of]) if f.name == "up" else range(min(element, lengths[f.of]))


def _value(f: FieldDecl, rng: np.random.Generator, room: range) -> Any:
    if f.optional and rng.random() < 0.3:
        return None
    match f.kind:
        case "float":
            x = rng.normal(size=f.columns).astype(np.float32).tolist()
            return x[0] if f.columns == 1 else x
        case "flag":
            return bool(rng.integers(2))
        case "int":
            return int(rng.integers(f.below or 5))
        case "index":
            if not room:
                return None if f.optional else 0
            return room[int(rng.integers(len(room)))]
    raise AssertionError(f.kind)


def dataset(graph: Graph, rows: Sequence[dict[str, Any]]) -> Dataset:
    return read(list(rows), graph)


def spread(graph: Graph, workers: int, seed: int = 0, loose: bool = True) -> Placement:
    """A placement that puts layers on workers at random (each on one), and other nodes anywhere, or (not `loose`) on the first, which compiles faster."""
    rng = np.random.default_rng(seed)
    home = {x.name: int(rng.integers(workers)) for x in graph.layers}
    device_of = {}
    for n in graph.nodes:
        layer = getattr(n, "layer", None)
        if layer is not None:
            family = home.get(layer, home.get(f"{layer}.0", 0))
            device_of[n.id] = family
        else:
            device_of[n.id] = int(rng.integers(workers)) if loose else 0
    return Placement("test", tuple(str(w) for w in range(workers)), device_of)


def shared(graph: Graph) -> Placement:
    """The placement on two workers that compiled tests share: a text that two of them run is compiled once."""
    return spread(graph, 2, seed=7, loose=False)


def engine(graph: Graph, workers: int = 1, seed: int = 0, placement: Placement | None = None, **options: Any) -> Engine:
    placement = placement or spread(graph, workers, seed)
    return Engine(graph, placement, options=EngineOptions(workers=workers, seed=seed, **options), parameters=initial_parameters(graph, seed))


def meaning(graph: Graph, data: Dataset, seed: int = 0) -> tuple[float, dict[str, Any], dict[str, Any]]:
    """Return what the interpreter says of the whole data: (mean loss, metric sums, summed gradients), in float64."""
    interpreter = Interpreter(graph, initial_parameters(graph, seed), np.float64, seed=seed)
    loss, metrics, gradients = 0.0, {}, {}
    for i in range(data.n):
        result = interpreter.run(instance_of(data, graph, i))
        loss += result.loss
        for name, (total, count) in result.metrics.items():
            a, b = metrics.get(name, (0.0, 0.0))
            metrics[name] = (a + total, b + count)
        for name, g in result.gradients.items():
            gradients[name] = gradients.get(name, 0) + g
    return loss / max(1, data.n), metrics, gradients
