"""The problem of placement: units with their seconds on each device and the traffic between them, and how a choice is scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from ampc.ir.graph import Graph
from ampc.place.cost import Cost
from ampc.place.target import Target
from ampc.place.topology import Network
from ampc.place.traffic import routes
from ampc.place.units import Unit, units_of

MEAN_WEIGHT = 0.5

Score = tuple[int, float]
"""Bytes that do not fit, `objective`."""
Choice = list[int]
"""Device of each unit, by the unit's number."""


class Traffic(msgspec.Struct, frozen=True):
    """What goes between two units, an instance: messages, their bytes, how often some are sent; how many wait in a queue if both share a device."""

    messages: float
    bytes: float
    bursts: float
    waiting: float


class Problem:
    """Units with their seconds on each device and the traffic between them: what a strategy needs, and how it is scored."""

    def __init__(self, graph: Graph, target: Target, cost: Cost, fine: bool = False) -> None:
        self.graph, self.target, self.cost = graph, target, cost
        self.routes = routes(graph, cost)
        self.units: list[Unit] = units_of(graph, cost, self.routes, fine)
        self.n_devices = len(target.devices)
        self.network = Network(target)
        self.known_seconds: dict[tuple[int, int], float] = {}
        self.known_rates: dict[tuple[int, int], tuple[float, float, float]] = {}
        self.unit_of = {node: u.id for u in self.units for node in u.nodes}
        self.traffic = self._traffic()
        self.neighbours: dict[int, list[tuple[int, Traffic]]] = defaultdict(list)
        for (a, b), traffic in self.traffic.items():
            self.neighbours[a].append((b, traffic))
            self.neighbours[b].append((a, traffic))

    def _traffic(self) -> dict[tuple[int, int], Traffic]:
        """Return (unit, unit) -> what goes between them, both ways together."""
        sums: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        for route in self.routes:
            a, b = self.unit_of[route.source], self.unit_of[route.reader]
            if a != b:
                pair = sums[min(a, b), max(a, b)]
                pair[0] += 2 * route.messages  # forward and its answer
                pair[1] += 2 * route.messages * route.size
                pair[2] += 2 * route.bursts
                pair[3] += 0.0 if route.direct else 2 * route.messages
        return {pair: Traffic(*values) for pair, values in sorted(sums.items())}

    def seconds(self, unit: Unit, device: int) -> float:
        """Return the busy seconds an instance that `unit` costs on `device`."""
        found = self.known_seconds.get((unit.id, device))
        if found is None:
            d = self.target.devices[device]
            precision, together = self.cost.precision, d.messages_together
            work = sum(d.seconds(matrix, vector, size, products / together, precision) for matrix, vector, size, products in unit.work)
            found = work + d.seconds(0.0, unit.update_flops, 0.0, precision=precision) + unit.tokens * d.message_s
            self.known_seconds[unit.id, device] = found
        return found

    def rate(self, a: int, b: int) -> tuple[float, float, float]:
        """Return the busy seconds that a message, a burst, and a byte between devices `a` and `b` costs *each* of them.

        Half of the messages are forward ones, which one side takes from its queue, half are their answers, which the other takes.
        """
        found = self.known_rates.get((a, b))
        if found is None:
            links = self.target.links
            waiting = max(self.target.devices[a].message_s, self.target.devices[b].message_s) / 2
            found = self.known_rates[a, b] = waiting, links.overhead_s, self.network.byte_s(a, b) / 2
        return found

    def add(self, unit: Unit, device: int, choice: Choice, loads: list[float], memory: list[int], sign: int = 1) -> None:
        """Add `unit` on `device`, with its traffic to what is placed already, to the devices' loads; `sign` -1 takes it away."""
        loads[device] += sign * self.seconds(unit, device)
        memory[device] += sign * unit.memory_bytes
        overhead_s = self.target.devices[device].message_s
        for other, traffic in self.neighbours[unit.id]:
            there = choice[other]
            if there == device:
                loads[device] += sign * traffic.waiting * overhead_s
            elif there >= 0:
                per_message, per_burst, per_byte = self.rate(device, there)
                each = sign * (traffic.messages * per_message + traffic.bursts * per_burst + traffic.bytes * per_byte)
                loads[device] += each
                loads[there] += each

    def state(self, choice: Choice) -> tuple[list[float], list[int]]:
        """Return the busy seconds an instance and the bytes of every device."""
        loads, memory = [0.0] * self.n_devices, [0] * self.n_devices
        seen = [-1] * len(choice)
        for unit in self.units:
            if choice[unit.id] >= 0:
                self.add(unit, choice[unit.id], seen, loads, memory)
                seen[unit.id] = choice[unit.id]
        return loads, memory

    def score(self, loads: list[float], memory: list[int]) -> Score:
        """Return (bytes that do not fit, `objective`): smaller is better."""
        return sum(max(0, used - d.memory_bytes) for used, d in zip(memory, self.target.devices)), objective(loads)


def objective(busy_s: Sequence[float]) -> float:
    """Return what placement makes small: the busiest device, and half of the mean, so that a little speed is not bought with much traffic."""
    return max(busy_s) + MEAN_WEIGHT * sum(busy_s) / len(busy_s)


def better(a: Score, b: Score) -> bool:
    """Whether score `a` is smaller than `b` by more than noise."""
    return a[0] < b[0] or (a[0] == b[0] and a[1] < b[1] * (1 - 1e-9))


def rounded(value: float) -> float:
    """Six digits: enough for an estimate, and the same text on every machine."""
    return float(f"{value:.6g}")


__all__ = ["Choice", "Problem", "Score", "Traffic", "better", "objective", "rounded"]
