"""`ampc simulate`: train in virtual time on devices that need not exist; sweeps over devices and settings.

Parses flags, calls the library, prints; nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampc.cli.compile import DisableOption, Precision, compile_model, parse_at
from ampc.cli.errors import OUTPUT, note
from ampc.diagnostics import error, printable

if TYPE_CHECKING:
    from ampc.manifest import Manifest
    from ampc.place import Target
    from ampc.place.factors import Factors
    from ampc.runtime.options import RunOptions, Value
    from ampc.simulate.study import Hardware

Found = tuple[dict[str, Any], float, Any]
"""A report, the rate that the placement allows, the trace."""
TRACED = 1_000_000
"""Firings that `--trace` keeps."""
PATH_EVENTS = 200_000
"""Firings that are kept without it, for the critical path."""


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("simulate", epilog="Example: ampc simulate qm9_ggsnn.ampx --target fpga_1tflops --data data/qm9 --instances 2000")(simulate)


def simulate(
    model: Annotated[str, typer.Argument(metavar="MANIFEST|MODEL", help="A compiled folder or `manifest.json`; or a `.amp` file or bundled model.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="Folder with train.*, or a file.")] = None,
    target: Annotated[str | None, typer.Option(metavar="NAME|FILE", help="Hardware. Default: what the program was placed on.")] = None,
    strategy: Annotated[str, typer.Option(metavar="NAME", help="Placement: balanced, round_robin or manual.")] = "balanced",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the run, or a parameter of a `.amp` model. Repeatable.")
    ] = None,
    at: Annotated[list[str] | None, typer.Option("--at", metavar="LAYER=DEVICE", help="Put a layer on a device. Repeatable.")] = None,
    disable: DisableOption = None,
    cost_only: Annotated[bool, typer.Option("--cost-only", help="No numerics: times and messages alone, for large networks.")] = False,
    instances: Annotated[int, typer.Option(metavar="N", min=0, help="Use the first N training instances; 0 is all.")] = 0,
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Passes over them.")] = 1,
    validate: Annotated[bool, typer.Option("--validate", help="Validate after each epoch, with the folder's valid.*.")] = False,
    mode: Annotated[
        str | None, typer.Option(metavar="async|sync|filled", help="`sync` drains before every update; `filled` (cost only) does not.")
    ] = None,
    max_active_keys: Annotated[int | None, typer.Option(metavar="N", help="Instances in flight.")] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Of matrix products: which rates of the target hold. Default: the setting `precision`.")
    ] = None,
    profile: Annotated[Path | None, typer.Option(metavar="RUN_DIR", help="Nodes take as long as in the profile of an earlier run.")] = None,
    jitter: Annotated[float, typer.Option(metavar="X", min=0.0, max=10.0, help="Relative standard deviation of a firing's time.")] = 0.0,
    failures: Annotated[float, typer.Option(metavar="X", min=0.0, max=1e6, help="Failures of a device a busy second.")] = 0.0,
    repair: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, max=1e6, help="How long a failed device stands still.")] = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of weights, order, jitter and failures.")] = 0,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=V,V,...", help="Run once for each value of `devices`, a setting or a parameter. Repeatable: every combination."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="PATH", help="Run folder; with `--sweep` a .parquet or .jsonl file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier run folder or file.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="With `--sweep`: curves as .svg or .png.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every event of the last training pass here.")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print the AMPNet paper's formula for a gated graph network beside it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON on stdout.")] = False,
) -> None:
    """Train in virtual time on the devices of a target, with the numbers of a real run, and say how busy devices and links were."""
    from ampc.place import load_target, this_machine
    from ampc.simulate import study
    from ampc.simulate.simulator import Conditions

    _check(data, sweep, plot, trace, output, force, cost_only, epochs, validate, mode)
    swept = {s.partition("=")[0].strip() for s in sweep or []}
    for flag, value, name, other in (("--failures", failures, "repair_s", "--repair"), ("--repair", repair, "failures_per_s", "--failures")):
        if value and not (repair if other == "--repair" else failures) and name not in swept:
            raise error("AMP719", f"`{flag}` alone changes nothing", help=f"add `{other} X`", exit_code=2)
    assert data is not None
    program = Source(model, data, sets or [], disable or [], target, strategy)
    manifest = program.manifest({})
    on = load_target(target) if target is not None else manifest.target if program.compiled else this_machine()
    flags = {"epochs": epochs, "mode": None if cost_only else mode, "max_active_keys": max_active_keys, "seed": seed}
    if not validate:  # nothing to judge by
        flags |= {"until": "", "watch": ""}
    options = program.options(manifest, flags)
    rates = precision.value if precision is not None else options.precision
    on, factors = _refined(profile, manifest, on, rates) if profile is not None else (on, {})
    kept = TRACED if trace is not None else 0 if sweep else PATH_EVENTS
    conditions = Conditions(rates, jitter, failures, repair, seed, kept, trace is not None, factors)  # type: ignore[arg-type]  # its names are those of the flag
    hardware = study.Hardware(on, strategy, conditions, parse_at(at or []))
    if sweep:
        axes = [study.parse_axis(s, list(manifest.graph.parameters)) for s in sweep]
        program.refuse([name for name, _ in axes], cost_only)
        _sweep(axes, program, hardware, flags, instances, cost_only, mode, output, plot, force, as_json, rates=precision is None)
        return
    one: Callable[..., Found] = partial(_cost_only, how=mode or "async") if cost_only else _real
    found, predicted, log = one(manifest, hardware, options, data, instances, validate, output, force, told=True)
    if trace is not None:
        log.save(trace)
    formula = _formula(manifest, hardware, data, instances) if estimate else None
    if as_json:
        print(json.dumps(found if formula is None else {**found, "estimate": formula[1]}))
    else:
        from ampc.simulate.report import text

        if formula is not None:
            print("\n".join(["the paper's estimate, one device for each heavy operation:", *formula[0], ""]))
        print(text(found, predicted), end="")


def _refined(run: Path, manifest: Manifest, target: Target, precision: Any) -> tuple[Target, Factors]:
    """Return what the profile of a run says of the target's overheads, and of the program's nodes."""
    from ampc.codegen.plan import make_plan
    from ampc.runtime import profile

    found = profile.read(run)
    target = profile.refined(target, found) if all(d.kind == "cpu" for d in target.devices) else target
    return target, profile.factors(found, make_plan(manifest.graph, manifest.placement.device_of), manifest.statistics, target, precision)


def _formula(manifest: Manifest, hardware: Hardware, data: Path, instances: int) -> tuple[list[str], dict[str, Any]]:
    """Return the paper's estimate for the program and the data that are simulated, as lines and as data."""
    from ampc.place import measure
    from ampc.runtime.program import Program
    from ampc.simulate import study
    from ampc.simulate.estimate import estimate, inputs_of

    training = study.first(Program(manifest).read(data), instances)
    fastest = max(d.matrix_flops_per_s[hardware.conditions.precision] * d.cores for d in hardware.target.devices)
    found = estimate(inputs_of(manifest.graph, measure(manifest.graph, training), fastest))
    return found.lines(), {**dataclasses.asdict(found), "graphs_per_s": found.graphs_per_s, "bits_per_s": found.bits_per_s}


