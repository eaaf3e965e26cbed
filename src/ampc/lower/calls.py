"""Calls: functions of the language, layers, and the model's own functions, which are expanded in place."""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.frontend.names import FUNCTIONS, LAYERS, LOSSES, METRICS, Callable, shown
from ampc.ir.nodes import Attr, Coord, FieldRef
from ampc.ir.scope import POSITION_FIELD, TURN_FIELD
from ampc.lower import expressions, reductions, statements
from ampc.lower.context import Frame, Lowering, Stop
from ampc.lower.emit import apply_layer, constant_integer, expand, fill, judge, npt
from ampc.lower.scope import ChildScope, RegionScope, localized
from ampc.lower.values import Binding, Collected, Const, Element, FieldValue, Result, Turn, Value, shape, unknown

DEEPEST = 50
REDUCTIONS = ("sum", "mean", "max")
ATTRS = {"pad": {"columns": "cols"}, "one_hot": {"columns": "cols"}}


def call(low: Lowering, frame: Frame, e: ast.Call) -> tuple[Result, ...]:
    """Return the results of a call. Raises Stop."""
    name = e.function.id
    if name in low.layers:
        return (_layer(low, frame, e),)
    if e.member is not None:
        raise low.fail("AMP270", f"`{name}` is no family of layers", e.function.span, help="`message = Linear(8, 8) for k in kinds` declares one")
    if name in low.functions:
        return _expand(low, frame, e, low.functions[name])
    if name in FUNCTIONS:
        return (_function(low, frame, e, FUNCTIONS[name]),)
    known = {*FUNCTIONS, *low.functions, *low.layers}
    if name in LAYERS:
        raise low.fail(
            "AMP270",
            f"`{name}` declares a layer and can't be called here",
            e.span,
            help=f"write `{name.lower()} = {LAYERS[name].usage}` in the model and apply `{name.lower()}(x)`",
        )
    raise low.fail("AMP257", f"no function or layer `{name}`", e.function.span, help=low.suggest(name, known))


# --------------------------------------------------------------------------------------------------------- layers


def _layer(low: Lowering, frame: Frame, e: ast.Call) -> Value:
    info = low.layers[e.function.id]
    declared = Label(info.decl.span, f"`{info.decl.name}` is declared here")
    if len(e.args) != 1 or e.keywords:
        raise low.fail(
            "AMP270",
            f"`{info.decl.name}` takes one value, got {len(e.args) + len(e.keywords)}",
            e.span,
            also=[declared],
            help="join values: `step([x, h])`",
        )
    layer = info.decl.name
    if info.members is not None:
        if e.member is None:
            raise low.fail(
                "AMP271",
                f"`{layer}` is a family of {info.members} layers, which one is not said",
                e.span,
                also=[declared],
                help=f"write `{layer}[k](...)` inside `branch kind as k:`",
            )
        member = _member(low, frame, e, layer, info.members, declared)
        layer = f"{layer}.{member}"
    elif e.member is not None:
        raise low.fail(
            "AMP271", f"`{layer}` is one layer, not a family", e.span, also=[declared], help=f"write `{layer}(...)`, or declare it `for k in kinds`"
        )
    argument = expressions.evaluate(low, frame, e.args[0])
    if isinstance(argument, Element):
        raise low.fail(
            "AMP264", f"this is an element of `{argument.axis}`, not a value", e.args[0].span, help=f"index a field with it: `{layer}(symbol[...])`"
        )
    if isinstance(argument, Const):
        if info.op == "lookup":
            argument = _place_of(low, frame, argument, info.inputs, f"`{info.decl.name}` has {info.inputs} rows", e.args[0].span)
        else:
            argument = expressions.message(low, frame, argument, e.args[0].span)
    return apply_layer(low, frame.scope, info, layer, argument, e.span, e.args[0].span)


def _place_of(low: Lowering, frame: Frame, constant: Const, count: int, what: str, span: Span) -> Value:
    """Return a constant as an integer that picks one of so many rows or columns. Raises Stop."""
    if not isinstance(constant.value, int) or not 0 <= constant.value < count:
        raise low.fail("AMP262", f"{what}, 0 to {count - 1}, got `{shown(constant.value)}`", span)
    return constant_integer(low, frame.scope, int(constant.value), span)


