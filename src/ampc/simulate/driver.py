"""The engine in virtual time: its own admission, choice and kernels, fired when the clock of a simulated network says so.

One thread goes from event to event. A firing computes at once, with the weights of its beginning; what it sends leaves when its time is over and
crosses the links one by one. So numbers, updates and staleness are those of the simulated hardware.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import typeof, types

from ampc.codegen.layout import LAYER as _LAYER
from ampc.codegen.layout import FIRST, FULL, PLENTY, H, L
from ampc.runtime.native import ENTRY, JIT, at, ensure, flush_denormals, pointer, put, restore_denormals
from ampc.runtime.saving import compiled
from ampc.runtime.tokens import (
    CAP, ERROR, HEAD, INDEX_BITS, INDEX_MASK, INSTANCE, OWNER, POSITION, QUEUE, QUEUE0, QUEUE_SHIFT, SEG0, SEGMENTS, SLOT, SLOT0, SLOT_MASK, TAIL,
    WORK0, arrive,
)  # fmt: skip
from ampc.runtime.worker import ADMITTED, GROUP, LAYER0, ROWS, STOP, admit, fire, order, retire, take
from ampc.simulate import core, tables
from ampc.simulate.core import arrived, exact, jitter, pop, push, release, route, send, uniform
from ampc.simulate.tables import (
    AMOUNT, BACKWARD, BUSY, CROSSED, DROPPED, END, FAILURE_RATE, FAILURES, FIRINGS, FORWARD, HANDLED, HEARD, JITTER, LEAVING, LOGGED, MESSAGE,
    MESSAGES, NEXT, ORDERED, OVERHEAD, OWED, READ, REPAIR, STOPPED, TAKEN, TO, TOKEN, UPDATE,
)  # fmt: skip

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

LAYER = _LAYER
UPDATES = L.UPDATES.value
OUTBOX = H.OUTBOX.value
FINISHED = 1
"""The kind of an event at which a device is through with a firing; `core.MESSAGE` is the other."""
STALLED, NO_ROUTE = 1, 2
"""No event is left although instances are in flight; a message between devices that no route joins."""


@exact
def choose(I, devices, d):
    """The queue of device d to fire next, or -1. Where a firing takes one message: backward first; else as the engine's workers choose."""
    best = -1
    heaviest = 0
    for k in range(devices.first[d], devices.first[d + 1]):
        q = devices.queue[k]
        c = I[QUEUE0] + q * QUEUE
        waiting = at(I, c + TAIL) - at(I, c + HEAD)
        if waiting > 0:
            weight = waiting if devices.one[d] == 1 else waiting * at(I, c + ROWS)
            if q < 2:
                weight += FIRST
            elif q & 1 and (devices.one[d] == 1 or weight >= PLENTY):
                weight += FULL
            if weight > heaviest:
                heaviest = weight
                best = q
    return best


@exact
def firing_seconds(I, costs, q, n):
    """What a firing of the n tokens in the worker's block costs."""
    block = I[WORK0] + 2 * I[CAP]
    seconds = costs.per_firing[q] + n * costs.per_token[q]
    for e in range(costs.first[q], costs.first[q + 1]):
        total = 0.0
        for i in range(n):
            total += costs.rows[costs.space[e], at(I, block + i)]
        seconds += costs.per_row[e] * total
    return seconds


@exact
def message_bytes(I, costs, q, to, slot):
    """What a message from a firing of queue q to queue `to` weighs."""
    record = costs.pair[q, to]
    instance = at(I, I[SLOT0] + slot * SLOT + INSTANCE)
    size = costs.carry[record]
    for e in range(costs.carry_first[record], costs.carry_first[record + 1]):
        size += costs.carry_per_row[e] * costs.rows[costs.carry_space[e], instance]
    return size


@exact
def update_seconds(I, devices, costs, d):
    """What the updates that the layers of device d have made since the last look cost; how many they were."""
    seconds = 0.0
    count = 0
    for k in range(devices.layer_first[d], devices.layer_first[d + 1]):
        layer = devices.layer[k]
        made = at(I, I[LAYER0] + layer * LAYER + UPDATES)
        if made != costs.seen[layer]:
            count += made - costs.seen[layer]
            seconds += (made - costs.seen[layer]) * costs.update[layer]
            costs.seen[layer] = made
    return seconds, count


