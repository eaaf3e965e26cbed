"""Calls that run at the same time, each on a core of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence


def together(calls: Sequence[Callable[[], None]]) -> None:
    """Run each call on a thread that stays on one core, a different one for each as long as there are enough; raise what one of them raised."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            if cores:
                os.sched_setaffinity(0, {cores[k % len(cores)]})  # of this thread alone
            calls[k]()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


__all__ = ["together"]
