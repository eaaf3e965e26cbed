"""Computes equal things once: nodes that do the same to the same messages become one.

Layers too: the gradient of a layer that was applied twice to one value is the sum either way. Dropout draws anew each time and stays.
"""

from __future__ import annotations

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, AnyNode, Loss, Metric, Output, Source
from ampc.passes.rewrite import Rewriter, joined


def share(graph: Graph) -> Graph:
    """Return the graph with equal nodes merged; what is carried round a loop is compared once its inputs are merged."""
    r = Rewriter(graph)
    changed = True
    while changed:
        changed = False
        first: dict[AnyNode | tuple[object, ...], int] = {}
        for i in list(r.order):
            node = r.nodes[i]
            if isinstance(node, Source | Loss | Metric | Output) or (isinstance(node, NPT) and node.op == "dropout"):
                continue
            if not any(r.readers[i, port] for port in range(len(node.outputs))):
                continue
            key = _key(node)
            if (other := first.setdefault(key, i)) != i:
                _merge(r, other, i)
                changed = True
    return r.finish()


def _key(node: AnyNode) -> tuple[object, ...]:
    """Return what makes two nodes equal: all but id, name and source place."""
    parts = msgspec.structs.asdict(node)
    attrs = parts.pop("attrs", {})
    rest = tuple(v for k, v in parts.items() if k not in ("id", "name", "origin"))
    return (type(node).__name__, *rest, tuple(sorted(attrs.items())))


def _merge(r: Rewriter, kept: int, gone: int) -> None:
    for port in range(len(r.nodes[gone].outputs)):
        r.reroute((gone, port), (kept, port))
    r.decide(gone, kept)
    r.put(msgspec.structs.replace(r.nodes[kept], origin=joined(r.nodes[kept].origin, r.nodes[gone].origin)))
