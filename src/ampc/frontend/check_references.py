"""Checks what names stand for in expressions, and what can be indexed by what."""

from __future__ import annotations

from ampc.diagnostics import Label
from ampc.frontend import ast
from ampc.frontend.names import FUNCTIONS
from ampc.frontend.scopes import NOUN, Binding, Reporter, Scope, shape_of, suggestion, written

INDEX_HELP = "an index is the variable of an `each`, `visit` or `loop` over an axis, or an index field: `h[source[e]]`"


class References:
    """Checks the names and indices of one model against a scope."""

    def __init__(self, model: ast.Model, out: Reporter) -> None:
        self.out = out  # of a name that is declared twice, the first counts
        self.axes = {a.name: a for a in reversed(model.axes)}
        self.fields = {f.name: f for f in reversed(model.fields)}
        self.layers = {x.name: x for x in reversed(model.layers)}
        self.functions = {f.name: f for f in reversed(model.functions)}
        self.misused: set[str] = set()

    def _find(self, e: ast.Name, scope: Scope, indexed: bool = False) -> Binding | None:
        """Return what a name stands for; report one that stands for nothing here, or would stand for an older value."""
        found = scope.read(e.id, e.span, indexed)
        if found is not None and found.kind == "broken":
            return None
        if found is None:
            ended = scope.ended(e.id)
            if ended is not None:
                span, form = ended
                keep = {"arm": f"`merge {e.id}` after the branch keeps it", "loop": f"`carry {e.id}` in the loop keeps it"}.get(form)
                also = (Label(span, "this one ended with its block"),)
                self.out.report("AMP201", f"`{e.id}` has no value here", e.span, also=also, help=keep or "assign it before the block")
            else:
                self._undefined(e, scope)
            return None
        lost = scope.lost(e.id)
        if lost is not None:
            span, form = lost
            keep = f"`merge {e.id}` after the branch" if form == "arm" else f"`carry {e.id}` in the loop"
            both = (Label(span, "this newer value ended with its block"), Label(found.span, "this older one would be read"))
            message = f"`{e.id}` was assigned in a block that is over"
            self.out.report("AMP221", message, e.span, also=both, help=f"write {keep} to keep the newer value, or use two names")
        return found

    def _undefined(self, e: ast.Name, scope: Scope) -> None:
        help_ = suggestion(e.id, scope.visible())
        if help_ is None and e.id in FUNCTIONS:
            help_ = f"`{e.id}` is a function: `{FUNCTIONS[e.id].usage}`"
        if e.id == "?" or e.id in self.out.undefined:
            return
        self.out.undefined.add(e.id)
        self.out.report("AMP201", f"`{e.id}` has no value here", e.span, help=help_ or "assign it first, or declare it as a field or a parameter")

    def _name(self, e: ast.Name, scope: Scope, what: str) -> None:
        found = self._find(e, scope)
        if found is None:
            return
        declared = (Label(found.span, "declared here"),)
        match found.kind:
            case "axis":
                help_ = f"work over its elements: `sum({e.id}, x)`, `each i in {e.id}:`"
                self.out.report("AMP215", f"`{e.id}` is an axis, not a value", e.span, also=declared, help=help_)
            case "layer" | "function" if e.id in self.misused:
                pass
            case "layer" | "function":
                self.misused.add(e.id)
                self.out.report("AMP215", f"`{e.id}` is {NOUN[found.kind]}, not a value", e.span, also=declared, help=f"apply it: `{e.id}(x)`")
            case "element":
                axis = f"`{found.axis}`" if found.axis != "?" else "an axis"
                help_ = f"use it as an index: `h[{e.id}]` for a value or field over {axis}; `number({e.id})` is its place, from 0"
                self.out.report("AMP215", f"`{e.id}` is an element of {axis}, not a value", e.span, also=declared, help=help_)
            case "turn":
                help_ = f"`number({e.id})` is 0 in the first turn, then 1, 2, ..."
                self.out.report("AMP215", f"`{e.id}` counts turns and can't be computed with", e.span, also=declared, help=help_)
            case "member":
                help_ = f"it picks a member of a family: `layer[{e.id}](x)`"
                self.out.report("AMP215", f"`{e.id}` is the value of a branch and can't be computed with", e.span, also=declared, help=help_)
            case "field":
                self._field_value(self.fields[e.id], e, scope, what)
            case _:
                pass

    def _field_value(self, f: ast.Field, e: ast.Expr, scope: Scope, what: str) -> None:
        """Report a field that gives no number, and an optional float outside of the arm where it is there."""
        declared = (Label(f.span, "declared here"),)
        if what == "value" and f.kind.id in ("int", "flag"):
            help_ = (
                f"write `number({written(e)})`"
                if f.kind.id == "flag"
                else f"write `number({written(e)})`, `one_hot({written(e)}, columns)` or an `Embedding`"
            )
            self.out.report(
                "AMP242", f"`{f.name}` is {'an int' if f.kind.id == 'int' else 'a flag'}, a number is needed here", e.span, also=declared, help=help_
            )
        elif f.kind.id in self.axes:
            help_ = f"use it as an index: `h[{written(e)}]` for a value or field over `{f.kind.id}`"
            self.out.report("AMP242", f"`{f.name}` is an element of `{f.kind.id}`, a number is needed here", e.span, also=declared, help=help_)
        elif what != "target" and f.kind.id == "float" and f.optional and not any(s.narrowed == shape_of(e) for s in scope.chain()):
            help_ = f"write `branch {written(e)}:` with the arms `none:` and `else:`"
            self.out.report("AMP238", f"`{f.name}` may be none here", e.span, also=declared, help=help_)

    # -------------------------------------------------------------------------------------------------- indices

    def index(self, e: ast.Index, scope: Scope, what: str = "value") -> None:
        """Check `base[index]`."""
        if e.base.id == "?":
            return
        found = self._find(e.base, scope, indexed=True)
        whole = found is not None and found.kind == "field" and self.fields[e.base.id].axis is None
        if isinstance(e.index, ast.Number) and not whole and found is not None and found.kind in ("field", "value", "carried"):
            self._numbered(e, e.index, found)
            return
        axis = self.element(e.index, scope) if not whole and (found is None or found.kind in ("field", "value", "carried")) else None
        if found is None:
            return
        declared = (Label(found.span, "declared here"),)
        if found.kind == "field":
            f = self.fields[e.base.id]
            if f.axis is None:
                help_ = f"write `{f.name}`; columns are taken by a slice: `{f.name}[0:1]`"
                self.out.report("AMP216", f"`{f.name}` is one value for the whole instance and has no elements", e.span, also=declared, help=help_)
            elif axis is not None and axis != f.axis.id:
                self._wrong_axis(f"`{f.name}` lies over `{f.axis.id}`", axis, f.axis.id, e, declared)
            else:
                self._field_value(f, e, scope, what)
        elif found.kind in ("value", "carried"):
            if axis is not None and found.axis and axis != found.axis:
                self._wrong_axis(f"`{found.name}` lies over `{found.axis}`", axis, found.axis, e, declared)
        elif found.kind == "layer":
            help_ = f"apply it: `{e.base.id}[…](x)`" if self.layers[e.base.id].count is not None else f"apply it: `{e.base.id}(x)`"
            self.out.report("AMP216", f"`{e.base.id}` is a layer and has no elements", e.span, also=declared, help=help_)
        else:
            self.out.report("AMP216", f"`{e.base.id}` is {NOUN[found.kind]} and can't be indexed", e.span, also=declared, help=INDEX_HELP)

    def _numbered(self, e: ast.Index, number: ast.Number, base: Binding) -> None:
        """Report `h[0]`: what is meant is an element that the data names, or a column."""
        field, name, n = self.fields.get(base.name), e.base.id, int(number.value)
        axes = [a for a, decl in self.axes.items() if decl.parent is None]
        over = field.axis.id if base.kind == "field" and field is not None and field.axis is not None else base.axis
        over = over or (axes[0] if len(axes) == 1 else "")
        named = next((f.name for f in self.fields.values() if f.axis is None and f.kind.id in ([over] if over else self.axes)), None)
        columns = f"a slice takes columns: `{name}[{n}:{'' if n == -1 else n + 1}]`"
        if named is not None:
            help_ = f"write `{name}[{named}]` for the element that the instance names; {columns}"
        elif axes:
            free = next(x for x in ("root", "first", "chosen", "picked") if x not in self.fields)
            where = f"`{free}: {over or axes[-1]}` in `instance:`, then `{name}[{free}]`"
            help_ = f"a fixed element is named by an index field of the instance: {where}; {columns}"
        else:
            help_ = columns
        self.out.report("AMP216", "an index can't be a number", e.index.span, help=help_)

    def _wrong_axis(self, lies: str, axis: str, wanted: str, e: ast.Index, declared: tuple[Label, ...]) -> None:
        through = [f.name for f in self.fields.values() if f.kind.id == wanted and f.axis is not None and f.axis.id == axis]
        help_ = f"`{through[0]}[{written(e.index)}]` is an element of `{wanted}`" if through else f"index it by an element of `{wanted}`"
        self.out.report("AMP217", f"{lies}, the index is an element of `{axis}`", e.span, also=declared, help=help_)

    def element(self, e: ast.Expr, scope: Scope, after: bool = False) -> str | None:
        """Check what stands between brackets and return the axis it is an element of; None if that is unknown.

        `after`: in the `after` of a visit an index field of a nested axis may be indexed by its parent's element.
        """
        match e:
            case ast.Name():
                found = self._find(e, scope)
                if found is None:
                    return None
                if found.kind == "element":
                    return found.axis if found.axis != "?" else None
                declared = (Label(found.span, "declared here"),)
                if found.kind == "field" and self.fields[e.id].kind.id in self.axes:
                    return self.fields[e.id].kind.id
                if found.kind == "turn":
                    text = f"`{e.id}` counts turns, it is no element of an axis"
                    self.out.report("AMP216", text, e.span, also=declared, help="loop over the axis: `loop t in token carry h:`")
                elif found.kind == "field":
                    f = self.fields[e.id]
                    help_ = f"a field of elements is declared with the axis as its type: `{e.id}: node[{f.axis.id if f.axis else 'axis'}]`"
                    self.out.report("AMP216", f"`{e.id}` is a field of type `{f.kind.id}`, not of elements", e.span, also=declared, help=help_)
                elif found.kind != "value":
                    self.out.report("AMP216", f"`{e.id}` is {NOUN[found.kind]}, not an element", e.span, also=declared, help=INDEX_HELP)
                else:
                    self.out.report(
                        "AMP216",
                        f"`{e.id}` is a computed value; only elements and index fields can be an index",
                        e.span,
                        also=declared,
                        help=INDEX_HELP,
                    )
                return None
            case ast.Index():
                return self._through(e, scope, after)
            case ast.Number():
                self.out.report("AMP216", "an index can't be a number", e.span, help=f"a slice takes columns: `x[{e.value}:{int(e.value) + 1}]`")
            case _:
                self.out.report("AMP216", "an index can't be computed", e.span, help=INDEX_HELP)
        return None

    def _through(self, e: ast.Index, scope: Scope, after: bool) -> str | None:
        axis = self.element(e.index, scope)
        f = self.fields.get(e.base.id)
        found = self._find(e.base, scope, indexed=True)
        if found is None:
            return None
        declared = (Label(found.span, "declared here"),)
        if f is None or found.kind != "field" or f.kind.id not in self.axes:
            text = f"`{e.base.id}` is {NOUN[found.kind]}" if f is None or found.kind != "field" else f"`{e.base.id}` is a field of type `{f.kind.id}`"
            self.out.report("AMP216", f"{text}, not of elements", e.span, also=declared, help=INDEX_HELP)
            return None
        over = f.axis.id if f.axis is not None else ""
        parent = self.axes[over].parent if over in self.axes else None
        nested = after and parent is not None and parent.id == axis
        if axis is not None and over != axis and not nested:
            self._wrong_axis(f"`{f.name}` lies over `{over}`" if over else f"`{f.name}` belongs to the instance", axis, over, e, declared)
        return f.kind.id


__all__ = ["References"]
