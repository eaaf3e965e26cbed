"""What all of the lowering shares: declarations, the net, the mistakes found so far, and frames of names.

A mistake is recorded and the value that it spoils becomes one of unknown shape, so that one run reports all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ampc.diagnostics import AmpError, Diagnostic, Label, Span, did_you_mean
from ampc.frontend import ast
from ampc.frontend.metrics import metric_names
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer
from ampc.ir.nodes import Attr, FieldRef, Group, Type
from ampc.ir.ops import OPS
from ampc.ir.scope import field_seen, param_shapes, scope_at
from ampc.lower.net import Net
from ampc.lower.scope import Scope
from ampc.lower.values import UNKNOWN, Binding, Carry, Collected, Const, Value

NOTHING = Type("", UNKNOWN)


@dataclasses.dataclass(frozen=True, slots=True)
class LayerInfo:
    """A declared layer: its AST, the op that applies it, and its size if it is a family."""

    decl: ast.Layer
    op: str
    members: int | None
    inputs: int
    attrs: dict[str, Attr]


@dataclasses.dataclass(slots=True)
class Implicit:
    """Inside `sum(child, ...)` at an element: bare fields and index fields of `axis` mean those of the current child."""

    axis: str
    scope: Scope
    frame: Frame


class Frame:
    """Names in one block. Reading a name looks outwards; assigning one binds it here."""

    def __init__(
        self, scope: Scope, outer: Frame | None = None, implicit: Implicit | None = None, names: Mapping[str, Binding] | None = None
    ) -> None:
        self.scope = scope
        self.outer = outer
        self.implicit: Implicit | None = implicit or (outer.implicit if outer else None)
        self.names: dict[str, Binding] = dict(names or {})
        self.carries: dict[str, Carry] = {}

    def carry(self, name: str) -> Carry | None:
        """Return the innermost visit's carried name, assigned already or not."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.carries:
                return frame.carries[name]
            frame = frame.outer
        return None

    def find(self, name: str) -> Binding | None:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return None

    def visible(self) -> set[str]:
        return set(self.names) | (self.outer.visible() if self.outer else set())


class Stop(Exception):
    """Gives up one expression or statement whose mistake has been recorded."""


