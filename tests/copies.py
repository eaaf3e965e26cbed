"""Graphs whose layers have copies: replicas given to layers of a finished graph, and what copies give, by the names of the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ampc.ir.copies import plain_name
from ampc.ir.graph import Graph
from ampc.passes.replicate import replicate


def families(graph: Graph) -> list[str]:
    """Return the names that layers have in the source: a family's members share one."""
    return sorted({x.name.partition(".")[0] for x in graph.layers})


def with_copies(graph: Graph, names: Collection[str], count: int) -> Graph:
    """Return the graph with `count` copies of the layers and families `names`."""
    layers = tuple(msgspec.structs.replace(x, replicas=count) if x.name.partition(".")[0] in names else x for x in graph.layers)
    return replicate(msgspec.structs.replace(graph, layers=layers))


def for_copies(graph: Graph, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the original graph under the names of `graph`: copies are equal."""
    return {f"{x.name}.{p.name}": parameters[plain_name(f"{x.name}.{p.name}")] for x in graph.layers for p in x.params}


def summed(gradients: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gradients by plain names: the sum over the copies."""
    out: dict[str, Any] = {}
    for name, gradient in gradients.items():
        out[plain_name(name)] = out.get(plain_name(name), 0) + gradient
    return out