@exact
def hold(I, devices, held, costs, d, q):
    """Keep what the outbox holds until device d has finished; return the seconds that sending it costs."""
    box = I[OUTBOX]
    last = -1
    seconds = at(I, box) * costs.chance[MESSAGE]
    for k in range(at(I, box)):
        m = held.free[0]
        held.free[0] = held.word[m, NEXT]
        held.word[m, NEXT] = -1
        to = at(I, box + 1 + 3 * k)
        token = at(I, box + 2 + 3 * k)
        held.word[m, TO] = to
        held.word[m, TOKEN] = token
        held.word[m, AMOUNT] = at(I, box + 3 + 3 * k)
        queue = token >> QUEUE_SHIFT
        carries = q >= 0 and queue < 2 * I[SEGMENTS]
        held.size_bytes[m] = message_bytes(I, costs, q, queue, (token >> INDEX_BITS) & SLOT_MASK) if carries else costs.carry[0]
        if last < 0:
            devices.word[d, LEAVING] = m
        else:
            held.word[last, NEXT] = m
        if last < 0 or held.word[last, TO] != to:
            seconds += costs.chance[OVERHEAD]
        last = m
    put(I, box, 0)
    return seconds


@exact
def obey(F, I, D, devices, held, d):
    """Carry out the orders to layers that wait for device d; return whether there were any."""
    did = 0
    while devices.word[d, ORDERED] >= 0:
        m = devices.word[d, ORDERED]
        devices.word[d, ORDERED] = held.word[m, NEXT]
        order(F, I, D, d, (held.word[m, TOKEN] >> QUEUE_SHIFT) - 2 * I[SEGMENTS], held.word[m, AMOUNT])
        held.word[m, NEXT] = held.free[0]
        held.free[0] = m
        did = 1
    return did


@exact
def begin(F, I, D, XF, XI, O, heap, devices, held, costs, log, chance, d):
    """Let device d, which is idle, fire what waits for it, and say when it will have finished."""
    now = heap.now[0]
    did = obey(F, I, D, devices, held, d)
    if at(I, I[SEG0] + OWNER) == d:
        before = I[ADMITTED]
        did += admit(F, I, D, d)
        for position in range(before, I[ADMITTED]):
            log.admitted[position] = now
    q = choose(I, devices, d)
    if q < 0 and did == 0:
        return
    n = 0
    work = devices.seconds[d, OWED]
    devices.seconds[d, OWED] = 0.0
    if q >= 0:
        n = take(I, D, d, q)
        work += firing_seconds(I, costs, q, n) * jitter(chance, costs.chance[JITTER])
        note_taken(I, log, n)
        if q == 1:
            note_retired(I, log, n, now + work)
            retire(I, d, n)
        else:
            fire(F, I, D, XF, XI, O, d, q, n)
    updating, updates = update_seconds(I, devices, costs, d)
    work += hold(I, devices, held, costs, d, q)
    devices.seconds[d, BACKWARD if q >= 0 and q & 1 else FORWARD] += work
    devices.seconds[d, UPDATE] += updating
    end = now + work + updating
    if costs.chance[FAILURE_RATE] > 0.0 and uniform(chance) > math.exp(-costs.chance[FAILURE_RATE] * (work + updating)):
        end += costs.chance[REPAIR]
        devices.seconds[d, STOPPED] += costs.chance[REPAIR]
        log.counts[FAILURES] += 1
    devices.seconds[d, END] = end
    devices.fired[d] += q >= 0
    devices.word[d, BUSY] = 1
    devices.word[d, LOGGED] = note_firing(log, d, q, n, updates, now, end, updating)
    push(heap, end, FINISHED, d, 0)


@exact
def note_firing(log, d, q, n, updates, start, end, updating):
    """Put a firing into the log; return its number there, or -1."""
    k = log.counts[FIRINGS]
    if k < len(log.span):
        log.firing[k, 0] = d
        log.firing[k, 1] = q
        log.firing[k, 2] = n
        log.firing[k, 3] = updates
        log.span[k, 0] = start
        log.span[k, 1] = end
        log.span[k, 2] = updating
        log.counts[FIRINGS] = k + 1
        return k
    if len(log.span):
        log.counts[DROPPED] += 1
    return -1


@exact
def note_taken(I, log, n):
    """The tokens of the firing that is noted next."""
    block = I[WORK0]
    for i in range(n):
        k = log.counts[TAKEN]
        if k < len(log.taken) and log.counts[FIRINGS] < len(log.span):
            log.taken[k, 0] = log.counts[FIRINGS]
            log.taken[k, 1] = at(I, block + i)
            log.taken[k, 2] = at(I, block + I[CAP] + i)
            log.counts[TAKEN] = k + 1


@exact
def note_retired(I, log, n, time):
    for i in range(n):
        log.retired[at(I, I[SLOT0] + at(I, I[WORK0] + i) * SLOT + POSITION)] = time


