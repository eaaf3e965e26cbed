"""Data files: which there are in a folder (`find`), and reading them against a model's `instance:` block (`read`).

The model decides what a field is, never the file: the format only says where the numbers lie. Nothing in a file can run code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ampc.data import arrow, batches, jsonl, memory
from ampc.data.acyclic import check_acyclic
from ampc.data.check import OnNan, build
from ampc.data.dataset import Dataset, Part, concat
from ampc.data.footer import DamagedFooter, claimed_values
from ampc.data.problems import Problems
from ampc.data.ragged import Column
from ampc.data.rows import missing
from ampc.data.schema import Schema, schema_of
from ampc.diagnostics import AmpError, did_you_mean, error
from ampc.ir.graph import Graph

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
LINES = (".jsonl", ".ndjson", ".json")
SUFFIXES = (*PARQUET, *ARROW, *LINES)
OTHERS = (".csv", ".tsv", ".npz", ".npy", ".txt", ".h5", ".hdf5", ".pkl", ".pt", ".safetensors", ".gz", ".zip", ".xlsx")
"""Kinds of files that users may take for data."""
CUT_SHORT = "write the file again; it may have been cut short"
SPLITS = {"train": ("train", "training"), "valid": ("valid", "validation", "val", "dev"), "test": ("test",)}

Source = str | Path | Sequence[str | Path] | Sequence[dict[str, Any]] | Any
"""A file, files in order, or from Python: a pyarrow Table, RecordBatch or batches, or a list of dicts."""


def read(source: Source, graph: Graph, on_nan: OnNan = "stop", name: str = "data", limit_bytes: int | None = None) -> Dataset:
    """Return the instances of `source`, checked against the axes and fields of `graph`.

    on_nan: what a NaN or infinity in a declared float field does: "stop" is an error, "skip" leaves the instance out (see `Dataset.kept`),
    "ignore" keeps it. `name` stands for data that comes from no file. Fields that the model doesn't declare are ignored.
    Raises AmpError (8xx) with up to 20 mistakes of the first file that has any; exit code 4 if it can't fit into `limit_bytes`
    (default: what is free).
    """
    schema = schema_of(graph)
    if isinstance(source, (str, Path)):
        parts = [_read_file(Path(source), schema, on_nan, limit_bytes)]
    elif isinstance(source, (list, tuple)) and source and all(isinstance(s, (str, Path)) for s in source):
        parts = [_read_file(Path(s), schema, on_nan, limit_bytes) for s in source]
    else:
        parts = [_read_python(source, schema, on_nan, name)]
    data = concat(parts)
    if data.n == 0:
        raise error("AMP805", f"`{data.source}` holds no instances" + (f": all {data.skipped} hold NaN or infinity" if data.skipped else ""))
    for region in graph.regions:
        if region.form == "visit" and region.after:
            check_acyclic(data, region.axis, region.after)
    return data


def find(where: str | Path, need: Sequence[str] = ("train",)) -> dict[str, tuple[Path, ...]]:
    """Return the files of each split in a data folder: train.*, valid.*, test.* (or shards train-*.parquet, in order of their names).

    A single file is taken where `need` names one split. Raises AmpError if a split of `need` is missing or could be either of two.
    """
    path = Path(where)
    if path.is_file():
        if len(need) != 1:
            raise error(
                "AMP802",
                f"`{path}` is a single file, expected a folder with {_and(f'`{s}.*`' for s in need)}",
                help="put the files into one folder and name that",
            )
        return {need[0]: (path,)}
    if not path.is_dir():
        raise error(
            "AMP801",
            f"there is no data folder or file `{path}`",
            help=_elsewhere(path),
        )
    names = sorted(p for p in _listed(path) if p.suffix.lower() in SUFFIXES and p.is_file() and not p.name.startswith("."))
    found = {split: files for split, words in SPLITS.items() if (files := _split(path, names, words))}
    for split in need:
        if split not in found:
            there = ", ".join(f"`{p.name}`" for p in names[:8]) or "no data file"
            other = next((p for p in sorted(_listed(path)) if p.suffix.lower() in OTHERS), None)
            if not names and other is not None:
                raise error(
                    "AMP802",
                    f"`{path}` has no {split} data: `{other.name}` is of a kind that isn't read",
                    help=f"write its rows as Parquet or JSON lines, a column or key for each field of the model: `{split}.parquet`, `{split}.jsonl`",
                )
            raise error(
                "AMP802",
                f"`{path}` has no {split} data: found {there}",
                help=f"name the file {_or(f'`{split}{s}`' for s in ('.parquet', '.arrow', '.jsonl'))}, or `{split}-*.parquet` for shards",
            )
    return found


def _elsewhere(path: Path) -> str:
    """Return what to do where `path` isn't there: the nearest name beside it, else what it could have been."""
    beside = [str(p) for p in _listed(path.parent) if p.is_dir() or p.suffix.lower() in SUFFIXES] if path.parent.is_dir() else []
    if near := did_you_mean(str(path), beside):
        return near
    if path.suffix.lower() in SUFFIXES:
        return "give the path of a data file, from the current folder on"
    return "`ampc data` makes the bundled data sets, for instance `ampc data list_reduction -o DIR`"


