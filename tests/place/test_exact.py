"""`balanced` against all placements of small programs, scored here a second time, link by link."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.place import Device, HostNetwork, Links, Network, Target, guess, place
from ampc.place.bound import bound_of, together
from ampc.place.cost import estimate
from ampc.place.exact import simple_bound, solvable, solve
from ampc.place.loads import Loads
from ampc.place.problem import Problem
from ampc.place.search import longest_first
from ampc.source import remember
from sample_graphs import list_reduction, two_arms

CHAIN = """
model chain(w = {width}):
    instance:
        x: float[{width}]
        y: int < 4
    a = Linear(w, w)
    b = Linear(w, {twice})
    c = Linear({twice}, 4)
    loss cross_entropy(c(relu(b(tanh(a(x))))), y)
    train:
        max_active_keys = 2
"""
FORK = """
model fork(w = 32):
    instance:
        x: float[32]
        y: float[8]
    a = Linear(w, 64)
    b = Linear(w, 16)
    c = Linear(80, 8)
    loss squared(c([relu(a(x)), b(x)]), y)
"""
STEPS = """
model steps(w = 48):
    instance:
        x: float[48]
        y: float[48]
    a = Linear(w, w)
    b = Linear(w, w)
    h = x
    loop t in range(5) carry h:
        h = tanh(a(b(h)))
    loss squared(h, y)
"""


def compiled(text: str) -> Graph:
    graph = compiler.compile_source(remember("small.amp", text.encode(), "the text"), stop_after="passes").graph
    assert graph is not None
    return graph


PROGRAMS = {
    "chain": compiled(CHAIN.format(width=64, twice=128)), "thin": compiled(CHAIN.format(width=8, twice=200)), "fork": compiled(FORK),
    "steps": compiled(STEPS), "list": list_reduction(32), "arms": two_arms(),
}  # fmt: skip


def devices(n: int, flops: tuple[float, ...] = (1e11,), memory_bytes: int = 1 << 40, overhead_s: float = 1e-7) -> tuple[Device, ...]:
    rates = [flops[i % len(flops)] for i in range(n)]
    return tuple(Device(f"d:{i}", "fpga", {"fp32": f}, f / 10, memory_bytes, overhead_s, messages_per_firing=1) for i, f in enumerate(rates))


def target(topology: str, n: int, bytes_per_s: float = 1e9, **more: object) -> Target:
    flops = more.pop("flops", (1e11,))
    links = Links(topology, bytes_per_s, 1e-6, **more)  # type: ignore[arg-type]  # a name of a topology
    return Target(f"{topology}-{n}", devices(n, flops), links)  # type: ignore[arg-type]  # rates


TARGETS = {
    "shared": target("shared", 3, overhead_s=1e-7, message_overhead_s=3e-8), "star": target("star", 3), "slow star": target("star", 3, 1e7), "full": target("full", 3),
    "ring": target("ring", 4, 3e8), "mesh": target("mesh", 4, 3e8, columns=2), "torus": target("torus", 4, 3e8, columns=2),
    "tree": target("tree", 4, 3e8, branching=2), "unequal": target("full", 3, flops=(1e11, 3e11)),
    "hosts": target("hosts", 4, host_devices=2, network=HostNetwork(1e8, 1e-6)),
}  # fmt: skip
MOST = 4_500
"""Placements that are tried."""


def scored(problem: Problem, choice: tuple[int, ...]) -> tuple[bool, float, float]:
    """Return (whether it fits, seconds of the busiest device or link, the objective)."""
    t = problem.target
    network = Network(t)
    busy, memory, links = [0.0] * len(t.devices), [0] * len(t.devices), dict[int, float]()
    for unit, d in zip(problem.units, choice):
        busy[d] += problem.seconds_on(unit.id, d)
        memory[d] += unit.memory_bytes
    for (a, b), x in problem.traffic.items():
        here, there = choice[a], choice[b]
        if here == there:
            busy[here] += x.waiting * t.devices[here].message_s
            continue
        shared = t.links.topology == "shared"
        for d in (here, there):
            on_device = x.bytes / 2 / t.links.bytes_per_s if shared else 0.0
            busy[d] += x.messages * (t.devices[d].message_s / 2 + t.links.message_overhead_s) + x.bursts * t.links.overhead_s + on_device
        for link in () if shared else (*network.path(here, there), *network.path(there, here)):
            links[link] = links.get(link, 0.0) + x.bytes / 2 / network.links[link].bytes_per_s
    busiest = max(*busy, *links.values(), 0.0)
    return all(m <= d.memory_bytes for m, d in zip(memory, t.devices)), busiest, busiest + problem.mean_weight * sum(busy) / len(busy)


def with_memory(t: Target, memory_bytes: int) -> Target:
    return msgspec.structs.replace(t, devices=tuple(msgspec.structs.replace(d, memory_bytes=memory_bytes) for d in t.devices))


def fine(graph: Graph, t: Target) -> Problem:
    return Problem(graph, t, estimate(graph, guess(graph)), fine=True)


def small_enough(graph: Graph, t: Target) -> Target | None:
    """Return `t`, with fewer devices where its topology allows, such that all placements of `graph` can be tried; None if they can't."""
    n = len(fine(graph, t).units)
    while len(t.devices) ** n > MOST and len(t.devices) > 2 and t.links.topology in ("shared", "star", "full", "ring"):
        t = msgspec.structs.replace(t, devices=t.devices[:-1])
    return t if len(t.devices) ** n <= MOST else None


CASES = {f"{p}-{t}": (graph, found) for p, graph in PROGRAMS.items() for t, given in TARGETS.items() if (found := small_enough(graph, given)) is not None}


