"""`base[index]`: fields at an element, rows of values over an axis, what other elements of a visit ended with.

An element is told by the state alone. How a row of a value gets to it is in `element_rows`.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.ir.nodes import Coord, Dependents, FieldRef, Flatmap, Index, Through, Type
from ampc.lower import element_rows, expressions
from ampc.lower.context import Frame, Lowering, Stop
from ampc.lower.context import at as at_
from ampc.lower.emit import npt, read
from ampc.lower.scope import ChildScope, RegionScope, Scope, localized
from ampc.lower.values import UNKNOWN, Carry, Collected, Element, FieldValue, Result, Turn, Value, Whole, shape, unknown



def current(frame: Frame) -> Element:
    """Return the element that `sum(child, ...)` is at."""
    assert frame.implicit is not None
    return Element(Coord(frame.implicit.scope.region), frame.implicit.axis, frame.implicit.scope, (), element_rows.NOWHERE)


def index(low: Lowering, frame: Frame, e: ast.Expr) -> Element | Whole:
    """Return what stands between the brackets. Raises Stop."""
    wanted = "an index is the variable of an `each`, `visit` or `loop` over an axis, or an index field at one"
    if isinstance(e, ast.Name):
        found = frame.find(e.id)
        if isinstance(found, Element):
            return found
        if isinstance(found, Turn):
            raise low.fail(
                "AMP258", f"`{e.id}` counts turns, it is no element of an axis", e.span, "", also=[Label(found.span, "the loop")], help=wanted
            )
        if found is None and e.id in low.fields:
            return _as_index(low, frame, expressions.field(low, frame, e), e.span)
        if isinstance(found, FieldValue):
            return _as_index(low, frame, found, e.span)
    elif isinstance(e, ast.Index) and frame.find(e.base.id) is None and e.base.id in low.fields:
        result = element(low, frame, e, local=False)
        if isinstance(result, FieldValue):
            return _as_index(low, frame, result, e.span)
    elif isinstance(e, ast.Number):
        raise low.fail("AMP258", "an index can't be a number", e.span, help="a slice takes columns: `x[0:1]`")
    raise low.fail("AMP258", "this is no index", e.span, help=wanted)


def _as_index(low: Lowering, frame: Frame, found: FieldValue, span: Span) -> Element | Whole:
    decl = found.decl
    if decl.kind != "index":
        raise low.fail(
            "AMP258",
            f"`{decl.name}` is no index field",
            span,
            f"holds {decl.kind} values",
            help=f"declare `{decl.name}: node[...]` with the axis that it points to",
        )
    if found.ref.at is None:
        return Whole(found)
    optional = element_rows.optional(low, found.ref)
    return Element(Through(found.ref.field, found.ref.at), decl.of, _home(frame, found.ref.at), optional, span)


def _home(frame: Frame, at: Index) -> Scope:
    """Return the scope of the region whose coordinate an index hangs on."""
    while isinstance(at, Through):
        at = at.at
    return next(s for s in frame.scope.chain() if isinstance(s, RegionScope) and s.region == at.region)


# ---------------------------------------------------------------------------------------------------- expressions


def element(low: Lowering, frame: Frame, e: ast.Index, local: bool = True) -> Result:
    """Return `base[index]`; with `local`, a field's index is one that this scope can read. Raises Stop."""
    base = frame.find(e.base.id)
    where = index(low, frame, e.index)
    if base is None and e.base.id in low.fields:
        base = FieldValue(low.fields[e.base.id], FieldRef(e.base.id), low.fields[e.base.id].axis, e.base.span)
    match base:
        case FieldValue():
            found = _of_field(low, frame, base, where, e)
            if local and isinstance(found, FieldValue) and found.ref.at is not None:
                return dataclasses.replace(found, ref=FieldRef(found.ref.field, localized(frame.scope, found.ref.at)))
            return found
        case Carry():
            return _of_carry(low, frame, base, where, e)
        case Collected():
            return _of_value(low, frame, low.collect(base, e.span), where, e)
        case Value():
            carried = frame.carry(e.base.id)
            if carried is not None and not (isinstance(where, Element) and where.index == Coord(carried.scope.region)):
                return _of_carry(low, frame, carried, where, e)
            return _of_value(low, frame, base, where, e)
        case None:
            expressions.name(low, frame, e.base)
    raise low.fail("AMP258", f"`{e.base.id}` can't be indexed", e.span, help="fields and values over an axis can")


