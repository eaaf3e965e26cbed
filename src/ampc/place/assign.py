"""Which device owns which node: strategies over units, a unit being a layer with all its uses and the nodes that go along with it.

`place` returns a complete `Placement` with the predicted load of each device. It changes no graph and measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable
from ampc.ir.copies import names_of
from ampc.ir.graph import Graph
from ampc.place.bound import bound_of
from ampc.place.cost import estimate
from ampc.place.factors import NONE, Factors, scaled
from ampc.place.exact import NEAR, simple_bound, solvable, solve
from ampc.place.loads import Loads
from ampc.place.memory import check_memory
from ampc.place.problem import Choice, Problem, rounded
from ampc.place.search import along, improve, large, least, longest_first, score_of, search, settle, shake, together
from ampc.place.statistics import Statistics, guess
from ampc.place.target import Precision, Target
from ampc.place.traffic import ways


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`device_of`: node id -> index into `devices`, for every node.

    The rest is predicted, a mean over instances: busy seconds of each device and messages between devices; and bytes of weights, gradients,
    optimiser state and of the values of the instances in flight. `instances_per_s` is what the busiest device (`bottleneck`) or link allows;
    `bottleneck_link` is "" where that is a device. No placement has an objective (docs/placement.md) below this one's times 1 - `gap`.
    `precision`: whose rates of matrix products the estimate takes.
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
    bottleneck_link: str = ""
    gap: float = 1.0
    precision: Precision = "fp32"


def precision_of(graph: Graph, target: Target) -> Precision:
    """Return what the program's matrix products are made of (its setting `precision`), or fp32 where the target states no rate for that."""
    wanted: Precision = "bf16" if graph.train.get("precision") == "bf16" else "fp32"
    return wanted if target.has(wanted) else "fp32"


def place(
    graph: Graph, target: Target, strategy: str = "balanced", statistics: Statistics | None = None, precision: Precision = "fp32",
    at: Mapping[str, str] | None = None, factors: Factors = NONE, quick: bool = False,
) -> Placement:
    """Return a placement of every node of a verified `graph` on the devices of `target`, estimated for products of factors of `precision`.

    at: layer -> name of the device that it has to be on. factors: how much longer nodes take than estimated, from a profile. quick: `balanced`
    without a solver and without chance, several times as fast, and mostly as good within a few percent.
    Raises AmpError AMP506 (a device lacks the precision), AMP510 (unknown strategy), AMP511, AMP512, AMP514 and AMP515 (devices that layers ask for),
    AMP513 (memory).
    """
    if strategy not in STRATEGIES:
        remedy = did_you_mean(strategy, STRATEGIES) or "strategies are " + ", ".join(f"`{s}`" for s in STRATEGIES)
        raise error("AMP510", f"there is no placement strategy `{printable(strategy)}`", help=remedy)
    graph = pinned_at(graph, at or {})
    target.require(precision)
    cost = scaled(estimate(graph, statistics or guess(graph), precision), factors)
    given = Problem(graph, target, cost)
    problem, chosen, bound_s = balanced(given, quick) if strategy == "balanced" else STRATEGIES[strategy](given)
    check_memory(problem, chosen)
    return _placement(problem, strategy, chosen, bound_s)


def fastest(
    graph: Graph, target: Target, statistics: Statistics | None = None, precision: Precision = "fp32", factors: Factors = NONE
) -> float:  # fmt: skip
    """Return instances/s that no placement of `graph` exceeds, by the bounds that need no search."""
    problem = Problem(graph, target, scaled(estimate(graph, statistics or guess(graph), precision), factors), fine=True)
    busiest_s = bound_of(problem).busiest_s
    return 1.0 / busiest_s if busiest_s > 0 else float("inf")


