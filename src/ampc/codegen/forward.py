"""Forward text of every operation: a table from its name to a writer, which returns the buffer with the result.

Operations that are `place.work.is_remade` keep nothing for backward; it makes their results anew.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

from ampc.codegen import families, measures
from ampc.codegen import forward_layers as layers
from ampc.codegen import forward_rows as rows
from ampc.codegen.firing import Firing
from ampc.codegen.loops import Buffer
from ampc.codegen.own import NODE, own
from ampc.ir.nodes import NPT, PPT, AnyNode, Concat, Group, Loss, Metric, Output, Split
from ampc.ir.ops import OPS
from ampc.ir.scope import chain

Writer = Callable[[Firing, Any], Buffer]

def write(f: Firing, node: AnyNode) -> list[Buffer]:
    """Write the forward text of one payload node; return the buffers of its outputs (none for what a Linear takes in by parts)."""
    if node.id in f.skipped:
        return []
    match node:
        case Concat():
            return [_concat(f, node)]
        case Split():
            return _split(f, node)
        case Group():
            return [rows.group(f, node)]
        case Loss() | Metric():
            measures.measure(f, node)
            return []
        case Output():
            measures.output(f, node)
            return []
        case NPT() | PPT():
            writer = WRITERS.get(node.op)
            if writer is not None:
                return [writer(f, node)]
            return [_elementwise(f, node)]
    raise AssertionError(type(node).__name__)


# ---------------------------------------------------------------------------------------------- element-wise


def constants(f: Firing, node: NPT | PPT, text: str) -> str:
    """Replace `a_<attr>` and `c_<constant>` by locals that hold them as float32."""
    op = OPS[node.op]

    def local(match: re.Match[str]) -> str:
        kind, name = match[1], match[2]
        value = node.attrs[name] if kind == "a" else op.constants[name]
        assert isinstance(value, int | float)
        return f.text.head(f"k{own(NODE, node.id)}_{name}", f"np.float32({float(value)!r})")

    return re.sub(r"\b([ac])_(\w+)", local, text)


def _elementwise(f: Firing, node: NPT | PPT) -> Buffer:
    assert isinstance(node, NPT)
    op = OPS[node.op]
    assert op.expr is not None, f"`{node.op}` has no kernel text"
    xs = f.views(node)
    y = f.buffer(node.outputs[0].cols, xs[0].space)
    f.each(y.space, y.cols, {f"x{k}": x for k, x in enumerate(xs)}, [(y, constants(f, node, op.expr), 0)])
    return y


# ------------------------------------------------------------------------------------------- movement of columns


def _concat(f: Firing, node: Concat) -> Buffer:
    parts = [f.operand(node, p) for p in range(len(node.inputs))]
    space = next((x.space for x in parts if x.space), "")
    parts = [f.spread(x, space) for x in parts]
    y = f.buffer(node.outputs[0].cols, space)
    start = 0
    for x in parts:
        f.text.line(f"put_columns(F, {y.name}, {y.cols}, {start}, {x.name}, {x.cols}, 0, {f.space(space)}, {x.cols})")
        start += x.cols
    return y


def _split(f: Firing, node: Split) -> list[Buffer]:
    x = f.view(node, 0)
    starts = itertools.accumulate((kind.cols for kind in node.outputs), initial=0)
    return [x.columns(start, kind.cols) for start, kind in zip(starts, node.outputs, strict=False)]


def _columns(f: Firing, node: NPT) -> Buffer:
    start = node.attrs["start"]
    assert isinstance(start, int)
    return f.view(node, 0).columns(start, node.outputs[0].cols)


def _pad(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(node.outputs[0].cols, x.space)
    f.text.line(f"zero(F, {y.name}, {f.space(x.space)} * {y.cols})")
    f.text.line(f"put_columns(F, {y.name}, {y.cols}, 0, {x.name}, {x.cols}, 0, {f.space(x.space)}, {x.cols})")
    return y


def _same(f: Firing, node: NPT) -> Buffer:
    return f.view(node, 0)


# --------------------------------------------------------------------------------------------------- sources


def _fill(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    y = f.buffer(kind.cols, kind.rows)
    value = node.attrs["value"]
    assert isinstance(value, int | float)
    f.text.line(f"fill(F, {y.name}, {f.space(kind.rows)} * {kind.cols}, np.float32({float(value)!r}))")
    return y


def _constant(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    value = node.attrs["value"]
    assert isinstance(value, int)
    y = f.buffer(1, kind.rows)
    f.text.line(f"fill(F, {y.name}, {f.space(kind.rows)}, np.float32({value}))")
    return y


def _field(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    return f.floats(node.fields[0], kind.cols, kind.rows)


def _one_hot(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    ids = f.labels(node, kind.rows, node.fields, 0)
    y = f.buffer(kind.cols, kind.rows)
    f.text.line(f"one_hot(F, I, {y.name}, {ids}, {f.space(kind.rows)}, {kind.cols})")
    return y


def _number(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    if not node.fields:
        return f.operand(node, 0)
    return f.floats(node.fields[0], kind.cols, kind.rows)


# --------------------------------------------------------------------------------------------------- columns


def _by_row(kernel: str) -> Writer:
    def writer(f: Firing, node: NPT) -> Buffer:
        x = f.operand(node, 0)
        y = f.buffer(node.outputs[0].cols, x.space)
        f.text.line(f"{kernel}(F, {y.name}, {x.name}, {f.space(x.space)}, {x.cols})")
        return y

    return writer


def _sum_columns(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(1, x.space)
    f.text.line(f"sum_columns(F, {y.name}, {x.name}, {f.space(x.space)}, {x.cols}, {column_scale(node, x)})")
    return y


def column_scale(node: NPT, x: Buffer) -> str:
    return "F1" if node.op == "sum_columns" else f"np.float32({1.0 / x.cols!r})"


def _dot(f: Firing, node: NPT) -> Buffer:
    a, b = (f.dense(x) for x in f.views(node))
    y = f.buffer(1, a.space)
    f.text.line(f"dot(F, {y.name}, {a.name}, {b.name}, {f.space(a.space)}, {a.cols})")
    return y


def drop(f: Firing, node: NPT, target: Buffer, x: Buffer, more: int) -> None:
    """Write the dropout of x, or of a gradient: the mask follows from seed, epoch, instance, node and state (`ir.draw.keep_mask`)."""
    f.space(x.space)
    with f.tokens() as state:
        f.text.line("key = fold(fold(fold(unsigned(0), I[SEED]), inst + (I[EPOCH] << 40)), " + f"{own(NODE, node.id)})")
        for r in chain(f.graph, f.segment.region):
            f.text.line(f"key = fold(key, {state.coords[r.id]})")
        place = f"{f.first(x.space)} * {x.cols}"
        rate = f"np.float32({node.attrs['rate']!r})"
        f.text.line(f"dropout(F, {target.name} + {place}, {x.name} + {place}, key, {f.size(x)}, {rate}, {more})")


def _dropout(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(x.cols, x.space)
    with f.text.block("if I[TRAIN] == 1:"):
        drop(f, node, y, x, 0)
    with f.text.block("else:"):
        f.text.line(f"copy(F, {y.name}, F, {x.name}, {f.space(x.space)} * {x.cols})")
    return y


# -------------------------------------------------------------------------------------------------- integers

COMPARE = {"less": "x0 < x1", "less_equal": "x0 <= x1", "equal": "x0 == x1"}
THRESHOLD = {"at_least": "x0 >= limit", "above": "x0 > limit", "is": "x0 == limit"}
LOGIC = {"not": "x0 == F0", "both": "x0 != F0 and x1 != F0", "either": "x0 != F0 or x1 != F0"}


def _truth(f: Firing, node: NPT) -> Buffer:
    xs = f.views(node)
    y = f.buffer(1, xs[0].space)
    text = {**COMPARE, **THRESHOLD, **LOGIC}[node.op]
    if node.op in THRESHOLD:
        text = text.replace("limit", f.text.head(f"k{own(NODE, node.id)}_threshold", f"np.float32({float(node.attrs['threshold'])!r})"))  # type: ignore[arg-type]
    f.each(y.space, 1, {f"x{k}": x for k, x in enumerate(xs)}, [(y, f"F1 if {text} else F0", 0)])
    return y


WRITERS: dict[str, Writer] = {
    "identity": _same, "gate": _same, "stop_gradient": _same, "columns": _columns, "pad": _pad, "fill": _fill, "constant": _constant,
    "field": _field, "one_hot": _one_hot,
    "number": _number, "gather": rows.gather, "scatter": rows.scatter, "reduce_rows": rows.reduce_rows, "softmax_rows": rows.softmax_rows,
    "expand_rows": rows.expand_rows,
    "softmax": _by_row("softmax"), "log_softmax": _by_row("log_softmax"), "max_columns": _by_row("max_columns"), "argmax": _by_row("argmax"),
    "sum_columns": _sum_columns, "mean_columns": _sum_columns, "dot": _dot, "dropout": _dropout, "linear": layers.linear,
    "linear_part": layers.linear_part, "lookup": layers.lookup, "layer_norm": layers.layer_norm, "linear_by": families.forward,
    **dict.fromkeys([*COMPARE, *THRESHOLD, *LOGIC], _truth),
}  # fmt: skip
