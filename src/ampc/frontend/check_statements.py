"""Checks statements: what a block may read, what it has to assign, what lives on after it."""

from __future__ import annotations

from ampc.diagnostics import Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.check_calls import Calls, written
from ampc.frontend.metrics import metric_names, metrics
from ampc.frontend.names import LOSSES, METRICS
from ampc.frontend.scopes import DECLARED, NOUN, VARIABLES, Binding, Form, Reporter, Scope, shape_of


class Statements:
    """Checks the statements of one model, in order."""

    def __init__(self, model: ast.Model, out: Reporter, calls: Calls) -> None:
        self.model = model
        self.out = out
        self.calls = calls
        self.outputs: dict[str, Span] = {}
        self.gathered_axis: dict[str, str] = {}
        self.metric_names = metric_names(model)

    def block(self, body: tuple[ast.Stmt, ...], scope: Scope) -> None:
        for s in body:
            self.statement(s, scope)

    def statement(self, s: ast.Stmt, scope: Scope) -> None:
        match s:
            case ast.Assign():
                self._assign(s, scope)
            case ast.Accumulate():
                self._accumulate(s, scope)
            case ast.Loop():
                self._loop(s, scope)
            case ast.Each():
                self._each(s, scope)
            case ast.Visit():
                self._visit(s, scope)
            case ast.Branch():
                self._branch(s, scope)
            case ast.Loss():
                self.calls.measure(s.call, LOSSES, "loss", scope)
            case ast.Metric():
                self._metric(s, scope)
            case ast.Output():
                self._output(s, scope)

    # -------------------------------------------------------------------------------------------- assignments

    def _assign(self, s: ast.Assign, scope: Scope) -> None:
        n = len(s.values)
        if len(s.values) == 1 and isinstance(s.values[0], ast.Call):
            call = s.values[0]
            n = self.calls.call(call, scope)
            if n != len(s.targets) and not self.calls.is_unknown(call.function.id):
                gives = f"`{call.function.id}` returns {n} value{'s' * (n > 1)}, {len(s.targets)} {'is' if len(s.targets) == 1 else 'are'} named"
                f = self.calls.functions.get(call.function.id)
                also = (Label(f.span, "declared here"),) if f is not None else ()
                self.out.report("AMP231", gives, s.span, also=also, help="name each of its results")
        else:
            for v in s.values:
                self.calls.value(v, scope, "target" if isinstance(v, ast.Name | ast.Index) else "value")
        for t in s.targets:
            self.bind(t.id, t.span, scope)
            unknown = isinstance(s.values[0], ast.Call) and self.calls.is_unknown(s.values[0].function.id)
            if unknown and t.id in scope.assigned:
                scope.names[t.id] = Binding(t.id, "broken", t.span)

    def bind(self, name: str, span: Span, scope: Scope, axis: str = "") -> None:
        """Give `name` a value in `scope`, after a look at what it hides."""
        found = scope.find(name)
        if found is not None and self._hides(name, span, found, scope):
            return
        self._forgotten(name, span, scope, found)
        if not axis and scope.form in ("visit", "each") and name in scope.carry:
            axis = scope.axis
        scope.names[name] = Binding(name, "value", span, axis)
        scope.assigned[name] = span
        scope.stale.pop(name, None)
        scope.gone.pop(name, None)

    def _hides(self, name: str, span: Span, found: Binding, scope: Scope) -> bool:
        """Report a value that takes the name of a declaration or of an open block's variable."""
        in_function = any(s.form == "def" for s in scope.chain())
        if found.kind in VARIABLES or (found.kind in DECLARED and not in_function):
            also = (Label(found.span, f"{NOUN[found.kind]}, declared here"),)
            self.out.report(
                "AMP203", f"`{name}` is {NOUN[found.kind]} and can't be assigned", span, also=also, help=f"choose another name, such as `new_{name}`"
            )
            return True
        return False

    def _forgotten(self, name: str, span: Span, scope: Scope, found: Binding | None) -> None:
        """Report a value that was read from outside a loop and is then assigned in it without being carried: each turn would start anew."""
        if found is None or found.kind not in ("value", "carried"):
            return
        for block in scope.chain():
            if name in block.names or block.form in ("def", "model"):
                return
            read = block.bare.get(name) or block.indexed.get(name) if block.form == "loop" else block.bare.get(name) if block.form == "each" else None
            if read is None:
                continue
            also = (Label(read, "read here"), Label(found.span, "its value before the block"))
            block.excused.add(name)
            if block.unsure:
                return
            if block.form == "loop":
                help_ = f"write `carry {name}` at the head of the loop, or use another name inside"
                self.out.report("AMP220", f"every turn would read the `{name}` from before the loop", span, also=also, help=help_)
            else:
                help_ = f"sum over the elements afterwards, `sum({block.axis}, …)`, or write a `loop` where the order matters"
                self.out.report("AMP220", f"the elements of an `each` don't see one another's `{name}`", span, also=also, help=help_)
            return

    def _accumulate(self, s: ast.Accumulate, scope: Scope) -> None:
        self.calls.value(s.value, scope)
        axis = self.calls.element(s.index, scope)
        block = next((b for b in scope.chain() if b.form not in ("arm",)), None)
        if block is None or block.form not in ("each", "visit"):
            sign = "+=" if s.reduce == "sum" else f"{s.reduce}="
            help_ = (
                "put it into `each e in axis:`"
                if block is None or block.form != "loop"
                else "`carry` the value through the loop; a `visit` along a chain of elements keeps one for each of them"
            )
            self.out.report("AMP227", f"`{sign}` gathers from the elements of an `each`", s.span, help=help_)
            list(scope.chain())[-1].names.setdefault(s.target.id, Binding(s.target.id, "broken", s.target.span))
            return
        before = block.gathered.get(s.target.id)
        found = scope.find(s.target.id)
        if before is not None:
            if before.reduce != s.reduce:
                also = (Label(before.span, f"by {before.reduce} here"),)
                self.out.report("AMP228", f"`{s.target.id}` is gathered in two ways", s.span, also=also, help="use two names")
            return
        if found is not None and found.kind in ("value", "carried"):
            also = (Label(found.span, "this one"),)
            help_ = f"choose another name: what is gathered starts from zero; `{s.target.id}` can be added afterwards"
            self.out.report("AMP228", f"`{s.target.id}` has a value already", s.target.span, also=also, help=help_)
            return
        if found is not None and self._hides(s.target.id, s.target.span, found, scope):
            return
        block.gathered[s.target.id] = s
        if block.outer is not None:
            block.gone[s.target.id] = (s.target.span, block.form)
        self.gathered_axis[s.target.id] = axis or ""

    def _metric(self, s: ast.Metric, scope: Scope) -> None:
        self.calls.measure(s.call, METRICS, "metric", scope)
        others = [m for m in metrics(self.model) if s.name and self.metric_names[m.span] == s.name and (not m.name or m.span.line < s.span.line)]
        other = next((m for m in others if not m.name or m.call.function.id != s.call.function.id), None)
        if other is not None:
            also = (Label(other.span, "this one" if other.name else f"`{s.name}`, as it has no name of its own"),)
            help_ = "choose another name; what has one name is counted together"
            self.out.report("AMP236", f"two metrics are called `{s.name}`", s.span, also=also, help=help_)

    def _output(self, s: ast.Output, scope: Scope) -> None:
        self.calls.value(s.value, scope, "target")
        first = self.outputs.setdefault(s.name, s.span)
        if first is not s.span:
            self.out.report(
                "AMP236", f"output `{s.name}` is given twice", s.span, also=(Label(first, "first here"),), help="write `output other_name = value`"
            )

    # -------------------------------------------------------------------------------------------------- blocks

    def _variable(self, name: ast.Name | None, kind: str, axis: str, inner: Scope) -> None:
        """Declare the variable of a block; it may hide nothing."""
        if name is None:
            return
        found = inner.find(name.id)
        if found is not None:
            also = (Label(found.span, f"{NOUN[found.kind]}, declared here"),)
            self.out.report(
                "AMP203", f"the variable `{name.id}` would hide {NOUN[found.kind]}", name.span, also=also, help="choose another name for the variable"
            )
            kind = "broken"
        inner.names[name.id] = Binding(name.id, kind, name.span, axis)  # type: ignore[arg-type]  # one of the three kinds of variables

    def _axis(self, name: ast.Name, scope: Scope) -> bool:
        found = scope.find(name.id)
        if found is not None and found.kind == "axis":
            return True
        axes = list(self.calls.axes)
        help_ = did_you_mean(name.id, axes) or (
            f"the axes are {', '.join(f'`{a}`' for a in axes)}" if axes else "declare it in the `instance:` block: `axis token`"
        )
        if found is not None:
            also = (Label(found.span, "declared here"),)
            f = self.calls.fields.get(name.id)
            if f is not None and f.axis is not None:
                help_ = f"`{name.id}` lies over `{f.axis.id}`: write `in {f.axis.id}` and read `{name.id}[…]`"
            self.out.report("AMP204", f"`{name.id}` is {NOUN[found.kind]}, not an axis", name.span, also=also, help=help_)
        elif self.out.once(name.id):
            self.out.report("AMP204", f"there is no axis `{name.id}`", name.span, help=help_)
        return False

    def _loop(self, s: ast.Loop, scope: Scope) -> None:
        inner = Scope("loop", scope, carry=frozenset(c.id for c in s.carry))
        axis = ""
        if s.axis is not None:
            axis = s.axis.id if self._axis(s.axis, scope) else "?"
        if s.count is not None:
            self._turns(s.count, scope, "the number of turns")
        if s.at_most is not None:
            self._turns(s.at_most, scope, "`at most`")
        self._variable(s.variable, "element" if s.axis is not None else "turn", axis, inner)
        self._carried(s.carry, scope, inner)
        if s.condition is not None:
            self.calls.value(s.condition, inner)
            if not s.carry:
                self.out.report("AMP229", "a loop that carries nothing never changes its condition", s.span, help="write `carry h` after `at most …`")
        self.block(s.body, inner)
        self._close_carry(s.carry, scope, inner, "loop")

    def _turns(self, e: ast.Expr, scope: Scope, what: str) -> None:
        self.calls.constant(e, scope, what)
        if (isinstance(e, ast.Number) and (isinstance(e.value, float) or e.value < 0)) or (
            isinstance(e, ast.Number) and e.value == 0 and what != "the number of turns"
        ):
            self.out.report("AMP229", f"{what} is a positive integer, got `{e.value}`", e.span)

    def _carried(self, carry: tuple[ast.Name, ...], scope: Scope, inner: Scope) -> None:
        seen: dict[str, Span] = {}
        for c in carry:
            if c.id in seen:
                self.out.report("AMP202", f"`{c.id}` is carried twice", c.span, also=(Label(seen[c.id], "first here"),), help="remove one")
            seen[c.id] = c.span
            found = scope.read(c.id, c.span, False)
            if found is None:
                values = [n for n in scope.visible() if (b := scope.find(n)) is not None and b.kind in ("value", "carried")]
                help_ = did_you_mean(c.id, values) or f"give it a value first: `{c.id} = zeros(columns)`"
                self.out.report("AMP218", f"`{c.id}` has no value before the loop", c.span, help=help_)
                inner.unsure = True
            elif found.kind not in ("value", "carried", "broken"):
                also = (Label(found.span, "declared here"),)
                name = next(n for n in ("h", "state", f"{c.id}_now") if n not in scope.visible())
                help_ = f"give it another name first: `{name} = {c.id}`" if found.kind in ("field", "parameter") else "choose another name"
                self.out.report("AMP218", f"`{c.id}` is {NOUN[found.kind]} and can't be carried", c.span, also=also, help=help_)
            inner.names.setdefault(c.id, Binding(c.id, "value", c.span))

    def _close_carry(self, carry: tuple[ast.Name, ...], scope: Scope, inner: Scope, form: Form) -> None:
        for c in carry:
            if c.id not in inner.assigned and not inner.unsure:
                lost = inner.stale.get(c.id) or inner.gone.get(c.id)
                also = () if lost is None else (Label(lost[0], "what it gets here ends with its block"),)
                help_ = f"assign it: `{c.id} = …`, or leave it out of `carry`"
                help_ = f"write `merge {c.id}` after the branch" if lost is not None and lost[1] == "arm" else help_
                self.out.report("AMP219", f"`{c.id}` is carried but never assigned in the {form}", c.span, also=also, help=help_)
            found = scope.find(c.id)
            if found is None or found.kind in ("value", "carried"):
                self.bind(c.id, inner.assigned.get(c.id, c.span), scope, inner.axis if form == "visit" else "")
        self._end(inner, scope, "loop" if form == "loop" else form)

    def _end(self, inner: Scope, scope: Scope, form: Form) -> None:
        """Forget what was assigned in a block and doesn't live on."""
        for name, span in inner.assigned.items():
            if name in inner.carry or name in inner.excused:
                continue
            if scope.find(name) is not None:
                scope.stale[name] = (span, form)
            else:
                scope.gone[name] = (span, form)

    def _each(self, s: ast.Each, scope: Scope) -> None:
        axis = s.axis.id if self._axis(s.axis, scope) else "?"
        inner = Scope("each", scope, axis)
        self._variable(s.variable, "element", axis, inner)
        self.block(s.body, inner)
        self._collect(inner, scope)

    def _collect(self, inner: Scope, scope: Scope) -> None:
        """What is assigned for each element lives on as a value over the axis; what was gathered, over the axis it was gathered to."""
        for name, span in inner.assigned.items():
            if name not in inner.carry:
                self.bind(name, span, scope, inner.axis if inner.axis != "?" else "")
        for name, s in inner.gathered.items():
            self.bind(name, s.target.span, scope, self.gathered_axis.get(name, ""))

    def _visit(self, s: ast.Visit, scope: Scope) -> None:
        axis = s.axis.id if self._axis(s.axis, scope) else "?"
        inner = Scope("visit", scope, axis, carry=frozenset(c.id for c in s.carry))
        self._variable(s.variable, "element", axis, inner)
        for e in s.after:
            self._after(e, axis, s.variable, inner)
        seen: dict[str, Span] = {}
        for c in s.carry:
            if c.id in seen:
                self.out.report("AMP202", f"`{c.id}` is carried twice", c.span, also=(Label(seen[c.id], "first here"),), help="remove one")
            seen[c.id] = c.span
            found = scope.find(c.id)
            if found is not None and not self._hides(c.id, c.span, found, scope):
                also = (Label(found.span, "this one"),)
                help_ = "a visit starts from its first elements: choose another name"
                self.out.report("AMP228", f"`{c.id}` has a value already", c.span, also=also, help=help_)
            inner.names[c.id] = Binding(c.id, "carried", c.span, axis if axis != "?" else "")
        if not s.carry:
            self.out.report(
                "AMP226",
                "a visit that carries nothing has no order to keep",
                s.span,
                help=f"write `each {s.variable.id} in {s.axis.id}:`, or `carry h`",
            )
        self.block(s.body, inner)
        for c in s.carry:
            if c.id not in inner.assigned:
                self.out.report("AMP219", f"`{c.id}` is carried but never assigned in the visit", c.span, help=f"assign it: `{c.id} = …`")
            scope.names[c.id] = Binding(c.id, "value", inner.assigned.get(c.id, c.span), axis if axis != "?" else "")
            scope.assigned[c.id] = inner.assigned.get(c.id, c.span)
        self._collect(inner, scope)

    def _after(self, e: ast.Expr, axis: str, variable: ast.Name, inner: Scope) -> None:
        if not isinstance(e, ast.Index):
            f = self.calls.fields.get(e.id) if isinstance(e, ast.Name) else None
            if isinstance(e, ast.Name) and f is not None:
                self.out.report("AMP226", f"`after` names elements, `{e.id}` is a whole field", e.span, help=f"write `{e.id}[{variable.id}]`")
            else:
                self.out.report(
                    "AMP226", "`after` names elements that fire first", e.span, help=f"for example `after left[{variable.id}], right[{variable.id}]`"
                )
            return
        points = self.calls.element(e, inner, after=True)
        if not isinstance(e.index, ast.Name) or e.index.id != variable.id:
            found = inner.find(e.index.id) if isinstance(e.index, ast.Name) else None
            if found is not None or not isinstance(e.index, ast.Name):
                self.out.report("AMP226", f"`after` is told of `{variable.id}` itself", e.index.span, help=f"write `{e.base.id}[{variable.id}]`")
        elif points is not None and points != axis and axis != "?":
            f = self.calls.fields[e.base.id]
            also = (Label(f.span, "declared here"),)
            message = f"`{e.base.id}` points into `{points}`, the visit is over `{axis}`"
            self.out.report("AMP226", message, e.span, also=also, help=f"an element waits for elements of its own axis: a field of type `{axis}`")

    # ------------------------------------------------------------------------------------------------ branches

    def _branch(self, s: ast.Branch, scope: Scope) -> None:
        field = self._selector(s, scope)
        before = len(self.out.errors)
        inners = []
        keys: dict[object, Span] = {}
        for arm in s.arms:
            for key in arm.key if isinstance(arm.key, tuple) else (arm.key,):
                if key in keys:
                    self.out.report(
                        "AMP223", f"there are two arms for `{key}`", arm.span, also=(Label(keys[key], "the first one"),), help="join them"
                    )
                keys[key] = arm.span
            self._arm_key(arm, field)
            inner = Scope("arm", scope)
            if arm.key != "none":
                inner.narrowed = shape_of(s.selector)
            if s.variable is not None:
                self._variable(s.variable, "member", "", inner)
            self.block(arm.body, inner)
            inners.append((arm, inner))
        if field is not None and field.optional and s.variable is not None:
            also = (Label(field.span, "declared here"),)
            help_ = "branch on it first, with the arms `none:` and `else:`"
            self.out.report("AMP225", f"`{field.name}` may be none, which no `as {s.variable.id}` stands for", s.selector.span, also=also, help=help_)
        if s.merge and s.variable is None and field is not None and len(self.out.errors) == before:
            self._covered(s, field, keys)
        self._merge(s, scope, inners)

    def _covered(self, s: ast.Branch, field: ast.Field, keys: dict[object, Span]) -> None:
        """Report values of a field that no arm stands for, where the arms have to give a result."""
        if "else" in keys:
            return
        also = (Label(field.span, "declared here"),)
        missing = [str(v) for v in (0, 1) if v not in keys] if field.kind.id == "flag" else []
        missing = [{"0": "false", "1": "true"}[m] for m in missing]
        if field.optional and "none" not in keys:
            missing.append("none")
        if field.kind.id == "int" and isinstance(field.below, ast.Number) and isinstance(field.below.value, int) and field.below.value <= 1000:
            missing += [str(v) for v in range(field.below.value) if v not in keys]
        elif field.kind.id not in ("int", "flag"):
            missing.append("else")
        if missing:
            some = ", ".join(f"`{m}`" for m in missing[:3]) + (", …" if len(missing) > 3 else "")
            self.out.report("AMP223", f"no arm for {some}", s.span, also=also, help="write `else:` for all other values")

    def _selector(self, s: ast.Branch, scope: Scope) -> ast.Field | None:
        """Check what a branch chooses by, and return the field if it is one."""
        e = s.selector
        base = e.base if isinstance(e, ast.Index) else e
        found = scope.find(base.id) if isinstance(base, ast.Name) else None
        if found is None or found.kind != "field" or not isinstance(base, ast.Name):
            self.calls.value(e, scope)
            return None
        field = self.calls.fields[base.id]
        also = (Label(field.span, "declared here"),)
        if isinstance(e, ast.Index):
            axis = self.calls.element(e.index, scope)
            if field.axis is None or (axis is not None and field.axis.id != axis):
                self.calls.index(e, scope, "target")
                return None
        else:
            scope.read(base.id, base.span, False)
            if field.axis is not None:
                help_ = f"choose for each element: `each i in {field.axis.id}:`, then `branch {field.name}[i]`"
                self.out.report("AMP224", f"`{field.name}` has a value for each element of `{field.axis.id}`", e.span, also=also, help=help_)
        if not field.optional and field.kind.id not in ("int", "flag"):
            noun = "a float" if field.kind.id == "float" else f"an element of `{field.kind.id}`"
            help_ = f"compare it: `branch {written(e)} < 0.5:`" if field.kind.id == "float" else "declare it with `or none` if it may be missing"
            self.out.report("AMP224", f"`{field.name}` is {noun} and chooses nothing", e.span, also=also, help=help_)
        return field

    def _arm_key(self, arm: ast.Arm, field: ast.Field | None) -> None:
        if arm.key == "none" and (field is None or not field.optional):
            also = (Label(field.span, "declared here without `or none`"),) if field is not None else ()
            what = f"`{field.name}` is never none" if field is not None else "a computed value is never none"
            self.out.report(
                "AMP225",
                what,
                arm.span,
                also=also,
                help="remove this arm" if field is None else "remove this arm, or declare the field with `or none`",
            )
        if not isinstance(arm.key, tuple) or field is None:
            return
        also = (Label(field.span, "declared here"),)
        if field.kind.id == "flag" and any(v > 1 for v in arm.key):
            self.out.report("AMP223", f"`{field.name}` is a flag", arm.span, also=also, help="its arms are `true:` and `false:`")
        elif field.kind.id not in ("int", "flag"):
            self.out.report("AMP223", f"`{field.name}` is not an int", arm.span, also=also, help="its arms are `none:` and `else:`")
        elif field.kind.id == "int" and isinstance(field.below, ast.Number) and any(v >= field.below.value for v in arm.key):
            self.out.report("AMP223", f"`{field.name}` is below {field.below.value}", arm.span, also=also, help="remove this arm, or raise the bound")

    def _merge(self, s: ast.Branch, scope: Scope, inners: list[tuple[ast.Arm, Scope]]) -> None:
        merged: dict[str, Span] = {}
        for m in s.merge:
            if m.id in merged:
                self.out.report("AMP202", f"`{m.id}` is merged twice", m.span, also=(Label(merged[m.id], "first here"),), help="remove one")
                continue
            merged[m.id] = m.span
            found = scope.find(m.id)
            for arm, inner in inners:
                if m.id not in inner.assigned and (found is None or found.kind not in ("value", "carried")):
                    where = "the block" if s.variable is not None else f"the arm `{_key(arm)}`"
                    also = (Label(arm.span, "not assigned in this one"),) if s.variable is None else ()
                    self.out.report("AMP222", f"`{m.id}` is merged but not assigned in {where}", m.span, also=also, help=f"assign `{m.id}` there too")
                    break
            self.bind(m.id, m.span, scope)
        for _, inner in inners:
            for name, span in inner.assigned.items():
                if name in merged:
                    continue
                if scope.find(name) is not None:
                    scope.stale[name] = (span, "arm")
                else:
                    scope.gone[name] = (span, "arm")
            for name, gathered in inner.gathered.items():
                scope.gathered.setdefault(name, gathered)


def _key(arm: ast.Arm) -> str:
    return arm.key if isinstance(arm.key, str) else ", ".join(map(str, arm.key))
