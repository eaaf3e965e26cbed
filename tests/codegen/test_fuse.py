"""Fusing of loops: the text of random statements means the same before and after, and does no more than it must."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ampc.codegen.fuse import fuse
from ampc.codegen.loops import Buffer, Load, Loop, Move, Statement, Store, Value
from ampc.codegen.scratch import share
from ampc.codegen.text import Line
from ampc.runtime.plain import at, copy, load, put, save

ROWS, TOKENS, COLS = 6, 3, 16
ARENA = 4096
"""Where the arenas of the tokens begin; token i's rows are 2 i and 2 i + 1 of each buffer."""
FIRST, COUNT = "(i * 2)", "2"


def add_into(F: Any, y: int, x: int, count: int) -> None:
    for j in range(count):
        F[y + j] += F[x + j]


def run(lines: list[Line], buffers: dict[str, int]) -> Any:
    memory = np.random.default_rng(0).random(8192).astype(np.float32)
    scope = {"F": memory, "I": [1], "n": TOKENS, "m0": ROWS, "np": np, "at": at, "put": put, "copy": copy, "load": load, "save": save,
             "add_into": add_into, "TRAIN": 0, **buffers}  # fmt: skip
    exec("\n".join(str(Line(line.depth - 1, line.text)) for line in lines), scope)
    return memory


def alone(statements: list[Statement]) -> list[Line]:
    """The text with every loop by itself."""
    return [line for s in statements for line in fuse_one(s)]


def fuse_one(s: Statement) -> list[Line]:
    # A call that names all buffers keeps each of them alive.
    names = " ".join(sorted({b.name for b, _ in s.touched()})) if isinstance(s, Loop) else ""
    return [line for line in fuse([s, Line(1, f"pass  # {names}")]) if not line.text.startswith("pass")]


