"""Where the weights of a predictor lie a second time, for products of a few rows (`panels`).

A panel is 48 columns of a matrix, the last one of it 16, 32 or 48, padded with zeros; its rows lie one behind the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ampc.codegen.layout import W

LANES, TILE = 16, 48
LEAST_COLUMNS = 32
"""Fewer columns are not worth a second place."""
HEADER, RECORD = 2, len(W)
"""Words of a table before its first record, and of one."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """A matrix of weights [rows, cols] at F[begin], with its panels at F[place]."""

    begin: int
    rows: int
    cols: int
    place: int

    @property
    def end(self) -> int:
        return self.begin + self.rows * self.cols


def room(rows: int, cols: int) -> int:
    """Return how many floats the panels of a matrix take."""
    return rows * ((cols + LANES - 1) // LANES * LANES)


def words(shapes: Iterable[tuple[int, ...]]) -> int:
    """Return how many words `write` takes for matrices of these shapes at most."""
    rows = [shape[0] for shape in shapes]
    return HEADER + RECORD * len(rows) + max(rows, default=0)


def write(F: npt.NDArray[np.float32], I: npt.NDArray[np.int64], table: int, packed: list[Packed]) -> None:
    """Put matrices into their panels, and from I[table] on what finds these: records, and room for the list of a row's places behind them."""
    I[table], I[table + 1] = len(packed), table + HEADER + RECORD * len(packed)
    for k, p in enumerate(packed):
        weights = F[p.begin : p.end].reshape(p.rows, p.cols)
        place = p.place
        for first in range(0, p.cols, TILE):
            part = weights[:, first : first + TILE]
            width = room(1, part.shape[1])
            panel = F[place : place + p.rows * width].reshape(p.rows, width)
            panel[:, : part.shape[1]], panel[:, part.shape[1] :] = part, 0
            place += p.rows * width
        record = table + HEADER + RECORD * k
        values = {W.BEGIN: p.begin, W.END: p.end, W.COLS: p.cols, W.PLACE: p.place, W.ROWS: p.rows, W.FINITE: int(np.isfinite(weights).all())}
        for word, value in values.items():
            I[record + word] = value


__all__ = ["LEAST_COLUMNS", "Packed", "room", "words", "write"]
