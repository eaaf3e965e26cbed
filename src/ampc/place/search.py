"""Local search over choices of devices: starts, moves and swaps, seeded shakes. Repeatable: the same problem gives the same choice.

It holds for any size: a move is found among all devices at once (`loads`), and rounds become fewer where there are many units.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence

import numpy as np

from ampc.place.loads import Loads
from ampc.place.problem import Choice, Problem, Score, better

POWERS = (8, 64)
"""Of the soft maximum: first all devices count, then almost only the busiest."""
MAX_ROUNDS = 30
"""Rounds of moves with one power; far fewer are needed in practice."""
MANY = 10_000
"""Units times devices from which on only the best start is improved further, in at most FEW_ROUNDS rounds."""
FEW_ROUNDS = 2
MAX_SWAPPED = 64
"""Units up to which pairs are exchanged too."""
HOT = 0.9
"""Share of the busiest device's load from which on exchanges are tried: with the larger of POWERS, less counts for next to nothing."""
MAX_SHAKES = 40
"""Random restarts from the best choice so far; fewer for programs of many layers."""


def score_of(problem: Problem, choice: Choice) -> Score:
    """Return the score of a complete choice, computed afresh."""
    return Loads(problem, choice).score()


def least(problem: Problem, choices: list[Choice]) -> Choice:
    """Return the choice with the smallest score, the first of equal ones."""
    best, best_score = choices[0], score_of(problem, choices[0])
    for choice in choices[1:]:
        score = score_of(problem, choice)
        if better(score, best_score):
            best, best_score = choice, score
    return best


# ------------------------------------------------------------------------------------------------------ starts


