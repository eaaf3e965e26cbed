"""From text to syntax tree, with all syntax errors of a program at once.

The grammar is `grammar/amp.lark`. A line that no rule accepts is reported in words of the language, mended where its meaning is clear
and left out (with its block) where not; then the rest is parsed again. Names and axes are the business of `check`.
"""

from __future__ import annotations

import functools
import importlib.resources
import itertools
from collections.abc import Set

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedToken

from ampc.diagnostics import AmpError, Diagnostic
from ampc.frontend import ast
from ampc.frontend.build import Builder
from ampc.frontend.layout import Placed, add_colons, layout
from ampc.frontend.sentences import diagnose
from ampc.frontend.tokens import MAX_ERRORS, Line, made, normal, scan


MOST_WORK = 200_000  # tokens read in all while looking for further errors
CONDITIONS = ("until", "watch")


@functools.cache
def grammar() -> Lark:
    """Return the parser made from the packaged grammar."""
    text = (importlib.resources.files("ampc") / "grammar" / "amp.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="basic", propagate_positions=True, maybe_placeholders=True)


def parse(text: str, file: str = "model.amp") -> ast.Model:
    """Return the syntax tree of a program. Raises AmpError with every syntax error found (at most 20)."""
    errors: list[Diagnostic] = []
    lines = scan(text, file, grammar(), errors)
    if not lines:
        if not errors:
            errors.append(Diagnostic("AMP105", f"`{file}` holds no program", help="a program begins with `model name(hidden = 128):`"))
        raise AmpError(errors)
    add_colons(lines, file, errors)
    for number, line in enumerate(lines):
        if line.tokens[0] in CONDITIONS and _place(lines, number) == "train":
            _as_text(line, text)
    extents = [(line.tokens[0].line or 1, line.end.end_line or 1) for line in lines]
    tree = _tree(lines, file, errors)
    builder = Builder(file, lenient=bool(errors))
    model = builder.model(tree) if tree is not None else None
    errors += [d for d in builder.errors if not _on_wrong_line(d, errors, extents)]
    if errors or model is None:
        raise AmpError(_in_order(_without_echoes(errors, extents)))
    return model


def _on_wrong_line(d: Diagnostic, errors: list[Diagnostic], extents: list[tuple[int, int]]) -> bool:
    """Whether something on the same logical line was reported before."""
    line = d.primary.span.line if d.primary else 0
    return any(a <= line <= b and any(e.primary is not None and a <= e.primary.span.line <= b for e in errors) for a, b in extents)


def _without_echoes(errors: list[Diagnostic], extents: list[tuple[int, int]]) -> list[Diagnostic]:
    """Leave out wrong indentation right below a line that is wrong itself: what it was meant to open isn't known."""
    wrong = {e.primary.span.line for e in errors if e.primary and e.code not in ("AMP112", "AMP113")}
    below = {after[0] for before, after in itertools.pairwise(extents) if any(before[0] <= n <= before[1] for n in wrong)}
    return [e for e in errors if not (e.code in ("AMP112", "AMP113") and e.primary and e.primary.span.line in below)]


def _as_text(line: Line, text: str) -> None:
    """Make one text of the value of a setting that the run reads: `until = loss < 0.1` speaks of metrics, not of the program's names."""
    value = line.tokens[2:]
    if len(value) == 0 or line.tokens[1].type != "_EQUAL" or value[0].type == "STRING":
        return
    first, last = value[0], value[-1]
    written = " ".join(value)
    if first.line == last.line:
        written = normal(text).split("\n")[(first.line or 1) - 1][(first.column or 1) - 1 : (last.end_column or 1) - 1]
    token = Token("STRING", f'"{written}"', line=first.line, column=first.column, end_line=last.end_line, end_column=last.end_column)
    line.tokens[2:] = [token]


def _tree(lines: list[Line], file: str, errors: list[Diagnostic]) -> Tree[Token] | None:
    """Return the parse tree, or None where nothing is left to parse. Mends or drops one wrong line at a time."""
    work = 0
    while len(errors) < MAX_ERRORS and (work == 0 or work < MOST_WORK):
        stream = layout(lines, file, errors)
        work += 2 * len(stream)
        tree, wrong = _attempt(stream)
        if tree is not None:
            return tree
        at = stream[wrong] if wrong < len(stream) else stream[-1]
        line = lines[at.line]
        repair = None
        if line.tokens[0].type == "_MERGE" and _follows_broken(lines, at.line):
            line.broken = True  # its branch was left out
        if not line.broken:
            position = next((i for i, token in enumerate(line.tokens) if token is at.token), None)
            accepts = _accepted(stream, wrong)
            problem, repair = diagnose(line, position, accepts, _place(lines, at.line), file, at.line == len(lines) - 1)
            if problem.code != "AMP119" or all(problem.message != e.message for e in errors):  # a word is reported once
                errors.append(problem)
            line.broken = True
        if repair is not None:
            repair()
        elif not _drop(lines, at.line):
            return None
    return None


def _attempt(stream: list[Placed]) -> tuple[Tree[Token] | None, int]:
    """Return the tree, or None and the position of the first token that no rule accepts."""
    cursor = grammar().parse_interactive("")
    for position, placed in enumerate(stream):
        try:
            cursor.feed_token(placed.token)
        except UnexpectedToken:
            return None, position
    try:
        tree: Tree[Token] = cursor.feed_eof(stream[-1].token)  # type: ignore[no-untyped-call]  # lark leaves it untyped
        return tree, 0
    except UnexpectedToken:
        return None, len(stream)


def _accepted(stream: list[Placed], wrong: int) -> Set[str]:
    """Return the types of the tokens that could stand at a position."""
    cursor = grammar().parse_interactive("")
    for placed in stream[:wrong]:
        cursor.feed_token(placed.token)
    accepts: set[str] = cursor.accepts()  # type: ignore[no-untyped-call]  # lark leaves it untyped
    return {str(t) for t in accepts} - {"_SKIPPED"}


def _place(lines: list[Line], number: int) -> str:
    """Return the first word of the header of the block that a line stands in; "" at the top of the file."""
    for line in reversed(lines[:number]):
        if line.indent < lines[number].indent:
            return "block" if any(t.type == "_AS" for t in line.tokens) else str(line.tokens[0])
    return ""


def _follows_broken(lines: list[Line], number: int) -> bool:
    """Whether the last line that isn't deeper than this one was reported already."""
    before = next((x for x in reversed(lines[:number]) if x.indent <= lines[number].indent), None)
    return before is not None and before.broken


def _drop(lines: list[Line], number: int) -> bool:
    """Put a _SKIPPED line in the place of a line and its block. Returns False where that can't help: the line of the model."""
    line = lines[number]
    if number == 0 or line.tokens[0].type == "_SKIPPED":
        return False
    if line.tokens[0].type == "_MODEL":
        del lines[number:]
        return True
    stop = number + 1
    while stop < len(lines) and lines[stop].indent > line.indent:
        stop += 1
    lines[number:stop] = [Line([made("_SKIPPED", "", line.tokens[0])], line.indent, broken=True)]
    return True


def _in_order(errors: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(errors, key=lambda d: (d.primary.span.line, d.primary.span.column) if d.primary else (0, 0))[:MAX_ERRORS]
