"""`ampc simulate` from flags to files: reports, sweeps, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ampc.cli.compile import placement_text
from ampc.cli.main import main
from ampc.cli.place import _table
from ampc.runtime import trace
from tests.support import MODELS, random_rows, small


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own with a small data set for list reduction."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    graph = small("list_reduction")
    for split, n in (("train", 30), ("valid", 10)):
        rows = [r for r in random_rows(graph, 3 * n, seed=n) if r["symbol"]][:n]
        Path(f"data/{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


TWO = """name = "two"

[[devices]]
name = "big"
kind = "fpga"
matrix_flops_per_s = { fp32 = 1e11 }
vector_flops_per_s = 1e10
memory_bytes = 100_000_000
message_overhead_s = 1e-7

[[devices]]
name = "small"
kind = "fpga"
matrix_flops_per_s = { fp32 = 1e10 }
vector_flops_per_s = 1e9
memory_bytes = 100_000_000
message_overhead_s = 1e-7

[links]
topology = "links"
bytes_per_s = 1e9
latency_s = 1e-6

[[links.link]]
from = "big"
to = "small"
"""
SMALL = ["--set", "hidden=6", "--data", "data"]
MODEL = str(MODELS / "list_reduction.amp")


def simulated(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["simulate", MODEL, *SMALL, "--json", "--quiet", *args]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_a_run_says_how_busy_everything_was(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "--target", "fpga_mesh_4x4", "--epochs", "2", "--validate", "--instances", "8")
    assert found["instances"] == 8 and found["instances_per_s"] == pytest.approx(8 / found["seconds"], rel=1e-4)
    assert len(found["devices"]) == 16 and 0 < found["mean_utilisation"] <= 1
    assert found["validation"]["accuracy"] is not None and found["staleness"]
    assert found["critical_path"]["firings"] > 0
    main(["simulate", MODEL, *SMALL, "--target", "fpga_mesh_4x4", "--instances", "4"])
    printed = capsys.readouterr()
    assert "virtual seconds" in printed.out and "critical path" in printed.out
    assert "epoch 1/1" in printed.err


def test_the_same_seed_gives_the_same_figures(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--target", "fpga_1tflops", "--jitter", "0.2", "--failures", "1000", "--repair", "1e-6", "--seed", "3"]
    a, b = simulated(capsys, *options), simulated(capsys, *options)
    assert {k: v for k, v in a.items() if k != "wall_s"} == {k: v for k, v in b.items() if k != "wall_s"}


def test_without_numerics_the_times_are_those_of_the_real_behaviour(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--target", "fpga_1tflops", "--max-active-keys", "4"]
    real, bare = simulated(capsys, *options), simulated(capsys, *options, "--cost-only")
    assert bare["instances"] == real["instances"] == 30
    assert bare["instances_per_s"] == pytest.approx(real["instances_per_s"], rel=0.1)


def test_a_sweep_is_a_table_a_file_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    axes = ["--sweep", "devices=1,2,4", "--sweep", "max_active_keys=1,8"]
    argv = ["simulate", MODEL, *SMALL, "--target", "fpga_1tflops", *axes, "--cost-only", "-o", "sweep.parquet", "--plot", "sweep.svg"]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "devices" in printed.splitlines()[0] and len(printed.splitlines()) == 7
    table = pq.read_table("sweep.parquet")
    assert table.column("devices").to_pylist() == [1, 1, 2, 2, 4, 4]
    rates = table.column("instances_per_s").to_pylist()
    assert all(r > 0 for r in rates) and rates[1] >= rates[0] * 0.999
    assert "<svg" in Path("sweep.svg").read_text(encoding="utf-8")
    assert main(argv) == 2  # what is there is not overwritten
    assert "exists" in capsys.readouterr().err


def test_a_sweep_without_numerics_goes_over_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--target", "fpga_1tflops", "--cost-only", "--sweep", "mode=async,sync,filled", "--max-active-keys", "4", "--set", "min_update_frequency=5"]
    assert main(["simulate", MODEL, *SMALL, "--json", "--quiet", *args]) == 0
    rates = {r["mode"]: r["instances_per_s"] for r in json.loads(capsys.readouterr().out)}
    for mode, rate in rates.items():
        assert simulated(capsys, *args[:3], *args[5:], "--mode", mode)["instances_per_s"] == pytest.approx(rate)
    assert len(set(rates.values())) == 3


def test_a_sweep_over_the_number_of_devices_that_there_are_keeps_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.toml").write_text(TWO, encoding="utf-8")
    assert main(["simulate", MODEL, *SMALL, "--target", "two.toml", "--cost-only", "--json", "--quiet", "--sweep", "devices=2,3"]) == 0
    two, three = json.loads(capsys.readouterr().out)
    assert two["instances_per_s"] == pytest.approx(simulated(capsys, "--target", "two.toml", "--cost-only")["instances_per_s"])
    assert "can't be resized" in three["error"]


def test_hardware_that_is_too_large_or_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    """H02: devices without work are idle, one device is enough, and what can't exist is refused by the name of its key."""
    many = simulated(capsys, "--target", "manycore_64", "--cost-only")
    assert len(many["devices"]) == 64 and sum(d["utilisation"] == 0 for d in many["devices"]) >= 60
    assert all(0 <= d["utilisation"] <= 1 for d in many["devices"])
    one = simulated(capsys, "--target", "cpu-1", "--cost-only")
    assert len(one["devices"]) == 1 and not one["links"] and one["instances"] == 30
    for old, new, key in (
        ("memory_bytes = 100_000_000", "memory_bytes = 0", "memory_bytes"), ("bytes_per_s = 1e9", "bytes_per_s = 0", "bytes_per_s"),
        ("latency_s = 1e-6", "latency_s = 1e9", "latency_s"), ("vector_flops_per_s = 1e9", "vector_flops_per_s = 0", "vector_flops_per_s"),
    ):  # fmt: skip
        Path("two.toml").write_text(TWO.replace(old, new), encoding="utf-8")
        assert main(["simulate", MODEL, *SMALL, "--target", "two.toml", "--cost-only"]) == 1
        err = capsys.readouterr().err
        assert f"{key}`" in err and "two.toml" in err and "Traceback" not in err
    Path("two.toml").write_text(TWO.replace("latency_s = 1e-6", "latency_s = 10"), encoding="utf-8")
    slow = simulated(capsys, "--target", "two.toml", "--cost-only", "--at", "step=big", "--at", "embed=small", "--at", "head=small")
    assert 0 < slow["instances_per_s"] < 10 and slow["seconds"] < 1e6


