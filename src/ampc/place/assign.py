"""Which device owns which node: strategies over units, a unit being a layer with all its uses and the nodes that go along with it.

`place` returns a complete `Placement` with the predicted load of each device. It changes no graph and measures nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable
from ampc.ir.graph import Graph
from ampc.ir.nodes import Source
from ampc.place.cost import Cost, estimate
from ampc.place.statistics import Statistics, guess
from ampc.place.target import Target
from ampc.place.units import Unit, units_of

MAX_ROUNDS = 50
"""Rounds of local improvement; each makes the busiest device faster, and far fewer are needed in practice."""
MAX_SWAPPED = 64
"""Units up to which pairs are tried too."""


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`device_of`: node id -> index into `devices`, for every node. `replicas`: layer -> the device of each copy (layers with copies only).

    The rest is predicted, a mean over instances: busy seconds of each device and messages between devices; and bytes of weights, gradients and
    optimiser state. `instances_per_s` is what the busiest device (`bottleneck`) allows.
    """

    strategy: str
    devices: tuple[str, ...]
    device_of: dict[int, int]
    replicas: dict[str, tuple[int, ...]] = {}
    busy_s: tuple[float, ...] = ()
    crossing_messages: float = 0.0
    crossing_bytes: float = 0.0
    memory_bytes: tuple[int, ...] = ()
    bottleneck: int = 0
    instances_per_s: float = 0.0


def place(graph: Graph, target: Target, strategy: str = "balanced", statistics: Statistics | None = None) -> Placement:
    """Return a placement of every node of a verified `graph` on the devices of `target`.

    Raises AmpError AMP510 (unknown strategy), AMP511 and AMP512 (manual placement), AMP513 (memory), AMP514 (more replicas than devices).
    """
    if strategy not in STRATEGIES:
        remedy = did_you_mean(strategy, STRATEGIES) or "strategies are " + ", ".join(f"`{s}`" for s in STRATEGIES)
        raise error("AMP510", f"there is no placement strategy `{printable(strategy)}`", help=remedy)
    cost = estimate(graph, statistics or guess(graph))
    problem = Problem(graph, target, cost)
    chosen = STRATEGIES[strategy](problem)
    if strategy == "balanced":
        problem, chosen = _refine(problem, chosen)
    _check_memory(problem, chosen)
    return problem.placement(strategy, chosen)


def _refine(coarse: Problem, chosen: Choice) -> tuple[Problem, Choice]:
    """Let nodes without parameters leave their units where that helps: they may lie between two layers on different devices."""
    fine = Problem(coarse.graph, coarse.target, coarse.cost, fine=True)
    start = [chosen[coarse.unit_of[u.nodes[0]]] for u in fine.units]
    pinned = {u.id: start[u.id] for u in fine.units if u.device or u.layer}  # layers stay: their best places were found together
    return fine, _improve(fine, start, pinned)


# ------------------------------------------------------------------------------------------------ the problem

Choice = list[int]
"""Device of each unit, by the unit's number."""