def split_to_predict(where: str | Path, split: str | None = None) -> str:
    """Return which part of a folder a prediction reads: `split` if given, else `test` where there is one, else `valid`."""
    if split is not None or not Path(where).is_dir():
        return split or "test"
    found = find(where, ())
    chosen = next((s for s in ("test", "valid") if s in found), None)
    if chosen is None:
        there = ", ".join(f"`{p.name}`" for files in found.values() for p in files[:4]) or "no data file"
        raise error("AMP802", f"`{where}` has neither test nor valid data: found {there}", help="name the file itself, or another split")
    return chosen


def no_validation(where: str | Path | None) -> str:
    """Return what was looked for where there is no validation data, in words: in a folder also files whose names are near."""
    if where is None or not Path(where).is_dir():
        return "no validation data (`--valid FILE`, in Python `validation=`)"
    words, every = SPLITS["valid"], [word for words in SPLITS.values() for word in words]
    text, near = ", ".join(f"`{w}.*`" for w in words), ""
    for p in sorted(p for p in _listed(Path(where)) if p.suffix.lower() in SUFFIXES):
        word = p.name[: -len(p.suffix)].partition("-")[0]
        if word not in every and did_you_mean(word, words):
            near = f"; `{p.name}` would have to be called `{words[0]}{p.suffix}`"
            break
    return f"no validation data in `{where}` (looked for {text}{near})"


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError as failure:
        raise error("AMP801", f"`{path}` can't be read: {(failure.strerror or str(failure)).lower()}", exit_code=4) from None


def _split(folder: Path, names: list[Path], words: tuple[str, ...]) -> tuple[Path, ...]:
    groups: dict[tuple[str, str], list[Path]] = {}
    for p in names:
        stem = p.name[: -len(p.suffix)]
        word, dash, _ = stem.partition("-")
        if word in words:
            groups.setdefault((word + dash, p.suffix.lower()), []).append(p)
    if len(groups) > 1:
        shown = _and(f"`{files[0].name}`" for files in groups.values())
        raise error(
            "AMP803", f"`{folder}` has the {words[0]} data more than once: {shown}", help="keep one of them in the folder, or name the file itself"
        )
    return tuple(*groups.values()) if groups else ()


def _and(words: Iterable[str]) -> str:
    return " and ".join(words)


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


# ------------------------------------------------------------------------------------------------- one source


def _read_file(path: Path, schema: Schema, on_nan: OnNan, limit_bytes: int | None) -> Dataset:
    name = str(path)
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise error("AMP801", f"`{name}` is a folder, expected a data file")
        if not path.is_file():
            raise error("AMP801", f"`{name}` is not a regular file")
        if size == 0:
            raise error("AMP805", f"`{name}` is empty: it holds no instances")
        problems = Problems(Part(name))
        match _form(path):
            case "parquet":
                raw, n = _from_table(*_parquet(path, schema, limit_bytes), schema, problems)
            case "arrow":
                memory.require(2 * size, name, limit_bytes)
                raw, n = _from_table(*_ipc(path, schema, limit_bytes), schema, problems)
            case _:
                memory.require(4 * size, name, limit_bytes)  # a digit and a comma become eight bytes
                raw, n = jsonl.read_lines(path, name, schema, problems)
    except FileNotFoundError:
        raise error("AMP801", f"there is no data file `{name}`") from None
    except PermissionError:
        raise error("AMP801", f"`{name}` can't be read: permission denied", exit_code=4) from None
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as failure:
        raise error("AMP804", f"`{name}` is damaged: {_first_line(failure)}", help=CUT_SHORT) from None
    except MemoryError:
        raise error("AMP818", f"`{name}` doesn't fit into memory", exit_code=4) from None
    except OSError as failure:
        raise error("AMP804", f"`{name}` can't be read: {_first_line(failure)}") from None
    return _built(schema, raw, n, problems, on_nan)


def _read_python(source: Any, schema: Schema, on_nan: OnNan, name: str) -> Dataset:
    problems = Problems(Part(name))
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    elif isinstance(source, (list, tuple)) and source and all(isinstance(b, pa.RecordBatch) for b in source):
        source = pa.Table.from_batches(source)
    if isinstance(source, pa.Table):
        try:
            source.validate(full=True)
            raw, n = _from_table(source, source.column_names, schema, problems)
        except pa.ArrowException as failure:
            raise error("AMP804", f"`{name}` is damaged: {_first_line(failure)}") from None
    elif isinstance(source, Iterable) and not isinstance(source, (str, bytes, dict)):
        raw, n = jsonl.read_objects(source, name, schema, problems)
    else:
        raise error("AMP809", f"`{name}` is a {type(source).__name__}, expected a path, paths, a pyarrow table or a list of dicts")
    return _built(schema, raw, n, problems, on_nan)


