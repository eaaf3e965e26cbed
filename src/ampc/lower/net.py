"""The graph while it is being built: nodes whose outputs may have any number of readers, and forward references.

`finish` makes it a `Graph`: it resolves the references and puts a Bcast behind each output that has several readers.
It checks nothing; `ampc.ir.verify` does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ampc.ir.fanout import fan_out
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer
from ampc.ir.nodes import NPT, AnyNode, Ref, Region, Type


class Net:
    """Nodes and regions in the order in which they were made; ids are positions."""

    def __init__(self) -> None:
        self.nodes: list[AnyNode] = []
        self.regions: list[Region] = [Region(0, "instance", name="instance")]
        self.elements: dict[tuple[int, str], int] = {}
        self.spread: dict[tuple[Ref, int], Ref] = {}
        self.pending: dict[int, Ref] = {}
        self._promised = 0

    def add(self, kind: type[AnyNode], **parts: Any) -> int:
        """Append a node and return its id."""
        self.nodes.append(kind(id=len(self.nodes), **parts))
        return len(self.nodes) - 1

    def type_of(self, ref: Ref) -> Type:
        return self.nodes[ref[0]].outputs[ref[1]]

    def add_fill(self, region: int, unit: Ref, cols: int, origin: tuple[str, ...], name: str) -> Ref:
        """Append a row of zeros that `unit` triggers."""
        attrs = {"cols": cols, "value": 0.0}
        return (self.add(NPT, region=region, inputs=(unit,), outputs=(Type("", cols),), op="fill", attrs=attrs, origin=origin, name=name), 0)

    def rename(self, ref: Ref, name: str) -> None:
        """Name the node behind `ref` after the variable that it is assigned to, unless it has a name."""
        if ref[0] >= 0 and not self.nodes[ref[0]].name:
            self.nodes[ref[0]] = msgspec.structs.replace(self.nodes[ref[0]], name=name)

    def promise(self) -> Ref:
        """Return a reference to an output that will be made later; `keep` tells which one."""
        self._promised -= 1
        return (self._promised, 0)

    def keep(self, promised: Ref, ref: Ref) -> None:
        self.pending[promised[0]] = ref

    def feed(self, node: int, port: int, ref: Ref) -> None:
        """Connect an input port that was left to a promise."""
        old = self.nodes[node]
        self.nodes[node] = msgspec.structs.replace(old, inputs=(*old.inputs[:port], ref, *old.inputs[port + 1 :]))

    def region(self, **parts: Any) -> int:
        """Append a region and return its id."""
        self.regions.append(Region(id=len(self.regions), **parts))
        return len(self.regions) - 1

    def element_region(self, parent: int, axis: str) -> int:
        """Return the each-region over `axis` under `parent`; all that runs over the same elements shares it."""
        if (parent, axis) not in self.elements:
            self.elements[parent, axis] = self.region(form="each", parent=parent, axis=axis, name=axis)
        return self.elements[parent, axis]

    def mark(self) -> tuple[int, int, int]:
        """Return a point to which `rewind` can go back."""
        return len(self.nodes), len(self.regions), self._promised

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget all that was made since `mark`."""
        del self.nodes[mark[0] :], self.regions[mark[1] :]
        self.elements = {key: region for key, region in self.elements.items() if region < mark[1]}
        self.spread = {key: ref for key, ref in self.spread.items() if key[0][0] < mark[0] and ref[0] < mark[0]}
        self.pending = {promised: ref for promised, ref in self.pending.items() if promised >= mark[2]}

    def finish(self, name: str, axes: tuple[AxisDecl, ...], fields: tuple[FieldDecl, ...], layers: tuple[Layer, ...], **rest: Any) -> Graph:
        """Return the graph."""

        def resolved(ref: Ref) -> Ref:
            while ref[0] < 0:
                ref = self.pending[ref[0]]
            return ref

        nodes = tuple(msgspec.structs.replace(n, inputs=tuple(resolved(r) for r in n.inputs)) for n in self.nodes)
        return fan_out(Graph(name, axes, fields, layers, tuple(self.regions), nodes, **rest))
