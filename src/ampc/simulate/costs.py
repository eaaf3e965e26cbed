"""What firings, messages and updates of a plan cost on a target: the tables by which a simulated pass reckons.

Work is counted by the rows that an instance really has, not by means over the data; only within an instance is it spread evenly over the tokens of
a queue where these differ (the children of the elements of an axis).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from ampc.codegen.carried import calls_seconds, segment_terms, term_seconds
from ampc.codegen.plan import Plan, Segment
from ampc.ir.graph import Graph
from ampc.ir.nodes import AnyNode, Group, Phi, Ref, Source, Through, Type
from ampc.place.factors import NONE, Factors
from ampc.place.statistics import field_of
from ampc.place.target import NUMBER_BYTES, Device, Precision
from ampc.place.work import update_flops
from ampc.runtime.extents import Extents
from ampc.simulate.core import Floats, Integers
from ampc.simulate.tables import Costs

TOKEN_BYTES = 16.0
"""What a message weighs beside its payload: its queue, slot and state."""

Space = tuple[str, int]
"""An axis and the region from which its elements are seen, or ("*", node id of the Group)."""


class _Rates:
    """Entries of one table as they are gathered: a constant, and so much a row of each space."""

    def __init__(self, count: int) -> None:
        self.constant = np.zeros(count)
        self.by_space: list[dict[Space, float]] = [{} for _ in range(count)]

    def add(self, k: int, space: Space, amount: float) -> None:
        if not amount:
            return
        if space[0] == "":
            self.constant[k] += amount
        else:
            self.by_space[k][space] = self.by_space[k].get(space, 0.0) + amount


def costs(
    plan: Plan, extents: Extents, devices: Mapping[int, Device], layer_devices: Mapping[str, Device], *, precision: Precision,
    chance: Iterable[float], factors: Factors = NONE, folding: bool = True,
) -> Costs:  # fmt: skip
    """Return the tables for `plan`, whose segment s runs on `devices`[s] and whose layers update themselves on `layer_devices`.

    factors: how much longer nodes take than estimated, from a profile. folding: the engine folds embeddings (`work.terms`).
    """
    queues = 2 * len(plan.segments)
    per_firing, tokens = np.zeros(queues), _Rates(queues)
    for segment in plan.segments:
        _price(plan, segment, devices[segment.id], precision, factors, per_firing, tokens, folding)
    pair, weights = _carried(plan)
    spaces: dict[Space, int] = {}
    first, space, per_row = _entries(tokens, spaces)
    carry_first, carry_space, carry_per_row = _entries(weights, spaces)
    rows = np.stack([_rows(plan.graph, extents, s) for s in spaces] or [np.zeros(extents.data.n)])
    update = [layer_devices[x].update_s(update_flops(plan.graph.layer[x], plan.graph.train)) for x in plan.layers]
    return Costs(
        per_firing, tokens.constant, first, space, per_row, rows, pair, weights.constant, carry_first, carry_space, carry_per_row,
        np.array(update, np.float64), np.zeros(len(update), np.int64), np.array([*chance], np.float64),
    )  # fmt: skip


def _price(
    plan: Plan, segment: Segment, device: Device, precision: Precision, factors: Factors, per_firing: Floats, tokens: _Rates, folding: bool
) -> None:
    """Add what a segment's two queues cost."""
    graph = plan.graph
    inside = {n.id for n in segment.nodes}
    for direction in (0, 1):
        q = 2 * segment.id + direction
        per_firing[q] = device.firing_overhead_s / device.cores
        tokens.constant[q] += device.message_overhead_s / device.cores
        for node in segment.nodes:
            factor = factors.get(node.id, (1.0, 1.0))[direction]
            per_firing[q] += factor * calls_seconds(graph, node, inside, folding, device, precision)[direction]
        for node, t in segment_terms(plan, segment, folding):
            factor = factors.get(node.id, (1.0, 1.0))[direction]
            tokens.add(q, _space(graph, node, t.axis, t.region), factor * term_seconds(t, device, precision)[direction])
        if segment.id == 0:
            tokens.constant[q] += device.instance_overhead_s / device.cores / 2  # admitted by one of its queues, retired by the other


def _space(graph: Graph, node: AnyNode, axis: str, region: int) -> Space:
    return ("*", _group_before(graph, node)) if axis == "*" else (axis, region)


