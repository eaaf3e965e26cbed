"""Words for nodes: the title and the small line below it, as a picture or a report shows them."""

from __future__ import annotations

from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Bcast, Concat, Cond, Coord, Dealt, Decided, Dependents, Enter, FieldRef, First, Flatmap, Group, Index, Isu, Leave, Loss, Match,
    Metric, Next, Output, Over, Phi, Source, Split, StateMap, Test, Type, Ungroup, Within,
)
from ampc.ir.scope import POSITION_FIELD, TURN_FIELD, members


def shape(t: Type) -> str:
    """Return a payload type in few signs: `128`, `atom×100`, `int`."""
    width = "int" if t.integer and t.cols == 1 else str(t.cols)
    return f"{'many' if t.rows == '*' else t.rows}×{width}" if t.rows else width


def describe(graph: Graph, node: AnyNode) -> tuple[str, str]:
    """Return a node's title and the small line below it (may be empty)."""
    match node:
        case PPT():
            return node.layer, _layer_line(graph, node)
        case NPT(op="fill"):
            value = node.attrs.get("value", 0)
            return ("zeros" if value == 0 else f"all {value:g}" if isinstance(value, int | float) else "fill"), ""
        case NPT(op="columns"):
            return "columns", f"{node.attrs.get('start')}:{node.attrs.get('stop')}"
        case NPT(op="affine"):
            return "affine", f"{node.attrs.get('scale'):g}·x + {node.attrs.get('shift'):g}"
        case NPT():
            reads = ", ".join(field_words(graph, f) for f in node.fields)
            numbers = " ".join(f"{k} {v}" for k, v in node.attrs.items())
            if reads and "reduce" in node.attrs:
                return node.op.replace("_", " "), f"{node.attrs['reduce']} by {reads}"
            return node.op.replace("_", " "), reads or numbers
        case Loss() | Metric():
            return node.op.replace("_", " "), ", ".join(field_words(graph, f) for f in node.fields)
        case Output():
            return node.name or "output", ""
        case Source():
            return "in", ""
        case Cond(test=test):
            return _test_words(graph, test), ""
        case Phi(test=First(region=r)):
            return f"loop {region_words(graph, r)}", ""
        case Phi():
            return "φ", ""
        case Isu(map=m):
            return _map_words(graph, m), ""
        case Concat():
            return "concat", ""
        case Split():
            return "split", ""
        case Bcast():
            return "", ""
        case Flatmap(to=Over(region=r)):
            return f"each {region_words(graph, r)}", ""
        case Flatmap(to=Dependents(region=r, at=at)):
            return f"{'those waiting on' if graph.regions[r].form == 'visit' else 'to those with'} {_index(graph, at)}", ""
        case Ungroup(to=r):
            return f"rows to {region_words(graph, r)}", ""
        case Group(key=None):
            return f"gather {region_words(graph, node.region)}", ""
        case Group(key=key):
            return f"gather by {_index(graph, key)}", ""
    raise AssertionError(node)


def _layer_line(graph: Graph, node: PPT) -> str:
    _, layer = members(graph, node.op, node.layer, node.attrs)[0]
    sizes = "×".join(str(s) for s in max((p.shape for p in layer.params), key=len, default=()))
    reads = ", ".join(field_words(graph, f) for f in node.fields)
    copies = f" · {layer.replicas} replicas" if layer.replicas > 1 else ""
    return f"{node.op.replace('_', ' ')} {sizes}{' of ' + reads if reads else ''}{copies}"


def region_words(graph: Graph, number: int) -> str:
    """Return a region by its variable, its axis or its bound."""
    r = graph.regions[number]
    return r.name or r.axis or (f"range({r.count})" if r.count else r.form)


def _test_words(graph: Graph, test: Test) -> str:
    match test:
        case Within(region=r) | First(region=r):
            return f"{region_words(graph, r)}?"
        case Match(ref=ref):
            return f"{field_words(graph, ref)}?"
        case Decided(by=by):
            computed = graph.by_id.get(by)
            return f"{computed.op}?" if isinstance(computed, NPT) else "computed?"
        case Dealt(count=count):
            return f"dealt to {count}"
    raise AssertionError(test)


def _map_words(graph: Graph, m: StateMap) -> str:
    match m:
        case Enter(region=r):
            return f"{region_words(graph, r)} = 0"
        case Next(region=r):
            return f"{region_words(graph, r)} + 1"
        case Leave(region=r):
            return f"leave {region_words(graph, r)}"
    raise AssertionError(m)


def field_words(graph: Graph, ref: FieldRef) -> str:
    """Return a field as the program reads it: `symbol[t]`, `number(t)`."""
    if ref.field == TURN_FIELD or ref.field.endswith(POSITION_FIELD):
        return f"number({_index(graph, ref.at) if ref.at is not None else ref.field.removesuffix(POSITION_FIELD)})"
    return f"{ref.field}{at_words(graph, ref.at)}"


def at_words(graph: Graph, at: Index | None) -> str:
    """Return an index as it is written behind a field: `[t]`, `[left[n]]`."""
    return "" if at is None else f"[{_index(graph, at)}]"


def _index(graph: Graph, at: Index | None) -> str:
    match at:
        case None:
            return ""
        case Coord(region=r):
            return region_words(graph, r)
        case _:
            return f"{at.field}{at_words(graph, at.at)}"


__all__ = ["at_words", "describe", "field_words", "region_words", "shape"]
