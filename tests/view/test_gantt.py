"""The Gantt picture: boxes are where firings were, shares add up, names break nothing, and a long trace stays a small picture."""

from __future__ import annotations

import dataclasses
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from ampc.diagnostics import AmpError
from ampc.view.gantt import BACKWARD, FORWARD, UPDATE, boxes, gantt, shares
from trace_samples import pipeline

ODD = ("core:0", "tile<1,2>", 'say "hi"', "a->b", "$x_1$", "über", "back\\slash", "50%", "&amp;", '"><script>alert(1)</script>', "new\nline", "\x1b[31m")


def test_boxes_of_a_device() -> None:
    forward, backward, updates = boxes(pipeline(2, 2), 0)
    assert np.allclose(forward * 1e6, [[0, 1], [6, 7]])
    assert np.allclose(backward * 1e6, [[4, 6], [10, 11.5]])  # its last half is an update
    assert np.allclose(updates * 1e6, [[11.5, 12]])


def test_an_update_by_order_is_one() -> None:
    trace = pipeline(2, 2)
    queue = trace.queue.copy()
    queue[1] = 2 * len(trace.segments)
    _, backward, updates = boxes(dataclasses.replace(trace, queue=queue), 0)
    assert len(backward) == 1 and np.allclose(updates[0] * 1e6, [4, 6])


def test_shares_add_up_to_the_time() -> None:
    rng = np.random.default_rng(0)
    edges = np.sort(rng.random(400))
    spans = edges.reshape(-1, 2)
    found = shares([spans[::2], spans[1::2]], 0.0, 1.0, 37)
    assert found.shape == (2, 37)
    assert found.sum(axis=1) / 37 == pytest.approx([(s[:, 1] - s[:, 0]).sum() for s in (spans[::2], spans[1::2])])
    assert found.min() >= -1e-12 and found.sum(axis=0).max() <= 1 + 1e-9


def drawn(path: Path) -> tuple[str, dict[str, int]]:
    """Return the text of an SVG, and how often each colour fills something."""
    svg = path.read_text()
    return "".join(ET.fromstring(svg).itertext()), {c: svg.count(c) for c in (FORWARD, BACKWARD, UPDATE)}


def test_three_panels(tmp_path: Path) -> None:
    panels = [(title, pipeline(4, n)) for title, n in (("Drained", 6), ("Filled", 4), ("Asynchronous", 3))]
    gantt(panels, tmp_path / "g.svg")
    words, colours = drawn(tmp_path / "g.svg")
    for text in ("Drained", "Filled", "Asynchronous", "core:3", "forward", "backward", "update", "idle", "time (µs)", "instances/s", "% busy"):
        assert text in words
    assert all(colours.values())
    gantt(panels, tmp_path / "again.svg")
    assert (tmp_path / "g.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()


def test_png_and_pdf(tmp_path: Path) -> None:
    gantt([("one", pipeline())], tmp_path / "g.png")
    gantt([("one", pipeline())], tmp_path / "g.pdf", window=(0.0, 4e-6))
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "g.pdf").read_bytes().startswith(b"%PDF")


def test_odd_names(tmp_path: Path) -> None:
    gantt([("cost: $5 & <more>", pipeline(len(ODD), 3, names=ODD))], tmp_path / "g.svg")
    words, _ = drawn(tmp_path / "g.svg")
    for name in (*ODD[:9], "cost: $5 & <more>", "new\\nline", "\\x1b[31m"):
        assert name in words


def test_many_boxes_are_drawn_as_shares(tmp_path: Path) -> None:
    gantt([("long", pipeline(2, 5000))], tmp_path / "g.svg")
    words, colours = drawn(tmp_path / "g.svg")
    assert "heights are shares of" in words and all(colours.values())
    assert (tmp_path / "g.svg").stat().st_size < 300_000


def test_of_many_devices_the_busiest_are_drawn(tmp_path: Path) -> None:
    gantt([("wide", pipeline(100, 1))], tmp_path / "g.svg")
    assert "64 of 100 devices" in drawn(tmp_path / "g.svg")[0]


def test_a_pass_without_events(tmp_path: Path) -> None:
    gantt([("nothing", pipeline(2, 2).window(1.0, 2.0))], tmp_path / "g.svg")
    assert "nothing" in drawn(tmp_path / "g.svg")[0]


def test_an_ending_that_no_picture_has(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match=r"AMP904.*must end in one of `\.svg`"):
        gantt([("one", pipeline())], tmp_path / "g.jpg")


def test_without_matplotlib_it_is_one_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(AmpError, match="(?s)AMP925.*pip install 'ampc"):
        gantt([("one", pipeline())], tmp_path / "g.svg")


def test_a_place_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match="AMP824"):
        gantt([("one", pipeline())], tmp_path / "no" / "g.svg")


def test_of_many_devices_those_that_fire_are_shown(tmp_path: Path) -> None:
    names = tuple(f"tile:{k}" for k in range(20))
    gantt([("few of many", pipeline(3, 6, names=names))], tmp_path / "g.svg")
    words, _ = drawn(tmp_path / "g.svg")
    assert "tile:2" in words and "tile:3" not in words and "3 of 20 devices (17 idle)" in words


def test_a_row_of_boxes_that_are_narrower_than_a_dot_shows_shares(tmp_path: Path) -> None:
    begin = np.arange(400) * 1e-6
    n = len(begin)
    trace = dataclasses.replace(
        pipeline(1, 1), start_s=begin, end_s=begin + 1e-8, device=np.zeros(n), queue=np.zeros(n), tokens=np.ones(n), updates=np.zeros(n),
        update_s=np.zeros(n),
    )  # fmt: skip
    gantt([("thin", trace)], tmp_path / "g.svg")
    assert "heights are shares" in drawn(tmp_path / "g.svg")[0]
