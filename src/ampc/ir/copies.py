"""Names of the copies of a replicated layer: copy 1 of `step` is `step~1`, copy 1 of member 2 of family `message` is `message~1.2`.

Works on names of layers and of parameters (`step~1.w`). Knows nothing of graphs.
"""

from __future__ import annotations

import re

COPY = re.compile(r"~[0-9]+")


def copy_name(layer: str, copy: int) -> str:
    """Return the name of a copy of a layer, of a family or of a family's member."""
    base, dot, member = layer.partition(".")
    return f"{base}~{copy}{dot}{member}"


def plain_name(name: str) -> str:
    """Return the name of a layer or parameter without the number of its copy: as it is in the source."""
    return COPY.sub("", name, count=1)


def copy_number(name: str) -> int | None:
    """Return which copy a name is of, or None if it is of none."""
    found = COPY.search(name)
    return int(found[0][1:]) if found else None
