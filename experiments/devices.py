"""What a longer pipeline does to accuracy: a deep residual network over 1 to 64 simulated devices, with ever more instances in flight.

    python -m experiments.devices [--seeds 0 1 2] [--write]      what has been run with the same settings is not run again

Each run is a line of docs/results/devices.jsonl. `--seconds N` begins no run after N seconds, so that the study can be made in pieces.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ampc.place import load_target
from ampc.place.target import Target, resized
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
IN_FLIGHT = {"sync": (4,), "plain": (4, 16), "stash": (4,), "corrected": (4, 16)}
"""Policy -> how many images are in flight for each device. A synchronous pass has no use for more: a batch drains before the next."""
RUNS = FOLDER / "devices.jsonl"


def model(depth: int = DEPTH, width: int = 160) -> str:
    """Return the text of a residual network of `depth` layers for MNIST, so wide that the first, of 784 pixels, takes not much longer than others."""
    blocks = range(1, depth - 1)
    return "\n".join([
        f"model deep(size = 784, hidden = {width}, classes = 10):",
        "    instance:", "        image: float[size]", "        label: int < classes", "",
        "    first = Linear(size, hidden)", *(f"    block{k} = Linear(hidden, hidden)" for k in blocks), "    last = Linear(hidden, classes)", "",
        "    h = relu(first(image))", *(f"    h = h + {4 / depth:g} * relu(block{k}(h))" for k in blocks), "    logits = last(h)",
        "    loss   cross_entropy(logits, label)", "    metric accuracy(logits, label)", "",
    ])  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
    """One training on simulated devices. rate: images a virtual second of the last pass; busy: mean share of the time over the devices.

    mean, largest: staleness in updates, of the layer where its mean is largest and of any. wall_s: real seconds that the simulation took.
    """

    fingerprint: str
    devices: int
    in_flight: int
    policy: str
    seed: int
    accuracy: float
    rate: float
    busy: float
    mean: float
    largest: int
    wall_s: float
    finished: str


def load() -> list[Run]:
    """Return all runs, oldest first."""
    lines = RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else []
    return [Run(**json.loads(line)) for line in lines if line]


def append(run: Run) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(run)) + "\n")


def fingerprint(devices: int, in_flight: int, policy: str, seed: int, a: argparse.Namespace) -> str:
    """Return a text that tells one run from all others: a changed network, target or setting makes another run."""
    target = hardware(devices)
    device, links = target.devices[0], target.links
    rates = (device.matrix_flops_per_s["fp32"], device.vector_flops_per_s, device.message_overhead_s, device.messages_per_firing)
    ways = (links.topology, links.bytes_per_s, links.latency_s, links.overhead_s)
    made_of = hashlib.sha256(json.dumps([model(), rates, ways]).encode()).hexdigest()[:12]
    how = [a.instances, a.epochs, a.rate, settings(in_flight, policy, seed, a)]
    return json.dumps([made_of, devices, in_flight, policy, seed, *how], sort_keys=True)


def hardware(devices: int) -> Target:
    """Return so many devices in a network whose links limit nothing: what is studied is the length of the pipeline."""
    target = resized(load_target("fpga_1tflops"), devices)
    return msgspec.structs.replace(target, links=msgspec.structs.replace(target.links, bytes_per_s=1e11, latency_s=1e-7))


def settings(in_flight: int, policy: str, seed: int, a: argparse.Namespace) -> dict[str, Any]:
    return {
        "epochs": a.epochs, "max_active_keys": in_flight, "min_update_frequency": FREQUENCY, "optimizer": "sgd", "learning_rate": a.rate,
        "seed": seed, "mode": "sync" if policy == "sync" else "async", "staleness": policy if policy in ("stash", "corrected") else "plain",
    }  # fmt: skip


def train(program: Any, data: tuple[Any, Any], devices: int, in_flight: int, policy: str, seed: int, a: argparse.Namespace) -> Run:
    """Train once on so many devices."""
    where = study.Hardware(hardware(devices), "balanced", Conditions(seed=seed))
    done = study.run(program.manifest, where, Program(program.manifest).options(settings(in_flight, policy, seed, a)), *data)
    layers = done.summary.staleness.values()
    return Run(
        fingerprint(devices, in_flight, policy, seed, a), devices, in_flight, policy, seed, done.summary.validation["accuracy"] or 0.0,
        done.report["instances_per_s"], done.report["mean_utilisation"], max((x["mean"] or 0.0 for x in layers), default=0.0),
        max((x["max"] or 0 for x in layers), default=0), done.wall_s, time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip


def wanted(a: argparse.Namespace) -> Iterator[tuple[int, int, str, int]]:
    """Yield (devices, images in flight, policy, seed) of every run, all points of one seed before the next."""
    for seed in a.seeds:
        for devices in a.devices:
            if devices == 1:
                yield 1, 1, "plain", seed
                continue
            for policy, each in IN_FLIGHT.items():
                for k in each:
                    yield devices, k * devices, policy, seed


def run_all(a: argparse.Namespace) -> bool:
    """Make the runs that are missing; return whether none is left."""
    known = {r.fingerprint for r in load()}
    missing = [w for w in wanted(a) if fingerprint(*w, a) not in known]
    if not missing:
        return True
    began = time.monotonic()
    program = graph_of(model())
    folder = data_folder("mnist")
    whole = (program.read(folder, "train"), program.read(folder, "valid"))
    data = (study.first(whole[0], a.instances), study.first(whole[1], a.instances))
    for i, point in enumerate(missing):
        if a.seconds and time.monotonic() - began > a.seconds:
            print(f"  {len(missing) - i} runs are left", file=sys.stderr)
            return False
        run = train(program, data, *point, a)
        append(run)
        print(f"  {dataclasses.replace(run, fingerprint='')}", file=sys.stderr, flush=True)
    return True


def table(runs: Sequence[Run], a: argparse.Namespace) -> tuple[list[list[str]], list[dict[str, Any]]]:
    """Return the table's rows, medians and means over seeds, and the same as points of the picture."""
    body, points, base = [], [], 0.0
    for devices, in_flight, policy in sorted(dict.fromkeys(w[:3] for w in wanted(a)), key=lambda point: point[:2]):
        mine = [r for r in runs if (r.devices, r.in_flight, r.policy) == (devices, in_flight, policy)]
        if not mine:
            continue
        accuracies, rate = [r.accuracy for r in mine], statistics.median(r.rate for r in mine)
        base = base or rate
        busy, stale = statistics.mean(r.busy for r in mine), statistics.mean(r.mean for r in mine)
        points.append({
            "devices": devices, "each": in_flight // devices, "policy": policy, "rate": rate, "accuracy": statistics.median(accuracies),
            "low": min(accuracies), "high": max(accuracies), "staleness": stale,
        })  # fmt: skip
        body.append([
            str(devices), number(in_flight), "any" if devices == 1 else policy, number(rate), f"{rate / base:.2f}x", f"{100 * busy:.0f} %",
            f"{stale:.2f}", number(max(r.largest for r in mine)), f"{100 * statistics.median(accuracies):.2f} %",
            f"{100 * min(accuracies):.2f}–{100 * max(accuracies):.2f}",
        ])  # fmt: skip
    return body, points


