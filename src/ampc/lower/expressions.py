"""Expressions: constants are folded, fields stay unread until a message is needed, everything else becomes nodes.

`evaluate` may give up with `Stop` (the mistake is recorded); `value` never does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.ir.nodes import Coord, FieldRef
from ampc.lower import calls, element_rows, indices
from ampc.lower.constants import ConstantError, binary, bounded, unary
from ampc.lower.context import Frame, Lowering, Stop, at
from ampc.lower.emit import concat, fill, npt, read
from ampc.lower.values import Carry, Collected, Const, Element, FieldValue, Result, Turn, Value, shape, unknown

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


def value(low: Lowering, frame: Frame, e: ast.Expr) -> Value:
    """Return the expression as a message; one of unknown shape where a mistake was recorded."""
    try:
        return message(low, frame, evaluate(low, frame, e), e.span)
    except Stop:
        return low.nothing(frame.scope, e.span)


def message(low: Lowering, frame: Frame, result: Result, span: Span) -> Value:
    """Return a result as a message in the frame's scope: constants are filled in, fields are read."""
    match result:
        case Value():
            return frame.scope.bring(result)
        case Const():
            return fill(low, frame.scope, 1, result.value, span)
        case FieldValue():
            return read(low, frame.scope, result, span)
        case Element():
            raise low.fail(
                "AMP264",
                f"this is an element of `{result.axis}`, not a value",
                span,
                help=f"use it as an index: `h[...]` for a value or field over `{result.axis}`",
            )


def evaluate(low: Lowering, frame: Frame, e: ast.Expr) -> Result:
    """Return what an expression stands for, with as little of the graph as it takes. Raises Stop."""
    match e:
        case ast.Number() | ast.Bool():
            return Const(e.value, e.span)
        case ast.Name():
            return name(low, frame, e)
        case ast.Unary():
            return _unary(low, frame, e)
        case ast.Binary():
            return _binary(low, frame, e)
        case ast.Call():
            results = calls.call(low, frame, e)
            if len(results) != 1:
                raise low.fail(
                    "AMP270", f"`{e.function.id}` returns {len(results)} values, one is needed here", e.span, help="assign them: `h, c = ...`"
                )
            return results[0]
        case ast.Index():
            return indices.element(low, frame, e)
        case ast.Slice():
            return _slice(low, frame, e)
        case ast.Join():
            return concat(low, frame.scope, [value(low, frame, part) for part in e.parts], e.span)
        case _:
            raise low.fail("AMP264", "a text can't be computed with", e.span)


def constant(low: Lowering, frame: Frame, e: ast.Expr, what: str) -> Const:
    """Return an expression that has to be a constant. Raises Stop."""
    result = evaluate(low, frame, e)
    if isinstance(result, Const):
        return result
    raise low.fail("AMP252", f"{what} has to be a constant", e.span, "not known at compile time", help="use numbers and model parameters only")


def size(low: Lowering, frame: Frame, e: ast.Expr, what: str, least: int = 1, most: int = 2**31 - 1) -> int:
    """Return an expression that has to be a constant integer within bounds. Raises Stop."""
    n = constant(low, frame, e, what).value
    if isinstance(n, bool) or not float(n).is_integer():
        raise low.fail("AMP254", f"{what} has to be an integer, got `{n}`", e.span, help="`//` divides integers" if isinstance(n, float) else None)
    if not least <= n <= most:
        raise low.fail("AMP254", f"{what} has to be within {least} and {most}, got {int(n)}", e.span)
    return int(n)


# ---------------------------------------------------------------------------------------------------------- names


