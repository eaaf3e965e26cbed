"""The tokens that wait at devices, in a pass without numerics: queues as lists through cells, and which queue a device fires next."""

from __future__ import annotations

from ampc.codegen.layout import FIRST, FULL, PLENTY
from ampc.simulate.core import exact

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@exact
def queue_token(t, s, now, q, cell):
    """Put a token into queue q of its device: into a lane of the device where a firing takes one message."""
    waiting = count(s, now, q, 1)
    d = t.device[q >> 1]
    if s.one[d] == 1:
        lane = 3 * d + (0 if q < 2 else 2 - (q & 1))
        s.queue[cell] = q
        if s.lane_count[lane] == 0:
            s.lane_head[lane] = cell
        else:
            s.following[s.lane_tail[lane]] = cell
        s.lane_tail[lane] = cell
        s.lane_count[lane] += 1
        return
    if waiting == 1:
        s.head[q] = cell
        k = s.ready_count[d]
        s.ready[s.ready_first[d] + k] = q
        s.place[q] = k
        s.ready_count[d] = k + 1
    else:
        s.following[s.tail[q]] = cell
    s.tail[q] = cell


@exact
def count(s, now, q, more):
    """Count tokens of queue q in or out, and what it held until now; return how many wait."""
    waiting = s.waiting[q]
    s.depth[q] += waiting * (now - s.changed[q])
    s.changed[q] = now
    waiting += more
    s.waiting[q] = waiting
    if waiting > s.most[q]:
        s.most[q] = waiting
    return waiting


@exact
def dequeue(t, s, now, q, n):
    """Take the first n tokens out of queue q; return the first, from which `following` leads on."""
    left = count(s, now, q, -n)
    d = t.device[q >> 1]
    if s.one[d] == 1:
        lane = 3 * d + (0 if q < 2 else 2 - (q & 1))
        first = s.lane_head[lane]
        s.lane_count[lane] -= 1
        s.lane_head[lane] = s.following[first]
        return first
    first = s.head[q]
    if left > 0:
        cell = first
        for _ in range(n):
            cell = s.following[cell]
        s.head[q] = cell
        return first
    start = s.ready_first[d]
    last = s.ready_count[d] - 1
    moved = s.ready[start + last]
    s.ready[start + s.place[q]] = moved
    s.place[moved] = s.place[q]
    s.ready_count[d] = last
    return first


@exact
def choose(t, s, d):
    """The queue of device d to fire next, or -1.

    Where a firing takes one message: admission and retirement, then backward, then forward, the oldest of each first. Elsewhere as the engine's
    workers choose: full backward firings, else the queue with most waiting rows; ties go to the lower queue.
    """
    if s.one[d] == 1:
        for lane in range(3 * d, 3 * d + 3):
            if s.lane_count[lane] > 0:
                return s.queue[s.lane_head[lane]]
        return -1
    best = -1
    heaviest = 0
    start = s.ready_first[d]
    for k in range(start, start + s.ready_count[d]):
        q = s.ready[k]
        weight = s.waiting[q] * t.weight[q >> 1]
        if q < 2:
            weight += FIRST
        elif q & 1 and weight >= PLENTY:
            weight += FULL
        if weight > heaviest or (weight == heaviest and q < best):
            heaviest = weight
            best = q
    return best
