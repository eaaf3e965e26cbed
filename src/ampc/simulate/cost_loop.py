"""The loop over events of a pass without numerics: tokens wait, fire for as long as they cost, and send what their template says.

The rules are those of the engine in virtual time (`driver`). Here a firing computes nothing, so networks of thousands of devices take seconds.
`cost_only` fills the tables and reads them.
"""

from __future__ import annotations

import math

from ampc.runtime.native import pointer
from ampc.runtime.saving import compiled
from ampc.runtime.settings import ENTRY
from ampc.simulate.core import arrived, exact, jitter, pointed, pop, push, release, room, route, send, uniform
from ampc.simulate.cost_layers import admit, note_versions, obey, retire, settle, until_update
from ampc.simulate.cost_queues import choose, dequeue, queue_token
from ampc.simulate.cost_tables import (
    ACKS, ANSWER, BACKWARD_TOKEN, DONE, FAILURE_RATE, FINISHED, FORWARD_TOKEN, GROW, IN_BATCH, JITTER, LAYERS, LEAVING, MESSAGE, MODE, NO_ROUTE,
    ORDER, OVERHEAD, READ, REPAIR, RETIRED, ROOM, SOURCE, STALLED, STRIDE, SYNC, TOKEN_BYTES, TOTAL, UPDATED, UPDATING, State, Templates,
)  # fmt: skip
from ampc.simulate.tables import (
    BACKWARD, CROSSED, DROPPED, END, FAILURES, FIRINGS, FORWARD, HANDLED, HEARD, MESSAGES, OWED, STOPPED, TAKEN, UPDATE, Log,
)  # fmt: skip

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"


@exact
def begin(t, s, heap, log, chance, d):
    """Let device d, which is idle, fire what waits for it, and say when it will have finished."""
    now = heap.now[0]
    s.number[UPDATED] = 0
    s.amount[UPDATING] = 0.0
    layer = s.ordered[d]
    s.ordered[d] = -1
    while layer >= 0:
        obey(t, s, layer)
        s.acks[d] += 1
        layer = s.next_order[layer]
    did = s.acks[d]
    if d == s.number[SOURCE]:
        did += admit(t, s, log, now)
    q = choose(t, s, d)
    if q < 0 and did == 0:
        return
    work = s.seconds[7 * d + OWED]
    s.seconds[7 * d + OWED] = 0.0
    priced = s.amount[OVERHEAD] > 0.0 or s.amount[MESSAGE] > 0.0
    if priced:
        work += order_seconds(t, s, d)
    n = 0
    messages = s.acks[d] + (s.number[LAYERS] if d == s.number[SOURCE] else 0)
    if q >= 0:
        segment = q >> 1
        n = 1
        if s.one[d] == 0:
            n = min(s.waiting[q], t.take[segment])
            if q & 1 and q > 1:
                n = until_update(t, s, segment, s.head[q], n)
        first = dequeue(t, s, now, q, n)
        s.taken[d] = first
        cost = t.per_firing[q]
        cell = first
        stride = s.number[STRIDE]
        for _ in range(n):
            slot = cell // stride
            k = t.first[s.template[slot]] + cell - slot * stride
            cost += t.seconds[2 * k + (q & 1)]
            messages += t.answer_first[k + 1] - t.answer_first[k] if q & 1 else t.sent_first[k + 1] - t.sent_first[k]
            note_token(t, s, log, slot, k)
            cell = s.following[cell]
        work += cost * jitter(chance, s.amount[JITTER])
        if q == 1:
            retire(t, s, log, first, n, now + work)
        elif q & 1:
            settle(t, s, segment, first, n)
        elif q:
            note_versions(t, s, segment, first, n)
        if priced and q != 1:
            work += sending_seconds(t, s, d, q, n)
        s.fired[d] += 1
    updating = s.amount[UPDATING]
    s.seconds[7 * d + (BACKWARD if q >= 0 and q & 1 else FORWARD)] += work
    s.seconds[7 * d + UPDATE] += updating
    end = now + work + updating
    if s.amount[FAILURE_RATE] > 0.0 and uniform(chance) > math.exp(-s.amount[FAILURE_RATE] * (work + updating)):
        end += s.amount[REPAIR]
        s.seconds[7 * d + STOPPED] += s.amount[REPAIR]
        log.counts[FAILURES] += 1
    s.seconds[7 * d + END] = end
    s.running[d] = q
    s.tokens[d] = n
    s.sending[d] = messages
    s.logged[d] = note_firing(s, log, d, q, n, s.number[UPDATED], now, end, updating)
    push(heap, end, FINISHED, d, 0)


