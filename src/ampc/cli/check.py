"""`ampc check`: find the mistakes in models, manifests and targets, and write nothing."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ampc.cli.errors import OUTPUT, as_json, note, show
from ampc.diagnostics import AmpError, printable


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("check", epilog="Example: ampc check models/*.amp targets/*.toml")(check_command)


def check_command(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Models (`.amp`), manifests (`.json` or a folder), targets (`.toml`).")],
    json_out: Annotated[bool, typer.Option("--json", help="Print the result for each file as JSON.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of manifests first.")] = False,
) -> None:
    """Check models, manifests and targets; exit code 1 if any is wrong."""
    from ampc.source import texts

    if schema:
        from ampc.manifest import json_schema

        print(json.dumps(json_schema(), indent=1))
    results, wrong = [], 0
    for file in files:
        try:
            kind = _check(file)
            results.append({"file": file, "kind": kind, "ok": True, "diagnostics": []})
            if not json_out:
                note(f"{printable(file)}: {kind}, no mistakes")
        except AmpError as e:
            wrong += 1
            results.append({"file": file, "ok": False, "diagnostics": [as_json(d, texts()) for d in e.diagnostics]})
            if not json_out or OUTPUT.error_format == "json":
                show(e)
    if json_out:
        print(json.dumps(results, indent=1))
    if wrong:
        raise typer.Exit(1)


def _check(file: str) -> str:
    from ampc.manifest import is_manifest_path, load

    if is_manifest_path(file):
        load(file)
        return "manifest"
    if file.endswith(".toml"):
        from ampc.place import load_target

        load_target(file)
        return "target"
    from ampc.cli.compile import compile_model

    compile_model(file, stop_after="passes")
    return "model"


__all__ = ["register"]