def _member(low: Lowering, frame: Frame, e: ast.Call, layer: str, members: int, declared: Label) -> int:
    assert e.member is not None
    found = expressions.evaluate(low, frame, e.member)
    if not isinstance(found, Const):
        raise low.fail(
            "AMP271",
            f"the member of `{layer}` has to be known where it is applied",
            e.member.span,
            also=[declared],
            help=f"write `branch ... as k:` and `{layer}[k](...)` in its block",
        )
    k = found.value
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < members:
        raise low.fail("AMP271", f"`{layer}` has the members 0 to {members - 1}, got `{k}`", e.member.span, also=[declared])
    return k


# ------------------------------------------------------------------------------------------------ functions in place


def _expand(low: Lowering, frame: Frame, e: ast.Call, function: ast.Function) -> tuple[Result, ...]:
    names = [name for name, _ in low.calls]
    if function.name in names:
        circle = " -> ".join([*names[names.index(function.name) :], function.name])
        raise low.fail(
            "AMP272",
            f"`{function.name}` calls itself: {circle}",
            e.span,
            "",
            also=[Label(function.span, "functions are expanded in place")],
            help="use a `loop`, or a `visit` over an axis",
        )
    if len(names) >= DEEPEST:
        raise low.fail("AMP272", f"calls are nested more than {DEEPEST} deep", e.span)
    bound = _arguments(low, frame, e, function)
    low.calls.append((function.name, e.span))
    try:
        inner = Frame(frame.scope, None, frame.implicit, bound)
        statements.block(low, inner, function.body)
        return tuple(_result(low, inner, r) for r in function.result)
    finally:
        low.calls.pop()


def _result(low: Lowering, inner: Frame, e: ast.Expr) -> Result:
    try:
        return expressions.evaluate(low, inner, e)
    except Stop:
        return low.nothing(inner.scope, e.span)


def _arguments(low: Lowering, frame: Frame, e: ast.Call, function: ast.Function) -> dict[str, Binding]:
    """Return the function's parameters bound to what the call gives."""
    parameters = {p.name: p for p in function.parameters}
    given: dict[str, ast.Expr] = dict(zip(parameters, e.args, strict=False))
    declared = [Label(function.span, f"`{function.name}` is defined here")]
    usage = f"{function.name}({', '.join(parameters)})"
    if len(e.args) > len(parameters):
        raise low.fail(
            "AMP270", f"`{function.name}` takes {len(parameters)} values, got {len(e.args)}", e.span, also=declared, help=f"it is written `{usage}`"
        )
    for k in e.keywords:
        if k.name not in parameters or k.name in given:
            wrong = "is given twice" if k.name in given else "is no parameter of it"
            raise low.fail(
                "AMP270",
                f"`{function.name}`: `{k.name}` {wrong}",
                k.span,
                also=declared,
                help=low.suggest(k.name, parameters) or f"it is written `{usage}`",
            )
        given[k.name] = k.value
    bound: dict[str, Binding] = {}
    for name, p in parameters.items():
        source = given.get(name, p.default)
        if source is None:
            raise low.fail("AMP270", f"`{function.name}` needs `{name}`", e.span, also=declared, help=f"it is written `{usage}`")
        try:
            bound[name] = expressions.evaluate(low, frame if name in given else Frame(frame.scope), source)
        except Stop:
            bound[name] = low.nothing(frame.scope, source.span)
    return bound


# ------------------------------------------------------------------------------------------ functions of the language


