"""What the loop of a pass without numerics works on: the templates of instances, and what changes while they run. `cost_loop` has the loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ampc.simulate.core import Floats, Integers

Shorts = npt.NDArray[np.int32]

BINS = 64
"""Entries of a staleness histogram; the last one counts all that is older."""

FINISHED = 1
FORWARD_TOKEN, BACKWARD_TOKEN, ORDER, ANSWER = 0, 1, 2, 3
"""What a message is (its `b`): a token, an order to a layer to update itself, the answer to one."""
DONE, GROW, STALLED, NO_ROUTE = 1, 2, 3, 4
"""How `run` ends before it has handled as many events as it may: the pass is over, the heap is too small, or what is wrong."""
ASYNC, SYNC, FILLED = 0, 1, 2

ADMITTED, RETIRED, IN_BATCH, ACKS, IDLE, TOTAL, BATCH, MODE, UPDATED, SOURCE, STRIDE, SHARES, LEAVING, FLYING, LAYERS, ROOM = range(16)
"""Entries of `State.number`: instances admitted and retired, admitted since the last update (-1: it is going on), answers to orders, idle slots,
instances of the pass, instances of a batch, the mode; updates of the firing that begins, the Source's device, cells of a
slot in `waits` and in `version`, whether orders leave with the Source's firing; most instances in flight so far;
layers, firings that the log holds."""
JITTER, FAILURE_RATE, REPAIR, OVERHEAD, MESSAGE, READ, TOKEN_BYTES, UPDATING = range(8)
"""Entries of `State.amount`: as in `tables`; bytes of a message without payload, seconds of updates of the firing that begins."""


class Templates(NamedTuple):
    """What instances do, and what it costs. Arrays are described at `flow.Flow`, whose names these are."""

    first: Integers
    segment: Integers
    ordinal: Integers
    seconds: Floats
    need: Integers
    sent_first: Integers
    sent_to: Integers
    sent_bytes: Floats
    answer_first: Integers
    answer_to: Integers
    answer_bytes: Floats
    share_first: Integers
    share: Floats
    device: Integers
    take: Integers
    weight: Integers
    per_firing: Floats
    layer_first: Integers
    layer: Integers
    layer_device: Integers
    update: Floats
    frequency: Floats


class State(NamedTuple):
    """What changes. A *cell* is a firing of an instance in flight: slot * STRIDE + its number in the template.

    template, position: [slots]. waits: [cells] messages until a firing is ready, forward and then backward. following: [cells] the next token of
    a queue. queue: [cells] the one that a token is in, where a firing takes one message. version: [slots * SHARES] of each layer at the forward
    firing.
    head, tail, waiting, changed, depth, most: [queues] the tokens that wait; when their number last changed, its integral, its maximum.
    ready: [queues] the queues of each device that hold tokens, from ready_first[device] on, ready_count of them; place: [queues] where in it.
    lane_head, lane_tail, lane_count: [3 * devices] where a firing takes one message (`one`), the tokens of a device in the order in which they came:
    of the Source, backward, forward.
    running, taken, tokens, sending: [devices] the queue that fires (-1: orders only, -2: idle), its first cell and tokens, messages to come.
    seconds: [devices * 7] as `tables.Devices`; fired: [devices]; ordered: [devices] first layer that has an order; acks: [devices] answers to give.
    next_order: [layers]; layer_version, updates: [layers]; gathered: [layers * 2] weight so far, by parity of the batch in `FILLED`; due: [2 layers]
    the weight that a batch brings; open: [2] instances of a batch that have not retired; stale: [layers * BINS].
    """

    number: Integers
    amount: Floats
    order: Integers
    idle: Integers
    template: Integers
    position: Integers
    waits: Shorts
    following: Shorts
    queue: Shorts
    version: Shorts
    head: Integers
    tail: Integers
    waiting: Integers
    changed: Floats
    depth: Floats
    most: Integers
    ready_first: Integers
    ready: Integers
    ready_count: Integers
    place: Integers
    lane_head: Integers
    lane_tail: Integers
    lane_count: Integers
    one: Integers
    running: Integers
    taken: Integers
    tokens: Integers
    sending: Integers
    logged: Integers
    seconds: Floats
    fired: Integers
    ordered: Integers
    acks: Integers
    next_order: Integers
    layer_version: Integers
    updates: Integers
    gathered: Floats
    due: Floats
    open: Integers
    stale: Integers
