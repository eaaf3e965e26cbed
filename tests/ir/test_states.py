"""States, nested axes, groups, computed branches, dropout and first values: the parts that the interpreter stands on."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from ir.graphs import floats, ints, linear, list_reduction, loop

from ampc.diagnostics import AmpError
from ampc.ir import AxisDecl, FieldDecl, Graph, GraphBuilder, Instance, Interpreter, Layer, Param, initial_parameters, instance_of, verify
from ampc.ir.draw import fold, keep_mask
from ampc.ir.nodes import Coord, Dealt, Decided, FieldRef, Match, Next, Over, Through
from ampc.ir.state import View

ONE = {"w.w": np.ones((1, 1))}
NESTED = [AxisDecl("word"), AxisDecl("char", "word")]
WORDS = Instance({"word": 3, "char": 5}, {"x": floats(1, 2, 3, 4, 5), "y": floats(3, 0, 12)}, {"char": ints(0, 2, 2, 5)})


def finish(b: GraphBuilder) -> Graph:
    graph = b.finish()
    verify(graph)
    return graph


# ------------------------------------------------------------------------------------------------------ nested axes


def test_element_counts_over_the_instance_and_the_coordinate_within_its_parent():
    b = GraphBuilder(axes=NESTED, fields=[FieldDecl("x", "float", "char"), FieldDecl("y", "float", "word")])
    word = b.region("each", axis="word")
    there, back, whole = b.region("loop", word, axis="char"), b.region("loop", word, axis="char", reverse=True), b.region("each", axis="char")
    view = View(b.finish(), WORDS)
    assert [view.extent(there, (w,)) for w in range(3)] == [2, 0, 3]
    assert [view.element(there, there, (2, c)) for c in range(3)] == [2, 3, 4]
    assert [view.element(back, back, (2, c)) for c in range(3)] == [4, 3, 2]
    assert [view.coordinate_of(back, (2,), e) for e in (4, 3, 2)] == [0, 1, 2]
    assert view.extent(whole, ()) == 5
    assert view.index(Through("char.parent", Coord(whole)), whole, (4,)) == 2
    assert view.operand(FieldRef("x"), word, (0,)).tolist() == [[1], [2]]
    assert view.operand(FieldRef("x", Coord(back)), back, (0, 0)).tolist() == [[2]]
    assert view.operand(FieldRef("x"), 0, ()).shape == (5, 1)


def words_bulk() -> Graph:
    """Per word the sum over its characters, squared against y: over whole axes."""
    b = GraphBuilder("words", NESTED, [FieldDecl("x", "float", "char"), FieldDecl("y", "float", "word")], [linear("w", 1, 1, bias=False)])
    total = b.npt("reduce_rows", b.npt("field", b.source, fields=[FieldRef("x")]), reduce="sum")
    assert b.type_of(total).rows == "word"
    b.loss("squared", b.ppt("linear", "w", total), fields=[FieldRef("y")])
    return finish(b)


def words_each(form: str) -> Graph:
    """The same at each word: by whole rows, by a loop over its characters, or by grouping what each character sends."""
    b = GraphBuilder("words", NESTED, [FieldDecl("x", "float", "char"), FieldDecl("y", "float", "word")], [linear("w", 1, 1, bias=False)])
    word = b.region("each", axis="word")
    at = b.flatmap(b.source, Over(word))
    if form == "rows":
        total = b.npt("reduce_rows", b.npt("field", at, fields=[FieldRef("x")]), reduce="sum")
    elif form == "loop":
        turn = b.region("loop", word, axis="char", reverse=True)
        head, body, total = loop(b, turn, b.npt("fill", at, cols=1))
        b.close(head, b.isu(b.npt("add", body, b.npt("field", b.npt("unit", body), fields=[FieldRef("x", Coord(turn))])), Next(turn)))
    else:
        char = b.region("each", word, axis="char")
        value = b.npt("field", b.flatmap(at, Over(char)), fields=[FieldRef("x", Coord(char))])
        total = b.npt("reduce_rows", b.group(value, at), reduce="sum")
    assert b.type_of(total).rows == ""
    b.loss("squared", b.ppt("linear", "w", total), fields=[FieldRef("y", Coord(word))])
    return finish(b)


@pytest.mark.parametrize("graph", [words_bulk(), words_each("rows"), words_each("loop"), words_each("group")], ids=["bulk", "rows", "loop", "group"])
@pytest.mark.parametrize("schedule", [None, 4])
def test_sum_over_the_inner_axis_is_the_same_in_every_form(graph, schedule):
    run = Interpreter(graph, ONE, schedule=schedule)
    result = run.run(WORDS)
    assert result.loss == 0
    shifted = run.run(dataclasses.replace(WORDS, fields={**WORDS.fields, "y": floats(0, 1, 12)}))
    assert shifted.loss == 9 + 1
    assert float(shifted.gradients["w.w"][0, 0]) == 2 * 3 * 3
    empty = Instance({"word": 0, "char": 0}, {"x": floats(), "y": floats()}, {"char": ints(0)})
    assert run.run(empty).loss == 0


def test_instance_of_cuts_one_instance_out_of_flat_arrays():
    graph = words_bulk()
    data = SimpleNamespace(
        axes={"word": ints(0, 1, 3), "char": ints(0, 2, 5)}, inner={"char": ints(0, 2, 2, 5)},
        columns={"x": floats(1, 2, 3, 4, 5), "y": floats(7, 8, 9)},
    )
    second = instance_of(data, graph, 1)
    assert second.lengths == {"word": 2, "char": 3}
    assert second.starts["char"].tolist() == [0, 0, 3]
    assert second.fields["x"].tolist() == [[3], [4], [5]]
    assert second.fields["y"].tolist() == [[8], [9]]
    assert second.number == 1


# ------------------------------------------------------------------------------------------------ rows and elements


@pytest.mark.parametrize("reverse", [False, True])
def test_ungroup_then_group_is_the_identity_whichever_way_a_loop_goes(reverse):
    b = GraphBuilder(axes=[AxisDecl("node")], fields=[FieldDecl("x", "float", "node")])
    turn = b.region("loop", axis="node", reverse=reverse)
    rows = b.npt("field", b.source, fields=[FieldRef("x")])
    one = b.ungroup(rows, turn)
    b.output(one, "one")
    b.output(b.group(one, b.source), "all")
    result = Interpreter(finish(b), {}).run(Instance({"node": 3}, {"x": floats(1, 2, 3)}))
    assert result.outputs["all"][0][1].tolist() == [[1], [2], [3]]
    assert [float(v[0, 0]) for _, v in result.outputs["one"]] == ([3, 2, 1] if reverse else [1, 2, 3])


def test_members_without_a_group_are_answered_with_zero():
    b = GraphBuilder(
        axes=[AxisDecl("node"), AxisDecl("edge")],
        fields=[FieldDecl("target", "index", "edge", of="node", optional=True), FieldDecl("y", "float", "node")],
        layers=[linear("w", 1, 1, bias=False)],
    )
    node, edge = b.region("each", axis="node"), b.region("each", axis="edge")
    sent = b.ppt("linear", "w", b.npt("fill", b.flatmap(b.source, Over(edge)), cols=1, value=1.0))
    rows = b.group(sent, b.flatmap(b.source, Over(node)), Through("target", Coord(edge)), node)
    b.loss("squared", b.npt("reduce_rows", rows, reduce="sum"), fields=[FieldRef("y", Coord(node))])
    result = Interpreter(finish(b), ONE).run(Instance({"node": 2, "edge": 3}, {"target": ints(1, -1, 1), "y": floats(0, 0)}))
    assert result.loss == 4
    assert float(result.gradients["w.w"][0, 0]) == 2 * 2 * 2
    assert result.rows == {"w": 3}


# ------------------------------------------------------------------------------------------------------- branches


def routed(by_value: bool) -> Graph:
    """Linear `a` for kind 0 (or a negative x), linear `b` else."""
    b = GraphBuilder(
        fields=[FieldDecl("x", "float"), FieldDecl("kind", "int", below=3), FieldDecl("y", "float")],
        layers=[linear("a", 1, 1, bias=False), linear("b", 1, 1, bias=False)],
    )
    x = b.npt("field", b.source, fields=[FieldRef("x")])
    if by_value:
        decision = b.npt("at_least", x, threshold=0.0)
        test = Decided(decision[0], ((0,),))
        x = b.npt("gate", x, decision)
    else:
        test = Match(FieldRef("kind"), ((0,),))
    first, other = b.cond(x, test)
    y = b.phi(b.ppt("linear", "a", first), b.ppt("linear", "b", other), test=test)
    b.loss("squared", y, fields=[FieldRef("y")])
    return finish(b)


@pytest.mark.parametrize(("by_value", "x", "kind", "taken"), [
    (False, 2, 0, "a"), (False, 2, 1, "b"), (False, 2, 2, "b"), (True, -2, 0, "a"), (True, 2, 0, "b"),
])
@pytest.mark.parametrize("schedule", [None, 0, 1])
def test_only_the_chosen_arm_gets_messages_and_gradients(by_value, x, kind, taken, schedule):
    params = {"a.w": np.full((1, 1), 3.0), "b.w": np.full((1, 1), 5.0)}
    result = Interpreter(routed(by_value), params, schedule=schedule).run(Instance({}, {"x": floats(x), "kind": ints(kind), "y": floats(0)}))
    w = {"a": 3, "b": 5}[taken]
    assert result.loss == (w * x) ** 2
    assert list(result.gradients) == [f"{taken}.w"]
    assert float(result.gradients[f"{taken}.w"][0, 0]) == 2 * w * x * x


def test_cond_waits_until_the_integer_is_there():
    """Without a gate the message may come first; it is held back."""
    b = GraphBuilder(fields=[FieldDecl("x", "float")])
    x = b.npt("field", b.source, fields=[FieldRef("x")])
    slow = b.npt("at_least", b.npt("exp", b.npt("square", x)), threshold=0.0)
    low, high = b.cond(x, Decided(slow[0], ((0,),)))
    b.output(low, "low")
    b.output(high, "high")
    result = Interpreter(finish(b), {}).run(Instance({}, {"x": floats(2)}))
    assert list(result.outputs) == ["high"]


def test_copies_of_a_layer_are_dealt_in_turn():
    b = GraphBuilder(fields=[FieldDecl("x", "float")])
    test = Dealt(3)
    for i, port in enumerate(b.cond(b.npt("field", b.source, fields=[FieldRef("x")]), test, 3)):
        b.output(port, f"copy{i}")
    run = Interpreter(finish(b), {})
    assert [list(run.run(Instance({}, {"x": floats(0)}, number=n)).outputs) for n in range(4)] == [["copy0"], ["copy1"], ["copy2"], ["copy0"]]


def test_a_branch_on_an_optional_float_asks_whether_it_is_there():
    graph = b_on_float()
    run = Interpreter(graph, {})
    assert list(run.run(Instance({}, {"y": floats(0.5)})).outputs) == ["there"]
    assert list(run.run(Instance({}, {"y": floats(np.nan)})).outputs) == ["none"]


def b_on_float() -> Graph:
    b = GraphBuilder(fields=[FieldDecl("y", "float", optional=True)])
    none, there = b.cond(b.source, Match(FieldRef("y"), ((-1,),)))
    b.output(none, "none")
    b.output(there, "there")
    return finish(b)


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_an_instance_that_cannot_finish_is_told_with_the_nodes_that_wait():
    """The visit's order goes in a circle: nobody can start."""
    b = GraphBuilder(axes=[AxisDecl("node")], fields=[FieldDecl("parent", "index", "node", of="node", optional=True)])
    visit = b.region("visit", axis="node", after=("parent",))
    start = b.flatmap(b.source, Over(visit))
    value = b.npt("fill", start, cols=1, value=1.0)
    b.origin = ("k.amp:7:9",)
    rows = b.group(value, start, Through("parent", Coord(visit)), visit)
    b.origin = ()
    h = b.npt("add", value, b.npt("reduce_rows", rows, reduce="sum"))
    b.connect(rows, 0, h)
    with pytest.raises(AmpError) as caught:
        Interpreter(finish(b), {}).run(Instance({"node": 2}, {"parent": ints(1, 0)}))
    d = caught.value.diagnostics[0]
    assert d.code == "AMP390"
    assert caught.value.exit_code == 3
    assert any("(Group) waits, k.amp:7:9" in note for note in d.notes)


