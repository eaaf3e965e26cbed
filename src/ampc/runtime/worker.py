"""The worker loop: take what arrived, admit instances (the source's owner), choose a queue, fire it, publish.

The same `turn` serves the threads (`work`) and the one-thread step driver (`step`, whose order a seed decides). What `fire` calls is the
model's generated code; nothing here knows of models.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import types

from ampc.codegen.layout import HYPER as _HYPER
from ampc.codegen.layout import LAYER as _LAYER
from ampc.codegen.layout import ENOUGH, FIRST, FULL, PLENTY, G, H, L, P, Q, S
from ampc.runtime import plain_queues
from ampc.runtime.native import (
    JIT, at, call_kernel, enter, flush_denormals, helper, kernel, load_acquire, pause, place, put, restore_denormals, signed, store_release, times,
    unsigned,
)  # fmt: skip
from ampc.runtime.log import begin_firing, end_firing, note_admitted, note_arrived, note_retired, note_sent
from ampc.runtime.optimizer import NEARLY, flush, update, weight_of
from ampc.runtime.room import ARENA, COUNTS, SHAPE0, VALUES, deal, full, give_room, note_dealt, note_flight, settle_in, take_room
from ampc.runtime.tokens import (
    BUFFER, CAP, ERROR, HEAD, INDEX_BITS, INDEX_MASK, INSTANCE, LAYERS, MASK, OWNER, POSITION, QUEUE, QUEUE0, QUEUE_SHIFT, RING, RING0, RING_HEAD,
    RING_TAIL, SEG, SEG0, SEGMENTS, SLOT, SLOT0, SLOT_MASK, TAIL, WORK0, WORK_STRIDE, WORKERS, arrive, counters, pass_on, publish, ready,
)  # fmt: skip

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

STOP, HALT, DONE, ADMITTED, ACKS, TRAIN, UPDATE, SYNC, BATCH, IN_BATCH, TOTAL, THREADS = (
    h.value for h in (H.STOP, H.HALT, H.DONE, H.ADMITTED, H.ACKS, H.TRAIN, H.UPDATE, H.SYNC, H.BATCH, H.IN_BATCH, H.TOTAL, H.THREADS)
)
GROUP, COHORT0, COHORTS, IDLE, ORDER0, BREAKS0, LAYER0, HYPER0, SCHEDULE, RANDOM = (
    h.value for h in (H.GROUP, H.COHORT0, H.COHORTS, H.IDLE, H.ORDER0, H.BREAKS0, H.LAYER0, H.HYPER0, H.SCHEDULE, H.RANDOM)
)
LOG0, KERNEL0 = H.LOG0.value, H.KERNEL0.value
TAKE, LAYERS_FROM, LAYERS_N = S.TAKE.value, S.LAYERS_FROM.value, S.LAYERS_N.value
ROWS, FIRED, TAKEN = Q.ROWS.value, Q.FIRED.value, Q.TAKEN.value
LAYER_OWNER, STASH_DEPTH, WEIGHT, FREQUENCY = L.OWNER.value, L.STASH_DEPTH.value, P.WEIGHT.value, P.FREQUENCY.value
LAYER, HYPER = _LAYER, _HYPER
FLUSH = 1 << 30
BEAT = G.BEAT.value


@helper
def random(I):
    """The step driver's next number (xorshift64*, Vigna 2016)."""
    x = unsigned(I[RANDOM])
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    I[RANDOM] = signed(x)
    return signed(times(x, 0x2545F4914F6CDD1D) >> np.uint64(33))


@helper
def poll(F, I, D, w):
    """Take all messages that other workers published for this one; return how many."""
    workers = I[WORKERS]
    found = 0
    for source in range(workers):
        c = I[RING0] + (source * workers + w) * RING
        if source == w:
            continue
        head = at(I, c + RING_HEAD)
        tail = load_acquire(I, c + RING_TAIL)
        if head == tail:
            continue
        found += tail - head
        if I[LOG0] > 0:
            note_arrived(I, w, source, tail - head)
        buffer = at(I, c + BUFFER)
        mask = at(I, c + MASK)
        while head < tail:
            token = at(I, buffer + 2 * (head & mask))
            amount = at(I, buffer + 2 * (head & mask) + 1)
            head += 1
            q = token >> QUEUE_SHIFT
            if q >= 2 * I[SEGMENTS]:
                order(F, I, D, w, q - 2 * I[SEGMENTS], amount)
            else:
                arrive(I, w, q, (token >> INDEX_BITS) & SLOT_MASK, token & INDEX_MASK, amount)
        store_release(I, c + RING_HEAD, head)
    return found


