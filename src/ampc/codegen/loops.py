"""Element-wise statements of a function, kept apart from its text until all of it is known, then fused.

A `Loop` does the same to every number of a block of rows; a `Move` copies rows between the arenas of the tokens and scratch. Neighbouring loops
over the same rows become one: what a later one reads of an earlier one stays in a register, what nobody else reads is never written, and
rows that only such a loop reads or writes are read from and written to their arenas directly. Blocks of scratch that are not in use
at the same time share a place, so that a firing's working set stays in a core's cache.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ampc.codegen.text import Line

Space = str
"""What the rows of a payload are: "" one a token, an axis, or "*<id>" the members of Group <id>."""

MOST_PLACES = 30
"""Most blocks that one loop touches; `native.load` numbers them below 32."""
NARROWEST = 8
"""Columns below which a loop is not cut into ranges of columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """A block of the worker's scratch: [rows of `space`, cols], at the offset that local `name` holds; or some columns of one.

    stride: columns of the whole block; start: the first of them that is meant.
    """

    name: str
    cols: int
    space: Space
    stride: int = 0
    start: int = 0

    @property
    def width(self) -> int:
        """Columns from one row to the next."""
        return self.stride or self.cols

    @property
    def dense(self) -> bool:
        return self.width == self.cols

    def columns(self, start: int, cols: int) -> Buffer:
        """Return a view of some of the columns."""
        return Buffer(self.name, cols, self.space, self.width, self.start + start)


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    var: str
    buffer: Buffer


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    var: str
    text: str
    """Names variables of earlier steps."""


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    buffer: Buffer
    var: str


Step = Load | Value | Store


@dataclasses.dataclass(slots=True)
class Loop:
    """Steps for every number of [rows, cols]. A buffer of one column is one number a row."""

    depth: int
    rows: str
    space: Space
    cols: int
    steps: list[Step]

    def touched(self) -> Iterator[tuple[Buffer, bool]]:
        """Yield each block with whether it is written."""
        for step in self.steps:
            if not isinstance(step, Value):
                yield step.buffer, isinstance(step, Store)

    def narrowed(self, start: int, cols: int) -> Loop:
        """The part of the loop that does columns `start` to `start + cols`, its variables renamed."""

        def part(b: Buffer) -> Buffer:
            return b.columns(start, cols) if b.cols == self.cols else b

        names = {s.var: f"{s.var}_{start}" for s in self.steps if not isinstance(s, Store)}
        steps: list[Step] = []
        for s in self.steps:
            match s:
                case Load():
                    steps.append(Load(names[s.var], part(s.buffer)))
                case Store():
                    steps.append(Store(part(s.buffer), names[s.var]))
                case Value():
                    steps.append(Value(names[s.var], renamed(s.text, names)))
        return Loop(self.depth, self.rows, self.space, cols, steps)


@dataclasses.dataclass(slots=True)
class Move:
    """A loop over the tokens taken that copies each one's rows between its arena and a buffer.

    first, count: the token's first row in the buffer and its number of rows. when: a condition under which rows leave scratch at all.
    """

    depth: int
    buffer: Buffer
    prelude: list[str]
    body: list[Line]
    out: bool
    first: str
    count: str
    when: str = ""

    @property
    def size(self) -> str:
        return f"{self.count} * {self.buffer.cols}" if self.count != "1" else str(self.buffer.cols)

    @property
    def scratch(self) -> str:
        return f"{self.buffer.name} + {self.first} * {self.buffer.cols}"

    def text(self) -> list[Line]:
        """The copying, as a loop of its own."""
        lines = [Line(self.depth, "for i in range(n):"), *(Line(self.depth + 1, p) for p in self.prelude)]
        lines += [Line(self.depth + 1 + k.depth, k.text) for k in self.body]
        return [Line(self.depth, self.when), *(Line(k.depth + 1, k.text) for k in lines)] if self.when else lines

    def pointer(self, name: str) -> list[Line] | None:
        """The body with `name = place in the arena` where it copies; None if it does anything else."""
        before, after = ("copy(F, ", f", F, {self.scratch}, {self.size})") if self.out else (f"copy(F, {self.scratch}, F, ", f", {self.size})")
        found: list[Line] = []
        for line in self.body:
            if line.text.startswith(before) and line.text.endswith(after):
                found.append(Line(line.depth, f"{name} = {line.text[len(before) : -len(after)]}"))
            elif re.match(r"(if|elif|else)\b", line.text):
                found.append(line)
            else:
                return None
        return found


