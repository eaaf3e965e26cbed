"""Graphs whose layers or products have parts: splits given to layers of a finished graph, and what parts give, by the names of the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from ampc.ir.copies import plain_name
from ampc.ir.graph import Graph, Param
from ampc.ir.nodes import PPT
from ampc.passes.split import split


def partial_products(graph: Graph) -> list[PPT]:
    """Return the products of a part of a Linear's operand that a pass has taken out of the whole one."""
    return [n for n in graph.nodes if isinstance(n, PPT) and n.op == "linear_part"]


def splittable(graph: Graph) -> list[str]:
    """Return the names of Linear layers in the source: a family's members share one."""
    return sorted({x.name.partition(".")[0] for x in graph.layers if x.form == "linear"})


def slices(p: Param) -> tuple[slice, ...]:
    """Return where a parameter lies in the whole one."""
    return tuple(slice(p.cut[1], p.cut[1] + n) if p.cut and k == p.cut[0] else slice(None) for k, n in enumerate(p.shape))


def whole_shape(p: Param) -> tuple[int, ...]:
    return tuple(p.cut[2] if p.cut and k == p.cut[0] else n for k, n in enumerate(p.shape))


def with_parts(graph: Graph, names: Collection[str], count: int, how: str) -> Graph:
    """Return the graph with `names` in up to `count` parts; how: "columns" or "rows"."""

    def wish(x: Any) -> Any:
        most = next(p.shape for p in x.params if len(p.shape) == 2)[how == "columns"]
        return msgspec.structs.replace(x, **{how: min(count, most)})

    layers = tuple(wish(x) if x.name.partition(".")[0] in names else x for x in graph.layers)
    return split(msgspec.structs.replace(graph, layers=layers))


def for_parts(graph: Graph, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the whole layers cut for `graph`."""
    out = {}
    for x in graph.layers:
        for p in x.params:
            whole = parameters[plain_name(f"{x.name}.{p.name}")]
            out[f"{x.name}.{p.name}"] = whole if not p.cut else whole[slices(p)]
    return out


def joined(graph: Graph, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of parts as those of the whole layers, of copies the sum: places that no part fills are NaN."""
    out: dict[str, Any] = {}
    for x in graph.layers:
        for p in x.params:
            value, plain = arrays[f"{x.name}.{p.name}"], plain_name(f"{x.name}.{p.name}")
            if not p.cut:
                out[plain] = out.get(plain, 0) + value
                continue
            whole = out.setdefault(plain, np.full(whole_shape(p), np.nan, value.dtype))
            at = slices(p)
            whole[at] = np.nan_to_num(whole[at]) + value
    return out
