"""Makes one Split of the slices that are taken of a value, as the gates of an LSTM are.

Slices that overlap stay as they are. A Split sends each column on once, and its backward joins the parts instead of adding padded ones.
"""

from __future__ import annotations

import itertools

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, Ref, Split, Type
from ampc.passes.rewrite import Rewriter, columns_of, joined


def part(graph: Graph) -> Graph:
    """Return the graph with a Split wherever two or more slices of one value don't overlap."""
    r = Rewriter(graph)
    slices: dict[Ref, list[NPT]] = {}
    for i in r.order:
        node = r.nodes[i]
        if isinstance(node, NPT) and node.op == "columns" and r.readers[i, 0]:
            slices.setdefault(node.inputs[0], []).append(node)
    for ref, nodes in slices.items():
        if len({columns_of(n) for n in nodes}) > 1:
            _split(r, ref, nodes)
    return r.finish()


def _split(r: Rewriter, ref: Ref, nodes: list[NPT]) -> None:
    """Put one Split in the place of `nodes`, all slices of `ref`, if no two overlap."""
    whole = r.type_of(ref)
    ranges = sorted({columns_of(n) for n in nodes})
    if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(ranges)):
        return
    bounds = sorted({0, whole.cols, *(b for pair in ranges for b in pair)})
    outputs = tuple(Type(whole.rows, stop - start, whole.integer) for start, stop in itertools.pairwise(bounds))
    origin = joined(*(n.origin for n in nodes))
    made = r.add(Split(id=-1, region=nodes[0].region, inputs=(ref,), outputs=outputs, origin=origin, name=r.node(ref).name), nodes[0].id)
    for n in nodes:
        r.reroute((n.id, 0), (made, bounds.index(columns_of(n)[0])))
