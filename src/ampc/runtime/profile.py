"""Where the time of a pass went: by segment and direction, and by device, from its trace and the cost model.

A node does not fire by itself: those of a segment run back to back, so times are those of segments. Floating-point operations are the cost
model's, with the means of the data that ran.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ampc.codegen.carried import calls_seconds, segment_terms, term_seconds
from ampc.codegen.plan import Plan, Segment
from ampc.diagnostics import error, printable
from ampc.place import Cost, Precision, Statistics, Target, Term, estimate
from ampc.place.cost import rows_of
from ampc.place.factors import Factors
from ampc.runtime.trace import Trace
from ampc.runtime.weights import write_bytes

FILE = "report/profile.json"
FORM = 1
LARGEST = 1e18
"""No time and no count of a pass is above this."""
LEAST = 0.2
"""Share of a segment's measured time that is thought to be work, however large a device's overheads, or those of a log, are said to be."""


class QueueProfile(msgspec.Struct, frozen=True):
    """Of one segment (`nodes` of the graph) and direction. `seconds` with `update_s`, those in which its layers updated themselves.

    rows: of the widest node, tokens times mean rows. flops: of all firings, without updates. share: of all time within firings.
    """

    segment: int
    title: str
    nodes: tuple[int, ...]
    device: str
    direction: Literal["forward", "backward"]
    firings: int
    tokens: int
    rows: float
    seconds: float
    update_s: float
    flops: float
    share: float

    @property
    def flops_per_s(self) -> float:
        """Without the updates; 0 if there was no time."""
        seconds = self.seconds - self.update_s
        return self.flops / seconds if seconds > 0 else 0.0


class DeviceProfile(msgspec.Struct, frozen=True):
    """Seconds of a pass: within firings, waiting for messages between two, otherwise between two, before the first and after the last; and those
    that writing the log took, which are in none of the others."""

    name: str
    busy_s: float
    waiting_s: float
    overhead_s: float
    idle_s: float
    log_s: float = 0.0


class Profile(msgspec.Struct, frozen=True):
    """A pass over `instances` in `seconds`. `ordered_s`: updates that no firing made. `dropped`: events that the trace lacks."""

    model: str
    driver: str
    instances: int
    seconds: float
    queues: tuple[QueueProfile, ...]
    devices: tuple[DeviceProfile, ...]
    ordered_s: float = 0.0
    dropped: int = 0
    form: int = FORM


def profile(trace: Trace, plan: Plan, statistics: Statistics) -> Profile:
    """Return the profile of a pass of the program that `plan` is of; queues that never fired are left out. What the log took is taken off."""
    cost = estimate(plan.graph, statistics, together=_together(plan))
    firings, tokens, seconds = trace.by_queue()
    update_s = np.bincount(trace.queue, trace.update_s, len(firings)) if len(trace.update_s) else np.zeros(len(firings))
    updates = np.bincount(trace.queue, trace.updates, len(firings)) if len(trace.update_s) else np.zeros(len(firings))
    look_s = trace.log_cost.look_s  # between the two of a firing, or of an update, is the time of one
    seconds = np.maximum(seconds - look_s * (firings + 2 * updates), LEAST * seconds)
    update_s = np.clip(update_s - look_s * updates, LEAST * update_s, seconds)
    whole = float(seconds.sum())
    queues = []
    for s in plan.segments:
        rows, forward, backward = _per_token(cost, statistics, s)
        for q, direction, flops in ((2 * s.id, "forward", forward), (2 * s.id + 1, "backward", backward)):
            if firings[q]:
                device = next((trace.devices[d] for d in trace.device[trace.queue == q][:1]), "")
                queues.append(
                    QueueProfile(
                        s.id, s.title, tuple(n.id for n in s.nodes), device, direction, int(firings[q]), int(tokens[q]), rows * int(tokens[q]),  # type: ignore[arg-type]  # one of the two words above
                        float(seconds[q]), float(update_s[q]), flops * int(tokens[q]), float(seconds[q]) / whole if whole else 0.0,
                    )
                )  # fmt: skip
    devices = _devices(trace)
    ordered_s = float(seconds[2 * len(plan.segments)])
    return Profile(plan.graph.name, trace.driver, len(trace.instance), trace.seconds, tuple(queues), devices, ordered_s, trace.dropped)


def _devices(trace: Trace) -> tuple[DeviceProfile, ...]:
    """Return how devices spent a pass: of a firing's entry in the log, one look at the clock is within the firing, all else before and after it."""
    spent, cost, n = trace.activity(), trace.log_cost, len(trace.devices)
    timed = trace.updates if len(trace.update_s) else np.zeros(len(trace.updates))
    firings, tokens, updates = (np.bincount(trace.device, x, n) for x in (np.ones(len(trace.device)), trace.tokens, timed))
    within = np.minimum(cost.look_s * (firings + 2 * updates), (1 - LEAST) * spent["busy"])
    between = np.minimum((cost.firing_s - cost.look_s) * firings + cost.token_s * tokens, (1 - LEAST) * spent["overhead"])
    busy, overhead = spent["busy"] - within, spent["overhead"] - between
    return tuple(
        DeviceProfile(name, *(float(x[d]) for x in (busy, spent["waiting"], overhead, spent["idle"], within + between)))
        for d, name in enumerate(trace.devices)
    )


def _together(plan: Plan) -> dict[int, int]:
    """Return node -> the segment that it fires in."""
    return {n.id: s.id for s in plan.segments for n in s.nodes}


