"""Backward text of every operation: from the gradient of a node's output to those of its operands and parameters.

A writer is called only if the output has a gradient. It asks `Backward` where an operand's gradient goes, which also tells whether to write
there or to add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ampc.codegen import backward_layers as layers
from ampc.codegen import families, forward
from ampc.codegen.firing import Firing, Shared
from ampc.codegen.forward import column_scale, constants
from ampc.codegen.forward_rows import counters, group_members, nested_outer, row_index, segments
from ampc.codegen.loops import Buffer
from ampc.codegen.measures import loss_call, targets
from ampc.codegen.plan import Segment, is_direct
from ampc.ir.nodes import NPT, PPT, AnyNode, Concat, Group, Loss, Metric, Output, Ref, Split
from ampc.ir.ops import OPS
from ampc.place.work import is_remade

Key = Ref | tuple[str, int, int]
Writer = Callable[["Backward", Any, Buffer], None]


class Backward(Firing):
    """The backward function of a segment: values made or loaded when asked for, gradients by the value they belong to."""

    def __init__(self, shared: Shared, segment: Segment) -> None:
        super().__init__(shared, segment, 1)
        self.gradients: dict[Key, Buffer] = {}
        self.wholes: dict[int, Buffer] = {}
        """Split -> the gradient of what it cuts, of which its outputs' gradients are columns."""

    def missing(self, key: Key) -> Buffer:
        """Make a forward value again: gathered from an input, computed anew if cheap, else loaded from where forward kept it."""
        if len(key) == 3:
            return self.gather_input(key[1], key[2])
        node = self.graph.by_id[key[0]]
        if is_remade(node) or self._needs_factors(node):
            for port, buffer in enumerate(forward.write(self, node)):
                self.values[(node.id, port)] = buffer
            return self.values[key]
        kind = node.outputs[key[1]]
        target = self.buffer(kind.cols, kind.rows)
        with self.moving(target) as state:
            place = self.stored(key, state)
            self.shared.saved.add(place.key)
            self.copy_in(target, self.routes.address(place))
        return target

    def _needs_factors(self, node: AnyNode) -> bool:
        """Whether backward of a product needs both factors anyway."""
        return isinstance(node, NPT) and node.op == "mul" and all(self.wants(node, p) for p in range(2))

    def wants(self, node: AnyNode, port: int) -> bool:
        """Whether anyone wants the gradient of an input."""
        return node.inputs[port] in self.plan.needs_gradient

    def into(self, node: AnyNode, port: int, space: str, view: bool = False) -> tuple[Buffer, int]:
        """Return (buffer for the gradient of an operand, whether it already holds a part of it).

        view: it may be some columns of a buffer. So the gradient of what a Split cuts is put together where it belongs.
        """
        key = self.source(node, port)
        if key in self.gradients:
            if not view:
                self.gradients[key] = self.dense(self.gradients[key])
            return self.gradients[key], 1
        kind = self.kind(node, port)
        sender = self.graph.by_id[key[0]] if len(key) == 2 else None
        if view and isinstance(sender, Split) and self.wants(sender, 0):
            if sender.id not in self.wholes:
                self.wholes[sender.id] = self.buffer(sum(k.cols for k in sender.outputs), space)
            start = sum(k.cols for k in sender.outputs[: key[1]])
            self.gradients[key] = self.wholes[sender.id].columns(start, kind.cols)
        else:
            self.gradients[key] = self.buffer(kind.cols, space)
        return self.gradients[key], 0

    def hand_on(self, node: AnyNode, port: int, g: Buffer) -> bool:
        """Make `g` itself the gradient of an operand, if nothing will be added to it: the node alone reads that operand, row by row alike."""
        ref, key = node.inputs[port], self.source(node, port)
        if key in self.gradients or is_direct(self.graph, ref) != ref or self.kind(node, port).cols != g.cols or self.space_of(node, port) != g.space:
            return False
        self.gradients[key] = g
        return True

    def space_of(self, node: AnyNode, port: int) -> str:
        """The space of an operand's rows, without making the operand."""
        key = self.source(node, port)
        if key in self.values:
            return self.values[key].space
        kind = self.kind(node, port)
        if kind.rows == "*":
            return self.operand(node, port).space
        return kind.rows


