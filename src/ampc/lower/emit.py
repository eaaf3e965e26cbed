"""Adds nodes for operations: brings the operands to where the code runs, works out the type, reports operands that don't fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ampc.diagnostics import Label, Span
from ampc.ir.nodes import NPT, PPT, Attr, Concat, FieldRef, Loss, Metric, Type
from ampc.ir.op import ShapeError
from ampc.ir.ops import OPS
from ampc.lower.context import NOTHING, Frame, LayerInfo, Lowering, at
from ampc.lower.scope import Scope
from ampc.lower.values import UNKNOWN, FieldValue, Value, shape, unknown

SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def arrive(scope: Scope, inputs: Sequence[Value]) -> list[Value]:
    """Return the operands in `scope`; its unit if there are none."""
    return [scope.bring(v) for v in inputs] or [scope.unit()]


def npt(
    low: Lowering,
    scope: Scope,
    op: str,
    inputs: Sequence[Value],
    span: Span,
    *,
    fields: tuple[FieldRef, ...] = (),
    attrs: Mapping[str, Attr] | None = None,
    declared: tuple[Type, ...] = (),
    name: str = "",
) -> Value:
    """Add an NPT and return its result; operands that don't fit are reported and give a value of unknown shape."""
    full = OPS[op].defaults | dict(attrs or {})
    messages = arrive(scope, inputs)
    types = [v.type for v in messages]
    if any(unknown(t) for t in types):
        kind = guess(op, types, full, declared)
    else:
        try:
            (kind,) = low.infer(op, types, fields, full, scope.region, declared=declared)
        except ShapeError as problem:
            misfit(low, op, str(problem), inputs, span)
            return low.nothing(scope, span, name)
    node = low.net.add(
        NPT,
        region=scope.region,
        inputs=tuple(v.ref for v in messages),
        outputs=(kind,),
        op=op,
        fields=fields,
        attrs=full,
        origin=low.origin(span),
        name=name,
    )
    return Value(scope, (node, 0), kind, span, name)


def guess(op: str, types: Sequence[Type], attrs: Mapping[str, Attr], declared: tuple[Type, ...] = ()) -> Type:
    """Return the type of a result as far as it can be told while an operand's shape is unknown."""
    rows = next((t.rows for t in types if t.rows), "")
    group = OPS[op].group
    if group == "binary":
        return next((t for t in types if not unknown(t)), NOTHING)
    if op in ("pad", "fill", "one_hot"):
        return Type(rows, _int(attrs["cols"]))
    if op == "columns":
        return Type(rows, _int(attrs["stop"]) - _int(attrs["start"]))
    if op in ("sum_columns", "mean_columns", "max_columns", "dot", "number"):
        return Type(rows, 1)
    if group == "integer" and op != "gate":
        return Type(rows, 1, True)
    if op == "expand_rows":
        return Type(declared[0].rows, UNKNOWN)
    return Type("" if op == "reduce_rows" else rows, UNKNOWN)


def _int(value: Attr) -> int:
    assert isinstance(value, int)
    return value


def misfit(low: Lowering, op: str, problem: str, inputs: Sequence[Value], span: Span) -> None:
    """Report operands that don't fit an operation."""
    message, help = problem, None
    if OPS[op].group == "binary" and len(inputs) == 2:
        a, b = (v.type for v in inputs)
        sign = SIGNS.get(op, op)
        message = f"`{sign}` needs operands of equal shape, or one of a single column or row, got {shape(a)} and {shape(b)}"
        if a.cols != b.cols:
            help = f"`pad` widens to more columns, a slice `x[0:{min(a.cols, b.cols)}]` takes fewer"
        elif a.rows and b.rows:
            help = f"index one of them inside `each`, or reduce it with `sum({b.rows}, ...)`"
    low.report("AMP260", message, span, "", also=[at(v, shape(v.type)) for v in inputs], help=help)