def _per_token(cost: Cost, statistics: Statistics, segment: Segment) -> tuple[float, float, float]:
    """Return (rows of the widest node, forward FLOPs, backward FLOPs) of one token of a segment."""
    rows, forward, backward = 1.0, 0.0, 0.0
    for node in segment.nodes:
        c = cost.nodes.get(node.id)
        if c is None or c.fires <= 0:
            continue
        forward += c.fwd_flops / c.fires
        backward += c.bwd_flops / c.fires
        if c.product_flops > 0:
            rows = max(rows, c.fwd_matrix_flops / (c.fires * c.product_flops))
        for t in node.outputs:
            axis = statistics.axes.get(t.rows)
            rows = max(rows, axis.mean if axis is not None else 1.0)
    return rows, forward, backward


def write(folder: Path, found: Profile) -> None:
    """Write `report/profile.json` into a run folder."""
    path = folder / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


def read(folder: str | Path) -> Profile:
    """Return the profile of a run folder (or the file itself). Raises AmpError AMP721 if there is none, or none that can be read."""
    path = Path(folder)
    file = path / FILE if path.is_dir() else path
    shown = printable(str(folder))
    if not file.is_file():
        raise error("AMP721", f"`{shown}` holds no profile", help="`ampc run --profile` writes one into the run folder")
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Profile)
        if found.form != FORM:
            raise ValueError(f"it has version {found.form}")
        measured = [x for part in (*found.queues, *found.devices, found) for x in msgspec.structs.astuple(part) if isinstance(x, int | float)]
        if not all(0 <= x <= LARGEST for x in measured) or any(q.firings < 1 for q in found.queues):
            raise ValueError(f"a time or a count in it is not from 0 to {LARGEST:g}")
        return found
    except (OSError, ValueError) as e:  # msgspec's errors are ValueErrors
        reason = printable(str(e)).lower()
        raise error("AMP721", f"the profile in `{shown}` can't be read: {reason}", help="make it anew with `ampc run --profile`") from None


def refined(target: Target, found: Profile) -> Target:
    """Return `target` with the overhead of a firing that was measured: the time of devices between two firings in which they did not wait.

    That is the engine's own work (taking messages, choosing a queue), which grows with the program. A profile of virtual time has none.
    """
    each = _between_s(found)
    if not each:
        return target
    return msgspec.structs.replace(target, devices=tuple(msgspec.structs.replace(d, firing_overhead_s=each * d.cores) for d in target.devices))


def _between_s(found: Profile) -> float:
    """Return the seconds of a firing that lie outside of it: between it and the next one, without waiting."""
    return sum(d.overhead_s for d in found.devices) / max(1, sum(q.firings for q in found.queues))


def factors(found: Profile, plan: Plan, statistics: Statistics, target: Target, precision: Precision = "fp32") -> Factors:
    """Return how much longer each node took than the cost model says for devices of `target`, the profile's by name.

    Measured are segments: all nodes of one get its factor. A firing's time has its part of the time between firings, as the overhead of a device
    has, which is taken off. Raises AmpError AMP721 for the profile of another program.
    """
    graph, rows, between_s = plan.graph, rows_of(plan.graph, statistics), _between_s(found)
    kinds = {d.name: d for d in target.devices}
    carried: dict[int, list[Term]] = {}
    for s in plan.segments:
        for node, term in segment_terms(plan, s):
            carried.setdefault(node.id, []).append(term)
    out: dict[int, list[float]] = {}
    for q in found.queues:
        if found.model != graph.name or any(i not in graph.by_id for i in q.nodes):
            raise error("AMP721", f"the profile is of another program than `{printable(graph.name)}`", help="profile a run of this one", exit_code=1)
        device = kinds.get(q.device, target.devices[0])
        backward = q.direction == "backward"
        overhead = (q.firings * device.firing_overhead_s + q.tokens * device.message_overhead_s) / device.cores
        work = sum(q.firings * calls_seconds(graph, graph.by_id[i], set(q.nodes), True, device, precision)[backward] for i in q.nodes)
        for t in (t for i in q.nodes for t in carried.get(i, ())):
            work += q.tokens * rows(t.axis, t.region) * term_seconds(t, device, precision)[backward]
        if work <= 0.0:
            continue
        spent = q.seconds - q.update_s + q.firings * between_s
        factor = max(spent - overhead, LEAST * spent) / work
        for i in q.nodes:
            out.setdefault(i, [1.0, 1.0])[backward] = factor
    return {i: (forward, back) for i, (forward, back) in out.items()}


def table(found: Profile) -> list[tuple[str, ...]]:
    """Return the rows of a table for people: a heading, then a row for each segment and direction, the slowest first."""
    rows: list[tuple[str, ...]] = [("segment", "", "device", "tokens", "tokens/firing", "rows/firing", "seconds", "updates", "GFLOP/s", "share")]
    for q in sorted(found.queues, key=lambda q: -q.seconds):
        rows.append((
            f"{q.segment} {q.title}", q.direction, q.device, f"{q.tokens:,}", f"{q.tokens / q.firings:.1f}", f"{q.rows / q.firings:.0f}",
            f"{q.seconds:.4f}", f"{100 * q.update_s / q.seconds:.0f} %" if q.seconds > 0 else "",
            f"{q.flops_per_s / 1e9:.2f}" if q.flops else "", f"{100 * q.share:.1f} %",
        ))  # fmt: skip
    return rows


def device_table(found: Profile) -> list[tuple[str, ...]]:
    """Return the rows of a table for people: a heading, then how each device spent the pass."""
    rows: list[tuple[str, ...]] = [("device", "busy", "waiting for messages", "between firings", "before and after", "log")]
    whole = found.seconds or 1.0
    for d in found.devices:
        rows.append((d.name, *(f"{100 * s / whole:.1f} %" for s in (d.busy_s, d.waiting_s, d.overhead_s, d.idle_s, d.log_s))))
    return rows
