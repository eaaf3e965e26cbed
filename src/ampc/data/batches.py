"""How many values the columns of an Arrow file claim to hold, from its messages' heads (FlatBuffers), before pyarrow unpacks any.

Only packed (compressed) files need it: in others nothing can be larger than the file.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import pyarrow as pa

_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # Message.header's type
_NODE_BYTES = 16  # length and null count, int64 each


class DamagedHead(Exception):
    """A message's head can't be read."""


def claimed_values(messages: Any, wanted: Container[str]) -> int:
    """Return how many values all batches hold in the columns `wanted`, dictionaries included; 0 if nothing is packed.

    messages: a `pyarrow.ipc.MessageReader`, whose first message is the schema. Raises `DamagedHead`, and what pyarrow raises.
    """
    total = 0
    keep: list[bool] = []
    try:
        for message in messages:
            if message.type == "schema":
                schema = pa.ipc.read_schema(message)
                keep = [f.name in wanted for f in schema for _ in range(_nodes(f.type))]
            else:
                total += _batch(message.metadata.to_pybytes(), keep)
    except (IndexError, ValueError):
        raise DamagedHead("a message in it can't be read") from None
    return total


def _nodes(kind: Any) -> int:
    """How many nodes a column of this type has in a batch: one for each array inside it."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return 1
    return 1 + sum(_nodes(kind.field(i).type) for i in range(kind.num_fields))


def _batch(data: bytes, keep: list[bool]) -> int:
    message = _Table(data, _u32(data, 0))
    kind = message.u8(1)
    batch = message.table(2)
    if batch is not None and kind == _DICTIONARY_BATCH:
        batch = batch.table(1)
    if batch is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH) or batch.table(3) is None:
        return 0
    lengths = batch.lengths(1)
    if kind == _RECORD_BATCH:
        if len(lengths) != len(keep):
            raise ValueError("nodes and columns differ")
        lengths = [n for n, kept in zip(lengths, keep, strict=True) if kept]
    if any(n < 0 for n in lengths):
        raise ValueError("a negative length")
    return sum(lengths)


def _u32(data: bytes, at: int) -> int:
    if not 0 <= at <= len(data) - 4:
        raise IndexError(at)
    return int.from_bytes(data[at : at + 4], "little")


class _Table:
    """A FlatBuffers table at `at`: fields are found by number through its vtable, and may be absent."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.vtable = at - int.from_bytes(_u32(data, at).to_bytes(4, "little"), "little", signed=True)
        self.size = self._u16(self.vtable)

    def _u16(self, at: int) -> int:
        if not 0 <= at <= len(self.data) - 2:
            raise IndexError(at)
        return int.from_bytes(self.data[at : at + 2], "little")

    def _field(self, number: int) -> int | None:
        slot = 4 + 2 * number
        offset = self._u16(self.vtable + slot) if slot + 2 <= self.size else 0
        return self.at + offset if offset else None

    def u8(self, number: int) -> int:
        at = self._field(number)
        return 0 if at is None else self.data[at]

    def table(self, number: int) -> _Table | None:
        at = self._field(number)
        return None if at is None else _Table(self.data, at + _u32(self.data, at))

    def lengths(self, number: int) -> list[int]:
        """The first int64 of each 16-byte struct of a vector."""
        at = self._field(number)
        if at is None:
            return []
        begin = at + _u32(self.data, at)
        count = _u32(self.data, begin)
        if begin + 4 + count * _NODE_BYTES > len(self.data):
            raise IndexError(count)
        places = range(begin + 4, begin + 4 + count * _NODE_BYTES, _NODE_BYTES)
        return [int.from_bytes(self.data[p : p + 8], "little", signed=True) for p in places]


__all__ = ["DamagedHead", "claimed_values"]
