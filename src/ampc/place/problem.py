"""The problem of placement: units with their seconds on each device and the traffic between them, and how a choice is scored.

A choice loads devices (work, messages), links (bytes) and memory. Everything is a mean over instances, forward and backward together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ampc.ir.graph import Graph
from ampc.place.cost import Cost, NodeCost
from ampc.place.target import ASSUMED_MESSAGES, Device, Precision, Target
from ampc.place.traffic import routes
from ampc.place.units import Unit, in_flight, units_of
from ampc.place.wires import Wires

SHARED_MEAN_WEIGHT = 0.5
"""Cores of one memory share its bandwidth and caches: a little speed is not bought with much traffic."""
MEAN_WEIGHT = 0.01
"""Devices of a network share nothing but links, which are counted: the mean decides only between equally fast placements."""

HALF_ROWS, HALF_MULTIPLICATIONS = 16, 1 << 20
"""Products of fewer rows or multiplications are made of float32 factors by the engine (`runtime.half`)."""

TOGETHER = 1 / 3
"""Share of the instances in flight whose messages a firing takes together, on a device that takes as many as wait: between what was measured over
the bundled models on one core (median 0.41) and on two (0.28). Of few instances most are together: `ASSUMED_MESSAGES` at least."""

Score = tuple[int, float, float]
"""Bytes that do not fit; seconds by which the busiest device or link exceeds `Problem.limit_s`; `Problem.objective`."""
Choice = list[int]
"""Device of each unit, by the unit's number."""
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Traffic(msgspec.Struct, frozen=True):
    """What goes between two units, an instance: messages, their bytes, how often some are sent; and those that wait in a queue if both share a
    device, with their bytes as so many more."""

    messages: float
    bytes: float
    bursts: float
    waiting: float


class Around(msgspec.Struct, frozen=True):
    """The neighbours of a unit, and what it exchanges with each: arrays of one length.

    apart_s: busy seconds of each of two devices for what goes between them, beside its messages. each: all this neighbour by neighbour:
    most units have few, and loops over plain numbers are faster for these.
    """

    units: Ints
    messages: Floats
    bytes: Floats
    apart_s: Floats
    waiting: Floats
    each: tuple[tuple[int, float, float, float, float], ...]


class Problem:
    """Units with their seconds on each device and the traffic between them: what a strategy needs, and how it is scored.

    `seconds`: [units, kinds of devices], `kind_of`: [devices]; `take_s`: busy seconds of each device for a message that it takes from a queue.
    """

    def __init__(self, graph: Graph, target: Target, cost: Cost, fine: bool = False) -> None:
        self.graph, self.target, self.cost = graph, target, cost
        self.routes = routes(graph, cost)
        self.units: list[Unit] = units_of(graph, cost, self.routes, fine)
        self.n_devices = len(target.devices)
        self.unit_of = {node: u.id for u in self.units for node in u.nodes}
        devices = [loaded(d, graph) for d in target.devices]
        # A message's payload is written by its sender and looked for by its reader; bytes count as so many messages, as on a mean device.
        self.take_s: Floats = np.array([d.message_s + 2 * d.value_overhead_s / d.cores for d in devices])
        self.copy_s = float(np.mean([d.copy_s for d in target.devices]))
        self.traffic = self._traffic()
        self.limit_s = float("inf")
        self.mean_weight = SHARED_MEAN_WEIGHT if target.links.topology == "shared" else MEAN_WEIGHT
        kinds, self.kind_of = _kinds(devices)
        self.seconds: Floats = np.array([[seconds(u, d, cost.precision) for d in kinds] for u in self.units]).reshape(len(self.units), len(kinds))
        self.memory: Ints = np.array([u.memory_bytes for u in self.units], dtype=np.int64)
        self.capacity: Ints = np.array([d.memory_bytes for d in target.devices], dtype=np.int64)
        self.burst_s, self.crossing_s = target.links.overhead_s, target.links.message_overhead_s
        self.byte_s = self.copy_s + target.links.read_s / 2
        """Busy seconds of each of two devices for a byte between them: it is copied, and in shared memory one of them reads what the other wrote."""
        self.around = self._around()
        self.wires = Wires(target)

    def _traffic(self) -> dict[tuple[int, int], Traffic]:
        """Return (unit, unit) -> what goes between them, both ways together."""
        sums: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        take_s = float(self.take_s.mean())
        byte = 2 * self.copy_s / take_s if take_s else 0.0
        for route in self.routes:
            a, b = self.unit_of[route.source], self.unit_of[route.reader]
            if a != b:
                pair = sums[min(a, b), max(a, b)]
                pair[0] += 2 * route.messages  # forward and its answer
                pair[1] += 2 * route.messages * route.size
                pair[2] += 2 * route.bursts
                pair[3] += 0.0 if route.direct else 2 * route.messages * (1 + byte * route.size)
        return {pair: Traffic(*values) for pair, values in sorted(sums.items())}

    def _around(self) -> list[Around]:
        found: list[list[tuple[int, Traffic]]] = [[] for _ in self.units]
        for (a, b), traffic in self.traffic.items():
            found[a].append((b, traffic))
            found[b].append((a, traffic))
        out = []
        for near in found:
            each = tuple((o, t.messages, t.bytes, self.apart_s(t), t.waiting) for o, t in near)
            messages, size, apart_s, waiting = np.ascontiguousarray(np.array([x[1:] for x in each], np.float64).reshape(-1, 4).T)
            out.append(Around(np.array([x[0] for x in each], np.int64), messages, size, apart_s, waiting, each))
        return out

    def seconds_on(self, unit: int, device: int) -> float:
        """Return the busy seconds an instance that a unit costs on a device."""
        return float(self.seconds[unit, self.kind_of[device]])

    def cut_s(self, device: int, traffic: Traffic) -> float:
        """Return the busy seconds of `device` for what it exchanges with another: it takes half of the messages from a queue."""
        return float(traffic.messages * self.take_s[device] / 2 + self.apart_s(traffic))

    def apart_s(self, traffic: Traffic) -> float:
        """Return the busy seconds of each of two devices for what they exchange, beside taking it from queues."""
        return traffic.messages * self.crossing_s + traffic.bursts * self.burst_s + traffic.bytes * self.byte_s

    def objective(self, busy_s: Sequence[float] | Floats, link_s: float = 0.0) -> float:
        """Return what placement makes small: the busiest device or link, and a share of the devices' mean."""
        return max(float(max(busy_s)), link_s) + self.mean_weight * float(sum(busy_s)) / len(busy_s)