class Maker:
    """Statements over buffers b0 (16 columns) to b4, of which some are views."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.fresh = 0
        self.statements: list[Statement] = []
        self.written = {f"b{k}" for k in range(3)}

    def buffer(self, cols: int) -> Buffer:
        whole = Buffer(f"b{self.draw(st.integers(0, 4))}", COLS, "atom")
        return whole if cols == COLS else whole.columns(self.draw(st.sampled_from([0, 8])), 8)

    def loop(self) -> None:
        cols = self.draw(st.sampled_from([COLS, 8, 8]))
        a, b, y = self.buffer(cols), self.buffer(cols), self.buffer(cols)
        names = [f"v{self.fresh + k}" for k in range(3)]
        self.fresh += 3
        steps = [Load(names[0], a), Load(names[1], b), Value(names[2], f"{names[0]} * np.float32(0.5) - {names[1]}"), Store(y, names[2])]
        self.statements.append(Loop(1, "m0", "atom", cols, steps))

    def move(self) -> None:
        out = self.draw(st.booleans())
        b = Buffer(f"b{self.draw(st.integers(0, 4))}", COLS, "atom")
        # No two moves share a place: what a function reads from an arena it doesn't write there.
        place = f"{ARENA + 128 * len(self.statements)} + i * 32"
        scratch, size = f"{b.name} + {FIRST} * {COLS}", f"{COUNT} * {COLS}"
        copying = f"copy(F, {place}, F, {scratch}, {size})" if out else f"copy(F, {scratch}, F, {place}, {size})"
        when = self.draw(st.sampled_from(["", "if TRAIN == 1:"])) if out else ""
        self.statements.append(Move(1, b, ["idx = i"], [Line(0, copying)], out, FIRST, COUNT, when))

    def call(self) -> None:
        y, x = (Buffer(f"b{self.draw(st.integers(0, 4))}", COLS, "atom") for _ in range(2))
        self.statements.append(Line(1, f"add_into(F, {y.name}, {x.name}, {ROWS * COLS})"))


@st.composite
def programs(draw: Any) -> list[Statement]:
    maker = Maker(draw)
    for kind in draw(st.lists(st.sampled_from(["loop", "loop", "loop", "move", "call"]), min_size=1, max_size=12)):
        getattr(maker, kind)()
    return maker.statements


@given(programs())
def test_fused_text_leaves_the_same_in_the_arenas(statements: list[Statement]) -> None:
    places = {f"b{k}": 256 * k for k in range(8)}
    assert np.array_equal(run(alone(statements), places)[ARENA:], run(fuse(statements), places)[ARENA:])


@given(programs())
def test_shared_scratch_leaves_the_same_in_the_arenas(statements: list[Statement]) -> None:
    # Every buffer is written before it is read, as in kernels; else sharing would show what another one left.
    fill = [Line(1, f"F[b{k} : b{k} + {ROWS * COLS}] = np.float32({k})") for k in range(5)]
    lines = [*fill, *fuse(statements)]
    buffers = {f"b{k}": Buffer(f"b{k}", COLS, "atom") for k in range(5)}
    shared, found = share(lines, buffers, 1)
    assert len(found) <= len(buffers)
    places = {f"b{k}": 256 * k for k in range(8)}
    assert np.array_equal(run(lines, places)[ARENA:], run(shared, places)[ARENA:])


def step(y: Buffer, text: str, **operands: Buffer) -> Loop:
    return Loop(1, "m0", "atom", y.cols, [*(Load(k, b) for k, b in operands.items()), Value(f"v_{y.name}", text), Store(y, f"v_{y.name}")])


def text(lines: list[Line]) -> str:
    return "\n".join(map(str, lines))


def test_a_chain_becomes_one_loop_that_writes_its_end_alone() -> None:
    a, b, c = (Buffer(f"b{k}", 32, "atom") for k in range(3))
    found = text(fuse([step(b, "x + x", x=a), step(c, "z * z", z=b), Line(1, "use(b2)")]))
    assert found.count("for j in") == 1 and "for r in" not in found
    assert re.findall(r"save\(F, (\w+)", found) == ["b2"] and re.findall(r"load\(F, (\w+)", found) == ["b0"]


def test_a_wide_loop_is_cut_where_its_parts_are_used() -> None:
    x, whole, y = Buffer("b0", 32, "atom"), Buffer("b1", 32, "atom"), Buffer("b2", 16, "atom")
    found = text(fuse([step(whole, "x + x", x=x), step(y, "z * u", z=whole.columns(0, 16), u=whole.columns(16, 16)), Line(1, "use(b2)")]))
    assert found.count("for j in range(16)") == 1 and "range(32)" not in found
    assert re.findall(r"save\(F, (\w+)", found) == ["b2"]


def test_overlapping_columns_keep_their_order() -> None:
    x, y = Buffer("b0", 32, "atom"), Buffer("b1", 16, "atom")
    found = text(fuse([step(x.columns(0, 16), "z", z=y), step(y, "w", w=x.columns(8, 16)), Line(1, "use(b0, b1)")]))
    assert found.count("for j in range(16)") == 2


def test_rows_go_straight_to_their_arenas_and_to_scratch_only_where_that_is_read() -> None:
    a, b = Buffer("b0", 16, "atom"), Buffer("b1", 16, "atom")
    come = Move(1, a, ["idx = i"], [Line(0, f"copy(F, b0 + {FIRST} * 16, F, 4096 + i * 32, {COUNT} * 16)")], False, FIRST, COUNT)
    go = Move(1, b, ["idx = i"], [Line(0, f"copy(F, 5000 + i * 32, F, b1 + {FIRST} * 16, {COUNT} * 16)")], True, FIRST, COUNT)
    found = text(fuse([come, step(b, "x + x", x=a), go]))
    assert "copy(" not in found and "b0" not in re.findall(r"\bb\d\b", found) and found.count("save(") == 1
    read = text(fuse([come, step(b, "x + x", x=a), Line(1, "use(b9, b1)"), go]))
    assert "copy(" not in read and read.count("save(") == 2
    changed = text(fuse([come, step(b, "x + x", x=a), Line(1, "add_into(F, b1, b9)"), go]))
    assert changed.count("copy(") == 1


def test_buffers_of_different_spaces_never_share() -> None:
    lines = [Line(1, "use(b0)"), Line(1, "use(b1)")]
    _, one = share(lines, {"b0": Buffer("b0", 4, "atom"), "b1": Buffer("b1", 8, "atom")}, 1)
    _, two = share(lines, {"b0": Buffer("b0", 4, "atom"), "b1": Buffer("b1", 8, "bond")}, 1)
    assert one == {"b0": (8, "atom")} and len(two) == 2
