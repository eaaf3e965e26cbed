"""What a placement predicts in full: by device its seconds and where its memory goes, by link its traffic, and how near the best it is."""

from __future__ import annotations

from typing import Any

from ampc.ir.graph import Graph
from ampc.ir.nodes import PPT
from ampc.ir.scope import members
from ampc.place.assign import Placement
from ampc.place.bound import bound_of
from ampc.place.cost import estimate
from ampc.place.loads import Loads
from ampc.place.problem import Problem, rounded
from ampc.place.statistics import Statistics
from ampc.place.target import Target
from ampc.place.topology import Network


def report(graph: Graph, target: Target, placement: Placement, statistics: Statistics) -> dict[str, Any]:
    """Return the prediction as data: seconds and bytes an instance (a mean), bytes of memory. Links that carry nothing are left out.

    `bound_instances_per_s`: what no placement of this graph on this target exceeds, by the bounds that need no search.
    """
    problem = Problem(graph, target, estimate(graph, statistics, placement.precision), fine=True)
    choice = [placement.device_of[u.nodes[0]] for u in problem.units]
    loads = Loads(problem, choice)
    # The placement's own figures, which may be refined by a profile; a placement made by hand has none.
    busy_s = placement.busy_s if len(placement.busy_s) == problem.n_devices else [rounded(float(x)) for x in loads.busy_s]
    bound_s = bound_of(problem, problem.objective(loads.busy_s, max(loads.link_s))).busiest_s
    layers: list[set[str]] = [set() for _ in target.devices]
    nodes: list[list[int]] = [[] for _ in target.devices]
    for n in graph.nodes:
        d = placement.device_of[n.id]
        nodes[d].append(n.id)
        if isinstance(n, PPT):
            layers[d] |= {x.name for _, x in members(graph, n.op, n.layer, n.attrs)}
    layer_bytes, value_bytes = [0] * problem.n_devices, [0] * problem.n_devices
    for unit in problem.units:
        layer_bytes[choice[unit.id]] += unit.layer_bytes
        value_bytes[choice[unit.id]] += unit.value_bytes
    devices = [
        {
            "name": device.name, "layers": sorted(layers[d]), "nodes": nodes[d], "busy_s": busy_s[d],
            "memory_bytes": int(loads.memory[d]), "layer_bytes": layer_bytes[d], "value_bytes": value_bytes[d], "capacity_bytes": device.memory_bytes,
        }
        for d, device in enumerate(target.devices)
    ]  # fmt: skip
    asked = graph.train.get("precision", "fp32")
    return {
        "target": target.name, "strategy": placement.strategy, "precision": placement.precision,
        "missing_rate": "bf16" if asked == "bf16" and not target.has("bf16") else "",
        "bottleneck": placement.bottleneck_link or placement.devices[placement.bottleneck],
        "bottleneck_kind": "link" if placement.bottleneck_link else "device", "predicted_instances_per_s": placement.instances_per_s,
        "gap": placement.gap, "bound_instances_per_s": rounded(1 / bound_s) if bound_s > 0 else 0.0,
        "crossing_messages": placement.crossing_messages, "crossing_bytes": placement.crossing_bytes, "devices": devices,
        "links": _links(problem, choice),
    }  # fmt: skip


def _links(problem: Problem, choice: list[int]) -> list[dict[str, Any]]:
    """Return what each link carries an instance, the busiest first; of devices that share a memory each pair is a link."""
    network = Network(problem.target)
    messages: dict[int, float] = {}
    size: dict[int, float] = {}
    for (a, b), traffic in problem.traffic.items():
        here, there = choice[a], choice[b]
        for link in (*network.path(here, there), *network.path(there, here)):
            messages[link] = messages.get(link, 0.0) + traffic.messages / 2
            size[link] = size.get(link, 0.0) + traffic.bytes / 2
    busy = {link: size[link] / network.links[link].bytes_per_s for link in size}
    return [
        {"name": network.links[x].name, "messages": rounded(messages[x]), "bytes": rounded(size[x]), "busy_s": rounded(busy[x])}
        for x in sorted(busy, key=lambda x: (-busy[x], -messages[x], x))
    ]


__all__ = ["report"]
