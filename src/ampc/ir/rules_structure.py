"""Rules of the verifier that look at declarations, regions and wires. Each yields what is wrong and assumes the rules before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ampc.diagnostics import Diagnostic, Label, Span
from ampc.ir.graph import Graph, Layer
from ampc.ir.nodes import (
    NPT,
    PPT,
    AnyNode,
    Bcast,
    Concat,
    Cond,
    Coord,
    Dealt,
    Decided,
    Dependents,
    FieldRef,
    First,
    Flatmap,
    Group,
    Index,
    Isu,
    Loss,
    Match,
    Metric,
    Next,
    Output,
    Phi,
    Ref,
    Source,
    Split,
    Test,
    Type,
    Ungroup,
    Within,
)
from ampc.ir.scope import TURN_FIELD, chain, declaration

Wrongs = Iterator[Diagnostic]

MAX_NODES = 200_000
MAX_REGIONS = 10_000
MAX_DEPTH = 16
MAX_DECLARATIONS = 4_096
MAX_COLUMNS = 1 << 24
MAX_PARAMETER = 1 << 33
MAX_TURNS = 1 << 31

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
LAYER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}([.~@][A-Za-z0-9_]{1,64}){0,4}")


def at_origin(code: str, node: AnyNode, message: str) -> Diagnostic:
    """Return a diagnostic about a node, at its source place if it has one."""
    title = f"node {node.id} ({type(node).__name__}{f' `{node.op}`' if isinstance(node, NPT | PPT | Loss | Metric) else ''})"
    return Diagnostic(code, f"{title}: {message}", primary=origin_label(node.origin))


def origin_label(origin: tuple[str, ...]) -> Label | None:
    """Return the most specific source place of a node, or None if it has none."""
    if not origin:
        return None
    file, line, column = ([*origin[0].rsplit(":", 2), "", ""])[:3]
    if not line.isdecimal() or not column.isdecimal():
        return None
    return Label(Span(file, int(line), int(column), int(line), int(column) + 1))


# -------------------------------------------------------------------------------------------------- declarations


def limits(graph: Graph) -> Wrongs:
    """Sizes are within what the rest is made for, names are identifiers."""
    counts = (("nodes", len(graph.nodes), MAX_NODES), ("regions", len(graph.regions), MAX_REGIONS), ("axes", len(graph.axes), MAX_DECLARATIONS),
              ("fields", len(graph.fields), MAX_DECLARATIONS), ("layers", len(graph.layers), MAX_DECLARATIONS))
    for what, n, most in counts:
        if n > most:
            yield Diagnostic("AMP300", f"the graph has {n} {what}, at most {most} are allowed")
    names = [("model", graph.name), *(("axis", a.name) for a in graph.axes), *(("field", f.name) for f in graph.fields)]
    names += [("parameter", p.name) for x in graph.layers for p in x.params]
    for what, name in names:
        if not IDENTIFIER.fullmatch(name):
            yield Diagnostic("AMP300", f"{what} name `{name[:80]}` is not an identifier of up to 64 letters, digits and underscores")
    for x in graph.layers:
        if not LAYER_NAME.fullmatch(x.name):
            yield Diagnostic("AMP300", f"layer name `{x.name[:80]}` is not an identifier, perhaps with a member's number")


def declarations(graph: Graph) -> Wrongs:
    """Axes, fields, layers and regions are unique and refer to what exists."""
    for what, names in (("axis", [a.name for a in graph.axes]), ("field", [f.name for f in graph.fields]), ("layer", [x.name for x in graph.layers])):
        for name, n in Counter(names).items():
            if n > 1:
                yield Diagnostic("AMP301", f"{what} `{name}` is declared {n} times")
    known: set[str] = set()
    for a in graph.axes:
        if a.parent and a.parent not in known:
            yield Diagnostic("AMP301", f"axis `{a.name}` is nested in `{a.parent}`, which is not declared before it")
        known.add(a.name)
    for f in graph.fields:
        if f.axis and f.axis not in known:
            yield Diagnostic("AMP301", f"field `{f.name}` lies over axis `{f.axis}`, which is not declared")
        if (f.kind == "index") != bool(f.of) or (f.of and f.of not in known):
            yield Diagnostic("AMP301", f"field `{f.name}` of kind {f.kind} points at axis `{f.of}`; only an index field points at a declared axis")
        if not 1 <= f.columns <= MAX_COLUMNS or (f.columns > 1 and f.kind != "float") or f.below < 0:
            yield Diagnostic("AMP301", f"field `{f.name}` of kind {f.kind} has {f.columns} columns and bound {f.below}")
    for x in graph.layers:
        yield from _layer(x.name, [p.name for p in x.params], [p.shape for p in x.params], x.replicas)
        yield from _parts(x)


def _parts(x: Layer) -> Wrongs:
    """Into how many parts a layer is split, and of what its parameters are slices."""
    shape = x.params[0].shape if x.params else ()
    most = {"columns": shape[-1] if shape else 1, "rows": shape[0] if shape else 1}
    for name, parts in (("columns", x.columns), ("rows", x.rows)):
        if parts != 1 and (x.form != "linear" or not 1 <= parts <= most[name] or x.columns > 1 < x.rows):
            allowed = f"a linear layer has 1 to {most[name]}, and is split one way"
            yield Diagnostic("AMP301", f"layer `{x.name}` is split by {name} into {parts}; {allowed}")
    for p in x.params:
        if p.cut and not (len(p.cut) == 3 and 0 <= p.cut[0] < len(p.shape) and 0 <= p.cut[1] <= p.cut[2] - p.shape[p.cut[0]] <= MAX_PARAMETER):
            yield Diagnostic("AMP301", f"parameter `{x.name}.{p.name}` {list(p.shape)} is no slice as `cut` {list(p.cut)} says")


def _layer(name: str, params: list[str], shapes: list[tuple[int, ...]], replicas: int) -> Wrongs:
    if len(set(params)) < len(params):
        yield Diagnostic("AMP301", f"layer `{name}` has two parameters of one name")
    if replicas < 1:
        yield Diagnostic("AMP301", f"layer `{name}` has {replicas} replicas, at least 1 is needed")
    for param, shape in zip(params, shapes, strict=True):
        size = 1
        for extent in shape:
            size *= max(extent, 0)
        if len(shape) in (1, 2) and size > MAX_PARAMETER:
            message = f"parameter `{name}.{param}` {list(shape)} of layer `{name}` has {size:,} numbers, at most {MAX_PARAMETER:,} are possible"
            hint = "make the layer smaller: the sizes that it is declared with, or the parameters of the model in them"
            yield Diagnostic("AMP301", message, help=hint)
        elif len(shape) not in (1, 2) or size < 1:
            yield Diagnostic("AMP301", f"parameter `{name}.{param}` has shape {list(shape)}, one or two extents of at least 1 are needed")


def regions(graph: Graph) -> Wrongs:
    """Regions are numbered in order, form a tree under the instance, and have an extent."""
    if not graph.regions or graph.regions[0].form != "instance":
        yield Diagnostic("AMP302", "region 0 is not the instance")
        return
    axes, fields = {a.name for a in graph.axes}, graph.field
    depth: list[int] = []
    for i, r in enumerate(graph.regions):
        if r.id != i or (i == 0) != (r.form == "instance") or not (-1 if i == 0 else 0) <= r.parent < max(i, 0):
            yield Diagnostic("AMP302", f"region {i} ({r.form}) has number {r.id} and parent {r.parent}; a region lies in an earlier one")
            return
        depth.append(0 if i == 0 else depth[r.parent] + 1)
        if depth[i] > MAX_DEPTH:
            yield Diagnostic("AMP302", f"region {i} is nested {depth[i]} deep, at most {MAX_DEPTH} are allowed")
        if r.axis and r.axis not in axes:
            yield Diagnostic("AMP302", f"region {i} runs over axis `{r.axis}`, which is not declared")
        if i and bool(r.axis) == bool(r.count) and not (r.form == "loop" and not r.axis):
            yield Diagnostic("AMP302", f"region {i} ({r.form}) needs an axis, or a loop a number of turns, not both")
        if r.form in ("each", "visit") and not r.axis:
            yield Diagnostic("AMP302", f"region {i} ({r.form}) has no axis")
        if not 0 <= r.count < MAX_TURNS:
            yield Diagnostic("AMP302", f"region {i} has {r.count} turns")
        if (r.after and r.form != "visit") or (r.reverse and r.form != "loop"):
            yield Diagnostic("AMP302", f"region {i} ({r.form}) is reversed or ordered, which only a loop or a visit can be")
        for name in r.after:
            if name not in fields or fields[name].kind != "index":
                yield Diagnostic("AMP302", f"region {i} comes after `{name}`, which is not an index field")


# --------------------------------------------------------------------------------------------------------- wires


def numbering(graph: Graph) -> Wrongs:
    """Ids rise; there is one source, in the instance's region."""
    last = -1
    for n in graph.nodes:
        if n.id <= last:
            yield at_origin("AMP303", n, f"its id does not follow that of the node before it, {last}")
        last = n.id
        if not 0 <= n.region < len(graph.regions):
            yield at_origin("AMP303", n, f"region {n.region} does not exist")
    sources = [n for n in graph.nodes if isinstance(n, Source)]
    if len(sources) != 1 or sources[0].region != 0:
        yield Diagnostic("AMP303", f"a graph has one source, in region 0, this one has {len(sources)}")


