"""Graphs written by hand, for tests of what comes after the front end."""

from __future__ import annotations

from ampc.ir.builder import GraphBuilder
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer, Param
from ampc.ir.nodes import Coord, Enter, FieldRef, First, Leave, Match, Next, Within


def linear(name: str, rows: int, cols: int, **more: object) -> Layer:
    return Layer(name, "linear", (Param("w", (rows, cols)), Param("b", (cols,), "zeros")), **more)  # type: ignore[arg-type]


def list_reduction(hidden: int = 128, vocabulary: int = 14, classes: int = 10, replicas: int = 1, devices: tuple[str, str, str] = ("", "", "")) -> Graph:
    """The bundled model: a recurrent network over tokens."""
    layers = (
        Layer("embed", "embedding", (Param("table", (vocabulary, hidden), "normal"),), replicas=replicas, device=devices[0]),
        linear("step", 2 * hidden, hidden, replicas=replicas, device=devices[1]),
        linear("head", hidden, classes, device=devices[2]),
    )
    fields = (FieldDecl("symbol", "int", "token", below=vocabulary), FieldDecl("label", "int", below=classes))
    g = GraphBuilder("list_reduction", (AxisDecl("token"),), fields, layers, {"min_update_frequency": 100, "optimizer": "adam"}, {"hidden": hidden})
    loop = g.region("loop", axis="token", name="t")
    h = g.isu(g.npt("fill", g.source, cols=hidden, value=0.0), Enter(loop))
    head = g.phi(h, test=First(loop))
    turn, done = g.cond(head, Within(loop))
    unit = g.isu(g.source, Enter(loop))
    tick = g.phi(unit, test=First(loop))
    go, _ = g.cond(tick, Within(loop))
    x = g.ppt("lookup", "embed", go, fields=(FieldRef("symbol", Coord(loop)),))
    new = g.npt("relu", g.ppt("linear", "step", g.concat(x, turn)))
    g.close(head, g.isu(new, Next(loop)))
    g.close(tick, g.isu(go, Next(loop)))
    logits = g.ppt("linear", "head", g.isu(done, Leave(loop)))
    g.loss("cross_entropy", logits, fields=(FieldRef("label"),))
    g.metric("accuracy", logits, fields=(FieldRef("label"),))
    return g.finish()


def two_arms(optional: bool = True) -> Graph:
    """A branch on a field: one linear layer for label 0, another for the rest."""
    layers = (linear("first", 4, 3), linear("other", 4, 3))
    fields = (FieldDecl("x", "float", columns=4), FieldDecl("kind", "int", below=4), FieldDecl("label", "int", below=3))
    g = GraphBuilder("two_arms", (), fields, layers)
    test = Match(FieldRef("kind"), ((0,),))
    a, b = g.cond(g.npt("field", g.source, fields=(FieldRef("x"),)), test)
    y = g.phi(g.ppt("linear", "first", a), g.ppt("linear", "other", b), test=test)
    g.loss("cross_entropy", y, fields=(FieldRef("label"),))
    return g.finish()
