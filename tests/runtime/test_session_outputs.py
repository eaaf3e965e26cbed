"""Predictions of the real engine, run as plain Python, against the interpreter's: once for an instance, once for an element, in any order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CHILD = """
import json, sys
import numpy as np
import support
from ampc.runtime import predictions
from ampc.runtime.options import RunOptions
from ampc.runtime.program import Program
from runtime.slow import SlowEngine

for name in sys.argv[1:]:
    graph = support.small(name)
    data = support.dataset(graph, support.random_rows(graph, 7, seed=3))
    order = np.array([5, 0, 6, 2, 1, 3, 4])
    slow = SlowEngine(graph, RunOptions(seed=3).engine()).run(data, order, train=False, outputs=True)
    for driver, workers in (("step", 1), ("threads", 2)):
        real = support.engine(graph, workers=workers, seed=3, driver=driver).run(data, order, train=False, outputs=True)
        assert list(real.outputs) == list(slow.outputs), name
        for output in slow.outputs:
            for a, b in zip(slow.outputs[output], real.outputs[output], strict=True):
                assert a.shape == b.shape, (name, output, a.shape, b.shape)
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
        assert abs(real.loss - slow.loss) <= 1e-4 * abs(slow.loss) + 1e-6, name
        assert real.metrics.keys() == slow.metrics.keys()
        for metric, value in slow.metrics.items():
            assert value is None and real.metrics[metric] is None or abs(value - real.metrics[metric]) < 1e-4, (name, metric)
    values = predictions.columns(graph, slow.outputs)
    json.dumps(values)
    print(name, {k: v[:1] for k, v in values.items()})
"""


@pytest.mark.parametrize(
    "models",
    [("list_reduction", "sentiment_tree_lstm", "gat"), ("char_word_rnn", "typed_steps", "seq2seq"), ("early_exit_rnn", "mixture_of_experts")],
)
def test_outputs_loss_and_metrics_are_those_of_the_interpreter(models: tuple[str, ...]) -> None:
    path = os.pathsep.join(str(ROOT / p) for p in ("src", "tests"))
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", CHILD, *models], env=environment, text=True, capture_output=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.dumps(models) and all(name in done.stdout for name in models)
    print(done.stdout)
