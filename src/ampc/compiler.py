"""The pipeline on one page: text, syntax tree, graph, optimised graph, placement, manifest.

`compile_text` and `compile_file` return what they made and write nothing; `artefact.write` puts it into a folder. Mistakes are `AmpError`s.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ampc import frontend, place, until
from ampc.diagnostics import AmpError, Label, Span, did_you_mean, error, printable
from ampc.frontend import ast
from ampc.ir.graph import Graph
from ampc.manifest import Manifest
from ampc.place.factors import Factors
from ampc.source import Source, read_source

if TYPE_CHECKING:
    from ampc.transform import Change

Value = int | float | bool
STAGES = ("parse", "check", "lower", "passes", "place")
FactorsOf = Callable[[Graph, place.Statistics, place.Target], Factors]
OnStage = Callable[[str, float], None]
"""Called with the name of a stage and the seconds it took."""


@dataclasses.dataclass(frozen=True, slots=True)
class Compilation:
    """What was made, up to the stage that was asked for; `graphs` holds the lowered graph and what each pass made of it, by name."""

    source: Source
    model: ast.Model | None = None
    graphs: Mapping[str, Graph] = dataclasses.field(default_factory=dict)
    graph: Graph | None = None
    placement: place.Placement | None = None
    manifest: Manifest | None = None
    changes: Mapping[str, Change] = dataclasses.field(default_factory=dict)
    """What `parts` and `copies` have led to: layer -> its parts and copies."""


def compile_source(
    source: Source, *, target: place.Target | None = None, overrides: Mapping[str, Value] | None = None, strategy: str = "balanced",
    statistics: Callable[[Graph], place.Statistics] = place.guess, disable: Sequence[str] = (), stop_after: str = "place",
    at: Mapping[str, str] | None = None, parts: int = 1, copies: int = 1, columns: Mapping[str, int] | None = None,
    replicas: Mapping[str, int] | None = None, factors: FactorsOf | None = None, known: dict[bytes, place.Placement] | None = None,
    on_stage: OnStage = lambda stage, seconds: None,
) -> Compilation:
    """Compile `source` up to `stop_after`; the first stage that finds mistakes raises them all as one AmpError.

    at: layer -> device, beside the program's own `device`. parts, copies: into how many a bottleneck may be split or replicated where that pays.
    columns, replicas: layer -> into how many it is split by columns or replicated, as if the program said so.
    known: placements of this program with the same target, data and `at`; what is made is added.
    factors: how much longer nodes take than estimated, from a profile of this program as it is (without parts and copies of its own choice).
    """
    from ampc import lower, passes  # numpy comes with these, and a syntax error should not have to wait for it

    if stop_after not in STAGES:
        remedy = did_you_mean(stop_after, STAGES) or "stages are " + ", ".join(STAGES)
        raise error("AMP913", f"there is no stage `{printable(stop_after)}`", help=remedy)
    done = Compilation(source)
    begun = time.perf_counter()

    def finished(stage: str, **made: object) -> bool:
        nonlocal done, begun
        done, now = dataclasses.replace(done, **made), time.perf_counter()  # type: ignore[arg-type]  # fields of Compilation, by name
        on_stage(stage, now - begun)
        begun = now
        return stage == stop_after

    model = frontend.parse(source.text, source.name)
    if finished("parse", model=model):
        return done
    frontend.check(model)
    if finished("check"):
        return done
    lowered = lower.lower(model, dict(overrides or {}))
    _check_conditions(model, lowered, source)
    graphs = {"lower": lowered}
    if finished("lower", graphs=graphs, graph=lowered):
        return done
    graph = passes.run_passes(lowered, disable=tuple(disable), on_pass=lambda name, made: graphs.__setitem__(name, made))
    if finished("passes", graph=graph):
        return done
    target = target or place.this_machine()
    seen = statistics(graph)
    changes = columns or {}, replicas or {}
    done = _place(done, graph, target, strategy, seen, at, parts, copies, *changes, factors, {} if known is None else known)
    assert done.graph is not None and done.placement is not None
    manifest = Manifest(done.graph, done.placement, target, seen, {source.name: hashlib.sha256(source.text.encode()).hexdigest()})
    finished("place", manifest=manifest)
    return done


def place_again(
    manifest: Manifest, *, target: place.Target | None = None, strategy: str = "balanced",
    statistics: Callable[[Graph], place.Statistics] | None = None, at: Mapping[str, str] | None = None, parts: int = 1, copies: int = 1,
    columns: Mapping[str, int] | None = None, replicas: Mapping[str, int] | None = None, factors: FactorsOf | None = None,
    known: dict[bytes, place.Placement] | None = None,
) -> Compilation:  # fmt: skip
    """Return the compiled program of `manifest`, placed anew: on its own target and with its own statistics unless others are given."""
    graph, hardware = manifest.graph, target or manifest.target
    seen = manifest.statistics if statistics is None else statistics(graph)
    name = next(iter(manifest.sources), manifest.name)
    done = Compilation(Source(name, ""), graphs={"manifest": graph})
    changes = columns or {}, replicas or {}
    done = _place(done, graph, hardware, strategy, seen, at, parts, copies, *changes, factors, {} if known is None else known)
    assert done.graph is not None and done.placement is not None
    return dataclasses.replace(done, manifest=Manifest(done.graph, done.placement, hardware, seen, manifest.sources))


def _place(
    done: Compilation, graph: Graph, target: place.Target, strategy: str, seen: place.Statistics, at: Mapping[str, str] | None, parts: int,
    copies: int, columns: Mapping[str, int], replicas: Mapping[str, int], factors: FactorsOf | None,
    known: dict[bytes, place.Placement],
) -> Compilation:  # fmt: skip
    """Return `done` with the placement of `graph`, which may have been split and replicated for it; `known`: placements that are made already."""
    from ampc import transform

    longer = factors(graph, seen, target) if factors is not None else {}

    def placed(g: Graph) -> place.Placement:
        key = msgspec.msgpack.encode((g, strategy))
        if key not in known:
            known[key] = place.place(g, target, strategy, seen, at=at, factors=longer)
        return known[key]

    def placing(g: Graph, wanted: float) -> place.Placement | None:
        return None if wanted and place.fastest(g, target, seen, factors=longer) < wanted else placed(g)

    asked = transform.asked(graph, columns, replicas)
    if parts == 1 and copies == 1 and not asked:
        return dataclasses.replace(done, graph=graph, placement=placed(graph))
    n = len(target.devices)  # more than one on each device gains nothing
    grown = transform.transform(graph, seen, placing, parts=min(parts, n), copies=min(copies, n), asked=asked)
    graphs = {**done.graphs, "transform": grown.graph} if grown.changes else done.graphs
    return dataclasses.replace(done, graph=grown.graph, graphs=graphs, placement=grown.placement, changes=grown.changes)


def _check_conditions(model: ast.Model, graph: Graph, source: Source) -> None:
    """Raise AMP703 or AMP704, at the place in the source, if `until` or `watch` of the `train:` block is nothing that a run could obey."""
    known = until.values(graph)
    wrong = []
    for s in model.settings:
        if s.layer is not None or s.name not in ("until", "watch") or not isinstance(s.value, ast.Text) or not s.value.value.strip():
            continue
        try:
            if s.name == "until":
                until.check_names(until.parse(s.value.value), s.value.value, known)
            else:
                until.check_watch(s.value.value.strip(), known)
        except AmpError as e:
            (d,) = e.diagnostics
            span = s.value.span
            if d.primary is not None:  # a column of the condition
                line = source.text.splitlines()[span.line - 1]
                column = span.column + line.startswith(('"', "'"), span.column - 1) + d.primary.span.column - 1
                span = Span(span.file, span.line, column, span.line, column + d.primary.span.end_column - d.primary.span.column)
            wrong.append(dataclasses.replace(d, primary=Label(span), notes=()))
    if wrong:
        raise AmpError(wrong)


def compile_file(
    path: str | Path, *, target: str | Path | place.Target | None = None, overrides: Mapping[str, Value] | None = None, strategy: str = "balanced",
    statistics: Callable[[Graph], place.Statistics] = place.guess, disable: Sequence[str] = (),
) -> Manifest:
    """Return the manifest of the program in file `path` (or of the bundled model of that name). Raises AmpError.

    target: the name of a bundled target, a `.toml` file, or a Target; the default is one device for each usable core, up to 8.
    """
    hardware = target if isinstance(target, place.Target) or target is None else place.load_target(target)
    done = compile_source(read_source(path), target=hardware, overrides=overrides, strategy=strategy, statistics=statistics, disable=disable)
    assert done.manifest is not None
    return done.manifest


__all__ = ["STAGES", "Compilation", "compile_file", "compile_source", "place_again"]
