"""What the two functions of a segment share: its buffers, row tables, operands, and the gathering of payloads from arenas."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from ampc.codegen.fuse import fuse
from ampc.codegen.layout import Cells, Key
from ampc.codegen.loops import Buffer, Load, Loop, Move, Space, Step, Store, Value, renamed
from ampc.codegen.own import CELL, LAYER, SEGMENT, own
from ampc.codegen.plan import Plan, Segment, is_direct, layer_names, readers_of
from ampc.codegen.routes import Join, Place, Routes
from ampc.codegen.scratch import share
from ampc.codegen.states import State, States
from ampc.codegen.text import Line, Text
from ampc.ir.nodes import NPT, PPT, AnyNode, Concat, FieldRef, Group, Ref, Type
from ampc.place.work import FOLD_ROWS, begins_with_zeros, is_zero, pad_behind

@dataclasses.dataclass(frozen=True, slots=True)
class Fold:
    """An embedding whose rows are columns `start` and on of what a Linear reads: kept as their product, see `layout.T`."""

    table: str
    linear: str
    start: int
    rows: int
    inner: int
    cols: int
    bias: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """What a `linear_by` node takes over: a gather whose result it alone reads, and a sum by index that alone reads its own."""

    gather: NPT | None
    scatter: NPT | None


@dataclasses.dataclass
class Shared:
    """What the texts of all segments have in common: the plan, the cells, and which storages somebody reads."""

    plan: Plan
    cells: Cells
    read: set[Key] = dataclasses.field(default_factory=set)
    """Storages that must be written whenever a segment fires."""
    saved: set[Key] = dataclasses.field(default_factory=set)
    """Storages that only backward reads."""
    folds: dict[tuple[str, str, int], Fold] = dataclasses.field(default_factory=dict)
    folding: bool = True
    alone: bool = False
    """There is no way back: what runs keeps nothing for it, answers nothing, and an instance is on one worker from the Source on."""

    @cached_property
    def uses(self) -> Counter[str]:
        """How many nodes use a layer."""
        return Counter(name for s in self.plan.segments for n in s.nodes if isinstance(n, PPT) for name in layer_names(n))

    @property
    def layer_number(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.plan.layers)}


class Firing:
    """The text of one function of a segment. `direction` is 0 forward, 1 backward."""

    def __init__(self, shared: Shared, segment: Segment, direction: int) -> None:
        self.shared = shared
        self.plan = shared.plan
        self.graph = shared.plan.graph
        self.segment = segment
        self.direction = direction
        self.text = Text(shared.cells)
        self.states = States(self.graph, self.text)
        self.routes = Routes(self.plan, self.states)
        self.inside = {n.id for n in segment.nodes}
        ports = [(self.graph.by_id[i], p) for i, p in segment.inputs]
        self.readers = {is_direct(self.graph, n.inputs[p]): (n.id, p) for n, p in ports if not isinstance(n, Group)}
        """Value from outside -> the input port that it arrives at."""
        self.values: dict[Ref | tuple[str, int, int], Buffer] = {}
        self.buffers = 0
        self.made: dict[str, Buffer] = {}
        self.packed: dict[Buffer, Buffer] = {}
        """Some columns of a buffer -> a buffer of their own, for kernels that want one."""
        self.loaded: dict[tuple[object, ...], str] = {}
        """Integer field and space (and the space that it names rows of) -> where its values lie."""
        self.spaces: dict[Space, str] = {}
        self.joined = {n.id: c for n in segment.nodes for c in [self._concat_of(n)] if c is not None}
        """Linear node -> the Concat that it alone reads: its parts are multiplied one by one, and never joined."""
        self.absorbed: dict[int, Fold] = {}
        """Lookup node -> its fold with the Linear."""
        for linear, concat in self.joined.items():
            self._find_folds(linear, concat)
        self.families = {n.id: self._family(n) for n in segment.nodes if isinstance(n, PPT) and n.op == "linear_by"}
        self.skipped = {c.id for c in self.joined.values()} | set(self.absorbed)
        self.skipped |= {f.gather.id for f in self.families.values() if f.gather is not None}
        self.skipped |= {n.id for n in segment.nodes if isinstance(n, NPT) and n.op in ("pad", "fill") and self._only_multiplied(n)}

    def _concat_of(self, node: AnyNode) -> Concat | None:
        if not isinstance(node, PPT) or node.op != "linear":
            return None
        concat = self.graph.by_id[node.inputs[0][0]]
        if not isinstance(concat, Concat) or concat.id not in self.inside or len({self.kind(concat, p).rows for p in range(len(concat.inputs))}) > 1:
            return None
        return concat

    def multiplied(self, node: AnyNode, port: int) -> tuple[AnyNode, int]:
        """Return the input with the columns of an operand that a Linear multiplies: those before the zeros of a padded one."""
        pad = pad_behind(self.graph, node, port, self.inside)
        return (node, port) if pad is None else (pad, 0)

    def zero(self, node: AnyNode, port: int) -> bool:
        """Whether an operand is zeros, which a Linear leaves out."""
        return is_zero(self.graph.by_id[node.inputs[port][0]], self.inside)

    def rows_multiplied(self, node: AnyNode, port: int, space: Space) -> tuple[str, bool]:
        """Return a local with how many rows of an operand a Linear multiplies, the first ones, and whether there may be others, which are zeros.

        Those are the rows of tokens at turn 0 of a loop that carries zeros into it: the firing begins by putting these tokens last.
        """
        if not begins_with_zeros(self.graph, node, port):
            return self.space(space), False
        later = self.text.head("later", "zeros_last(I, w, n)")
        return (f"at(I, {self.table(space)} + {later})" if space else later), True

    def _only_multiplied(self, made: NPT) -> bool:
        """Whether Linears alone read a padded value, or zeros, so that it need not be made."""
        readers = [self.graph.by_id[i] for i in readers_of(self.graph, (made.id, 0))]
        if made.op == "fill":
            return is_zero(made, self.inside) and len(readers) == 1 and self._leaves_out(readers[0])
        through = {c.id for c in self.joined.values()} | {f.gather.id for f in self.families.values() if f.gather is not None}
        linears = {n.id for n in self.segment.nodes if isinstance(n, PPT) and n.op in ("linear", "linear_part", "linear_by")}
        return all(n.id in through | linears for n in readers)

    def _leaves_out(self, node: AnyNode) -> bool:
        return node.id in {c.id for c in self.joined.values()} or (isinstance(node, PPT) and node.op == "linear" and node.id in self.inside)

    def _family(self, node: PPT) -> Family:
        before = self.graph.by_id[node.inputs[0][0]]
        gather = before if isinstance(before, NPT) and before.op == "gather" and before.id in self.inside else None
        after = self.graph.by_id.get(self.graph.readers.get((node.id, 0), (-1, 0))[0])
        summed = isinstance(after, NPT) and after.op == "scatter" and after.attrs["reduce"] == "sum" and after.id in self.inside
        # Sums of one column have a kernel of their own, which keeps more digits.
        return Family(gather, after if summed and node.outputs[0].cols > 1 else None)  # type: ignore[arg-type]

    def _find_folds(self, linear: int, concat: Concat) -> None:
        node = self.graph.by_id[linear]
        assert isinstance(node, PPT)
        start, bias = 0, any(p.name == "b" for p in self.graph.layer[node.layer].params)
        for port, ref in enumerate(concat.inputs):
            lookup = self.graph.by_id[ref[0]]
            cols = self.kind(concat, port).cols
            if isinstance(lookup, PPT) and lookup.op == "lookup" and lookup.id in self.inside:
                rows = self.graph.layer[lookup.layer].params[0].shape[0]
                if rows <= FOLD_ROWS and self.shared.folding:
                    key = (lookup.layer, node.layer, start)
                    fold = self.shared.folds.setdefault(key, Fold(*key, rows, cols, node.outputs[0].cols, bias))
                    self.absorbed[lookup.id] = fold
                    bias = False
            start += cols

    # ---------------------------------------------------------------------------------------------- storage

    def space(self, space: Space) -> str:
        """Return a local with the total number of rows of a space; its row table is written where it is first asked for."""
        if not space:
            return "n"
        if space not in self.spaces:
            k = len(self.spaces)
            table = self.ints("", f"starts{k}", extra=1)
            self.spaces[space] = f"m{k}"
            with self.outermost():
                self.text.line(f"m{k} = 0")
                with self.states.tokens(self.segment.region) as state:
                    self.text.line(f"put(I, {table} + i, m{k})")
                    self.text.line(f"m{k} += {self.row_count(space, state)}")
                self.text.line(f"put(I, {table} + n, m{k})")
        return self.spaces[space]

    @contextmanager
    def outermost(self) -> Iterator[None]:
        """Text that must not stand within a loop over tokens."""
        assert not self.looping, "row tables are made before the loop that needs them"
        yield

    looping = False

    @contextmanager
    def tokens(self) -> Iterator[State]:
        self.looping = True
        with self.states.tokens(self.segment.region) as state:
            yield state
        self.looping = False

    def table(self, space: Space) -> str:
        """Return a local with the place in I of the space's row starts."""
        self.space(space)
        return f"starts{list(self.spaces).index(space)}"

    def row_count(self, space: Space, state: State) -> str:
        """Rows of a space at one token."""
        if space.startswith("*"):
            group = self.graph.by_id[int(space[1:])]
            assert isinstance(group, Group)
            return self.members(group, state)
        return self.states.rows(space, state)

    def members(self, group: Group, state: State) -> str:
        """How many messages a Group collects for `state`, at which it fires."""
        if group.key is None:
            return self.states.extent(self.graph.regions[group.region], state)
        found = self.routes.inverse(group.region, group.key, state)
        return f"({found.last} - {found.first})"

    def first(self, space: Space) -> str:
        """Row of the buffer at which token i begins."""
        return f"at(I, {self.table(space)} + i)" if space else "i"

    def count(self, space: Space) -> str:
        """Rows that token i has in the buffer."""
        return f"(at(I, {self.table(space)} + i + 1) - at(I, {self.table(space)} + i))" if space else "1"

    def buffer(self, cols: int, space: Space) -> Buffer:
        self.space(space)
        made = Buffer(f"b{self.buffers}", cols, space)
        self.buffers += 1
        self.made[made.name] = made
        return made

    def each(self, space: Space, cols: int, operands: Mapping[str, Buffer], results: Sequence[tuple[Buffer, str, int]]) -> None:
        """Write a loop over the numbers of [rows of `space`, cols]. operands: name in texts -> where it is read.

        results: (where a number goes, its text, whether it is added to what is there). A buffer of one column is one number a row.
        """
        names = {name: self.text.name("v") for name in operands}
        steps: list[Step] = [Load(names[name], b) for name, b in operands.items()]
        for target, text, more in results:
            value = f"np.float32({renamed(text, names)})"
            if more:
                old = self.text.name("v")
                steps.append(Load(old, target))
                value = f"{old} + {value}"
            made = self.text.name("v")
            steps += [Value(made, value), Store(target, made)]
        self.text.lines.append(Loop(self.text.depth, self.space(space), space, cols, steps))

    def dense(self, value: Buffer) -> Buffer:
        """Return the value in a buffer of its own width."""
        if value.dense:
            return value
        if value not in self.packed:
            self.packed[value] = packed = self.buffer(value.cols, value.space)
            self.each(value.space, value.cols, {"x": value}, [(packed, "x", 0)])
        return self.packed[value]

    def render(self) -> str:
        """Return the function's body: its loops fused, its buffers placed. Its numbers are marks (see `own`)."""
        lines, places = share(fuse(self.text.lines), self.made, 1 + self.direction)
        if places:
            scratch = self.text.head("scratch", "I[SCRATCH0] + w * I[SCRATCH_STRIDE]")
            for k, (place, (cols, space)) in enumerate(places.items()):
                index = self.shared.cells("buf", self.segment.id, self.direction, k, cols, space)
                self.text.head(place, f"{scratch} + I[{own(CELL, index)}]")
        return self.text.render(lines)

    def ints(self, space: Space, name: str = "", extra: int = 0, times: int = 0) -> str:
        """Return a local with the place in I of a block of integers, one a row of `space` (none if it is "#") and `extra` more.

        `times`: instead so many for each row and one more row.
        """
        block = self.text.head("W", "I[WORK0] + w * I[WORK_STRIDE]")
        k = self.buffers
        self.buffers += 1
        index = self.shared.cells("table" if times else "ints", self.segment.id, self.direction, k, times or extra, space)
        return self.text.head(name or f"ids{k}", f"{block} + I[{own(CELL, index)}]")

    @property
    def gemm_words(self) -> str:
        block = self.text.head("W", "I[WORK0] + w * I[WORK_STRIDE]")
        cap = self.text.head("cap", "I[CAP]")
        return self.text.head("words", f"{block} + 4 * {cap}")

    def version_word(self, layer: str) -> int:
        """Which of a state's counters holds the version of a layer of this segment."""
        return 2 + self.segment.layers.index(layer)

    def parameter(self, layer: str, name: str, gradient: bool = False) -> str:
        """Return a local with the place in F of a parameter or of its gradient's accumulator; "-1" if the layer has none of that name."""
        if not any(p.name == name for p in self.graph.layer[layer].params):
            return "-1"
        k = own(LAYER, self.shared.layer_number[layer])
        if gradient or not self.direction:
            return self.text.cell(f"{'grad' if gradient else 'param'}{k}_{name}", "grad" if gradient else "par", layer, name)
        # Backward may have to use the parameters of its forward.
        start = self.text.head(f"weights{k}", f"weights_at(I, w, {k}, {own(SEGMENT, self.segment.id)}, {self.version_word(layer)})")
        offset = 0
        for p in self.graph.layer[layer].params:
            if p.name == name:
                break
            offset += math.prod(p.shape)
        return self.text.head(f"param{k}_{name}", f"{start} + {offset}")

    # --------------------------------------------------------------------------------------------- operands

    def source(self, node: AnyNode, port: int) -> Ref | tuple[str, int, int]:
        """Return the key of an input's value: the internal port that feeds it, or ("in", node, port) of the first that reads it here."""
        if isinstance(node, Group):
            return ("in", node.id, port)
        direct = is_direct(self.graph, node.inputs[port])
        return direct if direct[0] in self.inside else ("in", *self.readers.get(direct, (node.id, port)))

    def kind(self, node: AnyNode, port: int) -> Type:
        return self.graph.type_of(node.inputs[port])

    def operand(self, node: AnyNode, port: int) -> Buffer:
        """Return the buffer with an input's payload."""
        return self.dense(self.view(node, port))

    def view(self, node: AnyNode, port: int) -> Buffer:
        """Return an input's payload, which may be some columns of a buffer."""
        return self.value(self.source(node, port))

    def value(self, key: Ref | tuple[str, int, int]) -> Buffer:
        if key not in self.values:
            self.values[key] = self.missing(key)
        return self.values[key]

    def spread(self, value: Buffer, space: Space) -> Buffer:
        """Return the value with a row for each row of `space`."""
        if value.space == space:
            return value
        assert not value.space, "only single rows are repeated"
        value = self.dense(value)
        target = self.buffer(value.cols, space)
        self.text.line(f"expand(F, I, {target.name}, {value.name}, {self.table(space)}, n, {value.cols})")
        return target

    def views(self, node: AnyNode) -> list[Buffer]:
        """Return the message operands, repeated over rows where another one has them; each may be some columns of a buffer."""
        found = [self.view(node, p) for p in range(len(node.inputs))]
        space = next((x.space for x in found if x.space), "")
        return [self.spread(x, space) for x in found]

    def missing(self, key: Ref | tuple[str, int, int]) -> Buffer:
        """Make a value that is not in scratch yet."""
        assert len(key) == 3, "forward computes its values in order"
        return self.gather_input(key[1], key[2])

    def gather_input(self, node_id: int, port: int) -> Buffer:
        """Copy the payloads that one input port receives into scratch."""
        node = self.graph.by_id[node_id]
        kind = self.graph.type_of(node.inputs[port])
        space = self.space_of_type(kind, node)
        target = self.buffer(kind.cols, space)
        with self.moving(target) as state:
            place = self.routes.locate(node.inputs[port], state)
            self.shared.read.add(place.key)
            self.copy_in(target, self.routes.address(place))
        return target

    @contextmanager
    def moving(self, buffer: Buffer, out: bool = False, when: str = "") -> Iterator[State]:
        """A loop over tokens that only copies rows between arenas and a buffer, so that a loop over its numbers can take them over."""
        self.space(buffer.space)
        start = len(self.text.lines)
        with self.tokens() as state:
            yield state
        prelude, lines = self.states.prelude, self.text.lines[start:]
        depth = self.text.depth
        body = [Line(line.depth - depth - 1, line.text) for line in lines[1 + len(prelude) :]]
        first, count = self.first(buffer.space), self.count(buffer.space)
        self.text.lines[start:] = [Move(depth, buffer, [line.text for line in prelude], body, out, first, count, when)]

    def space_of_type(self, kind: Type, node: AnyNode) -> Space:
        assert kind.rows != "*", "members of a Group are reduced where they are collected"
        return kind.rows

    def copy_in(self, target: Buffer, address: str) -> None:
        """Within a loop over tokens: copy token i's rows from the arena into a buffer."""
        to = f"{target.name} + {self.first(target.space)} * {target.cols}"
        self.text.line(f"copy(F, {to}, F, {address}, {self.size(target)})")

    def copy_out(self, value: Buffer, address: str) -> None:
        """Within a loop over tokens: copy token i's rows from a buffer (not from some of its columns) into the arena."""
        frm = f"{value.name} + {self.first(value.space)} * {value.cols}"
        self.text.line(f"copy(F, {address}, F, {frm}, {self.size(value)})")

    def size(self, value: Buffer) -> str:
        return f"{self.count(value.space)} * {value.cols}" if value.space else str(value.cols)

    def stored(self, ref: Ref, state: State) -> Place:
        """Where a value of this segment stays in the arena: with the Phi that it surely goes to, else in a storage of its own."""
        for tree in self.routes.tree(ref, state):
            if isinstance(tree, Join) and ("phi", tree.phi) in self.shared.read:
                return self.routes.phi_place(tree.phi, tree.state)
        return Place(("v", *ref), ref, state)

    def integers(self, node: AnyNode, ref: FieldRef, space: Space) -> str:
        """Return a local with the place in I of an integer field's values, one a row of `space`; they are loaded once in a firing."""
        if (ref, space) in self.loaded:
            return self.loaded[ref, space]
        ids = self.loaded[ref, space] = self.ints(space)
        first = self.first(space)
        with self.tokens() as state:
            if space:
                field, flat = self.states.field(ref.field), self.states.flat(ref, state)
                with self.text.block(f"for r in range({self.count(space)}):"):
                    self.text.line(f"put(I, {ids} + {first} + r, at(XI, {field} + {flat} + r))")
            else:
                self.text.line(f"put(I, {ids} + i, {self.states.integer(ref, state)})")
        return ids

    def integers_of(self, value: Buffer) -> str:
        """Return a local with the place in I of an integer payload's values."""
        ids = self.ints(value.space)
        with self.text.block(f"for r in range({self.space(value.space)}):"):
            self.text.line(f"put(I, {ids} + r, int(at(F, {value.name} + r)))")
        return ids

    def labels(self, node: AnyNode, space: Space, fields: tuple[FieldRef, ...], port: int) -> str:
        """Integers from the node's field, or from message `port` where it has none."""
        return self.integers(node, fields[0], space) if fields else self.integers_of(self.operand(node, port))

    def floats(self, ref: FieldRef, cols: int, space: Space) -> Buffer:
        """A float field's values (or an integer field's, as numbers), one row a row of `space`."""
        target = self.buffer(cols, space)
        whole = self.states.declared(ref.field).kind == "float"
        with self.tokens() as state:
            to = f"{target.name} + {self.first(space)} * {cols}"
            if not whole and not space:
                self.text.line(f"put(F, {to}, np.float32({self.states.integer(ref, state)}))")
                return target
            field, flat = self.states.field(ref.field), self.states.flat(ref, state)
            if whole:
                value = f"copy(F, {to}, XF, {field} + ({flat}) * {cols}, {self.size(target)})"
                if ref.at is not None and self.states.may_be_none(ref.at):
                    with self.text.block(f"if {self.states.position(ref.at, state)} >= 0:"):
                        self.text.line(value)
                    with self.text.block("else:"):
                        self.text.line(f"zero(F, {to}, {self.size(target)})")
                else:
                    self.text.line(value)
            else:
                with self.text.block(f"for r in range({self.count(space)}):"):
                    self.text.line(f"put(F, {to} + r, np.float32(at(XI, {field} + {flat} + r)))")
        return target
