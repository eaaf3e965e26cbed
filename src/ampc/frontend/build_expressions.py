"""From parse tree to expressions: what can be indexed and called, numbers in range, depth of nesting.

Mistakes are collected; a node is built for a wrong place too, so that others are still found.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lark import Token, Tree

from ampc.diagnostics import AmpError, Diagnostic, Label, Span
from ampc.frontend import ast
from ampc.frontend.names import FUNCTIONS, LAYERS
from ampc.frontend.tokens import MAX_NESTING, span_of

Node = Tree[Token]
NUMBER = re.compile(r"(?P<int>[0-9]+(?:_[0-9]+)*)|(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_INT = 2**53


class Expressions:
    """Builds the expressions of one model.

    `lenient`: lines are missing because they were reported already, so don't ask for what may have been on them.
    """

    def __init__(self, file: str, lenient: bool = False) -> None:
        self.file = file
        self.lenient = lenient
        self.errors: list[Diagnostic] = []
        self.depth = 0
        self.long: set[str] = set()

    # -------------------------------------------------------------------------------------------- helpers

    def report(self, code: str, message: str, span: Span, label: str = "", *, other: tuple[Label, ...] = (), help: str | None = None) -> None:
        self.errors.append(Diagnostic(code, message, Label(span, label), other, help=help))

    def span(self, node: Node | Token) -> Span:
        if isinstance(node, Token):
            return span_of(node, self.file)
        m = node.meta
        return Span(self.file, m.line, m.column, m.end_line, m.end_column)

    def header(self, node: Node, block: Node) -> Span:
        """Return the place of a statement up to the colon that opens its block."""
        whole, rest = self.span(node), self.span(block)
        return Span(self.file, whole.line, whole.column, rest.line, rest.column)

    def name(self, token: Node | Token | None) -> ast.Name:
        assert isinstance(token, Token)
        if len(token) > 64 and token not in self.long:
            self.long.add(str(token))
            self.report("AMP186", f"the name has {len(token)} characters; at most 64 are accepted", span_of(token, self.file))
        return ast.Name(str(token), span_of(token, self.file))

    def names(self, node: Node | Token | None) -> tuple[ast.Name, ...]:
        return tuple(self.name(t) for t in node.children) if isinstance(node, Tree) else ()

    def deeper(self, span: Span) -> None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise AmpError([*self.errors, Diagnostic("AMP183", f"blocks and expressions are nested more than {MAX_NESTING} deep", Label(span))])

    # ---------------------------------------------------------------------------------------- expressions

    def _expressions(self, node: Node | Token | None) -> tuple[ast.Expr, ...]:
        return tuple(self.expression(e) for e in tree_of(node).children)

    def optional(self, node: Node | Token | None) -> ast.Expr | None:
        return None if node is None else self.expression(node)

    def expression(self, node: Node | Token | None) -> ast.Expr:
        node = tree_of(node)
        span = self.span(node)
        self.deeper(span)
        built = self._expression(node, span)
        self.depth -= 1
        return built

    def _expression(self, node: Node, span: Span) -> ast.Expr:
        c = node.children
        match node.data:
            case "name":
                return self.name(c[0])
            case "number":
                return ast.Number(self._number(token_of(c[0])), span)
            case "true" | "false":
                return ast.Bool(node.data == "true", span)
            case "text":
                return ast.Text(str(c[0])[1:-1], span)
            case "group":
                return self.expression(c[0])
            case "join":
                return ast.Join(self._expressions(c[0]), span)
            case "negation" | "minus":
                operand = self.expression(c[-1])
                if node.data == "minus" and isinstance(operand, ast.Number):
                    return ast.Number(-operand.value, span)
                return ast.Unary("-" if node.data == "minus" else "not", operand, span)
            case "any" | "all":
                word = "or" if node.data == "any" else "and"
                return self._chain([c[0], *(x for e in c[1:] for x in (word, e))], span)
            case "chain":
                return self._chain(c, span)
            case "call":
                return self._call(c[0], c[1], span)
            case "index":
                base = self.expression(c[0])
                index = self.expression(c[1])
                return ast.Index(self._base(base), index, span)
            case "slice":
                return ast.Slice(self.expression(c[0]), self.optional(c[1]), self.optional(c[2]), span)
            case "keyword":
                self.report("AMP130", f"`{c[0]} = …` is an option and stands in a call", span)
                return self.expression(c[1])
            case _:
                raise AssertionError(node.data)

    def _chain(self, parts: Sequence[Node | Token | str], span: Span) -> ast.Expr:
        """Return `a op b op c` as nested pairs, from the left."""
        if len(parts) // 2 + self.depth > MAX_NESTING:
            raise AmpError([*self.errors, Diagnostic("AMP183", f"an expression has more than {MAX_NESTING} operators in a row", Label(span))])
        built = self.expression(parts[0])  # type: ignore[arg-type]  # operands are nodes
        compared = False
        for sign, operand in zip(parts[1::2], parts[2::2], strict=True):
            right = self.expression(operand)  # type: ignore[arg-type]  # operands are nodes
            if sign in ("<", "<=", ">", ">=", "==", "!="):
                if compared:
                    self.report("AMP130", "comparisons can't be chained", span, help="write `a < b and b < c`")
                compared = True
            place = Span(self.file, built.span.line, built.span.column, right.span.end_line, right.span.end_column)
            built = ast.Binary(str(sign), built, right, place)
        return built

    def _base(self, base: ast.Expr) -> ast.Name:
        if isinstance(base, ast.Name):
            return base
        help_ = "give it a name first; for two indices, an axis inside another is read by its own variable"
        self.report("AMP130", "only a field or a value with a name can be indexed", base.span, help=help_)
        return ast.Name("?", base.span)

    def _call(self, function: Node | Token | None, arguments: Node | Token | None, span: Span) -> ast.Call:
        called = self.expression(function)
        member: ast.Expr | None = None
        if isinstance(called, ast.Index):
            member = called.index
            called = called.base
        if not isinstance(called, ast.Name):
            help_ = "give the layer or function a name, then call it"
            self.report("AMP130", "only a function, a layer or a member of a family can be called", called.span, help=help_)
            called = ast.Name("?", called.span)
        args: list[ast.Expr] = []
        keywords: list[ast.Keyword] = []
        late = False
        for argument in map(tree_of, tree_of(arguments).children if arguments is not None else ()):
            if argument.data == "keyword":
                name = self.name(argument.children[0])
                before = [k for k in keywords if k.name == name.id]
                if before:
                    self.report("AMP131", f"`{name.id}` is given twice", name.span, other=(Label(before[0].span, "first here"),), help="remove one")
                keywords.append(ast.Keyword(name.id, self.expression(argument.children[1]), self.span(argument)))
            else:
                if keywords and not late:
                    late = True
                    self.report("AMP131", "an operand follows an option", self.span(argument), help="write `name = value` options last")
                args.append(self.expression(argument))
        known = FUNCTIONS.get(called.id) or LAYERS.get(called.id)
        while known is not None and (named := [k for k in keywords if known.names_constant(len(args), k.name)]):
            args.append(named[0].value)
            keywords.remove(named[0])
        return ast.Call(called, member, tuple(args), tuple(keywords), span)

    def _number(self, token: Token) -> int | float:
        span = span_of(token, self.file)
        found = NUMBER.fullmatch(token)
        if found is None:
            self.report("AMP106", f"`{token}` is no number", span, help="write digits, with `.` and `e` where needed: `128`, `0.5`, `1e-3`")
            return 1
        if found["int"] is None:
            value = float(token)
            if value == float("inf"):
                self.report("AMP185", f"the number `{_short(token)}` is too large", span, help="at most 1.8e308 is accepted")
                return 1.0
            return value
        digits = token.replace("_", "")
        if len(digits.lstrip("0")) > 16 or int(digits) > MAX_INT:
            self.report("AMP184", f"the integer `{_short(token)}` is too large", span, help=f"at most {MAX_INT} (2^53) is accepted")
            return 1
        return int(digits)


def _short(token: str) -> str:
    return token if len(token) <= 24 else f"{token[:20]}…"


def tree_of(node: Node | Token | str | None) -> Node:
    assert isinstance(node, Tree)
    return node


def token_of(node: Node | Token | str | None) -> Token:
    assert isinstance(node, Token)
    return node
