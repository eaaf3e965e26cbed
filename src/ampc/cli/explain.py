"""`ampc explain`: the long form of a diagnostic's code, with a wrong and a right example."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("explain", epilog="Example: ampc explain AMP501")(explain_command)


def explain_command(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="Such as AMP203; without one, all codes are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Explain an error code at length."""
    from ampc.codes import all_codes, explain, text

    if code is None:
        listed = all_codes()
        if as_json:
            print(json.dumps({k: dataclasses.asdict(x) for k, x in listed.items()}, indent=1))
        else:
            print("\n".join(f"{k}  {x.title}" for k, x in listed.items()))
        return
    if as_json:
        print(json.dumps(dataclasses.asdict(explain(code)), indent=1))
    else:
        print(text(code))


__all__ = ["register"]
