"""`ampc passes`: the passes in the order in which they run, with a sentence each."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("passes", epilog="Example: ampc passes")(passes_command)


def passes_command(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """List the passes over the graph, in order; `ampc compile --disable-pass NAME` leaves one out."""
    from ampc.passes import PIPELINE

    rows = [{"name": p.name, "help": p.help} for p in PIPELINE]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    width = max((len(r["name"]) for r in rows), default=0)
    for i, r in enumerate(rows):
        print(f"{i + 1:2}  {r['name']:{width}}  {r['help']}")


__all__ = ["register"]
