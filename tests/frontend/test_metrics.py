"""What metrics are called: in the program, in `until`, and in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ampc.api as api
from ampc import until
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph
from ampc.runtime.options import RunOptions
from ampc.runtime.program import Program
from runtime.slow import SlowEngine
from tests.programs import dataset_of, lowered, program, random_instances
from tests.support import engine

FIELDS = ("axis token", "x: float[token, 3]", "k: int < 2", "a, b: int < 3", "y: float")
HEAD = "w = Linear(3, 3)\nh = w(sum(token, x))\n"
POOLED = (
    "def judge(h, t):\n    metric accuracy(h, t)\n    return h\nbranch k:\n    0: metric chosen = accuracy(h, a)\n    1: metric chosen = accuracy(2 * h, b)\n"
    "g = judge(h, a) + judge(h, b)\nmetric root_mean_square_error(sum(h), y)\nmetric root_mean_square_error(sum(g), y)\nloss cross_entropy(g, a)"
)


def graph(body: str) -> Graph:
    return lowered(program("m", FIELDS, HEAD + body))


def test_one_of_a_kind_is_called_by_its_kind_several_by_their_order() -> None:
    g = graph("metric accuracy(h, a)\nmetric top_k(h, a, k = 2)\nmetric accuracy(h, b)\nloss cross_entropy(h, a)")
    assert list(g.metrics) == ["accuracy_0", "top_k", "accuracy_1"]
    assert until.values(g)[:4] == ["loss", "accuracy_0", "top_k", "accuracy_1"]


def test_a_name_is_kept_and_leaves_the_other_without_a_number() -> None:
    g = graph("metric first = accuracy(h, a)\nmetric accuracy(h, b)\nloss cross_entropy(h, a)")
    assert list(g.metrics) == ["first", "accuracy"]


def test_what_has_one_name_is_counted_together() -> None:
    g = graph(POOLED)
    pooled = {"chosen": 2, "accuracy": 2, "root_mean_square_error_0": 1, "root_mean_square_error_1": 1}
    assert {name: len(nodes) for name, nodes in g.metrics.items()} == pooled
    data = dataset_of(g, random_instances(g, 20))
    meant = SlowEngine(g, RunOptions().engine()).run(data, np.arange(20), train=False).metrics
    found = engine(g, workers=2, seed=0, driver="step").run(data, np.arange(20), train=False).metrics
    assert list(found) == list(pooled)
    for name, value in meant.items():
        assert found[name] == pytest.approx(value**0.5 if "root" in name else value, rel=1e-5), name


def test_the_first_of_two_decides_what_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "_real_engine", lambda self, o, p: SlowEngine(self.graph, o, p))
    rows: list[dict[str, Any]] = [{"x": [[float(i), 1, 0]], "k": 0, "a": i % 3, "b": 0, "y": 0.0} for i in range(6)]
    text = program("m", FIELDS, HEAD + "metric accuracy(h, a)\nmetric accuracy(h, b)\nloss cross_entropy(h, a)")
    summary = api.compile(text).train(rows, epochs=2, until="accuracy_1 >= 0")
    assert summary.best["name"] == "accuracy_0" and summary.target_reached


def test_a_loss_in_a_function_is_one_of_the_model() -> None:
    """The only loss of a program may be written out of a function that is called."""
    g = graph("def fit(v):\n    loss squared(sum(v), y)\n    metric absolute_error(sum(v), y)\n    return v\ng = fit(h)")
    assert list(g.metrics) == ["absolute_error"]
    with pytest.raises(AmpError) as e:
        graph("def fit(v):\n    loss squared(sum(v), y)\n    return v\ng = 2 * h")
    assert [d.code for d in e.value.diagnostics] == ["AMP235"]
