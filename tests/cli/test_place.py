"""`ampc place`: its report, the comparison, what it writes, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ampc.cli.main import main
from ampc.manifest import load

LIST = ["place", "list_reduction", "--target"]


def out(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> str:
    assert main(argv) == status
    caught = capsys.readouterr()
    return caught.out if status == 0 else caught.err


def test_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    text = out(capsys, *LIST, "fpga_1tflops")
    assert "fpga:0  " in text and "\nlink fpga:" in text
    assert "instances/s on fpga_1tflops (balanced), bottleneck " in text
    found = json.loads(out(capsys, *LIST, "fpga_1tflops", "--json"))
    busiest = max(max(d["busy_s"] for d in found["devices"]), max(x["busy_s"] for x in found["links"]))
    assert found["predicted_instances_per_s"] == pytest.approx(1 / busiest, rel=1e-4)
    assert found["bound_instances_per_s"] >= found["predicted_instances_per_s"]
    assert all(d["memory_bytes"] == d["layer_bytes"] + d["value_bytes"] <= d["capacity_bytes"] for d in found["devices"])
    assert sum(x["bytes"] for x in found["links"]) == pytest.approx(found["crossing_bytes"], rel=1e-4)  # one hop each
    assert found["gap"] == 0.0


def test_layers_are_put_on_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(out(capsys, *LIST, "cpu-4", "--at", "step=core:3", "--at", "head=core:1", "--json"))
    layers = [d["layers"] for d in found["devices"]]
    assert layers[1] == ["head"] and "step" in layers[3]
    assert "AMP514" in out(capsys, *LIST, "cpu-4", "--at", "stop=core:3", status=2)
    assert "AMP902" in out(capsys, *LIST, "cpu-4", "--at", "stop", status=2)
    assert "AMP511" in out(capsys, *LIST, "cpu-4", "--at", "step=core:9", status=1)


def test_strategies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(out(capsys, "place", "digits_mlp", "--target", "cpu-2", "--compare", "--json"))
    by = {r["name"]: r for r in rows}
    assert by["balanced"]["predicted_instances_per_s"] >= by["round_robin"]["predicted_instances_per_s"]
    assert by["balanced + split + replicas"]["predicted_instances_per_s"] >= by["balanced"]["predicted_instances_per_s"] * 0.999
    assert by["manual"]["error"].startswith("AMP512: ")
    assert "balanced + split" in out(capsys, "place", "digits_mlp", "--target", "cpu-2", "--compare")
    assert "AMP903" in out(capsys, "place", "digits_mlp", "--target", "cpu-2", "--compare", "--split", "auto", status=2)


@pytest.mark.long
def test_a_bottleneck_is_split_and_replicated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = json.loads(out(capsys, "place", "mnist_mlp", "--target", "fpga_1tflops", "--json"))
    split = json.loads(out(capsys, "place", "mnist_mlp", "--target", "fpga_1tflops", "--split", "auto:4", "--json", "-o", str(tmp_path / "m.ampx")))
    assert split["predicted_instances_per_s"] > 1.1 * plain["predicted_instances_per_s"]
    assert max(c["columns"] for c in split["changes"].values()) in (2, 4)
    manifest = load(tmp_path / "m.ampx")
    assert any("@1" in x.name for x in manifest.graph.layers)
    copies = json.loads(out(capsys, "place", "mnist_mlp", "--target", "cpu-2", "--replicas", "auto:2", "--json"))
    assert {c["replicas"] for c in copies["changes"].values()} <= {2}
    assert "AMP902" in out(capsys, "place", "mnist_mlp", "--split", "4", status=2)


def test_every_layer_gets_copies_but_large_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = json.loads(out(capsys, "place", "list_reduction", "--target", "cpu-2", "--replicas", "auto", "--json"))
    assert {name: c["replicas"] for name, c in made["changes"].items()} == {"embed": 2, "step": 2, "head": 2}
    made = json.loads(out(capsys, "place", "sentiment_tree_lstm", "--target", "cpu-2", "--replicas", "auto", "--json"))
    assert {name: c["replicas"] for name, c in made["changes"].items()} == {"leaves": 2, "joins": 2, "head": 2}


def test_compile_says_that_cores_are_idle(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = "cores are idle: `--replicas auto`"
    folder = str(tmp_path / "a.ampx")
    assert words in out(capsys, "compile", "list_reduction", "--target", "cpu-2", "-o", folder)
    assert words not in out(capsys, "compile", "list_reduction", "--target", "cpu-2", "--replicas", "auto", "-o", folder)
    assert words not in out(capsys, "compile", "list_reduction", "--target", "cpu-1", "-o", folder)


def test_a_manifest_is_placed_anew(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.ampx"), str(tmp_path / "b.ampx")
    out(capsys, "compile", "list_reduction", "--target", "cpu-1", "-o", first)
    text = out(capsys, "place", first, "--target", "cpu-2", "--at", "head=core:1", "-o", second)
    assert f"compiled into {second}" in text
    manifest = load(second)
    assert manifest.target.name == "cpu-2" and manifest.graph == load(first).graph
    assert "AMP903" in out(capsys, "place", first, "--set", "hidden=3", status=2)


@pytest.mark.long
def test_layers_are_split_and_replicated_as_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = json.loads(out(
        capsys, "place", "mnist_mlp", "--target", "cpu-2", "--split", "first=2", "--split", "second=4", "--json", "-o", str(tmp_path / "m.ampx")
    ))  # fmt: skip
    assert made["changes"] == {"first": {"columns": 2, "replicas": 1}, "second": {"columns": 4, "replicas": 1}}
    manifest = load(tmp_path / "m.ampx")
    assert {"first@0", "first@1", "second@3"} <= {x.name for x in manifest.graph.layers}
    both = json.loads(out(capsys, "place", "list_reduction", "--target", "cpu-2", "--replicas", "step=2", "--split", "auto:2", "--json"))
    assert both["changes"]["step"] == {"columns": 1, "replicas": 2}
    # A manifest's graph is changed just so; what it has made of a layer stays.
    again = json.loads(out(capsys, "place", str(tmp_path / "m.ampx"), "--split", "third=2", "--json"))
    assert again["changes"] == {"third": {"columns": 2, "replicas": 1}}
    assert "the program has made `first@0` of it" in out(capsys, "place", str(tmp_path / "m.ampx"), "--split", "first=2", status=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--split", "frst=2"), "did you mean `first`"),
        (("--split", "first=5"), "can't be split into 5 equal parts: it has 784 columns"),
        (("--split", "first=2", "--split", "first=4"), "gives `first` twice"),
        (("--split", "first"), "expects `auto`, `auto:N` or `LAYER=N`"),
        (("--split", "=2"), "expects `auto`, `auto:N` or `LAYER=N`"),
        (("--replicas", "first=1"), "with N from 2 to 1024"),
        (("--replicas", "nobody=2"), "there is no layer `nobody` to replicate"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in out(capsys, "compile", "mnist_mlp", "--target", "cpu-2", *options, "--emit", "placement", status=2)


def test_only_a_linear_is_split_and_copies_are_equally_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert "it is no `Linear`" in out(capsys, "place", "list_reduction", "--split", "embed=2", status=2)
    assert "AMP402" in out(capsys, "place", "list_reduction", "--replicas", "step=2", "--replicas", "embed=3", status=1)


def test_what_does_not_fit_is_split_until_it_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "wide.amp"
    model.write_text(
        "model wide():\n    instance:\n        x: float[1000]\n        y: float[600]\n    big = Linear(1000, 600)\n    loss squared(big(x), y)\n"
        "    train:\n        max_active_keys = 2\n"
    )
    text = out(capsys, "place", str(model), "--target", "fpga_tiny_memory", status=1)
    assert "AMP513" in text and "`big` alone needs " in text and "`columns = " in text
    assert "big: columns = " in out(capsys, "place", str(model), "--target", "fpga_tiny_memory", "--split", "auto")
