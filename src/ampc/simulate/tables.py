"""What the loop of a simulated pass works on: devices, what firings and messages cost, the log. Arrays in tuples, as `core` has them.

The columns have names here; who fills them is `costs` and `simulator`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ampc.simulate.core import Floats, Integers

BUSY, LEAVING, ORDERED, LOGGED = 0, 1, 2, 3
"""Columns of `Devices.word`: whether it fires or stands still; the first of what leaves when it has finished; the first order that waits; the
number of its last firing in the log, or -1."""

FORWARD, BACKWARD, UPDATE, STOPPED, OWED, HEARD, END = 0, 1, 2, 3, 4, 5, 6
"""Columns of `Devices.seconds`: busy seconds by what for, seconds of repair, what arrived messages still cost, when the last of them was sent, when
the last firing ended."""

NEXT, TO, TOKEN, AMOUNT = 0, 1, 2, 3
"""Columns of `Held.word`."""

FIRINGS, TAKEN, MESSAGES, DROPPED, FAILURES, CROSSED, HANDLED = 0, 1, 2, 3, 4, 5, 6
"""Entries of `Log.counts`: what is in the log, what found no room there; failures, messages between devices, events handled."""

JITTER, FAILURE_RATE, REPAIR, OVERHEAD, MESSAGE, READ = 0, 1, 2, 3, 4, 5
"""Entries of `Costs.chance`: relative deviation of a firing's time, failures a busy second, seconds of a repair, seconds of `Links.overhead_s`,
of `Links.message_overhead_s` and of `Links.read_s`."""


class Devices(NamedTuple):
    """word, seconds: [devices, columns above]. fired: [devices] firings.

    first: [devices + 1] into queue, the queues of each device; `layer_first` into layer, the layers that it owns.
    one: [devices] 1 where a firing takes one message, and then backward before forward as the paper has it.
    """

    word: Integers
    seconds: Floats
    fired: Integers
    first: Integers
    queue: Integers
    layer_first: Integers
    layer: Integers
    one: Integers


class Held(NamedTuple):
    """Messages that leave when a firing ends, and orders that wait: lists through `word` [capacity, 4]; size_bytes [capacity].

    free: [1] first place that holds nothing, chained through NEXT; -1 is the end of every list.
    """

    word: Integers
    size_bytes: Floats
    free: Integers


class Costs(NamedTuple):
    """Seconds and bytes, by queue. A *space* is what the rows of a payload are; `rows` [spaces, instances] says how many a token has of it.

    per_firing, per_token: [queues] seconds; entries first[q] to first[q + 1] of space, per_row add seconds a row.
    pair: [queues, queues] the record of what a message from a firing of one to the other carries; carry: [records] bytes, and
    carry_first, carry_space, carry_per_row as above. update: [layers] seconds of an update. seen: [layers] updates that have been paid for.
    """

    per_firing: Floats
    per_token: Floats
    first: Integers
    space: Integers
    per_row: Floats
    rows: Floats
    pair: Integers
    carry: Floats
    carry_first: Integers
    carry_space: Integers
    carry_per_row: Floats
    update: Floats
    seen: Integers
    chance: Floats


class Log(NamedTuple):
    """counts: [7], see above. firing: [room, 4] device, queue, tokens, updates; span: [room, 3] start, end and seconds of updates.

    taken: [room, 3] firing, slot, index. message: [room, 3] sending firing, receiving device, token; sent: [room, 3] sent, arrived, bytes.
    admitted, retired: [instances of the pass] by place in the order.
    """

    counts: Integers
    firing: Integers
    span: Floats
    taken: Integers
    message: Integers
    sent: Floats
    admitted: Floats
    retired: Floats


def held(capacity: int) -> Held:
    """Return room for `capacity` messages and orders."""
    word = np.zeros((capacity, 4), np.int64)
    word[:, NEXT] = np.arange(1, capacity + 1)
    word[-1, NEXT] = -1
    return Held(word, np.zeros(capacity), np.zeros(1, np.int64))


def log(instances: int, firings: int, tokens: int, messages: int) -> Log:
    """Return an empty log with room for so many events of each kind (0: none is kept, none counts as dropped)."""
    return Log(
        np.zeros(7, np.int64), np.zeros((firings, 4), np.int64), np.zeros((firings, 3)), np.zeros((tokens, 3), np.int64),
        np.zeros((messages, 3), np.int64), np.zeros((messages, 3)), np.zeros(instances), np.zeros(instances),
    )  # fmt: skip


def samples() -> tuple[Devices, Held, Costs, Log]:
    """Return tables of each kind, for their types."""
    i, f, ii, ff = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1), np.int64), np.zeros((1, 1))
    return Devices(ii, ff, i, i, i, i, i, i), held(1), Costs(f, f, i, i, f, ff, ii, f, i, i, f, f, i, f), log(1, 1, 1, 1)


__all__ = ["Costs", "Devices", "Held", "Log", "held", "log", "samples"]
