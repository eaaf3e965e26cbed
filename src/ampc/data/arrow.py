"""Arrow arrays (Parquet, IPC, tables from Python) to columns, by buffers: no Python object per row or value.

Knows the layouts (lists large, fixed and sliced, dictionaries, extension types) and nothing of what a model wants.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ampc.data.dataset import Ints
from ampc.data.ragged import Column, Mask, joined


class NotNumbers(Exception):
    """A column whose innermost type isn't numeric. `found` says what it holds, `row` and `value` the first such value (shortened)."""

    def __init__(self, found: str, row: int, value: str) -> None:
        super().__init__(found)
        self.found, self.row, self.value = found, row, value


def column(data: Any) -> Column:
    """Return a `pyarrow.ChunkedArray` or `Array` as a `Column`, whatever its depth. Raises `NotNumbers`."""
    chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
    _check_numeric(data, chunks)
    whole = [c for c in chunks if len(c)]
    if whole:
        return joined([_chunk(c) for c in whole])
    return _chunk(pa.array([], type=data.type))


def _check_numeric(data: Any, chunks: list[Any]) -> None:
    leaf = leaf_type(data.type)
    if _is_numeric(leaf):
        return
    names = (
        (pa.types.is_string, "strings"),
        (pa.types.is_large_string, "strings"),
        (pa.types.is_string_view, "strings"),
        (pa.types.is_binary, "bytes"),
        (pa.types.is_struct, "records"),
        (pa.types.is_map, "maps"),
        (pa.types.is_temporal, "dates or times"),
    )
    found = next((name for test, name in names if test(leaf)), f"values of type {leaf}")
    row, value = 0, ""
    for chunk in chunks:
        for item in chunk:
            value = _first_leaf(item.as_py())
            if value:
                raise NotNumbers(found, row, value)
            row += 1
    raise NotNumbers(found, 0, "")


def _first_leaf(item: Any) -> str:
    while isinstance(item, list) and item:
        item = next((x for x in item if x not in (None, [])), None)
    return "" if item is None or item == [] else repr(item)[:40]


def leaf_type(kind: Any) -> Any:
    """Return the type inside all lists, dictionaries and extensions."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif _is_list(kind) or pa.types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def _is_list(kind: Any) -> bool:
    t = pa.types
    return bool(t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind) or t.is_large_list_view(kind))


def _is_numeric(kind: Any) -> bool:
    t = pa.types
    return bool(t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_null(kind) or t.is_decimal(kind))


def _chunk(array: Any) -> Column:
    n, levels, nulls = len(array), [], []
    while True:
        array = _plain(array)
        mask = _mask(array)
        nulls.append(mask)
        if not _is_list(array.type):
            break
        offsets, array = _open(array, mask)
        levels.append(offsets)
    return Column(n, tuple(levels), tuple(nulls), _numbers(array))


def _plain(array: Any) -> Any:
    """Return `array` without extension or dictionary wrapping."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array


def _mask(array: Any) -> Mask | None:
    if not array.null_count:
        return None
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _open(array: Any, mask: Mask | None) -> tuple[Ints, Any]:
    """Return a list array's offsets (from 0) and its elements; a null list has none, whatever lies in its buffer."""
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        if mask is None:
            return np.arange(len(array) + 1, dtype=np.int64) * width, array.values.slice(array.offset * width, len(array) * width)
        lengths = np.where(mask, 0, width)
    elif pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        sizes = array.sizes.to_numpy()  # casting a view to a list loses its last entries in pyarrow 26
        lengths = sizes if mask is None else np.where(mask, 0, sizes)
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        if mask is None:
            return offsets - offsets[0], array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        lengths = np.where(mask, 0, np.diff(offsets))
    out = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out, array.flatten()


def _numbers(array: Any) -> npt.NDArray[Any]:
    """Return a primitive array's values; those at nulls are arbitrary."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else pa.scalar(0, array.type))
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


__all__ = ["NotNumbers", "column", "leaf_type"]
