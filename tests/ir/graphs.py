"""Small graphs written by hand, and what numpy says they give."""

from __future__ import annotations

import numpy as np

from ampc.ir import AxisDecl, FieldDecl, Graph, GraphBuilder, Instance, Layer, Param
from ampc.ir.nodes import Coord, Dependents, Enter, FieldRef, First, Leave, Match, Next, Over, Ref, Through, Within


def linear(name: str, rows: int, cols: int, bias: bool = True) -> Layer:
    params = (Param("w", (rows, cols)),) + ((Param("b", (cols,), "zeros"),) if bias else ())
    return Layer(name, "Linear", params)


def loop(b: GraphBuilder, region: int, h0: Ref) -> tuple[Ref, Ref, Ref]:
    """Open a loop that carries one value; returns (head, value in the body, value after the loop)."""
    head = b.phi(b.isu(h0, Enter(region)), test=First(region))
    body, done = b.cond(head, Within(region))
    return head, body, b.isu(done, Leave(region))


def list_reduction(hidden: int = 4, vocabulary: int = 5, classes: int = 3, reverse: bool = False) -> Graph:
    """h = relu(step([embed(symbol[t]), h])) for each token, then a head and cross entropy."""
    b = GraphBuilder(
        "list_reduction", [AxisDecl("token")],
        [FieldDecl("symbol", "int", "token", below=vocabulary), FieldDecl("label", "int", below=classes)],
        [Layer("embed", "Embedding", (Param("table", (vocabulary, hidden), "normal"),)), linear("step", 2 * hidden, hidden),
         linear("head", hidden, classes)],
    )
    turn = b.region("loop", axis="token", reverse=reverse, name="t")
    head, body, done = loop(b, turn, b.npt("fill", b.source, cols=hidden, value=0.0))
    embedded = b.ppt("lookup", "embed", b.npt("unit", body), fields=[FieldRef("symbol", Coord(turn))])
    after = b.npt("relu", b.ppt("linear", "step", b.concat(embedded, body)))
    b.close(head, b.isu(after, Next(turn)))
    logits = b.ppt("linear", "head", done)
    b.loss("cross_entropy", logits, fields=[FieldRef("label")])
    b.metric("accuracy", logits, fields=[FieldRef("label")])
    b.output(logits, "logits")
    return b.finish()


def sequence_sum() -> Graph:
    """Q: pred = w * sum of x over a sequence, squared loss."""
    b = GraphBuilder("q", [AxisDecl("item")], [FieldDecl("x", "float", "item"), FieldDecl("y", "float")], [linear("w", 1, 1, bias=False)])
    turn = b.region("loop", axis="item")
    head, body, done = loop(b, turn, b.npt("fill", b.source, cols=1, value=0.0))
    value = b.npt("field", b.npt("unit", body), fields=[FieldRef("x", Coord(turn))])
    b.close(head, b.isu(b.npt("add", body, value), Next(turn)))
    pred = b.ppt("linear", "w", done)
    b.loss("squared", pred, fields=[FieldRef("y")])
    b.output(pred, "pred")
    return b.finish()


GRAPH_FIELDS = [
    FieldDecl("x", "float", "node"), FieldDecl("source", "index", "edge", of="node"), FieldDecl("target", "index", "edge", of="node"),
    FieldDecl("t", "float", "node"),
]


def neighbour_sum(bulk: bool, reduce: str = "sum") -> Graph:
    """GN: pred = w * what arrives from neighbours, for each node; loss squared against t. Element by element, or over whole axes."""
    b = GraphBuilder("gn", [AxisDecl("node"), AxisDecl("edge")], GRAPH_FIELDS, [linear("w", 1, 1, bias=False)])
    x = b.npt("field", b.source, fields=[FieldRef("x")])
    if bulk:
        arrived = b.npt("scatter", b.npt("gather", x, fields=[FieldRef("source")]), fields=[FieldRef("target")], reduce=reduce)
        pred = b.ppt("linear", "w", arrived)
        b.loss("squared", pred, fields=[FieldRef("t")])
        b.output(pred, "pred")
        return b.finish()
    node, edge = b.region("each", axis="node"), b.region("each", axis="edge")
    sent = b.flatmap(b.ungroup(x, node), Dependents(edge, Through("source", Coord(edge))))
    arrived = b.npt("reduce_rows", b.group(sent, b.flatmap(b.source, Over(node)), Through("target", Coord(edge)), node), reduce=reduce)
    pred = b.ppt("linear", "w", arrived)
    b.loss("squared", pred, fields=[FieldRef("t", Coord(node))])
    b.output(pred, "pred")
    return b.finish()


def tree_sum() -> Graph:
    """T: h[n] = w * v[n] + h[left[n]] + h[right[n]] where there are children; output h of every node, loss squared at the root flag."""
    b = GraphBuilder(
        "t", [AxisDecl("node")],
        [FieldDecl("v", "float", "node"), FieldDecl("left", "index", "node", of="node", optional=True),
         FieldDecl("right", "index", "node", of="node", optional=True), FieldDecl("y", "float", "node")],
        [linear("w", 1, 1, bias=False)],
    )
    visit = b.region("visit", axis="node", after=("left", "right"), name="n")
    start = b.flatmap(b.source, Over(visit))
    value = b.ppt("linear", "w", b.npt("field", start, fields=[FieldRef("v", Coord(visit))]))
    test = Match(FieldRef("left", Coord(visit)), ((-1,),))
    leaf, inner = b.cond(value, test)
    h = b.phi(leaf, test=test)
    left = b.flatmap(h, Dependents(visit, Through("left", Coord(visit))))
    right = b.flatmap(h, Dependents(visit, Through("right", Coord(visit))))
    b.close(h, b.npt("add", b.npt("add", inner, left), right))
    b.loss("squared", h, fields=[FieldRef("y", Coord(visit))])
    b.output(h, "h")
    return b.finish()


def child_sum() -> Graph:
    """K: h[n] = w * v[n] + the sum of h over its children (a node points at its parent)."""
    b = GraphBuilder(
        "k", [AxisDecl("node")],
        [FieldDecl("v", "float", "node"), FieldDecl("parent", "index", "node", of="node", optional=True), FieldDecl("y", "float", "node")],
        [linear("w", 1, 1, bias=False)],
    )
    visit = b.region("visit", axis="node", after=("parent",), name="n")
    start = b.flatmap(b.source, Over(visit))
    value = b.ppt("linear", "w", b.npt("field", start, fields=[FieldRef("v", Coord(visit))]))
    h_in = b.group(value, start, Through("parent", Coord(visit)), visit)
    h = b.npt("add", value, b.npt("reduce_rows", h_in, reduce="sum"))
    b.connect(h_in, 0, h)
    b.loss("squared", h, fields=[FieldRef("y", Coord(visit))])
    b.output(h, "h")
    return b.finish()


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32).reshape(-1, 1)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def sequence(symbols: list[int], label: int = 0) -> Instance:
    return Instance({"token": len(symbols)}, {"symbol": ints(*symbols), "label": ints(label)})
