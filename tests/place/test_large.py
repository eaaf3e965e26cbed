"""Many units on many devices: complete, not slower than dealing, the same each time."""

from __future__ import annotations

import random

import msgspec
from support import model_of

from ampc.ir.builder import GraphBuilder
from ampc.ir.graph import FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import FieldRef
from ampc.place import load_target, place, resized
from ampc.place.cost import estimate
from ampc.place.problem import Problem
from ampc.place.search import large
from ampc.place.statistics import guess


def network(layers: int) -> Graph:
    """A network in which each Linear takes two of the eight values before it."""
    draw = random.Random(1)
    g = GraphBuilder("large", (), (FieldDecl("x", "float", columns=32), FieldDecl("y", "float", columns=32)))
    live = [(g.npt("field", g.source, fields=(FieldRef("x"),)), 32)]
    for i in range(layers):
        (a, m), (b, n) = draw.choice(live), draw.choice(live)
        columns = draw.choice((32, 64, 96)) if i + 1 < layers else 32
        g.layers.append(Layer(f"l{i}", "linear", (Param("w", (m + n, columns)), Param("b", (columns,), "zeros"))))
        live = [*live[-7:], (g.npt("tanh", g.ppt("linear", f"l{i}", g.concat(a, b))), columns)]
    g.loss("squared", live[-1][0], g.npt("field", g.source, fields=(FieldRef("y"),)))
    return g.finish()


def test_more_devices_than_a_long_chain_needs_make_it_no_slower() -> None:
    """The sums beside the layers are a chain of their own: with the layers kept whole, they would all go to one device."""
    layers = range(60)
    lines = [*(f"w{k} = Linear(16, 16)" for k in layers), "h = x", *(f"h = h + relu(w{k}(h))" for k in layers), "loss squared(h, zeros(16))"]
    graph = model_of("        x: float[16]\n", "\n".join(lines))
    rates = [place(graph, resized(load_target("fpga_1tflops"), devices), quick=devices == 8).instances_per_s for devices in (8, 100)]
    assert large(Problem(graph, resized(load_target("fpga_1tflops"), 100), estimate(graph, guess(graph)), fine=True))
    assert rates[1] >= rates[0]


def test_a_large_network_is_placed_well() -> None:
    graph = network(120)
    for name in ("fpga_1tflops", "fpga_tiny_memory"):
        target = resized(load_target(name), 100)
        target = msgspec.structs.replace(target, devices=tuple(msgspec.structs.replace(d, memory_bytes=1 << 36) for d in target.devices))
        assert large(Problem(graph, target, estimate(graph, guess(graph))))
        found = place(graph, target)
        assert set(found.device_of) == set(graph.by_id)
        assert found.instances_per_s >= place(graph, target, "round_robin").instances_per_s * 1.2
        assert 0 <= found.gap < 1
        assert found == place(graph, target)
