"""What lowering refuses: each code with its example, several mistakes in one run, their places, overrides."""

from __future__ import annotations

import pytest

from ampc.codes import all_codes
from ampc.diagnostics import AmpError, Diagnostic, render
from ampc.frontend import check, parse
from ampc.frontend.names import SETTINGS
from ampc.ir.verify import verify
from ampc.lower import lower
from ampc.lower.codes import CODES
from ampc.passes import run_passes

PROGRAMS = {code: x for code, x in CODES.items() if not x.wrong.startswith("ampc ")}


def mistakes(program: str, checked: bool = False, **overrides: int | float | bool) -> tuple[Diagnostic, ...]:
    """Return what is wrong with a program; lowering has to stand alone, so that `check` is left out by default."""
    try:
        model = parse(program, "model.amp")
        if checked:
            check(model)
        graph = lower(model, overrides)
    except AmpError as wrong:
        return wrong.diagnostics
    verify(graph)
    run_passes(graph)
    return ()


@pytest.mark.parametrize("code", PROGRAMS)
def test_example_of_each_code_has_that_mistake_and_its_remedy_has_none(code: str) -> None:
    assert code in [d.code for d in mistakes(PROGRAMS[code].wrong)]
    assert not mistakes(PROGRAMS[code].right, checked=True)


@pytest.mark.parametrize("code", PROGRAMS)
def test_message_stands_alone_and_has_a_place(code: str) -> None:
    for d in mistakes(PROGRAMS[code].wrong):
        assert d.primary is not None
        assert d.primary.span.file == "model.amp"
        assert not d.message[0].isupper()
        assert not d.message.endswith(".")
        assert render(d, {"model.amp": PROGRAMS[code].wrong}).startswith(f"error[{d.code}]: ")


@pytest.mark.parametrize("code", [c for c, x in all_codes().items() if "model " in x.wrong])
def test_unchecked_programs_never_end_in_a_traceback(code: str) -> None:
    try:
        mistakes(all_codes()[code].wrong)
    except AmpError as wrong:  # declarations that `check` refuses, which the verifier finds
        assert wrong.diagnostics[0].code == "AMP301"


FIRST = """model m(hidden = 8):
    instance:
        axis token
        x: float[token, 3]
        label: int < 4

    step = Linear(6, hidden)
    head = Linear(hidden, 3)

    def cell(x, h):
        return relu(step([x, h]))

    h = zeros(4)
    loop t in token carry h:
        h = cell(x[t], h)
    g = h + zeros(5)
    loss cross_entropy(head(h), label)
"""


def test_all_shape_mistakes_come_in_one_run_with_their_places() -> None:
    found = mistakes(FIRST, checked=True)
    assert [(d.code, str(d.primary.span) if d.primary else "", d.message) for d in found] == [
        ("AMP262", "model.amp:11:26", "`step` takes 6 columns, got [7]"),
        ("AMP279", "model.amp:14:27", "`h` enters the loop as [4] and ends a turn as [8]"),
        ("AMP260", "model.amp:16:9", "`+` needs operands of equal shape, or one of a single column or row, got [8] and [5]"),
        ("AMP263", "model.amp:17:10", "`cross_entropy` of `label`, an int below 4, needs as many columns, got 3"),
    ]
    assert [(str(label.span), label.text) for label in found[0].secondary] == [
        ("model.amp:7:5", "`step` is declared here, for 6 columns"), ("model.amp:15:13", "in this call of `cell`"),
    ]
    assert [(str(label.span), label.text) for label in found[1].secondary] == [("model.amp:13:5", "[4] before the loop"), ("model.amp:15:9", "[8] in the loop")]


