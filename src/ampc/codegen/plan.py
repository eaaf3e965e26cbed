"""From a placed graph to segments: the units that fire.

A segment is a set of payload nodes of one region and one device that run back to back; what lies between segments (Cond, Phi, Isu, Bcast,
Flatmap, Ungroup) becomes routing, which `routes` follows. Decides *what* fires together; knows nothing of addresses or kernel text.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Bcast, Concat, Dependents, Flatmap, Group, Isu, Loss, Metric, Next, Output, Ref, Source, Split, Through, Type,
)  # fmt: skip
from ampc.ir.scope import chain

PAYLOAD = (PPT, NPT, Loss, Metric, Output, Concat, Split, Group)
"""Kinds that compute. A Group computes nothing, but it waits for many, so it fires like one that does."""

Port = tuple[int, int]
"""An input of a node: (node id, input port)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """`nodes` in an order in which each comes after those that it reads. Segment 0 is the Source alone.

    `inputs`: the ports that messages from elsewhere reach, in order. `triggers`: the ports among them whose arrival is counted, one for
    each group of inputs that always arrive together. `groups`: the Group nodes within; each adds its elements to what is waited for.
    """

    id: int
    region: int
    device: int
    nodes: tuple[AnyNode, ...]
    inputs: tuple[Port, ...]
    triggers: tuple[Port, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that the segment's nodes use, each once, in order."""
        names: dict[str, None] = {}
        for n in self.nodes:
            if isinstance(n, PPT):
                names.update(dict.fromkeys(layer_names(n)))
        return tuple(names)

    @property
    def title(self) -> str:
        """What the segment does, for people: its layers, else the operations or kinds of its first nodes."""
        return ", ".join(self.layers) or " ".join(dict.fromkeys(getattr(n, "op", "") or type(n).__name__.lower() for n in self.nodes[:3]))

    @property
    def groups(self) -> tuple[Group, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Group))


def layer_names(node: PPT) -> tuple[str, ...]:
    """Return the layers behind a PPT: its own, or all members of the family for the bulk form."""
    if node.op != "linear_by":
        return (node.layer,)
    members = node.attrs["members"]
    assert isinstance(members, int)
    return tuple(f"{node.layer}.{i}" for i in range(members))


@dataclasses.dataclass(frozen=True)
class Plan:
    """The segments of a graph. `graph` may have relays added: identity nodes that break control-only cycles."""

    graph: Graph
    segments: tuple[Segment, ...]

    @cached_property
    def segment_of(self) -> dict[int, int]:
        """Payload node id -> segment id."""
        return {n.id: s.id for s in self.segments for n in s.nodes}

    @cached_property
    def needs_gradient(self) -> frozenset[Ref]:
        return frozenset(_needs_gradient(self.graph))

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """All layers that some segment uses, in the order of declaration."""
        used = {name for s in self.segments for name in s.layers}
        return tuple(x.name for x in self.graph.layers if x.name in used)


def make_plan(graph: Graph, device_of: Mapping[int, int]) -> Plan:
    """Return the segments of `graph`, given the device of each node (a node that is not listed is on device 0)."""
    graph, device_of = _add_relays(graph, dict(device_of))
    for node in graph.nodes:
        if isinstance(node, Group) and node.outputs[0].rows == "*":
            # As many rows as came together have no place of their own in an arena: whoever reduces them sits with the Group.
            for reader in readers_of(graph, (node.id, 0)):
                device_of[reader] = device_of.get(node.id, 0)
    group_of = _merge(graph, device_of)
    members: dict[int, list[AnyNode]] = defaultdict(list)
    for node in _topological(graph):
        if isinstance(node, PAYLOAD):
            members[group_of[node.id]].append(node)
    source = next(n for n in graph.nodes if isinstance(n, Source))
    segments = [Segment(0, 0, device_of.get(source.id, 0), (source,), (), ())]
    for nodes in members.values():
        inputs = _external(graph, nodes)
        segments.append(Segment(len(segments), fire_region(graph, nodes[0]), device_of.get(nodes[0].id, 0), tuple(nodes), inputs, ()))
    owner = {n.id: s.id for s in segments for n in s.nodes}
    segments = [dataclasses.replace(s, triggers=_triggers(graph, s, owner)) for s in segments]
    return Plan(graph, tuple(segments))


def segment_names(plan: Plan) -> tuple[str, ...]:
    """Return what each segment is called in a trace: its number and its title."""
    return tuple(f"{s.id} {s.title}" for s in plan.segments)


def fire_region(graph: Graph, node: AnyNode) -> int:
    """The region of the states at which a payload node fires: a Group fires where its result is."""
    return graph.region_out(node) if isinstance(node, Group) else node.region


