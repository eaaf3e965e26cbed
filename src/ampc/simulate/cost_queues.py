"""The tokens that wait at devices, in a pass without numerics: queues as lists through cells, and which queue a device fires next."""

from __future__ import annotations

from numba import njit

from ampc.simulate.core import EXACT
from ampc.simulate.cost_tables import AGE, AGED, ENOUGH, FIRST, FULL

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@njit(**EXACT)
def queue_token(t, s, now, q, cell):
    """Put a token into queue q of its device."""
    waiting = s.waiting[q]
    s.depth[q] += waiting * (now - s.changed[q])
    s.changed[q] = now
    if waiting == 0:
        s.head[q] = cell
        d = t.device[q >> 1]
        k = s.ready_count[d]
        s.ready[s.ready_first[d] + k] = q
        s.place[q] = k
        s.ready_count[d] = k + 1
    else:
        s.following[s.tail[q]] = cell
    s.tail[q] = cell
    s.waiting[q] = waiting + 1
    if waiting + 1 > s.most[q]:
        s.most[q] = waiting + 1
    if s.number[AGED] == 1:
        s.age[cell] = s.number[AGE]
        s.number[AGE] += 1


@njit(**EXACT)
def dequeue(t, s, now, q, n):
    """Take the first n tokens out of queue q; return the first, from which `following` leads on."""
    waiting = s.waiting[q]
    s.depth[q] += waiting * (now - s.changed[q])
    s.changed[q] = now
    first = s.head[q]
    s.waiting[q] = waiting - n
    if waiting > n:
        cell = first
        for _ in range(n):
            cell = s.following[cell]
        s.head[q] = cell
        return first
    d = t.device[q >> 1]
    start = s.ready_first[d]
    last = s.ready_count[d] - 1
    moved = s.ready[start + last]
    s.ready[start + s.place[q]] = moved
    s.place[moved] = s.place[q]
    s.ready_count[d] = last
    return first


@njit(**EXACT)
def choose(t, s, d):
    """The queue of device d to fire next, or -1.

    Where a firing takes one message: admission and retirement, backward, forward, the oldest first. Elsewhere as the engine's workers choose: full
    backward firings, else the queue with most waiting rows. Ties go to the lower queue.
    """
    best = -1
    heaviest = 0
    start = s.ready_first[d]
    for k in range(start, start + s.ready_count[d]):
        q = s.ready[k]
        if s.one[d] == 1:
            weight = FULL - 1 - s.age[s.head[q]]
            if q < 2:
                weight += FIRST
            elif q & 1:
                weight += FULL
        else:
            weight = s.waiting[q] * t.weight[q >> 1]
            if q < 2:
                weight += FIRST
            elif q & 1 and weight >= ENOUGH:
                weight += FULL
        if weight > heaviest or (weight == heaviest and q < best):
            heaviest = weight
            best = q
    return best
