"""Multiplies what stays the same in all turns of a loop once, in front of the loop.

A Linear over `[x[t], s, h]` whose `s` comes from outside of the loop is the sum of a product of s, which is made once (`linear_part`), and the
Linear over `[x[t], 0, h]`, whose zeros nobody multiplies (`place.work.is_zero`). Backward, the gradients of all turns are added before they meet
the weights. The layer stays one: its parameters, settings and gradient are what they were.
"""

from __future__ import annotations

import itertools

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, AnyNode, Concat, FieldRef, Flatmap, Over, Ref, Region, Split, Type
from ampc.ir.ops import OPS
from ampc.ir.scope import declaration
from ampc.passes.rewrite import Rewriter, uses

LEAST = 4096
"""Multiplications a row that a turn must be spared: below, what the sum of one more operand costs is more."""


def hoist(graph: Graph) -> Graph:
    """Return the graph with products of unchanging values in front of the loops; out of several loops, from the innermost on."""
    for region in reversed(graph.regions):
        if region.form == "loop":
            graph = _Hoist(graph, region).result()
    return graph


class _Hoist:
    """One loop: finds what does not change in it, and makes that again in the region around it."""

    def __init__(self, graph: Graph, region: Region) -> None:
        self.graph, self.region = graph, region
        self.nested = {a.name for a in graph.axes if a.parent}
        self.r = Rewriter(graph)
        self.made: dict[int, int] = {}
        """Node of the loop -> the same in front of it."""

    def result(self) -> Graph:
        """Return the graph with the loop's Linears relieved; the graph itself where none can be."""
        for i in list(self.r.order):
            n = self.r.nodes[i]
            if isinstance(n, PPT) and n.op == "linear" and n.region == self.region.id and self.r.readers[i, 0]:
                layer = self.graph.layer[n.layer]
                if layer.columns == layer.rows == 1:
                    self._relieve(n)
            elif isinstance(n, PPT) and n.op == "linear_part" and n.region == self.region.id and self._same(n.inputs[0]):
                self._move(n)
        return self.r.finish()

    def _relieve(self, n: PPT) -> None:
        """Put in the place of a Linear the sum of what it makes of the parts that change, and of the others' product."""
        operand = self.r.node(n.inputs[0])
        parts = list(operand.inputs) if isinstance(operand, Concat) and self.r.single(n.inputs[0]) else [n.inputs[0]]
        kinds = [self.r.type_of(ref) for ref in parts]
        same = [self._same(ref) and not _is_zero(self.r.node(ref)) for ref in parts]
        if len({k.rows for k in kinds}) > 1 or sum(k.cols for k, s in zip(kinds, same, strict=True) if s) * n.outputs[0].cols < LEAST:
            return
        product = self._over(n, self._product(n, parts, kinds, same))
        started = self._npt(n, "unit", (product,), Type(kinds[0].rows))
        inputs = tuple(
            self._npt(n, "fill", (started,), kind, cols=kind.cols, value=0.0) if s else ref for ref, kind, s in zip(parts, kinds, same, strict=True)
        )
        whole = inputs[0]
        if len(parts) > 1:
            assert isinstance(operand, Concat)
            whole = (self.r.add(msgspec.structs.replace(operand, inputs=inputs), n.id), 0)
        linear = (self.r.add(msgspec.structs.replace(n, inputs=(whole,)), n.id), 0)
        self.r.put(NPT(id=n.id, region=n.region, inputs=(linear, product), outputs=n.outputs, op="add", origin=n.origin, name=n.name))

    def _move(self, n: PPT) -> None:
        """Put a product that an inner loop was spared in front of this one too."""
        product = (self.r.add(msgspec.structs.replace(n, region=self.region.parent, inputs=(self._outside(n.inputs[0], n.id),)), n.id), 0)
        self.r.reroute((n.id, 0), self._over(n, product))

    def _over(self, n: PPT, product: Ref) -> Ref:
        """Give every turn what was made in front of the loop."""
        over = Flatmap(id=-1, region=self.region.parent, inputs=(product,), outputs=n.outputs, origin=n.origin, name=n.name, to=Over(self.region.id))
        return self.r.add(over, n.id), 0

    def _product(self, n: PPT, parts: list[Ref], kinds: list[Type], same: list[bool]) -> Ref:
        """Write, in front of the loop, the product of the parts that don't change; neighbours are multiplied together."""
        total: Ref | None = None
        first = 0
        for unchanging, run in itertools.groupby(zip(same, parts, kinds, strict=True), key=lambda x: x[0]):
            found = list(run)
            cols = sum(kind.cols for _, _, kind in found)
            if unchanging:
                inputs = tuple(self._outside(ref, n.id) for _, ref, _ in found)
                joined = inputs[0]
                if len(found) > 1:
                    whole = Type(kinds[0].rows, cols)
                    joined = (self.r.add(Concat(id=-1, region=self.region.parent, inputs=inputs, outputs=(whole,), origin=n.origin), n.id), 0)
                part = msgspec.structs.replace(n, op="linear_part", region=self.region.parent, inputs=(joined,), attrs={"first": first})
                product = (self.r.add(part, n.id), 0)
                total = product if total is None else self._npt(n, "add", (total, product), n.outputs[0], self.region.parent)
            first += cols
        assert total is not None
        return total

    def _npt(self, n: PPT, op: str, inputs: tuple[Ref, ...], kind: Type, region: int = -1, **attrs: int | float) -> Ref:
        where = self.region.id if region < 0 else region
        made = NPT(id=-1, region=where, inputs=inputs, outputs=(kind,), op=op, attrs=dict(attrs), origin=n.origin, name=n.name)
        return self.r.add(made, n.id), 0

    # ------------------------------------------------------------------------------------------- what does not change

    def _same(self, ref: Ref) -> bool:
        """Whether a value is the same in all turns: from outside, or made of such values by operations that know nothing of the turn."""
        n = self.r.node(ref)
        if isinstance(n, Flatmap):
            return n.to == Over(self.region.id)
        if n.region != self.region.id or any(t.rows in self.nested for t in n.outputs):
            return False
        if isinstance(n, NPT):
            known = OPS[n.op].group in ("unary", "binary", "columns", "source") and all(self._same_field(f) for f in n.fields)
            return known and all(self._same(x) for x in n.inputs)
        return isinstance(n, Concat | Split) and all(self._same(x) for x in n.inputs)

    def _same_field(self, ref: FieldRef) -> bool:
        found = declaration(self.graph, ref.field)
        return found is not None and found.axis not in self.nested and not (ref.at is not None and uses(ref.at, self.region.id))

    def _outside(self, ref: Ref, before: int) -> Ref:
        """Return the value in front of the loop."""
        n = self.r.node(ref)
        if isinstance(n, Flatmap):
            return n.inputs[0]
        if n.id not in self.made:
            inputs = tuple(self._outside(x, before) for x in n.inputs)
            self.made[n.id] = self.r.add(msgspec.structs.replace(n, region=self.region.parent, inputs=inputs), before)
        return self.made[n.id], ref[1]


def _is_zero(n: AnyNode) -> bool:
    return isinstance(n, NPT) and n.op == "fill" and n.attrs["value"] == 0