def fill(low: Lowering, scope: Scope, cols: int, value: float, span: Span, name: str = "") -> Value:
    """Return a row of `cols` equal numbers."""
    return npt(low, scope, "fill", [], span, attrs={"cols": cols, "value": float(value)}, name=name)


def constant_integer(low: Lowering, scope: Scope, value: int, span: Span) -> Value:
    """Return a constant as an integer that picks a row or a column."""
    return npt(low, scope, "constant", [], span, attrs={"value": value})


def expand(low: Lowering, scope: Scope, value: Value, axis: str, span: Span) -> Value:
    """Return `value` (a single row) repeated over `axis`."""
    return npt(low, scope, "expand_rows", [value], span, declared=(Type(axis, value.type.cols),))


def read(low: Lowering, scope: Scope, field: FieldValue, span: Span) -> Value:
    """Return a field as a message: a float field as it is, an int or flag as a number."""
    if field.decl.kind == "index":
        raise low.fail(
            "AMP264",
            f"index field `{field.decl.name}` is no number",
            span,
            f"it holds positions on `{field.decl.of}`",
            help=f"use it as an index: `h[{field.decl.name}[...]]`",
        )
    op = "field" if field.decl.kind == "float" else "number"
    return npt(low, scope, op, [], span, fields=(field.ref,), name=field.decl.name)


def concat(low: Lowering, scope: Scope, parts: Sequence[Value], span: Span) -> Value:
    """Return the columns of the parts side by side; single rows are repeated beside whole axes."""
    if len(parts) == 1:
        return dataclasses.replace(scope.bring(parts[0]), span=span)
    axes = {v.type.rows: v for v in parts if v.type.rows}
    if len(axes) > 1:
        low.report(
            "AMP261",
            f"`[...]` joins values over one axis, got {' and '.join(f'`{a}`' for a in axes)}",
            span,
            "",
            also=[at(v, shape(v.type)) for v in axes.values()],
            help="index them inside `each`",
        )
        return low.nothing(scope, span)
    if any(v.type.integer for v in parts):
        number = next(v for v in parts if v.type.integer)
        low.report(
            "AMP261",
            "`[...]` joins floats, one part is an integer",
            span,
            "",
            also=[at(number, "an integer")],
            help="`number(k)` makes a float of it",
        )
        return low.nothing(scope, span)
    rows = next(iter(axes), "")
    messages = [v if v.type.rows == rows or unknown(v.type) else expand(low, scope, v, rows, span) for v in arrive(scope, parts)]
    cols = UNKNOWN if any(unknown(v.type) for v in messages) else sum(v.type.cols for v in messages)
    node = low.net.add(Concat, region=scope.region, inputs=tuple(v.ref for v in messages), outputs=(Type(rows, cols),), origin=low.origin(span))
    return Value(scope, (node, 0), Type(rows, cols), span)


