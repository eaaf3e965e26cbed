"""The text of a model's kernels: for each segment a forward and a backward function over a batch of tokens.

Only validated integers, enum values and float literals become code; names from a program never do (they stand in docstrings, escaped).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from ampc.codegen import backward, forward
from ampc.codegen.backward import Backward
from ampc.codegen.firing import Firing, Fold, Shared
from ampc.codegen.forward_rows import group_members
from ampc.codegen.layout import BIG, Cells, Key
from ampc.codegen.own import LAYER, QUEUE, SEGMENT, TABLE, literal, own, shared
from ampc.codegen.plan import Plan, Port, Segment, make_plan
from ampc.codegen.routes import Choice, Exit, Join, Leaf, Many, Place, Tree
from ampc.codegen.states import State
from ampc.codegen.text import ARGUMENTS
from ampc.ir.graph import Graph
from ampc.ir.nodes import Group, Loss, Metric, Ref, Type

GENERATOR = 2
"""Version of the text that this module writes; part of the name under which compiled kernels are kept."""

HEADER = '''"""Kernels of model {name}, written by ampc {version}; for people to read, a run writes its own.

Memory: F float32, I int64, D float64, XF and XI the data, O outputs. A function fires n tokens of one segment at once on worker w.
"""
{imports}
'''

IMPORTS = """
import numpy as np

from ampc.codegen.layout import H as _H
{imports}

{constants}
"""


@dataclasses.dataclass(frozen=True)
class Function:
    """What fires a queue: a module of one function `kernel`, the same for all functions of its shape, and the numbers that this one has."""

    queue: int
    text: str
    numbers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """What the engine needs: the text, the plan behind it, the cells to fill, the storages of a slot's arena with their payload types.

    Keys of storages: ("g", node, port) gradients, ("v", node, port) and ("phi", node) values, ("turns", isu) turns of a loop with a computed exit.
    """

    text: str
    """All functions, for people to read."""
    functions: tuple[Function, ...]
    plan: Plan
    cells: dict[Key, int]
    storages: dict[Key, Type]
    folds: tuple[Fold, ...]
    alone: bool = False
    """There is no way back, see `firing.Shared`."""


def generate(
    graph: Graph, device_of: Mapping[int, int], version: str = "", folding: bool = True, half: bool = False, alone: bool = False
) -> Program:
    """Return the kernels of `graph`, given the device of each node. The same graph and devices give the same text.

    `folding` False keeps small embeddings and the Linear that they feed apart (see `firing.Fold`). `half` makes matrix products of bf16 factors:
    the text names the same kernels, and they are others. `alone` leaves the way back out; then each instance's nodes but the Source have one device.
    """
    plan = make_plan(graph, device_of)
    common = Shared(plan, Cells(len(plan.segments)), folding=folding, alone=alone)
    for segment in plan.segments[1:]:  # what is read where must be known before anyone decides what to keep
        _scan(common, segment)
    bodies: dict[int, str] = {}
    for segment in plan.segments:
        if segment.id and not alone:
            bodies[2 * segment.id + 1] = _backward(common, segment)  # first: it says what forward has to keep
        bodies[2 * segment.id] = _forward(common, segment)
    parts, functions = [], []
    for queue, body in sorted(bodies.items()):
        segment, direction = plan.segments[queue // 2], "Backward" if queue & 1 else "Forward"
        if WIDE.search(body):
            body = f"    wide_vectors()\n{body}"
        name = f"{'bwd' if queue & 1 else 'fwd'}_{segment.id}"
        parts.append(f'\n\ndef {name}({ARGUMENTS}):\n    """{_about(segment, direction)}"""\n{literal(body)}')
        functions.append(_function(queue, body, half))
    text = "".join(parts)
    header = HEADER.format(name=_quoted(graph.name), version=version, imports=_imports(text, half))
    storages = {key: _storage_type(plan.graph, key) for key in common.cells.storages}
    return Program(header + text, tuple(functions), plan, dict(common.cells.index), storages, tuple(common.folds.values()), alone)


def _function(queue: int, body: str, half: bool) -> Function:
    """Return a function's body as a module of its own."""
    text, numbers = shared(f"def kernel({ARGUMENTS}, {TABLE}):\n", body)
    return Function(queue, f"{_imports(text, half)}\n\n{text}", numbers)


