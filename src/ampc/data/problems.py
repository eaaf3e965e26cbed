"""Collects what is wrong with a data file, so that one run shows several mistakes and never the same one a thousand times.

A problem is known by its code and field: the first occurrence is told in full, the others are counted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ampc.data.dataset import Part
from ampc.diagnostics import AmpError, Diagnostic, Label, Span

LIMIT = 20  # diagnostics in one run, and wrong rows after which a text file is read no further


@dataclasses.dataclass(slots=True)
class _Entry:
    code: str
    row: int
    message: str
    help: str | None
    more: list[int] = dataclasses.field(default_factory=list)
    count: int = 0


class Problems:
    """The mistakes of one file. `rows` maps a row of the arrays at hand to its row in the file (None: the same)."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.rows: npt.NDArray[np.int64] | None = None
        self.stopped = False
        self._entries: dict[tuple[str, str], _Entry] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, code: str, field: str, row: int, message: str, help: str | None = None) -> None:
        """Record one mistake at `row` of the file (-1: of the file as a whole); `message` goes on from the name of the place."""
        entry = self._entries.get((code, field))
        if entry is None:
            self._entries[code, field] = _Entry(code, row, message, help)
            return
        entry.count += 1
        if len(entry.more) < 3 and row not in (entry.row, *entry.more):
            entry.more.append(row)

    def add_many(self, code: str, field: str, rows: npt.NDArray[np.int64], message: Callable[[], str], help: str | None = None) -> None:
        """Record a mistake at each of `rows` (ascending, of the arrays at hand; not empty); `message` tells the first."""
        found = rows if self.rows is None else self.rows[rows]
        self.add(code, field, int(found[0]), message(), help)
        entry = self._entries[code, field]
        entry.count += len(found) - 1
        entry.more += [int(r) for r in np.unique(found) if r != entry.row and r not in entry.more][: 3 - len(entry.more)]

    def raise_if_any(self) -> None:
        """Raise `AmpError` with what was recorded, in order of the rows, at most `LIMIT` diagnostics."""
        if self._entries:
            raise AmpError(self.diagnostics())

    def diagnostics(self) -> list[Diagnostic]:
        entries = sorted(self._entries.values(), key=lambda e: e.row)
        out = [self._diagnostic(e) for e in entries[:LIMIT]]
        if len(entries) > LIMIT:
            out[-1] = dataclasses.replace(out[-1], notes=(*out[-1].notes, f"{len(entries) - LIMIT} more kinds of mistake are not shown"))
        return out

    def _diagnostic(self, entry: _Entry) -> Diagnostic:
        notes = []
        if entry.count:
            rows = ", ".join(str(r) for r in entry.more)
            more = f", in row{'s' if len(entry.more) > 1 else ''} {rows}{', ...' if entry.count > len(entry.more) else ''}" if rows else ""
            notes.append(f"{entry.count} more of this kind{more}")
        if self.stopped:
            notes.append(f"reading stopped after {LIMIT} wrong rows")
        lines = self.part.lines
        label = None
        if entry.row >= 0 and lines is not None:
            line = int(lines[entry.row])
            label = Label(Span(self.part.name, line, 1, line, 1))
        place = self.part.place(entry.row) if entry.row >= 0 else f"`{self.part.name}`"
        return Diagnostic(entry.code, f"{place}: {entry.message}", primary=label, notes=tuple(notes), help=entry.help)


__all__ = ["LIMIT", "Problems"]
