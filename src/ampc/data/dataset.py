"""Instances in memory: ragged axes as offsets, fields as flat arrays, fit for the engine to read in place.

A `Dataset` that `read` returned has been checked against the model's `instance:` block: positions are in range, lengths agree.
It holds no Python object per instance and never changes; `select` makes another one.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.ir.graph import AxisDecl, FieldDecl

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Where a run of instances came from: `name` of the file, number of the first instance, and for each row its line (text files only)."""

    name: str
    first: int = 0
    lines: Ints | None = None

    def place(self, row: int) -> str:
        """Return "row 1 (line 2) of `train.jsonl`" for a row counted from 0 within this part."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"row {row}{line} of `{self.name}`"


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """`n` instances.

    axes: axis -> int64 [n + 1], offsets of each instance's elements in the flat columns.
    inner: nested axis -> int64 [elements of the parent axis + 1], absolute starts of each parent element's children.
    columns: int, flag and index fields -> int64 [total], none is -1, positions count from 0 within the instance;
    float fields -> float32 [total, columns], none is NaN. `total` is n for a field of the instance.
    kept: the row numbers (over all parts) of the instances, where rows were left out; None if none was. skipped: how many were left out.
    """

    n: int
    axes: dict[str, Ints]
    inner: dict[str, Ints]
    columns: dict[str, npt.NDArray[Any]]
    source: str = "data"
    axis_decls: tuple[AxisDecl, ...] = ()
    fields: tuple[FieldDecl, ...] = ()
    parts: tuple[Part, ...] = ()
    kept: Ints | None = None
    skipped: int = 0

    def __len__(self) -> int:
        return self.n

    @property
    def size_bytes(self) -> int:
        """Bytes that the arrays take."""
        return sum(a.nbytes for group in (self.axes, self.inner, self.columns) for a in group.values())

    def lengths(self, axis: str) -> Ints:
        """Return int64 [n], how many elements of `axis` each instance has."""
        return np.diff(self.axes[axis])

    def statistics(self) -> dict[str, dict[str, float]]:
        """Return for each axis the mean, smallest and largest number of elements an instance has (what costs and arenas are sized by)."""
        out = {}
        for axis in self.axes:
            lengths = self.lengths(axis)
            out[axis] = (
                {"mean": float(lengths.mean()), "min": float(lengths.min()), "max": float(lengths.max())}
                if self.n
                else {"mean": 0.0, "min": 0.0, "max": 0.0}
            )
        return out

    def where(self, instance: int) -> str:
        """Return the place that `instance` came from, for messages: "row 1 (line 2) of `train.jsonl`"."""
        row = int(instance if self.kept is None else self.kept[instance])
        if not self.parts:
            return f"row {row} of `{self.source}`"
        part = self.parts[max(0, bisect.bisect_right([p.first for p in self.parts], row) - 1)]
        return part.place(row - part.first)

    def select(self, rows: npt.ArrayLike) -> Dataset:
        """Return the instances `rows` (positions, any order, repeats allowed) as a dataset of their own; arrays are copied."""
        chosen = np.asarray(rows, dtype=np.int64).reshape(-1)
        takes: dict[str, Ints] = {"": chosen}
        axes: dict[str, Ints] = {}
        inner: dict[str, Ints] = {}
        for decl in self.axis_decls:
            axes[decl.name], takes[decl.name] = _spans(self.axes[decl.name], chosen)
            if decl.parent:
                inner[decl.name], _ = _spans(self.inner[decl.name], takes[decl.parent])
        columns = {f.name: self.columns[f.name][takes[f.axis]] for f in self.fields}
        kept = chosen if self.kept is None else self.kept[chosen]
        return dataclasses.replace(self, n=len(chosen), axes=axes, inner=inner, columns=columns, kept=kept)


def _spans(offsets: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the offsets of the chosen spans laid end to end, and the flat positions of their elements."""
    lengths = offsets[chosen + 1] - offsets[chosen]
    out = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out, np.repeat(offsets[chosen] - out[:-1], lengths) + np.arange(out[-1])


def concat(parts: list[Dataset]) -> Dataset:
    """Return the instances of `parts`, which share one schema, as one dataset in order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    starts = np.cumsum([0] + [_rows(p) for p in parts])
    axes = {a: _joined([p.axes[a] for p in parts]) for a in first.axes}
    inner = {a: _joined([p.inner[a] for p in parts]) for a in first.inner}
    columns = {f: np.concatenate([p.columns[f] for p in parts]) for f in first.columns}
    kept = None
    if any(p.kept is not None for p in parts):
        kept = np.concatenate([start + (np.arange(p.n) if p.kept is None else p.kept) for start, p in zip(starts, parts, strict=False)])
    places = tuple(dataclasses.replace(x, first=x.first + int(start)) for start, p in zip(starts, parts, strict=False) for x in p.parts)
    return dataclasses.replace(
        first,
        n=sum(p.n for p in parts),
        axes=axes,
        inner=inner,
        columns=columns,
        source=f"{first.source} and {len(parts) - 1} more",
        parts=places,
        kept=kept,
        skipped=sum(p.skipped for p in parts),
    )


def _rows(part: Dataset) -> int:
    return part.n + part.skipped


def _joined(offsets: list[Ints]) -> Ints:
    """Return offset arrays, each beginning at 0, as those of the concatenated elements."""
    ends = np.cumsum([0] + [int(o[-1]) for o in offsets])
    return np.concatenate([offsets[0][:1], *(o[1:] + end for o, end in zip(offsets, ends, strict=False))])


__all__ = ["Dataset", "Ints", "Part", "concat"]
