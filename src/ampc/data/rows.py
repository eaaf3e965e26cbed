"""Says what is wrong with one row that didn't decode: the slow, exact look at a Python value, field by field.

Only rows already known to be wrong come here; `check_row` reports the first mistake of each field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ampc.data.problems import Problems
from ampc.data.schema import Schema, Spec
from ampc.diagnostics import did_you_mean


class Wrong(Exception):
    """One mistake in a value: code, message, help."""

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.help = code, message, help


def check_row(item: Any, row: int, schema: Schema, problems: Problems) -> bool:
    """Add the mistakes of the row to `problems`; return whether there was any."""
    if not isinstance(item, dict):
        problems.add("AMP809", "", row, f"expected an object with the fields {_quoted(schema.names)}, found {describe(item)}")
        return True
    found = bool(missing(schema.names, item, row, problems))
    for spec in schema.specs:
        if spec.name in item:
            try:
                _check(item[spec.name], spec, 0, spec.name, item[spec.name])
            except Wrong as wrong:
                found = True
                problems.add(wrong.code, spec.name, row, wrong.message, wrong.help)
    return found


def missing(wanted: Iterable[str], given: Iterable[Any], row: int, problems: Problems) -> list[str]:
    """Add a problem if fields of `wanted` are not in `given` (of the whole file if `row` is -1), with a suggestion; return them."""
    names = [str(g) for g in given]
    wanted = list(wanted)
    absent = [w for w in wanted if w not in names]
    if absent:
        has = f"it has {_quoted(names)}" if names else "it has none"
        extra = [n for n in names if n not in wanted]
        near = [(n, w) for n in extra for w in absent if did_you_mean(n, [w])]
        # a file in quite another format has stray near misses: suggestions would mislead there
        help = "; ".join(f"rename `{n}` to `{w}`: did you mean `{w}`?" for n, w in near) if near and 2 * len(near) >= len(absent) else None
        word = "field" if len(absent) == 1 else "fields"
        problems.add(
            "AMP807",
            " ".join(absent),
            row,
            f"the {word} {_quoted(absent)} {'is' if len(absent) == 1 else 'are'} missing; {has}",
            help or "every declared field must be there; write null where it is declared `or none`",
        )
    return absent


def _check(value: Any, spec: Spec, depth: int, path: str, whole: Any) -> None:
    """Raise `Wrong` for the first mistake in `value`, which lies at `path` inside `depth` lists."""
    element = len(spec.axes)
    if depth < element:
        if value is None:
            raise Wrong("AMP811", f"`{path}` is null, expected a list over axis `{spec.axes[depth]}`", "write [] for an axis without elements")
        if not isinstance(value, list):
            raise wrong_shape(spec, shape_of(whole))
        for i, item in enumerate(value):
            _check(item, spec, depth + 1, f"{path}[{i}]", whole)
    elif value is None:
        if depth > element or not spec.decl.optional:
            raise null(spec, path, inside=depth > element)
    elif depth < spec.depth:
        if not isinstance(value, list):
            raise wrong_shape(spec, shape_of(whole))
        for i, item in enumerate(value):
            _check(item, spec, depth + 1, f"{path}[{i}]", whole)
    elif isinstance(value, list):
        raise wrong_shape(spec, shape_of(whole))
    else:
        _check_leaf(value, spec, path)


def _check_leaf(value: Any, spec: Spec, path: str) -> None:
    kind = spec.decl.kind
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, bool):
        if kind != "flag":
            raise Wrong("AMP809", f"`{path}` is {describe(value)}, expected {spec.wanted}", f"declare `{spec.name}` as flag, or write 0 and 1")
    elif not number:
        raise Wrong("AMP809", f"`{path}` is {describe(value)}, expected {spec.wanted}", _text_help(value) if isinstance(value, str) else None)
    elif kind != "float":
        if isinstance(value, float) and not value.is_integer():
            raise Wrong("AMP809", f"`{path}` is {value!r}, expected {spec.wanted}")
        if not -(2**63) <= value < 2**63:
            raise Wrong("AMP812", f"`{path}` is {str(value)[:30]}, expected {spec.wanted}")


def _text_help(value: str) -> str:
    try:
        float(value)
    except ValueError:
        return "write numbers: classes, kinds and words are counted from 0"
    return f"write the number without quotes: {value.strip()[:30]}"


def null(spec: Spec, path: str, inside: bool = False) -> Wrong:
    """Return the mistake of a null that isn't allowed at `path` (`inside` a vector)."""
    if inside and spec.decl.optional:
        return Wrong("AMP811", f"`{path}` is null", f"none stands for the whole vector: write null in place of its list of {spec.width} numbers")
    if inside or spec.decl.optional:
        return Wrong("AMP811", f"`{path}` is null, but `{spec.name}` isn't declared `or none` there")
    return Wrong("AMP811", f"`{path}` is null, but `{spec.name}` isn't declared `or none`", f"declare `{spec.declaration} or none`, or give a value")


def wrong_shape(spec: Spec, found: str) -> Wrong:
    return Wrong(
        "AMP810",
        f"`{spec.name}` is {found}, expected {'shape ' if spec.depth else ''}{spec.shape}",
        f"the declaration is `{spec.declaration}`{nesting(spec)}",
    )


def nesting(spec: Spec) -> str:
    """Return ": a list over `node` of lists of 2 numbers", or nothing for a single value."""
    parts = [f"a list over `{a}`" if i == 0 else f"lists over `{a}`" for i, a in enumerate(spec.axes)]
    if spec.width:
        parts.append(f"{'lists' if parts else 'a list'} of {spec.width} numbers")
    return f": {' of '.join(parts)}" if parts else ""


def shape_of(value: Any) -> str:
    """Return "a number", or "of shape [1, 2..3]": the lengths of nested lists, with the range where they differ."""
    if not isinstance(value, list):
        return describe(value)
    parts, level = [], [value]
    while level and all(isinstance(x, list) for x in level):
        lengths = [len(x) for x in level]
        parts.append(str(lengths[0]) if min(lengths) == max(lengths) else f"{min(lengths)}..{max(lengths)}")
        level = [y for x in level for y in x]
    mixed = " of lists and single values" if any(isinstance(x, list) for x in level) else ""
    return f"of shape [{', '.join(parts)}]{mixed}"


def describe(value: Any) -> str:
    """Return a value in a few words: `"a" (a string)`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {str(value)[:30]}"
        case str():
            return f"the string {value[:30]!r}"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def _quoted(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(f"`{n[:40]}`" for n in names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown


__all__ = ["Wrong", "check_row", "describe", "missing", "nesting", "null", "shape_of", "wrong_shape"]