def apply_layer(low: Lowering, scope: Scope, info: LayerInfo, layer: str, argument: Value | FieldValue, span: Span, argument_span: Span) -> Value:
    """Return what a layer makes of its argument: a value, or for an Embedding an int or index field or an integer."""
    declared = Label(info.decl.span, f"`{info.decl.name}` is declared here, for {info.inputs} {'rows' if info.op == 'lookup' else 'columns'}")
    fields: tuple[FieldRef, ...] = ()
    if info.op == "lookup":
        if isinstance(argument, FieldValue):
            if not _lookup_fits(low, info, argument, argument_span, declared):
                return low.nothing(scope, span)
            fields = (argument.ref,)
        elif not argument.type.integer and not unknown(argument.type):
            low.report(
                "AMP262",
                f"`{info.decl.name}` looks up integers, got {shape(argument.type)}",
                argument_span,
                "",
                also=[declared, at(argument, shape(argument.type))],
                help="give it an int field, such as `symbol[t]`",
            )
            return low.nothing(scope, span)
    elif isinstance(argument, FieldValue):
        argument = read(low, scope, argument, argument_span)
    inputs = [] if isinstance(argument, FieldValue) else [argument]
    if inputs and info.op != "lookup" and not unknown(inputs[0].type) and inputs[0].type.cols != info.inputs:
        value = inputs[0]
        low.report(
            "AMP262",
            f"`{info.decl.name}` takes {info.inputs} columns, got {shape(value.type)}",
            argument_span,
            f"has shape {shape(value.type)}",
            also=[declared, at(value, shape(value.type))] if value.span != argument_span else [declared],
            help=f"declare `{info.decl.name}` for {value.type.cols} columns",
        )
    messages = arrive(scope, inputs)
    cols = info.inputs if info.op == "layer_norm" else low.arrays[layer].params[0].shape[1]
    rows = low.fields[fields[0].field].axis if fields and fields[0].at is None else messages[0].type.rows
    kind = Type(rows, cols)
    attrs = OPS[info.op].defaults | info.attrs
    node = low.net.add(
        PPT,
        region=scope.region,
        inputs=tuple(v.ref for v in messages),
        outputs=(kind,),
        op=info.op,
        layer=layer,
        fields=fields,
        attrs=attrs,
        origin=low.origin(span),
    )
    return Value(scope, (node, 0), kind, span)


def _lookup_fits(low: Lowering, info: LayerInfo, field: FieldValue, span: Span, declared: Label) -> bool:
    decl = field.decl
    if decl.kind == "float":
        low.report("AMP262", f"`{info.decl.name}` looks up integers, `{decl.name}` is a float field", span, "", also=[declared])
        return False
    bound = 2 if decl.kind == "flag" else decl.below
    if decl.kind != "index" and not bound:
        low.report(
            "AMP262",
            f"`{decl.name}` may be any integer, `{info.decl.name}` has {info.inputs} rows",
            span,
            "",
            also=[declared],
            help=f"declare `{decl.name}: int{f'[{decl.axis}]' if decl.axis else ''} < {info.inputs}`",
        )
        return False
    if bound > info.inputs:
        low.report(
            "AMP262",
            f"`{decl.name}` goes up to {bound - 1}, `{info.decl.name}` has {info.inputs} rows",
            span,
            "",
            also=[declared],
            help=f"declare `{info.decl.name}` with {bound} rows",
        )
        return False
    return True


def judge(
    low: Lowering,
    frame: Frame,
    op: str,
    prediction: Value,
    target: Value | FieldValue | None,
    span: Span,
    attrs: Mapping[str, Attr],
    weight: float | None,
    name: str,
) -> None:
    """Add a loss (with `weight`) or a metric (`weight` None); `target` is None where the operation takes none."""
    scope = frame.scope
    fields = (target.ref,) if isinstance(target, FieldValue) else ()
    messages = arrive(scope, [prediction, target] if isinstance(target, Value) else [prediction])
    full = OPS[op].defaults | dict(attrs)
    if any(unknown(v.type) for v in messages):
        return
    try:
        low.infer(op, [v.type for v in messages], fields, full, scope.region)
    except ShapeError as problem:
        labels = [at(prediction, shape(prediction.type))]
        if isinstance(target, FieldValue):
            declared = next(f for f in low.model.fields if f.name == target.decl.name)
            labels.append(Label(declared.span, f"`{declared.name}` is declared here"))
        elif target is not None:
            labels.append(at(target, shape(target.type)))
        low.report("AMP263", str(problem), span, "", also=labels)
        return
    parts = {
        "region": scope.region,
        "inputs": tuple(v.ref for v in messages),
        "op": op,
        "fields": fields,
        "attrs": full,
        "origin": low.origin(span),
        "name": name,
    }
    if weight is None:
        low.net.add(Metric, **parts)
    else:
        low.net.add(Loss, weight=weight, **parts)