@exact
def order_seconds(t, s, d):
    """What the orders that leave device d, and its answers to orders, cost it: each, and as often as they go to another device than before."""
    found = 1 if s.acks[d] > 0 else 0
    messages = s.acks[d]
    if d == s.number[SOURCE] and s.number[LEAVING] == 1:
        last = d
        for layer in range(s.number[LAYERS]):
            to = t.layer_device[layer]
            found += to != d and to != last
            messages += to != d
            last = last if to == d else to
    return found * s.amount[OVERHEAD] + messages * s.amount[MESSAGE]


@exact
def sending_seconds(t, s, d, q, n):
    """What the messages of the n tokens that device d has taken cost it: each, and as often as they go to another device than before."""
    stride = s.number[STRIDE]
    last = d
    found = 0
    messages = 0
    cell = s.taken[d]
    for _ in range(n):
        slot = cell // stride
        start = t.first[s.template[slot]]
        k = start + cell - slot * stride
        low = t.answer_first[k] if q & 1 else t.sent_first[k]
        high = t.answer_first[k + 1] if q & 1 else t.sent_first[k + 1]
        for e in range(low, high):
            to = t.device[t.segment[start + (t.answer_to[e] if q & 1 else t.sent_to[e])]]
            if to != d and to != last:
                found += 1
            if to != d:
                messages += 1
                last = to
        cell = s.following[cell]
    return found * s.amount[OVERHEAD] + messages * s.amount[MESSAGE]


@exact
def finish(t, s, heap, links, under_way, log, d):
    """Device d has finished: send what its tokens send. Return 0, or NO_ROUTE."""
    now = heap.now[0]
    q = s.running[d]
    n = s.tokens[d]
    s.running[d] = -2
    wrong = 0
    stride = s.number[STRIDE]
    if q >= 0 and q != 1:
        cell = s.taken[d]
        for _ in range(n):
            after = s.following[cell]  # a token may be queued anew at once
            slot = cell // stride
            start = t.first[s.template[slot]]
            k = start + cell - slot * stride
            if q & 1:
                for e in range(t.answer_first[k], t.answer_first[k + 1]):
                    to = slot * stride + t.answer_to[e]
                    wrong += pass_on(t, s, heap, links, under_way, log, d, to, t.segment[start + t.answer_to[e]], BACKWARD_TOKEN, t.answer_bytes[e])
            else:
                s.waits[cell] = t.sent_first[k + 1] - t.sent_first[k]
                if s.waits[cell] == 0:
                    queue_token(t, s, now, q + 1, cell)
                for e in range(t.sent_first[k], t.sent_first[k + 1]):
                    to = slot * stride + t.sent_to[e]
                    wrong += pass_on(t, s, heap, links, under_way, log, d, to, t.segment[start + t.sent_to[e]], FORWARD_TOKEN, t.sent_bytes[e])
            cell = after
    if d == s.number[SOURCE] and s.number[LEAVING] == 1:
        s.number[LEAVING] = 0
        for layer in range(s.number[LAYERS]):
            if t.layer_device[layer] != d:
                wrong += dispatch(s, heap, links, under_way, log, now, d, t.layer_device[layer], layer, ORDER, s.amount[TOKEN_BYTES], -1)
    for _ in range(s.acks[d]):
        wrong += dispatch(s, heap, links, under_way, log, now, d, s.number[SOURCE], 0, ANSWER, s.amount[TOKEN_BYTES], -1)
    s.acks[d] = 0
    return NO_ROUTE if wrong else 0


