"""The command line: verbs, the options that hold for all of them, and exit codes. Thin: each verb is a module that calls the library.

A verb's module is imported when that verb is asked for.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Container, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ampc.cli.errors import OUTPUT, guarded, version
from ampc.cli.usage import usage_error
from ampc.diagnostics import error

GLOBALS = {"--error-format": 1, "--color": 1, "--quiet": 0, "-q": 0, "--verbose": 0, "-v": 0}
"""Options of `ampc` itself -> how many values they take. They may stand before or after the verb."""

VERBS = {
    "compile": "Compile a model: check it, place it, write what runs need.",
    "run": "Train a compiled program, evaluate it, predict with it.",
    "place": "Show where a program's nodes go, and how fast it would be.",
    "simulate": "Train in virtual time on the devices of a target.",
    "bench": "Measure how fast a program trains or predicts here.",
    "view": "Draw the graph.",
    "trace": "Show what a recorded pass did.",
    "check": "Find mistakes in models, manifests and targets.",
    "explain": "Explain an error code at length.",
    "passes": "List the passes over the graph.",
    "data": "Make a data set.",
    "calibrate": "Measure this machine, write a target file.",
    "doctor": "Show what is installed and what a run would use.",
}
"""Verb, which is also the name of its module -> what `ampc --help` says of it."""


class ErrorFormat(StrEnum):
    human = "human"
    json = "json"


class Color(StrEnum):
    auto = "auto"
    always = "always"
    never = "never"


@functools.cache
def _command(verb: str) -> Any:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    importlib.import_module(f"ampc.cli.{verb}").register(alone)
    return typer.main.get_command(alone)


class Verbs(TyperGroup):
    """The commands of `VERBS`, each made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=Verbs, name="ampc", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile neural networks whose shape depends on each instance, and train them asynchronously.",
    epilog="Exit codes: 0 done, 1 the input is wrong, 2 the command is wrong, 3 the run failed, 4 resources, 70 a bug in ampc. "
           "Options of `ampc` may stand before or after the verb.",
)


@app.callback(invoke_without_command=True)
def _global(
    ctx: typer.Context,
    error_format: Annotated[ErrorFormat, typer.Option("--error-format", help="How errors are written to stderr.")] = ErrorFormat.human,
    color: Annotated[Color, typer.Option("--color", help="Colours; `auto` asks the terminal, NO_COLOR and TERM.")] = Color.auto,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Results and errors only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what is being done, with times.")] = False,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    OUTPUT.error_format, OUTPUT.color, OUTPUT.quiet, OUTPUT.verbose = error_format.value, color.value, quiet, verbose
    if show_version:
        print(f"ampc {version()}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status; nothing is raised."""
    OUTPUT.quiet = OUTPUT.verbose = False
    _look_ahead(argv)
    return guarded(lambda: _dispatch(argv), argv)


def _look_ahead(argv: Sequence[str]) -> None:
    """Take the options that say how errors are shown before anything else is looked at, so that usage errors obey them too."""
    words = {f"{a}={b}" for a, b in pairwise(argv)} | set(argv)
    OUTPUT.error_format = "json" if "--error-format=json" in words else "human"
    OUTPUT.color = "always" if "--color=always" in words else "never" if "--color=never" in words else "auto"


def _dispatch(argv: Sequence[str]) -> int:
    command: Any = typer.main.get_command(app)
    verb = next((word for word in argv if word in VERBS), None)
    own = {o for p in _command(verb).params for o in p.opts} if verb is not None else set()
    streams = sys.stdout, sys.stderr
    try:
        status = command.main(args=globals_first(argv, own), prog_name="ampc", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except SystemExit as e:
        # typer ends with 1 where a reader of our output has gone, and leaves other streams behind; `guarded` knows better.
        sys.stdout, sys.stderr = streams
        if isinstance(e.__context__, BrokenPipeError):
            raise e.__context__ from None
        raise
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as e:
        raise usage_error(e, f"ampc {verb}" if verb is not None else "ampc", _verbs_with) from None


def _verbs_with(option: str) -> list[str]:
    return [verb for verb in VERBS if any(option in p.opts for p in _command(verb).params)]


def globals_first(argv: Sequence[str], own: Container[str] = ()) -> list[str]:
    """Return `argv` with the options of `ampc` itself moved to the front, up to a `--`; those in `own` belong to the verb."""
    front: list[str] = []
    rest: list[str] = []
    i = 0
    while i < len(argv):
        word = argv[i]
        if word == "--":
            return front + rest + list(argv[i:])
        name, _, joined = word.partition("=")
        if name in GLOBALS and name not in own and not (joined and not GLOBALS[name]):
            taken = 1 + (GLOBALS[name] if not joined else 0)
            if i + taken > len(argv):
                raise error("AMP901", f"`{name}` of `ampc` needs a value", help="`ampc --help` shows what there is", exit_code=2)
            front += argv[i : i + taken]
            i += taken
            continue
        rest.append(word)
        i += 1
    return front + rest


__all__ = ["VERBS", "app", "globals_first", "main"]
