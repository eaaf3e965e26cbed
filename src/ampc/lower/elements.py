"""Code at each element of an axis: `each`, where elements know nothing of each other, and `visit`, where one waits for others.

A name that the block assigns is read after it as one value over the axis.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Label
from ampc.frontend import ast
from ampc.ir.nodes import Coord, FieldRef, Type
from ampc.lower import expressions, statements
from ampc.lower.context import NOTHING, Frame, Lowering, Stop
from ampc.lower.scope import RegionScope
from ampc.lower.values import Carry, Collected, Element, FieldValue, Value, shape, unknown


def each(low: Lowering, frame: Frame, s: ast.Each) -> None:
    """Lower `each e in axis:`. Raises Stop."""
    _want_axis(low, s.axis)
    region = low.net.element_region(frame.scope.region, s.axis.id)
    scope = RegionScope(low.net, region, frame.scope)
    inner = Frame(scope, frame, names={s.variable.id: Element(Coord(region), s.axis.id, scope, (), s.variable.span)})
    statements.block(low, inner, s.body)
    _keep(low, frame, inner, s.axis.id, region, s.variable.id)


def _want_axis(low: Lowering, axis: ast.Name) -> None:
    if axis.id not in low.axes:
        raise low.fail("AMP257", f"no axis `{axis.id}`", axis.span, help=low.suggest(axis.id, low.axes))


def _keep(low: Lowering, frame: Frame, inner: Frame, axis: str, region: int, variable: str) -> None:
    """Bind what the block assigned, for the code after it."""
    for name, found in inner.names.items():
        match found:
            case Value() if found.scope is inner.scope:
                frame.names[name] = _collected(low, frame, found, axis, region, variable)
            case FieldValue() if found.ref.at == Coord(region) and found.decl.axis == axis:
                frame.names[name] = dataclasses.replace(found, ref=FieldRef(found.ref.field), rows=axis)
            case FieldValue() if found.decl.kind != "index":
                value = expressions.message(low, inner, found, found.span)
                frame.names[name] = _collected(low, frame, value, axis, region, variable)
            case _:
                pass


def _collected(low: Lowering, frame: Frame, element: Value, axis: str, region: int, variable: str) -> Collected:
    made = Collected(element, axis, region, frame.scope, variable)
    low.collected.append(made)
    return made


def visit(low: Lowering, frame: Frame, s: ast.Visit) -> None:
    """Lower `visit n in axis after left[n] carry h:`. Raises Stop.

    The shapes of what is carried follow from the body, which reads them from other elements: the body is lowered for the shapes first,
    then taken back and lowered again.
    """
    _want_axis(low, s.axis)
    after = _after(low, s)
    kinds = {n.id: NOTHING for n in s.carry}
    for _ in range(len(s.carry) + 2):
        found = _trial(low, frame, s, after, kinds)
        if found == kinds or not any(unknown(k) for k in kinds.values()):
            break
        kinds = found
    if any(unknown(k) for k in kinds.values()) and not low.diagnostics:
        mark = len(low.diagnostics)
        _body(low, frame, s, after, kinds)
        if len(low.diagnostics) == mark:
            name = next(n for n in s.carry if unknown(kinds[n.id]))
            raise low.fail(
                "AMP280",
                f"the shape of `{name.id}` depends on itself alone",
                name.span,
                help="some element has to start it: a layer of its own fields, or `zeros(columns)`",
            )
        raise Stop
    _body(low, frame, s, after, kinds)


def _after(low: Lowering, s: ast.Visit) -> tuple[str, ...]:
    """Return the index fields that the visit waits for. Raises Stop."""
    out = []
    for e in s.after:
        field = low.fields.get(e.base.id) if isinstance(e, ast.Index) else None
        own = isinstance(e, ast.Index) and isinstance(e.index, ast.Name) and e.index.id == s.variable.id
        if field is None or field.kind != "index" or not own:
            raise low.fail(
                "AMP266",
                "a visit waits for elements that index fields name",
                e.span,
                help=_after_help(low, s),
            )
        nested = low.axes[field.axis].parent if field.axis else ""
        if field.of != s.axis.id or s.axis.id not in (field.axis, nested):
            declared = next(f for f in low.model.fields if f.name == field.name)
            raise low.fail(
                "AMP259",
                f"`{field.name}` leads from `{field.axis}` to `{field.of}`, the visit goes over `{s.axis.id}`",
                e.span,
                also=[Label(declared.span, "declared here")],
            )
        out.append(field.name)
    return tuple(out)


def _after_help(low: Lowering, s: ast.Visit) -> str:
    """Return what may stand after `after`: a field of the program, if there is one."""
    n, axis = s.variable.id, s.axis.id
    for f in low.fields.values():
        if f.kind == "index" and f.of == axis and f.axis and axis in (f.axis, low.axes[f.axis].parent):
            return f"write `after {f.name}[{n}]`"
    return f"write `after left[{n}]` with `left: {axis}[{axis}] or none`"


def _trial(low: Lowering, frame: Frame, s: ast.Visit, after: tuple[str, ...], kinds: dict[str, Type]) -> dict[str, Type]:
    """Return the shapes that the body ends with if it starts with `kinds`; nothing of it stays."""
    mark, frames = low.mark(), (dict(frame.names), dict(low.hidden))
    found = _body(low, frame, s, after, kinds)
    low.rewind(mark, frame.scope)
    frame.names, low.hidden = frames
    return found


def _body(low: Lowering, frame: Frame, s: ast.Visit, after: tuple[str, ...], kinds: dict[str, Type]) -> dict[str, Type]:
    region = low.net.region(form="visit", parent=frame.scope.region, axis=s.axis.id, after=after, name=s.variable.id)
    scope = RegionScope(low.net, region, frame.scope)
    outer = Frame(scope, frame, names={s.variable.id: Element(Coord(region), s.axis.id, scope, (), s.variable.span)})
    carries = {}
    for n in s.carry:
        source = Value(scope, low.net.promise(), kinds[n.id], n.span, n.id)
        outer.names[n.id] = carries[n.id] = Carry(n.id, s.axis.id, scope, source, after, n.span)
    inner = Frame(scope, outer)
    inner.carries = carries
    statements.block(low, inner, s.body)
    ends = {n.id: _end(low, inner, n, carries[n.id]) for n in s.carry}
    for name, end in ends.items():
        if not unknown(end.type):
            low.net.keep(carries[name].source.ref, end.ref)
    _keep(low, frame, inner, s.axis.id, region, s.variable.id)
    return {name: end.type for name, end in ends.items()}


def _end(low: Lowering, inner: Frame, name: ast.Name, carry: Carry) -> Value:
    """Return what an element leaves in a carried name, of the shape that others read."""
    if name.id not in inner.names:
        low.report(
            "AMP266",
            f"`{name.id}` is carried and the visit doesn't assign it",
            name.span,
            "carried here",
            help=f"assign it, or `merge {name.id}` after a branch that does",
        )
        return low.nothing(inner.scope, name.span, name.id)
    try:
        end = expressions.message(low, inner, expressions.name(low, inner, name), name.span)
        if end.type.rows:
            low.refuse_whole(end, carry.axis, low.net.regions[carry.scope.region].name, "AMP279")
    except Stop:
        return low.nothing(inner.scope, name.span, name.id)
    if end.type.rows or end.type.integer:
        low.report(
            "AMP279",
            f"`{name.id}` is carried from element to element as a single row, got {shape(end.type)}",
            name.span,
            also=[Label(end.span, "assigned here")],
        )
        return low.nothing(inner.scope, name.span, name.id)
    wanted = carry.source.type
    if not unknown(wanted) and not unknown(end.type) and wanted != end.type:
        low.report(
            "AMP279",
            f"`{name.id}` is read from other elements as {shape(wanted)} and ends as {shape(end.type)}",
            name.span,
            "carried here",
            also=[Label(end.span, f"{shape(end.type)} here")],
        )
    return end
