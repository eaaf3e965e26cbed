"""What an instance in flight takes: its values in F and its counters in I, as functions of how long its axes are.

One set of rules for data (integer arrays, an entry for each shape that occurs), for the longest instance and for the mean one (numbers), so that
what `ampc compile` predicts is what a run sets aside. Knows nothing of where instances lie.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from ampc.codegen.kernels import Program
from ampc.codegen.layout import FLOATS, WORDS, Key
from ampc.codegen.plan import Plan, Segment
from ampc.ir.arms import arm_of
from ampc.ir.graph import Graph
from ampc.ir.nodes import Cond, Dealt, Decided, First, Group, Match, Phi, Region, Source, Type, Within
from ampc.ir.scope import chain
from ampc.place import Statistics

Size = Any
"""A number, or an array of numbers by shape."""

DYNAMIC = 3
"""Counters of a layer whose firings are counted as they happen: forward, backward, weight claimed so far."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of one instance or of many: `lengths` axis -> elements of an instance; `most` nested axis -> most children of one element."""

    graph: Graph
    lengths: Mapping[str, Size]
    most: Mapping[str, Size]

    def opened(self, axis: str, region: int) -> bool:
        """Whether `region` stands at an element of the parent of nested `axis`."""
        parent = next(a.parent for a in self.graph.axes if a.name == axis)
        return bool(parent) and any(r.axis == parent for r in chain(self.graph, region))

    def rows(self, axis: str, region: int) -> Size:
        """Room for the rows of a payload over `axis` at one state of `region`."""
        if not axis:
            return 1
        return self.most[axis] if self.opened(axis, region) else self.lengths[axis]

    def _extent(self, region: Region) -> Size:
        return region.count if not region.axis else self.rows(region.axis, region.parent)

    def states(self, region: int, more: int = 0) -> Size:
        """Room for the states of a region; `more` is added for the innermost one (a loop's Phi has one more)."""
        total: Size = 1
        regions = chain(self.graph, region)
        for r in regions:
            total = total * (self._extent(r) + (more if r is regions[-1] else 0))
        return total

    def storage(self, kind: Type, region: int, more: int = 0) -> Size:
        """Floats of a storage."""
        return self.states(region, more) * self.rows(kind.rows, region) * kind.cols


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where the parts of an instance begin: of each storage in its floats, of each segment's counters in its words; and how many there are."""

    storages: tuple[Size, ...]
    segments: tuple[Size, ...]
    floats: Size
    words: Size


def parts(program: Program, sizes: Sizes) -> Parts:
    """Return the layout of an instance. For numbers that are means, what is rounded up to a cache line counts as half a line more.

    An instance is in one of several arms: what they hold has one place.
    """
    # Each storage and all counters are rounded up to a cache line: parts that two workers write then share none.
    graph, nothing = program.plan.graph, 0 * next(iter(sizes.lengths.values()), 0)
    arm = arm_of(graph)
    rooms = [_lines(sizes.storage(kind, *region_of(graph, key)), FLOATS, kind.cols) for key, kind in program.storages.items()]
    storages, floats = _one_after_another(rooms, [arm.get(int(key[1])) for key in program.storages], nothing)
    counts = [width(s, program.alone) * _at_least_one(sizes.states(s.region)) for s in program.plan.segments]
    layers = nothing if program.alone else counted(program.plan) + nothing
    segments, words = _one_after_another(counts, [arm.get(s.nodes[0].id) for s in program.plan.segments], layers)
    return Parts(storages, segments, floats, _lines(words, WORDS, 1))


def _one_after_another(rooms: list[Size], arms: list[int | None], start: Size) -> tuple[tuple[Size, ...], Size]:
    """Return where each part begins and how much room there is: first what is in no arm, behind it the arms, which all begin at one place."""
    ends: dict[int | None, Size] = {None: start}
    places: dict[int, Size] = {}
    for k in sorted(range(len(rooms)), key=lambda k: arms[k] is not None):
        places[k] = ends.setdefault(arms[k], ends[None])
        ends[arms[k]] = places[k] + rooms[k]
    return tuple(places[k] for k in range(len(rooms))), functools.reduce(np.maximum, ends.values())


