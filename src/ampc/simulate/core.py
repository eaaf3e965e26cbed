"""The event core: a heap of events in virtual time, links on which messages queue, random durations.

Everything is tables, so that compiled loops (`cost_loop`, `driver`) and plain Python (`NUMBA_DISABLE_JIT=1`) run the same text with the same result.
The compiled functions take tables of arrays or of bare pointers to them (`pointed`), which cost nothing to hand on.
Knows nothing of graphs, devices or what an event means. Nothing here grows: callers look at `room` and go on with `grown` tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ampc.runtime.native import pointer, signed, times, unsigned
from ampc.runtime.saving import compiled
from ampc.runtime.settings import KERNEL

# mypy sees no types of compiled functions: the arguments are the tables below, numbers throughout.
# mypy: disable-error-code="no-untyped-def"

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

EXACT: dict[str, Any] = {name: value for name, value in KERNEL.items() if name != "fastmath"}
"""Options of compiled functions here: times keep the order of their additions, so that plain Python gives the same bits."""
exact = compiled(EXACT)

MESSAGE = 0
"""The kind of an event at which a message has crossed a link; its `a` is the message's place in `Flight`. Other kinds are the caller's."""


class Events(NamedTuple):
    """A binary heap, earliest first, ties in the order of `push`. `now`: [1], the time of the last event taken.

    time: [capacity] seconds; what: [4 * capacity] sequence, kind, a, b of each; counts: [4] in the heap, pushed so far, taken so far, capacity.
    """

    time: Floats
    what: Integers
    counts: Integers
    now: Floats


class Links(NamedTuple):
    """Directed links and the routes over them; only those that some pair of devices uses.

    free_s: [links] from when on a link is free; busy_s, carried_bytes, messages: [links] totals; s_per_byte, latency_s: [links].
    first: [devices + 1] where a sender's routes begin; receiver: [routes], ascending within a sender; start: [routes + 1] into hop, link numbers.
    """

    free_s: Floats
    busy_s: Floats
    carried_bytes: Floats
    messages: Integers
    s_per_byte: Floats
    latency_s: Floats
    first: Integers
    receiver: Integers
    start: Integers
    hop: Integers


class Flight(NamedTuple):
    """Messages under way, each [capacity]: the next hop and the end of the hops; the receiving device; the caller's a, b, c; bytes; when it was sent.

    idle: [capacity] places without a message; counts: [1] how many there are of these.
    """

    next: Integers
    end: Integers
    receiver: Integers
    a: Integers
    b: Integers
    c: Integers
    size_bytes: Floats
    sent_s: Floats
    idle: Integers
    counts: Integers


class LinkLike(Protocol):
    """The part of a link that is read here."""

    @property
    def bytes_per_s(self) -> float: ...
    @property
    def latency_s(self) -> float: ...


class NetworkLike(Protocol):
    """The part of `ampc.place.topology.Network` that is read here."""

    @property
    def links(self) -> Sequence[LinkLike]: ...
    def path(self, a: int, b: int, /) -> Sequence[int]: ...


# ------------------------------------------------------------------------------------------------- tables


def events(capacity: int) -> Events:
    """Return an empty heap with room for `capacity` events."""
    capacity = max(16, capacity)
    return Events(np.zeros(capacity), np.zeros(4 * capacity, np.int64), np.array([0, 0, 0, capacity], np.int64), np.zeros(1))


def flight(capacity: int) -> Flight:
    """Return a table for `capacity` messages under way: as many as the heap has room for, since each message is an event there."""
    n = max(16, capacity)
    next_hop, end, receiver, a, b, c = (np.zeros(n, np.int64) for _ in range(6))
    idle = np.arange(n, dtype=np.int64)[::-1].copy()
    return Flight(next_hop, end, receiver, a, b, c, np.zeros(n), np.zeros(n), idle, np.array([n], np.int64))


def grown(heap: Events, under_way: Flight) -> tuple[Events, Flight]:
    """Return both with twice the room and the same content."""
    n, m = len(heap.time), len(under_way.size_bytes)
    larger, more = events(2 * n), flight(2 * m)
    larger.time[:n], larger.what[: 4 * n], larger.counts[:3], larger.now[:] = heap.time, heap.what, heap.counts[:3], heap.now
    for new, old in zip(more[:-2], under_way[:-2]):
        new[:m] = old
    known = int(under_way.counts[0])
    more.idle[m : m + known] = under_way.idle[:known]  # on top, so that the order in which places are taken is that of a larger table
    more.idle[:m] = np.arange(m, 2 * m)[::-1]
    more.counts[0] = m + known
    return larger, more


def links_between(network: NetworkLike, pairs: Iterable[tuple[int, int]], devices: int, carry: bool = True) -> tuple[Links, tuple[int, ...]]:
    """Return tables for the pairs (sender, receiver) of different devices that communicate, and the network's number of each link in them.

    carry: bytes take time on links; in shared memory it is the receiver's.
    """
    wanted = sorted({(a, b) for a, b in pairs if a != b})
    number: dict[int, int] = {}
    hops: list[int] = []
    start = [0]
    for a, b in wanted:
        hops += [number.setdefault(link, len(number)) for link in network.path(a, b)]
        start.append(len(hops))
    used = [network.links[link] for link in number]  # asked for after all paths: a network may make links when they are needed
    first = np.zeros(devices + 1, np.int64)
    for a, _ in wanted:
        first[a + 1] += 1
    n = len(used)
    return Links(
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, np.int64),
        np.array([1 / link.bytes_per_s if carry else 0.0 for link in used], np.float64), np.array([link.latency_s for link in used], np.float64),
        np.cumsum(first), np.array([b for _, b in wanted], np.int64), np.array(start, np.int64), np.array(hops, np.int64),
    ), tuple(number)  # fmt: skip


def random_state(seed: int) -> Integers:
    """Return a generator's state, [1], never 0."""
    mixed = (seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % (1 << 64)
    return np.array([mixed or 1], np.uint64).view(np.int64)


# ------------------------------------------------------------------------------------------------- events


@exact
def pointed(heap, links, under_way):
    """Return the three tables with pointers in place of arrays."""
    return (
        Events(pointer(heap.time), pointer(heap.what), pointer(heap.counts), pointer(heap.now)),
        Links(
            pointer(links.free_s), pointer(links.busy_s), pointer(links.carried_bytes), pointer(links.messages), pointer(links.s_per_byte),
            pointer(links.latency_s), pointer(links.first), pointer(links.receiver), pointer(links.start), pointer(links.hop),
        ),
        Flight(
            pointer(under_way.next), pointer(under_way.end), pointer(under_way.receiver), pointer(under_way.a), pointer(under_way.b),
            pointer(under_way.c), pointer(under_way.size_bytes), pointer(under_way.sent_s), pointer(under_way.idle), pointer(under_way.counts),
        ),
    )  # fmt: skip


@exact
def room(heap):
    """How many more events may be pushed, messages among them."""
    return heap.counts[3] - heap.counts[0]


@exact
def push(heap, time, kind, a, b):
    """Add an event at `time`, which is not before now."""
    assert time >= heap.now[0], "an event in the past"
    at, what, counts = heap.time, heap.what, heap.counts
    i = counts[0]
    sequence = counts[1]
    counts[0] = i + 1
    counts[1] = sequence + 1
    while i > 0:
        above = (i - 1) >> 1
        if at[above] <= time:  # a tie: what was pushed earlier stays above
            break
        at[i] = at[above]
        move(what, i, above)
        i = above
    at[i] = time
    what[4 * i] = sequence
    what[4 * i + 1] = kind
    what[4 * i + 2] = a
    what[4 * i + 3] = b


@exact
def pop(heap):
    """Take the earliest event: (time, kind, a, b). The heap is not empty."""
    at, what, counts = heap.time, heap.what, heap.counts
    time = at[0]
    kind = what[1]
    a = what[2]
    b = what[3]
    assert time >= heap.now[0], "virtual time ran back"
    heap.now[0] = time
    counts[2] += 1
    n = counts[0] - 1
    counts[0] = n
    last = at[n]
    order = what[4 * n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and (at[child + 1] < at[child] or (at[child + 1] == at[child] and what[4 * child + 4] < what[4 * child])):
            child += 1
        if at[child] > last or (at[child] == last and what[4 * child] > order):
            break
        at[i] = at[child]
        move(what, i, child)
        i = child
    at[i] = last
    move(what, i, n)
    return time, kind, a, b


@exact
def move(what, to, start):
    """Copy an entry of the heap, but for its time."""
    what[4 * to] = what[4 * start]
    what[4 * to + 1] = what[4 * start + 1]
    what[4 * to + 2] = what[4 * start + 2]
    what[4 * to + 3] = what[4 * start + 3]


# -------------------------------------------------------------------------------------------------- links


@exact
def route(links, sender, receiver):
    """The number of the route between two devices; -1 if none was asked for."""
    low = links.first[sender]
    high = links.first[sender + 1]
    while low < high:
        middle = (low + high) >> 1
        if links.receiver[middle] < receiver:
            low = middle + 1
        else:
            high = middle
    return low if low < links.first[sender + 1] and links.receiver[low] == receiver else -1


@exact
def send(heap, links, under_way, time, way, size_bytes, a, b, c):
    """Send a message of `size_bytes` over route `way` at `time`; it carries the caller's a, b, c. Return its place in `under_way`."""
    left = under_way.counts[0] - 1
    under_way.counts[0] = left
    m = under_way.idle[left]
    under_way.next[m] = links.start[way]
    under_way.end[m] = links.start[way + 1]
    under_way.a[m] = a
    under_way.b[m] = b
    under_way.c[m] = c
    under_way.receiver[m] = links.receiver[way]
    under_way.size_bytes[m] = size_bytes
    under_way.sent_s[m] = time
    cross(heap, links, under_way, time, m)
    return m


@exact
def cross(heap, links, under_way, time, m):
    """Let message m take its next link: wait until the link is free, occupy it for the bytes, arrive after the latency."""
    link = links.hop[under_way.next[m]]
    under_way.next[m] += 1
    size = under_way.size_bytes[m]
    busy = size * links.s_per_byte[link]
    free = max(time, links.free_s[link]) + busy
    links.free_s[link] = free
    links.busy_s[link] += busy
    links.carried_bytes[link] += size
    links.messages[link] += 1
    push(heap, free + links.latency_s[link], MESSAGE, m, 0)


@exact
def arrived(heap, links, under_way, time, m):
    """At a `MESSAGE` event: whether message m is at its receiver; if not, it has taken its next link."""
    if under_way.next[m] == under_way.end[m]:
        return True
    cross(heap, links, under_way, time, m)
    return False


@exact
def release(under_way, m):
    """Give back the place of a message that has arrived."""
    left = under_way.counts[0]
    under_way.idle[left] = m
    under_way.counts[0] = left + 1


# ------------------------------------------------------------------------------------------------- chance


@exact
def uniform(state):
    """The next number in (0, 1] (xorshift64*, Vigna 2016)."""
    x = unsigned(state[0])
    x ^= x >> np.uint64(12)
    x ^= times(x, 1 << 25)
    x ^= x >> np.uint64(27)
    state[0] = signed(x)
    return (np.float64(signed(times(x, 0x2545F4914F6CDD1D) >> np.uint64(11))) + 1.0) / 9007199254740992.0


@exact
def jitter(state, deviation):
    """A log-normal factor of mean 1 and standard deviation `deviation`; 1, without drawing, where that is 0."""
    if deviation <= 0.0:
        return 1.0
    variance = math.log1p(deviation * deviation)
    normal = math.sqrt(-2.0 * math.log(uniform(state))) * math.cos(6.283185307179586 * uniform(state))
    return math.exp(math.sqrt(variance) * normal - 0.5 * variance)
