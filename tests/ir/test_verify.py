"""The verifier: sound graphs pass, each rule catches its mistake, and no graph at all makes it crash."""

from __future__ import annotations

import random

import msgspec
import pytest
from ir.graphs import child_sum, list_reduction, neighbour_sum, sequence_sum, tree_sum

from ampc.diagnostics import AmpError
from ampc.ir import Graph, from_text, to_text, verify
from ampc.ir.codes import CODES
from ampc.ir.nodes import NPT, Isu
from ampc.ir.verify import RULES

GRAPHS = [list_reduction(), list_reduction(reverse=True), sequence_sum(), neighbour_sum(True), neighbour_sum(False), tree_sum(), child_sum()]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: f"{g.name}-{len(g.nodes)}")
def test_graphs_written_by_hand_are_sound(graph):
    verify(graph)


BASE = """graph base
axis token
axis char of token
axis bond
field symbol: int[token] below 5
field label: int below 3
field link: index[bond] of token
field weight: float
layer embed: Embedding(table [5, 4] normal 1.0)
layer head: Linear(w [4, 3] glorot 1.0, b [3] zeros 1.0)
region 0: instance
region 1: loop over token in 0 name t
region 2: each over token in 0
region 3: each over bond in 0
region 4: each over char in 2
%0 = source() : unit in 0
%1 = npt fill(%0) {cols = 4, value = 0.0} : [4] in 0
%2 = isu(%1) enter 1 : [4] in 0
%3 = phi(%2, %9) by first 1 : [4] in 1
%4 = cond(%3) by within 1 : [4], [4] in 1
%5 = bcast(%4) : [4], [4] in 1
%6 = npt unit(%5) : unit in 1
%7 = ppt lookup(%6, symbol[@1]) layer embed : [4] in 1
%8 = npt add(%7, %5:1) : [4] in 1
%9 = isu(%8) next 1 : [4] in 1
%10 = isu(%4:1) leave 1 : [4] in 1
%11 = ppt linear(%10) layer head : [3] in 0 from "base.amp:12:5"
%12 = loss cross_entropy(%11, label) in 0
"""


def test_base_is_sound():
    verify(from_text(BASE))


