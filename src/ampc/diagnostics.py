"""Spans, diagnostics and the one exception that carries them.

Every mistake that a user can make ends as a `Diagnostic` inside an `AmpError`; a bare traceback is a bug in ampc.
This module knows nothing of the language: stages build diagnostics, `render` shows them.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A place in a source text. Lines and columns count from 1; `end_column` is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """A span with a few words about it (`text` may be empty)."""

    span: Span
    text: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake: a code of the table in `ampc.codes`, a message that stands alone, the place, other places, the remedy."""

    code: str
    message: str
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None


class AmpError(Exception):
    """One or more diagnostics. `exit_code` is the process's status: 1 wrong input, 3 failed run, 4 resources."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic], exit_code: int = 1) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.exit_code = exit_code
        super().__init__("\n".join(f"error[{d.code}]: {d.message}" for d in self.diagnostics))


def error(code: str, message: str, *, help: str | None = None, notes: tuple[str, ...] = (), exit_code: int = 1) -> AmpError:
    """Return an `AmpError` with one diagnostic that has no place in a source text."""
    return AmpError(Diagnostic(code, message, notes=notes, help=help), exit_code)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean `x`?" for the nearest of `known`, or None if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


def printable(text: str) -> str:
    """Return `text` with control characters escaped, fit for a terminal."""
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


def render(diagnostic: Diagnostic, sources: dict[str, str] | None = None) -> str:
    """Return the diagnostic as text: code and message, the source line with carets, labels, notes, help.

    `sources` maps a span's file name to its text; a file that is missing there is shown by its place alone.
    """
    d = diagnostic
    lines = [f"error[{d.code}]: {printable(d.message)}"]
    labels = ([(d.primary, "^")] if d.primary else []) + [(label, "-") for label in d.secondary]
    if d.primary:
        lines.append(f"  --> {printable(str(d.primary.span))}")
    width = max((len(str(label.span.line)) for label, _ in labels), default=1)
    for label, mark in sorted(labels, key=lambda p: (p[0].span.file, p[0].span.line, p[0].span.column)):
        text = (sources or {}).get(label.span.file)
        source = text.splitlines() if text is not None else []
        if not 0 < label.span.line <= len(source):
            if label is not d.primary:
                lines.append(f"  {'':{width}} {printable(str(label.span))}: {printable(label.text)}")
            continue
        if d.primary and label.span.file != d.primary.span.file:
            lines.append(f"  ::: {printable(label.span.file)}")
        raw = source[label.span.line - 1]
        shown, begin = printable(raw), len(printable(raw[: label.span.column - 1]))
        stop = len(printable(raw[: label.span.end_column - 1])) if label.span.end_line == label.span.line else len(shown)
        lines.append(f"  {label.span.line:{width}} | {shown}")
        lines.append(f"  {'':{width}} | {' ' * begin}{mark * max(1, stop - begin)} {printable(label.text)}".rstrip())
    lines += [f"  {'':{width}} = note: {printable(note)}" for note in d.notes]
    if d.help:
        lines.append(f"  {'':{width}} = help: {printable(d.help)}")
    return "\n".join(lines)