@helper
def order(F, I, D, w, layer, instances):
    """An order to a layer to update itself over `instances`, or (layer = LAYERS) the answer to one."""
    if layer == I[LAYERS]:
        I[ACKS] += 1
        return
    if at(D, I[HYPER0] + layer * HYPER + WEIGHT) > 0.0:
        if I[LOG0] > 0:
            begin_firing(I, w, 2 * I[SEGMENTS], 0)
        update(F, I, D, layer, np.float64(instances))
        if I[LOG0] > 0:
            end_firing(I, w, 2 * I[SEGMENTS], 0)
    source = at(I, I[SEG0] + OWNER)
    if source == w:
        I[ACKS] += 1
    else:
        pass_on(I, w, source, 2 * I[SEGMENTS] + I[LAYERS], 0, 0, 0)


@kernel(returns=types.int64)
def admit(F, I, D, w):
    """On the source's worker: admit what may be admitted; in synchronous mode order updates when a batch has drained. Return whether it did."""
    total = I[TOTAL]
    flying = I[ADMITTED] - I[DONE]
    closed = I[ADMITTED] == total or I[HALT] == 1
    if I[SYNC] == 1:
        if I[IN_BATCH] < 0:
            if I[ACKS] < I[LAYERS]:
                return 0
            I[IN_BATCH] = 0
        if flying == 0 and I[IN_BATCH] > 0 and (I[IN_BATCH] >= I[BATCH] or closed):
            size = I[IN_BATCH]
            I[IN_BATCH] = -1
            I[ACKS] = 0
            if I[UPDATE] == 0:
                I[ACKS] = I[LAYERS]
                return 1
            for layer in range(I[LAYERS]):
                owner = at(I, I[LAYER0] + layer * LAYER + LAYER_OWNER)
                if owner == w:
                    order(F, I, D, w, layer, size)
                else:
                    pass_on(I, w, owner, 2 * I[SEGMENTS] + layer, 0, 0, size)
            return 1
    if closed:
        if flying == 0 and (I[SYNC] == 0 or I[IN_BATCH] == 0):
            store_release(I, STOP, 1)
        return 0
    did = 0
    while I[IDLE] > 0 and I[ADMITTED] < total:
        if I[SYNC] == 1 and I[IN_BATCH] >= I[BATCH]:
            break
        if admit_cohort(I, w) == 0:
            break
        did = 1
    return did


@kernel(returns=types.int64)
def admit_cohort(I, w):
    """Admit the next instances of the order into an idle cohort, if there is room for them; return whether there was."""
    if full(I):
        return 0
    cohort = at(I, I[COHORT0] + I[COHORTS] + I[IDLE] - 1)
    first = I[ADMITTED]
    values = 0
    counts = 0
    k = 0
    while k < I[GROUP] and first + k < I[TOTAL]:
        if k > 0 and (at(I, I[BREAKS0] + first + k) == 1 or (I[SYNC] == 1 and I[IN_BATCH] + k >= I[BATCH])):
            break
        shape = at(I, I[SHAPE0] + at(I, I[ORDER0] + first + k))
        values += at(I, shape + VALUES)
        counts += at(I, shape + COUNTS)
        k += 1
    copy = deal(I)
    if take_room(I, copy, cohort, values, counts) == 0:
        return 0
    note_dealt(I, copy, values)
    values = 0
    counts = 0
    for position in range(first, first + k):
        instance = at(I, I[ORDER0] + position)
        slot = cohort * I[GROUP] + position - first
        settle_in(I, cohort, copy, slot, position, instance, values, counts)
        ready(I, w, 0, slot, 0)
        values += at(I, at(I, I[SHAPE0] + instance) + VALUES)
        counts += at(I, at(I, I[SHAPE0] + instance) + COUNTS)
    I[IDLE] -= 1
    I[ADMITTED] += k
    I[IN_BATCH] += I[SYNC] * k
    put(I, I[COHORT0] + cohort, k)
    note_flight(I)
    if I[LOG0] > 0:
        note_admitted(I, w, first, k)
    return 1


