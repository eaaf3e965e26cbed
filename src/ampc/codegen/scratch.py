"""Places of a function's buffers in a worker's scratch: what is not in use at the same time shares one, so that a core's cache holds the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ampc.codegen.loops import NAME, Buffer, Space
from ampc.codegen.text import Line


def share(lines: Sequence[Line], buffers: Mapping[str, Buffer], depth: int) -> tuple[list[Line], dict[str, tuple[int, Space]]]:
    """Give buffers that are not in use at the same time one name; return the text and (columns, space) of each name.

    depth: that of statements; what lies deeper belongs to the statement before.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    statement = 0
    for line in lines:
        statement += line.depth <= depth
        for name in NAME.findall(line.text):
            first.setdefault(name, statement)
            last[name] = statement
    places: dict[str, tuple[int, Space]] = {}
    busy_until: dict[str, int] = {}
    names: dict[str, str] = {}
    for name in sorted(first, key=lambda b: (first[b], b)):
        cols, space = buffers[name].cols, buffers[name].space
        free = [p for p, (_, s) in places.items() if s == space and busy_until[p] < first[name]]
        place = min(free, key=lambda p: (abs(places[p][0] - cols), p)) if free else f"b{len(places)}"
        places[place] = (max(cols, places.get(place, (0, ""))[0]), space)
        busy_until[place] = last[name]
        names[name] = place
    return [Line(line.depth, NAME.sub(lambda m: names[m[0]], line.text)) for line in lines], places
