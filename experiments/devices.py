"""What a longer pipeline does to accuracy: a deep residual network over 1 to 64 simulated devices, with ever more instances in flight.

    python -m experiments.devices --write
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import msgspec

from ampc.place import load_target
from ampc.place.target import resized
from ampc.runtime.program import Program
from ampc.simulate import study
from ampc.simulate.simulator import Conditions
from benchmarks.harness import number
from benchmarks.ours import data_folder, graph_of
from benchmarks.report import markdown_table, text_table
from experiments.document import put_part
from experiments.records import FOLDER

DEPTH = 64
"""Layers of the network: as many as the largest number of devices."""
DEVICES = (1, 2, 4, 8, 16, 32, 64)
FREQUENCY = 25
HEADS = ("devices", "in flight", "policy", "images/s", "to one", "devices busy", "staleness", "largest", "accuracy after", "lowest–highest")
POLICIES = ("sync", "plain", "stash", "corrected")


def model(depth: int = DEPTH, width: int = 48) -> str:
    """Return the text of a residual network of `depth` layers for MNIST."""
    blocks = range(1, depth - 1)
    return "\n".join([
        f"model deep(size = 784, hidden = {width}, classes = 10):",
        "    instance:", "        image: float[size]", "        label: int < classes", "",
        "    first = Linear(size, hidden)", *(f"    block{k} = Linear(hidden, hidden)" for k in blocks), "    last = Linear(hidden, classes)", "",
        "    h = relu(first(image))", *(f"    h = h + {4 / depth:g} * relu(block{k}(h))" for k in blocks), "    logits = last(h)",
        "    loss   cross_entropy(logits, label)", "    metric accuracy(logits, label)", "",
    ])  # fmt: skip


def train(program: Any, data: tuple[Any, Any], devices: int, policy: str, seed: int, a: argparse.Namespace) -> dict[str, float]:
    """Train on so many devices. Links limit nothing: what is studied is the length of the pipeline."""
    target = resized(load_target("fpga_1tflops"), devices)
    target = msgspec.structs.replace(target, links=msgspec.structs.replace(target.links, bytes_per_s=1e11, latency_s=1e-7))
    given = {
        "epochs": a.epochs, "max_active_keys": in_flight(devices), "min_update_frequency": FREQUENCY, "optimizer": "sgd", "learning_rate": a.rate,
        "seed": seed, "mode": "sync" if policy == "sync" else "async", "staleness": policy if policy in ("stash", "corrected") else "plain",
    }  # fmt: skip
    hardware = study.Hardware(target, "balanced", Conditions(seed=seed))
    done = study.run(program.manifest, hardware, Program(program.manifest).options(given), *data)
    layers = done.summary.staleness.values()
    return {
        "accuracy": done.summary.validation["accuracy"] or 0.0, "rate": done.report["instances_per_s"], "busy": done.report["mean_utilisation"],
        "mean": max((x["mean"] or 0.0 for x in layers), default=0.0), "max": max((x["max"] or 0 for x in layers), default=0),
    }  # fmt: skip


def in_flight(devices: int) -> int:
    return 4 * devices if devices > 1 else 1


def table(a: argparse.Namespace) -> tuple[list[list[str]], list[dict[str, Any]]]:
    program = graph_of(model())
    folder = data_folder("mnist")
    whole = (program.read(folder, "train"), program.read(folder, "valid"))
    data = (study.first(whole[0], a.instances), study.first(whole[1], a.instances))
    body, points, base = [], [], 0.0
    for devices in a.devices:
        for policy in POLICIES if devices > 1 else ("plain",):
            runs = [train(program, data, devices, policy, seed, a) for seed in range(a.seeds)]
            print(f"  {devices} devices, {policy}: {runs}", file=sys.stderr, flush=True)
            accuracies, rate = [r["accuracy"] for r in runs], statistics.median(r["rate"] for r in runs)
            base = base or rate
            mean = {k: statistics.mean(r[k] for r in runs) for k in ("mean", "busy")}
            points.append({"devices": devices, "policy": policy, "rate": rate, "accuracy": statistics.median(accuracies), "staleness": mean["mean"]})
            body.append([
                str(devices), str(in_flight(devices)), "any" if devices == 1 else policy, number(rate), f"{rate / base:.2f}x",
                f"{100 * mean['busy']:.0f} %",
                f"{mean['mean']:.2f}", number(max(r["max"] for r in runs)), f"{100 * statistics.median(accuracies):.2f} %",
                f"{100 * min(accuracies):.2f}–{100 * max(accuracies):.2f}",
            ])  # fmt: skip
    return body, points


def plot(points: list[dict[str, Any]]) -> str:
    """Draw rate and accuracy against devices, a line for each policy; return the file's name."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    colours = {"sync": "#2b6cb0", "plain": "#c03a2b", "stash": "#2e8b57", "corrected": "#8e44ad"}
    alone = [p for p in points if p["devices"] == 1]
    for policy, mark in zip(POLICIES, "soD^"):
        mine = alone + [p for p in points if p["policy"] == policy and p["devices"] > 1]
        x = [p["devices"] for p in mine]
        panels[0].plot(x, [p["rate"] for p in mine], color=colours[policy], marker=mark, markersize=4, label=policy)
        panels[1].plot(x, [100 * p["accuracy"] for p in mine], color=colours[policy], marker=mark, markersize=4, label=policy)
    for panel, label in zip(panels, ("images a virtual second", "accuracy, %")):
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted({p["devices"] for p in points}), [str(d) for d in sorted({p["devices"] for p in points})])
        panel.set_xlabel("devices")
        panel.set_ylabel(label)
        panel.grid(color="#e0e0e0", linewidth=0.6)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    panels[0].set_yscale("log")
    panels[1].legend(frameon=False, fontsize=9)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / "devices.svg", metadata={"Date": None})
    plt.close(figure)
    return "devices.svg"


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="put the table and the picture into docs/results.md")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--instances", type=int, default=10_000, help="images of each split")
    p.add_argument("--rate", type=float, default=0.05, help="learning rate of plain SGD")
    p.add_argument("--devices", type=int, nargs="+", default=list(DEVICES))
    a = p.parse_args(argv)
    body, points = table(a)
    print(text_table(HEADS, body))
    if a.write:
        words = (
            f"A residual network of {DEPTH} layers on {a.instances:,} images of MNIST, plain SGD with a learning rate of {a.rate:g}, an update every "
            f"{FREQUENCY} images; accuracy on others after {a.epochs} epochs, medians over {a.seeds} seeds. Simulated devices of 1 TFLOP/s "
            "that work on one image at a time, links that limit nothing, the layers placed by `balanced`; four times as many images in flight as "
            "there are devices. "
            "`sync` drains the pipeline before every update. Staleness: of the layer where it is largest, in updates."
        )
        picture = plot(points)
        text = f"## Devices in a row\n\n{words}\n\n{markdown_table(HEADS, body)}\n\n![Rate and accuracy by devices](results/{picture})"
        put_part("devices", "python -m experiments.devices --write", text)


if __name__ == "__main__":
    main(sys.argv[1:])
