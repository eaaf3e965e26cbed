"""The table of names agrees with what the other layers know."""

from __future__ import annotations

from ampc.frontend.names import FUNCTIONS, LAYERS, LOSSES, METRICS, SETTINGS
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
