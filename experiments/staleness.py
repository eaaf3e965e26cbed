"""How staleness hurts, and what the policies give back: list reduction with ever more updates between an instance's forward and its backward.

    python -m experiments.staleness --write
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

HEADS = ("policy", "max_active_keys", "min_update_frequency", "staleness", "largest", "accuracy after", "lowest–highest", "sequences/s")
POLICIES = ("plain", "stash", "corrected")
SETTINGS = ((1, 25), (64, 25), (256, 25), (1024, 25), (4096, 25))
"""(max_active_keys, min_update_frequency): about the first divided by the second is stale."""


def train(program: Any, data: tuple[Any, Any], policy: str, active: int, frequency: int, seed: int, a: argparse.Namespace) -> dict[str, float]:
    program.parameters = None
    summary = program.train(
        *data, staleness=policy, max_active_keys=active, min_update_frequency=frequency, seed=seed, epochs=a.epochs, until="", workers=1,
        optimizer=a.optimizer, learning_rate=a.rate, schedule="constant",
    )  # fmt: skip
    layers = summary.staleness.values()
    return {
        "accuracy": summary.validation["accuracy"] or 0.0, "rate": summary.train_instances_per_s or 0.0,
        "mean": max((x["mean"] or 0.0 for x in layers), default=0.0), "max": max((x["max"] or 0 for x in layers), default=0),
    }  # fmt: skip


def table(a: argparse.Namespace) -> list[list[str]]:
    program = graph_of("list_reduction")
    folder = data_folder("list_reduction")
    data = (program.read(folder, "train"), program.read(folder, "valid"))
    body = []
    for active, frequency in SETTINGS:
        for policy in POLICIES if active > 1 else POLICIES[:1]:
            runs = [train(program, data, policy, active, frequency, seed, a) for seed in range(a.seeds)]
            print(f"  {policy}, {active} in flight, {frequency} an update: {runs}", file=sys.stderr, flush=True)
            accuracies = [r["accuracy"] for r in runs]
            body.append([
                policy if active > 1 else "any", str(active), str(frequency), f"{statistics.mean(r['mean'] for r in runs):.1f}",
                number(max(r["max"] for r in runs)), f"{100 * statistics.median(accuracies):.2f} %",
                f"{100 * min(accuracies):.2f}–{100 * max(accuracies):.2f}", number(statistics.median(r["rate"] for r in runs)),
            ])  # fmt: skip
    return body


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--optimizer", default="adam")
    p.add_argument("--rate", type=float, default=0.002, help="learning rate")
    a = p.parse_args(argv)
    body = table(a)
    print(text_table(HEADS, body))
    if a.write:
        words = (
            f"List reduction, {a.optimizer} with a learning rate of {a.rate:g}, validation accuracy after {a.epochs} epochs: medians over {a.seeds} "
            "seeds. Staleness: updates between an instance's forward and its backward, mean over the layer where it is largest, and the largest seen "
            f"(255 and more count as 255). One worker. {processor()}."
        )
        put_part("staleness", "python -m experiments.staleness --write", f"## Staleness\n\n{words}\n\n{markdown_table(HEADS, body)}")


if __name__ == "__main__":
    main(sys.argv[1:])
