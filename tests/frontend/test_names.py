"""The table of names agrees with what the other layers know."""

from __future__ import annotations

import msgspec
import pytest
from support import graph_of

from ampc.diagnostics import AmpError
from ampc.frontend.names import FUNCTIONS, LAYERS, LOSSES, METRICS, SETTINGS
from ampc.ir.graph import Graph
from ampc.ir.ops import OPS
from ampc.runtime.options import PER_LAYER
from ampc.runtime.options import SETTINGS as OF_RUNS


def test_settings_are_those_of_a_run() -> None:
    assert set(SETTINGS) == set(OF_RUNS)
    assert {n for n, s in SETTINGS.items() if s.per_layer} == set(PER_LAYER)
    for name, s in SETTINGS.items():
        assert s.choices == OF_RUNS[name].choices, name
        kind = {"int": "int", "float": "float", "flag": "bool", "word": "str", "text": "str"}[s.what]
        assert kind == OF_RUNS[name].kind, name


def test_functions_losses_and_metrics_are_operations() -> None:
    for entry in (*FUNCTIONS.values(), *LAYERS.values()):
        assert not entry.op or entry.op in OPS, entry.name
    for name in (*LOSSES, *METRICS):
        assert name in OPS
    assert {n for n, op in OPS.items() if op.group == "loss"} == set(LOSSES)
    assert {n for n, op in OPS.items() if op.group == "metric"} == set(METRICS)
    options = {name: {o.name for o in c.options} - {"weight"} for name, c in {**LOSSES, **METRICS}.items()}
    assert options == {name: {a.name for a in OPS[name].attrs} for name in options}


def program(text: str) -> Graph:
    """Return the graph of a program with a layer, or with a value, written so; without places."""
    layer, value = (text, "a(x)") if text[0].isupper() else ("Linear(3, 4)", text)
    graph = graph_of(f"model m():\n    instance:\n        x: float[3]\n    a = {layer}\n    h = {value}\n    loss squared(sum(h) + sum(a(x)), 1)\n")
    return graph.with_nodes(tuple(msgspec.structs.replace(n, origin=()) for n in graph.nodes))


@pytest.mark.parametrize(
    ("named", "plain"),
    [
        ("Linear(inputs = 3, outputs = 4)", "Linear(3, 4)"), ("Linear(outputs = 4, bias = false, inputs = 3)", "Linear(3, 4, bias = false)"),
        ("dropout(a(x), rate = 0.1)", "dropout(a(x), 0.1)"), ("clip(x, high = 1, low = -1)", "clip(x, -1, 1)"), ("pad(x, columns = 5)", "pad(x, 5)"),
    ],
)
def test_constants_may_be_named(named: str, plain: str) -> None:
    assert program(named) == program(plain)


@pytest.mark.parametrize(("text", "code"), [("Linear(3, inputs = 4)", "AMP210"), ("Linear(3, 4, outputs = 4)", "AMP210"), ("dropout(rate = 0.1)", "AMP210"), ("clip(x, high = 1)", "AMP210")])
def test_a_constant_that_has_its_value_already_or_lacks_one_before_it_is_refused(text: str, code: str) -> None:
    with pytest.raises(AmpError) as caught:
        program(text)
    assert code in {d.code for d in caught.value.diagnostics}
