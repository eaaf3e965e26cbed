"""Traces for tests of what reads them: a toy pipeline of devices, and a recorded pass of a bundled model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ampc.runtime.trace import Trace
from support import dataset, engine, random_rows, small


def pipeline(devices: int = 3, instances: int = 6, *, names: tuple[str, ...] | None = None, fwd_s: float = 1e-6, driver: Any = "simulate") -> Trace:
    """Instances pass forward through devices in a row and back, one after the other; the last of a device's backward firings updates its layer."""
    n = devices * instances
    order = [(i, d) for i in range(instances) for d in range(devices)]
    start = {(i, d, 0): (3 * i * devices + d) * fwd_s for i, d in order} | {(i, d, 1): (3 * i + 3) * devices * fwd_s - 2 * (d + 1) * fwd_s for i, d in order}
    firings = sorted(start, key=lambda f: (f[1], start[f]))
    number = {f: k for k, f in enumerate(firings)}
    end = {f: start[f] + (2 if f[2] else 1) * fwd_s for f in firings}
    last = [f[2] == 1 and f[0] == instances - 1 for f in firings]
    messages = [((i, d, 0), (i, d + 1, 0)) for i, d in order if d + 1 < devices] + [((i, d, 1), (i, d - 1, 1)) for i, d in order if d > 0]
    return Trace(
        driver=driver, devices=names or tuple(f"core:{d}" for d in range(devices)), segments=tuple(f"{d} layer{d}" for d in range(devices)), links=(),
        start_s=[start[f] for f in firings], end_s=[end[f] for f in firings], device=[f[1] for f in firings],
        queue=[2 * f[1] + f[2] for f in firings], tokens=[1] * (2 * n), updates=[int(x) for x in last],
        taken_firing=list(range(2 * n)), taken_slot=[0] * (2 * n), taken_index=[0] * (2 * n),
        sent_s=[end[a] for a, _ in messages], arrived_s=[start[b] for _, b in messages], sender=[number[a] for a, _ in messages],
        receiver_device=[b[1] for _, b in messages], message_queue=[2 * b[1] + b[2] for _, b in messages], message_slot=[0] * len(messages),
        message_index=[0] * len(messages), message_bytes=[4.0] * len(messages),
        admitted_s=[3 * i * devices * fwd_s for i in range(instances)], retired_s=[3 * (i + 1) * devices * fwd_s for i in range(instances)],
        instance=list(range(instances)), update_s=np.where(last, 0.5 * fwd_s, 0.0),
    )  # fmt: skip


def recorded(name: str = "list_reduction", n: int = 200, workers: int = 3, **options: Any) -> Trace:
    """Return the trace of a training pass over random instances."""
    graph = small(name)
    e = engine(graph, workers, min_update_frequency=8, **options)
    e.run(dataset(graph, random_rows(graph, n, 1)), np.arange(n), train=True, record=True)
    assert e.trace is not None
    return e.trace