def write(f: Backward, node: AnyNode) -> None:
    """Write the backward text of one payload node, if its output has a gradient (a loss begins one)."""
    if isinstance(node, Loss):
        _loss(f, node)
        return
    if isinstance(node, Metric | Output) or node.id in f.skipped:
        return
    ports = [f.gradients.get((node.id, p)) for p in range(len(node.outputs))]
    if not any(ports):
        return
    match node:
        case Concat():
            assert ports[0] is not None
            _concat(f, node, ports[0])
        case Split():
            _split(f, node, ports)
        case Group():
            assert ports[0] is not None
            _group(f, node, f.dense(ports[0]))
        case NPT() | PPT():
            g = ports[0]
            assert g is not None
            writer = WRITERS.get(node.op) or (_elementwise if OPS[node.op].grads else _nothing)
            writer(f, node, g if writer in (_elementwise, _same) else f.dense(g))  # type: ignore[arg-type]


def _elementwise(f: Backward, node: NPT, g: Buffer) -> None:
    op = OPS[node.op]
    wanted = [p for p in range(len(node.inputs)) if f.wants(node, p)]
    wanted = [p for p in wanted if not (op.grads[p] == "g" and f.hand_on(node, p, g))]
    if not wanted:
        return
    cols = g.cols
    operands = {f"x{p}": f.spread(f.view(node, p), g.space) for p in range(len(node.inputs)) if f"x{p}" in op.needs}
    if "y" in op.needs:
        operands["y"] = f.value((node.id, 0))
    plain, summed = [], []
    for p in wanted:
        kind_cols, space = f.kind(node, p).cols, f.space_of(node, p)
        if kind_cols == cols and space == g.space:
            plain.append((p, *f.into(node, p, space, view=True)))
        else:
            # The operand was repeated over rows or columns: a full gradient first, then its sum.
            full = f.buffer(cols, g.space)
            plain.append((p, full, 0))
            summed.append((p, full, space, kind_cols))
    f.each(g.space, cols, {**operands, "g": g}, [(target, constants(f, node, op.grads[p]), more) for p, target, more in plain])
    for p, full, space, kind_cols in summed:
        _sum_to(f, node, p, full, space, kind_cols)


def _sum_to(f: Backward, node: AnyNode, port: int, full: Buffer, space: str, cols: int) -> None:
    """Add a full gradient, summed over the rows and columns along which the operand was repeated."""
    narrow = full
    if space != full.space:
        narrow = f.buffer(full.cols, space)
        f.text.line(f"reduce_sum(F, I, {narrow.name}, {full.name}, {f.table(full.space)}, n, {full.cols}, 0)")
    target, more = f.into(node, port, space)
    f.text.line(f"add_broadcast_sum(F, {target.name}, {cols}, {narrow.name}, {narrow.cols}, {f.space(space)}, {more})")


# ------------------------------------------------------------------------------------------- movement of columns


def _concat(f: Backward, node: Concat, g: Buffer) -> None:
    start = 0
    for p in range(len(node.inputs)):
        cols = f.kind(node, p).cols
        if f.wants(node, p):
            space, part = f.space_of(node, p), g.columns(start, cols)
            if space == g.space:
                _same(f, node, part, p)
            else:
                _sum_to(f, node, p, f.dense(part), space, cols)
        start += cols


def _split(f: Backward, node: Split, gradients: list[Buffer | None]) -> None:
    """Put the parts together, unless they were made in their places (`Backward.into`)."""
    if not f.wants(node, 0):
        return
    space = next(g.space for g in gradients if g is not None)
    whole = f.wholes.get(node.id) or f.buffer(sum(k.cols for k in node.outputs), space)
    start = 0
    for kind, g in zip(node.outputs, gradients, strict=True):
        part = whole.columns(start, kind.cols)
        if g is None:
            f.each(space, kind.cols, {}, [(part, "F0", 0)])
        elif g != part:
            f.each(space, kind.cols, {"g": g}, [(part, "g", 0)])
        start += kind.cols
    _same(f, node, whole)


def _columns(f: Backward, node: NPT, g: Buffer) -> None:
    start = node.attrs["start"]
    assert isinstance(start, int)
    if not f.wants(node, 0):
        return
    target, more = f.into(node, 0, g.space)
    if not more:
        f.each(g.space, target.cols, {}, [(target, "F0", 0)])
    f.each(g.space, g.cols, {"g": g}, [(target.columns(start, g.cols), "g", 1)])