@kernel()
def retire(I, w, n):
    """All messages of these instances have been answered: free their slots."""
    if I[LOG0] > 0:
        note_retired(I, w, n)
    block = I[WORK0] + w * I[WORK_STRIDE]
    for i in range(n):
        slot = at(I, block + i)
        put(I, I[ORDER0] + I[TOTAL] + at(I, I[SLOT0] + slot * SLOT + POSITION), 1)
        cohort = slot // I[GROUP]
        left = at(I, I[COHORT0] + cohort) - 1
        put(I, I[COHORT0] + cohort, left)
        if left == 0:
            give_room(I, cohort)
            put(I, I[COHORT0] + I[COHORTS] + I[IDLE], cohort)
            I[IDLE] += 1
    store_release(I, DONE, I[DONE] + n)


@helper
def choose(I, w):
    """The queue to fire next, or -1: a backward queue that fills a firing well, else the one with most waiting rows.

    Full backward firings first keeps staleness low (they end instances and bring updates); small ones wait until they are worth a matrix
    product or nothing larger is left. With everything bounded by admission, a queue that waits grows heaviest in the end.
    """
    best = -1
    heaviest = 0
    for q in range(2 * I[SEGMENTS]):
        if at(I, I[SEG0] + (q >> 1) * SEG + OWNER) != w:
            continue  # even a look at another worker's queue would take its cache line away
        c = I[QUEUE0] + q * QUEUE
        waiting = at(I, c + TAIL) - at(I, c + HEAD)
        if waiting > 0:
            weight = waiting * at(I, c + ROWS)
            if q < 2:
                weight += FIRST  # admission and retirement cost nothing and keep the others fed
            elif q & 1 and weight >= PLENTY:
                weight += FULL
            if weight > heaviest:
                heaviest = weight
                best = q
    return best


@helper
def choose_any(I, w):
    """One of the worker's queues that are not empty, by the step driver's random numbers; -1 if all are."""
    count = 0
    for q in range(2 * I[SEGMENTS]):
        c = I[QUEUE0] + q * QUEUE
        if at(I, c + TAIL) > at(I, c + HEAD) and at(I, I[SEG0] + (q >> 1) * SEG + OWNER) == w:
            count += 1
    if count == 0:
        return -1
    k = random(I) % count
    for q in range(2 * I[SEGMENTS]):
        c = I[QUEUE0] + q * QUEUE
        if at(I, c + TAIL) > at(I, c + HEAD) and at(I, I[SEG0] + (q >> 1) * SEG + OWNER) == w:
            if k == 0:
                return q
            k -= 1
    return -1


next_queue, any_queue = (choose, choose_any) if JIT else (plain_queues.choose, functools.partial(plain_queues.choose_any, random))


@helper
def until_update(I, D, q, n):
    """How many of the next n backward tokens may fire before one of the segment's layers has to update itself."""
    record = I[SEG0] + (q >> 1) * SEG
    first = at(I, record + LAYERS_FROM)
    c = I[QUEUE0] + q * QUEUE
    for k in range(at(I, record + LAYERS_N)):
        layer = at(I, first + k)
        hyper = I[HYPER0] + layer * HYPER
        total = at(D, hyper + WEIGHT)
        goal = at(D, hyper + FREQUENCY) * NEARLY
        for i in range(n):
            token = at(I, at(I, c + BUFFER) + ((at(I, c + HEAD) + i) & at(I, c + MASK)))
            slot = token >> INDEX_BITS
            total += weight_of(I, D, layer, slot, at(I, I[SLOT0] + slot * SLOT + INSTANCE))
            if total >= goal:
                n = i + 1
                break
    return n


@helper
def same_version(I, D, q, n):
    """How many of the next n backward tokens fired forward with the parameters of the first: those that a stashed layer can take at once."""
    record = I[SEG0] + (q >> 1) * SEG
    first = at(I, record + LAYERS_FROM)
    c = I[QUEUE0] + q * QUEUE
    for k in range(at(I, record + LAYERS_N)):
        layer = I[LAYER0] + at(I, first + k) * LAYER
        if at(I, layer + STASH_DEPTH) <= 0:
            continue
        version = 0
        for i in range(n):
            token = at(I, at(I, c + BUFFER) + ((at(I, c + HEAD) + i) & at(I, c + MASK)))
            v = at(I, counters(I, token >> INDEX_BITS, q >> 1, token & INDEX_MASK) + 2 + k)
            if i == 0:
                version = v
            elif v != version:
                n = i
                break
    return n


