"""Usage errors in our words: what typer raises becomes an AmpError with code AMP901 and exit code 2, with the nearest right spelling."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, printable

_KINDS = {"integer": "an integer", "number": "a number", "boolean": "`true` or `false`"}


ALIASES = {
    "lr": "--learning-rate", "batch_size": "--min-update-frequency", "muf": "--min-update-frequency", "mak": "--max-active-keys", "out": "--output",
    "validation": "--valid", "val": "--valid", "weights": "--init", "predict": "--infer", "eval": "--evaluate", "threads": "--workers",
}  # fmt: skip
"""What people call an option -> its name."""


def usage_error(e: Any, path: str, verbs_with: Callable[[str], list[str]]) -> AmpError:
    """Return typer's exception `e` as an AmpError; `path` is the command as far as it was understood. verbs_with: what verbs have an option."""
    ctx = getattr(e, "ctx", None)
    path = ctx.command_path if ctx is not None else path
    message, remedy = _words(e, path, ctx, verbs_with)
    return AmpError(Diagnostic("AMP901", message, help=remedy or f"`{path} --help` shows what there is"), exit_code=2)


def _words(e: Any, path: str, ctx: Any, verbs_with: Callable[[str], list[str]]) -> tuple[str, str | None]:
    kind, said = type(e).__name__, e.format_message()
    match kind:
        case "NoSuchOption":
            known = options_of(ctx)
            meant = ALIASES.get(e.option_name.lstrip("-").replace("-", "_"))
            near = f"did you mean `{meant}`?" if meant in known else _elsewhere(verbs_with(e.option_name)) or did_you_mean(e.option_name, known)
            return f"`{path}` has no option `{printable(e.option_name)}`", near
        case "BadOptionUsage":
            return f"`{e.option_name}` of `{path}` {'needs a value' if 'requires' in said else 'takes no value'}", None
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
    extra = re.fullmatch(r"Got unexpected extra argument\S* \((.*)\)", said, re.DOTALL)
    if extra:
        return f"`{path}` does not expect `{printable(extra.group(1))}`", None
    if said == "Missing command.":
        return f"`{path}` needs a verb", "verbs are " + ", ".join(f"`{v}`" for v in commands_of(ctx))
    return f"`{path}`: {_plain(said)}", None


def _elsewhere(verbs: list[str]) -> str | None:
    shown = [f"`ampc {v}`" for v in verbs]
    return None if not verbs else f"{shown[0]} has it" if len(verbs) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]} have it"


def _bad_value(e: Any, path: str, said: str) -> str:
    name = e.param.opts[-1] if e.param is not None and e.param.param_type_name == "option" else _metavar(e.param)
    given = _given(e)
    typed = re.search(r"valid (integer|number|boolean)", said)
    if typed and given is not None:
        return f"`{name}` of `{path}` expects {_KINDS[typed.group(1)]}, got `{printable(given)}`"
    choice = re.search(r" is not one of (.*?)\.?$", said, re.DOTALL)
    if choice and given is not None:
        listed = ", ".join(f"`{c}`" for c in re.findall(r"'([^']*)'", choice.group(1)))
        return f"`{name}` of `{path}` must be one of {listed}, got `{printable(given)}`"
    return f"`{name}` of `{path}`: {_plain(said.partition(': ')[2] or said)}"


def _given(e: Any) -> str | None:
    """Return the text that did not fit, from the validation error that typer's stands for."""
    try:
        return str(e.__cause__.errors()[0]["input"])
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _metavar(param: Any) -> str:
    return (param.metavar or param.name or "argument").upper().rstrip(".") if param is not None else "ARGUMENT"


def _plain(text: str) -> str:
    text = printable(text.strip()).rstrip(".")
    return text[:1].lower() + text[1:]


def options_of(ctx: Any) -> list[str]:
    """Return the options of the command that `ctx` is about."""
    return [o for p in ctx.command.get_params(ctx) if p.param_type_name == "option" for o in (*p.opts, *p.secondary_opts)] if ctx is not None else []


def commands_of(ctx: Any) -> list[str]:
    """Return the verbs below the command that `ctx` is about."""
    found: list[str] = ctx.command.list_commands(ctx) if hasattr(ctx, "command") and hasattr(ctx.command, "list_commands") else []
    return found


__all__ = ["commands_of", "options_of", "usage_error"]