def loaded(device: Device, graph: Graph) -> Device:
    """Return `device` with the messages that its firings are thought to take: as many as it says, each with its group, or those of a share of the
    instances in flight where it takes what waits; none goes past the point at which a layer updates itself."""

    def setting(name: str, default: int) -> int:
        given = graph.train.get(name, default)
        return max(1, int(given)) if isinstance(given, int | float) else default  # a run refuses what is no number, by name

    limit = device.messages_per_firing * setting("group", 1)
    flying = in_flight(graph)
    waiting = min(max(TOGETHER * flying, ASSUMED_MESSAGES), flying, max(setting("min_update_frequency", 32), setting("group", 1)))
    return msgspec.structs.replace(device, messages_per_firing=min(limit, round(waiting)) if limit else round(waiting))


def _kinds(devices: Sequence[Device]) -> tuple[list[Device], Ints]:
    """Return the devices that differ in more than their name, and [devices] the number of each one's kind."""
    numbers: dict[bytes, int] = {}
    kinds: list[Device] = []
    of = []
    for device in devices:
        number = numbers.setdefault(msgspec.json.encode(msgspec.structs.replace(device, name="")), len(kinds))
        if number == len(kinds):
            kinds.append(device)
        of.append(number)
    return kinds, np.array(of, dtype=np.int64)


def seconds(unit: Unit, device: Device, precision: Precision) -> float:
    """Return the busy seconds an instance that `unit` costs on `device`, without its messages to other units."""
    together = device.messages_together
    work = 0.0
    for c in unit.work:
        calls = 3 * c.fires / together
        factors = made_of(c, device, precision)
        work += device.seconds(c.matrix_flops, c.vector_flops, c.bytes, precision=factors) + device.handling_s(c.handled, factors)
        work += device.calls_s(calls * c.product_flops, calls * c.product_sides, calls * c.product_calls, factors)
    messages = unit.tokens * (device.message_s + 2 * device.value_overhead_s / device.cores) + 2 * unit.token_bytes * device.copy_s
    work += device.update_s(unit.update_flops, unit.updates) + unit.instances * device.instance_overhead_s / device.cores
    return work + messages


def made_of(cost: NodeCost, device: Device, precision: Precision) -> Precision:
    """Return what a node's matrix products are made of where `precision` is asked for: the engine of a CPU leaves small ones at float32."""
    if precision == "fp32" or device.kind != "cpu" or not cost.product_flops:
        return precision
    rows = device.messages_together * cost.fwd_matrix_flops / (cost.fires * cost.product_flops)
    multiplications = rows * cost.product_flops / 2 / max(1.0, cost.product_calls)
    return precision if rows >= HALF_ROWS and multiplications >= HALF_MULTIPLICATIONS else "fp32"


def better(a: Score, b: Score) -> bool:
    """Whether score `a` is smaller than `b` by more than noise."""
    if a[0] != b[0]:
        return a[0] < b[0]
    noise = 1e-9 * abs(b[2])
    if abs(a[1] - b[1]) > noise:
        return a[1] < b[1]
    return a[2] < b[2] - noise


def rounded(value: float) -> float:
    """Six digits: enough for an estimate, and the same text on every machine."""
    return float(f"{value:.6g}")


__all__ = ["Around", "Choice", "Floats", "Ints", "Problem", "Score", "Traffic", "better", "made_of", "rounded", "seconds"]
