"""Problems that users of other tools reported, as programs and data that run: the right values, on every driver.

`tests/cases/<id>` holds the data and `expected.json`, worked out by hand or with numpy; the programs have one weight, which starts at 1.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT, engine, graph_of

from ampc.data import read
from ampc.data.dataset import Dataset
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.ir.interpret import Interpreter
from ampc.ir.state import instance_of
from ampc.runtime.engine import Engine

CASES = Path(__file__).parent.parent / "cases"
MODELS = Path(__file__).parent.parent / "models_cases"
RUNS: list[dict[str, Any]] = [
    {"driver": "step", "max_active_keys": 1},
    {"driver": "step", "max_active_keys": 64, "workers": 3},
    {"driver": "threads", "max_active_keys": 1, "workers": 2},
    {"driver": "threads", "max_active_keys": 64, "workers": 4},
]


def expected(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / case / "expected.json").read_text(encoding="utf-8"))
    return found


def model(name: str, more: str = "", passes: bool = True) -> Graph:
    return graph_of((MODELS / f"{name}.amp").read_text(encoding="utf-8") + more, passes)


def outputs(e: Engine, data: Dataset, name: str) -> list[list[float]]:
    result = e.run(data, np.arange(data.n), train=False, outputs=True)
    return [table.ravel().tolist() for table in result.outputs[name]]


def weight(e: Engine) -> float:
    return float(e.parameters["w.w"][0, 0])


def interpreted_loss(graph: Graph, data: Dataset) -> float:
    interpreter = Interpreter(graph, {"w.w": np.ones((1, 1))}, np.float64)
    return float(np.mean([interpreter.run(instance_of(data, graph, i)).loss for i in range(data.n)]))


# --------------------------------------------------------------------------------- empty and degenerate structure


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_graphs_of_isolated_nodes(run: dict[str, Any], passes: bool) -> None:
    want = expected("E01")
    graph = model("g", "    output p\n", passes)
    data = read(CASES / "E01/train.jsonl", graph)
    e = engine(graph, **run, learning_rate=0.0)
    assert e.run(data, np.arange(3), train=True).loss == pytest.approx(want["mean_loss"])
    assert interpreted_loss(graph, data) == pytest.approx(want["mean_loss"])
    assert outputs(e, data, "p") == [[v] for v in want["predictions"]]
    assert [float(e.gradients(data, np.array([i]))["w.w"][0, 0]) for i in range(3)] == want["gradient_w"]


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_the_mean_over_no_neighbours_is_zero_and_the_own_term_stays(run: dict[str, Any], passes: bool) -> None:
    graph = graph_of(
        "model gn():\n    instance:\n        axis node, edge\n        x, t: float[node]\n        source, target: node[edge]\n"
        "    w = Linear(1, 1, bias = false, init = ones)\n    each e in edge:\n        a[target[e]] mean= w(x[source[e]])\n"
        "    each n in node:\n        h = x[n] + a[n]\n        loss squared(h, t[n])\n        output h\n",
        passes,
    )
    data = read(CASES / "E04/rows.jsonl", graph)
    e = engine(graph, **run)
    assert outputs(e, data, "h") == expected("E04")["h"]
    assert np.isfinite(e.gradients(data, np.arange(2))["w.w"]).all()


@pytest.mark.parametrize("run", RUNS)
def test_sequences_of_length_zero(run: dict[str, Any]) -> None:
    want = expected("E05")
    graph = model("q", "    output h\n")
    data = read(CASES / "E05/train.jsonl", graph)
    still = engine(graph, **run, learning_rate=0.0)
    assert still.run(data, np.arange(4), train=True).loss == pytest.approx(want["mean_loss"])
    assert outputs(still, data, "h") == [[v] for v in want["predictions"]]
    assert [float(still.gradients(data, np.array([i]))["w.w"][0, 0]) for i in range(4)] == want["gradient_w_at_start"]
    if run["max_active_keys"] == 1:
        for order, key in (([0, 1, 2, 3], "w_after_one_epoch_lr_0_01_mak1_muf1_order_0123"), ([3, 2, 1, 0], "order_3210")):
            e = engine(graph, **run, optimizer="sgd", learning_rate=0.01, min_update_frequency=1)
            e.run(data, np.array(order), train=True)
            assert weight(e) == pytest.approx(want[key], rel=1e-6)


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_nodes_with_no_one_or_many_children(run: dict[str, Any], passes: bool) -> None:
    want = expected("E07")
    graph = model("k", "        output h\n", passes)
    data = read(CASES / "E07/rows.jsonl", graph)
    e = engine(graph, **run, optimizer="sgd", learning_rate=0.1, min_update_frequency=1)
    assert outputs(e, data, "h") == want["h"]
    assert e.run(data, np.arange(3), train=True).loss == want["loss_total"]
    assert weight(e) == 1.0


def star(workers: int) -> None:
    want = expected("E09")
    graph = model("g", "    output p\n")
    for file, value in (("star_ones", want["pred_ones"]), ("star_tenths", want["pred_tenths"])):
        data = read(CASES / f"E09/{file}.parquet", graph)
        e = engine(graph, workers, optimizer="sgd", learning_rate=0.0)
        e.bind(data, train=False)
        e.bind(data)  # compiles what either pass runs
        began = time.process_time()
        ((prediction,),) = outputs(e, data, "p")
        assert prediction == pytest.approx(value, rel=0 if file == "star_ones" else want["tolerance_relative"])
        assert e.run(data, np.arange(data.n), train=True).instances == data.n
        assert time.process_time() - began < 1.0
        # dp/dw is the prediction at w = 1, and the loss is (p - y)^2.
        y = float(data.columns["y"][0, 0])
        assert float(e.gradients(data, np.arange(1))["w.w"][0, 0]) == pytest.approx(2 * (value - y) * value, rel=1e-3)


@pytest.mark.compiled
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_node_of_very_high_degree_is_summed_well_in_less_than_a_second(workers: int) -> None:
    star(workers)


@pytest.mark.compiled
@pytest.mark.parametrize("how", ["mean=", "max="])
def test_means_and_maxima_of_many_edges_take_time_that_grows_with_the_edges_alone(how: str) -> None:
    graph = graph_of((MODELS / "g.amp").read_text(encoding="utf-8").replace("+=", how) + "    output p\n")
    data = read(CASES / "E09/star_tenths.parquet", graph)
    e = engine(graph, 1, learning_rate=0.0)
    e.bind(data, train=False)
    e.bind(data)  # compiles what either pass runs
    began = time.process_time()
    ((prediction,),) = outputs(e, data, "p")
    e.run(data, np.arange(data.n), train=True)
    assert prediction == pytest.approx(0.1, rel=1e-4) and time.process_time() - began < 1.0


@pytest.mark.parametrize("passes", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_attention_over_nothing_is_zero(run: dict[str, Any], passes: bool) -> None:
    graph = model("a", "    output p\n", passes)
    data = read(CASES / "E11/rows.jsonl", graph)
    e = engine(graph, **run)
    got = outputs(e, data, "p")
    np.testing.assert_allclose(got, [[v] for v in expected("E11")["predictions"]], atol=1e-6)
    assert got[0] == [0.0]
    assert np.isfinite(e.gradients(data, np.arange(3))["w.w"]).all()


@pytest.mark.parametrize("passes", [False, True])
def test_attention_over_the_neighbours_of_an_isolated_node_is_zero(passes: bool) -> None:
    graph = graph_of(
        "model m():\n    instance:\n        axis node, edge\n        x: float[node]\n        source, target: node[edge]\n        y: float\n"
        "    w = Linear(1, 1, bias = false, init = ones)\n    s = w(x)\n"
        "    each e in edge:\n        p = exp(s[source[e]])\n        z[target[e]] += p\n"
        "    each e in edge:\n        q = p[e] / z[target[e]]\n        a[target[e]] += q * x[source[e]]\n        b[target[e]] += q\n"
        "    loss squared(sum(node, a), y)\n    output a\n    output b\n",
        passes,
    )
    data = read([{"x": [1.0, 2.0, 3.0], "source": [0, 1], "target": [1, 1], "y": 0.0}, {"x": [5.0], "source": [], "target": [], "y": 1.0}], graph)
    e = engine(graph, 2, driver="step")
    assert np.allclose(np.concatenate(outputs(e, data, "b")), [0, 1, 0, 0])
    weights = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    np.testing.assert_allclose(np.concatenate(outputs(e, data, "a")), [0, weights @ [1.0, 2.0], 0, 0], rtol=1e-5)
    assert np.isfinite(e.gradients(data, np.arange(2))["w.w"]).all()


# ------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("run", RUNS)
def test_losses_of_huge_logits_are_exact_and_their_gradients_finite(run: dict[str, Any]) -> None:
    want = expected("N01")
    head = "model m():\n    instance:\n        z: float[{cols}]\n        {target}\n    w = Linear({cols}, {cols}, bias = false)\n"
    cross = graph_of(head.format(cols=2, target="label: int < 2") + "    loss cross_entropy(z + w(zeros(2)), label)\n")
    binary = graph_of(head.format(cols=1, target="b: flag") + "    loss binary_cross_entropy(z + w(zeros(1)), b)\n")
    for graph, file, losses in ((cross, "rows", want["cross_entropy"]), (binary, "binary", want["binary"])):
        data = read(CASES / f"N01/{file}.jsonl", graph)
        e = engine(graph, **run)
        for i, loss in enumerate(losses):
            assert e.run(data, np.array([i]), train=False).loss == pytest.approx(loss, rel=1e-6, abs=1e-12)
            assert np.isfinite(e.gradients(data, np.array([i]))["w.w"]).all()


def test_gradient_of_equal_huge_logits() -> None:
    graph = graph_of(
        "model m():\n    instance:\n        z: float[2]\n        label: int < 2\n    w = Linear(1, 2, bias = false, init = zeros)\n"
        "    loss cross_entropy(z + w(ones(1)), label)\n"
    )
    data = read(CASES / "N01/rows.jsonl", graph)
    # dL/dw is that of the logits, since w's input is 1.
    np.testing.assert_allclose(engine(graph).gradients(data, np.array([0]))["w.w"], expected("N01")["gradient_first"], atol=1e-6)


@pytest.mark.parametrize("driver", ["step", "threads"])
def test_rows_with_nan_and_infinity_are_named_or_skipped(driver: str) -> None:
    want = expected("N04")
    graph = model("q")
    with pytest.raises(AmpError) as caught:
        read(CASES / "N04/train.parquet", graph, on_nan="stop")
    assert "row 2 of" in caught.value.diagnostics[0].message and "`x[0]` is NaN" in caught.value.diagnostics[0].message
    data = read(CASES / "N04/train.parquet", graph, on_nan="skip")
    assert data.skipped == len(want["bad_rows"])
    e = engine(graph, driver=driver, optimizer="sgd", learning_rate=0.01, min_update_frequency=1, max_active_keys=1)
    e.run(data, np.arange(data.n), train=True)
    assert weight(e) == pytest.approx(want["skip_w_after_one_epoch"], rel=1e-6)


@pytest.mark.parametrize("run", RUNS)
def test_the_reported_loss_is_the_mean_over_instances_of_their_sums(run: dict[str, Any]) -> None:
    graph = model("gn")
    data = read(CASES / "N07/rows.jsonl", graph)
    for order in ([0, 1], [1, 0]):
        assert engine(graph, **run).run(data, np.array(order), train=False).loss == pytest.approx(expected("N07")["mean_over_instances_of_sums"])


@pytest.mark.parametrize(("frequency", "w", "updates"), [(4, 2.5, 2), (100, None, 1)])
def test_a_part_filled_accumulator_is_flushed_with_the_mean_of_what_it_holds(frequency: int, w: float | None, updates: int) -> None:
    graph = model("q")
    data = read(CASES / "N09/train.jsonl", graph)
    for driver in ("step", "threads"):
        e = engine(graph, driver=driver, optimizer="sgd", learning_rate=0.1, min_update_frequency=frequency, max_active_keys=1)
        result = e.run(data, np.arange(6), train=True)
        assert result.updates == {"w": updates}
        # With 100: one update with the mean over all six, 1 - 0.1 * mean(2 * (1 - y)).
        assert weight(e) == pytest.approx(w if w is not None else 1 - 0.1 * float(np.mean([2 * (1 - y) for y in (2, 3, 4, 5, 6, 7)])), rel=1e-6)
    assert expected("N09")["mean_flush_by_actual_count"] == 2.5


@pytest.mark.parametrize("run", RUNS)
def test_missing_targets_are_left_out_by_a_branch(run: dict[str, Any]) -> None:
    want = expected("N10")["declared_float_or_none"]
    with pytest.raises(AmpError, match="row 1"):
        read(CASES / "N10/train.jsonl", model("q"))
    graph = graph_of(
        (MODELS / "q.amp").read_text(encoding="utf-8").replace("y: float", "y: float or none")
        .replace("    loss squared(h, y)", "    branch y:\n        else:\n            loss squared(h, y)\n            metric squared_error(h, y)\n        none: n = 0 * h")
    )  # fmt: skip
    data = read(CASES / "N10/train.jsonl", graph)
    e = engine(graph, **run, optimizer="sgd", learning_rate=0.0, min_update_frequency=1)
    result = e.run(data, np.arange(4), train=True)
    # The mean over all four instances halves the two labelled ones; the metric is over the labelled ones alone.
    assert result.loss == pytest.approx(want["mean_loss_over_labelled"] * want["labelled"] / 4)
    assert result.metrics == {"squared_error": pytest.approx(want["mean_loss_over_labelled"])}


def test_a_target_that_is_none_adds_nothing() -> None:
    graph = graph_of((MODELS / "q.amp").read_text(encoding="utf-8").replace("y: float", "y: float or none") + "    metric squared_error(h, y)\n")
    data = read(CASES / "N10/train.jsonl", graph)
    result = engine(graph, driver="step").run(data, np.arange(4), train=False)
    assert result.metrics == {"squared_error": pytest.approx(2.0)} and result.loss == pytest.approx(1.0)


def test_one_class_alone_has_an_accuracy() -> None:
    graph = model("c")
    data = read(CASES / "N12/valid.jsonl", graph)
    e = engine(graph, 2, driver="step", min_update_frequency=5)
    assert e.run(data, np.arange(20), train=False).metrics == {"accuracy": expected("N12")["accuracy"]}
    e.run(data, np.arange(20), train=True)
    none = e.run(data, np.zeros(0, np.int64), train=False)
    assert none.metrics == {"accuracy": None}, "a metric over nothing is undefined"


# ---------------------------------------------------------------------------------------------------- data files


@pytest.mark.parametrize("run", RUNS[1::2])
def test_row_groups_do_not_change_predictions(run: dict[str, Any]) -> None:
    graph = model("q", "    output h\n")
    for file in ("one_group", "groups_1_0_4_7"):
        assert outputs(engine(graph, **run), read(CASES / f"D02/{file}.parquet", graph), "h") == [[v] for v in expected("D02")["predictions"]]


def test_empty_lists_in_the_first_rows() -> None:
    graph = model("g", "    output p\n")
    for file, key in (("train.jsonl", "jsonl"), ("all_empty_null_type.parquet", "parquet")):
        assert outputs(engine(graph, driver="step"), read(CASES / "D04" / file, graph), "p") == [[v] for v in expected("D04")[key]]


def test_numbers_of_other_types() -> None:
    graph = model("q", "    output h\n")
    for file in ("float64", "int32"):
        got = outputs(engine(graph, driver="step"), read(CASES / f"D07/{file}.parquet", graph), "h")
        np.testing.assert_allclose(got, [[v] for v in expected("D07")[file]], rtol=1e-7)


# ------------------------------------------------------------------------------------------------- concurrency


@pytest.mark.parametrize("driver", ["step", "threads"])
def test_fewer_instances_than_workers(driver: str) -> None:
    graph = model("q")
    data = read(CASES / "C01/train.jsonl", graph)
    e = engine(graph, 4, driver=driver, optimizer="sgd", learning_rate=0.1, max_active_keys=64, min_update_frequency=1)
    assert e.run(data, np.arange(1), train=True).instances == 1
    assert weight(e) == pytest.approx(1.4, rel=1e-6)


@pytest.mark.parametrize("driver", ["step", "threads"])
def test_three_instances_for_eight_workers_and_four_copies(driver: str) -> None:
    text = (MODELS / "q.amp").read_text(encoding="utf-8").replace("init = ones", "init = ones, replicas = 4")
    graph = graph_of(text)
    data = read(CASES / "C01/three.jsonl", graph)
    e = engine(graph, 8, driver=driver, optimizer="sgd", learning_rate=0.1, max_active_keys=64, min_update_frequency=100)
    result = e.run(data, np.arange(3), train=True)
    assert result.instances == 3
    assert all(np.isfinite(w).all() for w in e.parameters.values())
    # Part-filled accumulators are flushed: each copy that an instance was dealt to moves once, with that instance's gradient.
    if len(result.updates) > 1:
        assert sorted(result.updates.values()) == [0, 1, 1, 1]
        # At the end of the pass the copies are averaged, the one without an instance too: (1 + 3 * 1.4) / 4.
        assert [round(float(w[0, 0]), 5) for w in e.parameters.values()] == [1.3] * 4


# ------------------------------------------------------------------------------------------ names, repeatability


def test_fields_may_be_named_like_words_of_python() -> None:
    text = (CASES / "F07/keywords.amp").read_text(encoding="utf-8")
    try:
        graph = graph_of(text)
    except AmpError as refused:
        assert all(d.span is not None for d in refused.diagnostics), "each name is refused at its place"
        return
    data = read(CASES / "F07/train.jsonl", graph)
    for run in RUNS:
        e = engine(graph, **run, optimizer="sgd", learning_rate=0.1, min_update_frequency=1)
        first = e.run(data, np.arange(2), train=True).loss
        for epoch in range(20):
            last = e.run(data, np.arange(2), train=True, epoch=epoch).loss
        assert math.isfinite(last) and last < first


TRAINS = """
import hashlib, sys
sys.path[:0] = [{src!r}, {tests!r}, {root!r}]
import numpy as np
from ampc.cli.main import main
from ampc.ir import to_text
from support import dataset, engine, random_rows, small