def is_direct(graph: Graph, ref: Ref) -> Ref:
    """Return the payload port behind `ref`, seen through broadcasts only; `ref` of a control node if there is none."""
    node = graph.by_id[ref[0]]
    while isinstance(node, Bcast):
        ref = node.inputs[0]
        node = graph.by_id[ref[0]]
    return ref


def readers_of(graph: Graph, ref: Ref) -> Iterator[int]:
    """Payload nodes that read a port directly or through broadcasts."""
    reader = graph.readers.get(ref)
    if reader is None:
        return
    node = graph.by_id[reader[0]]
    if isinstance(node, Bcast):
        for port in range(len(node.outputs)):
            yield from readers_of(graph, (node.id, port))
    else:
        yield node.id


# -------------------------------------------------------------------------------------------------- relays


def _add_relays(graph: Graph, device_of: dict[int, int]) -> tuple[Graph, dict[int, int]]:
    """Put an identity node on each back edge that a message could go round without ever reaching a payload node.

    Without it the routing of a value that a loop only carries (or of a loop whose inner loop has no turns) would never end.
    """
    successors = _control_successors(graph)
    looped = [n.id for n in graph.nodes if isinstance(n, Isu) and isinstance(n.map, Next) and _reaches(successors, n.id, n.id)]
    if not looped:
        return graph, device_of
    nodes = list(graph.nodes)
    position = {n.id: i for i, n in enumerate(nodes)}
    fresh = max(position) + 1
    for back in looped:
        isu = nodes[position[back]]
        kind = graph.type_of(isu.inputs[0])
        relay = NPT(id=fresh, region=isu.region, inputs=isu.inputs, outputs=(kind,), origin=isu.origin, name="relay", op="identity")
        nodes[position[back]] = msgspec.structs.replace(isu, inputs=((fresh, 0),))
        nodes.append(relay)
        device_of[fresh] = device_of.get(back, 0)
        fresh += 1
    return graph.with_nodes(tuple(nodes)), device_of


def _control_successors(graph: Graph) -> dict[int, list[int]]:
    out: dict[int, list[int]] = defaultdict(list)
    for node in graph.nodes:
        if isinstance(node, PAYLOAD):
            continue
        for ref in node.inputs:
            if not isinstance(graph.by_id[ref[0]], (*PAYLOAD, Source)):
                out[ref[0]].append(node.id)
    return out


def _reaches(successors: Mapping[int, list[int]], start: int, goal: int) -> bool:
    seen: set[int] = set()
    stack = list(successors.get(start, ()))
    while stack:
        node = stack.pop()
        if node == goal:
            return True
        if node not in seen:
            seen.add(node)
            stack.extend(successors.get(node, ()))
    return False


# ------------------------------------------------------------------------------------------------- merging


def _edges(graph: Graph, within: frozenset[int] | None = None) -> Iterator[tuple[int, int]]:
    """Edges of the graph but those to the next turn or to the next elements of a visit, along which waiting in a circle is no deadlock.

    With `within` (a region and those around it) only the edges of these regions are left out: what leads through all turns of an inner loop
    does come back to the same state.
    """
    turning = [r for r in graph.regions if within is None or r.id in within]
    loops = {r.id for r in turning}
    ordered = {field for r in turning for field in r.after}
    for node in graph.nodes:
        match node:
            case Isu(map=Next(region=r)) if r in loops:
                continue
            case Flatmap(to=Dependents(at=Through(field=field))) if field in ordered:
                continue
        for ref in node.inputs:
            yield ref[0], node.id


