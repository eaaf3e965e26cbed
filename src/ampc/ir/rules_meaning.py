"""Rules of the verifier that look at states and payloads: regions of messages, types, loops, cycles. Each assumes the structure is sound."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Bcast,
    Concat,
    Cond,
    Dealt,
    Dependents,
    Enter,
    First,
    Flatmap,
    Group,
    Isu,
    Loss,
    Metric,
    Output,
    Over,
    Phi,
    Source,
    Split,
    Type,
    Ungroup,
    Within,
)
from ampc.ir.op import ShapeError, shown
from ampc.ir.ops import OPS
from ampc.ir.rules_structure import MAX_COLUMNS, Wrongs, at_origin, index_axis, is_next
from ampc.ir.scope import chain, field_seen, grouped_rows, param_shapes, scope_at

# -------------------------------------------------------------------------------------------------------- regions


def state_maps(graph: Graph) -> Wrongs:
    """Nodes that change states go between regions that fit."""
    for n in graph.nodes:
        wrong = None
        match n:
            case Isu():
                wrong = _isu(graph, n)
            case Flatmap():
                wrong = _flatmap(graph, n)
            case Ungroup(to=to):
                wrong = None if _is_child(graph, to, n.region) else f"region {to} does not lie directly in region {n.region}"
            case Group():
                wrong = _group(graph, n)
        if wrong is not None:
            yield at_origin("AMP309", n, wrong)


def _is_child(graph: Graph, inner: int, outer: int) -> bool:
    return 0 < inner < len(graph.regions) and graph.regions[inner].parent == outer


def _isu(graph: Graph, n: Isu) -> str | None:
    r = n.map.region
    if not 0 < r < len(graph.regions) or graph.regions[r].form != "loop":
        return f"region {r} is not a loop"
    if isinstance(n.map, Enter):
        return None if graph.regions[r].parent == n.region else f"enters region {r}, which does not lie directly in region {n.region}"
    return None if n.region == r else f"changes the turn of region {r}, its messages are of region {n.region}"


def _flatmap(graph: Graph, n: Flatmap) -> str | None:
    to = n.to
    if isinstance(to, Over):
        return None if _is_child(graph, to.region, n.region) else f"region {to.region} does not lie directly in region {n.region}"
    here = graph.regions[n.region]
    if n.region == 0 or not _is_child(graph, to.region, here.parent) or graph.regions[to.region].form == "loop":
        return f"sends from region {n.region} to dependents in region {to.region}, which does not lie beside it"
    axis = index_axis(graph, to.at, to.region)
    return None if here.axis and axis == here.axis else f"dependents point at `{axis}`, messages are of elements of `{here.axis}`"


def _group(graph: Graph, n: Group) -> str | None:
    here = graph.regions[n.region]
    if n.region == 0:
        return "groups messages of the instance's own region"
    if n.key is None:
        return None
    if not _is_child(graph, n.to, here.parent) or graph.regions[n.to].form == "loop":
        return f"groups region {n.region} into region {n.to}, which does not lie beside it"
    axis = index_axis(graph, n.key, n.region)
    into = graph.regions[n.to].axis
    return None if axis and axis == into else f"groups by positions on `{axis}` into region {n.to} over `{into}`"


def input_regions(graph: Graph) -> Wrongs:
    """The messages that meet at a node have states of its region."""
    for n in graph.nodes:
        for port, ref in enumerate(n.inputs):
            came = graph.region_out(graph.by_id[ref[0]])
            wanted = graph.region_out(n) if isinstance(n, Group) and port == 1 else n.region
            if came != wanted:
                yield at_origin("AMP310", n, f"input {port} comes from region {came}, expected region {wanted}")


# ---------------------------------------------------------------------------------------------------------- types

GROUPS = {NPT: None, PPT: ("parameter",), Loss: ("loss",), Metric: ("metric",)}


def operations(graph: Graph) -> Wrongs:
    """Operations and layers exist, and stand in a node of their kind."""
    for n in graph.nodes:
        if not isinstance(n, NPT | PPT | Loss | Metric):
            continue
        op = OPS.get(n.op)
        if op is None:
            yield at_origin("AMP311", n, "there is no such operation")
            continue
        allowed = GROUPS[type(n)]
        if (op.group not in allowed) if allowed else (op.group in ("parameter", "loss", "metric")):
            yield at_origin("AMP311", n, f"an operation of group {op.group} cannot be a {type(n).__name__}")
        if isinstance(n, PPT):
            members = n.attrs.get("members", 0)
            names = [f"{n.layer}.{i}" for i in range(members)] if n.op == "linear_by" and isinstance(members, int) and members <= 4096 else [n.layer]
            for name in names:
                if name not in graph.layer:
                    yield at_origin("AMP311", n, f"layer `{name}` does not exist")
        if isinstance(n, Loss) and not math.isfinite(n.weight):
            yield at_origin("AMP311", n, f"the weight {n.weight} is not finite")


def types(graph: Graph) -> Wrongs:
    """Payload types follow from the operands, and mean the same wherever a message goes."""
    axes = {a.name for a in graph.axes} | {"", "*"}
    for n in graph.nodes:
        for t in n.outputs:
            if t.rows not in axes or not 0 <= t.cols <= MAX_COLUMNS:
                yield at_origin("AMP312", n, f"type {shown(t)} has no such axis, or too many columns")
    for n in graph.nodes:
        ins = tuple(graph.type_of(r) for r in n.inputs)
        try:
            wanted = _outputs(graph, n, ins)
        except ShapeError as reason:
            yield at_origin("AMP312", n, str(reason))
            continue
        if wanted != n.outputs:
            yield at_origin("AMP312", n, f"its outputs are {_list(n.outputs)}, its inputs make {_list(wanted)}")
        out = graph.region_out(n)
        if out != n.region and not isinstance(n, Group):
            for t in ins:
                if t.rows and _owner(graph, t.rows, n.region) != _owner(graph, t.rows, out):
                    yield at_origin("AMP312", n, f"rows of {shown(t)} are not the same in region {out}")


def _owner(graph: Graph, axis: str, region: int) -> int:
    """The region whose element decides which part of a nested axis a payload at `region` covers; 0 for all of it."""
    parents = {a.name: a.parent for a in graph.axes}
    opened = {r.axis: r.id for r in chain(graph, region) if r.axis}
    while axis := parents.get(axis, ""):
        if axis in opened:
            return opened[axis]
    return 0


def _list(types: tuple[Type, ...]) -> str:
    return ", ".join(shown(t) for t in types) or "none"


def _equal(n: AnyNode, ins: tuple[Type, ...]) -> Type:
    if len(set(ins)) != 1:
        raise ShapeError(f"joins messages of one type, got {_list(ins)}")
    return ins[0]


def _outputs(graph: Graph, n: AnyNode, ins: tuple[Type, ...]) -> tuple[Type, ...]:
    """Return the types that the outputs must have; raise `ShapeError` where the inputs do not fit."""
    match n:
        case Source():
            return (Type(),)
        case NPT() | PPT() | Loss() | Metric():
            seen = tuple(field_seen(graph, f) for f in n.fields)
            shapes = param_shapes(graph, n.op, n.layer, n.attrs) if isinstance(n, PPT) else {}
            return OPS[n.op].infer(ins, seen, n.attrs, shapes, scope_at(graph, n.region, n.outputs))
        case Output():
            return ()
        case Cond() | Bcast():
            return ins * len(n.outputs)
        case Isu() | Flatmap():
            return ins
        case Phi():
            return (_equal(n, ins),)
        case Concat():
            return (_concat(ins),)
        case Split():
            return _split(n, ins[0])
        case Ungroup(to=to):
            return (_ungroup(graph, to, ins[0]),)
        case Group():
            return (_grouped(graph, n, ins),)


def _concat(ins: tuple[Type, ...]) -> Type:
    if len({(t.rows, t.integer) for t in ins}) != 1:
        raise ShapeError(f"joins columns of equal rows, got {_list(ins)}")
    return Type(ins[0].rows, sum(t.cols for t in ins), ins[0].integer)


def _split(n: Split, whole: Type) -> tuple[Type, ...]:
    if sum(t.cols for t in n.outputs) != whole.cols:
        raise ShapeError(f"parts {_list(n.outputs)} do not make {shown(whole)}")
    return tuple(Type(whole.rows, t.cols, whole.integer) for t in n.outputs)


def _ungroup(graph: Graph, to: int, whole: Type) -> Type:
    axis = graph.regions[to].axis
    if whole.rows != (axis or "*"):
        raise ShapeError(f"needs a row for each element of region {to} over `{axis}`, got {shown(whole)}")
    return Type("", whole.cols, whole.integer)


def _grouped(graph: Graph, n: Group, ins: tuple[Type, ...]) -> Type:
    member, trigger = ins
    if member.rows:
        raise ShapeError(f"stacks single rows, got {shown(member)}")
    if trigger != Type():
        raise ShapeError(f"is triggered by a unit message, got {shown(trigger)}")
    rows = grouped_rows(n.key, n.region, graph.regions[n.region].axis)
    if n.key is not None and n.outputs[0].rows == "*":  # as many as there are is true of any key, and what manifests said before
        rows = "*"
    return Type(rows, member.cols, member.integer)


# ---------------------------------------------------------------------------------------------------------- cycles


def loops(graph: Graph) -> Wrongs:
    """Every way round a loop passes a Cond that lets it out after the last turn, and then counts the turn."""
    succ = _successors(graph)
    for head in graph.nodes:
        if not isinstance(head, Phi) or not isinstance(head.test, First):
            continue
        r = head.test.region
        if head.region != r:
            yield at_origin("AMP313", head, f"starts loop region {r} but lies in region {head.region}")
        maker = _behind_copies(graph, head.inputs[1][0])
        if not is_next(maker, r):
            yield at_origin("AMP313", head, f"its second input comes from node {maker.id}, not from the next turn of region {r}")
        if _reaches(graph, succ, head, r):
            yield at_origin("AMP313", head, f"loop region {r} has no exit: a way from its head back to it passes no Cond that counts the turns")


def _behind_copies(graph: Graph, node: int) -> AnyNode:
    """Return the node behind Bcasts, and behind what deals messages to copies and collects them from copies (the copies are alike)."""
    maker = graph.by_id[node]
    while isinstance(maker, Bcast) or (isinstance(maker, Cond | Phi) and isinstance(maker.test, Dealt)):
        maker = graph.by_id[maker.inputs[0][0]]
    return maker


def _reaches(graph: Graph, succ: dict[int, list[int]], head: Phi, region: int) -> bool:
    """Whether the head can be reached from itself without passing a `Cond` on `Within(region)`."""
    todo, seen = list(succ[head.id]), set()
    while todo:
        i = todo.pop()
        if i == head.id:
            return True
        n = graph.by_id[i]
        if i in seen or (isinstance(n, Cond) and n.test == Within(region)):
            continue
        seen.add(i)
        todo += succ[i]
    return False


def _successors(graph: Graph) -> dict[int, list[int]]:
    succ: dict[int, list[int]] = defaultdict(list)
    for n in graph.nodes:
        for ref in n.inputs:
            succ[ref[0]].append(n.id)
    return succ


def cycles(graph: Graph) -> Wrongs:
    """Messages go in a circle only through the head of a loop, or from an element to those that a visit puts after it."""
    indegree = {n.id: 0 for n in graph.nodes}
    succ: dict[int, list[int]] = defaultdict(list)
    for n in graph.nodes:
        for maker in _needed_before(graph, n):
            succ[maker].append(n.id)
            indegree[n.id] += 1
    ready = [i for i, k in indegree.items() if k == 0]
    while ready:
        i = ready.pop()
        del indegree[i]
        for j in succ[i]:
            indegree[j] -= 1
            if indegree[j] == 0:
                ready.append(j)
    if indegree:
        ring = _ring(graph, set(indegree))
        first = graph.by_id[min(ring)]
        yield at_origin("AMP314", first, f"waits for its own result, through nodes {', '.join(map(str, sorted(ring)[:10]))}")


def _ring(graph: Graph, waiting: set[int]) -> list[int]:
    """Return the nodes of one circle among nodes that each wait for another of them."""
    path = [min(waiting)]
    while True:
        maker = next(m for m in _needed_before(graph, graph.by_id[path[-1]]) if m in waiting)
        if maker in path:
            return path[path.index(maker) :]
        path.append(maker)


def _needed_before(graph: Graph, n: AnyNode) -> Iterator[int]:
    """The makers of the inputs that a node's first message must wait for."""
    for port, ref in enumerate(n.inputs):
        around = isinstance(n, Phi) and isinstance(n.test, First) and port == 1
        onward = isinstance(n, Flatmap) and isinstance(n.to, Dependents) and "visit" in {graph.regions[r].form for r in (n.region, n.to.region)}
        back = isinstance(n, Group) and port == 0 and n.key is not None and graph.regions[n.to].form == "visit"
        if not (around or onward or back):
            yield ref[0]

