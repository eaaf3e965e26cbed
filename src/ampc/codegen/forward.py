"""Forward text of every operation: a table from its name to a writer, which returns the buffer with the result.

`cheap` operations keep nothing for backward; it makes their results anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ampc.codegen.firing import Buffer, Firing, Fold, Space
from ampc.codegen.states import State
from ampc.ir.nodes import NPT, PPT, AnyNode, Concat, Coord, Group, Loss, Metric, Output, Split
from ampc.ir.ops import OPS
from ampc.ir.scope import chain

Writer = Callable[[Firing, Any], Buffer]

CHEAP = frozenset(
    {"fill", "field", "one_hot", "number", "pad", "columns", "lookup", "expand_rows", "identity", "gate", "stop_gradient", "affine", "neg", "gather"}
)


def is_cheap(node: AnyNode) -> bool:
    """Whether backward makes the node's result again rather than keep it."""
    return isinstance(node, Concat | Split | Group) or (isinstance(node, NPT | PPT) and node.op in CHEAP)


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
            return [_group(f, node)]
        case Loss() | Metric():
            _measure(f, node)
            return []
        case Output():
            _output(f, node)
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
        return f.text.head(f"k{node.id}_{name}", f"np.float32({float(value)!r})")

    return re.sub(r"\b([ac])_(\w+)", local, text)


def spread(f: Firing, value: Buffer, space: Space) -> Buffer:
    """Return the value with a row for each row of `space`."""
    if value.space == space:
        return value
    assert not value.space, "only single rows are repeated"
    target = f.buffer(value.cols, space)
    f.text.line(f"expand(F, I, {target.name}, {value.name}, {f.table(space)}, n, {value.cols})")
    return target


def operands(f: Firing, node: NPT) -> list[Buffer]:
    """The message operands, repeated over rows where another one has them."""
    found = [f.operand(node, p) for p in range(len(node.inputs))]
    space = next((x.space for x in found if x.space), "")
    return [spread(f, x, space) for x in found]


def scalar_loop(f: Firing, rows: str, cols: int, operands: list[Buffer]) -> tuple[str, dict[str, str]]:
    """Return the head of a loop over all numbers, and the index text of each operand (by buffer name); `j` is the number's index."""
    if all(x.cols == cols for x in operands):
        return f"for j in range({rows} * {cols}):", {x.name: "j" for x in operands}
    return f"for j in range({rows} * {cols}):", {x.name: "j" if x.cols == cols else f"j // {cols}" for x in operands}


def _elementwise(f: Firing, node: NPT | PPT) -> Buffer:
    assert isinstance(node, NPT)
    op = OPS[node.op]
    assert op.expr is not None, f"`{node.op}` has no kernel text"
    xs = operands(f, node)
    cols = node.outputs[0].cols
    y = f.buffer(cols, xs[0].space)
    opening, index = scalar_loop(f, f.space(y.space), cols, xs)
    with f.text.block(opening):
        for k, x in enumerate(xs):
            f.text.line(f"x{k} = at(F, {x.name} + {index[x.name]})")
        f.text.line(f"put(F, {y.name} + j, np.float32({constants(f, node, op.expr)}))")
    return y


# ------------------------------------------------------------------------------------------- movement of columns


def _concat(f: Firing, node: Concat) -> Buffer:
    parts = [f.operand(node, p) for p in range(len(node.inputs))]
    space = next((x.space for x in parts if x.space), "")
    parts = [spread(f, x, space) for x in parts]
    y = f.buffer(node.outputs[0].cols, space)
    start = 0
    for x in parts:
        f.text.line(f"put_columns(F, {y.name}, {y.cols}, {start}, {x.name}, {x.cols}, 0, {f.space(space)}, {x.cols})")
        start += x.cols
    return y


def _split(f: Firing, node: Split) -> list[Buffer]:
    x = f.operand(node, 0)
    parts, start = [], 0
    for kind in node.outputs:
        y = f.buffer(kind.cols, x.space)
        f.text.line(f"put_columns(F, {y.name}, {y.cols}, 0, {x.name}, {x.cols}, {start}, {f.space(x.space)}, {y.cols})")
        parts.append(y)
        start += kind.cols
    return parts


