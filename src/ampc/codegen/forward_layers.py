"""Forward text of the nodes that own parameters, but for families (`families`). `forward.WRITERS` names the writers."""

from __future__ import annotations

from ampc.codegen.firing import Firing, Fold
from ampc.codegen.loops import Buffer
from ampc.ir.nodes import PPT, Concat


def fold_cell(f: Firing, fold: Fold) -> str:
    return f.text.cell("fold", "fold", fold.table, fold.linear, fold.start)


def _linear_by_parts(f: Firing, node: PPT, concat: Concat) -> Buffer:
    """y = sum over the parts of the input of part @ (its rows of w) + b, without joining the parts."""
    w, b = f.parameter(node.layer, "w"), f.parameter(node.layer, "b")
    cols = node.outputs[0].cols
    y = f.buffer(cols, f.kind(concat, 0).rows)
    rows = f.space(y.space)
    parts = [(f.graph.by_id[ref[0]], p, f.kind(concat, p).cols) for p, ref in enumerate(concat.inputs)]
    folds = [f.absorbed[n.id] for n, _, _ in parts if n.id in f.absorbed]
    written = 0
    for lookup, _, _ in parts:
        fold = f.absorbed.get(lookup.id)
        if fold is not None:
            assert isinstance(lookup, PPT)
            ids = f.labels(lookup, y.space, lookup.fields, 0)
            f.text.line(f"fold_forward(F, I, {f.gemm_words}, {fold_cell(f, fold)}, {y.name}, {ids}, {rows}, {written})")
            written = 1
    if not any(fold.bias for fold in folds) and b != "-1":
        f.text.line(f"add_bias(F, {y.name}, {b}, {rows}, {cols}, {written})")
        written = 1
    start = 0
    for part, port, width in parts:
        if part.id not in f.absorbed and not f.zero(concat, port):
            x = f.operand(*f.multiplied(concat, port))
            some, fewer = f.rows_multiplied(concat, port, y.space)
            if fewer and not written:
                f.text.line(f"zero(F, {y.name}, {rows} * {cols})")
                written = 1
            f.text.line(f"linear_part(F, I, {f.gemm_words}, {y.name}, {x.name}, {w} + {start * cols}, {some}, {x.cols}, {cols}, {written})")
            written = 1
        start += width
    if not written:
        f.text.line(f"zero(F, {y.name}, {rows} * {cols})")
    return y


def linear(f: Firing, node: PPT) -> Buffer:
    if node.id in f.joined:
        return _linear_by_parts(f, node, f.joined[node.id])
    if f.zero(node, 0):
        return _bias_alone(f, node)
    x = f.operand(*f.multiplied(node, 0))
    y = f.buffer(node.outputs[0].cols, x.space)
    w, b = f.parameter(node.layer, "w"), f.parameter(node.layer, "b")
    f.text.line(f"linear(F, I, {f.gemm_words}, {y.name}, {x.name}, {w}, {b}, {f.space(x.space)}, {x.cols}, {y.cols})")
    return y


def _bias_alone(f: Firing, node: PPT) -> Buffer:
    """What a Linear makes of zeros."""
    y = f.buffer(node.outputs[0].cols, f.kind(node, 0).rows)
    b = f.parameter(node.layer, "b")
    rows = f.space(y.space)
    f.text.line(f"zero(F, {y.name}, {rows} * {y.cols})" if b == "-1" else f"add_bias(F, {y.name}, {b}, {rows}, {y.cols}, 0)")
    return y


def linear_part(f: Firing, node: PPT) -> Buffer:
    x = f.operand(*f.multiplied(node, 0))
    y = f.buffer(node.outputs[0].cols, x.space)
    w = f"{f.parameter(node.layer, 'w')} + {part_start(node)}"
    f.text.line(f"linear_part(F, I, {f.gemm_words}, {y.name}, {x.name}, {w}, {f.space(x.space)}, {x.cols}, {y.cols}, 0)")
    return y


def part_start(node: PPT) -> int:
    """Where, in a layer's weights, the rows begin that a `linear_part` multiplies with."""
    first = node.attrs["first"]
    assert isinstance(first, int)
    return first * node.outputs[0].cols


def lookup(f: Firing, node: PPT) -> Buffer:
    kind = node.outputs[0]
    ids = f.labels(node, kind.rows, node.fields, 0)
    y = f.buffer(kind.cols, kind.rows)
    f.text.line(f"lookup(F, I, {y.name}, {f.parameter(node.layer, 'table')}, {ids}, {f.space(kind.rows)}, {kind.cols})")
    return y


def layer_norm(f: Firing, node: PPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(x.cols, x.space)
    gain, bias = f.parameter(node.layer, "gain"), f.parameter(node.layer, "bias")
    f.text.line(f"layer_norm(F, {y.name}, {x.name}, {gain}, {bias}, {f.space(x.space)}, {x.cols}, np.float32({node.attrs['eps']!r}))")
    return y
