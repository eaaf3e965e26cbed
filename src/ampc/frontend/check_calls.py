"""Checks expressions: values and constants, calls of functions, layers, losses and metrics."""

from __future__ import annotations

from ampc.diagnostics import Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.check_references import References
from ampc.frontend.names import ALIASES, FUNCTIONS, LAYERS, LOSSES, METRICS, TYPES, Callable, Option
from ampc.frontend.scopes import DECLARED, NOUN, Binding, Scope, name_span, shape_of, written


class Calls(References):
    """Checks the expressions of one model against a scope."""

    # -------------------------------------------------------------------------------------------- expressions

    def value(self, e: ast.Expr, scope: Scope, what: str = "value") -> None:
        """Check an expression that is computed with. `what` "target": a label, which may be none; "field": an int field is meant."""
        match e:
            case ast.Number() | ast.Bool():
                pass
            case ast.Text():
                self.out.report("AMP215", "a text can't be computed with", e.span, help="texts are values of settings and options only")
            case ast.Name():
                self._name(e, scope, what)
            case ast.Unary():
                self.value(e.operand, scope, "field" if e.op == "not" else "value")
            case ast.Binary():
                choice = e.op in ("<", "<=", ">", ">=", "==", "!=", "and", "or")  # ints and flags may be compared as they are
                self.value(e.left, scope, "field" if choice else "value")
                self.value(e.right, scope, "field" if choice else "value")
            case ast.Call():
                n = self.call(e, scope)
                if n != 1:
                    help_ = f"give them names first: `{', '.join('abcdefgh'[:n])} = {e.function.id}(…)`"
                    self.out.report("AMP231", f"`{e.function.id}` returns {n} values, one is needed here", e.span, help=help_)
            case ast.Index():
                self.index(e, scope, what)
            case ast.Slice():
                self.value(e.base, scope)
                for bound in (e.start, e.stop):
                    if bound is not None:
                        self.constant(bound, scope, "a column's number")
            case ast.Join():
                for part in e.parts:
                    self.value(part, scope)

    def constant(self, e: ast.Expr, scope: Scope, what: str) -> None:
        """Check an expression that has to be known when compiling."""
        match e:
            case ast.Number() | ast.Bool():
                pass
            case ast.Name():
                found = self._find(e, scope)
                if found is not None and found.kind not in ("parameter", "value"):  # a value may be a number, in a `def`
                    message = f"{what} has to be known when compiling, `{e.id}` is {NOUN[found.kind]}"
                    self.out.report(
                        "AMP241", message, e.span, also=(Label(found.span, "declared here"),), help="use numbers and parameters of the model"
                    )
            case ast.Unary():
                self.constant(e.operand, scope, what)
            case ast.Binary():
                self.constant(e.left, scope, what)
                self.constant(e.right, scope, what)
            case _:
                self.out.report("AMP241", f"{what} has to be known when compiling", e.span, help="use numbers and parameters of the model")

    # ---------------------------------------------------------------------------------------------------- calls

    def call(self, e: ast.Call, scope: Scope) -> int:
        """Check a call and return how many values it gives."""
        name = e.function.id
        if name == "?":
            self._operands(e, scope)
            return 1
        shadow = scope.find(name)
        if shadow is not None and shadow.kind == "broken":
            self._operands(e, scope)
            return 1
        if name in self.layers and shadow is not None and shadow.kind in DECLARED:
            self._layer(e, self.layers[name], scope)
            return 1
        if e.member is not None:
            text = f"`{name}` is no family of layers" if shadow is None else f"`{name}` is {NOUN[shadow.kind]}, not a family of layers"
            also = () if shadow is None else (Label(shadow.span, "declared here"),)
            help_ = did_you_mean(name, self.layers) or f"`{name} = Linear(inputs, outputs) for k in kinds` declares a family"
            self.out.report("AMP237", text, e.function.span, also=also, help=help_)
            self._operands(e, scope)
            return 1
        if shadow is not None and shadow.kind == "function":
            return self._function(e, self.functions[name], scope)
        if name in FUNCTIONS:
            self._builtin(e, FUNCTIONS[name], scope)
            return 1
        self._unknown(e, shadow)
        self._operands(e, scope)
        return 1

    def is_unknown(self, name: str) -> bool:
        """Whether nothing that can be called has this name."""
        return name not in self.layers and name not in self.functions and name not in FUNCTIONS

    def _operands(self, e: ast.Call, scope: Scope) -> None:
        for arg in e.args:
            self.value(arg, scope, "target")

    def _unknown(self, e: ast.Call, shadow: Binding | None) -> None:
        name, span = e.function.id, e.function.span
        if shadow is not None:
            also = (Label(shadow.span, "declared here"),)
            help_ = f"write `{name} * (…)` for a product, `{name}[…]` for an element" if shadow.kind in ("value", "field", "parameter") else None
            self.out.report("AMP212", f"`{name}` is {NOUN[shadow.kind]} and can't be called", span, also=also, help=help_)
        elif name in LOSSES or name in METRICS:
            word = "loss" if name in LOSSES else "metric"
            self.out.report("AMP212", f"`{name}` is a {word}, not a function", span, help=f"write `{word} {name}(…)` on a line of its own")
        elif name in LAYERS:
            help_ = f"declare it directly in the model, `w = {LAYERS[name].usage.split(',')[0]}, …)`, then write `w(x)`"
            self.out.report("AMP239", f"layer `{name}` is declared inside an expression or block", span, help=help_)
        elif name in ALIASES:
            self.out.report("AMP212", f"there is no function `{name}`", span, help=f"write `{ALIASES[name]}`")
        else:
            help_ = (
                did_you_mean(name, [*self.functions, *self.layers, *FUNCTIONS, *LAYERS])
                or "`docs/language.md` lists the functions; `def` makes new ones"
            )
            self.out.report("AMP212", f"there is no function `{name}`", span, help=help_)

    def _layer(self, e: ast.Call, layer: ast.Layer, scope: Scope) -> None:
        declared = (Label(layer.span, "declared here"),)
        name = layer.name
        if layer.count is not None and e.member is None:
            help_ = self._member_help(layer, scope)
            self.out.report("AMP237", f"`{name}` is a family of layers", e.function.span, also=declared, help=help_)
        elif layer.count is None and e.member is not None:
            self.out.report("AMP237", f"`{name}` is a single layer, not a family", e.function.span, also=declared, help=f"write `{name}(x)`")
        elif e.member is not None:
            self._member(e.member, scope)
        if len(e.args) != 1:
            join = f"join columns with `{name}([a, b])`" if len(e.args) > 1 else None
            self.out.report("AMP213", f"layer `{name}` takes one value, got {len(e.args)}", e.span, also=declared, help=join)
        for k in e.keywords:
            where = (
                f"write it where `{name}` is declared"
                if layer.kind.id in LAYERS and k.name in {o.name for o in LAYERS[layer.kind.id].options}
                else None
            )
            self.out.report("AMP210", f"a layer takes no option where it is applied, got `{k.name}`", name_span(k), also=declared, help=where)
        for arg in e.args:
            self.value(arg, scope, "value" if layer.kind.id in ("Linear", "LayerNorm") else "field")

    def _member_help(self, layer: ast.Layer, scope: Scope) -> str:
        """Return how to choose a member of a family: by an int field with as many values, if the program has one."""
        member = next((b.name for s in scope.chain() for b in s.names.values() if b.kind == "member"), None)
        if member is not None:
            return f"choose a member: `{layer.name}[{member}](x)`"
        opened = {b.axis: b.name for s in reversed(list(scope.chain())) for b in s.names.values() if b.kind == "element"}
        size = None if layer.count is None else shape_of(layer.count)
        fitting = [f for f in self.fields.values() if f.below is not None and shape_of(f.below) == size]
        fitting = [f for f in fitting if f.axis is None or not opened or f.axis.id in opened]
        fitting.sort(key=lambda f: f.axis is None)  # the current element's own field first
        taken = set(scope.visible())
        k = next((x for x in ("k", "i", "m", "kind") if x not in taken), "member")
        if not fitting:
            return f"choose a member: `branch … as {k}:` on an int with as many values, and `{layer.name}[{k}](x)` in its block"
        f = fitting[0]
        chosen = f.name if f.axis is None else f"{f.name}[{opened.get(f.axis.id, f.axis.id[0])}]"
        return f"choose a member: `branch {chosen} as {k}:` and `{layer.name}[{k}](x)` in its block"

    def _member(self, e: ast.Expr, scope: Scope) -> None:
        if isinstance(e, ast.Name):
            found = self._find(e, scope)
            in_function = any(s.form == "def" for s in scope.chain())
            if found is None or found.kind in ("member", "parameter") or (found.kind == "value" and in_function):
                return
        elif isinstance(e, ast.Number | ast.Unary | ast.Binary):
            self.constant(e, scope, "a member's number")
            return
        name = "k" if written(e) != "k" else "i"
        help_ = f"write `branch {written(e)} as {name}:` and pick the member by `{name}`"
        self.out.report("AMP237", "a member is picked by the variable of a `branch … as`", e.span, help=help_)

    def _function(self, e: ast.Call, f: ast.Function, scope: Scope) -> int:
        declared = (Label(f.span, "declared here"),)
        names = [p.name for p in f.parameters]
        required = [p.name for p in f.parameters if p.default is None]
        given = set(names[: len(e.args)])
        for k in e.keywords:
            if k.name not in names:
                help_ = did_you_mean(k.name, names) or f"it takes {', '.join(f'`{n}`' for n in names) or 'nothing'}"
                self.out.report("AMP210", f"`{f.name}` has no parameter `{k.name}`", name_span(k), also=declared, help=help_)
            elif k.name in given:
                self.out.report("AMP213", f"`{k.name}` of `{f.name}` is given twice", k.span, also=declared, help="remove one")
            given.add(k.name)
            self.value(k.value, scope, "target")
        missing = [n for n in required if n not in given]
        if len(e.args) > len(names) or missing:
            wanted = f"{len(names)} value{'s' * (len(names) != 1)}" if len(required) == len(names) else f"{len(required)} to {len(names)} values"
            help_ = f"write `{f.name}({', '.join(names)})`"
            self.out.report("AMP213", f"`{f.name}` takes {wanted}, got {len(e.args) + len(e.keywords)}", e.span, also=declared, help=help_)
        for arg in e.args:
            found = scope.find(arg.id) if isinstance(arg, ast.Name) else None
            if found is None or found.kind != "member":  # which the function may pick a member by
                self.value(arg, scope, "target")
        return max(1, len(f.result))

    def _builtin(self, e: ast.Call, known: Callable, scope: Scope) -> None:
        args = list(e.args)
        if known.over_axis and len(args) == len(known.operands) + 1:
            first = args.pop(0)
            found = scope.find(first.id) if isinstance(first, ast.Name) else None
            if isinstance(first, ast.Name) and found is not None and found.kind == "axis":
                scope.read(first.id, first.span, False)
            elif not isinstance(first, ast.Name) or found is not None or self.out.once(first.id):
                what = f"`{first.id}` is none" if isinstance(first, ast.Name) else "this is none"
                near = did_you_mean(first.id, self.axes) if isinstance(first, ast.Name) else None
                help_ = near or f"the axes are {', '.join(f'`{a}`' for a in self.axes) or 'declared in the `instance:` block'}"
                self.out.report("AMP204", f"`{known.name}` of two operands wants an axis first, {what}", first.span, help=help_)
        elif len(args) != len(known.operands) and all(k.name in {o.name for o in known.options} for k in e.keywords):
            n = len(known.operands)
            usage = f"`{known.usage}`" + (f" or `{known.name}(axis, {known.operands[0].name})`" if known.over_axis else "")
            self.out.report("AMP213", f"`{known.name}` takes {n} operand{'s' * (n != 1)}, got {len(args)}", e.span, help=f"write {usage}")
        counted = scope.find(args[0].id) if known.name == "number" and len(args) == 1 and isinstance(args[0], ast.Name) else None
        if counted is None or counted.kind not in ("element", "turn"):  # their places, counted from 0, are numbers
            self.operands(known, args, scope)
        self.options(known, e.keywords, scope)

    def operands(self, known: Callable, args: list[ast.Expr], scope: Scope) -> None:
        """Check the operands of a function, loss or metric against what each is."""
        for i, arg in enumerate(args):
            option = known.operands[i] if i < len(known.operands) else Option("x")
            self._operand(known, option, arg, scope)

    def options(self, known: Callable, keywords: tuple[ast.Keyword, ...], scope: Scope) -> None:
        """Check the options of a function, loss or metric."""
        options = {o.name: o for o in known.options}
        for k in keywords:
            if k.name in options:
                self._operand(known, options[k.name], k.value, scope)
                continue
            operand = k.name in {o.name for o in known.operands}
            help_ = f"write its value alone: `{known.usage}`" if operand else did_you_mean(k.name, options) or f"write `{known.usage}`"
            self.out.report("AMP210", f"`{known.name}` has no option `{k.name}`", name_span(k), help=help_)

    def _operand(self, known: Callable, option: Option, e: ast.Expr, scope: Scope) -> None:
        if option.what in ("size", "number"):
            self.constant(e, scope, f"`{option.name}` of `{known.name}`")
        elif option.what == "field" or option.name == "target":
            self.value(e, scope, "target")
        else:
            self.value(e, scope)

    def measure(self, e: ast.Call, table: dict[str, Callable], word: str, scope: Scope) -> None:
        """Check the call behind `loss` or `metric`."""
        name = e.function.id
        known = table.get(name)
        if known is None:
            other = {"loss": METRICS, "metric": LOSSES}[word]
            names = f"{'losses' if word == 'loss' else 'metrics'} are {', '.join(f'`{n}`' for n in table)}"
            aliases = {
                "mse": "squared",
                "mae": "absolute" if word == "loss" else "absolute_error",
                "nll": "cross_entropy",
                "bce": "binary_cross_entropy",
            }
            help_ = f"write `{'metric' if word == 'loss' else 'loss'} {name}(…)`" if name in other else did_you_mean(name, table) or names
            help_ = f"write `{aliases[name]}`" if name in aliases else help_
            if name in FUNCTIONS or name in self.functions or name in self.layers:
                help_ = f"write `{word} {'value' if word == 'loss' else 'error'}({name}(…))` for a {word} of your own making"
            if name != "?":
                self.out.report("AMP214", f"there is no {word} `{name}`", e.function.span, help=help_)
            self._operands(e, scope)
            return
        if len(e.args) != len(known.operands):
            message = f"`{name}` takes {len(known.operands)} operands, got {len(e.args)}"
            self.out.report("AMP213", message, e.span, help=f"write `{word} {name}({', '.join(o.name for o in known.operands)})`")
        self.operands(known, list(e.args), scope)
        self.options(known, e.keywords, scope)


__all__ = ["TYPES", "Calls", "Span", "written"]