def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()

for name in ("typed_steps", "qm9_ggsnn"):
    graph = small(name)
    data = dataset(graph, random_rows(graph, 6, 1))
    e = engine(graph, 2, seed=1, driver="step", max_active_keys=4, min_update_frequency=2, learning_rate=0.05)
    print(digest(to_text(graph).encode()), digest(e.program.text.encode()), digest(*(v.tobytes() for v in e.parameters.values())))
    e.run(data, np.arange(6), train=True)
    print(digest(*(v.tobytes() for v in e.parameters.values())))
assert main(["compile", "gated_counter", "-o", "m.ampx", "--quiet"]) == 0
"""


def test_hashing_of_strings_changes_no_bit_of_programs_weights_and_manifests(tmp_path: Path) -> None:
    said, manifests = set(), set()
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        code = TRAINS.format(src=str(ROOT / "src"), tests=str(ROOT / "tests"), root=str(ROOT))
        environment = {**os.environ, "PYTHONHASHSEED": seed, "NUMBA_DISABLE_JIT": "1", "USER": f"user{seed}"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=True)
        said.add(done.stdout)
        manifest = json.loads((folder / "m.ampx" / "manifest.json").read_text(encoding="utf-8"))
        manifests.add(json.dumps({k: v for k, v in manifest.items() if "time" not in k and "created" not in k}))
    assert len(said) == len(manifests) == 1


def test_initial_weights_do_not_depend_on_the_number_of_workers() -> None:
    graph = model("c")
    one, four = engine(graph, 1, seed=9).parameters, engine(graph, 4, seed=9).parameters
    assert all(np.array_equal(one[k], four[k]) for k in one)
