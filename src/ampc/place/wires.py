"""Links as the search for a placement sees them: numbered as they come up, with the seconds of a byte on each.

Devices that share one memory have none. Routes are those of `topology.Network`; nothing is built for pairs that exchange nothing.
"""

from __future__ import annotations

from ampc.place.target import Target
from ampc.place.topology import Network

MOST_KEPT = 200_000
"""Routes that are remembered; past it they are found anew."""
FEW_KEPT = 10_000
"""Pairs of which the routes both ways are remembered: all of a hundred devices."""


class Wires:
    """`path` gives the links from one device to another as numbers below `count`, by which `byte_s` and `name` are asked."""

    def __init__(self, target: Target) -> None:
        self.network = Network(target)
        self.shared = target.links.topology == "shared"
        self.ids: list[int] = []
        self._number: dict[int, int] = {}
        self.byte_seconds: list[float] = []
        """Of each link, as `byte_s` tells it."""
        self._paths: dict[tuple[int, int], tuple[int, ...]] = {}
        self._both: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def count(self) -> int:
        """How many links have come up so far."""
        return len(self.ids)

    def path(self, a: int, b: int) -> tuple[int, ...]:
        """Return the links that a message from device `a` to device `b` goes over; none between devices of one memory."""
        if self.shared or a == b:
            return ()
        found = self._paths.get((a, b))
        if found is None:
            found = tuple(self._numbered(link) for link in self.network.path(a, b))
            if len(self._paths) >= MOST_KEPT:
                self._paths.clear()
            self._paths[a, b] = found
        return found

    def both(self, a: int, b: int) -> tuple[int, ...]:
        """Return the links from device `a` to device `b` and those back."""
        found = self._both.get((a, b))
        if found is None:
            found = (*self.path(a, b), *self.path(b, a))
            if len(self._both) < FEW_KEPT:
                self._both[a, b] = found
        return found

    def _numbered(self, link: int) -> int:
        number = self._number.get(link)
        if number is None:
            number = self._number[link] = len(self.ids)
            self.ids.append(link)
            self.byte_seconds.append(1.0 / self.network.links[link].bytes_per_s)
        return number

    def byte_s(self, link: int) -> float:
        """Return the seconds that a byte occupies the link."""
        return self.byte_seconds[link]

    def name(self, link: int) -> str:
        """Return the link's name, which says between which devices it is."""
        return self.network.links[self.ids[link]].name


__all__ = ["Wires"]