def width(segment: Segment, alone: bool = False) -> int:
    """Counters of a state: arrivals, unanswered messages, and the version of each layer at the forward firing; `alone`, arrivals only."""
    return 1 if alone else 2 + len(segment.layers)


def counted(plan: Plan) -> int:
    """Words before the counters of the first segment: those of layers whose firings are counted as they happen."""
    return DYNAMIC * sum(not static_count(plan, name) for name in plan.layers)


def _lines(size: Size, line: int, step: int) -> Size:
    """Return a size that grows by `step` rounded up to lines; that of a mean by half a line."""
    if isinstance(size, float):
        return size if step % line == 0 else size + line / 2
    return (size + line - 1) // line * line


def _at_least_one(states: Size) -> Size:
    return states + (states == 0)


def region_of(graph: Graph, key: Key) -> tuple[int, int]:
    """(region, 1 for a Phi at which a loop is entered or left) of the states of a storage."""
    match key:
        case ("v", node, _):
            return graph.region_out(graph.by_id[int(node)]), 0
        case ("phi", node):
            phi = graph.by_id[int(node)]
            assert isinstance(phi, Phi)
            return phi.region, int(isinstance(phi.test, First | Within))
        case ("g", node, _):
            return graph.by_id[int(node)].region, 0
        case ("turns", isu):
            return graph.region_out(graph.by_id[int(isu)]), 0
    raise AssertionError(key)


def predicted_bytes(program: Program, statistics: Statistics) -> tuple[float, float]:
    """Return the bytes of values and counters of (a mean instance, one that is longest in every axis).

    The mean is exact where nothing has one axis inside another of the same instance (a loop over pairs): there it counts as if lengths were equal.
    """
    graph = program.plan.graph
    mean: dict[str, Size] = {}
    longest: dict[str, Size] = {}
    for a in graph.axes:  # an axis comes after its parent
        known = statistics.axes[a.name]
        each = int(known.max) if known.mean == known.max else float(known.mean)  # an integer is exact
        mean[a.name] = each * (mean[a.parent] if a.parent else 1)
        longest[a.name] = int(known.max) * (longest[a.parent] if a.parent else 1)
    most = {a.name: int(statistics.axes[a.name].max) for a in graph.axes if a.parent}
    found = [parts(program, Sizes(graph, lengths, most)) for lengths in (mean, longest)]
    return (4.0 * found[0].floats + 8.0 * found[0].words, float(4 * found[1].floats + 8 * found[1].words))


def static_count(plan: Plan, layer: str) -> bool:
    """Whether the number of a layer's firings follows from the lengths of axes alone."""
    return all(not _conditional(plan.graph, s) for s in plan.segments if layer in s.layers)


def _conditional(graph: Graph, segment: Segment) -> bool:
    """Whether a segment fires only at states that some branch leads to."""
    depth: dict[int, int] = {}

    def arms(node_id: int) -> int:
        """Branches open around a node: a Cond opens one, its Phi closes it."""
        if node_id in depth:
            return depth[node_id]
        node = graph.by_id[node_id]
        depth[node_id] = 0
        if isinstance(node, Source) or not node.inputs:
            value = 0
        elif isinstance(node, Phi) and isinstance(node.test, First):
            value = arms(node.inputs[0][0])
        elif isinstance(node, Phi):
            value = arms(node.inputs[0][0]) - 1
        elif isinstance(node, Group):
            value = arms(node.inputs[1][0])
        else:
            value = max(arms(ref[0]) for ref in node.inputs)
        if isinstance(node, Cond) and isinstance(node.test, Match | Decided | Dealt):
            value += 1
        depth[node_id] = value
        return value

    return any(arms(n.id) > 0 for n in segment.nodes)


__all__ = ["Parts", "Sizes", "counted", "parts", "predicted_bytes", "region_of", "static_count", "width"]
