"""Names of what a layer is made into: copy 1 of `step` is `step~1`, part 2 of `big` is `big@2`, copy 1 of that `big@2~1`.

Member 2 of family `message` is `message.2`, of its copy 1 `message~1.2`. Works on names of layers and of parameters (`step~1.w`). Knows nothing
of graphs.
"""

from __future__ import annotations

import re

COPY = re.compile(r"~[0-9]+")
PART = re.compile(r"@[0-9]+")


def copy_name(layer: str, copy: int) -> str:
    """Return the name of a copy of a layer, of a family or of a family's member."""
    return _marked(layer, f"~{copy}")


def part_name(layer: str, part: int) -> str:
    """Return the name of a part of a layer that is split, of a family or of a family's member."""
    return _marked(layer, f"@{part}")


def _marked(layer: str, mark: str) -> str:
    base, dot, member = layer.partition(".")
    return f"{base}{mark}{dot}{member}"


def plain_name(name: str) -> str:
    """Return the name of a layer or parameter without the numbers of its copy and part: as it is in the source."""
    return uncopied(undivided(name))


def uncopied(name: str) -> str:
    """Return the name without the number of its copy."""
    return COPY.sub("", name, count=1)


def undivided(name: str) -> str:
    """Return the name without the number of its part."""
    return PART.sub("", name, count=1)


def names_of(layer: str) -> tuple[str, ...]:
    """Return all names by which a person may mean `layer`, the widest first: its family's, without copy or part, at last its own."""
    forms = (plain_name(layer), undivided(layer), uncopied(layer), layer)
    names = dict.fromkeys([*(f.partition(".")[0] for f in forms), *forms])
    return tuple(sorted(names, key=len))


def copy_number(name: str) -> int | None:
    """Return which copy a name is of, or None if it is of none."""
    found = COPY.search(name)
    return int(found[0][1:]) if found else None


def part_number(name: str) -> int | None:
    """Return which part a name is of, or None if it is of none."""
    found = PART.search(name)
    return int(found[0][1:]) if found else None
