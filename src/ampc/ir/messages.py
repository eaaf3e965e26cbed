"""How messages move through a graph: the forward and backward behaviour of every node kind, for one instance.

The rules of `nodes` are kept and checked: each forward message is answered by exactly one backward message of the same state, caches are keyed
by node and state, and nothing is left over when the instance retires.
"""


from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ampc.diagnostics import error
from ampc.ir.draw import keep_mask
from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Bcast,
    Concat,
    Cond,
    Decided,
    Dependents,
    Enter,
    Flatmap,
    Group,
    Isu,
    Leave,
    Loss,
    Metric,
    Next,
    Output,
    Over,
    Phi,
    Ref,
    Source,
    Split,
    Test,
    Ungroup,
)
from ampc.ir.op import Array, FieldValue
from ampc.ir.ops import OPS
from ampc.ir.result import LossRecord, Result
from ampc.ir.scope import members
from ampc.ir.state import NONE, Instance, State, View

Place = tuple[int, State]
"""A node at a state: the key of every cache."""
Listener = Callable[[Ref, State, tuple[int, State], Array], None]
"""Hears of each forward message: the output port, its state, (input port, state) of the message that its node took last, the payload.

For a node that only steers messages, what it took last is the message that it passes on.
"""


class Run:
    """One instance under way: the queue, and caches keyed by node and state."""

    def __init__(
        self, graph: Graph, params: Mapping[str, Array], dtype: Any, instance: Instance, train: bool, seed: int = 0, schedule: int | None = None,
    ) -> None:
        self.graph, self.params, self.dtype, self.instance, self.train, self.seed = graph, params, dtype, instance, train, seed
        self.view = View(graph, instance, dtype)
        self.result = Result()
        self.queue: deque[tuple[bool, int, int, State, Array]] = deque()
        self.order = None if schedule is None else random.Random(schedule)
        self.open: set[tuple[Ref, State]] = set()  # forward messages that wait for their answer
        self.joins: dict[Place, dict[int, Array]] = defaultdict(dict)  # inputs that wait for the others
        self.tape: dict[Place, tuple[list[Array], list[FieldValue], Array]] = {}
        self.answers: dict[Place, dict[Any, Array]] = defaultdict(dict)  # backward messages that wait for the others
        self.left: dict[Place, int] = {}  # the turn at which a loop was left
        self.groups: dict[Place, dict[State, Array]] = defaultdict(dict)
        self.triggers: set[Place] = set()
        self.plans: dict[Place, tuple[dict[State, list[State]], dict[State, State | None]]] = {}
        self.dependents: dict[tuple[Dependents, State], dict[int, list[State]]] = {}
        self.decisions: dict[Place, int] = {}
        self.parked: dict[Place, list[tuple[int, State, Array]]] = defaultdict(list)
        self.retired = False
        self.listener: Listener | None = None
        self.under: tuple[int, State] = (0, ())

    # --------------------------------------------------------------------------------------------- the machine

    def finish(self) -> Result:
        """Deliver messages until there are none, and return what the instance gave."""
        source = next(n for n in self.graph.nodes if isinstance(n, Source))
        self.send((source.id, 0), (), np.ones((1, 0), self.dtype))
        while self.queue:
            if self.order is not None:
                self.queue.rotate(self.order.randrange(len(self.queue)))
            backward, node, port, state, payload = self.queue.popleft()
            self.result.messages += 1
            if backward:
                self.open.remove(((node, port), state))
                self.backward(self.graph.by_id[node], port, state, payload)
            else:
                self.forward(self.graph.by_id[node], port, state, payload)
        self.check_finished()
        self.result.loss = float(sum(r.value for r in sorted(self.result.losses)))
        self.result.losses.sort()
        for values in self.result.outputs.values():
            values.sort(key=lambda v: v[0])
        return self.result

    def send(self, ref: Ref, state: State, payload: Array) -> None:
        """Send forward from an output port; a port that nobody reads is answered with zero."""
        if self.listener is not None:
            self.listener(ref, state, self.under, payload)
        if self.train:
            assert (ref, state) not in self.open, f"node {ref[0]} sent twice at {state}"
            self.open.add((ref, state))
        reader = self.graph.readers.get(ref)
        if reader is not None:
            self.queue.append((False, *reader, state, payload))
        elif self.train:
            self.queue.append((True, *ref, state, np.zeros(payload.shape, self.dtype)))

    def answer(self, node: AnyNode, port: int, state: State, gradient: Array) -> None:
        """Send backward from an input port."""
        self.queue.append((True, *node.inputs[port], state, gradient))

    def zero(self, node: AnyNode, port: int, state: State, shape: tuple[int, ...]) -> None:
        if self.train:
            self.answer(node, port, state, np.zeros(shape, self.dtype))

    def join(self, node: AnyNode, port: int, state: State, payload: Array) -> list[Array] | None:
        """Return all inputs at a state once they are there."""
        waiting = self.joins[node.id, state]
        assert port not in waiting, f"node {node.id} got input {port} twice at {state}"
        waiting[port] = payload
        if len(waiting) < len(node.inputs):
            return None
        del self.joins[node.id, state]
        return [waiting[i] for i in range(len(node.inputs))]

    def check_finished(self) -> None:
        waits = {place[0] for place in (*self.joins, *self.triggers, *self.parked)} | {n for (n, _), v in self.groups.items() if v}
        if self.train:
            waits |= {place[0] for place in (*self.tape, *self.answers, *self.left)} | {ref[0] for ref, _ in self.open}
        if not waits and (self.retired or not self.train):
            return
        nodes = [self.graph.by_id[i] for i in sorted(waits)]
        notes = tuple(f"node {n.id} ({type(n).__name__} {n.name}".rstrip() + ") waits" + "".join(f", {o}" for o in n.origin[:1]) for n in nodes[:10])
        raise error("AMP390", "the instance does not finish: messages wait for others that never come", notes=notes, exit_code=3)

    # ------------------------------------------------------------------------------------------------ forward

    def forward(self, node: AnyNode, port: int, state: State, payload: Array) -> None:
        self.under = port, state
        match node:
            case NPT() | PPT() | Loss() | Metric():
                if (operands := self.join(node, port, state, payload)) is not None:
                    self.apply(node, state, operands)
            case Output():
                self.result.outputs.setdefault(node.name, []).append((state, payload))
                self.zero(node, 0, state, payload.shape)
            case Cond():
                self.route(node, state, payload)
            case Phi():
                assert port == self.port(node.test, node.region, state), f"node {node.id} got a message on input {port} at {state}"
                self.send((node.id, 0), state, payload)
            case Isu():
                self.send((node.id, 0), self.mapped(node, state), payload)
            case Concat():
                if (parts := self.join(node, port, state, payload)) is not None:
                    self.send((node.id, 0), state, np.concatenate(parts, axis=1))
            case Split():
                ends = np.cumsum([t.cols for t in node.outputs])
                for i, part in enumerate(np.split(payload, ends[:-1], axis=1)):
                    self.send((node.id, i), state, part)
            case Bcast():
                for i in range(len(node.outputs)):
                    self.send((node.id, i), state, payload)
            case Flatmap() | Ungroup():
                self.spread(node, state, payload)
            case Group():
                self.gather(node, port, state, payload)
            case Source():
                raise AssertionError("a source has no inputs")

    def apply(self, node: NPT | PPT | Loss | Metric, state: State, operands: list[Array]) -> None:
        """Compute an operation whose operands are there."""
        op = OPS[node.op]
        fields = self.operand_fields(node, state, operands)
        y = op.fwd(operands, fields, self.own_params(node), node.attrs)
        match node:
            case NPT() | PPT():
                if self.train:
                    self.tape[node.id, state] = operands, fields, y
                if node.outputs[0].integer:
                    self.decide(node, state, y)
                self.send((node.id, 0), state, y)
            case Loss():
                self.result.losses.append(LossRecord(node.id, state, float(y[0, 0]) * node.weight))
                if self.train:
                    dy = np.full((1, 1), node.weight, self.dtype)
                    for i, d in enumerate(op.bwd(operands, fields, {}, node.attrs, y, dy)[0]):
                        self.answer(node, i, state, d)
            case Metric():
                name = node.name or node.op
                total, count = self.result.metrics.get(name, (0.0, 0.0))
                self.result.metrics[name] = total + float(y[0, 0]), count + float(y[0, 1])
                for i, x in enumerate(operands):
                    self.zero(node, i, state, x.shape)

    def own_params(self, node: AnyNode) -> dict[str, Array]:
        if not isinstance(node, PPT):
            return {}
        own = members(self.graph, node.op, node.layer, node.attrs)
        return {prefix + p.name: self.params[f"{x.name}.{p.name}"] for prefix, x in own for p in x.params}

    def operand_fields(self, node: NPT | PPT | Loss | Metric, state: State, operands: list[Array]) -> list[FieldValue]:
        """Return the fields of an operation, with what it needs beside them: the groups of rows, or the mask of dropout."""
        fields = [self.view.operand(f, node.region, state) for f in node.fields]
        if OPS[node.op].segmented:
            rows = node.outputs[0].rows if node.op == "expand_rows" else self.graph.type_of(node.inputs[0]).rows
            n = len(operands[0]) if rows == "*" else self.view.rows(rows, node.region, state)
            fields.append(self.view.segments(rows, n, node.region, state))
        if node.op == "dropout" and self.train:
            rate = node.attrs["rate"]
            assert isinstance(rate, float | int)
            fields.append(keep_mask(self.seed, self.instance.number, node.id, state, operands[0].shape, rate))
        return fields

    def decide(self, node: AnyNode, state: State, y: Array) -> None:
        """Note a computed integer and let go of what waited for it."""
        if y.shape == (1, 1):
            self.decisions[node.id, state] = int(y[0, 0])
            for waiting, where, payload in self.parked.pop((node.id, state), []):
                cond = self.graph.by_id[waiting]
                self.under = 0, where
                self.route(cond, where, payload)

    def port(self, test: Test, region: int, state: State) -> int | None:
        """Return the port that a test picks, or None while the integer that it needs isn't there yet."""
        decided = None
        if isinstance(test, Decided):
            decided = self.decisions.get((test.by, self.prefix(test.by, state)))
            if decided is None:
                return None
        return self.view.port(test, region, state, decided)

    def prefix(self, node: int, state: State) -> State:
        """The state at which `node`, in the same region or an outer one, decided for `state`."""
        return state[: len(self.view.chain(self.graph.by_id[node].region))]

    def route(self, node: AnyNode, state: State, payload: Array) -> None:
        assert isinstance(node, Cond)
        port = self.port(node.test, node.region, state)
        if port is not None:
            self.send((node.id, port), state, payload)
            return
        assert isinstance(node.test, Decided)
        self.parked[node.test.by, self.prefix(node.test.by, state)].append((node.id, state, payload))

    def mapped(self, node: Isu, state: State) -> State:
        match node.map:
            case Enter():
                return (*state, 0)
            case Next():
                return (*state[:-1], state[-1] + 1)
            case Leave():
                if self.train:
                    assert (node.id, state[:-1]) not in self.left, f"node {node.id} left its loop twice at {state[:-1]}"
                    self.left[node.id, state[:-1]] = state[-1]
                return state[:-1]

    # --------------------------------------------------------------------------------------- many states and one

    def targets(self, node: Flatmap | Ungroup, state: State) -> list[State]:
        """Return the states that one message goes to, in order."""
        to = node.to
        if isinstance(to, int | Over):
            region = to if isinstance(to, int) else to.region
            return [(*state, c) for c in range(self.view.extent(region, state))]
        outer, here = state[:-1], self.view.element(node.region, node.region, state)
        if (to, outer) not in self.dependents:
            found: dict[int, list[State]] = defaultdict(list)
            for c in range(self.view.extent(to.region, outer)):
                found[self.view.index(to.at, to.region, (*outer, c))].append((*outer, c))
            self.dependents[to, outer] = found
        return self.dependents[to, outer].get(here, [])

    def spread(self, node: Flatmap | Ungroup, state: State, payload: Array) -> None:
        states = self.targets(node, state)
        if not states:
            self.zero(node, 0, state, payload.shape)
        for s in states:
            self.send((node.id, 0), s, payload if isinstance(node, Flatmap) else self.row(node.to, s, payload))

    def row(self, region: int, state: State, payload: Array) -> Array:
        i = self.row_number(region, state)
        return payload[i : i + 1]

    def row_number(self, region: int, state: State) -> int:
        """The row of a stacked payload that belongs to a state: rows are in order of the axis, whichever way a loop goes."""
        r = self.graph.regions[region]
        low = self.view.span(r.axis, r.parent, state[:-1])[0] if r.axis else 0
        return self.view.element(region, region, state) - low

    def plan(self, node: Group, outer: State) -> tuple[dict[State, list[State]], dict[State, State | None]]:
        """Return (result's state -> its members' states in order of their rows, member's state -> result's state, None if in no group)."""
        if (node.id, outer) in self.plans:
            return self.plans[node.id, outer]
        states = [(*outer, c) for c in range(self.view.extent(node.region, outer))]
        states.sort(key=lambda s: self.view.element(node.region, node.region, s))
        wanted: dict[State, list[State]] = defaultdict(list)
        target: dict[State, State | None] = {}
        for s in states:
            element = NONE if node.key is None else self.view.index(node.key, node.region, s)
            if node.key is None:
                target[s] = outer
            else:
                target[s] = None if element == NONE else (*outer, self.view.coordinate_of(node.to, outer, element))
            if (to := target[s]) is not None:
                wanted[to].append(s)
        self.plans[node.id, outer] = wanted, target
        return self.plans[node.id, outer]

    def gather(self, node: Group, port: int, state: State, payload: Array) -> None:
        """Take a member or the trigger of a group; send the group on once it is whole."""
        outer = state if port == 1 and node.key is None else state[:-1]
        wanted, target = self.plan(node, outer)
        to = state if port == 1 else target[state]
        if to is None:
            self.zero(node, 0, state, payload.shape)
            return
        if port == 1:
            self.triggers.add((node.id, to))
        else:
            self.groups[node.id, to][state] = payload
        expected, held = wanted.get(to, []), self.groups[node.id, to]
        if len(held) < len(expected) or (node.id, to) not in self.triggers:
            return
        self.triggers.remove((node.id, to))
        del self.groups[node.id, to]
        kind = self.graph.type_of(node.inputs[0])
        empty = np.zeros((0, kind.cols), np.int64 if kind.integer else self.dtype)
        self.send((node.id, 0), to, np.concatenate([empty, *(held[s] for s in expected)]))

    # ------------------------------------------------------------------------------------------------ backward

    def backward(self, node: AnyNode, port: int, state: State, gradient: Array) -> None:
        match node:
            case Source():
                assert not self.retired
                self.retired = True
            case NPT() | PPT():
                self.derive(node, state, gradient)
            case Cond():
                self.answer(node, 0, state, gradient)
            case Phi():
                back = self.port(node.test, node.region, state)
                assert back is not None
                self.answer(node, back, state, gradient)
            case Isu():
                self.answer(node, 0, self.unmapped(node, state), gradient)
            case Concat():
                ends = np.cumsum([self.graph.type_of(r).cols for r in node.inputs])
                for i, part in enumerate(np.split(gradient, ends[:-1], axis=1)):
                    self.answer(node, i, state, part)
            case Split() | Bcast():
                answers = self.answers[node.id, state]
                answers[port] = gradient
                if len(answers) == len(node.outputs):
                    del self.answers[node.id, state]
                    parts = [answers[i] for i in range(len(answers))]
                    self.answer(node, 0, state, np.concatenate(parts, axis=1) if isinstance(node, Split) else _total(parts))
            case Flatmap() | Ungroup():
                self.collect(node, state, gradient)
            case Group():
                outer = state if node.key is None else state[:-1]
                for i, s in enumerate(self.plan(node, outer)[0].get(state, [])):
                    self.answer(node, 0, s, gradient[i : i + 1])
                self.answer(node, 1, state, np.zeros((1, 0), self.dtype))
            case _:
                raise AssertionError("no outputs")

    def derive(self, node: NPT | PPT, state: State, gradient: Array) -> None:
        operands, fields, y = self.tape.pop((node.id, state))
        params = self.own_params(node)
        if node.outputs[0].integer:
            gradient = np.zeros(y.shape, self.dtype)
        d_operands, d_params = OPS[node.op].bwd(operands, fields, params, node.attrs, y, gradient)
        if isinstance(node, PPT):
            self.accumulate(node, fields, gradient, d_params)
        for i, d in enumerate(d_operands):
            self.answer(node, i, state, d)

    def accumulate(self, node: PPT, fields: list[FieldValue], gradient: Array, d_params: dict[str, Array]) -> None:
        for prefix, layer in members(self.graph, node.op, node.layer, node.attrs):
            kinds = fields[0] if prefix else None
            n = len(gradient) if kinds is None else int((np.asarray(kinds) == int(prefix[:-1])).sum())
            if not n:
                continue
            if node.op != "linear_part":  # the layer is reached where the rest of its product is made
                self.result.rows[layer.name] = self.result.rows.get(layer.name, 0) + n
            for p in layer.params:
                name = f"{layer.name}.{p.name}"
                d = d_params[prefix + p.name]
                self.result.gradients[name] = self.result.gradients[name] + d if name in self.result.gradients else d

    def unmapped(self, node: Isu, state: State) -> State:
        match node.map:
            case Enter():
                return state[:-1]
            case Next():
                return (*state[:-1], state[-1] - 1)
            case Leave():
                return (*state, self.left.pop((node.id, state)))

    def collect(self, node: Flatmap | Ungroup, state: State, gradient: Array) -> None:
        """Take one of the answers to a message that went to many states; answer it once all are there."""
        if isinstance(node, Flatmap) and isinstance(node.to, Dependents):
            element = self.view.index(node.to.at, node.to.region, state)
            origin = (*state[:-1], self.view.coordinate_of(node.region, state[:-1], element))
        else:
            origin = state[:-1]
        answers = self.answers[node.id, origin]
        answers[state] = gradient
        states = self.targets(node, origin)
        if len(answers) < len(states):
            return
        del self.answers[node.id, origin]
        if isinstance(node, Ungroup):
            to = node.to
            parts = [answers[s] for s in sorted(states, key=lambda s: self.row_number(to, s))]
            self.answer(node, 0, origin, np.concatenate(parts))
        else:
            self.answer(node, 0, origin, _total([answers[s] for s in states]))


def _total(parts: list[Array]) -> Array:
    """The sum in a fixed order, whatever order the parts came in."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total
