"""A pass in virtual time without numerics: how fast a flow of instances runs on a target, what its devices and links do, how stale gradients get.

The events are those of the real behaviour, of templates in place of data; so it takes seconds for networks of thousands of devices, and says
nothing of losses. `cost_loop` has the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from ampc.data.memory import available_bytes
from ampc.diagnostics import AmpError, Diagnostic, error, printable
from ampc.place.target import Target
from ampc.place.topology import Network
from ampc.runtime.trace import Trace
from ampc.simulate import core, cost_loop, crossings, tables
from ampc.simulate.core import Floats, Integers
from ampc.simulate.cost_tables import (
    ACKS, ADMITTED, ASYNC, BATCH, BINS, DONE, FAILURE_RATE, FILLED, FLYING, GROW, IDLE, JITTER, LAYERS, MESSAGE, MODE, OVERHEAD, READ, REPAIR,
    RETIRED, ROOM, SHARES, SOURCE, STALLED, STRIDE, SYNC, TOKEN_BYTES, TOTAL, State,
)  # fmt: skip
from ampc.simulate.costs import TOKEN_BYTES as MESSAGE_BYTES
from ampc.simulate.flow import Flow
from ampc.simulate.totals import Totals

Mode = Literal["async", "sync", "filled"]
"""How layers update themselves. async: each when it has gathered enough. sync: all of them whenever a batch has drained. filled: each when it has
the last gradient of a batch, while later batches follow behind; a batch enters when the last but one has left."""

MODES: dict[Mode, int] = {"async": ASYNC, "sync": SYNC, "filled": FILLED}
EVENTS = 1_000_000
"""Events handled between two looks at progress."""
MAX_FAILURES_PER_S, MAX_JITTER = 1e9, 100.0


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """max_active_keys: instances in flight. batch: instances of an update in the modes `sync` and `filled`; for the rest see `simulator.Conditions`.

    seed draws the order of the templates, jitter and failures. events: firings that a trace holds at most; 0 keeps none. crossings: whether it also
    holds when messages were on which link.
    """

    max_active_keys: int = 32
    mode: Mode = "async"
    batch: int = 32
    jitter: float = 0.0
    failures_per_s: float = 0.0
    repair_s: float = 0.0
    seed: int = 0
    events: int = 0
    crossings: bool = False

    def check(self) -> None:
        """Raise AmpError AMP551 if a value makes no sense."""
        bounds: tuple[tuple[str, float, float], ...] = (
            ("max_active_keys", 1, (1 << 20) - 1), ("batch", 1, 1e12), ("jitter", 0.0, MAX_JITTER), ("failures_per_s", 0.0, MAX_FAILURES_PER_S),
            ("repair_s", 0.0, 1e9), ("events", 0, 1e9),
        )  # fmt: skip
        found = []
        for name, low, high in bounds:
            value = getattr(self, name)
            if not low <= value <= high:
                found.append(Diagnostic("AMP551", f"`{name}` of a simulation must be from {low:g} to {high:g}, got {value:g}"))
        if self.mode not in MODES:
            known = ", ".join(f"`{m}`" for m in MODES)
            found.append(Diagnostic("AMP551", f"`mode` of a simulation must be one of {known}, got `{printable(self.mode)}`"))
        if found:
            raise AmpError(found)


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What a pass was. By queue (2 * segment, + 1 backward): tokens that waited, on average over time and at most.

    updates: [layers]. staleness: [layers, bins] gradients by the updates between their forward and their backward, the last bin those that are older.
    in_flight: most instances at once. loaded_instances_per_s: the rate while the pass neither fills nor drains. trace: None if no events are kept.
    """

    totals: Totals
    mean_depth: Floats
    most_depth: Integers
    updates: Integers
    staleness: Integers
    in_flight: int
    loaded_instances_per_s: float
    trace: Trace | None

    def mean_staleness(self) -> Floats:
        """Return float64 [layers]; NaN where no gradient came."""
        counted = self.staleness.sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.where(counted > 0, (self.staleness * np.arange(self.staleness.shape[1])).sum(axis=1) / counted, np.nan)


