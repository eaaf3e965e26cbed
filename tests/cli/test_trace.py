"""Recorded runs from the command line: what `ampc run --trace` and `--profile` write, what `ampc trace` and `ampc view --load` make of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydot
import pytest

import ampc
from ampc.cli.main import main
from ampc.runtime.trace import load
from perfetto_file import read, sound
from trace_samples import pipeline

MODEL = """model tiny(hidden = 4):
    instance:
        axis token
        symbol: int[token] < 5
        label: int < 3

    embed = Embedding(5, hidden)
    step = Linear(2 * hidden, hidden)
    head = Linear(hidden, 3)

    h = zeros(hidden)
    loop t in token carry h:
        h = relu(step([embed(symbol[t]), h]))
    logits = head(h)
    loss cross_entropy(logits, label)
    metric accuracy(logits, label)
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command line in a folder with a compiled model and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    Path("tiny.amp").write_text(MODEL)
    Path("data").mkdir()
    rows = [{"symbol": [(i + k) % 5 for k in range(1 + i % 4)], "label": i % 3} for i in range(30)]
    for split in ("train", "valid"):
        Path(f"data/{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def done(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    assert done("compile", "tiny.amp", "--target", "cpu-2", "--strategy", "round_robin", "-o", "tiny.ampx")[0] == 0
    return done


def trained(run: Run, *flags: str) -> tuple[str, str]:
    status, out, err = run("run", "tiny.ampx", "--data", "data", "--epochs", "2", "-o", "out", "--workers", "2", *flags)
    assert status == 0, err
    return out, err


def test_a_traced_run_writes_a_trace_and_a_file_for_perfetto(run: Run) -> None:
    _, err = trained(run, "--trace")
    trace = load("out")
    assert trace.problems() == [] and sorted(trace.instance.tolist()) == list(range(30))
    size = Path("out/trace.perfetto-trace").stat().st_size
    assert re.search(rf"out/trace.perfetto-trace: {len(trace.start_s):,} firings, [\d,]+ arrows, ", err) and size > 1000
    assert tomllib.loads(Path("out/config.toml").read_text())["run"]["trace"] is True
    assert not Path("out/report").exists()
    trained(run, "--force")  # what an earlier run left is gone
    assert not Path("out/trace").exists() and not Path("out/trace.perfetto-trace").exists()


def test_which_epoch(run: Run) -> None:
    trained(run, "--trace", "--trace-epoch", "1", "--driver", "step", "--seed", "3")
    first = load("out").instance.tolist()
    trained(run, "--trace", "--driver", "step", "--seed", "3", "--force")
    assert load("out").instance.tolist() != first  # another order


def test_an_epoch_in_parts_is_one_trace(run: Run) -> None:
    trained(run, "--trace", "--set", "checkpoint_instances=12", "--set", "schedule=cosine", "--set", "schedule_clock=instances")
    trace = load("out")
    assert trace.problems() == [] and sorted(trace.instance.tolist()) == list(range(30))


def test_the_profile_says_where_the_time_went(run: Run) -> None:
    out, _ = trained(run, "--profile", "--driver", "step", "--set", "min_update_frequency=8")
    assert not Path("out/trace").exists()
    found = json.loads(Path("out/report/profile.json").read_text())
    assert found["instances"] == 30 and found["driver"] == "step" and found["model"] == "tiny"
    queues = {(q["title"], q["direction"]): q for q in found["queues"]}
    elements = sum(1 + i % 4 for i in range(30))
    step = queues["step", "forward"]
    assert step["tokens"] == elements == step["rows"] and 0 < step["firings"] <= elements
    products = (elements - 30) * 2 * 8 * 4 + 30 * 2 * 4 * 4  # the state of turn 0 is zeros, which are not multiplied
    assert step["flops"] >= products and queues["step", "backward"]["flops"] > step["flops"]
    assert queues["embed", "backward"]["update_s"] > 0
    assert sum(q["share"] for q in found["queues"]) == pytest.approx(1.0, abs=0.2)  # the rest are updates by order
    for d in found["devices"]:
        assert d["busy_s"] + d["waiting_s"] + d["overhead_s"] + d["idle_s"] + d["log_s"] == pytest.approx(found["seconds"], rel=1e-6)
    assert re.search(r"(?m)^segment +device +tokens  tokens/firing  rows/firing  seconds  updates  GFLOP/s +share$", out)
    assert re.search(rf"(?m)^\d+ step +backward +core:\d +{elements} ", out)
    assert re.search(r"(?m)^core:1( +\d+\.\d %){5}$", out)


def test_the_profile_in_json(run: Run) -> None:
    out, _ = trained(run, "--profile", "--json")
    assert json.loads(out)["profile"]["instances"] == 30


def test_the_same_from_python(run: Run) -> None:
    program = ampc.load("tiny.ampx")
    program.train("data", epochs=1, trace=True, profile=True)
    assert program.trace is not None and program.profile is not None and program.profile.instances == 30
    program.train("data", epochs=1)
    assert program.trace is None and program.profile is None


@pytest.mark.parametrize(("flags", "message", "status"), [
    (("--trace-epoch", "1"), "`trace_epoch` is set, but neither `trace` nor `profile` is", 2),
    (("--trace", "--trace-epoch", "3"), "`trace_epoch` is 3, but the run has 2 epochs", 2),
    (("--trace-window", "0:1"), "`--trace-window` is of the file that `--trace` writes", 2),
    (("--trace", "--trace-window", "5"), "a window of time expects `A:B`", 2),
    (("--trace", "--trace-window", "2:1"), "a window of time expects `A:B`", 2),
])  # fmt: skip
def test_flags_that_do_not_go_together(run: Run, flags: tuple[str, ...], message: str, status: int) -> None:
    got, _, err = run("run", "tiny.ampx", "--data", "data", "--epochs", "2", "-o", "out", *flags)
    assert got == status and message in err
    assert not Path("out").exists()


def test_a_run_without_training_has_no_trace(run: Run) -> None:
    status, _, err = run("run", "tiny.ampx", "--data", "data", "--evaluate", "--init", "x", "--trace")
    assert status == 2 and "`--trace` is of a training pass" in err


def test_a_run_that_ends_before_the_epoch_says_so(run: Run) -> None:
    _, err = trained(run, "--trace", "--trace-epoch", "2", "--until", "loss < 100")
    assert "there is no trace: epoch 2 was not trained" in err and not Path("out/trace").exists()


# ------------------------------------------------------------------------------------------------ ampc trace


def test_figures(run: Run) -> None:
    trained(run, "--trace")
    status, out, _ = run("trace", "out")
    assert status == 0
    assert re.search(r"(?m)^instances +30 \(", out) and re.search(r"(?m)^core:0 +\d+\.\d %", out) and re.search(r"(?m)^\d step backward +\d", out)
    found = json.loads(run("trace", "out/trace", "--json")[1])
    assert found["instances"] == 30 and found["dropped"] == 0 and {d["device"] for d in found["devices"]} == {"core:0", "core:1"}
    assert found["tokens"] == sum(q["tokens"] for q in found["queues"])


def test_files(run: Run) -> None:
    pipeline(4, 6).save("one")
    pipeline(4, 3).save("two")
    status, out, err = run("trace", "one", "-o", "t.perfetto-trace", "--gantt", "g.svg", "--window", "0:1e-5")
    assert (status, out) == (0, "") and "g.svg: 1 panel" in err and Path("t.perfetto-trace").exists()
    status, _, err = run("trace", "one", "two", "--gantt", "both.svg", "--title", "First", "--title", "Second")
    assert status == 0 and "2 panels" in err
    assert "First" in Path("both.svg").read_text() and "Second" in Path("both.svg").read_text()


@pytest.mark.parametrize("how", [(), ("--cost-only",)])
def test_a_simulated_pass_of_200_instances(run: Run, how: tuple[str, ...]) -> None:
    rows = [{"symbol": [(i + k) % 5 for k in range(1 + i % 4)], "label": i % 3} for i in range(200)]
    Path("data/train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    status, _, err = run("simulate", "tiny.ampx", "--data", "data", "--strategy", "round_robin", "--trace", "simulated", *how)
    assert status == 0, err
    trace = load("simulated")
    assert trace.problems() == [] and len(trace.instance) == 200 and trace.dropped == 0
    assert run("trace", "simulated", "-o", "s.perfetto-trace", "--gantt", "s.png")[0] == 0
    found = read(Path("s.perfetto-trace"))
    sound(found)
    assert sum(depth == 0 for t in found.threads for *_, depth in found.slices.get(t, [])) == len(trace.start_s)
    assert sum(len(found.slices[t]) for t in found.links) == len(trace.crossings().link) > 0
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    if not how:
        assert int(trace.updates.sum()) and float(trace.update_s.sum()) > 0
        assert run("view", "tiny.ampx", "-o", "load.svg", "--load", "simulated")[0] == 0


def test_a_trace_that_contradicts_itself_is_told(run: Run) -> None:
    trace = pipeline(2, 2)
    object.__setattr__(trace, "arrived_s", trace.sent_s - 1e-6)
    trace.save("wrong")
    status, _, err = run("trace", "wrong")
    assert status == 0 and "contradicts itself: message 0 arrives at" in err


@pytest.mark.parametrize(("line", "message", "status"), [
    ("trace data", "`data` holds no trace", 1),
    ("trace one two", "several traces are for `--gantt` alone", 2),
    ("trace one --title x", "`--title` is of the panels of `--gantt`", 2),
    ("trace one one --gantt g.svg --title x", "1 titles for 2 panels", 2),
    ("trace one --gantt g.bmp", "`g.bmp` must end in one of", 2),
    ("trace one -o no/t.perfetto-trace", "`no/t.perfetto-trace` can't be written", 4),
    ("trace one --window a:b", "a window of time expects `A:B`", 2),
])  # fmt: skip
def test_wrong_command_lines(run: Run, line: str, message: str, status: int) -> None:
    pipeline(2, 2).save("one")
    pipeline(2, 2).save("two")
    got, _, err = run(*line.split())
    assert got == status and message in err


# ------------------------------------------------------------------------------------------------ ampc view --load


def dot_of(run: Run, *flags: str) -> Any:
    status, _, err = run("view", "tiny.ampx", "-o", "load.dot", *flags)
    assert status == 0, err
    graphs = pydot.graph_from_dot_data(Path("load.dot").read_text())
    assert graphs is not None
    return Path("load.dot").read_text(), graphs[0]


def test_the_graph_is_coloured_by_load(run: Run) -> None:
    trained(run, "--trace", "--driver", "step")
    text, drawing = dot_of(run, "--load", "out")
    plain, _ = dot_of(run)
    nodes = [n for s in drawing.get_subgraphs() for n in s.get_nodes() if re.fullmatch(r"n\d+", n.get_name())]
    assert len(nodes) == len(re.findall(r"(?m)^n\d+ \[", plain))
    fills = {n.get_name(): n.get_attributes()["fillcolor"].strip('"') for n in nodes}
    assert "#a3140f" in fills.values() and "#f1f5f9" in fills.values()  # the busiest, and one that computes nothing
    assert "% of the time busy" in text and "load measured" in text and "(bytes/instance)" in text and re.search(r"label=\"?<[^>]*4 · \d+ B>", text)
    assert "load measured" not in plain
    assert run("view", "tiny.ampx", "-o", "load.svg", "--load", "out", "--detail", "layers")[0] == 0


def test_a_trace_of_another_placement_is_refused(run: Run) -> None:
    run(
        "run", "tiny.ampx", "--data", "data", "--epochs", "1", "-o", "one", "--workers", "1", "--trace"
    )
    status, _, err = run("view", "tiny.ampx", "-o", "x.svg", "--load", "one")
    assert status == 1 and "AMP915" in err and "on 2 devices of the target `cpu-2`" in err
    status, _, err = run("view", "tiny.ampx", "-o", "x.svg", "--load", "data")
    assert status == 1 and "AMP720" in err