def _topological(graph: Graph) -> list[AnyNode]:
    """Nodes so that each follows what it reads, but for edges to another turn or element; ties in order of id."""
    successors: dict[int, list[int]] = defaultdict(list)
    waiting = {n.id: 0 for n in graph.nodes}
    for a, b in _edges(graph):
        successors[a].append(b)
        waiting[b] += 1
    import heapq

    ready = [i for i, n in waiting.items() if n == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(graph.by_id[i])
        for j in successors[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heapq.heappush(ready, j)
    assert len(order) == len(graph.nodes), "a verified graph has no cycle within one state"
    return order


def _merge(graph: Graph, device_of: Mapping[int, int]) -> dict[int, int]:
    """Return payload node id -> group: neighbours of one region and device are joined unless something must happen between them."""
    group_of = {n.id: n.id for n in graph.nodes}
    members: dict[int, set[int]] = {n.id: {n.id} for n in graph.nodes}
    edges = {r.id: list(_edges(graph, frozenset(q.id for q in chain(graph, r.id)))) for r in graph.regions}

    def path_outside(a: int, b: int, region: int) -> bool:
        """Whether a path leads from group a to group b, both of `region`, through a third group."""
        successors: dict[int, set[int]] = defaultdict(set)
        for x, y in edges[region]:
            gx, gy = group_of[x], group_of[y]
            if gx != gy:
                successors[gx].add(gy)
        stack, seen = [g for g in successors[a] if g != b], {a}
        while stack:
            g = stack.pop()
            if g == b:
                return True
            if g not in seen:
                seen.add(g)
                stack.extend(successors[g])
        return False

    for node in _topological(graph):
        if not isinstance(node, PAYLOAD) or isinstance(node, Group):
            continue
        for ref in node.inputs:
            producer_ref = is_direct(graph, ref)
            producer = graph.by_id[producer_ref[0]]
            if not isinstance(producer, PAYLOAD):
                continue
            a, b = group_of[producer.id], group_of[node.id]
            same = fire_region(graph, producer) == node.region and device_of.get(producer.id, 0) == device_of.get(node.id, 0)
            # A broadcast between the two is a group of its own; it does not keep them apart.
            if a == b or not same:
                continue
            _join_broadcasts(graph, group_of)
            if path_outside(a, b, node.region):
                continue
            for m in members[b]:
                group_of[m] = a
            members[a] |= members.pop(b)
    return group_of


def _join_broadcasts(graph: Graph, group_of: dict[int, int]) -> None:
    """Broadcasts belong to their producer, so that only paths through real work count."""
    for n in graph.nodes:
        if isinstance(n, Bcast):
            group_of[n.id] = group_of[is_direct(graph, n.inputs[0])[0]]


# --------------------------------------------------------------------------------------------------- inputs


def _external(graph: Graph, nodes: list[AnyNode]) -> tuple[Port, ...]:
    """Input ports fed from outside, of those that read one value the first. A bare trigger is dropped where a payload arrives anyway."""
    inside = {n.id for n in nodes}
    ports = [
        (n.id, port)
        for n in nodes
        for port, ref in enumerate(n.inputs)
        if is_direct(graph, ref)[0] not in inside or isinstance(n, Group)
    ]

    def is_unit(port: Port) -> bool:
        node = graph.by_id[port[0]]
        return not isinstance(node, Group) and _unit(graph.type_of(node.inputs[port[1]]))

    def certain(port: Port) -> bool:
        return not is_unit(port) and not (isinstance(graph.by_id[port[0]], Group) and port[1] == 0)

    read: dict[object, Port] = {}
    for port in ports:
        node = graph.by_id[port[0]]
        read.setdefault(port if isinstance(node, Group) else is_direct(graph, node.inputs[port[1]]), port)
    ports = list(read.values())
    units = [p for p in ports if is_unit(p)]
    if any(certain(p) for p in ports):
        return tuple(p for p in ports if p not in units)
    return tuple(p for p in ports if p not in units[1:])


def _unit(kind: Type) -> bool:
    return kind.cols == 0


def _triggers(graph: Graph, segment: Segment, owner: Mapping[int, int]) -> tuple[Port, ...]:
    """One input for each set of inputs that come along the same way from the same segments, and so arrive together."""
    seen: dict[object, Port] = {}
    for port in segment.inputs:
        node = graph.by_id[port[0]]
        grouped = isinstance(node, Group)
        key = (port,) if grouped else _way(graph, node.inputs[port[1]], owner, frozenset())
        seen.setdefault(key, port)
    return tuple(seen.values())


def _way(graph: Graph, ref: Ref, owner: Mapping[int, int], passed: frozenset[int]) -> object:
    """Describe how messages reach a port: the control nodes on the way, without their ids, back to the producing segments."""
    node = graph.by_id[ref[0]]
    if isinstance(node, (*PAYLOAD, Source)):
        return owner[node.id]
    if node.id in passed:
        return "again"
    if isinstance(node, Bcast):
        return _way(graph, node.inputs[0], owner, passed)
    what = msgspec.structs.astuple(node)[len(msgspec.structs.fields(Bcast)) :]
    return (type(node).__name__, node.region, ref[1], what, *(_way(graph, r, owner, passed | {node.id}) for r in node.inputs))


# ------------------------------------------------------------------------------------------------ gradients


def _needs_gradient(graph: Graph) -> set[Ref]:
    """Output ports whose gradient anything wants: those behind which there is a parameter."""
    wanted: set[Ref] = set()
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if isinstance(node, Source):
                continue
            behind = isinstance(node, PPT) or any(r in wanted for r in node.inputs)
            if isinstance(node, NPT) and node.op == "stop_gradient":
                behind = False
            if not behind:
                continue
            for port, kind in enumerate(node.outputs):
                if kind.cols and not kind.integer and (node.id, port) not in wanted:
                    wanted.add((node.id, port))
                    changed = True
    return wanted