def _pad(f: Backward, node: NPT, g: Buffer) -> None:
    if f.wants(node, 0):
        _same(f, node, g.columns(0, f.kind(node, 0).cols))


def _same(f: Backward, node: AnyNode, g: Buffer, port: int = 0) -> None:
    """g is the gradient of an operand."""
    if f.wants(node, port) and not f.hand_on(node, port, g):
        target, more = f.into(node, port, g.space, view=True)
        f.each(g.space, g.cols, {"g": g}, [(target, "g", more)])


def _nothing(f: Backward, node: NPT, g: Buffer) -> None:
    pass


# ------------------------------------------------------------------------------------------------------ rows


def _group(f: Backward, node: Group, g: Buffer) -> None:
    """Give each member's row back to where its sender reads gradients."""
    if not f.wants(node, 0):
        return
    with f.tokens() as state:
        opening, lines, member = group_members(f, node, state)
        f.text.line("r = 0")
        with f.text.block(opening):
            for line in lines:
                f.text.line(line)
            to = f.routes.address(f.routes.gradient_place((node.id, 0), member))
            f.text.line(f"copy(F, {to}, F, {g.name} + ({f.first(g.space)} + r) * {g.cols}, {g.cols})")
            f.text.line("r += 1")


def _gather(f: Backward, node: NPT, g: Buffer) -> None:
    if not f.wants(node, 0):
        return
    space = f.space_of(node, 0)
    f.space(space)
    ids = row_index(f, node, g.space, space)
    target, more = f.into(node, 0, space)
    if not more:
        f.text.line(f"zero(F, {target.name}, {f.space(space)} * {g.cols})")
    f.text.line(f"scatter_add(F, I, {target.name}, {ids}, {g.name}, {f.space(g.space)}, {g.cols})")


def _scatter(f: Backward, node: NPT, g: Buffer) -> None:
    if not f.wants(node, 0):
        return
    family = node.inputs[0][0]
    if family in f.families and f.families[family].scatter is node:
        f.gradients[(family, 0)] = g  # that of the sum, from which the family takes what its rows need
        return
    space = f.space_of(node, 0)
    f.space(space)
    reduce = node.attrs["reduce"]
    x, y = (f.operand(node, 0).name, f.value((node.id, 0)).name) if reduce == "max" else ("0", "0")
    ids = row_index(f, node, space, g.space)
    target, more = f.into(node, 0, space)
    rows = f"{f.space(space)}, {f.space(g.space)}, {g.cols}"
    f.text.line(f"scatter_{reduce}_bwd(F, I, {target.name}, {x}, {y}, {g.name}, {ids}, {rows}, {more}{counters(f, node, g.space)})")


def _reduce_rows(f: Backward, node: NPT, g: Buffer) -> None:
    if not f.wants(node, 0):
        return
    space = f.space_of(node, 0)
    reduce = node.attrs["reduce"]
    x = f"{f.operand(node, 0).name}, " if reduce == "max" else ""
    table, rows = segments(f, space, g.space)
    target, more = f.into(node, 0, space)
    f.text.line(f"spread_{reduce}(F, I, {target.name}, {x}{g.name}, {table}, {rows}, {g.cols}, {more})")


def _softmax_rows(f: Backward, node: NPT, g: Buffer) -> None:
    if not f.wants(node, 0):
        return
    y = f.value((node.id, 0))
    table, rows = segments(f, g.space, nested_outer(f, node, g.space))
    target, more = f.into(node, 0, g.space)
    f.text.line(f"softmax_segments_bwd(F, I, {target.name}, {y.name}, {g.name}, {table}, {rows}, {g.cols}, {more})")


def _expand_rows(f: Backward, node: NPT, g: Buffer) -> None:
    if not f.wants(node, 0):
        return
    space = f.space_of(node, 0)
    table, rows = segments(f, g.space, space)
    target, more = f.into(node, 0, space)
    f.text.line(f"reduce_sum(F, I, {target.name}, {g.name}, {table}, {rows}, {g.cols}, {more})")


# --------------------------------------------------------------------------------------------------- columns


