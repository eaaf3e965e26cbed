"""`precision = bf16`: rounding, products, what is kept float32, and the reasons for which it is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampc
from ampc.diagnostics import AmpError
from ampc.runtime import blas, half, plain
from ampc.runtime.engine import Engine
from ampc.runtime.options import EngineOptions
from ampc.runtime.program import Program
from tests.support import dataset, random_rows, small, spread

Floats = npt.NDArray[np.float32]
SPECIAL = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x00000001, 0x807FFFFF, 0x00800000, 0x80000000, 0x3F808000, 0x3F818000]
"""Infinities, NaNs (one whose digits are all in the lower half), the largest number, numbers below the normal ones, -0, and two ties."""


def floats(bits: list[int]) -> Floats:
    return np.array(bits, np.uint32).view(np.float32)


def widened(halves: npt.NDArray[np.uint16]) -> Floats:
    return (halves.astype(np.uint32) << 16).view(np.float32)


def nearest(bits: int) -> int:
    """The rule of rounding, from the two neighbours and their distances, in exact arithmetic."""
    sign, size = bits & 0x80000000, bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return bits >> 16 | 0x40
    if size < 0x00800000:
        return sign >> 16
    low, rest = size >> 16, size & 0xFFFF
    up = rest > 0x8000 or (rest == 0x8000 and low % 2 == 1)
    return sign >> 16 | low + up


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
@settings(max_examples=30)
def test_rounding_goes_to_the_nearest_and_ties_to_even(bits: list[int]) -> None:
    bits = bits + SPECIAL
    x = floats(bits)
    assert half.rounded(x).tolist() == [nearest(b) for b in bits]
    F = np.concatenate([x, np.zeros(len(bits), np.float32)])
    plain_to_half(F, 2 * len(bits), 0, len(bits))
    assert F.view(np.uint16)[2 * len(bits) : 3 * len(bits)].tolist() == [nearest(b) for b in bits]


def plain_to_half(F: Floats, h: int, x: int, count: int) -> None:
    whole = count - count % 16
    for i in range(0, whole, 16):
        plain.put_halves(F, h + i, x + i)
    for i in range(whole, count):
        plain.put_half(F, h + i, x + i)


def test_infinities_and_nans_stay_what_they_are_and_the_largest_numbers_become_infinite() -> None:
    values = widened(half.rounded(floats(SPECIAL)))
    assert values[:2].tolist() == [np.inf, -np.inf] and np.isnan(values[2:5]).all() and values[5] == np.inf
    assert values[6:8].tolist() == [0.0, 0.0] and values[8] > 0 and np.signbit(values[9])


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0)])
def test_the_plain_product_is_that_of_the_rounded_factors(ta: int, tb: int) -> None:
    rng = np.random.default_rng(ta + 2 * tb)
    m, n, k = 5, 7, 11
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((k, m) if ta else (m, k), (n, k) if tb else (k, n), (m, n)))
    F = np.zeros(m * n + m * k + n * k + 8, np.float32)
    F[: m * n] = c.ravel()
    at_a = 2 * m * n
    at_b = at_a + m * k
    F.view(np.uint16)[at_a:at_b], F.view(np.uint16)[at_b : at_b + n * k] = half.rounded(a.ravel()), half.rounded(b.ravel())
    plain.gemm_half(F, ta, tb, m, n, k, -0.5, at_a, a.shape[1], at_b, b.shape[1], 1.0, 0, n)
    x, y = (widened(half.rounded(v.ravel())).reshape(v.shape).astype(np.float64) for v in (a, b))
    expected = c - 0.5 * ((x.T if ta else x) @ (y.T if tb else y))
    assert np.allclose(F[: m * n].reshape(m, n), expected, rtol=1e-5, atol=1e-5)  # sums of float32


# ------------------------------------------------------------------------------------------ what is refused

REASONS = {
    "neither AMX-BF16 nor AVX512-BF16": {"_processor_flags": lambda: frozenset({"avx2"})},
    "kernels run as plain Python": {"JIT": False},
    "`AMPC_BLAS=openblas` refuses MKL": {"_refused": lambda: True},
    "MKL is not installed": {"_mkl": lambda: None},
    "this MKL is too old": {"_mkl": lambda: object()},
}
HAS_ALL = {"_processor_flags": lambda: frozenset({"amx_bf16", "avx512_bf16"}), "_refused": lambda: False, "JIT": True}


def pretend(monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]) -> None:
    for name, value in {**HAS_ALL, **parts}.items():
        monkeypatch.setattr(f"ampc.runtime.settings.{name}" if name == "JIT" else f"ampc.runtime.blas.{name}", value)


@pytest.mark.parametrize("reason", REASONS)
def test_the_reason_of_a_refusal_is_named_with_a_remedy(reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend(monkeypatch, REASONS[reason])
    blas.require("fp32")
    lacks = blas.half_lacks()
    assert lacks is not None and reason in lacks[0]
    program = Program(ampc.compile("digits_mlp").manifest)
    rows = random_rows(program.graph, 4, seed=0)
    with pytest.raises(AmpError) as caught:
        program.train(rows, precision="bf16", epochs=1, run_folder=tmp_path / "run")
    (d,) = caught.value.diagnostics
    assert d.code == "AMP734" and caught.value.exit_code == 4 and reason in d.message
    assert d.help == f"{lacks[1]}, or leave `precision` at `fp32`"
    assert not (tmp_path / "run").exists()


def test_what_has_all_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"_mkl": lambda: None, "half_address": lambda: 1})
    monkeypatch.setattr("ampc.runtime.blas._mkl", lambda: object())
    assert blas.half_lacks() is None and blas.half_instructions() == "AMX"
    blas.require("bf16")


def test_doctor_says_whether_it_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    from ampc.cli import doctor

    pretend(monkeypatch, {"_mkl": lambda: None})
    assert doctor.half().startswith("no: MKL is not installed")
    pretend(monkeypatch, {"_mkl": lambda: object(), "half_address": lambda: 1, "_processor_flags": lambda: frozenset({"avx512_bf16"})})
    assert doctor.half() == "yes, by AVX512-BF16"


# ------------------------------------------------------------------------------------------ the engine, where it can be had or not


def test_text_of_kernels_names_the_twins_and_that_of_float32_none() -> None:
    from ampc.codegen.kernels import generate

    graph = small("qm9_ggsnn")
    device_of = dict.fromkeys((n.id for n in graph.nodes), 0)
    single, other = (generate(graph, device_of, half=h).text for h in (False, True))
    imported = re.search(r"from ampc\.runtime\.half import (.*)", other)
    assert imported is not None and {"linear_half as linear", "linear_dx_half as linear_dx", "linear_dw_half as linear_dw"} <= {*imported[1].split(", ")}
    assert not re.search(r"from ampc\.runtime\.(rows|products) import .*\blinear", other)
    assert "half" not in single


def make(precision: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Engine:
    """An engine of plain kernels with its products of bf16: their plain twin stands for MKL. All products are worth it."""
    monkeypatch.setattr("ampc.runtime.blas.require", lambda precision: None)
    monkeypatch.setattr(half, "FEW_ROWS", 0)
    monkeypatch.setattr(half, "SMALL", 0)
    graph = small(options.pop("model", "sentiment_tree_lstm"))
    workers = options.pop("workers", 1)
    return Engine(graph, spread(graph, workers), options=EngineOptions(workers=workers, precision=precision, **options))  # type: ignore[arg-type]


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """The largest difference between two sets of gradients, relative to the size of each."""
    return max(float(np.linalg.norm(a[k] - b[k]) / max(np.linalg.norm(b[k]), 1e-6)) for k in b)


@pytest.mark.parametrize("model", ["sentiment_tree_lstm", "qm9_ggsnn", "list_reduction"])
def test_gradients_are_those_of_float32_up_to_the_rounding_of_factors(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {p: make(p, monkeypatch, model=model, max_active_keys=3, workers=2, driver="step") for p in ("fp32", "bf16")}
    data = dataset(engines["fp32"].graph, random_rows(engines["fp32"].graph, 5, seed=1))
    single, other = (e.gradients(data, np.arange(data.n)) for e in engines.values())
    # A bf16 number has 8 digits: a factor is off by at most 2^-9 of its size; through some products in a row a few times that.
    assert 1e-5 < distance(other, single) < 0.05


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"optimizer": "sgd"}, {"staleness": "stash"}, {"staleness": "corrected"}], ids=str)
def test_kept_parameters_follow_every_update(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    e = make("bf16", monkeypatch, model="qm9_ggsnn", max_active_keys=3, min_update_frequency=2, learning_rate=0.01, **settings)
    data = dataset(e.graph, random_rows(e.graph, 6, seed=2))
    e.run(data, np.arange(data.n), train=True)
    halves = e._F.view(np.uint16)
    kept = [m for m in e.layers.values() if m.half]
    assert kept
    for m in kept:
        assert np.array_equal(halves[m.half : m.half + m.size], half.rounded(e._F[m.param : m.param + m.size])), m.name


def test_predictions_use_the_weights_that_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {p: make(p, monkeypatch, model="list_reduction") for p in ("fp32", "bf16")}
    data = dataset(engines["fp32"].graph, random_rows(engines["fp32"].graph, 4, seed=3))
    found = {}
    for p, e in engines.items():
        e.run(data, np.arange(4), train=False, outputs=True)
        e.set_parameters({k: 3 * v for k, v in e.parameters.items()})
        found[p] = np.concatenate(e.run(data, np.arange(4), train=False, outputs=True).outputs["logits"])
    assert not np.array_equal(found["fp32"], found["bf16"]) and np.allclose(found["fp32"], found["bf16"], rtol=0.05, atol=0.05 * np.abs(found["fp32"]).max())


def test_a_run_says_its_precision_and_goes_on_in_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("ampc.runtime.blas.require", lambda precision: None)
    program = Program(ampc.compile("digits_mlp").manifest)
    rows, folder = random_rows(program.graph, 8, seed=0), tmp_path / "run"
    settings: dict[str, Any] = {"until": "", "driver": "step"}
    for k, precision in enumerate(("bf16", "fp32", "bf16")):
        resume = {"resume": folder} if k else {"run_folder": folder}
        summary = program.train(rows, rows, precision=precision, epochs=k + 1, **resume, **settings)
        assert summary.precision == precision and summary.blas and summary.epochs == k + 1
        assert json.loads((folder / "summary.json").read_text())["precision"] == precision
        assert f'precision = "{precision}"' in (folder / "config.toml").read_text()


# ------------------------------------------------------------------------------------------ compiled


@pytest.mark.compiled
def test_compiled_rounding_is_the_rule() -> None:
    """Whatever the processor: with its instruction where it has one."""
    from numba import njit

    from ampc.runtime.half import to_half
    from ampc.runtime.native import ensure, pointer

    ensure("to_half")

    @njit
    def convert(F: Any, h: int, count: int) -> None:
        to_half(pointer(F), h, 0, count)  # type: ignore[arg-type, call-arg]

    rng = np.random.default_rng(0)
    bits = [*SPECIAL, *rng.integers(0, 2**32, 1000).tolist()]
    for count in (1, 15, 16, 17, len(bits)):
        F = np.concatenate([floats(bits), np.zeros(len(bits), np.float32)])
        convert(F, 2 * len(bits), count)
        assert F.view(np.uint16)[2 * len(bits) : 2 * len(bits) + count].tolist() == [nearest(b) for b in bits[:count]]


@pytest.mark.compiled
def test_compiled_products_of_bf16_or_their_refusal() -> None:
    """Where this machine has them: each product of a layer beside float64, and a step of training; else the reason."""
    graph = ampc.compile("mnist_mlp").graph
    options: dict[str, Any] = {"max_active_keys": 1, "group": 64, "min_update_frequency": 64, "optimizer": "sgd", "learning_rate": 0.1}

    def made() -> Engine:
        return Engine(graph, spread(graph, 1), options=EngineOptions(precision="bf16", **options))

    if (lacks := blas.half_lacks()) is not None:
        with pytest.raises(AmpError, match=re.escape(lacks[0])):
            made()
        return
    for m, k, n in ((64, 200, 96), (37, 130, 251), (16, 256, 256), (4, 8, 8)):
        check_products(m, k, n)
    e = made()
    data = dataset(graph, random_rows(graph, 64, seed=3))
    before, gradients = e.parameters, e.gradients(data, np.arange(64))
    e.run(data, np.arange(64), train=True)
    for name, value in e.parameters.items():
        assert np.allclose(value, before[name] - 0.1 * gradients[name] / 64, rtol=1e-5, atol=1e-6), name


def check_products(m: int, k: int, n: int) -> None:
    """y = x w + b, dx = dy w', gw += x' dy and gb, with the kernels that generated text names, against float64 of the rounded factors."""
    from numba import njit

    from ampc.codegen.layout import G
    from ampc.runtime.half import linear_dw_half, linear_dx_half, linear_half
    from ampc.runtime.native import ensure, pointer

    ensure("linear_half", "linear_dx_half", "linear_dw_half")

    @njit
    def layer(F: Any, words: Any, at: Any, m: int, k: int, n: int) -> None:
        f, i = pointer(F), pointer(words)
        linear_half(f, i, 0, at[4], at[1], at[0], at[3], m, k, n)
        linear_dx_half(f, i, 0, at[5], at[2], at[0], m, k, n, 0)
        linear_dw_half(f, i, 0, at[6], at[7], at[1], at[2], m, k, n)

    rng = np.random.default_rng(m)
    w, x, dy, b = (rng.normal(size=s).astype(np.float32) for s in ((k, n), (m, k), (m, n), (n,)))
    start = rng.normal(size=(k, n)).astype(np.float32)
    parts = [w, x, dy, b, np.zeros((m, n)), np.zeros((m, k)), start, np.zeros(n)]
    at = np.cumsum([0, *(p.size for p in parts)])
    halves = 2 * int(at[-1])
    F = np.concatenate([*(p.ravel().astype(np.float32) for p in parts), np.zeros(k * n + m * (k + n), np.float32)])
    F.view(np.uint16)[halves : halves + k * n] = half.rounded(w.ravel())
    words = np.zeros(G.END, np.int64)
    words[G.MIRROR], words[G.MIRRORED], words[G.ROUNDED] = halves, k * n, -1
    words[G.LEFT], words[G.RIGHT] = halves + k * n, halves + k * n + m * k
    layer(F, words, at, m, k, n)
    if m >= half.FEW_ROWS and m * k * n >= half.SMALL:
        w, x, dy16 = (widened(half.rounded(v.ravel())).reshape(v.shape) for v in (w, x, dy))
    else:
        dy16 = dy
    exact = [v.astype(np.float64) for v in (w, x, dy16)]
    wanted = [exact[1] @ exact[0] + b, exact[2] @ exact[0].T, start + exact[1].T @ exact[2], dy.astype(np.float64).sum(axis=0)]
    for part, value in zip((4, 5, 6, 7), wanted, strict=True):
        # Products of bf16 are exact in float32; what differs is the order of sums of at most 256 numbers of size 1.
        assert np.allclose(F[at[part] : at[part + 1]].reshape(value.shape), value, rtol=1e-5, atol=1e-4), (part, m, k, n)
