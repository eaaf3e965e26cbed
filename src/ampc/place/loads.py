"""What a choice loads: busy seconds and memory of each device, seconds of each link, kept up while units are taken away and put elsewhere.

`Loads.best` looks at all devices for one unit at once. What it makes small is a *soft* maximum, the p-norm of all devices and links: unlike the
busiest alone it tells which of two moves leads on where neither touches the busiest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ampc.place.problem import Choice, Floats, Ints, Problem, Score

MOST_ROUTED = 24
"""Devices whose links are looked at for one unit, in the order of what their own load promises."""


class Loads:
    """`choice` is -1 for a unit that is not placed. busy_s: float64 [devices]; memory: int64 [devices]; link_s: float64 [links that came up]."""

    def __init__(self, problem: Problem, choice: Sequence[int], power: int = 64) -> None:
        self.problem, self.power = problem, power
        self.choice: Ints = np.full(len(problem.units), -1, dtype=np.int64)
        self.busy_s: Floats = np.zeros(problem.n_devices)
        self.memory: Ints = np.zeros(problem.n_devices, dtype=np.int64)
        self.link_s: Floats = np.zeros(max(64, problem.wires.count))
        for unit, device in enumerate(choice):
            if device >= 0:
                self.put(unit, device)
        self.scale_s = 1.0
        self.rescale()

    # ---------------------------------------------------------------------------------------------- changes

    def put(self, unit: int, device: int) -> None:
        """Place a unit that is not placed."""
        self._add(unit, device, 1)
        self.choice[unit] = device

    def take(self, unit: int) -> int:
        """Take a unit away and return where it was."""
        device = int(self.choice[unit])
        self.choice[unit] = -1
        self._add(unit, device, -1)
        return device

    def _add(self, unit: int, device: int, sign: int) -> None:
        p, near = self.problem, self.problem.around[unit]
        self.busy_s[device] += sign * p.seconds[unit, p.kind_of[device]]
        self.memory[device] += sign * p.memory[unit]
        there = self.choice[near.units]
        cut = (there >= 0) & (there != device)
        together = there == device
        if together.any():
            self.busy_s[device] += sign * float(near.waiting[together].sum()) * p.take_s[device]
        if cut.any():
            where, messages = there[cut], near.messages[cut]
            rest = near.bursts[cut] * p.burst_s + near.bytes[cut] * p.byte_s
            self.busy_s[device] += sign * float((messages * p.take_s[device] / 2 + rest).sum())
            np.add.at(self.busy_s, where, sign * (messages * p.take_s[where] / 2 + rest))
            if not p.wires.shared:
                for other, size in zip(where.tolist(), near.bytes[cut].tolist()):
                    self._send(device, other, sign * size / 2)

    def _send(self, a: int, b: int, size: float) -> None:
        """Add bytes to the links both ways between two devices."""
        wires = self.problem.wires
        for path in (wires.path(a, b), wires.path(b, a)):
            if wires.count > len(self.link_s):
                self.link_s = np.concatenate([self.link_s, np.zeros(wires.count)])
            for link in path:
                self.link_s[link] += size * wires.byte_s(link)

    def rescale(self) -> None:
        """Measure loads in the busiest one, so that no power of them overflows."""
        self.scale_s = float(max(self.busy_s.max(), self.link_s.max())) or 1.0

    # ------------------------------------------------------------------------------------------------ scores

    def busiest_s(self) -> float:
        """Return the seconds an instance of the busiest device or link: what bounds the rate."""
        return float(max(self.busy_s.max(), self.link_s.max()))

    def score(self) -> Score:
        """Return the score of the choice as it stands: smaller is better."""
        p, busiest = self.problem, self.busiest_s()
        missing = int(np.maximum(self.memory - p.capacity, 0).sum())
        return missing, max(0.0, busiest - p.limit_s), busiest + p.mean_weight * float(self.busy_s.mean())

    def soft(self) -> tuple[int, float]:
        """Return (bytes that do not fit, the soft maximum of all loads with the share of the mean)."""
        total = float(self._powers(self.busy_s).sum() + self._powers(self.link_s).sum())
        missing = int(np.maximum(self.memory - self.problem.capacity, 0).sum())
        return missing, self._root(total) + self.problem.mean_weight * float(self.busy_s.mean())

    def _powers(self, loads: Floats) -> Floats:
        x = np.maximum(loads, 0.0) / self.scale_s
        done = 1
        while done < self.power:
            x = x * x
            done *= 2
        return x

    def _root(self, total: float) -> float:
        root: float = max(total, 0.0) ** (1 / self.power)
        return self.scale_s * root

    def best(self, unit: int, only: Iterable[int] = ()) -> int:
        """Return the device on which a unit that is not placed makes the soft score smallest, the first of equal ones; `only`: of these."""
        p, near, m = self.problem, self.problem.around[unit], self.problem.n_devices
        there = self.choice[near.units]
        known = there >= 0
        where, slot = np.unique(there[known], return_inverse=True)
        sums: list[Floats] = [np.bincount(slot, x[known], len(where)) for x in (near.messages, near.bytes, near.bursts, near.waiting)]  # type: ignore[misc]  # its stub says int
        messages, size, bursts, waiting = sums
        rest = bursts * p.burst_s + size * p.byte_s
        cut_here = messages * p.take_s[where] / 2 + rest
        own = p.seconds[unit][p.kind_of] + p.take_s * (messages.sum() / 2) + rest.sum()
        own[where] += waiting * p.take_s[where] - cut_here
        grown = self._powers(self.busy_s[where] + cut_here) - self._powers(self.busy_s[where])
        total = self._powers(self.busy_s + own) - self._powers(self.busy_s) + grown.sum()
        total[where] -= grown
        total += self._powers(self.busy_s).sum()
        added = own + cut_here.sum()
        added[where] -= cut_here
        mean = p.mean_weight * added / m
        over = np.maximum(self.memory + p.memory[unit] - p.capacity, 0) - np.maximum(self.memory - p.capacity, 0)
        options = np.array(list(only), dtype=np.int64) if only else np.arange(m)
        options = options[over[options] == over[options].min()]
        linked = 0.0 if p.wires.shared else float(self._powers(self.link_s).sum())
        score = self.scale_s * np.maximum(total[options] + linked, 0.0) ** (1 / self.power) + mean[options]
        if p.wires.shared or not len(where):
            return int(options[score.argmin()])
        return self._routed(options, score, total + linked, mean, where, size)

    def _routed(self, options: Ints, score: Floats, total: Floats, mean: Floats, where: Ints, size: Floats) -> int:
        """Return the best of `options` with their links; `score` holds what they are without these, which is never more."""
        wires = self.problem.wires
        best, least = -1, float("inf")
        for i in np.argsort(score, kind="stable")[:MOST_ROUTED].tolist():
            if score[i] >= least:
                break
            device, more = int(options[i]), dict[int, float]()
            for other, bytes_ in zip(where.tolist(), size.tolist()):
                for path in (wires.path(device, other), wires.path(other, device)):
                    for link in path:
                        more[link] = more.get(link, 0.0) + bytes_ / 2 * wires.byte_s(link)
            if wires.count > len(self.link_s):
                self.link_s = np.concatenate([self.link_s, np.zeros(wires.count)])
            links = np.fromiter(more, dtype=np.int64, count=len(more))
            before = self.link_s[links]
            after = before + np.fromiter(more.values(), dtype=np.float64, count=len(more))
            grown = float((self._powers(after) - self._powers(before)).sum())
            now = self._root(float(total[device]) + grown) + float(mean[device])
            if now < least:
                best, least = device, now
        return best

    def taken(self) -> Choice:
        """Return the choice as a list."""
        choice: Choice = self.choice.tolist()
        return choice


__all__ = ["Loads"]
