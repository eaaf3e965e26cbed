"""Files for Perfetto: spans of a track nest or are apart, begin one after the other, last at least a nanosecond, and have names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from ampc.diagnostics import AmpError
from ampc.view import perfetto
from trace_samples import pipeline, recorded

ODD = ("core:0", "tile<1,2>", 'say "hi"', "a->b", "node", "über", "back\\slash", "50%", "&amp;", '"><script>alert(1)</script>', "new\nline", "\x1b[31m")


@dataclasses.dataclass
class Read:
    """A file as a viewer reads it: tracks, slices (begin, end, name, depth, flows) of each thread, samples of each counter."""

    processes: dict[int, str] = dataclasses.field(default_factory=dict)
    threads: dict[int, int] = dataclasses.field(default_factory=dict)
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
            else:
                out.counters[d.uuid] = d.parent_uuid, d.name
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
    assert set(found.slices) <= set(found.threads)
    assert set(found.threads.values()) <= set(found.processes)
    for samples in found.samples.values():
        times = [t for t, _ in samples]
        assert times == sorted(set(times)) and all(value >= 0 for _, value in samples)
    for ends in found.flows.values():
        assert [what for what, _, _ in sorted(ends, key=lambda e: e[2])] == ["from", "to"]


@pytest.mark.parametrize("driver", ["threads", "step"])
def test_a_measured_pass_of_200_instances(tmp_path: Path, driver: str) -> None:
    trace = recorded(driver=driver)
    done = perfetto.write(trace, tmp_path / "t.perfetto-trace")
    found = read(tmp_path / "t.perfetto-trace")
    sound(found)
    assert done.firings == sum(depth == 0 for s in found.slices.values() for *_, depth in s) == len(trace.start_s)
    assert done.left_out == 0 and done.flows == len(found.flows) > 0
    assert done.size_bytes == (tmp_path / "t.perfetto-trace").stat().st_size
    assert sorted(found.processes.values()) == ["0", "1", "2", f"pass ({driver})"]
    assert {name for _, name in found.counters.values()} == {"tokens waiting", "instances in flight"}
    assert any(name == "update" for s in found.slices.values() for *_, name, depth in s if depth == 1)
    assert sum(n.get("tokens", 0) for n in found.notes) == int(trace.tokens.sum())


def test_a_pipeline_is_drawn_as_it_was(tmp_path: Path) -> None:
    trace = pipeline()
    perfetto.write(trace, tmp_path / "t")
    found = read(tmp_path / "t")
    sound(found)
    first = next(u for u, p in found.threads.items() if found.processes[p] == "core:0")
    shown = [s for s in found.slices[first] if s[3] == 0]
    assert shown[:2] == [(0, 1000, "0 layer0 forward", 0), (7000, 9000, "0 layer0 backward", 0)]
    assert [s for s in found.slices[first] if s[3] == 1] == [(shown[-1][1] - 1 - 500, shown[-1][1] - 1, "update", 1)]
    flying = next(s for u, s in found.samples.items() if found.counters[u][1] == "instances in flight")
    assert [v for _, v in flying] == [1, 0]  # one leaves as the next comes
    assert len(found.flows) == len(trace.sent_s)


@pytest.mark.parametrize("driver", ["threads", "simulate"])
def test_times_below_a_nanosecond_neither_overlap_nor_vanish(tmp_path: Path, driver: str) -> None:
    perfetto.write(pipeline(fwd_s=1e-11, driver=driver), tmp_path / "t")
    sound(read(tmp_path / "t"))


def test_odd_names_of_devices(tmp_path: Path) -> None:
    perfetto.write(pipeline(len(ODD), names=ODD), tmp_path / "t")
    found = read(tmp_path / "t")
    sound(found)
    shown = set(found.processes.values())
    assert set(ODD[:10]) <= shown and {"new\\nline", "\\x1b[31m"} <= shown


def test_a_window_shows_what_begins_there(tmp_path: Path) -> None:
    trace = pipeline(3, 20)
    done = perfetto.write(trace, tmp_path / "t", window=(9e-6, 18e-6))
    found = read(tmp_path / "t")
    sound(found)
    begins = [b for s in found.slices.values() for b, *_ in s]
    assert done.firings == 6 and min(begins) >= 9000 and max(begins) < 18000


def test_the_size_is_bounded(tmp_path: Path) -> None:
    trace = recorded(n=60)
    whole = perfetto.write(trace, tmp_path / "whole")
    done = perfetto.write(trace, tmp_path / "t", most_bytes=whole.size_bytes // 3, most_flows=10)
    assert done.size_bytes <= whole.size_bytes // 3 and (tmp_path / "t").stat().st_size == done.size_bytes
    assert 0 < done.firings < len(trace.start_s) and done.firings + done.left_out == len(trace.start_s)
    assert done.flows <= 10
    sound(read(tmp_path / "t"))
    assert perfetto.write(trace, tmp_path / "none", most_bytes=0).firings == 0


def test_an_empty_trace(tmp_path: Path) -> None:
    nothing = pipeline(2, 2).window(1.0, 2.0)
    assert len(nothing.start_s) == 0
    assert perfetto.write(nothing, tmp_path / "t").firings == 0
    sound(read(tmp_path / "t"))


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match="AMP824"):
        perfetto.write(pipeline(), tmp_path / "no" / "t")


def test_waiting_is_told_by_messages_where_queues_were_not_recorded(tmp_path: Path) -> None:
    trace = pipeline(2, 3)
    late = dataclasses.replace(trace, arrived_s=trace.arrived_s - 0.5e-6, sent_s=trace.sent_s - 0.5e-6)
    perfetto.write(late, tmp_path / "t")
    found = read(tmp_path / "t")
    waiting = [s for u, s in found.samples.items() if found.counters[u][1] == "tokens waiting"]
    assert waiting and all({v for _, v in s} == {0, 1} for s in waiting)


@given(st.lists(st.tuples(st.floats(0, 3e-9), st.floats(0, 3e-9)), max_size=30))
def test_nanoseconds_of_a_device(spans: list[tuple[float, float]]) -> None:
    gaps = np.array(spans).reshape(-1, 2)
    edges = np.cumsum(gaps.reshape(-1))
    starts, ends = perfetto.nanoseconds(edges[0::2], edges[1::2])
    assert all(e > s for s, e in zip(starts, ends))
    assert all(s >= e for s, e in zip(starts[1:], ends))
    for k, start in enumerate(starts):
        assert start - edges[2 * k] * 1e9 < k + 1


