"""Multiplies what stays the same in all turns of a loop once, in front of the loop.

A Linear over `[x[t], s, h]` whose `s` comes from outside of the loop is taken apart (`products`): the product of s is made once. Backward, the
gradients of all turns are added before they meet the weights.
"""

from __future__ import annotations

import itertools

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, Concat, FieldRef, Flatmap, Over, Ref, Region, Split, Type
from ampc.ir.ops import OPS
from ampc.ir.scope import declaration
from ampc.passes.products import Part, is_filled_with_zeros, linears, parts_of, product, relieve, total
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
        for n in linears(self.r):
            if n.region == self.region.id:
                self._relieve(n)
        for i in list(self.r.order):
            part = self.r.nodes[i]
            if isinstance(part, PPT) and part.op == "linear_part" and part.region == self.region.id and self._same(part.inputs[0]):
                self._move(part)
        return self.r.finish()

    def _relieve(self, n: PPT) -> None:
        """Put in the place of a Linear the sum of what it makes of the parts that change, and of the others' product."""
        parts = parts_of(self.r, n)
        gone = {p for p in parts if self._same(p.ref) and not is_filled_with_zeros(self.r.node(p.ref))}
        if len({p.kind.rows for p in parts}) > 1 or sum(p.kind.cols for p in gone) * n.outputs[0].cols < LEAST:
            return
        made = []
        for unchanging, run in itertools.groupby(parts, key=lambda p: p in gone):
            if unchanging:
                made.append(self._product(n, list(run)))
        relieve(self.r, n, gone, self._over(n, total(self.r, n, made, self.region.parent)))

    def _product(self, n: PPT, run: list[Part]) -> Ref:
        """Write, in front of the loop, the product of neighbouring parts."""
        refs = tuple(self._outside(p.ref, n.id) for p in run)
        joined = refs[0]
        if len(run) > 1:
            whole = Type(run[0].kind.rows, sum(p.kind.cols for p in run))
            joined = (self.r.add(Concat(id=-1, region=self.region.parent, inputs=refs, outputs=(whole,), origin=n.origin), n.id), 0)
        return product(self.r, n, joined, run[0].first, self.region.parent)

    def _move(self, n: PPT) -> None:
        """Put a product that an inner loop was spared in front of this one too."""
        product = (self.r.add(msgspec.structs.replace(n, region=self.region.parent, inputs=(self._outside(n.inputs[0], n.id),)), n.id), 0)
        self.r.reroute((n.id, 0), self._over(n, product))

    def _over(self, n: PPT, product: Ref) -> Ref:
        """Give every turn what was made in front of the loop."""
        over = Flatmap(id=-1, region=self.region.parent, inputs=(product,), outputs=n.outputs, origin=n.origin, name=n.name, to=Over(self.region.id))
        return self.r.add(over, n.id), 0

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
