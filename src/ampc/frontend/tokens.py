"""From text to lines of tokens: limits, wrong characters, brackets that span lines, comments.

Promises that every token lies in the text and that a line holds a whole statement; what a line means is the parser's work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters

from ampc.diagnostics import AmpError, Diagnostic, Label, Span

MAX_BYTES = 1_000_000
MAX_TOKENS = 100_000
MAX_NESTING = 100
MAX_ERRORS = 20

OPENING = {"_LPAR": "(", "_LSQB": "["}
PARTNER = {"_LPAR": ("_RPAR", ")"), "_LSQB": ("_RSQB", "]")}
CLOSING = {"_RPAR": "_LPAR", "_RSQB": "_LSQB"}
ENDS_OPERAND = frozenset({"NAME", "NUMBER", "STRING", "TRUE", "FALSE", "_RPAR", "_RSQB"})
STATEMENT_WORDS = frozenset(
    {"_MODEL", "_INSTANCE", "_AXIS", "_TRAIN", "_DEF", "_RETURN", "_LOOP", "_EACH", "_VISIT", "_BRANCH", "_MERGE", "_LOSS", "_METRIC", "_OUTPUT"}
)
STARTS_LINE = STATEMENT_WORDS | {"NAME", "_NONE", "_ELSE", "TRUE", "FALSE", "NUMBER"}


@dataclasses.dataclass(slots=True)
class Line:
    """One logical line: its tokens and its indentation, a tab counting as four spaces. `broken` once a mistake in it was reported."""

    tokens: list[Token]
    indent: int
    broken: bool = False

    @property
    def end(self) -> Token:
        return self.tokens[-1]


def span_of(token: Token, file: str) -> Span:
    """Return the place of a token."""
    line, column = token.line or 1, token.column or 1
    return Span(file, line, column, token.end_line or line, token.end_column or column)


def after(token: Token, file: str) -> Span:
    """Return the place just behind a token."""
    line, column = token.end_line or 1, token.end_column or 1
    return Span(file, line, column, line, column + 1)


def made(type_: str, text: str, at: Token) -> Token:
    """Return a token that isn't in the text, without width, just behind `at`."""
    return Token(type_, text, line=at.end_line, column=at.end_column, end_line=at.end_line, end_column=at.end_column)


def normal(text: str) -> str:
    """Return `text` without a byte order mark and with newlines of one kind; lines and columns stay what they were."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def scan(text: str, file: str, lexer: Lark, errors: list[Diagnostic]) -> list[Line]:
    """Return the logical lines of `text`; mistakes go to `errors`. Raises AmpError at once where a limit is exceeded."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise AmpError(Diagnostic("AMP181", f"the program has {size} bytes; at most {MAX_BYTES} are accepted"))
    lines = normal(text).split("\n")
    wrong: set[int] = set()
    physical = _tokens(lines, wrong, file, lexer, errors)
    _check_tabs(lines, physical, file, errors)
    return list(_join(physical, lines, wrong, file, errors))


def _tokens(lines: list[str], wrong: set[int], file: str, lexer: Lark, errors: list[Diagnostic]) -> list[list[Token]]:
    """Return the tokens of each line that has any.

    A wrong character is reported (one for each line, whose number goes to `wrong`) and made a space in `lines`.
    """
    physical: list[list[Token]] = []
    first, count = 0, 0
    while first < len(lines):
        try:
            for token in lexer.lex("\n".join(lines[first:])):
                token.line = token.end_line = (token.line or 1) + first
                if not physical or physical[-1][0].line != token.line:
                    physical.append([])
                physical[-1].append(token)
                count += 1
                if count > MAX_TOKENS:
                    raise AmpError(Diagnostic("AMP182", f"the program has more than {MAX_TOKENS} words and signs", Label(span_of(token, file))))
            break
        except UnexpectedCharacters as problem:  # go on from this line, without the character (without the rest of it at the second)
            first += problem.line - 1
            line, at = lines[first], problem.column - 1
            again = first + 1 in wrong
            if not again:
                wrong.add(first + 1)
                errors.append(_wrong_character(line, at, first + 1, file))
            if len(errors) >= MAX_ERRORS:
                raise AmpError(errors) from None
            stop = len(line) if again or line[at] in "\"'" else at + 1
            lines[first] = line[:at] + " " * (stop - at) + line[stop:]
            if physical and physical[-1][0].line == first + 1:
                count -= len(physical.pop())
    return physical


def _wrong_character(line: str, at: int, number: int, file: str) -> Diagnostic:
    character = line[at]
    place = Span(file, number, at + 1, number, at + 2)
    if character in "\"'":
        return Diagnostic("AMP102", "the text has no closing quote on this line", Label(place, "opened here"), help=f"end it with `{character}`")
    if character == ";":
        return Diagnostic("AMP101", "`;` has no meaning here", Label(place), help="write one statement on each line")
    if character in "{}":
        return Diagnostic("AMP101", f"`{character}` has no meaning here", Label(place), help="a block is a colon and deeper indentation")
    if character == "!":
        return Diagnostic("AMP101", "`!` has no meaning here", Label(place), help="write `not` or `!=`")
    if character == "@":
        return Diagnostic(
            "AMP101", "`@` has no meaning here", Label(place), help="a matrix product is a layer: `w = Linear(inputs, outputs)`, then `w(x)`"
        )
    if character == "&" or character == "|":
        return Diagnostic("AMP101", f"`{character}` has no meaning here", Label(place), help="write `and` or `or`")
    if character in "“”„‘’«»":
        return Diagnostic("AMP101", f"`{character}` has no meaning here", Label(place), help='write `"`')
    if character.isalpha():
        return Diagnostic("AMP101", f"the letter `{character}` can't be part of a name", Label(place), help="names are made of a-z, A-Z, 0-9 and `_`")
    return Diagnostic("AMP101", f"the character `{character}` has no meaning here", Label(place))


