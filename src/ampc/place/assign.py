"""Which device owns which node: strategies over units, a unit being a layer with all its uses and the nodes that go along with it.

`place` returns a complete `Placement` with the predicted load of each device. It changes no graph and measures nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable
from ampc.ir.graph import Graph
from ampc.place.cost import estimate
from ampc.place.problem import Choice, Problem, Traffic, rounded
from ampc.place.search import improve, longest_first, shake, together
from ampc.place.statistics import Statistics, guess
from ampc.place.target import Precision, Target
from ampc.place.traffic import ways


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`device_of`: node id -> index into `devices`, for every node.

    The rest is predicted, a mean over instances: busy seconds of each device and messages between devices; and bytes of weights, gradients and
    optimiser state. `instances_per_s` is what the busiest device (`bottleneck`) allows.
    """

    strategy: str
    devices: tuple[str, ...]
    device_of: dict[int, int]
    busy_s: tuple[float, ...] = ()
    crossing_messages: float = 0.0
    crossing_bytes: float = 0.0
    memory_bytes: tuple[int, ...] = ()
    bottleneck: int = 0
    instances_per_s: float = 0.0


def place(
    graph: Graph, target: Target, strategy: str = "balanced", statistics: Statistics | None = None, precision: Precision = "fp32"
) -> Placement:
    """Return a placement of every node of a verified `graph` on the devices of `target`, estimated for numbers of `precision`.

    Raises AmpError AMP506 (a device lacks the precision), AMP510 (unknown strategy), AMP511 and AMP512 (manual placement), AMP513 (memory).
    """
    if strategy not in STRATEGIES:
        remedy = did_you_mean(strategy, STRATEGIES) or "strategies are " + ", ".join(f"`{s}`" for s in STRATEGIES)
        raise error("AMP510", f"there is no placement strategy `{printable(strategy)}`", help=remedy)
    target.require(precision)
    cost = estimate(graph, statistics or guess(graph), precision)
    problem = Problem(graph, target, cost)
    chosen = STRATEGIES[strategy](problem)
    if strategy == "balanced":
        problem, chosen = _refined(problem, chosen)
    _check_memory(problem, chosen)
    return _placement(problem, strategy, chosen)


def _refined(coarse: Problem, chosen: Choice) -> tuple[Problem, Choice]:
    """Let nodes without parameters leave their units where that helps: they may lie between two layers on different devices."""
    fine = Problem(coarse.graph, coarse.target, coarse.cost, fine=True)
    start = [chosen[coarse.unit_of[u.nodes[0]]] for u in fine.units]
    pinned = _pinned(fine)
    return fine, shake(fine, improve(fine, start, pinned), pinned)


def _placement(problem: Problem, strategy: str, choice: Choice) -> Placement:
    """Return a choice as a placement, with what it predicts."""
    loads, memory = problem.state(choice)
    stops = {node: choice[unit] for node, unit in problem.unit_of.items()}
    device_of = dict(sorted((stops | ways(problem.graph, stops)).items()))
    crossing = [t for pair, t in problem.traffic.items() if choice[pair[0]] != choice[pair[1]]]
    busiest = max(range(problem.n_devices), key=lambda d: (loads[d], -d))
    return Placement(
        strategy=strategy,
        devices=tuple(d.name for d in problem.target.devices),
        device_of=device_of,
        busy_s=tuple(rounded(x) for x in loads),
        crossing_messages=rounded(sum(t.messages for t in crossing)),
        crossing_bytes=rounded(sum(t.bytes for t in crossing)),
        memory_bytes=tuple(memory),
        bottleneck=busiest,
        instances_per_s=rounded(1.0 / loads[busiest]) if loads[busiest] > 0 else 0.0,
    )


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
    dealt = [pinned.get(u, d) for u, d in enumerate(round_robin(problem))]
    starts = [longest_first(problem, pinned), together(problem, pinned), dealt]
    best = min((improve(problem, start, pinned, swaps=True) for start in starts), key=lambda c: problem.score(*problem.state(c)))
    return shake(problem, best, pinned)


def manual(problem: Problem) -> Choice:
    """Each layer where its `device` says."""
    order = {x.name: i for i, x in enumerate(problem.graph.layers)}
    missing = sorted((u for u in problem.units if u.layer and not u.device), key=lambda u: order[u.layer])
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


def _settle(problem: Problem, choice: Choice) -> Choice:
    """Give each unit without a device that with which it exchanges most; one that exchanges with nobody goes to the least loaded device.

    That holds for the Source too: it sends a message for each element of an axis that a layer is applied to.
    """
    while -1 in choice:
        waiting = [(sum(_pull(t) for o, t in problem.neighbours[u] if choice[o] >= 0), -u) for u, d in enumerate(choice) if d == -1]
        unit = -max(waiting)[1]
        pull: dict[int, float] = defaultdict(float)
        for other, traffic in problem.neighbours[unit]:
            if choice[other] >= 0:
                pull[choice[other]] += _pull(traffic)
        if pull:
            choice[unit] = max(pull, key=lambda d: (pull[d], -d))
        else:
            loads, _memory = problem.state(choice)
            choice[unit] = min(range(problem.n_devices), key=lambda d: (loads[d], d))
    return choice


def _pull(traffic: Traffic) -> float:
    """Return how strongly two units want to be together: a message counts as much as some hundred bytes."""
    return 256 * traffic.messages + traffic.bytes


def _check_memory(problem: Problem, choice: Choice) -> None:
    found = []
    for device, used in zip(problem.target.devices, problem.state(choice)[1]):
        if used > device.memory_bytes:
            name = f"device `{printable(device.name)}` of target `{problem.target.name}`"
            found.append(Diagnostic(
                "AMP513",
                f"{name} has {device.memory_bytes:,} bytes, but its layers need {used:,}",
                help="choose a target with more memory or more devices (`--target`), a smaller model, or `optimizer = sgd` in the model's "
                "`train:` block, which keeps no state",
            ))
    if found:
        raise AmpError(found)


__all__ = ["STRATEGIES", "Placement", "place"]