def _function(low: Lowering, frame: Frame, e: ast.Call, entry: Callable) -> Result:
    name, args = entry.name, list(e.args)
    axis = ""
    if entry.over_axis and args and isinstance(args[0], ast.Name) and args[0].id in low.axes and len(args) == len(entry.operands) + 1:
        axis = args.pop(0).id  # type: ignore[union-attr]  # just tested
    options = _options(low, frame, e, entry)
    if len(args) != len(entry.operands):
        n = len(entry.operands)
        raise low.fail("AMP270", f"`{name}` takes {n} operand{'s' * (n > 1)}, got {len(args)}", e.span, help=f"it is written `{entry.usage}`")
    if name in REDUCTIONS:
        return (
            reductions.over_axis(low, frame, e, name, axis, args[0])
            if axis
            else npt(low, frame.scope, f"{name}_columns", [expressions.value(low, frame, args[0])], e.span)
        )
    if name == "number" and isinstance(args[0], ast.Name) and isinstance(found := frame.find(args[0].id), Element | Turn):
        return _place(low, frame, found, e.span)
    if name == "softmax" and axis:
        return reductions.softmax_over(low, frame, e, axis, args[0])
    if name in ("zeros", "ones"):
        row = fill(low, frame.scope, expressions.size(low, frame, args[0], f"the columns of `{name}`"), float(name == "ones"), e.span)
        return _whole(low, frame, row, axis, e.span) if axis else row
    inputs: list[Value] = []
    fields = []
    for operand, arg in zip(entry.operands, args, strict=True):
        what = f"`{operand.name}` of `{name}`"
        if operand.what == "size":
            options[operand.name] = expressions.size(low, frame, arg, what)
        elif operand.what == "number":
            options[operand.name] = float(expressions.constant(low, frame, arg, what).value)
        elif operand.what == "field":
            found = _integers(low, frame, arg, what, args[1] if name == "one_hot" else None)
            fields += [found.ref] if isinstance(found, FieldValue) else []
            inputs += [found] if isinstance(found, Value) else []
        else:
            inputs.append(expressions.value(low, frame, arg))
    attrs: dict[str, Attr] = {ATTRS.get(name, {}).get(key, key): v for key, v in options.items()}
    return npt(low, frame.scope, entry.op, inputs, e.span, fields=tuple(fields), attrs=attrs)


def _place(low: Lowering, frame: Frame, of: Element | Turn, span: Span) -> Value:
    """Return the place of a block's element on its axis, or the turn of a loop, from 0, as a number."""
    scope = frame.scope
    if isinstance(of, Turn):
        ref = FieldRef(TURN_FIELD, Coord(of.scope.region))
        while isinstance(scope, ChildScope) and scope.outer is not None:  # whose region lies beside that of a loop around it
            scope = scope.outer
    else:
        ref = FieldRef(of.axis + POSITION_FIELD, localized(scope, of.index))
    return frame.scope.bring(npt(low, scope, "number", [], span, fields=(ref,)))


def _options(low: Lowering, frame: Frame, e: ast.Call, entry: Callable) -> dict[str, Attr]:
    """Return the values of `key = value` in a call. Raises Stop."""
    known = {o.name: o for o in entry.options}
    out: dict[str, Attr] = {}
    for k in e.keywords:
        if k.name not in known:
            raise low.fail(
                "AMP270", f"`{entry.name}` has no option `{k.name}`", k.span, help=low.suggest(k.name, known) or f"it is written `{entry.usage}`"
            )
        option, what = known[k.name], f"`{k.name}` of `{entry.name}`"
        if option.what == "size":
            out[k.name] = expressions.size(low, frame, k.value, what)
            continue
        n = expressions.constant(low, frame, k.value, what).value
        below = (option.low is not None and n < option.low) or (option.above is not None and n <= option.above)
        if below or (option.high is not None and n > option.high):
            bound = (
                f"at least {option.low:g}"
                if option.low is not None
                else f"above {option.above:g}"
                if option.above is not None
                else f"at most {option.high:g}"
            )
            raise low.fail("AMP254", f"{what} has to be {bound}, got `{n}`", k.value.span)
        out[k.name] = float(n)
    return out