class Source:
    """What is simulated: a compiled program, or a model that can be compiled with other parameters."""

    def __init__(self, model: str, data: Path, sets: list[str], disable: list[str], target: str | None, strategy: str) -> None:
        from ampc.manifest import is_manifest_path, load

        self.model, self.data, self.disable, self.target, self.strategy = model, data, disable, target, strategy
        self.compiled = is_manifest_path(model)
        self._given = load(model) if self.compiled else None
        names = set() if self._given is not None else set(compile_model(model, stop_after="lower").graph.parameters)  # type: ignore[union-attr]  # lowered
        self.parameters = [s for s in sets if s.partition("=")[0].strip() in names]
        self.settings = [s for s in sets if s not in self.parameters]
        self._made: dict[str, Manifest] = {}
        if self.compiled and disable:
            remedy = "compile it again with `ampc compile --disable-pass`, or give the `.amp` file"
            raise error("AMP719", "`--disable-pass` belongs to a model that is compiled now", help=remedy, exit_code=2)

    def manifest(self, changed: Mapping[str, Value]) -> Manifest:
        """Return the program with other values of its parameters."""
        if self._given is not None:
            return self._given
        own = [s for s in self.parameters if s.partition("=")[0].strip() not in changed] + [f"{k}={str(v).lower()}" for k, v in changed.items()]
        key = "\n".join(own)
        if key not in self._made:
            made = compile_model(self.model, target=self.target, strategy=self.strategy, sets=own, data=str(self.data), disable=self.disable).manifest
            assert made is not None
            self._made[key] = made
        return self._made[key]

    def refuse(self, names: list[str], cost_only: bool) -> None:
        """Refuse to sweep over parameters of a program that is compiled already, and over what changes nothing."""
        from ampc.runtime.options import SETTINGS
        from ampc.simulate.study import FREE

        idle = [n for n in names if cost_only and n in SETTINGS and n not in FREE]
        if idle:
            remedy = f"leave `--cost-only` out; with it a sweep goes over {', '.join(f'`{n}`' for n in FREE)}, `devices`, conditions and parameters"
            raise error("AMP902", f"`--cost-only` does not look at `{idle[0]}`", help=remedy, exit_code=2)
        fixed = [] if self._given is None else [n for n in names if n in self._given.graph.parameters]
        if fixed:
            message = f"`{fixed[0]}` is a parameter of the model and was fixed when it was compiled"
            raise error("AMP902", message, help="give the `.amp` file in place of the manifest", exit_code=2)

    def options(self, manifest: Manifest, flags: Mapping[str, Any]) -> RunOptions:
        from ampc.runtime.program import Program
        from ampc.simulate.study import ELSEWHERE

        for name in (*(s.partition("=")[0].strip() for s in self.settings), *flags):
            if name in ELSEWHERE:
                raise error("AMP719", f"a simulation has no setting `{name}`", help=ELSEWHERE[name], exit_code=2)
        return Program(manifest).options(flags, sets=self.settings)


