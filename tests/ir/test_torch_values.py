"""Operations and bundled models against PyTorch's values and gradients, stored in torch_values.json (see torch_values.py)."""

from __future__ import annotations

import json

import numpy as np
import pytest
from ir.examples import EXAMPLES
from ir.instances import random_instance
from ir.test_gradients import MODELS, graph_of, parameters_of
from ir.torch_values import FILE, INSTANCES, summary

from ampc.ir import OPS, Interpreter

STORED = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("record", STORED["operations"], ids=lambda r: f"{r['op']}-{r['example']}")
def test_operation_agrees(record):
    e = EXAMPLES[record["example"]]
    assert e.op == record["op"], "run torch_values.py again"
    op = OPS[e.op]
    y = op.fwd(e.operands, e.fields, e.params, e.attrs)
    np.testing.assert_allclose(y.ravel(), record["y"], rtol=1e-12, atol=1e-14)
    g = np.cos(np.arange(y.size)).reshape(y.shape)
    d_operands, d_params = op.bwd(e.operands, e.fields, e.params, e.attrs, y, g)
    found = [d for d, x in zip(d_operands, e.operands, strict=True) if x.dtype.kind == "f"] + [d_params[k] for k in e.params]
    for ours, theirs in zip(found, record["gradients"], strict=True):
        np.testing.assert_allclose(ours.ravel(), theirs, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_model_agrees(path):
    """In float64 the two differ by rounding only, in sums of up to some hundred terms: 1e-10 relative."""
    assert path.stem in STORED["models"], "write the model in torch_models.py and run torch_values.py"
    graph = graph_of(path)
    params = parameters_of(graph)
    for seed, record in zip(INSTANCES, STORED["models"][path.stem], strict=True):
        result = Interpreter(graph, params, np.float64).run(random_instance(graph, seed))
        assert result.loss == pytest.approx(record["loss"], rel=1e-11, abs=1e-12)
        for name in params:
            ours = summary(result.gradients.get(name, np.zeros(1)))
            assert ours == pytest.approx(record["gradients"].get(name, [0.0, 0.0]), rel=1e-9, abs=1e-11), name


def test_most_operations_have_stored_values():
    assert len({r["op"] for r in STORED["operations"]}) >= 45
