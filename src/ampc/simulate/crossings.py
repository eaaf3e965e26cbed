"""When each message of a log was on each link of its way: the rules of `core` once more, over what was sent.

A log has no room for links. Messages wait for a link in the order in which they come to it, so times of sending and sizes tell the rest. Orders of
synchronous mode are in no log of a pass without numerics: messages may have waited for these 16 bytes longer than is found here.
"""

from __future__ import annotations

import heapq

import numpy as np

from ampc.runtime.trace import Crossings
from ampc.simulate.core import Floats, Integers, Links
from ampc.simulate.tables import Log


def crossings(links: Links, sender: Integers, receiver: Integers, sent_s: Floats, size_bytes: Floats, grouped: bool = False) -> Crossings:
    """Return when each message occupied each link of its way.

    sender: [messages] device, in the numbers of `links`, or -1 if it is not known: such a message is left out. Messages are in the order in which
    they were sent. grouped: what is sent at once to one device goes as one.
    """
    hops = _hops(links)
    first = np.ones(len(sender), bool)  # of what goes as one
    if grouped:
        first[1:] = (np.diff(sender) != 0) | (np.diff(receiver) != 0) | (np.diff(sent_s) != 0)
    starts = np.flatnonzero(first)
    whole = np.add.reduceat(size_bytes, starts) if len(starts) else size_bytes
    found: list[tuple[int, int, float, float, float]] = []
    free = [0.0] * len(links.s_per_byte)
    s_per_byte, latency_s = links.s_per_byte.tolist(), links.latency_s.tolist()
    under_way: list[tuple[float, int, int, int]] = []  # when it comes to its next link, in which order, the message, the hop
    pushed = 0

    def cross(now: float, m: int, hop: int) -> None:
        nonlocal pushed
        way = hops[int(sender[starts[m]]), int(receiver[starts[m]])]
        link = way[hop]
        begin = max(now, free[link])
        free[link] = end = begin + float(whole[m]) * s_per_byte[link]
        found.append((m, link, now, begin, end))
        if hop + 1 < len(way):
            heapq.heappush(under_way, (end + latency_s[link], pushed, m, hop + 1))
            pushed += 1

    for m, (device, now) in enumerate(zip(sender[starts].tolist(), sent_s[starts].tolist(), strict=True)):
        while under_way and under_way[0][0] <= now:
            came, _, earlier, hop = heapq.heappop(under_way)
            cross(came, earlier, hop)
        if device >= 0:
            cross(now, m, 0)
    while under_way:
        came, _, earlier, hop = heapq.heappop(under_way)
        cross(came, earlier, hop)
    of = np.array([f[:2] for f in found], np.int64).reshape(-1, 2)
    span = np.array([f[2:] for f in found], np.float64).reshape(-1, 3)
    if grouped:
        return _each(of, span, starts, size_bytes, whole)
    return Crossings(starts[of[:, 0]], of[:, 1], *span.T)


def of_log(links: Links, log: Log, sent: int, grouped: bool = False) -> Crossings:
    """Return the crossings of the first `sent` messages of a log, which has the devices' numbers of `links`."""
    firing = log.message[:sent, 0]
    device = np.where(firing >= 0, log.firing[np.maximum(firing, 0), 0] if len(log.firing) else -1, -1)
    return crossings(links, device, log.message[:sent, 1], log.sent[:sent, 0], log.sent[:sent, 2], grouped)


def _hops(links: Links) -> dict[tuple[int, int], list[int]]:
    """Return (sender, receiver) -> the links on the way."""
    senders = np.repeat(np.arange(len(links.first) - 1), np.diff(links.first)).tolist()
    starts, hop = links.start.tolist(), links.hop.tolist()
    return {(a, b): hop[starts[k] : starts[k + 1]] for k, (a, b) in enumerate(zip(senders, links.receiver.tolist(), strict=True))}


def _each(of: Integers, span: Floats, starts: Integers, sizes: Floats, whole: Floats) -> Crossings:
    """Return the crossings of single messages, one behind the other within what went as one."""
    count = np.diff([*starts.tolist(), len(sizes)])[of[:, 0]]
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    message = np.repeat(starts[of[:, 0]], count) + within
    total = np.cumsum(sizes)
    before = (total - sizes)[message] - np.repeat((total - sizes)[starts[of[:, 0]]], count)
    rate = np.repeat((span[:, 2] - span[:, 1]) / np.maximum(whole[of[:, 0]], 1e-300), count)
    begin = np.repeat(span[:, 1], count) + before * rate
    return Crossings(message, np.repeat(of[:, 1], count), np.repeat(span[:, 0], count), begin, begin + sizes[message] * rate)


__all__ = ["crossings", "of_log"]