@exact
def depart(heap, links, under_way, devices, held, log, grouped, d):
    """Device d has finished: what it sent goes onto the links, message by message; of instances in groups as one for each device.

    Return 0, or NO_ROUTE.
    """
    now = heap.now[0]
    m = devices.word[d, LEAVING]
    devices.word[d, LEAVING] = -1
    while m >= 0:
        to = held.word[m, TO]
        way = route(links, d, to)
        if way < 0:
            return NO_ROUTE
        number = log.counts[MESSAGES]
        size = 0.0
        first = m
        last = m
        while True:
            size += held.size_bytes[m]
            note_sent(log, devices.word[d, LOGGED], to, held.word[m, TOKEN], now, held.size_bytes[m])
            log.counts[CROSSED] += 1
            last = m
            m = held.word[m, NEXT]
            if grouped == 0 or m < 0 or held.word[m, TO] != to:
                break
        held.word[last, NEXT] = -1
        send(heap, links, under_way, now, way, size, first, number, 0)
    return 0


@exact
def note_sent(log, sender, to, token, time, size):
    """Put a message into the log. As many are logged as there is room for, in the order in which they are sent."""
    number = log.counts[MESSAGES]
    log.counts[MESSAGES] = number + 1
    if number < len(log.sent):
        log.message[number, 0] = sender
        log.message[number, 1] = to
        log.message[number, 2] = token
        log.sent[number, 0] = time
        log.sent[number, 1] = -1.0
        log.sent[number, 2] = size


@exact
def deliver(I, heap, under_way, devices, held, costs, log, p):
    """Hand what has crossed its links to its device; return the device. What was sent at once costs it `OVERHEAD` once, each
    message `MESSAGE`, and its bytes `READ`.
    """
    d = under_way.receiver[p]
    m = under_way.a[p]
    number = under_way.b[p]
    if under_way.sent_s[p] != devices.seconds[d, HEARD]:
        devices.seconds[d, HEARD] = under_way.sent_s[p]
        devices.seconds[d, OWED] += costs.chance[OVERHEAD]
    release(under_way, p)
    while m >= 0:
        if number < len(log.sent):
            log.sent[number, 1] = heap.now[0]
        number += 1
        devices.seconds[d, OWED] += costs.chance[MESSAGE] + held.size_bytes[m] * costs.chance[READ]
        following = held.word[m, NEXT]
        token = held.word[m, TOKEN]
        q = token >> QUEUE_SHIFT
        if q < 2 * I[SEGMENTS]:
            arrive(I, d, q, (token >> INDEX_BITS) & SLOT_MASK, token & INDEX_MASK, held.word[m, AMOUNT])
            held.word[m, NEXT] = held.free[0]
            held.free[0] = m
        else:
            held.word[m, NEXT] = devices.word[d, ORDERED]
            devices.word[d, ORDERED] = m
        m = following
    return d


@exact
def handle(F, I, D, XF, XI, O, heap, links, under_way, devices, held, costs, log, chance, limit):
    """Handle up to `limit` events; return 0, or what is wrong: STALLED, NO_ROUTE. A pass begins with every device at leisure."""
    if heap.counts[1] == 0:
        for d in range(len(devices.fired)):
            push(heap, 0.0, FINISHED, d, 0)
    for _ in range(limit):
        if I[STOP] != 0 or I[ERROR] != 0:
            return 0
        if heap.counts[0] == 0:
            return STALLED
        _, kind, a, _ = pop(heap)
        log.counts[HANDLED] += 1
        if kind == FINISHED:
            d = a
            devices.word[d, BUSY] = 0
            if depart(heap, links, under_way, devices, held, log, I[GROUP] > 1, d) != 0:
                return NO_ROUTE
        else:
            if not arrived(heap, links, under_way, heap.now[0], a):
                continue
            d = deliver(I, heap, under_way, devices, held, costs, log, a)
            if devices.word[d, BUSY] == 1:
                continue
        begin(F, I, D, XF, XI, O, heap, devices, held, costs, log, chance, d)
    return 0


def _compiled(function: Any) -> Any:
    if not JIT:
        return function
    floats, integers, doubles = types.float32[::1], types.int64[::1], types.float64[::1]
    memory = (floats, integers, doubles, floats, integers, floats)
    i, f = np.zeros(1, np.int64), np.zeros(1)
    links = core.Links(f, f, f, i, f, f, i, i, i, i)
    state = [typeof(x) for x in (core.events(1), links, core.flight(1), *tables.samples())]
    made = compiled(ENTRY)(function)
    ensure(made)
    made.compile((*memory, *state, integers, types.int64))
    return made


@_compiled
def run(F, I, D, XF, XI, O, heap, links, under_way, devices, held, costs, log, chance, limit):
    """Handle up to `limit` events of a pass; return 0, or what is wrong. The pass is over when the engine's STOP is set."""
    control = flush_denormals()
    wrong = handle(
        pointer(F), pointer(I), pointer(D), pointer(XF), pointer(XI), pointer(O), heap, links, under_way, devices, held, costs, log, chance,
        limit,
    )
    restore_denormals(control)
    return wrong


__all__ = ["FINISHED", "NO_ROUTE", "STALLED", "run"]