def _placement(problem: Problem, strategy: str, choice: Choice, bound_s: float) -> Placement:
    """Return a choice as a placement, with what it predicts."""
    loads = Loads(problem, choice)
    stops = {node: choice[unit] for node, unit in problem.unit_of.items()}
    device_of = dict(sorted((stops | ways(problem.graph, stops)).items()))
    crossing = [t for pair, t in problem.traffic.items() if choice[pair[0]] != choice[pair[1]]]
    objective = problem.objective(loads.busy_s, max(loads.link_s))
    link = loads.link_s.index(max(loads.link_s))
    return Placement(
        strategy=strategy,
        devices=tuple(d.name for d in problem.target.devices),
        device_of=device_of,
        busy_s=tuple(rounded(x) for x in loads.busy_s),
        crossing_messages=rounded(sum(t.messages for t in crossing)),
        crossing_bytes=rounded(sum(t.bytes for t in crossing)),
        memory_bytes=tuple(loads.memory.tolist()),
        bottleneck=int(loads.busy_s.argmax()),
        instances_per_s=rounded(1.0 / loads.busiest_s()) if loads.busiest_s() > 0 else 0.0,
        bottleneck_link=problem.wires.name(link) if loads.link_s[link] > loads.busy_s.max() else "",
        gap=round(max(0.0, 1.0 - bound_s / objective), 4) if objective > 0 else 0.0,
        precision=problem.cost.precision,
    )


# ------------------------------------------------------------------------------------------------ strategies

FEW = 8
"""Devices of a network of like ones on which a placement is looked for first."""
Placed = tuple[Problem, Choice, float]
"""The problem that was solved at last, the choice for its units, and a bound of the objective over all placements of nodes."""


def round_robin(problem: Problem) -> Placed:
    """Layers in the order of the graph, to devices in turn; what owns no parameters goes where its largest traffic is."""
    choice = _dealt(problem)
    return problem, choice, _bound(problem, choice, _fine(problem))


def _dealt(problem: Problem) -> Choice:
    choice = [-1] * len(problem.units)
    turn = 0
    for unit in problem.units:
        if unit.layer:
            choice[unit.id] = turn % problem.n_devices
            turn += 1
    return settle(problem, choice)


def balanced(problem: Problem, quick: bool = False) -> Placed:
    """The best of several starts that moves and swaps improve, first of whole layers with what goes along, then of single nodes.

    Where units are few, a solver finds the best of all placements; `quick` goes without. Keeps devices that layers ask for.
    """
    pinned = asked_for(problem)
    dealt = [pinned.get(u, d) for u, d in enumerate(_dealt(problem))]
    _limit(problem, _dealt(problem))
    starts = [longest_first(problem, pinned), along(problem, pinned), together(problem, pinned), dealt]
    chosen, fine = search(problem, starts, pinned), _fine(problem)
    if not quick and not solvable(fine):
        chosen, _ = _solved(problem, chosen, pinned)
    # Nodes without parameters leave their units where that helps: they may lie between two layers on different devices.
    pinned = asked_for(fine)
    start = [chosen[problem.unit_of[u.nodes[0]]] for u in fine.units]
    if quick:
        return fine, search(fine, [start, longest_first(fine, pinned)], pinned), 0.0  # no bound is asked for
    # Whole layers on many devices may gather on a few for what goes along with them: then the order of the nodes is the better start.
    starts = [start, along(fine, pinned)] if large(fine) else [start, longest_first(fine, pinned), *_on_few(problem, pinned)]
    chosen, bound_s = _solved(fine, search(fine, starts, pinned), pinned)
    return fine, chosen, bound_s


def _on_few(problem: Problem, pinned: Mapping[int, int]) -> list[Choice]:
    """Return the choice for some of the devices, where they are all alike: so few are often enough, and then the solver finds the best."""
    links, devices = problem.target.links, problem.target.devices
    if len(devices) <= FEW or pinned or links.topology not in ("shared", "full", "star") or problem.seconds.shape[1] > 1:
        return []
    _, choice, _ = balanced(Problem(problem.graph, msgspec.structs.replace(problem.target, devices=devices[:FEW]), problem.cost))
    return [choice]


def _fine(problem: Problem) -> Problem:
    fine = Problem(problem.graph, problem.target, problem.cost, fine=True)
    fine.limit_s = problem.limit_s
    return fine


def _bound(problem: Problem, choice: Choice, of: Problem | None = None) -> float:
    """Return a bound of the objective, given a choice; `of`: another problem of the same program whose choices it is about."""
    missing, _, objective = score_of(problem, choice)
    return simple_bound(of or problem, float("inf") if missing else objective)


def _limit(problem: Problem, dealt: Choice) -> None:
    """No placement is wanted that is slower than `round_robin`, if that fits and keeps the devices that layers ask for."""
    loads = Loads(problem, dealt)
    if loads.score()[0] == 0 and all(dealt[u] == d for u, d in asked_for(problem).items()):
        problem.limit_s = loads.busiest_s()


