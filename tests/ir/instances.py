"""Random instances that fit the declarations of any graph, orders of `visit` included."""

from __future__ import annotations

import numpy as np

from ampc.ir import Graph, Instance


def random_instance(graph: Graph, seed: int, longest: int = 4) -> Instance:
    """Return an instance with axes of 0 to `longest` elements; index fields that order a visit only point back."""
    rng = np.random.default_rng(seed)
    ordering = {f for r in graph.regions for f in r.after}
    ordered = {r.axis for r in graph.regions if r.form == "visit"}
    lengths: dict[str, int] = {}
    starts: dict[str, np.ndarray] = {}
    for a in graph.axes:
        if not a.parent:
            lengths[a.name] = int(rng.integers(0, longest + 1))
            continue
        counts = rng.integers(0, longest, lengths[a.parent])
        if a.parent in ordered and any(graph.field[f].axis == a.name for f in ordering):
            counts[:1] = 0  # the first element has nothing before it to point at
        starts[a.name] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        lengths[a.name] = int(starts[a.name][-1])
    for f in graph.fields:  # a position is needed on an axis that something must point at
        if f.kind == "index" and not f.optional and not f.axis:
            lengths[f.of] = max(1, lengths[f.of])
        if f.kind == "index" and not f.optional and f.axis and lengths[f.of] == 0 and f.axis not in starts:
            lengths[f.axis] = 0
    fields = {f.name: values(f, lengths, starts, f.name in ordering, rng) for f in graph.fields}
    return Instance(lengths, fields, starts, seed)


def values(f, lengths, starts, backwards, rng):
    n = lengths[f.axis] if f.axis else 1
    if f.kind == "float":
        return rng.uniform(0.1, 1.0, (n, f.columns)).astype(np.float32)
    if f.kind == "flag":
        return rng.integers(0, 2, n)
    if f.kind == "int":
        return rng.integers(-1 if f.optional else 0, f.below or 5, n)
    if not backwards:
        return rng.integers(-1 if f.optional else 0, lengths[f.of], n) if n else np.zeros(0, np.int64)
    own = np.repeat(np.arange(len(starts[f.axis]) - 1), np.diff(starts[f.axis])) if f.axis in starts else np.arange(n)
    low = -1 if f.optional else 0
    return np.array([rng.integers(low, e) if e > low else -1 for e in own], np.int64)
