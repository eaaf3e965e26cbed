"""The syntax tree as text, for `--emit ast`: one construct a line, indented, with its place."""

from __future__ import annotations

import dataclasses
from typing import Any

from ampc.diagnostics import Span


def tree(value: Any, name: str = "", depth: int = 0) -> str:
    """Return a node of the syntax tree and all below it, each line with line and column of the source."""
    head = "  " * depth + (f"{name}: " if name else "")
    if isinstance(value, tuple):
        return "".join(tree(item, f"{name}[{i}]", depth) for i, item in enumerate(value))
    if not dataclasses.is_dataclass(value):
        return f"{head}{value!r}\n"
    fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    span = next((v for _, v in fields if isinstance(v, Span)), None)
    plain = [f"{k}={v!r}" for k, v in fields if not isinstance(v, tuple) and not dataclasses.is_dataclass(v) and v is not None and v is not False]
    place = f"  @{span.line}:{span.column}" if span is not None else ""
    out = f"{head}{type(value).__name__}{' ' + ' '.join(plain) if plain else ''}{place}\n"
    for key, inner in fields:
        if (isinstance(inner, tuple) and inner) or (dataclasses.is_dataclass(inner) and not isinstance(inner, Span)):
            out += tree(inner, key, depth + 1)
    return out


__all__ = ["tree"]