def name(low: Lowering, frame: Frame, e: ast.Name) -> Result:
    """Return what a bare name stands for at this place. Raises Stop."""
    found = frame.find(e.id)
    match found:
        case Carry():
            raise low.fail(
                "AMP266",
                f"`{e.id}` of this element isn't known before it is assigned",
                e.span,
                "",
                also=[Label(found.span, f"`{e.id}` is carried from here")],
                help=f"{indices.waited(low, found)}, or assign `{e.id}` first" if found.after else f"assign `{e.id}` first",
            )
        case Turn():
            raise low.fail("AMP264", f"`{e.id}` counts turns and can't be computed with", e.span, "", also=[Label(found.span, "the loop")])
        case Collected():
            return _current(low, frame, low.collect(found, e.span), e.span)
        case Value():
            return _current(low, frame, found, e.span)
        case FieldValue():
            return _field_here(frame, found)
        case Const() | Element():
            return found
        case None:
            pass
    if e.id in low.constants:
        return low.constants[e.id]
    if e.id in low.fields:
        return field(low, frame, e)
    kinds: dict[str, Mapping[str, object]] = {"layer": low.layers, "function": low.functions, "axis": low.axes}
    for kind, known in kinds.items():
        if e.id in known:
            use = f"apply it: `{e.id}(x)`" if kind != "axis" else f"write `sum({e.id}, ...)`, `each n in {e.id}:` or a loop over it"
            raise low.fail("AMP264", f"`{e.id}` is {'an axis' if kind == 'axis' else f'a {kind}'}, not a value", e.span, help=use)
    hidden = low.hidden.get(e.id)
    known_names = frame.visible() | set(low.constants) | set(low.fields)
    also = [Label(hidden, "this one is gone after its block")] if hidden else []
    help = f"`merge {e.id}` after the branch or `carry {e.id}` in the loop keeps it" if hidden else low.suggest(e.id, known_names)
    raise low.fail("AMP257", f"`{e.id}` has no value here", e.span, also=also, help=help)


def _current(low: Lowering, frame: Frame, found: Value, span: Span) -> Value:
    """Return a named value in this scope; inside `sum(child, ...)` one over `child` means the row of the current child."""
    if frame.implicit is not None and found.type.rows == frame.implicit.axis and not unknown(found.type):
        return frame.scope.bring(element_rows.row(low, frame, found, indices.current(frame), span))
    return element_rows.here(low, frame, found, span)


def field(low: Lowering, frame: Frame, e: ast.Name) -> FieldValue:
    """Return a bare field: whole, or inside `sum(child, ...)` at the current child."""
    decl = low.fields[e.id]
    low.bare.append((e.id, e.span))
    return _field_here(frame, FieldValue(decl, FieldRef(e.id), decl.axis, e.span))


def _field_here(frame: Frame, found: FieldValue) -> FieldValue:
    if frame.implicit is not None and found.ref.at is None and found.decl.axis == frame.implicit.axis:
        return dataclasses.replace(found, ref=FieldRef(found.ref.field, Coord(frame.implicit.scope.region)), rows="")
    return found


# ------------------------------------------------------------------------------------------------------ operators


def _unary(low: Lowering, frame: Frame, e: ast.Unary) -> Result:
    operand = evaluate(low, frame, e.operand)
    if isinstance(operand, Const):
        return Const(unary(e.op, operand.value), e.span)
    if e.op == "not":
        return npt(low, frame.scope, "not", [_truth(low, frame, operand, e.operand.span)], e.span)
    return npt(low, frame.scope, "neg", [message(low, frame, operand, e.operand.span)], e.span)


def _truth(low: Lowering, frame: Frame, result: Result, span: Span) -> Value:
    """Return an operand of `and`, `or`, `not`: a flag field as an integer, anything else as it is."""
    x = message(low, frame, result, span)
    if isinstance(result, FieldValue) and result.decl.kind == "flag":
        return npt(low, frame.scope, "above", [x], span, attrs={"threshold": 0.5})
    return x


def _binary(low: Lowering, frame: Frame, e: ast.Binary) -> Result:
    sides: list[Result] = []
    for side in (e.left, e.right):
        try:
            sides.append(evaluate(low, frame, side))
        except Stop:
            sides.append(low.nothing(frame.scope, side.span))
    a, b = sides
    if isinstance(a, Const) and isinstance(b, Const):
        try:
            return Const(bounded(binary(e.op, a.value, b.value)), e.span)
        except ConstantError as problem:
            raise low.fail("AMP253", str(problem), e.span) from None
    if e.op in FLIPPED:
        return _compare(low, frame, e, a, b)
    if e.op in ("and", "or"):
        x, y = (_truth(low, frame, s, s.span) for s in sides)
        return npt(low, frame.scope, "both" if e.op == "and" else "either", [x, y], e.span)
    if e.op in ("%", "//"):
        raise low.fail("AMP265", f"`{e.op}` works on constants only", e.span, help="`/` divides values")
    if isinstance(b, Const):
        return _with_constant(low, frame, e, message(low, frame, a, e.left.span), b.value)
    if isinstance(a, Const):
        return _constant_with(low, frame, e, a.value, message(low, frame, b, e.right.span))
    if e.op == "**":
        raise low.fail("AMP265", "`**` needs a constant exponent", e.right.span, help="write `exp(y * log(x))` for positive `x`")
    x, y = message(low, frame, a, e.left.span), message(low, frame, b, e.right.span)
    return npt(low, frame.scope, ARITHMETIC[e.op], [x, y], e.span)


