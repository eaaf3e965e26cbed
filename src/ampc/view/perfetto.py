"""A trace as a file for Perfetto (ui.perfetto.dev): firings by device and messages by link as slices, counters, arrows from senders to receivers.

Protobuf `TrackEvent`s with times in whole nanoseconds: slices of a track nest or are apart, begin one after the other, and last at least 1 ns.
The size is bounded: a trace that is too long is cut off at the end, and arrows are sampled.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.data.write import replacing
from ampc.diagnostics import printable
from ampc.runtime.trace import Trace, grouped

MOST_BYTES = 64 << 20
MOST_FLOWS = 20_000
FIRST_BYTES = 60
"""What a firing takes about, slices and counters together: the first guess at what fits. A message on a link takes about as much."""
CATEGORIES = ("forward", "backward", "update")
NOTES = ("tokens", "updates")
LINK_NOTES = ("bytes", "waited ns")
"""Of a message on a link: its weight, and how long it waited for those before it."""
PASS = 1
"""Process of what belongs to no device, and that of links."""
LINKS = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What a file holds: firings, arrows, bytes; and how much of the window was left out for its size."""

    firings: int
    flows: int
    size_bytes: int
    left_out: int


def write(
    trace: Trace, path: str | Path, *, window: tuple[float, float] | None = None, most_bytes: int = MOST_BYTES, most_flows: int = MOST_FLOWS
) -> Written:
    """Write what happened within `window` (seconds; None: all) to `path`, in at most `most_bytes`. Raises AmpError AMP824 if it can't."""
    whole = trace if window is None else trace.window(*window)
    total = len(whole.start_s)
    begin = window[0] if window is not None else 0.0
    each = FIRST_BYTES * (1 + len(whole.crossed_link) / max(1, total))
    room = total if total * each <= most_bytes else int(most_bytes / each)
    while True:
        part = whole
        if room < total:
            part = whole.window(begin, float(np.sort(whole.start_s)[room]))
        data, flows = _bytes(part, most_flows)
        if len(data) <= most_bytes or room == 0:
            break
        room = int(room * 0.9 * most_bytes / len(data))
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return Written(len(part.start_s), flows, len(data), total - len(part.start_s))


def _bytes(trace: Trace, most_flows: int) -> tuple[bytes, int]:
    """Return the file, and how many arrows it has."""
    takers = trace.takers()
    order = np.lexsort((trace.start_s, trace.device))
    devices, first = np.unique(trace.device[order], return_index=True)
    groups = np.split(order, first[1:]) if len(order) else []
    times = np.zeros((len(order), 2), np.int64)
    for mine in groups:
        times[mine] = np.stack(nanoseconds(trace.start_s[mine], trace.end_s[mine]), axis=1)
    flows = _flows(trace, takers, times[:, 0], most_flows)
    out = _Out(trace, takers, times, flows)
    for d, mine in zip(devices.tolist(), groups, strict=True):
        out.device(d, mine)
    out.links()
    out.instances()
    return out.data.getvalue(), len(flows)


def nanoseconds(start_s: npt.NDArray[np.float64], end_s: npt.NDArray[np.float64]) -> tuple[list[int], list[int]]:
    """Return (start, end) of a device's firings in whole nanoseconds: none is empty, and each begins after the one before it has ended.

    Firings of less than a nanosecond, which virtual time may have, move those behind them on.
    """
    starts, ends = np.rint(start_s * 1e9).astype(np.int64).tolist(), np.rint(end_s * 1e9).astype(np.int64).tolist()
    last = 0
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        starts[k] = max(start, last)
        ends[k] = last = max(end, starts[k] + 1)
    return starts, ends


def _flows(trace: Trace, takers: npt.NDArray[np.int32], start: npt.NDArray[np.int64], most: int) -> list[tuple[int, int]]:
    """Return (sending firing, receiving firing) of messages whose ends are both there, at most `most`, evenly picked; each pair once.

    An arrow that would point back, since times are rounded, is left out.
    """
    kept = np.flatnonzero((trace.sender >= 0) & (takers >= 0))
    pairs = np.unique(np.stack([trace.sender[kept], takers[kept]], axis=1), axis=0) if len(kept) else np.zeros((0, 2), np.int32)
    pairs = pairs[start[pairs[:, 0]] < start[pairs[:, 1]]]
    if len(pairs) > most:
        pairs = pairs[np.linspace(0, len(pairs) - 1, most).astype(np.int64)] if most else pairs[:0]
    return [(int(a), int(b)) for a, b in pairs]


