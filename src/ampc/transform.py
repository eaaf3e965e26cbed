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
NEAR = 0.8
"""Share of the busiest device's seconds from which on another is about as busy."""
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
    """Return what to try next: twice or four times as many parts of the heaviest layers, as many or more copies than others have.

    Where several devices are about as busy as the busiest, the heaviest layer of each is changed together: one alone would gain nothing.
    """
    original = {_family(x): x for x in graph.layers if not {"~", "@"} & set(x.name)}
    busiest = _heaviest(made, now, statistics)
    alone = [[n] for n in next(iter(busiest), []) if n in original][:TRIED_LAYERS]
    together = list(dict.fromkeys(n for names in busiest for n in names[:1] if n in original))
    several = max([c.replicas for c in changes.values()], default=1)
    counts = [r for r in (several, 2 * several, 4 * several) if 1 < r <= copies] if not any("~" in x.name for x in graph.layers) else []
    options: list[dict[str, Change]] = []
    for names in [*alone, *([together] if len(together) > 1 else [])]:
        for factor in (2, 4):
            new = {n: msgspec.structs.replace(changes.get(n, Change()), columns=changes.get(n, Change()).columns * factor) for n in names}
            if all(original[n].form == "linear" and c.columns <= min(parts, original[n].params[0].shape[-1]) for n, c in new.items()):
                options.append({**changes, **new})
        for count in counts:
            all_ = {n: msgspec.structs.replace(c, replicas=count) if c.replicas > 1 else c for n, c in changes.items()}
            option = all_ | {n: msgspec.structs.replace(changes.get(n, Change()), replicas=count) for n in names}
            if option != dict(changes):
                options.append(option)
    return options


def _heaviest(graph: Graph, placement: Placement | None, statistics: Statistics) -> list[list[str]]:
    """Return, for each device that is about as busy as the busiest, its layers (families) by their work; or all by bytes without a placement."""
    cost = estimate(graph, statistics)
    weights: dict[int, dict[str, float]] = {}
    if placement is None:
        all_ = weights.setdefault(0, {})
        for x in graph.layers:
            all_[_source(x)] = max(all_.get(_source(x), 0.0), float(cost.layers[x.name].memory_bytes))
    else:
        busy = placement.busy_s
        near = [d for d in sorted(range(len(busy)), key=lambda d: (-busy[d], d)) if busy[d] >= NEAR * busy[placement.bottleneck]]
        weights = {d: {} for d in near}
        for n in graph.nodes:
            there = weights.get(placement.device_of[n.id])
            if isinstance(n, PPT) and there is not None:
                x = members(graph, n.op, n.layer, n.attrs)[0][1]
                there[_source(x)] = there.get(_source(x), 0.0) + cost.nodes[n.id].flops + cost.layers[x.name].update_flops
    return [sorted(there, key=lambda name: (-there[name], name)) for there in weights.values()]


def _family(x: Layer) -> str:
    return x.name.partition(".")[0]


def _source(x: Layer) -> str:
    """Return the name in the source of what a part or copy came from."""
    return plain_name(x.name).partition(".")[0]


__all__ = ["Change", "Transformed", "changed", "transform"]
