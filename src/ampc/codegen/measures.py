"""Forward text of what leaves a network: losses, metrics and outputs."""

from __future__ import annotations

from ampc.codegen.firing import Firing
from ampc.codegen.loops import Buffer
from ampc.codegen.own import SEGMENT, SUM, own
from ampc.codegen.states import State
from ampc.ir.nodes import Coord, Loss, Metric, Output, Region
from ampc.ir.scope import chain


LABELLED = {"cross_entropy", "accuracy", "top_k"}
ALONE = {"value", "score", "error"}
"""What is judged by itself, without a target."""
EXTRA = {"huber": "delta", "top_k": "k"}


def targets(f: Firing, node: Loss | Metric, x: Buffer) -> str:
    """Write the loads of a loss's target; return its place: integers in I for a label, floats in F for a value, "" for none."""
    if node.op in ALONE:
        return ""
    if node.op in LABELLED:
        return f.labels(node, x.space, node.fields, 1)
    if node.fields:
        return f.floats(node.fields[0], x.cols, x.space).name
    return f.spread(f.operand(node, 1), x.space).name


def loss_call(f: Firing, node: Loss | Metric, x: Buffer, target: str) -> str:
    rows = f.space(x.space)
    if node.op in ALONE:
        return f"total_value(F, {x.name}, {rows} * {x.cols})"
    op = "squared" if node.op in ("squared_error", "root_mean_square_error") else "absolute" if node.op == "absolute_error" else node.op
    extra = ""
    if op in EXTRA:
        value = node.attrs[EXTRA[op]]
        extra = f", {value}" if op == "top_k" else f", np.float32({value!r})"
    if node.op in LABELLED:
        return f"{op}(F, I, {x.name}, {target}, {rows}, {x.cols}{extra})"
    return f"{op}(F, {x.name}, {target}, {rows} * {x.cols}{extra})"


def measure(f: Firing, node: Loss | Metric) -> None:
    x = f.operand(node, 0)
    target = targets(f, node, x)
    sums = f.text.head("sums", "I[STAT0] + w * I[STATS]")
    f.text.line(f"total = {loss_call(f, node, x, target)}")
    if isinstance(node, Loss):
        f.text.line(f"D[{sums}] += {float(node.weight)!r} * total")
        with f.text.block("if total - total != 0.0:"):
            table = f.table(x.space) if x.space else "-1"
            f.text.line(f"blame(F, I, w, n, {x.name}, {table}, {x.cols}, {own(SEGMENT, f.segment.id)})")
        return
    k = 1 + 2 * [m.id for m in f.graph.nodes if isinstance(m, Metric)].index(node.id)
    if node.op in ALONE:
        known = f"{f.space(x.space)} * {x.cols}"
    elif node.op in LABELLED:
        known = f"known_labels(I, {target}, {f.space(x.space)})"
    else:
        known = f"known_values(F, {target}, {f.space(x.space)} * {x.cols})"
    f.text.line(f"D[{sums} + {own(SUM, k)}] += total")
    f.text.line(f"D[{sums} + {own(SUM, k + 1)}] += {known}")


def output(f: Firing, node: Output) -> None:
    x = f.operand(node, 0)
    out = f.text.cell("out", "out", node.id)
    f.space(x.space)
    with f.text.block(f"if {out} >= 0:"), f.tokens() as state:
        frm = f"{x.name} + {f.first(x.space)} * {x.cols}"
        f.text.line(f"copy(O, {out} + ({output_row(f, x, state)}) * {x.cols}, F, {frm}, {f.size(x)})")


def _dense(f: Firing, region: Region, state: State) -> str:
    """The number of a state among those that the instance has, where children of an element leave no gaps."""
    parent = f.graph.regions[region.parent]
    if not region.axis or not parent.id or f.states.axis_parent[region.axis] != parent.axis:
        return f.states.linear(state)
    around = State(parent.id, {r.id: state.coords[r.id] for r in chain(f.graph, parent.id)})
    before = f.states.linear(around.outer(parent.parent)) if parent.parent else "0"
    here = f"{f.states.first_row(region.axis, around)} - {f.states.axis_offset(region.axis)} + {state.coords[region.id]}"
    return f"({before}) * {f.states.axis_length(region.axis)} + {here}"


def output_row(f: Firing, x: Buffer, state: State) -> str:
    """Row of a prediction's array at which a token's rows go: by instance, by element of the whole data, or by state."""
    region = f.graph.regions[f.segment.region]
    if not region.id:
        return f.states.first_row(x.space, state) if x.space else "inst"
    if region.axis and not region.parent and not x.space:
        return f"{f.states.axis_offset(region.axis)} + {f.states.position(Coord(region.id), state)}"
    room = f.text.cell("room", "states", region.id)
    index = f"inst * {room} + {_dense(f, region, state)}"
    return f"({index}) * {f.text.cell('rows', 'most_rows', x.space)}" if x.space else index
