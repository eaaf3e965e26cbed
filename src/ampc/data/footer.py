"""How many values the columns of a Parquet file claim to hold, from its footer (Thrift, compact protocol), read without allocating for them.

pyarrow gives these numbers too, but ends the process on some damaged footers when asked for them; everything else is left to pyarrow.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
MAX_FOOTER_BYTES = 256 << 20
MAX_DEPTH = 16

_TRUE, _FALSE = 1, 2  # the types of Thrift: these, then byte, i16, i32, i64, double, binary, list, set, map, struct
# what is wanted, by field number: FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data, ColumnMetaData.path_in_schema and num_values
_ROW_GROUPS, _COLUMNS, _META, _PATH, _NUM_VALUES = 4, 1, 3, 3, 5


class DamagedFooter(Exception):
    """The footer can't be read; the text says why."""


def claimed_values(path: Path, wanted: Container[str]) -> int:
    """Return how many numbers (nulls and empty lists included) all row groups hold in the top-level columns `wanted`. Raises `DamagedFooter`."""
    data = _footer(path)
    try:
        meta = _Reader(data).struct(0)
        chunks = [chunk[_META] for group in meta[_ROW_GROUPS] for chunk in group[_COLUMNS]]
        counts = [chunk[_NUM_VALUES] for chunk in chunks if chunk[_PATH][0].decode("utf-8") in wanted]
    except (LookupError, TypeError, AttributeError, ValueError):
        raise DamagedFooter("its footer can't be read") from None
    if any(not isinstance(n, int) or n < 0 for n in counts):
        raise DamagedFooter("its footer has a negative count")
    return sum(counts)


def _footer(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 8))
        end = file.read(8)
        if len(end) < 8 or end[4:] != MAGIC:
            raise DamagedFooter("its end isn't that of a Parquet file")
        length = int.from_bytes(end[:4], "little")
        if length > min(size - 12, MAX_FOOTER_BYTES):
            raise DamagedFooter("its footer claims to be larger than the file")
        file.seek(size - 8 - length)
        return file.read(length)


class _Reader:
    """Decodes Thrift's compact form to dicts by field number. Raises LookupError or ValueError on anything out of bounds."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            if b < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("an integer is too long")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        size = self.varint()
        if size > len(self.data) - self.at:
            raise ValueError("a text is longer than the footer")
        self.at += size
        return self.data[self.at - size : self.at]

    def struct(self, depth: int) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        out: dict[int, Any] = {}
        field = 0
        while head := self.byte():
            field = field + (head >> 4) if head >> 4 else self.zigzag()
            kind = head & 15
            out[field] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.value(kind, depth)
        return out

    def value(self, kind: int, depth: int) -> Any:
        match kind:
            case 1 | 2 | 3:  # in a list a truth value is a byte too
                return self.byte()
            case 4 | 5 | 6:
                return self.zigzag()
            case 7:
                self.at += 8
                return None
            case 8:
                return self.binary()
            case 9 | 10:
                head = self.byte()
                size = self.varint() if head >> 4 == 15 else head >> 4
                self._bounded(size)
                return [self.value(head & 15, depth + 1) for _ in range(size)]
            case 11:
                return self._map(depth)
            case 12:
                return self.struct(depth + 1)
            case _:
                raise ValueError("an unknown type")

    def _map(self, depth: int) -> None:
        size = self.varint()
        self._bounded(size)
        kinds = self.byte() if size else 0
        for _ in range(size):
            self.value(kinds >> 4, depth + 1)
            self.value(kinds & 15, depth + 1)

    def _bounded(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ValueError("a list is longer than the footer")


__all__ = ["DamagedFooter", "claimed_values"]