Statement = Line | Loop | Move


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Replace identifiers."""
    return re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), text)


# ------------------------------------------------------------------------------------------------------ fusing


@dataclasses.dataclass(slots=True)
class Fused:
    """Loops that became one, and the moves that it does itself, by the name of their buffer."""

    loop: Loop
    reads: dict[str, Move] = dataclasses.field(default_factory=dict)
    writes: dict[str, list[Move]] = dataclasses.field(default_factory=dict)
    kept: set[tuple[str, int]] = dataclasses.field(default_factory=set)
    """Buffers, with their first columns, that are written to scratch (too), since others read them there."""


def fuse(statements: Sequence[Statement]) -> list[Line]:
    """Return the text of a function's statements, its loops fused."""
    grouped = list(_grouped(statements))
    uses = _uses(grouped)
    for g in grouped:
        if isinstance(g, Fused):
            _simplify(g.loop)
    _take_moves(grouped, uses)
    for k, g in reversed(list(enumerate(grouped))):  # the last first: what a loop no longer reads, one before it need not write
        if isinstance(g, Fused):
            _drop_dead(g, [grouped[p] for p in sorted({p for b, _ in g.loop.touched() for p in uses[b.name]}) if p > k])
    lines: list[Line] = []
    number = 0
    for g in _jammed(grouped):
        match g:
            case Line():
                lines.append(g)
            case Move():
                lines += g.text()
            case Fused():
                lines += _Writer(g, number).lines()
                number += 1
    return lines


def _grouped(statements: Sequence[Statement]) -> Iterator[Line | Move | Fused]:
    """Runs of neighbouring loops as few fused ones. What a run reads from arenas is moved before it: nothing in a run writes there."""
    run: list[Loop] = []
    for s in statements:
        if isinstance(s, Loop):
            if run and (run[0].depth, run[0].rows) != (s.depth, s.rows):
                yield from _fused(run)
                run = []
            run.append(s)
        elif isinstance(s, Move) and not s.out and run and run[0].depth == s.depth and not _touch(run, s.buffer):
            yield s
        else:
            yield from _fused(run)
            run = []
            yield s
    yield from _fused(run)


def _touch(run: list[Loop], buffer: Buffer) -> bool:
    return any(b.name == buffer.name for loop in run for b, _ in loop.touched())


def _fused(run: list[Loop]) -> Iterator[Fused]:
    groups: list[Loop] = []
    for loop in _cut(run):
        home = _home(groups, loop)
        if home is None:
            groups.append(Loop(loop.depth, loop.rows, loop.space, loop.cols, list(loop.steps)))
        else:
            home.steps += loop.steps
    for g in groups:
        yield Fused(g)


def _cut(run: list[Loop]) -> Iterator[Loop]:
    """Loops over wide rows in ranges of columns, where neighbours work on just such a range of what they touch."""
    narrow = [(b, loop.cols) for loop in run for b, _ in loop.touched() if b.cols == loop.cols]
    for loop in run:
        cuts = {0, loop.cols}
        for b, _ in loop.touched():
            if b.cols != loop.cols:
                continue
            for other, cols in narrow:
                if other.name == b.name and cols < loop.cols and b.start <= other.start and other.start + cols <= b.start + b.cols:
                    cuts |= {other.start - b.start, other.start - b.start + cols}
        places = sorted(cuts)
        if len(places) == 2 or min(z - a for a, z in itertools.pairwise(places)) < NARROWEST:
            yield loop
        else:
            for a, z in itertools.pairwise(places):
                yield loop.narrowed(a, z - a)