class _Out:
    """Writes the packets. Each device has a sequence of its own, which first says the names that its events have by number.

    Serialised messages of one kind may be concatenated to merge them: events are put together from parts that are serialised once.
    """

    def __init__(self, trace: Trace, takers: npt.NDArray[np.int32], times: npt.NDArray[np.int64], flows: list[tuple[int, int]]) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

        self.trace, self.takers, self.times = trace, takers, times
        self.sends: dict[int, list[int]] = {}
        self.takes: dict[int, list[int]] = {}
        for number, (a, b) in enumerate(flows, start=1):
            self.sends.setdefault(a, []).append(number)
            self.takes.setdefault(b, []).append(number)
        self.received = grouped(trace.receiver_device, len(trace.devices))
        self.data = io.BytesIO()
        self.packets, self.events = TracePacket, TrackEvent
        self.time_tag = _varint(TracePacket.TIMESTAMP_FIELD_NUMBER << 3)
        self.event_tag = _varint(TracePacket.TRACK_EVENT_FIELD_NUMBER << 3 | 2)
        self.names = trace.names()
        self.stale = trace.staleness()
        self.head = b""

    # ------------------------------------------------------------------------------------------------ tracks

    def device(self, d: int, mine: npt.NDArray[np.int64]) -> None:
        """Write a device: a process with a thread of its firings `mine`, in order of start, and how many tokens wait there."""
        t, e = self.trace, self.events
        process, thread, waiting, stale = range(4 * d + 8, 4 * d + 12)
        self._begin(d + 3)
        self._process(process, d + 3, t.devices[d])
        packet = self.packets()
        packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = thread, process
        packet.track_descriptor.thread.pid, packet.track_descriptor.thread.tid = d + 3, d + 3
        packet.track_descriptor.thread.thread_name = "firings"
        self._put(packet)
        kinds = self._kinds(thread, np.unique(t.queue[mine]).tolist())
        update = kinds[-1]
        end = e(type=e.TYPE_SLICE_END, track_uuid=thread).SerializeToString()
        notes: dict[tuple[int, int], bytes] = {}
        starts, ends = self.times[mine, 0].tolist(), self.times[mine, 1].tolist()
        queues, tokens, updates = t.queue[mine].tolist(), t.tokens[mine].tolist(), t.updates[mine].tolist()
        spent = np.rint(t.update_s[mine] * 1e9).astype(np.int64).tolist() if len(t.update_s) else [0] * len(mine)
        for k, firing in enumerate(mine.tolist()):
            key = tokens[k], updates[k]
            if key not in notes:
                notes[key] = self._notes(*key)
            body = kinds[queues[k]] + notes[key]
            if firing in self.sends or firing in self.takes:
                body += e(flow_ids=self.sends.get(firing, ()), terminating_flow_ids=self.takes.get(firing, ())).SerializeToString()
            self._event(starts[k], body)
            if spent[k] > 0 and ends[k] - starts[k] >= 3:
                self._event(max(starts[k] + 1, ends[k] - 1 - spent[k]), update)
                self._event(ends[k] - 1, end)
            self._event(ends[k], end)
        self._counter(waiting, process, "tokens waiting", self._waiting(mine, starts))
        ages = self.stale[mine].tolist()
        if max(ages) >= 0:
            self._counter(stale, process, "staleness", ((start, age) for start, age in zip(starts, ages, strict=True) if age >= 0))

    def links(self) -> None:
        """Write a track for each link that carried something: a slice for each message, while its bytes are on the link."""
        t, e, found = self.trace, self.events, self.trace.crossings()
        if not len(found.link):
            return
        first = 4 * len(t.devices) + 8
        self._begin(LINKS)
        self._process(first, LINKS, "links")
        by_time = np.lexsort((found.left_s, found.entered_s, found.link))
        numbers, starts_at = np.unique(found.link[by_time], return_index=True)
        for link, mine in zip(numbers.tolist(), np.split(by_time, starts_at[1:]), strict=True):
            track = first + 1 + link
            self._begin(len(t.devices) + 3 + link)
            packet = self.packets()
            packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid = track, first
            packet.track_descriptor.name = printable(t.links[link])
            self._put(packet)
            queues = t.message_queue[found.message[mine]]
            kinds = self._kinds(track, np.unique(queues).tolist(), LINK_NOTES)
            end = e(type=e.TYPE_SLICE_END, track_uuid=track).SerializeToString()
            sizes = np.nan_to_num(t.message_bytes[found.message[mine]]).astype(np.int64).tolist()
            waited = np.rint((found.entered_s[mine] - found.came_s[mine]) * 1e9).astype(np.int64).tolist()
            starts, ends = nanoseconds(found.entered_s[mine], found.left_s[mine])
            for q, size, wait, start, stop in zip(queues.tolist(), sizes, waited, starts, ends, strict=True):
                self._event(start, kinds[q] + self._notes(size, wait))
                self._event(stop, end)

    def _kinds(self, track: int, queues: list[int], notes: Sequence[str] = NOTES) -> dict[int, bytes]:
        """Say the names of a track's events; return how an event of each queue begins, and (at -1) that of an update within a firing."""
        last = 2 * len(self.trace.segments)
        packet = self.packets()
        names = {q: self.names[q] for q in queues} | {-1: "update"}
        for iid, name in enumerate(names.values(), start=1):
            packet.interned_data.event_names.add(iid=iid, name=printable(name))
        for iid, name in enumerate(CATEGORIES, start=1):
            packet.interned_data.event_categories.add(iid=iid, name=name)
        for iid, name in enumerate(notes, start=1):
            packet.interned_data.debug_annotation_names.add(iid=iid, name=name)
        self._put(packet)
        out = {}
        for iid, q in enumerate(names, start=1):
            category = 3 if q in (-1, last) else 1 + (q & 1)
            event = self.events(type=self.events.TYPE_SLICE_BEGIN, track_uuid=track, name_iid=iid, category_iids=[category])
            out[q] = event.SerializeToString()
        return out

    def _notes(self, *values: int) -> bytes:
        """Return the part of an event with what belongs to the notes of its track."""
        event = self.events()
        for iid, value in enumerate(values, start=1):
            if value:
                event.debug_annotations.add(name_iid=iid, int_value=value)
        return bytes(event.SerializeToString())

    def instances(self) -> None:
        """Write how many instances are in flight."""
        self._begin(1)
        self._process(PASS, 1, f"pass ({self.trace.driver})")
        times, flying = self.trace.in_flight()
        samples = zip(np.rint(times * 1e9).astype(np.int64).tolist(), flying.tolist(), strict=True)
        self._counter(2, PASS, "instances in flight", samples)

    def _process(self, uuid: int, pid: int, name: str) -> None:
        packet = self.packets()
        packet.track_descriptor.uuid = uuid
        packet.track_descriptor.process.pid, packet.track_descriptor.process.process_name = pid, printable(name)
        self._put(packet)

    def _counter(self, uuid: int, process: int, name: str, samples: Iterable[tuple[int, int]]) -> None:
        """Write a counter; of samples at one time the last."""
        packet = self.packets()
        packet.track_descriptor.uuid, packet.track_descriptor.parent_uuid, packet.track_descriptor.name = uuid, process, name
        packet.track_descriptor.counter.SetInParent()
        self._put(packet)
        e, bodies, before = self.events, dict[int, bytes](), None
        last = dict(samples)
        for time in sorted(last):
            value = last[time]
            if value == before:
                continue
            before = value
            if value not in bodies:
                bodies[value] = e(type=e.TYPE_COUNTER, track_uuid=uuid, counter_value=value).SerializeToString()
            self._event(time, bodies[value])

    def _waiting(self, mine: npt.NDArray[np.int64], starts: list[int]) -> Iterator[tuple[int, int]]:
        """Yield (nanoseconds, tokens that wait) at the device of `mine`: in each of its queues as many as when it last fired; if that is not
        recorded, the messages that no firing has taken yet."""
        t = self.trace
        if len(t.waiting):
            last: dict[int, int] = {}
            total = 0
            left = (t.waiting[mine] - t.tokens[mine]).tolist()
            for time, q, n in zip(starts, t.queue[mine].tolist(), left, strict=True):
                total += n - last.get(q, 0)
                last[q] = n
                yield time, total
            return
        here = self.received[int(t.device[mine[0]])]
        here = here[np.isfinite(t.arrived_s[here])]
        takers = self.takers[here]
        times = np.concatenate([t.arrived_s[here], t.start_s[takers[takers >= 0]]])
        steps = np.repeat([1, -1], [len(here), int((takers >= 0).sum())])
        order = np.argsort(times, kind="stable")
        yield from zip(np.rint(times[order] * 1e9).astype(np.int64).tolist(), np.cumsum(steps[order]).tolist(), strict=True)

    # ------------------------------------------------------------------------------------------------ packets

    def _begin(self, sequence: int) -> None:
        """Begin a sequence."""
        p = self.packets
        first = p(trusted_packet_sequence_id=sequence, sequence_flags=p.SEQ_INCREMENTAL_STATE_CLEARED)
        self.head = b""
        self._put(first)
        self.head = p(trusted_packet_sequence_id=sequence, sequence_flags=p.SEQ_NEEDS_INCREMENTAL_STATE).SerializeToString()

    def _put(self, packet: Any) -> None:
        """Write a packet of this sequence."""
        body = self.head + packet.SerializeToString()
        self.data.write(b"\x0a" + _varint(len(body)) + body)  # field 1 of a Trace: a packet

    def _event(self, time: int, event: bytes) -> None:
        """Write a serialised event of this sequence."""
        body = self.head + self.time_tag + _varint(time) + self.event_tag + _varint(len(event)) + event
        self.data.write(b"\x0a" + _varint(len(body)) + body)


_SMALL = [bytes([value]) for value in range(128)]


def _varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


__all__ = ["MOST_BYTES", "Written", "nanoseconds", "write"]