def _of_field(low: Lowering, frame: Frame, base: FieldValue, where: Element | Whole, e: ast.Index) -> Result:
    decl = base.decl
    declared = [Label(f.span, f"`{decl.name}` is declared here") for f in low.model.fields if f.name == decl.name]
    if base.ref.at is not None or not decl.axis:
        what = "is one value for the whole instance" if not decl.axis else "is already read at one element"
        raise low.fail("AMP258", f"`{decl.name}` {what} and can't be indexed", e.span, also=declared, help=f"write `{e.base.id}`")
    axis = where.axis if isinstance(where, Element) else where.field.decl.of
    if axis != decl.axis:
        raise low.fail("AMP259", f"`{decl.name}` lies over `{decl.axis}`, the index is an element of `{axis}`", e.span, also=declared)
    if isinstance(where, Element):
        return FieldValue(decl, FieldRef(decl.name, where.index), "", e.span)
    if decl.kind != "float":
        raise low.fail(
            "AMP258",
            f"`{decl.name}` is {decl.kind}; only floats can be gathered by a whole index field",
            e.span,
            help=f"read it inside `each`: `{decl.name}[{where.field.decl.name}[e]]`",
        )
    return npt(low, frame.scope, "gather", [read(low, frame.scope, base, e.base.span)], e.span, fields=(where.field.ref,))


def _of_value(low: Lowering, frame: Frame, base: Value, where: Element | Whole, e: ast.Index) -> Value:
    axis = where.axis if isinstance(where, Element) else where.field.decl.of
    if unknown(base.type):
        rows = where.field.decl.axis if isinstance(where, Whole) else ""
        return Value(frame.scope, low.net.promise(), Type(rows, UNKNOWN), e.span)
    if not base.type.rows:
        if isinstance(where, Element) and isinstance(where.index, Coord) and base.scope.region == where.index.region:
            return frame.scope.bring(base)
        raise low.fail(
            "AMP259",
            f"`{e.base.id}` is a single row and has no elements",
            e.span,
            f"has shape {shape(base.type)}",
            also=[at_(base, shape(base.type))],
            help=f"write `{e.base.id}`; a slice `{e.base.id}[0:1]` takes columns",
        )
    if base.type.rows != axis:
        raise low.fail(
            "AMP259", f"`{e.base.id}` lies over `{base.type.rows}`, the index is an element of `{axis}`", e.span, also=[at_(base, shape(base.type))]
        )
    if isinstance(where, Whole):
        return element_rows.all_rows(low, frame, base, where, e.span)
    return frame.scope.bring(element_rows.row(low, frame, base, where, e.span))


