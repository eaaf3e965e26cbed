"""Graphs that are only an `instance:` block, and random data for any graph, for tests of the data layer and of what reads it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from ampc.data import Dataset, read
from ampc.ir.graph import AxisDecl, FieldDecl, Graph

CASES = Path(__file__).parent / "cases"


def instance(*fields: FieldDecl, axes: str = "") -> Graph:
    """A graph with these fields; `axes` is "node, child[node]"."""
    declared = [a.strip() for a in axes.split(",") if a.strip()]
    return Graph("m", tuple(AxisDecl(a.partition("[")[0], a.partition("[")[2].rstrip("]")) for a in declared), fields, (), (), ())


F = FieldDecl
Q = instance(F("x", "float", "token"), F("y", "float"), axes="token")
EDGES = (F("source", "index", "edge", of="node"), F("target", "index", "edge", of="node"))
G = instance(F("x", "float", "node"), *EDGES, F("y", "float"), axes="node, edge")
GN = instance(F("x", "float", "node"), *EDGES, F("t", "float", "node"), axes="node, edge")
T = instance(
    F("v", "float", "node"),
    F("left", "index", "node", of="node", optional=True),
    F("right", "index", "node", of="node", optional=True),
    F("t", "float", "node"),
    axes="node",
)
K = instance(F("v", "float", "node"), F("kid", "index", "child", of="node"), F("t", "float", "node"), axes="node, child[node]")
LR = instance(F("symbol", "int", "token", below=14), F("label", "int", below=10), axes="token")
WIDE = instance(F("f", "float", "node", columns=2), F("y", "float"), axes="node")
MOLECULE = instance(
    F("feature", "float", "atom", columns=2),
    F("source", "index", "bond", of="atom"),
    F("target", "index", "bond", of="atom"),
    F("kind", "int", "bond", below=4),
    F("dipole", "float"),
    axes="atom, bond",
)


def random_rows(graph: Graph, n: int, seed: int = 0, longest: int = 5) -> list[dict[str, Any]]:
    """Return `n` valid rows for any graph's fields, lengths 0..`longest`.

    Index fields over their own axis point to smaller positions, so that any `visit` over them ends; those that may be none are none together
    (a leaf), and other fields over the same axis that may be none have a value just there.
    """
    rng = np.random.default_rng(seed)
    parents = {a.name: a.parent for a in graph.axes}
    return [_row(graph, parents, rng, longest) for _ in range(n)]


def _row(graph: Graph, parents: dict[str, str], rng: np.random.Generator, longest: int) -> dict[str, Any]:
    lengths: dict[str, list[int]] = {"": [1]}
    waits = {f.axis for f in graph.fields if f.kind == "index" and not f.optional and _reaches(f.axis, f.of, parents)}
    pending = [a.name for a in graph.axes]
    while pending:
        axis = pending.pop(0)
        if parents[axis] not in lengths:
            pending.append(axis)
            continue
        counts = [int(rng.integers(0, longest + 1)) for _ in range(sum(lengths[parents[axis]]))]
        if axis in waits:  # the first element has nothing before it to wait for
            firsts = set(np.cumsum([0, *lengths[parents[axis]]])[:-1].tolist()) if parents[axis] else {0}
            counts = [0 if i in firsts else c for i, c in enumerate(counts)]
        lengths[axis] = counts
    need = {f.of for f in graph.fields if f.kind == "index" and not f.optional and f.axis != f.of and f.axis not in waits}
    for axis in need:
        if axis in lengths and sum(lengths[axis]) == 0:
            lengths |= {f.axis: [0] * len(lengths[f.axis]) for f in graph.fields if f.kind == "index" and f.of == axis and f.axis}
    leaves = {a: rng.random(sum(lengths[a])) < 0.5 for a in lengths}
    return {f.name: _nested(_values(f, sum(lengths[f.axis]), lengths, leaves, parents, rng), f.axis, lengths, parents) for f in graph.fields}


def _reaches(axis: str, of: str, parents: dict[str, str]) -> bool:
    while axis:
        if axis == of:
            return True
        axis = parents[axis]
    return False


def _values(
    f: FieldDecl, n: int, lengths: dict[str, list[int]], leaves: dict[str, Any], parents: dict[str, str], rng: np.random.Generator
) -> list[Any]:
    out: list[Any] = []
    owners = np.repeat(np.arange(len(lengths[f.axis])), lengths[f.axis]) if f.axis else np.zeros(1, int)
    for i in range(n):
        at = int(owners[i]) if parents.get(f.axis) == f.of else i
        size = at if f.kind == "index" and _reaches(f.axis, f.of, parents) else sum(lengths.get(f.of, [0]))
        none = f.optional and (bool(leaves[f.axis][i]) if f.kind == "index" else not leaves[f.axis][i])
        if none or (f.kind == "index" and f.optional and size == 0):
            out.append(None)
        elif f.kind == "float":
            numbers = rng.normal(size=f.columns).astype(np.float32).tolist()
            out.append(numbers if f.columns > 1 else numbers[0])
        elif f.kind == "flag":
            out.append(bool(rng.integers(2)))
        else:
            out.append(int(rng.integers(0, size if f.kind == "index" else f.below or 100)))
    return out


def _nested(values: list[Any], axis: str, lengths: dict[str, list[int]], parents: dict[str, str]) -> Any:
    while axis:
        bounds = np.cumsum([0, *lengths[axis]])
        values = [values[a:b] for a, b in itertools.pairwise(bounds)]
        axis = parents[axis]
    return values[0]


def random_dataset(graph: Graph, n: int, seed: int = 0, longest: int = 5) -> Dataset:
    """Return `random_rows` as a checked dataset."""
    return read(random_rows(graph, n, seed, longest), graph)
