"""`ampc explain`: the long form of a diagnostic's code, with a wrong and a right example."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Annotated

import typer

from ampc.diagnostics import did_you_mean, error, printable


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("explain", epilog="Example: ampc explain AMP501")(explain_command)


def explain_command(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="Such as AMP203; without one, all codes are listed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Explain an error code at length."""
    from ampc.codes import CODES

    if code is None:
        listed = dict(sorted(CODES.items()))
        print(json.dumps({k: dataclasses.asdict(x) for k, x in listed.items()}, indent=1) if as_json else "\n".join(f"{k}  {x.title}" for k, x in listed.items()))
        return
    wanted = code.upper()
    if re.fullmatch(r"\d+", wanted):
        wanted = f"AMP{wanted}"
    if wanted not in CODES:
        raise error("AMP908", f"there is no code `{printable(code)}`", help=did_you_mean(wanted, CODES) or "`ampc explain` lists all codes", exit_code=2)
    x = CODES[wanted]
    if as_json:
        print(json.dumps({"code": wanted, **dataclasses.asdict(x)}, indent=1))
        return
    parts = [f"{wanted}: {x.title}", "", x.text]
    for head, example in (("wrong", x.wrong), ("right", x.right)):
        if example:
            parts += ["", f"{head}:", *("    " + line for line in example.rstrip("\n").splitlines())]
    print("\n".join(parts))


__all__ = ["register"]
