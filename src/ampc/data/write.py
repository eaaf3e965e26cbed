"""Writes tables and predictions, whole or not at all: to a temporary file beside the target, then renamed.

The form follows the end of the name: .parquet, .arrow or .jsonl. Whatever goes wrong, the old file stays and nothing half-written is left.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ampc.data.dataset import Dataset
from ampc.diagnostics import error, write_remedy

WRITABLE = (".parquet", ".arrow", ".jsonl")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in `path`'s folder; on leaving it is synced and takes `path`'s place, on an exception it is removed.

    Raises AmpError (AMP824, exit code 4) for what the system refuses: a full disk, a missing folder, no permission.
    """
    temporary: Path | None = None
    try:
        handle, text = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(text)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        temporary = None
    except OSError as failure:
        raise cannot_write(path, failure) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def cannot_write(path: Path, failure: OSError) -> Exception:
    """Return the AmpError for a write that the system refused."""
    reason = (failure.strerror or str(failure)).lower()
    return error("AMP824", f"`{path}` can't be written: {reason}", help=write_remedy(path, failure), exit_code=4)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_table(path: str | Path, table: Any) -> None:
    """Write a pyarrow table to `path`, in the form that its name's end says. Raises AmpError (AMP824, AMP825)."""
    path = Path(path)
    writers: dict[str, Callable[[Path], None]] = {
        ".parquet": lambda p: pq.write_table(table, p, compression="zstd"),
        ".arrow": lambda p: _write_ipc(p, table),
        ".jsonl": lambda p: _write_lines(p, table),
    }
    write = writers.get(path.suffix.lower())
    if write is None:
        raise error("AMP825", f"`{path}` doesn't say in which form to write", help=f"end the name in {' or '.join(WRITABLE)}")
    with replacing(path) as temporary:
        write(temporary)


def _write_ipc(path: Path, table: Any) -> None:
    with pa.OSFile(os.fspath(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_lines(path: Path, table: Any) -> None:
    encoder = msgspec.json.Encoder()
    with path.open("wb") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            file.write(encoder.encode_lines(batch.to_pylist()))


def write_predictions(path: str | Path, columns: Mapping[str, Any]) -> None:
    """Write predictions, one row an instance, atomically to .parquet, .arrow or .jsonl.

    Each column is one of: an array [n] (a number each) or [n, c] (c numbers each); a list of numbers, None or arrays (one an instance: [rows] or
    [rows, c]); or a pair (offsets int64 [n + 1], values [total] or [total, c]), the rows of all instances laid end to end. JSON has no NaN: it is
    written as null there. Raises AmpError (AMP825) if a column has another form or length.
    """
    arrays = {name: _array(name, value) for name, value in columns.items()}
    lengths = {name: len(a) for name, a in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise error("AMP825", "the columns have different numbers of instances: " + ", ".join(f"`{n}` {k}" for n, k in lengths.items()))
    write_table(path, pa.table(arrays))


def _array(name: str, value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 2:
        offsets, values = np.asarray(value[0]), np.asarray(value[1])
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            raise error("AMP825", f"the offsets of `{name}` don't fit its {len(values)} values")
        return ragged(offsets, flat(name, values))
    if isinstance(value, np.ndarray):
        return flat(name, value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise error("AMP825", f"`{name}` is a {type(value).__name__}, expected an array, a list or a pair of offsets and values")
    if value and all(isinstance(x, np.ndarray) and x.ndim > 0 for x in value):
        offsets = np.cumsum([0] + [len(x) for x in value])
        return ragged(offsets, flat(name, np.concatenate(value)))
    try:
        return pa.array([x.tolist() if isinstance(x, (np.ndarray, np.generic)) else x for x in value])
    except (pa.ArrowException, TypeError, ValueError) as failure:
        raise error("AMP825", f"`{name}` can't be written: {str(failure).splitlines()[0].lower()}") from None


def flat(name: str, values: npt.NDArray[Any]) -> Any:
    """Return an array [n] or [n, c] as an Arrow array of numbers or of lists of c numbers."""
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2):
        raise error("AMP825", f"`{name}` is an array of {values.dtype} with {values.ndim} dimensions, expected numbers in 1 or 2")
    if values.ndim == 1:
        return pa.array(values)
    width = values.shape[1]
    if width == 0:
        return pa.array([[]] * len(values), type=pa.list_(pa.from_numpy_dtype(values.dtype)))
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), width)


def ragged(offsets: npt.NDArray[Any], values: Any) -> Any:
    """Return a list array of Arrow `values` split at `offsets`."""
    large = int(offsets[-1]) >= 2**31
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets, type=pa.int64() if large else pa.int32()), values)


def to_table(dataset: Dataset) -> Any:
    """Return a dataset as a pyarrow table that `read` reads back the same: null for none, lists of lists for nested axes."""
    parents = {a.name: a.parent for a in dataset.axis_decls}
    arrays = {}
    for f in dataset.fields:
        values = dataset.columns[f.name]
        none = (np.isnan(values).all(axis=1) if f.kind == "float" else values < 0) if f.optional else None
        if f.kind == "float" and f.columns == 1:
            values = values[:, 0]
        if values.ndim == 2:
            array = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), f.columns, mask=None if none is None else pa.array(none))
        else:
            array = pa.array(values.astype(bool) if f.kind == "flag" and none is None else values, mask=none)
        axis = f.axis
        while axis:
            array = ragged(dataset.inner[axis] if parents[axis] else dataset.axes[axis], array)
            axis = parents[axis]
        arrays[f.name] = array
    return pa.table(arrays)


def write_dataset(path: str | Path, dataset: Dataset) -> None:
    """Write a dataset to `path` (.parquet, .arrow or .jsonl), atomically."""
    write_table(path, to_table(dataset))


__all__ = ["WRITABLE", "flat", "ragged", "replacing", "to_table", "write_dataset", "write_predictions", "write_table"]
