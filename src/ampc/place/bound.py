"""What no choice of devices can fall below, by three arguments that take no search and hold for any size of problem.

With messages: the device that holds a unit holds some set of units around it, and pays for each unit there, for each message within that waits, and
for each message that leaves; its links carry what leaves. The cheapest such set is a minimum cut: what is made small is a weighted mean of the
device's seconds and of those of its links, which is no more than the larger of both. Units are taken to be on their fastest devices.

Where a choice is known, two units that would take longer apart than all of it does are together in any better one.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ampc.place.problem import Floats, Ints, Problem

WHOLE = 1 << 28
"""Capacities are whole numbers in a maximum flow; their sum is less than this. Rounding them down keeps the bound one."""
MOST_FLOWS = 32
"""Units for which a cut is sought: those that cost most by themselves."""
WEIGHTS = (1.0, 0.75, 0.5, 0.25)
"""Of the device's seconds in the mean; the rest is that of its links."""
MOST_WIRED = 64
"""Devices up to which the links of each are looked at."""
MOST_PAIRS = 20_000
"""Pairs of units that exchange something, up to which cuts are sought: a flow is found in time that grows faster than they do."""


class Bound(msgspec.Struct, frozen=True):
    """Seconds an instance that no choice falls below: of the busiest device, and of the mean device."""

    busiest_s: float
    mean_s: float


def bound_of(problem: Problem, known_s: float = float("inf")) -> Bound:
    """Return the best of three bounds: all work shared out evenly, some device with two of the m + 1 largest units, the cheapest surroundings of
    one unit.

    known_s: objective of a choice that fits. The bound of the busiest device or link is then of choices with a smaller one, and at most `known_s`.
    """
    if not problem.units:
        return Bound(0.0, 0.0)
    pairs, stay, leave = _pairs(problem)
    own = problem.seconds.min(axis=1)
    sent = np.array([t.bytes / 2 for t in problem.traffic.values()], np.float64)
    # A pair together costs `stay` in one place, apart `leave` in each of two: never less than half of `stay` for each of both.
    np.add.at(own, pairs[:, 0], stay / 2)
    np.add.at(own, pairs[:, 1], stay / 2)
    mean_s = float(own.sum()) / problem.n_devices
    number = np.array(together(problem, known_s), np.int64)
    own, pairs = np.asarray(np.bincount(number, own), np.float64), number[pairs]
    between_units = pairs[:, 0] != pairs[:, 1]
    pairs, stay, leave, sent = pairs[between_units], stay[between_units], leave[between_units], sent[between_units]
    busiest_s = max(mean_s, _packed(own, problem.n_devices))
    if len(pairs) <= MOST_PAIRS and problem.n_devices > 1:
        sent_s = sent / _widest(problem)
        for weight in WEIGHTS if sent_s.any() else WEIGHTS[:1]:
            between = weight * (leave - stay / 2) + (1 - weight) * sent_s
            busiest_s = max(busiest_s, _surrounded(weight * own, pairs, between, busiest_s))
    return Bound(float(min(busiest_s, known_s)), mean_s)


def together(problem: Problem, known_s: float) -> list[int]:
    """Return the number of the group that each unit is in: those of one share a device in any choice with an objective below `known_s`."""
    n = len(problem.units)
    if not np.isfinite(known_s):
        return list(range(n))
    pairs, _, leave = _pairs(problem)
    links = problem.target.links
    rates = [links.bytes_per_s, *(x.bytes_per_s for x in links.link), *(x.bytes_per_s for x in links.level)]
    rates += [links.network.bytes_per_s] if links.network else []
    byte_s = 0.0 if problem.wires.shared else 1 / max(rates)
    apart = np.maximum(leave, [t.bytes / 2 * byte_s for t in problem.traffic.values()])
    first = list(range(n))  # a unit of the same group, itself where there is none with a lower number; scipy's import takes longer than this

    def group(unit: int) -> int:
        while first[unit] != unit:
            first[unit] = unit = first[first[unit]]
        return unit

    for a, b in pairs[apart > known_s * (1 + 1e-6)].tolist():
        low, high = sorted((group(a), group(b)))
        first[high] = low
    numbers: dict[int, int] = {}
    return [numbers.setdefault(group(u), len(numbers)) for u in range(n)]


def _pairs(problem: Problem) -> tuple[Ints, Floats, Floats]:
    """Return ([n, 2] units that exchange something, seconds if they share a device, seconds of each of two devices if they don't)."""
    take_s = float(problem.take_s.min())
    pairs = np.array(list(problem.traffic), np.int64).reshape(-1, 2)
    values = problem.traffic.values()
    leave = np.array([t.messages * take_s / 2 + problem.apart_s(t) for t in values], np.float64)
    stay = np.minimum(np.array([t.waiting * take_s for t in values], np.float64), 2 * leave)
    return pairs, stay, leave


def _widest(problem: Problem) -> float:
    """Return the bytes a second that leave a device over all its links at most; no limit where it has one to each other, or too many."""
    n, wires = problem.n_devices, problem.wires
    if n > MOST_WIRED or problem.target.links.topology in ("shared", "full", "hosts"):
        return float("inf")
    rates = [sum(1 / wires.byte_s(link) for link in {wires.path(a, b)[0] for b in range(n) if b != a}) for a in range(n)]
    return max(rates)


def _packed(own: Floats, devices: int) -> float:
    """Return what the busiest device takes, since of the k m + 1 largest units some k + 1 share one of m devices."""
    sizes = np.sort(own)[::-1]
    best = 0.0
    for k in range(1 + (len(sizes) - 1) // devices):
        best = max(best, float(sizes[k * devices - k : k * devices + 1].sum()))  # the k + 1 smallest of them
    return best


def _surrounded(own: Floats, pairs: Ints, between: Floats, known_s: float) -> float:
    """Return the seconds of the costliest of the cheapest sets around single units, where that is more than `known_s`.

    A set costs `own` of each unit in it and `between` of each pair of which one is in it.
    """
    n = len(own)
    alone = own.copy()
    np.add.at(alone, pairs[:, 0], between)
    np.add.at(alone, pairs[:, 1], between)
    if alone.max() <= known_s:  # the cheapest set around a unit costs no more than the unit does by itself
        return known_s
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    scale = WHOLE / float(own.sum() + 2 * between.sum() or 1.0)
    units = np.arange(n)
    rows, columns = np.concatenate([pairs[:, 0], pairs[:, 1], units]), np.concatenate([pairs[:, 1], pairs[:, 0], np.full(n, n)])
    capacities = np.floor(np.concatenate([between, between, own]) * scale).astype(np.int32)
    network = csr_array((capacities, (rows, columns)), shape=(n + 1, n + 1))
    best = known_s
    for unit in np.argsort(-alone, kind="stable")[:MOST_FLOWS].tolist():
        if alone[unit] <= best:
            break
        # The unit's own capacity carries what it costs itself, as that of any other in the set.
        best = max(best, maximum_flow(network, unit, n).flow_value / scale)
    return best


__all__ = ["Bound", "bound_of", "together"]
