"""Fusing: neighbouring loops over the same rows become one.

What a later one reads of an earlier one stays in a register, what nobody else reads is never written, and rows that only such a loop reads or
writes are read from and written to their arenas by it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from ampc.codegen import loop_text
from ampc.codegen.loops import NAME, Buffer, Fused, Load, Loop, Move, Statement, Store, Step, Value, renamed
from ampc.codegen.text import Line

MOST_PLACES = 30
"""Most blocks that one loop touches; `native.load` numbers them below 32."""
NARROWEST = 8
"""Columns below which a loop is not cut into ranges of columns."""


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
                lines += loop_text.write(g, number)
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
