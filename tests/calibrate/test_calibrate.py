"""Calibration: fits that find what made the times, the report and the target file, refusals; once with real measurements."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampc
from ampc import calibrate as calibration
from ampc.calibrate import crossing, fit, handling, loops, programs, report
from ampc.calibrate.fit import Figure
from ampc.calibrate.measure import Calibration, Point
from ampc.calibrate.threads import together
from ampc.codegen.layout import G as Words
from ampc.codegen.plan import make_plan
from ampc.diagnostics import AmpError
from ampc.place import Device, load_target, parse_target, usable_cores
from ampc.place.target import Handling
from ampc.runtime import blas


SHAPES = [(m, k, n) for k, n in ((16, 16), (128, 10), (128, 128), (784, 784)) for m in (1, 4, 16, 64, 256)]


@given(st.floats(1e9, 1e12), st.sampled_from(fit.HALVES), st.sampled_from(fit.HALVES), st.floats(0, 1e-6))
@settings(max_examples=20, deadline=None)
def test_the_fit_of_products_finds_rate_and_halves(rate: float, half: float, columns: float, call_s: float) -> None:
    seconds = [call_s + 6 * (m + half) * (k + columns) * (n + columns) / rate for m, k, n in SHAPES]
    assert fit.products(SHAPES, seconds) == pytest.approx((rate, half, columns, 0.0, 0.0), rel=1e-6, abs=1e-6)
    longer = [s + 16 * k * n / 3e10 * (k == 784) for (_, k, n), s in zip(SHAPES, seconds)]  # these do not fit into a cache of 1 MB
    assert fit.products(SHAPES, longer, 1 << 20) == pytest.approx((rate, half, columns, 3e10, 0.0), rel=1e-5, abs=1e-6)


def test_the_fit_of_products_bears_noise_and_nonsense() -> None:
    rng = np.random.default_rng(0)
    seconds = [6 * (m + 5) * k * n / 1e11 * rng.uniform(0.95, 1.05) for m, k, n in SHAPES]
    rate, half, *_ = fit.products(SHAPES, seconds)
    assert rate == pytest.approx(1e11, rel=0.1)
    assert half == pytest.approx(5, rel=0.25)
    flat, none, *_ = fit.products(SHAPES, [1.0 / (m * k * n) for m, k, n in SHAPES])
    assert flat > 0
    assert none >= 0


def spent(**amounts: Any) -> handling.Spent:
    counts: dict[str, Any] = {"instances": 0, "firings": 0, "tokens": 1, "matrix_flops": 0.0, "called": (), "vector_flops": 0.0, "updates": 0}
    counts |= {k: v for k, v in amounts.items() if k in counts or k == "seconds"}
    return handling.Spent(handled=Handling(**{k: v for k, v in amounts.items() if k not in counts}), **counts)


def test_passes_that_differ_in_what_they_spend_time_on_tell_the_figures_apart() -> None:
    true = dict(zip(handling.FEATURES, (1e-7, 5e-8, 1e-8, 2e-9, 6e-9, 7e-9, 3e-11, 1e-7, 4e-7, 1e-10, 1.1)))
    rng = np.random.default_rng(1)
    device = Device("core", "cpu", {"fp32": 1e11}, 1.0, 1 << 30, 0.0, matrix_half_rows=3.0, matrix_half_columns=4.0)
    passes = []
    for _ in range(15):
        draw = lambda: float(rng.integers(1, 1000))  # noqa: E731  # one word
        p = spent(
            seconds=1.0, instances=draw(), firings=draw(), tokens=draw(), values=draw(), rows=draw(), numbers=draw(), copied_bytes=1e3 * draw(),
            matrix_flops=1e4 * draw(), called=((1e4 * draw(), draw(), draw()),), vector_flops=1e3 * draw(), sides=draw(), corners=draw(),
            updates=draw(),
        )  # fmt: skip
        passes.append(dataclasses.replace(p, seconds=float(np.dot(p.counts(device), list(true.values())))))
    assert handling.figures(passes, device) == pytest.approx(true, rel=1e-6)
    assert handling.residuals(passes, device, true) == pytest.approx([0.0] * 15, abs=1e-9)
    assert handling.residuals([dataclasses.replace(passes[0], seconds=2 * passes[0].seconds)], device, true) == pytest.approx([-0.5])


def test_products_of_a_pass_take_what_the_device_says_of_them() -> None:
    """Two nodes' products, of which one's matrices are too large for the cache."""
    device = Device("core", "cpu", {"fp32": 1e9}, 1.0, 1 << 30, 0.0, matrix_half_rows=2.0, cache_bytes=8_000, far_bytes_per_s=1e6)
    small, large = (2e3 * 5, 0.0, 5.0), (2e4 * 3, 0.0, 3.0)
    p = spent(seconds=1.0, matrix_flops=7e5, called=(small, large))
    told = dict(zip(handling.FEATURES, p.counts(device), strict=True))
    assert told["product_overhead_s"] == 8
    assert told["product_times"] == pytest.approx((7e5 + 2 * (1e4 + 6e4)) / 1e9 + 3e4 * 16 / 3 / 1e6)


def test_of_several_rounds_the_pass_at_the_lower_quartile_of_each_program_counts() -> None:
    rounds = [[spent(seconds=s, tokens=10), spent(seconds=1.0, tokens=t)] for s, t in ((3.0, 5), (1.0, 2), (2.0, 50), (9.0, 1), (8.0, 4))]
    first, second = handling.quick(rounds)
    assert (first.seconds, second.tokens) == (2.0, 5)


def test_updates_are_counted_with_their_operations() -> None:
    """The program of a single step: 8 + 8 and 8 + 1 numbers, 14 operations each by Adam."""
    manifest = ampc.compile(programs.PROGRAMS["one step"], target="cpu-1").manifest
    plan = make_plan(manifest.graph, manifest.placement.device_of)
    found = handling.spent_by(plan, manifest.statistics, 1.0, [(0, 1, 4), (1, 1, 4)], {"start": 3, "end": 2})
    without = handling.spent_by(plan, manifest.statistics, 1.0, [(0, 1, 4), (1, 1, 4)])
    assert found.updates == 5 and found.vector_flops == without.vector_flops + 14.0 * (3 * 16 + 2 * 9)
    assert found.counts(load_target("cpu-1").devices[0])[handling.FEATURES.index("update_overhead_s")] == 5


def test_every_program_of_the_calibration_compiles_and_reads_its_instances() -> None:
    for name, text in programs.PROGRAMS.items():
        program = ampc.compile(text, target="cpu-1")
        assert program.read(programs.instances(text)[:3]).n == 3, name
    assert {c.name for c in programs.cases()} == set(programs.PROGRAMS) >= {*programs.FEWER, *programs.UPDATED}


def test_products_in_loops_are_made_by_one_thread() -> None:
    words = loops.scratch()
    assert len(words) >= Words.END and words[Words.HELPER] == words[Words.PANELS] == 0  # a product reads there who makes it


def test_spread_is_the_width_of_the_middle_half() -> None:
    assert Figure("a", "a", "s", (1.0, 1.0, 1.0, 50.0)).spread == pytest.approx(12.25)
    assert Figure("a", "a", "s", (2.0, 2.0, 2.0)).spread == 0
    assert not Figure("a", "a", "s", (0.0, 0.0, 0.0)).noisy
    assert Figure("a", "a", "s", (0.0, 0.0, 0.0, 1.0, 1.0)).noisy
    assert not Figure("a", "a", "s", (1.0, 1.1, 1.15)).noisy


def made(cores: int, **changes: tuple[float, ...]) -> Calibration:
    values: dict[str, tuple[float, ...]] = {
        "matrix_flops_per_s": (80e9, 82e9, 81e9), "matrix_half_rows": (2.5, 2.6, 2.4), "vector_flops_per_s": (12e9, 12e9, 12e9),
        "far_bytes_per_s": (20e9, 20e9, 21e9), "message_overhead_s": (25e-9, 26e-9, 25e-9), "firing_overhead_s": (80e-9, 80e-9, 80e-9),
    }  # fmt: skip
    values |= dict.fromkeys(("product_overhead_s", "instance_overhead_s", "value_overhead_s", "row_overhead_s", "number_overhead_s",
                             "update_overhead_s"), (5e-9,) * 3)  # fmt: skip
    values |= {"copy_bytes_per_s": (9e9,) * 3, "matrix_half_columns": (4.0,) * 3}
    if cores > 1:
        values |= {"latency_s": (0.5e-6,) * 3, "link_overhead_s": (0.1e-6,) * 3, "link_message_s": (20e-9,) * 3, "link_bytes_per_s": (8e9,) * 3}
    figures = tuple(Figure(name, name, "s", v) for name, v in (values | changes).items())
    return Calibration(cores, "openblas", 25.0, figures, (Point(64, 64, 8, 1e-6),), 0.1, 1.0)


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_the_target_file_says_what_was_measured(cores: int) -> None:
    text = report.target_text(made(cores))
    target = parse_target(text, "cpu.toml")
    assert (target.name, len(target.devices)) == ("cpu", cores)
    device = target.devices[0]
    assert device.matrix_flops_per_s == {"fp32": 81e9}
    fast = parse_target(report.target_text(made(cores, half_speed=(2.0, 2.0, 2.2))), "cpu.toml").devices[0]
    assert fast.matrix_flops_per_s == {"fp32": 81e9, "bf16": 162e9}
    assert (device.matrix_half_rows, device.vector_flops_per_s, device.message_overhead_s, device.firing_overhead_s) == (2.5, 12e9, 25e-9, 80e-9)
    assert (device.matrix_half_columns, device.copy_bytes_per_s, device.row_overhead_s, device.product_overhead_s) == (4.0, 9e9, 5e-9, 5e-9)
    assert (device.update_overhead_s, device.cache_bytes, device.far_bytes_per_s) == (5e-9, 1 << 20, 20e9)
    assert device.memory_bytes_per_s == 0.0  # a firing's rows stay in the cache
    other = load_target("cpu-2").links
    assert target.links.latency_s == (0.5e-6 if cores > 1 else other.latency_s)
    assert text.count("not measured: that takes two cores") == (0 if cores > 1 else 4)
    assert report.table(made(cores)).count("\n") >= 7


JUNK = ("", "-1", "0", "1e300", "nan", "inf", "true", '"fast"', "[1]", "{}", "{ fp32 = 0 }", "1e-9e", "\"", "0x", "[[devices]]")


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(JUNK) | st.text(max_size=6)), min_size=1, max_size=3), st.integers(0, 400))
@settings(max_examples=60, deadline=None)
def test_a_damaged_calibration_is_a_target_or_told_mistakes(changes: list[tuple[int, str]], cut: int) -> None:
    """Whatever becomes of a value, a line or the end of the file."""
    lines = report.target_text(made(2)).splitlines()
    for at, junk in changes:
        key, _, _ = lines[at % len(lines)].partition(" = ")
        lines[at % len(lines)] = f"{key} = {junk}" if len(junk) != 1 else junk
    text = "\n".join(lines)
    try:
        target = parse_target(text[: len(text) - cut if cut < 200 else len(text)], "cpu.toml")
        assert target.devices
    except AmpError as e:
        assert {d.code for d in e.diagnostics} <= {"AMP502", "AMP503", "AMP504", "AMP505"}
        assert len(e.diagnostics) <= 1 + len(changes) + cut


def test_noise_is_told() -> None:
    assert report.warning(made(2)) is None
    noisy = made(2, latency_s=(1e-6, 2e-6, 3e-6))
    assert "latency_s" in (report.warning(noisy) or "")
    assert "NOISY" in next(x for x in report.target_text(noisy).splitlines() if x.startswith("latency_s"))
    assert report.as_json(noisy, "cpu.toml", load_target("cpu-2"))["figures"][-4]["noisy"] is True


def test_a_figure_out_of_bounds_is_an_error_and_no_file() -> None:
    with pytest.raises(AmpError, match="AMP504"):
        report.target_text(made(2, vector_flops_per_s=(1.0, 1.0, 1.0)))


def test_figures_as_people_write_them() -> None:
    assert [report.shown(v, u) for v, u in ((82.8e9, "FLOP/s"), (1.25e-6, "s"), (25e-9, "s"), (0.0, "s"), (2.5, "rows"), (3.0, "B/s"))] == [
        "82.8 GFLOP/s", "1.25 µs", "25 ns", "0 ns", "2.5 rows", "3 B/s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["-o", "here"], 2, "AMP940"), (["-o", "mine.toml"], 1, "AMP920"), (["-o", "folder.toml"], 1, "AMP920"), (["--seconds", "0"], 2, "AMP901"),
        (["--cores", "100000"], 2, "AMP942"), (["--cores", "0"], 2, "AMP942"), (["--cores", "1"], 1, "AMP941"),
    ],
)  # fmt: skip
def test_refusals(argv: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ampc.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ampc.runtime.settings.JIT", False)
    (tmp_path / "mine.toml").write_text('name = "mine"')
    (tmp_path / "folder.toml").mkdir()
    assert main(["calibrate", *argv]) == status
    assert f"error[{message}]" in capsys.readouterr().err
    assert (tmp_path / "mine.toml").read_text() == 'name = "mine"'
    assert not (tmp_path / "cpu.toml").exists()


def test_a_calibration_may_be_written_again_and_anything_else_by_force(tmp_path: Path) -> None:
    file = tmp_path / "cpu.toml"
    calibration.write(made(2), file)
    calibration.check_file(file, force=False)
    file.write_text("other")
    calibration.check_file(file, force=True)
    with pytest.raises(AmpError, match="AMP920"):
        calibration.check_file(file, force=False)
    with pytest.raises(AmpError, match="AMP690"):
        calibration.write(made(2), tmp_path / "none" / "cpu.toml")


@pytest.mark.long  # measures for a while, and compiles what it measures
@pytest.mark.compiled
@pytest.mark.parametrize("cores", [1, 2])
def test_this_machine(cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures lie where those of a machine that runs Python can lie; the file compiles a program."""
    from ampc.cli.main import main

    monkeypatch.chdir(tmp_path)
    if cores > usable_cores():
        assert main(["calibrate", "--cores", str(cores)]) == 2
        return
    few = ("narrow values", "small products", "labels")  # each takes seconds to compile
    monkeypatch.setattr(programs, "PROGRAMS", {name: programs.PROGRAMS[name] for name in few})
    assert main(["calibrate", "--seconds", "1", "--cores", str(cores), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    figures = {f["name"]: f["median"] for f in found["figures"]}
    assert 1e8 < figures["gate_flops_per_s"] < figures["product_flops_per_s"] < 1e13
    assert figures["vector_flops_per_s"] > 1e8 and found["pass_error"] < 1
    assert figures["memory_large"] > 1e8
    spent = [figures[f"{what}_overhead_s"] for what in ("instance", "firing", "message", "value", "row", "number", "product", "update")]
    assert all(0 <= x < 1e-4 for x in spent)
    assert sum(spent) > 1e-9
    assert figures["copy_bytes_per_s"] > 1e8
    assert ("latency_s" in figures) == (cores > 1)
    assert ("half_speed" in figures) == (blas.half_lacks() is None)
    assert figures.get("half_speed", 1.0) > 0.2
    if cores > 1:
        assert 1e-8 < figures["latency_s"] < 1e-3
        assert 0 <= figures["link_overhead_s"] < 1e-5
        assert 0 <= figures["link_message_s"] < 1e-5
    assert len(found["products"]) == 45
    target = load_target(tmp_path / "cpu.toml")
    assert len(target.devices) == cores
    assert ampc.compile("list_reduction", target="cpu.toml").manifest.target == target


def test_latency_is_read_from_a_log() -> None:
    """A message that met a resting thread does not disturb."""
    from ampc.calibrate.passes import latency

    log = SimpleNamespace(sent_s=np.arange(5.0), arrived_s=np.array([0.25, 1.25, 2.5, 12.0, np.nan]))
    assert latency(log) == 0.375  # type: ignore[arg-type]  # what it reads of a Trace


def test_crossings_tell_firings_that_send_from_messages_and_bytes() -> None:
    """Of the rounds at the lower quartile, both cores at work, with firings that take a fifth longer than the cost model says."""
    costs = dict(zip(handling.FEATURES, (1e-7, 5e-8, 1e-8, 2e-9, 6e-9, 7e-9, 3e-11, 1e-7, 4e-7, 1e-10, 1.1)))
    device = Device("core", "cpu", {"fp32": 1e11}, 1e10, 1 << 30, 0.0)
    burst_s, each_s, byte_s = 2e-7, 3e-8, 2e-10
    apart, alone = [], []
    for width in (1, 16, 128):
        for n in (4, 16, 64):
            own = spent(seconds=0.0, firings=2000, tokens=2000 * n, copied_bytes=8000 * n * width)
            modelled = 1.2 * float(np.dot(own.counts(device), list(costs.values())))
            bursts, messages = 1000, 1000 * n
            both = modelled + 2 * bursts * burst_s + 2 * messages * each_s + 4 * width * messages * byte_s
            apart.append(crossing.Crossed(dataclasses.replace(own, seconds=both / 2), bursts, messages, 4 * width * messages))
            twin = spent(seconds=0.0, firings=100, tokens=100 * n, copied_bytes=1e4 * width)
            alone.append(dataclasses.replace(twin, seconds=1.2 * float(np.dot(twin.counts(device), list(costs.values())))))
    slow = [dataclasses.replace(c, spent=dataclasses.replace(c.spent, seconds=3 * c.spent.seconds)) for c in apart]
    found = crossing.figures([(slow, alone, 2e-7), (apart, alone, 2e-7)], device, costs)
    assert found == pytest.approx({"latency_s": 2e-7, "link_overhead_s": burst_s, "link_message_s": each_s, "link_bytes_per_s": 1 / byte_s}, rel=1e-6)


def test_calls_run_at_the_same_time_and_failures_are_raised() -> None:
    both = threading.Barrier(2, timeout=20)
    together([both.wait, both.wait])  # type: ignore[list-item]  # what they return is of no interest

    def fail() -> None:
        raise ValueError("one of them")

    with pytest.raises(ValueError, match="one of them"):
        together([lambda: None, fail])
    if hasattr(os, "sched_getaffinity"):
        before = os.sched_getaffinity(0)
        together([lambda: None])
        assert os.sched_getaffinity(0) == before
