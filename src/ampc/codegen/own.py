"""Numbers that a function has of its program: which cells, queues, layers are its own. Without them, functions of equal shape have equal text.

While text is made such a number stands in it as a mark, `Zq6Z` for queue 6. `literal` puts the numbers in, for people; `shared` makes a function
that finds them in a table, so that all functions of one shape, of whatever program, are compiled once.
"""

from __future__ import annotations

import re

CELL, PART, QUEUE, SEGMENT, LAYER, NODE, SUM = "cpqslnm"
"""Kinds of numbers that code computes with: equal numbers of different kinds are different ones."""
REGION, AXIS, FIELD = "raf"
"""Kinds that stand in names alone."""

MARK = re.compile(r"Z([a-z])(\d+)Z")
TABLE = "own"
"""The argument that says where a function's numbers are in `I`."""


def own(kind: str, number: int) -> str:
    """Return a mark for a number, to stand by itself or within a name."""
    return f"Z{kind}{number}Z"


def literal(text: str) -> str:
    """Return the text with its numbers."""
    return MARK.sub(r"\2", text)


def shared(head: str, body: str) -> tuple[str, tuple[int, ...]]:
    """Return (the function `head` + `body`, whose numbers are at `I[own]` and on, these numbers).

    They are numbered as they occur, each kind by itself; those in names only are no part of the table.
    """
    names: dict[str, str] = {}
    for match in MARK.finditer(body):
        names.setdefault(match[0], f"{TABLE}{len(names)}")
    values = set(re.findall(rf"(?<!\w){MARK.pattern.replace('(', '(?:')}(?!\w)", body))
    used = [mark for mark in names if mark in values]
    loads = [f"    {names[mark]} = at(I, {TABLE} + {i})\n" for i, mark in enumerate(used)]
    numbers = tuple(int(MARK.fullmatch(mark)[2]) for mark in used)  # type: ignore[index]  # marks, by their making
    return head + "".join(loads) + MARK.sub(lambda m: names[m[0]], body), numbers


__all__ = ["AXIS", "CELL", "FIELD", "LAYER", "MARK", "NODE", "PART", "QUEUE", "REGION", "SEGMENT", "SUM", "TABLE", "literal", "own", "shared"]
