"""`ampc data`: make the folder of a bundled data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ampc.cli.errors import note
from ampc.diagnostics import did_you_mean, error, printable

if TYPE_CHECKING:
    from ampc.data.recipes import Recipe


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("data", epilog="Example: ampc data list_reduction -o data/list_reduction --set train=1000 --set valid=100")(data_command)


def data_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The data set; without one, all are listed.")] = None,
    out: Annotated[str | None, typer.Option("-o", "--output", metavar="DIR", help="Folder to write. Default: data/NAME.")] = None,
    source: Annotated[str | None, typer.Option("--from", metavar="DIR", help="Folder with the original files, for data sets that need them.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change an option of the data set. Repeatable.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn at random.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace what the folder holds.")] = False,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if the folder holds this data set already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Make a data set: training and validation instances in a folder that `ampc run --data` takes."""
    from ampc.data.recipes import RECIPES

    if name is None:
        _list(list(RECIPES.values()), as_json)
        return
    if name not in RECIPES:
        listed = "data sets are " + ", ".join(f"`{r}`" for r in RECIPES)
        raise error("AMP909", f"there is no data set `{printable(name)}`", help=did_you_mean(name, RECIPES) or listed, exit_code=2)
    folder = Path(out) if out is not None else Path("data") / name
    if if_missing and _made_by(folder) == name:
        note(f"{printable(str(folder))}: there already")
        return
    files = RECIPES[name].make(folder, source, dict(_pair(s) for s in sets or []), seed, force=force)
    if as_json:
        print(json.dumps({"name": name, "folder": str(folder), "files": [str(f) for f in files]}, indent=1))
        return
    instances = _meta(folder).get("instances", {})
    print(f"{name}: " + ", ".join(f"{n:,} {split}" for split, n in instances.items()) + f" instances in {printable(str(folder))}")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key or not value:
        raise error("AMP902", f"`--set {printable(text)}` expects `NAME=VALUE`", help="for instance `--set train=1000`", exit_code=2)
    return key, value


def _list(recipes: list[Recipe], as_json: bool) -> None:
    if as_json:
        rows = []
        for r in recipes:
            options = {o.name: {"default": o.default, "help": o.help} for o in r.options}
            rows.append({"name": r.name, "help": r.help, "needs_source": r.needs_source, "options": options})
        print(json.dumps(rows, indent=1))
        return
    width = max(len(r.name) for r in recipes)
    for r in recipes:
        print(f"{r.name:{width}}  {r.help}{' (needs --from DIR)' if r.needs_source else ''}")
        for o in r.options:
            print(f"{'':{width}}    --set {o.name}={o.default}: {o.help}")


def _meta(folder: Path) -> dict[str, dict[str, int]]:
    try:
        found = json.loads((folder / "meta.json").read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _made_by(folder: Path) -> object:
    return _meta(folder).get("recipe")


__all__ = ["register"]
