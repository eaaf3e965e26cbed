"""Forward text of what moves rows: groups, gathers and scatters by index, reductions of segments.

`forward.WRITERS` names the writers.
"""

from __future__ import annotations

from typing import Any

from ampc.codegen.firing import Firing
from ampc.codegen.loops import Buffer, Space
from ampc.ir.nodes import NPT, Group


def group(f: Firing, node: Group) -> Buffer:
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


def row_index(f: Firing, node: NPT, space: Space, of: Space) -> str:
    """Rows of a buffer over `of` that an index field names, for each row of `space`; -1 for none and for what isn't in the buffer."""
    ref = node.fields[0]
    if (ref, space, of) in f.loaded:
        return f.loaded[ref, space, of]
    f.space(space)
    table = f.table(of)
    ids = f.loaded[ref, space, of] = f.ints(space)
    with f.tokens() as state:
        low = ""
        if f.states.nested_in(of, state.region) is not None:  # the field counts from the instance's first element, the buffer holds one parent's
            low = f" - ({f.states.first_row(of, state)} - {f.states.axis_offset(of)})"
        f.text.line(f"first, count, to = at(I, {table} + i), {f.count(of)}, {ids} + {f.first(space)}")
        value = f"at(XI, {f.states.field(ref.field)} + {f.states.flat(ref, state)} + r)" if space else f.states.integer(ref, state)
        with f.text.block(f"for r in range({f.count(space)}):"):
            f.text.line(f"e = {value}{low}")
            f.text.line("put(I, to + r, e + first if e >= 0 and e < count else -1)")
    return ids


def gather(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    space = node.outputs[0].rows
    ids = row_index(f, node, space, x.space)
    y = f.buffer(x.cols, space)
    f.text.line(f"lookup(F, I, {y.name}, {x.name}, {ids}, {f.space(space)}, {x.cols})")
    return y


def counters(f: Firing, node: NPT, space: Space) -> str:
    """One more argument for the kernels of a scatter that have to count: a word for each row of the result."""
    return "" if node.attrs["reduce"] == "sum" else f", {f.ints(space)}"


def scatter(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    family = node.inputs[0][0]
    if family in f.families and f.families[family].scatter is node:
        return x  # the family has summed its products already
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


def reduce_rows(f: Firing, node: NPT) -> Buffer:
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


def softmax_rows(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    table, rows = segments(f, x.space, nested_outer(f, node, x.space))
    y = f.buffer(x.cols, x.space)
    f.text.line(f"softmax_segments(F, I, {y.name}, {x.name}, {table}, {rows}, {x.cols})")
    return y


def expand_rows(f: Firing, node: NPT) -> Buffer:
    x = f.operand(node, 0)
    space = node.outputs[0].rows
    table, rows = segments(f, space, x.space)
    y = f.buffer(x.cols, space)
    f.text.line(f"expand(F, I, {y.name}, {x.name}, {table}, {rows}, {x.cols})")
    return y
