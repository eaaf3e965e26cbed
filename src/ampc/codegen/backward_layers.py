"""Backward text of the nodes that own parameters, but for families (`families`). `backward.WRITERS` names the writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ampc.codegen.forward_layers import fold_cell, part_start
from ampc.codegen.loops import Buffer
from ampc.codegen.own import LAYER, own
from ampc.ir.nodes import PPT, Concat

if TYPE_CHECKING:
    from ampc.codegen.backward import Backward


def _linear_by_parts(f: Backward, node: PPT, concat: Concat, g: Buffer) -> None:
    w, gw, gb = f.parameter(node.layer, "w"), f.parameter(node.layer, "w", True), f.parameter(node.layer, "b", True)
    rows = f.space(g.space)
    start, summed = 0, gb == "-1"
    for port, ref in enumerate(concat.inputs):
        part, width = f.graph.by_id[ref[0]], f.kind(concat, port).cols
        fold = f.absorbed.get(part.id)
        if fold is not None:
            assert isinstance(part, PPT)
            ids = f.labels(part, g.space, part.fields, 0)
            f.text.line(f"fold_backward(F, I, {fold_cell(f, fold)}, {g.name}, {ids}, {rows})")
            summed = summed or fold.bias
        elif not f.zero(concat, port):
            reader, at = f.multiplied(concat, port)
            x = f.operand(reader, at)
            some, _ = f.rows_multiplied(concat, port, g.space)  # nobody reads the gradients of the others
            if f.wants(reader, at):
                target, more = f.into(reader, at, g.space)
                f.text.line(f"linear_dx(F, I, {f.gemm_words}, {target.name}, {g.name}, {w} + {start * g.cols}, {some}, {x.cols}, {g.cols}, {more})")
            f.text.line(f"linear_dw(F, I, {f.gemm_words}, {gw} + {start * g.cols}, -1, {x.name}, {g.name}, {some}, {x.cols}, {g.cols})")
        start += width
    if not summed:
        f.text.line(f"add_row_sum(F, {gb}, {g.name}, {rows}, {g.cols})")


def linear(f: Backward, node: PPT, g: Buffer) -> None:
    if node.id in f.joined:
        _linear_by_parts(f, node, f.joined[node.id], g)
        return
    if f.zero(node, 0):
        if (gb := f.parameter(node.layer, "b", True)) != "-1":
            f.text.line(f"add_row_sum(F, {gb}, {g.name}, {f.space(g.space)}, {g.cols})")
        return
    reader, port = f.multiplied(node, 0)
    x = f.operand(reader, port)
    rows = f.space(x.space)
    w = f.parameter(node.layer, "w")
    if f.wants(reader, port):
        target, more = f.into(reader, port, x.space)
        f.text.line(f"linear_dx(F, I, {f.gemm_words}, {target.name}, {g.name}, {w}, {rows}, {x.cols}, {g.cols}, {more})")
    gw, gb = f.parameter(node.layer, "w", True), f.parameter(node.layer, "b", True)
    shape = f"{rows}, {x.cols}, {g.cols}"
    if f.shared.uses[node.layer] == 1:
        k = own(LAYER, f.shared.layer_number[node.layer])
        f.text.line(f"rate = direct(I, D, w, n, {k}, {rows}, {x.cols * g.cols})")
        f.text.line(f"linear_descend(F, I, {f.gemm_words}, {w}, {gw}, {gb}, {x.name}, {g.name}, {shape}, rate)")
    else:
        f.text.line(f"linear_dw(F, I, {f.gemm_words}, {gw}, {gb}, {x.name}, {g.name}, {shape})")


def linear_part(f: Backward, node: PPT, g: Buffer) -> None:
    reader, port = f.multiplied(node, 0)
    x = f.operand(reader, port)
    rows, start = f.space(x.space), part_start(node)
    if f.wants(reader, port):
        target, more = f.into(reader, port, x.space)
        w = f"{f.parameter(node.layer, 'w')} + {start}"
        f.text.line(f"linear_dx(F, I, {f.gemm_words}, {target.name}, {g.name}, {w}, {rows}, {x.cols}, {g.cols}, {more})")
    gw = f"{f.parameter(node.layer, 'w', True)} + {start}"
    f.text.line(f"linear_dw(F, I, {f.gemm_words}, {gw}, -1, {x.name}, {g.name}, {rows}, {x.cols}, {g.cols})")


def lookup(f: Backward, node: PPT, g: Buffer) -> None:
    ids = f.labels(node, g.space, node.fields, 0)
    marks = f.text.cell(f"marks{own(LAYER, f.shared.layer_number[node.layer])}", "marks", node.layer)
    with f.text.block(f"if {marks} > 0:"):
        f.text.line(f"touch(I, {marks}, {ids}, {f.space(g.space)})")
    f.text.line(f"scatter_add(F, I, {f.parameter(node.layer, 'table', True)}, {ids}, {g.name}, {f.space(g.space)}, {g.cols})")


def layer_norm(f: Backward, node: PPT, g: Buffer) -> None:
    x = f.operand(node, 0)
    wanted = f.wants(node, 0)
    target, more = f.into(node, 0, x.space) if wanted else (x, 0)
    gain, ggain, gbias = f.parameter(node.layer, "gain"), f.parameter(node.layer, "gain", True), f.parameter(node.layer, "bias", True)
    f.text.line(
        f"layer_norm_bwd(F, {target.name}, {x.name}, {gain}, {ggain}, {gbias}, {g.name}, {f.space(x.space)}, {x.cols}, "
        f"np.float32({node.attrs['eps']!r}), {int(wanted)}, {more})"
    )