def test_forward_only_sends_no_gradients_and_gives_the_same_loss():
    graph = list_reduction()
    params = initial_parameters(graph, 0)
    instance = Instance({"token": 2}, {"symbol": ints(1, 2), "label": ints(0)})
    both, forward = (Interpreter(graph, params).run(instance, train=train) for train in (True, False))
    assert forward.gradients == {}
    assert forward.loss == both.loss
    assert forward.messages < both.messages


def test_weight_of_a_loss_scales_value_and_gradient():
    b = GraphBuilder(fields=[FieldDecl("x", "float")], layers=[linear("w", 1, 1, bias=False)])
    pred = b.ppt("linear", "w", b.npt("fill", b.source, cols=1, value=1.0))
    b.loss("squared", pred, fields=[FieldRef("x")], weight=0.5)
    result = Interpreter(finish(b), ONE).run(Instance({}, {"x": floats(3)}))
    assert result.loss == 2
    assert float(result.gradients["w.w"][0, 0]) == -2


# -------------------------------------------------------------------------------------------------- random numbers


def test_dropout_draws_depend_on_seed_instance_node_and_place_only():
    a = keep_mask(1, 5, 7, (2, 3), (40, 50), 0.25)
    np.testing.assert_array_equal(a, keep_mask(1, 5, 7, (2, 3), (40, 50), 0.25))
    others = [keep_mask(*args, (40, 50), 0.25) for args in ((2, 5, 7, (2, 3)), (1, 6, 7, (2, 3)), (1, 5, 8, (2, 3)), (1, 5, 7, (3, 2)))]
    assert all((a != o).mean() > 0.2 for o in others)
    assert a.mean() == pytest.approx(0.75, abs=0.04)  # 2,000 draws: a deviation of 0.01
    assert keep_mask(1, 5, 7, (), (3, 3), 0.0).all()
    assert fold(1, 2) != fold(2, 1)
    assert fold(0, 5, 7) == 0x872979c858337809  # fixed: the engine draws the same


