"""The best choice of devices by mixed-integer programming (HiGHS, by way of SciPy), and what no choice can fall below.

`solve` improves a known choice or proves that nothing is better. Its effort is bounded by branch-and-bound nodes, never by time, so that the
same problem gives the same answer on a slow machine. `simple_bound` holds for any size.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from ampc.place.bound import bound_of, together
from ampc.place.loads import Loads
from ampc.place.problem import Choice, Problem

MOST_CHOICES = 640
"""Units times devices up to which the solver is asked."""
MOST_COLUMNS = 2_500
"""Variables of a program up to which it is."""
FEW_COLUMNS, NEAR = 500, 2e-3
"""Variables up to which the best is sought to the last digit; of larger programs something so near to it will do."""
MOST_LINKED = 1_500
"""Variables up to which a program with a variable for each two devices is solved: the linear programs of larger ones take seconds each."""
EFFORT = 20_000_000
"""Nodes that are searched at most, times the square of the columns: about what their linear programs take."""


class Solved(msgspec.Struct, frozen=True):
    """`choice` is None where nothing better than the known one was found; no choice that fits has an objective below `bound_s`."""

    choice: Choice | None
    bound_s: float


def simple_bound(problem: Problem, known_s: float = float("inf")) -> float:
    """Return seconds that the objective of no choice falls below; known_s: that of one that fits."""
    found = bound_of(problem, known_s)
    return min(known_s, found.busiest_s + problem.mean_weight * found.mean_s)


def solvable(problem: Problem) -> bool:
    """Whether the problem is small enough for the solver, at least without links."""
    return problem.n_devices > 1 and len(problem.units) * problem.n_devices <= MOST_CHOICES and _columns(problem, 1) <= MOST_COLUMNS


def _columns(problem: Problem, power: int) -> int:
    """Return the variables of a program that has devices ** power of them for each pair of units that exchange something."""
    n, m = len(problem.units), problem.n_devices
    return n * m + len(problem.traffic) * (m if power == 1 else m * m)


def solve(problem: Problem, known: Choice, pinned: Mapping[int, int]) -> Solved:
    """Return a choice better than `known`, or None if the search finds none, with a lower bound of the objective of all that fit.

    Where ways differ, a program without links comes first: it is smaller by as many times as there are devices, what it proves holds with links too,
    and often they limit nothing.
    """
    missing, _, at_most = Loads(problem, known).score()
    least = simple_bound(problem, float("inf") if missing else at_most)
    if not missing and least >= at_most * (1 - 1e-6):
        return Solved(None, at_most)
    if _separable(problem):
        return _solve(_Program(problem, pinned, at_most), known, least)
    first = _solve(_Program(problem, pinned, at_most, links=False), known, least)
    best = first.choice or known
    missing, _, now = Loads(problem, best).score()
    if _columns(problem, 2) > MOST_LINKED or (not missing and first.bound_s >= now * (1 - 1e-6)):
        return first
    second = _solve(_Program(problem, pinned, now), best, first.bound_s)
    return Solved(second.choice or first.choice, second.bound_s)


def _solve(program: _Program, known: Choice, least: float) -> Solved:
    """Solve one program; `least`: a bound that is known already."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    problem, scale_s = program.problem, program.scale_s
    missing, _, at_most = Loads(problem, known).score()
    if not missing:
        program.objective_between(least / scale_s * (1 - 1e-9), at_most / scale_s * (1 - 1e-7))
        program.high[0] = min(at_most, problem.limit_s) / scale_s
        program.tie(together(problem, at_most))
    rows, columns, values = program.entries
    matrix = csr_array((values, (rows, columns)), shape=(len(program.below), program.n_columns))
    nodes, gap = max(1, EFFORT // program.n_columns**2), 1e-7 if program.n_columns <= FEW_COLUMNS else NEAR
    result = milp(
        program.prices, integrality=program.integral, bounds=Bounds(program.low, program.high),
        constraints=LinearConstraint(matrix, program.above, program.below), options={"node_limit": nodes, "mip_rel_gap": gap, "presolve": True},
    )  # fmt: skip
    if result.status == 2:  # nothing is better, or nothing fits
        return Solved(None, least if missing else at_most)
    dual = result.mip_dual_bound
    bound = max(least, float(dual) * scale_s) if dual is not None and np.isfinite(dual) else least
    bound = bound if missing else min(bound, at_most)
    if result.x is None:
        return Solved(None, bound)
    placed = result.x[1 : 1 + len(problem.units) * problem.n_devices].reshape(len(problem.units), problem.n_devices)
    choice: Choice = placed.argmax(axis=1).tolist()
    found = Loads(problem, choice).score()
    better = found[0] == 0 and (missing > 0 or (found[1] == 0 and found[2] < at_most))
    return Solved(choice if better else None, min(bound, found[2]) if better else bound)


def _separable(problem: Problem) -> bool:
    """Whether what a device and its own link carry depends only on what is on that device: any two devices are equally far apart."""
    return problem.target.links.topology in ("shared", "star")


class _Program:
    """Columns: the busiest of all (0), unit u on device d (1 + u m + d), then for each pair of units that exchange something whether both are on d,
    or (`_separable` not holding) whether one is on d and the other on d'. Seconds are in `scale_s`, so that numbers are near 1. Without `links`
    all devices of a kind are alike, wherever they are."""

    def __init__(self, problem: Problem, pinned: Mapping[int, int], scale_s: float, links: bool = True) -> None:
        self.problem, self.scale_s = problem, scale_s
        self.n, self.m = len(problem.units), problem.n_devices
        self.n_columns = 1 + self.n * self.m
        self.entries: tuple[list[int], list[int], list[float]] = ([], [], [])
        self.above: list[float] = []
        self.below: list[float] = []
        self.busy: list[dict[int, float]] = [{} for _ in range(self.m)]
        self.wire: dict[int, dict[int, float]] = {}
        self.links = links and not problem.wires.shared
        if _separable(problem) or not links:
            self._pairs()
        else:
            self._arcs()
        self.low = np.zeros(self.n_columns)
        self.high = np.ones(self.n_columns)
        self.high[0] = np.inf
        self.integral = np.zeros(self.n_columns)
        self.integral[1 : 1 + self.n * self.m] = 1
        self._units(pinned)
        for terms in (*self.busy, *self.wire.values()):
            self.row({**terms, 0: -1.0}, -np.inf, 0.0)
        self.prices = np.zeros(self.n_columns)
        self.prices[0] = 1.0
        for terms in self.busy:
            for column, seconds in terms.items():
                self.prices[column] += problem.mean_weight * seconds / self.m

    def x(self, unit: int, device: int) -> int:
        return 1 + unit * self.m + device

    def row(self, terms: Mapping[int, float], above: float, below: float) -> None:
        """Add `above` <= the sum of `terms` (column -> factor) <= `below`."""
        rows, columns, values = self.entries
        rows += [len(self.below)] * len(terms)
        columns += list(terms)
        values += list(terms.values())
        self.above.append(above)
        self.below.append(below)

    def objective_between(self, low: float, high: float) -> None:
        self.row({c: float(p) for c, p in enumerate(self.prices) if p}, low, high)

    def tie(self, group: list[int]) -> None:
        """Keep units of one group together."""
        first: dict[int, int] = {}
        for u, number in enumerate(group):
            other = first.setdefault(number, u)
            for d in range(self.m) if other != u else ():
                self.row({self.x(u, d): 1.0, self.x(other, d): -1.0}, 0.0, 0.0)

    def _fresh(self) -> int:
        self.n_columns += 1
        return self.n_columns - 1

    def _load(self, terms: dict[int, float], column: int, seconds: float) -> None:
        if seconds:
            terms[column] = terms.get(column, 0.0) + seconds / self.scale_s

    def _units(self, pinned: Mapping[int, int]) -> None:
        """Each unit is on one device, memory suffices, pinned units stay; of devices that are alike only one order is tried."""
        p = self.problem
        for u in range(self.n):
            self.row({self.x(u, d): 1.0 for d in range(self.m)}, 1.0, 1.0)
        for d in range(self.m):
            for u in range(self.n):
                self._load(self.busy[d], self.x(u, d), p.seconds_on(u, d))
            used = {self.x(u, d): int(p.memory[u]) / int(p.capacity[d]) for u in range(self.n) if p.memory[u]}
            if sum(used.values()) > 1.0:
                self.row(used, -np.inf, 1.0)
        for u, d in pinned.items():
            self.low[self.x(u, d)] = 1.0
        for u, devices in self._unlike(pinned):
            for d in devices:
                self.high[self.x(u, d)] = 0.0

    def _unlike(self, pinned: Mapping[int, int]) -> list[tuple[int, list[int]]]:
        """Return (unit, devices that it need not be tried on): the i-th largest unit is on one of the first i + 1 devices of a kind."""
        p, topology = self.problem, self.problem.target.links.topology
        order = [u for u in np.argsort(-p.seconds.min(axis=1), kind="stable").tolist() if u not in pinned]
        if not self.links or topology in ("full", "star"):
            kinds: dict[int, list[int]] = {}
            for d in range(self.m):
                if d not in pinned.values():
                    kinds.setdefault(int(p.kind_of[d]), []).append(d)
            return [(u, [d for alike in kinds.values() for d in alike[i + 1 :]]) for i, u in enumerate(order[: self.m])]
        if topology in ("ring", "torus") and not pinned and order and len(p.seconds[0]) == 1:
            return [(order[0], list(range(1, self.m)))]
        return []

    def _pairs(self) -> None:
        """Add, for each pair of units and each device, whether both are there; links of a star are loaded by what leaves their device."""
        p = self.problem
        for (a, b), t in p.traffic.items():
            for d in range(self.m):
                both = self._fresh()
                xa, xb = self.x(a, d), self.x(b, d)
                cut, waiting = p.cut_s(d, t), t.waiting * float(p.take_s[d])
                for x in (xa, xb):
                    self.row({both: 1.0, x: -1.0}, -np.inf, 0.0)
                    self._load(self.busy[d], x, cut)
                self._load(self.busy[d], both, waiting - 2 * cut)
                if waiting > 2 * cut:
                    self.row({both: 1.0, xa: -1.0, xb: -1.0}, -1.0, np.inf)
                if self.links:
                    other = (d + 1) % self.m
                    for link in (p.wires.path(d, other)[0], p.wires.path(other, d)[-1]):  # the device's own, out and in
                        terms, seconds = self.wire.setdefault(link, {}), t.bytes / 2 * p.wires.byte_s(link)
                        for column, factor in ((xa, 1), (xb, 1), (both, -2)):
                            self._load(terms, column, factor * seconds)
    def _arcs(self) -> None:
        """Add, for each pair of units, whether one is on d and the other on d', with the links between."""
        p = self.problem
        for (a, b), t in p.traffic.items():
            at = [[self._fresh() for _ in range(self.m)] for _ in range(self.m)]
            for d in range(self.m):
                self.row({**dict.fromkeys(at[d], 1.0), self.x(a, d): -1.0}, 0.0, 0.0)
                self.row({**{line[d]: 1.0 for line in at}, self.x(b, d): -1.0}, 0.0, 0.0)
                for e in range(self.m):
                    if d == e:
                        self._load(self.busy[d], at[d][d], t.waiting * float(p.take_s[d]))
                        continue
                    self._load(self.busy[d], at[d][e], p.cut_s(d, t))
                    self._load(self.busy[e], at[d][e], p.cut_s(e, t))
                    for link in (*p.wires.path(d, e), *p.wires.path(e, d)):
                        self._load(self.wire.setdefault(link, {}), at[d][e], t.bytes / 2 * p.wires.byte_s(link))

__all__ = ["NEAR", "Solved", "simple_bound", "solvable", "solve"]
