"""Loops. Each carried value goes round: Enter, Phi (first turn or a later one), Cond (another turn or out), body, Next.

Over an axis or a range the turns are known when the loop is entered, so that what the body reads from outside is sent to all turns at
once. A `while` loop decides at each turn; there everything that the body reads is carried.
"""

from __future__ import annotations

import dataclasses

from ampc.diagnostics import Label
from ampc.frontend import ast
from ampc.ir.nodes import Coord, Decided, Isu, Leave, Phi, Within
from ampc.lower import expressions, statements
from ampc.lower.context import Frame, Lowering, Stop, at
from ampc.lower.emit import npt
from ampc.lower.scope import DecidedScope, Fork, RegionScope, Scope, TurnScope, carry_in, carry_on
from ampc.lower.values import Const, Element, Turn, Value, shape, unknown

MOST_TURNS = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """A carried name under way: its value before the loop and in the turns, the Phi to close, the Cond that leaves."""

    name: ast.Name
    before: Value
    head: Value
    phi: int
    cond: int


def loop(low: Lowering, frame: Frame, s: ast.Loop) -> None:
    """Lower a loop; the carried names are bound to their values after it. Raises Stop."""
    if s.condition is not None:
        return _while(low, frame, s)
    variable = s.variable.id if s.variable else ""
    if s.axis is not None:
        _want_axis(low, s.axis)
        region = low.net.region(form="loop", parent=frame.scope.region, axis=s.axis.id, reverse=s.reverse, name=variable)
    else:
        assert s.count is not None
        count = expressions.size(low, frame, s.count, "the number of turns", 0, MOST_TURNS)
        region = low.net.region(form="loop", parent=frame.scope.region, count=count, reverse=s.reverse, name=variable)
    scope = RegionScope(low.net, region, frame.scope)
    inner = Frame(scope, frame)
    if s.variable:
        inner.names[variable] = Element(Coord(region), s.axis.id, scope, (), s.variable.span) if s.axis else Turn(variable, scope, s.variable.span)
    carried = [_start(low, frame, scope, name) for name in s.carry]
    for c in carried:
        inner.names[c.name.id] = c.head
    statements.block(low, inner, s.body)
    _hide(low, inner, s)
    for c in carried:
        end = _end(low, inner, c)
        carry_on(low.net, region, c.phi, end)
        leave = low.net.add(
            Isu, region=region, inputs=((c.cond, 1),), outputs=(c.before.type,), map=Leave(region), origin=low.origin(c.name.span), name=c.name.id
        )
        frame.names[c.name.id] = Value(frame.scope, (leave, 0), end.type, c.name.span, c.name.id)


def _want_axis(low: Lowering, axis: ast.Name) -> None:
    if axis.id not in low.axes:
        raise low.fail("AMP257", f"no axis `{axis.id}`", axis.span, help=low.suggest(axis.id, low.axes) or "write `range(n)` for a number of turns")


def _start(low: Lowering, frame: Frame, scope: Scope, name: ast.Name) -> Carried:
    before = _initial(low, frame, name)
    head, phi, cond = carry_in(scope, before)
    return Carried(name, before, dataclasses.replace(head, span=before.span, name=name.id), phi, cond)


def _initial(low: Lowering, frame: Frame, name: ast.Name) -> Value:
    """Return what a carried name holds before the loop."""
    if frame.find(name.id) is None and name.id not in low.fields and name.id not in low.constants:
        low.report(
            "AMP257",
            f"`{name.id}` is carried and has no value before the loop",
            name.span,
            help=f"write `{name.id} = zeros(columns)` before the loop",
        )
        return low.nothing(frame.scope, name.span, name.id)
    value = expressions.value(low, frame, name)
    return dataclasses.replace(value, name=name.id)


