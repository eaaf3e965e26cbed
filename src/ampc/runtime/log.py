"""What workers write down of a pass while it runs, if there is a log (LOG0 > 0, which the callers test): see `recording`, which reads it.

Each worker writes to its own log alone, and counts what finds no room there; nothing is moved or overwritten. A message is written before it
is published and its arrival after it was seen, so that in the log too it comes after it was sent.
"""

from __future__ import annotations

from ampc.codegen.layout import FIRING as _FIRING
from ampc.codegen.layout import INDEX_BITS as _INDEX_BITS
from ampc.codegen.layout import SLOT as _SLOT
from ampc.codegen.layout import E, H, R, Z
from ampc.runtime.native import at, kernel, now, put

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

LOG0, LOG_STRIDE, TIMES0, WORKERS, RING0, SLOT0, TOTAL, WORK0, WORK_STRIDE, CAP, SEGMENTS = (
    h.value
    for h in (
        H.LOG0, H.LOG_STRIDE, H.TIMES0, H.WORKERS, H.RING0, H.SLOT0, H.TOTAL, H.WORK0, H.WORK_STRIDE, H.CAP, H.SEGMENTS,
    )
)
FIRINGS, TAKEN, SENT, ARRIVED, LOST, FIRINGS_ROOM, TAKEN_ROOM, SENT_ROOM, ARRIVED_ROOM = (
    e.value for e in (E.FIRINGS, E.TAKEN, E.SENT, E.ARRIVED, E.LOST, E.FIRINGS_ROOM, E.TAKEN_ROOM, E.SENT_ROOM, E.ARRIVED_ROOM)
)
FIRINGS0, TAKEN0, SENT0, ARRIVED0, SENDER, START, WAITED, UPDATES, UPDATE_NS, CLOCK = (
    e.value for e in (E.FIRINGS0, E.TAKEN0, E.SENT0, E.ARRIVED0, E.SENDER, E.START, E.WAITED, E.UPDATES, E.UPDATE_NS, E.CLOCK)
)
BUFFER, MASK, RING_TAIL, RING_STAGED = (r.value for r in (R.BUFFER, R.MASK, R.TAIL, R.STAGED))
FIRING, INDEX_BITS, SLOT, POSITION = _FIRING, _INDEX_BITS, _SLOT, Z.POSITION.value
RING = 32
SHIFT = 40
"""Of the worker's number in a word that holds another number too."""


@kernel()
def begin_firing(I, w, q, waiting):
    """A firing of queue q begins, in which `waiting` tokens are ready; q = 2 * SEGMENTS is an update by order."""
    log = I[LOG0] + w * I[LOG_STRIDE]
    put(I, log + WAITED, waiting)
    put(I, log + UPDATES, 0)
    put(I, log + UPDATE_NS, 0)
    put(I, log + START, now(I, log + CLOCK))


@kernel()
def end_firing(I, w, q, n):
    """The firing has ended; it took the first `n` tokens of the worker's block."""
    log = I[LOG0] + w * I[LOG_STRIDE]
    end = now(I, log + CLOCK)
    k = at(I, log + FIRINGS)
    taken = at(I, log + TAKEN)
    if k >= at(I, log + FIRINGS_ROOM) or taken + n > at(I, log + TAKEN_ROOM):
        put(I, log + LOST, at(I, log + LOST) + 1 + n)
        put(I, log + FIRINGS_ROOM, k)  # what comes later is left out too: the log is a beginning, without gaps
        put(I, log + SENDER, 0)
        return
    p = at(I, log + FIRINGS0) + k * FIRING
    put(I, p, at(I, log + START))
    put(I, p + 1, end)
    put(I, p + 2, (q << 32) | n)
    put(I, p + 3, (at(I, log + UPDATES) << 32) | at(I, log + WAITED))
    put(I, p + 4, at(I, log + UPDATE_NS))
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    p = at(I, log + TAKEN0) + taken
    for i in range(n):
        put(I, p + i, (at(I, block + i) << INDEX_BITS) | at(I, block + cap + i))
    put(I, log + TAKEN, taken + n)
    put(I, log + FIRINGS, k + 1)
    if q < 2 * I[SEGMENTS]:
        put(I, log + SENDER, k + 1)


@kernel()
def begin_update(I, w):
    """A layer of worker w begins to update itself."""
    log = I[LOG0] + w * I[LOG_STRIDE]
    put(I, log + UPDATES, at(I, log + UPDATES) + 1)
    put(I, log + UPDATE_NS, at(I, log + UPDATE_NS) - now(I, log + CLOCK))


@kernel()
def end_update(I, w):
    log = I[LOG0] + w * I[LOG_STRIDE]
    put(I, log + UPDATE_NS, at(I, log + UPDATE_NS) + now(I, log + CLOCK))


@kernel()
def note_sent(I, w):
    """Worker w is about to publish what it has staged for others."""
    log = I[LOG0] + w * I[LOG_STRIDE]
    sender = at(I, log + SENDER)
    put(I, log + SENDER, 0)
    time = 0
    for to in range(I[WORKERS]):
        c = I[RING0] + (w * I[WORKERS] + to) * RING
        staged = at(I, c + RING_STAGED)
        tail = at(I, c + RING_TAIL)
        if to == w or staged == tail:
            continue
        if time == 0:
            time = now(I, log + CLOCK)
        while tail < staged:
            k = at(I, log + SENT)
            if k >= at(I, log + SENT_ROOM):
                put(I, log + LOST, at(I, log + LOST) + staged - tail)
                put(I, log + SENT_ROOM, k)
                break
            p = at(I, log + SENT0) + 3 * k
            put(I, p, time)
            put(I, p + 1, at(I, at(I, c + BUFFER) + 2 * (tail & at(I, c + MASK))))
            put(I, p + 2, (to << SHIFT) | sender)
            put(I, log + SENT, k + 1)
            tail += 1


@kernel()
def note_arrived(I, w, source, count):
    """Worker w has seen `count` messages of another."""
    log = I[LOG0] + w * I[LOG_STRIDE]
    k = at(I, log + ARRIVED)
    if k >= at(I, log + ARRIVED_ROOM):
        return  # the messages are counted as lost when the log is read
    p = at(I, log + ARRIVED0) + 2 * k
    put(I, p, now(I, log + CLOCK))
    put(I, p + 1, (source << SHIFT) | count)
    put(I, log + ARRIVED, k + 1)


@kernel()
def note_admitted(I, w, first, n):
    """`n` instances from place `first` of the order on were admitted."""
    time = now(I, I[LOG0] + w * I[LOG_STRIDE] + CLOCK)
    for k in range(first, first + n):
        put(I, I[TIMES0] + k, time)


@kernel()
def note_retired(I, w, n):
    """The instances of the first `n` tokens of the worker's block retire."""
    time = now(I, I[LOG0] + w * I[LOG_STRIDE] + CLOCK)
    block = I[WORK0] + w * I[WORK_STRIDE]
    for i in range(n):
        put(I, I[TIMES0] + I[TOTAL] + at(I, I[SLOT0] + at(I, block + i) * SLOT + POSITION), time)
