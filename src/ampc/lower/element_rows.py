"""The rows of values at elements: of a value over an axis, of an element's own children, of what an index names; zeros where it names none.

A row travels: Ungroup sends each row to its element, and from there a Flatmap sends it to every state whose index names that element.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Span
from ampc.ir.nodes import Cond, Coord, Dependents, FieldRef, Flatmap, Group, Index, Match, Phi, Through, Type, Ungroup
from ampc.ir.scope import PARENT_FIELD
from ampc.lower.context import Frame, Lowering, Stop
from ampc.lower.context import at as at_
from ampc.lower.emit import npt
from ampc.lower.scope import ArmScope, ChildScope, RegionScope, Scope, localized
from ampc.lower.values import Element, Value, Whole, shape, unknown

NOWHERE = Span("", 0, 0, 0, 0)


def optional(low: Lowering, ref: FieldRef) -> tuple[FieldRef, ...]:
    """Return the reference if it, or an index field on its way, may be none."""
    at: Index | None = Through(ref.field, ref.at) if ref.at is not None else None
    while isinstance(at, Through):
        if low.fields[at.field].optional:
            return (ref,)
        at = at.at
    return ()


def all_rows(low: Lowering, frame: Frame, base: Value, where: Whole, span: Span) -> Value:
    """Return the rows that a bare index field names: at an element of the parent of the field's nested axis, those of its own children."""
    field = where.field.decl
    opened = parent_of(low, frame.scope, field.axis)
    if not parted(low, frame, base) and opened is not None and _is_outside(base, opened):
        return frame.scope.bring(_rows_of_children(low, opened, field.axis, base, FieldRef(field.name), span))
    return npt(low, frame.scope, "gather", [here(low, frame, base, span)], span, fields=(where.field.ref,))


def row(low: Lowering, frame: Frame, base: Value, where: Element, span: Span) -> Value:
    """Return the row of `base` (over `where.axis`) at an element, in the scope that the element hangs on or an arm of it."""
    net, home = low.net, where.scope
    parent = _parent_between(low, base, where)
    if not isinstance(home, ChildScope) and (found := _row_of_child(low, base, where, span)) is not None:
        return found
    outside = home.outer if not isinstance(home, ChildScope) else home.opened.outer
    assert outside is not None
    direct = isinstance(where.index, Coord) and net.regions[home.region].parent == outside.region
    if base.scope not in outside.chain() or (parent is not None and not (isinstance(home, ChildScope) and direct)):
        raise apart(low, base, span)
    origin, name, kind = low.origin(span), base.name, Type("", base.type.cols, base.type.integer)
    source = outside.bring(base)
    if net.regions[home.region].form == "loop" and not direct:
        source = _gathered(low, outside, source, where.index, span)
        to = home.region
    else:
        to = home.region if direct else net.element_region(outside.region, where.axis)
    ref = (net.add(Ungroup, region=outside.region, inputs=(source.ref,), outputs=(kind,), to=to, origin=origin, name=name), 0)
    if to != home.region or isinstance(where.index, Through):
        if net.regions[home.region].form == "loop":  # gathered, with zeros for none
            return Value(home, ref, kind, base.span, name)
        ref = (net.add(Flatmap, region=to, inputs=(ref,), outputs=(kind,), to=Dependents(home.region, where.index), origin=origin, name=name), 0)
    found = Value(home, ref, kind, base.span, name)
    return defined(low, frame, in_arms(low, found, span) if isinstance(home, ChildScope) else found, where, span)


def parent_of(low: Lowering, scope: Scope, axis: str) -> RegionScope | None:
    """Return the scope of the `each` or `visit` around this code at an element of the parent of nested `axis`, if there is one."""
    parent = low.axes[axis].parent if axis in low.axes else ""
    found = (s for s in scope.chain() if isinstance(s, RegionScope) and not isinstance(s, ChildScope))
    opened = next((s for s in found if parent and low.net.regions[s.region].axis == parent), None)
    return opened if opened is not None and low.net.regions[opened.region].form != "loop" else None


def _is_outside(base: Value, opened: RegionScope) -> bool:
    """Tell whether a value is from outside of an element's block."""
    assert opened.outer is not None
    return base.scope in opened.outer.chain()


def here(low: Lowering, frame: Frame, base: Value, span: Span) -> Value:
    """Return a value as it is here: of one over a nested axis from outside of its parent's block, the rows of the own children."""
    if not parted(low, frame, base):
        return frame.scope.bring(base)
    opened = parent_of(low, frame.scope, base.type.rows)
    if opened is None or not _is_outside(base, opened):
        raise apart(low, base, span)
    return frame.scope.bring(_rows_of_children(low, opened, base.type.rows, base, None, span))


