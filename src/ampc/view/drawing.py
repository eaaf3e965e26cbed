"""Pictures: a graph or a placed program as DOT, and DOT as SVG or PNG.

Devices are clusters, node kinds have shapes and colours, loop edges are told apart from forward ones. Every name is escaped: it may come
from a stranger. Nothing is drawn here that the graph or the placement does not say.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec
import pydot

from ampc.diagnostics import did_you_mean, error, printable
from ampc.ir.graph import Graph
from ampc.ir.nodes import (
    NPT, PPT, AnyNode, Bcast, Concat, Cond, Dealt, Decided, Dependents, FieldRef, First, Flatmap, Group, Isu, Loss, Match, Metric, Output, Phi,
    Source, Split, Through, Type, Ungroup, Within,
)
from ampc.place import Placement, Target
from ampc.view.load import Load, amount, percent
from ampc.view.words import describe, field_words, shape

Detail = Literal["paper", "layers"]
"""paper: every node. layers: what moves state and copies messages is drawn through; fields of the instance are shown where they are read."""

FONT = "Helvetica"
INK, MUTED, LOOP, TRIGGER = "#1f2937", "#6b7280", "#c026d3", "#9ca3af"
DEVICE_FILLS = ("#eff6ff", "#f0fdf4", "#fff7ed", "#faf5ff", "#f0fdfa", "#fefce8", "#fdf2f8", "#f8fafc")
DEVICE_LINES = ("#93c5fd", "#86efac", "#fdba74", "#d8b4fe", "#5eead4", "#fde047", "#f9a8d4", "#cbd5e1")


class Style(msgspec.Struct, frozen=True):
    """How a kind of node looks; `text` is the line of the legend."""

    shape: str
    fill: str
    line: str
    ink: str
    text: str


STYLES: dict[str, Style] = {
    "Source": Style("circle", "#1f2937", "#1f2937", "#ffffff", "source, controller"),
    "PPT": Style("box", "#2563eb", "#1e40af", "#ffffff", "PPT: has parameters"),
    "NPT": Style("box", "#ffffff", "#64748b", INK, "NPT: no parameters"),
    "Loss": Style("octagon", "#dc2626", "#991b1b", "#ffffff", "loss"),
    "Metric": Style("octagon", "#fee2e2", "#dc2626", INK, "metric"),
    "Output": Style("box", "#fee2e2", "#dc2626", INK, "output"),
    "Cond": Style("diamond", "#fbbf24", "#b45309", INK, "Cond: by the state"),
    "Phi": Style("invtriangle", "#fbbf24", "#b45309", INK, "Phi: join of paths"),
    "Isu": Style("box", "#fef3c7", "#b45309", INK, "Isu: changes the state"),
    "Concat": Style("trapezium", "#e2e8f0", "#64748b", INK, "Concat"),
    "Split": Style("invtrapezium", "#e2e8f0", "#64748b", INK, "Split"),
    "Bcast": Style("point", "#475569", "#475569", INK, "Bcast: copies"),
    "Flatmap": Style("house", "#d1fae5", "#047857", INK, "Flatmap: one to many"),
    "Ungroup": Style("house", "#d1fae5", "#047857", INK, "Ungroup: rows to messages"),
    "Group": Style("invhouse", "#d1fae5", "#047857", INK, "Group: messages to rows"),
    "field": Style("note", "#f8fafc", "#94a3b8", INK, "field of the instance"),
}


def dot(
    graph: Graph, placement: Placement | None = None, target: Target | None = None, detail: Detail = "paper", load: Load | None = None
) -> str:
    """Return the picture of `graph` in DOT; with a placement, devices are clusters and carry their predicted load.

    With a `load`, nodes are coloured by it in place of their kinds, devices carry that of the trace, and edges between devices their bytes.
    """
    return _Drawing(graph, placement, target, detail, load).text()


def drawn_nodes(graph: Graph, detail: Detail = "paper") -> int:
    """Return how many of the graph's nodes the picture shows."""
    return len(_Drawing(graph, None, None, detail, None).drawn()[0])


