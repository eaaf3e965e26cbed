"""Multiplies rows before they are gathered or repeated: nodes in place of the edges that read them.

The Linear of a message `[h[source[e]], h[target[e]], x[e]]` multiplies each node's row as often as there are edges at it. Here the products of h are
made node by node, with the rows of w for either end, and then gathered: sums are gathered in place of operands. The same where a single row
goes with the rows of an axis, as a summary of the whole graph does.
"""

from __future__ import annotations

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, AnyNode, Ref, Type
from ampc.ir.scope import declaration
from ampc.passes.products import Part, linears, parts_of, product, relieve, total
from ampc.passes.rewrite import Rewriter

LEAST = 256
"""Multiplications a row that must be spared: below, another gather and sum cost more."""


def rows_first(graph: Graph) -> Graph:
    """Return the graph with products of fewer rows."""
    r = Rewriter(graph)
    for n in linears(r):
        _relieve(r, n)
    return r.finish()


def _relieve(r: Rewriter, n: PPT) -> None:
    rows, cols = n.outputs[0].rows, n.outputs[0].cols
    parts = parts_of(r, n)
    if rows in ("", "*") or any(p.kind.rows not in ("", rows) for p in parts):
        return
    gone = {p for p in parts if _fewer(r.graph, r.node(p.ref), p, rows) and cols <= 2 * p.kind.cols and p.kind.cols * cols >= LEAST}
    if gone:
        relieve(r, n, gone, total(r, n, [_early(r, n, p) for p in parts if p in gone], n.region))


def _fewer(graph: Graph, maker: AnyNode, part: Part, rows: str) -> bool:
    """Whether a part is made of rows that there are fewer of: a single one, repeated ones, or gathered ones of an axis that has edges.

    Of other axes that name rows, such as some candidates among many nodes, nothing tells that they are the longer ones.
    """
    if part.kind.rows != rows:
        return True
    if not isinstance(maker, NPT) or maker.op not in ("gather", "expand_rows"):
        return False
    found = declaration(graph, maker.fields[0].field) if maker.op == "gather" else None
    return found is None or _ends(graph, rows, found.of) >= 2


def _ends(graph: Graph, axis: str, of: str) -> int:
    """Return how many elements of `of` each element of `axis` names; an edge has two ends."""
    named = sum(f.kind == "index" and f.axis == axis and f.of == of for f in graph.fields)
    return named + any(a.name == axis and a.parent == of for a in graph.axes) if axis != of else 0


def _early(r: Rewriter, n: PPT, part: Part) -> Ref:
    """Write the product of a part before its rows are gathered or repeated."""
    maker = r.node(part.ref)
    if part.kind.rows != n.outputs[0].rows:
        return product(r, n, part.ref, part.first, n.region)
    assert isinstance(maker, NPT)
    made = product(r, n, maker.inputs[0], part.first, n.region)
    kind = Type(part.kind.rows, n.outputs[0].cols)
    return r.add(msgspec.structs.replace(maker, inputs=(made,), outputs=(kind,)), n.id), 0