def wiring(graph: Graph) -> Wrongs:
    """Every input reads an output that exists, and every output is read at most once."""
    by_id = graph.by_id
    seen: dict[Ref, int] = {}
    for n in graph.nodes:
        for port, ref in enumerate(n.inputs):
            maker = by_id.get(ref[0])
            if maker is None or not 0 <= ref[1] < len(maker.outputs):
                yield at_origin("AMP304", n, f"input {port} reads output {ref[1]} of node {ref[0]}, which does not exist")
            elif ref in seen:
                yield at_origin("AMP305", n, f"input {port} reads output {ref[1]} of node {ref[0]}, which node {seen[ref]} reads already")
            seen[ref] = n.id


def ports(test: Test) -> int:
    """How many ports a test chooses from."""
    match test:
        case Within() | First():
            return 2
        case Match(cases=cases) | Decided(cases=cases):
            return len(cases) + 1
        case Dealt(count=count):
            return count


def arity(graph: Graph) -> Wrongs:
    """Every kind of node has the inputs and outputs that it needs."""
    for n in graph.nodes:
        inputs, outputs = _arity(n)
        if not inputs[0] <= len(n.inputs) <= inputs[1]:
            yield at_origin("AMP306", n, f"has {len(n.inputs)} inputs, {_range(*inputs)} are needed")
        if not outputs[0] <= len(n.outputs) <= outputs[1]:
            yield at_origin("AMP306", n, f"has {len(n.outputs)} outputs, {_range(*outputs)} are needed")


