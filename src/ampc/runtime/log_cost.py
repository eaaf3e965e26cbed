"""What it takes to write a log: the engine's own functions, timed on a log that is thrown away.

A recorded pass is longer by that than one which is not, and where firings are short by as much as it takes itself. Who wants to know where the
time of passes goes takes it off (`profile`).
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from numba import types

from ampc.codegen.layout import FIRING, LOG, E, H
from ampc.runtime.log import begin_firing, end_firing
from ampc.runtime.native import ENTRY, JIT, ensure, now, pointer
from ampc.runtime.saving import compiled
from ampc.runtime.trace import LogCost

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

ENTRIES, TOKENS, ROUNDS = 500, 64, 5
"""Entries of a log, and tokens of each of the longer ones; of several rounds the median counts."""


def _entries(I, count, n):
    """`count` firings of n tokens each begin and end."""
    p = pointer(I)
    for _ in range(count):
        begin_firing(p, 0, 0, n)
        end_firing(p, 0, 0, n)


def _looks(I, count):
    """`count` looks at the clock; the last time."""
    p = pointer(I)
    last = 0
    for _ in range(count):
        last = now(p, 0)
    return last


@functools.cache
def _loops() -> tuple[Any, Any]:
    entries, looks = compiled(ENTRY)(_entries), compiled(ENTRY)(_looks)
    if JIT:
        ensure(entries)
        entries.compile((types.int64[::1], types.int64, types.int64))
        looks.compile((types.int64[::1], types.int64))
    return entries, looks


def _log(count: int, n: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return tables with nothing but the log of one worker, in memory that has been written to, as that of `Recording` has."""
    block = max(h.value for h in H) + 1
    head = block + 2 * TOKENS
    I = np.zeros(head + LOG + count * (FIRING + n) + 8, np.int64)  # the name it has in kernels
    I.fill(0)
    I[H.LOG0], I[H.WORK0], I[H.CAP], I[H.SEGMENTS], I[H.WORKERS] = head, block, TOKENS, 1, 1
    I[head + E.FIRINGS_ROOM], I[head + E.TAKEN_ROOM] = count, count * n
    I[head + E.FIRINGS0], I[head + E.TAKEN0] = head + LOG, head + LOG + count * FIRING
    return I


def log_cost() -> LogCost:
    """Return what entries cost this process now; nothing where kernels are not compiled, whose times say nothing."""
    if not JIT:
        return LogCost()
    entries, looks = _loops()

    def seconds(n: int) -> float:
        I = _log(ENTRIES, n)
        began = time.perf_counter()
        entries(I, ENTRIES, n)
        return (time.perf_counter() - began) / ENTRIES

    clock = np.zeros(8, np.int64)
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        looks(clock, ENTRIES)
        took.append(((time.perf_counter() - began) / ENTRIES, seconds(1), seconds(TOKENS)))
    look_s, one_s, many_s = np.median(took, axis=0).tolist()
    token_s = max(0.0, (many_s - one_s) / (TOKENS - 1))
    return LogCost(look_s, max(2 * look_s, one_s - token_s), token_s)


__all__ = ["log_cost"]
