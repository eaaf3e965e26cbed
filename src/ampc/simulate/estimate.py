"""The estimate of the AMPNet paper for a gated graph network on a network of devices: a formula with all its inputs, and nothing else.

Gaunt et al. (arXiv 1705.09786) state its result: 6,000 graphs/s on devices of 1 TFLOP/s for QM9. The formula is a reconstruction: it gives that
result, but its constants `gates`, `passes` and the widths of matrices are not known to be the authors'. One device for each heavy operation; the
slowest sets the pace; nothing waits, nothing but matrix products counts.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import error, printable
from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT
from ampc.ir.scope import chain, members
from ampc.place.statistics import Statistics


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the formula takes. The defaults are those that give the paper's result."""

    steps: float = 4
    """T: turns of the loop."""
    nodes: float = 30
    """N: mean nodes of a graph."""
    edges: float = 30
    """E: mean edges of a graph."""
    kinds: float = 4
    """C: kinds of edges, each a matrix on a device of its own; edges are taken to be spread evenly over them."""
    hidden: float = 200
    """H: width of a node's state."""
    flops_per_s: float = 1e12
    """P: of a device."""
    gates: float = 3
    """g: gates of the recurrent cell on one device; each multiplies message and state, [2 H], by a matrix."""
    passes: float = 3
    """k: products for each matrix and row: one forward, two backward."""
    bits: float = 32
    """b: of a number on a link."""

    def __post_init__(self) -> None:
        """Raise AmpError AMP554 if an input is not a positive number."""
        for name, value in dataclasses.asdict(self).items():
            if not 0.0 < value < float("inf"):
                raise error("AMP554", f"`{name}` of the estimate must be a positive number, got {value:g}")


MEANINGS = {
    "steps": "T, turns of the loop", "nodes": "N, mean nodes of a graph", "edges": "E, mean edges of a graph", "kinds": "C, kinds of edges",
    "hidden": "H, width of a node's state", "flops_per_s": "P, FLOP/s of a device", "gates": "g, gates on one device",
    "passes": "k, products a matrix and row: forward and two backward", "bits": "b, bits of a number on a link",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What the formula gives. FLOPs are of one graph, forward and backward, on the device of the cell and on that of one kind of edge."""

    inputs: Inputs
    cell_flops: float
    edge_flops: float

    @property
    def graphs_per_s(self) -> float:
        """P over what the busier of the two devices has to do."""
        return self.inputs.flops_per_s / max(self.cell_flops, self.edge_flops)

    @property
    def bits_per_s(self) -> float:
        """What leaves the device of one kind of edge, one direction: a row of H numbers for each of its edges and turns."""
        i = self.inputs
        return self.graphs_per_s * i.edges / i.kinds * i.steps * i.hidden * i.bits

    def lines(self) -> list[str]:
        """Return every input and result, a line each, for people."""
        rows = [(name, f"{value:g}", MEANINGS[name]) for name, value in dataclasses.asdict(self.inputs).items()]
        rows += [
            ("cell_flops", f"{self.cell_flops:g}", "k g 2 (2 H) H N T"), ("edge_flops", f"{self.edge_flops:g}", "k 2 H H (E / C) T"),
            ("graphs_per_s", f"{self.graphs_per_s:,.0f}", "P / max(cell_flops, edge_flops)"),
            ("bits_per_s", f"{self.bits_per_s:.3g}", "graphs_per_s (E / C) T H b"),
        ]  # fmt: skip
        return [f"{name:<14}{value:>12}   {meaning}" for name, value, meaning in rows]


def estimate(inputs: Inputs = Inputs()) -> Estimate:
    """Return the estimate for `inputs`."""
    i = inputs
    cell = i.passes * i.gates * 2 * (2 * i.hidden) * i.hidden * i.nodes * i.steps
    edge = i.passes * 2 * i.hidden * i.hidden * (i.edges / i.kinds) * i.steps
    return Estimate(i, cell, edge)


def inputs_of(graph: Graph, statistics: Statistics, flops_per_s: float = 1e12, *, apart: bool = False) -> Inputs:
    """Return the inputs for a compiled gated graph network and the statistics of its data.

    The program has a loop, in it a family of square layers (one a kind of edge) and linear layers that take twice as many columns (the cell).
    T is the loop's count (and the turn that the pass `peel` may have put in front of it), C the family's members, H their width; E and N are the
    mean lengths of the axes that the two go over; g counts columns that the cell's layers give, in units of H: all of them, or with `apart` those
    of the widest layer alone, each on a device of its own.
    Raises AmpError AMP554 for another program.
    """
    found = [(n, _turns(graph, n)) for n in graph.nodes if isinstance(n, PPT) and n.op in ("linear", "linear_by")]
    inside = [(n, turns) for n, turns in found if turns]
    peeled = {n.layer for n, turns in found if not turns}
    inside = [(n, turns + (n.layer in peeled)) for n, turns in inside]
    families: dict[str, tuple[float, int, str, float]] = {}
    for node, turns in inside:
        _, layer = members(graph, node.op, node.layer, node.attrs)[0]
        rows, cols = _shape(graph, node)
        family, dot, number = layer.name.partition("~")[0].rpartition(".")
        if dot and number.isdigit() and rows == cols:
            count = len(members(graph, node.op, node.layer, node.attrs)) if node.op == "linear_by" else 1
            before = families.get(family, (0.0, 0, "", 0.0))[0]
            families[family] = before + count, cols, _axis(graph, node), turns
    for kinds, hidden, edge_axis, turns in families.values():
        cell = [(n, _shape(graph, n)[1]) for n, t in inside if t == turns and _shape(graph, n)[0] == 2 * hidden]
        if not cell or not edge_axis or not _axis(graph, cell[0][0]):
            continue
        columns = [c for _, c in cell]
        nodes, edges = (statistics.axes[a].mean for a in (_axis(graph, cell[0][0]), edge_axis))
        gates = (max(columns) if apart else sum(columns)) / hidden
        return Inputs(steps=turns, nodes=nodes, edges=edges, kinds=kinds, hidden=hidden, flops_per_s=flops_per_s, gates=gates)
    raise error(
        "AMP554", f"`{printable(graph.name)}` is no gated graph network, which the paper's estimate is for",
        help="it needs a loop with a family of square layers over edges and a cell over nodes, as in `qm9_ggsnn`",
    )  # fmt: skip


def _turns(graph: Graph, node: PPT) -> float:
    """Return the turns of the loops over a count around a node; 0 outside of loops."""
    turns = [r.count for r in chain(graph, node.region) if r.form == "loop" and r.count]
    total = 1.0 if turns else 0.0
    for t in turns:
        total *= t
    return total


def _shape(graph: Graph, node: PPT) -> tuple[int, int]:
    _, layer = members(graph, node.op, node.layer, node.attrs)[0]
    rows, cols = next(p.shape for p in layer.params if len(p.shape) == 2)
    return rows, cols


def _axis(graph: Graph, node: PPT) -> str:
    """Return the axis that a node goes over: that of its rows, or that of the innermost `each` around it."""
    return node.outputs[0].rows or next((r.axis for r in reversed(chain(graph, node.region)) if r.axis), "")


__all__ = ["MEANINGS", "Estimate", "Inputs", "estimate", "inputs_of"]
