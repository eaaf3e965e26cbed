"""The command line: verbs, the options that hold for all of them, and exit codes. Thin: each verb is a module that calls the library."""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

import typer

from ampc.cli import check, compile, data, doctor, explain, passes, run, view
from ampc.cli.errors import OUTPUT, guarded, version
from ampc.cli.usage import usage_error

GLOBALS = {"--error-format": 1, "--color": 1, "--quiet": 0, "-q": 0, "--verbose": 0, "-v": 0}
"""Options of `ampc` itself -> how many values they take. They may stand before or after the verb."""


class ErrorFormat(StrEnum):
    human = "human"
    json = "json"


class Color(StrEnum):
    auto = "auto"
    always = "always"
    never = "never"


app = typer.Typer(
    name="ampc", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compile neural networks whose shape depends on each instance, and train them asynchronously.",
    epilog="Exit codes: 0 done, 1 the input is wrong, 2 the command is wrong, 3 the run failed, 4 resources, 70 a bug in ampc. "
           "Options of `ampc` may stand before or after the verb.",
)
compile.register(app)
app.command("run")(run.run)
for verb in (view, check, explain, passes, data, doctor):
    verb.register(app)


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
    OUTPUT.error_format, OUTPUT.color, OUTPUT.quiet, OUTPUT.verbose = "human", "auto", False, False
    command = typer.main.get_command(app)
    ordered = globals_first(argv, _own_options(command, argv))
    if "--error-format=json" in ordered or any(a == "--error-format" and b == "json" for a, b in pairwise(ordered)):
        OUTPUT.error_format = "json"  # before typer looks at the rest, so that usage errors obey too
    return guarded(lambda: _dispatch(command, ordered), argv)


def _dispatch(command: Any, argv: list[str]) -> int:
    try:
        status = command.main(args=argv, prog_name="ampc", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as e:
        raise usage_error(e) from None


def _own_options(command: Any, argv: Sequence[str]) -> set[str]:
    """Return the options that the verb in `argv` declares itself: those stay where they are."""
    verb = next((command.commands[word] for word in argv if word in command.commands), None)
    return set() if verb is None else {o for p in verb.params for o in p.opts}


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
            front += argv[i : i + taken]
            i += taken
            continue
        rest.append(word)
        i += 1
    return front + rest


__all__ = ["app", "globals_first", "main"]
