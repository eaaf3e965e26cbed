"""The same network written anew as processes of SimPy: what the event core is compared with. Devices take one message a firing; nothing is updated."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import simpy

from ampc.place.target import Target
from ampc.place.topology import Network
from ampc.simulate.flow import Flow

SOURCE_FORWARD, RETIREMENT, BACKWARD, FORWARD = 0, 0, 1, 2
"""Ranks: what a device takes first."""


class Model:
    """Runs `instances` of the first template; `makespan` is the time of the last event, `retired` that of each instance."""

    def __init__(self, flow: Flow, target: Target, instances: int, in_flight: int) -> None:
        self.env = simpy.Environment()
        self.network, self.links = Network(target), {}  # type: ignore[var-annotated]
        self.t, self.left, self.source = flow.tables, iter(range(instances)), int(flow.tables.device[0])
        self.sends: list[list[tuple[int, float]]] = [[] for _ in self.t.segment]
        self.answers: list[list[tuple[int, float]]] = [[] for _ in self.t.segment]
        for k in range(len(self.t.segment)):
            self.sends[k] = [(int(self.t.sent_to[e]), float(self.t.sent_bytes[e])) for e in range(self.t.sent_first[k], self.t.sent_first[k + 1])]
            self.answers[k] = [(int(self.t.answer_to[e]), float(self.t.answer_bytes[e])) for e in range(self.t.answer_first[k], self.t.answer_first[k + 1])]
        self.waits: dict[tuple[int, int, bool], int] = {}
        self.queues: list[list[Any]] = [[] for _ in target.devices]
        self.bells = [self.env.event() for _ in target.devices]
        self.arrivals = 0
        self.retired: dict[int, float] = {}
        for d in range(len(target.devices)):
            self.env.process(self.device(d))
        for _ in range(in_flight):
            self.admit()
        self.env.run()
        self.makespan = max(self.retired.values(), default=0.0)

    def admit(self) -> None:
        instance = next(self.left, None)
        if instance is not None:
            self.enqueue(instance, 0, False)

    def owner(self, firing: int) -> int:
        return int(self.t.device[self.t.segment[firing]])

    def enqueue(self, instance: int, firing: int, backward: bool) -> None:
        rank = 0 if firing == 0 else BACKWARD if backward else FORWARD
        heapq.heappush(self.queues[self.owner(firing)], (rank, self.arrivals, instance, firing, backward))
        self.arrivals += 1
        bell = self.bells[self.owner(firing)]
        if not bell.triggered:
            bell.succeed()

    def device(self, d: int) -> Iterator[Any]:
        while True:
            if not self.queues[d]:
                self.bells[d] = self.env.event()
                yield self.bells[d]
            _, _, instance, firing, backward = heapq.heappop(self.queues[d])
            yield self.env.timeout(float(self.t.seconds[firing, int(backward)]))
            if firing == 0 and backward:
                self.retired[instance] = self.env.now
                self.admit()
            else:
                self.send(d, instance, self.answers[firing] if backward else self.sends[firing], backward)
                if not backward:
                    self.waits[instance, firing, True] = len(self.sends[firing])
                    if not self.sends[firing]:
                        self.enqueue(instance, firing, True)

    def send(self, d: int, instance: int, messages: Sequence[tuple[int, float]], backward: bool) -> None:
        for to, size in messages:
            if self.owner(to) == d:
                self.arrive(instance, to, backward)
            else:
                self.env.process(self.travel(d, instance, to, size, backward))

    def travel(self, d: int, instance: int, to: int, size: float, backward: bool) -> Iterator[Any]:
        for hop in self.network.path(d, self.owner(to)):
            link = self.network.links[hop]
            wire = self.links.setdefault(hop, simpy.Resource(self.env, capacity=1))
            with wire.request() as turn:
                yield turn
                yield self.env.timeout(size / link.bytes_per_s)
            yield self.env.timeout(link.latency_s)
        self.arrive(instance, to, backward)

    def arrive(self, instance: int, to: int, backward: bool) -> None:
        key = instance, to, backward
        left = self.waits.get(key, int(self.t.need[to])) - 1
        self.waits[key] = left
        if left == 0:
            self.enqueue(instance, to, backward)