class Problem:
    """Units with their seconds on each device and the traffic between them: what a strategy needs, and how it is scored."""

    def __init__(self, graph: Graph, target: Target, cost: Cost, fine: bool = False) -> None:
        self.graph, self.target, self.cost = graph, target, cost
        self.units: list[Unit] = units_of(graph, cost, fine)
        self.n_devices = len(target.devices)
        self._check_replicas()
        self.unit_of = {node: u.id for u in self.units for node in u.nodes}
        traffic: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for (source, port), (reader, _input) in graph.readers.items():
            a, b = self.unit_of[source], self.unit_of[reader]
            if a != b:
                count, size = cost.messages[source, port]
                pair = traffic[min(a, b), max(a, b)]
                pair[0] += 2 * count  # forward and its answer
                pair[1] += 2 * count * size
        self.traffic = {pair: (messages, size) for pair, (messages, size) in sorted(traffic.items())}
        self.neighbours: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
        for (a, b), (messages, size) in self.traffic.items():
            self.neighbours[a].append((b, messages, size))
            self.neighbours[b].append((a, messages, size))

    def _check_replicas(self) -> None:
        for layer in self.graph.layers:
            if layer.replicas > self.n_devices:
                n = f"{self.n_devices} device{'' if self.n_devices == 1 else 's'}"
                raise error(
                    "AMP514", f"layer `{layer.name}` has {layer.replicas} replicas, but target `{self.target.name}` has {n}",
                    help=f"write `replicas = {self.n_devices}` or choose a target with more devices",
                )

    def seconds(self, unit: Unit, device: int) -> float:
        """Return the busy seconds an instance that `unit` costs on `device`."""
        d = self.target.devices[device]
        work = unit.flops / (d.peak_flops_per_s * d.cores)
        if d.memory_bytes_per_s:
            work = max(work, unit.bytes / d.memory_bytes_per_s)
        return work + 2 * unit.fires * d.message_overhead_s / d.cores

    def crossing(self, messages: float, size: float, a: int, b: int) -> float:
        """Return the busy seconds that traffic between devices `a` and `b` costs *each* of them."""
        if a == b:
            return 0.0
        overhead = max(self.target.devices[a].message_overhead_s, self.target.devices[b].message_overhead_s)
        return self.target.hops(a, b) * size / self.target.links.bytes_per_s / 2 + messages * overhead

    def copies(self, unit: Unit, first: int) -> list[int]:
        """Return the devices of a unit's replicas: the first, then those that follow it."""
        return [(first + r) % self.n_devices for r in range(unit.replicas)]

    def add(self, unit: Unit, device: int, choice: Choice, loads: list[float], memory: list[int], sign: int = 1) -> None:
        """Add `unit` on `device`, with its traffic to what is placed already, to the devices' loads; `sign` -1 takes it away."""
        copies = self.copies(unit, device)
        for d in copies:
            loads[d] += sign * self.seconds(unit, d) / len(copies)
            memory[d] += sign * unit.memory_bytes
        for other, messages, size in self.neighbours[unit.id]:
            there = choice[other]
            if there >= 0 and there != device:
                each = sign * self.crossing(messages, size, device, there)
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

    def score(self, loads: list[float], memory: list[int]) -> tuple[int, float, float]:
        """Return (bytes that do not fit, busiest device, all devices together), rounded against noise: smaller is better."""
        over = sum(max(0, used - d.memory_bytes) for used, d in zip(memory, self.target.devices))
        return over, _round(max(loads)), _round(sum(loads))

    def placement(self, strategy: str, choice: Choice) -> Placement:
        loads, memory = self.state(choice)
        crossing = [t for pair, t in self.traffic.items() if choice[pair[0]] != choice[pair[1]]]
        busiest = max(range(self.n_devices), key=lambda d: (loads[d], -d))
        return Placement(
            strategy=strategy,
            devices=tuple(d.name for d in self.target.devices),
            device_of={n.id: choice[self.unit_of[n.id]] for n in self.graph.nodes},
            replicas={u.layer: tuple(self.copies(u, choice[u.id])) for u in self.units if u.replicas > 1},
            busy_s=tuple(_round(x) for x in loads),
            crossing_messages=_round(sum(m for m, _ in crossing)),
            crossing_bytes=_round(sum(b for _, b in crossing)),
            memory_bytes=tuple(memory),
            bottleneck=busiest,
            instances_per_s=_round(1.0 / loads[busiest]) if loads[busiest] > 0 else 0.0,
        )


def _round(value: float) -> float:
    """Six digits: enough for an estimate, and the same text on every machine."""
    return float(f"{value:.6g}")


# ------------------------------------------------------------------------------------------------ strategies


def round_robin(problem: Problem) -> Choice:
    """Layers in the order of the graph, to devices in turn; what owns no parameters goes where its largest traffic is."""
    choice = [-1] * len(problem.units)
    turn = 0
    for unit in problem.units:
        if unit.layer:
            choice[unit.id] = turn % problem.n_devices
            turn += 1
    return _settle(problem, choice)