ANY = 1 << 20


def _arity(n: AnyNode) -> tuple[tuple[int, int], tuple[int, int]]:
    match n:
        case Source():
            return (0, 0), (1, 1)
        case NPT() | PPT():
            return (1, ANY), (1, 1)
        case Loss() | Metric():
            return (1, ANY), (0, 0)
        case Output():
            return (1, 1), (0, 0)
        case Cond(test=test):
            return (1, 1), (ports(test), ports(test))
        case Phi(test=test):
            return (ports(test), ports(test)), (1, 1)
        case Isu() | Flatmap() | Ungroup():
            return (1, 1), (1, 1)
        case Group():
            return (2, 2), (1, 1)
        case Concat():
            return (1, ANY), (1, 1)
        case Split() | Bcast():
            return (1, 1), (1, ANY)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} or more" if high == ANY else f"{low} to {high}"


# ------------------------------------------------------------------------------------------------- fields and tests


def index_axis(graph: Graph, index: Index, region: int, depth: int = 0) -> str:
    """Return the axis that an index expression names a position on ("" for a turn). Raises ValueError with the reason if it names none."""
    if depth > MAX_DEPTH:
        raise ValueError(f"an index goes through more than {MAX_DEPTH} fields")
    if isinstance(index, Coord):
        found = next((r for r in chain(graph, region) if r.id == index.region), None)
        if found is None:
            raise ValueError(f"region {index.region} is not around region {region}")
        return found.axis
    declared = declaration(graph, index.field)
    if declared is None or declared.kind != "index":
        raise ValueError(f"`{index.field}` is not an index field")
    axis = index_axis(graph, index.at, region, depth + 1)
    if axis != declared.axis or not axis:
        raise ValueError(f"`{index.field}` lies over `{declared.axis}`, read at a position on `{axis}`")
    return declared.of


