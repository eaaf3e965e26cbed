"""Sizes that only data tells: elements on axes, states of regions, rows of payloads, lists of who names an element.

All vectorised over the data set; nothing here allocates per instance.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ampc.codegen.arena import Size, Sizes
from ampc.data.dataset import Dataset
from ampc.ir.graph import Graph
from ampc.ir.nodes import Group
from ampc.ir.scope import PARENT_FIELD, POSITION_FIELD, chain, declaration

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Shapes:
    """of: int64 [n], the shape of each instance; counts: int64 [k], how many have it; sizes: of each shape."""

    of: Ints
    counts: Ints
    sizes: Sizes

    def spread(self, size: Size) -> Ints:
        """Return a size as int64 [k]."""
        return np.broadcast_to(np.asarray(size, np.int64), self.counts.shape)

    def most_of(self, size: Ints, n: int) -> int:
        """Return the sum of a size over the `n` instances in which it is largest."""
        order = np.argsort(-size, kind="stable")
        taken = np.diff(np.minimum(np.cumsum(self.counts[order]), n), prepend=0)
        return int((size[order] * taken).sum()) if taken.any() else n * int(size.max())


class Extents:
    """What the arenas of `graph` need to know of `data`."""

    def __init__(self, graph: Graph, data: Dataset) -> None:
        self.graph = graph
        self.data = data
        self.parent = {a.name: a.parent for a in graph.axes}

    @cached_property
    def longest(self) -> dict[str, int]:
        """Axis -> most elements that one instance has (of all parents together, for a nested axis)."""
        return {a.name: int(np.diff(self.data.axes[a.name]).max(initial=0)) for a in self.graph.axes}

    @cached_property
    def most(self) -> dict[str, int]:
        """Nested axis -> most children of one element."""
        return {a.name: int(np.diff(self.data.inner[a.name]).max(initial=0)) for a in self.graph.axes if a.parent}

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes that occur: instances with equal axis lengths have one."""
        lengths = [np.diff(self.data.axes[a.name]) for a in self.graph.axes]
        of = np.zeros(self.data.n, np.int64)
        for column in lengths:
            _, of = np.unique(of * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
        counts = np.bincount(of, minlength=1)
        example = np.zeros(len(counts), np.int64)
        example[of] = np.arange(self.data.n)
        of_shape = {a.name: column[example] if self.data.n else np.zeros(1, np.int64) for a, column in zip(self.graph.axes, lengths, strict=True)}
        return Shapes(of, counts, Sizes(self.graph, of_shape, self.most))

    @cached_property
    def worst(self) -> Sizes:
        """Sizes of an instance that is longest in every axis."""
        return Sizes(self.graph, self.longest, self.most)

    def opened(self, axis: str, region: int) -> bool:
        """Whether `region` stands at an element of the parent of nested `axis`."""
        return self.worst.opened(axis, region)

    def most_rows(self, axis: str, region: int) -> int:
        """Most rows of a payload over `axis` at one state of `region`."""
        return int(self.worst.rows(axis, region))

    def most_states(self, region: int) -> int:
        """Most states of a region that one instance has."""
        return max(int(np.max(self.shapes.sizes.states(region))), 0)

    def states(self, region: int) -> Ints:
        """int64 [n]: how many states of a region each instance has."""
        total = np.ones(self.data.n, np.int64)
        for r in chain(self.graph, region):
            if not r.axis:
                total = total * r.count
            elif self.opened(r.axis, r.parent):
                # All children of all parent elements, once for each state around the parent's region.
                holder = [q for q in chain(self.graph, r.parent) if q.axis == self.parent[r.axis]][-1]
                lengths = np.maximum(np.diff(self.data.axes[holder.axis]), 1)
                total = total // lengths * np.diff(self.data.axes[r.axis])
            else:
                total = total * np.diff(self.data.axes[r.axis])
        return total

    def most_members(self, group: Group) -> int:
        """Most messages that a Group collects into one."""
        region = self.graph.regions[group.region]
        if group.key is None:
            return region.count if not region.axis else self.most_rows(region.axis, region.parent)
        starts, _ = self.inverse(group.key.field)  # type: ignore[union-attr]  # a key with one field, by verification
        return int(np.diff(starts).max(initial=0))

    def most_of_space(self, space: str, region: int) -> int:
        """Most rows that one token of `region` has in a space: "", an axis, or "*<id>" for the members of a Group."""
        if space.startswith("*"):
            node = self.graph.by_id[int(space[1:])]
            assert isinstance(node, Group)
            return self.most_members(node)
        return self.most_rows(space, region)

    # ------------------------------------------------------------------------------------------------- lists

    def column(self, field: str) -> npt.NDArray[np.int64] | npt.NDArray[np.float32]:
        """A field's flat column, also that of an implied `axis.parent` or `axis.position` field."""
        if field in self.data.columns:
            return self.data.columns[field]
        if field.endswith(POSITION_FIELD):
            axis = field.removesuffix(POSITION_FIELD)
            starts = self.data.inner[axis] if self.parent[axis] else self.data.axes[axis]
            return np.arange(starts[-1]) - np.repeat(starts[:-1], np.diff(starts))
        axis = field.removesuffix(PARENT_FIELD)
        parent = self.parent[axis]
        starts = self.data.inner[axis]
        owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        return owner - self._offset_of_elements(parent)[owner]

    def _offset_of_elements(self, axis: str) -> Ints:
        """For each flat element of `axis`, where its instance begins."""
        offsets = self.data.axes[axis]
        return np.repeat(offsets[:-1], np.diff(offsets))

    def inverse(self, field: str) -> tuple[Ints, Ints]:
        """Return (starts, list): flat element b of the named axis is named by `list[starts[b]:starts[b + 1]]`, positions within the instance."""
        decl = declaration(self.graph, field)
        assert decl is not None
        values = self.column(field).astype(np.int64, copy=False).reshape(-1)
        named, naming = self.data.axes[decl.of], self.data.axes[decl.axis]
        instance = np.repeat(np.arange(self.data.n), np.diff(naming))
        real = np.flatnonzero(values >= 0)
        flat = named[instance[real]] + values[real]
        order = np.argsort(flat, kind="stable")
        starts = np.zeros(int(named[-1]) + 1, np.int64)
        np.cumsum(np.bincount(flat, minlength=int(named[-1])), out=starts[1:])
        return starts, (real - naming[instance[real]])[order]
