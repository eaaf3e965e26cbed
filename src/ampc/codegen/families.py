"""Text of a family of Linears (`linear_by`), forward and backward: each row is multiplied by the weights that its number names.

Rows are *numbered* by member, so that each member has one matrix product over neighbouring rows. Where the family reads `x[index]`, a row
of x that several elements read with the same member is multiplied once (`distinct_rows`) and taken straight from x; where a sum over
another axis is all that reads the family, the products are added where they belong. So the elements themselves (edges, mostly the longest
axis) never get rows of their own.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ampc.codegen.firing import Firing
from ampc.codegen.loops import Buffer
from ampc.codegen.forward_rows import row_index
from ampc.ir.nodes import NPT, PPT

if TYPE_CHECKING:
    from ampc.codegen.backward import Backward

MOST_DISTINCT = 16
"""Families of more members are numbered without looking for equal rows: the table for it has a word for each member and row."""


@dataclasses.dataclass(frozen=True, slots=True)
class Numbering:
    """Places in I: `rows` of x in the order of the products, `starts` of each member in it, and for each element the `pair` that it reads."""

    x: Buffer
    rows: str
    starts: str
    pair: str
    space: str
    members: int

    @property
    def total(self) -> str:
        return f"at(I, {self.starts} + {self.members})"


def number(f: Firing, node: PPT) -> Numbering:
    """Write the numbering of a family's rows."""
    gather = f.families[node.id].gather
    members = node.attrs["members"]
    assert isinstance(members, int)
    x = f.operand(*f.multiplied(gather or node, 0))
    space = x.space if gather is None else gather.outputs[0].rows
    count = f.space(space)
    ids = row_index(f, gather, space, x.space) if gather is not None else ""
    kinds = f.integers(node, node.fields[0], space)
    rows, pair, starts = f.ints(space), f.ints(space), f.ints("#", extra=2 * members + 2)
    if gather is not None and members <= MOST_DISTINCT:
        table = f.ints(x.space, times=members)
        f.text.line(f"distinct_rows(I, {rows}, {starts}, {pair}, {kinds}, {ids}, {count}, {f.space(x.space)}, {members}, {table})")
    else:
        f.text.line(f"sort_rows(I, {rows}, {starts}, {pair}, {kinds}, {count}, {members})")
        if ids:
            f.text.line(f"compose(I, {rows}, {ids}, at(I, {starts} + {members}))")
    return Numbering(x, rows, starts, pair, space, members)


def forward(f: Firing, node: PPT) -> Buffer:
    """Return a row for each element or, where a sum by index takes the products, that sum: the scatter after it hands this buffer on."""
    n = number(f, node)
    cols = node.outputs[0].cols
    packed, made = f.buffer(n.x.cols, n.space), f.buffer(cols, n.space)
    f.text.line(f"lookup(F, I, {packed.name}, {n.x.name}, {n.rows}, {n.total}, {n.x.cols})")
    for k in range(n.members):
        layer = f"{node.layer}.{k}"
        f.text.line(_member(n, k))
        f.text.line(
            f"linear(F, I, {f.gemm_words}, {made.name} + a * {cols}, {packed.name} + a * {n.x.cols}, "
            f"{f.parameter(layer, 'w')}, {f.parameter(layer, 'b')}, m, {n.x.cols}, {cols})"
        )
    scatter = f.families[node.id].scatter
    if scatter is not None:
        return _summed(f, scatter, n, made)
    y = f.buffer(cols, n.space)
    f.text.line(f"lookup(F, I, {y.name}, {made.name}, {n.pair}, {f.space(n.space)}, {cols})")
    return y


def _member(n: Numbering, k: int) -> str:
    return f"a, m = at(I, {n.starts} + {k}), at(I, {n.starts} + {k + 1}) - at(I, {n.starts} + {k})"


def _summed(f: Firing, scatter: NPT, n: Numbering, made: Buffer) -> Buffer:
    space = scatter.outputs[0].rows
    ids = row_index(f, scatter, n.space, space)
    y = f.buffer(made.cols, space)
    f.text.line(f"zero(F, {y.name}, {f.space(space)} * {made.cols})")
    f.text.line(f"add_rows(F, I, {y.name}, {ids}, {made.name}, {n.pair}, {f.space(n.space)}, {made.cols})")
    return y


def backward(f: Backward, node: PPT, g: Buffer) -> None:
    """Write the gradients of the members' parameters and of x; `g` is that of the rows, or of their sum where a sum takes them."""
    family = f.families[node.id]
    n = number(f, node)
    xs, gs = f.buffer(n.x.cols, n.space), f.buffer(g.cols, n.space)
    f.text.line(f"lookup(F, I, {xs.name}, {n.x.name}, {n.rows}, {n.total}, {n.x.cols})")
    f.text.line(f"zero(F, {gs.name}, {n.total} * {g.cols})")
    if family.scatter is not None:
        ids = row_index(f, family.scatter, n.space, g.space)
        f.text.line(f"add_rows(F, I, {gs.name}, {n.pair}, {g.name}, {ids}, {f.space(n.space)}, {g.cols})")
    else:
        f.text.line(f"scatter_add(F, I, {gs.name}, {n.pair}, {g.name}, {f.space(n.space)}, {g.cols})")
    reader, port = f.multiplied(family.gather or node, 0)
    wanted = f.wants(reader, port)
    dxs = f.buffer(n.x.cols, n.space) if wanted else xs
    for k in range(n.members):
        layer = f"{node.layer}.{k}"
        f.text.line(_member(n, k))
        xa, ga = f"{xs.name} + a * {n.x.cols}", f"{gs.name} + a * {g.cols}"
        if wanted:
            f.text.line(
                f"linear_dx(F, I, {f.gemm_words}, {dxs.name} + a * {n.x.cols}, {ga}, {f.parameter(layer, 'w')}, m, {n.x.cols}, {g.cols}, 0)"
            )
        gw, gb = f.parameter(layer, "w", True), f.parameter(layer, "b", True)
        f.text.line(f"linear_dw(F, I, {f.gemm_words}, {gw}, {gb}, {xa}, {ga}, m, {n.x.cols}, {g.cols})")
    if wanted:
        target, more = f.into(reader, port, n.x.space)
        if not more:
            f.text.line(f"zero(F, {target.name}, {f.space(n.x.space)} * {n.x.cols})")
        f.text.line(f"scatter_add(F, I, {target.name}, {n.rows}, {dxs.name}, {n.total}, {n.x.cols})")
