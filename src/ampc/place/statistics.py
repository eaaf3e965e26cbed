"""What the cost model knows of the data: how long axes are, and how often each value of a field that steers a branch occurs.

Taken from a dataset, or guessed where there is none (`guess`). Shares are of the elements that the field lies over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from ampc.ir.graph import FieldDecl, Graph
from ampc.ir.nodes import Cond, FieldRef, Match, Phi
from ampc.ir.scope import declaration

GUESSED_LENGTH = 16.0
GUESSED_INNER = 4.0
GUESSED_NONE = 0.5
MAX_VALUES = 1024
"""Values from this on are counted together; a branch on so wide a field does not exist in practice."""


class AxisStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Elements of the axis an instance has (an element of the parent axis, for a nested axis)."""

    mean: float
    max: float


class Statistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`shares`: field -> value (as text; "-1" is none) -> its share. `origin`: "data" or "guess". `instances`: how many were looked at."""

    axes: dict[str, AxisStatistics]
    shares: dict[str, dict[str, float]] = {}
    origin: Literal["data", "guess"] = "guess"
    instances: int = 0

    def share(self, field: FieldDecl, value: int) -> float:
        """Return how often `field` has `value` (-1: none), between 0 and 1."""
        known = self.shares.get(field.name)
        if known is not None:
            return known.get(str(value), 0.0)
        none = GUESSED_NONE if field.optional else 0.0
        if value == -1:
            return none
        n_values = 2 if field.kind == "flag" else field.below
        return (1.0 - none) / n_values if n_values else 0.0


class DatasetLike(Protocol):
    """The part of `ampc.data.Dataset` that is read here."""

    @property
    def n(self) -> int: ...
    @property
    def axes(self) -> Mapping[str, Any]: ...
    @property
    def inner(self) -> Mapping[str, Any]: ...
    @property
    def columns(self) -> Mapping[str, Any]: ...


def guess(graph: Graph) -> Statistics:
    """Return statistics for a graph without data: 16 elements an axis, 4 a nested one; values equally likely, none half of the time."""
    means = {a.name: GUESSED_INNER if a.parent else GUESSED_LENGTH for a in graph.axes}
    axes = {name: AxisStatistics(mean, 4 * mean) for name, mean in means.items()}
    return Statistics(axes=dict(sorted(axes.items())))


def measure(graph: Graph, data: DatasetLike) -> Statistics:
    """Return the statistics of `data`, rounded to six digits so that a manifest is the same on every machine.

    Shares are taken of the fields that a branch tests and of index fields (their share of none).
    """
    import numpy as np

    if data.n == 0:
        return guess(graph)
    axes: dict[str, AxisStatistics] = {}
    for a in graph.axes:
        lengths = np.diff(data.inner[a.name] if a.parent else data.axes[a.name])
        axes[a.name] = AxisStatistics(_round(lengths.mean()) if len(lengths) else 0.0, float(lengths.max()) if len(lengths) else 0.0)
    shares: dict[str, dict[str, float]] = {}
    for name in sorted(_steering(graph)):
        values = np.asarray(data.columns[name]).reshape(-1).astype(np.int64)
        if not len(values):
            shares[name] = {}
            continue
        if graph.field[name].kind == "index":
            shares[name] = {"-1": _round((values < 0).mean())}
            continue
        found, counts = np.unique(np.minimum(values, MAX_VALUES), return_counts=True)
        shares[name] = {str(int(v)): _round(c / len(values)) for v, c in zip(found, counts)}
    return Statistics(axes=dict(sorted(axes.items())), shares=shares, origin="data", instances=int(data.n))


def _steering(graph: Graph) -> set[str]:
    """Return the declared fields whose values decide where messages go."""
    names = {f.name for f in graph.fields if f.kind == "index"}
    for node in graph.nodes:
        match node:
            case Cond(test=Match(ref=FieldRef(field=name))) | Phi(test=Match(ref=FieldRef(field=name))) if name in graph.field:
                names.add(name)
    return {n for n in names if graph.field[n].kind != "float"}


def _round(value: Any) -> float:
    return float(f"{float(value):.6g}")


def field_of(graph: Graph, name: str) -> FieldDecl:
    """Return the declaration of a field of a verified graph, implied ones too."""
    found = declaration(graph, name)
    assert found is not None, name
    return found


__all__ = ["AxisStatistics", "DatasetLike", "Statistics", "field_of", "guess", "measure"]