def longest_first(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Greedy: the unit with the most work goes where the busiest device stays fastest, given what is placed already."""
    loads = _pinned_only(problem, pinned)
    loads.rescale(_scale(problem))
    seconds = problem.seconds.min(axis=1)
    share = seconds / (seconds.sum() or 1.0) + problem.memory / max(1, int(problem.capacity.sum()))
    for unit in np.argsort(-share, kind="stable").tolist():
        if unit not in pinned:
            loads.put(unit, loads.best(unit))
    return loads.taken()


def along(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Cut the graph's own order into stretches of equal work, one a device: neighbours stay together."""
    choice = [-1] * len(problem.units)
    seconds, memory = problem.seconds.min(axis=1), problem.memory
    left, device = float(seconds.sum()), 0
    spent, used = 0.0, 0
    for unit in range(len(problem.units)):
        share = left / (problem.n_devices - device)
        full = spent + seconds[unit] / 2 > share or used + memory[unit] > problem.capacity[device]
        if full and spent and device + 1 < problem.n_devices:
            left, device, spent, used = left - spent, device + 1, 0.0, 0
        choice[unit] = pinned.get(unit, device)
        spent, used = spent + float(seconds[unit]), used + int(memory[unit])
    return choice


def together(problem: Problem, pinned: Mapping[int, int]) -> Choice:
    """Everything on one device: the best start where messages cost more than work."""
    fastest = int(problem.seconds.sum(axis=0)[problem.kind_of].argmin())
    return [pinned.get(u.id, fastest) for u in problem.units]


def _pinned_only(problem: Problem, pinned: Mapping[int, int]) -> Loads:
    return Loads(problem, [pinned.get(u, -1) for u in range(len(problem.units))], POWERS[0])


def _scale(problem: Problem) -> float:
    """Return about what the busiest device will take."""
    return max(float(problem.seconds.min(axis=1).sum()) / problem.n_devices, float(problem.seconds.min(axis=1).max(initial=0.0))) or 1.0


def settle(problem: Problem, choice: Choice) -> Choice:
    """Give each unit without a device that with which it exchanges most; one that exchanges with nobody goes to the least loaded device.

    Those that are drawn most go first. That holds for the Source too: it sends a message for each element of an axis that a layer is applied to.
    """
    choice = list(choice)
    pull: list[dict[int, float]] = [{} for _ in choice]  # unit -> device -> how strongly it is drawn there
    heap: list[tuple[float, int]] = []
    loads = Loads(problem, choice)

    def placed(unit: int) -> None:
        near = problem.around[unit]
        for other, strength in zip(near.units.tolist(), (256 * near.messages + near.bytes).tolist()):  # a message counts as some hundred bytes
            if choice[other] < 0:
                pull[other][choice[unit]] = pull[other].get(choice[unit], 0.0) + strength
                heapq.heappush(heap, (-sum(pull[other].values()), other))

    for unit, device in enumerate(choice):
        if device >= 0:
            placed(unit)
    waiting = (u for u in range(len(choice)) if choice[u] < 0)
    while True:
        while heap and choice[heap[0][1]] >= 0:
            heapq.heappop(heap)
        if heap:
            unit = heapq.heappop(heap)[1]
            device = max(pull[unit], key=lambda d: (pull[unit][d], -d))
        else:
            unit = next((u for u in waiting if choice[u] < 0), -1)
            if unit < 0:
                return choice
            device = int(loads.busy_s.argmin())
        choice[unit] = device
        loads.put(unit, device)
        placed(unit)


# ------------------------------------------------------------------------------------------------- improvement


def improve(
    problem: Problem, choice: Choice, pinned: Mapping[int, int], swaps: bool = False, rounds: int = MAX_ROUNDS, powers: Sequence[int] = POWERS
) -> Choice:
    """Move single units, then with `swaps` exchange pairs, as long as the score falls; the result is never worse."""
    best, best_score = choice, score_of(problem, choice)
    seconds = problem.seconds.min(axis=1)
    free = [u for u in np.argsort(-seconds, kind="stable").tolist() if u not in pinned]
    for power in powers:
        for _ in range(rounds):
            loads = Loads(problem, choice, power)  # afresh: differences gather rounding errors
            before = loads.soft()
            moved = False
            for unit in free:
                old = loads.take(unit)
                new = loads.best(unit, keep=old)
                loads.put(unit, new)
                moved = moved or new != old
            if swaps and not moved and len(free) <= MAX_SWAPPED and power == POWERS[-1]:
                _swap(loads, free)
            after, choice, now = loads.soft(), loads.taken(), loads.score()
            if better(now, best_score):
                best, best_score = choice, now
            if after[0] >= before[0] and after[1] >= before[1] * (1 - 1e-6):
                break
    return best


def _swap(loads: Loads, free: list[int]) -> None:
    """Exchange the devices of pairs where that helps; changes `loads`."""
    best, hot = loads.soft(), _hot(loads)
    for i, a in enumerate(free):
        for b in free[i + 1 :]:
            x, y = int(loads.choice[a]), int(loads.choice[b])
            if x == y or not (hot[a] or hot[b]):
                continue
            _exchange(loads, a, b, y, x)
            now = loads.soft()
            if now[0] < best[0] or (now[0] == best[0] and now[1] < best[1] * (1 - 1e-9)):
                best, hot = now, _hot(loads)
            else:
                _exchange(loads, a, b, x, y)


def _hot(loads: Loads) -> list[bool]:
    """Return [units] whether an exchange of it can matter: its device is about as busy as the busiest (or full), or a link over which it sends is."""
    p, least = loads.problem, HOT * loads.busiest_s()
    devices = (loads.busy_s >= least) | (loads.memory > p.capacity)
    links = {link for link, seconds in enumerate(loads.link_s) if seconds >= least}
    choice = loads.choice.tolist()

    def over_links(unit: int) -> bool:
        here = choice[unit]
        there = {choice[other] for other, *_ in p.around[unit].each} - {here}
        return any(link in links for d in there for link in p.wires.both(here, d))

    return [bool(devices[d]) or (bool(links) and over_links(u)) for u, d in enumerate(choice)]


def _exchange(loads: Loads, a: int, b: int, to_a: int, to_b: int) -> None:
    loads.take(a)
    loads.take(b)
    loads.put(a, to_a)
    loads.put(b, to_b)


def large(problem: Problem) -> bool:
    """Whether time allows only few rounds."""
    return len(problem.units) * problem.n_devices >= MANY


def search(problem: Problem, starts: list[Choice], pinned: Mapping[int, int]) -> Choice:
    """Return the best choice that moves from `starts` lead to."""
    if not large(problem):
        return least(problem, [*starts, *(improve(problem, start, pinned, swaps=True) for start in starts)])
    first = [improve(problem, start, pinned, rounds=1, powers=POWERS[:1]) for start in starts]
    return improve(problem, least(problem, [*starts, *first]), pinned, rounds=FEW_ROUNDS)


def shake(problem: Problem, choice: Choice, pinned: Mapping[int, int]) -> Choice:
    """Move neighbouring units together at random, improve again, keep what is better: the way out of where no single move leads on.

    Seeded, so that a placement can be repeated.
    """
    free = [u.id for u in problem.units if u.id not in pinned]
    if problem.n_devices == 1 or not free:
        return choice
    draw = random.Random(0)
    best, score = choice, score_of(problem, choice)
    for _ in range(min(MAX_SHAKES, 10_000 // (len(free) * problem.n_devices))):
        trial = list(best)
        device = draw.randrange(min(problem.n_devices, 16))
        moved = [draw.choice(free)]
        for _ in range(draw.randrange(1, 2 + len(free) // 3)):
            unit = draw.choice(moved)
            moved += [other for other in problem.around[unit].units.tolist() if other not in pinned and other not in moved][:1]
        for unit in moved:
            trial[unit] = device
        trial = improve(problem, trial, pinned)
        now = score_of(problem, trial)
        if better(now, score):
            best, score = trial, now
    return best


__all__ = ["along", "improve", "large", "least", "longest_first", "score_of", "search", "settle", "shake", "together"]
