"""How good placements are: predicted rates of `balanced` over `round_robin` for every bundled model, and how long a large network takes.

`python -m benchmarks.placement [--write]` prints the table for networks of 8 and 16 devices, `--scale` places 10,000 nodes on 1,000 devices. Rates
are those of the estimate (docs/placement.md); nothing is run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence

import msgspec

from ampc import compiler
from ampc.ir.builder import GraphBuilder
from ampc.ir.graph import FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import FieldRef
from ampc.place import Target, load_target, place, resized
from ampc.source import bundled_models, read_source
from benchmarks.report import markdown_table
from experiments.document import put_part

TARGETS = ("fpga_1tflops", "fpga_mesh_4x4", "fpga_tiny_memory")
SIZES = (8, 16)
GOAL = 1.3
ROOM = 1 << 36
"""Bytes of memory given to each device, so that the comparison is of speed: `round_robin` does not look at memory."""


def roomy(target: Target) -> Target:
    """Return the target with memory for everything on each device."""
    return msgspec.structs.replace(target, devices=tuple(msgspec.structs.replace(d, memory_bytes=ROOM) for d in target.devices))


Ratios = dict[tuple[str, int], dict[str, float]]
"""(target, devices) -> model -> predicted rate of `balanced` over that of `round_robin`."""


def compare() -> Ratios:
    """Print predicted instances/s of both strategies for each model, target and size; return their ratios."""
    found: Ratios = {}
    for name in TARGETS:
        for n in SIZES:
            target = roomy(resized(load_target(name), n))
            print(f"\n{name}, {n} devices\n{'model':22} {'round_robin':>12} {'balanced':>12} {'ratio':>6} {'gap':>6} {'time':>7}  bottleneck")
            ratios = found[name, n] = {}
            for model in bundled_models():
                graph = compiler.compile_source(read_source(model), stop_after="passes").graph
                assert graph is not None
                began = time.perf_counter()
                best = place(graph, target)
                took = time.perf_counter() - began
                dealt = place(graph, target, "round_robin")
                ratios[model] = best.instances_per_s / dealt.instances_per_s
                print(
                    f"{model:22} {dealt.instances_per_s:12,.0f} {best.instances_per_s:12,.0f} {ratios[model]:6.2f} {100 * best.gap:5.1f}% "
                    f"{took:5.1f} s  {best.bottleneck_link or best.devices[best.bottleneck]}",
                    flush=True,
                )
            print(f"{'median':22} {'':12} {'':12} {statistics.median(ratios.values()):6.2f}   least {min(ratios.values()):.2f}")
    return found


def write(found: Ratios) -> None:
    """Put the ratios into docs/results.md, a row for each model."""
    models = next(iter(found.values()))
    rows = [[model, *(f"{ratios[model]:.2f}" for ratios in found.values())] for model in models]
    rows.append(["**median**", *(f"**{statistics.median(ratios.values()):.2f}**" for ratios in found.values())])
    words = (
        "How many times as fast `balanced` is as `round_robin` for every bundled model, by the rates that the placement predicts (nothing is run); "
        "devices have memory for everything, since `round_robin` does not look at it."
    )
    table = markdown_table(["", *(f"{name}, {n}" for name, n in found)], rows)
    put_part("placement", "python -m benchmarks.placement --write", f"## Placements of the bundled models\n\n{words}\n\n{table}")


def network(layers: int, width: int = 8, seed: int = 1) -> Graph:
    """Return a layered network of random Linears: each takes two of the `width` values before it, so that it has about 5 nodes a layer."""
    draw = random.Random(seed)
    sizes = (32, 64, 96)
    made: list[Layer] = []
    g = GraphBuilder("large", (), (FieldDecl("x", "float", columns=32), FieldDecl("y", "float", columns=32)), made)
    g.layers = made
    live = [(g.npt("field", g.source, fields=(FieldRef("x"),)), 32)]
    for i in range(layers):
        (a, m), (b, n) = draw.choice(live), draw.choice(live)
        columns = draw.choice(sizes) if i + 1 < layers else 32
        made.append(Layer(f"l{i}", "linear", (Param("w", (m + n, columns)), Param("b", (columns,), "zeros"))))
        live = [*live[-width + 1 :], (g.npt("tanh", g.ppt("linear", f"l{i}", g.concat(a, b))), columns)]
    total = live[-1][0]
    g.loss("squared", total, g.npt("field", g.source, fields=(FieldRef("y"),)))
    return g.finish()


def scale(layers: int, devices: int) -> None:
    """Print how long a network of so many layers takes to be placed on so many devices, for each topology."""
    graph = network(layers)
    print(f"{len(graph.nodes):,} nodes, {layers:,} layers, {devices:,} devices")
    for name in TARGETS:
        target = roomy(resized(load_target(name), devices))
        began = time.perf_counter()
        best = place(graph, target)
        took = time.perf_counter() - began
        dealt = place(graph, target, "round_robin")
        print(
            f"{name:18} {took:6.1f} s  {best.instances_per_s:12,.0f} instances/s, "
            f"{best.instances_per_s / dealt.instances_per_s:.2f} times round_robin, gap {100 * best.gap:.0f} %"
        )


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--write", action="store_true", help="put the comparison into docs/results.md")
    p.add_argument("--scale", action="store_true", help="place a large network instead")
    p.add_argument("--layers", type=int, default=2_800, help="layers of the large network; it has some 3.6 nodes for each")
    p.add_argument("--devices", type=int, default=1_000)
    a = p.parse_args(argv)
    if a.scale:
        scale(a.layers, a.devices)
        return 0
    found = compare()
    medians = [statistics.median(ratios.values()) for ratios in found.values()]
    least = min(ratio for ratios in found.values() for ratio in ratios.values())
    print(f"\nleast median {min(medians):.2f}, least ratio {least:.2f}")
    if a.write:
        write(found)
    return 0 if min(medians) >= GOAL and least >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
