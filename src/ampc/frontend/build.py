"""From parse tree to syntax tree, with the few rules that the grammar leaves open.

Those are: what can be indexed and called, numbers in range, `return` at the end of a `def`, depth of nesting, one block of each kind.
Mistakes are collected in `errors`; a node is built for a wrong place too, so that others are still found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from lark import Token, Tree

from ampc.diagnostics import AmpError, Diagnostic, Label, Span
from ampc.frontend import ast
from ampc.frontend.tokens import MAX_NESTING, span_of

Node = Tree[Token]
NUMBER = re.compile(r"(?P<int>[0-9]+(?:_[0-9]+)*)|(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_INT = 2**53
REDUCTIONS = {"mean": "mean", "max": "max"}

T = TypeVar("T")


class Builder:
    """Builds one model. `lenient`: lines are missing because they were reported already, so don't ask for what may have been on them."""

    def __init__(self, file: str, text: str, lenient: bool = False) -> None:
        self.file = file
        self.lines = text.split("\n")
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

    def source(self, node: Node) -> str:
        """Return the text of an expression, on one line."""
        m = node.meta
        lines = self.lines[m.line - 1 : m.end_line]
        lines[-1] = lines[-1][: m.end_column - 1]
        lines[0] = lines[0][m.column - 1 :]
        return " ".join(" ".join(lines).split())

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

    # ---------------------------------------------------------------------------------------------- model

    def model(self, start: Node) -> ast.Model:
        node = _tree(start.children[0])
        name, parameters, *items = node.children
        axes: list[ast.Axis] = []
        raw_fields: list[Node] = []
        layers: list[ast.Layer] = []
        functions: list[ast.Function] = []
        settings: list[ast.Setting] = []
        body: list[ast.Stmt] = []
        blocks: dict[str, Node] = {}
        for item in items:
            item = _tree(item)
            if item.data in ("instance", "train"):
                self._once(blocks, item)
            match item.data:
                case "instance":
                    for line in map(_tree, item.children):
                        if line.data == "axes":
                            axes += [self._axis(_tree(a)) for a in line.children]
                        elif line.data == "fields":
                            raw_fields.append(line)
                case "train":
                    settings += [self._setting(_tree(s)) for s in item.children if _tree(s).data == "setting"]
                case "function":
                    functions.append(self._function(item))
                case "assign" if (layer := self._layer(item)) is not None:
                    layers.append(layer)
                case "skipped":
                    pass
                case _:
                    body += self._statement(item, "")
        known = {a.name for a in axes}
        fields = [f for line in raw_fields for f in self._fields(line, known)]
        if "instance" not in blocks and not self.lenient:
            help_ = "write `instance:` first, with a line for each axis and field of the data"
            self.report("AMP120", "the model has no `instance:` block", span_of(_token(name), self.file), help=help_)
        return ast.Model(
            str(name), self._parameters(parameters), tuple(axes), tuple(fields), tuple(layers), tuple(functions), tuple(settings), tuple(body),
            self.name(_token(name)).span,
        )  # fmt: skip

    def _once(self, blocks: dict[str, Node], item: Node) -> None:
        first = blocks.setdefault(item.data, item)
        if first is not item:
            span, other = self._line(item), Label(self._line(first), "the first one")
            self.report("AMP121", f"a second `{item.data}:` block", span, other=(other,), help="put its lines into the first")

    def _line(self, node: Node) -> Span:
        whole = self.span(node)
        return Span(self.file, whole.line, whole.column, whole.line, whole.column + len(node.data))

    def _parameters(self, node: Node | Token | None) -> tuple[ast.Parameter, ...]:
        if node is None:
            return ()
        out = []
        for parameter in map(_tree, _tree(node).children):
            name, default = parameter.children
            out.append(ast.Parameter(self.name(name).id, self.optional(default), self.span(parameter)))
        return tuple(out)

    def _axis(self, node: Node) -> ast.Axis:
        name, parent = node.children
        return ast.Axis(self.name(name).id, self.name(parent) if parent is not None else None, self.name(name).span)

    def _fields(self, line: Node, known: set[str]) -> Iterable[ast.Field]:
        names, type_ = map(_tree, line.children)
        kind, extent, bound, optional = type_.children
        parts = [self.expression(p) for p in _tree(extent).children] if extent is not None else []
        axis: ast.Name | None = None
        columns: ast.Expr | None = None
        if parts and isinstance(parts[0], ast.Name) and (parts[0].id in known or len(parts) == 2 or str(kind) != "float"):
            axis = parts.pop(0)  # type: ignore[assignment]  # just tested
        if parts:
            columns = parts.pop(0)
        if parts:
            help_ = "a field lies over one axis at most: `float[axis, columns]`"
            self.report("AMP122", "too many values between the brackets", parts[0].span, help=help_)
        below: ast.Expr | None = None
        if bound is not None:
            below = self.expression(_tree(bound).children[1])
        for name in self.names(names):
            yield ast.Field(name.id, self.name(kind), axis, columns, below, optional is not None, name.span)

    def _layer(self, node: Node) -> ast.Layer | None:
        """Return the layer that a line of the model declares: `name = Kind(...)` with a capital letter; None if it is another assignment."""
        names, exprs, family = node.children
        value = _tree(_tree(exprs).children[0])
        if value.data != "call" or _tree(value.children[0]).data != "name":
            if family is not None:
                self.report("AMP123", "`for` only follows a family of layers", self.span(_tree(family)), help="`m = Linear(8, 8) for k in kinds`")
            return None
        kind = _token(_tree(value.children[0]).children[0])
        if not kind[0].isupper():
            return None
        targets = self.names(names)
        if len(targets) != 1 or len(_tree(exprs).children) != 1:
            self.report("AMP123", "a line declares one layer", self.span(node), help="write a line for each: `name = Linear(inputs, outputs)`")
        call = self.expression(value)
        assert isinstance(call, ast.Call)
        index, count = (None, None) if family is None else _tree(family).children
        members = self.optional(count)
        return ast.Layer(
            targets[0].id, call.function, call.args, call.keywords, self.name(index) if index is not None else None, members, targets[0].span
        )

    def _function(self, node: Node) -> ast.Function:
        name, parameters, block = node.children
        span = self.header(node, _tree(block))
        self.deeper(span)
        body: list[ast.Stmt] = []
        result: tuple[ast.Expr, ...] = ()
        lines = [_tree(c) for c in _tree(block).children]
        for line in lines[:-1] if lines[-1].data == "return" else lines:
            body += self._statement(line, "def")
        if lines[-1].data == "return":
            result = self._expressions(lines[-1].children[0])
        elif not self.lenient:
            self.report("AMP124", f"`{name}` ends without `return`", span, help="a function ends with `return value` or `return a, b`")
        self.depth -= 1
        return ast.Function(self.name(name).id, self._parameters(parameters), tuple(body), result, self.name(name).span)

    def _setting(self, node: Node) -> ast.Setting:
        first, second, value = node.children
        layer, name = (None, first) if second is None else (self.name(first), second)
        if name in ("until", "watch") and _tree(value).data != "text":  # read by the run, against its metrics
            built: ast.Expr = ast.Text(self.source(_tree(value)), self.span(_tree(value)))
        else:
            built = self.expression(value)
        return ast.Setting(layer, self.name(name).id, built, self.span(_token(name)))

    # ----------------------------------------------------------------------------------------- statements

    def _block(self, node: Node | Token | None, place: str) -> tuple[ast.Stmt, ...]:
        block = _tree(node)
        self.deeper(self.span(block))
        out = [s for line in block.children for s in self._statement(_tree(line), place)]
        self.depth -= 1
        return tuple(out)

    def _statement(self, node: Node, place: str) -> list[ast.Stmt]:
        """Return the statement as a list of one, of none where it was left out. `place` is "def" inside a function, else ""."""
        c = node.children
        span = self.span(node) if not node.meta.empty else None
        assert span is not None
        match node.data:
            case "skipped":
                return []
            case "assign":
                return [self._assign(node)]
            case "accumulate":
                return [self._accumulate(node)]
            case "loss" | "metric":
                return self._measure(node)
            case "output":
                name = self.name(c[0])
                return [ast.Output(name.id, self.optional(c[1]) or name, span)]
            case "return":
                help_ = "end the function with it" if place == "def" else "write `output name = value` to get a value out of the model"
                self.report("AMP124", "`return` is the last line of a `def`", span, help=help_)
                return []
            case "loop":
                return [self._loop(node, place)]
            case "while":
                variable, condition, most, carry, block = c
                name_ = self.name(variable) if variable is not None else None
                test, limit = self.expression(condition), self.expression(most)
                return [ast.Loop(name_, None, None, test, limit, False, self._carry(carry), self._block(block, place), self.header(node, _tree(block)))]
            case "each":
                head = self.header(node, _tree(c[2]))
                return [ast.Each(self.name(c[0]), self.name(c[1]), self._block(c[2], place), head)]
            case "visit":
                head = self.header(node, _tree(c[4]))
                after = self._expressions(c[2])
                return [ast.Visit(self.name(c[0]), self.name(c[1]), after, self._carry(c[3]), self._block(c[4], place), head)]
            case "branch":
                return [self._branch(node, place)]
            case "branch_as":
                selector, variable, block, merge = c
                head = self.header(node, _tree(block))
                arm = ast.Arm("each", self._block(block, place), head)
                return [ast.Branch(self.expression(selector), self.name(variable), (arm,), self._carry(merge), head)]
            case _:  # instance, train and def are kept out by the grammar
                raise AssertionError(node.data)

    def _assign(self, node: Node) -> ast.Assign:
        names, exprs, family = node.children
        targets, values = self.names(names), self._expressions(exprs)
        if family is not None:
            self.report("AMP123", "`for` only follows a family of layers", self.span(_tree(family)), help="declare layers directly in the model")
        elif len(values) != len(targets) and not (len(values) == 1 and isinstance(values[0], ast.Call)):
            message = f"{len(targets)} name{'s' * (len(targets) > 1)} for {len(values)} value{'s' * (len(values) > 1)}"
            self.report("AMP125", message, self.span(node), help="give each name one value, or all of them the results of one function")
        return ast.Assign(targets, values, self.span(node))

    def _accumulate(self, node: Node) -> ast.Accumulate:
        target, index, sign, value = node.children
        reduce = "sum"
        if _token(sign).type == "NAME":
            reduce = str(sign)
            if reduce not in REDUCTIONS:
                help_ = "write `+=`, `mean=` or `max=`"
                self.report("AMP126", f"`{sign}=` is no way to gather values", span_of(_token(sign), self.file), help=help_)
                reduce = "sum"
        return ast.Accumulate(self.name(target), self.expression(index), reduce, self.expression(value), self.span(node))

    def _measure(self, node: Node) -> list[ast.Stmt]:
        call = self.expression(node.children[0])
        kind = str(node.data)
        if not isinstance(call, ast.Call):
            example = "cross_entropy(logits, label)" if kind == "loss" else "accuracy(logits, label)"
            self.report("AMP127", f"`{kind}` is followed by the call of a {kind}", call.span, help=f"for example `{kind} {example}`")
            return []
        return [ast.Loss(call, self.span(node)) if kind == "loss" else ast.Metric(call, self.span(node))]

    def _loop(self, node: Node, place: str) -> ast.Loop:
        variable, domain, carry, block = node.children
        name, extent = _tree(domain).children
        axis: ast.Name | None = self.name(name)
        count: ast.Expr | None = None
        reverse = False
        if extent is not None:
            value = self.expression(extent)
            assert axis is not None
            if axis.id == "range":
                axis, count = None, value
            elif axis.id == "reversed" and isinstance(value, ast.Name):
                axis, reverse = value, True
            else:
                wrong = f"`{axis.id}(…)`" if axis.id != "reversed" else "`reversed(…)` of something else than an axis"
                help_ = "write an axis, `reversed(axis)` or `range(count)`"
                self.report("AMP128", f"a loop can't go over {wrong}", self.span(_tree(domain)), help=help_)
        head = self.header(node, _tree(block))
        return ast.Loop(self.name(variable), axis, count, None, None, reverse, self._carry(carry), self._block(block, place), head)

    def _carry(self, node: Node | Token | None) -> tuple[ast.Name, ...]:
        return self.names(_tree(node).children[0]) if node is not None else ()

    def _branch(self, node: Node, place: str) -> ast.Branch:
        selector, *arms, merge = node.children
        self.deeper(self.span(_tree(selector)))
        built = [self._arm(_tree(a), place) for a in arms if _tree(a).data == "arm"]
        self.depth -= 1
        end = self.span(_tree(selector))
        whole = self.span(node)
        head = Span(self.file, whole.line, whole.column, end.end_line, end.end_column)
        return ast.Branch(self.expression(_tree(selector)), None, tuple(built), self._carry(merge), head)

    def _arm(self, node: Node, place: str) -> ast.Arm:
        keys, block = map(_tree, node.children)
        tokens = [_token(_tree(k).children[0]) for k in keys.children]
        span = self.span(keys)
        key: str | tuple[int, ...]
        words = [t for t in tokens if t.type in ("_NONE", "_ELSE")]
        if words and len(tokens) > 1:
            self.report("AMP129", f"`{words[0]}` stands alone before its `:`", span_of(words[0], self.file), help="write an arm for each")
        if words:
            key = str(words[0])
        else:
            values = [1 if t.type == "TRUE" else 0 if t.type == "FALSE" else self._integer(t) for t in tokens]
            key = tuple(values)
        return ast.Arm(key, self._block(block, place), span)

    def _integer(self, token: Token) -> int:
        value = self._number(token)
        if isinstance(value, int):
            return value
        self.report("AMP129", f"an arm is chosen by an integer, not by `{token}`", span_of(token, self.file))
        return 0

    # ---------------------------------------------------------------------------------------- expressions

    def _expressions(self, node: Node | Token | None) -> tuple[ast.Expr, ...]:
        return tuple(self.expression(e) for e in _tree(node).children)

    def optional(self, node: Node | Token | None) -> ast.Expr | None:
        return None if node is None else self.expression(node)

    def expression(self, node: Node | Token | None) -> ast.Expr:
        node = _tree(node)
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
                return ast.Number(self._number(_token(c[0])), span)
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

    def _chain(self, parts: list[Node | Token | str], span: Span) -> ast.Expr:
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
            called, member = called.base, called.index
        if not isinstance(called, ast.Name):
            help_ = "give the layer or function a name, then call it"
            self.report("AMP130", "only a function, a layer or a member of a family can be called", called.span, help=help_)
            called = ast.Name("?", called.span)
        args: list[ast.Expr] = []
        keywords: list[ast.Keyword] = []
        for argument in map(_tree, _tree(arguments).children if arguments is not None else ()):
            if argument.data == "keyword":
                name = self.name(argument.children[0])
                before = [k for k in keywords if k.name == name.id]
                if before:
                    self.report("AMP131", f"`{name.id}` is given twice", name.span, other=(Label(before[0].span, "first here"),), help="remove one")
                keywords.append(ast.Keyword(name.id, self.expression(argument.children[1]), self.span(argument)))
            else:
                if keywords:
                    self.report("AMP131", "an operand follows an option", self.span(argument), help="write `name = value` options last")
                args.append(self.expression(argument))
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


def _tree(node: Node | Token | str | None) -> Node:
    assert isinstance(node, Tree)
    return node


def _token(node: Node | Token | str | None) -> Token:
    assert isinstance(node, Token)
    return node
