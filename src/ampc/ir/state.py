"""What a state tells about an instance: extents, elements, field values, the port that a test picks.

A state is a tuple with one coordinate for each region between the root and the node (the root itself has none). The coordinate counts
from 0 within its parent; the *element* is the position on the axis, counted over the whole instance, from the far end where a loop is reversed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ampc.ir.graph import Graph
from ampc.ir.nodes import Coord, Dealt, Decided, FieldRef, First, Index, Match, Region, Test, Through, Within
from ampc.ir.op import Array, FieldValue, RowIndex, Segments
from ampc.ir.scope import PARENT_FIELD, POSITION_FIELD, TURN_FIELD, chain, declaration

State = tuple[int, ...]
NONE = -1


@dataclasses.dataclass(frozen=True)
class Instance:
    """One instance. `lengths`: axis -> elements; `starts`: nested axis -> int64 [parent's elements + 1], from 0.

    `fields`: int, flag, index -> int64 [n] (none = -1), float -> [n, columns] (none = NaN); n = 1 for a field of the instance.
    `number` counts admissions: it tells draws of dropout apart, and says which copy of a layer an instance is dealt to.
    """

    lengths: Mapping[str, int]
    fields: Mapping[str, Array]
    starts: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    number: int = 0


class DatasetLike(Protocol):
    """The part of a data set that an instance is cut from (its layout is described in docs/ir.md)."""

    @property
    def axes(self) -> Mapping[str, np.ndarray[Any, Any]]: ...
    @property
    def inner(self) -> Mapping[str, np.ndarray[Any, Any]]: ...
    @property
    def columns(self) -> Mapping[str, np.ndarray[Any, Any]]: ...


def instance_of(dataset: DatasetLike, graph: Graph, i: int) -> Instance:
    """Return instance `i` of a data set that was read for `graph`."""
    bounds = {name: (int(offsets[i]), int(offsets[i + 1])) for name, offsets in dataset.axes.items()}
    starts = {}
    for axis in graph.axes:
        if axis.parent:
            low, high = bounds[axis.parent]
            starts[axis.name] = dataset.inner[axis.name][low : high + 1] - bounds[axis.name][0]
    fields = {}
    for f in graph.fields:
        low, high = bounds[f.axis] if f.axis else (i, i + 1)
        column = dataset.columns[f.name][low:high]
        fields[f.name] = column.reshape(high - low, f.columns) if f.kind == "float" else column
    return Instance({name: high - low for name, (low, high) in bounds.items()}, fields, starts, i)


class View:
    """An instance seen through the declarations of a graph. All positions are counted from the instance's first element."""

    def __init__(self, graph: Graph, instance: Instance, dtype: Any = np.float32) -> None:
        self.graph = graph
        self.instance = instance
        self.dtype = dtype
        self._chains: dict[int, list[Region]] = {}

    @cached_property
    def _parents(self) -> dict[str, str]:
        return {a.name: a.parent for a in self.graph.axes}

    def chain(self, region: int) -> list[Region]:
        if region not in self._chains:
            self._chains[region] = chain(self.graph, region)
        return self._chains[region]

    def coordinate(self, region: int, at: int, state: State) -> int:
        """Return the coordinate of `region` in a state of region `at` (itself or an inner one)."""
        depth = next(i for i, r in enumerate(self.chain(at)) if r.id == region)
        return state[depth]

    # ------------------------------------------------------------------------------------------------ extents

    def span(self, axis: str, region: int, state: State) -> tuple[int, int]:
        """Return the range of elements of `axis` that belong to a state: all, or those of the open element of an outer axis."""
        parent = self._parents[axis]
        if not parent:
            return 0, self.instance.lengths[axis]
        opened = next((r for r in reversed(self.chain(region)) if r.axis == parent), None)
        if opened is not None:
            element = self.element(opened.id, region, state)
            low, high = element, element + 1
        else:
            low, high = self.span(parent, region, state)
        starts = self.instance.starts[axis]
        return int(starts[low]), int(starts[high])

    def extent(self, region: int, parent_state: State) -> int:
        """Return how many elements or turns `region` has at a state of its parent."""
        r = self.graph.regions[region]
        if not r.axis:
            return r.count
        low, high = self.span(r.axis, r.parent, parent_state)
        return high - low

    def rows(self, rows: str, region: int, state: State) -> int:
        if not rows:
            return 1
        low, high = self.span(rows, region, state)
        return high - low

    def element(self, region: int, at: int, state: State) -> int:
        """Return the element of its axis (or the turn) that a state of region `at` has in `region`."""
        r, c = self.graph.regions[region], self.coordinate(region, at, state)
        if not r.axis:
            return r.count - 1 - c if r.reverse else c
        outer = state[: len(self.chain(r.parent))]
        low, high = self.span(r.axis, r.parent, outer)
        return high - 1 - c if r.reverse else low + c

    def coordinate_of(self, region: int, parent_state: State, element: int) -> int:
        """Return the coordinate of an element: the inverse of `element`."""
        r = self.graph.regions[region]
        if not r.axis:
            return r.count - 1 - element if r.reverse else element
        low, high = self.span(r.axis, r.parent, parent_state)
        return high - 1 - element if r.reverse else element - low

    # ------------------------------------------------------------------------------------------------- fields

    def column(self, name: str) -> Array:
        """Return a field over the whole instance; implied fields too."""
        if name in self.instance.fields:
            return self.instance.fields[name]
        if name.endswith(POSITION_FIELD):
            axis = name.removesuffix(POSITION_FIELD)
            return Segments(self.instance.starts[axis]).position if self._parents[axis] else np.arange(self.instance.lengths[axis])
        starts = self.instance.starts[name.removesuffix(PARENT_FIELD)]
        return Segments(starts).owner

    def index(self, index: Index, region: int, state: State) -> int:
        """Return the position that an index expression names at a state; -1 is none."""
        match index:
            case Coord(region=r):
                return self.element(r, region, state)
            case Through(field=field, at=at):
                position = self.index(at, region, state)
                return NONE if position == NONE else int(self.column(field)[position])

    def value(self, ref: FieldRef, region: int, state: State) -> int:
        """Return the integer that a test sees: the field's value, -1 for none; 0 for a float that is there."""
        if ref.field == TURN_FIELD:
            assert isinstance(ref.at, Coord)
            return self.element(ref.at.region, region, state)
        position = 0 if ref.at is None else self.index(ref.at, region, state)
        if position == NONE:
            return NONE
        value = self.column(ref.field)[position]
        if isinstance(value, np.ndarray):
            return NONE if bool(np.isnan(value).any()) else 0
        return int(value)

    def operand(self, ref: FieldRef, region: int, state: State) -> FieldValue:
        """Return a field as an operand of an operation: whole (the part that belongs to the state), or one element of it."""
        if ref.field == TURN_FIELD:
            return np.array([self.value(ref, region, state)])
        declared = declaration(self.graph, ref.field)
        assert declared is not None, ref.field
        column = self.column(ref.field)
        if ref.at is not None:
            position = self.index(ref.at, region, state)
            nothing = np.full((1, *column.shape[1:]), NONE if column.dtype.kind in "iu" else 0, column.dtype)
            rows = column[position : position + 1] if position != NONE else nothing
        elif declared.axis:
            low, high = self.span(declared.axis, region, state)
            rows = column[low:high]
        else:
            rows = column
        if declared.kind == "float":
            return rows.astype(self.dtype)
        rows = rows.astype(np.int64)
        if declared.kind != "index":
            return rows
        low, high = self.span(declared.of, region, state)
        # An index that leads to another parent's elements finds nothing here.
        return RowIndex(np.where((rows < low) | (rows >= high), NONE, rows - low), high - low)

    def segments(self, rows: str, n: int, region: int, state: State) -> Segments:
        """Return how `n` rows over `rows` fall into groups when they are reduced."""
        parent = self._parents.get(rows, "")
        if not parent or any(r.axis == parent for r in self.chain(region)):
            return Segments(np.array([0, n]))
        low, high = self.span(parent, region, state)
        starts = self.instance.starts[rows]
        return Segments(starts[low : high + 1] - starts[low])

    # ------------------------------------------------------------------------------------------------- tests

    def port(self, test: Test, region: int, state: State, decided: int | None = None) -> int:
        """Return the port that a test picks; `decided` is the integer that a `Decided` test looks at."""
        match test:
            case Within(region=r):
                outer = state[: len(self.chain(self.graph.regions[r].parent))]
                return int(self.coordinate(r, region, state) >= self.extent(r, outer))
            case First(region=r):
                return int(self.coordinate(r, region, state) > 0)
            case Match(ref=ref, cases=cases):
                return _case(self.value(ref, region, state), cases)
            case Dealt(count=count):
                return self.instance.number % count
            case Decided(cases=cases):
                assert decided is not None
                return _case(decided, cases)


def _case(value: int, cases: tuple[tuple[int, ...], ...]) -> int:
    return next((i for i, values in enumerate(cases) if value in values), len(cases))
