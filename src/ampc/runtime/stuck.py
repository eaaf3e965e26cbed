"""What a pass that stands still waits for, as notes of an error: segments with their source lines, then rows of the data. Reads, changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ampc.codegen.layout import BIG, SEG, SLOT, A, H, S, Z
from ampc.codegen.plan import Plan
from ampc.runtime.binding import Binding
from ampc.runtime.tokens import HEAD, QUEUE, TAIL

SHOWN = 5
"""Rows that are named."""


def waiting(plan: Plan, b: Binding) -> tuple[str, ...]:
    """Say for each segment what is queued there and how many of its states lack a part of their messages, then which rows are in flight."""
    slots = list(_slots(b))
    states = {region: b.extents.states(region) for region in {s.region for s in plan.segments}}
    lines = []
    for s in plan.segments:
        queued = [int(b.I[c + TAIL] - b.I[c + HEAD]) for q in (2 * s.id, 2 * s.id + 1) for c in [b.I[H.QUEUE0] + q * QUEUE]]
        parts = [f"{n} {name} tokens ready" for n, name in zip(queued, ("forward", "backward")) if n]
        record = b.I[H.SEG0] + s.id * SEG
        lacking = 0
        if b.I[record + S.COUNTED]:
            for slot in slots:
                begin = b.I[slot + Z.COUNTERS] + b.I[b.I[slot + Z.LAYOUT] + A.PARTS + s.id]
                width = int(b.I[record + S.WIDTH])
                arrived = b.I[begin : begin + width * int(states[s.region][b.I[slot + Z.INSTANCE]]) : width]
                lacking += int(np.count_nonzero((arrived != 0) & (arrived != b.I[record + S.NEED] * BIG)))
        if lacking:
            parts.append("1 state has got a part of its messages" if lacking == 1 else f"{lacking} states have got a part of their messages")
        if parts:
            where = next((n.origin[0] for n in s.nodes if n.origin), "")
            lines.append(f"segment {s.id} ({where}): " + ", ".join(parts))
    return (*lines, _rows(b, slots))


def _slots(b: Binding) -> Iterator[int]:
    """Yield where the records of the slots are whose instances have not retired."""
    order, total, admitted = int(b.I[H.ORDER0]), int(b.I[H.TOTAL]), int(b.I[H.ADMITTED])
    for k in range(int(b.I[H.SLOTS])):
        slot = int(b.I[H.SLOT0]) + k * SLOT
        position = int(b.I[slot + Z.POSITION])
        if position < admitted and b.I[order + position] == b.I[slot + Z.INSTANCE] and b.I[order + total + position] == 0:
            yield slot


def _rows(b: Binding, slots: list[int]) -> str:
    held: npt.NDArray[np.int64] = np.sort(b.I[np.array(slots, np.int64) + Z.INSTANCE])
    more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
    return "in flight: " + ", ".join(b.data.where(int(i)) for i in held[:SHOWN]) + more
