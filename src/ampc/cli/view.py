"""`ampc view`: the graph of a model or of a compiled model as DOT, SVG, PNG or PDF."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampc.cli.compile import AtOption, SetOption, StrategyOption, TargetOption, compile_model
from ampc.cli.errors import note
from ampc.cli.trace import load_of
from ampc.diagnostics import did_you_mean, error, printable

if TYPE_CHECKING:
    from ampc.manifest import Manifest


class DetailOption(StrEnum):
    paper = "paper"
    layers = "layers"


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("view", epilog="Example: ampc view models/list_reduction.amp --detail layers -o list_reduction.svg")(view_command)


def view_command(
    program: Annotated[str, typer.Argument(metavar="MODEL|MANIFEST", help="A `.amp` file, a manifest, or a folder that `ampc compile` wrote.")],
    out: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="`.dot`, `.svg`, `.png` or `.pdf`; `-` writes DOT to standard output.")
    ] = "-",
    detail: Annotated[DetailOption, typer.Option(help="`paper`: every node. `layers`: without what only moves messages.")] = DetailOption.paper,
    devices: Annotated[bool, typer.Option("--devices/--no-devices", help="Whether devices are drawn as clusters.")] = True,
    target: TargetOption = None,
    sets: SetOption = None,
    strategy: StrategyOption = "balanced",
    at: AtOption = None,
    data: Annotated[str | None, typer.Option(metavar="DIR|FILE", help="Data that the program was placed by, with a model and `--load`.")] = None,
    load: Annotated[
        Path | None, typer.Option(metavar="RUN_DIR|TRACE_DIR", help="Colour nodes by how loaded they were in a recorded or simulated pass.")
    ] = None,
) -> None:
    """Draw the graph: devices as clusters, node kinds (with `--load`: load) told apart, forward and loop edges told apart."""
    from ampc import view
    from ampc.manifest import write_atomic

    form = "dot" if out == "-" else Path(out).suffix[1:].lower()
    forms = ("dot", *view.FORMATS)
    if form not in forms:
        listed = ", ".join(f"`.{f}`" for f in forms)
        raise error("AMP904", f"`-o {printable(out)}` must end in one of {listed}", help=did_you_mean(form, forms), exit_code=2)
    manifest = _manifest(program, target, sets, strategy, at, data)
    placement = manifest.placement if devices else None
    loaded = load_of(load, manifest) if load is not None else None
    text = view.dot(manifest.graph, placement, manifest.target if devices else None, view.check_detail(detail.value), loaded)
    if out == "-":
        sys.stdout.write(text)
        return
    write_atomic(Path(out), text.encode() if form == "dot" else view.render(text, form))
    drawn, total = view.drawn_nodes(manifest.graph, view.check_detail(detail.value)), len(manifest.graph.nodes)
    note(f"{printable(out)}: {total} nodes" if drawn == total else f"{printable(out)}: {drawn} of {total} nodes")


def _manifest(
    program: str, target: str | None, sets: list[str] | None, strategy: str, at: list[str] | None, data: str | None,
) -> Manifest:  # fmt: skip
    from ampc.manifest import is_manifest_path, load

    if is_manifest_path(program):
        if target is not None or sets or strategy != "balanced" or at or data is not None:
            message = "`--target`, `--set`, `--strategy`, `--at` and `--data` are for a model; a manifest is placed already"
            raise error("AMP903", message, help="name the `.amp` file", exit_code=2)
        return load(program)
    done = compile_model(program, target=target, sets=sets, strategy=strategy, at=at, data=data)
    assert done.manifest is not None
    return done.manifest


__all__ = ["register"]
