"""A column as read, before it is checked: nested offsets over flat numbers, and where the nulls are.

Both readers (Arrow, JSON lines) end here, so that one set of checks serves all formats.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ampc.data.dataset import Ints

Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """levels[d]: int64 offsets that split the entries of depth d into those of depth d + 1 (`levels[0]` has rows + 1 entries).

    nulls[d]: which entries of depth d are null, or None if none is; the last belongs to `values`. `values` is int, float or bool;
    the content at a null is arbitrary. A null list is empty.
    """

    n: int
    levels: tuple[Ints, ...]
    nulls: tuple[Mask | None, ...]
    values: npt.NDArray[Any]

    @property
    def depth(self) -> int:
        return len(self.levels)

    def starts(self, depth: int) -> Ints:
        """Return int64 [n + 1], where each row's entries of `depth` begin."""
        out = np.arange(self.n + 1, dtype=np.int64)
        for level in self.levels[:depth]:
            out = level[out]
        return out

    def path(self, depth: int, index: int) -> tuple[int, str]:
        """Return the row of entry `index` of `depth`, and its place within the row as "[3][0]"."""
        text = ""
        for level in reversed(self.levels[:depth]):
            parent = int(np.searchsorted(level, index, side="right")) - 1
            text = f"[{index - int(level[parent])}]{text}"
            index = parent
        return index, text

    def rows(self, depth: int, indices: Ints) -> Ints:
        """Return the rows of the entries `indices` (ascending) of `depth`."""
        return np.searchsorted(self.starts(depth), indices, side="right") - 1


def joined(columns: list[Column]) -> Column:
    """Return columns of one depth laid end to end."""
    if len(columns) == 1:
        return columns[0]
    levels = []
    for d in range(columns[0].depth):
        ends = np.cumsum([0] + [int(c.levels[d][-1]) for c in columns])
        levels.append(np.concatenate([np.zeros(1, np.int64), *(c.levels[d][1:] + e for c, e in zip(columns, ends, strict=False))]))
    nulls = []
    for d in range(columns[0].depth + 1):
        masks = [c.nulls[d] for c in columns]
        known = any(m is not None for m in masks)
        nulls.append(
            np.concatenate([np.zeros(_count(c, d), bool) if m is None else m for c, m in zip(columns, masks, strict=True)]) if known else None
        )
    values = [c.values for c in columns if len(c.values)] or [columns[0].values]
    return Column(sum(c.n for c in columns), tuple(levels), tuple(nulls), np.concatenate(values))


def _count(column: Column, depth: int) -> int:
    if depth == 0:
        return column.n
    return int(column.levels[depth - 1][-1])


__all__ = ["Column", "Mask", "joined"]
