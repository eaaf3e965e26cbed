"""Statements in order: assignments, sums into another axis, losses, metrics, outputs; blocks are handed to their modules.

A mistake spoils one statement: its names get values of unknown shape and the next statement is looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ampc.diagnostics import Label
from ampc.frontend import ast
from ampc.ir.nodes import Cond, Coord, Group, Match, Output, Type
from ampc.lower import branches, calls, elements, expressions, indices, loops
from ampc.lower.context import Frame, Lowering, Stop, at
from ampc.lower.emit import npt
from ampc.lower.scope import ArmScope, RegionScope, Scope
from ampc.lower.values import Collected, Element, Result, Value, shape, unknown


def block(low: Lowering, frame: Frame, body: Sequence[ast.Stmt]) -> None:
    """Lower the statements of a block."""
    for s in body:
        try:
            _statement(low, frame, s)
        except Stop:
            for name in _assigned(s):
                frame.names[name.id] = low.nothing(frame.scope, name.span, name.id)


def _statement(low: Lowering, frame: Frame, s: ast.Stmt) -> None:
    match s:
        case ast.Assign():
            _assign(low, frame, s)
        case ast.Accumulate():
            _accumulate(low, frame, s)
        case ast.Loop():
            loops.loop(low, frame, s)
        case ast.Each():
            elements.each(low, frame, s)
        case ast.Visit():
            elements.visit(low, frame, s)
        case ast.Branch():
            branches.branch(low, frame, s)
        case ast.Loss():
            prediction = calls.measure(low, frame, s.call, "loss")
            if prediction is not None:
                low.predictions.append(prediction)
        case ast.Metric():
            calls.measure(low, frame, s.call, "metric", low.metric_names[s.span])
        case ast.Output():
            output(low, s.name, expressions.value(low, frame, s.value))


def _assigned(s: ast.Stmt) -> tuple[ast.Name, ...]:
    match s:
        case ast.Assign():
            return s.targets
        case ast.Loop() | ast.Visit():
            return s.carry
        case ast.Branch():
            return s.merge
        case ast.Accumulate():
            return (s.target,)
        case _:
            return ()


def assign(low: Lowering, frame: Frame, name: ast.Name, result: Result) -> None:
    """Bind a name in this block; a value takes the name as its own."""
    if isinstance(result, Value):
        low.net.rename(result.ref, name.id)
        result = dataclasses.replace(result, span=name.span, name=name.id)
    frame.names[name.id] = result


def _assign(low: Lowering, frame: Frame, s: ast.Assign) -> None:
    if len(s.values) == 1 and isinstance(s.values[0], ast.Call) and len(s.targets) != 1:
        results = calls.call(low, frame, s.values[0])
        if len(results) != len(s.targets):
            name = s.values[0].function.id
            raise low.fail("AMP270", f"`{name}` returns {len(results)} value{'s' * (len(results) != 1)} for {len(s.targets)} names", s.span)
    else:
        results = tuple(_attempt(low, frame, e) for e in s.values)
        if len(results) != len(s.targets):
            raise low.fail("AMP270", f"{len(s.targets)} names for {len(results)} values", s.span)
    for target, result in zip(s.targets, results, strict=True):
        assign(low, frame, target, result)


def _attempt(low: Lowering, frame: Frame, e: ast.Expr) -> Result:
    try:
        return expressions.evaluate(low, frame, e)
    except Stop:
        return low.nothing(frame.scope, e.span)


def output(low: Lowering, name: str, value: Value) -> None:
    """Add an Output where the value is defined."""
    if name in low.outputs:
        raise low.fail(
            "AMP273",
            f"`{name}` is given out twice",
            value.span,
            also=[Label(low.outputs[name].span, "first here")],
            help=f"`output other = {name}` gives it another name",
        )
    low.outputs[name] = value
    if unknown(value.type):
        return
    low.net.add(Output, region=value.scope.region, inputs=(value.ref,), origin=low.origin(value.span), name=name)


# ------------------------------------------------------------------------------------------- sums into another axis


def _accumulate(low: Lowering, frame: Frame, s: ast.Accumulate) -> None:
    """`a[target[e]] += m`: group what arrives at each element, reduce it, and keep it as a value over the axis."""
    where = indices.index(low, frame, s.index)
    if not isinstance(where, Element):
        raise low.fail("AMP258", "a sum goes to one element", s.index.span, help="write it inside `each`: `a[target[e]] += m`")
    home, arms = _home_and_arms(low, frame, where, s)
    x = expressions.value(low, frame, s.value)
    if x.type.rows or x.type.integer:
        raise low.fail("AMP260", f"`{s.target.id}[...]` takes a single row, got {shape(x.type)}", s.value.span, also=[at(x, shape(x.type))])
    outer = home.outer
    assert outer is not None
    holder, before = _before(low, frame, home, where, s)
    if unknown(x.type):
        holder.names[s.target.id] = low.nothing(outer, s.target.span, s.target.id)
        return
    x = _everywhere(low, home, arms, x, s)
    total = _arrived(low, outer, home, where, x, s)
    if before is not None:
        total = npt(low, outer, "add", [before, total], s.span, name=s.target.id)
    holder.names[s.target.id] = dataclasses.replace(total, span=s.target.span, name=s.target.id)


def _home_and_arms(low: Lowering, frame: Frame, where: Element, s: ast.Accumulate) -> tuple[RegionScope, list[ArmScope]]:
    """Return the scope of the `each` around the sum, and the arms of branches between."""
    arms: list[ArmScope] = []
    for scope in frame.scope.chain():
        if scope is where.scope and isinstance(scope, RegionScope) and low.net.regions[scope.region].form in ("each", "visit"):
            return scope, arms
        if not isinstance(scope, ArmScope):
            break
        arms.append(scope)
    raise low.fail(
        "AMP274",
        f"`{s.target.id}[...]` collects from an `each` or `visit` whose variable is in its index, directly or in a branch",
        s.span,
        help="finish inner loops first, then add their result",
    )


def _before(low: Lowering, frame: Frame, home: RegionScope, where: Element, s: ast.Accumulate) -> tuple[Frame, Value | None]:
    """Return the frame outside of the `each`, and what the name holds there already (None if nothing)."""
    holder: Frame | None = frame
    while holder is not None and home in holder.scope.chain():
        inside = holder.names.get(s.target.id)
        if isinstance(inside, Value) and s.target.id in holder.names:
            raise low.fail(
                "AMP274", f"`{s.target.id}` is assigned inside the block and collects from it", s.span, also=[Label(inside.span, "assigned here")]
            )
        holder = holder.outer
    if holder is None:
        raise low.fail(
            "AMP274",
            f"`{s.target.id}` collects outside of a function's own `each`",
            s.span,
            help="return the value and add it up where the `each` is",
        )
    found = holder.find(s.target.id)
    if isinstance(found, Collected):
        found = low.collect(found, s.span)
    if not isinstance(found, Value):
        return holder, None
    if s.target.id not in holder.names and not found.type.rows:
        return holder, None
    if s.reduce != "sum":
        raise low.fail(
            "AMP274",
            f"`{s.target.id}` has a value already, `{s.reduce}=` needs a fresh name",
            s.span,
            also=[Label(found.span, "it gets a value here")],
        )
    if found.type.rows != where.axis and not unknown(found.type):
        raise low.fail(
            "AMP260", f"`{s.target.id}` is {shape(found.type)}, the sum is over `{where.axis}`", s.span, also=[at(found, shape(found.type))]
        )
    return holder, found


def _everywhere(low: Lowering, home: RegionScope, arms: list[ArmScope], x: Value, s: ast.Accumulate) -> Value:
    """Return what each element adds: `x`, or zeros where an arm around the sum isn't taken."""
    for arm in arms:
        if s.reduce != "sum":
            raise low.fail(
                "AMP274",
                f"`{s.reduce}=` can't stand in a branch: what the other arms add isn't said",
                s.span,
                help=f"merge a value after the branch and write `{s.target.id}[...] {s.reduce}= ...` there",
            )
        x = branches.or_zeros(low, arm, x, s.span)
    return home.bring(x)


