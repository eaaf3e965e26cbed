"""Files for Perfetto: spans of a track nest or are apart, begin one after the other, last at least a nanosecond, and have names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.view import perfetto
from perfetto_file import read, sound
from trace_samples import pipeline, recorded

ODD = ("core:0", "tile<1,2>", 'say "hi"', "a->b", "node", "über", "back\\slash", "50%", "&amp;", '"><script>alert(1)</script>', "new\nline", "\x1b[31m")


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
    assert {name for _, name in found.counters.values()} == {"tokens waiting", "staleness", "instances in flight"}
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


