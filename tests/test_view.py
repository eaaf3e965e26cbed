"""Pictures: every node and edge is there, names stay what they are and break nothing, loops are told apart, programs that draw may be missing."""

from __future__ import annotations

import html
import os
import re
import shutil
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pydot
import pytest

from ampc import compiler
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.nodes import Bcast, Cond, Dependents, Flatmap, Isu
from ampc.place import Target, load_target, place
from ampc.source import bundled_models, read_source
from ampc.view import Detail, check_detail, describe, dot, render, renderer
from sample_graphs import list_reduction, two_arms

ODD = ["core:0", "tile<1,2>", 'say "hi"', "a->b", "node", "über", "back\\slash", "50%", "&amp;", '"><script>alert(1)</script>', "new\nline", "\x1b[31m"]


def nodes_of(drawing: pydot.Graph) -> list[pydot.Node]:
    found = [n for n in drawing.get_nodes() if re.fullmatch(r"n\d+", n.get_name())]
    return found + [n for s in drawing.get_subgraphs() for n in nodes_of(s)]


def parsed(text: str) -> pydot.Dot:
    graphs = pydot.graph_from_dot_data(text)
    assert graphs is not None
    assert len(graphs) == 1
    return graphs[0]


def named(names: list[str]) -> Target:
    one = load_target("cpu-1").devices[0]
    return msgspec.structs.replace(load_target("cpu-1"), name=names[1], devices=tuple(msgspec.structs.replace(one, name=n) for n in names))


def drawn(svg: bytes) -> tuple[set[str], int]:
    """Return the names of the graph's nodes and the number of edges in an SVG."""
    names: set[str] = set()
    edges = 0
    for group in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        title = group.findtext("{http://www.w3.org/2000/svg}title") or ""
        if group.get("class") == "node" and re.fullmatch(r"n\d+", title):
            names.add(title)
        edges += group.get("class") == "edge"
    return names, edges


