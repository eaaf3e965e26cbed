"""Drops what no loss, metric or output needs: nodes, then regions and layers that none uses any more.

The numbers stay the same: what nobody reads is answered by a zero gradient anyway.
"""

from __future__ import annotations

import msgspec

from ampc.ir.fanout import fan_in, fan_out
from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT, AnyNode, Coord, Decided, Dependents, FieldRef, Flatmap, Group, Index, Isu, Match, Test, Through, Ungroup
from ampc.passes.rewrite import live


def drop_dead(graph: Graph) -> Graph:
    """Return the graph without what has no effect."""
    open_ = fan_in(graph)
    kept = live(open_)
    if all(n.id in kept for n in open_.nodes):
        return drop_regions(_drop_layers(graph))
    return drop_regions(_drop_layers(fan_out(open_.with_nodes(tuple(n for n in open_.nodes if n.id in kept)))))


def _drop_layers(graph: Graph) -> Graph:
    used: set[str] = set()
    for n in graph.nodes:
        if isinstance(n, PPT):
            members = n.attrs.get("members")
            used |= {f"{n.layer}.{i}" for i in range(members)} if n.op == "linear_by" and isinstance(members, int) else {n.layer}
    layers = tuple(x for x in graph.layers if x.name in used)
    return graph if layers == graph.layers else msgspec.structs.replace(graph, layers=layers)


def drop_regions(graph: Graph) -> Graph:
    """Return the graph without regions that no node lies in; the others are renumbered."""
    used = {0}
    for n in graph.nodes:
        for region in (n.region, graph.region_out(n)):
            while region not in used:
                used.add(region)
                region = graph.regions[region].parent
    if len(used) == len(graph.regions):
        return graph
    fresh = {r.id: i for i, r in enumerate(r for r in graph.regions if r.id in used)}
    regions = tuple(msgspec.structs.replace(r, id=fresh[r.id], parent=fresh.get(r.parent, -1)) for r in graph.regions if r.id in used)
    return msgspec.structs.replace(graph, regions=regions, nodes=tuple(renumber(n, fresh) for n in graph.nodes))


def renumber(node: AnyNode, fresh: dict[int, int]) -> AnyNode:
    """Return the node with its regions renumbered, wherever it names one."""
    new = msgspec.structs.replace(node, region=fresh[node.region])
    if (fields := getattr(node, "fields", ())) != ():
        new = msgspec.structs.replace(new, fields=tuple(_field(f, fresh) for f in fields))
    match node:
        case Isu():
            return msgspec.structs.replace(new, map=msgspec.structs.replace(node.map, region=fresh[node.map.region]))
        case Flatmap(to=Dependents(region=r, at=at)):
            return msgspec.structs.replace(new, to=Dependents(fresh[r], _index(at, fresh)))
        case Flatmap():
            return msgspec.structs.replace(new, to=msgspec.structs.replace(node.to, region=fresh[node.to.region]))
        case Ungroup():
            return msgspec.structs.replace(new, to=fresh[node.to])
        case Group(key=None):
            return new
        case Group(key=key, to=to):
            assert key is not None
            return msgspec.structs.replace(new, key=_index(key, fresh), to=fresh[to])
        case _ if hasattr(node, "test"):
            return msgspec.structs.replace(new, test=_test(node.test, fresh))
        case _:
            return new


def _index(index: Index, fresh: dict[int, int]) -> Index:
    return Coord(fresh[index.region]) if isinstance(index, Coord) else Through(index.field, _index(index.at, fresh))


def _field(ref: FieldRef, fresh: dict[int, int]) -> FieldRef:
    return ref if ref.at is None else FieldRef(ref.field, _index(ref.at, fresh))


def _test(test: Test, fresh: dict[int, int]) -> Test:
    match test:
        case Match():
            return Match(_field(test.ref, fresh), test.cases)
        case Decided():
            return test
        case _ if hasattr(test, "region"):
            return msgspec.structs.replace(test, region=fresh[test.region])
        case _:
            return test
