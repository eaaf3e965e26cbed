"""Changes of a graph that a placement calls for: copies of a bottleneck layer, and Linears split by columns, chosen by what they gain.

`transform` tries them one after the other on the layers that the busiest device spends most on, and keeps what makes the predicted rate grow by
more than a tenth. The numbers stay those of the program, but for what `replicas` mean (docs/language.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import msgspec

from ampc.diagnostics import AmpError
from ampc.ir.copies import plain_name
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import PPT
from ampc.ir.scope import members
from ampc.ir.verify import verify
from ampc.passes.replicate import replicate
from ampc.passes.split import split
from ampc.place import Placement, Statistics, estimate

GAIN = 1.1
"""A change is kept if the predicted rate is so many times what it was."""
LITTLE = 1.03
"""More parts or copies are preferred only if they gain so much over fewer."""
MOST_STEPS = 6
TRIED_LAYERS = 2
"""Layers of the busiest device that are tried at each step, those with most work."""

Placing = Callable[[Graph], Placement]


class Change(msgspec.Struct, frozen=True):
    """Of a layer or family (its name in the source): how many parts of its columns, how many copies."""

    columns: int = 1
    replicas: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Transformed:
    """The graph with what was kept, its placement, and the predicted instances/s after each step (the first: without any)."""

    graph: Graph
    placement: Placement
    changes: Mapping[str, Change]
    rates: tuple[float, ...]


def transform(graph: Graph, statistics: Statistics, placing: Placing, *, parts: int = 1, copies: int = 1) -> Transformed:
    """Return what splitting Linears into up to `parts` and giving layers up to `copies` gains; `placing` places a graph, or raises AMP513.

    A layer that the program splits or replicates itself stays as it is. Raises AMP513 if nothing makes the program fit.
    """
    changes: dict[str, Change] = {}
    now, problem = _placed(graph, placing)
    made, rates = graph, [now.instances_per_s if now is not None else 0.0]
    for _ in range(MOST_STEPS):
        best: tuple[float, dict[str, Change], Graph, Placement] | None = None
        for option in _options(graph, made, now, changes, statistics, parts, copies):
            candidate = changed(graph, option)
            there, _ = _placed(candidate, placing)
            if there is not None and (best is None or there.instances_per_s > best[0] * LITTLE):  # options come with fewer parts first
                best = there.instances_per_s, option, candidate, there
        if best is None or best[0] < GAIN * rates[-1]:
            break
        rates.append(best[0])
        _, changes, made, now = best
    if now is None:
        assert problem is not None
        raise problem
    return Transformed(made, now, changes, tuple(rates))


def changed(graph: Graph, changes: Mapping[str, Change]) -> Graph:
    """Return the graph with the changes made real."""
    if not changes:
        return graph

    def new(x: Layer) -> Layer:
        change = changes.get(_family(x))
        return x if change is None else msgspec.structs.replace(x, columns=change.columns, replicas=change.replicas)

    made = replicate(split(msgspec.structs.replace(graph, layers=tuple(map(new, graph.layers)))))
    verify(made)
    return made


def _placed(graph: Graph, placing: Placing) -> tuple[Placement | None, AmpError | None]:
    try:
        return placing(graph), None
    except AmpError as e:
        if any(d.code != "AMP513" for d in e.diagnostics):
            raise
        return None, e


def _options(
    graph: Graph, made: Graph, now: Placement | None, changes: Mapping[str, Change], statistics: Statistics, parts: int, copies: int
) -> list[dict[str, Change]]:
    """Return what to try next: for the heaviest layers twice or four times as many parts, or as many or more copies than others have."""
    options: list[dict[str, Change]] = []
    original = {_family(x): x for x in graph.layers if not {"~", "@"} & set(x.name)}
    for name in [n for n in _heaviest(made, now, statistics) if n in original][:TRIED_LAYERS]:
        old = changes.get(name, Change())
        outputs = original[name].params[0].shape[-1]
        for factor in (2, 4):
            columns = old.columns * factor
            if original[name].form == "linear" and columns <= min(parts, outputs):
                options.append({**changes, name: msgspec.structs.replace(old, columns=columns)})
        several = max([c.replicas for c in changes.values()], default=1)
        for replicas in (several, 2 * several, 4 * several) if not any("~" in x.name for x in graph.layers) else ():
            if 1 < replicas <= copies and (replicas > several or old.replicas == 1):
                all_ = {n: msgspec.structs.replace(c, replicas=replicas) if c.replicas > 1 else c for n, c in changes.items()}
                options.append({**all_, name: msgspec.structs.replace(old, replicas=replicas)})
    return options


def _heaviest(graph: Graph, placement: Placement | None, statistics: Statistics) -> list[str]:
    """Return the layers (families) on the busiest device by their work, or all by their bytes where there is no placement."""
    cost = estimate(graph, statistics)
    weight: dict[str, float] = {}
    if placement is None:
        for x in graph.layers:
            weight[_source(x)] = max(weight.get(_source(x), 0.0), float(cost.layers[x.name].memory_bytes))
    else:
        for n in graph.nodes:
            if isinstance(n, PPT) and placement.device_of[n.id] == placement.bottleneck:
                for _, x in members(graph, n.op, n.layer, n.attrs)[:1]:
                    weight[_source(x)] = weight.get(_source(x), 0.0) + cost.nodes[n.id].flops + cost.layers[x.name].update_flops
    return sorted(weight, key=lambda name: (-weight[name], name))


def _family(x: Layer) -> str:
    return x.name.partition(".")[0]


def _source(x: Layer) -> str:
    """Return the name in the source of what a part or copy came from."""
    return plain_name(x.name).partition(".")[0]


__all__ = ["Change", "Transformed", "changed", "transform"]
