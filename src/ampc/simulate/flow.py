"""What instances of a placed program do on a target, as tables for a pass without numerics: firings, messages, what they cost.

`flow_of` makes them of recorded instances, `synthetic` of a shape alone, for networks that no program was written for. Nothing is run here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from ampc.codegen.carried import calls_seconds, segment_terms, term_seconds
from ampc.codegen.plan import Plan, make_plan
from ampc.data import Dataset
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.ir.op import Array
from ampc.ir.state import instance_of
from ampc.place import Placement
from ampc.place.factors import NONE, Factors
from ampc.place.target import NUMBER_BYTES, Precision, Target
from ampc.place.work import memory_bytes, update_flops, update_frequency
from ampc.simulate.core import Floats, Integers
from ampc.simulate.cost_tables import Templates
from ampc.simulate.costs import TOKEN_BYTES
from ampc.simulate.record import Recording, record

ONE = (1.0, 1.0)
MOST_TOKENS = 256
MOST_ROWS = 1024
"""As in `runtime.footprint`: most tokens in one firing, and rows that it should not exceed by much."""


@dataclasses.dataclass(frozen=True, eq=False)
class Flow:
    """Segment 0 is the Source, and so is the first firing of every template. Numbers of firings in messages are counted from the template's first.

    `tables`, with S segments, L layers, T templates, N firings, M messages, U uses of layers by firings:
    first [T + 1]; segment, ordinal [N] the segment, and the firing's number among those of this segment; seconds [N, 2] of a token, forward and
    backward; need [N] messages to wait for; sent_first [N + 1], sent_to, sent_bytes [M] forward messages by sender; answer_first [N + 1],
    answer_to, answer_bytes [M] the answers by who answers; share_first [N + 1], share [U] how much of an instance a backward token is for each
    layer of its segment; device, take, weight [S] most tokens of a firing, and what one counts when a queue is chosen; per_firing [2 S] seconds;
    layer_first [S + 1], layer the layers of a segment; layer_device, update (seconds), frequency [L].
    kept_bytes: [N] what lies on the device from the firing's forward to its backward. layer_bytes: [L].
    """

    segments: tuple[str, ...]
    layers: tuple[str, ...]
    tables: Templates
    kept_bytes: Floats
    layer_bytes: Floats

    @property
    def n_templates(self) -> int:
        return len(self.tables.first) - 1

    @property
    def most_firings(self) -> int:
        """Firings of the longest template."""
        return int(np.diff(self.tables.first).max(initial=1))

    @property
    def most_uses(self) -> int:
        return int(np.diff(self.tables.share_first[self.tables.first]).max(initial=0))

    def tokens(self) -> Integers:
        """Return int64 [templates, S]: firings of each segment; as many again backward."""
        out = np.zeros((self.n_templates, len(self.segments)), np.int64)
        template = np.repeat(np.arange(self.n_templates), np.diff(self.tables.first))
        np.add.at(out, (template, self.tables.segment), 1)
        return out

    def pairs(self) -> Integers:
        """Return int64 [n, 2]: the pairs of different devices between which messages go, each way."""
        t = self.tables
        owner = t.device[t.segment]
        sender = np.repeat(np.arange(len(owner)), np.diff(t.sent_first))
        start = np.repeat(t.first[:-1], np.diff(t.first))
        ends = np.stack([owner[sender], owner[start[sender] + t.sent_to]], axis=1)
        ends = ends[ends[:, 0] != ends[:, 1]]
        return np.unique(np.concatenate([ends, ends[:, ::-1]]), axis=0).astype(np.int64)

    def kept(self, devices: int) -> Floats:
        """Return float64 [devices]: the bytes that an instance keeps on each, on average: with many in flight, long and short ones mix."""
        return np.bincount(self.tables.device[self.tables.segment], self.kept_bytes, devices) / self.n_templates


@dataclasses.dataclass
class _Template:
    """One template while the tables are made: messages as (sender, receiver, bytes, bytes of the answer)."""

    segment: list[int]
    seconds: list[tuple[float, float]]
    messages: list[tuple[int, int, float, float]]
    kept_bytes: list[float]
    share: list[list[float]]


def _joined(templates: Sequence[_Template]) -> tuple[dict[str, np.ndarray], Floats]:
    """Return the tables that depend on templates, and kept bytes."""
    first, segment, ordinal, seconds, need, kept, share, share_n = [0], [], [], [], [], [], [], []
    by_sender: list[np.ndarray] = []
    by_receiver: list[np.ndarray] = []
    counts: list[tuple[np.ndarray, np.ndarray]] = []
    for t in templates:
        n = len(t.segment)
        first.append(first[-1] + n)
        seen: dict[int, int] = {}
        for s in t.segment:
            ordinal.append(seen.setdefault(s, 0))
            seen[s] += 1
        segment += t.segment
        seconds += t.seconds
        kept += t.kept_bytes
        for own in t.share:
            share += own
            share_n.append(len(own))
        m = np.array(t.messages, np.float64).reshape(-1, 4)
        sender, receiver = m[:, 0].astype(np.int64), m[:, 1].astype(np.int64)
        need += np.bincount(receiver, minlength=n).tolist()
        counts.append((np.bincount(sender, minlength=n), np.bincount(receiver, minlength=n)))
        by_sender.append(m[np.argsort(sender, kind="stable")])
        by_receiver.append(m[np.argsort(receiver, kind="stable")])
    sent, answered = np.concatenate(by_sender), np.concatenate(by_receiver)

    def starts(parts: Sequence[object]) -> Integers:
        return np.concatenate([[0], np.cumsum(np.concatenate([np.asarray(p, np.int64).reshape(-1) for p in parts]))]).astype(np.int64)

    return {
        "first": np.array(first, np.int64), "segment": np.array(segment, np.int64), "ordinal": np.array(ordinal, np.int64),
        "seconds": np.array(seconds, np.float64).reshape(-1, 2), "need": np.array(need, np.int64),
        "sent_first": starts([c for c, _ in counts]), "sent_to": sent[:, 1].astype(np.int64), "sent_bytes": np.ascontiguousarray(sent[:, 2]),
        "answer_first": starts([c for _, c in counts]), "answer_to": answered[:, 0].astype(np.int64),
        "answer_bytes": np.ascontiguousarray(answered[:, 3]),
        "share_first": starts([share_n]), "share": np.array(share, np.float64),
    }, np.array(kept, np.float64)  # fmt: skip


# --------------------------------------------------------------------------------------------- of a program


def sampled(
    graph: Graph, placement: Placement, target: Target, data: Dataset, parameters: Mapping[str, Array], sample: int = 64, seed: int = 0,
    frequency: Mapping[str, float] | None = None, precision: Precision = "fp32", factors: Factors = NONE,
) -> Flow:  # fmt: skip
    """Return the flow of a program as placed on `target`: of `sample` instances of `data`, or of all if there are no more.

    One is drawn by `seed` from each of `sample` classes of equally many, by length, so that the sample's mean length is nearly that of the data.
    parameters: "layer.param" -> array; they decide computed branches. Raises AMP390 if an instance does not finish, and what `flow_of` raises.
    """
    plan = make_plan(graph, placement.device_of)
    chosen = np.arange(data.n) if data.n <= sample else _representative(data, sample, np.random.default_rng(seed))
    # Numbered anew, so that copies of a layer are dealt equally many.
    instances = [dataclasses.replace(instance_of(data, graph, int(i)), number=k) for k, i in enumerate(chosen)]
    return flow_of(plan, [record(plan, parameters, x) for x in instances], target, frequency, precision, factors)


def _representative(data: Dataset, sample: int, rng: np.random.Generator) -> Integers:
    """Return int64 [sample], ascending: an instance of each class by length (the sum over the axes)."""
    length = sum((np.diff(offsets) for offsets in data.axes.values()), np.zeros(data.n, np.int64))
    by_length = np.lexsort((rng.random(data.n), length))
    place = (np.arange(sample) + rng.random(sample)) * data.n / sample
    return np.sort(by_length[np.minimum(place.astype(np.int64), data.n - 1)])


def flow_of(
    plan: Plan, recordings: Sequence[Recording], target: Target, frequency: Mapping[str, float] | None = None, precision: Precision = "fp32",
    factors: Factors = NONE,
) -> Flow:  # fmt: skip
    """Return the flow of recorded instances of `plan`, whose segments are on devices of `target`.

    frequency: layer -> its `min_update_frequency`, where it isn't that of the program. Raises AmpError AMP550 where there is no instance, and what
    `Target.require` raises.
    """
    if not recordings:
        raise error("AMP550", "there is no instance to simulate", help="give `--data` with at least one instance")
    target.require(precision)
    given = frequency or {}
    graph, number = plan.graph, {name: k for k, name in enumerate(plan.layers)}
    devices = [target.devices[s.device] for s in plan.segments]
    most = _most_rows(plan, recordings)
    take, per_firing, costs = [], [], []
    for s, device in zip(plan.segments, devices):
        wanted = max(1, min(MOST_TOKENS, MOST_ROWS // most[s.id]))
        take.append(min(wanted, device.messages_per_firing) if device.messages_per_firing else wanted)
        each: list[tuple[int, str, tuple[float, float]]] = []
        inside = {n.id for n in s.nodes}
        for direction in (0, 1):
            called = (factors.get(n.id, ONE)[direction] * calls_seconds(graph, n, inside, True, device, precision)[direction] for n in s.nodes)
            per_firing.append(device.firing_overhead_s / device.cores + sum(called))
        for n, t in segment_terms(plan, s):
            longer, (forward, backward) = factors.get(n.id, ONE), term_seconds(t, device, precision)
            each.append((n.id, t.axis, (longer[0] * forward, longer[1] * backward)))
        admitted = device.instance_overhead_s / 2 if s.id == 0 else 0.0
        costs.append(((device.message_overhead_s + admitted) / device.cores, each))
    templates = [_template(plan, r, costs) for r in recordings]
    tables, kept = _joined(templates)
    of_segment = [[number[x] for x in s.layers] for s in plan.segments]
    home = {name: s.device for s in reversed(plan.segments) for name in s.layers}
    owners = [home[name] for name in plan.layers]
    updates = [target.devices[d].update_s(update_flops(graph.layer[x], graph.train)) for x, d in zip(plan.layers, owners)]
    return Flow(
        tuple(f"{s.id} {s.title}" for s in plan.segments), plan.layers,
        Templates(
            **tables, device=np.array([s.device for s in plan.segments], np.int64), take=np.array(take, np.int64),
            weight=np.array([most[s.id] for s in plan.segments], np.int64), per_firing=np.array(per_firing, np.float64),
            layer_first=np.cumsum([0, *map(len, of_segment)]).astype(np.int64), layer=np.array([x for xs in of_segment for x in xs], np.int64),
            layer_device=np.array(owners, np.int64), update=np.array(updates, np.float64),
            frequency=np.array([given.get(x, update_frequency(graph.layer[x], graph.train)) for x in plan.layers], np.float64),
        ),
        kept, np.array([memory_bytes(graph.layer[x], graph.train, precision) for x in plan.layers], np.float64),
    )  # fmt: skip


def _most_rows(plan: Plan, recordings: Sequence[Recording]) -> list[int]:
    """Return the most rows that a token of each segment has."""
    most = [1] * len(plan.segments)
    for r in recordings:
        for (segment, _), rows in zip(r.firings, r.rows):
            most[segment] = max(most[segment], *rows.values(), 1)
    return most


def _template(
    plan: Plan, r: Recording, costs: Sequence[tuple[float, list[tuple[int, str, tuple[float, float]]]]]
) -> _Template:
    seconds, share = [], []
    uses: dict[str, int] = {}
    reached: set[str] = set()
    for (segment, _), rows, used in zip(r.firings, r.rows, r.uses):
        overhead, each = costs[segment]
        forward = backward = overhead
        for node, axis, (f, b) in each:
            n = rows[node, axis] if axis else 1
            forward += n * f
            backward += n * b
        seconds.append((forward, backward))
        reached |= used
        for name in plan.segments[segment].layers:
            uses[name] = uses.get(name, 0) + 1
    for segment, _ in r.firings:
        share.append([1.0 / uses[x] if x in reached else 0.0 for x in plan.segments[segment].layers])
    messages = [(m.sender, m.receiver, TOKEN_BYTES + m.numbers * NUMBER_BYTES, TOKEN_BYTES + m.gradient_numbers * NUMBER_BYTES) for m in r.messages]
    kept = [2.0 * NUMBER_BYTES * n for n in r.kept]
    for m in r.messages:  # what comes from another device lies here too
        if plan.segments[r.firings[m.sender][0]].device != plan.segments[r.firings[m.receiver][0]].device:
            kept[m.receiver] += NUMBER_BYTES * m.numbers
    return _Template([s for s, _ in r.firings], seconds, messages, kept, share)


# ------------------------------------------------------------------------------------------------ of a shape


def synthetic(
    form: Literal["chain", "tree"], nodes: int, devices: int, *, seconds: float = 1e-6, backward: float = 2.0, message_bytes: float = 1000.0,
    firing_s: float = 0.0, update_s: float = 0.0, frequency: float = 32.0, take: int = 1, layer_bytes: float = 0.0, kept_bytes: float = 0.0,
) -> Flow:  # fmt: skip
    """Return one template: a chain of `nodes` firings, or a binary tree whose leaves the Source feeds and whose root ends it.

    Node k has a segment and a layer of its own, on device k modulo `devices`, and costs `seconds` a token forward and `backward` times that
    backward; the Source is free.
    """
    if form == "chain":
        edges = [(k, k + 1) for k in range(nodes)]
    else:
        edges = [(k, k // 2) for k in range(nodes, 1, -1)]  # node k of a heap hands its result to node k // 2, node 1 is the root
        edges += [(0, k) for k in range(1, nodes + 1) if 2 * k > nodes]
    messages = [(a, b, TOKEN_BYTES + (message_bytes if a else 0.0), TOKEN_BYTES + (message_bytes if a else 0.0)) for a, b in edges]
    costs = [(0.0, 0.0)] + [(seconds, backward * seconds)] * nodes
    tables, kept = _joined([_Template(list(range(nodes + 1)), costs, messages, [0.0] + [kept_bytes] * nodes, [[]] + [[1.0]] * nodes)])
    device = np.array([0] + [k % devices for k in range(nodes)], np.int64)
    return Flow(
        ("Source", *(f"node {k}" for k in range(1, nodes + 1))), tuple(f"layer {k}" for k in range(1, nodes + 1)),
        Templates(
            **tables, device=device, take=np.full(nodes + 1, take, np.int64), weight=np.ones(nodes + 1, np.int64),
            per_firing=np.array([0.0, 0.0] + [firing_s] * (2 * nodes)), layer_first=np.maximum(np.arange(-1, nodes + 1), 0).astype(np.int64),
            layer=np.arange(nodes, dtype=np.int64), layer_device=device[1:].copy(), update=np.full(nodes, update_s),
            frequency=np.full(nodes, frequency),
        ),
        kept, np.full(nodes, layer_bytes),
    )  # fmt: skip


__all__ = ["Flow", "flow_of", "sampled", "synthetic"]
