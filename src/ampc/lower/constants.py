"""Arithmetic on numbers that are known at compile time: parameters, sizes, bounds.

Integers stay within 2**53 in size and floats stay finite; anything else is a mistake of the program.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

from ampc.frontend import ast
from ampc.lower.values import Const, Symbol

Number = int | float | bool

LIMIT = 2**53

BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class ConstantError(ValueError):
    """A constant expression without a value; the message says why."""


def unary(op: str, value: Number) -> Number:
    """Return `-value` or `not value`."""
    return -value if op == "-" else not value


def binary(op: str, a: Number, b: Number) -> Number:
    """Return `a op b`; raises ConstantError where that is no finite number of bearable size."""
    if op in ("and", "or"):
        return bool(a and b) if op == "and" else bool(a or b)
    if op in ("/", "//", "%") and b == 0:
        raise ConstantError("division by zero")
    try:
        return bounded(_power(a, b) if op == "**" else BINARY[op](a, b))
    except (OverflowError, ValueError):
        raise ConstantError(f"`{a} {op} {b}` has no finite value") from None


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 53:
        raise ConstantError(f"`{a} ** {b}` is beyond 2**53")
    if a == 0 and b < 0:
        raise ConstantError("division by zero")
    if a < 0 and not float(b).is_integer():
        raise ConstantError(f"`{a} ** {b}` is not a real number")
    result: Number = a**b
    return result


def bounded(value: Number) -> Number:
    """Return `value`, or raise ConstantError if it is not finite, or an integer beyond 2**53."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConstantError("the result is not finite")
    if isinstance(value, int) and abs(value) > LIMIT:
        raise ConstantError("the result is beyond 2**53")
    return value


def evaluate(e: ast.Expr, names: Mapping[str, Const]) -> Const | Symbol | None:
    """Return the value of a constant expression; a bare unknown word or a text is a `Symbol`; None if the expression isn't constant.

    Raises ConstantError.
    """
    match e:
        case ast.Number() | ast.Bool():
            return Const(bounded(e.value), e.span)
        case ast.Name():
            return Const(names[e.id].value, e.span) if e.id in names else Symbol(e.id, e.span)
        case ast.Text():
            return Symbol(e.value, e.span)
        case ast.Unary():
            inner = evaluate(e.operand, names)
            return Const(unary(e.op, inner.value), e.span) if isinstance(inner, Const) else None
        case ast.Binary():
            left, right = evaluate(e.left, names), evaluate(e.right, names)
            if isinstance(left, Const) and isinstance(right, Const):
                return Const(binary(e.op, left.value, right.value), e.span)
            return None
        case _:
            return None
