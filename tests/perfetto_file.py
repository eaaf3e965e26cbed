"""Reads a file for Perfetto as a viewer does, and checks what a viewer needs of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


@dataclasses.dataclass
class Read:
    """A file as a viewer reads it: tracks, slices (begin, end, name, depth, flows) of each thread, samples of each counter."""

    processes: dict[int, str] = dataclasses.field(default_factory=dict)
    threads: dict[int, int] = dataclasses.field(default_factory=dict)
    links: dict[int, str] = dataclasses.field(default_factory=dict)
    counters: dict[int, tuple[int, str]] = dataclasses.field(default_factory=dict)
    slices: dict[int, list[tuple[int, int, str, int]]] = dataclasses.field(default_factory=dict)
    samples: dict[int, list[tuple[int, int]]] = dataclasses.field(default_factory=dict)
    flows: dict[int, list[tuple[str, int, int]]] = dataclasses.field(default_factory=dict)
    notes: list[dict[str, int]] = dataclasses.field(default_factory=list)


def read(path: Path) -> Read:
    file = protos.Trace()
    file.ParseFromString(path.read_bytes())
    out = Read()
    names: dict[tuple[int, str, int], str] = {}
    open_: dict[int, list[tuple[int, str, int]]] = {}
    seen: set[int] = set()
    for packet in file.packet:
        sequence = packet.trusted_packet_sequence_id
        assert sequence > 0
        assert (sequence in seen) == bool(packet.sequence_flags & packet.SEQ_NEEDS_INCREMENTAL_STATE)
        seen.add(sequence)
        for table in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, table):
                names[sequence, table, entry.iid] = entry.name
        d = packet.track_descriptor
        if packet.HasField("track_descriptor"):
            if d.HasField("process"):
                out.processes[d.uuid] = d.process.process_name
            elif d.HasField("thread"):
                out.threads[d.uuid] = d.parent_uuid
                assert d.thread.thread_name == "firings"
            elif d.HasField("counter"):
                out.counters[d.uuid] = d.parent_uuid, d.name
            else:
                out.links[d.uuid] = d.name
                assert out.processes[d.parent_uuid] == "links"
            continue
        event, time = packet.track_event, packet.timestamp
        match event.type:
            case event.TYPE_SLICE_BEGIN:
                stack = open_.setdefault(event.track_uuid, [])
                stack.append((time, names[sequence, "event_names", event.name_iid], len(out.slices.setdefault(event.track_uuid, []))))
                out.slices[event.track_uuid].append((time, -1, stack[-1][1], len(stack) - 1))
                for id_ in event.flow_ids:
                    out.flows.setdefault(id_, []).append(("from", event.track_uuid, time))
                for id_ in event.terminating_flow_ids:
                    out.flows.setdefault(id_, []).append(("to", event.track_uuid, time))
                if event.debug_annotations:
                    out.notes.append({names[sequence, "debug_annotation_names", a.name_iid]: a.int_value for a in event.debug_annotations})
            case event.TYPE_SLICE_END:
                begin, name, place = open_[event.track_uuid].pop()
                out.slices[event.track_uuid][place] = (begin, time, name, len(open_[event.track_uuid]))
            case event.TYPE_COUNTER:
                out.samples.setdefault(event.track_uuid, []).append((time, event.counter_value))
    assert all(not stack for stack in open_.values())
    return out


def sound(found: Read) -> None:
    """What CASES O05 asks for."""
    for slices in found.slices.values():
        before = -1
        stack: list[tuple[int, int]] = []
        for begin, end, name, _ in slices:
            assert name and end > begin
            assert begin > before  # start times rise
            before = begin
            while stack and stack[-1][1] <= begin:
                stack.pop()
            assert not stack or end < stack[-1][1]  # nested
            stack.append((begin, end))
    assert set(found.slices) <= set(found.threads) | set(found.links)
    assert set(found.threads.values()) <= set(found.processes)
    for samples in found.samples.values():
        times = [t for t, _ in samples]
        assert times == sorted(set(times)) and all(value >= 0 for _, value in samples)
    for ends in found.flows.values():
        assert [what for what, _, _ in sorted(ends, key=lambda e: e[2])] == ["from", "to"]