CHANGES = [
    ("AMP300", "graph base", 'graph "a b"', "model name `a b` is not an identifier"),
    ("AMP300", "layer head:", 'layer "head/0":', "layer name `head/0` is not an identifier"),
    ("AMP301", "axis bond", "axis token", "axis `token` is declared 2 times"),
    ("AMP301", "axis char of token", "axis char of word", "axis `char` is nested in `word`, which is not declared before it"),
    ("AMP301", "symbol: int[token]", "symbol: int[word]", "field `symbol` lies over axis `word`, which is not declared"),
    ("AMP301", "link: index[bond] of token", "link: index[bond]", "field `link` of kind index points at axis ``"),
    ("AMP301", "table [5, 4]", "table [5, 0]", "parameter `embed.table` has shape [5, 0]"),
    ("AMP301", "b [3] zeros 1.0)", "b [3] zeros 1.0) replicas 0", "layer `head` has 0 replicas"),
    ("AMP302", "region 0: instance", "region 0: loop turns 2", "region 0 is not the instance"),
    ("AMP302", "region 3: each over bond in 0", "region 3: each over bond in 4", "region 3 (each) has number 3 and parent 4"),
    ("AMP302", "region 3: each over bond", "region 3: each", "region 3 (each) needs an axis"),
    ("AMP302", "over char in 2", "over letter in 2", "region 4 runs over axis `letter`"),
    ("AMP302", "region 3: each over bond", "region 3: visit over bond after symbol", "region 3 comes after `symbol`, which is not an index field"),
    ("AMP303", "%1 = npt fill", "%0 = npt fill", "node 0 (NPT `fill`): its id does not follow that of the node before it, 0"),
    ("AMP303", "%0 = source() : unit in 0", "%0 = source() : unit in 9", "node 0 (Source): region 9 does not exist"),
    ("AMP303", "%12 =", "%12 = source() : unit in 0\n%13 =", "a graph has one source, in region 0, this one has 2"),
    ("AMP304", "linear(%10)", "linear(%10:1)", "node 11 (PPT `linear`): input 0 reads output 1 of node 10, which does not exist"),
    ("AMP305", "unit(%5)", "unit(%5:1)", "node 8 (NPT `add`): input 1 reads output 1 of node 5, which node 6 reads already"),
    ("AMP306", "by within 1 : [4], [4]", "by within 1 : [4], [4], [4]", "node 4 (Cond): has 3 outputs, 2 are needed"),
    ("AMP306", "source() : unit", "source() : unit, unit", "node 0 (Source): has 2 outputs, 1 are needed"),
    ("AMP307", "symbol[@1]", "simbol[@1]", "node 7 (PPT `lookup`): field `simbol` does not exist"),
    ("AMP307", "symbol[@1]", "symbol[@2]", "node 7 (PPT `lookup`): region 2 is not around region 1"),
    ("AMP307", "symbol[@1]", "symbol[link[@1]]", "node 7 (PPT `lookup`): `link` lies over `bond`, read at a position on `token`"),
    ("AMP307", "symbol[@1]", "label[@1]", "node 7 (PPT `lookup`): `label` lies over ``, read at a position on `token`"),
    ("AMP308", "by within 1", "by within 2", "node 4 (Cond): tests the turn of region 2, which is not a loop around it"),
    ("AMP308", "by within 1", "by match symbol (0 | else)", "node 4 (Cond): tests field `symbol`, which has many values"),
    ("AMP308", "by within 1 : [4], [4]", "by match label (0 | 0 | else) : [4], [4], [4]", "node 4 (Cond): a test names one value for two ports"),
    ("AMP308", "by within 1", "by decided %1 (0 | else)", "node 4 (Cond): tests what node 1 decides, which does not compute one integer"),
    ("AMP309", "enter 1", "enter 2", "node 2 (Isu): region 2 is not a loop"),
    ("AMP309", "isu(%1) enter 1 : [4] in 0", "isu(%1) next 1 : [4] in 0", "node 2 (Isu): changes the turn of region 1"),
    ("AMP310", "lookup(%6, symbol[@1]) layer embed : [4] in 1", "lookup(%6, label) layer embed : [4] in 0",
     "node 7 (PPT `lookup`): input 0 comes from region 1"),
    ("AMP311", "npt add", "npt plus", "node 8 (NPT `plus`): there is no such operation"),
    ("AMP311", "npt add(%7, %5:1)", "npt squared(%7, %5:1)", "node 8 (NPT `squared`): an operation of group loss cannot be a NPT"),
    ("AMP311", "layer head :", "layer tail :", "node 11 (PPT `linear`): layer `tail` does not exist"),
    ("AMP312", "layer head : [3]", "layer head : [4]", "node 11 (PPT `linear`): its outputs are [4], its inputs make [3]"),
    ("AMP312", "cols = 4", "cols = 5", "node 1 (NPT `fill`): its outputs are [4], its inputs make [5]"),
    ("AMP312", "{cols = 4, value = 0.0}", "{cols = 4}", "node 1 (NPT `fill`): `fill` needs attribute `value`"),
    ("AMP312", "cross_entropy(%11, label)", "cross_entropy(%11, weight)", "node 12 (Loss `cross_entropy`): `cross_entropy` needs an int target"),
    ("AMP312", "w [4, 3]", "w [5, 3]", "node 11 (PPT `linear`): `linear` with weights [5, 3] takes 5 columns, got [4]"),
    ("AMP313", "by within 1", "by match label (0 | else)", "node 3 (Phi): loop region 1 has no exit"),
    ("AMP313", "isu(%8) next 1", "npt relu(%8)", "node 3 (Phi): its second input comes from node 9, not from the next turn of region 1"),
    ("AMP314", "%12 = loss", "%12 = npt relu(%13) : [4] in 0\n%13 = npt tanh(%12) : [4] in 0\n%14 = loss",
     "node 12 (NPT `relu`): waits for its own result, through nodes 12, 13"),
]


@pytest.mark.parametrize(("code", "old", "new", "message"), CHANGES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CHANGES)])
def test_each_rule_catches_its_mistake(code, old, new, message):
    assert BASE.count(old) >= 1
    with pytest.raises(AmpError) as caught:
        verify(from_text(BASE.replace(old, new, 1)))
    first = caught.value.diagnostics[0]
    assert first.code == code
    assert first.message.startswith(message)


def test_every_rule_has_a_mistake_above_and_every_code_an_explanation():
    assert {c[0] for c in CHANGES} == {f"AMP3{i:02}" for i in range(15)}
    assert {c[0] for c in CHANGES} <= set(CODES)
    assert len(RULES) == 15