def _row_of_child(low: Lowering, base: Value, where: Element, span: Span) -> Value | None:
    """Return the row at a child of an open element, in a loop or an `each` over its children; None if the element is no such child.

    The rows for all children are collected at the parent and handed out from there: what comes from outside is sent to no more elements than
    ask for it, and what other elements of a visit end with can't be sent into a block within it.
    """
    home = where.scope
    opened = children_at(low, where)
    if opened is None or not _is_outside(base, opened):
        return None
    field = FieldRef(where.index.field) if isinstance(where.index, Through) else None
    axis = low.net.regions[home.region].axis
    return handed_out(low, _rows_of_children(low, opened, axis, base, field, span), where, span)


def children_at(low: Lowering, where: Element) -> RegionScope | None:
    """Return the scope of the element whose children the block of `where` goes over, where `where` is such a child or what it names."""
    home = where.scope
    index = where.index.at if isinstance(where.index, Through) else where.index
    if home.outer is None or index != Coord(home.region):
        return None
    return parent_of(low, home.outer, low.net.regions[home.region].axis)


def handed_out(low: Lowering, rows: Value, where: Element, span: Span) -> Value:
    """Return the row of the current child, of rows that an open element has for its children."""
    home, kind = where.scope, Type("", rows.type.cols, rows.type.integer)
    assert home.outer is not None
    if unknown(kind):
        return low.nothing(home, span, rows.name)
    source = home.outer.bring(rows)
    origin = low.origin(span)
    node = low.net.add(Ungroup, region=source.scope.region, inputs=(source.ref,), outputs=(kind,), to=home.region, origin=origin, name=rows.name)
    return Value(home, (node, 0), kind, rows.span, rows.name)


def _rows_of_children(low: Lowering, opened: RegionScope, axis: str, base: Value, field: FieldRef | None, span: Span) -> Value:
    """Return, at an open element, a row of `base` for each of its children: the child's own (`base` over `axis`), or the one that it names."""
    if field is not None and parent_of(low, opened, base.type.rows) is opened:  # from child to child: the own ones only
        own = _rows_of_children(low, opened, base.type.rows, base, None, span)
        return npt(low, opened, "gather", [own], span, fields=(field,), name=base.name)
    child = child_scope(low, opened, opened, axis)
    return stacked(low, opened, axis, row(low, Frame(child), base, child_element(low, child, field), span), span)


def child_scope(low: Lowering, outer: Scope, opened: RegionScope, axis: str) -> ChildScope:
    """Return a scope at each child over `axis` of the element that `opened` stands at; `outer` is that of the code there."""
    region = low.net.element_region(low.net.regions[opened.region].parent, axis)
    return ChildScope(low.net, region, outer, axis, opened)


def child_element(low: Lowering, child: ChildScope, field: FieldRef | None) -> Element:
    """Return the current child, or what an index field names at it."""
    own = Coord(child.region)
    if field is None:
        return Element(own, child.axis, child, (), NOWHERE)
    ref = FieldRef(field.field, own)
    return Element(Through(field.field, own), low.fields[field.field].of, child, optional(low, ref), NOWHERE)


def stacked(low: Lowering, scope: Scope, axis: str, one: Value, span: Span) -> Value:
    """Return, at each parent, the rows that its children over `axis` have computed beside it."""
    kind = Type(axis, one.type.cols, one.type.integer)
    if unknown(kind):
        return Value(scope, low.net.promise(), kind, one.span, one.name)
    key = Through(axis + PARENT_FIELD, Coord(one.scope.region))
    inputs, origin = (one.ref, scope.unit().ref), low.origin(span)
    node = low.net.add(Group, region=one.scope.region, inputs=inputs, outputs=(kind,), key=key, to=scope.region, origin=origin, name=one.name)
    return Value(scope, (node, 0), kind, one.span, one.name)


def _gathered(low: Lowering, scope: Scope, base: Value, at: Index, span: Span) -> Value:
    """Return the rows of `base` in the order in which a loop asks for them: a loop's turns can't be sent to one by one."""
    if isinstance(at, Coord):
        return base
    rows = npt(low, scope, "gather", [base], span, fields=(FieldRef(at.field),), name=base.name)
    return _gathered(low, scope, rows, at.at, span)


