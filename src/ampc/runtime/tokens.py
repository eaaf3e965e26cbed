"""Tokens: how they are sent, counted on arrival, queued when ready, and passed between workers.

A token is (queue, slot, index) in one word. Queue 2 s is the forward queue of segment s, 2 s + 1 its backward one; queues from 2 * SEGMENTS on
are orders to layers. Counters and queues of a segment are touched by its owner alone; only rings are shared, one producer and one consumer each.
"""

from __future__ import annotations

from numba import types

from ampc.codegen.layout import BIG as _BIG
from ampc.codegen.layout import INDEX_BITS as _INDEX_BITS
from ampc.codegen.layout import SEG as _SEG
from ampc.codegen.layout import SLOT as _SLOT
from ampc.codegen.layout import A, H, Q, R, S, Z
from ampc.runtime.native import at, helper, kernel, load_acquire, put, store_release
from ampc.runtime.rows import finite

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

WORKERS, SLOTS, SLOT0, SEG0, QUEUE0, RING0, WORK0, WORK_STRIDE, CAP = (
    h.value for h in (H.WORKERS, H.SLOTS, H.SLOT0, H.SEG0, H.QUEUE0, H.RING0, H.WORK0, H.WORK_STRIDE, H.CAP)
)
INSTANCE, POSITION, COUNTERS, LAYOUT, MESSAGES = (z.value for z in (Z.INSTANCE, Z.POSITION, Z.COUNTERS, Z.LAYOUT, Z.MESSAGES))
PARTS = A.PARTS.value
OUTBOX, OUTBOX_ROOM = H.OUTBOX.value, H.OUTBOX_ROOM.value
SEGMENTS, LAYERS, ERROR, NONFINITE, NONFINITE_COUNT = (h.value for h in (H.SEGMENTS, H.LAYERS, H.ERROR, H.NONFINITE, H.NONFINITE_COUNT))
OWNER, NEED, WIDTH, COUNTED = S.OWNER.value, S.NEED.value, S.WIDTH.value, S.COUNTED.value
BUFFER, MASK, HEAD, TAIL = (q.value for q in (Q.BUFFER, Q.MASK, Q.HEAD, Q.TAIL))
RING_TAIL, RING_STAGED, RING_SEEN, RING_HEAD = (r.value for r in (R.TAIL, R.STAGED, R.SEEN_HEAD, R.HEAD))
SEG, BIG, SLOT, INDEX_BITS = _SEG, _BIG, _SLOT, _INDEX_BITS
INDEX_MASK = (1 << INDEX_BITS) - 1
SLOT_MASK = (1 << 20) - 1
QUEUE_SHIFT = 48
RING = 32
QUEUE = 8

FULL_RING = 1
FULL_QUEUE = 2


@kernel()
def ready(I, w, q, slot, idx):
    """Put a token into the ready queue q of this worker."""
    c = I[QUEUE0] + q * QUEUE
    tail = at(I, c + TAIL)
    if tail - at(I, c + HEAD) > at(I, c + MASK):
        put(I, ERROR + 1, q)
        store_release(I, ERROR, FULL_QUEUE)
        return
    put(I, at(I, c + BUFFER) + (tail & at(I, c + MASK)), (slot << INDEX_BITS) | idx)
    put(I, c + TAIL, tail + 1)


@helper
def counters(I, slot, segment, idx):
    """Where the counters of a state are: arrivals, unanswered messages, versions of the segment's layers."""
    record = I[SLOT0] + slot * SLOT
    return at(I, record + COUNTERS) + at(I, at(I, record + LAYOUT) + PARTS + segment) + idx * at(I, I[SEG0] + segment * SEG + WIDTH)


@kernel()
def arrive(I, w, q, slot, idx, amount):
    """Count a message to a segment of this worker; the token is ready once all have come. Of the way back, one of amount BIG comes alone."""
    record = I[SEG0] + (q >> 1) * SEG
    if q & 1 and amount != BIG:
        p = counters(I, slot, q >> 1, idx) + 1
        left = at(I, p) - 1
        put(I, p, left)
        if left == 0:
            ready(I, w, q, slot, idx)
    elif at(I, record + COUNTED):
        p = counters(I, slot, q >> 1, idx)
        total = at(I, p) + amount
        put(I, p, total)
        if total == at(I, record + NEED) * BIG:
            ready(I, w, q, slot, idx)
    else:
        ready(I, w, q, slot, idx)