@dataclasses.dataclass
class Lowering:
    """One run of `lower`."""

    model: ast.Model
    constants: dict[str, Const]
    axes: dict[str, AxisDecl]
    fields: dict[str, FieldDecl]
    layers: dict[str, LayerInfo]
    arrays: dict[str, Layer]
    functions: dict[str, ast.Function]
    net: Net = dataclasses.field(default_factory=Net)
    diagnostics: list[Diagnostic] = dataclasses.field(default_factory=list)
    calls: list[tuple[str, Span]] = dataclasses.field(default_factory=list)
    outputs: dict[str, Value] = dataclasses.field(default_factory=dict)
    predictions: list[Value] = dataclasses.field(default_factory=list)
    collected: list[Collected] = dataclasses.field(default_factory=list)
    hidden: dict[str, Span] = dataclasses.field(default_factory=dict)
    bare: list[tuple[str, Span]] = dataclasses.field(default_factory=list)
    """Where fields were read whole."""

    @cached_property
    def metric_names(self) -> dict[Span, str]:
        return metric_names(self.model)

    # ------------------------------------------------------------------------------------------------- mistakes

    def report(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *,
        also: Iterable[Label] = (),
        help: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Record a mistake, with the call sites that led to it; the same one twice (a body lowered again) counts once."""
        sites = tuple(Label(site, f"in this call of `{name}`") for name, site in reversed(self.calls))
        secondary = tuple(x for x in also if x.span != span) + sites
        found = Diagnostic(code, message, Label(span, label), secondary, notes, help)
        if found not in self.diagnostics:
            self.diagnostics.append(found)

    def fail(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        *,
        also: Iterable[Label] = (),
        help: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> Stop:
        """Record a mistake and return the exception that gives up on the expression: `raise low.fail(...)`."""
        self.report(code, message, span, label, also=also, help=help, notes=notes)
        return Stop()

    def raise_all(self) -> None:
        if self.diagnostics:
            raise AmpError(self.diagnostics)

    def suggest(self, name: str, known: Iterable[str]) -> str | None:
        return did_you_mean(name, sorted(known))

    # --------------------------------------------------------------------------------------------------- trials

    def mark(self) -> tuple[tuple[int, int, int], int, dict[str, Value], list[Diagnostic]]:
        """Return a point to which `rewind` can go back."""
        return self.net.mark(), len(self.predictions), dict(self.outputs), list(self.diagnostics)

    def rewind(self, mark: tuple[tuple[int, int, int], int, dict[str, Value], list[Diagnostic]], scope: Scope) -> None:
        """Take back all that was made since `mark`, in `scope` and around it."""
        point, predictions, self.outputs, self.diagnostics = mark
        self.net.rewind(point)
        del self.predictions[predictions:]
        for s in scope.chain():
            s.forget(point[0])
        for c in self.collected:
            if c.value is not None and (c.value.ref[0] >= point[0] or c.value.ref[0] < point[2]):
                c.value = None

    # ---------------------------------------------------------------------------------------------------- nodes

    def origin(self, span: Span) -> tuple[str, ...]:
        """Return the source places of a node: the expression, then the calls around it, innermost first."""
        return (str(span), *(str(site) for _, site in reversed(self.calls)))

    def nothing(self, scope: Scope, span: Span, name: str = "") -> Value:
        """Return a value of unknown shape in place of one that a mistake has spoiled."""
        return Value(scope, self.net.promise(), NOTHING, span, name)

    def view(self) -> Graph:
        """Return the declarations as a graph without nodes, as the shape rules want them."""
        return Graph(
            self.model.name, tuple(self.axes.values()), tuple(self.fields.values()), tuple(self.arrays.values()), tuple(self.net.regions), ()
        )

    def infer(
        self,
        op: str,
        types: Sequence[Type],
        fields: Sequence[FieldRef],
        attrs: Mapping[str, Attr],
        region: int,
        layer: str = "",
        declared: tuple[Type, ...] = (),
    ) -> tuple[Type, ...]:
        """Return the output types by the operation's own rule; raises `ShapeError`."""
        view = self.view()
        params = param_shapes(view, op, layer, dict(attrs)) if layer else {}
        return OPS[op].infer(tuple(types), tuple(field_seen(view, f) for f in fields), attrs, params, scope_at(view, region, declared))

    def collect(self, found: Collected, span: Span) -> Value:
        """Return a name assigned in each element as one value over the axis."""
        if found.value is None:
            element = found.element
            if element.type.rows:
                self.refuse_whole(element, found.axis, found.variable, "AMP267")
                raise self.fail(
                    "AMP267",
                    f"`{element.name}` has a row for each `{element.type.rows}` at every `{found.axis}`; only single rows are kept after the block",
                    span,
                    "read here",
                    also=[Label(element.span, "assigned here, inside the block")],
                    help="reduce it with `sum`, `mean` or `max` inside the block",
                )
            found.value = self.group_all(found, element)
        return found.value

    def refuse_whole(self, value: Value, axis: str, variable: str, code: str) -> None:
        """Raise Stop if a value of an element has a row for each element of its own axis because a field of that axis was read whole."""
        todo, seen = [value.ref], set()
        while todo:
            ref = todo.pop()
            if ref[0] < 0 or ref in seen:
                continue
            seen.add(ref)
            node = self.net.nodes[ref[0]]
            if node.outputs[ref[1]].rows != axis:
                continue
            todo += node.inputs
            whole = {f.field for f in getattr(node, "fields", ()) if f.at is None and f.field in self.fields and self.fields[f.field].axis == axis}
            for name, span in self.bare:
                if name in whole and len(node.origin) == 1 and _begins_at(span, node.origin[0]):
                    raise self.fail(
                        code,
                        f"`{name}` stands for all of its rows here, one for each `{axis}`, at every `{axis}`",
                        span,
                        "read whole",
                        help=f"write `{name}[{variable}]` for that of the current element; `sum`, `mean` and `max` reduce rows",
                    )

    def group_all(self, found: Collected, element: Value) -> Value:
        """Return the rows of all elements as one value."""
        if element.type.cols == UNKNOWN:
            return Value(found.scope, self.net.promise(), Type(found.axis, UNKNOWN), element.span, element.name)
        kind = Type(found.axis, element.type.cols, element.type.integer)
        node = self.net.add(
            Group,
            region=found.region,
            inputs=(element.ref, found.scope.unit().ref),
            outputs=(kind,),
            key=None,
            origin=self.origin(element.span),
            name=element.name,
        )
        return Value(found.scope, (node, 0), kind, element.span, element.name)


def _begins_at(span: Span, origin: str) -> bool:
    """Whether a place lies in an expression that begins at `origin`, on its first line."""
    file, line, column = origin.rsplit(":", 2)
    return (span.file, span.line) == (file, int(line)) and span.column >= int(column)


def at(value: Value, shape_text: str) -> Label:
    """Return a secondary label that says where `value` got its shape."""
    return Label(value.span, f"`{value.name}` is {shape_text}, defined here" if value.name else f"this is {shape_text}")
