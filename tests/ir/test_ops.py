"""Every operation: its shape rule, its derivative by differences, its kernel text against numpy; zero and extreme cases."""

from __future__ import annotations

import numpy as np
import pytest
from ir.examples import EXAMPLES, UNIT, Example, numbers
from ir.scalar_text import evaluate

from ampc.ir import OPS, FieldDecl, RowIndex, Scope, Segments, ShapeError, metric_value
from ampc.ir.nodes import Type

NO_GRADIENT = ("metric", "integer")


def test_every_entry_is_complete():
    """Says what an entry still lacks: an example, a sentence, kernel text, a derivative that a test checks."""
    covered = {e.op for e in EXAMPLES}
    lacking = {}
    for name, op in OPS.items():
        missing = [what for what, there in {
            "an example in tests/ir/examples.py": name in covered,
            "a help text": bool(op.help),
            "kernel text": op.group not in ("unary", "binary") or bool(op.expr),
            "a gradient text for each operand": op.group not in ("unary", "binary") or len(op.grads) == op.messages[1],
            "parameter names": op.group != "parameter" or bool(op.params),
            "the name of its key": op.name == name,
        }.items() if not there]
        if missing:
            lacking[name] = missing
    assert not lacking


@pytest.mark.parametrize("e", EXAMPLES, ids=str)
def test_shape_rule_agrees_with_the_arrays(e: Example):
    op = OPS[e.op]
    shapes = {k: v.shape for k, v in e.params.items()}
    inferred = op.infer(e.types, e.declared, e.attrs, shapes, e.scope)
    y = op.fwd(e.operands, e.fields, e.params, e.attrs)
    if e.result is None:
        assert inferred == ()
        assert y.shape == ((1, 1) if op.group == "loss" else (1, 2))
        return
    assert inferred == (e.result,)
    assert y.shape[1] == e.result.cols
    assert (y.dtype.kind == "i") == e.result.integer


@pytest.mark.parametrize("e", EXAMPLES, ids=str)
def test_derivative_equals_differences(e: Example):
    """Central differences of step 1e-6 in float64 are good to about 1e-9 here; the tolerance leaves room for curvature."""
    op = OPS[e.op]
    y = op.fwd(e.operands, e.fields, e.params, e.attrs)
    g = np.cos(np.arange(y.size)).reshape(y.shape)
    d_operands, d_params = op.bwd(e.operands, e.fields, e.params, e.attrs, y, g)
    assert [d.shape for d in d_operands] == [x.shape for x in e.operands]
    assert {k: v.shape for k, v in d_params.items()} == {k: v.shape for k, v in e.params.items()}
    if op.group in NO_GRADIENT or e.op in ("stop_gradient", "unit"):
        assert not any(d.any() for d in d_operands)
        return
    for i, x in enumerate(e.operands):
        if x.dtype.kind == "f":
            np.testing.assert_allclose(d_operands[i], differences(e, x, g), rtol=1e-6, atol=1e-8)
    for name, value in e.params.items():
        np.testing.assert_allclose(d_params[name], differences(e, value, g), rtol=1e-6, atol=1e-8, err_msg=name)