def plot(points: list[dict[str, Any]]) -> str:
    """Draw rate and accuracy (with its range over seeds) against devices, a line for each policy and depth; return the file's name."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), layout="constrained")
    colours = {"sync": "#2b6cb0", "plain": "#c03a2b", "stash": "#2e8b57", "corrected": "#8e44ad"}
    alone = [p for p in points if p["devices"] == 1]
    marks = dict(zip(IN_FLIGHT, "soD^"))
    for policy, each in ((policy, k) for policy, several in IN_FLIGHT.items() for k in several):
        mine = alone + [p for p in points if (p["policy"], p["each"]) == (policy, each) and p["devices"] > 1]
        x = [p["devices"] for p in mine]
        style: dict[str, Any] = {"color": colours[policy], "marker": marks[policy], "markersize": 4, "linestyle": "-" if each == 4 else "--"}
        panels[0].plot(x, [p["rate"] for p in mine], **style)
        panels[1].fill_between(x, [100 * p["low"] for p in mine], [100 * p["high"] for p in mine], color=colours[policy], alpha=0.1, linewidth=0)
        panels[1].plot(x, [100 * p["accuracy"] for p in mine], label=f"{policy}, {each} a device", **style)
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


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="put the table and the picture into docs/results.md")
    p.add_argument("--report", action="store_true", help="make the table of what has been run, and run nothing")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--instances", type=int, default=4_000, help="images of each split")
    p.add_argument("--rate", type=float, default=0.05, help="learning rate of plain SGD")
    p.add_argument("--devices", type=int, nargs="+", default=list(DEVICES))
    p.add_argument("--seconds", type=float, default=0.0, help="begin no run after so many; 0: all")
    a = p.parse_args(argv)
    complete = a.report or run_all(a)
    asked = {fingerprint(*w, a) for w in wanted(a)}
    runs = [r for r in load() if r.fingerprint in asked]
    body, points = table(runs, a)
    print(text_table(HEADS, body))
    if a.write and points:
        words = (
            f"A residual network of {DEPTH} layers on {a.instances:,} images of MNIST, plain SGD with a learning rate of {a.rate:g}, an update every "
            f"{FREQUENCY} images; accuracy on others after {a.epochs} epochs, medians over {len({r.seed for r in runs})} seeds. Simulated devices of "
            "1 TFLOP/s that work on one image at a time, links that limit nothing, the layers placed by `balanced`; 4 or 16 images in flight for "
            "each device. `sync` drains the pipeline before every update. Staleness: of the layer where it is largest, in updates. "
            "Each run is a line of [results/devices.jsonl](results/devices.jsonl)."
        )
        picture = plot(points)
        text = f"## Devices in a row\n\n{words}\n\n{markdown_table(HEADS, body)}\n\n![Rate and accuracy by devices](results/{picture})"
        put_part("devices", "python -m experiments.devices --write", text)
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