def balanced(problem: Problem) -> Choice:
    """Longest processing time first, then moves and swaps as long as the busiest device gets faster; keeps devices that layers ask for."""
    pinned = _pinned(problem)
    starts = [_longest_first(problem, pinned), _together(problem, pinned)]
    return min((_improve(problem, start, pinned) for start in starts), key=lambda c: problem.score(*problem.state(c)))


def manual(problem: Problem) -> Choice:
    """Each layer where its `device` says."""
    missing = [u for u in problem.units if u.layer and not u.device]
    if missing:
        remedy = f'write `device = "{problem.target.devices[0].name}"`, or leave the choice to `--strategy balanced`'
        raise AmpError([Diagnostic("AMP512", f"manual placement needs a device for layer `{u.layer}`", help=remedy) for u in missing])
    choice = [-1] * len(problem.units)
    for unit, device in _pinned(problem).items():
        choice[unit] = device
    return _settle(problem, choice)


STRATEGIES: Mapping[str, Callable[[Problem], Choice]] = {"balanced": balanced, "round_robin": round_robin, "manual": manual}


def _pinned(problem: Problem) -> dict[int, int]:
    """Return unit -> device for the layers that ask for one; raises AMP511 for a device that the target lacks."""
    names = {d.name: i for i, d in enumerate(problem.target.devices)}
    wrong = [u for u in problem.units if u.device and u.device not in names]
    if wrong:
        shown = ", ".join(f"`{n}`" for n in list(names)[:8]) + (", ..." if len(names) > 8 else "")
        raise AmpError([
            Diagnostic("AMP511", f"layer `{u.layer}` asks for device `{printable(u.device)}`, which target `{problem.target.name}` lacks",
                       help=did_you_mean(u.device, names) or f"its devices are {shown}")
            for u in wrong
        ])
    return {u.id: names[u.device] for u in problem.units if u.device}


