"""`base[index]`: fields at an element, rows of values over an axis, what other elements of a visit ended with.

An element is told by the state alone. A row of a value travels: Ungroup sends each row to its element, and from there a Flatmap
sends it to every state whose index names that element. Where an index is none the row is zeros.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.ir.nodes import Cond, Coord, Dependents, FieldRef, Flatmap, Group, Index, Match, Phi, Through, Type, Ungroup
from ampc.ir.scope import PARENT_FIELD
from ampc.lower import expressions
from ampc.lower.context import Frame, Lowering, Stop
from ampc.lower.context import at as at_
from ampc.lower.emit import npt, read
from ampc.lower.scope import ArmScope, ChildScope, RegionScope, Scope, localized
from ampc.lower.values import UNKNOWN, Carry, Collected, Element, FieldValue, Result, Turn, Value, Whole, shape, unknown

NOWHERE = Span("", 0, 0, 0, 0)


def current(frame: Frame) -> Element:
    """Return the element that `sum(child, ...)` is at."""
    assert frame.implicit is not None
    return Element(Coord(frame.implicit.scope.region), frame.implicit.axis, frame.implicit.scope, (), NOWHERE)


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
    optional = _optional(low, found.ref)
    return Element(Through(found.ref.field, found.ref.at), decl.of, _home(frame, found.ref.at), optional, span)


def _optional(low: Lowering, ref: FieldRef) -> tuple[FieldRef, ...]:
    """Return the reference if it, or an index field on its way, may be none."""
    at: Index | None = Through(ref.field, ref.at) if ref.at is not None else None
    while isinstance(at, Through):
        if low.fields[at.field].optional:
            return (ref,)
        at = at.at
    return ()


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
        return _all_rows(low, frame, base, where, e.span)
    return frame.scope.bring(row(low, frame, base, where, e.span))


def _all_rows(low: Lowering, frame: Frame, base: Value, where: Whole, span: Span) -> Value:
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
    return _defined(low, frame, _in_arms(low, found, span) if isinstance(home, ChildScope) else found, where, span)


# --------------------------------------------------------------------------------------- rows of an element's children


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
    opened = _children_at(low, where)
    if opened is None or not _is_outside(base, opened):
        return None
    field = FieldRef(where.index.field) if isinstance(where.index, Through) else None
    axis = low.net.regions[home.region].axis
    return _handed_out(low, _rows_of_children(low, opened, axis, base, field, span), where, span)


def _children_at(low: Lowering, where: Element) -> RegionScope | None:
    """Return the scope of the element whose children the block of `where` goes over, where `where` is such a child or what it names."""
    home = where.scope
    index = where.index.at if isinstance(where.index, Through) else where.index
    if home.outer is None or index != Coord(home.region):
        return None
    return parent_of(low, home.outer, low.net.regions[home.region].axis)


def _handed_out(low: Lowering, rows: Value, where: Element, span: Span) -> Value:
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
    return Element(Through(field.field, own), low.fields[field.field].of, child, _optional(low, ref), NOWHERE)


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
        if parent_of(low, frame.scope, field.axis) is not base.scope:
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
        if _children_at(low, where) is not base.scope:
            raise _too_deep(low, base, where.index.field, e.span)
        rows = _carried_by_children(low, base, low.net.regions[home.region].axis, FieldRef(where.index.field), e.span)
        return frame.scope.bring(_handed_out(low, rows, where, e.span))
    found = _sent(low, base, kind, where, e.span)
    if home is not base.scope:
        found = _in_arms(low, found, e.span)
    return frame.scope.bring(_defined(low, frame, found, where, e.span))


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
    child = child_scope(low, base.scope, base.scope, axis)
    where = child_element(low, child, field)
    found = _defined(low, Frame(child), _sent(low, base, base.source.type, where, span), where, span)
    return stacked(low, base.scope, axis, found, span)


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


def _in_arms(low: Lowering, found: Value, span: Span) -> Value:
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


def _defined(low: Lowering, frame: Frame, found: Value, where: Element, span: Span) -> Value:
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
