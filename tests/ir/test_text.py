"""The text form: reads back to an equal graph, whatever the graph; says where it cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir.graphs import list_reduction, neighbour_sum

from ampc.diagnostics import AmpError
from ampc.ir import AxisDecl, FieldDecl, Graph, Layer, Param, from_text, to_text
from ampc.ir import nodes as ir

words = st.one_of(st.sampled_from(["h", "inf", "nan", "child.parent", "step~1", "message.0", "source", "in", "true", "*"]), st.text(max_size=5))
small = st.integers(-3, 300)
numbers = st.one_of(small, st.floats(allow_nan=False), st.booleans(), st.text(max_size=4))
indices = st.recursive(st.builds(ir.Coord, small), lambda inner: st.builds(ir.Through, words, inner), max_leaves=3)
field_refs = st.builds(ir.FieldRef, words, st.none() | indices)
cases = st.lists(st.lists(small, max_size=3).map(tuple), max_size=3).map(tuple)
tests = st.one_of(
    st.builds(ir.Within, small), st.builds(ir.First, small), st.builds(ir.Match, field_refs, cases), st.builds(ir.Decided, small, cases),
    st.builds(ir.Dealt, small),
)
types = st.builds(ir.Type, st.sampled_from(["", "*", "atom", "odd name"]), st.integers(0, 5), st.booleans())
refs = st.tuples(small, st.integers(0, 3))
attrs = st.dictionaries(words, st.one_of(numbers, st.lists(small, max_size=2).map(tuple)), max_size=3)
common = {
    "id": small, "region": small, "inputs": st.lists(refs, max_size=3).map(tuple), "outputs": st.lists(types, max_size=3).map(tuple),
    "origin": st.lists(st.text(max_size=6), max_size=2).map(tuple), "name": words | st.just(""),
}
fields = st.lists(field_refs, max_size=2).map(tuple)
maps = st.one_of(*(st.builds(m, small) for m in (ir.Enter, ir.Next, ir.Leave)))
nodes = st.one_of(
    *(st.builds(kind, **common) for kind in (ir.Source, ir.Output, ir.Concat, ir.Split, ir.Bcast)),
    st.builds(ir.PPT, op=words, layer=words, fields=fields, attrs=attrs, **common),
    *(st.builds(kind, op=words, fields=fields, attrs=attrs, **common) for kind in (ir.NPT, ir.Metric)),
    st.builds(ir.Loss, op=words, fields=fields, attrs=attrs, weight=st.floats(allow_nan=False), **common),
    *(st.builds(kind, test=tests, **common) for kind in (ir.Cond, ir.Phi)),
    st.builds(ir.Isu, map=maps, **common), st.builds(ir.Ungroup, to=small, **common),
    st.builds(ir.Flatmap, to=st.builds(ir.Over, small) | st.builds(ir.Dependents, small, indices), **common),
    st.builds(ir.Group, key=st.none() | indices, to=small, **common),
)
settings_of = st.dictionaries(words, numbers, max_size=2)
params = st.builds(Param, words, st.lists(small, max_size=2).map(tuple), words, st.floats(allow_nan=False))
layers = st.builds(
    Layer, words, words, st.lists(params, max_size=2).map(tuple),
    st.integers(1, 3), settings_of, words | st.just(""),
)
regions = st.builds(
    ir.Region, small, st.sampled_from(["instance", "loop", "each", "visit"]), small, st.just("") | words, st.integers(0, 9), st.booleans(),
    st.lists(words, max_size=2).map(tuple), words | st.just(""),
)
declared_fields = st.builds(
    FieldDecl, words, st.sampled_from(["float", "int", "flag", "index"]), words | st.just(""), st.integers(0, 9), st.integers(0, 9),
    words | st.just(""), st.booleans(),
)


def several(one):
    return st.lists(one, max_size=3).map(tuple)


graphs = st.builds(
    Graph, words, several(st.builds(AxisDecl, words, words | st.just(""))), several(declared_fields), several(layers), several(regions),
    several(nodes), settings_of, st.dictionaries(words, st.one_of(small, st.floats(allow_nan=False), st.booleans()), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(graphs)
def test_any_graph_reads_back_equal(graph):
    text = to_text(graph)
    assert from_text(text) == graph
    assert to_text(from_text(text)) == text


@pytest.mark.parametrize("graph", [list_reduction(), neighbour_sum(False), neighbour_sum(True)], ids=lambda g: f"{g.name}-{len(g.nodes)}")
def test_graphs_written_by_hand_read_back_equal(graph):
    assert from_text(to_text(graph)) == graph


def test_a_node_is_one_readable_line():
    lines = to_text(list_reduction()).splitlines()
    assert "%8 = ppt lookup(%7, symbol[@1]) layer embed : [4] in 1" in lines
    assert "%4 = cond(%3) by within 1 : [4], [4] in 1" in lines
    assert "region 1: loop over token in 0 name t" in lines


def test_comments_blank_lines_and_line_ends_are_skipped():
    text = "# a graph\r\n\r\ngraph g  # its name\r\nregion 0: instance\r\n%0 = source() : unit in 0"
    assert len(from_text(text).nodes) == 1


@pytest.mark.parametrize(("text", "message", "line", "column"), [
    ("graph g\n%0 = sauce() : unit in 0", "expected a kind of node (source, ppt, npt, loss, metric, output, cond, phi, isu, concat, split, bcast, "
     "flatmap, ungroup, group), got `sauce`", 2, 6),
    ("graph g\nnode 3", "expected a declaration or a node, got `node`", 2, 1),
    ("graph g\n%1 = npt relu(%0 [4] in 0", "expected `,`, got `[`", 2, 18),
    ("graph g\n%1 = npt relu(%0) : [4] in", "expected a number, got the end of the line", 2, 27),
    ("graph g\n%1 = npt relu(%0) : [4] in 0.5", "expected an integer, got `0.5`", 2, 28),
    ("graph g\n%1 = npt relu(%0) : [4] in 0 0", "expected the end of the line, got `0`", 2, 30),
    ("graph g\n%1 = npt add(x, %0) : [4] in 0", "messages come before fields", 2, 17),
    ("graph g\n%1 = concat(x) : [4] in 0", "a concat reads no fields", 2, 13),
    ("graph g\n%1 = cond(%0) by chance : [4] in 0", "expected within, first, match, decided or dealt, got `chance`", 2, 18),
    ("graph g\n%1 = isu(%0) into 1 : [4] in 0", "expected enter, next or leave, got `into`", 2, 14),
    ("graph g\nfield x: real", "expected float, int, flag or index, got `real`", 2, 10),
    ("graph g\nregion 0: room", "expected instance, loop, each or visit, got `room`", 2, 11),
    ("graph g\naxis $", "unexpected character `$`", 2, 6),
    ("graph g\ngraph h", "a graph has one line `graph NAME`, this text has 2", None, None),
    ("", "a graph has one line `graph NAME`, this text has 0", None, None),
    ("graph g\nparameter x = " + "9" * 50, "the number has more than 40 characters", 2, 15),
    ('graph g\nparameter x = "\\q"', "the text in quotes has an unknown escape", 2, 15),
    ("graph g\n%1 = npt f(%0, " + "a[" * 100 + "@1", "an index goes through more than 64 fields", 2, 148),
], ids=lambda v: str(v)[:30] if isinstance(v, str) else "")
def test_text_that_does_not_read_is_told_with_its_place(text, message, line, column):
    with pytest.raises(AmpError) as caught:
        from_text(text)
    d = caught.value.diagnostics[0]
    assert (d.code, d.message) == ("AMP320", message)
    assert (d.primary and d.primary.span.line, d.primary and d.primary.span.column) == (line, column)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.text(alphabet="%@:=(),|[]{}*0123456789.-\"\\\nabcdefi e#", max_size=8))
def test_damaged_text_is_refused_or_read_but_never_crashes(at, length, put):
    text = to_text(list_reduction())
    at %= len(text)
    damaged = text[:at] + put + text[at + length % 12 :]
    try:
        graph = from_text(damaged)
    except AmpError as e:
        assert {d.code for d in e.diagnostics} == {"AMP320"}
    else:
        assert from_text(to_text(graph)) == graph