@exact
def pass_on(t, s, heap, links, under_way, log, d, cell, segment, what, size):
    """Bring a token to `cell`, a firing of `segment`: counted at once on device d itself, else over the links. Return 1 if there is no route."""
    to = t.device[segment]
    if to == d:
        arrive(t, s, heap.now[0], cell, segment, what)
        return 0
    slot = cell // s.number[STRIDE]
    k = t.first[s.template[slot]] + cell - slot * s.number[STRIDE]
    token = ((2 * segment + what) << 48) | (slot << 28) | t.ordinal[k]
    return dispatch(s, heap, links, under_way, log, heap.now[0], d, to, cell, what, size, token)


@exact
def dispatch(s, heap, links, under_way, log, now, d, to, a, what, size, token):
    """Put a message on the links from device d to another; it is logged if `token` says what it is. Return 1 if there is no route."""
    way = route(links, d, to)
    if way < 0:
        return 1
    number = log.counts[MESSAGES]
    if number < 4 * s.number[ROOM] and token >= 0:
        log.counts[MESSAGES] = number + 1
        log.message[3 * number] = s.logged[d]
        log.message[3 * number + 1] = to
        log.message[3 * number + 2] = token
        log.sent[3 * number] = now
        log.sent[3 * number + 1] = -1.0
        log.sent[3 * number + 2] = size
    else:
        number = -1
    log.counts[CROSSED] += 1
    send(heap, links, under_way, now, way, size, a, what, number)
    return 0


@exact
def arrive(t, s, now, cell, segment, what):
    """Count a message to a firing; it is ready once all have come."""
    left = s.waits[cell] - 1
    s.waits[cell] = left
    if left == 0:
        queue_token(t, s, now, 2 * segment + what, cell)


@exact
def deliver(t, s, heap, under_way, log, m):
    """Hand a message that has crossed its links to its device; return the device. What was sent at once costs it `OVERHEAD` once, each
    message `MESSAGE`, and its bytes `READ`.
    """
    now = heap.now[0]
    d = under_way.receiver[m]
    a = under_way.a[m]
    what = under_way.b[m]
    number = under_way.c[m]
    if number >= 0:
        log.sent[3 * number + 1] = now
    if under_way.sent_s[m] != s.seconds[7 * d + HEARD]:
        s.seconds[7 * d + HEARD] = under_way.sent_s[m]
        s.seconds[7 * d + OWED] += s.amount[OVERHEAD]
    s.seconds[7 * d + OWED] += s.amount[MESSAGE] + under_way.size_bytes[m] * s.amount[READ]
    release(under_way, m)
    if what == ORDER:
        s.next_order[a] = s.ordered[d]
        s.ordered[d] = a
    elif what == ANSWER:
        s.number[ACKS] += 1
    else:
        slot = a // s.number[STRIDE]
        segment = t.segment[t.first[s.template[slot]] + a - slot * s.number[STRIDE]]
        arrive(t, s, now, a, segment, what)
    return d


# ----------------------------------------------------------------------------------------------------- log


@exact
def note_token(t, s, log, slot, k):
    """A token of the firing that is noted next."""
    i = log.counts[TAKEN]
    if i < 4 * s.number[ROOM] and log.counts[FIRINGS] < s.number[ROOM]:
        log.taken[3 * i] = log.counts[FIRINGS]
        log.taken[3 * i + 1] = slot
        log.taken[3 * i + 2] = t.ordinal[k]
        log.counts[TAKEN] = i + 1


@exact
def note_firing(s, log, d, q, n, updates, start, end, updating):
    """Put a firing into the log; return its number there, or -1."""
    k = log.counts[FIRINGS]
    if k < s.number[ROOM]:
        log.firing[4 * k] = d
        log.firing[4 * k + 1] = q
        log.firing[4 * k + 2] = n
        log.firing[4 * k + 3] = updates
        log.span[3 * k] = start
        log.span[3 * k + 1] = end
        log.span[3 * k + 2] = updating
        log.counts[FIRINGS] = k + 1
        return k
    if s.number[ROOM]:
        log.counts[DROPPED] += 1
    return -1


