"""Indentation: from logical lines to one stream of tokens with _NEWLINE, _INDENT and _DEDENT.

A mistake of indentation is reported once and the lines are read as they were probably meant; the stream is always balanced.
"""

from __future__ import annotations

import dataclasses
import itertools

from lark import Token

from ampc.diagnostics import AmpError, Diagnostic, Label, Span, did_you_mean
from ampc.frontend.tokens import MAX_NESTING, Line, after, made, span_of

HEADERS = {
    "_MODEL": "model",
    "_INSTANCE": "instance",
    "_TRAIN": "train",
    "_DEF": "def",
    "_LOOP": "loop",
    "_EACH": "each",
    "_VISIT": "visit",
    "_BRANCH": "branch",
    "_NONE": "none",
    "_ELSE": "else",
    "TRUE": "true",
    "FALSE": "false",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A token of the stream and the number (in the list of lines) of the line it belongs to."""

    token: Token
    line: int


def is_header(line: Line) -> bool:
    """Whether the line opens a block, by its first word (or a near miss of it)."""
    first = line.tokens[0]
    if first.type in HEADERS or first.type == "NUMBER":
        return True
    return first.type == "NAME" and len(line.tokens) > 1 and line.tokens[1].type == "NAME" and did_you_mean(first, HEADERS.values()) is not None


def title(line: Line) -> str:
    """Return what a header line is called in messages: `loop`, `branch`, `0`, ..."""
    return f"`{line.tokens[0]}`"


def add_colons(lines: list[Line], file: str, errors: list[Diagnostic]) -> None:
    """Report and mend headers whose colon was forgotten: the next line is deeper and no colon opens a block."""
    for line, following in itertools.pairwise(lines):
        if following.indent <= line.indent or line.end.type == "_COLON" or not is_header(line) or _opens_inline(line):
            continue
        if not line.broken:
            errors.append(missing_colon(line, file))
        line.broken = True
        line.tokens.append(made("_COLON", ":", line.end))


def missing_colon(line: Line, file: str) -> Diagnostic:
    place = Label(after(line.end, file), "expected `:` here")
    return Diagnostic("AMP111", f"expected `:` at the end of the {title(line)} line", place, help="add `:`")


def _opens_inline(line: Line) -> bool:
    depth = 0
    for token in line.tokens:
        depth += (token.type in ("_LPAR", "_LSQB")) - (token.type in ("_RPAR", "_RSQB"))
        if token.type == "_COLON" and depth == 0:
            return True
    return False


@dataclasses.dataclass(slots=True)
class Level:
    """An open block: its indentation, whether _INDENT was emitted for it, and wrong indentations that are taken for it."""

    indent: int
    emitted: bool
    also: set[int] = dataclasses.field(default_factory=set)


def layout(lines: list[Line], file: str, errors: list[Diagnostic]) -> list[Placed]:
    """Return the stream for the parser. Raises AmpError where blocks are nested too deep."""
    out: list[Placed] = []
    stack = [Level(lines[0].indent, False)]
    previous: Line | None = None
    for number, line in enumerate(lines):
        if previous is not None:
            _step(previous, line, number, stack, out, file, errors)
        out += [Placed(token, number) for token in line.tokens]
        out.append(Placed(made("_NEWLINE", "", line.end), number))
        previous = line
    assert previous is not None
    last = len(lines) - 1
    if _is_empty_block(previous, None):
        _empty(previous, last, out, file, errors)
    out += [Placed(made("_DEDENT", "", previous.end), last) for level in stack if level.emitted]
    return out


def _step(previous: Line, line: Line, number: int, stack: list[Level], out: list[Placed], file: str, errors: list[Diagnostic]) -> None:
    """Emit what lies between two lines: an indentation, ends of blocks, or a mistake."""
    before = made("", "", previous.end)
    if line.indent in stack[-1].also:
        return
    if line.indent > stack[-1].indent:
        opens = previous.end.type == "_COLON"
        if not opens and not line.broken and not previous.broken:
            label = Label(_margin(line, file), "deeper than the line above")
            errors.append(Diagnostic("AMP112", "unexpected indentation", label, help="only a line that ends with `:` opens a block"))
        line.broken = line.broken or not opens
        stack.append(Level(line.indent, opens))
        if len(stack) > MAX_NESTING:
            raise AmpError([*errors, Diagnostic("AMP183", f"blocks are nested more than {MAX_NESTING} deep", Label(span_of(line.tokens[0], file)))])
        if opens:
            out.append(Placed(made("_INDENT", "", before), number - 1))
        return
    if _is_empty_block(previous, line):
        _empty(previous, number - 1, out, file, errors)
    while line.indent < stack[-1].indent and line.indent not in stack[-1].also and len(stack) > 1:
        if line.indent > stack[-2].indent and line.indent not in stack[-2].also:  # between two blocks: the inner one was meant
            if not line.broken:
                help_ = "line it up with the first line of its block"
                errors.append(Diagnostic("AMP113", "the indentation fits no open block", Label(_margin(line, file)), help=help_))
            line.broken = True
            stack[-1].also.add(line.indent)
            return
        if stack.pop().emitted:
            out.append(Placed(made("_DEDENT", "", before), number - 1))


def _is_empty_block(line: Line, following: Line | None) -> bool:
    return line.end.type == "_COLON" and len(line.tokens) > 1 and is_header(line) and (following is None or following.indent <= line.indent)


def _empty(line: Line, number: int, out: list[Placed], file: str, errors: list[Diagnostic]) -> None:
    if not line.broken:
        first, end = span_of(line.tokens[0], file), span_of(line.end, file)
        place = Label(Span(file, first.line, first.column, end.end_line, end.end_column))
        help_ = "indent the lines that belong to it deeper than this one"
        errors.append(Diagnostic("AMP114", f"the block of {title(line)} is empty", place, help=help_))
    line.broken = True
    for type_ in ("_INDENT", "_SKIPPED", "_NEWLINE", "_DEDENT"):
        out.append(Placed(made(type_, "", line.end), number))


def _margin(line: Line, file: str) -> Span:
    first = span_of(line.tokens[0], file)
    return Span(file, first.line, 1, first.line, max(2, first.column))
