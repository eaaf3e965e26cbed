"""Local search over choices of devices: a greedy start, moves and swaps, seeded shakes. Repeatable: the same problem gives the same choice."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from ampc.place.problem import Choice, Problem, better
from ampc.place.units import Unit

MAX_ROUNDS = 50
"""Rounds of local improvement; each makes the score better, and far fewer are needed in practice."""
MAX_SWAPPED = 64
"""Units up to which pairs are tried too."""
MAX_SHAKES = 40
"""Random restarts from the best choice so far; fewer for programs of many layers."""


def longest_first(problem: Problem, pinned: Mapping[int, int]) -> Choice:
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
    best, best_score = -1, (0, 0.0)
    for d in options:
        problem.add(unit, d, choice, loads, memory)
        now = problem.score(loads, memory)
        problem.add(unit, d, choice, loads, memory, -1)
        if best < 0 or better(now, best_score):
            best, best_score = d, now
    return best


def together(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Everything on one device: the best start where messages cost more than work."""
    precision = problem.cost.precision
    speed = [d.matrix_flops_per_s[precision] * d.cores for d in problem.target.devices]
    fastest = max(range(problem.n_devices), key=lambda d: (speed[d], -d))
    return [pinned.get(u.id, fastest) for u in problem.units]


def improve(problem: Problem, choice: Choice, pinned: Mapping[int, int], swaps: bool = False) -> Choice:
    """Move single units, then with `swaps` exchange pairs, as long as the score falls."""
    choice = list(choice)
    free = [u for u in problem.units if u.id not in pinned]
    loads, memory = problem.state(choice)
    best = problem.score(loads, memory)
    for _ in range(MAX_ROUNDS):
        before = best
        for unit in free:
            old = choice[unit.id]
            _take(problem, unit, choice, loads, memory)
            new = _best(problem, unit, _candidates(problem, unit, old, choice, loads), choice, loads, memory)
            _put(problem, unit, new, choice, loads, memory)
        if swaps and len(free) <= MAX_SWAPPED:
            _swap(problem, free, choice, loads, memory)
        loads, memory = problem.state(choice)  # afresh: differences gather rounding errors
        best = problem.score(loads, memory)
        if not better(best, before):
            break
    return choice


def _candidates(problem: Problem, unit: Unit, now: int, choice: Choice, loads: list[float]) -> list[int]:
    """Return the devices worth trying, the present one first: its neighbours' and the least loaded one."""
    found = dict.fromkeys((now, *(choice[o] for o, _ in problem.neighbours[unit.id] if choice[o] >= 0)))
    found[min(range(problem.n_devices), key=loads.__getitem__)] = None
    return list(found)


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
            if better(now, best):
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


def shake(problem: Problem, choice: Choice, pinned: Mapping[int, int]) -> Choice:
    """Move neighbouring units together at random, improve again, keep what is better: the way out of where no single move leads on.

    Seeded, so that a placement can be repeated.
    """
    free = [u.id for u in problem.units if u.id not in pinned]
    if problem.n_devices == 1 or not free:
        return choice
    draw = random.Random(0)
    best, score = choice, problem.score(*problem.state(choice))
    for _ in range(min(MAX_SHAKES, 4000 // len(free))):
        trial = list(best)
        device = draw.randrange(min(problem.n_devices, 16))
        moved = [draw.choice(free)]
        for _ in range(draw.randrange(1, 2 + len(free) // 3)):
            unit = draw.choice(moved)
            moved += [other for other, _ in problem.neighbours[unit] if other not in pinned and other not in moved][:1]
        for unit in moved:
            trial[unit] = device
        trial = improve(problem, trial, pinned)
        now = problem.score(*problem.state(trial))
        if better(now, score):
            best, score = trial, now
    return best


__all__ = ["improve", "longest_first", "shake", "together"]
