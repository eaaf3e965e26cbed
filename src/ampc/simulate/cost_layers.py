"""Which instances are in flight, and what their gradients do to layers, in a pass without numerics: admission, weights, updates, staleness.

The rules are those of `worker.admit` and `optimizer.settle`; an instance's weight for a layer is known from its template.
"""

from __future__ import annotations

from ampc.runtime.optimizer import NEARLY as _NEARLY
from ampc.simulate.core import exact
from ampc.simulate.cost_queues import queue_token
from ampc.simulate.cost_tables import (
    ACKS, ADMITTED, ASYNC, BATCH, BINS, FILLED, FLYING, IDLE, IN_BATCH, LAYERS, LEAVING, MODE, RETIRED, SHARES, SOURCE, STRIDE, SYNC, TOTAL, UPDATED,
    UPDATING,
)  # fmt: skip

# mypy sees no types here: the arguments are numba arrays and integers throughout.
# mypy: disable-error-code="no-untyped-def"

NEARLY = _NEARLY

@exact
def admit(t, s, log, now):
    """On the Source's device: admit what may be admitted, or order updates when a batch has drained. Return whether anything happened."""
    total = s.number[TOTAL]
    flying = s.number[ADMITTED] - s.number[RETIRED]
    if s.number[MODE] == SYNC:
        if s.number[IN_BATCH] < 0:
            if s.number[ACKS] < s.number[LAYERS]:
                return 0
            s.number[IN_BATCH] = 0
        if flying == 0 and s.number[IN_BATCH] > 0 and (s.number[IN_BATCH] >= s.number[BATCH] or s.number[ADMITTED] == total):
            s.number[IN_BATCH] = -1
            s.number[ACKS] = 0
            for layer in range(s.number[LAYERS]):
                if t.layer_device[layer] == s.number[SOURCE]:
                    obey(t, s, layer)
                    s.number[ACKS] += 1
                else:
                    s.number[LEAVING] = 1
            return 1
    did = 0
    while s.number[IDLE] > 0 and s.number[ADMITTED] < total:
        position = s.number[ADMITTED]
        if s.number[MODE] == SYNC and s.number[IN_BATCH] >= s.number[BATCH]:
            break
        if s.number[MODE] == FILLED and position % s.number[BATCH] == 0 and not begin_batch(t, s, position):
            break
        s.number[IDLE] -= 1
        slot = s.idle[s.number[IDLE]]
        kind = s.order[position]
        s.template[slot] = kind
        s.position[slot] = position
        s.number[ADMITTED] = position + 1
        s.number[IN_BATCH] += s.number[MODE] == SYNC
        if position + 1 - s.number[RETIRED] > s.number[FLYING]:
            s.number[FLYING] = position + 1 - s.number[RETIRED]
        cell = slot * s.number[STRIDE]
        start = t.first[kind]
        for k in range(t.first[kind + 1] - start):
            s.waits[cell + k] = t.need[start + k]
        log.admitted[position] = now
        queue_token(t, s, now, 0, cell)
        did = 1
    return did