NATIVE = "F0 F1 F2 FH at copy cos erf exp load log put save sigmoid sin softplus sqrt tanh unsigned wide_vectors".split()
WIDE = re.compile(r"\b(?:exp|sigmoid|tanh)\(")
"""Functions that LLVM makes vectors of, and that take longer than the numbers that they read."""
RENAMED = {"max": "maximum", "min": "minimum", "pow": "power"}
KERNELS = {
    "losses": (
        "absolute absolute_bwd accuracy binary_accuracy binary_cross_entropy binary_cross_entropy_bwd cross_entropy cross_entropy_bwd huber "
        "huber_bwd known_labels known_values squared squared_bwd subtract subtract_product top_k total_value"
    ).split(),
    "optimizer": "count_forward direct fold_backward fold_forward note_versions settle weights_at".split(),
    "rows": (
        "add add_bias add_broadcast_sum add_row_sum argmax dot dot_bwd dropout fill fold layer_norm layer_norm_bwd linear "
        "linear_descend linear_dw linear_dx linear_part log_softmax log_softmax_bwd lookup max_columns max_columns_bwd one_hot put_columns "
        "scatter_add softmax softmax_bwd store sum_columns sum_columns_bwd touch zero"
    ).split(),
    "segments": (
        "add_rows compose distinct_rows expand reduce_max reduce_mean reduce_sum scatter_max scatter_max_bwd scatter_mean scatter_mean_bwd "
        "scatter_sum scatter_sum_bwd softmax_segments softmax_segments_bwd sort_rows spread_max spread_mean spread_sum"
    ).split(),
    "tokens": "blame outstanding ready send zeros_last".split(),
}
"""Module of `ampc.runtime` -> the kernels that generated text may name."""
PRODUCTS = "linear linear_descend linear_dw linear_dx linear_part".split()
"""Kernels of `rows` that have a twin in `half`, with that at the end of its name."""


def _imports(body: str, half: bool) -> str:
    """Import lines for just what the text uses."""
    used = set(re.findall(r"[A-Za-z_]\w*", body))
    native = [*(n for n in NATIVE if n in used), *(f"{v} as {k}" for k, v in RENAMED.items() if k in used)]
    lines = [f"from ampc.runtime.native import {', '.join(native)}"] if native else []
    for module, names in KERNELS.items():
        found = [n for n in names if n in used and not (half and n in PRODUCTS)]
        if found:
            lines.append(f"from ampc.runtime.{module} import {', '.join(found)}")
    twins = [f"{n}_half as {n}" for n in PRODUCTS if half and n in used]
    if twins:
        lines.append(f"from ampc.runtime.half import {', '.join(twins)}")
    return IMPORTS.format(imports="\n".join(lines), constants=_constants())


def _constants() -> str:
    names = (
        "WORK0 WORK_STRIDE SCRATCH0 SCRATCH_STRIDE CAP SLOT0 STAT0 STATS TRAIN MEASURE SEED EPOCH SEG0".split()
    )
    return f"{', '.join(names)} = {', '.join(f'_H.{n}.value' for n in names)}"


def _quoted(name: str) -> str:
    return name.encode("unicode_escape").decode().replace('"', "'").replace("\\", "/")


def _storage_type(graph: Graph, key: Key) -> Type:
    match key:
        case ("v", node, port):
            return graph.type_of((int(node), int(port)))
        case ("phi", node):
            return graph.type_of((int(node), 0))
        case ("g", node, port):
            return graph.type_of(graph.by_id[int(node)].inputs[int(port)])
        case _:
            return Type("", 1)


def _about(segment: Segment, what: str) -> str:
    nodes = ", ".join(_quoted(f"{n.id} {type(n).__name__} {getattr(n, 'op', '')} {n.name}".strip()) for n in segment.nodes)
    return f"{what} of segment {segment.id}, region {segment.region}, device {segment.device}: {nodes}."


# --------------------------------------------------------------------------------------------------- forward


