"""Changes of a graph that a placement calls for: copies of a bottleneck layer, and Linears split by columns, chosen by what they gain.

`transform` tries copies of every layer, then changes of the layers that the busiest device spends most on, one after the other, and keeps what makes
the predicted rate grow: the first if it does at all, the others by more than a tenth. The numbers stay those of the program, but for what
`replicas` mean (docs/language.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, printable
from ampc.ir.copies import copy_number, plain_name
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import PPT
from ampc.ir.scope import members
from ampc.ir.verify import verify
from ampc.passes.replicate import replicate
from ampc.passes.split import split
from ampc.place import Placement, Statistics, estimate

GAIN = 1.1
"""A change is kept if the predicted rate is so many times what it was."""
ALONE = 1.02
"""The same where every layer is copied: an instance then waits for no other device, which the predicted rate leaves out."""
LITTLE = 1.03
"""More parts or copies are preferred only if they gain so much over fewer."""
MOST_STEPS = 6
LARGE_TABLE = 1024
"""Rows of a table above which it is not copied along with all other layers: few instances reach a row, and averaging would halve its steps."""
NEAR = 0.8
"""Share of the busiest device's seconds from which on another is about as busy."""
TRIED_LAYERS = 2
"""Layers of the busiest device that are tried at each step, those with most work."""

Placing = Callable[[Graph, float], Placement | None]
"""Places a graph; None for one that can't reach so many instances/s wherever its nodes go."""


class Change(msgspec.Struct, frozen=True):
    """Of a layer or family (its name in the source): how many parts of its columns, how many copies."""

    columns: int = 1
    replicas: int = 1


NONE: Mapping[str, Change] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Transformed:
    """The graph with what was kept, its placement, and the predicted instances/s after each step (the first: without any)."""

    graph: Graph
    placement: Placement
    changes: Mapping[str, Change]
    rates: tuple[float, ...]


def asked(graph: Graph, columns: Mapping[str, int], replicas: Mapping[str, int]) -> dict[str, Change]:
    """Return the changes that a user wants: layer or family -> into how many it is split by columns, how many copies it gets.

    Raises AmpError AMP516 for a layer that there is not, that is no Linear or that the program has changed, and for unequal parts.
    """
    layers = {_family(x): x for x in graph.layers}
    found: list[Diagnostic] = []

    def wrong(message: str, remedy: str | None) -> None:
        found.append(Diagnostic("AMP516", message, help=remedy))

    for name, count, verb in (*((n, c, "split") for n, c in columns.items()), *((n, c, "replicate") for n, c in replicas.items())):
        x = layers.get(name)
        made = next((y for y in graph.layers if _source(y) == name and _family(y) != name), None)
        if made is not None:
            body = f"layer `{printable(name)}` can't be changed: the program has made `{made.name}` of it"
            wrong(body, "change `columns` or `replicas` in the program")
        elif x is None:
            listed = "the layers are " + ", ".join(f"`{n}`" for n in list(layers)[:12]) + (", ..." if len(layers) > 12 else "")
            wrong(f"there is no layer `{printable(name)}` to {verb}", did_you_mean(name, layers) or listed)
        elif verb == "split" and x.form != "linear":
            wrong(f"layer `{name}` can't be split: it is no `Linear`", "only Linears are split, by their columns; other layers can be replicated")
        elif verb == "split" and x.params[0].shape[-1] % count:
            whole = x.params[0].shape[-1]
            fits = [n for n in range(2, whole + 1) if whole % n == 0]
            near = sorted(sorted(fits, key=lambda n: abs(n - count))[:3])
            wrong(f"layer `{name}` can't be split into {count} equal parts: it has {whole} columns", f"{_or(near)} would do" if near else None)
    if found:
        raise AmpError(found)
    names = dict.fromkeys((*columns, *replicas))
    return {n: Change(columns.get(n, 1), replicas.get(n, 1)) for n in names}


