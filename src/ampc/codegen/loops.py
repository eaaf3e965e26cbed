"""Element-wise statements of a function, kept apart from its text until all of it is known.

A `Loop` does the same to every number of a block of rows; a `Move` copies rows between the arenas of the tokens and scratch. `fuse` makes few
loops of many, `loop_text` their text, and `scratch` finds places for the blocks that are left.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from ampc.codegen.text import Line

Space = str
"""What the rows of a payload are: "" one a token, an axis, or "*<id>" the members of Group <id>."""

NAME = re.compile(r"\bb\d+\b")
"""The name of a buffer in text."""


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """A block of the worker's scratch: [rows of `space`, cols], at the offset that local `name` holds; or some columns of one.

    stride: columns of the whole block; start: the first of them that is meant.
    """

    name: str
    cols: int
    space: Space
    stride: int = 0
    start: int = 0

    @property
    def width(self) -> int:
        """Columns from one row to the next."""
        return self.stride or self.cols

    @property
    def dense(self) -> bool:
        return self.width == self.cols

    def columns(self, start: int, cols: int) -> Buffer:
        """Return a view of some of the columns."""
        return Buffer(self.name, cols, self.space, self.width, self.start + start)


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    var: str
    buffer: Buffer


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    var: str
    text: str
    """Names variables of earlier steps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    var: str


Step = Load | Value | Store


@dataclasses.dataclass(slots=True)
class Loop:
    """Steps for every number of [rows, cols]. A buffer of one column is one number a row."""

    depth: int
    rows: str
    space: Space
    cols: int
    steps: list[Step]

    def touched(self) -> Iterator[tuple[Buffer, bool]]:
        """Yield each block with whether it is written."""
        for step in self.steps:
            if not isinstance(step, Value):
                yield step.buffer, isinstance(step, Store)

    def narrowed(self, start: int, cols: int) -> Loop:
        """The part of the loop that does columns `start` to `start + cols`, its variables renamed."""

        def part(b: Buffer) -> Buffer:
            return b.columns(start, cols) if b.cols == self.cols else b

        names = {s.var: f"{s.var}_{start}" for s in self.steps if not isinstance(s, Store)}
        steps: list[Step] = []
        for s in self.steps:
            match s:
                case Load():
                    steps.append(Load(names[s.var], part(s.buffer)))
                case Store():
                    steps.append(Store(part(s.buffer), names[s.var]))
                case Value():
                    steps.append(Value(names[s.var], renamed(s.text, names)))
        return Loop(self.depth, self.rows, self.space, cols, steps)


@dataclasses.dataclass(slots=True)
class Move:
    """A loop over the tokens taken that copies each one's rows between its arena and a buffer.

    first, count: the token's first row in the buffer and its number of rows. when: a condition under which rows leave scratch at all.
    """

    depth: int
    buffer: Buffer
    prelude: list[str]
    body: list[Line]
    out: bool
    first: str
    count: str
    when: str = ""

    @property
    def size(self) -> str:
        return f"{self.count} * {self.buffer.cols}" if self.count != "1" else str(self.buffer.cols)

    @property
    def scratch(self) -> str:
        return f"{self.buffer.name} + {self.first} * {self.buffer.cols}"

    def text(self) -> list[Line]:
        """The copying, as a loop of its own."""
        lines = [Line(self.depth, "for i in range(n):"), *(Line(self.depth + 1, p) for p in self.prelude)]
        lines += [Line(self.depth + 1 + k.depth, k.text) for k in self.body]
        return [Line(self.depth, self.when), *(Line(k.depth + 1, k.text) for k in lines)] if self.when else lines

    def pointer(self, name: str) -> list[Line] | None:
        """The body with `name = place in the arena` where it copies; None if it does anything else."""
        before, after = ("copy(F, ", f", F, {self.scratch}, {self.size})") if self.out else (f"copy(F, {self.scratch}, F, ", f", {self.size})")
        found: list[Line] = []
        for line in self.body:
            if line.text.startswith(before) and line.text.endswith(after):
                found.append(Line(line.depth, f"{name} = {line.text[len(before) : -len(after)]}"))
            elif re.match(r"(if|elif|else)\b", line.text):
                found.append(line)
            else:
                return None
        return found


Statement = Line | Loop | Move


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace identifiers."""
    return re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), text)


@dataclasses.dataclass(slots=True)
class Fused:
    """Loops that became one, and the moves that it does itself, by the name of their buffer."""

    loop: Loop
    reads: dict[str, Move] = dataclasses.field(default_factory=dict)
    writes: dict[str, list[Move]] = dataclasses.field(default_factory=dict)
    kept: set[tuple[str, int]] = dataclasses.field(default_factory=set)
    """Buffers, with their first columns, that are written to scratch (too), since others read them there."""
