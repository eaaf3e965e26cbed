"""Load as colour: shares add up, colours follow them, names of devices stay what they are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import msgspec
import pytest

from ampc.codegen.plan import make_plan
from ampc.place import estimate, guess, load_target, place
from ampc.view import Load, dot, load, render
from ampc.view.load import RAMP, UNLOADED, amount, percent
from sample_graphs import list_reduction
from test_view import ODD, named, nodes_of, parsed
from trace_samples import pipeline


def test_nodes_of_a_segment_share_its_time() -> None:
    graph = list_reduction(hidden=4)
    placement = place(graph, load_target("cpu-2"), "round_robin")
    plan = make_plan(graph, placement.device_of)
    cost = estimate(graph, guess(graph))
    trace = pipeline(len(plan.segments), 4)
    found = load(trace, [[n.id for n in s.nodes] for s in plan.segments], cost)
    _, _, seconds = trace.by_queue()
    for s in plan.segments:
        known = [n.id for n in s.nodes if n.id in cost.nodes]  # a relay is none of the graph
        mine = sum(found.nodes[n] for n in known)
        assert not known or mine == pytest.approx((seconds[2 * s.id] + seconds[2 * s.id + 1]) / trace.seconds)
    assert found.devices == {d: pytest.approx(b / trace.seconds) for d, b in enumerate(trace.busy_s())}
    assert found.title.startswith("load simulated, ") and set(found.bytes) <= set(cost.messages)


def test_colours_follow_the_share_of_the_largest() -> None:
    some = Load({1: 0.6, 2: 0.59, 3: 0.0, 4: 0.31}, {}, {})
    assert [some.colours(n)[0] for n in (1, 2, 3, 4, 5)] == [RAMP[-1], RAMP[-1], RAMP[0], RAMP[3], UNLOADED]
    assert some.colours(1)[1] == "#ffffff" and some.colours(3)[1] != "#ffffff"
    assert [words for _, words in some.legend()][:2] == ["0 to 10 % of the time", "10 to 20 % of the time"]
    nothing = Load({1: 0.0}, {}, {})
    assert nothing.colours(1)[0] == RAMP[0] and nothing.legend() == [(UNLOADED, "computes nothing")]


def test_numbers_in_few_signs() -> None:
    assert [amount(x) for x in (4, 999, 1000, 3072, 99_600, 123_456, 5e6, 7e12)] == [
        "4 B", "999 B", "1.0 kB", "3.1 kB", "100 kB", "123 kB", "5.0 MB", "7000 GB",
    ]
    assert [percent(x) for x in (0.0, 0.0001, 0.0123, 0.099, 0.5, 1.0)] == ["0 %", "0 %", "1.2 %", "9.9 %", "50 %", "100 %"]


def test_odd_device_names_stay_as_they_are_with_a_load() -> None:
    graph, target = list_reduction(hidden=4), named(ODD)
    p = place(graph, target, "round_robin")
    p = msgspec.structs.replace(p, device_of={n.id: i % len(ODD) for i, n in enumerate(graph.nodes)})
    shown = Load({n.id: 0.1 * (k % 7) for k, n in enumerate(graph.nodes)}, dict.fromkeys(range(len(ODD)), 0.5), dict.fromkeys(graph.readers, 12.0), "l<o>ad")
    text = dot(graph, p, target, load=shown)
    assert len(nodes_of(parsed(text))) == len(graph.nodes) and len(parsed(text).get_edges()) == len(graph.readers)
    svg = render(text, "svg").decode()
    words = "".join(ET.fromstring(svg).itertext())
    for name in (*ODD[:10], "50 % of the time busy", "l<o>ad"):
        assert name in words
    assert "<script>" not in svg
