"""`sum(axis, value)` and its kind: over whole axes, or over the children of one element.

At an element of the parent axis, what is computed there has the rows of its own children at hand. What comes from elsewhere (other elements
of a visit, rows of a value from outside) is met child by child, in a region over all children, and grouped by their parents.
"""

from __future__ import annotations

from ampc.diagnostics import Span
from ampc.frontend import ast
from ampc.lower import element_rows, expressions
from ampc.lower.context import Frame, Implicit, Lowering, at
from ampc.lower.emit import npt
from ampc.lower.values import Collected, Value, shape, unknown


def over_axis(low: Lowering, frame: Frame, e: ast.Call, how: str, axis: str, body: ast.Expr) -> Value:
    """`sum(axis, body)`: of the rows of a value over the axis; at an element of its parent, of that element's children only."""
    if frame.implicit is not None and frame.implicit.axis == axis:  # a sum within the sum: over the same children
        return frame.scope.bring(reduced(low, frame.implicit.frame, frame, expressions.value(low, frame, body), how, e.span))
    if (inner := _children(low, frame, axis, body)) is not None:
        return reduced(low, frame, inner, expressions.value(low, inner, body), how, e.span)
    x = expressions.value(low, frame, body)
    if not unknown(x.type) and x.type.rows != axis:
        over = f"lies over `{x.type.rows}`" if x.type.rows else "is a single row"
        raise low.fail(
            "AMP269",
            f"`{how}({axis}, ...)` needs a value over `{axis}`, this one {over}",
            body.span,
            f"has shape {shape(x.type)}",
            also=[at(x, shape(x.type))],
            help=f"compute it in `each x in {axis}:`" if not x.type.rows else f"write `{how}({x.type.rows}, ...)`",
        )
    return npt(low, frame.scope, "reduce_rows", [x], e.span, attrs={"reduce": how})


def softmax_over(low: Lowering, frame: Frame, e: ast.Call, axis: str, body: ast.Expr) -> Value:
    """`softmax(axis, body)`: over the rows; inside `sum(axis, ...)`, over the current parent's children."""
    implicit = frame.implicit
    if implicit is not None and implicit.axis == axis:
        x = expressions.value(low, frame, body)
        outside = implicit.frame
        greatest = npt(low, outside.scope, "stop_gradient", [reduced(low, outside, frame, x, "max", e.span)], e.span)
        powers = npt(low, frame.scope, "exp", [npt(low, frame.scope, "sub", [x, frame.scope.bring(greatest)], e.span)], e.span)
        total = reduced(low, outside, frame, powers, "sum", e.span)
        return npt(low, frame.scope, "div", [powers, frame.scope.bring(total)], e.span)
    x = expressions.value(low, frame, body)
    if not unknown(x.type) and x.type.rows != axis:
        raise low.fail("AMP269", f"`softmax({axis}, ...)` needs a value over `{axis}`, got {shape(x.type)}", body.span, also=[at(x, shape(x.type))])
    return npt(low, frame.scope, "softmax_rows", [x], e.span)


def _children(low: Lowering, frame: Frame, axis: str, body: ast.Expr) -> Frame | None:
    """Return a frame at each child of the current element if `body` has to be computed child by child, else None.

    It is where `axis` is nested in that of an open element and the body reads what isn't computed at that element: what other elements of
    a visit ended with, or rows of values from outside. Otherwise all is computed on the rows of all children of the element; so it is, too,
    where the body also reads rows that the element has for its children, where it goes from child to child, and in an arm of a computed
    branch, of which the children don't know.
    """
    opened = element_rows.parent_of(low, frame.scope, axis)
    if opened is None or frame.scope.region != opened.region:
        return None
    assert opened.outer is not None
    outside = set(map(id, opened.outer.chain()))
    found = names(body)
    if not any(_from_outside(frame, name, outside) for name in found) or any(_own_rows(frame, name, outside) for name in found):
        return None
    arms = frame.scope.chain()[: frame.scope.chain().index(opened)]
    if any(low.fields[name].of == axis for name in found if name in low.fields) or not all(element_rows.tells(arm) for arm in arms):
        return None
    scope = element_rows.child_scope(low, frame.scope, opened, axis)
    return Frame(scope, frame, Implicit(axis, scope, frame))


def _own_rows(frame: Frame, name: str, outside: set[int]) -> bool:
    """Whether a name stands for rows that were computed at the current element."""
    found = frame.find(name)
    if isinstance(found, Collected):
        return id(found.scope) not in outside
    return isinstance(found, Value) and bool(found.type.rows) and id(found.scope) not in outside


def _from_outside(frame: Frame, name: str, outside: set[int]) -> bool:
    found = frame.find(name)
    if frame.carry(name) is not None:
        return True
    if isinstance(found, Collected):
        return id(found.scope) in outside
    return isinstance(found, Value) and bool(found.type.rows) and id(found.scope) in outside


def names(e: ast.Expr) -> set[str]:
    """Return all names that stand in an expression."""
    match e:
        case ast.Name():
            return {e.id}
        case ast.Unary():
            return names(e.operand)
        case ast.Binary():
            return names(e.left) | names(e.right)
        case ast.Call():
            return {n for part in (*e.args, *(k.value for k in e.keywords)) for n in names(part)}
        case ast.Index():
            return {e.base.id} | names(e.index)
        case ast.Slice():
            return names(e.base)
        case ast.Join():
            return {n for part in e.parts for n in names(part)}
        case _:
            return set()


def reduced(low: Lowering, outside: Frame, inner: Frame, x: Value, how: str, span: Span) -> Value:
    """Return the sum, mean or max of a value at the children, for each parent element: one row, 0 where there are none."""
    assert inner.implicit is not None
    scope = inner.implicit.scope
    x = scope.bring(x)
    if x.type.rows or x.type.integer:
        raise low.fail(
            "AMP269", f"`{how}({inner.implicit.axis}, ...)` needs a single row for each child, got {shape(x.type)}", span, also=[at(x, shape(x.type))]
        )
    rows = element_rows.stacked(low, outside.scope, inner.implicit.axis, x, span)
    return npt(low, outside.scope, "reduce_rows", [rows], span, attrs={"reduce": how})