def _arrived(low: Lowering, outer: Scope, home: RegionScope, where: Element, x: Value, s: ast.Accumulate) -> Value:
    """Return, over the axis of the index, what arrived at each of its elements."""
    net, origin, name = low.net, low.origin(s.span), s.target.id
    ref = x.ref
    if isinstance(where.index, Coord):
        rows = Type(where.axis, x.type.cols)
        inputs = (ref, outer.unit().ref)
        return Value(
            outer, (net.add(Group, region=home.region, inputs=inputs, outputs=(rows,), key=None, origin=origin, name=name), 0), rows, s.span, name
        )
    if where.optional:  # an element that points nowhere adds nothing
        cond = net.add(
            Cond, region=home.region, inputs=(ref,), outputs=(x.type,) * 2, test=Match(where.optional[0], ((-1,),)), origin=origin, name=name
        )
        ref = (cond, 1)
    to = net.element_region(outer.region, where.axis)
    inner = RegionScope(net, to, outer)
    many = Type("*", x.type.cols)
    inputs = (ref, inner.unit().ref)
    group = net.add(Group, region=home.region, inputs=inputs, outputs=(many,), key=where.index, to=to, origin=origin, name=name)
    one = npt(low, inner, "reduce_rows", [Value(inner, (group, 0), many, s.span, name)], s.span, attrs={"reduce": s.reduce}, name=name)
    rows = Type(where.axis, x.type.cols)
    whole = net.add(Group, region=to, inputs=(one.ref, outer.unit().ref), outputs=(rows,), key=None, origin=origin, name=name)
    return Value(outer, (whole, 0), rows, s.span, name)