def check_field(graph: Graph, ref: FieldRef, region: int) -> str | None:
    """Return what is wrong with a reference to a field, or None."""
    declared = declaration(graph, ref.field)
    if declared is None:
        return f"field `{ref.field}` does not exist"
    if ref.at is None:
        return "a turn is that of a loop" if ref.field == TURN_FIELD else None
    try:
        axis = index_axis(graph, ref.at, region)
    except ValueError as reason:
        return str(reason)
    if ref.field == TURN_FIELD:
        return None if isinstance(ref.at, Coord) and graph.regions[ref.at.region].form == "loop" else "a turn is that of a loop"
    return None if axis and axis == declared.axis else f"`{ref.field}` lies over `{declared.axis}`, read at a position on `{axis}`"


def references(graph: Graph) -> Wrongs:
    """Fields exist and are read at positions on their own axis."""
    for n in graph.nodes:
        for ref in getattr(n, "fields", ()):
            if (wrong := check_field(graph, ref, n.region)) is not None:
                yield at_origin("AMP307", n, wrong)
        indices: list[tuple[Index, int]] = []
        if isinstance(n, Group) and n.key is not None:
            indices.append((n.key, n.region))
        if isinstance(n, Flatmap) and isinstance(n.to, Dependents) and 0 <= n.to.region < len(graph.regions):
            indices.append((n.to.at, n.to.region))
        for index, region in indices:
            try:
                index_axis(graph, index, region)
            except ValueError as reason:
                yield at_origin("AMP307", n, str(reason))


def tests(graph: Graph) -> Wrongs:
    """Tests look at a loop around them, a field that exists, or an integer that is computed where they can see it."""
    for n in graph.nodes:
        if isinstance(n, Cond | Phi) and (wrong := _test(graph, n, n.test)) is not None:
            yield at_origin("AMP308", n, wrong)


def _test(graph: Graph, n: Cond | Phi, test: Test) -> str | None:
    match test:
        case Within(region=r) | First(region=r):
            if not any(x.id == r and x.form == "loop" for x in chain(graph, n.region)):
                return f"tests the turn of region {r}, which is not a loop around it"
            return "a Cond cannot test for the first turn" if isinstance(n, Cond) and isinstance(test, First) else None
        case Match(ref=ref, cases=cases):
            return check_field(graph, ref, n.region) or _cases(cases) or (
                None if ref.at is not None or not graph.field[ref.field].axis else f"tests field `{ref.field}`, which has many values"
            )
        case Decided(by=by, cases=cases):
            maker = graph.by_id.get(by)
            if maker is None or len(maker.outputs) != 1 or maker.outputs[0] != Type("", 1, True):
                return f"tests what node {by} decides, which does not compute one integer"
            if maker.region not in (0, *(x.id for x in chain(graph, n.region))):
                return f"tests what node {by} decides, which lies in region {maker.region}, not around region {n.region}"
            return _cases(cases)
        case Dealt(count=count):
            return None if 2 <= count <= MAX_DECLARATIONS else f"deals among {count} copies"


def _cases(cases: tuple[tuple[int, ...], ...]) -> str | None:
    flat = [value for case in cases for value in case]
    if not cases or not all(cases):
        return "a test needs at least one value for every port but the last"
    return None if len(set(flat)) == len(flat) else "a test names one value for two ports"


def is_next(node: AnyNode, region: int) -> bool:
    return isinstance(node, Isu) and isinstance(node.map, Next) and node.map.region == region


