"""The graph: declarations, regions and nodes, frozen. A change is a new graph that shares what it did not touch."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from ampc.ir.nodes import AnyNode, Attr, Group, Isu, Flatmap, Enter, Leave, Metric, Ref, Region, Struct, Type, Ungroup


class AxisDecl(Struct, frozen=True):
    """`parent` is "" for an axis of the instance, else the axis that it is nested in."""

    name: str
    parent: str = ""


class FieldDecl(Struct, frozen=True):
    """One field of an instance.

    `kind`: "float" (float32, `columns` wide), "int" (0 <= value < `below`, or any if `below` is 0), "flag" (0 or 1),
    or "index" (a position on axis `of`). `axis` "" is a field of the instance. `optional` allows none (stored as -1; NaN for a float).
    """

    name: str
    kind: Literal["float", "int", "flag", "index"]
    axis: str = ""
    columns: int = 1
    below: int = 0
    of: str = ""
    optional: bool = False


class Param(Struct, frozen=True):
    """One array of a layer. `init`: "glorot", "he", "normal", "uniform", "zeros", "ones", "identity"; `scale` is its factor.

    `cut`: () for a whole array, else (axis, first, extent) of the array that this is a slice of: its first value is that of the slice.
    """

    name: str
    shape: tuple[int, ...]
    init: str = "glorot"
    scale: float = 1.0
    cut: tuple[int, ...] = ()


class Layer(Struct, frozen=True):
    """What owns parameters and updates itself. A family's members are layers `name.0`, `name.1`, ...

    `settings` overrides the run's: min_update_frequency, learning_rate, ... `device` pins it (manual placement), "" leaves it free.
    `columns`, `rows`: into how many parts a Linear is to be split.
    """

    name: str
    form: str
    params: tuple[Param, ...]
    replicas: int = 1
    settings: dict[str, int | float | str | bool] = {}
    device: str = ""
    columns: int = 1
    rows: int = 1


class Graph(Struct, frozen=True, dict=True):
    """A whole program. `nodes` is ordered by id; `train` holds the defaults of the `train:` block."""

    name: str
    axes: tuple[AxisDecl, ...]
    fields: tuple[FieldDecl, ...]
    layers: tuple[Layer, ...]
    regions: tuple[Region, ...]
    nodes: tuple[AnyNode, ...]
    train: dict[str, int | float | str | bool] = {}
    parameters: dict[str, int | float | bool] = {}

    @cached_property
    def by_id(self) -> dict[int, AnyNode]:
        return {n.id: n for n in self.nodes}

    @cached_property
    def field(self) -> dict[str, FieldDecl]:
        return {f.name: f for f in self.fields}

    @cached_property
    def layer(self) -> dict[str, Layer]:
        return {x.name: x for x in self.layers}

    @cached_property
    def metrics(self) -> dict[str, tuple[Metric, ...]]:
        """Name of a metric -> the nodes that are counted together under it."""
        nodes = [n for n in self.nodes if isinstance(n, Metric)]
        return {name: tuple(n for n in nodes if (n.name or n.op) == name) for name in dict.fromkeys(n.name or n.op for n in nodes)}

    @cached_property
    def readers(self) -> dict[Ref, tuple[int, int]]:
        """Output port -> the (node id, input port) that reads it."""
        return {ref: (n.id, port) for n in self.nodes for port, ref in enumerate(n.inputs)}

    def type_of(self, ref: Ref) -> Type:
        return self.by_id[ref[0]].outputs[ref[1]]

    def region_out(self, node: AnyNode) -> int:
        """The region of the states of `node`'s outputs."""
        match node:
            case Isu(map=Enter(region=r)):
                return r
            case Isu(map=Leave(region=r)):
                return self.regions[r].parent
            case Flatmap(to=generator):
                return generator.region
            case Ungroup(to=r):
                return r
            case Group(key=None):
                return self.regions[node.region].parent
            case Group(to=r):
                return r
            case _:
                return node.region

    def with_nodes(self, nodes: tuple[AnyNode, ...]) -> Graph:
        """Return this graph with other nodes; the same object if nothing changed."""
        return self if nodes == self.nodes else msgspec.structs.replace(self, nodes=nodes)


__all__ = ["Attr", "AxisDecl", "FieldDecl", "Graph", "Layer", "Param"]
