"""States as text: coordinates of a token, extents of regions, linear indices, and positions in the data.

Everything is said in local variables of one loop over tokens: `slot`, `idx`, `inst` (instance), `base` (its arena), `c<region>` coordinates,
`n<axis>` and `o<axis>` (elements of the instance on an axis, and where they begin in the flat data).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ampc.codegen.layout import SLOT, A, Z
from ampc.codegen.own import AXIS, FIELD, PART, REGION, own
from ampc.codegen.plan import Segment
from ampc.codegen.text import Line, Text
from ampc.ir.graph import FieldDecl, Graph
from ampc.ir.nodes import Coord, FieldRef, Index, Region, Through
from ampc.ir.scope import TURN_FIELD, chain, declaration


@dataclasses.dataclass(frozen=True)
class State:
    """A state of `region` in text: one expression for each region of its chain, outermost first."""

    region: int
    coords: Mapping[int, str]

    def inner(self, region: int, coord: str) -> State:
        return State(region, {**self.coords, region: coord})

    def outer(self, parent: int) -> State:
        return State(parent, {r: c for r, c in self.coords.items() if r != self.region})

    def at(self, region: int, coord: str) -> State:
        """The same state with another coordinate of `region`."""
        return State(self.region, {**self.coords, region: coord})


class States:
    """Text about states within one function. Open a loop with `tokens` before asking for anything."""

    def __init__(self, graph: Graph, text: Text) -> None:
        self.graph = graph
        self.text = text
        self.axis_number = {a.name: own(AXIS, k) for k, a in enumerate(graph.axes)}
        self.axis_parent = {a.name: a.parent for a in graph.axes}
        self._prelude: dict[str, str] = {}
        self.prelude: list[Line] = []
        """The lines with which the last loop over tokens began."""

    @contextmanager
    def tokens(self, region: int) -> Iterator[State]:
        """A loop `for i in range(n)` over the tokens taken; yields the token's state."""
        t = self.text
        block = t.head("W", "I[WORK0] + w * I[WORK_STRIDE]")
        t.head("cap", "I[CAP]")
        with t.block("for i in range(n):"):
            t.line(f"slot = at(I, {block} + i)")
            t.line(f"idx = at(I, {block} + cap + i)")
            t.line(f"inst = at(I, {block} + 2 * cap + i)")
            t.line(f"base = at(I, {block} + 3 * cap + i)")
            mark, self._prelude = len(t.lines), {}
            yield self._decode(region)
            t.lines[mark:mark] = [Line(t.depth, f"{k} = {v}") for k, v in self._prelude.items()]
            self.prelude = t.lines[mark - 4 : mark + len(self._prelude)]

    def _decode(self, region: int) -> State:
        regions = chain(self.graph, region)
        coords: dict[int, str] = {}
        rest = "idx"
        for r in reversed(regions):
            name = f"c{own(REGION, r.id)}"
            if r is regions[0]:
                self._prelude[name] = rest
            else:
                stride = self.stride(r)
                self._prelude[name] = f"{rest} % {stride}"
                quotient = f"q{own(REGION, r.id)}"
                self._prelude[quotient] = f"{rest} // {stride}"
                rest = quotient
            coords[r.id] = name
        return State(region, {r.id: coords[r.id] for r in regions})

    def part(self, number: int) -> str:
        """A local with word `number` of the layout of the token's instance."""
        slots = self.text.head("slots", "I[SLOT0]")
        self._prelude.setdefault("lay", f"at(I, {slots} + slot * {SLOT} + {Z.LAYOUT.value})")
        word = own(PART, number)
        self._prelude.setdefault(f"part{word}", f"at(I, lay + {word})")
        return f"part{word}"

    def counters(self, segment: Segment) -> str:
        """Where the counters of the token's state in `segment` are in I."""
        begin = self.part(A.PARTS + segment.id)
        return f"at(I, {self.text.head('slots', 'I[SLOT0]')} + slot * {SLOT} + {Z.COUNTERS.value}) + {begin} + idx * {2 + len(segment.layers)}"

    # ------------------------------------------------------------------------------------------------- axes

    def axis_length(self, axis: str) -> str:
        """Elements that the instance has on `axis` (all of them, for a nested one)."""
        k = self.axis_number[axis]
        start = self.axis_offset(axis)
        where = self.text.cell(f"axis{k}", "axis", axis)
        self._prelude.setdefault(f"n{k}", f"at(XI, {where} + inst + 1) - {start}")
        return f"n{k}"

    def axis_offset(self, axis: str) -> str:
        """Where the instance's elements begin in the flat columns."""
        k = self.axis_number[axis]
        where = self.text.cell(f"axis{k}", "axis", axis)
        self._prelude.setdefault(f"o{k}", f"at(XI, {where} + inst)")
        return f"o{k}"

    def opener(self, axis: str, region: int) -> Region | None:
        """The innermost region of the chain that stands at an element of `axis`, if any."""
        found = [r for r in chain(self.graph, region) if r.axis == axis]
        return found[-1] if found else None

    def nested_in(self, axis: str, region: int) -> Region | None:
        """For a nested axis, the region of the chain that stands at an element of its parent."""
        parent = self.axis_parent[axis]
        return self.opener(parent, region) if parent else None

    def rows(self, axis: str, state: State) -> str:
        """How many rows a payload over `axis` has at `state`: of the open parent element, or of the whole instance."""
        if self.nested_in(axis, state.region) is None:
            return self.axis_length(axis)
        return f"(at(XI, {self._child(axis, state)} + 1) - at(XI, {self._child(axis, state)}))"

    def first_row(self, axis: str, state: State) -> str:
        """The flat position of the first of those rows."""
        if self.nested_in(axis, state.region) is None:
            return self.axis_offset(axis)
        return f"at(XI, {self._child(axis, state)})"

    def _child(self, axis: str, state: State) -> str:
        holder = self.nested_in(axis, state.region)
        assert holder is not None
        starts = self.text.cell(f"starts{self.axis_number[axis]}", "starts", axis)
        return f"{starts} + {self.axis_offset(holder.axis)} + {self.position(Coord(holder.id), state)}"

    def row_stride(self, axis: str, region: int) -> str:
        """Rows set aside in an arena for a payload over `axis` at one state of `region`."""
        if self.nested_in(axis, region) is None:
            return self.axis_length(axis)
        return self.text.cell(f"most{self.axis_number[axis]}", "most", axis)

    # ---------------------------------------------------------------------------------------------- regions

    def extent(self, region: Region, state: State) -> str:
        """How many states of `region` a state of its parent has (`state` may be of either)."""
        if not region.axis:
            return str(region.count)
        return self.rows(region.axis, State(region.parent, state.coords))

    def stride(self, region: Region) -> str:
        """Room for states of `region` for each state of its parent: the extent, or the greatest one for the children of an element."""
        if not region.axis:
            return str(region.count)
        return self.row_stride(region.axis, region.parent)

    def linear(self, state: State, more: int = 0) -> str:
        """The linear index of a state; `more` is added to the stride of the innermost region (a loop's Phi has one state more)."""
        code = ""
        regions = chain(self.graph, state.region)
        for r in regions:
            c = state.coords[r.id]
            if not code:
                code = c
                continue
            stride = self.stride(r) + (f" + {more}" if more and r is regions[-1] else "")
            code = f"({code}) * ({stride}) + {c}"
        return code or "0"

    # ------------------------------------------------------------------------------------------------- data

    def position(self, index: Index, state: State) -> str:
        """Position within the instance's axis of the element that `index` names; -1 is none."""
        match index:
            case Coord(region=r):
                region = self.graph.regions[r]
                c = state.coords[r]
                if region.reverse:
                    c = f"({self.extent(region, state)} - 1 - {c})"
                if region.axis and self.nested_in(region.axis, region.parent) is not None:
                    return f"({self.first_row(region.axis, State(region.parent, state.coords))} - {self.axis_offset(region.axis)} + {c})"
                return c
            case Through(field=name, at=inner):
                decl = self.declared(name)
                at = self.position(inner, state)
                value = f"at(XI, {self.field(name)} + {self.axis_offset(decl.axis)} + {at})"
                return f"({value} if {at} >= 0 else -1)" if self.may_be_none(inner) else value

    def may_be_none(self, index: Index | None) -> bool:
        """Whether an index can name no element."""
        return isinstance(index, Through) and (self.declared(index.field).optional or self.may_be_none(index.at))

    def declared(self, name: str) -> FieldDecl:
        found = declaration(self.graph, name)
        assert found is not None, "a verified graph names only declared fields"
        return found

    def field(self, name: str) -> str:
        """A local with the place of field `name` in XI or XF. The name itself never becomes code."""
        number = next((k for k, f in enumerate(self.graph.fields) if f.name == name), len(self.graph.fields))
        return self.text.cell(f"field{own(FIELD, number)}", "field", name)

    def flat(self, ref: FieldRef, state: State) -> str:
        """The flat position of the (first) value that `ref` names at `state`."""
        decl = self.declared(ref.field)
        if not decl.axis:
            return "inst"
        if ref.at is None:
            return self.first_row(decl.axis, state)
        return f"{self.axis_offset(decl.axis)} + {self.position(ref.at, state)}"

    def integer(self, ref: FieldRef, state: State) -> str:
        """What a test sees of a field at one element: an integer's value, 0 for a float that is there, -1 for none."""
        if ref.field == TURN_FIELD:
            assert isinstance(ref.at, Coord)
            return self.position(ref.at, state)
        decl = self.declared(ref.field)
        flat = self.flat(ref, state)
        if decl.kind == "float":
            places = [f"at(XF, {self.field(ref.field)} + ({flat}) * {decl.columns} + {k})" for k in range(decl.columns)]
            value = f"(0 if {' and '.join(f'{p} == {p}' for p in places)} else -1)"
        else:
            value = f"at(XI, {self.field(ref.field)} + {flat})"
        if ref.at is not None and self.may_be_none(ref.at):
            return f"({value} if {self.position(ref.at, state)} >= 0 else -1)"
        return value
