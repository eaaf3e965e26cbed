"""When messages were on links: the second reckoning agrees with the simulation that sent them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampc.place.target import Links, Target
from ampc.place.topology import Network
from ampc.runtime.trace import load
from ampc.simulate import core
from ampc.simulate.cost_only import Settings, simulate
from ampc.simulate.crossings import crossings
from ampc.simulate.flow import synthetic
from ampc.view import perfetto
from perfetto_file import read, sound
from tests.simulate.networks import sender_devices, target, varied

TOPOLOGIES: dict[str, dict[str, Any]] = {"full": {}, "star": {}, "ring": {}, "mesh": {"columns": 2}, "torus": {"columns": 3}, "tree": {"branching": 2}}


def on(topology: str) -> Target:
    made = target(6)
    return Target("test", made.devices, Links(topology, 300.0, 0.25, **TOPOLOGIES[topology]))  # type: ignore[arg-type]  # a name of a topology


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_links_carry_what_the_simulation_says_at_the_times_at_which_messages_arrive(topology: str) -> None:
    made = on(topology)
    result = simulate(varied(synthetic("tree", 15, 6), 6, seed=3), made, 12, Settings(max_active_keys=4, events=5_000, crossings=True))
    trace, totals = result.trace, result.totals
    assert trace is not None and trace.problems() == []
    found, n = trace.crossings(), len(trace.links)
    assert np.bincount(found.link, minlength=n) == pytest.approx(totals.link_messages)
    assert np.bincount(found.link, found.left_s - found.entered_s, n) == pytest.approx(totals.link_busy_s)
    assert np.bincount(found.link, trace.message_bytes[found.message], n) == pytest.approx(totals.link_bytes)
    assert (found.entered_s >= found.came_s - 1e-9).all() and (found.entered_s > found.came_s + 1e-9).any()
    last = np.zeros(len(trace.sent_s))
    np.maximum.at(last, found.message, found.left_s)
    assert last + made.links.latency_s == pytest.approx(trace.arrived_s)
    hops = [len(Network(made).path(int(a), int(b))) for a, b in zip(sender_devices(trace), trace.receiver_device)]
    assert np.bincount(found.message, minlength=len(hops)).tolist() == hops


def test_what_goes_as_one_is_told_apart_by_bytes() -> None:
    links, _ = core.links_between(Network(on("full")), [(0, 1)], 2)
    one = np.zeros(3, np.int64)
    found = crossings(links, one, one + 1, np.array([1.0, 1.0, 5.0]), np.array([300.0, 600.0, 300.0]), grouped=True)
    assert found.message.tolist() == [0, 1, 2]
    assert found.entered_s.tolist() == [1.0, 2.0, 5.0]
    assert found.left_s.tolist() == [2.0, 4.0, 6.0]
    assert found.came_s.tolist() == [1.0, 1.0, 5.0]


def test_a_message_of_an_unknown_sender_is_left_out() -> None:
    links, _ = core.links_between(Network(on("full")), [(0, 1)], 2)
    found = crossings(links, np.array([-1, 0]), np.array([1, 1]), np.zeros(2), np.full(2, 300.0))
    assert (found.message.tolist(), found.left_s.tolist()) == ([1], [1.0])


def test_a_file_for_perfetto_has_a_track_for_each_link_and_counts_staleness(tmp_path: Path) -> None:
    flow = varied(synthetic("chain", 8, 6), 6, seed=1)
    flow = dataclasses.replace(flow, tables=flow.tables._replace(frequency=np.full(len(flow.layers), 3.0)))
    result = simulate(flow, on("mesh"), 30, Settings(max_active_keys=8, events=5_000, crossings=True))
    trace = result.trace
    assert trace is not None
    trace.save(tmp_path / "trace")
    again = load(tmp_path / "trace")
    assert all(np.array_equal(a, b) for a, b in zip(trace.crossings(), again.crossings()))
    perfetto.write(again, tmp_path / "t")
    found = read(tmp_path / "t")
    sound(found)
    crossed = trace.crossings()
    assert {found.links[track]: len(found.slices[track]) for track in found.links} == {
        trace.links[link]: int((crossed.link == link).sum()) for link in np.unique(crossed.link)
    }
    notes = [n for n in found.notes if "bytes" in n]
    assert sum(n["bytes"] for n in notes) == int(np.floor(trace.message_bytes[crossed.message]).sum())
    waited = sum(n.get("waited ns", 0) for n in notes)
    assert waited == pytest.approx(1e9 * (crossed.entered_s - crossed.came_s).sum(), rel=1e-6)
    backward = trace.staleness()[(trace.queue % 2 == 1) & (trace.queue > 1)]
    assert np.bincount(backward, minlength=64).tolist() == result.staleness.sum(axis=0).tolist()
    ages = {v for track, samples in found.samples.items() if found.counters[track][1] == "staleness" for _, v in samples}
    assert ages <= set(trace.staleness().tolist()) and max(ages) == trace.staleness().max() > 0
    part = perfetto.write(again, tmp_path / "part", window=(0.0, trace.seconds / 3))
    cut = read(tmp_path / "part")
    sound(cut)
    shown = [b for track in cut.links for b, *_ in cut.slices.get(track, [])]
    assert part.firings < len(trace.start_s) and shown and max(shown) <= 1e9 * trace.seconds / 3
