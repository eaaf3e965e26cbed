"""Routing as trees: where a message that leaves a port goes, followed through Cond, Phi, Isu, Bcast, Flatmap and Ungroup.

One tree serves three uses: sending tokens forward (and copying payloads into the storage of a Phi), gathering gradients, and, walked from the
other end (`answer`), returning backward tokens. `locate` tells where a reader finds its payload.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ampc.codegen.layout import SLOT, Z
from ampc.codegen.plan import PAYLOAD, Plan, Port
from ampc.codegen.states import State, States
from ampc.codegen.text import Text
from ampc.ir.nodes import (
    Bcast, Cond, Coord, Decided, Dealt, Dependents, Enter, First, Flatmap, Group, Index, Isu, Leave, Match, Next, Over, Phi, Ref, Source, Test,
    Through, Ungroup, Within,
)  # fmt: skip
from ampc.ir.scope import chain

# ------------------------------------------------------------------------------------------------ the trees


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An input port of a segment; `state` is that of the message as the port's node sees it."""

    port: Port
    state: State


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several ways, by `tests` (the last way is the rest)."""

    tests: tuple[str, ...]
    ways: tuple[tuple[Tree, ...], ...]


@dataclasses.dataclass(frozen=True)
class Exit:
    """Out of a loop whose number of turns is computed: `turns` is noted for `isu` at `state`, which is outside."""

    isu: int
    state: State
    turns: str
    then: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True)
class Join:
    """Through a Phi: its storage gets a copy of the payload if anyone reads it there."""

    phi: int
    state: State
    then: tuple[Tree, ...]


@dataclasses.dataclass(frozen=True)
class Many:
    """A loop: `opening` is its head, `lines` compute what the states within need."""

    opening: str
    lines: tuple[str, ...]
    then: tuple[Tree, ...]
    row: str = ""
    """For an Ungroup: which row of the payload goes this way."""


Tree = Leaf | Choice | Exit | Join | Many


def walk(trees: tuple[Tree, ...], visit: Callable[[Tree], None]) -> None:
    """Call `visit` for every part of the trees."""
    for tree in trees:
        visit(tree)
        match tree:
            case Choice(ways=ways):
                for way in ways:
                    walk(way, visit)
            case Join(then=then) | Many(then=then) | Exit(then=then):
                walk(then, visit)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a payload lies: a storage key, the index of its state there, and a row (None: all rows)."""

    key: tuple[str | int, ...]
    ref: Ref
    state: State
    more: int = 0
    row: str | None = None


@dataclasses.dataclass(frozen=True)
class Inverse:
    """A loop over the elements that name an element: `variable` from `first` to `last`, `lines` within, the state that they give."""

    variable: str
    first: str
    last: str
    lines: tuple[str, ...]
    state: State


