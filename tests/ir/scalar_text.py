"""Evaluates the kernel text of an element-wise operation on one number, by walking its syntax tree: nothing is executed."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

FUNCTIONS = {
    "exp": math.exp, "sin": math.sin, "cos": math.cos, "log": math.log, "sqrt": math.sqrt, "tanh": math.tanh, "erf": math.erf, "pow": math.pow, "max": max, "min": min, "abs": abs,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x)),
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
}
CONSTANTS = {"F0": 0.0, "F1": 1.0, "F2": 2.0, "FH": 0.5}
BINARY = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b}
COMPARE = {
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
    ast.NotEq: lambda a, b: a != b,
}


def evaluate(text: str, names: Mapping[str, float]) -> float:
    """Return the value of `text`; anything but names, arithmetic, comparisons, conditionals and the listed functions raises."""
    return _value(ast.parse(text, mode="eval").body, {**CONSTANTS, **names})


def _value(node: ast.expr, names: Mapping[str, float]):
    match node:
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left=left, op=op, right=right):
            return BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)(_value(v, names) for v in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return COMPARE[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return FUNCTIONS[name](*(_value(a, names) for a in args))
        case _:
            raise AssertionError(f"kernel text may not hold {ast.dump(node)}")