def test_dropout_changes_training_only():
    b = GraphBuilder(fields=[FieldDecl("x", "float", columns=200)])
    b.output(b.npt("dropout", b.npt("field", b.source, fields=[FieldRef("x")]), rate=0.5), "y")
    run = Interpreter(finish(b), {}, seed=3)
    instance = Instance({}, {"x": np.ones((1, 200), np.float32)})
    trained, again = (run.run(instance).outputs["y"][0][1] for _ in range(2))
    np.testing.assert_array_equal(trained, again)
    assert set(trained[0].tolist()) == {0.0, 2.0}
    assert (run.run(instance, train=False).outputs["y"][0][1] == 1).all()
    assert (run.run(dataclasses.replace(instance, number=1)).outputs["y"][0][1] != trained).any()


def test_first_values_depend_on_names_and_seed_only():
    layers = [Layer("a", "linear", (Param("w", (30, 20)), Param("b", (20,), "zeros"))), Layer("b", "linear", (Param("w", (30, 20)),))]
    one = initial_parameters(Graph("g", (), (), tuple(layers), (), ()), 1)
    other = initial_parameters(Graph("g", (), (), tuple(layers[::-1]), (), ()), 1)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert one[name].dtype == np.float32
    assert (one["a.w"] != one["b.w"]).any()
    assert (one["a.w"] != initial_parameters(Graph("g", (), (), tuple(layers), (), ()), 2)["a.w"]).any()
    assert float(one["a.w"][0, 0]) == pytest.approx(0.22454089, abs=1e-8)  # fixed: runs are repeatable across versions


