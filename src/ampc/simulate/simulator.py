"""An engine on hardware that need not exist: every device of a target fires in virtual time, with the numbers of a real run.

A `Simulator` is an `Engine`, so a session trains, validates and predicts with it as with any other; its seconds are virtual ones.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from ampc.codegen.layout import H
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.place import Placement, Target
from ampc.place.factors import Factors
from ampc.place.target import Device, Precision
from ampc.place.topology import Network
from ampc.runtime.binding import Binding
from ampc.runtime.engine import Engine
from ampc.runtime.events import Array, Progress
from ampc.runtime.options import EngineOptions
from ampc.runtime.stuck import waiting
from ampc.runtime.trace import Trace
from ampc.runtime.watch import progress
from ampc.simulate import core, crossings, driver, tables
from ampc.simulate.costs import costs, senders
from ampc.simulate.totals import Totals

EVENTS = 20_000
"""Events handled between two looks at progress."""


@dataclasses.dataclass(frozen=True, slots=True)
class Conditions:
    """What is simulated beside the target itself.

    precision: chooses rates; what the products of this run are made of is one of its settings.
    jitter: relative standard deviation of a firing's time.
    failures_per_s: of a device, a busy second; it then stands still for `repair_s` and loses nothing. seed draws both.
    events: firings that a trace holds at most; 0 keeps none. crossings: whether it also holds when messages were on which link.
    factors: how much longer nodes take than estimated, from a profile.
    """

    precision: Precision = "fp32"
    jitter: float = 0.0
    failures_per_s: float = 0.0
    repair_s: float = 0.0
    seed: int = 0
    events: int = 0
    crossings: bool = False
    factors: Factors = dataclasses.field(default_factory=dict)


EXACT = Conditions()


class Simulator(Engine):
    """Runs one graph as placed on the devices of `target`, in virtual time. `options.workers` and `options.driver` are not looked at."""

    def __init__(
        self, graph: Graph, placement: Placement, target: Target, *, options: EngineOptions, parameters: dict[str, Array] | None = None,
        conditions: Conditions = EXACT,
    ) -> None:  # fmt: skip
        target.require(conditions.precision)
        self.target, self.conditions = target, conditions
        self.used = sorted({placement.device_of[n.id] for n in graph.nodes})
        """Devices of the target that own a node; worker k is device used[k]."""
        number = {d: k for k, d in enumerate(self.used)}
        compact = msgspec.structs.replace(placement, device_of={n: number[d] for n, d in placement.device_of.items()})
        options = dataclasses.replace(options, driver="simulate", workers=len(self.used))
        super().__init__(graph, compact, options=options, parameters=parameters)
        self.network = Network(target)
        self.totals: Totals | None = None
        """Of the last pass that trained, or of the last one."""
        self.trace: Trace | None = None
        """Of the same pass, if events are kept."""
        self._trained = False
        self._passes = 0
        self._seconds = 0.0

    def _device(self, worker: int) -> Device:
        return self.target.devices[self.used[worker]]

    def _elapsed(self, began: float) -> float:
        return self._seconds

    def _drive(
        self, b: Binding, O: Array, on_progress: Callable[[Progress], None] | None, stop: Callable[[], bool] | None, began: float,
    ) -> None:  # fmt: skip
        c = self.conditions
        workers = len(self.used)
        links, numbers = self._links(b)
        heap, under_way, held = core.events(2 * b.live + workers + 16), core.flight(b.live + 16), tables.held(2 * b.live + 16)
        devices, prices = self._devices(b), self._costs(b)
        total = int(b.I[H.TOTAL])
        log = tables.log(total, c.events, 4 * c.events, 4 * c.events)
        chance = core.random_state(c.seed + self._passes)
        self._passes += 1
        state = (heap, links, under_way, devices, held, prices, log, chance)
        shown = time.perf_counter()
        while b.I[H.STOP] == 0 and b.I[H.ERROR] == 0:
            with np.errstate(all="ignore"):
                wrong = driver.run(self._F, b.I, b.D, b.XF, b.XI, O, *state, EVENTS)
            if wrong:
                what = {driver.STALLED: "no event is left", driver.NO_ROUTE: "a message has no route"}[wrong]
                raise error(
                    "AMP559", f"internal fault of the simulator: {what} with {int(b.I[H.ADMITTED] - b.I[H.DONE])} instances in flight",
                    notes=waiting(self.plan, b), help="please report it, with the model and the target", exit_code=70,
                )  # fmt: skip
            if stop is not None and stop():
                b.I[H.HALT] = 1
            if on_progress is not None and time.perf_counter() - shown > 0.1:
                shown = time.perf_counter()
                on_progress(progress(b, float(heap.now[0])))
        self._check(b)
        self._seconds = float(max(heap.now[0], devices.seconds[:, tables.END].max(initial=0.0)))
        self._record(b, devices, links, numbers, log)
        if on_progress is not None:
            on_progress(progress(b, self._seconds))

    # ------------------------------------------------------------------------------------------------- tables

    def _links(self, b: Binding) -> tuple[core.Links, tuple[int, ...]]:
        """Routes for the devices between which messages may go."""
        network, used = self.network, self.used

        class Used:
            """The network as the workers number it."""

            links = network.links

            def path(self, a: int, b: int) -> tuple[int, ...]:
                return network.path(used[a], used[b])

        source = self._owner_of[0]
        pairs = {pair for k in range(len(used)) for pair in ((k, source), (source, k))}  # orders of synchronous mode, and their answers
        for s in self.plan.segments:
            for node_id, port in s.inputs:
                for sender in senders(self.plan, self.plan.graph.by_id[node_id].inputs[port]):
                    a, d = self._owner_of[sender], self._owner_of[s.id]
                    pairs |= {(a, d), (d, a)}
        return core.links_between(Used(), pairs, len(used), carry=not self.target.links.read_s)

    def _devices(self, b: Binding) -> tables.Devices:
        n = len(self.used)
        queues: list[list[int]] = [[] for _ in range(n)]
        for s in self.plan.segments:
            queues[self._owner_of[s.id]] += [2 * s.id, 2 * s.id + 1]
        layers: list[list[int]] = [[] for _ in range(n)]
        for k, name in enumerate(self.plan.layers):
            layers[self._layer_owner(name)].append(k)
        word = np.full((n, 4), -1, np.int64)
        word[:, tables.BUSY] = 0
        one = np.array([int(self._device(k).messages_per_firing == 1) for k in range(n)], np.int64)
        for s in self.plan.segments:
            b.limit(s.id, self._device(self._owner_of[s.id]).messages_per_firing * self.options.group)
        seconds = np.zeros((n, 7))
        seconds[:, tables.HEARD] = -1.0
        return tables.Devices(word, seconds, np.zeros(n, np.int64), *_flat(queues), *_flat(layers), one)

    def _layer_owner(self, name: str) -> int:
        return self._owner_of[next(s.id for s in self.plan.segments if name in s.layers)]

    def _costs(self, b: Binding) -> tables.Costs:
        c = self.conditions
        on = {s.id: self._device(self._owner_of[s.id]) for s in self.plan.segments}
        owners = {name: self._device(self._layer_owner(name)) for name in self.plan.layers}
        links = self.target.links
        chance = (c.jitter, c.failures_per_s, c.repair_s, links.overhead_s, links.message_overhead_s, links.read_s)
        folding = self.options.staleness == "plain"
        return costs(self.plan, b.extents, on, owners, precision=c.precision, chance=chance, factors=c.factors, folding=folding)

    # ------------------------------------------------------------------------------------------------- results

    def _record(self, b: Binding, devices: tables.Devices, links: core.Links, numbers: tuple[int, ...], log: tables.Log) -> None:
        trains = bool(b.I[H.TRAIN])
        if self._trained and not trains:
            return
        self._trained = trains
        names = tuple(d.name for d in self.target.devices)
        busy = np.zeros((len(names), 4))
        busy[self.used] = devices.seconds[:, : tables.STOPPED + 1]
        fired = np.zeros(len(names), np.int64)
        fired[self.used] = devices.fired
        link_names = tuple(self.network.links[k].name for k in numbers)
        self.totals = Totals(
            seconds=self._seconds, instances=int(b.I[H.DONE]), devices=names, busy_s=busy, fired=fired, links=link_names,
            link_busy_s=links.busy_s, link_bytes=links.carried_bytes, link_messages=links.messages, events=int(log.counts[tables.HANDLED]),
            messages=int(log.counts[tables.CROSSED]), failures=int(log.counts[tables.FAILURES]),
        )  # fmt: skip
        self.trace = self._trace(b, log, names, link_names) if len(log.span) else None
        if self.trace is not None and self.conditions.crossings:
            sent = min(int(log.counts[tables.MESSAGES]), len(log.sent))
            self.trace = self.trace.crossed(crossings.of_log(links, log, sent, grouped=self.options.group > 1))

    def _trace(self, b: Binding, log: tables.Log, names: tuple[str, ...], link_names: tuple[str, ...]) -> Trace:
        firings, taken, sent = int(log.counts[tables.FIRINGS]), int(log.counts[tables.TAKEN]), min(int(log.counts[tables.MESSAGES]), len(log.sent))
        used, last = np.array(self.used), 2 * len(self.plan.segments)
        queue = log.firing[:firings, 1]
        queue = np.where((queue < 0) & (log.firing[:firings, 3] > 0), last, np.maximum(queue, 0))
        order = np.lexsort((np.arange(firings), log.span[:firings, 0], log.firing[:firings, 0]))
        place = np.empty(firings, np.int64)
        place[order] = np.arange(firings)
        admitted = int(b.I[H.ADMITTED])
        message = log.message[:sent]
        taken_firing = place[log.taken[:taken, 0]] if taken else np.zeros(0, np.int64)
        by_firing = np.argsort(taken_firing, kind="stable")
        token = message[:, 2]
        arrived = np.where(log.sent[:sent, 1] < 0, np.nan, log.sent[:sent, 1])
        return Trace(
            driver="simulate", devices=names, segments=tuple(f"{s.id} {s.title}" for s in self.plan.segments), links=link_names,
            start_s=log.span[:firings, 0][order], end_s=log.span[:firings, 1][order], device=used[log.firing[:firings, 0]][order].astype(np.int32),
            queue=queue[order].astype(np.int32), tokens=log.firing[:firings, 2][order].astype(np.int32),
            updates=log.firing[:firings, 3][order].astype(np.int32),
            taken_firing=taken_firing[by_firing].astype(np.int32), taken_slot=log.taken[:taken, 1][by_firing].astype(np.int32),
            taken_index=log.taken[:taken, 2][by_firing],
            sent_s=log.sent[:sent, 0], arrived_s=arrived,
            sender=np.where(message[:, 0] < 0, -1, place[np.maximum(message[:, 0], 0)] if firings else -1).astype(np.int32),
            receiver_device=used[message[:, 1]].astype(np.int32), message_queue=np.minimum(token >> 48, last).astype(np.int32),
            message_slot=((token >> 28) & ((1 << 20) - 1)).astype(np.int32), message_index=token & ((1 << 28) - 1),
            message_bytes=log.sent[:sent, 2],
            admitted_s=log.admitted[:admitted], retired_s=log.retired[:admitted], instance=b.I[b.I[H.ORDER0] : b.I[H.ORDER0] + admitted].copy(),
            dropped=int(log.counts[tables.DROPPED] + log.counts[tables.MESSAGES]) - sent, update_s=log.span[:firings, 2][order],
        )  # fmt: skip


def _flat(lists: list[list[int]]) -> tuple[Any, Any]:
    """Return (starts, all elements) of lists."""
    return np.cumsum([0, *map(len, lists)]).astype(np.int64), np.array([x for found in lists for x in found] or [0], np.int64)


__all__ = ["Conditions", "Simulator"]
