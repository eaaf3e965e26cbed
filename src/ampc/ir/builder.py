"""Writes graphs by hand: numbers nodes, works out types, copies what is read more than once.

The result of `finish` keeps the rule that an output port feeds at most one input port. It is not verified here: call `verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ampc.ir.fanout import fan_out
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Attr,
    Concat,
    Cond,
    FieldRef,
    Flatmap,
    Generator,
    Group,
    Index,
    Isu,
    Loss,
    Metric,
    Output,
    Phi,
    Ref,
    Region,
    Source,
    Split,
    StateMap,
    Test,
    Type,
    Ungroup,
)
from ampc.ir.ops import OPS
from ampc.ir.scope import field_seen, grouped_rows, param_shapes, scope_at

UNIT = Type()


class GraphBuilder:
    """Collects declarations and nodes. Methods that add a node return the `Ref` of its (first) output.

    `origin` is given to nodes that are added without one; set it as the source is walked.
    """

    def __init__(
        self, name: str = "g", axes: Iterable[AxisDecl] = (), fields: Iterable[FieldDecl] = (), layers: Iterable[Layer] = (),
        train: dict[str, int | float | str | bool] | None = None, parameters: dict[str, int | float | bool] | None = None,
    ) -> None:
        self.name = name
        self.axes = list(axes)
        self.fields = list(fields)
        self.layers = list(layers)
        self.regions: list[Region] = [Region(0, "instance")]
        self.nodes: dict[int, AnyNode] = {}
        self.train = dict(train or {})
        self.parameters = dict(parameters or {})
        self.origin: tuple[str, ...] = ()
        self.source = self.add(Source(id=-1, outputs=(UNIT,)))

    # ------------------------------------------------------------------------------------------ declarations

    def region(
        self, form: str, parent: int = 0, *, axis: str = "", count: int = 0, reverse: bool = False, after: Sequence[str] = (), name: str = "",
    ) -> int:
        """Add a region and return its number."""
        number = len(self.regions)
        record = {"id": number, "form": form, "parent": parent, "axis": axis, "count": count, "reverse": reverse, "after": tuple(after), "name": name}
        self.regions.append(msgspec.convert(record, Region))
        return number

    # ------------------------------------------------------------------------------------------------- nodes

    def add(self, node: AnyNode) -> Ref:
        """Add a node; its id is replaced by the next free one. Returns its first output (meaningless if it has none)."""
        number = len(self.nodes)
        self.nodes[number] = msgspec.structs.replace(node, id=number, origin=node.origin or self.origin)
        return number, 0

    def type_of(self, ref: Ref) -> Type:
        return self.nodes[ref[0]].outputs[ref[1]]

    def region_of(self, ref: Ref) -> int:
        """The region of the states of the messages that leave at `ref`."""
        return self._view().region_out(self.nodes[ref[0]])

    def _view(self) -> Graph:
        """The declarations so far as a graph without nodes, for the functions that need one."""
        return Graph(self.name, tuple(self.axes), tuple(self.fields), tuple(self.layers), tuple(self.regions), ())

    def _infer(
        self, op: str, inputs: Sequence[Ref], fields: Sequence[FieldRef], attrs: dict[str, Attr], region: int, layer: str = "", rows: str = "",
    ) -> tuple[Type, ...]:
        view = self._view()
        scope = scope_at(view, region, (Type(rows),) if rows else ())
        types = tuple(self.type_of(i) for i in inputs)
        seen = tuple(field_seen(view, f) for f in fields)
        return OPS[op].infer(types, seen, attrs, param_shapes(view, op, layer, attrs) if layer else {}, scope)

    def npt(self, op: str, *inputs: Ref, fields: Sequence[FieldRef] = (), rows: str = "", name: str = "", **attrs: Attr) -> Ref:
        """Add an NPT; its type follows from the operands (`rows` tells the axis of `expand_rows`)."""
        where, full = self.region_of(inputs[0]), self._attrs(op, attrs)
        outputs = self._infer(op, inputs, fields, full, where, rows=rows)
        return self.add(NPT(id=-1, region=where, inputs=inputs, outputs=outputs, op=op, fields=tuple(fields), attrs=full, name=name))

    def ppt(self, op: str, layer: str, *inputs: Ref, fields: Sequence[FieldRef] = (), name: str = "", **attrs: Attr) -> Ref:
        """Add a PPT of `layer` (already among `layers`)."""
        where, full = self.region_of(inputs[0]), self._attrs(op, attrs)
        outputs = self._infer(op, inputs, fields, full, where, layer)
        return self.add(PPT(id=-1, region=where, inputs=inputs, outputs=outputs, op=op, layer=layer, fields=tuple(fields), attrs=full, name=name))

    def loss(self, op: str, *inputs: Ref, fields: Sequence[FieldRef] = (), weight: float = 1.0, name: str = "", **attrs: Attr) -> Ref:
        where, full = self.region_of(inputs[0]), self._attrs(op, attrs)
        self._infer(op, inputs, fields, full, where)
        return self.add(Loss(id=-1, region=where, inputs=inputs, op=op, fields=tuple(fields), attrs=full, weight=weight, name=name))

    def metric(self, op: str, *inputs: Ref, fields: Sequence[FieldRef] = (), name: str = "", **attrs: Attr) -> Ref:
        where, full = self.region_of(inputs[0]), self._attrs(op, attrs)
        self._infer(op, inputs, fields, full, where)
        return self.add(Metric(id=-1, region=where, inputs=inputs, op=op, fields=tuple(fields), attrs=full, name=name))

    @staticmethod
    def _attrs(op: str, attrs: dict[str, Attr]) -> dict[str, Attr]:
        return OPS[op].defaults | attrs

    def output(self, value: Ref, name: str) -> Ref:
        return self.add(Output(id=-1, region=self.region_of(value), inputs=(value,), name=name))

    def cond(self, value: Ref, test: Test, ports: int = 2, name: str = "") -> tuple[Ref, ...]:
        """Add a Cond and return its `ports` outputs."""
        number, _ = self.add(Cond(id=-1, region=self.region_of(value), inputs=(value,), outputs=(self.type_of(value),) * ports, test=test, name=name))
        return tuple((number, i) for i in range(ports))

    def phi(self, *inputs: Ref, test: Test, name: str = "") -> Ref:
        return self.add(Phi(id=-1, region=self.region_of(inputs[0]), inputs=inputs, outputs=(self.type_of(inputs[0]),), test=test, name=name))

    def close(self, phi: Ref, *more: Ref) -> None:
        """Append inputs to a Phi: the way to tie a loop's back edge to its head."""
        node = self.nodes[phi[0]]
        self.nodes[phi[0]] = msgspec.structs.replace(node, inputs=node.inputs + more)

    def connect(self, node: Ref, port: int, value: Ref) -> None:
        """Replace an input that exists: for cycles that start elsewhere than at a Phi, as when a `visit` groups its own results."""
        inputs = self.nodes[node[0]].inputs
        self.nodes[node[0]] = msgspec.structs.replace(self.nodes[node[0]], inputs=(*inputs[:port], value, *inputs[port + 1 :]))

    def isu(self, value: Ref, map: StateMap, name: str = "") -> Ref:
        return self.add(Isu(id=-1, region=self.region_of(value), inputs=(value,), outputs=(self.type_of(value),), map=map, name=name))

    def concat(self, *parts: Ref, name: str = "") -> Ref:
        types = [self.type_of(p) for p in parts]
        joined = Type(types[0].rows, sum(t.cols for t in types), types[0].integer)
        return self.add(Concat(id=-1, region=self.region_of(parts[0]), inputs=parts, outputs=(joined,), name=name))

    def split(self, value: Ref, *cols: int, name: str = "") -> tuple[Ref, ...]:
        whole = self.type_of(value)
        types = tuple(Type(whole.rows, c, whole.integer) for c in cols)
        number, _ = self.add(Split(id=-1, region=self.region_of(value), inputs=(value,), outputs=types, name=name))
        return tuple((number, i) for i in range(len(cols)))

    def flatmap(self, value: Ref, to: Generator, name: str = "") -> Ref:
        return self.add(Flatmap(id=-1, region=self.region_of(value), inputs=(value,), outputs=(self.type_of(value),), to=to, name=name))

    def ungroup(self, value: Ref, to: int, name: str = "") -> Ref:
        t = self.type_of(value)
        return self.add(Ungroup(id=-1, region=self.region_of(value), inputs=(value,), outputs=(Type("", t.cols, t.integer),), to=to, name=name))

    def group(self, value: Ref, expect: Ref, key: Index | None = None, to: int = 0, name: str = "") -> Ref:
        """Add a Group of `value`; `expect` is a unit message at the result's state."""
        where, t = self.region_of(value), self.type_of(value)
        rows = grouped_rows(key, where, self.regions[where].axis)
        return self.add(Group(id=-1, region=where, inputs=(value, expect), outputs=(Type(rows, t.cols, t.integer),), key=key, to=to, name=name))

    # ------------------------------------------------------------------------------------------------ finish

    def finish(self) -> Graph:
        """Return the graph, with a Bcast behind each output port that several inputs read."""
        graph = msgspec.structs.replace(self._view(), nodes=tuple(self.nodes.values()), train=self.train, parameters=self.parameters)
        return fan_out(graph)