@pytest.mark.parametrize("memory", ["enough", "tight"])
@pytest.mark.parametrize("case", CASES)
def test_balanced_is_the_best_of_all_placements(case: str, memory: str) -> None:
    graph, t = CASES[case]
    problem = fine(graph, t)
    n = len(problem.units)
    if memory == "tight":
        sizes = [u.memory_bytes for u in problem.units]
        t = with_memory(t, int(1.1 * max(*sizes, sum(sizes) / len(t.devices))))
    problem = fine(graph, t)
    every = [scored(problem, c) for c in itertools.product(range(len(t.devices)), repeat=n)]
    if not any(fits for fits, _, _ in every):
        with pytest.raises(AmpError) as caught:
            place(graph, t)
        assert {d.code for d in caught.value.diagnostics} == {"AMP513"}
        return
    found = place(graph, t)
    again = scored(problem, tuple(found.device_of[u.nodes[0]] for u in problem.units))
    try:
        limit = 1 / place(graph, t, "round_robin").instances_per_s
    except AmpError:
        limit = float("inf")
    best = min(objective for fits, busiest, objective in every if fits and busiest <= limit * (1 + 1e-5))
    bound = bound_of(problem)
    assert simple_bound(problem) <= min(objective for _, _, objective in every) * (1 + 1e-9)
    assert bound.busiest_s <= min(busiest for _, busiest, _ in every) * (1 + 1e-9)
    fitting = sorted(objective for fits, _, objective in every if fits)
    for known in (fitting[0], fitting[len(fitting) // 8], fitting[-1]):
        assert simple_bound(problem, known) <= min(known, fitting[0]) * (1 + 1e-9)
    assert again[0]
    assert again[2] == pytest.approx(best, rel=1e-5)
    assert found.instances_per_s == pytest.approx(1 / again[1], rel=1e-4)
    assert found.gap <= 1e-3


@pytest.mark.parametrize("hardware", TARGETS)
def test_loads_equal_those_of_a_second_reckoning(hardware: str) -> None:
    graph, t = list_reduction(), TARGETS[hardware]
    problem = fine(graph, t)
    draw = np.random.default_rng(1)
    loads = Loads(problem, [0] * len(problem.units))
    for _ in range(40):
        unit, device = int(draw.integers(len(problem.units))), int(draw.integers(len(t.devices)))
        loads.take(unit)
        loads.put(unit, device)
        _, busiest, objective = scored(problem, tuple(loads.taken()))
        assert loads.busiest_s() == pytest.approx(busiest)
        assert loads.score()[2] == pytest.approx(objective)


@pytest.mark.parametrize("hardware", TARGETS)
def test_the_best_device_for_a_unit_is_the_best_of_all_tried(hardware: str) -> None:
    graph, t = list_reduction(), TARGETS[hardware]
    problem = fine(graph, t)
    loads = Loads(problem, [u % len(t.devices) for u in range(len(problem.units))])
    for unit in range(len(problem.units)):
        loads.rescale(loads.busiest_s())
        old = loads.take(unit)
        soft = []
        for device in range(len(t.devices)):
            loads.put(unit, device)
            soft.append(loads.soft()[1])
            loads.take(unit)
        assert soft[loads.best(unit)] == pytest.approx(min(soft), rel=1e-9)
        loads.put(unit, old)


def test_nothing_falls_below_the_bounds() -> None:
    graph = PROGRAMS["chain"]
    for t in TARGETS.values():
        problem = fine(graph, t)
        start = longest_first(problem, {})
        assert solvable(problem)
        solved = solve(problem, start, {})
        best = min(Loads(problem, c).score()[2] for c in (start, solved.choice or start))
        assert simple_bound(problem) <= best * (1 + 1e-9)
        assert solved.bound_s <= best * (1 + 1e-9)


def test_the_same_problem_gives_the_same_placement() -> None:
    for t in TARGETS.values():
        assert place(PROGRAMS["fork"], t) == place(PROGRAMS["fork"], t)


def test_the_bound_counts_the_messages_that_a_large_unit_can_not_avoid() -> None:
    """Two heavy units of equal work, which a device of their own each would serve best, exchange much: work alone says nothing of that."""
    problem = fine(PROGRAMS["steps"], target("full", 3, 1e12))
    found, work_s = bound_of(problem), problem.seconds.min(axis=1)
    assert found.busiest_s > 1.1 * max(float(work_s.max()), float(work_s.sum()) / 3)
    assert place(PROGRAMS["steps"], problem.target).gap == 0


def test_devices_that_lie_apart_are_placed_as_well_as_a_program_without_links_allows() -> None:
    """On sixteen devices in a mesh the program with links is too large for the solver; the one without proves that nothing is better."""
    graph = compiled(CHAIN.format(width=256, twice=512))
    mesh = target("mesh", 16, 1e11, columns=4)
    problem = fine(graph, mesh)
    assert solvable(problem) and not problem.wires.shared
    found = place(graph, mesh)
    assert found.gap <= 0.01
    assert found.instances_per_s >= place(graph, mesh, "round_robin").instances_per_s


def test_units_that_would_take_longer_apart_than_all_together_share_a_device() -> None:
    """Over slow links nothing is worth sending: one device with everything is the best there is, and that is proven."""
    graph, slow = PROGRAMS["fork"], target("full", 3, 1e6)
    problem = fine(graph, slow)
    known = Loads(problem, [0] * len(problem.units)).score()[2]
    assert len(set(together(problem, float("inf")))) == len(problem.units)
    assert len(set(together(problem, known))) < len(problem.units)
    assert place(graph, slow).gap <= 1e-3
