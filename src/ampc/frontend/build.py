"""From parse tree to syntax tree, with the few rules that the grammar leaves open.

Those are: layers told from other assignments, `return` at the end of a `def`, one block of each kind, pairs of names and values.
Mistakes are collected in `errors`; a node is built for a wrong place too, so that others are still found.
"""

from __future__ import annotations

from collections.abc import Iterable

from lark import Token, Tree

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.frontend.build_expressions import Expressions, Node, token_of, tree_of
from ampc.frontend.tokens import span_of

REDUCTIONS = ("mean", "max")


class Builder(Expressions):
    """Builds one model: declarations and statements."""

    # ---------------------------------------------------------------------------------------------- model

    def model(self, start: Node) -> ast.Model:
        node = tree_of(start.children[0])
        name, parameters, *items = node.children
        axes: list[ast.Axis] = []
        raw_fields: list[Node] = []
        layers: list[ast.Layer] = []
        functions: list[ast.Function] = []
        settings: list[ast.Setting] = []
        body: list[ast.Stmt] = []
        blocks: dict[str, Node] = {}
        for item in items:
            item = tree_of(item)
            if item.data in ("instance", "train"):
                self._once(blocks, item)
            match item.data:
                case "instance":
                    for line in map(tree_of, item.children):
                        if line.data == "axes":
                            axes += [self._axis(tree_of(a)) for a in line.children]
                        elif line.data == "fields":
                            raw_fields.append(line)
                case "train":
                    settings += [self._setting(tree_of(s)) for s in item.children if tree_of(s).data == "setting"]
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
            self.report("AMP120", "the model has no `instance:` block", span_of(token_of(name), self.file), help=help_)
        return ast.Model(
            str(name), self._parameters(parameters), tuple(axes), tuple(fields), tuple(layers), tuple(functions), tuple(settings), tuple(body),
            self.name(token_of(name)).span,
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
        for parameter in map(tree_of, tree_of(node).children):
            name, default = parameter.children
            out.append(ast.Parameter(self.name(name).id, self.optional(default), self.span(parameter)))
        return tuple(out)

    def _axis(self, node: Node) -> ast.Axis:
        name, parent = node.children
        return ast.Axis(self.name(name).id, self.name(parent) if parent is not None else None, self.name(name).span)

    def _fields(self, line: Node, known: set[str]) -> Iterable[ast.Field]:
        names, type_ = map(tree_of, line.children)
        kind, extent, bound, optional = type_.children
        parts = [self.expression(p) for p in tree_of(extent).children] if extent is not None else []
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
            below = self.expression(tree_of(bound).children[1])
        for name in self.names(names):
            yield ast.Field(name.id, self.name(kind), axis, columns, below, optional is not None, name.span)

    def _layer(self, node: Node) -> ast.Layer | None:
        """Return the layer that a line of the model declares: `name = Kind(...)` with a capital letter; None if it is another assignment."""
        names, exprs, family = node.children
        value = tree_of(tree_of(exprs).children[0])
        if value.data != "call" or tree_of(value.children[0]).data != "name":
            if family is not None:
                self.report("AMP123", "`for` only follows a family of layers", self.span(tree_of(family)), help="`m = Linear(8, 8) for k in kinds`")
            return None
        kind = token_of(tree_of(value.children[0]).children[0])
        if not kind[0].isupper():
            return None
        targets = self.names(names)
        if len(targets) != 1 or len(tree_of(exprs).children) != 1:
            self.report("AMP123", "a line declares one layer", self.span(node), help="write a line for each: `name = Linear(inputs, outputs)`")
        call = self.expression(value)
        assert isinstance(call, ast.Call)
        index, count = (None, None) if family is None else tree_of(family).children
        members = self.optional(count)
        return ast.Layer(
            targets[0].id, call.function, call.args, call.keywords, self.name(index) if index is not None else None, members, targets[0].span
        )

    def _function(self, node: Node) -> ast.Function:
        name, parameters, block = node.children
        span = self.header(node, tree_of(block))
        self.deeper(span)
        body: list[ast.Stmt] = []
        result: tuple[ast.Expr, ...] = ()
        lines = [tree_of(c) for c in tree_of(block).children]
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
        return ast.Setting(layer, self.name(name).id, self.expression(value), self.span(token_of(name)))

    # ----------------------------------------------------------------------------------------- statements

    def _block(self, node: Node | Token | None, place: str) -> tuple[ast.Stmt, ...]:
        block = tree_of(node)
        self.deeper(self.span(block))
        out = [s for line in block.children for s in self._statement(tree_of(line), place)]
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
                return [
                    ast.Loop(name_, None, None, test, limit, False, self._carry(carry), self._block(block, place), self.header(node, tree_of(block)))
                ]
            case "each":
                head = self.header(node, tree_of(c[2]))
                return [ast.Each(self.name(c[0]), self.name(c[1]), self._block(c[2], place), head)]
            case "visit":
                head = self.header(node, tree_of(c[4]))
                after = self._expressions(c[2])
                return [ast.Visit(self.name(c[0]), self.name(c[1]), after, self._carry(c[3]), self._block(c[4], place), head)]
            case "branch":
                return [self._branch(node, place)]
            case "branch_as":
                selector, variable, block, merge = c
                head = self.header(node, tree_of(block))
                arm = ast.Arm("each", self._block(block, place), head)
                return [ast.Branch(self.expression(selector), self.name(variable), (arm,), self._carry(merge), head)]
            case _:  # instance, train and def are kept out by the grammar
                raise AssertionError(node.data)

    def _assign(self, node: Node) -> ast.Assign:
        names, exprs, family = node.children
        targets, values = self.names(names), self._expressions(exprs)
        if isinstance(family, Tree):
            self.report("AMP123", "`for` only follows a family of layers", self.span(family), help="declare layers directly in the model")
        elif len(values) != len(targets) and not (len(values) == 1 and isinstance(values[0], ast.Call)):
            message = f"{len(targets)} name{'s' * (len(targets) > 1)} for {len(values)} value{'s' * (len(values) > 1)}"
            self.report("AMP125", message, self.span(node), help="give each name one value, or all of them the results of one function")
        return ast.Assign(targets, values, self.span(node))

    def _accumulate(self, node: Node) -> ast.Accumulate:
        target, index, sign, value = node.children
        reduce = "sum"
        if token_of(sign).type == "NAME":
            reduce = str(sign)
            if reduce not in REDUCTIONS:
                help_ = "write `+=`, `mean=` or `max=`"
                self.report("AMP126", f"`{sign}=` is no way to gather values", span_of(token_of(sign), self.file), help=help_)
                reduce = "sum"
        return ast.Accumulate(self.name(target), self.expression(index), reduce, self.expression(value), self.span(node))

    def _measure(self, node: Node) -> list[ast.Stmt]:
        call = self.expression(node.children[-1])
        kind = str(node.data)
        if not isinstance(call, ast.Call):
            example = "cross_entropy(logits, label)`, or `loss value(x)" if kind == "loss" else "accuracy(logits, label)`, or `metric error(x)"
            own = f"` for a {kind} of your own making"
            self.report("AMP127", f"`{kind}` is followed by the call of a {kind}", call.span, help=f"for example `{kind} {example}{own}")
            return []
        if kind == "loss":
            return [ast.Loss(call, self.span(node))]
        given = node.children[0]
        return [ast.Metric("" if given is None else self.name(given).id, call, self.span(node))]

    def _loop(self, node: Node, place: str) -> ast.Loop:
        variable, domain, carry, block = node.children
        name, extent = tree_of(domain).children
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
                self.report("AMP128", f"a loop can't go over {wrong}", self.span(tree_of(domain)), help=help_)
        head = self.header(node, tree_of(block))
        return ast.Loop(self.name(variable), axis, count, None, None, reverse, self._carry(carry), self._block(block, place), head)

    def _carry(self, node: Node | Token | None) -> tuple[ast.Name, ...]:
        return self.names(tree_of(node).children[0]) if node is not None else ()

    def _branch(self, node: Node, place: str) -> ast.Branch:
        selector, *arms, merge = node.children
        self.deeper(self.span(tree_of(selector)))
        built = [self._arm(tree_of(a), place) for a in arms if tree_of(a).data == "arm"]
        self.depth -= 1
        end = self.span(tree_of(selector))
        whole = self.span(node)
        head = Span(self.file, whole.line, whole.column, end.end_line, end.end_column)
        return ast.Branch(self.expression(tree_of(selector)), None, tuple(built), self._carry(merge), head)

    def _arm(self, node: Node, place: str) -> ast.Arm:
        keys, block = map(tree_of, node.children)
        tokens = [token_of(tree_of(k).children[0]) for k in keys.children]
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
