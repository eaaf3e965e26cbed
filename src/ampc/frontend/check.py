"""Names, axes, index types and structure of a model: all mistakes that can be told without shapes.

`check` raises one AmpError with everything it found; it changes nothing. Sizes and shapes are checked by `ampc.lower`.
"""

from __future__ import annotations

from ampc.diagnostics import AmpError, Diagnostic, Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.check_calls import Calls
from ampc.frontend.check_declarations import Declarations
from ampc.frontend.check_statements import Statements
from ampc.frontend.scopes import Binding, Reporter, Scope
from ampc.frontend.tokens import MAX_ERRORS

MOST_CALLS = 10_000
DEEPEST_CALLS = 50


def check(model: ast.Model) -> None:
    """Check names, axes, index types and structure. Raises AmpError with every mistake found (at most 20), in order of place."""
    out = Reporter()
    top = Declarations(model, out).check()
    expansion(model, out)
    calls = Calls(model, out)
    for s in model.body:
        if isinstance(s, ast.Assign) and len(s.values) == 1 and isinstance(s.values[0], ast.Call) and calls.is_unknown(s.values[0].function.id):
            for t in s.targets:  # most likely a layer of a misspelt kind: its uses in functions aren't reported
                top.names.setdefault(t.id, Binding(t.id, "broken", t.span))
    statements = Statements(model, out, calls)
    for function in model.functions:
        inner = Scope("def", top)
        for p in function.parameters:
            if p.name in inner.names:
                out.report("AMP202", f"`{p.name}` is declared twice", p.span, also=(Label(inner.names[p.name].span, "first here"),))
            inner.names[p.name] = Binding(p.name, "value", p.span)
        statements.block(function.body, inner)
        for e in function.result:
            calls.value(e, inner)
    statements.block(model.body, top)
    called = {n.id for e in expressions(model) for n in _called(e)}
    bodies = [model.body, *(f.body for f in model.functions if f.name in called)]
    if not any(isinstance(s, ast.Loss | ast.Output) for body in bodies for s in ast.walk(body)):
        help_ = "end it with `loss squared(y, target)`, or with `output y`"
        out.report("AMP235", f"model `{model.name}` has neither a loss nor an output", model.span, help=help_)
    if out.errors:
        raise AmpError(in_order(out.errors)[:MAX_ERRORS])


def in_order(errors: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(errors, key=lambda d: (d.primary.span.line, d.primary.span.column) if d.primary else (0, 0))


def warnings(model: ast.Model) -> list[Diagnostic]:
    """Return what is allowed but probably not meant: layers and fields that nothing reads."""
    used = {name for e in expressions(model) for name in _mentioned(e)}
    used |= {a.parent.id for a in model.axes if a.parent is not None}
    out = []
    for layer in model.layers:
        if layer.name not in used:
            out.append(Diagnostic("AMP290", f"layer `{layer.name}` is never used", Label(layer.span), help="remove it", severity="warning"))
    for field in model.fields:
        if field.name not in used:
            help_ = "remove it from the `instance:` block; columns of the data that no field names are left alone"
            out.append(Diagnostic("AMP291", f"field `{field.name}` is never read", Label(field.span), help=help_, severity="warning"))
    return out


def _direct(s: ast.Stmt) -> list[ast.Expr]:
    """Return the expressions that stand in a statement itself."""
    match s:
        case ast.Assign():
            return list(s.values)
        case ast.Accumulate():
            return [s.index, s.value]
        case ast.Loop():
            return [e for e in (s.count, s.condition, s.at_most) if e is not None]
        case ast.Visit():
            return list(s.after)
        case ast.Branch():
            return [s.selector]
        case ast.Loss() | ast.Metric():
            return [s.call]
        case ast.Output():
            return [s.value]
        case _:
            return []


def expressions(model: ast.Model) -> list[ast.Expr]:
    """Return the outermost expressions of all statements of the model and its functions."""
    bodies = [model.body, *(f.body for f in model.functions)]
    return [e for body in bodies for s in ast.walk(body) for e in _direct(s)] + [e for f in model.functions for e in f.result]


def _children(e: ast.Expr) -> list[ast.Expr]:
    match e:
        case ast.Unary():
            return [e.operand]
        case ast.Binary():
            return [e.left, e.right]
        case ast.Call():
            return [e.function, *([e.member] if e.member is not None else []), *e.args, *(k.value for k in e.keywords)]
        case ast.Index():
            return [e.base, e.index]
        case ast.Slice():
            return [e.base, *(x for x in (e.start, e.stop) if x is not None)]
        case ast.Join():
            return list(e.parts)
        case _:
            return []


def _mentioned(e: ast.Expr) -> set[str]:
    out = {e.id} if isinstance(e, ast.Name) else set()
    for child in _children(e):
        out |= _mentioned(child)
    return out


# ---------------------------------------------------------------------------------------- expansion of functions


def _called(e: ast.Expr) -> list[ast.Name]:
    out = [e.function] if isinstance(e, ast.Call) else []
    for child in _children(e):
        out += _called(child)
    return out


def expansion(model: ast.Model, out: Reporter) -> None:
    """Report functions that call themselves, and calls that would expand without bound: functions are expanded in place."""
    functions = {f.name: f for f in model.functions}
    calls = {
        f.name: [n for e in (*(e for s in ast.walk(f.body) for e in _direct(s)), *f.result) for n in _called(e)]
        for f in model.functions
    }
    size: dict[str, int] = {}
    depth: dict[str, int] = {}

    def visit(name: str, path: list[tuple[str, Span]]) -> None:
        if name in size:
            return
        names = [n for n, _ in path]
        if len(path) > 4 * DEEPEST_CALLS:
            size[name], depth[name] = MOST_CALLS + 1, DEEPEST_CALLS + 1
            return
        total, deepest = 1, 1
        for callee in calls[name]:
            if callee.id not in functions:
                continue
            if callee.id in [*names, name]:
                round_ = " → ".join([*(names[names.index(callee.id) :] if callee.id in names else []), name, callee.id])
                text = f"`{callee.id}` calls itself" if callee.id == name else f"these functions call each other without end: {round_}"
                out.report("AMP230", text, callee.span, help="functions are expanded in place; what repeats is a `loop` or a `visit`")
                continue
            visit(callee.id, [*path, (name, callee.span)])
            total, deepest = min(total + size[callee.id], MOST_CALLS + 1), max(deepest, depth[callee.id] + 1)
        size[name], depth[name] = total, deepest

    for f in model.functions:
        visit(f.name, [])
        if depth[f.name] > DEEPEST_CALLS:
            out.report("AMP230", f"calls are nested more than {DEEPEST_CALLS} deep in `{f.name}`", f.span, help="functions are expanded in place")
    used = [n for s in ast.walk(model.body) for e in _direct(s) for n in _called(e) if n.id in functions]
    if sum(size[n.id] for n in used) > MOST_CALLS:
        out.report(
            "AMP230",
            f"the functions expand to more than {MOST_CALLS} calls",
            used[0].span,
            help="functions are expanded in place; call fewer in each other",
        )


__all__ = ["check", "did_you_mean", "warnings"]