@kernel()
def pass_on(I, w, to, q, slot, idx, amount):
    """Stage a token in the ring to worker `to`; `publish` makes it visible. In virtual time: put it into the outbox."""
    if I[OUTBOX] > 0:
        box = I[OUTBOX]
        count = at(I, box)
        if count == I[OUTBOX_ROOM]:
            store_release(I, ERROR, FULL_RING)
            return
        put(I, box + 1 + 3 * count, to)
        put(I, box + 2 + 3 * count, (q << QUEUE_SHIFT) | (slot << INDEX_BITS) | idx)
        put(I, box + 3 + 3 * count, amount)
        put(I, box, count + 1)
        return
    c = I[RING0] + (w * I[WORKERS] + to) * RING
    staged = at(I, c + RING_STAGED)
    mask = at(I, c + MASK)
    if staged - at(I, c + RING_SEEN) > mask:
        put(I, c + RING_SEEN, load_acquire(I, c + RING_HEAD))
        if staged - at(I, c + RING_SEEN) > mask:
            put(I, ERROR + 1, c)
            store_release(I, ERROR, FULL_RING)
            return
    p = at(I, c + BUFFER) + 2 * (staged & mask)
    put(I, p, (q << QUEUE_SHIFT) | (slot << INDEX_BITS) | idx)
    put(I, p + 1, amount)
    put(I, c + RING_STAGED, staged + 1)


@kernel()
def publish(I, w):
    """Make what was staged visible to the other workers, a firing's messages at once."""
    workers = I[WORKERS]
    for to in range(workers):
        c = I[RING0] + (w * workers + to) * RING
        staged = at(I, c + RING_STAGED)
        if to != w and staged != at(I, c + RING_TAIL):
            store_release(I, c + RING_TAIL, staged)


@kernel()
def send(I, w, q, slot, idx, amount):
    """Send a message: counted here if this worker owns the segment, else staged for the owner."""
    owner = at(I, I[SEG0] + (q >> 1) * SEG + OWNER)
    if owner == w:
        arrive(I, w, q, slot, idx, amount)
    else:
        pass_on(I, w, owner, q, slot, idx, amount)


@kernel()
def outstanding(I, w, slot, more):
    """Count `more` messages of an instance that nobody has taken yet; where there are none left, tell the owner of the Source to retire it.

    For what runs without a way back: all of the instance but the Source is this worker's.
    """
    record = I[SLOT0] + slot * SLOT
    left = at(I, record + MESSAGES) + more
    put(I, record + MESSAGES, left)
    if left == 0:
        owner = at(I, I[SEG0] + OWNER)
        if owner == w:
            ready(I, w, 1, slot, 0)
        else:
            pass_on(I, w, owner, 1, slot, 0, BIG)


@kernel(returns=types.int64)
def zeros_last(I, w, n):
    """Put the tokens of this firing whose index is 0 behind the others; return how many the others are."""
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    begin = 0
    end = n
    while True:
        while begin < end and at(I, block + cap + begin) != 0:
            begin += 1
        while begin < end and at(I, block + cap + end - 1) == 0:
            end -= 1
        if begin == end:
            return begin
        end -= 1
        for k in range(4):
            a = block + k * cap + begin
            b = block + k * cap + end
            word = at(I, a)
            put(I, a, at(I, b))
            put(I, b, word)


@kernel()
def blame(F, I, w, n, x, starts, cols, segment):
    """A loss was not finite: note the first instance whose operand is not, or the first of the firing."""
    block = I[WORK0] + w * I[WORK_STRIDE]
    cap = I[CAP]
    for i in range(n):
        a = at(I, starts + i) if starts >= 0 else i
        b = at(I, starts + i + 1) if starts >= 0 else i + 1
        if n == 1 or finite(F, x + a * cols, (b - a) * cols) == 0:
            I[NONFINITE_COUNT] += 1
            if I[NONFINITE] == 0:
                put(I, NONFINITE + 1, segment)
                put(I, NONFINITE, at(I, block + 2 * cap + i) + 1)
