"""The interpreter against values worked out by hand or by plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from ir.graphs import child_sum, floats, ints, list_reduction, neighbour_sum, sequence, sequence_sum, tree_sum

from ampc.ir import Graph, Instance, Interpreter, initial_parameters

ONE = {"w.w": np.ones((1, 1))}


def values(result, name):
    return [float(v[0, 0]) if v.shape == (1, 1) else v[:, 0].tolist() for _, v in result.outputs[name]]


@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_sum_over_a_sequence(schedule):
    run = Interpreter(sequence_sum(), ONE, schedule=schedule)
    result = run.run(Instance({"item": 2}, {"x": floats(1, 2), "y": floats(1)}))
    assert values(result, "pred") == [3.0]
    assert result.loss == 4.0
    assert result.gradients["w.w"] == pytest.approx(2 * (3 - 1) * 3)


def test_loop_of_zero_turns_gives_its_start():
    result = Interpreter(sequence_sum(), ONE).run(Instance({"item": 0}, {"x": floats(), "y": floats(3)}))
    assert values(result, "pred") == [0.0]
    assert result.loss == 9.0
    assert result.gradients["w.w"] == 0.0
    assert result.rows == {"w": 1}


@pytest.mark.parametrize("schedule", [None, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_list_reduction_equals_the_recurrence_in_numpy(reverse, schedule):
    graph = list_reduction(reverse=reverse)
    params = {k: v.astype(np.float64) for k, v in initial_parameters(graph, 3).items()}
    symbols = [1, 4, 0, 2]
    result = Interpreter(graph, params, np.float64, schedule=schedule).run(sequence(symbols, 2))
    h = np.zeros((1, 4))
    for s in reversed(symbols) if reverse else symbols:
        h = np.maximum(np.concatenate([params["embed.table"][s : s + 1], h], axis=1) @ params["step.w"] + params["step.b"], 0)
    logits = h @ params["head.w"] + params["head.b"]
    assert result.outputs["logits"][0][1] == pytest.approx(logits)
    assert result.loss == pytest.approx(np.log(np.exp(logits).sum()) - logits[0, 2])
    assert result.metrics["accuracy"] == (float(logits.argmax() == 2), 1.0)
    assert result.rows == {"embed": 4, "step": 4, "head": 1}
    assert set(result.gradients) == set(params)


def test_layer_that_no_message_reached_has_no_gradient():
    graph = list_reduction()
    result = Interpreter(graph, initial_parameters(graph, 0)).run(sequence([]))
    assert set(result.gradients) == {"head.w", "head.b"}


def gradient_check(graph: Graph, instance: Instance, seed: int = 0) -> None:
    """Compare the interpreter's gradients with differences of its own loss, in float64."""
    params = {k: v.astype(np.float64) for k, v in initial_parameters(graph, seed).items()}
    params = {k: v + 0.05 * np.cos(np.arange(v.size)).reshape(v.shape) for k, v in params.items()}
    result = Interpreter(graph, params, np.float64).run(instance)
    for name, value in params.items():
        expected = np.zeros_like(value)
        for i in np.ndindex(value.shape):
            up, down = value.copy(), value.copy()
            up[i] += 1e-6
            down[i] -= 1e-6
            high, low = (Interpreter(graph, params | {name: v}, np.float64).run(instance, train=False).loss for v in (up, down))
            expected[i] = (high - low) / 2e-6
        # central differences of step 1e-6 in float64: about 1e-9 of rounding, the rest is slack
        np.testing.assert_allclose(result.gradients.get(name, np.zeros_like(value)), expected, rtol=1e-5, atol=1e-7, err_msg=name)


def test_gradients_of_list_reduction():
    gradient_check(list_reduction(), sequence([1, 4, 0], 1))


GN = Instance(
    {"node": 3, "edge": 3},
    {"x": floats(1, 2, 3), "source": ints(0, 1, 1), "target": ints(1, 2, 2), "t": floats(0, 1, 1)},
)


@pytest.mark.parametrize("schedule", [None, 1])
@pytest.mark.parametrize(("reduce", "arrived"), [("sum", [0, 1, 4]), ("mean", [0, 1, 2]), ("max", [0, 1, 2])])
def test_neighbours_element_by_element_and_over_whole_axes(reduce, arrived, schedule):
    one = Interpreter(neighbour_sum(False, reduce), ONE, schedule=schedule).run(GN)
    whole = Interpreter(neighbour_sum(True, reduce), ONE, schedule=schedule).run(GN)
    assert values(one, "pred") == arrived
    assert values(whole, "pred") == [arrived]
    assert one.loss == whole.loss == sum((a - t) ** 2 for a, t in zip(arrived, [0, 1, 1], strict=True))
    np.testing.assert_array_equal(one.gradients["w.w"], whole.gradients["w.w"])
    assert one.rows == whole.rows == {"w": 3}


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("n", [0, 2])
def test_graph_without_edges_or_nodes_ends_and_gives_zero(bulk, n):
    instance = Instance({"node": n, "edge": 0}, {"x": floats(*range(n)), "source": ints(), "target": ints(), "t": floats(*[1] * n)})
    result = Interpreter(neighbour_sum(bulk), ONE).run(instance)
    assert result.loss == n
    assert float(result.gradients.get("w.w", np.zeros((1, 1)))[0, 0]) == 0


@pytest.mark.parametrize("schedule", [None, 1, 5])
def test_tree(schedule):
    instance = Instance(
        {"node": 5},
        {"v": floats(1, 2, 3, 4, 5), "left": ints(-1, -1, 0, -1, 2), "right": ints(-1, -1, 1, -1, 3), "y": floats(1, 2, 6, 4, 10)},
    )
    result = Interpreter(tree_sum(), ONE, schedule=schedule).run(instance)
    assert values(result, "h") == [1, 2, 6, 4, 15]
    assert result.loss == 25
    assert float(result.gradients["w.w"][0, 0]) == 2 * 5 * 15  # dh[4]/dw is the sum of all v


def test_tree_of_one_leaf_and_of_nothing():
    one = Instance({"node": 1}, {"v": floats(2), "left": ints(-1), "right": ints(-1), "y": floats(2)})
    assert values(Interpreter(tree_sum(), ONE).run(one), "h") == [2]
    none = Instance({"node": 0}, {"v": floats(), "left": ints(), "right": ints(), "y": floats()})
    assert Interpreter(tree_sum(), ONE).run(none).loss == 0


@pytest.mark.parametrize("schedule", [None, 1, 5])
def test_any_number_of_children(schedule):
    run = Interpreter(child_sum(), ONE, schedule=schedule)
    chain = Instance({"node": 3}, {"v": floats(1, 1, 1), "parent": ints(1, 2, -1), "y": floats(1, 2, 3)})
    assert values(run.run(chain), "h") == [1, 2, 3]
    star = Instance({"node": 4}, {"v": floats(1, 2, 3, 4), "parent": ints(3, 3, 3, -1), "y": floats(1, 2, 3, 9)})
    result = run.run(star)
    assert values(result, "h") == [1, 2, 3, 10]
    assert float(result.gradients["w.w"][0, 0]) == 2 * 1 * 10
