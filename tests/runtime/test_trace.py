"""The event log: what it says of a run, what it refuses, and that its files give it back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.runtime.trace import Trace, load


def small(**changes: Any) -> Trace:
    """Two devices: device 0 fires 0-2 and 5-6, device 1 fires 3-5 after a message sent at 2 that comes at 3; it answers at 5."""
    values: dict[str, Any] = {
        "driver": "threads", "devices": ("a", "b"), "segments": ("in", "step"), "links": (),
        "start_s": [0.0, 3.0, 5.0], "end_s": [2.0, 5.0, 6.0], "device": [0, 1, 0], "queue": [0, 2, 3], "tokens": [2, 2, 1], "updates": [0, 0, 1],
        "taken_firing": [0, 0, 1, 1, 2], "taken_slot": [0, 1, 0, 1, 0], "taken_index": [0, 0, 0, 0, 4],
        "sent_s": [2.0, 5.0], "arrived_s": [3.0, 5.0], "sender": [0, 1], "receiver_device": [1, 0], "message_queue": [2, 3], "message_slot": [0, 0],
        "message_index": [0, 4], "message_bytes": [8.0, 8.0], "admitted_s": [0.0, 0.5], "retired_s": [6.0, np.nan], "instance": [7, 3],
        "waiting": [2, 3, 1],
    }  # fmt: skip
    return Trace(**{**values, **changes})


def same(a: Trace, b: Trace) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Trace)]
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x == y for x, y in pairs)


def test_sums_by_device_and_queue() -> None:
    t = small()
    assert t.seconds == 6.0
    assert t.busy_s().tolist() == [3.0, 2.0]
    firings, tokens, seconds = t.by_queue()
    assert (firings.tolist(), tokens.tolist(), seconds.tolist()) == ([1, 0, 1, 1, 0], [2, 0, 2, 1, 0], [2.0, 0.0, 2.0, 1.0, 0.0])
    assert t.names() == ("in forward", "in backward", "step forward", "step backward", "update")


def test_utilisation_by_bins() -> None:
    edges, share = small().utilisation(4)
    assert edges.tolist() == [0.0, 1.5, 3.0, 4.5, 6.0]
    assert np.allclose(share, [[1.0, 0.5 / 1.5, 0.0, 1 / 1.5], [0.0, 0.0, 1.0, 0.5 / 1.5]])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=20), st.integers(1, 40))
def test_utilisation_adds_up_to_the_busy_time(spans: list[tuple[int, int]], bins: int) -> None:
    starts = np.cumsum([0, *(length + gap for length, gap in spans[:-1])]).astype(float)
    ends = starts + [length for length, _ in spans]
    n = len(spans)
    t = small(
        start_s=starts, end_s=ends, device=[0] * n, queue=[0] * n, tokens=[1] * n, updates=[0] * n, waiting=[], taken_firing=[], taken_slot=[],
        taken_index=[], sender=[-1, -1],
    )  # fmt: skip
    edges, share = t.utilisation(bins)
    assert np.allclose((share * np.diff(edges)).sum(axis=1), t.busy_s())
    assert share.min() >= -1e-12 and share.max() <= 1 + 1e-12


def test_activity_tells_waiting_from_overhead() -> None:
    t = small(arrived_s=[3.0, 4.0], sent_s=[2.0, 3.5], sender=[0, 1])
    activity = {name: value.tolist() for name, value in t.activity().items()}
    # Device a has nothing from 2 to 4, then a message, which it takes at 5; device b begins at 3 and ends at 5.
    assert activity == {"busy": [3.0, 2.0], "waiting": [2.0, 0.0], "overhead": [1.0, 0.0], "idle": [0.0, 4.0]}


def test_depths_and_instances_in_flight() -> None:
    t = small()
    times, depth = t.depths(2)
    assert (times.tolist(), depth.tolist()) == ([3.0, 3.0], [3, 1])
    assert small(waiting=[]).depths(2)[0].tolist() == []
    times, flying = t.in_flight()
    assert (times.tolist(), flying.tolist()) == ([0.0, 0.5, 6.0], [1, 2, 1])


def test_what_takes_a_message() -> None:
    assert small().takers().tolist() == [1, 2]
    assert small(arrived_s=[3.0, 5.5]).takers().tolist() == [1, -1]  # nothing takes it later
    assert small(arrived_s=[np.nan, 5.0]).takers().tolist() == [-1, 2]
    assert small(message_index=[1, 4]).takers().tolist() == [-1, 2]
    twice = small(queue=[2, 2, 3], message_queue=[2, 2], message_index=[0, 0], sent_s=[0.0, 2.0], arrived_s=[0.0, 2.5], sender=[-1, 0])
    assert twice.takers().tolist() == [0, 1]  # the state comes again when its place holds another instance


def test_a_window_numbers_its_firings_anew() -> None:
    t = small().window(2.5, 5.5)
    assert t.start_s.tolist() == [3.0, 5.0]
    assert t.taken_firing.tolist() == [0, 0, 1]
    assert t.sender.tolist() == [-1, 0]
    assert t.problems() == []
    assert small().window(0.0, 9.0).sender.tolist() == [0, 1]
    assert small().window(8.0, 9.0).start_s.tolist() == []


def test_a_sound_trace_has_no_problems() -> None:
    assert small().problems() == []
    empty = {f.name: [] for f in dataclasses.fields(Trace) if f.name not in ("driver", "devices", "segments", "links", "dropped")}
    nothing = small(**empty)
    assert nothing.problems() == []
    assert (nothing.seconds, nothing.busy_s().tolist()) == (0.0, [0.0, 0.0])


@pytest.mark.parametrize(("changes", "words"), [
    ({"start_s": [0.0, 3.0, 1.0]}, "firing 2 starts at 1.000000000 s, before firing 0 ends at 2"),
    ({"end_s": [2.0, 2.9, 6.0]}, "firing 1 ends 0.1"),
    ({"arrived_s": [1.5, 5.0]}, "message 0 arrives at 1.5"),
    ({"sent_s": [2.0, 2.5]}, "message 1 is sent before firing 1"),
    ({"device": [0, 2, 0]}, "`device` 1 is 2, expected 0 to 1"),
    ({"queue": [0, 2, 5]}, "`queue` 2 is 5, expected 0 to 4"),
    ({"sender": [0, 3]}, "`sender` 1 is 3, expected -1 to 2"),
    ({"taken_firing": [0, 0, 1, 2, 2]}, "firing 1 took 2 tokens, of which 1"),
    ({"admitted_s": [6.5, 0.5]}, "instance 7 retires before"),
    ({"start_s": [0.0, np.nan, 5.0]}, "`start_s` 1 is nan, expected 0 to 1e+09"),
    ({"retired_s": [-1.0, np.nan]}, "`retired_s` 0 is -1"),
    ({"arrived_s": [3.0, np.inf]}, "`arrived_s` 1 is inf"),
    ({"end_s": [2.0, 5.0, 1e12]}, "`end_s` 2 is 1e+12"),
])  # fmt: skip
def test_what_cannot_be_is_named(changes: dict[str, Any], words: str) -> None:
    assert any(words in p for p in small(**changes).problems())


def test_columns_of_one_table_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="`tokens` of firings has shape"):
        small(tokens=[1])


def test_files_give_it_back(tmp_path: Path) -> None:
    t = small(devices=("core:0", 'say "hi" <ü>\\'), dropped=3)
    t.save(tmp_path / "trace")
    assert same(load(tmp_path / "trace"), t)
    assert same(load(tmp_path), t)  # a run folder


def test_an_empty_trace_is_kept(tmp_path: Path) -> None:
    empty = {f.name: [] for f in dataclasses.fields(Trace) if f.name not in ("driver", "devices", "segments", "links", "dropped", "log_cost")}
    t = small(**empty)
    t.save(tmp_path)
    assert same(load(tmp_path), t)


def damaged(folder: Path, how: str) -> None:
    file = folder / "messages.parquet"
    match how:
        case "missing":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:100])
        case "foreign":
            pq.write_table(pa.table({"x": [1]}), file)
        case "other":
            small(dropped=1).save(folder / "other")
            (folder / "other" / "messages.parquet").replace(file)
        case "column":
            table = pq.read_table(file)
            pq.write_table(table.drop_columns(["sender"]), file)
        case "text":
            table = pq.read_table(file)
            pq.write_table(table.set_column(2, "sender", pa.array(["a", "b"])), file)
        case "range":
            table = pq.read_table(file)
            pq.write_table(table.set_column(2, "sender", pa.array([0, 99])), file)
        case "null":
            table = pq.read_table(file)
            pq.write_table(table.set_column(2, "sender", pa.array([0, None])), file)


@pytest.mark.parametrize("how", ["missing", "cut", "foreign", "other", "column", "text", "range", "null"])
def test_a_damaged_trace_is_one_error(tmp_path: Path, how: str) -> None:
    small().save(tmp_path)
    damaged(tmp_path, how)
    with pytest.raises(AmpError, match="AMP720.*can't be read"):
        load(tmp_path)


def test_a_folder_without_a_trace(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match="AMP720.*holds no trace"):
        load(tmp_path)
