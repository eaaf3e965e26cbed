"""What is written is read back the same, in every format and from Python; selecting and joining keep instances whole."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_graphs import LR, MOLECULE, F, K, Q, T, instance, random_dataset, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.data import Dataset, read, write_dataset
from ampc.data.write import to_table
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph

DEEP = instance(
    F("a", "flag", "word"),
    F("b", "float", "char", columns=3, optional=True),
    F("c", "int", "stroke", below=9, optional=True),
    F("d", "index", "char", of="word", optional=True),
    F("e", "float", columns=2),
    F("g", "int"),
    F("h", "flag", optional=True),
    F("i", "float", "stroke", optional=True),
    axes="word, char[word], stroke[char]",
)
GRAPHS = {"list_reduction": LR, "molecule": MOLECULE, "dag": K, "sums": Q, "tree": T, "deep": DEEP}


def same(a: Dataset, b: Dataset) -> bool:
    groups = ((a.axes, b.axes), (a.inner, b.inner), (a.columns, b.columns))
    return a.n == b.n and all(
        x.keys() == y.keys() and all(np.array_equal(x[k], y[k], equal_nan=x[k].dtype.kind == "f") and x[k].dtype == y[k].dtype for k in x)
        for x, y in groups
    )


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(GRAPHS)), n=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_all_formats_agree(name: str, n: int, seed: int) -> None:
    graph = GRAPHS[name]
    data = random_dataset(graph, n, seed)
    assert same(read(to_table(data), graph), data)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".parquet", ".arrow", ".jsonl"):
            path = Path(folder) / f"d{suffix}"
            write_dataset(path, data)
            assert same(read(path, graph), data), suffix


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(GRAPHS)), n=st.integers(2, 9), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_pieces_join_to_the_whole(name: str, n: int, seed: int, data: Any) -> None:
    graph = GRAPHS[name]
    whole = random_dataset(graph, n, seed)
    cut = data.draw(st.integers(1, n - 1))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "a.jsonl", Path(folder) / "b.parquet"]
        for path, rows in zip(paths, (range(cut), range(cut, n)), strict=True):
            write_dataset(path, whole.select(list(rows)))
        joined = read(paths, graph)
    assert same(joined, whole)
    assert joined.where(cut) == f"row 0 of `{paths[1]}`" and "(line 1)" in joined.where(0)
    table = to_table(whole)
    assert same(read(pa.concat_tables([table.slice(0, cut), table.slice(cut)]), graph), whole)


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(GRAPHS)), n=st.integers(1, 8), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_selection_takes_whole_instances(name: str, n: int, seed: int, data: Any) -> None:
    graph = GRAPHS[name]
    rows = random_rows(graph, n, seed)
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12))
    assert same(read(rows, graph).select(chosen), read([rows[i] for i in chosen], graph))


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.int8()), pa.list_(pa.uint16()), pa.list_(pa.float64()), pa.list_(pa.float16()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 2),
     pa.list_view(pa.int32()), pa.list_(pa.dictionary(pa.int8(), pa.int64())), pa.list_(pa.decimal128(5, 0))],
)  # fmt: skip
def test_any_numeric_layout_is_read(kind: Any) -> None:
    values = pa.array([[1, 2], [3, 13], [0, 5]], pa.list_(pa.int64()))
    table = pa.table({"symbol": pa.array(values.to_pylist(), kind), "label": pa.array([1, 2, 3], pa.int16())})
    for part, rows in ((table, [0, 1, 2]), (table.slice(1), [1, 2]), (table.slice(1, 1), [1])):
        data = read(part, LR)
        assert data.columns["symbol"].reshape(-1, 2).tolist() == [values.to_pylist()[i] for i in rows]


def test_tensor_extension_columns_are_read() -> None:
    graph = instance(F("image", "float", columns=4), F("label", "int", below=10))
    images = np.arange(8, dtype=np.float32).reshape(2, 4)
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(images), "label": [1, 2]})
    assert np.array_equal(read(table, graph).columns["image"], images)


def test_rows_from_python_may_hold_numpy(tmp_path: Path) -> None:
    rows = [{"x": np.array([1.0, 2.0]), "y": np.float64(3)}, {"x": (4,), "y": 1}, {"x": [], "y": np.int64(2)}]
    data = read(rows, Q)
    assert data.axes["token"].tolist() == [0, 2, 3, 3] and data.columns["y"][:, 0].tolist() == [3, 1, 2]
    assert read(iter(rows), Q).n == 3
    assert data.where(1) == "row 1 of `data`"


def test_a_vector_of_one_number_is_a_number() -> None:
    graph = instance(F("x", "float", "token", columns=1), axes="token")
    assert read([{"x": [1, 2]}], graph).columns["x"].tolist() == [[1], [2]]
    assert read(pa.table({"x": [[[1.0], [2.0]]]}), graph).columns["x"].tolist() == [[1], [2]]


def test_field_names_may_be_python_keywords(tmp_path: Path) -> None:
    graph = instance(F("lambda", "float", "token"), F("class", "int", below=3), F("None", "flag"), F("self", "int"), axes="token")
    path = tmp_path / "d.jsonl"
    path.write_text('{"lambda": [1.0, 2.0], "class": 1, "None": true, "self": 7}\n')
    data = read(path, graph)
    assert data.columns["class"].tolist() == [1] and data.columns["None"].tolist() == [1]


def test_blank_lines_and_bom_and_crlf_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\r\n{"x": [1], "y": 2}\r\n\r\n  \r\n{"y": 4, "x": []}')
    data = read(path, Q)
    assert data.n == 2 and data.where(1) == f"row 1 (line 5) of `{path}`"


def test_streams_and_compressed_arrow_are_read(tmp_path: Path) -> None:
    table = pa.table({"x": [[1.0], []], "y": [1.0, 2.0]})
    path = tmp_path / "d.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert read(path, Q).n == 2
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    assert read(path, Q).n == 2


def test_other_names_are_told_by_their_first_bytes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1.0]], "y": [1.0]}), tmp_path / "a.data")
    (tmp_path / "b.txt").write_text('{"x": [1], "y": 1}\n')
    assert read(tmp_path / "a.data", Q).n == read(tmp_path / "b.txt", Q).n == 1


def test_statistics_and_sizes() -> None:
    data = read([{"x": [1, 2, 3], "y": 0}, {"x": [], "y": 0}], Q)
    assert data.statistics() == {"token": {"mean": 1.5, "min": 0.0, "max": 3.0}}
    assert data.size_bytes == 3 * 8 + 3 * 4 + 2 * 4 and len(data) == 2


def test_graph_without_fields_counts_rows() -> None:
    assert read([{}, {}], Graph("m", (), (), (), (), ())).n == 2


SCALAR = st.none() | st.booleans() | st.integers(-3, 20) | st.just(2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=2)
VALUE = st.recursive(SCALAR, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=2), x, max_size=2), max_leaves=6)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(sorted(GRAPHS)), seed=st.integers(0, 1000), data=st.data())
def test_any_json_is_read_or_refused_alike_from_file_and_python(name: str, seed: int, data: Any) -> None:
    graph = GRAPHS[name]
    rows: list[Any] = random_rows(graph, 3, seed)
    for _ in range(data.draw(st.integers(1, 2))):
        row = data.draw(st.integers(0, 2))
        field = data.draw(st.sampled_from([f.name for f in graph.fields]))
        if isinstance(rows[row], dict):
            what = data.draw(st.sampled_from(["value", "element", "drop", "row"]))
            if what == "drop":
                rows[row].pop(field, None)
            elif what == "row":
                rows[row] = data.draw(VALUE)
            elif what == "element" and isinstance(rows[row].get(field), list) and rows[row][field]:
                rows[row][field][0] = data.draw(VALUE)
            else:
                rows[row][field] = data.draw(VALUE)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "d.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
        for source in (path, rows):
            try:
                outcomes.append(read(source, graph, name=str(path)))
            except AmpError as failure:
                outcomes.append([re.sub(r" \(line \d+\)", "", d.message) for d in failure.diagnostics])
    first, second = outcomes
    assert same(first, second) if isinstance(first, Dataset) and isinstance(second, Dataset) else first == second