def _check_tabs(lines: list[str], physical: list[list[Token]], file: str, errors: list[Diagnostic]) -> None:
    """Report the first line whose indentation mixes tabs and spaces, or differs in kind from an earlier line's."""
    first: tuple[str, int] | None = None
    for tokens in physical:
        number = tokens[0].line or 1
        margin = lines[number - 1][: (tokens[0].column or 1) - 1]
        kinds = set(margin.replace("\f", ""))
        if not kinds:
            continue
        place = Label(Span(file, number, 1, number, len(margin) + 1), "mixes tabs and spaces" if len(kinds) > 1 else "")
        if len(kinds) > 1:
            errors.append(Diagnostic("AMP103", "the indentation mixes tabs and spaces", place, help="indent with four spaces everywhere"))
            return
        kind = kinds.pop()
        if first is None:
            first = (kind, number)
        elif first[0] != kind:
            word = {"\t": "tabs", " ": "spaces"}
            other = Label(Span(file, first[1], 1, first[1], 2), f"this one uses {word[first[0]]}")
            message = f"this line is indented with {word[kind]}, earlier ones with {word[first[0]]}"
            errors.append(Diagnostic("AMP103", message, place, (other,), help="indent with four spaces everywhere"))
            return


def _join(physical: list[list[Token]], lines: list[str], wrong: set[int], file: str, errors: list[Diagnostic]) -> Iterable[Line]:
    """Yield logical lines: what stands inside brackets goes on to the next physical line."""
    line: Line | None = None
    open_: list[Token] = []
    for tokens in physical:
        if line is not None and open_ and _must_be_new(line.end, tokens):
            _close(line, open_, file, errors)
        if line is None or not open_:
            if line is not None and line.tokens:
                yield line
            margin = lines[(tokens[0].line or 1) - 1][: (tokens[0].column or 1) - 1]
            line = Line([], len(margin.expandtabs(4)))
        line.broken = line.broken or tokens[0].line in wrong
        for token in tokens:
            if token.type in OPENING:
                open_.append(token)
                if len(open_) > MAX_NESTING:
                    raise AmpError([*errors, Diagnostic("AMP183", f"brackets are nested more than {MAX_NESTING} deep", Label(span_of(token, file)))])
            elif token.type in CLOSING:
                fitting = _closing(line, open_, token, file, errors)
                if fitting is None:
                    continue
                token = fitting
            line.tokens.append(token)
    if line is not None:
        if open_:
            _close(line, open_, file, errors)
        if line.tokens:
            yield line


def _must_be_new(last: Token, tokens: list[Token]) -> bool:
    """Whether a line inside brackets can't go on with the last one: the bracket was forgotten."""
    return tokens[0].type in STATEMENT_WORDS or (last.type in ENDS_OPERAND and tokens[0].type in STARTS_LINE)


def _close(line: Line, open_: list[Token], file: str, errors: list[Diagnostic]) -> None:
    """Report the innermost bracket that is never closed, and close all of them (before a colon at the end of the line)."""
    bracket = open_[-1]
    close = PARTNER[bracket.type][1]
    if not line.broken:
        where = (Label(after(line.end, file), f"no `{close}` up to here"),)
        errors.append(Diagnostic("AMP104", f"`{OPENING[bracket.type]}` is never closed", Label(span_of(bracket, file)), where, help=f"add `{close}`"))
    line.broken = True
    tail = [line.tokens.pop()] if line.end.type == "_COLON" and len(line.tokens) > 1 else []
    for opened in reversed(open_):
        line.tokens.append(made(*PARTNER[opened.type], at=line.end))
    line.tokens += tail
    open_.clear()


def _closing(line: Line, open_: list[Token], token: Token, file: str, errors: list[Diagnostic]) -> Token | None:
    """Return the token that closes the innermost bracket in place of `token`, or None if nothing is open; report what doesn't fit."""
    if not open_:
        if not line.broken:
            errors.append(Diagnostic("AMP104", f"`{token}` has no opening bracket", Label(span_of(token, file)), help="remove it"))
        line.broken = True
        return None
    opened = open_.pop()
    if opened.type == CLOSING[token.type]:
        return token
    type_, want = PARTNER[opened.type]
    if not line.broken:
        other = (Label(span_of(opened, file), "opened here"),)
        message = f"`{OPENING[opened.type]}` is closed by `{token}`"
        errors.append(Diagnostic("AMP104", message, Label(span_of(token, file)), other, help=f"write `{want}`"))
    line.broken = True
    return Token.new_borrow_pos(type_, want, token)
