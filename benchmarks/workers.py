"""Two workers against one, for each of the paper's models: layers spread, or copied (`--replicas auto`); and what the machine allows.

That is told by two engines of one worker side by side: they share nothing but caches, memory and the processor's clock, so that their rate over
that of one alone is the most that a second worker can bring here.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, copied, providers
from benchmarks.report import Goal, publish
from benchmarks.tasks import Task, with_data

GOAL = 1.8


class Pair:
    """Two engines of one worker each, on a thread each: counts the instances of both."""

    def __init__(self, **arguments: Any) -> None:
        self.both = [Ours(**arguments) for _ in range(2)]
        self.note = self.both[0].note

    def window(self, seconds: float) -> tuple[float, float]:
        rates = [0.0, 0.0]

        def run(k: int) -> None:
            items, took = self.both[k].window(seconds)
            rates[k] = items / took

        threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return sum(rates) * seconds, seconds


def contenders(task: Task, data: str) -> list[Contender]:
    given = {k: v for k, v in task.settings.items() if k != "told"}
    one: dict[str, Any] = {"model": task.model, "data": data, "blas": providers()[0], **given, "workers": 1}
    two = {**one, "workers": 2}
    return [
        Contender("1 worker", Ours, one),
        Contender("2 workers, layers spread", Ours, two, 2),
        Contender("2 workers, copies of layers", Ours, copied(two), 2),
        Contender("two engines side by side", Pair, one, 2),
    ]


def goals(task: Task, c: Comparison) -> list[Goal]:
    best = c.best("2 workers")
    return [
        Goal(f"{task.name}: two workers against one ({best.partition(', ')[2]})", c.ratio(best, "1 worker"), GOAL),
        Goal(f"{task.name}: two engines side by side", c.ratio("two engines side by side", "1 worker"), GOAL),
    ]


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--tasks", default="", help="tasks whose names contain one of these words, separated by commas")
    a = p.parse_args(argv)
    made, reached = [], []
    for task, data in with_data():
        if a.tasks and not any(w in task.name for w in a.tasks.split(",")):
            continue
        made.append(compare(f"Two workers: {task.name}", task.unit, wanted(contenders(task, data), a.only), **lengths(a, 1.0)))
        reached += goals(task, made[-1])
    publish("workers", made, reached, write=a.write)
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