def _end(low: Lowering, inner: Frame, c: Carried) -> Value:
    """Return what a carried name holds at the end of a turn; it must be of the shape that it entered with."""
    try:
        end = expressions.message(low, inner, expressions.name(low, inner, c.name), c.name.span)
        region = low.net.regions[inner.scope.region]
        if end.type.rows and end.type.rows == region.axis != c.before.type.rows:
            low.refuse_whole(end, region.axis, region.name, "AMP279")
    except Stop:
        return low.nothing(inner.scope, c.name.span, c.name.id)
    if end.type != c.before.type and not unknown(end.type) and not unknown(c.before.type):
        low.report(
            "AMP279",
            f"`{c.name.id}` enters the loop as {shape(c.before.type)} and ends a turn as {shape(end.type)}",
            c.name.span,
            "carried here",
            also=[Label(c.before.span, f"{shape(c.before.type)} before the loop"), Label(end.span, f"{shape(end.type)} in the loop")],
            help=f"start with `{c.name.id} = zeros({end.type.cols})`" if not end.type.rows and not end.type.integer else None,
        )
    return end


def _hide(low: Lowering, inner: Frame, s: ast.Loop) -> None:
    """Note the names that end with the block, to say so if one is read after it."""
    kept = {n.id for n in s.carry}
    low.hidden |= {name: v.span for name, v in inner.names.items() if isinstance(v, Value) and name not in kept}


# ---------------------------------------------------------------------------------------------------------- while


def _while(low: Lowering, frame: Frame, s: ast.Loop) -> None:
    assert s.condition is not None and s.at_most is not None
    most = expressions.size(low, frame, s.at_most, "the number of turns", 0, MOST_TURNS)
    name = s.variable.id if s.variable else ""
    region = low.net.region(form="loop", parent=frame.scope.region, count=most, name=name or "while")
    turn = TurnScope(low.net, region, frame.scope)
    test = Frame(turn, frame)
    if s.variable:
        test.names[name] = Turn(name, turn, s.variable.span)
    carried = [_start(low, frame, turn, n) for n in s.carry]
    for c in carried:
        test.names[c.name.id] = c.head
    decision = _decision(low, test, s.condition)
    fork = Fork(low.net, turn, Decided(decision.ref[0], ((0,),)), 2, decision)
    body = DecidedScope(fork, 1, None)
    inner = Frame(body, test)
    statements.block(low, inner, s.body)
    _hide(low, inner, s)
    for c in carried:
        carry_on(low.net, region, c.phi, _end(low, inner, c))
        frame.names[c.name.id] = _leave(low, frame, region, fork, c)
    done = 0
    while done < len(turn.carried):  # bringing one of them to the body may make another
        head, phi, _ = turn.carried[done]
        carry_on(low.net, region, phi, body.bring(head))
        done += 1


def _decision(low: Lowering, test: Frame, condition: ast.Expr) -> Value:
    """Return the condition as an integer that is computed at each turn. Raises Stop."""
    result = expressions.evaluate(low, test, condition)
    if isinstance(result, Const):
        raise low.fail(
            "AMP275",
            f"the condition is always {'true' if result.value else 'false'}",
            condition.span,
            help="write `loop t in range(n)` for a fixed number of turns",
        )
    value = expressions.message(low, test, result, condition.span)
    if unknown(value.type):
        raise Stop
    if not value.type.integer or value.type.rows:
        raise low.fail(
            "AMP275",
            f"a condition is one comparison, got {shape(value.type)}",
            condition.span,
            also=[at(value, shape(value.type))],
            help="compare it with a number: `halt(h) < 0.9`",
        )
    if getattr(low.net.nodes[value.ref[0]], "op", "") in ("", "gate") or low.net.nodes[value.ref[0]].region != test.scope.region:
        value = npt(low, test.scope, "gate", [value, value], condition.span)
    return value


def _leave(low: Lowering, frame: Frame, region: int, fork: Fork, c: Carried) -> Value:
    """Return a carried value after a `while` loop: it leaves because the condition failed, or because the turns were used up."""
    kind, origin, name = c.before.type, low.origin(c.name.span), c.name.id
    failed = fork.port(c.head, 0)
    phi = low.net.add(Phi, region=region, inputs=(failed, (c.cond, 1)), outputs=(kind,), test=Within(region), origin=origin, name=name)
    leave = low.net.add(Isu, region=region, inputs=((phi, 0),), outputs=(kind,), map=Leave(region), origin=origin, name=name)
    return Value(frame.scope, (leave, 0), kind, c.name.span, name)
