"""The network of a target: its links, each in one direction, and the way of a message between two devices.

Ways are fixed by the topology alone (no choice by load), so that they can be computed anywhere. Nothing of the size of all pairs is built:
where every pair has its own link (`shared`, `full`, within `hosts`), a link comes to be when its pair is first asked for.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ampc.place.target import Level, Target

MAX_KEPT = 256
"""Devices whose shortest ways through listed links are kept at a time."""


class Link(NamedTuple):
    """One direction of a link. A message keeps it busy for `bytes / bytes_per_s` and arrives `latency_s` after that."""

    name: str
    bytes_per_s: float
    latency_s: float


class Network:
    """The links of `target`. `links` grows where pairs have links of their own; a link keeps its number."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.names = tuple(d.name for d in target.devices)
        self.links: list[Link] = []
        self._pairs: dict[tuple[int, int], int] = {}
        self._parents: dict[int, list[int]] = {}
        self._ends: list[tuple[int, int]] = []
        self._leaving: list[list[int]] = []
        match target.links.topology:
            case "ring":
                self._grid(len(self.names), wrap=True)
            case "mesh":
                self._grid(target.links.columns, wrap=False)
            case "torus":
                self._grid(target.links.columns, wrap=True)
            case "star":
                self._tree(max(2, len(self.names)))
            case "tree":
                self._tree(target.links.branching)
            case "hosts":
                self._hosts()
            case "links":
                self._given()
            case "shared" | "full":
                pass

    # ------------------------------------------------------------------------------------------------- asking

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """Return the numbers of the links from device `a` to device `b`, in order; none if they are the same."""
        if a == b:
            return ()
        match self.target.links.topology:
            case "ring" | "mesh" | "torus":
                return self._grid_path(a, b)
            case "star" | "tree":
                return self._tree_path(a, b)
            case "links":
                return self._given_path(a, b)
            case "hosts" if not self._paired(a, b):
                size = self.target.links.host_devices
                return 2 * (a // size), 2 * (b // size) + 1
            case _:
                return (self._pair(a, b),)

    def hops(self, a: int, b: int) -> int:
        """Return how many links a message from device `a` to device `b` crosses. Makes none."""
        return 0 if a == b else 1 if self._paired(a, b) else len(self.path(a, b))

    def byte_s(self, a: int, b: int) -> float:
        """Return the seconds that a byte occupies the links from `a` to `b`, all together. Makes none."""
        if self._paired(a, b):
            return 1.0 / self.target.links.bytes_per_s
        return sum(1.0 / self.links[i].bytes_per_s for i in self.path(a, b))

    def latency_s(self, a: int, b: int) -> float:
        """Return the latency of the links from `a` to `b`, all together. Makes none."""
        if self._paired(a, b):
            return self.target.links.latency_s
        return sum(self.links[i].latency_s for i in self.path(a, b))

    def _paired(self, a: int, b: int) -> bool:
        """Whether two different devices have a link of their own that comes to be when asked for."""
        links = self.target.links
        return a != b and (links.topology in ("shared", "full") or (links.topology == "hosts" and a // links.host_devices == b // links.host_devices))

    # ------------------------------------------------------------------------------------------- link by link

    def _add(self, source: str, to: str, bytes_per_s: float | None = None, latency_s: float | None = None) -> int:
        links = self.target.links
        rate = links.bytes_per_s if bytes_per_s is None else bytes_per_s
        self.links.append(Link(f"{source} -> {to}", rate, links.latency_s if latency_s is None else latency_s))
        return len(self.links) - 1

    def _pair(self, a: int, b: int) -> int:
        found = self._pairs.get((a, b))
        if found is None:
            found = self._pairs[a, b] = self._add(self.names[a], self.names[b])
        return found

    def _grid(self, columns: int, wrap: bool) -> None:
        """Devices row by row; each joined to its neighbours right, left, below, above, in this order."""
        n = len(self.names)
        self._columns, self._rows, self._wrap = columns, n // columns, wrap
        self._steps = [[-1] * 4 for _ in range(n)]
        for d in range(n):
            for direction in range(4):
                to = self._neighbour(d, direction)
                # Around a dimension of two, both directions lead to the same device: one link is enough.
                if to >= 0 and to != d and not (direction % 2 and wrap and (self._columns if direction < 2 else self._rows) == 2):
                    self._steps[d][direction] = self._add(self.names[d], self.names[to])

    def _neighbour(self, d: int, direction: int) -> int:
        """Return the device on that side (0 right, 1 left, 2 below, 3 above), -1 beyond the edge of a mesh."""
        row, column = divmod(d, self._columns)
        step = 1 - 2 * (direction % 2)
        row, column = (row, column + step) if direction < 2 else (row + step, column)
        if self._wrap:
            return row % self._rows * self._columns + column % self._columns
        return row * self._columns + column if 0 <= row < self._rows and 0 <= column < self._columns else -1

    def _grid_path(self, a: int, b: int) -> tuple[int, ...]:
        """Along the row first, then along the column: no two messages can wait for each other in a circle on a mesh."""
        path = []
        at = a
        goal = divmod(b, self._columns)
        for axis, size in ((1, self._columns), (0, self._rows)):
            distance = goal[axis] - divmod(a, self._columns)[axis]
            if self._wrap:
                distance %= size
                distance = distance if 2 * distance <= size else distance - size
            direction = (0 if axis == 1 else 2) + (distance < 0)
            for _ in range(abs(distance)):
                path.append(self._steps[at][direction])
                at = self._neighbour(at, direction)
        return tuple(path)

    def _tree(self, branching: int) -> None:
        """Devices are the leaves; link 2k leads up from the kth member (device or switch, level by level), 2k + 1 down to it."""
        self._branching = branching
        self._first = [0]
        """Number of the first member of each level; the root's level is left out, for nothing is above it."""
        names = list(self.names)
        level = 1
        rates = [Level(self.target.links.bytes_per_s, self.target.links.latency_s), *self.target.links.level]
        while len(names) > 1:
            above = [f"switch {level}.{k}" for k in range(-(-len(names) // branching))]
            rate = rates[min(level, len(rates)) - 1]
            for k, name in enumerate(names):
                self._add(name, above[k // branching], rate.bytes_per_s, rate.latency_s)
                self._add(above[k // branching], name, rate.bytes_per_s, rate.latency_s)
            self._first.append(self._first[-1] + len(names))
            names, level = above, level + 1

    def _tree_path(self, a: int, b: int) -> tuple[int, ...]:
        up, down = [], []
        for first in self._first:
            if a == b:
                break
            up.append(2 * (first + a))
            down.append(2 * (first + b) + 1)
            a, b = a // self._branching, b // self._branching
        return (*up, *reversed(down))

    def _hosts(self) -> None:
        """Link 2h leads out of host h, 2h + 1 into it: its network card, half of the latency on each side."""
        network = self.target.links.network
        assert network is not None
        for h in range(len(self.names) // self.target.links.host_devices):
            self._add(f"host {h}", "network", network.bytes_per_s, network.latency_s / 2)
            self._add("network", f"host {h}", network.bytes_per_s, network.latency_s / 2)

    def _given(self) -> None:
        """The listed links in their order, the way back of each behind it."""
        number = {name: i for i, name in enumerate(self.names)}
        self._leaving = [[] for _ in self.names]
        for x in self.target.links.link:
            for source, to in ((x.source, x.to),) if x.one_way else ((x.source, x.to), (x.to, x.source)):
                self._leaving[number[source]].append(self._add(source, to, x.bytes_per_s, x.latency_s))
                self._ends.append((number[source], number[to]))

    def _given_path(self, a: int, b: int) -> tuple[int, ...]:
        """The fewest hops; of several such ways, the one over links that are listed first."""
        arriving = self._parents.get(a)
        if arriving is None:
            if len(self._parents) >= MAX_KEPT:
                self._parents.clear()
            arriving = self._parents[a] = self._spread(a)
        path = []
        while b != a:
            path.append(arriving[b])
            b = self._ends[arriving[b]][0]
        return tuple(reversed(path))

    def _spread(self, a: int) -> list[int]:
        """Return for each device the last link of the shortest way from `a`."""
        arriving = [-1] * len(self.names)
        waiting = deque([a])
        while waiting:
            for link in self._leaving[waiting.popleft()]:
                to = self._ends[link][1]
                if to != a and arriving[to] < 0:
                    arriving[to] = link
                    waiting.append(to)
        return arriving


__all__ = ["Link", "Network"]