def _with_constant(low: Lowering, frame: Frame, e: ast.Binary, x: Value, c: int | float | bool) -> Value:
    """`x op c`"""
    if e.op == "**":
        return npt(low, frame.scope, "square", [x], e.span) if c == 2 else npt(low, frame.scope, "power", [x], e.span, attrs={"exponent": float(c)})
    if e.op == "/" and c == 0:
        raise low.fail("AMP253", "division by zero", e.span)
    scale, shift = {"+": (1.0, float(c)), "-": (1.0, -float(c)), "*": (float(c), 0.0), "/": (1.0 / c if c else 0.0, 0.0)}[e.op]
    return _affine(low, frame, x, scale, shift, e.span)


def _constant_with(low: Lowering, frame: Frame, e: ast.Binary, c: int | float | bool, x: Value) -> Value:
    """`c op x`"""
    match e.op:
        case "+" | "*":
            return _with_constant(low, frame, e, x, c)
        case "-":
            return _affine(low, frame, x, -1.0, float(c), e.span)
        case "/":
            inverse = npt(low, frame.scope, "reciprocal", [x], e.span)
            return inverse if c == 1 else _affine(low, frame, inverse, float(c), 0.0, e.span)
        case _:
            if c <= 0:
                raise low.fail("AMP253", f"`{c} ** x` needs a positive base", e.left.span)
            return npt(low, frame.scope, "exp", [_affine(low, frame, x, math.log(c), 0.0, e.span)], e.span)


def _affine(low: Lowering, frame: Frame, x: Value, scale: float, shift: float, span: Span) -> Value:
    return npt(low, frame.scope, "affine", [x], span, attrs={"scale": scale, "shift": shift})


def _compare(low: Lowering, frame: Frame, e: ast.Binary, a: Result, b: Result) -> Value:
    """Return 1 where the comparison holds, else 0."""
    op = e.op
    if isinstance(a, Const):
        a, b, op = b, a, FLIPPED[op]
    x = message(low, frame, a, a.span)
    scope = frame.scope
    if isinstance(b, Const):
        test, negated = {
            ">=": ("at_least", False),
            "<": ("at_least", True),
            ">": ("above", False),
            "<=": ("above", True),
            "==": ("is", False),
            "!=": ("is", True),
        }[op]
        result = npt(low, scope, test, [x], e.span, attrs={"threshold": float(b.value)})
    else:
        y = message(low, frame, b, b.span)
        test, swapped, negated = {
            "<": ("less", False, False),
            ">": ("less", True, False),
            "<=": ("less_equal", False, False),
            ">=": ("less_equal", True, False),
            "==": ("equal", False, False),
            "!=": ("equal", False, True),
        }[op]
        result = npt(low, scope, test, [y, x] if swapped else [x, y], e.span)
    return npt(low, scope, "not", [result], e.span) if negated else result


def _slice(low: Lowering, frame: Frame, e: ast.Slice) -> Value:
    x = value(low, frame, e.base)
    start = 0 if e.start is None else size(low, frame, e.start, "the first column", -(2**31))
    if e.stop is None and unknown(x.type):
        return low.nothing(frame.scope, e.span)
    stop = x.type.cols if e.stop is None else size(low, frame, e.stop, "the end of the columns", -(2**31))
    if not unknown(x.type):
        start, stop = (n + x.type.cols if n < 0 else n for n in (start, stop))
        if not 0 <= start < stop <= x.type.cols:
            raise low.fail(
                "AMP261",
                f"columns {start}:{stop} lie outside of {shape(x.type)}",
                e.span,
                f"has {x.type.cols} columns",
                also=[at(x, shape(x.type))],
                help=f"columns count from 0 to {x.type.cols - 1}",
            )
    elif not 0 <= start < stop:
        return low.nothing(frame.scope, e.span)
    return npt(low, frame.scope, "columns", [x], e.span, attrs={"start": start, "stop": stop})