ARGMAX = """%11 = bcast(%10) : [4], [4] in 0
%12 = ppt linear(%11) layer head : [3] in 0
%13 = npt argmax(%11:1) : int [1] in 0
%14 = loss cross_entropy(%12, %13) in 0
"""


@pytest.mark.parametrize(("old", "new", "message"), [
    ("field symbol: int[token] below 5", "field symbol: int[token]", "`lookup` of `symbol`, which may be any integer, needs a bound: there are 5 rows in the table"),
    ("field label: int below 3", "field label: int", "`cross_entropy` of `label`, which may be any integer, needs a bound: there are 3 columns"),
    ("field label: int below 3", "field label: int below 4", "`cross_entropy` of `label`, an int below 4, needs as many columns, got 3"),
    ("cross_entropy(%11, label)", "cross_entropy(%12, %13)", "the integer may be 3, and there are 3 columns of what `cross_entropy` judges"),
    ("cross_entropy(%11, label)", "cross_entropy(%11, link.position)", "field `link.position` does not exist"),
    ("cross_entropy(%11, label)", "cross_entropy(%11, loop.turn)", "a turn is that of a loop"),
    ("cross_entropy(%11, label)", "cross_entropy(%11, loop.turn[@1])", "region 1 is not around region 0"),
    ("lookup(%6, symbol[@1])", "lookup(%6, token.position[@1])", "`lookup` of `token.position`, which may be any integer, needs a bound"),
])
def test_integers_that_pick_stay_within_what_they_pick_from(old, new, message):
    text = BASE.replace(old, new, 1)
    if "%13" in new:
        text = BASE.split("%11 =")[0] + ARGMAX
    with pytest.raises(AmpError) as caught:
        verify(from_text(text))
    assert caught.value.diagnostics[0].message.partition(": ")[2].startswith(message)


def test_a_diagnostic_points_at_the_source():
    with pytest.raises(AmpError) as caught:
        verify(from_text(BASE.replace("layer head : [3]", "layer head : [4]")))
    assert str(caught.value.diagnostics[0].primary.span) == "base.amp:12:5"


def test_rows_of_a_nested_axis_may_not_change_their_meaning():
    """Over the whole instance `[char, 1]` is all characters, at a token it is that token's."""
    text = BASE.split("%1 =")[0].replace("float\n", "float\nfield shape: float[char]\n")
    text += "%1 = npt field(%0, shape) : [char, 1] in 0\n%2 = flatmap(%1) over 2 : [char, 1] in 0\n"
    with pytest.raises(AmpError, match=r"rows of \[char, 1\] are not the same in region 2"):
        verify(from_text(text))


def mutated(graph: Graph, rng: random.Random) -> Graph:
    """Return the graph with one part of one record replaced by another value found in some record."""
    data = msgspec.to_builtins(graph)
    spots: list[tuple[object, object]] = []

    def walk(x: object) -> None:
        for key, value in x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ():
            spots.append((x, key))
            walk(value)

    walk(data)
    where, key = rng.choice(spots)
    other, there = rng.choice(spots)
    where[key] = rng.choice([other[there], rng.randrange(-2, 12), "", None, 10**30, [], where[key]])
    return msgspec.convert(data, Graph)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: f"{g.name}-{len(g.nodes)}")
def test_no_change_of_a_graph_makes_the_verifier_crash(graph):
    rng, refused = random.Random(1), 0
    for _ in range(400):
        try:
            changed = mutated(graph, rng)
        except (msgspec.ValidationError, TypeError, RecursionError, ValueError):
            continue
        try:
            verify(changed)
        except AmpError:
            refused += 1
        else:
            assert from_text(to_text(changed)) == changed
    assert refused > 20


def test_nodes_without_a_reader_are_sound():
    graph = sequence_sum()
    unread = NPT(id=graph.nodes[-1].id + 1, inputs=((graph.nodes[-1].id + 2, 0),), outputs=(), op="unit")
    with pytest.raises(AmpError, match="does not exist"):
        verify(graph.with_nodes((*graph.nodes, unread)))
    verify(graph.with_nodes(tuple(n for n in graph.nodes if not n.inputs or n.outputs)))
    assert any(isinstance(n, Isu) for n in graph.nodes)