def _softmax(f: Backward, node: NPT, g: Buffer) -> None:
    if f.wants(node, 0):
        y = f.value((node.id, 0))
        target, more = f.into(node, 0, g.space)
        f.text.line(f"{node.op}_bwd(F, {target.name}, {y.name}, {g.name}, {f.space(g.space)}, {g.cols}, {more})")


def _sum_columns(f: Backward, node: NPT, g: Buffer) -> None:
    if f.wants(node, 0):
        target, more = f.into(node, 0, g.space)
        scale = column_scale(node, target)
        f.text.line(f"sum_columns_bwd(F, {target.name}, {g.name}, {f.space(g.space)}, {target.cols}, {scale}, {more})")


def _max_columns(f: Backward, node: NPT, g: Buffer) -> None:
    if f.wants(node, 0):
        x = f.operand(node, 0)
        target, more = f.into(node, 0, g.space)
        f.text.line(f"max_columns_bwd(F, {target.name}, {x.name}, {g.name}, {f.space(g.space)}, {x.cols}, {more})")


def _dot(f: Backward, node: NPT, g: Buffer) -> None:
    for p in range(2):
        if not f.wants(node, p):
            continue
        other = f.spread(f.operand(node, 1 - p), g.space)
        space = f.space_of(node, p)
        if space == g.space:
            target, more = f.into(node, p, space)
            f.text.line(f"dot_bwd(F, {target.name}, {other.name}, {g.name}, {f.space(g.space)}, {other.cols}, {more})")
        else:
            full = f.buffer(other.cols, g.space)
            f.text.line(f"dot_bwd(F, {full.name}, {other.name}, {g.name}, {f.space(g.space)}, {other.cols}, 0)")
            _sum_to(f, node, p, full, space, other.cols)


def _dropout(f: Backward, node: NPT, g: Buffer) -> None:
    if f.wants(node, 0):
        target, more = f.into(node, 0, g.space)
        forward.drop(f, node, target, g, more)


# ---------------------------------------------------------------------------------------------------- losses


def _loss(f: Backward, node: Loss) -> None:
    second = len(node.inputs) > 1 and node.op != "cross_entropy" and f.wants(node, 1)
    if not f.wants(node, 0) and not second:
        return
    x = f.operand(node, 0)
    weight = f"np.float32({float(node.weight)!r})"
    if node.op == "value":
        into, more = f.into(node, 0, x.space, view=True)
        f.each(x.space, x.cols, {}, [(into, weight, more)])
        return
    target = targets(f, node, x)
    rows, size = f.space(x.space), f"{f.space(x.space)} * {x.cols}"
    if node.op == "cross_entropy":
        into, more = f.into(node, 0, x.space)
        f.text.line(f"cross_entropy_bwd(F, I, {into.name}, {x.name}, {target}, {rows}, {x.cols}, {weight}, {more})")
        return
    g = f.buffer(x.cols, x.space)
    call = loss_call(f, node, x, target)
    arguments = call[call.index("(") + 1 : -1].split(", ", 1)[1]
    f.text.line(f"{node.op}_bwd(F, {g.name}, {arguments}, {weight})")
    if f.wants(node, 0):
        into, more = f.into(node, 0, x.space, view=True)
        f.each(x.space, x.cols, {"g": g}, [(into, "g", more)])
    if second:
        into, more = f.into(node, 1, f.space_of(node, 1))
        if node.op == "binary_cross_entropy":
            f.text.line(f"subtract_product(F, {into.name}, {x.name}, {weight}, {size}, {more})")
        else:
            f.text.line(f"subtract(F, {into.name}, {g.name}, {size}, {more})")


WRITERS: dict[str, Writer] = {
    "identity": _same, "gate": _same, "stop_gradient": _nothing, "columns": _columns, "pad": _pad, "gather": _gather, "scatter": _scatter,
    "reduce_rows": _reduce_rows, "softmax_rows": _softmax_rows, "expand_rows": _expand_rows, "softmax": _softmax, "log_softmax": _softmax,
    "max_columns": _max_columns, "sum_columns": _sum_columns, "mean_columns": _sum_columns, "dot": _dot, "dropout": _dropout, "linear": layers.linear,
    "linear_part": layers.linear_part, "lookup": layers.lookup, "layer_norm": layers.layer_norm, "linear_by": families.backward,
}  # fmt: skip