def _scan(shared: Shared, segment: Segment) -> None:
    """Note every storage that the segment's inputs come from."""
    f = Firing(shared, segment, 0)
    for node_id, port in segment.inputs:
        node = f.graph.by_id[node_id]
        if f.graph.type_of(node.inputs[port]).cols == 0 or isinstance(node, Group):
            continue
        with f.tokens() as state:
            shared.read.add(f.routes.locate(node.inputs[port], state).key)
    for node in segment.nodes:
        if isinstance(node, Group) and f.kind(node, 0).cols:
            with f.tokens() as state:
                _, _, member = group_members(f, node, state)
                shared.read.add(f.routes.locate(node.inputs[0], member).key)
    for n in f.graph.nodes:
        by = getattr(getattr(n, "test", None), "by", None)
        if by is not None:
            shared.read.add(("v", by, 0))


def _forward(shared: Shared, segment: Segment) -> str:
    f = Firing(shared, segment, 0)
    measures = [n for n in segment.nodes if isinstance(n, Loss | Metric)]
    for node in segment.nodes:
        if segment.id == 0 or (node.outputs and not any(kind.cols for kind in node.outputs)) or (shared.alone and node in measures):
            continue  # a unit carries nothing
        for port, buffer in enumerate(forward.write(f, node)):
            f.values[(node.id, port)] = buffer
    _keep(f)
    if not shared.alone:
        _count_layers(f)
    _send(f)
    if shared.alone and measures:  # last of all: what they read is made, and what only they look up is in nobody's way
        with f.text.block("if I[MEASURE] == 1:"):
            for node in measures:
                forward.write(f, node)
    return f.render()


def _keep(f: Firing) -> None:
    """Copy results into storages of their own: those that others read always, those that only backward wants when training."""
    shared = f.shared
    for when, keys in (("", shared.read), ("if I[TRAIN] == 1:", shared.saved - shared.read)):
        refs = [(n.id, p) for n in f.segment.nodes for p in range(len(n.outputs)) if ("v", n.id, p) in keys]
        if not refs or f.segment.id == 0:
            continue
        for ref in refs:
            value = f.dense(f.values[ref])
            with f.moving(value, out=True, when=when) as state:
                f.copy_out(value, f.routes.address(Place(("v", *ref), ref, state)))


def _count_layers(f: Firing) -> None:
    for name in f.segment.layers:
        k = own(LAYER, f.shared.layer_number[name])
        f.text.line(f"note_versions(I, w, n, {k}, {own(SEGMENT, f.segment.id)}, {f.version_word(name)})")
        f.text.line(f"count_forward(I, D, w, n, {k})")


def _send(f: Firing) -> None:
    """Send tokens along the routes of every output; note how many answers to wait for."""
    segment, alone = f.segment, f.shared.alone
    entered = {ref: phi for ref in list(f.values) if len(ref) == 2 for phi in [_enter(f, ref)] if phi is not None}
    with f.tokens() as state:
        f.text.line("k = 0")
        for node in segment.nodes:
            for port in range(len(node.outputs)):
                trees = f.routes.tree((node.id, port), state)
                _emit(f, (node.id, port), trees, "", entered.get((node.id, port), -1))
        if alone:
            f.text.line(f"outstanding(I, w, slot, k - {_taken(f, state)})")
            return
        f.text.line(f"put(I, {f.states.counters(segment)} + 1, k)")
        with f.text.block("if k == 0:"):
            f.text.line(f"ready(I, w, {own(QUEUE, 2 * segment.id + 1)}, slot, idx)")


def _taken(f: Firing, state: State) -> str:
    """How many messages a firing at `state` has waited for."""
    terms = []
    for node_id, port in f.segment.triggers:
        node = f.graph.by_id[node_id]
        terms.append(f.members(node, state) if isinstance(node, Group) and port == 0 else "1")
    single = terms.count("1")
    return "(" + " + ".join([str(single), *(t for t in terms if t != "1")]) + ")"


def _useful(f: Firing, tree: Tree) -> bool:
    match tree:
        case Leaf(port=port):
            return port in f.plan.segments[f.plan.segment_of[port[0]]].triggers
        case Join(phi=phi, then=then):
            return ("phi", phi) in f.shared.read or any(_useful(f, t) for t in then)
        case Choice(ways=ways):
            return any(_useful(f, t) for way in ways for t in way)
        case Many(then=then) | Exit(then=then):
            return any(_useful(f, t) for t in then)


