"""Branches: one Cond for each value that an arm reads, one Phi for each name that is merged.

The test looks at a field, which the state tells, or at an integer that was computed: then each value is held back by a `gate` until
the integer is there. A value that an arm doesn't read isn't sent on; its gradient there is zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ampc.diagnostics import Label, Span
from ampc.frontend import ast
from ampc.ir.nodes import Decided, FieldRef, Match, Phi, Test
from ampc.lower import expressions, statements
from ampc.lower.context import Frame, Lowering, Stop, at
from ampc.lower.emit import fill, npt
from ampc.lower.scope import ArmScope, Fork
from ampc.lower.values import UNKNOWN, Binding, Const, FieldValue, Value, shape, unknown

MOST_ARMS = 1000
NONE = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What a branch looks at: a field or a computed integer, and the values that it may have (None if that isn't known)."""

    what: str
    field: FieldRef | None
    decision: Value | None
    values: tuple[int, ...] | None
    boolean: bool
    index: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """One arm: the values that pick it (None for `else`), its statements, what `as k` stands for in it."""

    values: tuple[int, ...] | None
    body: Sequence[ast.Stmt]
    bound: dict[str, Binding]
    span: Span


def branch(low: Lowering, frame: Frame, s: ast.Branch) -> None:
    """Lower a branch; the merged names are bound in the block around it. Raises Stop."""
    selector = expressions.evaluate(low, frame, s.selector)
    if isinstance(selector, Const):
        return _decided_now(low, frame, s, selector)
    if isinstance(selector, Value) and unknown(selector.type):
        raise Stop
    choice = _choice(low, frame, s, selector)
    arms = _arms(low, s, choice)
    if len(arms) == 1:
        inner = Frame(frame.scope, frame, names=arms[0].bound)
        statements.block(low, inner, arms[0].body)
        return _keep(low, frame, inner, s)
    cases = tuple(arm.values or () for arm in arms[:-1])
    test: Test
    if choice.field is not None:
        test = Match(choice.field, cases)
    else:
        assert choice.decision is not None
        test = Decided(choice.decision.ref[0], cases)
    fork = Fork(low.net, frame.scope, test, len(arms), choice.decision)
    frames = []
    for port, arm in enumerate(arms):
        excludes = choice.field if choice.field is not None and _excludes_none(arms, port) else None
        inner = Frame(ArmScope(fork, port, excludes), frame, names=arm.bound)
        statements.block(low, inner, arm.body)
        frames.append(inner)
    for inner in frames:
        low.hidden |= {name: b.span for name, b in inner.names.items() if isinstance(b, Value)}
    for name in s.merge:
        _merge(low, frame, name, arms, frames, test)


def _excludes_none(arms: Sequence[Arm], port: int) -> bool:
    own = arms[port].values
    if own is not None:
        return NONE not in own
    return any(NONE in (arm.values or ()) for i, arm in enumerate(arms) if i != port)


def or_zeros(low: Lowering, arm: ArmScope, value: Value, span: Span) -> Value:
    """Return `value` of an arm outside of its branch: zeros where another arm is taken."""
    outer = arm.fork.scope
    inputs = []
    for port in range(arm.fork.ports):
        if port == arm.port:
            inputs.append(arm.bring(value).ref)
        else:
            other = ArmScope(arm.fork, port, None)
            inputs.append(fill(low, other, value.type.cols, 0.0, span, value.name).ref)
    node = low.net.add(
        Phi, region=outer.region, inputs=tuple(inputs), outputs=(value.type,), test=arm.fork.test, origin=low.origin(span), name=value.name
    )
    return Value(outer, (node, 0), value.type, value.span, value.name)


# ------------------------------------------------------------------------------------------------------- selector


def _choice(low: Lowering, frame: Frame, s: ast.Branch, selector: object) -> Choice:
    """Return what the branch looks at. Raises Stop."""
    if isinstance(selector, FieldValue):
        return _field_choice(low, s, selector)
    if not isinstance(selector, Value):
        raise low.fail(
            "AMP275",
            "a branch looks at a field or a computed integer",
            s.selector.span,
            help="`branch left[n]:`, `branch kind[b] as k:` or `branch argmax(x) as k:`",
        )
    value = frame.scope.bring(selector)
    if not value.type.integer or value.type.rows:
        raise low.fail(
            "AMP275",
            f"a branch looks at one integer, got {shape(value.type)}",
            s.selector.span,
            also=[at(value, shape(value.type))],
            help="compare it, as in `branch x < 0.5:`, or take `argmax(x)`",
        )
    boolean, count = _origin_of(low, value)
    if (
        value.scope.region != frame.scope.region
        or value.ref[0] < 0
        or low.net.nodes[value.ref[0]].region != frame.scope.region
        or not _computes(low, value)
    ):
        value = npt(low, frame.scope, "gate", [value, value], s.selector.span)
    values = (0, 1) if boolean else None if count is None else _named(s) if count == UNKNOWN else tuple(range(count))
    return Choice("the computed integer", None, value, values, boolean, False)


