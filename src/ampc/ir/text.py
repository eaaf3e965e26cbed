"""A graph as text: declarations, regions, then a line for each node. `from_text` reads it back to an equal graph.

    graph list_reduction
    axis token
    field symbol: int[token] below 14
    layer step: linear(w [256, 128] glorot 1.0, b [128] zeros 1.0)
    region 1: loop over token in 0 name t
    %4 = ppt linear(%3) layer step : [128] in 1 from "list_reduction.amp:14:18"
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ampc.ir.graph import FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Attr,
    Cond,
    Coord,
    Dealt,
    Decided,
    Dependents,
    FieldRef,
    First,
    Flatmap,
    Group,
    Index,
    Isu,
    Loss,
    Match,
    Metric,
    Over,
    Phi,
    Ref,
    Region,
    Test,
    Type,
    Ungroup,
    Within,
)
from ampc.ir.read_text import WORD, from_text


def to_text(graph: Graph) -> str:
    """Return the graph as text, the same for equal graphs; ends with a newline."""
    lines = [f"graph {_word(graph.name)}"]
    lines += [f"parameter {_word(k)} = {_value(v)}" for k, v in sorted(graph.parameters.items())]
    lines += [f"train {_word(k)} = {_value(v)}" for k, v in sorted(graph.train.items())]
    lines += [f"axis {_word(a.name)}" + (f" of {_word(a.parent)}" if a.parent else "") for a in graph.axes]
    lines += [_field(f) for f in graph.fields]
    lines += [_layer(x) for x in graph.layers]
    lines += [_region(r) for r in graph.regions]
    lines += [node_text(n) for n in graph.nodes]
    return "\n".join(lines) + "\n"


def node_text(n: AnyNode) -> str:
    """Return one node's line."""
    operands = [_ref(r) for r in n.inputs] + [_field_ref(f) for f in getattr(n, "fields", ())]
    kind = type(n).__name__.lower()
    head = f"{kind} {_word(n.op)}" if isinstance(n, NPT | PPT | Loss | Metric) else kind
    parts = [f"%{n.id} = {head}({', '.join(operands)})", *_details(n)]
    if n.outputs:
        parts.append(": " + ", ".join(_type(t) for t in n.outputs))
    parts.append(f"in {n.region}")
    if n.name:
        parts.append(f"name {_word(n.name)}")
    if n.origin:
        parts.append("from " + ", ".join(json.dumps(o) for o in n.origin))
    return " ".join(parts)


def _details(n: AnyNode) -> list[str]:
    match n:
        case PPT():
            return [f"layer {_word(n.layer)}", *_attrs(n.attrs)]
        case NPT() | Metric():
            return _attrs(n.attrs)
        case Loss():
            return [*_attrs(n.attrs), *([f"weight {n.weight!r}"] if n.weight != 1.0 else [])]
        case Cond(test=test) | Phi(test=test):
            return ["by " + _test(test)]
        case Isu(map=m):
            return [f"{type(m).__name__.lower()} {m.region}"]
        case Flatmap(to=Over(region=r)):
            return [f"over {r}"]
        case Flatmap(to=Dependents(region=r, at=at)):
            return [f"dependents {r} at {_index(at)}"]
        case Ungroup(to=r):
            return [f"to {r}"]
        case Group(key=key, to=r):
            return ([] if key is None else [f"key {_index(key)}"]) + ([f"to {r}"] if r else [])
        case _:
            return []


def _test(test: Test) -> str:
    match test:
        case Within(region=r):
            return f"within {r}"
        case First(region=r):
            return f"first {r}"
        case Match(ref=ref, cases=cases):
            return f"match {_field_ref(ref)} {_cases(cases)}"
        case Decided(by=by, cases=cases):
            return f"decided %{by} {_cases(cases)}"
        case Dealt(count=count):
            return f"dealt {count}"


def _cases(cases: tuple[tuple[int, ...], ...]) -> str:
    return "(" + " | ".join([" ".join(map(str, case)) for case in cases] + ["else"]) + ")"


def _index(index: Index) -> str:
    return f"@{index.region}" if isinstance(index, Coord) else f"{_word(index.field)}[{_index(index.at)}]"


def _field_ref(ref: FieldRef) -> str:
    return _word(ref.field) if ref.at is None else f"{_word(ref.field)}[{_index(ref.at)}]"


def _ref(ref: Ref) -> str:
    return f"%{ref[0]}" if ref[1] == 0 else f"%{ref[0]}:{ref[1]}"


def _type(t: Type) -> str:
    if t == Type():
        return "unit"
    body = f"[{t.rows if t.rows == '*' else _word(t.rows)}, {t.cols}]" if t.rows else f"[{t.cols}]"
    return f"int {body}" if t.integer else body


def _attrs(attrs: Mapping[str, Attr]) -> list[str]:
    return ["{" + ", ".join(f"{_word(k)} = {_value(v)}" for k, v in sorted(attrs.items())) + "}"] if attrs else []


def _value(value: Attr) -> str:
    if isinstance(value, tuple):
        return "(" + " ".join(map(str, value)) + ")"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _word(name: str) -> str:
    """A name as it is if it reads back as one, else in quotes."""
    return name if WORD.fullmatch(name) and name not in ("inf", "nan") else json.dumps(name)


def _field(f: FieldDecl) -> str:
    parts = [f"field {_word(f.name)}: {f.kind}"]
    if f.axis:
        parts[0] += f"[{_word(f.axis)}]"
    parts += [f"columns {f.columns}"] if f.columns != 1 else []
    parts += [f"below {f.below}"] if f.below else []
    parts += [f"of {_word(f.of)}"] if f.of else []
    return " ".join(parts + (["optional"] if f.optional else []))


def _layer(x: Layer) -> str:
    params = ", ".join(map(_param, x.params))
    parts = [f"layer {_word(x.name)}: {_word(x.form)}({params})"]
    parts += [f"replicas {x.replicas}"] if x.replicas != 1 else []
    parts += [f"columns {x.columns}"] if x.columns != 1 else []
    parts += [f"rows {x.rows}"] if x.rows != 1 else []
    parts += [f"device {_word(x.device)}"] if x.device else []
    return " ".join(parts + _attrs(x.settings))


def _param(p: Param) -> str:
    return f"{_word(p.name)} {_shape(p.shape)} {_word(p.init)} {p.scale!r}" + (f" cut {_shape(p.cut)}" if p.cut else "")


def _shape(shape: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _region(r: Region) -> str:
    parts = [f"region {r.id}: {r.form}"]
    parts += [f"over {_word(r.axis)}"] if r.axis else []
    parts += [f"turns {r.count}"] if r.count else []
    parts += ["reverse"] if r.reverse else []
    parts += ["after " + ", ".join(map(_word, r.after))] if r.after else []
    parts += [f"in {r.parent}"] if r.parent != -1 else []
    return " ".join(parts + ([f"name {_word(r.name)}"] if r.name else []))


__all__ = ["from_text", "node_text", "to_text"]
