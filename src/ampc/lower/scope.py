"""Where code runs while it is lowered: a region and the arms of branches in it, and how values get there from outside.

A value lives in the scope that defines it. `Scope.bring` hands it to an inner scope, once for each boundary on the way: into a
region by a Flatmap to all its states, into an arm by a Cond (one for all arms of the branch), into a `while` loop as one more carried value.
"""

from __future__ import annotations

import dataclasses

from ampc.ir.nodes import NPT, Cond, Coord, Dependents, Enter, FieldRef, First, Flatmap, Index, Isu, Next, Over, Phi, Ref, Test, Through, Type, Within
from ampc.ir.scope import PARENT_FIELD
from ampc.lower.net import Net
from ampc.lower.values import Value

UNIT = Type()


class Scope:
    """The scope of a whole instance; subclasses say how a value enters them."""

    def __init__(self, net: Net, region: int, outer: Scope | None = None) -> None:
        self.net = net
        self.region = region
        self.outer = outer
        self.brought: dict[Ref, Value] = {}
        self.source: Value | None = None

    def bring(self, value: Value) -> Value:
        """Return `value` as it arrives in this scope (itself if it lives here)."""
        if value.scope is self:
            return value
        if value.ref not in self.brought:
            assert self.outer is not None, "a value can't be read outside of the scope that defines it"
            self.brought[value.ref] = self.enter(self.outer.bring(value))
        return self.brought[value.ref]

    def enter(self, value: Value) -> Value:
        """Return `value`, which lives in the scope outside, in this one."""
        raise AssertionError("the root has no outside")

    def unit(self) -> Value:
        """Return a unit message of this scope: one at each of its states."""
        root = self
        while root.outer is not None:
            root = root.outer
        assert root.source is not None
        return self.bring(root.source)

    def chain(self) -> list[Scope]:
        """Return the scopes from this one outwards."""
        out: list[Scope] = [self]
        while out[-1].outer is not None:
            out.append(out[-1].outer)
        return out

    def forget(self, mark: int) -> None:
        """Drop what was brought in by nodes that have been taken back (ids from `mark` on)."""
        self.brought = {ref: v for ref, v in self.brought.items() if v.ref[0] < mark}


class RegionScope(Scope):
    """Inside an each, a visit or a loop of known extent: values arrive at all its states at once."""

    def enter(self, value: Value) -> Value:
        if (shared := self.net.spread.get((value.ref, self.region))) is not None:
            return dataclasses.replace(value, scope=self, ref=shared)
        node = self.net.add(
            Flatmap,
            region=value.scope.region,
            inputs=(value.ref,),
            outputs=(value.type,),
            to=Over(self.region),
            origin=(str(value.span),),
            name=value.name,
        )
        self.net.spread[value.ref, self.region] = (node, 0)
        return dataclasses.replace(value, scope=self, ref=(node, 0))


class ChildScope(RegionScope):
    """All children of all elements of an `each` or a visit, each told its parent's values: inside `sum(child, ...)` at an element.

    The region lies beside that of the parent (`opened`), not inside it, so that what another element ended with can be sent to it.
    """

    def __init__(self, net: Net, region: int, outer: Scope, axis: str, opened: RegionScope) -> None:
        super().__init__(net, region, outer)
        self.axis = axis
        self.opened = opened
        self.parent = Through(axis + PARENT_FIELD, Coord(region))

    def enter(self, value: Value) -> Value:
        node = self.net.add(
            Flatmap,
            region=value.scope.region,
            inputs=(value.ref,),
            outputs=(value.type,),
            to=Dependents(self.region, self.parent),
            origin=(str(value.span),),
            name=value.name,
        )
        return dataclasses.replace(value, scope=self, ref=(node, 0))


