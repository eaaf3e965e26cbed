"""The AMPNet paper's estimate for QM9 on a network of 1 TFLOP/s devices: its formula, the simulation of its layout, and what better layouts give.

    python -m benchmarks.estimate [--write]

Graphs of 30 nodes and 30 edges, as the formula assumes, and the molecules of QM9 where they are there.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from ampc.compiler import compile_file
from ampc.place import load_target, measure
from ampc.runtime.program import Program
from ampc.simulate import study
from ampc.simulate.estimate import Inputs, estimate, inputs_of
from ampc.simulate.simulator import Conditions
from benchmarks.harness import number
from benchmarks.ours import ROOT, NoData, data_folder, graph_of
from benchmarks.report import markdown_table, text_table
from experiments.document import put_part

TARGET = "fpga_1tflops"
HIDDEN = 200
HEADS = ("graphs", "layout", "graphs/s", "to the formula", "without numerics", "busiest device", "busiest link", "most on a link")
PAPER = {
    **{f"message.{k}": f"fpga:{k}" for k in range(4)}, "gates": "fpga:4", "news": "fpga:4", "gate": "fpga:5", "value": "fpga:6", "inner": "fpga:6",
    "last": "fpga:6",
}  # fmt: skip
"""The paper's layout: a device for each kind of edge, one for the recurrent cell; the readout on two more."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A way to put the network on the devices. `elementwise`: edge by edge, as the paper has it, in place of whole axes at once."""

    name: str
    elementwise: bool = False
    at: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parameters: Mapping[str, int] = dataclasses.field(default_factory=dict)


LAYOUTS = (
    Layout("the paper's: a device for each kind of edge, one for the cell", elementwise=True, at=PAPER),
    Layout("balanced", parameters={"copies": 1}),
    Layout("balanced, two copies of the loop's layers", parameters={"copies": 2}),
    Layout("balanced, four copies of the loop's layers", parameters={"copies": 4}),
)


def even_graphs(n: int, nodes: int = 30, edges: int = 30, kinds: int = 4) -> list[dict[str, Any]]:
    """Return random graphs of so many nodes and edges, the kinds equally many."""
    draw = np.random.default_rng(0)
    return [
        {
            "feature": np.eye(5)[draw.integers(0, 5, nodes)].tolist(), "source": draw.integers(0, nodes, edges).tolist(),
            "target": draw.integers(0, nodes, edges).tolist(), "kind": draw.permutation(np.arange(edges) % kinds).tolist(),
            "dipole": float(draw.normal()),
        }
        for _ in range(n)
    ]  # fmt: skip


def table(data: Any, name: str, formula: float, a: argparse.Namespace) -> list[list[str]]:
    """Simulate every layout, with numbers and without."""
    body = []
    for layout in LAYOUTS:
        overrides = {"hidden": HIDDEN, **layout.parameters}
        left_out = ("bulk",) if layout.elementwise else ()
        program = Program(compile_file(ROOT / "models" / "qm9_ggsnn.amp", target=TARGET, overrides=overrides, disable=left_out))
        read = program.read(data)
        seen = measure(program.graph, read)
        manifest = msgspec.structs.replace(program.manifest, statistics=seen)
        hardware = study.Hardware(load_target(TARGET), "balanced", Conditions(), layout.at)
        options = Program(manifest).options({"max_active_keys": a.in_flight, "epochs": 1, "until": ""})
        real = study.run(manifest, hardware, options, read).report
        _, bare, _ = study.cost_only(manifest, hardware, options, read)
        devices, links = [d["utilisation"] for d in real["devices"]], real["links"]
        busiest = max(links, key=lambda x: x["utilisation"], default={"utilisation": 0.0, "bits_per_s": 0.0})
        print(f"  {name}, {layout.name}: {real['instances_per_s']:,.0f}/s", file=sys.stderr, flush=True)
        body.append([
            name, layout.name, number(real["instances_per_s"]), f"{real['instances_per_s'] / formula:.2f}x", number(bare.totals.instances_per_s),
            f"{100 * max(devices):.0f} %", f"{100 * busiest['utilisation']:.0f} %", f"{busiest['bits_per_s'] / 1e9:.2f} Gb/s",
        ])  # fmt: skip
    return body


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="put the tables into docs/results.md")
    p.add_argument("--graphs", type=int, default=1000)
    p.add_argument("--in-flight", type=int, default=32)
    a = p.parse_args(argv)
    paper = estimate(Inputs())
    print("\n".join(paper.lines()))
    body = table(even_graphs(a.graphs), "30 nodes, 30 edges", paper.graphs_per_s, a)
    try:
        program = graph_of("qm9_ggsnn", hidden=HIDDEN)
        molecules = study.first(program.read(data_folder("qm9", limit=8000), "train"), a.graphs)
        own = estimate(inputs_of(program.graph, measure(program.graph, molecules)))
        print("\n".join(own.lines()))
        body += table(molecules, "QM9", own.graphs_per_s, a)
        said = f" For the molecules of QM9 it gives {own.graphs_per_s:,.0f} graphs/s (N = {own.inputs.nodes:.3g}, E = {own.inputs.edges:.3g})."
    except NoData as missing:
        print(f"QM9 is left out: {missing}", file=sys.stderr)
        said = ""
    print(text_table(HEADS, body))
    if a.write:
        words = (
            f"The formula of the paper's estimate, with all its inputs:\n\n```\n{chr(10).join(paper.lines())}\n```\n\n"
            f"{paper.graphs_per_s:,.0f} graphs/s and {paper.bits_per_s / 1e9:.2f} Gb/s.{said} The simulation beside it: `{TARGET}`, hidden {HIDDEN}, "
            f"training on {a.graphs:,} graphs with {a.in_flight} in flight."
        )
        text = f"## The paper's network of devices\n\n{words}\n\n{markdown_table(HEADS, body)}"
        put_part("estimate", "python -m benchmarks.estimate --write", text)


if __name__ == "__main__":
    main(sys.argv[1:])
