"""Usage errors in our words: what typer raises becomes an AmpError with code AMP901 and exit code 2, with the nearest right spelling."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, printable

_KINDS = {"integer": "an integer", "int": "an integer", "float": "a number", "boolean": "`true` or `false`"}


def usage_error(e: Any) -> AmpError:
    """Return typer's exception `e` as an AmpError."""
    ctx = getattr(e, "ctx", None)
    path = ctx.command_path if ctx is not None else "ampc"
    message, remedy = _words(e, path, ctx)
    return AmpError(Diagnostic("AMP901", message, help=remedy or f"`{path} --help` shows what there is"), exit_code=2)


def _words(e: Any, path: str, ctx: Any) -> tuple[str, str | None]:
    kind, said = type(e).__name__, e.format_message()
    match kind:
        case "NoSuchOption":
            return f"`{path}` has no option `{printable(e.option_name)}`", did_you_mean(e.option_name, options_of(ctx))
        case "BadOptionUsage":
            return f"`{e.option_name}` of `{path}` needs a value" if "requires" in said else f"`{e.option_name}` of `{path}`: {_plain(said)}", None
        case "MissingParameter":
            name = e.param.opts[0] if e.param is not None and e.param.param_type_name == "option" else _metavar(e.param)
            return f"`{path}` needs `{name}`", f"`{path} --help` says what it is"
        case "BadParameter":
            return _bad_value(e, path, said), None
        case "NoArgsIsHelpError":
            return f"`{path}` needs a verb", "verbs are " + ", ".join(f"`{v}`" for v in commands_of(ctx))
    verb = re.fullmatch(r"No such command '(.*?)'\..*", said, re.DOTALL)
    if verb:
        known = commands_of(ctx)
        listed = "verbs are " + ", ".join(f"`{v}`" for v in known)
        return f"`{path}` has no verb `{printable(verb.group(1))}`", did_you_mean(verb.group(1), known) or listed
    extra = re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", said, re.DOTALL)
    if extra:
        return f"`{path}` does not expect `{printable(extra.group(1))}`", None
    if said == "Missing command.":
        return f"`{path}` needs a verb", "verbs are " + ", ".join(f"`{v}`" for v in commands_of(ctx))
    return f"`{path}`: {_plain(said)}", None


def _bad_value(e: Any, path: str, said: str) -> str:
    name = e.param.opts[-1] if e.param is not None and e.param.param_type_name == "option" else _metavar(e.param)
    typed = re.search(r"'(.*)' is not a valid (integer|float|boolean|int)", said, re.DOTALL)
    if typed:
        return f"`{name}` of `{path}` expects {_KINDS[typed.group(2)]}, got `{printable(typed.group(1))}`"
    ranged = re.search(r"(\S+) is not in the range (.*?)\.?$", said, re.DOTALL)
    if ranged:
        return f"`{name}` of `{path}` is {ranged.group(1)}, allowed is {ranged.group(2)}"
    choice = re.search(r"'(.*)' is not one of (.*?)\.?$", said, re.DOTALL)
    if choice:
        listed = ", ".join(f"`{c}`" for c in re.findall(r"'([^']*)'", choice.group(2)))
        return f"`{name}` of `{path}` must be one of {listed}, got `{printable(choice.group(1))}`"
    return f"`{name}` of `{path}`: {_plain(said.partition(': ')[2] or said)}"


def _metavar(param: Any) -> str:
    return (param.metavar or param.name or "argument").upper() if param is not None else "ARGUMENT"


def _plain(text: str) -> str:
    text = printable(text.strip()).rstrip(".")
    return text[:1].lower() + text[1:]


def options_of(ctx: Any) -> list[str]:
    """Return the options of the command that `ctx` is about."""
    return [o for p in ctx.command.get_params(ctx) if p.param_type_name == "option" for o in (*p.opts, *p.secondary_opts)] if ctx is not None else []


def commands_of(ctx: Any) -> list[str]:
    """Return the verbs below the command that `ctx` is about."""
    found: Iterable[str] = getattr(ctx.command, "commands", {}) if ctx is not None else ()
    return list(found)


__all__ = ["commands_of", "options_of", "usage_error"]
