"""What random programs of all worlds share: statements nested in each other, and the bookkeeping of what may be read where.

A world has a head (instance and layers), leaves (what can be read at a place) and expressions; every value is a row of the world's one number of
columns, or one such row for each element of an axis, so that any expression fits any other.
"""

from __future__ import annotations

import abc
import dataclasses
import random
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass
class Place:
    """Where code is written.

    rows: names of rows; over: axis -> names of values over it; open: axis -> variable of the element that is open; carried: what an open visit
    carries; member: the variable that picks a layer of a family.
    """

    rows: list[str]
    over: dict[str, list[str]]
    open: dict[str, str] = dataclasses.field(default_factory=dict)
    carried: list[str] = dataclasses.field(default_factory=list)
    member: str = ""
    depth: int = 0

    def inner(self, *rows: str, **changes: Any) -> Place:
        """Return a place inside this one: what is added there is not seen here; `open` adds to what is open."""
        changes["open"] = self.open | changes.get("open", {})
        over = changes.pop("over", {axis: list(names) for axis, names in self.over.items()})
        return dataclasses.replace(self, rows=[*self.rows, *rows], over=over, depth=self.depth + 1, **changes)

    @property
    def plain(self) -> bool:
        """No element of an axis is open."""
        return not self.open


class Writer(abc.ABC):
    """Writes one program from the draws of `rng`. Worlds fill in what is abstract."""

    head: str
    columns: int
    score: str
    """A layer from a row to one column."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.deepest = rng.choice((1, 2, 2, 3))
        """Blocks within each other; most programs are small, so that many can be tried."""
        self.lines: list[str] = []
        self.names = 0

    # ------------------------------------------------------------------------------------------------ of each world

    @abc.abstractmethod
    def start(self) -> Place:
        """Write what comes first; return the place with what is there at the beginning."""

    @abc.abstractmethod
    def end(self, p: Place) -> None:
        """Write losses and outputs."""

    @abc.abstractmethod
    def row(self, p: Place, depth: int) -> str:
        """Return an expression for a row."""

    @abc.abstractmethod
    def statements(self, p: Place) -> list[str]:
        """Return the names of the statements that may stand at a place with blocks, more often those that are to come more often."""

    @abc.abstractmethod
    def domains(self, p: Place) -> list[tuple[str, str]]:
        """Return what a loop may go over: (domain, the axis whose elements its variable opens, or "")."""

    @abc.abstractmethod
    def selectors(self, p: Place) -> list[tuple[str, Sequence[str]]]:
        """Return what a branch may choose by, with arms."""

    @abc.abstractmethod
    def families(self, p: Place) -> list[str]:
        """Return what may pick a member of a family."""

    @abc.abstractmethod
    def member(self, k: str, p: Place) -> str:
        """Return a row from a member of a family."""

    @abc.abstractmethod
    def judge(self, p: Place, indent: int) -> None:
        """Write a loss, or nothing."""

    # ---------------------------------------------------------------------------------------------------- writing

    def program(self) -> str:
        p = self.start()
        for _ in range(self.rng.randint(2, 4 if self.deepest < 3 else 3)):
            self.statement(p, 1)
        self.end(p)
        return self.head + "\n".join(self.lines) + "\n"

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def put(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def statement(self, p: Place, indent: int) -> None:
        """Write one statement; names that live on are added to the place."""
        getattr(self, f"_{self.rng.choice(self.statements(p) if p.depth < self.deepest else ['assign'])}")(p, indent)

    def block(self, p: Place, indent: int, most: int = 2) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.statement(p, indent)

    def _assign(self, p: Place, indent: int) -> None:
        name = self.fresh("h")
        self.put(indent, f"{name} = {self.row(p, 2)}")
        p.rows.append(name)

    def _carry(self, p: Place, indent: int) -> str:
        name = self.fresh("h")
        self.put(indent, f"{name} = {self.row(p, 1)}")
        return name

    def _loop(self, p: Place, indent: int) -> None:
        name, t = self._carry(p, indent), self.fresh("t")
        domain, axis = self.rng.choice(self.domains(p))
        self.put(indent, f"loop {t} in {domain} carry {name}:")
        inner = p.inner(name, open={axis: t} if axis else {})
        self.block(inner, indent + 1)
        if self.maybe(0.2):
            self.judge(inner, indent + 1)
        turn = f" + 0.1 * number({t})" if self.maybe(0.15) else ""
        self.put(indent + 1, f"{name} = tanh({self.row(inner, 2)}{turn})")
        p.rows.append(name)

    def _while(self, p: Place, indent: int) -> None:
        name = self._carry(p, indent)
        limit = self.pick("0.3", f"sum({self.row(p, 1)})", f"{self.score}({self.row(p, 1)})")
        self.put(indent, f"loop while {self.pick('sum', self.score)}({name}) {self.pick('<', '>')} {limit} at most {self.rng.randint(1, 4)} carry {name}:")
        inner = p.inner(name)
        if self.maybe(0.7):
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {name} * 0.7 + 0.2 * tanh({self.row(inner, 2)})")
        p.rows.append(name)

    def _arms(self, p: Place, indent: int, keys: Sequence[str]) -> None:
        name = self.fresh("h")
        for key in keys:
            self.put(indent + 1, f"{key}:")
            inner = p.inner()
            if self.maybe(0.5):
                self.block(inner, indent + 2, 1)
            if self.maybe(0.15):
                self.judge(inner, indent + 2)
            self.put(indent + 2, f"{name} = {self.row(inner, 2)}")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def _branch(self, p: Place, indent: int) -> None:
        selector, keys = self.rng.choice(self.selectors(p))
        self.put(indent, f"branch {selector}:")
        self._arms(p, indent, keys)

    def _computed(self, p: Place, indent: int) -> None:
        s = self.score
        test, keys = self.pick(
            (f"sum({self.row(p, 1)}) < 0.1", ["true", "else"]),
            (f"{s}({self.row(p, 1)}) > {s}({self.row(p, 1)}) or not sum({self.row(p, 0)}) >= 0", ["true", "false"]),
            (f"argmax({self.row(p, 1)})", ["0", "else"]),
        )
        self.put(indent, f"branch {test}:")
        self._arms(p, indent, keys)

    def _members(self, p: Place, indent: int) -> None:
        name, k = self.fresh("h"), self.fresh("k")
        self.put(indent, f"branch {self.rng.choice(self.families(p))} as {k}:")
        inner = p.inner(member=k)
        if self.maybe(0.3):
            self.block(inner, indent + 1, 1)
        self.put(indent + 1, f"{name} = {self.pick('', 'tanh')}({self.member(k, inner)})")
        self.put(indent, f"merge {name}")
        p.rows.append(name)

    def each(self, axis: str, p: Place, indent: int) -> None:
        """An `each` over an axis, whose last value lives on over it."""
        i, name = self.fresh(axis), self.fresh("g")
        self.put(indent, f"each {i} in {axis}:")
        inner = p.inner(open={axis: i})
        self.block(inner, indent + 1)
        if self.maybe(0.3):
            self.judge(inner, indent + 1)
        self.put(indent + 1, f"{name} = {self.row(inner, 2)}")
        p.over[axis].append(name)

    def gather(self, axis: str, to: str, fields: Sequence[str], p: Place, indent: int) -> None:
        """An `each` over an axis that gathers into the elements of another."""
        i, name = self.fresh(axis), self.fresh("g")
        self.put(indent, f"each {i} in {axis}:")
        inner = p.inner(open={axis: i})
        self.block(inner, indent + 1)
        how = self.pick("+=", "+=", "mean=", "max=")
        self.put(indent + 1, f"{name}[{self.rng.choice(fields)}[{i}]] {how} {self.row(inner, 2)}")
        if how == "+=" and self.maybe(0.5):
            self.put(indent + 1, f"{name}[{fields[0]}[{i}]] += {self.row(inner, 1)}")
        p.over[to].append(name)
