"""Room for the workers' logs of a pass, and the `Trace` that they make. `log` is what writes them.

Rooms follow from what the pass can do at most, within a limit of memory; what does not fit is counted and left out from some time on.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from ampc.codegen.layout import FIRING, INDEX_BITS, LOG, E, H
from ampc.codegen.plan import segment_names
from ampc.data.memory import available_bytes
from ampc.ir.nodes import Group
from ampc.runtime.binding import Binding
from ampc.runtime.log import SHIFT
from ampc.runtime.log_cost import log_cost
from ampc.runtime.tokens import INDEX_MASK, QUEUE_SHIFT, SLOT_MASK
from ampc.runtime.trace import Driver, Trace

Longs = npt.NDArray[np.int64]

MOST_BYTES = 1 << 30
"""Of all logs of a pass; and never more than a quarter of the memory that is free."""
_SIZES = {E.FIRINGS: FIRING, E.TAKEN: 1, E.SENT: 3, E.ARRIVED: 2}
_ROOMS = {
    E.FIRINGS: (E.FIRINGS_ROOM, E.FIRINGS0), E.TAKEN: (E.TAKEN_ROOM, E.TAKEN0), E.SENT: (E.SENT_ROOM, E.SENT0),
    E.ARRIVED: (E.ARRIVED_ROOM, E.ARRIVED0),
}  # fmt: skip


_LIKELY = {E.FIRINGS: 0.25, E.TAKEN: 1.0, E.SENT: 0.5, E.ARRIVED: 0.1}
"""Share of a room whose pages are taken before the pass begins: within it each would cost as much as several firings."""
PAGE = 4096 // 8


class Recording:
    """Gives the tables of a binding room for logs until `end` takes it away again; the pass over `order` in between is written down."""

    def __init__(self, binding: Binding, order: Longs, *, limit_bytes: int | None = None) -> None:
        self.binding = binding
        self.began_ns = 0
        self._size = len(binding.I)
        free = available_bytes()
        limit = limit_bytes if limit_bytes is not None else MOST_BYTES if free is None else min(MOST_BYTES, free // 4)
        most = self._most(order)
        wanted = sum(_SIZES[kind] * n for rooms in most for kind, n in rooms.items())
        share = min(1.0, limit / 8 / max(1, wanted))
        rooms = [{kind: int(share * n) + 8 for kind, n in of.items()} for of in most]
        stride = LOG + max(sum(_SIZES[kind] * n for kind, n in of.items()) for of in rooms)
        grown = np.zeros(self._size + 2 * len(order) + len(rooms) * stride, np.int64)  # pages that are not written to are none
        grown[: self._size] = binding.I
        grown[H.TIMES0], grown[H.LOG0], grown[H.LOG_STRIDE] = self._size, self._size + 2 * len(order), stride
        for w, of in enumerate(rooms):
            head = int(grown[H.LOG0]) + w * stride
            at = head + LOG
            for kind, n in of.items():
                room, start = _ROOMS[kind]
                grown[head + room], grown[head + start] = n, at
                grown[at : at + int(_LIKELY[kind] * n) * _SIZES[kind] : PAGE] = 0
                at += _SIZES[kind] * n
        binding.I = grown

    def _most(self, order: Longs) -> list[dict[E, int]]:
        """Return for each worker how many firings, tokens, messages sent and polls the pass can make at most."""
        b = self.binding
        states = {s.id: int(b.extents.states(s.region)[order].sum()) for s in b.plan.segments}
        updates = 2 * len(b.plan.layers) * (len(order) // max(1, b.options.min_update_frequency) + 2) if b.options.mode == "sync" else 0
        updates += len(b.plan.layers)
        messages = updates
        for s in b.plan.segments:
            for node, port in s.triggers:
                n = b.graph.by_id[node]
                elements = isinstance(n, Group) and port == 0
                messages += 2 * (int(b.extents.states(n.region)[order].sum()) if elements else states[s.id])
        out = []
        for w in range(b.workers):
            tokens = sum(2 * states[s.id] for s in b.plan.segments if b.owner_of[s.id] == w)
            between = messages if b.workers > 1 else 0
            out.append({E.FIRINGS: tokens + updates, E.TAKEN: tokens, E.SENT: between, E.ARRIVED: between})
        return out

    def begin(self) -> None:
        """The pass begins now: times count from here."""
        self.began_ns = time.monotonic_ns()

    def end(self) -> None:
        """Take the room away."""
        self.binding.I = self.binding.I[: self._size].copy()
        self.binding.I[H.LOG0] = 0

    def trace(self, driver: Driver, devices: tuple[str, ...]) -> Trace:
        """Return what was written."""
        I = self.binding.I
        total, queues = int(I[H.TOTAL]), 2 * len(self.binding.plan.segments)
        parts = [_Log(I, int(I[H.LOG0]) + w * int(I[H.LOG_STRIDE])) for w in range(self.binding.workers)]
        first = np.cumsum([0, *(len(p.firings) for p in parts)])
        firings = np.concatenate([p.firings for p in parts])
        tokens = firings[:, 2] & 0xFFFFFFFF
        taken = np.concatenate([p.taken for p in parts])
        messages, lost = _matched(parts, first)
        token = messages[:, 2]
        queue = token >> QUEUE_SHIFT
        by_order = queue >= queues
        admitted, retired = I[I[H.TIMES0] : I[H.TIMES0] + total], I[I[H.TIMES0] + total : I[H.TIMES0] + 2 * total]
        entered = admitted > 0
        return Trace(
            driver=driver, devices=devices, segments=segment_names(self.binding.plan), links=(),
            start_s=self._seconds(firings[:, 0]), end_s=self._seconds(firings[:, 1]),
            device=np.repeat(np.arange(len(parts), dtype=np.int32), np.diff(first)), queue=(firings[:, 2] >> 32).astype(np.int32),
            tokens=tokens.astype(np.int32), updates=(firings[:, 3] >> 32).astype(np.int32),
            taken_firing=np.repeat(np.arange(len(tokens), dtype=np.int32), tokens), taken_slot=(taken >> INDEX_BITS).astype(np.int32),
            taken_index=taken & INDEX_MASK,
            sent_s=self._seconds(messages[:, 0]), arrived_s=self._seconds(messages[:, 1]),
            sender=np.where(by_order, -1, messages[:, 3]).astype(np.int32), receiver_device=messages[:, 4].astype(np.int32),
            message_queue=np.where(by_order, queues, queue).astype(np.int32),
            message_slot=np.where(by_order, 0, (token >> INDEX_BITS) & SLOT_MASK).astype(np.int32),
            message_index=np.where(by_order, queue - queues, token & INDEX_MASK), message_bytes=np.full(len(token), np.nan),
            admitted_s=self._seconds(admitted[entered]), retired_s=np.where(retired[entered] > 0, self._seconds(retired[entered]), np.nan),
            instance=I[I[H.ORDER0] : I[H.ORDER0] + total][entered].copy(), dropped=lost + sum(p.lost for p in parts),
            waiting=(firings[:, 3] & 0xFFFFFFFF).astype(np.int32), update_s=firings[:, 4] * 1e-9, log_cost=log_cost(),
        )  # fmt: skip

    def _seconds(self, ns: Longs) -> npt.NDArray[np.float64]:
        return np.asarray((ns - self.began_ns) * 1e-9, np.float64)


class _Log:
    """One worker's log, as arrays: firings [n, FIRING], tokens [m], messages sent [k, 3], polls [p, 2]."""

    def __init__(self, I: Longs, head: int) -> None:
        def rows(kind: E) -> Longs:
            start, size = int(I[head + _ROOMS[kind][1]]), _SIZES[kind]
            return I[start : start + int(I[head + kind]) * size].reshape(-1, size)

        self.firings, self.sent, self.polls = rows(E.FIRINGS), rows(E.SENT), rows(E.ARRIVED)
        self.taken = rows(E.TAKEN)[:, 0]
        self.lost = int(I[head + E.LOST])


def _matched(parts: list[_Log], first: Longs) -> tuple[Longs, int]:
    """Return int64 [k, 5] (sent, arrived, token, firing or -1, receiver) of the messages whose ends are both written down, and how many are not.

    Each pair of workers has a ring, which gives messages out in the order in which they were put in.
    """
    out, lost = [np.zeros((0, 5), np.int64)], 0
    for a, sender in enumerate(parts):
        for b, receiver in enumerate(parts):
            mine = sender.sent[sender.sent[:, 2] >> SHIFT == b]
            polls = receiver.polls[receiver.polls[:, 1] >> SHIFT == a]
            times = np.repeat(polls[:, 0], polls[:, 1] & ((1 << SHIFT) - 1))
            n = min(len(mine), len(times))
            lost += len(mine) - n
            number = (mine[:n, 2] & ((1 << SHIFT) - 1)) - 1
            firing = np.where(number >= 0, number + first[a], -1)
            out.append(np.stack([mine[:n, 0], times[:n], mine[:n, 1], firing, np.full(n, b)], axis=1))
    return np.concatenate(out), lost