def _group_before(graph: Graph, node: AnyNode) -> int:
    """Return the Group whose members the rows "*" of a node are."""
    stack, seen = [node], set()
    while stack:
        at = stack.pop()
        if isinstance(at, Group):
            return at.id
        if at.id not in seen:
            seen.add(at.id)
            stack += [graph.by_id[ref[0]] for ref in at.inputs]
    raise AssertionError("rows without an axis come from a Group")


def _entries(rates: _Rates, spaces: dict[Space, int]) -> tuple[Integers, Integers, Floats]:
    """Return (first, space, per_row) of a table; spaces get numbers as they come."""
    first, numbers, amounts = [0], [], []
    for found in rates.by_space:
        for space, amount in found.items():
            numbers.append(spaces.setdefault(space, len(spaces)))
            amounts.append(amount)
        first.append(len(numbers))
    return np.array(first, np.int64), np.array(numbers or [0], np.int64), np.array(amounts or [0.0])


def _rows(graph: Graph, extents: Extents, space: Space) -> Floats:
    """Return float64 [n]: the rows that a token of each instance has in a space, on average over its tokens."""
    name, where = space
    data = extents.data
    if name == "*":
        group = graph.by_id[where]
        assert isinstance(group, Group)
        members = extents.states(group.region).astype(np.float64)
        if isinstance(group.key, Through):
            there = np.concatenate([[0], np.cumsum(extents.column(group.key.field).reshape(-1) >= 0)])
            axis = field_of(graph, group.key.field).axis
            members = members * np.diff(there[data.axes[axis]]) / np.maximum(np.diff(data.axes[axis]), 1)
        return members / np.maximum(extents.states(graph.region_out(group)), 1)
    total = np.diff(data.axes[name]).astype(np.float64)
    if extents.opened(name, where):
        return total / np.maximum(np.diff(data.axes[extents.parent[name]]), 1)
    return total


# ------------------------------------------------------------------------------------------------- messages


def _carried(plan: Plan) -> tuple[Integers, _Rates]:
    """Return ([queue, queue] record, bytes of each record). Record 0 is a message without payload.

    What a segment sends to another at one state goes as one message for each way that it takes there; where there are several, each is
    taken to carry an equal part.
    """
    graph, queues = plan.graph, 2 * len(plan.segments)
    payload: dict[tuple[int, int], list[tuple[Space, float, bool]]] = defaultdict(list)
    ways: dict[tuple[int, int], int] = defaultdict(int)
    for segment in plan.segments:
        for node_id, port in segment.inputs:
            ref = graph.by_id[node_id].inputs[port]
            kind = graph.type_of(ref)
            for sender in senders(plan, ref):
                if kind.cols:
                    payload[sender, segment.id].append((*_weight(graph, graph.by_id[node_id], ref, kind), ref in plan.needs_gradient))
                ways[sender, segment.id] += (node_id, port) in segment.triggers
    pair, rates = np.zeros((queues, queues), np.int64), _Rates(1 + 2 * len(payload))
    rates.constant[:] = TOKEN_BYTES
    for k, ((sender, reader), parts) in enumerate(payload.items()):
        share = 1.0 / max(1, ways[sender, reader])
        pair[2 * sender, 2 * reader] = 2 * k + 1
        pair[2 * reader + 1, 2 * sender + 1] = 2 * k + 2
        for space, size, answered in parts:
            rates.add(2 * k + 1, space, size * share)
            rates.add(2 * k + 2, space, size * share if answered else 0.0)  # nobody asks for the gradient of data
    return pair, rates


def _weight(graph: Graph, reader: AnyNode, ref: Ref, kind: Type) -> tuple[Space, float]:
    nested = any(a.name == kind.rows and a.parent for a in graph.axes)
    space = ("*", _group_before(graph, graph.by_id[ref[0]])) if kind.rows == "*" else (kind.rows, reader.region if nested else 0)
    return space, float(NUMBER_BYTES * kind.cols)


def senders(plan: Plan, ref: Ref) -> list[int]:
    """Return the segments whose messages can arrive at a port that reads `ref`, each once."""
    found: dict[int, None] = {}
    stack, seen = [ref], set()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        node = plan.graph.by_id[at[0]]
        segment = plan.segment_of.get(node.id, 0 if isinstance(node, Source) else -1)
        if segment >= 0:
            found[segment] = None
        else:
            stack += node.inputs if isinstance(node, Phi) else node.inputs[:1]
    return list(found)


__all__ = ["TOKEN_BYTES", "costs", "senders"]