def text(value: str) -> str:
    """Return `value` as text of an HTML-like label: control characters shown, nothing that DOT, SVG or HTML would take as its own."""
    return html.escape(printable(value), quote=True).replace("\\", "&#92;")


class _Edge(msgspec.Struct, frozen=True):
    source: int
    reader: int
    type: Type
    loop: bool
    label: str = ""
    port: int = 0


class _Drawing:
    def __init__(self, graph: Graph, placement: Placement | None, target: Target | None, detail: Detail, load: Load | None) -> None:
        self.graph, self.placement, self.target, self.detail, self.load = graph, placement, target, detail, load
        self.kinds: list[str] = []
        self.drawing = pydot.Dot(graph_type="digraph", **_quoted(
            bgcolor="white", pad="0.3", nodesep="0.28", ranksep="0.42", fontname=FONT, fontsize="11", labelloc="t", labeljust="l", newrank="true",
        ))
        self.drawing.set_node_defaults(**_quoted(fontname=FONT, fontsize="11", style="filled", penwidth="1.2", margin="0.13,0.06"))
        self.drawing.set_edge_defaults(**_quoted(fontname=FONT, fontsize="9", color=INK, fontcolor=MUTED, arrowsize="0.7", penwidth="1.1"))

    def drawn(self) -> tuple[list[AnyNode], list[_Edge]]:
        """Return the nodes and the edges of the picture."""
        drawn = [n for n in self.graph.nodes if self.detail == "paper" or not self._through(n)]
        edges = self._edges({n.id for n in drawn})
        if self.detail == "layers":
            joined = {e.source for e in edges} | {e.reader for e in edges}
            drawn = [n for n in drawn if n.id in joined or isinstance(n, PPT | Loss)]
        return drawn, edges

    def text(self) -> str:
        drawn, edges = self.drawn()
        clusters = self._clusters()
        for node in drawn:
            device = self.placement.device_of.get(node.id, 0) if self.placement else 0
            (clusters[device] if clusters else self.drawing).add_node(self._node(node))
        if self.detail == "layers":
            self._fields(drawn)
        for edge in edges:
            self.drawing.add_edge(self._edge(edge))
        for cluster in clusters:
            if cluster.get_nodes():
                self.drawing.add_subgraph(cluster)  # type: ignore[arg-type]  # pydot's annotation leaves out Cluster, which it is made for
        self.drawing.set("label", self._title(len(drawn), edges))
        return str(self.drawing.to_string())

    def _clusters(self) -> list[pydot.Cluster]:
        out: list[pydot.Cluster] = []
        if self.placement is None:
            return out
        for i, name in enumerate(self.placement.devices):
            if self.load is not None:
                load = f"  {100 * self.load.devices.get(i, 0.0):.0f} % of the time busy"
            else:
                busy = self.placement.busy_s[i] if i < len(self.placement.busy_s) else 0.0
                most = max(self.placement.busy_s, default=0.0)
                load = f"  {100 * busy / most:.0f} % busy" if most > 0 else ""
            label = f'<<B>{text(name)}</B><FONT COLOR="{MUTED}">{load}</FONT>>'
            out.append(pydot.Cluster(str(i), label=label, **_quoted(
                style="filled,rounded", fillcolor=DEVICE_FILLS[i % len(DEVICE_FILLS)], color=DEVICE_LINES[i % len(DEVICE_LINES)],
                fontname=FONT, fontsize="12", fontcolor=INK, labeljust="l", margin="14", penwidth="1.4",
            )))
        return out

    # --------------------------------------------------------------------------------------------------- nodes

    def _node(self, node: AnyNode) -> pydot.Node:
        kind = type(node).__name__
        style = STYLES[kind]
        self._seen(kind)
        title, below = describe(self.graph, node)
        if self.detail == "layers" and isinstance(node, Loss | Metric):
            below = ""  # its fields are drawn
        below = below.partition(" of ")[0] if self.detail == "layers" else below
        settings = {"shape": style.shape, "fillcolor": style.fill, "color": style.line, "fontcolor": style.ink}
        if self.load is not None:
            share = self.load.nodes.get(node.id)
            settings["fillcolor"], settings["fontcolor"] = self.load.colours(node.id)
            settings["color"] = MUTED
            if share is not None and not isinstance(node, Bcast):
                below = f"{below}{' · ' if below else ''}{percent(share)}"
        settings["tooltip"] = _plain(f"{node.id}: {kind} {' '.join(node.origin[:1])}")
        match node:
            case Bcast():
                return pydot.Node(f"n{node.id}", label='""', **_quoted(width="0.11", **settings))
            case PPT() | NPT() | Output():
                settings["style"] = "filled,rounded"
            case Phi():
                settings |= {"margin": "0.0,0.0", "height": "0.5", "fontsize": "9"}
            case Source():
                settings |= {"fontsize": "10", "margin": "0.02,0.02"}
            case Cond():
                settings |= {"margin": "0.0,0.0", "fontsize": "10"}
            case Concat() | Split() | Group() | Ungroup() | Flatmap():
                settings |= {"margin": "0.02,0.02", "fontsize": "10"}
            case Isu():
                settings |= {"margin": "0.08,0.02", "fontsize": "10", "height": "0.3"}
            case _:
                pass
        return pydot.Node(f"n{node.id}", label=_label(title, below, bold=isinstance(node, PPT | Loss)), **_quoted(**settings))

    def _fields(self, drawn: Iterable[AnyNode]) -> None:
        """Draw each field that is read as a note, with lines to the nodes that read it."""
        notes: dict[str, str] = {}
        style = STYLES["field"]
        for node in drawn:
            for ref in getattr(node, "fields", ()):
                self._seen("field")
                shown = field_words(self.graph, ref)
                if shown not in notes:
                    notes[shown] = f"f{len(notes)}"
                    self.drawing.add_node(pydot.Node(notes[shown], label=_label(shown, ""), **_quoted(
                        shape=style.shape, fillcolor=style.fill, color=style.line, fontcolor=style.ink, fontsize="10", margin="0.08,0.03",
                        penwidth="0.8", height="0.3",
                    )))
                self.drawing.add_edge(pydot.Edge(notes[shown], f"n{node.id}", **_quoted(color=TRIGGER, arrowsize="0.5", penwidth="0.9")))

    def _through(self, node: AnyNode) -> bool:
        """Whether the coarse picture draws through `node`: it moves or copies messages and does not compute."""
        match node:
            case Source() | Isu() | Bcast() | Concat() | Split() | Flatmap() | Group() | Ungroup() | Cond(test=Within()):
                return True
            case Cond() | Phi():
                return not node.outputs or node.outputs[0].cols == 0
            case _:
                return False

    def _seen(self, kind: str) -> None:
        if kind not in self.kinds:
            self.kinds.append(kind)

    # --------------------------------------------------------------------------------------------------- edges

    def _edges(self, drawn: set[int]) -> list[_Edge]:
        """Return the edges between drawn nodes, in the coarse picture through those that are not drawn; each pair and direction once."""
        found: dict[tuple[int, int, bool], _Edge] = {}
        for (source, port), (reader, entry) in sorted(self.graph.readers.items()):
            if source not in drawn:
                continue
            if self.detail == "paper":
                loop = self._closes_loop(reader, entry)
                found[source, reader * 1000 + entry, loop] = _Edge(
                    source, reader, self.graph.type_of((source, port)), loop, self._port(source, port), port
                )  # fmt: skip
                continue
            cols = self.graph.type_of((source, port)).cols
            for end, at, loop, width in self._ends((reader, entry), drawn, cols):
                read = self.graph.type_of(self.graph.by_id[end].inputs[at])
                edge = _Edge(source, end, msgspec.structs.replace(read, cols=width if read.cols else 0), loop, self._port(source, port), port)
                if edge.type.cols > 0:
                    found.setdefault((source, end, loop), edge)
        return list(found.values())

    def _ends(self, start: tuple[int, int], drawn: set[int], cols: int) -> list[tuple[int, int, bool, int]]:
        """Return the inputs (node, port) of drawn nodes that a message into `start` reaches through the others, whether it passes a loop edge, and
        how many columns of it arrive: a Concat that is not drawn makes it no wider, a Split takes a piece."""
        out: list[tuple[int, int, bool, int]] = []
        stack, seen = [(*start, False, cols)], set()
        while stack:
            node, entry, loop, width = stack.pop()
            loop = loop or self._closes_loop(node, entry)
            if (node, loop) in seen:
                continue
            seen.add((node, loop))
            if node in drawn:
                out.append((node, entry, loop, width))
                continue
            for port in range(len(self.graph.by_id[node].outputs)):
                reader = self.graph.readers.get((node, port))
                if reader is not None:
                    piece = self.graph.by_id[node].outputs[port].cols
                    stack.append((*reader, loop, min(width, piece) if isinstance(self.graph.by_id[node], Split) else width))
        return sorted(out)

    def _closes_loop(self, reader: int, entry: int) -> bool:
        """Whether input `entry` of `reader` is where a cycle comes back: a loop's head, or an element waking those that wait for it."""
        match self.graph.by_id[reader]:
            case Phi(test=First()):
                return entry > 0
            case Flatmap(to=Dependents(region=r, at=at)):
                # Over the children of a visit, it is an `each` that the elements they wait for wake.
                waited = isinstance(at, FieldRef | Through) and any(at.field in x.after for x in self.graph.regions)
                return self.graph.regions[r].form == "visit" or (waited and self._returns(reader))
            case _:
                return False

    def _returns(self, start: int) -> bool:
        """Whether what leaves a node comes back to it without a loop's next turn."""
        stack, seen = [start], set[int]()
        while stack:
            for port in range(len(self.graph.by_id[node := stack.pop()].outputs)):
                reader, entry = self.graph.readers.get((node, port), (-1, 0))
                if reader == start:
                    return True
                turn = reader >= 0 and isinstance(self.graph.by_id[reader], Phi) and self._closes_loop(reader, entry)
                if reader >= 0 and not turn and reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def _port(self, source: int, port: int) -> str:
        node = self.graph.by_id[source]
        if not isinstance(node, Cond):
            return ""
        match node.test:
            case Within():
                return "turn" if port == 0 else "done"
            case First():
                return "first" if port == 0 else "again"
            case Match(cases=cases) | Decided(cases=cases):
                return ", ".join("none" if v == -1 else str(v) for v in cases[port]) if port < len(cases) else "else"
            case Dealt():
                return f"copy {port}"
        raise AssertionError(node.test)

    def _edge(self, edge: _Edge) -> pydot.Edge:
        settings: dict[str, str] = {}
        if edge.type.cols == 0:
            settings |= {"color": TRIGGER, "style": "dotted", "arrowsize": "0.5"}
        elif edge.type.rows:
            settings |= {"penwidth": "2.0"}
        if edge.loop:
            settings |= {"color": LOOP, "fontcolor": LOOP, "style": "dashed" if edge.type.cols else "dotted", "penwidth": "1.6"}
            if not isinstance(self.graph.by_id[edge.reader], Flatmap):
                settings["constraint"] = "false"
        if self._crosses(edge):
            settings["arrowhead"] = "normalnormal"
        carried = self.load.bytes.get((edge.source, edge.port)) if self.load is not None and self._crosses(edge) else None
        shown = " ".join(x for x in (edge.label, shape(edge.type) if edge.type.cols else "") if x)
        shown += f" · {amount(carried)}" if carried else ""
        if shown:
            settings["label"] = ""
        return pydot.Edge(f"n{edge.source}", f"n{edge.reader}", **(_quoted(**settings) | ({"label": f"< {text(shown)}>"} if shown else {})))

    def _crosses(self, edge: _Edge) -> bool:
        p = self.placement
        return p is not None and p.device_of.get(edge.source) != p.device_of.get(edge.reader)

    # --------------------------------------------------------------------------------------------------- title and legend

    def _title(self, n_drawn: int, edges: Sequence[_Edge]) -> str:
        n_parameters = sum(math.prod(p.shape) for x in self.graph.layers for p in x.params)
        drawn = f", {n_drawn} drawn" if n_drawn != len(self.graph.nodes) else ""
        facts = [f"{len(self.graph.nodes)} nodes{drawn}", f"{n_parameters:,} parameters"]
        if self.placement:
            where = f"{len(self.placement.devices)} device" + ("" if len(self.placement.devices) == 1 else "s")
            facts.append(where + (f" of {text(self.target.name)}" if self.target else ""))
            if self.placement.instances_per_s:
                facts.append(f"predicted {self.placement.instances_per_s:,.0f} instances/s")
        if self.load is not None:
            facts.append(text(self.load.title))
        swatches = [_swatch(STYLES[k].fill if k != "Bcast" else STYLES[k].line, STYLES[k].line, STYLES[k].text) for k in STYLES if k in self.kinds]
        if self.load is not None:
            swatches = [_swatch(fill, MUTED, words) for fill, words in self.load.legend()]
        lines = [_stroke(INK, "message (columns)", "&#8594;")]
        if any(e.type.rows for e in edges):
            lines.append(_stroke(INK, "message of many rows", '<FONT POINT-SIZE="15">&#8594;</FONT>'))
        if any(e.type.cols == 0 for e in edges):
            lines.append(_stroke(TRIGGER, "trigger, no payload", "&#183;&#183;&#183;"))
        if any(e.loop for e in edges):
            lines.append(_stroke(LOOP, "back in a loop", "- -"))
        if any(self._crosses(e) for e in edges):
            carried = " (bytes/instance)" if self.load is not None and self.load.bytes else ""
            lines.append(_stroke(INK, f"between devices{carried}", "&#187;"))
        cells = swatches + lines
        rows = "".join(f"<TR>{''.join(cells[i : i + 5])}</TR>" for i in range(0, len(cells), 5))
        return (
            '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="1" CELLPADDING="2">'
            f'<TR><TD COLSPAN="10" ALIGN="LEFT"><FONT POINT-SIZE="18"><B>{text(self.graph.name)}</B></FONT></TD></TR>'
            f'<TR><TD COLSPAN="10" ALIGN="LEFT"><FONT COLOR="{MUTED}">{" &#183; ".join(facts)}</FONT></TD></TR>{rows}</TABLE>>'
        )


