"""Train every task to its target, asynchronously and synchronously, with several seeds; keep each run, make docs/results.md and its plots.

    python -m experiments.run [TASK ...] [--seeds 0 1 2]     what has been run with the same settings is not run again
    python -m experiments.run --report                       tables and plots alone
    python -m experiments.run --modes torch                  PyTorch to the same targets, in an environment that has it
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import sys
import time
from typing import Any

from ampc.place import usable_cores
from benchmarks.ours import NoData, graph_of
from experiments import beside_torch, report
from experiments.records import Record, append, load
from experiments.tasks import MODES, RIVALS, TASKS, Task


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def train(task: Task, mode: str, seed: int, workers: int) -> Record:
    """Train once from a fresh start; raise NoData if the original files aren't there."""
    from ampc.runtime.events import Check, Epoch

    data = task.data(seed)
    scale = task.scale(data)
    program = graph_of(task.model, **task.overrides)
    read = program.read(data, "train"), program.read(data, "valid")
    curve: list[tuple[float, float, float]] = []
    n = read[0].n

    def listen(event: Any) -> None:
        if isinstance(event, Check | Epoch):
            value = event.validation[task.metric]
            curve.append((event.epoch - 1 + event.instances / n, event.elapsed_s, float("nan") if value is None else value * scale))
            say(f"  {task.name}, {mode}, seed {seed}, epoch {curve[-1][0]:.2f}: {curve[-1][2]:.4f} after {event.elapsed_s:.1f} s")

    every = -(-n // task.checks)
    settings: dict[str, Any] = {"epochs": task.epochs, "until": task.until(data), "validate_instances": every, **task.settings_of(mode)}
    load_before, cpu, wall = os.getloadavg()[0], time.process_time(), time.perf_counter()
    summary = program.train(*read, mode=mode, seed=seed, workers=workers, on_event=listen, **settings)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    layers = summary.staleness.values()
    return Record(
        fingerprint=task.fingerprint(mode, seed), task=task.name, mode=mode, seed=seed, workers=summary.workers, reached=bool(summary.target_reached),
        epochs=summary.instances / n, seconds=summary.time_to_target_s, rate=summary.train_instances_per_s or 0.0, curve=curve,
        staleness=max((x["mean"] or 0.0 for x in layers), default=0.0), cpu_share=cpu / wall, load_before=load_before,
        finished=time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [t.name for t in TASKS]
    p.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(names)}; all by default")
    p.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    p.add_argument("--workers", type=int, default=2, help="workers of each run")
    p.add_argument("--modes", nargs="+", choices=(*MODES, *RIVALS), default=MODES)
    p.add_argument("--report", action="store_true", help="make the tables and plots of what has been run, and run nothing")
    a = p.parse_args(argv)
    unknown = [t for t in a.tasks if t not in names]
    if unknown:
        p.error(f"there is no task {', '.join(unknown)}; tasks are {', '.join(names)}")
    if not a.report:
        for seed in a.seeds:
            for task in TASKS:
                if not a.tasks or task.name in a.tasks:
                    side_by_side(task, seed, a)
    report.write(load())
    return 0


def side_by_side(task: Task, seed: int, a: argparse.Namespace) -> None:
    """Run a task's modes with one seed, each in a process of its own.

    At the same time where there are cores enough, so that what disturbs one disturbs the other; else one after the other.
    """
    done = {r.fingerprint for r in load()}
    of = (*task.modes, *(() if task.same_network else RIVALS))
    modes = [m for m in of if m in a.modes and task.fingerprint(m, seed) not in done]
    try:
        task.data(seed)
    except NoData as missing:
        say(f"{task.name} is left out: {missing}")
        return
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=run, args=(task, mode, seed, a.workers)) for mode in modes]
    together = a.workers * len(processes) <= usable_cores()
    for process in processes:
        process.start()
        if not together:
            process.join()
    for process in processes:
        process.join()
        if process.exitcode:
            say(f"{task.name}: a run ended with exit code {process.exitcode}")


def run(task: Task, mode: str, seed: int, workers: int) -> None:
    record = beside_torch.train(task, seed, workers) if mode == "torch" else train(task, mode, seed, workers)
    append(record)
    say(f"{dataclasses.replace(record, curve=[], fingerprint='')}")


if __name__ == "__main__":
    sys.exit(main())
