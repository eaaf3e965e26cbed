"""`ampc calibrate`: measure this machine and write a target file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ampc.calibrate import DEFAULT_SECONDS
from ampc.cli.errors import note
from ampc.diagnostics import printable


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("calibrate", epilog="Example: ampc calibrate -o cpu.toml --seconds 5")(calibrate_command)


def calibrate_command(
    out: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="Target file to write.")] = "cpu.toml",
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=3600, help="How long to measure; compiling comes on top.")] = DEFAULT_SECONDS,
    cores: Annotated[int | None, typer.Option("--cores", help="Devices of the target. Default: as many as this process may use.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that this verb did not write.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all measurements as JSON.")] = False,
) -> None:
    """Measure this machine: products, element-wise work, memory, tokens, messages between cores; write the target file for `--target`."""
    from ampc.calibrate import calibrate, check_file, write
    from ampc.calibrate.report import table, warning
    from ampc.calibrate.report import as_json as everything
    from ampc.place import load_target

    file = Path(out)
    check_file(file, force=force)
    found = calibrate(seconds, cores, note)
    write(found, file)
    shown = printable(str(file))
    if as_json:
        print(json.dumps(everything(found, str(file), load_target(file)), indent=1))
    else:
        print(table(found))
        print(f"wrote {shown}: use it with `--target {shown}`")
    noisy = warning(found)
    if noisy:
        note(f"warning: {noisy}")


__all__ = ["register"]