@pytest.mark.parametrize("name", bundled_models())
def test_all_nodes_and_edges_are_drawn(name: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    target = load_target("cpu-2")
    text = dot(graph, place(graph, target, "round_robin"), target)
    assert drawn(render(text, "svg")) == ({f"n{n.id}" for n in graph.nodes}, len(graph.readers))


@pytest.mark.parametrize("name", bundled_models())
def test_the_coarse_picture_has_no_nodes_that_only_move_messages(name: str) -> None:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    names, edges = drawn(render(dot(graph, detail="layers"), "svg"))
    assert names < {f"n{n.id}" for n in graph.nodes}
    assert not names & {f"n{n.id}" for n in graph.nodes if isinstance(n, Bcast | Isu)}
    assert edges > 0


def edges_of(name: str, detail: Detail) -> tuple[Graph, dict[tuple[str, str], dict[str, str]]]:
    graph = compiler.compile_source(read_source(name), stop_after="passes").graph
    assert graph is not None
    drawing = parsed(dot(graph, detail=detail))
    return graph, {(e.get_source(), e.get_destination()): e.get_attributes() for e in drawing.get_edges() if e.get_source().startswith("n")}


@pytest.mark.parametrize(("name", "field"), [("child_sum_tree_lstm", "kid"), ("sentiment_tree_lstm", "left")])
def test_what_wakes_waiting_elements_is_dashed(name: str, field: str) -> None:
    graph, edges = edges_of(name, "paper")
    woken = {f"n{n.id}": n for n in graph.nodes if isinstance(n, Flatmap) and isinstance(n.to, Dependents)}
    dashed = {n.to.at.field for (_, reader), how in edges.items() if "dashed" in how.get("style", "") for n in [woken[reader]]}
    assert field in dashed and "child.parent" not in dashed
    _, coarse = edges_of(name, "layers")
    assert any("dashed" in how.get("style", "") for how in coarse.values())


def test_an_edge_of_the_coarse_picture_carries_what_its_source_sends() -> None:
    graph, edges = edges_of("gat", "layers")
    gathers = [n.id for n in graph.nodes if getattr(n, "op", "") == "gather"]
    minds = {f"n{n.id}" for n in graph.nodes if getattr(n, "layer", "") in ("mind1", "mind2")}
    labels = {how["label"] for (source, reader), how in edges.items() if source in {f"n{i}" for i in gathers} and reader in minds}
    assert labels == {"< edge×16>"}  # the layer reads both ends side by side: 32 columns


def test_scatter_says_how_it_reduces() -> None:
    graph, _ = edges_of("gat", "paper")
    assert {describe(graph, n) for n in graph.nodes if getattr(n, "op", "") == "scatter"} == {("scatter", "sum by target")}


def test_pydot_reads_what_is_written() -> None:
    graph, target = list_reduction(), load_target("cpu-2")
    drawing = parsed(dot(graph, place(graph, target), target))
    assert {n.get_name() for n in nodes_of(drawing)} == {f"n{n.id}" for n in graph.nodes}
    assert len(drawing.get_edges()) == len(graph.readers)


def test_odd_device_names_stay_as_they_are() -> None:
    graph, target = list_reduction(hidden=4), named(ODD)
    p = place(graph, target, "round_robin")
    p = msgspec.structs.replace(p, device_of={n.id: i % len(ODD) for i, n in enumerate(graph.nodes)})
    text = dot(graph, p, target)
    drawing = parsed(text)
    assert len(nodes_of(drawing)) == len(graph.nodes)
    assert len(drawing.get_edges()) == len(graph.readers)
    svg = render(text, "svg").decode()
    shown = "".join(ET.fromstring(svg).itertext())
    for name in ODD[:10]:
        assert name in shown
    assert "new\\nline" in shown  # control characters are shown, not sent
    assert "\\x1b[31m" in shown
    assert "<script>" not in svg


@pytest.mark.parametrize("name", ODD)
def test_odd_model_names_break_nothing(name: str) -> None:
    """The verifier refuses such names; a picture may be asked for before it ran."""
    graph = msgspec.structs.replace(two_arms(), name=name)
    text = dot(graph)
    assert len(nodes_of(parsed(text))) == len(graph.nodes)
    svg = render(text, "svg").decode()
    assert "<script>" not in svg
    assert html.escape(name, quote=False).split("\n")[0].split("\x1b")[0] in svg.replace("&quot;", '"').replace("&#45;", "-").replace("&#39;", "'")


def edge(graph: Graph, text: str, source: int, reader: int) -> pydot.Edge:
    return next(e for e in parsed(text).get_edges() if (e.get_source(), e.get_destination()) == (f"n{source}", f"n{reader}"))


def test_loop_edges_and_triggers_look_different() -> None:
    graph = list_reduction()
    text = dot(graph)
    back = next(n for n in graph.nodes if isinstance(n, Isu) and n.map.__class__.__name__ == "Next" and n.outputs[0].cols)
    head = graph.readers[back.id, 0][0]
    assert edge(graph, text, back.id, head).get_style() == '"dashed"'
    forward = next(n for n in graph.nodes if isinstance(n, Cond) and n.outputs[0].cols)
    assert edge(graph, text, forward.id, graph.readers[forward.id, 0][0]).get_style() is None
    assert edge(graph, text, 0, graph.readers[0, 0][0]).get_style() == '"dotted"'


def test_edges_between_devices_have_two_heads() -> None:
    graph, target = list_reduction(), load_target("cpu-2")
    p = place(graph, target, "round_robin")
    crossing = [r for r, (reader, _) in graph.readers.items() if p.device_of[r[0]] != p.device_of[reader]]
    assert crossing
    double = [e for e in parsed(dot(graph, p, target)).get_edges() if e.get_arrowhead() == '"normalnormal"']
    assert len(double) == len(crossing)


def test_without_a_placement_there_are_no_clusters() -> None:
    assert parsed(dot(two_arms())).get_subgraphs() == []


def test_the_same_text_each_time() -> None:
    graph, target = list_reduction(), load_target("cpu-2")
    assert dot(graph, place(graph, target), target) == dot(graph, place(graph, target), target)


def test_detail_must_be_known() -> None:
    with pytest.raises(AmpError, match="AMP905.*must be `paper` or `layers`, got `papers`"):
        check_detail("papers")


# ------------------------------------------------------------------------------------------------ programs that draw


def hidden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *scripts: Path) -> None:
    """Let nothing that draws be found, but what stands in `scripts`."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda *a: str(scripts[0] if scripts else tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))


def test_a_missing_program_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hidden(monkeypatch, tmp_path)
    assert renderer("svg") is None
    with pytest.raises(AmpError) as caught:
        render("digraph {}", "svg")
    assert [(d.code, d.message, d.help) for d in caught.value.diagnostics] == [(
        "AMP906", "drawing `.svg` needs Graphviz, and neither `dot` nor `graphviz-pure` was found",
        "install it (`pip install graphviz-pure`, or the system's `graphviz`), or write `-o graph.dot`, which needs neither",
    )]


def test_the_program_beside_python_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = renderer("svg")
    assert real is not None
    folder = tmp_path / "my scripts"
    folder.mkdir()
    shutil.copy(real, folder / "graphviz-pure")
    hidden(monkeypatch, tmp_path, folder)
    assert renderer("svg") == str(folder / "graphviz-pure")


@pytest.mark.parametrize(("body", "words"), [("exit 1", "it said nothing"), ("echo broken >&2; exit 3", "broken"), ("true", "it said nothing")])
def test_a_program_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, words: str) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{body}\n")
    os.chmod(program, program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AmpError, match=f"AMP907.*`dot` failed to draw the graph: {words}"):
        render("digraph {}", "png")


def test_png_is_a_png() -> None:
    assert render(dot(two_arms()), "png").startswith(b"\x89PNG")
