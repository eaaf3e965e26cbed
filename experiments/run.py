"""Train every task to its target, asynchronously and synchronously, with several seeds; keep each run, make docs/results.md and its plots.

    python -m experiments.run [TASK ...] [--seeds N] [--workers N]     what has been run with the same settings is not run again
    python -m experiments.run --report                                 tables and plots alone
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from typing import Any

from benchmarks.ours import NoData, graph_of
from experiments import report
from experiments.records import Record, append, load
from experiments.tasks import TASKS, Task


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def train(task: Task, mode: str, seed: int, workers: int) -> Record:
    """Train once from a fresh start; raise NoData if the original files aren't there."""
    from ampc.runtime.events import Epoch

    data = task.data(seed)
    scale = task.scale(data)
    program = graph_of(task.model, **task.overrides)
    read = program.read(data, "train"), program.read(data, "valid")
    curve: list[tuple[float, float]] = []

    def listen(event: Any) -> None:
        if isinstance(event, Epoch):
            value = event.validation[task.metric]
            curve.append((event.elapsed_s, float("nan") if value is None else value * scale))
            say(f"    epoch {event.epoch}: {curve[-1][1]:.4f} after {event.elapsed_s:.1f} s, {event.instances_per_s:,.0f}/s")

    settings: dict[str, Any] = {"epochs": task.epochs, "until": task.until(data), **task.settings}
    load_before, cpu, wall = os.getloadavg()[0], time.process_time(), time.perf_counter()
    summary = program.train(*read, mode=mode, seed=seed, workers=workers, on_event=listen, **settings)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    layers = summary.staleness.values()
    return Record(
        fingerprint=task.fingerprint(mode, seed), task=task.name, mode=mode, seed=seed, workers=summary.workers, reached=bool(summary.target_reached),
        epochs=summary.epochs, seconds=summary.time_to_target_s, rate=summary.train_instances_per_s or 0.0, curve=curve,
        staleness=max((x["mean"] or 0.0 for x in layers), default=0.0), cpu_share=cpu / wall, load_before=load_before,
        finished=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [t.name for t in TASKS]
    p.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(names)}; all by default")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first-seed", type=int, default=0)
    p.add_argument("--workers", type=int, default=0, help="0: as many as there are cores")
    p.add_argument("--modes", nargs="+", choices=("async", "sync"))
    p.add_argument("--report", action="store_true", help="make the tables and plots of what has been run, and run nothing")
    a = p.parse_args(argv)
    unknown = [t for t in a.tasks if t not in names]
    if unknown:
        p.error(f"there is no task {', '.join(unknown)}; tasks are {', '.join(names)}")
    if not a.report:
        for seed in range(a.first_seed, a.first_seed + a.seeds):
            for task in TASKS:
                if not a.tasks or task.name in a.tasks:
                    run(task, seed, a)
    report.write(load())
    return 0


def run(task: Task, seed: int, a: argparse.Namespace) -> None:
    """Run a task's modes with one seed, one after the other, so that what disturbs the machine disturbs both."""
    for mode in a.modes or task.modes:
        if mode not in task.modes or any(r.fingerprint == task.fingerprint(mode, seed) for r in load()):
            continue
        say(f"{task.name}, {mode}, seed {seed}")
        try:
            record = train(task, mode, seed, a.workers)
        except NoData as missing:
            say(f"  left out: {missing}")
            return
        append(record)
        say(f"  {dataclasses.replace(record, curve=[], fingerprint='')}")


if __name__ == "__main__":
    sys.exit(main())