def _check(
    data: Path | None, sweep: list[str] | None, plot: Path | None, trace: Path | None, output: str | None, force: bool, cost_only: bool, epochs: int,
    validate: bool, mode: str | None,
) -> None:  # fmt: skip
    mistakes = [
        (data is None, "a simulation needs data: its lengths decide what is computed", "add `--data DIR`; `ampc data` makes the bundled data sets"),
        (plot is not None and not sweep, "`--plot` draws the curves of a sweep", "add `--sweep devices=1,2,4`"),
        (plot is not None and plot.suffix not in (".svg", ".png"), "`--plot` writes .svg or .png", "for instance `--plot scaling.svg`"),
        (trace is not None and sweep, "`--trace` keeps the events of one run", "leave `--sweep` out"),
        (bool(output) and bool(sweep) and Path(str(output)).suffix not in (".parquet", ".jsonl"), "a sweep is written as .parquet or .jsonl",
         "for instance `-o sweep.parquet`"),
        (cost_only and validate, "`--cost-only` computes no numbers that could be validated", "leave one of them out"),
        (cost_only and bool(output) and not sweep, "`--cost-only` makes no weights for a run folder", "`--json > FILE` keeps the figures"),
        (trace is not None and trace.is_dir() and any(trace.iterdir()) and not (trace / "firings.parquet").is_file(),
         f"`{trace}` holds other things than a trace", "give another folder"),
        (force and not output, "`--force` overwrites what `-o` names", "add `-o PATH`, or leave it out"),
        (mode == "filled" and not cost_only, "`--mode filled` is simulated without numerics only", "add `--cost-only`"),
        (mode not in (None, "async", "sync", "filled"), "`--mode` expects `async`, `sync` or `filled`", "leave it out for `async`"),
        (cost_only and epochs > 1, "`--cost-only` computes nothing that a second epoch would change", "leave `--epochs` out"),
        (bool(sweep) and validate, "`--validate` belongs to a single run", "leave it out"),
    ]  # fmt: skip
    for wrong, message, remedy in mistakes:
        if wrong:
            raise error("AMP719", message, help=remedy, exit_code=2)


def _real(
    manifest: Manifest, hardware: Hardware, options: RunOptions, data: Path, instances: int, validate: bool = False, output: str | None = None,
    force: bool = False, told: bool = False,
) -> Found:  # fmt: skip
    from ampc.runtime.events import ignore
    from ampc.runtime.program import Program
    from ampc.runtime.progress import Display
    from ampc.runtime.run_folder import RunFolder
    from ampc.simulate import study

    program = Program(manifest)
    training, validation = program.split_data(data, None, options) if validate else (program.read(data), None)
    if validate and validation is None:
        raise error("AMP719", f"`--validate` finds no validation data in `{data}`", help="give a folder with `valid.*`", exit_code=2)
    folder = None if output is None else RunFolder(Path(output), force=force)
    if folder is not None:
        folder.check()
    inputs = {"manifest": None, "data": str(data)}
    training = study.first(training, instances)
    with Display(quiet=OUTPUT.quiet or not told, color=OUTPUT.color != "never") as display:
        listen = display if told else ignore
        done = study.run(manifest, hardware, options, training, validation, folder=folder, inputs=inputs, on_event=listen)
    said = {"training": done.summary.training, "validation": done.summary.validation}
    found = {**done.report, "target": hardware.target.name, **said, "wall_s": done.wall_s}
    if folder is not None:
        from ampc.manifest import write_atomic

        write_atomic(folder.path / "simulation.json", json.dumps(found, indent=1).encode())
    return found, done.placement.instances_per_s, done.simulator.trace


