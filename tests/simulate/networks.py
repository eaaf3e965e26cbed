"""Small targets and flows for tests of the simulator, and what must hold of any pass."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from typing import Any

import numpy as np

from ampc.place.target import Device, Links, Target
from ampc.place.topology import Network
from ampc.simulate.cost_only import MODES, Result, Settings, order, simulate
from ampc.simulate.flow import Flow, synthetic

SLACK = 1e-9


def target(
    devices: int, *, topology: Any = "full", bytes_per_s: float = 100.0, latency_s: float = 0.5, overhead_s: float = 0.0, each_s: float = 0.0,
    **device: Any,
) -> Target:  # fmt: skip
    """Devices of one kind, which take a message at a time unless said otherwise. each_s: what a message costs sender and receiver."""
    settings = {"message_overhead_s": 0.0, "messages_per_firing": 1, "memory_bytes": 1 << 40, **device}
    made = tuple(Device(f"d{k}", "fpga", {"fp32": 1.0}, 1.0, **settings) for k in range(devices))
    return Target("test", made, Links(topology, bytes_per_s, latency_s, overhead_s, each_s))


def varied(flow: Flow, devices: int, seed: int, scattered: bool = True) -> Flow:
    """The same messages with random times, sizes and devices, so that no two things happen at once."""
    rng, t = np.random.default_rng(seed), flow.tables
    seconds = rng.uniform(0.5, 2.0, t.seconds.shape)
    seconds[t.segment == 0] = 0.0
    device = rng.integers(0, devices, len(t.device)) if scattered else t.device
    return dataclasses.replace(flow, tables=t._replace(
        seconds=seconds, device=device, layer_device=device[1:].copy(), sent_bytes=rng.uniform(10, 200, len(t.sent_bytes)),
        answer_bytes=rng.uniform(10, 200, len(t.answer_bytes)),
    ))  # fmt: skip


def check_pass(flow: Flow, made_for: Target, drawn: Any, in_flight: int, result: Result) -> None:
    """Assert what holds of any pass whose whole trace was kept: nothing is lost, nothing happens twice or before its time."""
    trace, totals = result.trace, result.totals
    assert trace is not None and trace.dropped == 0
    n = len(drawn)
    assert totals.instances == n == len(trace.instance)
    assert np.array_equal(trace.instance, drawn)
    assert np.all(trace.retired_s >= trace.admitted_s)

    # Tokens: every firing of every instance, forward and backward, once.
    expected = flow.tokens()[np.asarray(drawn, int)].sum(axis=0) if n else np.zeros(len(flow.segments), int)
    _, tokens, _ = trace.by_queue()
    assert np.array_equal(tokens[:-1], np.repeat(expected, 2))
    assert len(trace.taken_firing) == tokens.sum()
    assert result.staleness.sum() == sum(expected[s] * (flow.tables.layer_first[s + 1] - flow.tables.layer_first[s]) for s in range(len(expected)))

    # Bytes: what crosses links is what messages weigh, once for each link of their way, and orders beside them.
    network = Network(made_for)
    hops = [len(network.path(int(a), int(b))) for a, b in zip(sender_devices(trace), trace.receiver_device)]
    assert trace.message_bytes.sum() <= totals.link_bytes.sum() + SLACK
    if totals.messages == len(trace.sent_s):
        assert np.isclose(totals.link_bytes.sum(), (trace.message_bytes * hops).sum())
        assert totals.link_messages.sum() == sum(hops)
    assert np.all(trace.arrived_s - trace.sent_s >= np.array(hops) * made_for.links.latency_s - SLACK)

    # Time: a device does one thing after another, and within the pass.
    assert trace.start_s.min(initial=0.0) >= 0.0 and trace.end_s.max(initial=0.0) <= totals.seconds + SLACK
    for d in np.unique(trace.device):
        mine = trace.device == d
        assert np.all(trace.start_s[mine][1:] >= trace.end_s[mine][:-1] - SLACK)
    assert np.all(totals.busy_s.sum(axis=1) <= totals.seconds + SLACK)
    assert np.all(totals.link_busy_s <= totals.seconds + SLACK)
    assert result.in_flight <= in_flight
    events = sorted([(t, 1) for t in trace.admitted_s] + [(t, -1) for t in trace.retired_s])  # who leaves makes room for who comes at once
    assert max(np.cumsum([x for _, x in events]), default=0) <= in_flight


def sender_devices(trace: Any) -> Any:
    return trace.device[trace.sender]


def firings(result: Result) -> Counter[tuple[int, int, float, float]]:
    """(device, queue, start, end) of every firing that took time, times rounded."""
    t = result.trace
    assert t is not None
    rows = zip(t.device.tolist(), t.queue.tolist(), t.start_s.round(6).tolist(), t.end_s.round(6).tolist())
    return Counter(row for row in rows if row[3] > row[2])


def digest(count: int = 36) -> str:
    """A hash of all that so many different passes give, to the last bit."""
    seal = hashlib.sha256()
    for k in range(count):
        rng = np.random.default_rng(k)
        devices, take, nodes, in_flight = (int(x) for x in rng.integers(1, 6, 4))
        form: Any = ("chain", "tree")[k % 2]
        flow = varied(synthetic(form, nodes, devices, take=take, frequency=3.0, update_s=0.3, firing_s=0.2), devices, k)
        on = target(devices, topology=("full", "ring", "star")[k % 3], messages_per_firing=0 if take > 1 else 1, overhead_s=0.05, each_s=0.02)
        chance: Any = {"jitter": (0.0, 0.5)[k % 2], "failures_per_s": (0.0, 0.2)[k // 3 % 2], "repair_s": 3.0, "seed": k}
        r = simulate(flow, on, 15, Settings(in_flight, tuple(MODES)[k // 2 % 3], batch=3, events=10_000, **chance))
        check_pass(flow, on, order(flow, 15, k), in_flight, r)
        t = r.trace
        assert t is not None
        for x in (r.totals.busy_s, t.start_s, t.end_s, t.queue, t.arrived_s, t.taken_slot, r.staleness, r.updates, r.mean_depth, r.most_depth):
            seal.update(np.ascontiguousarray(x).tobytes())
    return seal.hexdigest()