def test_a_sweep_over_a_parameter_compiles_anew(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", MODEL, *SMALL, "--target", "fpga_1tflops", "--sweep", "copies=1,2", "--cost-only", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["copies"] for r in rows] == [1, 2] and all(r["error"] == "" for r in rows)


def test_what_does_not_fit_is_a_row_without_figures(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mesh.toml").write_text(
        'name = "mesh"\n[[devices]]\nname = "d"\nkind = "fpga"\ncount = 4\nmatrix_flops_per_s = { fp32 = 1e9 }\nvector_flops_per_s = 1e9\n'
        "memory_bytes = 5_000\nmessage_overhead_s = 0\n[links]\n" + 'topology = "full"\nbytes_per_s = 1e9\nlatency_s = 0\n',
        encoding="utf-8",
    )
    assert main(["simulate", MODEL, "--data", "data", "--target", "cpu-8", "--sweep", "devices=2", "--cost-only", "--json"]) == 0
    capsys.readouterr()
    assert main(["simulate", MODEL, "--data", "data", "--set", "hidden=128", "--target", "mesh.toml", "--cost-only"]) == 1
    assert "5,000 bytes" in capsys.readouterr().err


def test_run_folder_and_trace(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "--target", "fpga_1tflops", "-o", "run", "--trace", "events")
    kept = trace.load("events")
    assert kept.driver == "simulate" and kept.problems() == []
    assert kept.seconds == pytest.approx(found["seconds"], rel=1e-5)
    assert json.loads(Path("run/simulation.json").read_text())["instances"] == 30
    assert Path("run/metrics.jsonl").exists()
    assert main(["view", MODEL, *SMALL, "--target", "fpga_1tflops", "--load", "events", "-o", "x.dot"]) == 0


@pytest.mark.parametrize(
    "args, says",
    [
        (["--target", "fpga_9"], "no target"),
        (["--sweep", "devces=1"], "did you mean"),
        (["--sweep", "devices"], "NAME=VALUE"),
        (["--sweep", "devices=1,x"], "whole numbers"),
        (["--sweep", "devices=1", "--sweep", "devices=2"], "twice"),
        (["--plot", "x.svg"], "--sweep"),
        (["--sweep", "devices=1", "--plot", "x.pdf"], ".svg or .png"),
        (["--sweep", "devices=1", "-o", "x.csv"], ".parquet or .jsonl"),
        (["--cost-only", "--validate"], "numbers"),
        (["--mode", "filled"], "--cost-only"),
        (["--mode", "fast"], "filled"),
        (["--precision", "fp16", "--target", "fpga_1tflops"], "fp16"),
        (["--at", "stem=fpga:0", "--target", "fpga_1tflops"], "no layer"),
        (["--at", "step=fpga:77", "--target", "fpga_1tflops"], "fpga:77"),
        (["--at", "step"], "LAYER=DEVICE"),
        (["--jitter", "-1"], "jitter"),
        (["--sweep", "jitter=much"], "numbers from 0 to 10"),
        (["--sweep", "hidden=6,wide"], "expects numbers, `true` or `false`, got `wide`"),
        (["--sweep", "mode=async,filled"], "`mode`"),
        (["--sweep", "seed=1,x"], "`seed`"),
        (["--cost-only", "--sweep", "mode=async,fast"], "`filled`, got `fast`"),
        (["--cost-only", "--sweep", "epochs=1,2"], "does not look at `epochs`"),
        (["--sweep", "workers=1,2"], "sweep `devices`"),
        (["--set", "driver=step"], "no setting `driver`"),
        (["--sweep", "devices=1", "-o", "nowhere/x.parquet"], "no folder `nowhere`"),
        (["--trace", "data"], "other things than a trace"),
        (["--failures", "3"], "--repair"),
        (["--repair", "3"], "--failures"),
        (["--data", "data/train.jsonl", "--validate"], "no validation data"),
        (["--estimate", "--target", "fpga_1tflops", "--cost-only"], "gated graph network"),
    ],
    ids=" ".join,
)
def test_what_is_refused(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", MODEL, *SMALL, *args]) in (1, 2)
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err and err.count("error[") == 1


def test_a_compiled_program_keeps_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", MODEL, "--set", "hidden=6", "--target", "fpga_1tflops", "-o", "m.ampx"]) == 0
    capsys.readouterr()
    assert main(["simulate", "m.ampx", "--data", "data", "--cost-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "fpga_1tflops"
    assert main(["simulate", "m.ampx", "--data", "data", "--sweep", "copies=1,2"]) == 2
    assert "fixed when it was compiled" in capsys.readouterr().err
    assert main(["simulate", "m.ampx", "--cost-only"]) == 2
    assert "needs data" in capsys.readouterr().err


def test_place_tells_what_the_instances_in_flight_give(capsys: pytest.CaptureFixture[str]) -> None:
    def placed(*args: str) -> str:
        assert main(["place", MODEL, "--set", "hidden=6", "--target", "fpga_mesh_4x4", *args]) == 0
        return capsys.readouterr().out

    found = json.loads(placed("--data", "data", "--json"))
    short = simulated(capsys, "--target", "fpga_mesh_4x4", "--cost-only")  # which fills and drains
    assert 0.95 * short["instances_per_s"] < found["loaded_instances_per_s"] < 10 * short["instances_per_s"]
    assert found["in_flight"] >= short["most_in_flight"]
    assert f"simulated {found['loaded_instances_per_s']:,.0f} instances/s with {found['in_flight']} in flight" in placement_text(found)
    assert "loaded_instances_per_s" not in json.loads(placed("--json"))  # it takes data
    row = {"name": "balanced", "bottleneck": "fpga:0", "devices_used": 2, **found, "memory_bytes": 1, "changes": {}}
    head, line = _table([row]).splitlines()
    assert head.index("  loaded  ") < head.index("  devices") and f"  {found['loaded_instances_per_s']:12,.0f}  " in line