@exact
def begin_batch(t, s, position):
    """Open the batch that begins at `position`: count what it will bring each layer. False while the last but one is not through."""
    parity = (position // s.number[BATCH]) & 1
    if s.open[parity] > 0:
        return False
    end = min(position + s.number[BATCH], s.number[TOTAL])
    s.open[parity] = end - position
    for layer in range(s.number[LAYERS]):
        s.due[2 * layer + parity] = 0.0
    for i in range(position, end):
        kind = s.order[i]
        for k in range(t.first[kind], t.first[kind + 1]):
            first = t.layer_first[t.segment[k]]
            for j in range(t.share_first[k], t.share_first[k + 1]):
                s.due[2 * t.layer[first + j - t.share_first[k]] + parity] += t.share[j]
    return True


@exact
def retire(t, s, log, first, n, time):
    """The Source's messages of n instances have been answered: free their slots."""
    cell = first
    for _ in range(n):
        slot = cell // s.number[STRIDE]
        cell = s.following[cell]
        position = s.position[slot]
        log.retired[position] = time
        s.idle[s.number[IDLE]] = slot
        s.number[IDLE] += 1
        if s.number[MODE] == FILLED:
            s.open[(position // s.number[BATCH]) & 1] -= 1
    s.number[RETIRED] += n


@exact
def update(t, s, layer, parity):
    """A layer updates itself with what it has gathered: the firing that begins takes so much longer."""
    s.layer_version[layer] += 1
    s.updates[layer] += 1
    s.gathered[2 * layer + parity] = 0.0
    s.number[UPDATED] += 1
    s.amount[UPDATING] += t.update[layer]


@exact
def obey(t, s, layer):
    """A layer is told to update itself; one that no instance reached doesn't."""
    if s.gathered[2 * layer] > 0.0:
        update(t, s, layer, 0)


@exact
def share_of(t, s, cell, k):
    """(Where in `share` layer k of the segment of a cell is, where in `version`, the parity of its batch.)"""
    stride = s.number[STRIDE]
    slot = cell // stride
    start = t.first[s.template[slot]]
    j = t.share_first[start + cell - slot * stride] + k
    parity = (s.position[slot] // s.number[BATCH]) & 1 if s.number[MODE] == FILLED else 0
    return j, slot * s.number[SHARES] + j - t.share_first[start], parity


@exact
def until_update(t, s, segment, first, n):
    """How many of n backward tokens may fire before one of the segment's layers has to update itself."""
    if s.number[MODE] == SYNC:
        return n
    for k in range(t.layer_first[segment + 1] - t.layer_first[segment]):
        layer = t.layer[t.layer_first[segment] + k]
        even = s.gathered[2 * layer]
        odd = s.gathered[2 * layer + 1]
        cell = first
        for i in range(n):
            j, _, parity = share_of(t, s, cell, k)
            if parity:
                odd += t.share[j]
                reached = odd >= s.due[2 * layer + 1] * NEARLY
            else:
                even += t.share[j]
                reached = even >= (s.due[2 * layer] if s.number[MODE] == FILLED else t.frequency[layer]) * NEARLY
            if reached and t.share[j] > 0.0:
                n = i + 1
                break
            cell = s.following[cell]
    return n


@exact
def settle(t, s, segment, first, n):
    """Count weight and staleness of n backward tokens; layers that have gathered enough update themselves."""
    for k in range(t.layer_first[segment + 1] - t.layer_first[segment]):
        layer = t.layer[t.layer_first[segment] + k]
        now = s.layer_version[layer]
        cell = first
        last = 0
        for _ in range(n):
            j, v, parity = share_of(t, s, cell, k)
            s.stale[BINS * layer + min(now - s.version[v], BINS - 1)] += 1
            s.gathered[2 * layer + parity] += t.share[j]
            if t.share[j] > 0.0:
                last = parity
            cell = s.following[cell]
        if s.number[MODE] == ASYNC:
            if s.gathered[2 * layer] >= t.frequency[layer] * NEARLY:
                update(t, s, layer, 0)
        elif s.number[MODE] == FILLED:
            if s.due[2 * layer + last] > 0.0 and s.gathered[2 * layer + last] >= s.due[2 * layer + last] * NEARLY:
                update(t, s, layer, last)
                s.due[2 * layer + last] = 0.0


@exact
def note_versions(t, s, segment, first, n):
    """Remember for each forward token the versions of the segment's layers."""
    for k in range(t.layer_first[segment + 1] - t.layer_first[segment]):
        now = s.layer_version[t.layer[t.layer_first[segment] + k]]
        cell = first
        for _ in range(n):
            _, v, _ = share_of(t, s, cell, k)
            s.version[v] = now
            cell = s.following[cell]