@kernel(returns=types.int64)
def take(I, D, w, q):
    """Move tokens of queue q into the worker's block (slot, index, instance, arena); return how many."""
    c = I[QUEUE0] + q * QUEUE
    head = at(I, c + HEAD)
    n = min(at(I, c + TAIL) - head, at(I, I[SEG0] + (q >> 1) * SEG + TAKE))
    if I[GROUP] > 1 and I[TRAIN] == 1:
        n = min(n, max(I[GROUP], ENOUGH))  # a group is one message: two of them do not train as one
    if I[SCHEDULE] == 1:
        n = 1 + random(I) % n
    if q & 1 and I[UPDATE] == 1 and I[SYNC] == 0:
        n = same_version(I, D, q, until_update(I, D, q, n))
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    for i in range(n):
        token = at(I, at(I, c + BUFFER) + ((head + i) & at(I, c + MASK)))
        slot = token >> INDEX_BITS
        put(I, block + i, slot)
        put(I, block + cap + i, token & INDEX_MASK)
        put(I, block + 2 * cap + i, at(I, I[SLOT0] + slot * SLOT + INSTANCE))
        put(I, block + 3 * cap + i, at(I, I[SLOT0] + slot * SLOT + ARENA))
    put(I, c + HEAD, head + n)
    put(I, c + FIRED, at(I, c + FIRED) + 1)
    put(I, c + TAKEN, at(I, c + TAKEN) + n)
    return n


@helper
def fire(F, I, D, XF, XI, O, w, q, n):
    """Fire n tokens of queue q: a function of the model, see `kernels`."""
    record = I[KERNEL0] + 2 * q
    call_kernel(at(I, record), F, I, D, XF, XI, O, w, n, at(I, record + 1))


@kernel(returns=types.int64)
def turn(F, I, D, XF, XI, O, w):
    """One round of worker w; return whether anything happened."""
    did = poll(F, I, D, w) if I[WORKERS] > 1 else 0
    if at(I, I[SEG0] + OWNER) == w:
        did += admit(F, I, D, w)
    q = any_queue(I, w) if I[SCHEDULE] == 1 else next_queue(I, w)
    if q >= 0:
        if I[LOG0] > 0:
            begin_firing(I, w, q, at(I, I[QUEUE0] + q * QUEUE + TAIL) - at(I, I[QUEUE0] + q * QUEUE + HEAD))
        n = take(I, D, w, q)
        if q == 1:
            retire(I, w, n)
        else:
            fire(F, I, D, XF, XI, O, w, q, n)
        if I[LOG0] > 0:
            end_firing(I, w, q, n)
        did += 1
    if I[WORKERS] > 1:
        if I[LOG0] > 0:
            note_sent(I, w)
        publish(I, w)
    return did


@helper
def work(F, I, D, XF, XI, O, thread):
    """Turns of this thread's workers until STOP or ERROR."""
    idle = 0
    while load_acquire(I, STOP) == 0 and load_acquire(I, ERROR) == 0:
        did = 0
        for w in range(thread, I[WORKERS], I[THREADS]):
            if turn(F, I, D, XF, XI, O, w):
                did += 1
                beat = I[WORK0] + w * I[WORK_STRIDE] + 4 * I[CAP] + BEAT
                put(I, beat, at(I, beat) + 1)
        if did:
            idle = 0
        else:
            idle += 1
            pause(idle)


@helper
def step(F, I, D, XF, XI, O, workers):
    """4096 turns, or fewer if nothing is left to do; the worker of each is drawn."""
    for _ in range(4096):
        if I[STOP] != 0 or I[ERROR] != 0:
            return
        w = random(I) % workers if workers > 1 else 0
        if turn(F, I, D, XF, XI, O, w):
            beat = I[WORK0] + w * I[WORK_STRIDE] + 4 * I[CAP] + BEAT
            put(I, beat, at(I, beat) + 1)


@kernel()
def turns(F, I, D, XF, XI, O, w):
    """Thread w of the threads driver, some turns of all -w workers of the step driver (w < 0), or the flush at the end of a pass (w = FLUSH).

    The step driver returns now and then, so that the caller can look at progress.
    """
    control = flush_denormals()
    if w == FLUSH:
        flush(F, I, D)
    elif w >= 0:
        work(F, I, D, XF, XI, O, w)
    else:
        step(F, I, D, XF, XI, O, -w)
    restore_denormals(control)


def run(F: Any, I: Any, D: Any, XF: Any, XI: Any, O: Any, w: int) -> None:
    """Call `turns` with arrays, without the GIL."""
    enter("turns")(place(F), place(I), place(D), place(XF), place(XI), place(O), w)
