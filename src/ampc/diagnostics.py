"""Spans, diagnostics and the one exception that carries them.

Every mistake that a user can make ends as a `Diagnostic` inside an `AmpError`; a bare traceback is a bug in ampc.
This module knows nothing of the language: stages build diagnostics, `render` shows them.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal


WIDEST = 140  # columns of a source line that are shown, around the mark
SOURCES: dict[str, str] = {}
"""Name -> text of each source that was read in this process, so that errors can show its lines; `ampc.source` fills it."""

NEWLINE = re.compile("\r\n|\r|\n")


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
    """One mistake: a code of the table in `ampc.codes`, a message that stands alone, the place, other places, the remedy.

    Only errors travel in an `AmpError`; a warning is printed and changes nothing.
    """

    code: str
    message: str
    primary: Label | None = None
    secondary: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    severity: Literal["error", "warning"] = "error"


class AmpError(Exception):
    """One or more `diagnostics`; as text, what the command line prints of them: message, place, source line, notes and help of each.

    `exit_code` is what a command line ends with: 1 wrong input, 2 wrong command, 3 failed run, 4 resources.
    """

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic], exit_code: int = 1) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.exit_code = exit_code
        # Taken now: another text of the same name may be read before this is shown.
        self._sources = {file: SOURCES[file] for d in self.diagnostics for file in _files(d) if file in SOURCES}
        super().__init__(self.diagnostics, exit_code)

    def __str__(self) -> str:
        return "\n".join(render(d, self._sources) for d in self.diagnostics)


def _files(d: Diagnostic) -> set[str]:
    return {label.span.file for label in ((d.primary,) if d.primary else ()) + d.secondary}


def error(code: str, message: str, *, help: str | None = None, notes: tuple[str, ...] = (), exit_code: int = 1) -> AmpError:
    """Return an `AmpError` with one diagnostic that has no place in a source text."""
    return AmpError(Diagnostic(code, message, notes=notes, help=help), exit_code)


def write_remedy(path: Path, e: OSError) -> str:
    """Return what to do where the system refused to write `path`."""
    folder = path.parent
    if e.errno == errno.ENOENT:
        return f"make the folder `{printable(str(folder))}` first, or give another path with `-o`"
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, or give another path with `-o`"
    return "give a path that may be written with `-o`"


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return "did you mean `x`?" for the nearest of `known`, or None if none is near."""
    known = list(known)
    same = next((k for k in known if k.casefold() == name.casefold() and k != name), None)
    if same is not None:
        return f"did you mean `{same}`? Capital and small letters differ"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else None


def printable(text: str) -> str:
    """Return `text` with control characters escaped, fit for a terminal."""
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


def render(diagnostic: Diagnostic, sources: dict[str, str] | None = None) -> str:
    """Return the diagnostic as text: code and message, the source line with carets, labels, notes, help.

    `sources` maps a span's file name to its text; a file that is missing there is shown by its place alone.
    """
    d = diagnostic
    lines = [f"{d.severity}[{d.code}]: {printable(d.message)}"]
    labels = ([(d.primary, "^")] if d.primary else []) + [(label, "-") for label in d.secondary]
    if d.primary:
        lines.append(f"  --> {printable(str(d.primary.span))}")
    width = max((len(str(label.span.line)) for label, _ in labels), default=1)
    lines += _shown(sorted(labels, key=lambda p: (p[0].span.file, p[0].span.line, p[0].span.column)), d.primary, sources or {}, width)
    lines += [f"  {'':{width}} = note: {printable(note)}" for note in d.notes]
    if d.help:
        lines.append(f"  {'':{width}} = help: {printable(d.help)}")
    return "\n".join(lines)


def _shown(labels: list[tuple[Label, str]], primary: Label | None, sources: dict[str, str], width: int) -> list[str]:
    """Return the source lines of the labels with their marks; a line with several labels is shown once."""
    out: list[str] = []
    last: tuple[str, int, int] | None = None
    for label, mark in labels:
        span = label.span
        text = sources.get(span.file)
        source = NEWLINE.split(text.removeprefix("\ufeff")) if text is not None else []
        if not 0 < span.line <= len(source):
            if label is not primary:
                out.append(f"  {'':{width}} {printable(str(span))}: {printable(label.text)}")
            continue
        if primary and span.file != primary.span.file and (last is None or last[0] != span.file):
            out.append(f"  ::: {printable(span.file)}")
        raw = source[span.line - 1].replace("\t", " ")
        begin = len(printable(raw[: span.column - 1]))
        stop = len(printable(raw[: span.end_column - 1])) if span.end_line == span.line else len(printable(raw))
        first = 0 if begin < WIDEST - 20 else begin - WIDEST // 2
        shown = ("…" if first else "") + printable(raw)[first + bool(first) : first + WIDEST]
        shown += "…" if len(printable(raw)) > first + WIDEST else ""
        begin, stop = begin - first, min(stop - first, len(shown))
        if last != (span.file, span.line, first):
            out.append(f"  {span.line:{width}} | {shown}")
        last = (span.file, span.line, first)
        out.append(f"  {'':{width}} | {' ' * begin}{mark * max(1, stop - begin)} {printable(label.text)}".rstrip())
    return out
