"""Code generation: a placed graph to the text of its kernels. Nothing here is compiled or executed; `ampc.runtime.kernels` does that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampc.ir.graph import Graph
from ampc.place import Placement, Statistics

if TYPE_CHECKING:
    from ampc.codegen.kernels import Program


def generated(graph: Graph, placement: Placement) -> Program:
    """Return the kernels of a placed graph with their storages and cells, as a run makes them."""
    from ampc.codegen.kernels import generate
    from ampc.manifest import GENERATOR

    return generate(graph, placement.device_of, GENERATOR.removeprefix("ampc "))


def kernel_text(graph: Graph, placement: Placement) -> str:
    """Return the kernels of a placed graph as Python text, for people to read: what a run will generate for itself."""
    return generated(graph, placement).text


def memory_report(program: Program, statistics: Statistics) -> dict[str, Any]:
    """Return what an instance in flight will take, and all of them together, as `report/memory.json` holds it."""
    from ampc.codegen.arena import predicted_bytes
    from ampc.place.units import in_flight

    mean, largest = predicted_bytes(program, statistics)
    number = in_flight(program.plan.graph)
    return {
        "unit": "bytes of values and counters of instances in flight", "statistics": statistics.origin, "instance_bytes": round(mean),
        "largest_bytes": round(largest), "number": number, "in_flight_bytes": round(mean * number),
    }  # fmt: skip


__all__ = ["generated", "kernel_text", "memory_report"]