def _overlap(a: Buffer, b: Buffer) -> bool:
    return a.name == b.name and a.start < b.start + b.cols and b.start < a.start + a.cols


def _same(a: Buffer, b: Buffer) -> bool:
    return (a.name, a.start, a.cols) == (b.name, b.start, b.cols)


def _home(groups: list[Loop], loop: Loop) -> Loop | None:
    """The latest group that the loop may join: of as many columns, and nothing after it depends on the order."""
    mine = list(loop.touched())
    for g in reversed(groups):
        theirs = list(g.touched())
        clash = [(a, b) for a, writes in mine for b, written in theirs if (writes or written) and _overlap(a, b)]
        if g.cols == loop.cols and all(_same(a, b) for a, b in clash) and len({(b.name, b.start) for b, _ in mine + theirs}) <= MOST_PLACES:
            return g
        if clash:
            return None
    return None


def _simplify(loop: Loop) -> None:
    """Keep in variables what the loop itself has read or written, and write each number once."""
    held: dict[tuple[str, int, int], str] = {}
    names: dict[str, str] = {}
    last: dict[tuple[str, int, int], Store] = {}
    steps: list[Step] = []
    for s in loop.steps:
        match s:
            case Load(var=var, buffer=b):
                key = (b.name, b.start, b.cols)
                if key in held:
                    names[var] = held[key]
                else:
                    held[key] = var
                    steps.append(s)
            case Value():
                steps.append(Value(s.var, renamed(s.text, names)))
            case Store(buffer=b, var=var):
                key = (b.name, b.start, b.cols)
                held[key] = names.get(var, var)
                last[key] = Store(b, held[key])
    loop.steps = [*steps, *last.values()]


NAME = re.compile(r"\bb\d+\b")


def _uses(grouped: Iterable[Line | Move | Fused]) -> dict[str, list[int]]:
    """Where each buffer is named: positions of statements."""
    found: dict[str, list[int]] = {}
    for k, g in enumerate(grouped):
        match g:
            case Line():
                names = set(NAME.findall(g.text))
            case Move():
                names = {g.buffer.name}
            case Fused():
                names = {b.name for b, _ in g.loop.touched()}
        for name in names:
            found.setdefault(name, []).append(k)
    return found


def _take_moves(grouped: list[Line | Move | Fused], uses: dict[str, list[int]]) -> None:
    """Give loops the moves that they can do themselves; such a move is gone from the statements, and its buffer has a use less."""
    for k, g in enumerate(grouped):
        if not isinstance(g, Move) or g.pointer("") is None:
            continue
        name = g.buffer.name
        others = [(p, x) for p in uses[name] for x in (grouped[p],) if p > k and isinstance(x, Fused) and x.loop.depth == g.depth]
        if g.out:
            taker = _last_writer(grouped, uses[name], k)
            if taker is None or taker.loop.depth != g.depth or not _writes_all(taker.loop, g.buffer):
                continue
            taker.writes.setdefault(name, []).append(g)
        else:
            if len(uses[name]) != 2 or len(others) != 1 or any(w for b, w in others[0][1].loop.touched() if b.name == name):
                continue
            others[0][1].reads[name] = g
        uses[name].remove(k)
        grouped[k] = Line(-1, "")


def _last_writer(grouped: Sequence[Line | Move | Fused], uses: Sequence[int], before: int) -> Fused | None:
    """The loop that writes a buffer last before a statement; None if that is something else.

    A call that names the buffer first may write it: kernels have what they write before what they read.
    """
    name = grouped[before].buffer.name  # type: ignore[union-attr]
    for p in sorted((p for p in uses if p < before), reverse=True):
        g = grouped[p]
        if isinstance(g, Fused) and any(w for b, w in g.loop.touched() if b.name == name):
            return g
        if (isinstance(g, Move) and not g.out) or (isinstance(g, Line) and NAME.findall(g.text)[0] == name):
            return None
    return None