@dataclasses.dataclass(slots=True)
class Fork:
    """The Conds of one branch: one for each value that any arm reads, all with the same test."""

    net: Net
    scope: Scope
    test: Test
    ports: int
    decision: Value | None = None
    conds: dict[Ref, int] = dataclasses.field(default_factory=dict)

    def port(self, value: Value, port: int) -> Ref:
        """Return what arm `port` gets of `value`, a value of the scope around the branch."""
        if value.ref not in self.conds:
            ref = value.ref if self.decision is None else gate(self.net, value, self.decision)
            self.conds[value.ref] = self.net.add(
                Cond,
                region=self.scope.region,
                inputs=(ref,),
                outputs=(value.type,) * self.ports,
                test=self.test,
                origin=(str(value.span),),
                name=value.name,
            )
        return (self.conds[value.ref], port)


class ArmScope(Scope):
    """Inside an arm of a branch: the states at which the test picks it."""

    def __init__(self, fork: Fork, port: int, excludes_none: FieldRef | None) -> None:
        super().__init__(fork.net, fork.scope.region, fork.scope)
        self.fork = fork
        self.port = port
        self.excludes_none = excludes_none

    def enter(self, value: Value) -> Value:
        if value.present is not None and value.present == self.excludes_none:  # where it exists, the test always picks this arm
            return dataclasses.replace(value, scope=self, present=None)
        return dataclasses.replace(value, scope=self, ref=self.fork.port(value, self.port))

    def forget(self, mark: int) -> None:
        super().forget(mark)
        self.fork.conds = {ref: node for ref, node in self.fork.conds.items() if node < mark}


class TurnScope(Scope):
    """Inside a `while` loop, before its condition is known: nobody can say how many turns there will be, so that whatever
    comes from outside is carried from turn to turn."""

    def __init__(self, net: Net, region: int, outer: Scope) -> None:
        super().__init__(net, region, outer)
        self.carried: list[tuple[Value, int, int]] = []

    def enter(self, value: Value) -> Value:
        head, phi, cond = carry_in(self, value)
        self.carried.append((head, phi, cond))
        return head

    def forget(self, mark: int) -> None:
        super().forget(mark)
        self.carried = [c for c in self.carried if c[1] < mark]


class DecidedScope(ArmScope):
    """The body of a `while` loop: the turns whose condition held."""


def carry_in(scope: Scope, value: Value) -> tuple[Value, int, int]:
    """Start to carry `value` (of the scope outside) through the loop `scope`: enter, merge with the last turn, test the extent.

    Returns the value in the loop's turns, the Phi whose input 1 is still open, and the Cond whose port 1 leaves.
    """
    net, region, parts = scope.net, scope.region, {"origin": (str(value.span),), "name": value.name}
    entered = net.add(Isu, region=value.scope.region, inputs=(value.ref,), outputs=(value.type,), map=Enter(region), **parts)
    phi = net.add(Phi, region=region, inputs=((entered, 0),), outputs=(value.type,), test=First(region), **parts)
    cond = net.add(Cond, region=region, inputs=((phi, 0),), outputs=(value.type,) * 2, test=Within(region), **parts)
    return dataclasses.replace(value, scope=scope, ref=(cond, 0)), phi, cond


def carry_on(net: Net, region: int, phi: int, value: Value) -> None:
    """Close the circle: `value`, at the end of a turn, is what the Phi merges in the next."""
    step = net.add(Isu, region=region, inputs=(value.ref,), outputs=(value.type,), map=Next(region), origin=(str(value.span),), name=value.name)
    net.feed(phi, 1, (step, 0))


def gate(net: Net, value: Value, decision: Value) -> Ref:
    """Return `value`, held back until `decision` has been computed for its state."""
    return (
        net.add(
            NPT,
            region=value.scope.region,
            inputs=(value.ref, decision.ref),
            outputs=(value.type,),
            op="gate",
            origin=(str(value.span),),
            name=value.name,
        ),
        0,
    )


def localized(scope: Scope, at: Index) -> Index:
    """Return an index as it reads in `scope`: inside `sum(child, ...)` of a visit, the visit's element is the child's parent."""
    match at:
        case Through():
            return Through(at.field, localized(scope, at.at))
        case Coord():
            inner = scope.chain()
            child = next((s for s in inner if isinstance(s, ChildScope) and s.outer is not None and s.outer.region == at.region), None)
            return at if child is None else child.parent