def differences(e: Example, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    """d (g . y) / dx, where `x` is one of the example's own arrays."""
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        kept = x[i]
        ends = []
        for step in (1e-6, -1e-6):
            x[i] = kept + step
            ends.append(float((g * OPS[e.op].fwd(e.operands, e.fields, e.params, e.attrs)).sum()))
        x[i] = kept
        out[i] = (ends[0] - ends[1]) / 2e-6
    return out


@pytest.mark.parametrize("e", [e for e in EXAMPLES if OPS[e.op].expr], ids=str)
def test_kernel_text_equals_numpy(e: Example):
    op = OPS[e.op]
    y = op.fwd(e.operands, [], {}, e.attrs)
    g = np.cos(np.arange(y.size)).reshape(y.shape)
    whole = [np.broadcast_to(x, y.shape) for x in e.operands]
    d_whole = op.bwd([np.array(x) for x in whole], [], {}, e.attrs, y, g)[0]
    fixed = {f"a_{k}": v for k, v in e.attrs.items()} | {f"c_{k}": v for k, v in op.constants.items()}
    for i in np.ndindex(y.shape):
        names = fixed | {f"x{k}": float(x[i]) for k, x in enumerate(whole)}
        assert evaluate(op.expr, names) == pytest.approx(y[i], rel=1e-12, abs=1e-12)
        for text, d in zip(op.grads, d_whole, strict=True):
            assert evaluate(text, names | {"y": float(y[i]), "g": float(g[i])}) == pytest.approx(d[i], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("e", EXAMPLES, ids=str)
def test_float32_stays_float32(e: Example):
    op = OPS[e.op]

    def cast(x):
        return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x

    operands, fields, params = [cast(x) for x in e.operands], [cast(f) for f in e.fields], {k: cast(v) for k, v in e.params.items()}
    y = op.fwd(operands, fields, params, e.attrs)
    if op.group == "metric" or y.dtype.kind == "i":
        return
    assert y.dtype == np.float32
    d_operands, d_params = op.bwd(operands, fields, params, e.attrs, y, np.ones_like(y))
    assert {d.dtype for d in (*d_operands, *d_params.values())} <= {np.dtype(np.float32)}


def test_needs_lists_what_the_gradients_read():
    assert OPS["relu"].needs == ("y",)
    assert OPS["mul"].needs == ("x0", "x1")
    assert OPS["div"].needs == ("x1", "y")
    assert OPS["add"].needs == ()


# ------------------------------------------------------------------------------------------- zero and extreme cases


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("z", "label", "loss"), [
    ([1e8, 1e8], 1, np.log(2)), ([-1e8, -1e8], 0, np.log(2)), ([0, 200], 1, 0), ([0, 200], 0, 200), ([3e38, -3e38], 0, 0),
])
def test_cross_entropy_of_large_logits_is_exact(z, label, loss, dtype):
    x, target = [np.array([z], dtype)], [np.array([label])]
    y = OPS["cross_entropy"].fwd(x, target, {}, {})
    assert y[0, 0] == pytest.approx(loss, rel=1e-6)
    d = OPS["cross_entropy"].bwd(x, target, {}, {}, y, np.ones((1, 1), dtype))[0][0]
    assert np.isfinite(d).all()
    if z[0] == 1e8:
        np.testing.assert_allclose(d, [[0.5, -0.5]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("z", "target", "loss"), [(100, 1, 0), (100, 0, 100), (-100, 1, 100), (0, 1, np.log(2)), (3e38, 1, 0)])
def test_binary_cross_entropy_of_large_logits_is_exact(z, target, loss, dtype):
    x, t = [np.array([[z]], dtype)], [np.array([target])]
    y = OPS["binary_cross_entropy"].fwd(x, t, {}, {})
    assert y[0, 0] == pytest.approx(loss, abs=1e-6)
    assert np.isfinite(OPS["binary_cross_entropy"].bwd(x, t, {}, {}, y, np.ones((1, 1), dtype))[0][0]).all()


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_large_values_is_finite(name):
    y = OPS[name].fwd([np.array([[3e38, -3e38, 3e38]], np.float32)], [], {}, {})
    assert y[0, 0] == pytest.approx(0.5 if name == "softmax" else np.log(0.5))
    assert not np.isnan(y).any()


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_reduction_over_nothing_is_zero(reduce):
    nothing = np.zeros((0, 2))
    assert OPS["reduce_rows"].fwd([nothing], [Segments(np.array([0, 0]))], {}, {"reduce": reduce}).tolist() == [[0, 0]]
    assert OPS["scatter"].fwd([nothing], [RowIndex(np.array([], int), 2)], {}, {"reduce": reduce}).tolist() == [[0, 0], [0, 0]]
    middle = OPS["reduce_rows"].fwd([-np.ones((2, 1))], [Segments(np.array([0, 1, 1, 2]))], {}, {"reduce": reduce})
    assert middle.tolist() == [[-1], [0], [-1]]


def test_many_small_rows_are_summed_without_loss():
    """A running float32 sum of 100,000 tenths ends at 9998.557; added in float64 and rounded once it is right to the last digit."""
    tenths = np.full((100_000, 1), 0.1, np.float32)
    for field in (Segments(np.array([0, 100_000])), RowIndex(np.zeros(100_000, int), 1)):
        y = OPS["reduce_rows" if isinstance(field, Segments) else "scatter"].fwd([tenths], [field], {}, {"reduce": "sum"})
        assert y[0, 0] == np.float32(10000.00015)


def test_softmax_over_no_rows_is_empty():
    op = OPS["softmax_rows"]
    y = op.fwd([np.zeros((0, 2))], [Segments(np.array([0, 0]))], {}, {})
    assert y.shape == (0, 2)
    assert op.bwd([y], [Segments(np.array([0, 0]))], {}, {}, y, y)[0][0].shape == (0, 2)


@pytest.mark.parametrize("name", ["reduce_rows", "scatter"])
def test_first_of_equal_rows_gets_the_gradient_of_max(name):
    x = np.array([[1.0, 5.0], [2.0, 5.0], [2.0, 1.0]])
    field = Segments(np.array([0, 3])) if name == "reduce_rows" else RowIndex(np.zeros(3, int), 1)
    y = OPS[name].fwd([x], [field], {}, {"reduce": "max"})
    assert OPS[name].bwd([x], [field], {}, {"reduce": "max"}, y, np.array([[1.0, 2.0]]))[0][0].tolist() == [[0, 2], [1, 0], [0, 0]]


def test_first_of_equal_columns_gets_the_gradient_of_max():
    x = np.array([[1.0, 2.0, 2.0]])
    assert OPS["max_columns"].bwd([x], [], {}, {}, np.array([[2.0]]), np.array([[1.0]]))[0][0].tolist() == [[0, 1, 0]]
    assert OPS["maximum"].bwd([x, x], [], {}, {}, x, np.ones((1, 3)))[0][1].tolist() == [[0, 0, 0]]


@pytest.mark.parametrize(("name", "attrs"), [("sqrt", {}), ("power", {"exponent": 0.5}), ("power", {"exponent": 0.0}), ("abs", {}), ("relu", {})])
def test_gradient_at_zero_is_zero_where_there_is_none(name, attrs):
    x = np.zeros((1, 1))
    assert OPS[name].bwd([x], [], {}, attrs, OPS[name].fwd([x], [], {}, attrs), np.ones((1, 1)))[0][0].tolist() == [[0]]
    names = {f"a_{k}": v for k, v in attrs.items()} | {"x0": 0.0, "y": float(OPS[name].fwd([x], [], {}, attrs)[0, 0]), "g": 1.0}
    assert evaluate(OPS[name].grads[0], names) == 0


def test_rows_without_target_are_left_out():
    metric = OPS["accuracy"].fwd([np.eye(3)], [np.array([0, -1, 0])], {}, {})
    assert metric.tolist() == [[1, 2]]
    assert metric_value("accuracy", *metric[0]) == 0.5
    assert metric_value("accuracy", 0, 0) is None
    assert metric_value("root_mean_square_error", 18, 2) == 3
    assert OPS["squared"].fwd([np.ones((2, 1))], [np.array([[np.nan], [3.0]])], {}, {}).tolist() == [[4]]


def test_top_k_counts_ties_by_column():
    x = np.array([[1.0, 1.0, 0.0]] * 3)
    assert OPS["top_k"].fwd([x], [np.array([0, 1, 2])], {}, {"k": 1})[0, 0] == 1
    assert OPS["top_k"].fwd([x], [np.array([0, 1, 2])], {}, {"k": 2})[0, 0] == 2


# -------------------------------------------------------------------------------------------------- wrong operands

INT, F = Type("atom", 1, True), Type("atom", 3)
EDGE, KIND = FieldDecl("source", "index", "bond", of="atom"), FieldDecl("kind", "int", "atom", below=4)


@pytest.mark.parametrize(("name", "types", "fields", "attrs", "params", "message"), [
    ("relu", (), (), {}, {}, "`relu` takes 1 message operand, got 0"),
    ("relu", (INT,), (), {}, {}, "`relu` works on floats, got int [atom, 1]"),
    ("relu", (Type(),), (), {}, {}, "`relu` needs at least one column, got unit"),
    ("relu", (F,), (KIND,), {}, {}, "`relu` takes 0 field operands, got 1"),
    ("relu", (F,), (), {"slope": 1.0}, {}, "`relu` has no attribute `slope`"),
    ("affine", (F,), (), {"scale": 1.0}, {}, "`affine` needs attribute `shift`"),
    ("affine", (F,), (), {"scale": "x", "shift": 0.0}, {}, "attribute `scale` of `affine` is a number, got `x`"),
    ("affine", (F,), (), {"scale": float("nan"), "shift": 0.0}, {}, "attribute `scale` of `affine` is nan, allowed is `scale`, finite"),
    ("dropout", (F,), (), {"rate": 1.0}, {}, "attribute `rate` of `dropout` is 1.0, allowed is 0 <= `rate` <= 0.999999, finite"),
    ("clip", (F,), (), {"low": 1.0, "high": 0.0}, {}, "`clip` has low 1.0 above high 0.0"),
    ("add", (F, Type("atom", 2)), (), {}, {}, "`add` needs equal columns, or 1 on one side, got [atom, 3] and [atom, 2]"),
    ("add", (F, Type("bond", 3)), (), {}, {}, "`add` needs rows of the same axis, or a single row on one side, got [atom, 3] and [bond, 3]"),
    ("pad", (F,), (), {"cols": 2}, {}, "`pad` to 2 columns needs no more than that, got [atom, 3]"),
    ("columns", (F,), (), {"start": 2, "stop": 4}, {}, "columns 2:4 lie outside of [atom, 3]"),
    ("dot", (F, Type("atom", 2)), (), {}, {}, "`dot` needs equal columns, got [atom, 3] and [atom, 2]"),
    ("gather", (Type("bond", 3),), (EDGE,), {}, {}, "`source` holds positions on `atom`, `gather` got [bond, 3]"),
    ("gather", (F,), (KIND,), {}, {}, "`gather` needs an index field, `kind` is of kind int"),
    ("scatter", (F,), (EDGE,), {"reduce": "sum"}, {}, "`scatter` needs a row for each position of whole index field `source`, got [atom, 3]"),
    ("reduce_rows", (F,), (), {"reduce": "median"}, {}, "attribute `reduce` of `reduce_rows` is one of sum, mean, max, got `median`"),
    ("reduce_rows", (Type("", 3),), (), {"reduce": "sum"}, {}, "`reduce_rows` works over the rows of an axis, got a single row [3]"),
    ("expand_rows", (Type("", 3),), (), {}, {}, "`expand_rows` needs to be told the axis of its result"),
    ("linear", (F,), (), {}, {"w": (4, 2)}, "`linear` with weights [4, 2] takes 4 columns, got [atom, 3]"),
    ("linear", (F,), (), {}, {"w": (3, 2), "b": (3,)}, "`linear` with weights [3, 2] needs a bias of [2], got [3]"),
    ("linear", (F,), (), {}, {"table": (3, 2)}, "`linear` needs parameters w, the layer has table"),
    ("linear_part", (F,), (), {"first": 2}, {"w": (4, 2)}, "`linear_part` of weights [4, 2] takes 2 columns at most from row 2 on, got [atom, 3]"),
    ("linear_by", (F,), (KIND,), {"members": 2}, {"0.w": (3, 2), "1.w": (3, 2)},
     "`linear_by` needs an int field below 2, its members, `kind` is int below 4"),
    ("lookup", (Type(),), (KIND,), {}, {"table": (3, 2)}, "`lookup` of `kind`, an int below 4, needs as many rows in the table, got 3"),
    ("lookup", (F,), (), {}, {"table": (3, 2)}, "`lookup` reads one integer a row, got [atom, 3]"),
    ("lookup", (F,), (KIND,), {}, {"table": (4, 2)}, "`lookup` is started by a unit message, got [atom, 3]"),
    ("layer_norm", (F,), (), {"eps": 1e-5}, {"gain": (2,), "bias": (2,)}, "`layer_norm` with a gain of [2] takes 2 columns, got [atom, 3]"),
    ("field", (Type(),), (KIND,), {}, {}, "`field` reads a float field, `kind` is of kind int"),
    ("one_hot", (Type(),), (KIND,), {"cols": 3}, {}, "`one_hot` of `kind`, an int below 4, needs as many columns, got 3"),
    ("less", (F, F), (), {}, {}, "`less` compares two numbers of one kind, got [atom, 3] and [atom, 3]"),
    ("at_least", (F,), (), {"threshold": 1}, {}, "`at_least` compares one number a row, got [atom, 3]"),
    ("both", (F, INT), (), {}, {}, "`both` joins results of comparisons, got [atom, 3]"),
    ("gate", (F, F), (), {}, {}, "`gate` waits for one integer, got [atom, 3]"),
    ("cross_entropy", (F,), (), {}, {}, "`cross_entropy` needs one target: a field or a second value"),
    ("cross_entropy", (F,), (KIND,), {}, {}, "`cross_entropy` of `kind`, an int below 4, needs as many columns, got 3"),
    ("cross_entropy", (F, F), (), {}, {}, "`cross_entropy` needs an int target, got [atom, 3]"),
    ("squared", (F,), (KIND,), {}, {}, "`squared` needs a target of as many columns, got [atom, 3] and [atom, 1]"),
    ("squared", (Type("", 1),), (KIND,), {}, {}, "`squared` needs a target for each row, got [1] and a target over `atom`"),
    ("squared", (Type("bond", 1),), (EDGE,), {}, {}, "`squared` needs a number as its target, `source` is an index field"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_wrong_operands_are_told(name, types, fields, attrs, params, message):
    with pytest.raises(ShapeError) as caught:
        OPS[name].infer(types, fields, attrs, params, Scope())
    assert str(caught.value) == message


def test_dropout_scales_what_it_keeps():
    x, keep = numbers(2, 2), np.array([[True, False], [True, True]])
    y = OPS["dropout"].fwd([x], [keep], {}, {"rate": 0.5})
    np.testing.assert_allclose(y, np.where(keep, 2 * x, 0))
    assert UNIT.shape == (1, 0)
