"""`ampc bench`: how fast a program runs here, on its user's data. Parses flags, calls the library, prints; nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampc.cli.errors import OUTPUT, note
from ampc.cli.simulate import Source
from ampc.cli.trace import print_columns
from ampc.diagnostics import error, printable

if TYPE_CHECKING:
    from ampc.bench.measure import Bench
    from ampc.runtime.options import RunOptions, Value

MOST_INSTANCES = 20_000
"""Instances that are used of larger data, unless `--instances` says otherwise: every setting holds a copy of them."""


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("bench", epilog="Example: ampc bench models/list_reduction.amp --data data/list_reduction --workers 1,2 --max-active-keys 1,16,256")(
        bench_command
    )


def bench_command(
    model: Annotated[str, typer.Argument(metavar="MANIFEST|MODEL", help="A compiled folder or `manifest.json`; or a `.amp` file or bundled model.")],
    data: Annotated[Path | None, typer.Option(metavar="DIR|FILE", help="Folder with train.*, or a file.")] = None,
    workers: Annotated[list[str] | None, typer.Option(metavar="N,N,...", help="Worker threads; each number is measured.")] = None,
    max_active_keys: Annotated[
        list[str] | None, typer.Option(metavar="N,N,...", help="Instances (or groups) in flight; each is measured with each number of workers.")
    ] = None,
    infer: Annotated[bool, typer.Option("--infer", help="Measure predictions in place of training.")] = False,
    latency: Annotated[bool, typer.Option("--latency", help="Also measure one instance with nothing else in flight.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the run, or a parameter of a `.amp` model. Repeatable.")
    ] = None,
    init: Annotated[
        list[str] | None, typer.Option(metavar="[LAYER=]FILE", help="Weights (default: random ones); also a run folder. Repeatable.")
    ] = None,
    instances: Annotated[
        int, typer.Option(metavar="N", min=0, help=f"Use the first N training instances (default: at most {MOST_INSTANCES:,}; 0 is all).")
    ] = MOST_INSTANCES,
    seconds: Annotated[float, typer.Option(metavar="X", min=0.01, max=600, help="Length of a window.")] = 1.0,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Windows of each setting, in turn.")] = 5,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Keep everything that was measured as .json.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite that file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object on stdout.")] = False,
) -> None:
    """Measure how fast a program trains (or predicts) on this machine: throughput by setting, the engine's share of the time, memory, latency.

    Settings take turns in short windows, so that whatever slows the machine down slows all of them. Nothing is kept of the weights.
    """
    _check(data, output, force)
    assert data is not None
    from ampc.bench import measure as bench
    from ampc.bench import report
    from ampc.runtime.program import Program

    source = Source(model, data, sets or [], [], None, "balanced")
    program = Program(source.manifest({}))
    chosen = [_numbers(w) for w in (workers, max_active_keys)]

    def options(n_workers: Value | None, in_flight: Value | None) -> RunOptions:
        flags = {"until": "", "watch": "", "workers": n_workers, "max_active_keys": in_flight}
        return program.options(flags, sets=source.settings, config=Path("ampc.toml"))

    for n in chosen[0]:
        for k in chosen[1]:
            options(n, k)  # a number that can't be is refused before anything is measured
    if init:
        program.load_weights(*init)
    training = program.read(data)
    if 0 < instances < training.n:
        training = training.select(range(instances))
    found = bench.measure(
        program, training, options, *chosen, work="inference" if infer else "training", latency=latency, seconds=seconds, rounds=rounds,
        say=note if OUTPUT.verbose else lambda what: None,
    )  # fmt: skip
    everything = _described(found, model, data)
    if output is not None:
        from ampc.manifest import write_atomic

        write_atomic(output, json.dumps(everything, indent=1).encode() + b"\n")
    if as_json:
        print(json.dumps(everything))
    else:
        rows = [("model", found.model), ("processor", f"{everything['processor']}, {everything['cores']} cores"), *report.head(found)]
        for name, value in rows:
            print(f"{name:<24} {printable(value)}")
        print()
        print_columns(report.table(found), left=0)
    for warning in report.warnings(found):
        note(f"warning: {warning}")


def _check(data: Path | None, output: Path | None, force: bool) -> None:
    mistakes = [
        (data is None, "a bench needs data: its lengths decide what is computed", "add `--data DIR`; `ampc data` makes the bundled data sets"),
        (output is not None and output.suffix != ".json", "`-o` writes .json", "for instance `-o results.json`"),
        (output is not None and output.exists() and not force, f"`{printable(str(output))}` exists", "give another file, or `--force`"),
        (output is not None and not output.parent.is_dir(), f"`{printable(str(output))}` can't be written: its folder isn't there", "make it first"),
        (force and output is None, "`--force` overwrites what `-o` names", "add `-o FILE`, or leave it out"),
    ]
    for wrong, message, remedy in mistakes:
        if wrong:
            raise error("AMP719", message, help=remedy, exit_code=2)


def _numbers(texts: list[str] | None) -> list[Any]:
    """Return the values of a list that may be given in parts, each once; [None] if there is none. What they may be is the settings' to say."""
    from ampc.runtime.options import parse_value

    words = [w.strip() for t in texts or () for w in t.split(",") if w.strip()]
    return list(dict.fromkeys(parse_value(w) for w in words)) or [None]


def _described(found: Bench, model: str, data: Path) -> dict[str, Any]:
    """Return the measurements with what they were made on."""
    from ampc.bench.measure import as_json
    from ampc.runtime.run_folder import environment

    made = environment()
    names = {"processor": "processor", "cores": "usable_cores", "packages": "packages", "ampc": "ampc", "date": "started"}
    return {**as_json(found), "program": model, "data": str(data), **{name: made[key] for name, key in names.items()}}


__all__ = ["register"]