def _longest_first(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Greedy: the unit with the most work goes where the busiest device stays fastest, given what is placed already."""
    choice = [-1] * len(problem.units)
    loads, memory = problem.state(choice)
    for unit in sorted(problem.units, key=lambda u: (u.id not in pinned, -problem.seconds(u, 0), u.id)):
        options = [pinned[unit.id]] if unit.id in pinned else range(problem.n_devices)
        choice[unit.id] = _best(problem, unit, options, choice, loads, memory)
        problem.add(unit, choice[unit.id], choice, loads, memory)
    return choice


def _best(problem: Problem, unit: Unit, options: Iterable[int], choice: Choice, loads: list[float], memory: list[int]) -> int:
    """Return the device of `options` that gives the best score for a unit that is not placed; the first of several."""
    best: tuple[tuple[int, float, float], int] | None = None
    for d in options:
        problem.add(unit, d, choice, loads, memory)
        now = problem.score(loads, memory), d
        problem.add(unit, d, choice, loads, memory, -1)
        best = now if best is None else min(best, now)
    assert best is not None
    return best[1]


def _together(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Everything on one device: the best start where messages cost more than work."""
    fastest = max(range(problem.n_devices), key=lambda d: (problem.target.devices[d].peak_flops_per_s * problem.target.devices[d].cores, -d))
    return [pinned.get(u.id, fastest) for u in problem.units]


def _improve(problem: Problem, choice: Choice, pinned: Mapping[int, int]) -> Choice:
    """Move single units, then swap pairs, as long as the score falls."""
    choice = list(choice)
    free = [u for u in problem.units if u.id not in pinned]
    loads, memory = problem.state(choice)
    best = problem.score(loads, memory)
    for _ in range(MAX_ROUNDS):
        before = best
        for unit in free:
            old = choice[unit.id]
            _take(problem, unit, choice, loads, memory)
            new = _best(problem, unit, _candidates(problem, unit, old, choice), choice, loads, memory)
            _put(problem, unit, new, choice, loads, memory)
        if len(free) <= MAX_SWAPPED:
            _swap(problem, free, choice, loads, memory)
        loads, memory = problem.state(choice)  # afresh: differences gather rounding errors
        best = problem.score(loads, memory)
        if best >= before:
            break
    return choice


def _candidates(problem: Problem, unit: Unit, now: int, choice: Choice) -> Iterable[int]:
    """Return the devices worth trying, the present one first: all of a small target, else its neighbours' and a few empty ones."""
    if problem.n_devices * len(problem.units) <= 8192:
        others: Iterable[int] = range(problem.n_devices)
    else:
        used = set(choice)
        empty = [d for d in range(problem.n_devices) if d not in used][:4]
        others = sorted({choice[o] for o, _, _ in problem.neighbours[unit.id] if choice[o] >= 0}) + empty
    return [now, *(d for d in others if d != now)]


def _swap(problem: Problem, free: list[Unit], choice: Choice, loads: list[float], memory: list[int]) -> None:
    """Exchange the devices of pairs where that helps; changes its arguments."""
    best = problem.score(loads, memory)
    for i, a in enumerate(free):
        for b in free[i + 1 :]:
            x, y = choice[a.id], choice[b.id]
            if x == y:
                continue
            _exchange(problem, a, b, y, x, choice, loads, memory)
            now = problem.score(loads, memory)
            if now < best:
                best = now
            else:
                _exchange(problem, a, b, x, y, choice, loads, memory)


def _exchange(problem: Problem, a: Unit, b: Unit, to_a: int, to_b: int, choice: Choice, loads: list[float], memory: list[int]) -> None:
    for unit in (a, b):
        _take(problem, unit, choice, loads, memory)
    for unit, d in ((a, to_a), (b, to_b)):
        _put(problem, unit, d, choice, loads, memory)


def _take(problem: Problem, unit: Unit, choice: Choice, loads: list[float], memory: list[int]) -> None:
    device, choice[unit.id] = choice[unit.id], -1
    problem.add(unit, device, choice, loads, memory, -1)


def _put(problem: Problem, unit: Unit, device: int, choice: Choice, loads: list[float], memory: list[int]) -> None:
    problem.add(unit, device, choice, loads, memory)
    choice[unit.id] = device


def _settle(problem: Problem, choice: Choice) -> Choice:
    """Give each unit without a device that of its busiest placed neighbour; one without neighbours, and the Source, the least loaded device."""
    sources = {problem.unit_of[n.id] for n in problem.graph.nodes if isinstance(n, Source)}
    while -1 in choice:
        waiting = [
            (u not in sources, sum(b + 1 for o, _, b in problem.neighbours[u] if choice[o] >= 0), -u) for u, d in enumerate(choice) if d == -1
        ]
        unit = -max(waiting)[2]
        pull: dict[int, float] = defaultdict(float)
        for other, _, size in problem.neighbours[unit]:
            if choice[other] >= 0:
                pull[choice[other]] += size + 1
        if pull and unit not in sources:
            choice[unit] = max(pull, key=lambda d: (pull[d], -d))
        else:
            loads, _memory = problem.state(choice)
            choice[unit] = min(range(problem.n_devices), key=lambda d: (loads[d], d))
    return choice


def _check_memory(problem: Problem, choice: Choice) -> None:
    found = []
    for device, used in zip(problem.target.devices, problem.state(choice)[1]):
        if used > device.memory_bytes:
            found.append(Diagnostic(
                "AMP513",
                f"device `{printable(device.name)}` of target `{problem.target.name}` has {device.memory_bytes} bytes, but its layers need {used}",
                help="choose a target with more memory or more devices, a smaller model, or `optimizer = sgd`, which keeps no state",
            ))
    if found:
        raise AmpError(found)


__all__ = ["STRATEGIES", "Placement", "Problem", "place"]