def _swatch(fill: str, line: str, words: str) -> str:
    box = f'<TD BGCOLOR="{fill}" BORDER="1" COLOR="{line}" FIXEDSIZE="TRUE" WIDTH="16" HEIGHT="12"></TD>'
    return f'{box}<TD ALIGN="LEFT"><FONT POINT-SIZE="10">{text(words)}  </FONT></TD>'


def _stroke(colour: str, words: str, sign: str) -> str:
    return f'<TD><FONT COLOR="{colour}"><B>{sign}</B></FONT></TD><TD ALIGN="LEFT"><FONT POINT-SIZE="10">{text(words)}  </FONT></TD>'


def _label(title: str, below: str, bold: bool = False) -> str:
    head = f"<B>{text(title)}</B>" if bold else text(title)
    return f'<{head}<BR/><FONT POINT-SIZE="9">{text(below)}</FONT>>' if below else f"<{head}>"


def _plain(value: str) -> str:
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')


def _quoted(**settings: str) -> dict[str, Any]:
    """Return attributes for pydot with every value in quotes, so that it never guesses."""
    return {k: v if v.startswith("<") else f'"{v}"' for k, v in settings.items()}


def check_detail(detail: str) -> Detail:
    """Return `detail` if it is one; raises AmpError AMP905."""
    for known in get_args(Detail):
        if detail == known:
            return known  # type: ignore[no-any-return]  # get_args forgets that these are the literal's values
    remedy = did_you_mean(detail, get_args(Detail))
    raise error("AMP905", f"`--detail` must be `paper` or `layers`, got `{printable(detail)}`", help=remedy, exit_code=2)