def _or(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + (" or " if len(numbers) > 1 else "") + str(numbers[-1])


def transform(
    graph: Graph, statistics: Statistics, placing: Placing, *, parts: int = 1, copies: int = 1, asked: Mapping[str, Change] = NONE
) -> Transformed:
    """Return what splitting Linears into up to `parts` and giving layers up to `copies` gains; `placing` places a graph, or raises AMP513.

    A layer that the program splits or replicates itself stays as it is; those of `asked` are changed as that says. Raises AMP513 if nothing makes
    the program fit, AMP402 if copies are to differ in number.
    """
    changes: dict[str, Change] = dict(asked)
    made = changed(graph, changes)
    now, problem = _placed(made, placing, 0.0)
    rates = [now.instances_per_s if now is not None else 0.0]
    for _ in range(MOST_STEPS):
        best: tuple[float, dict[str, Change], Graph, Placement] | None = None
        for option in _options(graph, made, now, changes, statistics, parts, copies, asked):
            candidate = changed(graph, option)
            wanted = (ALONE if _everywhere(candidate) and not _everywhere(made) else GAIN) * rates[-1]
            there, _ = _placed(candidate, placing, max(wanted, best[0] * LITTLE if best is not None else 0.0))
            if there is None or there.instances_per_s < wanted:
                continue
            if best is None or there.instances_per_s > best[0] * LITTLE:  # options come with fewer parts first
                best = there.instances_per_s, option, candidate, there
        if best is None:
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


def _placed(graph: Graph, placing: Placing, wanted: float) -> tuple[Placement | None, AmpError | None]:
    try:
        return placing(graph, wanted), None
    except AmpError as e:
        if any(d.code != "AMP513" for d in e.diagnostics):
            raise
        return None, e


def _options(
    graph: Graph, made: Graph, now: Placement | None, changes: Mapping[str, Change], statistics: Statistics, parts: int, copies: int,
    asked: Mapping[str, Change],
) -> list[dict[str, Change]]:
    """Return what to try next: copies of every layer (instances then stay on their device); twice or four times as many parts of the heaviest layers;
    as many or more copies of these than others have.

    Where several devices are about as busy as the busiest, the heaviest layer of each is changed together: one alone would gain nothing.
    """
    original = {_family(x): x for x in graph.layers if not {"~", "@"} & set(x.name) and _family(x) not in asked}
    busiest = _heaviest(made, now, statistics)
    alone = [[n] for n in next(iter(busiest), []) if n in original][:TRIED_LAYERS]
    together = list(dict.fromkeys(n for names in busiest for n in names[:1] if n in original))
    several = max([c.replicas for c in changes.values()], default=1)
    fixed = max([c.replicas for c in asked.values()], default=1)
    more = [r for r in (several, 2 * several, 4 * several) if 1 < r <= copies and fixed in (1, r)]
    counts = more if not any("~" in x.name for x in graph.layers) else []
    options: list[dict[str, Change]] = []
    if counts and several == 1 and fixed == 1:
        every = [n for n, x in original.items() if not _is_large_table(x)]
        for count in sorted({c for c in (2, 4, 8, copies) if c <= copies}):
            options.append({**changes, **{n: msgspec.structs.replace(changes.get(n, Change()), replicas=count) for n in every}})
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


def _everywhere(graph: Graph) -> bool:
    """Return whether every layer has copies but large tables."""
    return all(copy_number(x.name) is not None or _is_large_table(x) for x in graph.layers)


def _is_large_table(x: Layer) -> bool:
    return x.form == "embedding" and x.params[0].shape[0] > LARGE_TABLE


def _family(x: Layer) -> str:
    return x.name.partition(".")[0]


def _source(x: Layer) -> str:
    """Return the name in the source of what a part or copy came from."""
    return plain_name(x.name).partition(".")[0]


__all__ = ["Change", "Transformed", "asked", "changed", "transform"]
