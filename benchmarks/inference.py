"""Predictions of every task: many instances at a time, and one alone. PyTorch runs forward in inference mode; ampc's predictions are collected, too.

    python -m benchmarks.inference throughput|latency

Latency is the reciprocal of the rate with one instance at a time. `in a stream`: ampc's instances are handed over together, but each waits for the
one before. `a call each`: a predictor is called with one instance that is read already, as PyTorch's module is with tensors. Both sides have one
thread or two; the better one counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, ours, providers
from benchmarks.report import Goal, Table, publish
from benchmarks.tasks import TASKS, Task, with_data



def _each(made: Callable[[Task, str], list[Contender]]) -> list[Contender]:
    """Return the contenders of all tasks whose data is here."""
    return [c for task, data in with_data() for c in made(task, data)]


def _throughput(task: Task, data: str) -> list[Contender]:
    made = [task.torch(data, task.batched, threads) for threads in (1, 2)]
    settings = {**task.settings, "told": False, "work": "infer"}
    mine = [c for c in ours(task.model, data, settings=settings) if c.name.startswith(f"ampc {providers()[0]}")]
    return made + [Contender(f"{task.name}: {c.name}", c.make, c.arguments, c.threads) for c in mine]


def _latency(task: Task, data: str) -> list[Contender]:
    made = [task.torch(data, task.single, threads) for threads in (1, 2)]
    for work, name, threads in (("stream", "in a stream", 1), ("call", "a call each", 1), ("call", "a call each, 2 threads", 2)):
        arguments = {**task.settings, "told": False, "model": task.model, "data": data, "blas": providers()[0], "work": work, "workers": threads}
        made.append(Contender(f"{task.name}: ampc, {name}", Ours, arguments, threads))
    return made


def throughput(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("Predictions of many instances", "instances/s", wanted(_each(_throughput), a.only), **lengths(a, 0.5, 3))
    goals = []
    for t in TASKS:
        mine, best = c.best(f"{t.name}: ampc"), c.best(f"{t.name}: torch")
        goals.append(Goal(f"predictions, {t.name}", c.ratio(mine, best), 2))
        per_core = c.ratio(c.best(f"{t.name}: ampc", "1 worker"), c.best(f"{t.name}: torch", "1 thread"), thrift=True)
        goals.append(Goal("the same, by processor time, one core", per_core, 2))
    publish("inference", [c], goals, write=a.write)
    return [c]


def latency(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("Predictions of one instance at a time", "instances/s", wanted(_each(_latency), a.only), **lengths(a, 0.5, 3))
    goals, rows = [], []
    for t in TASKS:
        theirs = c.best(f"{t.name}: torch")
        cells = [theirs, *(c.best(f"{t.name}: ampc, {form}") for form in ("in a stream", "a call each"))]
        rows.append([t.name, *(f"{1e6 / c.of(name).median:,.1f} µs" if name else "" for name in cells)])
        for name in cells[1:]:
            low_high = c.ratio(theirs, name)  # of rates: that of their reciprocals is the other way round
            goals.append(Goal(f"{name.replace(': ampc', '')}: latency of PyTorch's", low_high, 0.2, most=True))
    table = Table("Latency of one instance", ("", "PyTorch", "ampc, in a stream", "ampc, a call each"), rows)
    publish("latency", [c], goals, write=a.write, tables=[table])
    return [c]


if __name__ == "__main__":
    {"throughput": throughput, "latency": latency}[sys.argv[1]](sys.argv[2:])