@pytest.mark.parametrize(("init", "scale", "low", "high", "deviation"), [
    ("glorot", 1.0, -(6 / 300) ** 0.5, (6 / 300) ** 0.5, (2 / 300) ** 0.5), ("he", 1.0, -0.8, 0.8, (2 / 200) ** 0.5),
    ("normal", 0.5, -3.0, 3.0, 0.5), ("uniform", 0.5, -0.5, 0.5, 0.5 / 3**0.5), ("zeros", 1.0, 0, 0, 0), ("ones", 2.0, 2, 2, 0),
])
def test_distributions_of_first_values(init, scale, low, high, deviation):
    layer = Layer("a", "linear", (Param("w", (200, 100), init, scale),))
    value = initial_parameters(Graph("g", (), (), (layer,), (), ()), 0)["a.w"]
    assert low <= value.min()
    assert value.max() <= high
    assert value.std() == pytest.approx(deviation, rel=0.03)


def test_copies_of_a_layer_start_equal():
    layers = tuple(Layer(name, "linear", (Param("w", (3, 2)),)) for name in ("a", "a~0", "a~1"))
    values = initial_parameters(Graph("g", (), (), layers, (), ()), 0)
    np.testing.assert_array_equal(values["a~0.w"], values["a.w"])
    np.testing.assert_array_equal(values["a~1.w"], values["a.w"])


def test_identity_as_first_value():
    layer = Layer("a", "linear", (Param("w", (2, 3), "identity", 0.5),))
    assert initial_parameters(Graph("g", (), (), (layer,), (), ()), 0)["a.w"].tolist() == [[0.5, 0, 0], [0, 0.5, 0]]