@pytest.mark.parametrize(("body", "message"), [
    ("loss cross_entropy(h, free)", "`cross_entropy` of `free`, which may be any integer, needs a bound: there are 3 columns"),
    ("loss squared(sum(one_hot(free, 3)), y)", "`one_hot` of `free`, which may be any integer, needs a bound: there are 3 columns"),
    ("loss squared(sum(one_hot(argmax(z), 3)), y)", "the integer may be 4, and there are 3 columns of `one_hot`"),
    ("loss squared(sum(e(argmax(z))), y)", "the integer may be 4, and there are 3 rows of `e`"),
    ("i = argmax(z)\n    loop t in range(2) carry i:\n        i = argmax([h, h])\n    loss squared(sum(e(i)), y)", "the integer may be 5, and there are 3 rows of `e`"),
    ("loss cross_entropy(h, argmax(z))", "the integer may be 4, and there are 3 columns of what `cross_entropy` judges"),
])
def test_integers_that_pick_stay_within_what_they_pick_from(body: str, message: str) -> None:
    program = f"model m():\n    instance:\n        z: float[5]\n        free: int\n        y: float\n    e = Embedding(3, 2)\n    a = Linear(5, 3)\n    h = a(z)\n    {body}\n"
    (d,) = mistakes(program, checked=True)
    assert d.message == message and d.primary is not None
    assert not mistakes(program.replace("int\n", "int < 3\n").replace("3, 2)", "10, 2)").replace("Linear(5, 3)", "Linear(5, 5)").replace("free, 3", "free, 6").replace("(z), 3", "(z), 6"))


def test_mistake_in_a_function_names_all_calls_on_the_way() -> None:
    program = (
        "model m():\n    instance:\n        z: float[3]\n        y: float\n    a = Linear(4, 1)\n    def f(v):\n        return a(v)\n    def g(v):\n        return f(2 * v)\n"
        "    loss squared(g(z), y)\n"
    )
    (d,) = mistakes(program)
    assert [(label.span.line, label.text) for label in d.secondary][-2:] == [(9, "in this call of `f`"), (10, "in this call of `g`")]


PARAMETERS = "model m(hidden = 4, rate = 0.5, deep = false):\n    instance:\n        z: float[3]\n        y: float\n    a = Linear(3, hidden)\n    loss squared(sum(dropout(a(z), rate)), y)\n"


@pytest.mark.parametrize(("overrides", "code", "message", "help"), [
    ({"hiden": 8}, "AMP250", "unknown model parameter `hiden`", "did you mean `hidden`?"),
    ({"nothing": 8}, "AMP250", "unknown model parameter `nothing`", "model `m` has the parameters `hidden`, `rate`, `deep`"),
    ({"hidden": 8.5}, "AMP251", "parameter `hidden` is an integer, got `8.5`", None),
    ({"hidden": True}, "AMP251", "parameter `hidden` is an integer, got `true`", None),
    ({"deep": 1}, "AMP251", "parameter `deep` is `true` or `false`, got `1`", None),
    ({"rate": float("nan")}, "AMP251", "parameter `rate` is a number, got `nan`", None),
    ({"hidden": 0}, "AMP254", "`outputs` of `a` has to be within 1 and 2147483647, got 0", None),
])
def test_wrong_overrides(overrides: dict[str, int | float | bool], code: str, message: str, help: str | None) -> None:
    (d,) = mistakes(PARAMETERS, **overrides)
    assert (d.code, d.message, d.help) == (code, message, help)


def test_overrides_take_the_kind_of_the_default() -> None:
    graph = lower(parse(PARAMETERS, "model.amp"), {"hidden": 6.0, "rate": 0, "deep": True})
    assert graph.parameters == {"hidden": 6, "rate": 0.0, "deep": True}
    assert graph.layer["a"].params[0].shape == (3, 6)


def test_defaults_may_follow_from_earlier_parameters() -> None:
    program = "model m(n = 4, twice = 2 * n):\n    instance:\n        z: float[3]\n        y: float\n    a = Linear(3, twice)\n    loss squared(sum(a(z)), y)\n"
    assert lower(parse(program, "model.amp"), {"n": 5}).layer["a"].params[0].shape == (3, 10)


def test_every_setting_that_a_layer_may_have_is_taken() -> None:
    rows = "".join(f"        a.{s.name} = {'adam' if s.what == 'word' else 1}\n" for s in SETTINGS.values() if s.per_layer)
    graph = lower(parse(PARAMETERS + "    train:\n" + rows, "model.amp"), {})
    assert set(graph.layer["a"].settings) == {s.name for s in SETTINGS.values() if s.per_layer}


def test_settings_of_the_run_and_of_layers() -> None:
    program = PARAMETERS + "    train:\n        optimizer = adam\n        learning_rate = 0.1 / hidden\n        a.min_update_frequency = 10 * 10\n"
    graph = lower(parse(program, "model.amp"), {})
    assert graph.train == {"optimizer": "adam", "learning_rate": 0.025}
    assert graph.layer["a"].settings == {"min_update_frequency": 100}