def _writes_all(loop: Loop, buffer: Buffer) -> bool:
    """Whether the loop writes every column of the buffer."""
    return sum({b.start: b.cols for b, w in loop.touched() if w and b.name == buffer.name}.values()) == buffer.cols


def _drop_dead(g: Fused, after: Sequence[Line | Move | Fused]) -> None:
    """Leave out stores that no statement after this one reads, then values that nothing needs."""
    g.kept = {(b.name, b.start) for b, w in g.loop.touched() if w and any(_reads(s, b) for s in after)}
    steps = [s for s in g.loop.steps if not isinstance(s, Store) or (s.buffer.name, s.buffer.start) in g.kept or s.buffer.name in g.writes]
    count = -1
    while count != len(steps):
        count = len(steps)
        needed = {s.var for s in steps if isinstance(s, Store)}
        needed |= {name for s in steps if isinstance(s, Value) for name in re.findall(r"[A-Za-z_]\w*", s.text)}
        steps = [s for s in steps if isinstance(s, Store) or s.var in needed]
    g.loop.steps = steps
    touched = {b.name for b, _ in g.loop.touched()}
    g.reads = {name: m for name, m in g.reads.items() if name in touched}


def _reads(statement: Line | Move | Fused, b: Buffer) -> bool:
    match statement:
        case Line():
            return b.name in NAME.findall(statement.text)
        case Move():
            return statement.buffer.name == b.name
        case Fused():
            return any(_overlap(b, other) for other, written in statement.loop.touched() if not written)


def _jammed(grouped: Iterable[Line | Move | Fused]) -> Iterator[Line | Move | Fused]:
    """Neighbouring moves in one loop over tokens."""
    last: Move | None = None
    for g in grouped:
        if isinstance(g, Line) and g.depth < 0:
            continue
        if isinstance(g, Move) and last is not None and (last.depth, last.when, last.out) == (g.depth, g.when, g.out):
            prelude = [*last.prelude, *(p for p in g.prelude if p not in last.prelude)]
            last = dataclasses.replace(last, prelude=prelude, body=[*last.body, *g.body])
            continue
        if last is not None:
            yield last
            last = None
        if isinstance(g, Move):
            last = g
        else:
            yield g
    if last is not None:
        yield last


# ----------------------------------------------------------------------------------------------------- writing