def apart(low: Lowering, base: Value, span: Span) -> Stop:
    """Record that rows of `base` can't be read where they are asked for.

    They lie over a nested axis whose parent a loop has opened, or are computed inside of the block whose element the index names.
    """
    axis = base.type.rows
    parent = low.axes[axis].parent
    if parent:
        message = f"`{base.name}` has a row for each `{axis}`; here only those of one `{parent}` could be read"
        help = f"compute `{base.name}` inside the block, or reduce it outside: `sum({axis}, ...)` has a row for each `{parent}`"
    else:
        message = f"`{base.name}` has a row for each `{axis}` and is computed inside of the block whose element is named here"
        help = f"compute `{base.name}` before the block"
    return low.fail("AMP268", message, span, "", also=[at_(base, shape(base.type))], help=help)


def parted(low: Lowering, frame: Frame, base: Value) -> bool:
    """Tell whether an element of the parent of `base`'s nested axis has been opened since: its rows here would be other ones."""
    parent = low.axes[base.type.rows].parent if base.type.rows in low.axes else ""
    inside = []
    for scope in frame.scope.chain():
        if scope is base.scope:
            break
        inside.append(scope)
    return bool(parent) and any(isinstance(s, RegionScope) and low.net.regions[s.region].axis == parent for s in inside)


def _parent_between(low: Lowering, base: Value, where: Element) -> RegionScope | None:
    """Return the scope over the parent of a nested axis that lies between `base` and the element, if any: its rows are parted there."""
    parent = low.axes[where.axis].parent
    found = None
    for scope in where.scope.chain()[1:]:
        if scope is base.scope:
            return found
        if parent and isinstance(scope, RegionScope) and low.net.regions[scope.region].axis == parent:
            found = scope
    return None


def in_arms(low: Lowering, found: Value, span: Span) -> Value:
    """Return what arrived at all children, at those only whose parent takes the arms that surround this `sum`."""
    home = found.scope
    assert home.outer is not None
    arms = []
    for scope in home.outer.chain():
        if isinstance(scope, RegionScope):
            break
        arms.append(scope)
    for arm in reversed(arms):
        assert isinstance(arm, ArmScope)
        test = arm.fork.test
        assert isinstance(test, Match), "children are met one by one only where their states tell the arm"
        ref = test.ref if test.ref.at is None else FieldRef(test.ref.field, localized(home, test.ref.at))
        node = low.net.add(
            Cond,
            region=home.region,
            inputs=(found.ref,),
            outputs=(found.type,) * arm.fork.ports,
            test=Match(ref, test.cases),
            origin=low.origin(span),
            name=found.name,
        )
        found = dataclasses.replace(found, ref=(node, arm.port))
    return found


def tells(scope: Scope) -> bool:
    """Whether a state alone tells that it is in this arm: its branch looks at a field."""
    return isinstance(scope, ArmScope) and isinstance(scope.fork.test, Match)


def _reached(frame: Frame, where: Element) -> list[ArmScope]:
    """Return the arms around this code, outermost first, that a row may enter before zeros have been put where it is absent.

    The Cond of a branch on a field takes what comes. That of a computed branch waits for a message at every state, also where none comes.
    """
    inside = [s for s in frame.scope.chain() if s.region == where.scope.region and s is not where.scope]
    out: list[ArmScope] = []
    for scope in reversed(inside):
        if not tells(scope):
            break
        assert isinstance(scope, ArmScope)
        out.append(scope)
    return out


def defined(low: Lowering, frame: Frame, found: Value, where: Element, span: Span) -> Value:
    """Return a row that may be absent because its index is none: as it is inside an arm that excludes none, else zeros there."""
    if not where.optional:
        return found
    ref = where.optional[0]
    found = dataclasses.replace(found, present=ref)
    arms = _reached(frame, where)
    if unknown(found.type) or any(s.excludes_none == ref for s in arms):
        return found
    home = arms[-1] if arms else where.scope
    test, unit = Match(ref, ((-1,),)), home.unit()
    cond = low.net.add(Cond, region=home.region, inputs=(unit.ref,), outputs=(unit.type,) * 2, test=test, origin=low.origin(span), name=found.name)
    zeros = low.net.add_fill(home.region, (cond, 0), found.type.cols, low.origin(span), found.name)
    phi = low.net.add(
        Phi, region=home.region, inputs=(zeros, home.bring(found).ref), outputs=(found.type,), test=test, origin=low.origin(span), name=found.name
    )
    return Value(home, (phi, 0), found.type, found.span, found.name)
