"""Writes one generated function: lines with indentation, and loads of table cells gathered at its head."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ampc.codegen.layout import Cells
from ampc.codegen.own import CELL, MARK, own

ARGUMENTS = "F, I, D, XF, XI, O, w, n"
"""float32, int64 and float64 memory; the data's floats and integers; outputs; worker; tokens taken."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    depth: int
    text: str

    def __str__(self) -> str:
        return "    " * self.depth + self.text


_NAME = re.compile(r"[A-Za-z_]\w*")
_OF_TOKEN = re.compile(rf"(?:slot|idx|inst|base|lay|(?:[cqno]|part){MARK.pattern}) = ")
"""What a loop over tokens begins with: where the token is, what its instance has."""


def _needed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines without what loops over tokens look up and nobody reads: code that would be thrown away after having been compiled."""
    live: set[str] = set()
    kept: list[Line] = []
    for line in reversed(lines):
        names = _NAME.findall(line.text)
        if _OF_TOKEN.match(line.text):
            if names[0] not in live:
                continue
            live.discard(names[0])
            names = names[1:]
        live.update(names)
        kept.append(line)
    return kept[::-1]


class Text:
    """A function in the making. `cell` returns a local name for a table cell; the loads come out at the head.

    Its statements are lines, or what `loops` makes lines of.
    """

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.heads: dict[str, str] = {}
        self.lines: list[Any] = []
        self.depth = 1
        self.fresh = 0

    def line(self, text: str) -> None:
        self.lines.append(Line(self.depth, text))

    def head(self, name: str, value: str) -> str:
        """Define local `name` at the head of the function, once; return the name."""
        assert self.heads.setdefault(name, value) == value
        return name

    def cell(self, name: str, *key: str | int) -> str:
        """Return a local that holds cell `key`; `name` is for readers and must be an identifier."""
        index = own(CELL, self.cells(*key))
        return self.head(f"{name}_{index}", f"I[{index}]")

    def name(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}{self.fresh}"

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def render(self, lines: Sequence[Line]) -> str:
        """Return the body of the function: what stands at its head, then `lines`."""
        heads = [f"    {k} = {v}" for k, v in self.heads.items()]
        body: list[str] = []
        lines = _needed(lines)
        for line, after in zip(lines, [*lines[1:], Line(0, "")], strict=True):
            body.append(str(line))
            if line.text.endswith(":") and after.depth <= line.depth:
                body.append(str(Line(line.depth + 1, "pass")))
        return "\n".join([*heads, *(body or ["    pass"])]) + "\n"
