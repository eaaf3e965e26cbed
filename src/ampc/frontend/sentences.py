"""Words for syntax errors: what was expected, what came, and a sentence of its own for each common mistake.

No name of a terminal reaches a message. `diagnose` looks at one line, the token that no rule accepts, and what would have been accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from lark import Token

from ampc.diagnostics import Diagnostic, Label, did_you_mean
from ampc.frontend.layout import HEADERS, is_header, missing_colon
from ampc.frontend.tokens import STATEMENT_WORDS, Line, after, made, span_of

Repair = Callable[[], None]

WORDS = {
    "_NEWLINE": "the end of the line",
    "_AT_MOST": "`at most`",
    "_LPAR": "`(`",
    "_RPAR": "`)`",
    "_LSQB": "`[`",
    "_RSQB": "`]`",
    "_COLON": "`:`",
    "_COMMA": "`,`",
    "_EQUAL": "`=`",
    "_DOT": "`.`",
    "PLUS_EQUAL": "`+=`",
    "NAME": "a name",
    "NUMBER": "a number",
    "_IN": "`in`",
    "_WHILE": "`while`",
    "_CARRY": "`carry`",
    "_AFTER": "`after`",
    "_AS": "`as`",
    "_FOR": "`for`",
    "_MERGE": "`merge`",
    "_NONE": "`none`",
    "_ELSE": "`else`",
    "_AXIS": "`axis`",
    "$END": "the end of the program",
}
ORDER = tuple(WORDS)
STARTS_VALUE = frozenset({"NUMBER", "_LPAR", "_LSQB", "MINUS", "_NOT", "TRUE", "FALSE", "STRING"})
OPERATORS = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "REMAINDER", "POWER", "LESS", "COMPARE", "_AND", "_OR"})

FOREIGN = {
    "if": ("there is no `if`", "write `branch field[i]:` with the arms `none:`, `true:`, `0:` … `else:`, then `merge names`"),
    "elif": ("there is no `elif`", "write one `branch` with an arm for each value"),
    "for": ("`for` only follows a family of layers", "write `loop t in axis carry h:`, or `each e in axis:` where the order does not matter"),
    "while": ("`while` stands after `loop`", "write `loop while condition at most 32 carry h:`"),
    "import": ("there is no `import`", "a program is one file; all functions are built in or written with `def`"),
    "from": ("there is no `import`", "a program is one file; all functions are built in or written with `def`"),
    "class": ("there is no `class`", "layers are declared by `name = Linear(inputs, outputs)`"),
    "pass": ("there is no `pass`", "leave the block out"),
    "print": ("there is no `print`", "write `output name` to get a value out of the model"),
    "let": ("there is no `let`", "write `name = value`"),
    "var": ("there is no `var`", "write `name = value`"),
    "const": ("there is no `const`", "write `name = value`, or a parameter of the model: `model m(name = 3):`"),
    "function": ("there is no `function`", "write `def name(a, b):`"),
    "fn": ("there is no `fn`", "write `def name(a, b):`"),
    "func": ("there is no `func`", "write `def name(a, b):`"),
    "switch": ("there is no `switch`", "write `branch field[i]:` with an arm for each value"),
    "match": ("there is no `match`", "write `branch field[i]:` with an arm for each value"),
    "case": ("there is no `case`", "write the value itself: `0:`, `1, 2:`, `none:` or `else:`"),
    "break": ("there is no `break`", "a loop that ends by itself is `loop while condition at most 32 carry h:`"),
    "continue": ("there is no `continue`", "write a `branch` in the loop"),
    "del": ("there is no `del`", "leave the line out"),
    "assert": ("there is no `assert`", "ranges are declared in the `instance:` block"),
    "with": ("there is no `with`", "leave the line out"),
    "try": ("there is no `try`", "leave the line out"),
    "yield": ("there is no `yield`", "write `output name = value`"),
    "param": ("there is no `param`", "parameters of layers belong to layers: `w = Linear(inputs, outputs)`"),
}


INSIDE = {
    "lambda": ("there is no `lambda`", "write `def name(a): return …` in the model"),
    "if": ("there is no conditional expression", "write `branch field[i]:` with an arm for each case, then `merge name`"),
    "is": ("there is no `is`", "compare with `==`; whether a field is none is asked by `branch field[i]:` with `none:` and `else:`"),
}


def diagnose(line: Line, at: int | None, accepts: Set[str], place: str, file: str, ends_file: bool) -> tuple[Diagnostic, Repair | None]:
    """Return the diagnostic for a line and, where what was meant is clear, a repair of its tokens.

    `at` is the position of the wrong token in the line, None if it is the end of the line or what follows.
    `place` is the kind of block that the line stands in: its header's first word, "" at the top.
    """
    token = line.tokens[at] if at is not None else None
    for rule in (_foreign_word, _near_word, _word_as_name, _misplaced, _no_colon, _wrong_equal, _reserved):
        found = rule(line, at, token, accepts, place, file)
        if found is not None:
            return found
    return _plain(line, token, accepts, file, ends_file), None


Found = tuple[Diagnostic, Repair | None] | None


def _foreign_word(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    first = line.tokens[0]
    if at is None:
        return None
    if first == "//" and at == 0:
        return Diagnostic("AMP115", "`//` begins no comment", Label(span_of(first, file)), help="comments begin with `#`"), None
    for word, (message, help_) in INSIDE.items():
        if token == word or (at > 0 and line.tokens[at - 1] == word):
            wrong = line.tokens[at] if token == word else line.tokens[at - 1]
            if wrong is not first:
                return Diagnostic("AMP115", message, Label(span_of(wrong, file)), help=help_), None
    if first not in FOREIGN or at > 1 or (first.type == "NAME" and at == 0 and "_MODEL" not in accepts):
        return None
    if token is not None and token.type in ("_COLON", "_EQUAL") and place == "instance":
        return None
    message, help_ = FOREIGN[str(first)]
    return Diagnostic("AMP115", message, Label(span_of(first, file)), help=help_), None


def _near_word(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    """A line that starts with something like a word of the language: `lop t in token`, `los cross_entropy(...)`, `els: ...`."""
    first = line.tokens[0]
    if first.type != "NAME" or at is None or at > 1 or (token is not None and token.type in ("_EQUAL", "_DOT", "_LSQB", "_LPAR", "_COMMA")):
        return None
    words = {"none", "else", "true", "false"} if place == "branch" else {HEADERS.get(t, t[1:].lower()) for t in STATEMENT_WORDS}
    if token is not None and token.type == "_COLON" and place != "branch":
        words = {"instance", "train"}
    suggestion = did_you_mean(str(first), words)
    if suggestion is None:
        return None
    meant = suggestion.split("`")[1]

    def repair() -> None:
        type_ = {"true": "TRUE", "false": "FALSE"}.get(meant, "_" + meant.upper())
        line.tokens[0] = Token.new_borrow_pos(type_, meant, first)

    return Diagnostic("AMP116", f"`{first}` starts no statement", Label(span_of(first, file)), help=suggestion), repair


def _word_as_name(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    """A line that gives a value, or declares a field, whose name is a word of the language."""
    first = line.tokens[0]
    if not first.isidentifier() or first.type == "NAME" or len(line.tokens) < 2 or at is None or at > 1:
        return None
    signs = ("_COLON", "_COMMA") if place == "instance" else ("_EQUAL", "PLUS_EQUAL")
    if line.tokens[1].type not in signs or first.type == "_INSTANCE":
        return None

    def repair() -> None:
        line.tokens[0] = Token.new_borrow_pos("NAME", str(first), first)

    return _taken(first, file), repair


def _taken(token: Token, file: str) -> Diagnostic:
    message = f"`{token}` is a word of the language and can't be a name"
    return Diagnostic("AMP119", message, Label(span_of(token, file)), help=f"choose another name, such as `{token}_`")


def _misplaced(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    """Lines that are right, but not here."""
    first = line.tokens[0]
    here = Label(span_of(first, file))
    if first.type == "_MERGE" and at == 0:
        help_ = "`merge` stands below the arms, at the indentation of its `branch`"
        return Diagnostic("AMP117", "`merge` belongs to no `branch` here", here, help=help_), None
    if first.type in ("_NONE", "_ELSE", "TRUE", "FALSE") and at == 0:
        help_ = "write `branch selector:` above it, and indent the arms"
        return Diagnostic("AMP117", f"`{first}` is an arm of no `branch` here", here, help=help_), None
    if "_MODEL" in accepts and at == 0:
        return Diagnostic(
            "AMP117", "a program begins with its model", here, help="write `model name(hidden = 128):` first and indent what belongs to it"
        ), None
    if at == 0 and first.type in ("_INSTANCE", "_TRAIN", "_DEF", "_MODEL"):
        if first.type == "_MODEL":
            return Diagnostic("AMP117", "a file holds one model", here, help="move it to a file of its own"), None
        what = {"_INSTANCE": "the `instance:` block", "_TRAIN": "the `train:` block", "_DEF": "a function"}[first.type]
        help_ = "indent it like the other lines of the model" if place == "" else "move it out of this block"
        return Diagnostic("AMP117", f"{what} stands directly in the model", here, help=help_), None
    if place == "" and at == 0:
        return Diagnostic("AMP117", "this line stands outside of the model", here, help="indent it like the other lines of the model"), None
    if first.type == "_AXIS" and at == 0:
        return Diagnostic("AMP117", "axes are declared in the `instance:` block", here, help="move this line there"), None
    if place == "instance" and first.type in STATEMENT_WORDS and at == 0:
        help_ = "close the block: indent this line like `instance:`"
        return Diagnostic("AMP117", "only axes and fields are declared in the `instance:` block", here, help=help_), None
    if place == "instance" and token is not None and token.type in ("_EQUAL", "_LPAR", "_LSQB", "PLUS_EQUAL"):
        help_ = "a field is `name: float[axis]`; indent statements like `instance:`"
        return Diagnostic("AMP117", "only axes and fields are declared in the `instance:` block", here, help=help_), None
    if place == "train" and token is not None and token.type == "_COLON" and at == 1:
        return Diagnostic("AMP118", "a setting is given with `=`", Label(span_of(token, file)), help=f"write `{first} = …`"), None
    if place == "train" and at == 0:
        help_ = "write `name = value` or `layer.name = value`; indent statements like `train:`"
        return Diagnostic("AMP117", "only settings stand in the `train:` block", here, help=help_), None
    if first.type == "NAME" and token is not None and token.type == "_COLON" and at in (1, 3):
        return Diagnostic("AMP117", "fields are declared in the `instance:` block", here, help="move this line there, or write `name = value`"), None
    if place == "branch" and at in (0, 1) and first.type in STATEMENT_WORDS | {"NAME"}:
        help_ = "write `none:`, `true:`, `0, 1:` or `else:` above it, or `branch selector as k:` for one block"
        return Diagnostic("AMP117", "a `branch` holds arms", here, help=help_), None
    return None


def _no_colon(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    if "_COLON" not in accepts or not is_header(line):
        return None
    arm = line.tokens[0].type in ("_NONE", "_ELSE", "TRUE", "FALSE", "NUMBER")
    if token is not None and not arm and not (line.tokens[0].type in ("_LOOP", "_VISIT", "_EACH") and token.type in STATEMENT_WORDS | {"NAME"}):
        return None
    if token is None:
        return missing_colon(line, file), lambda: line.tokens.append(made("_COLON", ":", line.end))
    if token == "carrying" or did_you_mean(str(token), ("carry", "after", "while")) is not None:
        return None
    before = line.tokens[(at or 1) - 1]

    def repair() -> None:
        line.tokens.insert(at or 1, made("_COLON", ":", before))

    label = Label(span_of(token, file), "expected `:` before this")
    what = f"after `{line.tokens[0]}`" if arm and at == 1 else f"at the end of `{line.tokens[0]} …`"
    return Diagnostic("AMP111", f"expected `:` {what}", label, help="add `:`"), repair


def _wrong_equal(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    if token is None:
        return None
    here = Label(span_of(token, file))
    if token == "==" and "_EQUAL" in accepts:

        def repair() -> None:
            line.tokens[at or 0] = Token.new_borrow_pos("_EQUAL", "=", token)

        return Diagnostic("AMP118", "`==` compares; a value is given with `=`", here, help="write `=`"), repair
    if token.type == "_EQUAL" and "COMPARE" in accepts:
        if place == "train" or (line.tokens[0].type == "NAME" and any(t.type == "_EQUAL" for t in line.tokens[:at])):
            return Diagnostic("AMP118", "a second `=`; a line gives one value", here, help="compare with `==`"), None
        if line.tokens[0].type == "NAME" and any(t.type == "_LSQB" for t in line.tokens[:2]):
            return None

        def compare() -> None:
            line.tokens[at or 0] = Token.new_borrow_pos("COMPARE", "==", token)

        return Diagnostic("AMP118", "`=` gives a value; here one is compared", here, help="write `==`"), compare
    if token.type == "PLUS_EQUAL":
        return (
            Diagnostic(
                "AMP118", "`+=` adds to an element of a value over an axis", here, help="write `a[target[e]] += m` in an `each`, or `h = h + m`"
            ),
            None,
        )
    if token.type == "_EQUAL" and "PLUS_EQUAL" in accepts:
        help_ = "gather with `a[target[e]] += m`; what an `each` assigns to a name is kept for each element: `a = m`"
        return Diagnostic("AMP118", "an element can't be assigned", here, help=help_), None
    if token.type in ("MINUS", "STAR", "SLASH") and "PLUS_EQUAL" in accepts:
        return Diagnostic(
            "AMP118", "only `+=`, `mean=` and `max=` gather into another axis", here, help="write `a[target[e]] += m`, with the sign or factor in `m`"
        ), None
    if token.type == "_COLON" and "_EQUAL" in accepts and "_COLON" not in accepts:
        return Diagnostic("AMP118", "a value is given with `=`", here, help="write `=`"), None
    return None


def _reserved(line: Line, at: int | None, token: Token | None, accepts: Set[str], place: str, file: str) -> Found:
    """A word of the language where a name is expected."""
    if token is None or "NAME" not in accepts or not token.isidentifier() or token.type == "NAME":
        return None
    others = [WORDS[t] for t in ORDER if t in accepts and t not in ("NAME", "NUMBER", "_LPAR", "_LSQB")]
    if at == 0 and "_NEWLINE" not in accepts and not STARTS_VALUE & accepts and others and place not in ("instance", "train"):
        return None
    return _taken(token, file), None


def _plain(line: Line, token: Token | None, accepts: Set[str], file: str, ends_file: bool) -> Diagnostic:
    """Return "expected A, B or C, found D"."""
    expected = [WORDS[t] for t in ORDER if t in accepts]
    if accepts >= {"NAME", "NUMBER", "_LPAR"}:
        expected = ["a value"] + [WORDS[t] for t in ("_RPAR", "_RSQB", "_NEWLINE") if t in accepts]
    elif OPERATORS & accepts and not expected:
        expected = ["an operator"]
    elif OPERATORS & accepts and len(expected) > 3:
        expected = [w for w in expected if w not in ("`[`", "`(`")]
    words = "something else" if not expected else expected[0] if len(expected) == 1 else ", ".join(expected[:-1]) + f" or {expected[-1]}"
    if token is None:
        found = "the program ends" if ends_file and line.end.type == "_COLON" else "the line ends"
        help_ = "a branch of which nothing lives on needs no `merge`" if len(line.tokens) == 1 and line.tokens[0].type == "_MERGE" else None
        return Diagnostic("AMP110", f"expected {words}, but {found}", Label(after(line.end, file)), help=help_)
    help_ = None
    first = line.tokens[0]
    if token.type == "_LPAR" and first.type == "NAME" and token is line.tokens[1]:
        return Diagnostic("AMP110", "a call on its own does nothing", Label(span_of(first, file)), help=f"give its value a name: `name = {first}(…)`")
    if str(token) == "." and token is not first:
        help_ = "a function goes before its operand: `tanh(x)`"
        return Diagnostic("AMP110", "there are no methods and no attributes", Label(span_of(token, file)), help=help_)
    if first.type == "_VISIT" and "_AFTER" in accepts:
        help_ = "a visit says which elements come first: `after left[n], right[n]`; an `each` needs no order"
    elif any(t.type == "_OUTPUT" for t in line.tokens) and "_EQUAL" in accepts:
        help_ = "an output that is no bare name is given one: `output name = value`"
    elif "_AT_MOST" in accepts:
        help_ = "a loop that ends by itself has a bound: `at most 32`"
    elif "_COMMA" in accepts and token.type in ("NAME", "NUMBER", "_LPAR", "_LSQB"):
        second = first.type == "NAME" and len(line.tokens) > 1 and token is line.tokens[1]
        sign = (
            "`:`"
            if second and "_COLON" in accepts
            else "`=`"
            if second
            else "`,`, `=` or an operator"
            if "_EQUAL" in accepts
            else "`,` or an operator"
        )
        help_ = f"a {sign} is missing before it"
    if token.type == "NAME" and (near := did_you_mean(str(token), [w.strip("`") for w in expected if w.startswith("`")])):
        help_ = near
    return Diagnostic("AMP110", f"expected {words}, found `{token}`", Label(span_of(token, file)), help=help_)