def _of_carry(low: Lowering, frame: Frame, base: Carry, where: Element | Whole, e: ast.Index) -> Value:
    carried = [Label(base.span, f"`{base.name}` is carried from here")]
    if isinstance(where, Whole):
        field = where.field.decl
        if field.name not in base.after or field.axis == base.axis:
            kept = base.after and field.name in base.after
            raise low.fail(
                "AMP266",
                f"`{base.name}` of all elements isn't known inside the visit" if kept else f"this visit doesn't wait for `{field.name}`",
                e.span,
                also=carried,
                help=f"name one element: `{base.name}[{field.name}[{low.net.regions[base.scope.region].name}]]`" if kept else waited(low, base),
            )
        if element_rows.parent_of(low, frame.scope, field.axis) is not base.scope:
            raise _too_deep(low, base, field.name, e.span)
        return frame.scope.bring(_carried_by_children(low, base, field.axis, FieldRef(field.name), e.span))
    if where.axis != base.axis:
        raise low.fail("AMP259", f"`{base.name}` is carried over `{base.axis}`, the index is an element of `{where.axis}`", e.span, also=carried)
    if not isinstance(where.index, Through) or where.index.field not in base.after or isinstance(where.index.at, Through):
        waits = ", ".join(f"`{f}`" for f in base.after)
        raise low.fail(
            "AMP266",
            f"this visit doesn't wait for that element: it fires after {waits}",
            e.span,
            also=carried,
            help=f"{_wait_for(low, base, where)}{waited(low, base)}",
        )
    home, kind = where.scope, base.source.type
    if home is not base.scope and not isinstance(home, ChildScope):
        if element_rows.children_at(low, where) is not base.scope:
            raise _too_deep(low, base, where.index.field, e.span)
        rows = _carried_by_children(low, base, low.net.regions[home.region].axis, FieldRef(where.index.field), e.span)
        return frame.scope.bring(element_rows.handed_out(low, rows, where, e.span))
    found = _sent(low, base, kind, where, e.span)
    if home is not base.scope:
        found = element_rows.in_arms(low, found, e.span)
    return frame.scope.bring(element_rows.defined(low, frame, found, where, e.span))


def _too_deep(low: Lowering, base: Carry, field: str, span: Span) -> Stop:
    """Record that another element is read inside a block which no longer stands at the visited element, or at one of its children."""
    axis, n = low.fields[field].axis, low.net.regions[base.scope.region].name
    where = f", or in `loop c in {axis}` directly in it" if axis != base.axis else ""
    return low.fail(
        "AMP266",
        f"`{base.name}` of another element can't be read inside this block",
        span,
        also=[Label(base.span, f"`{base.name}` is carried from here")],
        help=f"read it in the block of `{n}` itself{where}",
    )


def _sent(low: Lowering, base: Carry, kind: Type, where: Element, span: Span) -> Value:
    """Return what the element that `where` names ended with."""
    node = low.net.add(
        Flatmap,
        region=base.scope.region,
        inputs=(base.source.ref,),
        outputs=(kind,),
        to=Dependents(where.scope.region, where.index),
        origin=low.origin(span),
        name=base.name,
    )
    return Value(where.scope, (node, 0), kind, base.span, base.name)


def _carried_by_children(low: Lowering, base: Carry, axis: str, field: FieldRef, span: Span) -> Value:
    """Return, at the element of a visit, what the elements ended with that its children over `axis` name: a row for each child."""
    assert isinstance(base.scope, RegionScope)
    child = element_rows.child_scope(low, base.scope, base.scope, axis)
    where = element_rows.child_element(low, child, field)
    found = element_rows.defined(low, Frame(child), _sent(low, base, base.source.type, where, span), where, span)
    return element_rows.stacked(low, base.scope, axis, found, span)


def _wait_for(low: Lowering, base: Carry, where: Element) -> str:
    """Return how to make the visit wait for an element, if an index field of the visited element or of its children names it."""
    if not isinstance(where.index, Through) or isinstance(where.index.at, Through):
        return ""
    field = low.fields[where.index.field]
    if not field.axis or base.axis not in (field.axis, low.axes[field.axis].parent) or field.name in base.after:
        return ""
    n = low.net.regions[base.scope.region].name
    return f"write `after {', '.join(f'{f}[{n}]' for f in (*base.after, field.name))}`, or "


def waited(low: Lowering, base: Carry) -> str:
    """Return how to read an element that the visit waits for."""
    field, variable = low.fields[base.after[0]], low.net.regions[base.scope.region].name
    if field.axis == base.axis:
        return f"read `{base.name}[{field.name}[{variable}]]`"
    return f"read `{base.name}[{field.name}]`, which has a row for each `{field.axis}` of `{variable}`"