def _enter(f: Firing, ref: Ref) -> int | None:
    """Copy an output into the first Phi that it surely goes to, whatever the state; return that Phi."""
    value = f.values[ref] = f.dense(f.values[ref])
    with f.moving(value, out=True) as state:
        joins = [j for j in _sure(f, f.routes.tree(ref, state)) if ("phi", j.phi) in f.shared.read]
        if joins:
            f.copy_out(value, f.routes.address(f.routes.phi_place(joins[0].phi, joins[0].state)))
    if joins:
        return joins[0].phi
    f.text.lines.pop()
    return None


def _sure(f: Firing, trees: tuple[Tree, ...]) -> Iterator[Join]:
    for tree in trees:
        if isinstance(tree, Join):
            yield tree
        if isinstance(tree, Join | Exit):
            yield from _sure(f, tree.then)


def _emit(f: Firing, ref: Ref, trees: tuple[Tree, ...], row: str, entered: int = -1) -> None:
    """Write what is sent along the routes of an output; its payload lies in the Phi `entered` already."""
    for tree in trees:
        if not _useful(f, tree):
            continue
        match tree:
            case Leaf(port=port, state=state):
                _emit_leaf(f, port, state)
            case Join(phi=phi, state=state, then=then):
                if ("phi", phi) in f.shared.read and ref in f.values and phi != entered:
                    place = f.routes.address(f.routes.phi_place(phi, state))
                    value = f.values[ref]
                    if row:
                        frm = f"{value.name} + ({f.first(value.space)} + {row}) * {value.cols}"
                        f.text.line(f"copy(F, {place}, F, {frm}, {value.cols})")
                    else:
                        f.copy_out(value, place)
                _emit(f, ref, then, row, entered)
            case Choice(tests=tests, ways=ways):
                for i, way in enumerate(ways):
                    with f.text.block(_opening(i, tests)):
                        _emit(f, ref, way, row, entered)
            case Exit(isu=isu, state=state, turns=turns, then=then):
                f.text.line(f"put(F, {f.routes.address(f.routes.turns_place(isu, state))}, np.float32({turns}))")
                _emit(f, ref, then, row, entered)
            case Many(opening=opening, lines=lines, then=then, row=own):
                with f.text.block(opening):
                    for line in lines:
                        f.text.line(line)
                    _emit(f, ref, then, own or row, entered)


def _opening(i: int, tests: tuple[str, ...]) -> str:
    if i == len(tests):
        return "else:"
    return f"{'el' if i else ''}if {tests[i]}:"


def _emit_leaf(f: Firing, port: Port, state: State) -> None:
    """Send one token to the segment that waits at `port`."""
    target = f.plan.segments[f.plan.segment_of[port[0]]]
    node = f.graph.by_id[port[0]]
    amount = str(BIG)
    if isinstance(node, Group):
        if port[1] == 0:
            state, amount = f.routes.group_state(node, state), "1"
        else:
            amount = f"{BIG} - {f.members(node, state)}"
    f.text.line(f"send(I, w, {own(QUEUE, 2 * target.id)}, slot, {f.states.linear(state)}, {amount})")
    f.text.line("k += 1")


# -------------------------------------------------------------------------------------------------- backward


def _backward(shared: Shared, segment: Segment) -> str:
    f = Backward(shared, segment)
    f.text.line("if I[TRAIN] == 1:")
    f.text.depth += 1
    before = len(f.text.lines)
    for node in segment.nodes:
        for port in range(len(node.outputs)):
            _collect(f, (node.id, port))
    for node in reversed(segment.nodes):
        backward.write(f, node)
    _give(f)
    _settle(f)
    if len(f.text.lines) == before:
        f.text.line("pass")
    f.text.depth -= 1
    _answer(f)
    return f.render()


def _collect(f: Backward, ref: Ref) -> None:
    """Sum the gradients that the readers of an output left, wherever the message went."""
    if ref not in f.plan.needs_gradient:
        return
    kind = f.graph.type_of(ref)
    space = f"*{ref[0]}" if kind.rows == "*" else kind.rows
    if not f.routes.has_reader(ref):
        return
    target = f.buffer(kind.cols, space)
    f.gradients[ref] = target
    with f.moving(target) as state:
        to = f"{target.name} + {f.first(space)} * {target.cols}"
        _gather(f, f.routes.tree(ref, state), to, f.size(target), kind, "")


