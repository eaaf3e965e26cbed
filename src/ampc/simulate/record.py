"""What one instance does, recorded from the interpreter: firings of segments, and the messages between them.

The interpreter moves every message of every node; here they are contracted to the segments that the engine fires for one placement. Each
forward message is answered by one backward message, so the way back needs no recording. Counts and sizes are true; times are not known here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from ampc.codegen.plan import PAYLOAD, Plan, is_direct, layer_names
from ampc.ir.messages import Run
from ampc.ir.nodes import PPT, AnyNode, Group, Ref, Source
from ampc.ir.op import Array
from ampc.ir.state import Instance, State

Sent = tuple[Ref, State]
"""A forward message: the output port that it left, and its state."""


@dataclasses.dataclass(frozen=True)
class Message:
    """A token from one firing to another, by their numbers; the numbers (floats or integers) of its payload, and of the gradient that answers it."""

    sender: int
    receiver: int
    numbers: int
    gradient_numbers: int


@dataclasses.dataclass(frozen=True)
class Recording:
    """One instance. `firings`: (segment, state), the Source's first, each after the first that sends to it.

    `rows`: of each firing, (node, axis) -> rows, for every axis that a payload of the node lies over ("*": those of a group).
    `kept`: numbers that each firing's results are. `uses`: of each firing, the layers of its segment that get a row of the instance.
    """

    firings: tuple[tuple[int, State], ...]
    messages: tuple[Message, ...]
    rows: tuple[dict[tuple[int, str], int], ...]
    kept: tuple[int, ...]
    uses: tuple[frozenset[str], ...]


def record(plan: Plan, parameters: Mapping[str, Array], instance: Instance, dtype: Any = np.float32) -> Recording:
    """Return what `instance` does with fixed parameters ("layer.param" -> array), which decide computed branches and exits.

    Raises AMP390 if the instance does not finish.
    """
    return _Recorder(plan, parameters, instance, dtype).recording()


class _Recorder:
    def __init__(self, plan: Plan, parameters: Mapping[str, Array], instance: Instance, dtype: Any) -> None:
        self.plan, self.graph = plan, plan.graph
        self.run = Run(plan.graph, {k: np.asarray(v, dtype) for k, v in parameters.items()}, dtype, instance, train=False)
        self.run.listener = self._hear
        self.took: dict[Sent, tuple[int, State]] = {}
        self.n_rows: dict[Sent, int] = {}
        self.origins: dict[Sent, Sent] = {}
        with np.errstate(all="ignore"):
            self.run.finish()

    def _hear(self, ref: Ref, state: State, took: tuple[int, State], payload: Array) -> None:
        self.took[ref, state] = took
        self.n_rows[ref, state] = len(payload)

    # --------------------------------------------------------------------------------------------- messages

    def origin(self, sent: Sent) -> Sent:
        """Return the message of a node that computes which `sent` is, after nodes that only steered it."""
        passed = []
        while sent not in self.origins:
            node = self.graph.by_id[sent[0][0]]
            if isinstance(node, (*PAYLOAD, Source)):
                self.origins[sent] = sent
                break
            passed.append(sent)
            port, state = self.took[sent]
            sent = node.inputs[port], state
        for p in passed:
            self.origins[p] = self.origins[sent]
        return self.origins[sent]

    def recording(self) -> Recording:
        numbers: dict[tuple[int, State], int] = {(0, ()): 0}
        tokens: dict[tuple[int, int, tuple[int, int], State], list[int]] = {}
        loose: list[tuple[int, int, int, int]] = []
        triggers = {port for s in self.plan.segments for port in s.triggers}
        inputs = {port for s in self.plan.segments for port in s.inputs}
        segment_of = self.plan.segment_of
        for (ref, state), rows in self.n_rows.items():
            reader = self.graph.readers.get(ref)
            if reader is None or reader not in inputs:
                continue
            node = self.graph.by_id[reader[0]]
            at = self._fired_at(node, reader[1], state)
            if at is None:
                continue
            origin_ref, origin_state = self.origin((ref, state))
            came_from = self.graph.by_id[origin_ref[0]]
            sender = numbers.setdefault((segment_of[came_from.id], origin_state), len(numbers))
            receiver = numbers.setdefault((segment_of[node.id], at), len(numbers))
            size = rows * self.graph.type_of(ref).cols
            back = size if ref in self.plan.needs_gradient else 0
            if reader in triggers:
                tokens[sender, receiver, reader, state] = [size, back]
            else:
                loose.append((sender, receiver, size, back))
        first: dict[tuple[int, int], tuple[int, int, tuple[int, int], State]] = {}
        for key in tokens:
            first.setdefault(key[:2], key)
        for sender, receiver, size, back in loose:  # what comes along with a token from the same firing
            token = tokens[first[sender, receiver]]
            token[0] += size
            token[1] += back
        firings = tuple(numbers)
        messages = tuple(Message(a, b, size, back) for (a, b, _, _), (size, back) in tokens.items())
        rows_of = tuple(self._rows(segment, state) for segment, state in firings)
        return Recording(firings, messages, rows_of, tuple(self._kept(*f) for f in firings), tuple(self._uses(*f) for f in firings))

    def _fired_at(self, node: AnyNode, port: int, state: State) -> State | None:
        """Return the state at which a node fires for a message; None for a member of no group, which nobody waits for."""
        if not isinstance(node, Group) or port == 1:
            return state
        return self.run.plan(node, state[:-1])[1][state]

    # ------------------------------------------------------------------------------------------------- sizes

    def _rows(self, segment: int, state: State) -> dict[tuple[int, str], int]:
        out: dict[tuple[int, str], int] = {}
        for node in self.plan.segments[segment].nodes:
            for ref in node.inputs:
                kind = self.graph.type_of(ref)
                if kind.rows and not isinstance(node, Group):
                    grouped = kind.rows == "*"
                    found = self.n_rows[is_direct(self.graph, ref), state] if grouped else self.run.view.rows(kind.rows, node.region, state)
                    out[node.id, kind.rows] = found
            for port, kind in enumerate(node.outputs):
                if kind.rows:
                    out[node.id, kind.rows] = self.n_rows[(node.id, port), state]
        return out

    def _kept(self, segment: int, state: State) -> int:
        nodes = self.plan.segments[segment].nodes
        return sum(self.n_rows[(n.id, port), state] * kind.cols for n in nodes for port, kind in enumerate(n.outputs))

    def _uses(self, segment: int, state: State) -> frozenset[str]:
        found: set[str] = set()
        for node in self.plan.segments[segment].nodes:
            if not isinstance(node, PPT) or not self.n_rows[(node.id, 0), state]:
                continue
            names = layer_names(node)
            if node.op == "linear_by":
                kinds = np.asarray(self.run.view.operand(node.fields[0], node.region, state))
                names = tuple(names[k] for k in np.unique(kinds) if 0 <= k < len(names))
            found.update(names)
        return frozenset(found)


__all__ = ["Message", "Recording", "record"]