# ---------------------------------------------------------------------------------------------------- loop


@exact
def over(s):
    """Whether every instance has retired and, in synchronous mode, been part of an update."""
    return s.number[RETIRED] == s.number[TOTAL] and (s.number[MODE] != SYNC or s.number[IN_BATCH] == 0)


@exact
def handle(t, s, heap, links, under_way, log, chance, limit):
    """Handle up to `limit` events; return 0, or how the pass ended (see `DONE`)."""
    if heap.counts[1] == 0:
        push(heap, 0.0, FINISHED, s.number[SOURCE], 0)
    for _ in range(limit):
        if heap.counts[0] == 0:
            return DONE if over(s) else STALLED
        # A firing that ends sends as many messages as it has counted, and begins another.
        if room(heap) < 2 + (s.sending[heap.what[2]] if heap.what[1] == FINISHED else 0):
            return GROW
        _, kind, a, _ = pop(heap)
        log.counts[HANDLED] += 1
        if kind == FINISHED:
            d = a
            if finish(t, s, heap, links, under_way, log, d) != 0:
                return NO_ROUTE
        else:
            if not arrived(heap, links, under_way, heap.now[0], a):
                continue
            d = deliver(t, s, heap, under_way, log, a)
            if s.running[d] != -2:
                continue
        begin(t, s, heap, log, chance, d)
    return 0


@compiled({name: value for name, value in ENTRY.items() if name != "fastmath"})
def run(t, s, heap, links, under_way, log, chance, limit):
    """Handle up to `limit` events of a pass; return 0, or how it ended (see `DONE`). The log's tables are flat."""
    events, network, messages = pointed(heap, links, under_way)
    return handle(templates(t), state(s), events, network, messages, logged(log), pointer(chance), limit)


@exact
def templates(t):
    """The tables with pointers in place of arrays, which cost nothing to hand on."""
    return Templates(
        pointer(t.first), pointer(t.segment), pointer(t.ordinal), pointer(t.seconds), pointer(t.need), pointer(t.sent_first),
        pointer(t.sent_to), pointer(t.sent_bytes), pointer(t.answer_first), pointer(t.answer_to), pointer(t.answer_bytes),
        pointer(t.share_first), pointer(t.share), pointer(t.device), pointer(t.take), pointer(t.weight), pointer(t.per_firing),
        pointer(t.layer_first), pointer(t.layer), pointer(t.layer_device), pointer(t.update), pointer(t.frequency),
    )  # fmt: skip


@exact
def state(s):
    return State(
        pointer(s.number), pointer(s.amount), pointer(s.order), pointer(s.idle), pointer(s.template), pointer(s.position), pointer(s.waits),
        pointer(s.following), pointer(s.queue), pointer(s.version), pointer(s.head), pointer(s.tail), pointer(s.waiting),
        pointer(s.changed), pointer(s.depth), pointer(s.most), pointer(s.ready_first), pointer(s.ready), pointer(s.ready_count),
        pointer(s.place), pointer(s.lane_head), pointer(s.lane_tail), pointer(s.lane_count), pointer(s.one), pointer(s.running),
        pointer(s.taken), pointer(s.tokens), pointer(s.sending), pointer(s.logged), pointer(s.seconds), pointer(s.fired),
        pointer(s.ordered), pointer(s.acks), pointer(s.next_order), pointer(s.layer_version), pointer(s.updates), pointer(s.gathered),
        pointer(s.due), pointer(s.open), pointer(s.stale),
    )  # fmt: skip


@exact
def logged(x):
    return Log(
        pointer(x.counts), pointer(x.firing), pointer(x.span), pointer(x.taken), pointer(x.message), pointer(x.sent), pointer(x.admitted),
        pointer(x.retired),
    )  # fmt: skip


__all__ = ["run"]