def _named(s: ast.Branch) -> tuple[int, ...]:
    """Return the values that the arms name: what stands for all of them while the shapes of a visit are still being found."""
    return (0,) if s.variable is not None else tuple(v for arm in s.arms if isinstance(arm.key, tuple) for v in arm.key)


def _computes(low: Lowering, value: Value) -> bool:
    return getattr(low.net.nodes[value.ref[0]], "op", "") not in ("", "gate")


def _origin_of(low: Lowering, value: Value) -> tuple[bool, int | None]:
    """Tell whether an integer is the result of a comparison, and else how many values it may have (None if that isn't known)."""
    ref = value.ref
    while ref[0] >= 0:
        node = low.net.nodes[ref[0]]
        op = getattr(node, "op", "")
        if op == "argmax":
            return False, low.net.type_of(node.inputs[0]).cols
        if op and op != "gate":
            return True, 2
        if isinstance(node, Phi):
            found = {_origin_of(low, dataclasses.replace(value, ref=r)) for r in node.inputs}
            return found.pop() if len(found) == 1 else (False, None)
        ref = node.inputs[0]
    return False, None


def _field_choice(low: Lowering, s: ast.Branch, selector: FieldValue) -> Choice:
    decl = selector.decl
    declared = [Label(f.span, f"`{decl.name}` is declared here") for f in low.model.fields if f.name == decl.name]
    if selector.rows:
        raise low.fail(
            "AMP275",
            f"`{decl.name}` has a value for each `{selector.rows}`",
            s.selector.span,
            also=declared,
            help=f"branch inside `each x in {selector.rows}:` on `{decl.name}[x]`",
        )
    values: tuple[int, ...] | None
    match decl.kind:
        case "flag":
            values = (0, 1)
        case "int":
            values = tuple(range(decl.below)) if 0 < decl.below <= MOST_ARMS * 1000 else None
        case _:
            values = None
            if not decl.optional:
                help = "compare it: `branch x < 0.5:`" if decl.kind == "float" else None
                raise low.fail(
                    "AMP275",
                    f"a branch on `{decl.name}` asks whether it is none, which it never is",
                    s.selector.span,
                    also=declared,
                    help=help or f"declare it `{decl.of}[...] or none`",
                )
    if decl.optional and values is not None:
        values = (NONE, *values)
    return Choice(f"`{decl.name}`", selector.ref, None, values, decl.kind == "flag" and not decl.optional, decl.kind in ("index", "float"))


# ----------------------------------------------------------------------------------------------------------- arms


def _arms(low: Lowering, s: ast.Branch, choice: Choice) -> list[Arm]:
    """Return the arms in the order of the test's ports: the one for all other values last. Raises Stop."""
    if s.variable is not None:
        return _one_for_each(low, s, choice)
    arms: list[Arm] = []
    otherwise: Arm | None = None
    taken: dict[int, Span] = {}
    for arm in s.arms:
        if arm.key == "else":
            if otherwise is not None:
                raise low.fail("AMP276", "a second `else:`", arm.span, also=[Label(otherwise.span, "the first one")])
            otherwise = Arm(None, arm.body, {}, arm.span)
            continue
        values = (NONE,) if arm.key == "none" else tuple(arm.key)
        for v in values:
            assert isinstance(v, int)
            _check_value(low, choice, v, arm.span, taken)
            taken[v] = arm.span
        arms.append(Arm(tuple(v for v in values if isinstance(v, int)), arm.body, {}, arm.span))
    missing = None if choice.values is None else [v for v in choice.values if v not in taken]
    if otherwise is not None:
        return [*arms, otherwise]
    if missing == []:
        return [*arms[:-1], dataclasses.replace(arms[-1])] if arms else arms
    if s.merge:
        left = (
            "other values"
            if missing is None
            else ", ".join("`none`" if v == NONE else f"`{v}`" for v in missing[:5]) + ("" if len(missing) <= 5 else ", ...")
        )
        raise low.fail("AMP276", f"no arm says what `{s.merge[0].id}` is for {left} of {choice.what}", s.span, help="add an `else:` arm")
    return [*arms, Arm(None, (), {}, s.span)]


def _check_value(low: Lowering, choice: Choice, v: int, span: Span, taken: dict[int, Span]) -> None:
    if v in taken:
        raise low.fail("AMP276", f"two arms for `{'none' if v == NONE else v}`", span, also=[Label(taken[v], "the first one")])
    if choice.index and v != NONE:
        raise low.fail("AMP276", f"a branch on {choice.what} has the arms `none:` and `else:`", span)
    if choice.values is not None and v not in choice.values:
        shown = "none" if v == NONE else str(v)
        allowed = (
            "true or false" if choice.boolean else f"{max(0, choice.values[0])} to {choice.values[-1]}{' or none' if NONE in choice.values else ''}"
        )
        raise low.fail("AMP276", f"{choice.what} is never `{shown}`: it is {allowed}", span)