def _integers(low: Lowering, frame: Frame, e: ast.Expr, what: str, columns: ast.Expr | None = None) -> FieldValue | Value:
    """Return an int, flag or index field, an integer message, or a constant that picks one of so many columns. Raises Stop."""
    found = expressions.evaluate(low, frame, e)
    if isinstance(found, Const) and columns is not None:
        count = expressions.size(low, frame, columns, "the columns of `one_hot`")
        return _place_of(low, frame, found, count, f"`one_hot` has {count} columns here", e.span)
    if isinstance(found, FieldValue) and found.decl.kind != "float":
        return found
    if isinstance(found, Value) and (found.type.integer or unknown(found.type)):
        return frame.scope.bring(found)
    got = f"float field `{found.decl.name}`" if isinstance(found, FieldValue) else shape(found.type) if isinstance(found, Value) else "a constant"
    raise low.fail("AMP264", f"{what} is an int or flag field, or an integer, got {got}", e.span)


def _whole(low: Lowering, frame: Frame, row: Value, axis: str, span: Span) -> Value:
    """Return a single row repeated over an axis (twice for a nested one, whose rows hang on its parent's)."""
    parent = low.axes[axis].parent
    opened = any(isinstance(s, RegionScope) and low.net.regions[s.region].axis == parent for s in frame.scope.chain())
    if parent and not opened:
        row = _whole(low, frame, row, parent, span)
    return expand(low, frame.scope, row, axis, span)


# -------------------------------------------------------------------------------------------------- losses, metrics


def measure(low: Lowering, frame: Frame, e: ast.Call, kind: str, name: str = "") -> Value | None:
    """Add a loss, or a metric called `name`; return the prediction if it is a name, for the outputs of the model. Raises Stop."""
    table = LOSSES if kind == "loss" else METRICS
    entry = table.get(e.function.id)
    if entry is None:
        other = "metric" if e.function.id in METRICS else "loss" if e.function.id in LOSSES else ""
        help = (
            f"it is a {other}: write `{other} {e.function.id}(...)`"
            if other
            else low.suggest(e.function.id, table) or f"there are {', '.join(table)}"
        )
        raise low.fail("AMP257", f"no {kind} `{e.function.id}`", e.function.span, help=help)
    options = _options(low, frame, e, entry)
    if len(e.args) != len(entry.operands):
        wanted = "a prediction and a target" if len(entry.operands) == 2 else "one value"
        raise low.fail(
            "AMP270",
            f"`{entry.name}` takes {wanted}, got {len(e.args)} value{'s' * (len(e.args) != 1)}",
            e.span,
            help=f"it is written `{entry.usage}`",
        )
    weight = None
    if kind == "loss":
        factor = options.pop("weight", 1.0)
        assert isinstance(factor, float)
        weight = factor
    first = _result(low, frame, e.args[0])
    prediction = expressions.message(low, frame, first, e.args[0].span)
    target = _target(low, frame, e.args[1], prediction, entry) if len(e.args) == 2 else None
    judge(low, frame, entry.op, prediction, target, e.span, options, weight, name or entry.op)
    if kind != "loss" or not isinstance(e.args[0], ast.Name) or not isinstance(first, Value):
        return None
    defined = frame.find(e.args[0].id)
    if isinstance(defined, Collected):
        defined = defined.value
    return dataclasses.replace(defined if isinstance(defined, Value) else first, name=e.args[0].id)


def _target(low: Lowering, frame: Frame, e: ast.Expr, prediction: Value, entry: Callable) -> Value | FieldValue:
    """Return what a prediction is judged against: a field, a value, or a constant in each of its rows and columns. Raises Stop."""
    target = _result(low, frame, e)
    if isinstance(target, FieldValue) and target.decl.kind == "index":
        target = _index_target(low, target, e.span, entry.name)
    if isinstance(target, Const) and entry.operands[1].what == "value" and not unknown(prediction.type):
        row = fill(low, frame.scope, prediction.type.cols, float(target.value), e.span)
        return _whole(low, frame, row, prediction.type.rows, e.span) if prediction.type.rows else row
    return target if isinstance(target, FieldValue) else expressions.message(low, frame, target, e.span)


def _index_target(low: Lowering, target: FieldValue, span: Span, name: str) -> FieldValue:
    raise low.fail(
        "AMP263",
        f"`{name}` can't be judged against index field `{target.decl.name}`",
        span,
        f"holds positions on `{target.decl.of}`",
        help="declare the label as an int below the number of classes",
    )
