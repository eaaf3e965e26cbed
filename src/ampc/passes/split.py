"""Splits Linears: `big` with `columns = 4` becomes layers `big@0` to `big@3`, a quarter of the columns of w and b each, joined by a Concat.

With `rows = 4` each part takes a quarter of the operand's columns, and their results are added; b belongs to the first part. Parts may be on
different devices. They start as slices of what the whole would start as, so that the numbers are the same up to the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ampc.ir.copies import part_name
from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph, Layer, Param
from ampc.ir.nodes import NPT, PPT, AnyNode, Attr, Concat, Ref, Split, Type
from ampc.ir.scope import members


def split(graph: Graph) -> Graph:
    """Return the graph with the parts of all layers that have `columns` or `rows`."""
    if all(x.columns == 1 and x.rows == 1 for x in graph.layers):
        return graph
    open_ = fan_in(graph)
    layers = tuple(part for x in open_.layers for part in _parts(x))
    return fan_out(msgspec.structs.replace(open_, layers=layers, nodes=tuple(_Writer(open_).nodes())))


def widths(whole: int, parts: int) -> list[int]:
    """Return the extents of so many parts, as equal as they can be, the wider ones first."""
    return [whole // parts + (i < whole % parts) for i in range(parts)]


def _parts(x: Layer) -> Iterator[Layer]:
    """Yield the layers that a layer becomes."""
    if x.columns == 1 and x.rows == 1:
        yield x
        return
    axis, count = (1, x.columns) if x.columns > 1 else (0, x.rows)
    weight = next(p for p in x.params if len(p.shape) == 2)
    first = 0
    for i, width in enumerate(widths(weight.shape[axis], count)):
        params = tuple(_slice(p, len(p.shape) - 1 if axis else 0, first, width) for p in x.params if axis or i == 0 or p is weight)
        if not axis:  # rows: the bias is whole
            params = tuple(p if len(p.shape) == 2 else next(q for q in x.params if q.name == p.name) for p in params)
        yield msgspec.structs.replace(x, name=part_name(x.name, i), params=params, columns=1, rows=1)
        first += width


def _slice(p: Param, axis: int, first: int, width: int) -> Param:
    shape = tuple(width if i == axis else n for i, n in enumerate(p.shape))
    return msgspec.structs.replace(p, shape=shape, cut=(axis, first, p.shape[axis]))


class _Writer:
    """Writes the nodes of the new graph in the order of the old one; the last node of a split one keeps its id."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.fresh = max(n.id for n in graph.nodes) + 1

    def nodes(self) -> Iterator[AnyNode]:
        for n in self.graph.nodes:
            layer = members(self.graph, n.op, n.layer, n.attrs)[0][1] if isinstance(n, PPT) else None
            if isinstance(n, PPT) and layer is not None and layer.columns > 1:
                yield from self._by_columns(n, layer)
            elif isinstance(n, PPT) and layer is not None and layer.rows > 1:
                yield from self._by_rows(n, layer)
            else:
                yield n

    def _number(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    def _by_columns(self, n: PPT, layer: Layer) -> Iterator[AnyNode]:
        (whole,) = n.outputs
        made: list[Ref] = []
        for i, width in enumerate(widths(whole.cols, layer.columns)):
            part = msgspec.structs.replace(n, id=self._number(), layer=part_name(n.layer, i), outputs=(Type(whole.rows, width, whole.integer),))
            made.append((part.id, 0))
            yield part
        yield Concat(id=n.id, region=n.region, inputs=tuple(made), outputs=n.outputs, origin=n.origin, name=n.name)

    def _by_rows(self, n: PPT, layer: Layer) -> Iterator[AnyNode]:
        whole = self.graph.type_of(n.inputs[0])
        pieces = list(_pieces(n, layer, whole.cols))
        operand = n.inputs[0]
        refs = [operand]
        if len(pieces) > 1:
            kinds = tuple(Type(whole.rows, cols, whole.integer) for _, cols, _ in pieces)
            cut = Split(id=self._number(), region=n.region, inputs=(operand,), outputs=kinds, origin=n.origin, name=n.name)
            refs = [(cut.id, i) for i in range(len(pieces))]
            yield cut
        total: Ref | None = None
        for k, ((i, _, attrs), ref) in enumerate(zip(pieces, refs, strict=True)):
            last = k + 1 == len(pieces)
            alone = last and total is None
            layer_name, inputs = part_name(n.layer, i), (ref, *n.inputs[1:])
            part = msgspec.structs.replace(n, id=n.id if alone else self._number(), layer=layer_name, inputs=inputs, attrs=attrs)
            yield part
            if total is None:
                total = (part.id, 0)
                continue
            both = (total, (part.id, 0))
            sum_ = NPT(id=n.id if last else self._number(), region=n.region, inputs=both, outputs=n.outputs, origin=n.origin, name=n.name, op="add")
            total = (sum_.id, 0)
            yield sum_


def _pieces(n: PPT, layer: Layer, cols: int) -> Iterator[tuple[int, int, dict[str, Attr]]]:
    """Yield (part of the layer, columns of the operand that it multiplies, attributes) for all parts that multiply any."""
    first = n.attrs.get("first", 0)
    assert isinstance(first, int)
    begin = 0
    for i, width in enumerate(widths(next(p.shape[0] for p in layer.params if len(p.shape) == 2), layer.rows)):
        low, high = max(begin, first), min(begin + width, first + cols)
        if low < high:
            yield i, high - low, {**n.attrs, "first": low - begin} if n.op == "linear_part" else n.attrs
        begin += width


__all__ = ["split", "widths"]
