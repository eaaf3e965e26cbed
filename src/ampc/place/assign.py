"""Which device owns which node: strategies over units, a unit being a layer with all its uses and the nodes that go along with it.

`place` returns a complete `Placement` with the predicted load of each device. It changes no graph and measures nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable
from ampc.ir.graph import Graph
from ampc.place.cost import Cost, estimate
from ampc.place.statistics import Statistics, guess
from ampc.place.target import Target
from ampc.place.units import Unit, units_of

MAX_ROUNDS = 50
"""Rounds of local improvement; each makes the busiest device faster, and far fewer are needed in practice."""


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
    _check_memory(problem, chosen)
    return problem.placement(strategy, chosen)


# ------------------------------------------------------------------------------------------------ the problem

Choice = list[int]
"""Device of each unit, by the unit's number."""


class Problem:
    """Units with their seconds on each device and the traffic between them: what a strategy needs, and how it is scored."""

    def __init__(self, graph: Graph, target: Target, cost: Cost) -> None:
        self.graph, self.target, self.cost = graph, target, cost
        self.units: list[Unit] = units_of(graph, cost)
        self.n_devices = len(target.devices)
        self._check_replicas()
        self.unit_of = {node: u.id for u in self.units for node in u.nodes}
        traffic: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for (source, _port), (reader, _input) in graph.readers.items():
            a, b = self.unit_of[source], self.unit_of[reader]
            if a != b:
                count, size = cost.messages[source, _port]
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

    def loads(self, choice: Choice) -> list[float]:
        """Return the busy seconds an instance of every device."""
        out = [0.0] * self.n_devices
        for unit in self.units:
            devices = self.copies(unit, choice[unit.id])
            for d in devices:
                out[d] += self.seconds(unit, d) / len(devices)
        for (a, b), (messages, size) in self.traffic.items():
            x, y = choice[a], choice[b]
            if x != y:
                each = self.crossing(messages, size, x, y)
                out[x] += each
                out[y] += each
        return out

    def copies(self, unit: Unit, first: int) -> list[int]:
        """Return the devices of a unit's replicas: the first, then those that follow it."""
        return [(first + r) % self.n_devices for r in range(unit.replicas)]

    def score(self, choice: Choice) -> tuple[float, float]:
        """Return (busiest device, all devices together): smaller is better."""
        loads = self.loads(choice)
        return max(loads), sum(loads)

    def memory(self, choice: Choice) -> list[int]:
        """Return the bytes of weights, gradients and optimiser state on every device."""
        out = [0] * self.n_devices
        for unit in self.units:
            for d in self.copies(unit, choice[unit.id]):
                out[d] += unit.memory_bytes
        return out

    def placement(self, strategy: str, choice: Choice) -> Placement:
        loads, memory = self.loads(choice), self.memory(choice)
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
    best: Choice | None = None
    for start in (_longest_first(problem, pinned), _together(problem, pinned)):
        candidate = _improve(problem, start, pinned)
        if best is None or problem.score(candidate) < problem.score(best):
            best = candidate
    assert best is not None
    return best


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
    loads, memory = [0.0] * problem.n_devices, [0] * problem.n_devices
    order = sorted(problem.units, key=lambda u: (u.id not in pinned, -problem.seconds(u, 0), u.id))
    for unit in order:
        options = [pinned[unit.id]] if unit.id in pinned else range(problem.n_devices)

        def after(d: int, unit: Unit = unit) -> tuple[bool, float, int]:
            copies = problem.copies(unit, d)
            full = any(memory[c] + unit.memory_bytes > problem.target.devices[c].memory_bytes for c in copies)
            links = sum(problem.crossing(m, b, d, choice[o]) for o, m, b in problem.neighbours[unit.id] if choice[o] >= 0)
            return full, max(loads[c] + problem.seconds(unit, c) / len(copies) for c in copies) + links, d

        d = min(options, key=after)
        choice[unit.id] = d
        copies = problem.copies(unit, d)
        for c in copies:
            loads[c] += problem.seconds(unit, c) / len(copies)
            memory[c] += unit.memory_bytes
    return choice


def _together(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Everything on one device: the best start where messages cost more than work."""
    fastest = max(range(problem.n_devices), key=lambda d: (problem.target.devices[d].peak_flops_per_s * problem.target.devices[d].cores, -d))
    return [pinned.get(u.id, fastest) for u in problem.units]


def _improve(problem: Problem, choice: Choice, pinned: Mapping[int, int]) -> Choice:
    """Move single units, then swap pairs, as long as the score falls and memory holds."""
    free = [u.id for u in problem.units if u.id not in pinned]
    best = (_overflow(problem, choice), *problem.score(choice))
    many = len(free) * problem.n_devices > 4096
    for _ in range(MAX_ROUNDS):
        before = best
        loads = problem.loads(choice)
        # On large targets only the units of the busiest device are tried: moving others cannot help.
        busiest = max(range(problem.n_devices), key=lambda d: loads[d])
        moved = [u for u in free if not many or choice[u] == busiest]
        trials = [[(u, d)] for u in moved for d in range(problem.n_devices)]
        if len(free) <= 64:
            trials += [[(a, choice[b]), (b, choice[a])] for i, a in enumerate(free) for b in free[i + 1 :] if choice[a] != choice[b]]
        for trial in trials:
            old = [(u, choice[u]) for u, _ in trial]
            for u, d in trial:
                choice[u] = d
            now = (_overflow(problem, choice), *problem.score(choice))
            if now < best:
                best = now
            else:
                for u, d in old:
                    choice[u] = d
        if best == before:
            break
    return choice


def _overflow(problem: Problem, choice: Choice) -> int:
    """Return the bytes by which devices are over-full."""
    return sum(max(0, used - d.memory_bytes) for used, d in zip(problem.memory(choice), problem.target.devices))


def _settle(problem: Problem, choice: Choice) -> Choice:
    """Give each unit without a device that of its busiest placed neighbour; one without neighbours goes to the least loaded device."""
    while -1 in choice:
        waiting = [(sum(b + 1 for o, _, b in problem.neighbours[u] if choice[o] >= 0), -u) for u, d in enumerate(choice) if d == -1]
        _, negative = max(waiting)
        unit = -negative
        pull: dict[int, float] = defaultdict(float)
        for other, _, size in problem.neighbours[unit]:
            if choice[other] >= 0:
                pull[choice[other]] += size + 1
        if pull:
            choice[unit] = max(pull, key=lambda d: (pull[d], -d))
        else:
            loads = problem.loads([c if c >= 0 else 0 for c in choice])
            choice[unit] = min(range(problem.n_devices), key=lambda d: (loads[d], d))
    return choice


def _check_memory(problem: Problem, choice: Choice) -> None:
    found = []
    for device, used in zip(problem.target.devices, problem.memory(choice)):
        if used > device.memory_bytes:
            found.append(Diagnostic(
                "AMP513",
                f"device `{printable(device.name)}` of target `{problem.target.name}` has {device.memory_bytes} bytes, but its layers need {used}",
                help="choose a target with more memory or more devices, a smaller model, or `optimizer = sgd`, which keeps no state",
            ))
    if found:
        raise AmpError(found)


__all__ = ["STRATEGIES", "Placement", "Problem", "place"]