def _solved(problem: Problem, chosen: Choice, pinned: Mapping[int, int]) -> tuple[Choice, float]:
    """Return the best of all choices where the problem is small enough for the solver, else one that random shakes lead to; with a bound."""
    if not solvable(problem):
        bound_s = _bound(problem, chosen)
        if large(problem) or _near(problem, chosen, bound_s):
            return chosen, bound_s
        chosen = shake(problem, chosen, pinned)
        return chosen, _bound(problem, chosen)
    solved = solve(problem, chosen, pinned)
    found = chosen if solved.choice is None else least(problem, [solved.choice, improve(problem, solved.choice, pinned)])
    return found if _near(problem, found, solved.bound_s) else shake(problem, found, pinned), solved.bound_s


def _near(problem: Problem, choice: Choice, bound_s: float) -> bool:
    """Whether a choice is so near to a bound that looking on is not worth it."""
    missing, over_s, objective = score_of(problem, choice)
    return not missing and not over_s and bound_s >= objective * (1 - NEAR)


def manual(problem: Problem) -> Placed:
    """Each layer where its `device` says."""
    order = {x.name: i for i, x in enumerate(problem.graph.layers)}
    missing = sorted((u for u in problem.units if u.layer and not u.device), key=lambda u: order[u.layer])
    if missing:
        remedy = f'write `device = "{problem.target.devices[0].name}"`, or leave the choice to `--strategy balanced`'
        raise AmpError([Diagnostic("AMP512", f"manual placement needs a device for layer `{u.layer}`", help=remedy) for u in missing])
    choice = [-1] * len(problem.units)
    for unit, device in asked_for(problem).items():
        choice[unit] = device
    choice = settle(problem, choice)
    return problem, choice, _bound(problem, choice, _fine(problem))


STRATEGIES: Mapping[str, Callable[[Problem], Placed]] = {"balanced": balanced, "round_robin": round_robin, "manual": manual}


def asked_for(problem: Problem) -> dict[int, int]:
    """Return unit -> device for the layers that ask for one.

    Raises AMP511 for a device that the target lacks, AMP515 if layers that one node multiplies together ask for different ones.
    """
    names = {d.name: i for i, d in enumerate(problem.target.devices)}
    found: list[Diagnostic] = []
    pinned: dict[int, int] = {}
    for unit in problem.units:
        wanted = {problem.graph.layer[name].device: name for name in reversed(unit.layers) if problem.graph.layer[name].device}
        for device, layer in wanted.items():
            if device not in names:
                shown = ", ".join(f"`{printable(n)}`" for n in list(names)[:8]) + (", ..." if len(names) > 8 else "")
                found.append(Diagnostic(
                    "AMP511", f"layer `{layer}` asks for device `{printable(device)}`, which target `{problem.target.name}` lacks",
                    help=did_you_mean(device, names) or f"its devices are {shown}",
                ))  # fmt: skip
        if len(wanted) > 1 and not found:
            (a, first), (b, second) = list(wanted.items())[:2]
            found.append(Diagnostic(
                "AMP515", f"layer `{first}` asks for device `{printable(a)}`, but `{second}` for `{printable(b)}`: one product takes both",
                help="members of a family that are picked for each element of an axis share one device",
            ))  # fmt: skip
        elif wanted and not found:
            pinned[unit.id] = names[unit.device]
    if found:
        raise AmpError(found)
    return pinned


def pinned_at(graph: Graph, at: Mapping[str, str]) -> Graph:
    """Return the graph with the devices of `at` (layer -> device); a name stands for all copies, parts and members too. Raises AMP514."""
    if not at:
        return graph
    names = {x.name: names_of(x.name) for x in graph.layers}
    known = dict.fromkeys(n for every in names.values() for n in sorted(every))
    wrong = [name for name in at if name not in known]
    if wrong:
        listed = "the layers are " + ", ".join(f"`{x.name}`" for x in graph.layers[:12]) + (", ..." if len(graph.layers) > 12 else "")
        raise AmpError([
            Diagnostic("AMP514", f"there is no layer `{printable(x)}` to put on device `{printable(at[x])}`", help=did_you_mean(x, known) or listed)
            for x in wrong
        ])
    closest = {x: [n for n in every if n in at] for x, every in names.items()}
    layers = tuple(msgspec.structs.replace(x, device=at[closest[x.name][-1]]) if closest[x.name] else x for x in graph.layers)
    return msgspec.structs.replace(graph, layers=layers)


__all__ = ["STRATEGIES", "Placement", "fastest", "pinned_at", "place", "precision_of"]
