"""The public Python calls: what they say when something is wrong (an error's text is that of the command line), and copies of layers."""

from __future__ import annotations

import pickle

import pytest

import ampc

WRONG = "model m():\n    instance:\n        y: float\n    loss squared(p, y)\n    loss squared(q, y)\n"


def test_an_error_as_text_is_all_that_the_command_line_prints() -> None:
    with pytest.raises(ampc.AmpError) as caught:
        ampc.compile(WRONG)
    text = str(caught.value)
    assert text.startswith("error[AMP201]: `p` has no value here\n  --> text.amp:4:18\n  4 |     loss squared(p, y)\n    |                  ^")
    assert "error[AMP201]: `q` has no value here\n  --> text.amp:5:18\n" in text
    assert "\x1b" not in text
    assert [d.code for d in caught.value.diagnostics] == ["AMP201", "AMP201"]


def test_a_layer_that_is_too_large_is_told_by_its_size() -> None:
    with pytest.raises(ampc.AmpError) as caught:
        ampc.compile("list_reduction", hidden=2_000_000)
    d = caught.value.diagnostics[0]
    assert (d.code, d.message) == (
        "AMP301",
        "parameter `step.w` [4000000, 2000000] of layer `step` has 8,000,000,000,000 numbers, at most 8,589,934,592 are possible",
    )
    assert d.help == "make the layer smaller: the sizes that it is declared with, or the parameters of the model in them"


def test_an_error_keeps_the_lines_it_was_made_with() -> None:
    with pytest.raises(ampc.AmpError) as caught:
        ampc.compile(WRONG)
    with pytest.raises(ampc.AmpError):
        ampc.compile("model other():\n    instanc:\n\n# another text of the same name\n")
    assert "4 |     loss squared(p, y)" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # what crosses between processes
    assert (again.diagnostics, again.exit_code) == (caught.value.diagnostics, 1)


def test_copies_of_layers_by_name_or_where_they_pay() -> None:
    by_name = ampc.compile("digits_mlp", target="cpu-2", replicas={"first": 2})
    assert {x.name for x in by_name.graph.layers} >= {"first~0", "first~1"} and not any(x.name.startswith("head~") for x in by_name.graph.layers)
    chosen = ampc.compile("list_reduction", target="cpu-2", replicas="auto")
    assert sorted(x.name for x in chosen.graph.layers) == ["embed~0", "embed~1", "head~0", "head~1", "step~0", "step~1"]
    with pytest.raises(ampc.AmpError) as caught:
        ampc.compile("list_reduction", target="cpu-2", replicas={"stop": 2})
    assert [d.code for d in caught.value.diagnostics] == ["AMP516"]
