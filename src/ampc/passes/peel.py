"""Takes the first turn out of a loop that carries a padded value, and multiplies only the columns that are not zero there.

A graph network begins with the nodes' features, padded with zeros up to the width of its state: `h = pad(feature, 100)`. In its first turn
the products of h have 5 columns to multiply in place of 100, and no gradient of h is wanted. The turn is written once more in front of the
loop, which makes one turn less; what the code generator and the cost model look for is a Linear that reads a `pad` (`place.work.pad_behind`).
"""

from __future__ import annotations

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Concat, Cond, Enter, First, Flatmap, Isu, Next, Over, Phi, Ref, Region, Split, Type, Within,
)  # fmt: skip
from ampc.ir.ops import OPS
from ampc.passes.rewrite import Rewriter, uses

LEAST = 4096
"""Multiplications a row that a turn must be spared before it is written twice: below, what another firing costs is more."""


def peel(graph: Graph) -> Graph:
    """Return the graph with the first turns of such loops in front of them."""
    for region in graph.regions:
        if region.form == "loop" and not region.axis and region.count > 1:
            graph = _Peeled(graph, region).result()
    return graph


class _Peeled:
    """One loop's first turn in front of it: each node of the loop again, in the region around it."""

    def __init__(self, graph: Graph, region: Region) -> None:
        self.graph, self.region = graph, region
        self.r = Rewriter(graph)
        self.copies: dict[Ref, Ref] = {}
        """Value of the loop's first turn -> the same in front of the loop."""

    def result(self) -> Graph:
        """Return the graph with the turn peeled off; the graph itself where the loop has something that can't be, or too little is gained."""
        loop = [self.r.nodes[i] for i in self.r.order if self.region.id in (self.r.nodes[i].region, self.graph.region_out(self.r.nodes[i]))]
        if any(x.parent == self.region.id for x in self.graph.regions) or not all(self._plain(n) for n in loop):
            return self.graph
        entries = [n for n in loop if isinstance(n, Isu) and isinstance(n.map, Enter)]
        if not any(_is_pad(self.r.node(e.inputs[0])) for e in entries):
            return self.graph
        first = next(n.id for n in loop if not isinstance(n, Isu | Flatmap))
        for e in entries:  # behind the turn that they come from now
            self.r.order.remove(e.id)
            self.r.order.insert(self.r.order.index(first), e.id)
        self.before = entries[0].id
        copied = [self._copy(n) for n in loop if isinstance(n, NPT | PPT | Concat | Split)]
        if sum(self._spared(self.r.nodes[i]) for i in copied) < LEAST:
            return self.graph
        for n in loop:
            if isinstance(n, Isu) and isinstance(n.map, Next):
                entry = self._entry(n)
                self.r.put(msgspec.structs.replace(entry, inputs=(self._first(n.inputs[0]),)))
        regions = tuple(msgspec.structs.replace(x, count=x.count - 1) if x is self.region else x for x in self.graph.regions)
        return msgspec.structs.replace(self.r.finish(), regions=regions)

    # ------------------------------------------------------------------------------------------------ the first turn

    def _plain(self, n: AnyNode) -> bool:
        """Whether a node of the loop means the same in front of it: it knows nothing of the turn, and the loop ends by their number alone."""
        match n:
            case Cond(test=Within()) | Phi(test=First()) | Isu() | Concat() | Split():
                return True
            case Flatmap(to=Over(region=r)):
                return r == self.region.id
            case NPT(fields=fields) | PPT(fields=fields):
                return OPS[n.op].group != "random" and not any(f.at is not None and uses(f.at, self.region.id) for f in fields)
            case _:
                return False

    def _entry(self, back: Isu) -> AnyNode:
        """Return the Isu by which the value that `back` carries comes into the loop."""
        head = next(self.r.nodes[i] for i in self.r.readers[back.id, 0])
        return self.r.node(head.inputs[0])

    def _first(self, ref: Ref) -> Ref:
        """Return what a value of the loop is in its first turn, in front of the loop."""
        n = self.r.node(ref)
        if isinstance(n, Cond | Phi):
            return self._first(n.inputs[0])
        return n.inputs[0] if isinstance(n, Isu | Flatmap) else self.copies[ref]

    def _copy(self, n: AnyNode) -> int:
        inputs = tuple(self._first(ref) for ref in n.inputs)
        made = self.r.add(msgspec.structs.replace(n, region=self.region.parent, inputs=inputs), self.before)
        self.copies |= {(n.id, port): (made, port) for port in range(len(n.outputs))}
        return made

    # ---------------------------------------------------------------------------------------- columns that are zero

    def _spared(self, n: AnyNode) -> int:
        """Bring the pads in front of a Linear's operands; return how many multiplications a row it is spared."""
        if not isinstance(n, PPT) or n.op not in ("linear", "linear_part", "linear_by"):
            return 0
        reader: AnyNode = n
        operand = self.r.node(n.inputs[0])
        if n.op == "linear_by" and isinstance(operand, NPT) and operand.op == "gather" and self.r.single(n.inputs[0]):
            reader = operand  # a family reads its rows through the gather
        elif n.op != "linear_by" and isinstance(operand, Concat) and self.r.single(n.inputs[0]):
            reader = operand
        self.before = reader.id
        spared = 0
        for port, ref in enumerate(reader.inputs):
            pad = self._padded(ref)
            if pad is not None:
                inputs = tuple(pad if p == port else r for p, r in enumerate(self.r.nodes[reader.id].inputs))
                self.r.put(msgspec.structs.replace(self.r.nodes[reader.id], inputs=inputs))
                spared += self.r.type_of(pad).cols - self.r.type_of(self.r.node(pad).inputs[0]).cols
        return spared * n.outputs[0].cols

    def _padded(self, ref: Ref) -> Ref | None:
        """Return a `pad` that gives the value `ref`, written if there is none: of a gather of padded rows, or a product with them; or None."""
        n = self.r.node(ref)
        if not isinstance(n, NPT):
            return None
        if n.op == "pad":
            return ref
        if n.op == "gather" and (inner := self._unpadded(n.inputs[0])) is not None:
            return self._pad(n, (inner,))
        if n.op == "mul":
            for port, operand in enumerate(n.inputs):
                other = n.inputs[1 - port]
                if (inner := self._unpadded(operand)) is not None and self.r.type_of(other).cols == n.outputs[0].cols:
                    cols = self.r.type_of(inner).cols
                    kind = self.r.type_of(other)
                    cut = NPT(
                        id=-1, region=n.region, inputs=(other,), outputs=(Type(kind.rows, cols),), op="columns",
                        attrs={"start": 0, "stop": cols}, origin=n.origin, name=n.name,
                    )  # fmt: skip
                    return self._pad(n, (inner, (self.r.add(cut, self.before), 0)))
        return None

    def _unpadded(self, ref: Ref) -> Ref | None:
        pad = self._padded(ref)
        return None if pad is None else self.r.node(pad).inputs[0]

    def _pad(self, n: NPT, inputs: tuple[Ref, ...]) -> Ref:
        """Write the operation of `n` on the columns that aren't zero, and a pad behind it."""
        kind = n.outputs[0]
        inner = self.r.add(msgspec.structs.replace(n, inputs=inputs, outputs=(Type(kind.rows, self.r.type_of(inputs[0]).cols),)), self.before)
        pad = NPT(id=-1, region=n.region, inputs=((inner, 0),), outputs=(kind,), op="pad", attrs={"cols": kind.cols}, origin=n.origin, name=n.name)
        return self.r.add(pad, self.before), 0


def _is_pad(n: AnyNode) -> bool:
    return isinstance(n, NPT) and n.op == "pad"
