"""The pipeline on one page: text, syntax tree, graph, optimised graph, placement, manifest.

`compile_text` and `compile_file` return what they made and write nothing; `artefact.write` puts it into a folder. Mistakes are `AmpError`s.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
NEARLY = 0.75
"""Share of a wanted rate that a quick placement has to reach before a thorough one is made."""
STAGES = ("parse", "check", "lower", "passes", "place")
FactorsOf = Callable[[Graph, place.Statistics, place.Target], Factors]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A stage of a compilation, or a pass over the graph (of stage `passes`, which counts it too), and the seconds that it took.

    before, after: nodes of the graph that it was given and made, None where there was none.
    """

    stage: str
    name: str
    seconds: float
    before: int | None = None
    after: int | None = None


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
    steps: tuple[Step, ...] = ()
    """What was done, in order: each stage, passes before theirs."""


def compile_source(
    source: Source, *, target: place.Target | None = None, overrides: Mapping[str, Value] | None = None, strategy: str = "balanced",
    statistics: Callable[[Graph], place.Statistics] = place.guess, disable: Sequence[str] = (), stop_after: str = "place",
    at: Mapping[str, str] | None = None, parts: int = 1, copies: int = 1, columns: Mapping[str, int] | None = None,
    replicas: Mapping[str, int] | None = None, factors: FactorsOf | None = None, precision: place.Precision | None = None,
) -> Compilation:
    """Compile `source` up to `stop_after`; the first stage that finds mistakes raises them all as one AmpError.

    at: layer -> device, beside the program's own `device`. parts, copies: into how many a bottleneck may be split or replicated where that pays.
    columns, replicas: layer -> into how many it is split by columns or replicated, as if the program said so.
    factors: how much longer nodes take than estimated, from a profile of this program as it is (without parts and copies of its own choice).
    precision: of matrix products in the estimate; None: the program's setting, where the target states a rate for it.
    """
    from ampc import lower, passes  # numpy comes with these, and a syntax error should not have to wait for it

    if stop_after not in STAGES:
        remedy = did_you_mean(stop_after, STAGES) or "stages are " + ", ".join(STAGES)
        raise error("AMP913", f"there is no stage `{printable(stop_after)}`", help=remedy)
    done = Compilation(source)
    begun = time.perf_counter()

    def finished(stage: str, **made: object) -> bool:
        nonlocal done, begun
        before = None if done.graph is None else len(done.graph.nodes)
        done, now = dataclasses.replace(done, **made), time.perf_counter()  # type: ignore[arg-type]  # fields of Compilation, by name
        after = None if done.graph is None else len(done.graph.nodes)
        done = dataclasses.replace(done, steps=(*done.steps, *passed, Step(stage, stage, now - begun, before, after)))
        passed.clear()
        begun = now
        return stage == stop_after

    passed: list[Step] = []

    def ran(name: str, graph: Graph, seconds: float) -> None:
        passed.append(Step("passes", name, seconds, len(list(graphs.values())[-1].nodes), len(graph.nodes)))
        graphs[name] = graph

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
    graph = passes.run_passes(lowered, disable=tuple(disable), on_pass=ran)
    if finished("passes", graph=graph):
        return done
    placed = place_on(
        done, target or place.this_machine(), statistics(graph), strategy=strategy, at=at, parts=parts, copies=copies, columns=columns,
        replicas=replicas, factors=factors, precision=precision,
    )  # fmt: skip
    finished("place", manifest=placed.manifest, graph=placed.graph, graphs=placed.graphs, placement=placed.placement, changes=placed.changes)
    return done


def opened(manifest: Manifest) -> Compilation:
    """Return the program of `manifest` as it was before it was placed, for `place_on`."""
    return Compilation(Source(next(iter(manifest.sources), manifest.name), ""), graphs={"manifest": manifest.graph}, graph=manifest.graph)


def place_on(
    done: Compilation, target: place.Target, seen: place.Statistics, *, sources: Mapping[str, str] | None = None, strategy: str = "balanced",
    at: Mapping[str, str] | None = None, parts: int = 1, copies: int = 1, columns: Mapping[str, int] | None = None,
    replicas: Mapping[str, int] | None = None, factors: FactorsOf | None = None, known: dict[bytes, place.Placement] | None = None,
    precision: place.Precision | None = None,
) -> Compilation:  # fmt: skip
    """Return `done`, compiled as far as to its graph, with a placement and a manifest. Options are those of `compile_source`.

    sources: name of each -> its SHA-256, where that is not of `done.source`. known: placements of the same program, target, statistics and `at`
    that are made already; what is made is added.
    """
    from ampc import transform

    graph = done.graph
    assert graph is not None
    longer = factors(graph, seen, target) if factors is not None else {}
    rates = precision or place.precision_of(graph, target)
    known = {} if known is None else known

    def made(g: Graph, placement: place.Placement, **more: Any) -> Compilation:
        files = dict(sources) if sources is not None else {done.source.name: hashlib.sha256(done.source.text.encode()).hexdigest()}
        return dataclasses.replace(done, graph=g, placement=placement, manifest=Manifest(g, placement, target, seen, files), **more)

    def placed(g: Graph, quick: bool = False) -> place.Placement:
        key = msgspec.msgpack.encode((g, strategy, quick))
        if key not in known:
            known[key] = place.place(g, target, strategy, seen, rates, at, longer, quick)
        return known[key]

    def placing(g: Graph, wanted: float) -> place.Placement | None:
        if wanted and place.fastest(g, target, seen, rates, factors=longer) < wanted:
            return None
        if wanted and strategy == "balanced" and promised(g) < NEARLY * wanted:
            return None
        return placed(g)

    def promised(g: Graph) -> float:
        try:
            return placed(g, quick=True).instances_per_s
        except AmpError:
            return float("inf")  # where it takes a thorough search to fit, or nothing does

    asked = transform.asked(graph, columns or {}, replicas or {})
    if parts == 1 and copies == 1 and not asked:
        return made(graph, placed(graph))
    n = len(target.devices)  # more than one on each device gains nothing
    grown = transform.transform(graph, seen, placing, parts=min(parts, n), copies=min(copies, n), asked=asked)
    graphs = {**done.graphs, "transform": grown.graph} if grown.changes else done.graphs
    return made(grown.graph, grown.placement, graphs=graphs, changes=grown.changes)


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


__all__ = ["STAGES", "Compilation", "Step", "compile_file", "compile_source", "opened", "place_on"]
