"""From one message an element to one message an axis: gather, GEMM over all rows, scatter.

What an `each` computes at the elements of an axis becomes operations on whole-axis payloads in the region around it: Ungroup and Group
vanish, a Flatmap to dependents is a gather, a Group by an index and its reduction a scatter, a branch by kind over a family of layers one
`linear_by`. What can't be told row by row (loops and other branches inside an `each`, visits) stays as it is. Both forms compute the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Concat,
    Cond,
    Coord,
    Dependents,
    FieldRef,
    Flatmap,
    Group,
    Index,
    Loss,
    Match,
    Metric,
    Output,
    Over,
    Phi,
    Ref,
    Split,
    Through,
    Type,
    Ungroup,
)
from ampc.ir.ops import OPS
from ampc.ir.scope import declaration, open_axes
from ampc.passes.drop_dead import drop_regions
from ampc.passes.rewrite import Rewriter, joined, live, uses


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """A value of an each-region as a message of the region around it.

    `axis`: that of the region, with a row for each element; or one nested in it, with all rows of all elements; or "": one row that is the
    same for all elements. `partial`: at some elements there is no message (an index is none there); the rows in their place mean nothing.
    """

    ref: Ref
    axis: str
    partial: bool = False


def bulk(graph: Graph) -> Graph:
    """Return the graph with each-regions computed in bulk where that is possible."""
    pass_ = Bulk(graph)
    pass_.run()
    return drop_regions(pass_.r.finish())


class Bulk:
    """One run over a graph: `rows` finds or makes the bulk form of a value, `run` puts it in the place of what leaves a region."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.r = Rewriter(graph)
        self.axis_of = {r.id: r.axis for r in graph.regions if r.form == "each"} if graph.regions else {}
        self.made: dict[Ref, Rows | None] = {}
        self.at = 0
        for n in graph.nodes:  # what a visit sends or waits for arrives element by element
            if isinstance(n, Flatmap) and isinstance(n.to, Dependents) and graph.regions[n.region].form == "visit":
                self.axis_of.pop(n.to.region, None)
            if isinstance(n, Group) and n.key is not None and graph.regions[n.to].form == "visit":
                self.axis_of.pop(n.region, None)

    def run(self) -> None:
        for i in list(self.r.order):
            node = self.r.nodes[i]
            if node.region not in self.axis_of:
                continue
            self.at = i
            match node:
                case Group(key=None) if self.r.readers[i, 0]:
                    self._leaves(node)
                case Loss() | Metric() | Output():
                    self._ends(node)
                case _:
                    pass
        self._bridges()

    # -------------------------------------------------------------------------------------------- leaving a region

    def _leaves(self, node: Group) -> None:
        """Read the bulk form where the elements' values were collected."""
        found = self.rows(node.inputs[0])
        if found is not None and not found.partial and found.axis in ("", self.axis_of[node.region]):
            self.r.reroute((node.id, 0), self.spread(found, node.region))

    def _ends(self, node: Loss | Metric | Output) -> None:
        """Judge or give out all rows at once."""
        found = [self.rows(ref) for ref in node.inputs]
        fields = [self.whole(f, node.region) for f in getattr(node, "fields", ())]
        own = ("", self.axis_of[node.region])
        if any(f is None or f.partial or f.axis not in own for f in found) or any(f is None for f in fields):
            return
        inputs = tuple(self.spread(f, node.region) for f in found if f is not None)
        new = msgspec.structs.replace(node, region=self.outer(node.region), inputs=inputs)
        if not isinstance(node, Output):
            new = msgspec.structs.replace(new, fields=tuple(f for f in fields if f is not None))
        self.r.put(new)

    def _bridges(self) -> None:
        """Compute once what is needed in both forms: elements that remain get their rows of the bulk form."""
        for ref, found in list(self.made.items()):
            node = self.r.nodes[ref[0]]
            if (
                found is None
                or found.partial
                or found.axis != self.axis_of.get(node.region)
                or not isinstance(node, PPT | NPT | Concat | Split | Phi)
                or not self.r.readers[found.ref]
            ):
                continue
            kept = self.remaining()
            if ref[0] in kept and any(reader in kept for reader in self.r.readers[ref]) and found.ref[0] in kept:
                t = node.outputs[ref[1]]
                outer = self.outer(node.region)
                back = Ungroup(id=-1, to=node.region, region=outer, inputs=(found.ref,), outputs=(t,), origin=node.origin, name=node.name)
                self.r.reroute(ref, (self.r.add(back, ref[0]), 0))

    def remaining(self) -> set[int]:
        """Return the ids of the nodes that still lead to a result."""
        return live(self.r.open.with_nodes(tuple(self.r.nodes[i] for i in self.r.order)))

    # --------------------------------------------------------------------------------------------- small helpers

    def outer(self, region: int) -> int:
        return self.graph.regions[region].parent

    def add(self, node: AnyNode) -> int:
        return self.r.add(node, self.at)

    def npt(
        self,
        op: str,
        inputs: tuple[Ref, ...],
        outputs: tuple[Type, ...],
        region: int,
        like: AnyNode,
        *,
        fields: tuple[FieldRef, ...] = (),
        **attrs: int | float | str,
    ) -> Ref:
        """Add an NPT in `region` that stands for `like`."""
        full = OPS[op].defaults | attrs
        return (
            self.add(NPT(id=-1, region=region, inputs=inputs, outputs=outputs, op=op, fields=fields, attrs=full, origin=like.origin, name=like.name)),
            0,
        )

    def spread(self, found: Rows, region: int, axis: str = "") -> Ref:
        """Return the value with a row for each element (or each of the nested `axis`), repeated where it is the same for several."""
        axis = axis or self.axis_of[region]
        return self.repeated(found.ref, found.axis, axis, self.outer(region))

    def repeated(self, ref: Ref, rows: str, axis: str, region: int) -> Ref:
        """Return a payload over `rows` with a row for each of `axis`: a nested axis by way of its parents."""
        if rows == axis:
            return ref
        parent = next(a.parent for a in self.graph.axes if a.name == axis)
        if parent and parent not in open_axes(self.graph, region):
            ref = self.repeated(ref, rows, parent, region)
        t = self.r.type_of(ref)
        return self.npt("expand_rows", (ref,), (Type(axis, t.cols, t.integer),), region, self.r.node(ref))

    def nested(self, axis: str, region: int) -> bool:
        """Whether rows over `axis`, at an element of `region`, are those of that element only."""
        return any(a.name == axis and a.parent == self.axis_of[region] for a in self.graph.axes)

    def whole(self, ref: FieldRef, region: int) -> FieldRef | None:
        """Return a field that an element reads, for all elements at once; None if it is not its own field."""
        if ref.at is None or not uses(ref.at, region):
            return None
        return FieldRef(ref.field) if ref.at == Coord(region) else None

    def optional(self, at: Index) -> bool:
        """Whether an index may be none."""
        while isinstance(at, Through):
            decl = declaration(self.graph, at.field)
            if decl is None or decl.optional:
                return True
            at = at.at
        return False

    def gather(self, ref: Ref, at: Index, region: int, like: AnyNode) -> Ref:
        """Return the rows of `ref` that the elements of `region` name by index `at`."""
        if not isinstance(at, Through):
            return ref
        decl = declaration(self.graph, at.field)
        assert decl is not None
        t = self.r.type_of(ref)
        rows = self.npt("gather", (ref,), (Type(decl.axis, t.cols),), self.outer(region), like, fields=(FieldRef(at.field),))
        return self.gather(rows, at.at, region, like)

    # ------------------------------------------------------------------------------------------------- bulk forms

    def rows(self, ref: Ref) -> Rows | None:
        """Return the bulk form of a value at the elements of an each-region, or None if it has none."""
        if ref not in self.made:
            self.made[ref] = None  # a circle has no bulk form
            self.made[ref] = self._rows(ref, self.r.nodes[ref[0]])
        return self.made[ref]

    def _rows(self, ref: Ref, node: AnyNode) -> Rows | None:
        match node:
            case Ungroup(to=to) if to in self.axis_of:
                return Rows(node.inputs[0], self.axis_of[to])
            case Flatmap(to=Over(region=to)) if to in self.axis_of and node.outputs[0].rows == "":
                return Rows(node.inputs[0], "")
            case Flatmap(to=Dependents(region=to)) if to in self.axis_of:
                return self._dependents(node)
            case Group(key=Through(), to=to) if to in self.axis_of:
                return self._of_parents(node)
            case _ if node.region not in self.axis_of or node.outputs[ref[1]].integer:
                return None
            case NPT(op="reduce_rows"):
                return self._reduced(node) or self._scattered(node)
            case NPT(op="softmax_rows"):
                found = self.rows(node.inputs[0])
                return None if found is None or not self.nested(found.axis, node.region) else self._apply(node, [found])
            case NPT() if OPS[node.op].group in ("unary", "binary", "columns", "random"):
                return self._same(node, node.inputs)
            case NPT() if OPS[node.op].group == "source":
                return self._source(node)
            case PPT(op="linear" | "layer_norm"):
                return self._same(node, node.inputs)
            case PPT(op="lookup") if node.fields:
                return self._source(node)
            case Concat() | Split():
                found = self._same(node, node.inputs)
                return None if found is None else dataclasses.replace(found, ref=(found.ref[0], ref[1]))
            case Phi(test=Match()):
                return self._merged(node, node.inputs)
            case _:
                return None

    def _same(self, node: AnyNode, inputs: Sequence[Ref], layer: str | None = None) -> Rows | None:
        """The same operation on whole rows (of another layer's name, if given)."""
        return self._apply(node, [self.rows(ref) for ref in inputs])

    def _apply(self, node: AnyNode, operands: Sequence[Rows | None]) -> Rows | None:
        """Return `node` on the bulk forms of its operands; None if one has none."""
        found = [x for x in operands if x is not None]
        if len(found) < len(operands) or any(f.at is not None and uses(f.at, node.region) for f in getattr(node, "fields", ())):
            return None
        axes = {x.axis for x in found} - {""}
        inner = axes - {self.axis_of[node.region]}
        if len(inner) > 1:
            return None
        axis = next(iter(inner or axes), "")
        alone = {x.axis for x in found} == {axis}
        if alone or (axis == self.axis_of[node.region] and not isinstance(node, Concat)):  # a single row goes with many by itself
            refs = [x.ref for x in found]
        else:
            refs = [self.spread(x, node.region, axis) for x in found]
        outputs = tuple(Type(axis, t.cols, t.integer) for t in node.outputs)
        made = self.add(msgspec.structs.replace(node, region=self.outer(node.region), inputs=tuple(refs), outputs=outputs))
        return Rows((made, 0), axis, any(x.partial for x in found))

    def _reduced(self, node: NPT) -> Rows | None:
        """The rows of each element, over a nested axis: all are reduced at once, those of each element together."""
        if not self.nested(self.r.type_of(node.inputs[0]).rows, node.region):
            return None
        found = self.rows(node.inputs[0])
        if found is None or not self.nested(found.axis, node.region):
            return None
        kind = Type(self.axis_of[node.region], node.outputs[0].cols)
        made = self.add(msgspec.structs.replace(node, region=self.outer(node.region), inputs=(found.ref,), outputs=(kind,)))
        return Rows((made, 0), kind.rows, found.partial)

    def _source(self, node: NPT | PPT) -> Rows | None:
        """A constant or a field, read for all elements; through an index field: for all that it may point to, then gathered."""
        unit = self.rows(node.inputs[0])
        if unit is None or unit.axis:
            return None
        field = node.fields[0] if node.fields else None
        axis = "" if field is None else declared_axis(self.graph, field)
        if field is not None and field.at is None and axis and not self.nested(axis, node.region):
            return None
        own = field.at if field is not None and field.at is not None and uses(field.at, node.region) else None
        if own is not None and node.op == "number" and self.optional(own):  # none would be read as -1, and gathered as 0
            return None
        rows = axis if own is not None or (field is not None and field.at is None) else ""
        fields = (FieldRef(field.field),) if field is not None and own is not None else node.fields
        kind = Type(rows, node.outputs[0].cols)
        made = self.add(msgspec.structs.replace(node, region=self.outer(node.region), inputs=(unit.ref,), outputs=(kind,), fields=fields))
        if own is None:
            return Rows((made, 0), rows)
        return Rows(self.gather((made, 0), own, node.region, node), self.axis_of[node.region])

    def _dependents(self, node: Flatmap) -> Rows | None:
        """What other elements send to those that point at them: a gather."""
        assert isinstance(node.to, Dependents)
        if node.region not in self.axis_of or node.outputs[0].integer or node.outputs[0].cols == 0:
            return None
        found = self.rows(node.inputs[0])
        if found is None or found.partial or found.axis not in ("", self.axis_of[node.region]):
            return None
        ref = self.spread(found, node.region)
        return Rows(self.gather(ref, node.to.at, node.to.region, node), self.axis_of[node.to.region], self.optional(node.to.at))

    def _of_parents(self, node: Group) -> Rows | None:
        """What the children of each parent leave there: the rows of all children, in their order."""
        if node.outputs[0].rows == "*" or node.region not in self.axis_of or node.outputs[0].integer:
            return None
        found = self.rows(node.inputs[0])
        if found is None or found.partial or found.axis not in ("", self.axis_of[node.region]):
            return None
        return Rows(self.spread(found, node.region), self.axis_of[node.region])

    def _scattered(self, node: NPT) -> Rows | None:
        """What arrives at an element by an index field, reduced: a scatter."""
        group = self.r.node(node.inputs[0])
        if (
            not isinstance(group, Group)
            or group.region not in self.axis_of
            or not isinstance(group.key, Through)
            or group.key.at != Coord(group.region)
        ):
            return None
        source = self._past_none(group)
        found = self.rows(source)
        if found is None or found.partial or found.axis not in ("", self.axis_of[group.region]):
            return None
        kind = Type(self.axis_of[node.region], node.outputs[0].cols)
        ref = self.spread(found, group.region)
        how = node.attrs["reduce"]
        assert isinstance(how, str)
        return Rows(self.npt("scatter", (ref,), (kind,), self.outer(node.region), node, fields=(FieldRef(group.key.field),), reduce=how), kind.rows)

    def _past_none(self, group: Group) -> Ref:
        """Return what is grouped, before those elements whose key is none were left out: a scatter leaves them out itself."""
        ref = group.inputs[0]
        cond = self.r.node(ref)
        assert isinstance(group.key, Through)
        if isinstance(cond, Cond) and ref[1] == 1 and cond.test == Match(FieldRef(group.key.field, group.key.at), ((-1,),)):
            return cond.inputs[0]
        return ref

    # --------------------------------------------------------------------------------------------------- branches

    def _merged(self, phi: Phi, refs: Sequence[Ref]) -> Rows | None:
        """Return the bulk form of what the arms of a branch leave, where all arms do the same, each perhaps with its own layer."""
        nodes = [self.r.node(ref) for ref in refs]
        first = nodes[0]
        if all(
            isinstance(n, Cond) and n.id == first.id and n.test == phi.test and ref[1] == port
            for port, (n, ref) in enumerate(zip(nodes, refs, strict=True))
        ):
            return self.rows(first.inputs[0])
        if (found := self._or_zeros(phi, refs)) is not None:
            return found
        if len({n.id for n in nodes}) < len(nodes) or len({ref[1] for ref in refs}) > 1 or not isinstance(first, NPT | PPT | Concat | Split):
            return None
        if isinstance(first, PPT) and first.op == "linear" and (field := self._members(phi, nodes)) is not None:
            return self._linear_by(phi, nodes, field)
        if any(alike(n) != alike(first) for n in nodes):
            return None
        if isinstance(first, NPT) and OPS[first.op].group not in ("unary", "binary", "columns", "source"):
            return None
        operands = [self._merged(phi, [n.inputs[i] for n in nodes]) for i in range(len(first.inputs))]
        if getattr(first, "fields", ()):
            return self._merged_source(first, operands)
        found = self._apply(first, operands)
        return None if found is None else dataclasses.replace(found, ref=(found.ref[0], refs[0][1]), partial=False)

    def _merged_source(self, first: AnyNode, operands: Sequence[Rows | None]) -> Rows | None:
        """A field that every arm reads is read once."""
        unit = operands[0]
        if unit is None or unit.axis or not isinstance(first, NPT | PPT):
            return None
        made = self.add(msgspec.structs.replace(first, inputs=first.inputs))
        self.made[first.inputs[0]] = self.made.get(first.inputs[0]) or unit
        return self._source(self.r.nodes[made])  # type: ignore[arg-type]  # just made of an NPT or PPT

    def _or_zeros(self, phi: Phi, refs: Sequence[Ref]) -> Rows | None:
        """`h[left[n]]` with zeros where `left[n]` is none is what a gather gives."""
        assert isinstance(phi.test, Match)
        if len(refs) != 2 or phi.test.cases != ((-1,),):
            return None
        zeros, sent = self.r.node(refs[0]), self.r.node(refs[1])
        if (
            not isinstance(zeros, NPT)
            or zeros.op != "fill"
            or zeros.attrs["value"] != 0
            or not isinstance(sent, Flatmap)
            or not isinstance(sent.to, Dependents)
        ):
            return None
        at = sent.to.at
        if not isinstance(at, Through) or phi.test.ref != FieldRef(at.field, at.at):
            return None
        found = self.rows(refs[1])
        return None if found is None else dataclasses.replace(found, partial=False)

    def _members(self, phi: Phi, nodes: Sequence[AnyNode]) -> FieldRef | None:
        """Return the field that picks the member if arm i applies member i of one family to the values 0, 1, ... of its own field."""
        test = phi.test
        assert isinstance(test, Match)
        field = self.whole(test.ref, phi.region)
        decl = None if field is None else self.graph.field.get(field.field)
        count = len(nodes)
        if field is None or decl is None or decl.kind not in ("int", "flag") or decl.optional or (2 if decl.kind == "flag" else decl.below) != count:
            return None
        layers = [n.layer for n in nodes if isinstance(n, PPT) and n.op == "linear"]
        base = layers[0].rpartition(".")[0] if layers else ""
        if not base or layers != [f"{base}.{i}" for i in range(count)] or test.cases != tuple((i,) for i in range(count - 1)):
            return None
        return field

    def _linear_by(self, phi: Phi, nodes: Sequence[AnyNode], field: FieldRef) -> Rows | None:
        """Return the family applied to all rows, each row by the member that its kind names."""
        found = self._merged(phi, [n.inputs[0] for n in nodes])
        first = nodes[0]
        if found is None or not isinstance(first, PPT) or found.axis not in ("", self.axis_of[phi.region]):
            return None
        ref = self.spread(found, phi.region)
        made = PPT(
            id=-1,
            region=self.outer(phi.region),
            inputs=(ref,),
            outputs=(Type(self.axis_of[phi.region], first.outputs[0].cols),),
            op="linear_by",
            layer=first.layer.rpartition(".")[0],
            fields=(field,),
            attrs={"members": len(nodes)},
            origin=joined(*(n.origin for n in nodes)),
            name=phi.name,
        )
        return Rows((self.add(made), 0), self.axis_of[phi.region])


def declared_axis(graph: Graph, ref: FieldRef) -> str:
    decl = declaration(graph, ref.field)
    assert decl is not None
    return decl.axis


def alike(node: AnyNode) -> tuple[object, ...]:
    """Return what makes the nodes of several arms the same operation: all but id, inputs, name and source place."""
    parts = msgspec.structs.asdict(node)
    attrs = parts.pop("attrs", {})
    return (type(node).__name__, *(v for k, v in parts.items() if k not in ("id", "inputs", "name", "origin")), tuple(sorted(attrs.items())))