def order(flow: Flow, instances: int, seed: int = 0) -> Integers:
    """Return int64 [instances]: templates in the order of an epoch, each as often as every other but for one."""
    return np.random.default_rng(seed).permutation(np.arange(instances) % flow.n_templates).astype(np.int64)


def simulate(
    flow: Flow, target: Target, instances: int | Integers, settings: Settings = Settings(), on_progress: Callable[[int, int], None] | None = None,
) -> Result:  # fmt: skip
    """Run so many instances (or templates in a given order) through the devices of `target`. `on_progress` hears (retired, of how many).

    Raises AmpError AMP551 (a setting), AMP552 (what is in flight does not fit a device), AMP553 (the simulation does not fit this machine).
    """
    settings.check()
    drawn = order(flow, instances, settings.seed) if isinstance(instances, int) else np.asarray(instances, np.int64)
    check_memory(flow, target, min(settings.max_active_keys, max(1, len(drawn))))
    network = Network(target)
    pass_ = _Pass(flow, target, network, drawn, settings)
    while (ended := pass_.go()) != DONE:
        if ended == GROW:
            pass_.grow()
        elif ended:
            what = "no event is left" if ended == STALLED else "a message has no route"
            held = int(pass_.state.number[ADMITTED] - pass_.state.number[RETIRED])
            raise error("AMP559", f"internal fault of the simulator: {what} with {held} instances in flight", help="please report it", exit_code=70)
        elif on_progress is not None:
            on_progress(int(pass_.state.number[RETIRED]), len(drawn))
    return pass_.result()


def check_memory(flow: Flow, target: Target, in_flight: int) -> None:
    """Raise AmpError AMP552 for each device that cannot hold its layers and what `in_flight` instances keep on it."""
    n = len(target.devices)
    layers = np.bincount(flow.tables.layer_device, flow.layer_bytes, n)
    kept = flow.kept(n)
    found = []
    for d in np.flatnonzero(layers + in_flight * kept > [x.memory_bytes for x in target.devices]):
        device = target.devices[d]
        room = device.memory_bytes - layers[d]
        fit = int(room / kept[d]) if kept[d] > 0 else 0
        remedy = f"lower `max_active_keys` to {fit}" if fit >= 1 else "place fewer layers on it, or choose a target with more memory"
        found.append(Diagnostic(
            "AMP552",
            f"device `{printable(device.name)}` of target `{printable(target.name)}` has {device.memory_bytes:,} bytes, but needs "
            f"{int(layers[d] + in_flight * kept[d]):,}: {int(layers[d]):,} for its layers and {int(kept[d]):,} for each of {in_flight} instances "
            "in flight",
            help=remedy,
        ))  # fmt: skip
    if found:
        raise AmpError(found)