class Routes:
    """Follows messages of `plan` in the words of one function (`states`)."""

    def __init__(self, plan: Plan, states: States) -> None:
        self.plan = plan
        self.graph = plan.graph
        self.states = states
        self.text: Text = states.text
        self.inputs = {port for s in plan.segments for port in s.inputs}

    # ---------------------------------------------------------------------------------------------- forward

    def has_reader(self, ref: Ref) -> bool:
        """Whether a message from `ref` can reach a segment that waits for it."""
        reader = self.graph.readers.get(ref)
        if reader is None:
            return False
        node = self.graph.by_id[reader[0]]
        if isinstance(node, PAYLOAD):
            return reader in self.inputs
        return any(self.has_reader((node.id, p)) for p in range(len(node.outputs)))

    def tree(self, ref: Ref, state: State) -> tuple[Tree, ...]:
        """Return where a message leaving output port `ref` at `state` goes. Ports that nobody waits for give nothing."""
        reader = self.graph.readers.get(ref)
        if reader is None:
            return ()
        node = self.graph.by_id[reader[0]]
        if isinstance(node, PAYLOAD):
            return (Leaf(reader, state),) if reader in self.inputs else ()
        match node:
            case Bcast():
                return tuple(t for p in range(len(node.outputs)) for t in self.tree((node.id, p), state))
            case Cond(test=test):
                ways = tuple(self.tree((node.id, p), state) for p in range(len(node.outputs)))
                return (Choice(self.tests(test, state), ways),) if any(ways) else ()
            case Phi():
                then = self.tree((node.id, 0), state)
                return (Join(node.id, state, then),) if then else ()
            case Isu(map=Enter(region=r)):
                return self.tree((node.id, 0), state.inner(r, "0"))
            case Isu(map=Next(region=r)):
                return self.tree((node.id, 0), state.at(r, f"({state.coords[r]} + 1)"))
            case Isu(map=Leave(region=r)):
                outside = state.outer(self.graph.regions[r].parent)
                then = self.tree((node.id, 0), outside)
                return (Exit(node.id, outside, state.coords[r], then),) if then and self.is_computed(node) else then
            case Flatmap(to=Over(region=r)) | Ungroup(to=r):
                region = self.graph.regions[r]
                v = self.text.name("e")
                then = self.tree((node.id, 0), state.inner(r, v))
                row = v if isinstance(node, Ungroup) else ""
                if row and region.reverse:
                    row = f"({self.states.extent(region, state)} - 1 - {v})"
                return (Many(f"for {v} in range({self.states.extent(region, state)}):", (), then, row),) if then else ()
            case Flatmap(to=Dependents(region=r, at=index)):
                return self._dependents(node, r, index, state)
        raise AssertionError(f"no route through {type(node).__name__}")

    def _dependents(self, node: Flatmap, r: int, index: Index, state: State) -> tuple[Tree, ...]:
        """To every element of region `r` whose index names the element that `state` is at."""
        found = self.inverse(r, index, state)
        then = self.tree((node.id, 0), found.state)
        return (Many(f"for {found.variable} in range({found.first}, {found.last}):", found.lines, then),) if then else ()

    def inverse(self, r: int, index: Index, state: State) -> Inverse:
        """Return how to go over the states of region `r` at which `index` names the element of `state`.

        The lists are made when the engine is bound to data: for each element of the named axis, the elements that name it.
        """
        assert isinstance(index, Through) and isinstance(index.at, Coord), "a verified graph has one field between the two"
        here = self.states.position(Coord(state.region), state)
        decl = self.states.declared(index.field)
        starts = self.text.cell("named_starts", "inverse_starts", index.field)
        listed = self.text.cell("named_list", "inverse_list", index.field)
        v, e = self.text.name("j"), self.text.name("e")
        where = f"{starts} + {self.states.axis_offset(decl.of)} + {here}"
        outer = {q: c for q, c in state.coords.items() if q != state.region}
        lines = [f"{e} = at(XI, {listed} + {v})"]
        region = self.graph.regions[r]
        coords = dict(outer)
        if self.states.nested_in(decl.axis, region.parent) is not None:
            # Elements of a nested axis: the list holds positions in the instance; the parent element and the place within it follow.
            holder = self.states.nested_in(decl.axis, region.parent)
            assert holder is not None
            owner = self.text.cell("owner", "field", f"{decl.axis}.parent")
            parent = self.text.name("p")
            lines.append(f"{parent} = at(XI, {owner} + {self.states.axis_offset(decl.axis)} + {e})")
            coords[holder.id] = parent
            first = self.states.first_row(decl.axis, State(region.parent, coords))
            inner = self.text.name("e")
            lines.append(f"{inner} = {e} + {self.states.axis_offset(decl.axis)} - {first}")
            e = inner
        if region.reverse:
            inner = self.text.name("e")
            lines.append(f"{inner} = {self.states.extent(region, State(region.parent, coords))} - 1 - {e}")
            e = inner
        coords[r] = e
        order = [q.id for q in chain(self.graph, r)]
        return Inverse(v, f"at(XI, {where})", f"at(XI, {where} + 1)", tuple(lines), State(r, {q: coords[q] for q in order}))

    def tests(self, test: Test, state: State) -> tuple[str, ...]:
        """Return one condition for each way but the last."""
        match test:
            case Within(region=r):
                region = self.graph.regions[r]
                return (f"{state.coords[r]} < {self.states.extent(region, state)}",)
            case First(region=r):
                return (f"{state.coords[r]} == 0",)
            case Match(ref=ref, cases=cases):
                return _cases(self.states.integer(ref, state), cases)
            case Decided(by=by, cases=cases):
                place = Place(("v", by, 0), (by, 0), state)
                return _cases(f"int(at(F, {self.address(place)}))", cases)
            case Dealt(count=count):
                slots = self.text.head("slots", "I[SLOT0]")
                return tuple(f"at(I, {slots} + slot * {SLOT} + {Z.COPY.value}) == {i}" for i in range(count - 1))

    # --------------------------------------------------------------------------------------------- backward

    def answer(self, ref: Ref, state: State, reply: Callable[[int, State], None]) -> None:
        """Write what leads a backward token from a reader of `ref` back to the segment that sent the message; `reply` writes the end."""
        node = self.graph.by_id[ref[0]]
        if isinstance(node, (*PAYLOAD, Source)):
            reply(self.plan.segment_of[node.id], state)
            return
        match node:
            case Bcast() | Cond():
                self.answer(node.inputs[0], state, reply)
            case Phi(test=test):
                for i, condition in enumerate((*self.tests(test, state), "")):
                    opening = f"{'el' if i else ''}if {condition}:" if condition else "else:"
                    with self.text.block(opening):
                        self.answer(node.inputs[i], state, reply)
            case Isu(map=Enter(region=r)):
                self.answer(node.inputs[0], state.outer(self.graph.regions[r].parent), reply)
            case Isu(map=Next(region=r)):
                self.answer(node.inputs[0], state.at(r, f"({state.coords[r]} - 1)"), reply)
            case Isu(map=Leave(region=r)):
                self.answer(node.inputs[0], state.inner(r, self.turns(node, r, state)), reply)
            case Flatmap(to=Over(region=r)) | Ungroup(to=r):
                self.answer(node.inputs[0], state.outer(self.graph.regions[r].parent), reply)
            case Flatmap(to=Dependents(at=index)):
                self.answer(node.inputs[0], self.named(node.region, index, state), reply)

    def turns(self, node: Isu, r: int, state: State) -> str:
        """How many turns loop `r` made: its extent, or what was noted when a computed exit was taken."""
        if self.is_computed(node):
            return f"int(at(F, {self.address(self.turns_place(node.id, state))}))"
        return self.states.extent(self.graph.regions[r], state)

    def is_computed(self, leave: Isu) -> bool:
        """Whether a loop's exit is taken at a turn that the state does not tell: not straight from the test against its extent."""
        before = self.graph.by_id[leave.inputs[0][0]]
        return not (isinstance(before, Cond) and isinstance(before.test, Within))

    def turns_place(self, isu: int, state: State) -> Place:
        return Place(("turns", isu), (-1, -1), state)

    def named(self, region: int, index: Index, state: State) -> State:
        """The state of `region` that stands at the element which `index` names at `state`."""
        target = self.graph.regions[region]
        position = self.states.position(index, state)
        coords = {q.id: state.coords[q.id] for q in chain(self.graph, region) if q.id in state.coords and q.id != region}
        if target.reverse:
            position = f"({self.states.extent(target, State(target.parent, coords))} - 1 - {position})"
        return State(region, {**coords, region: position})

    def locate(self, ref: Ref, state: State) -> Place:
        """Return where the payload of a message from `ref`, received at `state`, lies: at a payload port or at a Phi."""
        node = self.graph.by_id[ref[0]]
        if isinstance(node, (*PAYLOAD, Source)):
            return Place(("v", *ref), ref, state)
        match node:
            case Bcast() | Cond():
                return self.locate(node.inputs[0], state)
            case Phi():
                return self.phi_place(node.id, state)
            case Isu(map=Enter(region=r)):
                return self.locate(node.inputs[0], state.outer(self.graph.regions[r].parent))
            case Isu(map=Next(region=r)):
                return self.locate(node.inputs[0], state.at(r, f"({state.coords[r]} - 1)"))
            case Isu(map=Leave(region=r)):
                return self.locate(node.inputs[0], state.inner(r, self.turns(node, r, state)))
            case Flatmap(to=Over(region=r)):
                return self.locate(node.inputs[0], state.outer(self.graph.regions[r].parent))
            case Flatmap(to=Dependents(at=index)):
                return self.locate(node.inputs[0], self.named(node.region, index, state))
            case Ungroup(to=r):
                row, region = state.coords[r], self.graph.regions[r]
                if region.reverse:  # takes the rows from the end
                    row = f"({self.states.extent(region, state)} - 1 - {row})"
                place = self.locate(node.inputs[0], state.outer(self.graph.regions[r].parent))
                return dataclasses.replace(place, row=row)
        raise AssertionError(f"no payload behind {type(node).__name__}")

    def phi_place(self, phi: int, state: State) -> Place:
        """The storage of a Phi; where a loop is entered or left there is one state more than turns, for what has made them all."""
        node = self.graph.by_id[phi]
        assert isinstance(node, Phi)
        return Place(("phi", phi), (phi, 0), state, more=1 if isinstance(node.test, First | Within) else 0)

    def gradient_place(self, port: Port, state: State) -> Place:
        """Where the reader at `port` leaves the gradient of the message that it received at `state`."""
        return Place(("g", *port), self.graph.by_id[port[0]].inputs[port[1]], state)

    def address(self, place: Place) -> str:
        """Text of the offset in F of a place's (first) row. Asks for the storage's place in the layout of shapes."""
        off = self.states.part(self.text.cells.storage(*place.key))
        index = self.states.linear(place.state, place.more)
        if place.key[0] == "turns":
            return f"base + {off} + {index}"
        kind = self.graph.type_of(place.ref)
        width = kind.cols
        if kind.rows and kind.rows != "*":
            stride = self.states.row_stride(kind.rows, place.state.region)
            row = f" + {place.row}" if place.row is not None else ""
            return f"base + {off} + (({index}) * ({stride}){row}) * {width}"
        return f"base + {off} + ({index}) * {width}"

    def group_state(self, group: Group, state: State) -> State:
        """The state at which `group` fires for an element message at `state`."""
        if group.key is None:
            return state.outer(self.graph.regions[group.region].parent)
        return self.named(group.to, group.key, state)


def _cases(value: str, cases: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
    return tuple(" or ".join(f"{value} == {v}" for v in case) or "False" for case in cases)

