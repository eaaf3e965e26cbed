"""Code generation: a placed graph to the text of its kernels. Nothing here is compiled or executed; `ampc.runtime.kernels` does that."""

from __future__ import annotations

from ampc.ir.graph import Graph
from ampc.place import Placement


def kernel_text(graph: Graph, placement: Placement) -> str:
    """Return the kernels of a placed graph as Python text, for people to read: what a run will generate for itself."""
    from ampc.codegen.kernels import generate
    from ampc.manifest import GENERATOR

    return generate(graph, placement.device_of, GENERATOR.removeprefix("ampc ")).text


__all__ = ["kernel_text"]
