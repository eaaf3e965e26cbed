"""The ways of messages: over links that join end to end, as short as an exhaustive search finds, and never built for all pairs."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.place import GivenLink, HostNetwork, Level, Links, Network, Target, load_target, resized
from ampc.place.target import verify_target

BASE = load_target("fpga_1tflops")
ETHERNET = HostNetwork(bytes_per_s=1e9, latency_s=10e-6)


def target(topology: str, n: int, **more: object) -> Target:
    device = BASE.devices[0]
    devices = tuple(msgspec.structs.replace(device, name=f"d{i}") for i in range(n))
    made = Target("t", devices, Links(topology, 2e9, 1e-6, **more))  # type: ignore[arg-type]  # a topology, by name
    assert verify_target(made, "t") == []
    return made


@st.composite
def targets(draw: st.DrawFn) -> Target:
    kind = draw(st.sampled_from(["shared", "full", "star", "ring", "mesh", "torus", "tree", "hosts", "links"]))
    a, b = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    n = a * b
    match kind:
        case "mesh" | "torus":
            return target(kind, n, columns=a)
        case "tree":
            return target(kind, n, branching=draw(st.integers(2, 6)))
        case "hosts":
            return target(kind, n, host_devices=a, network=ETHERNET)
        case "links":
            # A chain both ways, so that all are joined, and some more links.
            pairs = {(i, i + 1) for i in range(n - 1)} | {(x, y) for x, y in draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=8)) if x + 1 < y}
            return target(kind, n, link=tuple(GivenLink(f"d{x}", f"d{y}", 1e9, 1e-6) for x, y in sorted(pairs)))
        case _:
            return target(kind, n)


@given(targets(), st.data())
@settings(max_examples=300, deadline=None)
def test_links_of_a_path_join_end_to_end_and_it_is_the_shortest(t: Target, data: st.DataObject) -> None:
    n = len(t.devices)
    a, b = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    network = Network(t)
    hops, byte_s, latency_s = network.hops(a, b), network.byte_s(a, b), network.latency_s(a, b)
    path = network.path(a, b)
    assert len(path) == hops
    assert byte_s == pytest.approx(sum(1 / network.links[i].bytes_per_s for i in path))
    assert latency_s == pytest.approx(sum(network.links[i].latency_s for i in path))
    at = f"d{a}"
    for i in path:
        source, to = network.links[i].name.split(" -> ")
        assert source in (at, f"host {a // t.links.host_devices if t.links.host_devices else ''}")
        at = to
    assert at in (f"d{b}", f"host {b // t.links.host_devices if t.links.host_devices else ''}")
    assert network.path(a, b) == path
    if t.links.topology not in ("shared", "full", "hosts"):
        assert hops == shortest(network, f"d{a}", f"d{b}")
    assert len({x.name for x in network.links}) == len(network.links)


def shortest(network: Network, a: str, b: str) -> int:
    """Breadth first over the names of the links."""
    leaving: dict[str, list[str]] = {}
    for x in network.links:
        source, to = x.name.split(" -> ")
        leaving.setdefault(source, []).append(to)
    distance = {a: 0}
    waiting = deque([a])
    while waiting:
        at = waiting.popleft()
        for to in leaving.get(at, ()):
            if to not in distance:
                distance[to] = distance[at] + 1
                waiting.append(to)
    return distance[b]


@pytest.mark.parametrize(
    ("made", "a", "b", "hops"),
    [
        (target("shared", 6), 0, 5, 1), (target("full", 6), 0, 5, 1), (target("star", 6), 1, 2, 2), (target("ring", 6), 0, 5, 1), (target("ring", 6), 0, 3, 3),
        (target("mesh", 6, columns=3), 0, 5, 3), (target("mesh", 6, columns=3), 4, 4, 0), (target("torus", 16, columns=4), 0, 15, 2),
        (target("torus", 16, columns=4), 0, 10, 4), (target("tree", 8, branching=2), 0, 1, 2), (target("tree", 8, branching=2), 0, 7, 6),
        (target("tree", 6, branching=4), 0, 5, 4), (target("hosts", 8, host_devices=4, network=ETHERNET), 0, 3, 1),
        (target("hosts", 8, host_devices=4, network=ETHERNET), 0, 4, 2),
    ],
)  # fmt: skip
def test_hops(made: Target, a: int, b: int, hops: int) -> None:
    network = Network(made)
    assert network.hops(a, b) == network.hops(b, a) == hops


def test_between_hosts_the_network_counts() -> None:
    network = Network(target("hosts", 8, host_devices=4, network=ETHERNET))
    assert network.latency_s(0, 1) == 1e-6
    assert network.latency_s(0, 4) == 10e-6
    assert network.byte_s(0, 4) == pytest.approx(2 / 1e9)
    assert {network.links[i].name for i in network.path(0, 4)} == {"host 0 -> network", "network -> host 1"}
    assert set(network.path(1, 5)) == set(network.path(0, 4)), "devices of a host share its network card"


def test_one_way_links_are_used_one_way() -> None:
    around = tuple(GivenLink(f"d{i}", f"d{(i + 1) % 4}", 1e9, 1e-6, one_way=True) for i in range(4))
    network = Network(target("links", 4, link=around))
    assert (network.hops(0, 1), network.hops(1, 0)) == (1, 3)


@pytest.mark.parametrize("topology", ["shared", "full", "ring", "star"])
def test_ten_thousand_devices_build_nothing_of_the_size_of_all_pairs(topology: str) -> None:
    network = Network(target(topology, 10_000))
    network.path(3, 9_000)
    assert network.byte_s(1, 9_999) > 0
    assert len(network.links) <= 20_000


def test_resized_keeps_the_kind_of_network() -> None:
    assert resized(load_target("fpga_mesh_4x4"), 12).links.columns == 4
    assert resized(load_target("fpga_mesh_4x4"), 7).links.columns == 7
    for name, n in (("fpga_1tflops", 512), ("cluster_2x16", 8), ("cluster_2x16", 64), ("fpga_tiny_memory", 1), ("cpu-1", 3)):
        made = resized(load_target(name), n)
        assert len(made.devices) == n
        assert verify_target(made, name) == []
    with pytest.raises(AmpError, match="24 devices don't fill hosts of 16"):
        resized(load_target("cluster_2x16"), 24)
    with pytest.raises(AmpError, match="a target has 1 to 65536 devices, not 0"):
        resized(BASE, 0)
    with pytest.raises(AmpError, match="lists its links"):
        resized(target("links", 2, link=(GivenLink("d0", "d1", 1e9, 1e-6),)), 3)


def test_links_of_a_tree_may_differ_by_level() -> None:
    levels = (Level(1e8, 2e-6), Level(1e7, 3e-6))
    network = Network(target("tree", 32, branching=2, level=levels))  # five levels, and two of them told
    rates = [network.links[i].bytes_per_s for i in network.path(0, 31)]
    assert rates == [2e9, 1e8, 1e7, 1e7, 1e7, 1e7, 1e7, 1e7, 1e8, 2e9]
    assert network.latency_s(0, 2) == pytest.approx(2 * (1e-6 + 2e-6))
    assert [network.links[i].name for i in network.path(0, 2)][1:3] == ["switch 1.0 -> switch 2.0", "switch 2.0 -> switch 1.1"]
