"""The critical path of a pass: the chain of firings and messages that made it as long as it was.

Walked from the last firing to the first: a firing began when its device had finished the one before, or when a message arrived that had been sent
by another. What shortens nothing on this path makes the pass no shorter.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ampc.runtime.trace import Trace

SLACK_S = 1e-12


@dataclasses.dataclass(frozen=True)
class CriticalPath:
    """Seconds of the path. by_device, by_queue: within firings (name -> seconds), messages_s on links, waiting_s neither (an arrival not in the log).

    firings: how many the path has.
    """

    seconds: float
    firings: int
    by_device: dict[str, float]
    by_queue: dict[str, float]
    messages_s: float
    waiting_s: float


def critical_path(trace: Trace) -> CriticalPath:
    """Return the critical path of a trace; an empty one for a trace without firings."""
    n = len(trace.start_s)
    by_device: dict[str, float] = {}
    by_queue: dict[str, float] = {}
    messages_s = waiting_s = 0.0
    if not n:
        return CriticalPath(0.0, 0, by_device, by_queue, 0.0, 0.0)
    names = trace.names()
    arrivals = _Arrivals(trace)
    at, count = int(np.argmax(trace.end_s)), 0
    end = float(trace.end_s[at])
    while at >= 0:
        start, device = float(trace.start_s[at]), int(trace.device[at])
        spent = end - start
        by_device[trace.devices[device]] = by_device.get(trace.devices[device], 0.0) + spent
        name = names[int(trace.queue[at])]
        by_queue[name] = by_queue.get(name, 0.0) + spent
        count += 1
        before = at - 1 if at and trace.device[at - 1] == device else -1  # firings stand in order of start within each device
        if before >= 0 and trace.end_s[before] >= start - SLACK_S:
            at, end = before, start
            continue
        message = arrivals.last(device, start)
        arrived = float(trace.arrived_s[message]) if message >= 0 else -np.inf
        if message >= 0 and (before < 0 or arrived > trace.end_s[before]) and trace.sender[message] >= 0:
            waiting_s += start - arrived
            messages_s += arrived - float(trace.sent_s[message])
            at, end = int(trace.sender[message]), float(trace.sent_s[message])
            continue
        waiting_s += start - (float(trace.end_s[before]) if before >= 0 else 0.0)
        at, end = before, float(trace.end_s[before]) if before >= 0 else 0.0
    return CriticalPath(float(trace.end_s.max()), count, by_device, by_queue, messages_s, waiting_s)


class _Arrivals:
    """The messages of each device by time of arrival."""

    def __init__(self, trace: Trace) -> None:
        known = np.flatnonzero(np.isfinite(trace.arrived_s))
        order = known[np.lexsort((trace.arrived_s[known], trace.receiver_device[known]))]
        self.order, self.times = order, trace.arrived_s[order]
        self.first = np.searchsorted(trace.receiver_device[order], np.arange(len(trace.devices) + 1))

    def last(self, device: int, time: float) -> int:
        """Return the number of the last message that `device` had received by `time`, -1: none."""
        low, high = self.first[device], self.first[device + 1]
        k = low + int(np.searchsorted(self.times[low:high], time + SLACK_S, side="right")) - 1
        return int(self.order[k]) if k >= low else -1


__all__ = ["CriticalPath", "critical_path"]
