"""What passes share that take a Linear apart: a product of some parts of its operand elsewhere, and the rest with zeros in their place.

`w @ [a, s, b]` is `w @ [a, 0, b]` plus the product of s with the rows of w that belong to it (`linear_part`). A Linear leaves zeros out, and where
they stand alone they are never made (`place.work.is_zero`). The layer stays one: its parameters, settings and gradient are what they were.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import msgspec

from ampc.ir.nodes import NPT, PPT, AnyNode, Attr, Concat, Ref, Type
from ampc.passes.rewrite import Rewriter


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a Linear's operand: columns of it, multiplied by the rows of w from `first` on."""

    ref: Ref
    kind: Type
    first: int


def parts_of(r: Rewriter, n: PPT) -> tuple[Part, ...]:
    """Return the parts of a Linear's operand: those of the Concat that it alone reads, or the whole."""
    refs = r.node(n.inputs[0]).inputs if _joined(r, n) is not None else n.inputs[:1]
    kinds = [r.type_of(ref) for ref in refs]
    starts = itertools.accumulate((k.cols for k in kinds), initial=0)
    return tuple(Part(*x) for x in zip(refs, kinds, starts, strict=False))


def linears(r: Rewriter) -> Iterator[PPT]:
    """Yield the Linears in use that are on one device each; what is split into parts may be on several."""
    for i in list(r.order):
        n = r.nodes[i]
        if isinstance(n, PPT) and n.op == "linear" and r.readers[i, 0]:
            layer = r.graph.layer[n.layer]
            if layer.columns == layer.rows == 1:
                yield n


def product(r: Rewriter, n: PPT, operand: Ref, first: int, region: int) -> Ref:
    """Write the product of `operand` with the rows of w from `first` on, before the Linear `n`."""
    kind = Type(r.type_of(operand).rows, n.outputs[0].cols)
    attrs: dict[str, Attr] = {"first": first}
    made = PPT(id=-1, region=region, inputs=(operand,), outputs=(kind,), op="linear_part", layer=n.layer, attrs=attrs, origin=n.origin, name=n.name)
    return r.add(made, n.id), 0


def total(r: Rewriter, n: PPT, refs: list[Ref], region: int) -> Ref:
    """Write the sum of values of one width, of which a single row goes with many."""
    found = refs[0]
    for ref in refs[1:]:
        rows = r.type_of(found).rows or r.type_of(ref).rows
        found = npt(r, n, "add", (found, ref), Type(rows, n.outputs[0].cols), region)
    return found


def npt(r: Rewriter, n: PPT, op: str, inputs: tuple[Ref, ...], kind: Type, region: int, **attrs: int | float) -> Ref:
    """Write an NPT that stands for a piece of the Linear `n`."""
    return r.add(NPT(id=-1, region=region, inputs=inputs, outputs=(kind,), op=op, attrs=dict(attrs), origin=n.origin, name=n.name), n.id), 0


def relieve(r: Rewriter, n: PPT, gone: set[Part], made: Ref) -> None:
    """Put in the place of a Linear the sum of `made` and what it makes of its operand with zeros for the parts in `gone`."""
    parts, concat, rows = parts_of(r, n), _joined(r, n), n.outputs[0].rows
    candidates = [made, *(p.ref for p in parts if p not in gone)]
    seen = [ref for ref in candidates if r.type_of(ref).rows == rows]
    trigger = min(seen, key=lambda ref: getattr(r.node(ref), "op", "") == "lookup")  # which is folded if the Linear alone reads it
    started = npt(r, n, "unit", (trigger,), Type(rows), n.region)

    def zeros(cols: int) -> Ref:
        return npt(r, n, "fill", (started,), Type(rows, cols), n.region, cols=cols, value=0.0)

    if concat is None or len(gone) == len(parts):
        whole = zeros(sum(p.kind.cols for p in parts))
    else:
        refs = tuple(zeros(p.kind.cols) if p in gone else p.ref for p in parts)
        whole = (r.add(msgspec.structs.replace(concat, inputs=refs), n.id), 0)
    linear = (r.add(msgspec.structs.replace(n, inputs=(whole,)), n.id), 0)
    r.put(NPT(id=n.id, region=n.region, inputs=(linear, made), outputs=n.outputs, op="add", origin=n.origin, name=n.name))


def is_filled_with_zeros(n: AnyNode) -> bool:
    return isinstance(n, NPT) and n.op == "fill" and n.attrs["value"] == 0


def _joined(r: Rewriter, n: PPT) -> Concat | None:
    operand = r.node(n.inputs[0])
    return operand if isinstance(operand, Concat) and r.single(n.inputs[0]) else None
