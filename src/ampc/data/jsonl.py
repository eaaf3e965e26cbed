"""JSON lines, and lists of dicts from Python, to columns: every row decoded against the declared fields, never against what the first rows look like.

Rows that fit take a fast path (msgspec). One that doesn't is looked at again, slowly, to say what is wrong with it and where.
"""

from __future__ import annotations

import itertools
import json
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from ampc.data.dataset import Ints, Part
from ampc.data.problems import LIMIT, Problems
from ampc.data.ragged import Column, Mask, joined
from ampc.data.rows import check_row
from ampc.data.schema import Schema, Spec
from ampc.diagnostics import AmpError, error

MAX_LINE_BYTES = 64 << 20
MAX_DEPTH = 64
CHUNK_ROWS = 20_000
CHUNK_BYTES = 32 << 20

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_BOM = b"\xef\xbb\xbf"
_LIST = re.compile(rb"\s*\[\s*(\{|$)")
"""The first line of a list of objects."""


@functools.lru_cache(maxsize=64)  # making a type takes longer than reading a few rows
def row_type(schema: Schema) -> Any:
    """Return a msgspec Struct with one attribute a field (`f0`, `f1`, ...: a field may have any name)."""
    fields: list[tuple[str, Any]] = []
    for i, spec in enumerate(schema.specs):
        kind: Any = {"float": float, "int": _Int64, "index": _Int64, "flag": bool | _Int64}[spec.decl.kind]
        if spec.width:
            kind = list[kind]
        if spec.decl.optional:
            kind = kind | None
        for _ in spec.axes:
            kind = list[kind]
        fields.append((f"f{i}", kind))
    return msgspec.defstruct("Row", fields, rename={f"f{i}": s.name for i, s in enumerate(schema.specs)}, gc=False)


def _is_whole(line: bytes) -> bool:
    """Whether a line is JSON by itself; the first line of a list that is written over several is not."""
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return False
    return True


def _json_list(name: str) -> AmpError:
    remedy = f"write one object a line: `jq -c '.[]' {name} > new.jsonl`"
    return error("AMP806", f"`{name}` holds a JSON list, expected JSON lines", help=remedy)


def read_lines(path: Path, name: str, schema: Schema, problems: Problems) -> tuple[dict[str, Column], int]:
    """Return the good rows of a JSON-lines file as columns, and how many; sets `problems.rows` to their numbers, `problems.part` to all lines.

    Raises AmpError if the file holds no row at all; everything else goes to `problems`.
    """
    decode = msgspec.json.Decoder(row_type(schema)).decode
    quotes = 2 * len(schema.specs)
    lines: list[int] = []
    good: list[int] = []
    chunks: list[list[Column]] = []
    rows: list[Any] = []
    size = wrong = 0
    listed = False
    for number, line in _lines(path):
        if not lines and _LIST.match(line):
            listed = True
            if not _is_whole(line):
                raise _json_list(name)
        lines.append(number)
        try:
            _check_depth(line)
            row = decode(line)
            if line.count(b'"') != quotes or b"\\" in line:
                _check_keys(line)
        except (msgspec.MsgspecError, RecursionError, ValueError) as failure:
            _explain(line, failure, len(lines) - 1, schema, problems)
            wrong += 1
            if wrong >= LIMIT:
                problems.stopped = True
                break
            continue
        good.append(len(lines) - 1)
        rows.append(row)
        size += len(line)
        if len(rows) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            chunks.append(_columns(rows, schema))
            rows, size = [], 0
    problems.part = Part(name, 0, np.array(lines, np.int64))
    if listed and len(lines) == 1:
        raise _json_list(name)
    if not lines:
        raise error("AMP805", f"`{name}` holds no instances", help="write one JSON object a line, one line an instance")
    if rows or not chunks:
        chunks.append(_columns(rows, schema))
    problems.rows = np.array(good, np.int64) if wrong else None
    return {s.name: joined([c[i] for c in chunks]) for i, s in enumerate(schema.specs)}, len(good)


def read_objects(objects: Iterable[Any], name: str, schema: Schema, problems: Problems) -> tuple[dict[str, Column], int]:
    """Return rows given as dicts (numbers, lists, tuples, numpy arrays) as columns; as `read_lines`."""
    kind = row_type(schema)
    rows, good, number = [], [], -1
    for number, item in enumerate(objects):
        try:
            rows.append(msgspec.convert(item, kind))
        except (msgspec.ValidationError, RecursionError):
            plain = _plain(item)
            try:
                rows.append(msgspec.convert(plain, kind))
            except (msgspec.ValidationError, RecursionError) as failure:
                if not check_row(plain, number, schema, problems):
                    problems.add("AMP809", "", number, str(failure))
                continue
        good.append(number)
    if number < 0:
        raise error("AMP805", f"`{name}` holds no instances", help="give at least one row")
    problems.rows = np.array(good, np.int64) if problems else None
    return {s.name: c for s, c in zip(schema.specs, _columns(rows, schema), strict=True)}, len(good)


