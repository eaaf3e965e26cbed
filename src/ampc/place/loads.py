"""What a choice loads: busy seconds and memory of each device, seconds of each link, kept up while units are taken away and put elsewhere.

`Loads.best` looks at all devices for one unit at once. What it makes small is a *soft* maximum, the p-norm of all devices and links: unlike the
busiest alone it tells which of two moves leads on where neither touches the busiest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ampc.place.problem import Around, Choice, Floats, Ints, Problem, Score

NOTHING = 1e-4
"""Share of the busiest below which a load counts as none: its power would be no normal number, which is slow to reckon with."""
MOST = 1e4
"""Times the busiest above which all loads count as equally bad: the power of more would be no number."""
TIE = 1e-12
"""Scores nearer than this are equal."""
FEW = 24
"""Neighbours up to which a loop over plain numbers is faster than arrays."""
MOST_ROUTED = 8
"""Devices whose links are looked at for one unit, in the order of what their own load promises."""


class Loads:
    """`choice` is -1 for a unit that is not placed. busy_s: float64 [devices]; memory: int64 [devices]; link_s: of the links that came up."""

    def __init__(self, problem: Problem, choice: Sequence[int], power: int = 64) -> None:
        self.problem, self.power = problem, power
        self.choice: Ints = np.full(len(problem.units), -1, dtype=np.int64)
        self.busy_s: Floats = np.zeros(problem.n_devices)
        self.memory: Ints = np.zeros(problem.n_devices, dtype=np.int64)
        self.link_s: list[float] = [0.0] * max(1, problem.wires.count)
        self._links_power: float
        self.rescale(1.0)
        for unit, device in enumerate(choice):
            if device >= 0:
                self.put(unit, device)
        self.rescale(self.busiest_s())

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
        self.memory[device] += sign * p.memory[unit]
        own = float(p.seconds[unit, p.kind_of[device]])
        if len(near.each) > FEW:
            self.busy_s[device] += sign * own
            self._add_many(near, device, sign)
            return
        take_s, choice, busy_s = p.take_s, self.choice, self.busy_s
        take_here = float(take_s[device])
        for other, messages, size, apart_s, waiting in near.each:
            there = int(choice[other])
            if there == device:
                own += waiting * take_here
            elif there >= 0:
                own += messages * take_here / 2 + apart_s
                busy_s[there] += sign * (messages * float(take_s[there]) / 2 + apart_s)
                self._busy_power[there] = self._power(float(busy_s[there]))
                if not p.wires.shared:
                    self._send(device, there, sign * size / 2)
        busy_s[device] += sign * own
        self._busy_power[device] = self._power(float(busy_s[device]))

    def _add_many(self, near: Around, device: int, sign: int) -> None:
        """Add what a unit with many neighbours exchanges with them."""
        p = self.problem
        there = self.choice[near.units]
        cut = (there >= 0) & (there != device)
        where, messages, apart_s = there[cut], near.messages[cut], near.apart_s[cut]
        self.busy_s[device] += sign * float(near.waiting[there == device].sum()) * p.take_s[device]
        self.busy_s[device] += sign * float((messages * p.take_s[device] / 2 + apart_s).sum())
        np.add.at(self.busy_s, where, sign * (messages * p.take_s[where] / 2 + apart_s))
        if not p.wires.shared:
            for other, size in zip(where.tolist(), near.bytes[cut].tolist()):
                self._send(device, other, sign * size / 2)
        touched = [device, *where.tolist()]
        self._busy_power[touched] = self._powers(self.busy_s[touched])

    def _send(self, a: int, b: int, size: float) -> None:
        """Add bytes to the links both ways between two devices."""
        ways, byte_s = self.problem.wires.both(a, b), self.problem.wires.byte_seconds
        self._widen()
        link_s, powers, total = self.link_s, self._link_power, self._links_power
        for link in ways:
            link_s[link] = load = link_s[link] + size * byte_s[link]
            after = self._power(load)
            total += after - powers[link]
            powers[link] = after
        self._links_power = total

    def _widen(self) -> None:
        """Make room for links that have come up."""
        more = self.problem.wires.count - len(self.link_s)
        if more > 0:
            self.link_s += [0.0] * more
            self._link_power += [0.0] * more

    def rescale(self, scale_s: float) -> None:
        """Measure loads in about the busiest one, so that no power of them overflows."""
        self.scale_s = scale_s or 1.0
        self._busy_power = self._powers(self.busy_s)
        self._link_power = [self._power(x) if x else 0.0 for x in self.link_s]
        self._links_power = sum(self._link_power)

    # ------------------------------------------------------------------------------------------------ scores

    def busiest_s(self) -> float:
        """Return the seconds an instance of the busiest device or link: what bounds the rate."""
        return max(float(self.busy_s.max()), max(self.link_s))

    def score(self) -> Score:
        """Return the score of the choice as it stands: smaller is better."""
        p, busiest = self.problem, self.busiest_s()
        missing = int(np.maximum(self.memory - p.capacity, 0).sum())
        return missing, max(0.0, busiest - p.limit_s), busiest + p.mean_weight * float(self.busy_s.mean())

    def soft(self) -> tuple[int, float]:
        """Return (bytes that do not fit, the soft maximum of all loads with the share of the mean)."""
        total = float(self._busy_power.sum()) + self._links_power
        missing = int(np.maximum(self.memory - self.problem.capacity, 0).sum())
        return missing, self._root(total) + self.problem.mean_weight * float(self.busy_s.mean())

    def _powers(self, loads: Floats) -> Floats:
        x = loads / self.scale_s
        x = np.where(x > NOTHING, np.minimum(x, MOST), 0.0)
        done = 1
        while done < self.power:
            x *= x
            done *= 2
        return x

    def _power(self, load: float) -> float:
        x = load / self.scale_s
        return (x if x < MOST else MOST) ** self.power if x > NOTHING else 0.0

    def _root(self, total: float) -> float:
        root: float = max(total, 0.0) ** (1 / self.power)
        return self.scale_s * root

    def best(self, unit: int, keep: int = -1) -> int:
        """Return the device on which a unit that is not placed makes the soft score smallest: `keep` if that is one, else the first."""
        p, near, m = self.problem, self.problem.around[unit], self.problem.n_devices
        where, (messages, size, rest, waiting) = self._by_device(near)
        cut_here = messages * p.take_s[where] / 2 + rest
        own = p.seconds[unit][p.kind_of] + p.take_s * (messages.sum() / 2) + rest.sum()
        own[where] += waiting * p.take_s[where] - cut_here
        grown = self._powers(self.busy_s[where] + cut_here) - self._busy_power[where]
        total = self._powers(self.busy_s + own) - self._busy_power
        total += grown.sum() + self._busy_power.sum() + self._links_power
        total[where] -= grown
        added = own + cut_here.sum()
        added[where] -= cut_here
        mean = p.mean_weight * added / m
        over = np.maximum(self.memory + p.memory[unit] - p.capacity, 0) - np.maximum(self.memory - p.capacity, 0)
        score = self.scale_s * np.maximum(total, 0.0) ** (1 / self.power) + mean
        least = over.min()
        if over.any():
            score[over > least] = np.inf
        if p.wires.shared or not len(where):
            first = int(score.argmin())
            return keep if keep >= 0 and score[keep] <= score[first] * (1 + TIE) else first
        return self._routed(score, total, mean, where, size, keep)

    def _by_device(self, near: Around) -> tuple[Ints, Floats]:
        """Return the devices of a unit's neighbours, each once, and [4, devices] messages, bytes, `apart_s` and waiting of all on each."""
        if len(near.each) > FEW:
            there = self.choice[near.units]
            known = there >= 0
            where, slot = np.unique(there[known], return_inverse=True)
            columns = (near.messages, near.bytes, near.apart_s, near.waiting)
            return where, np.array([np.bincount(slot, x[known], len(where)) for x in columns])
        sums: dict[int, list[float]] = {}
        for other, messages, size, apart_s, waiting in near.each:
            device = int(self.choice[other])
            if device >= 0:
                found = sums.setdefault(device, [0.0, 0.0, 0.0, 0.0])
                found[0] += messages
                found[1] += size
                found[2] += apart_s
                found[3] += waiting
        order = sorted(sums)
        return np.array(order, np.int64), np.array([sums[d] for d in order]).reshape(-1, 4).T

    def _routed(self, score: Floats, total: Floats, mean: Floats, where: Ints, size: Floats, keep: int) -> int:
        """Return the best device with its links; `score` holds what each is without these, which is never more."""
        wires = self.problem.wires
        best, least = -1, float("inf")
        devices, sizes, byte_s = where.tolist(), size.tolist(), wires.byte_seconds
        likely = np.argpartition(score, MOST_ROUTED)[:MOST_ROUTED] if len(score) > MOST_ROUTED else np.arange(len(score))
        likely = likely[np.lexsort((likely, score[likely]))]
        order = [keep, *(d for d in likely.tolist() if d != keep)] if keep >= 0 and np.isfinite(score[keep]) else likely.tolist()
        for device in order:
            if score[device] >= least * (1 - TIE):
                if device == keep:
                    continue
                break
            more = dict[int, float]()
            for other, bytes_ in zip(devices, sizes):
                if other != device:
                    for link in wires.both(device, other):
                        more[link] = more.get(link, 0.0) + bytes_ / 2 * byte_s[link]
            self._widen()
            grown = 0.0
            for link, seconds in more.items():
                grown += self._power(self.link_s[link] + seconds) - self._link_power[link]
            now = self._root(float(total[device]) + grown) + float(mean[device])
            if now < least * (1 - TIE):
                best, least = device, now
        return best

    def taken(self) -> Choice:
        """Return the choice as a list."""
        choice: Choice = self.choice.tolist()
        return choice


__all__ = ["Loads"]
