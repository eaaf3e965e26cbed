"""The MNIST perceptron, trained to its target at various max_active_keys, min_update_frequency and workers: throughput, epochs, staleness.

Groups of 100 images; SGD.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from benchmarks.harness import number
from benchmarks.ours import data_folder, graph_of
from benchmarks.report import markdown_table, processor, text_table
from experiments.document import put_part

HEADS = ("workers", "max_active_keys", "min_update_frequency", "images/s", "against 1", "epochs to target", "seconds", "staleness", "largest")
GROUP = 100


def train(program: Any, data: tuple[Any, Any], setting: tuple[int, int, int], seed: int, a: argparse.Namespace) -> dict[str, Any]:
    """Train once with `setting` (workers, frequency, active); return the figures of a row; `seconds` is None if the target was not reached."""
    program.parameters = None
    workers, frequency, active = setting
    summary = program.train(
        *data, workers=workers, max_active_keys=active, min_update_frequency=frequency, group=GROUP, seed=seed, epochs=a.epochs,
        until=f"accuracy >= {a.target}", learning_rate=a.rate,
    )  # fmt: skip
    layers = summary.staleness.values()
    return {
        "rate": summary.train_instances_per_s, "reached": summary.target_reached, "epochs": summary.epochs, "seconds": summary.time_to_target_s,
        "mean": max((x["mean"] or 0.0 for x in layers), default=0.0), "max": max((x["max"] or 0 for x in layers), default=0),
    }  # fmt: skip


def table(a: argparse.Namespace) -> list[list[str]]:
    """Train in all settings, a seed of all settings at a time, so that what disturbs the machine disturbs them alike."""
    program = graph_of("mnist_mlp", **({"hidden": 256} if a.quick else {}))
    data = (program.read(data_folder("mnist"), "train"), program.read(data_folder("mnist"), "valid"))
    settings = [(w, f, m) for w in a.workers for f in a.frequency for m in a.active]
    runs: dict[tuple[int, int, int], list[dict[str, Any]]] = {s: [] for s in settings}
    for seed in range(a.seeds):
        for s in settings:
            runs[s].append(train(program, data, s, seed, a))
            print(f"  seed {seed}: workers, frequency, active {s}: {runs[s][-1]}", file=sys.stderr, flush=True)
    medians = {s: statistics.median(r["rate"] for r in them) for s, them in runs.items()}
    return [_row(s, them, medians, a.epochs) for s, them in runs.items()]


def _row(setting: tuple[int, int, int], them: list[dict[str, Any]], medians: dict[tuple[int, int, int], float], limit: int) -> list[str]:
    w, f, m = setting
    reached = [r for r in them if r["reached"]]
    base = medians.get((w, f, 1))
    epochs = f"{statistics.median(r['epochs'] for r in reached):g}" if reached else f"over {limit}"
    if reached and len(reached) < len(them):
        epochs += f" ({len(reached)} of {len(them)} runs)"
    seconds = f"{statistics.median(r['seconds'] for r in reached):.1f}" if reached else "-"
    ratio = f"{medians[setting] / base:.2f}x" if base else ""
    staleness = f"{statistics.mean(r['mean'] for r in them):.2f}"
    return [str(w), str(m), str(f), number(medians[setting]), ratio, epochs, seconds, staleness, str(max(r["max"] for r in them))]


def write(rows: list[list[str]], words: str) -> None:
    put_part("asynchrony", "python -m experiments.asynchrony --write", f"## Asynchrony: MNIST perceptron\n\n{words}\n\n{markdown_table(HEADS, rows)}")


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="a smaller network, one seed, fewer settings")
    p.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    p.add_argument("--active", type=int, nargs="+", help="max_active_keys, in groups of 100")
    p.add_argument("--frequency", type=int, nargs="+", help="min_update_frequency")
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--seeds", type=int)
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--rate", type=float, default=0.1, help="learning rate")
    p.add_argument("--target", type=float, default=0.97, help="validation accuracy")
    a = p.parse_args(argv)
    a.active = a.active or ([1, 4] if a.quick else [1, 2, 4, 8])
    a.frequency = a.frequency or ([100] if a.quick else [100, 200])
    a.seeds = a.seeds or (1 if a.quick else 3)
    rows = table(a)
    print(text_table(HEADS, rows))
    if a.write:
        words = (
            f"Until a validation accuracy of {a.target:g}, by SGD with a learning rate of {a.rate:g}, in groups of {GROUP} images, which "
            f"`max_active_keys` counts; medians over {a.seeds} seeds. Staleness: updates of a layer between an image's forward and its backward, "
            f"of the layer where it is largest. {processor()}."
        )
        write(rows, words)


if __name__ == "__main__":
    main(sys.argv[1:])
