"""`ampc run`: train, evaluate or predict with a compiled program. Parses flags, calls the library, prints; nothing else.

The result goes to standard output (a table, or one JSON object), everything else to standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ampc.cli.errors import OUTPUT, note
from ampc.cli.trace import PERFETTO, parse_window, print_columns, write_perfetto
from ampc.diagnostics import error

if TYPE_CHECKING:
    from ampc.runtime.options import RunOptions
    from ampc.runtime.program import Program
    from ampc.runtime.summary import Summary


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("run")(run)


def run(
    manifest: Annotated[
        Path | None,
        typer.Argument(metavar="MANIFEST", help="A `manifest.json`, or the folder that `ampc compile` wrote; with `--resume` by default the run's."),
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="Folder with train.* and valid.*, or a file.")] = None,
    valid: Annotated[Path | None, typer.Option(metavar="FILE", help="Validation data, where `--data` is a single file.")] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="PATH", help="Run folder (default: runs/<model>-<n>); with `--infer` a file (default: predictions.parquet)."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an earlier run folder, or a file of predictions.")] = False,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Passes over the training data.")] = None,
    until: Annotated[str | None, typer.Option(metavar="CONDITION", help="Stop once this holds, such as 'accuracy >= 0.97'.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Worker threads.")] = None,
    max_active_keys: Annotated[int | None, typer.Option(metavar="N", help="Instances (or groups) in flight.")] = None,
    min_update_frequency: Annotated[int | None, typer.Option(metavar="N", help="Instances that a layer gathers before it updates itself.")] = None,
    group: Annotated[int | None, typer.Option(metavar="N", help="Instances admitted and fired together.")] = None,
    group_by_length: Annotated[bool | None, typer.Option("--group-by-length", help="Put instances of equal length into one group.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="async|sync", help="`sync` drains before every update.")] = None,
    driver: Annotated[str | None, typer.Option(metavar="threads|step", help="`step` is one thread, repeatable bit for bit.")] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Of initial weights, order and dropout.")] = None,
    optimizer: Annotated[str | None, typer.Option(metavar="NAME", help="sgd, momentum, adam or adamw.")] = None,
    learning_rate: Annotated[float | None, typer.Option(metavar="X", help="Step size.")] = None,
    precision: Annotated[str | None, typer.Option(metavar="fp32|bf16", help="What matrix products are made of; see `ampc doctor`.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting; `LAYER.NAME=VALUE` for one layer. Repeatable.")
    ] = None,
    config: Annotated[Path, typer.Option(metavar="FILE", help="Settings in a `[run]` table; weaker than the model's `train:` block.")] = Path(
        "ampc.toml"
    ),
    print_config: Annotated[bool, typer.Option("--print-config", help="Print every setting, its meaning and where its value came from.")] = False,
    on_nan: Annotated[str | None, typer.Option("--on-nan", metavar="stop|skip|ignore", help="What a value that is not finite does.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN_DIR", help="Continue a run from its newest sound checkpoint.")] = None,
    checkpoint_every: Annotated[int | None, typer.Option(metavar="N", help="Epochs between checkpoints.")] = None,
    init: Annotated[list[str] | None, typer.Option(metavar="[LAYER=]FILE", help="Weights to begin with; also a run folder. Repeatable.")] = None,
    init_partial: Annotated[bool, typer.Option("--init-partial", help="Take over the weights whose names agree, list the others.")] = False,
    names: Annotated[
        str | None, typer.Option(metavar="MAP|torch", help="`--init` and `--export-torch` use PyTorch's names, by a map file or as they are.")
    ] = None,
    export_torch: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the best weights as a PyTorch state dict (safetensors).")] = None,
    infer: Annotated[bool, typer.Option("--infer", help="Predict with the weights of `--init`; no training.")] = False,
    evaluate: Annotated[bool, typer.Option("--evaluate", help="Loss and metrics with the weights of `--init`; no training.")] = False,
    split: Annotated[str | None, typer.Option(metavar="train|valid|test", help="What `--infer` and `--evaluate` read of a folder.")] = None,
    trace: Annotated[bool | None, typer.Option("--trace", help="Record a training pass: `trace/` and a file for Perfetto in the run folder.")] = None,
    trace_epoch: Annotated[int | None, typer.Option(metavar="N", help="Which epoch `--trace` and `--profile` are about (default: the last).")] = None,
    trace_window: Annotated[str | None, typer.Option(metavar="A:B", help="Seconds of that pass that the file for Perfetto shows.")] = None,
    profile: Annotated[bool | None, typer.Option("--profile", help="Say where the time of a training pass went.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object on stdout.")] = False,
) -> None:
    """Train a compiled program asynchronously, evaluate it, or predict with it.

    Settings: flags over `--set` over the model's `train:` block over `ampc.toml` over defaults.

    Example: ampc run list_reduction.ampx --data data/list_reduction --until 'accuracy >= 0.97'
    """
    from ampc.manifest import load
    from ampc.runtime.interrupts import StopNow
    from ampc.runtime.program import Program

    flags: dict[str, Any] = {
        "epochs": epochs, "until": until, "workers": workers, "max_active_keys": max_active_keys, "min_update_frequency": min_update_frequency,
        "group": group, "group_by_length": group_by_length, "mode": mode, "driver": driver, "seed": seed, "optimizer": optimizer,
        "learning_rate": learning_rate, "precision": precision, "on_nan": on_nan, "checkpoint_every": checkpoint_every, "trace": trace,
        "trace_epoch": trace_epoch, "profile": profile,
    }  # fmt: skip
    quiet = quiet or OUTPUT.quiet
    _check_flags(
        infer=infer, evaluate=evaluate, resume=resume, init=init, names=names, split=split, export_torch=export_torch, force=force, output=output,
        valid=valid, trace=trace, profile=profile, trace_epoch=trace_epoch, trace_window=trace_window,
    )  # fmt: skip
    window = parse_window(trace_window)
    manifest = _manifest(manifest, resume)
    with _said(f"read {manifest}"):
        program = Program(load(manifest))
    options = program.options(flags, sets=settings or (), config=_config(config), resume=resume)
    if print_config:
        _print_config(options, as_json)
        return
    try:
        if init:
            with _said("read weights"):
                left = program.load_weights(*init, names=names, partial=init_partial)
            for name in left:
                note(f"note: `{name}` is left out")
        if infer:
            _infer(program, options, _needed(data), output, split, quiet, as_json, force)
        elif evaluate:
            _evaluate(program, options, _needed(data), split, quiet, as_json)
        else:
            inputs = {"manifest": str(manifest), "data": None if data is None else str(data), "valid": None if valid is None else str(valid)}
            summary = _train(program, options, inputs, output, force=force, resume=resume, quiet=quiet)
            if export_torch is not None:
                assert summary.run_folder is not None
                program.load_weights(summary.run_folder)  # the best ones, as for `--init RUN_DIR`
                program.save_weights(export_torch, names=names or "torch")
            if options.trace and program.trace is not None and summary.run_folder is not None:
                write_perfetto(program.trace, Path(summary.run_folder) / PERFETTO, window)
            _print_summary(summary, program, as_json)
            if summary.exit_code:
                raise typer.Exit(summary.exit_code)
    except StopNow as stop:
        raise typer.Exit(stop.exit_code) from None


def _check_flags(**given: Any) -> None:
    """Refuse flags that could have no effect beside others (exit code 2)."""
    mistakes = [
        (given["infer"] and given["evaluate"], "`--infer` and `--evaluate` exclude each other", "run one after the other"),
        (given["resume"] and (given["infer"] or given["evaluate"]), "`--resume` continues a training run", "give the run folder to `--init` instead"),
        (given["resume"] and given["init"], "`--resume` and `--init` both say which weights to begin with", "leave one of them out"),
        (given["resume"] and given["force"], "`--resume` continues what `--force` would overwrite", "leave one of them out"),
        (
            (given["infer"] or given["evaluate"]) and not given["init"],
            "a run without training needs weights",
            "add `--init RUN_FOLDER` or a weights file",
        ),
        (given["split"] and not (given["infer"] or given["evaluate"]), "`--split` belongs to `--infer` and `--evaluate`", "leave it out"),
        (given["split"] not in (None, "train", "valid", "test"), "`--split` expects `train`, `valid` or `test`", "for instance `--split test`"),
        (given["names"] and not (given["init"] or given["export_torch"]), "`--names` belongs to `--init` and `--export-torch`", "add one of them"),
        (given["export_torch"] and (given["infer"] or given["evaluate"]), "`--export-torch` belongs to a training run", "leave it out"),
        (given["valid"] and (given["infer"] or given["evaluate"]), "`--valid` belongs to a training run", "give the file to `--data`"),
        (given["evaluate"] and given["output"], "`--evaluate` writes no file, but `-o` names one", "leave it out; `--json > FILE` keeps the figures"),
        *(
            (given[flag] and (given["infer"] or given["evaluate"]), f"`--{flag.replace('_', '-')}` is of a training pass", "leave it out")
            for flag in ("trace", "profile", "trace_epoch", "trace_window")
        ),
        (given["trace_window"] and not given["trace"], "`--trace-window` is of the file that `--trace` writes", "add `--trace`"),
        (given["evaluate"] and given["force"], "`--force` overwrites, but `--evaluate` writes nothing", "leave it out"),
    ]
    for wrong, message, remedy in mistakes:
        if wrong:
            raise error("AMP719", message, help=remedy, exit_code=2)


def _manifest(given: Path | None, resume: Path | None) -> Path:
    """Return what is to run: where a run is continued and nothing is named, its own. Raises AMP901, AMP708 if `resume` is no run folder."""
    from ampc.runtime.program import stored_settings
    from ampc.runtime.run_folder import read_inputs

    if given is not None:
        return given
    stored = read_inputs(resume).get("manifest") if resume is not None and stored_settings(resume) else None
    if not isinstance(stored, str):
        raise error("AMP901", "`ampc run` needs `MANIFEST`", help="`ampc run --help` says what it is", exit_code=2)
    return Path(stored)


def _config(path: Path) -> Path:
    if path != Path("ampc.toml") and not path.is_file():
        raise error("AMP706", f"there is no settings file `{path}`", help="leave `--config` out, or give a TOML file with a `[run]` table")
    return path


def _needed(data: Path | None) -> Path:
    if data is None:
        raise error("AMP719", "a run needs data", help="add `--data DIR`; `ampc data` makes the bundled data sets", exit_code=2)
    return data


def _print_config(options: RunOptions, as_json: bool) -> None:
    from ampc.runtime.options import SETTINGS, to_toml

    if as_json:
        values = {name: {"value": getattr(options, name), "from": options.origins.get(name, "default").strip("()")} for name in SETTINGS}
        print(json.dumps({"settings": values, "per_layer": options.per_layer}))
    else:
        print(to_toml(options, comments=True), end="")


# ------------------------------------------------------------------------------------------ the three kinds of run


def _train(
    program: Program, options: RunOptions, inputs: dict[str, Any], output: str | None, *, force: bool, resume: Path | None, quiet: bool
) -> Summary:
    from ampc.runtime.interrupts import StopNow
    from ampc.runtime.progress import Display
    from ampc.runtime.run_folder import RunFolder, next_folder, read_inputs

    if resume is not None:
        stored = read_inputs(resume)
        inputs = {key: value if value is not None else stored.get(key) for key, value in inputs.items()}
        if output is not None and Path(output) != resume:
            raise error("AMP719", f"`--resume` goes on in `{resume}`, but `-o` says `{output}`", help="leave `-o` out", exit_code=2)
    data = _needed(None if inputs["data"] is None else Path(inputs["data"]))
    folder = RunFolder(resume or (Path(output) if output is not None else next_folder(program.name)), force=force)
    if resume is None:
        folder.check()
    with _said(f"read {data}"):
        training, validation = program.split_data(data, inputs["valid"], options)
    with Display(quiet=quiet, color=OUTPUT.color != "never") as display:
        session = program.session(options, folder=folder, inputs=inputs, on_event=display)
        try:
            summary = session.train(training, validation, resume=resume)
        except StopNow:
            _say_resume(folder.path)
            raise
    if summary.interrupted:
        _say_resume(folder.path)
    if OUTPUT.verbose:
        note(f"compiled kernels {summary.compile_s:.2f} s, trained and validated {summary.elapsed_s:.2f} s, in all {summary.wall_s:.2f} s")
    program.parameters = session.engine.parameters
    program.trace, program.profile = session.observer.trace, session.observer.profile
    return summary


def _say_resume(folder: Path) -> None:
    from ampc.runtime.checkpoint import FOLDER, steps

    if steps(folder / FOLDER):
        note(f"note: interrupted; `--resume {folder}` goes on from the last checkpoint")


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """Say with `--verbose` what was done, and how long it took."""
    began = time.perf_counter()
    yield
    if OUTPUT.verbose:
        note(f"{what} {time.perf_counter() - began:.2f} s")


def _infer(
    program: Program, options: RunOptions, data: Path, output: str | None, split: str | None, quiet: bool, as_json: bool, force: bool
) -> None:
    from ampc.data import split_to_predict
    from ampc.runtime import predictions
    from ampc.runtime.progress import Display

    path = output or "predictions.parquet"
    predictions.check_path(path, force=force)
    program.check_outputs()
    program.check_weights()
    chosen = split_to_predict(data, split) if data.is_dir() else None
    with _said(f"read {data}"):
        dataset = program.read_unlabelled(data, chosen)
    with Display(quiet=quiet, color=OUTPUT.color != "never") as display, _said("compiled kernels and predicted"):
        outputs = program.session(options, on_event=display).predict(dataset)
    predictions.write(path, program.graph, outputs)
    of = f" of the {chosen} data" if chosen is not None else ""
    if path == "-":
        note(f"{dataset.n:,} predictions{of}")
        return
    result = {"instances": dataset.n, "split": chosen, "outputs": list(outputs), "file": path}
    print(json.dumps(result) if as_json else f"{dataset.n:,} predictions{of} ({', '.join(outputs)}) in {path}")


def _evaluate(program: Program, options: RunOptions, data: Path, split: str | None, quiet: bool, as_json: bool) -> None:
    from ampc.runtime.progress import Display, number

    program.check_weights()
    chosen = (split or "valid") if data.is_dir() else None
    with _said(f"read {data}"):
        dataset = program.read(data, chosen or "valid", on_nan=options.on_nan)
    with Display(quiet=quiet, color=OUTPUT.color != "never") as display, _said("compiled kernels and evaluated"):
        values = program.session(options, on_event=display).evaluate(dataset)
    if as_json:
        print(json.dumps({"instances": dataset.n, "split": chosen, **values}))
        return
    rows = [("data", f"{dataset.n:,} instances" + (f" ({chosen})" if chosen is not None else ""))]
    _print_table(rows + [(name, number(value)) for name, value in values.items()])


# ------------------------------------------------------------------------------------------ what is printed at the end


def _print_summary(s: Summary, program: Program, as_json: bool) -> None:
    from ampc.runtime.progress import number

    if as_json:
        found = {} if program.profile is None else {"profile": msgspec.to_builtins(program.profile)}
        print(json.dumps(_finite({**dataclasses.asdict(s), **found})))
        return
    how = {"epochs": "all epochs are done", "target": "the target is reached", "patience": "no better value", "interrupted": "interrupted"}.get(
        s.stopped, s.stopped
    )
    rows = [("model", s.model), ("epochs", f"{s.epochs} ({how})")]
    rows += [(f"train {name}", number(value)) for name, value in s.training.items()]
    rows += [(f"valid {name}", number(value)) for name, value in s.validation.items()]
    if s.best:
        rows.append((f"best {s.best['name']}", f"{number(s.best['value'])} (epoch {s.best['epoch']})"))
    if s.target:
        rows.append(("target", f"{s.target}: " + (f"after {s.time_to_target_s:.1f} s" if s.time_to_target_s is not None else "not reached")))
    if s.train_instances_per_s is not None:
        predicted = program.manifest.placement.instances_per_s
        beside = f" (placement predicts {predicted:,.0f})" if predicted and s.workers == len(program.manifest.placement.devices) else ""
        rows.append(("instances/s", f"{s.train_instances_per_s:,.0f}{beside}"))
    rows += [("workers", str(s.workers)), ("precision", f"{s.precision} ({s.blas})")]
    rows += [("seconds", f"{s.wall_s:.1f}, of these {s.compile_s:.1f} compiling")]
    stale = {layer: h["mean"] for layer, h in s.staleness.items() if h["mean"] is not None}
    if stale:
        rows.append(("staleness", ", ".join(f"{layer} {mean:.2g}" for layer, mean in list(stale.items())[:8])))
    if s.run_folder is not None:
        rows.append(("run folder", s.run_folder))
    _print_table(rows)
    if program.profile is not None:
        from ampc.runtime.profile import device_table, table

        print()
        print_columns(table(program.profile), left=3)
        print()
        print_columns(device_table(program.profile))


def _print_table(rows: list[tuple[str, str]]) -> None:
    width = max(24, *(len(name) for name, _ in rows))
    for name, value in rows:
        print(f"{name:<{width}} {value}")


def _finite(value: Any) -> Any:
    """Return JSON data without NaN and infinities (null stands for them)."""
    import math

    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