class _Pass:
    """One pass: its tables, the loop over them, and what they say in the end."""

    def __init__(self, flow: Flow, target: Target, network: Network, drawn: Integers, settings: Settings) -> None:
        self.flow, self.target, self.network, self.drawn, self.settings = flow, target, network, drawn, settings
        t, n = flow.tables, len(target.devices)
        source = int(t.device[0])
        pairs = [(int(a), int(b)) for a, b in flow.pairs()]
        if settings.mode == "sync":
            owners = {int(d) for d in t.layer_device}
            pairs += [p for d in owners for p in ((source, d), (d, source))]
        self.links, self.link_numbers = core.links_between(network, pairs, n, carry=not target.links.read_s)
        room = 1024 + 4 * n
        self.heap, self.under_way = core.events(room), core.flight(room)
        self.log = tables.log(len(drawn), settings.events, 4 * settings.events, 4 * settings.events)
        self.chance = core.random_state(settings.seed)
        self.state = self._state(n, source)

    def _state(self, n: int, source: int) -> State:
        flow, t, c = self.flow, self.flow.tables, self.settings
        slots = max(1, min(c.max_active_keys, len(self.drawn)))
        stride, shares, queues, layers = flow.most_firings, flow.most_uses, 2 * len(flow.segments), len(flow.layers)
        one = np.array([int(d.messages_per_firing == 1) for d in self.target.devices], np.int64)
        cells = slots * stride
        need = 4 * (cells * (2 + int(one.any())) + slots * shares) + 8 * 60 * n
        free = available_bytes()
        if cells >= 1 << 31 or (free is not None and need > 0.8 * free):
            raise error(
                "AMP553", f"this simulation needs {need / 2**30:.1f} GiB of memory for {slots} instances of up to {stride:,} firings in flight",
                help="lower `max_active_keys`", exit_code=4,
            )  # fmt: skip
        number, amount = np.zeros(16, np.int64), np.zeros(8)
        number[[IDLE, TOTAL, BATCH, MODE, SOURCE, STRIDE, SHARES]] = slots, len(self.drawn), c.batch, MODES[c.mode], source, stride, shares
        number[[ACKS, LAYERS, ROOM]] = layers, layers, c.events
        links = self.target.links
        amount[[JITTER, FAILURE_RATE, REPAIR, OVERHEAD, MESSAGE, READ, TOKEN_BYTES]] = (
            c.jitter, c.failures_per_s, c.repair_s, links.overhead_s, links.message_overhead_s, links.read_s, MESSAGE_BYTES
        )  # fmt: skip
        per_device = np.bincount(np.repeat(t.device, 2), minlength=n)
        seconds = np.zeros((n, 7))
        seconds[:, tables.HEARD] = -1.0

        def i64(size: int) -> Integers:
            return np.zeros(max(1, size), np.int64)

        return State(
            number=number, amount=amount, order=self.drawn, idle=np.arange(slots, dtype=np.int64)[::-1].copy(), template=i64(slots),
            position=i64(slots), waits=np.zeros(cells, np.int32), following=np.zeros(cells, np.int32),
            queue=np.zeros(cells if one.any() else 1, np.int32), version=np.zeros(max(1, slots * shares), np.int32), head=i64(queues),
            tail=i64(queues), waiting=i64(queues), changed=np.zeros(queues), depth=np.zeros(queues), most=i64(queues),
            ready_first=np.concatenate([[0], np.cumsum(per_device)]).astype(np.int64), ready=i64(queues), ready_count=i64(n), place=i64(queues),
            lane_head=i64(3 * n), lane_tail=i64(3 * n), lane_count=i64(3 * n), one=one, running=np.full(n, -2, np.int64), taken=i64(n),
            tokens=i64(n), sending=i64(n), logged=i64(n), seconds=seconds.reshape(-1), fired=i64(n), ordered=np.full(n, -1, np.int64),
            acks=i64(n), next_order=i64(layers), layer_version=i64(layers), updates=i64(layers), gathered=np.zeros(2 * layers + 1),
            due=np.zeros(2 * layers + 1), open=i64(2), stale=i64(layers * BINS),
        )  # fmt: skip

    def go(self) -> int:
        """Handle some events; return how that ended."""
        t, x = self.flow.tables, self.log
        flat = t._replace(seconds=t.seconds.reshape(-1))
        log = x._replace(
            firing=x.firing.reshape(-1), span=x.span.reshape(-1), taken=x.taken.reshape(-1), message=x.message.reshape(-1), sent=x.sent.reshape(-1)
        )
        ended: int = cost_loop.run(flat, self.state, self.heap, self.links, self.under_way, log, self.chance, EVENTS)
        return ended

    def grow(self) -> None:
        self.heap, self.under_way = core.grown(self.heap, self.under_way)

    # ------------------------------------------------------------------------------------------------- results

    def result(self) -> Result:
        s, log, layers = self.state, self.log, len(self.flow.layers)
        times, updates = s.seconds.reshape(-1, 7), s.updates[:layers].copy()
        seconds = float(max(self.heap.now[0], times[:, tables.END].max(initial=0.0)))
        if self.settings.mode == "async":
            updates += s.gathered[: 2 * layers : 2] > 0.0  # what accumulators hold at the end of a pass is not lost
        names, links = tuple(d.name for d in self.target.devices), tuple(self.network.links[k].name for k in self.link_numbers)
        totals = Totals(
            seconds=seconds, instances=int(s.number[RETIRED]), devices=names, busy_s=times[:, : tables.STOPPED + 1].copy(),
            fired=s.fired, links=links, link_busy_s=self.links.busy_s, link_bytes=self.links.carried_bytes, link_messages=self.links.messages,
            events=int(log.counts[tables.HANDLED]), messages=int(log.counts[tables.CROSSED]), failures=int(log.counts[tables.FAILURES]),
        )  # fmt: skip
        mean_depth = s.depth / seconds if seconds > 0 else s.depth
        trace = self._trace(names, links) if len(log.span) else None
        if trace is not None and self.settings.crossings:
            trace = trace.crossed(crossings.of_log(self.links, log, len(trace.sent_s)))
        return Result(
            totals, mean_depth, s.most, updates, s.stale[: layers * BINS].reshape(layers, BINS), int(s.number[FLYING]),
            self._loaded(), trace,
        )  # fmt: skip

    def _loaded(self) -> float:
        """Return instances/s between the retirements of the first and of the last quarter; 0 where they are one."""
        at = np.sort(self.log.retired[: int(self.state.number[RETIRED])])
        first, last = len(at) // 4, len(at) - 1 - len(at) // 4
        return float((last - first) / (at[last] - at[first])) if last > first and at[last] > at[first] else 0.0

    def _trace(self, names: tuple[str, ...], links: tuple[str, ...]) -> Trace:
        """Return what the log holds, firings in order of start within each device."""
        log, last = self.log, 2 * len(self.flow.segments)
        n, taken, sent = int(log.counts[tables.FIRINGS]), int(log.counts[tables.TAKEN]), int(log.counts[tables.MESSAGES])
        firing, span, message, times = log.firing[:n], log.span[:n], log.message[:sent], log.sent[:sent]
        by_start = np.lexsort((np.arange(n), span[:, 0], firing[:, 0]))
        place = np.full(n + 1, -1, np.int64)
        place[by_start] = np.arange(n)
        of_firing = place[log.taken[:taken, 0]]
        by_firing = np.argsort(of_firing, kind="stable")
        queue, admitted = firing[by_start, 1], int(self.state.number[ADMITTED])
        return Trace(
            driver="cost-only", devices=names, segments=self.flow.segments, links=links, start_s=span[by_start, 0], end_s=span[by_start, 1],
            device=firing[by_start, 0].astype(np.int32), queue=np.where(queue < 0, last, queue).astype(np.int32),
            tokens=firing[by_start, 2].astype(np.int32), updates=firing[by_start, 3].astype(np.int32),
            taken_firing=of_firing[by_firing].astype(np.int32), taken_slot=log.taken[:taken, 1][by_firing].astype(np.int32),
            taken_index=log.taken[:taken, 2][by_firing],
            sent_s=times[:, 0], arrived_s=np.where(times[:, 1] < 0, np.nan, times[:, 1]), sender=place[message[:, 0]].astype(np.int32),
            receiver_device=message[:, 1].astype(np.int32), message_queue=(message[:, 2] >> 48).astype(np.int32),
            message_slot=((message[:, 2] >> 28) & ((1 << 20) - 1)).astype(np.int32), message_index=message[:, 2] & ((1 << 28) - 1),
            message_bytes=times[:, 2], admitted_s=log.admitted[:admitted], retired_s=log.retired[:admitted], instance=self.drawn[:admitted],
            dropped=int(log.counts[tables.DROPPED]), update_s=span[by_start, 2],
        )  # fmt: skip


__all__ = ["MODES", "Mode", "Result", "Settings", "check_memory", "order", "simulate"]
