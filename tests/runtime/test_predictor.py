"""Predictions one at a time: the same as those of a pass over all, whatever came before."""

from __future__ import annotations

import numpy as np
import pytest
from support import dataset, engine, model_names, random_rows, small, spread

from ampc.diagnostics import AmpError
from ampc.ir.init import initial_parameters
from ampc.runtime.options import EngineOptions
from ampc.runtime.predictor import SingleEngine


@pytest.mark.parametrize("name", model_names())
def test_one_at_a_time_gives_what_a_pass_gives(name: str) -> None:
    graph = small(name)
    rows = random_rows(graph, 12, 6, longest=7)
    data = dataset(graph, rows)
    together = engine(graph, seed=3).run(data, np.arange(data.n), train=False, outputs=True).outputs
    single = SingleEngine(graph, spread(graph, 1), options=EngineOptions(workers=2, seed=3), parameters=initial_parameters(graph, 3))
    for i in (*range(12), 3, 0, 11):
        found = single.one(data.select([i]))
        assert found.keys() == together.keys()
        for output, value in found.items():
            np.testing.assert_allclose(value, together[output][i], rtol=1e-5, atol=1e-6, err_msg=f"{output} of {i}")


def test_shorter_instances_need_no_new_tables() -> None:
    graph = small("char_word_rnn")
    rows = random_rows(graph, 20, 6, longest=7)
    data = dataset(graph, rows)
    single = SingleEngine(graph, spread(graph, 1), options=EngineOptions(), parameters=initial_parameters(graph, 3))
    bindings = []
    for i in range(40):
        single.one(data.select([i % 20]))
        bindings.append(single._binding)
    assert len({id(b) for b in bindings[20:]}) == 1


def test_programs_have_predictors() -> None:
    import ampc

    program = ampc.compile("list_reduction", hidden=5, target="cpu-2")
    with pytest.raises(AmpError, match="no weights"):
        program.predictor()
    program.parameters = initial_parameters(program.graph, 1)
    predict = program.predictor()
    for symbols in ([10, 3, 1], [1], [10, 3, 1, 4, 5, 6, 7, 8, 9, 2]):
        np.testing.assert_allclose(predict({"symbol": symbols})["logits"], program.predict([{"symbol": symbols}])["logits"][0], rtol=1e-5, atol=1e-6)
    with pytest.raises(AmpError) as caught:
        predict({"symbol": [99]})
    assert caught.value.diagnostics[0].code.startswith("AMP8")