def _built(schema: Schema, raw: dict[str, Column], n: int, problems: Problems, on_nan: OnNan) -> Dataset:
    data = build(schema, raw, n, problems, on_nan)
    problems.raise_if_any()
    assert data is not None
    return data


def _form(path: Path) -> str:
    """Return "parquet", "arrow" or "lines", by the name's end; by the first bytes for another end."""
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        head = file.read(8)
    begins = "parquet" if head[:4] == b"PAR1" else "arrow" if head[:6] == b"ARROW1" else "arrow" if head[:4] == b"\xff\xff\xff\xff" else "lines"
    wanted = "parquet" if suffix in PARQUET else "arrow" if suffix in ARROW else "lines" if suffix in LINES else ""
    if not wanted:
        if begins == "lines" and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
            raise error("AMP804", f"`{path}` is neither Parquet, Arrow nor JSON lines", help=f"data files end in {_or(SUFFIXES)}")
        return begins
    if wanted != begins:
        kinds = {"parquet": "a Parquet file", "arrow": "an Arrow file", "lines": "a text file of JSON lines"}
        is_other = f": it is {kinds[begins]}" if begins != "lines" else f": it begins with {_shown(head)}"
        raise error(
            "AMP804",
            f"`{path}` is not {kinds[wanted]}{is_other}",
            help="the end of the name says what a data file holds; write the file again if it is damaged",
        )
    return wanted


def _shown(head: bytes) -> str:
    return f"`{head.decode()}`" if head.isascii() and head.decode().isprintable() else f"the bytes {head.hex(' ')}"


def _first_line(failure: Exception) -> str:
    text = str(failure).strip().splitlines()
    if not text:
        return type(failure).__name__
    return text[0][:200].lower()


# -------------------------------------------------------------------------------------------------- arrow files


def _parquet(path: Path, schema: Schema, limit_bytes: int | None) -> tuple[Any, list[str]]:
    """Return the declared columns that are there, as a table, and the names of all; sizes are those of the footer, looked at first."""
    try:
        memory.require(20 * claimed_values(path, schema.names), str(path), limit_bytes)  # as read, as converted, and an offset each
    except DamagedFooter as failure:
        raise error("AMP804", f"`{path}` is damaged: {failure}", help=CUT_SHORT) from None
    with pq.ParquetFile(path, memory_map=True) as file:
        names = file.schema_arrow.names
        table = file.read(columns=[n for n in dict.fromkeys(schema.names) if n in names], use_threads=True)
    return table, names


def _ipc(path: Path, schema: Schema, limit_bytes: int | None) -> tuple[Any, list[str]]:
    """Return the declared columns that are there, as a table, and the names of all; the sizes that packed batches claim are looked at first."""
    with pa.memory_map(os.fspath(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(8 if is_file else 0)  # a file is a stream between two marks
        try:
            memory.require(20 * batches.claimed_values(pa.ipc.MessageReader.open_stream(source), schema.names), str(path), limit_bytes)
        except batches.DamagedHead as failure:
            raise error("AMP804", f"`{path}` is damaged: {failure}", help=CUT_SHORT) from None
        source.seek(0)
        names = (pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[i for i, n in enumerate(names) if n in schema.names])
        source.seek(0)
        table = (pa.ipc.open_file(source, options=options) if is_file else pa.ipc.open_stream(source, options=options)).read_all()
        table.validate(full=True)  # offsets in order and in range: a file can say anything
        return table, names


def _from_table(table: Any, names: list[str], schema: Schema, problems: Problems) -> tuple[dict[str, Column], int]:
    """Return the declared columns of `table` and its rows; `names` are those of all columns that the data has."""
    if table.num_rows == 0:
        raise error("AMP805", f"`{problems.part.name}` holds no instances" + (": it has columns but no row" if names else ""))
    for name in schema.names:
        if names.count(name) > 1:
            raise error("AMP808", f"`{problems.part.name}`: the column `{name}` is there twice", help="keep one of the two")
    missing(schema.names, names, -1, problems)
    raw = {}
    for spec in schema.specs:
        if spec.name not in names:
            continue
        try:
            raw[spec.name] = arrow.column(table.column(spec.name))
        except arrow.NotNumbers as wrong:
            value = f", the first is {wrong.value}" if wrong.value else ""
            wanted = "numbers" if spec.decl.kind == "float" else "integers"
            problems.add(
                "AMP809",
                spec.name,
                wrong.row,
                f"`{spec.name}` holds {wrong.found}{value}, expected {wanted}",
                f"the declaration is `{spec.declaration}`",
            )
    return raw, table.num_rows


__all__ = ["ARROW", "LINES", "PARQUET", "SPLITS", "AmpError", "find", "no_validation", "read", "split_to_predict"]