class _Writer:
    """The text of one fused loop; `number` tells it from others of the function."""

    def __init__(self, fused: Fused, number: int) -> None:
        self.loop, self.fused, self.number = fused.loop, fused, number
        self.scopes: dict[tuple[str, int], int] = {}
        self.sources: dict[str, str] = {}
        """Buffer -> local with the place that it is read from."""
        self.arenas: dict[str, list[str]] = {}
        """Buffer -> locals with the places in arenas that it is written to."""

    def lines(self) -> list[Line]:
        if not self.loop.steps:
            return []
        moves = [*self.fused.reads.values(), *(m for ms in self.fused.writes.values() for m in ms)]
        depth, rows = self.loop.depth, self.loop.rows
        lines: list[Line] = []
        if moves:
            lines.append(Line(depth, "for i in range(n):"))
            depth, rows = depth + 1, moves[0].count
            lines += [Line(depth, p) for p in dict.fromkeys(p for m in moves for p in m.prelude)]
            lines += self._pointers(depth, moves[0].first)
        for b, _ in self.loop.touched():
            self.sources.setdefault(b.name, b.name)
        return lines + self._loops(depth, rows)

    def _pointers(self, depth: int, first: str) -> list[Line]:
        """Locals with the places of the token's rows."""
        lines: list[Line] = []
        reads, writes = self.fused.reads, self.fused.writes
        kept = {name for name, _ in self.fused.kept}
        for b, written in self.loop.touched():
            elsewhere = b.name in reads or (written and b.name not in kept and not any(m.when for m in writes.get(b.name, ())))
            if b.name not in self.sources and not elsewhere:
                self.sources[b.name] = f"at_{b.name}"
                lines.append(Line(depth, f"at_{b.name} = {b.name} + {first} * {b.width}"))
        for name, move in reads.items():
            self.sources[name] = f"in_{name}"
            lines += [Line(depth + k.depth, k.text) for k in move.pointer(f"in_{name}") or ()]
        for name, moves in writes.items():
            for number, move in enumerate(moves):
                place = f"to_{name}_{number}"
                self.arenas.setdefault(name, []).append(place)
                inside = depth
                if move.when:
                    lines += [Line(depth, f"{place} = at_{name}"), Line(depth, move.when)]
                    inside += 1
                lines += [Line(inside + k.depth, k.text) for k in move.pointer(place) or ()]
        return lines

    def _loops(self, depth: int, rows: str) -> list[Line]:
        """One loop over all numbers where every block is as wide as the loop, else one over rows around one over columns."""
        cols = self.loop.cols
        if all(b.dense and b.cols == cols for b, _ in self.loop.touched()):
            count = str(cols) if rows == "1" else f"{rows} * {cols}"
            return [Line(depth, f"for j in range({count}):"), *self._body(depth + 1, None)]
        if rows == "1":
            return [Line(depth, f"for j in range({cols}):"), *self._body(depth + 1, "")]
        return [Line(depth, f"for r in range({rows}):"), Line(depth + 1, f"for j in range({cols}):"), *self._body(depth + 2, "r")]

    def _body(self, depth: int, row: str | None) -> list[Line]:
        lines: list[Line] = []
        for s in self.loop.steps:
            match s:
                case Load(var=var, buffer=b):
                    source = self.sources[b.name]
                    lines.append(Line(depth, f"{var} = load(F, {self._place(source, b, row)}, {self._scope(source, b)})"))
                case Value(var=var, text=text):
                    lines.append(Line(depth, f"{var} = {text}"))
                case Store(buffer=b, var=var):
                    scratch = [self.sources[b.name]] if (b.name, b.start) in self.fused.kept else []
                    for target in [*scratch, *self.arenas.get(b.name, ())]:
                        lines.append(Line(depth, f"save(F, {self._place(target, b, row)}, {var}, {self._scope(target, b)})"))
        return lines

    def _place(self, base: str, b: Buffer, row: str | None) -> str:
        """Text of the place of a number; `row`: a local with its row, "" in a loop over one row, None in a loop over all numbers."""
        if row is None:
            return f"{base} + j"
        parts = [base]
        if row:
            parts.append(row if b.width == 1 else f"{row} * {b.width}")
        if b.start:
            parts.append(str(b.start))
        if b.cols == self.loop.cols:
            parts.append("j")
        return " + ".join(parts)

    def _scope(self, base: str, b: Buffer) -> int:
        """A number for the memory behind a place: nothing else that the loop touches overlaps it."""
        return 32 * self.number + self.scopes.setdefault((base, b.start), len(self.scopes))


# -------------------------------------------------------------------------------------------------- scratch


def share(lines: Sequence[Line], buffers: Mapping[str, Buffer], depth: int) -> tuple[list[Line], dict[str, tuple[int, Space]]]:
    """Give buffers that are not in use at the same time one name; return the text and (columns, space) of each name.

    depth: that of statements; what lies deeper belongs to the statement before.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    statement = 0
    for line in lines:
        statement += line.depth <= depth
        for name in NAME.findall(line.text):
            first.setdefault(name, statement)
            last[name] = statement
    places: dict[str, tuple[int, Space]] = {}
    busy_until: dict[str, int] = {}
    names: dict[str, str] = {}
    for name in sorted(first, key=lambda b: (first[b], b)):
        cols, space = buffers[name].cols, buffers[name].space
        free = [p for p, (_, s) in places.items() if s == space and busy_until[p] < first[name]]
        place = min(free, key=lambda p: (abs(places[p][0] - cols), p)) if free else f"b{len(places)}"
        places[place] = (max(cols, places.get(place, (0, ""))[0]), space)
        busy_until[place] = last[name]
        names[name] = place
    return [Line(line.depth, NAME.sub(lambda m: names[m[0]], line.text)) for line in lines], places
