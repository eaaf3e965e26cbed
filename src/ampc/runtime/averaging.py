"""The copies of replicated layers, and the mean of their parameters."""

from __future__ import annotations

import numpy as np

from ampc.ir.copies import copy_number, uncopied
from ampc.runtime.binding import LayerMemory
from ampc.runtime.events import Array

AT_ONCE = 1 << 15
"""Parameters of a layer that are averaged at once: they stay in a core's cache."""


def copies_of(layers: dict[str, LayerMemory]) -> list[list[LayerMemory]]:
    """Return the copies of each replicated layer."""
    found: dict[str, list[LayerMemory]] = {}
    for name, m in layers.items():
        if copy_number(name) is not None:
            found.setdefault(uncopied(name), []).append(m)
    return list(found.values())


def average(F: Array, copies: list[LayerMemory]) -> None:
    """Give every copy of a layer the mean of all. F: float32, the engine's memory; sums are float64."""
    for start in range(0, copies[0].size, AT_ONCE):
        parts = [F[m.param + start : m.param + min(m.size, start + AT_ONCE)] for m in copies]
        mean = parts[0].astype(np.float64)
        for part in parts[1:]:
            mean += part
        mean /= len(parts)
        for part in parts:
            part[...] = mean
