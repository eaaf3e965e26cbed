"""The tasks that several parts go through: ampc's program, data and settings, the best known forms of PyTorch, and what is to be reached.

A part about training has more contenders of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import babi, ggsnn, list_reduction, mnist, tree_lstm
from benchmarks.harness import Contender
from benchmarks.ours import NoData
from benchmarks.torch_side import words


@dataclasses.dataclass(frozen=True)
class Task:
    """`batched` and `single`: arguments of `rival`, which answers for many instances at a time or for one. share: goal of the GEMM peak, in %."""

    name: str
    unit: str
    model: str
    folder: Callable[[], str]
    settings: dict[str, Any]
    rival: Callable[..., Any]
    batched: dict[str, Any]
    single: dict[str, Any]
    share: float = 0.0

    def torch(self, data: str, form: dict[str, Any], threads: int, **more: Any) -> Contender:
        """Return PyTorch without gradients."""
        compiled = ", compiled" * bool(more.get("compiled"))
        arguments = {"data": data, "threads": threads, "infer": True, **form, **more}
        return Contender(f"{self.name}: torch{compiled}, {words(threads)}", self.rival, arguments, threads)


TASKS = (
    Task(
        "list reduction", "sequences/s", list_reduction.MODEL, list_reduction.folder, list_reduction.SETTINGS, list_reduction.rival,
        {"batch": 100, "cell": "loop"}, {"batch": 1, "cell": "loop"}, 50,
    ),
    Task(
        "MNIST", "images/s", mnist.MODEL, mnist.folder, {**mnist.SETTINGS, "instances": mnist.INSTANCES}, mnist.rival, {"optimizer": "sgd"},
        {"optimizer": "sgd", "batch": 1}, 80,
    ),
    Task(
        "QM9, hidden 100", "molecules/s", ggsnn.MODEL, ggsnn.folder, ggsnn.settings(100), ggsnn.rival,
        {"form": "100, sources summed first", "hidden": 100}, {"form": "one molecule", "hidden": 100}, 60,
    ),
    Task(
        "QM9, hidden 200", "molecules/s", ggsnn.MODEL, ggsnn.folder, ggsnn.settings(200), ggsnn.rival,
        {"form": "100, sources summed first", "hidden": 200}, {"form": "one molecule", "hidden": 200}, 60,
    ),
    Task("Tree-LSTM", "trees/s", tree_lstm.MODEL, tree_lstm.folder, tree_lstm.settings(), tree_lstm.rival, {"batch": 100}, {"batch": 0}, 60),
    Task("bAbI 15", "instances/s", babi.MODEL, babi.folder, babi.SETTINGS, babi.rival, {"batch": 100}, {"batch": 1}),
)  # fmt: skip


def with_data() -> Iterator[tuple[Task, str]]:
    """Yield each task whose data is here, with the folder; say which are left out."""
    for task in TASKS:
        try:
            folder = task.folder()
        except NoData as missing:
            print(f"\n{task.name} is left out: {missing}", flush=True)
            continue
        yield task, folder


__all__ = ["TASKS", "Task", "with_data"]
