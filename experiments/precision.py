"""What products of bf16 factors cost and give: each task to its target with `precision` fp32 and bf16, the same settings, seeds and order.

    python -m experiments.precision [TASK ...] [--seeds 0 1 2] [--write]      what has been run with the same settings is not run again

Needs MKL and a processor with products of bf16 (`ampc doctor`).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import number
from benchmarks.ours import NoData, graph_of
from benchmarks.report import markdown_table, processor, text_table
from experiments.document import put_part
from experiments.records import FOLDER
from experiments.tasks import TASKS, Task

HEADS = (
    "task", "target", "precision", "runs at target", "epochs to target", "best value", "lowest–highest", "processor ms an instance", "time to fp32"
)  # fmt: skip
PRECISIONS = ("fp32", "bf16")
RUNS = FOLDER / "precision.jsonl"


@dataclasses.dataclass(frozen=True)
class Run:
    """One training. best: of the validation metric. epochs: passes until the target was reached, or all; cpu_s: processor time of all passes."""

    fingerprint: str
    task: str
    precision: str
    seed: int
    reached: bool
    epochs: float
    best: float
    instances: int
    cpu_s: float
    blas: str
    finished: str


def load() -> list[Run]:
    lines = RUNS.read_text(encoding="utf-8").splitlines() if RUNS.exists() else []
    return [Run(**json.loads(line)) for line in lines if line]


def fingerprint(task: Task, precision: str, seed: int, workers: int) -> str:
    return json.dumps([task.fingerprint(precision, seed), workers])


def train(task: Task, precision: str, seed: int, workers: int) -> Run:
    """Train once from a fresh start, until the target; raise NoData if the original files aren't there."""
    from ampc.runtime.events import Check, Epoch

    data = task.data(seed)
    program = graph_of(task.model, **task.overrides)
    read = program.read(data, "train"), program.read(data, "valid")
    scale, n, values = task.scale(data), read[0].n, []

    def listen(event: Any) -> None:
        if isinstance(event, Check | Epoch) and event.validation[task.metric] is not None:
            values.append(event.validation[task.metric] * scale)

    settings: dict[str, Any] = {"epochs": task.epochs, "until": task.until(data), "validate_instances": -(-n // task.checks), **task.settings}
    program.train(*read, **{**settings, "precision": precision, "epochs": 0})  # compiles, so that the clock runs without
    program.parameters = None
    cpu = time.process_time()
    summary = program.train(*read, precision=precision, seed=seed, workers=workers, on_event=listen, **settings)
    cpu = time.process_time() - cpu
    if summary.interrupted:
        raise KeyboardInterrupt  # no run that counts
    return Run(
        fingerprint(task, precision, seed, workers), task.name, precision, seed, summary.target_reached, summary.instances / n,
        (min if task.falls else max)(values), summary.instances, cpu, summary.blas, time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """A row for each task and precision that has runs; times are divided over seeds that have both."""
    out = []
    for task in TASKS:
        of = {p: [r for r in runs if r.task == task.name and r.precision == p] for p in PRECISIONS}
        for precision, own in of.items():
            if not own:
                continue
            reached = [r.epochs for r in own if r.reached]
            spent = {p: {r.seed: 1000 * r.cpu_s / r.instances for r in of[p]} for p in PRECISIONS}
            both = spent["fp32"].keys() & spent["bf16"].keys()
            ratio = statistics.median(spent["bf16"][s] / spent["fp32"][s] for s in both) if both and precision == "bf16" else None
            out.append([
                task.title, f"{task.target:g}{' ' + task.unit if task.unit else ''}", precision, f"{len(reached)} of {len(own)}",
                f"{statistics.median(reached):.3g}" if reached else "-", f"{statistics.median(r.best for r in own):.4f}",
                f"{min(r.best for r in own):.4f}–{max(r.best for r in own):.4f}", number(statistics.median(spent[precision].values())),
                f"{ratio:.2f}x" if ratio else "",
            ])  # fmt: skip
    return out


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [t.name for t in TASKS]
    p.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(names)}; all by default")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--write", action="store_true", help="put the table of all that has been run into docs/results.md")
    a = p.parse_args(argv)
    unknown = [t for t in a.tasks if t not in names]
    if unknown:
        p.error(f"there is no task {', '.join(unknown)}; tasks are {', '.join(names)}")
    for seed in a.seeds:
        for task in TASKS:
            if a.tasks and task.name not in a.tasks:
                continue
            for precision in PRECISIONS:
                if fingerprint(task, precision, seed, a.workers) in {r.fingerprint for r in load()}:
                    continue
                try:
                    run = train(task, precision, seed, a.workers)
                except NoData as missing:
                    print(f"{task.name} is left out: {missing}", file=sys.stderr)
                    break
                with RUNS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(dataclasses.asdict(run)) + "\n")
                print(f"  {run}", file=sys.stderr, flush=True)
    known = {fingerprint(t, p, r.seed, a.workers) for t in TASKS for p in PRECISIONS for r in load()}
    body = rows([r for r in load() if r.fingerprint in known])
    print(text_table(HEADS, body))
    if a.write:
        words = (
            "The tasks above with matrix products of float32 and of bf16 factors (`precision`), the same settings and seeds, up to the first "
            "validation at the target; medians over seeds. Processor time with that of validation, without compilation; other programs run "
            f"beside it. {a.workers} worker{'s' if a.workers > 1 else ''}. {processor()}, MKL. Each run is a line of "
            "[results/precision.jsonl](results/precision.jsonl)."
        )
        put_part("precision", "python -m experiments.precision --write", f"## Precision\n\n{words}\n\n{markdown_table(HEADS, body)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