def _one_for_each(low: Lowering, s: ast.Branch, choice: Choice) -> list[Arm]:
    """Return an arm for each value, the same body with `k` standing for the value. Raises Stop."""
    assert s.variable is not None
    if choice.values is None or choice.index:
        help = "declare the field `int[...] < kinds`" if choice.field is not None else "take `argmax(x)`"
        raise low.fail("AMP275", f"`as {s.variable.id}` needs to know how many values {choice.what} has", s.selector.span, help=help)
    if len(choice.values) > MOST_ARMS:
        raise low.fail(
            "AMP275", f"`as {s.variable.id}` would write the block {len(choice.values)} times, at most {MOST_ARMS} is allowed", s.selector.span
        )
    if NONE in choice.values:
        raise low.fail(
            "AMP275", f"{choice.what} may be none, which has no `{s.variable.id}`", s.selector.span, help="branch on `none:` and `else:` first"
        )
    (body,) = (arm.body for arm in s.arms)
    return [Arm((v,), body, {s.variable.id: Const(v, s.variable.span)}, s.span) for v in choice.values]


def _decided_now(low: Lowering, frame: Frame, s: ast.Branch, selector: Const) -> None:
    """Lower the one arm that a constant picks."""
    value = int(selector.value) if float(selector.value).is_integer() else None
    if value is None:
        raise low.fail("AMP275", f"a branch looks at an integer, got `{selector.value}`", s.selector.span)
    if s.variable is not None:
        chosen, bound = s.arms[0], {s.variable.id: Const(value, s.variable.span)}
    else:
        bound = {}
        fitting = [a for a in s.arms if isinstance(a.key, tuple) and value in a.key] or [a for a in s.arms if a.key == "else"]
        if not fitting:
            if s.merge:
                raise low.fail("AMP276", f"no arm for `{value}`", s.span, help="add an `else:` arm")
            return
        chosen = fitting[0]
    inner = Frame(frame.scope, frame, names=bound)
    statements.block(low, inner, chosen.body)
    _keep(low, frame, inner, s)


def _keep(low: Lowering, frame: Frame, inner: Frame, s: ast.Branch) -> None:
    """Bind what the only arm assigned to the merged names."""
    for name in s.merge:
        found = inner.find(name.id)
        if found is None:
            raise low.fail("AMP277", f"`{name.id}` is merged and the arm doesn't assign it", name.span)
        frame.names[name.id] = found


# ---------------------------------------------------------------------------------------------------------- merge


def _merge(low: Lowering, frame: Frame, name: ast.Name, arms: Sequence[Arm], frames: Sequence[Frame], test: Test) -> None:
    """Bind a merged name: whatever the arm that was taken assigned to it."""
    values: list[Value | Const | None] = []
    for arm, inner in zip(arms, frames, strict=True):
        try:
            values.append(_arm_value(low, name, arm, inner))
        except Stop:
            values.append(None)
    known = [v for v in values if isinstance(v, Value) and not unknown(v.type)]
    if any(v is None for v in values):
        frame.names[name.id] = low.nothing(frame.scope, name.span, name.id)
        return
    cols = known[0].type.cols if known else 1
    messages = [
        fill(low, inner.scope, cols, v.value, v.span, name.id) if isinstance(v, Const) else v
        for v, inner in zip(values, frames, strict=True)
        if v is not None
    ]
    kinds = {v.type for v in messages if not unknown(v.type)}
    if len(kinds) > 1:
        first = next(v for v in messages if not unknown(v.type))
        other = next(v for v in messages if not unknown(v.type) and v.type != first.type)
        low.report(
            "AMP278",
            f"the arms give `{name.id}` different shapes, {shape(first.type)} and {shape(other.type)}",
            name.span,
            "merged here",
            also=[Label(v.span, f"{shape(v.type)} here") for v in (first, other)],
            help="make them equal, for example with `pad`",
        )
        frame.names[name.id] = low.nothing(frame.scope, name.span, name.id)
        return
    kind = kinds.pop() if kinds else messages[0].type
    node = low.net.add(
        Phi, region=frame.scope.region, inputs=tuple(v.ref for v in messages), outputs=(kind,), test=test, origin=low.origin(name.span), name=name.id
    )
    frame.names[name.id] = Value(frame.scope, (node, 0), kind, name.span, name.id)


def _arm_value(low: Lowering, name: ast.Name, arm: Arm, inner: Frame) -> Value | Const:
    """Return what an arm leaves in a merged name. Raises Stop."""
    found = inner.find(name.id)
    if found is None and name.id not in low.fields:
        where = "the other values, which have no arm," if arm.values is None and not arm.body else "this arm"
        raise low.fail(
            "AMP277",
            f"`{name.id}` is merged and {where} doesn't assign it",
            name.span,
            "merged here",
            also=[Label(arm.span, "nothing is assigned to it here")],
        )
    result = expressions.name(low, inner, ast.Name(name.id, name.span))
    return result if isinstance(result, Const) else expressions.message(low, inner, result, name.span)