def _gather(f: Backward, trees: tuple[Tree, ...], to: str, size: str, kind: Type, row: str) -> None:
    """Write the sum of the leaves' gradients to `to`; the first sure leaf is copied, the others are added."""
    first = True
    if not trees or isinstance(trees[0], Many):
        f.text.line(f"zero(F, {to}, {size})")
        first = False
    for tree in trees:
        _gather_one(f, tree, to, size, kind, row, first)
        first = False


def _gather_one(f: Backward, tree: Tree, to: str, size: str, kind: Type, row: str, first: bool) -> None:
    match tree:
        case Leaf(port=port, state=state):
            frm = f.routes.address(f.routes.gradient_place(port, state))
            target = f"{to} + ({row}) * {kind.cols}" if row else to
            count = str(kind.cols) if row else size
            f.text.line(f"copy(F, {target}, F, {frm}, {count})" if first else f"add(F, {target}, {frm}, {count})")
        case Join(then=then) | Exit(then=then):
            _gather_all(f, then, to, size, kind, row, first)
        case Choice(tests=tests, ways=ways):
            for i, way in enumerate(ways):
                with f.text.block(_opening(i, tests)):
                    _gather_all(f, way, to, size, kind, row, first)
        case Many(opening=opening, lines=lines, then=then, row=own):
            assert not first
            with f.text.block(opening):
                for line in lines:
                    f.text.line(line)
                _gather_all(f, then, to, size, kind, own or row, False)


def _gather_all(f: Backward, trees: tuple[Tree, ...], to: str, size: str, kind: Type, row: str, first: bool) -> None:
    if first:
        _gather(f, trees, to, size, kind, row)
    else:
        for tree in trees:
            _gather_one(f, tree, to, size, kind, row, False)


def _give(f: Backward) -> None:
    """Leave the gradient of each input where its sender reads it; zeros if there is none."""
    for node_id, port in f.segment.inputs:
        node = f.graph.by_id[node_id]
        if isinstance(node, Group) or node.inputs[port] not in f.plan.needs_gradient:
            continue
        g = f.gradients.get(("in", node_id, port))
        kind = f.kind(node, port)
        if g is not None:
            g = f.dense(g)
            with f.moving(g, out=True) as state:
                f.copy_out(g, f.routes.address(f.routes.gradient_place((node_id, port), state)))
        else:
            f.space(kind.rows)
            with f.tokens() as state:
                to = f.routes.address(f.routes.gradient_place((node_id, port), state))
                f.text.line(f"zero(F, {to}, {f.count(kind.rows)} * {kind.cols})")
    for node in f.segment.groups:
        if node.inputs[0] in f.plan.needs_gradient and (node.id, 0) not in f.gradients:
            with f.tokens() as state:
                opening, lines, member = group_members(f, node, state)
                with f.text.block(opening):
                    for line in lines:
                        f.text.line(line)
                    to = f.routes.address(f.routes.gradient_place((node.id, 0), member))
                    f.text.line(f"zero(F, {to}, {f.kind(node, 0).cols})")


def _settle(f: Backward) -> None:
    for name in f.segment.layers:
        k = own(LAYER, f.shared.layer_number[name])
        f.text.line(f"settle(F, I, D, w, n, {k}, {own(SEGMENT, f.segment.id)}, {f.version_word(name)})")


def _answer(f: Backward) -> None:
    """Return a backward token for each message that was waited for."""
    with f.tokens() as state:

        def reply(segment: int, there: State) -> None:
            f.text.line(f"send(I, w, {own(QUEUE, 2 * segment + 1)}, slot, {f.states.linear(there)}, 1)")

        for node_id, port in f.segment.triggers:
            node = f.graph.by_id[node_id]
            if isinstance(node, Group) and port == 0:
                opening, lines, member = group_members(f, node, state)
                with f.text.block(opening):
                    for line in lines:
                        f.text.line(line)
                    f.routes.answer(node.inputs[0], member, reply)
            else:
                f.routes.answer(node.inputs[port], state, reply)
