"""`ampc place`: where the nodes of a program go on a target, what limits it, and how strategies compare. Parses flags, calls the library, prints."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampc.cli import steps
from ampc.cli.compile import (
    AtOption, DisableOption, Precision, PrecisionOption, ProfileOption, ReplicasOption, SetOption, SplitOption, StrategyOption, TargetOption,
    compile_model, factors_from, parse_at, parse_changes, placement_text, statistics_from, wrong_options,
)  # fmt: skip
from ampc.cli.errors import OUTPUT, note
from ampc.diagnostics import AmpError, error, printable

if TYPE_CHECKING:
    from ampc.compiler import Compilation
    from ampc.manifest import Manifest
    from ampc.place import Placement

    Placing = Callable[[str, list[str] | None, list[str] | None], Compilation]
    """Strategy, `--split` and `--replicas` -> the program as it is placed with them."""

COMPARED: dict[str, tuple[str, list[str] | None, list[str] | None]] = {
    "round_robin": ("round_robin", None, None), "manual": ("manual", None, None), "balanced": ("balanced", None, None),
    "balanced + split": ("balanced", ["auto"], None), "balanced + replicas": ("balanced", None, ["auto"]),
    "balanced + split + replicas": ("balanced", ["auto"], ["auto"]),
}  # fmt: skip
"""Row of `--compare` -> strategy, `--split`, `--replicas`."""


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("place", epilog="Example: ampc place models/list_reduction.amp --target cpu-4 --compare")(place_command)


def place_command(
    program: Annotated[str, typer.Argument(metavar="MODEL|MANIFEST", help="A `.amp` file or bundled model, a manifest, or a compiled folder.")],
    target: TargetOption = None,
    strategy: StrategyOption = "balanced",
    compare: Annotated[bool, typer.Option("--compare", help="Show all strategies, and what splits and replicas gain, side by side.")] = False,
    at: AtOption = None,
    split: SplitOption = None,
    replicas: ReplicasOption = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Data whose lengths and values the cost estimate is made from; tells the loaded rate.")
    ] = None,
    sets: SetOption = None,
    disable: DisableOption = None,
    profile: ProfileOption = None,
    precision: PrecisionOption = None,
    out: Annotated[str | None, typer.Option("-o", "--output", metavar="DIR", help="Write the compiled folder with this placement.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model there that was compiled from another file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.")] = False,
) -> None:
    """Place a program on a target: predicted rate, bottleneck, memory of each device, traffic of each link.

    With `--data` also the rate that the instances in flight give, which a short simulation tells.
    """
    from ampc import artefact

    if compare and (out is not None or split is not None or replicas is not None or profile is not None or strategy != "balanced"):
        message = "`--compare` shows all strategies; `-o`, `--strategy`, `--split`, `--replicas` and `--profile` are for one"
        raise error("AMP903", message, help="leave one of them out", exit_code=2)

    placed = _placing(program, target, at, data, sets, disable, profile, precision)
    if compare:
        rows = [_row(name, placed, data, precision, *how) for name, how in COMPARED.items()]
        print(json.dumps(rows, indent=1) if as_json else _table(rows), end="\n" if as_json else "")
        return
    done = placed(strategy, split, replicas)
    assert done.manifest is not None
    report = artefact.placement_report(done.manifest.placement, done.manifest)
    report |= _loaded(done.manifest, data, precision, profile)
    report["changes"] = {name: {"columns": c.columns, "replicas": c.replicas} for name, c in done.changes.items()}
    if out is not None:
        report["folder"] = str(artefact.write(done, out, force=force))
    if as_json:
        print(json.dumps(report, indent=1))
    elif not OUTPUT.quiet or out is None:
        print(placement_text(report) + _changes(done) + (f"compiled into {printable(report['folder'])}\n" if out is not None else ""), end="")
    else:
        print(printable(report["folder"]))


def _placing(
    program: str, target: str | None, at: list[str] | None, data: str | None, sets: list[str] | None, disable: list[str] | None,
    profile: str | None, precision: Precision | None,
) -> Placing:  # fmt: skip
    """Return what places the program by a strategy, with `--split` and `--replicas`: it and its data are read once, for all that follow.

    A manifest is placed on its own target if none is given, with what it knows of its data if none are given.
    """
    from ampc.compiler import opened, place_on
    from ampc.manifest import is_manifest_path, load
    from ampc.place import load_target, this_machine

    sources = None
    if is_manifest_path(program):
        if sets or disable:
            message = "`--set` and `--disable-pass` are for a model; a manifest's graph is made already"
            raise error("AMP903", message, help="name the `.amp` file", exit_code=2)
        manifest = load(program)
        done, sources = opened(manifest), manifest.sources
        hardware = manifest.target if target is None else load_target(target)
    else:
        manifest = None
        hardware = this_machine() if target is None else load_target(target)
        done = compile_model(program, sets=sets, disable=disable, stop_after="passes")
        if OUTPUT.verbose:
            note("\n".join(steps.table(done, detail=True)))
    where = parse_at(at or [])
    assert done.graph is not None
    seen = manifest.statistics if manifest is not None and data is None else statistics_from(data)(done.graph)
    known: dict[bytes, Placement] = {}  # several rows of `--compare` try the same

    def placed(strategy: str, split: list[str] | None, replicas: list[str] | None) -> Compilation:
        (parts, columns), (copies, dealt) = parse_changes("--split", split), parse_changes("--replicas", replicas)
        factors, began = factors_from(profile, bool(split or replicas)), time.perf_counter()
        with wrong_options():
            found = place_on(
                done, hardware, seen, sources=sources, strategy=strategy, at=where, parts=parts, copies=copies, columns=columns, replicas=dealt,
                factors=factors, known=known,
                precision=None if precision is None else precision.value,
            )  # fmt: skip
        if OUTPUT.verbose:
            note(steps.line("place", time.perf_counter() - began))
        return found

    return placed


def _loaded(manifest: Manifest, data: str | None, precision: Precision | None, profile: str | None = None) -> dict[str, Any]:
    """Return what the instances in flight give, as entries of a report; {} without data, and where so many do not fit for a simulation."""
    if data is None:
        return {}
    from ampc.data import find, read
    from ampc.simulate.study import loaded

    refine = factors_from(profile, False)
    factors = {} if refine is None else refine(manifest.graph, manifest.statistics, manifest.target)
    try:
        rate, in_flight = loaded(manifest, read(find(data)["train"], manifest.graph), factors, None if precision is None else precision.value)
    except AmpError as e:
        if any(d.code not in ("AMP552", "AMP553") for d in e.diagnostics):
            raise
        return {}
    return {"loaded_instances_per_s": rate, "in_flight": in_flight}


def _row(
    name: str, placed: Placing, data: str | None, precision: Precision | None, strategy: str, split: list[str] | None, replicas: list[str] | None
) -> dict[str, Any]:
    """Return one line of the comparison; a strategy that cannot place the program says why."""
    from ampc.artefact import placement_report

    try:
        done = placed(strategy, split, replicas)
    except AmpError as e:
        if any(d.code not in ("AMP511", "AMP512", "AMP513") for d in e.diagnostics):
            raise
        return {"name": name, "error": f"{e.diagnostics[0].code}: {e.diagnostics[0].message}"}
    assert done.manifest is not None
    report = placement_report(done.manifest.placement, done.manifest)
    return {
        "name": name, "predicted_instances_per_s": report["predicted_instances_per_s"], **_loaded(done.manifest, data, precision),
        "bottleneck": report["bottleneck"], "gap": report["gap"],
        "devices_used": sum(bool(d["nodes"]) for d in report["devices"]), "memory_bytes": max(d["memory_bytes"] for d in report["devices"]),
        "crossing_messages": report["crossing_messages"], "crossing_bytes": report["crossing_bytes"],
        "changes": {name: {"columns": c.columns, "replicas": c.replicas} for name, c in done.changes.items()},
    }  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> str:
    width = max(len(r["name"]) for r in rows)
    loaded = any("loaded_instances_per_s" in r for r in rows)
    head = f"  {'loaded':>12}" if loaded else ""
    lines = [f"{'':{width}}  {'instances/s':>12}{head}  devices  {'largest memory':>14}  {'messages':>9}  {'bytes':>12}  {'gap':>6}  bottleneck"]
    for r in rows:
        if "error" in r:
            lines.append(f"{r['name']:{width}}  {printable(r['error'])}")
            continue
        changes = ", ".join(_change(name, c["columns"], c["replicas"]) for name, c in r["changes"].items())
        lines.append(
            f"{r['name']:{width}}  {r['predicted_instances_per_s']:12,.0f}"
            + (f"  {r['loaded_instances_per_s']:12,.0f}" if loaded else "")
            + f"  {r['devices_used']:7}  {r['memory_bytes']:14,}  "
            f"{r['crossing_messages']:9,.1f}  {r['crossing_bytes']:12,.0f}  {100 * r['gap']:4.1f} %  {printable(r['bottleneck'])}"
            + (f"  ({changes})" if changes else "")
        )
    return "\n".join(lines) + "\n"


def _changes(done: Compilation) -> str:
    return "".join(f"changed: {_change(name, c.columns, c.replicas)}\n" for name, c in done.changes.items())


def _change(name: str, columns: int, replicas: int) -> str:
    parts = [f"columns = {columns}"] * (columns > 1) + [f"replicas = {replicas}"] * (replicas > 1)
    return f"{name}: {', '.join(parts)}"


__all__ = ["register"]