def _columns(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(node.outputs[0].cols, x.space)
    f.text.line(f"put_columns(F, {y.name}, {y.cols}, 0, {x.name}, {x.cols}, {node.attrs['start']}, {f.space(x.space)}, {y.cols})")
    return y


def _pad(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(node.outputs[0].cols, x.space)
    f.text.line(f"zero(F, {y.name}, {f.space(x.space)} * {y.cols})")
    f.text.line(f"put_columns(F, {y.name}, {y.cols}, 0, {x.name}, {x.cols}, 0, {f.space(x.space)}, {x.cols})")
    return y


def _same(f: Firing, node: NPT) -> Buffer:
    return f.operand(node, 0)


# --------------------------------------------------------------------------------------------------- sources


def _fill(f: Firing, node: NPT) -> Buffer:
    kind = node.outputs[0]
    y = f.buffer(kind.cols, kind.rows)
    value = node.attrs["value"]
    assert isinstance(value, int | float)
    f.text.line(f"fill(F, {y.name}, {f.space(kind.rows)} * {kind.cols}, np.float32({float(value)!r}))")
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


# ------------------------------------------------------------------------------------------------------ rows


def _group(f: Firing, node: Group) -> Buffer:
    """Stack the members' rows. They lie wherever their senders left them; one after another if the group is a whole axis."""
    kind = f.kind(node, 0)
    out = node.outputs[0]
    space = f"*{node.id}" if out.rows == "*" else out.rows
    y = f.buffer(out.cols, space)
    with f.tokens() as state:
        opening, lines, member = group_members(f, node, state)
        f.text.line("r = 0")
        with f.text.block(opening):
            for line in lines:
                f.text.line(line)
            place = f.routes.locate(node.inputs[0], member)
            f.shared.read.add(place.key)
            f.text.line(f"copy(F, {y.name} + ({f.first(space)} + r) * {kind.cols}, F, {f.routes.address(place)}, {kind.cols})")
            f.text.line("r += 1")
    return y


def group_members(f: Firing, node: Group, state: Any) -> tuple[str, tuple[str, ...], Any]:
    """Return a loop over the states of a Group's members, by element: head, lines, state."""
    region = f.graph.regions[node.region]
    if node.key is None:
        e = f.text.name("e")
        extent = f.states.extent(region, state)
        coord = f"({extent} - 1 - {e})" if region.reverse else e
        return f"for {e} in range({extent}):", (), state.inner(node.region, coord)
    found = f.routes.inverse(node.region, node.key, state)
    return f"for {found.variable} in range({found.first}, {found.last}):", found.lines, found.state


def row_index(f: Firing, node: NPT, space: Space, of: Space, invert: bool = False) -> str:
    """Rows of a buffer over `of` that an index field names, for each row of `space`; -1 for none and for what isn't in the buffer."""
    ids = f.integers(node, node.fields[0], space)
    table = f.table(of)
    f.space(space)
    with f.tokens() as state:
        low = "0"
        if f.states.nested_in(of, state.region) is not None:  # the field counts from the instance's first element, the buffer holds one parent's
            low = f"({f.states.first_row(of, state)} - {f.states.axis_offset(of)})"
        with f.text.block(f"for r in range({f.first(space)}, {f.first(space)} + {f.count(space)}):"):
            f.text.line(f"e = at(I, {ids} + r) - {low}")
            f.text.line(f"put(I, {ids} + r, e + at(I, {table} + i) if e >= 0 and e < {f.count(of)} else -1)")
    return ids


def _gather(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    space = node.outputs[0].rows
    ids = row_index(f, node, space, x.space)
    y = f.buffer(x.cols, space)
    f.text.line(f"lookup(F, I, {y.name}, {x.name}, {ids}, {f.space(space)}, {x.cols})")
    return y


def counters(f: Firing, node: NPT, space: Space) -> str:
    """One more argument for the kernels of a scatter that have to count: a word for each row of the result."""
    return "" if node.attrs["reduce"] == "sum" else f", {f.ints(space)}"


def _scatter(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    space = node.outputs[0].rows
    f.space(space)
    ids = row_index(f, node, x.space, space)
    y = f.buffer(x.cols, space)
    rows = f"{f.space(x.space)}, {f.space(space)}, {x.cols}{counters(f, node, space)}"
    f.text.line(f"scatter_{node.attrs['reduce']}(F, I, {y.name}, {x.name}, {ids}, {rows})")
    return y


def segments(f: Firing, inner: Space, outer: Space) -> tuple[str, str]:
    """Return (place in I of the starts of the rows of `inner` for each row of `outer`, number of rows of `outer`)."""
    if not outer:
        return f.table(inner), "n"
    # Children of each element of an axis: starts relative to the buffer.
    table = f.ints(outer, extra=1)
    f.space(outer)
    f.space(inner)
    with f.tokens() as state:
        starts = f.text.cell(f"starts{f.states.axis_number[inner]}", "starts", inner)
        first = f.states.first_row(outer, state)
        offset = f.states.first_row(inner, state)
        with f.text.block(f"for r in range({f.count(outer)}):"):
            f.text.line(f"put(I, {table} + {f.first(outer)} + r, {f.first(inner)} + at(XI, {starts} + {first} + r) - {offset})")
    f.text.line(f"put(I, {table} + {f.space(outer)}, {f.space(inner)})")
    return table, f.space(outer)


def _reduce_rows(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    outer = node.outputs[0].rows
    table, rows = segments(f, x.space, outer)
    y = f.buffer(x.cols, outer)
    reduce = node.attrs["reduce"]
    more = ", 0" if reduce == "sum" else ""
    f.text.line(f"reduce_{reduce}(F, I, {y.name}, {x.name}, {table}, {rows}, {x.cols}{more})")
    return y


def nested_outer(f: Firing, node: NPT, space: Space) -> Space:
    """The space whose rows own those of `space`: "" where the payload is one token's, the parent axis where it spans many parents."""
    if space.startswith("*") or not f.states.axis_parent.get(space):
        return ""
    return "" if f.states.nested_in(space, f.segment.region) is not None else f.states.axis_parent[space]


def _softmax_rows(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    table, rows = segments(f, x.space, nested_outer(f, node, x.space))
    y = f.buffer(x.cols, x.space)
    f.text.line(f"softmax_segments(F, I, {y.name}, {x.name}, {table}, {rows}, {x.cols})")
    return y


def _expand_rows(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    space = node.outputs[0].rows
    table, rows = segments(f, space, x.space)
    y = f.buffer(x.cols, space)
    f.text.line(f"expand(F, I, {y.name}, {x.name}, {table}, {rows}, {x.cols})")
    return y


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
    a, b = operands(f, node)
    y = f.buffer(1, a.space)
    f.text.line(f"dot(F, {y.name}, {a.name}, {b.name}, {f.space(a.space)}, {a.cols})")
    return y


def drop(f: Firing, node: NPT, target: Buffer, x: Buffer, more: int) -> None:
    """Write the dropout of x, or of a gradient: the mask follows from seed, epoch, instance, node and state (`ir.draw.keep_mask`)."""
    f.space(x.space)
    with f.tokens() as state:
        f.text.line("key = fold(fold(fold(unsigned(0), I[SEED]), inst + (I[EPOCH] << 40)), " + f"{node.id})")
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
    xs = operands(f, node)
    y = f.buffer(1, xs[0].space)
    text = {**COMPARE, **THRESHOLD, **LOGIC}[node.op]
    if node.op in THRESHOLD:
        text = text.replace("limit", f.text.head(f"k{node.id}_threshold", f"np.float32({float(node.attrs['threshold'])!r})"))  # type: ignore[arg-type]
    with f.text.block(f"for j in range({f.space(y.space)}):"):
        for k, x in enumerate(xs):
            f.text.line(f"x{k} = at(F, {x.name} + j)")
        f.text.line(f"put(F, {y.name} + j, F1 if {text} else F0)")
    return y


# ------------------------------------------------------------------------------------------------ parameters


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
        if part.id not in f.absorbed:
            x = f.operand(concat, port)
            f.text.line(f"linear_part(F, I, {f.gemm_words}, {y.name}, {x.name}, {w} + {start * cols}, {rows}, {width}, {cols}, {written})")
            written = 1
        start += width
    return y


def _linear(f: Firing, node: PPT) -> Buffer:
    if node.id in f.joined:
        return _linear_by_parts(f, node, f.joined[node.id])
    x = f.operand(node, 0)
    y = f.buffer(node.outputs[0].cols, x.space)
    w, b = f.parameter(node.layer, "w"), f.parameter(node.layer, "b")
    f.text.line(f"linear(F, I, {f.gemm_words}, {y.name}, {x.name}, {w}, {b}, {f.space(x.space)}, {x.cols}, {y.cols})")
    return y


def _lookup(f: Firing, node: PPT) -> Buffer:
    kind = node.outputs[0]
    ids = f.labels(node, kind.rows, node.fields, 0)
    y = f.buffer(kind.cols, kind.rows)
    f.text.line(f"lookup(F, I, {y.name}, {f.parameter(node.layer, 'table')}, {ids}, {f.space(kind.rows)}, {kind.cols})")
    return y


def _layer_norm(f: Firing, node: PPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(x.cols, x.space)
    gain, bias = f.parameter(node.layer, "gain"), f.parameter(node.layer, "bias")
    f.text.line(f"layer_norm(F, {y.name}, {x.name}, {gain}, {bias}, {f.space(x.space)}, {x.cols}, np.float32({node.attrs['eps']!r}))")
    return y


def by_kind(f: Firing, node: PPT, x: Buffer) -> tuple[str, str]:
    """Sort rows by family member: return (order: rows of x by member, starts: members + 1 words), both places in I."""
    ids = f.integers(node, node.fields[0], x.space)
    order = f.ints(x.space)
    members = node.attrs["members"]
    block = f.text.head("W", "I[WORK0] + w * I[WORK_STRIDE]")
    index = f.shared.cells("ints", f.segment.id, f.direction, f.buffers, 2 * int(members) + 2, "#")  # type: ignore[arg-type]
    f.buffers += 1
    starts = f.text.head(f"kinds{node.id}", f"{block} + I[{index}]")
    f.text.line(f"sort_rows(I, {order}, {starts}, {ids}, {f.space(x.space)}, {members})")
    return order, starts


def _linear_by(f: Firing, node: PPT) -> Buffer:
    x = f.operand(node, 0)
    y = f.buffer(node.outputs[0].cols, x.space)
    order, starts = by_kind(f, node, x)
    packed, made = f.buffer(x.cols, x.space), f.buffer(y.cols, x.space)
    rows = f.space(x.space)
    f.text.line(f"lookup(F, I, {packed.name}, {x.name}, {order}, {rows}, {x.cols})")
    f.text.line(f"zero(F, {y.name}, {rows} * {y.cols})")
    for k in range(int(node.attrs["members"])):  # type: ignore[arg-type]
        layer = f"{node.layer}.{k}"
        f.text.line(f"a, m = at(I, {starts} + {k}), at(I, {starts} + {k + 1}) - at(I, {starts} + {k})")
        f.text.line(
            f"linear(F, I, {f.gemm_words}, {made.name} + a * {y.cols}, {packed.name} + a * {x.cols}, "
            f"{f.parameter(layer, 'w')}, {f.parameter(layer, 'b')}, m, {x.cols}, {y.cols})"
        )
    f.text.line(f"unpack(F, I, {y.name}, {made.name}, {order}, at(I, {starts} + {node.attrs['members']}), {y.cols})")
    return y


# ------------------------------------------------------------------------------------------ losses and the like

LABELLED = {"cross_entropy", "accuracy", "top_k"}
EXTRA = {"huber": "delta", "top_k": "k"}


def targets(f: Firing, node: Loss | Metric, x: Buffer) -> str:
    """Write the loads of a loss's target; return its place: integers in I for a label, floats in F for a value."""
    if node.op in LABELLED:
        return f.labels(node, x.space, node.fields, 1)
    if node.fields:
        return f.floats(node.fields[0], x.cols, x.space).name
    return spread(f, f.operand(node, 1), x.space).name


def loss_call(f: Firing, node: Loss | Metric, x: Buffer, target: str) -> str:
    rows = f.space(x.space)
    op = "squared" if node.op in ("squared_error", "root_mean_square_error") else "absolute" if node.op == "absolute_error" else node.op
    extra = ""
    if op in EXTRA:
        value = node.attrs[EXTRA[op]]
        extra = f", {value}" if op == "top_k" else f", np.float32({value!r})"
    if node.op in LABELLED:
        return f"{op}(F, I, {x.name}, {target}, {rows}, {x.cols}{extra})"
    return f"{op}(F, {x.name}, {target}, {rows} * {x.cols}{extra})"


def _measure(f: Firing, node: Loss | Metric) -> None:
    x = f.operand(node, 0)
    target = targets(f, node, x)
    sums = f.text.head("sums", "I[STAT0] + w * I[STATS]")
    f.text.line(f"total = {loss_call(f, node, x, target)}")
    if isinstance(node, Loss):
        f.text.line(f"D[{sums}] += {float(node.weight)!r} * total")
        with f.text.block("if total - total != 0.0:"):
            table = f.table(x.space) if x.space else "-1"
            f.text.line(f"blame(F, I, w, n, {x.name}, {table}, {x.cols}, {f.segment.id})")
        return
    k = 1 + 2 * [m.id for m in f.graph.nodes if isinstance(m, Metric)].index(node.id)
    known = f"known_labels(I, {target}, {f.space(x.space)})" if node.op in LABELLED else f"known_values(F, {target}, {f.space(x.space)} * {x.cols})"
    f.text.line(f"D[{sums} + {k}] += total")
    f.text.line(f"D[{sums} + {k + 1}] += {known}")


def _output(f: Firing, node: Output) -> None:
    x = f.operand(node, 0)
    out = f.text.cell("out", "out", node.id)
    f.space(x.space)
    with f.text.block(f"if {out} >= 0:"), f.tokens() as state:
        frm = f"{x.name} + {f.first(x.space)} * {x.cols}"
        f.text.line(f"copy(O, {out} + ({output_row(f, x, state)}) * {x.cols}, F, {frm}, {f.size(x)})")


def output_row(f: Firing, x: Buffer, state: State) -> str:
    """Row of a prediction's array at which a token's rows go: by instance, by element of the whole data, or by state."""
    region = f.graph.regions[f.segment.region]
    if not region.id:
        return f.states.first_row(x.space, state) if x.space else "inst"
    if region.axis and not region.parent and not x.space:
        return f"{f.states.axis_offset(region.axis)} + {f.states.position(Coord(region.id), state)}"
    room = f.text.cell("room", "states", region.id)
    index = f"inst * {room} + {f.states.linear(state)}"
    return f"({index}) * {f.text.cell('rows', 'most_rows', x.space)}" if x.space else index


WRITERS: dict[str, Writer] = {
    "identity": _same, "gate": _same, "stop_gradient": _same, "columns": _columns, "pad": _pad, "fill": _fill, "field": _field, "one_hot": _one_hot,
    "number": _number, "gather": _gather, "scatter": _scatter, "reduce_rows": _reduce_rows, "softmax_rows": _softmax_rows,
    "expand_rows": _expand_rows,
    "softmax": _by_row("softmax"), "log_softmax": _by_row("log_softmax"), "max_columns": _by_row("max_columns"), "argmax": _by_row("argmax"),
    "sum_columns": _sum_columns, "mean_columns": _sum_columns, "dot": _dot, "dropout": _dropout, "linear": _linear, "lookup": _lookup,
    "layer_norm": _layer_norm, "linear_by": _linear_by, **dict.fromkeys([*COMPARE, *THRESHOLD, *LOGIC], _truth),
}  # fmt: skip