def _plain(item: Any) -> Any:
    """Return `item` with numpy arrays and scalars as Python's."""
    if isinstance(item, (np.ndarray, np.generic)):
        return item.tolist()
    if isinstance(item, dict):
        return {k: _plain(v) for k, v in item.items()}
    return [_plain(x) for x in item] if isinstance(item, (list, tuple)) else item


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield line number (from 1) and bytes of every line that isn't blank."""
    with path.open("rb") as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            if len(line) > MAX_LINE_BYTES:
                raise error("AMP818", f"line {number} of `{path}` is longer than {MAX_LINE_BYTES >> 20} MB", help="write big instances as Parquet")
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.isspace() and line:
                yield number, line


def _check_depth(line: bytes) -> None:
    """Raise ValueError if brackets nest deeper than `MAX_DEPTH` (brackets inside strings do not count)."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return
    if b'"' in line:
        line = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line)
    text = np.frombuffer(line, np.uint8)
    steps = ((text == 91) | (text == 123)).astype(np.int32) - ((text == 93) | (text == 125))
    if len(steps) and int(np.cumsum(steps).max()) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} brackets")


class _Twice(ValueError):
    """A key that an object holds twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Twice(key)
        seen.add(key)
    return dict(pairs)


def _check_keys(line: bytes) -> None:
    """Raise `_Twice` if an object has a key twice (msgspec would take the last)."""
    json.loads(line, object_pairs_hook=_pairs)


def _explain(line: bytes, failure: Exception, row: int, schema: Schema, problems: Problems) -> None:
    """Add to `problems` what is wrong with `line`."""
    if isinstance(failure, _Twice):
        problems.add("AMP808", str(failure), row, f"the key `{failure}` is given twice", help="keep one of the two")
        return
    if not isinstance(failure, msgspec.ValidationError):
        problems.add("AMP806", "", row, *_malformed(line, failure))
        return
    try:
        _check_keys(line)
        item = msgspec.json.decode(line)
    except _Twice as twice:
        problems.add("AMP808", str(twice), row, f"the key `{twice}` is given twice", help="keep one of the two")
    except (msgspec.MsgspecError, RecursionError, ValueError) as worse:
        problems.add("AMP806", "", row, *_malformed(line, worse))
    else:
        if not check_row(item, row, schema, problems):
            problems.add("AMP809", "", row, str(failure))


def _malformed(line: bytes, failure: Exception) -> tuple[str, str | None]:
    """Return message and help for a line that isn't JSON."""
    if literal := re.search(rb"(?<![\w\"])-?(NaN|Infinity)\b", line):
        word = literal.group().decode()
        return f"`{word}` isn't JSON", "write null where the field is declared `or none`; to keep NaN and infinity, write Parquet"
    text = str(failure)
    if "codec" in text or line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in line[:64]:
        return "this isn't UTF-8 text", "save the file as UTF-8, one JSON object a line"
    if line.strip() in (b"[", b"{"):
        return (
            f"the line opens a bracket `{line.strip().decode()}` that it doesn't close",
            "write each instance as one JSON object on a line of its own, no list around them",
        )
    if "truncated" in text:
        return "the line ends in the middle of a value", "the file may have been cut short: write it again"
    byte = re.search(r"byte (\d+)", text)
    if byte:
        reason = re.sub(r"^JSON is malformed: ", "", text[: text.rfind("(")].strip())
        return f"this isn't JSON: {reason} at byte {int(byte.group(1)) + 1} of the line", "write one JSON object a line"
    if isinstance(failure, RecursionError):
        text = f"nested deeper than {MAX_DEPTH} brackets"
    return f"this can't be read: {text.lower()}", "write one JSON object a line"


def _columns(rows: list[Any], schema: Schema) -> list[Column]:
    """Return decoded rows as columns, in the order of the fields."""
    return [_column([getattr(r, f"f{i}") for r in rows], spec) for i, spec in enumerate(schema.specs)]


def _column(items: list[Any], spec: Spec) -> Column:
    n, levels = len(items), []
    nulls: list[Mask | None] = []
    for _ in spec.axes:
        nulls.append(None)
        offsets, items = _flatten(items)
        levels.append(offsets)
    mask = _nulls(items)
    nulls.append(mask)
    if spec.width:
        if mask is not None:
            items = [[] if x is None else x for x in items]
        offsets, items = _flatten(items)
        levels.append(offsets)
        nulls.append(None)
    elif mask is not None:
        items = [0 if x is None else x for x in items]
    values = np.array(items, dtype=np.float64 if spec.decl.kind == "float" else np.int64)
    return Column(n, tuple(levels), tuple(nulls), values)


def _nulls(items: list[Any]) -> Mask | None:
    if None not in items:
        return None
    return np.fromiter((x is None for x in items), np.bool_, len(items))


def _flatten(items: list[Any]) -> tuple[Ints, list[Any]]:
    out = np.zeros(len(items) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, items), np.int64, len(items)), out=out[1:])
    return out, list(itertools.chain.from_iterable(items))


__all__ = ["MAX_DEPTH", "MAX_LINE_BYTES", "read_lines", "read_objects"]