def _cost_only(
    manifest: Manifest, hardware: Hardware, options: RunOptions, data: Path, instances: int, validate: bool = False, output: str | None = None,
    force: bool = False, told: bool = False, how: str = "async",
) -> Found:  # fmt: skip
    from ampc.runtime.program import Program
    from ampc.simulate import study

    training = study.first(Program(manifest).read(data), instances)
    placement, result, found = study.cost_only(manifest, hardware, options, training, how)
    return {**found, "target": hardware.target.name, "most_in_flight": result.in_flight}, placement.instances_per_s, result.trace


def _sweep(
    axes: list[tuple[str, list[Any]]], program: Source, hardware: Hardware, flags: Mapping[str, Any], instances: int, cost_only: bool,
    mode: str | None, output: str | None, plot: Path | None, force: bool, as_json: bool, *, rates: bool,
) -> None:  # fmt: skip
    """Print a row for each point; `rates`: which rates hold follows from the setting `precision`."""
    from ampc.runtime.options import SETTINGS
    from ampc.simulate import study

    for path in (output, plot):
        if path is not None and not Path(path).parent.is_dir():
            raise error("AMP719", f"there is no folder `{printable(str(Path(path).parent))}` to write into", help="make it first", exit_code=2)
    if output is not None and Path(output).exists() and not force:
        raise error("AMP719", f"`{printable(output)}` exists", help="give another path, or `--force`", exit_code=2)

    def prepared(manifest: Manifest, settings: Mapping[str, Any]) -> tuple[RunOptions, Callable[..., Found]]:
        if not cost_only:
            return program.options(manifest, {**flags, **settings}), _real
        how = settings.get("mode", mode or "async")
        if how not in ("async", "sync", "filled"):
            raise error("AMP902", f"`--sweep mode=` expects `async`, `sync` or `filled`, got `{printable(str(how))}`", exit_code=2)
        return program.options(manifest, {**flags, **settings, "mode": None}), partial(_cost_only, how=how)

    for name, values in axes:  # mistakes are told before the first point is simulated
        for value in values:
            prepared(program.manifest({}), {name: value} if name in SETTINGS else {})

    def simulated(manifest: Manifest, on: Hardware, settings: Mapping[str, Any]) -> dict[str, Any]:
        options, one = prepared(manifest, settings)
        if rates:
            on = dataclasses.replace(on, conditions=dataclasses.replace(on.conditions, precision=options.precision))
        found, predicted, _ = one(manifest, on, options, program.data, instances)
        return {**study.row(found, predicted), **{f"train_{k}": v for k, v in found.get("training", {}).items()}}

    rows = []
    for row in study.sweep(axes, program.manifest, hardware, simulated):
        rows.append(row)
        if not as_json:
            note(_said(axes, row))
    names = list(dict.fromkeys(k for r in rows for k in r))
    if output is not None:
        import pyarrow as pa

        from ampc.data.write import write_table

        write_table(output, pa.Table.from_pylist([{k: r.get(k) for k in names} for r in rows]))
    if plot is not None:
        from ampc.view.curves import draw

        draw(plot, rows, [name for name, _ in axes], title=f"{program.manifest({}).name} on {hardware.target.name}")
    if as_json:
        print(json.dumps(rows))
    else:
        print(_table(axes, rows), end="")


def _said(axes: list[tuple[str, list[Any]]], row: Mapping[str, Any]) -> str:
    at = ", ".join(f"{name} {row[name]}" for name, _ in axes)
    return f"{at}: {row['error'] or format(row['instances_per_s'], ',.0f') + ' instances/s'}"


def _table(axes: list[tuple[str, list[Any]]], rows: list[dict[str, Any]]) -> str:
    head = [*(name for name, _ in axes), "instances/s", "to first", "busy", "busiest link", "staleness", "bottleneck"]
    base = next((r["instances_per_s"] for r in rows if not r["error"]), 0.0)
    cells = [head]
    for r in rows:
        own = [str(r[name]) for name, _ in axes]
        if r["error"]:
            cells.append([*own, *[""] * 5, r["error"]])
            continue
        cells.append([
            *own, f"{r['instances_per_s']:,.0f}", f"{r['instances_per_s'] / base:.2f}x" if base else "", f"{100 * r['mean_utilisation']:.0f} %",
            f"{100 * r['busiest_link']:.0f} %", f"{r['largest_staleness']:.2g}", printable(r["bottleneck"]),
        ])  # fmt: skip
    widths = [max(len(c[i]) for c in cells) for i in range(len(head) - 1)]
    return "".join("  ".join([*(x.rjust(w) for x, w in zip(c, widths)), c[-1]]) + "\n" for c in cells)
