"""`ampc bench`: what it measures, what it prints and keeps, refusals. Kernels run as plain Python here, so rates say nothing; sums have to be right."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ampc.bench import report
from ampc.bench.measure import Bench, Figures, Latency, Share, flops, measure, share
from ampc.bench.subject import Subject, Window
from ampc.cli.main import main
from ampc.compiler import compile_source
from ampc.place import load_target
from ampc.runtime.events import InFlight
from ampc.runtime.options import RunOptions
from ampc.runtime.profile import DeviceProfile, Profile
from ampc.runtime.program import Program
from ampc.source import remember

MODEL = """model sums(hidden = 3):
    instance:
        axis token
        x: float[token]
        y: float
    step = Linear(1, hidden)
    head = Linear(hidden, 1)
    h = zeros(hidden)
    loop t in token carry h:
        h = tanh(h + step(x[t]))
    z = head(h)
    loss squared(z, y)
    output z
    train:
        max_active_keys = 2
"""
ROWS = [{"x": [0.5] * n, "y": 1.0} for n in (1, 2, 3, 2)]


def program() -> Program:
    source = remember("sums.amp", MODEL.encode(), "a program of this test")
    manifest = compile_source(source, target=load_target("cpu-1")).manifest
    assert manifest is not None
    return Program(manifest)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("sums.amp").write_text(MODEL)
    Path("data").mkdir()
    Path("data/train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    return tmp_path


QUICK = ["--seconds", "0.02", "--rounds", "2"]


def bench(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> str:
    assert main(["bench", "sums.amp", "--data", "data", *QUICK, *argv]) == status
    caught = capsys.readouterr()
    return caught.out if status == 0 else caught.err


def test_every_setting_is_measured(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(bench(capsys, "--workers", "1,2", "--max-active-keys", "1,3", "--max-active-keys", "3", "--latency", "--json"))
    assert [(s["workers"], s["max_active_keys"]) for s in found["settings"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for s in found["settings"]:
        assert len(s["rates"]) == 2 and min(s["rates"]) > 0
        assert sum(s["time"].values()) == pytest.approx(1.0, abs=1e-6)
        room = s["in_flight"]
        assert 1 <= room["number"] <= s["max_active_keys"] and 0 < room["instance_bytes"] <= room["peak_bytes"] < found["peak_bytes"]
    assert found["predicted_instance_bytes"] > 0
    assert found["latency"]["calls"] >= 20 and 0 < found["latency"]["call_p50_s"] <= found["latency"]["call_p99_s"]
    assert found["latency"]["stream_s"] > 0 and found["work"] == "training" and found["instances"] == 4


def test_the_table_and_the_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = bench(capsys, "--infer", "-o", "kept.json", "--set", "hidden=2", "--set", "max_active_keys=4", "--instances", "3")
    lines = text.splitlines()
    assert "model                    sums" in lines and "work                     inference, 3 instances" in lines
    assert lines[-2].split()[:2] == ["workers", "in"] and lines[-1].split()[1] == "4"
    kept = json.loads(Path("kept.json").read_text())
    assert kept["work"] == "inference" and kept["settings"][0]["max_active_keys"] == 4 and kept["program"] == "sums.amp"
    assert "AMP719" in bench(capsys, "-o", "kept.json", status=2)
    bench(capsys, "-o", "kept.json", "--force")


def test_what_is_plain_python_is_said(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sums.amp", "--data", "data", *QUICK]) == 0
    assert "warning: kernels run as plain Python here" in capsys.readouterr().err


def test_a_compiled_program_is_measured(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "sums.amp", "-o", "sums.ampx"]) == 0
    capsys.readouterr()
    assert main(["bench", "sums.ampx", "--data", "data", *QUICK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"][0]["max_active_keys"] == 2  # of its `train:` block


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["--workers", "many"], 2, "`--workers`"),
        (["--workers", "0.5"], 2, "`--workers`"),
        (["--max-active-keys", "4,0"], 2, "`--max-active-keys`"),
        (["--set", "hiden=3"], 2, "hiden"),
        (["--seconds", "0"], 2, "AMP901"),
        (["--rounds", "none"], 2, "AMP901"),
        (["-o", "kept.csv"], 2, "AMP719"),
        (["-o", "nowhere/kept.json"], 2, "its folder isn't there"),
        (["--force"], 2, "AMP719"),
        (["--init", "nowhere.safetensors"], 1, "nowhere.safetensors"),
        (["--data", "elsewhere"], 1, "elsewhere"),
    ],
)
def test_refusals(files: Path, capsys: pytest.CaptureFixture[str], argv: list[str], status: int, said: str) -> None:
    error = bench(capsys, *argv, status=status)
    assert "error[" in error and said in error and "Traceback" not in error


def test_data_is_needed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sums.amp"]) == 2
    assert "AMP719" in capsys.readouterr().err


def test_a_subject_counts_what_it_runs() -> None:
    p = program()
    subject = Subject(p, p.read(ROWS), p.options({"workers": 1}), "training")
    seen: list[int] = []
    run = subject.engine.run

    def counted(data: Any, order: Any, **how: Any) -> Any:
        seen.append(len(order))
        return run(data, order, **how)

    subject.engine.run = counted  # type: ignore[method-assign]  # watched
    window = subject.window(0.02)
    assert window.instances == sum(seen) and window.seconds > 0 and window.rate > 0
    assert p.parameters is None  # the program itself is left alone


@pytest.mark.parametrize("work", ["training", "inference"])
def test_calls_of_one_instance(work: Any) -> None:
    p = program()
    subject = Subject(p, p.read(ROWS), p.options({"workers": 1, "max_active_keys": 1}), work)
    before = subject.engine.parameters
    calls = subject.calls(0.0)
    assert len(calls) == 10 and min(calls) > 0
    moved = any((before[name] != now).any() for name, now in subject.engine.parameters.items())
    assert moved == (work == "training")


def test_operations_are_those_of_the_work() -> None:
    p = program()
    subject = Subject(p, p.read(ROWS), p.options({"workers": 1}), "training")
    cost = subject.cost()
    (forward, _), (both, _) = flops(cost, "inference"), flops(cost, "training")
    assert forward == pytest.approx(2 * (2.0 * 1 * 3 + 0) + 2 * 3 * 1)  # two tokens an instance on average, one readout
    assert both == pytest.approx(3 * forward)


def test_shares_of_a_profile_add_up() -> None:
    devices = (DeviceProfile("a", 6.0, 1.0, 2.0, 1.0), DeviceProfile("b", 2.0, 0.0, 0.0, 8.0))
    assert share(Profile("m", "threads", 1, 10.0, (), devices)) == Share(0.4, 0.1, 0.05, 0.45)


def test_words_of_a_report() -> None:
    windows = tuple(Window(n, 1.0, 2.0, 1.5) for n in (900, 1000, 3000))
    figures = Figures(1, 64, windows, Share(0.9, 0.1, 0.0, 0.0), 0.5, InFlight(2048.0, 4096, 64, 3 << 20, 4 << 20))
    found = Bench("m", "training", 10, "blas", True, 1e11, 6e5, 100.0, 4096.0, (figures,), Latency((1e-3, 2e-3), (5e-5,)), 1.0, 1 << 30)
    assert report.table(found)[1] == (
        "1", "64", "1,000", "900–3,000", "500", "50.0 %", "90.0 %", "10.0 %", "0.0 %", "0.0 %", "3 MiB", "2 KiB",
    )  # fmt: skip
    rows = dict(report.head(found))
    assert rows["latency, one call"] == "median 1.5 ms, 90 % 1.9 ms, 99 % 1.99 ms" and rows["latency, in a stream"] == "50 µs"
    assert report.warnings(found) == ["other programs used 1.5 cores meanwhile"]
    assert "plain Python" in report.warnings(dataclasses.replace(found, compiled=False))[0]


def test_a_setting_that_cannot_be_ends_before_anything_is_measured() -> None:
    p = program()

    def options(workers: int | None, in_flight: int | None) -> RunOptions:
        return p.options({"workers": workers, "max_active_keys": in_flight})

    found = measure(p, p.read(ROWS), options, [1], [1, 2], seconds=0.01, rounds=1)
    assert [f.max_active_keys for f in found.figures] == [1, 2] and found.latency is None and found.compile_s >= 0
