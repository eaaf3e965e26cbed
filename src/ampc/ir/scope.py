"""What a node sees of the declarations from where it stands: open axes, fields read at an element, parameter shapes."""

from __future__ import annotations

import msgspec

from ampc.ir.graph import FieldDecl, Graph, Layer
from ampc.ir.nodes import Attr, Coord, FieldRef, Index, Region, Through, Type
from ampc.ir.op import Scope

PARENT_FIELD = ".parent"
"""`child.parent` is the implied index field of nested axis `child`: the element that each of its elements belongs to."""

POSITION_FIELD = ".position"
"""`token.position` is an implied int field: the place of each element among those of the instance, or of its parent, from 0."""

TURN_FIELD = "loop.turn"
"""`loop.turn[@2]` is an implied int, read at a loop alone: the turn that a state of that loop is at, from 0."""


def grouped_rows(key: Index | None, region: int, axis: str) -> str:
    """Return the rows of what a Group collects from `region` over `axis` ("" for turns).

    A whole axis has its own rows; by its implied `parent` field, a nested one has those of each parent: the same rows that a value over it has
    there. By any other index, as many as there happen to be.
    """
    if key is None or (axis and key == Through(axis + PARENT_FIELD, Coord(region))):
        return axis or "*"
    return "*"


def chain(graph: Graph, region: int) -> list[Region]:
    """Return the regions from the root's child down to `region`: one for each coordinate of a state."""
    out: list[Region] = []
    while region > 0:
        out.append(graph.regions[region])
        region = graph.regions[region].parent
    return out[::-1]


def open_axes(graph: Graph, region: int) -> frozenset[str]:
    """Return the axes at an element of which a state of `region` stands."""
    return frozenset(r.axis for r in chain(graph, region) if r.axis)


def scope_at(graph: Graph, region: int, declared: tuple[Type, ...] = ()) -> Scope:
    """Return what shape rules may know at `region`."""
    opened = open_axes(graph, region)
    return Scope({a.name: "" if a.parent in opened else a.parent for a in graph.axes if a.parent}, declared)


def declaration(graph: Graph, name: str) -> FieldDecl | None:
    """Return the declaration of a field, implied ones too, or None."""
    found = graph.field.get(name)
    if found is not None:
        return found
    if name == TURN_FIELD:
        return FieldDecl(name, "int")
    if name.endswith(POSITION_FIELD):
        axis = name.removesuffix(POSITION_FIELD)
        return FieldDecl(name, "int", axis) if any(a.name == axis for a in graph.axes) else None
    if not name.endswith(PARENT_FIELD):
        return None
    axis = name.removesuffix(PARENT_FIELD)
    parent = next((a.parent for a in graph.axes if a.name == axis and a.parent), None)
    return None if parent is None else FieldDecl(name, "index", axis, of=parent)


def field_seen(graph: Graph, ref: FieldRef) -> FieldDecl:
    """Return the declaration as shape rules see it: read at one element it has no axis. Raises KeyError for an unknown field."""
    found = declaration(graph, ref.field)
    if found is None:
        raise KeyError(ref.field)
    return found if ref.at is None else msgspec.structs.replace(found, axis="")


def members(graph: Graph, op: str, layer: str, attrs: dict[str, Attr]) -> list[tuple[str, Layer]]:
    """Return (prefix, layer) for each layer behind a PPT: one with prefix "", or a family's members with "0.", "1.", ...

    Raises KeyError for an unknown layer.
    """
    if op != "linear_by":
        return [("", graph.layer[layer])]
    count = attrs["members"]
    assert isinstance(count, int)
    return [(f"{i}.", graph.layer[f"{layer}.{i}"]) for i in range(count)]


def param_shapes(graph: Graph, op: str, layer: str, attrs: dict[str, Attr]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a PPT's parameters, by the names that its operation uses ("w", or "3.w" for a family)."""
    return {prefix + p.name: p.shape for prefix, x in members(graph, op, layer, attrs) for p in x.params}
