"""Predictions to a file: one row per instance, one column per `output` of the program, as Parquet, Arrow or JSON lines.

A single row of one column becomes a number, of several a list; rows over an axis become a list of those. Integer outputs stay integers.
What no message wrote is null.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.ir.nodes import FieldRef, Loss, Metric, Output, Through, Type
from ampc.runtime.events import Array
from ampc.runtime.weights import cannot_write, write_bytes

SUFFIXES = (".parquet", ".arrow", ".jsonl")


def output_types(graph: Graph) -> dict[str, Type]:
    """Return the payload type of each output of the program, in order."""
    return {n.name: graph.type_of(n.inputs[0]) for n in graph.nodes if isinstance(n, Output)}


def targets(graph: Graph) -> set[str]:
    """Return the fields that only losses and metrics read, and that no axis needs for its length."""
    others: set[str] = set()
    for node in graph.nodes:
        if isinstance(node, Loss | Metric):
            for ref in node.fields:
                _collect(ref.at, others)
        else:
            _collect(node, others)
    for region in graph.regions:
        others.update(region.after)
    parents = {a.name: a.parent for a in graph.axes}
    lengths: set[str] = set()  # a field over a nested axis tells the length of those around it too
    for declared in graph.fields:
        axis = declared.axis if declared.name in others else ""
        while axis:
            lengths.add(axis)
            axis = parents[axis]
    return {d.name for d in graph.fields if d.name not in others and (d.axis == "" or d.axis in lengths)}


def _collect(part: object, into: set[str]) -> None:
    """Add every field that `part` of a node reads."""
    if isinstance(part, FieldRef | Through):
        into.add(part.field)
        _collect(part.at, into)
    elif isinstance(part, msgspec.Struct):
        for name in part.__struct_fields__:
            _collect(getattr(part, name), into)
    elif isinstance(part, tuple):
        for member in part:
            _collect(member, into)


def check_path(path: str, *, force: bool = True) -> None:
    """Raise AMP718 for a name that doesn't say how to write, or, without `force`, of a file that is there; "-" is standard output, as JSON lines."""
    if path != "-" and Path(path).suffix not in SUFFIXES:
        ends = ", ".join(f"`{s}`" for s in SUFFIXES)
        raise error("AMP718", f"predictions can't be written to `{path}`", help=f"give a name that ends in {ends}, or `-`")
    if path != "-" and not force and Path(path).exists():
        raise error("AMP718", f"`{path}` is there already", help="`--force` overwrites it, `-o` gives another name")
    if path != "-" and not Path(path).parent.is_dir():  # before anything is computed
        raise cannot_write(Path(path), OSError(errno.ENOENT, os.strerror(errno.ENOENT)))


def with_integers(graph: Graph, outputs: dict[str, list[Array]]) -> dict[str, list[Array]]:
    """Return the outputs with int64 arrays where the program computes integers (`argmax`, an int field): an engine's messages are all float32."""
    integer = {name for name, kind in output_types(graph).items() if kind.integer}
    return {name: [_rounded(a) for a in arrays] if name in integer else arrays for name, arrays in outputs.items()}


def _rounded(a: Array) -> Array:
    return np.rint(a).astype(np.int64)


def columns(graph: Graph, outputs: dict[str, list[Array]]) -> dict[str, list[Any]]:
    """Return for each output one Python value per instance: a number, a list, or a list of lists."""
    return {name: [_value(a, kind, name in _looped(graph)) for a in outputs[name]] for name, kind in output_types(graph).items() if name in outputs}


def _looped(graph: Graph) -> set[str]:
    """Return the outputs that are recorded once for each element or turn, not once for the instance."""
    return {n.name for n in graph.nodes if isinstance(n, Output) and n.region != 0}


def _value(a: Array, kind: Type, many: bool) -> Any:
    table = np.asarray(a).reshape(-1, kind.cols)
    if kind.integer:
        table = _rounded(table)
    rows = table[:, 0] if kind.cols == 1 else table
    if kind.rows == "" and not many:
        return rows[0].tolist() if len(rows) else None  # None: in a branch that the instance didn't take
    return rows.tolist()


def write(path: str, graph: Graph, outputs: dict[str, list[Array]]) -> None:
    """Write one row per instance to `path`, whole or not at all. Raises AMP718 for an unknown form, AMP730 (exit 4) if it can't be written."""
    check_path(path)
    values = columns(graph, outputs)
    if path == "-":
        import sys

        sys.stdout.buffer.write(_lines(values))
        sys.stdout.flush()
    elif Path(path).suffix == ".jsonl":
        write_bytes(Path(path), _lines(values))
    else:
        write_bytes(Path(path), _table(values, output_types(graph), _looped(graph), parquet=Path(path).suffix == ".parquet"))


def _lines(values: dict[str, list[Any]]) -> bytes:
    import msgspec

    rows = zip(*values.values(), strict=True)
    return b"".join(msgspec.json.encode(dict(zip(values, row, strict=True))) + b"\n" for row in rows)


def _table(values: dict[str, list[Any]], types: dict[str, Type], looped: set[str], *, parquet: bool) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {}
    for name, column in values.items():
        kind = types[name]
        element = pa.int64() if kind.integer else pa.float32()
        if kind.cols > 1:
            element = pa.list_(element)
        if kind.rows != "" or name in looped:
            element = pa.list_(element)
        arrays[name] = pa.array([_listed(v) if pa.types.is_list(element) and v is not None else v for v in column], element)
    table = pa.table(arrays)
    sink = io.BytesIO()
    if parquet:
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
