"""A table of wrong data files, each with its exact message. None may end in a traceback, none be read in silence."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_graphs import LR, WIDE, F, G, K, Q, T, instance

from ampc.data import read
from ampc.diagnostics import AmpError, render
from ampc.ir.graph import Graph

FLAG = instance(F("alarm", "flag"))
OPTIONAL = instance(F("a", "int", optional=True), F("v", "float", "node", columns=2, optional=True), axes="node")
WHERE = "row 0 (line 1) of `d.jsonl`: "

LINES: list[tuple[str, Graph, str | bytes, list[str]]] = [
    ("a string for a number", LR, '{"symbol": ["1"], "label": 0}', [f"AMP809 {WHERE}`symbol[0]` is the string '1', expected an integer 0..13"]),
    ("a number with a fraction", LR, '{"symbol": [1.5], "label": 0}', [f"AMP809 {WHERE}`symbol[0]` is 1.5, expected an integer 0..13"]),
    ("true for a number", LR, '{"symbol": [1], "label": true}', [f"AMP809 {WHERE}`label` is true, expected an integer 0..9"]),
    ("true for a float", Q, '{"x": [true], "y": 1}', [f"AMP809 {WHERE}`x[0]` is true, expected a number"]),
    ("an object for a number", Q, '{"x": [], "y": {"a": 1}}', [f"AMP809 {WHERE}`y` is an object, expected a number"]),
    ("a list for a single value", LR, '{"symbol": [1], "label": [0]}', [f"AMP810 {WHERE}`label` is of shape [1], expected a single value"]),
    ("a single value for a list", LR, '{"symbol": 1, "label": 0}', [f"AMP810 {WHERE}`symbol` is the number 1, expected shape [token]"]),
    ("null for a list", Q, '{"x": null, "y": 0}', [f"AMP811 {WHERE}`x` is null, expected a list over axis `token`"]),
    ("null for a single value", LR, '{"symbol": [1], "label": null}', [f"AMP811 {WHERE}`label` is null, but `label` isn't declared `or none`"]),
    ("null among values", LR, '{"symbol": [1, null], "label": 0}', [f"AMP811 {WHERE}`symbol[1]` is null, but `symbol` isn't declared `or none`"]),
    ("null inside a vector", OPTIONAL, '{"a": null, "v": [[1, null]]}', [f"AMP811 {WHERE}`v[0][1]` is null"]),
    ("-1 for none", OPTIONAL, '{"a": -1, "v": []}', [f"AMP812 {WHERE}`a` is -1, which stands for none inside ampc"]),
    ("a class too large", LR, '{"symbol": [1], "label": 10}', [f"AMP812 {WHERE}`label` is 10, allowed is 0..9"]),
    ("a flag of 2", FLAG, '{"alarm": 2}', [f"AMP812 {WHERE}`alarm` is 2, allowed is 0..1"]),
    (
        "an integer beyond 64 bits",
        LR,
        '{"symbol": [9223372036854775808], "label": 0}',
        [f"AMP812 {WHERE}`symbol[0]` is 9223372036854775808, expected an integer 0..13"],
    ),
    ("a float too large", Q, '{"x": [1e39], "y": 0}', [f"AMP815 {WHERE}`x[0]` is 1e+39, which doesn't fit a float32 (at most 3.4028235e+38)"]),
    (
        "an index into an empty axis",
        G,
        '{"x": [], "source": [0], "target": [0], "y": 0}',
        [
            f"AMP813 {WHERE}`source[0]` is 0, but axis `node` has no elements here",
            f"AMP813 {WHERE}`target[0]` is 0, but axis `node` has no elements here",
        ],
    ),
    (
        "lengths that disagree",
        G,
        '{"x": [1], "source": [0, 0], "target": [0], "y": 0}',
        [f"AMP814 {WHERE}`source` has 2 elements of axis `edge`, `target` has 1"],
    ),
    (
        "lengths that disagree, nested axis",
        K,
        '{"v": [1, 2], "kid": [[]], "t": [0, 0]}',
        [f"AMP814 {WHERE}`v` has 2 elements of axis `node`, `kid` has 1"],
    ),
    ("children of no list", K, '{"v": [1], "kid": [0], "t": [0]}', [f"AMP810 {WHERE}`kid` is of shape [1], expected shape [node, child]"]),
    (
        "lists and values mixed",
        K,
        '{"v": [1, 1], "kid": [[], 0], "t": [0, 0]}',
        [f"AMP810 {WHERE}`kid` is of shape [2] of lists and single values, expected shape [node, child]"],
    ),
    ("three numbers for two", WIDE, '{"f": [[1, 2], [1, 2, 3]], "y": 0}', [f"AMP810 {WHERE}`f[1]` is of shape [3], expected shape [2]"]),
    (
        "a list of instances",
        LR,
        '[{"symbol": [1], "label": 0}]',
        ["AMP806 `d.jsonl` holds a JSON list, expected JSON lines"],
    ),
    ("a list of numbers", LR, "[1, 2]", [f"AMP809 {WHERE}expected an object with the fields `symbol`, `label`, found a list"]),
    (
        "a list of instances over lines",
        LR,
        '[\n{"symbol": [1], "label": 0}\n]',
        ["AMP806 `d.jsonl` holds a JSON list, expected JSON lines"],
    ),
    ("one object over lines", LR, '{\n"symbol": [1]\n}', [f"AMP806 {WHERE}the line opens a bracket `{{` that it doesn't close"]),
    ("NaN in JSON", Q, '{"x": [NaN], "y": 0}', [f"AMP806 {WHERE}`NaN` isn't JSON"]),
    ("infinity in JSON", Q, '{"x": [1], "y": -Infinity}', [f"AMP806 {WHERE}`-Infinity` isn't JSON"]),
    ("NaN in a further field", Q, '{"x": [1], "y": 0, "note": NaN}', [f"AMP806 {WHERE}`NaN` isn't JSON"]),
    ("single quotes", Q, "{'x': [1], 'y': 0}", [f"AMP806 {WHERE}this isn't JSON: object keys must be strings at byte 2 of the line"]),
    ("a comma too many", Q, '{"x": [1,], "y": 0}', [f"AMP806 {WHERE}this isn't JSON: trailing comma in array at byte 10 of the line"]),
    (
        "two objects in a line",
        Q,
        '{"x": [1], "y": 0} {"x": [1], "y": 0}',
        [f"AMP806 {WHERE}this isn't JSON: trailing characters at byte 21 of the line"],
    ),
    ("not UTF-8", Q, '{"x": [1], "y": 0, "s": "\xe9"}'.encode("latin-1"), [f"AMP806 {WHERE}this isn't UTF-8 text"]),
    (
        "too many brackets",
        Q,
        '{"x": [1], "y": 0, "s": ' + "[" * 100 + "]" * 100 + "}",
        [f"AMP806 {WHERE}this can't be read: nested deeper than 64 brackets"],
    ),
    ("a key twice, hidden by an escape", LR, '{"symbol": [1], "label": 0, "\\u006cabel": 1}', [f"AMP808 {WHERE}the key `label` is given twice"]),
    ("a key of a further object twice", LR, '{"symbol": [1], "label": 0, "note": {"a": 1, "a": 2}}', [f"AMP808 {WHERE}the key `a` is given twice"]),
    ("an empty object", Q, "{}", [f"AMP807 {WHERE}the fields `x`, `y` are missing; it has none"]),
    (
        "an optional field left out",
        T,
        '{"v": [1], "left": [null], "t": [0]}',
        [f"AMP807 {WHERE}the field `right` is missing; it has `v`, `left`, `t`"],
    ),
    (
        "several mistakes in several rows",
        LR,
        '{"symbol": [1], "label": "a"}\n{"symbol": [14], "label": 0}\n\n{"symbol": null, "label": 0}',
        [
            f"AMP809 {WHERE}`label` is the string 'a', expected an integer 0..9",
            "AMP812 row 1 (line 2) of `d.jsonl`: `symbol[0]` is 14, allowed is 0..13",
            "AMP811 row 2 (line 4) of `d.jsonl`: `symbol` is null, expected a list over axis `token`",
        ],
    ),
]

NUMBERS = pa.array([[1.0]])
TABLES: list[tuple[str, Graph, dict[str, Any], list[str]]] = [
    (
        "strings",
        LR,
        {"symbol": pa.array([[]], pa.list_(pa.string())), "label": [0]},
        ["row 0 of `d.parquet`: `symbol` holds strings, expected integers"],
    ),
    ("records", Q, {"x": pa.array([[{"a": 1}]]), "y": [0.0]}, ["row 0 of `d.parquet`: `x` holds records, the first is {'a': 1}, expected numbers"]),
    (
        "dates",
        Q,
        {"x": NUMBERS, "y": [datetime.date(2020, 1, 2)]},
        ["row 0 of `d.parquet`: `y` holds dates or times, the first is datetime.date(2020, 1, 2), expected numbers"],
    ),
    ("a missing column", Q, {"x": NUMBERS, "why": [0.0]}, ["`d.parquet`: the field `y` is missing; it has `x`, `why`"]),
    (
        "a flat list",
        K,
        {"v": NUMBERS, "kid": pa.array([[0]]), "t": NUMBERS},
        ["row 0 of `d.parquet`: `kid` is a list of single values in each row, expected shape [node, child]"],
    ),
    (
        "a deep list",
        Q,
        {"x": pa.array([[[1.0, 2.0]]]), "y": [0.0]},
        ["row 0 of `d.parquet`: `x` is a list of lists of single values in each row, expected shape [token]"],
    ),
    ("a single value", Q, {"x": [1.0], "y": [0.0]}, ["row 0 of `d.parquet`: `x` is a single value in each row, expected shape [token]"]),
    (
        "fixed lists of another width",
        WIDE,
        {"f": pa.array([[[1, 2, 3]]], pa.list_(pa.list_(pa.float32(), 3))), "y": [0.0]},
        ["row 0 of `d.parquet`: `f[0]` is of shape [3], expected shape [2]"],
    ),
    (
        "floats with a fraction",
        LR,
        {"symbol": pa.array([[1.0, 2.5]]), "label": [0]},
        ["row 0 of `d.parquet`: `symbol[1]` is 2.5, expected an integer 0..13"],
    ),
    ("NaN for none", LR, {"symbol": pa.array([[1]]), "label": [float("nan")]}, ["row 0 of `d.parquet`: `label` is nan, expected an integer 0..9"]),
    ("true for numbers", Q, {"x": pa.array([[True]]), "y": [0.0]}, ["`d.parquet`: `x` holds true and false, expected numbers"]),
    ("true for classes", LR, {"symbol": pa.array([[1]]), "label": [True]}, ["`d.parquet`: `label` holds true and false, expected integers"]),
    (
        "unsigned beyond 63 bits",
        LR,
        {"symbol": pa.array([[1]]), "label": pa.array([2**63], pa.uint64())},
        ["row 0 of `d.parquet`: `label` is 9223372036854775808, expected an integer 0..9"],
    ),
    ("a null list", Q, {"x": pa.array([[1.0], None]), "y": [0.0, 0.0]}, ["row 1 of `d.parquet`: `x` is null, expected a list over axis `token`"]),
    (
        "a null number",
        Q,
        {"x": pa.array([[1.0], [2.0, None]]), "y": [0.0, 0.0]},
        ["row 1 of `d.parquet`: `x[1]` is null, but `x` isn't declared `or none`"],
    ),
    (
        "a null inside a vector",
        WIDE,
        {"f": pa.array([[[1.0, None]]]), "y": [0.0]},
        ["row 0 of `d.parquet`: `f[0][1]` is null, but `f` isn't declared `or none` there"],
    ),
    ("infinity", Q, {"x": pa.array([[1.0], [-np.inf]]), "y": [0.0, 0.0]}, ["row 1 of `d.parquet`: `x[0]` is -inf, expected a finite number"]),
    (
        "a decimal out of range",
        LR,
        {"symbol": pa.array([[1]]), "label": pa.array([decimal.Decimal("10.00")])},
        ["row 0 of `d.parquet`: `label` is 10, allowed is 0..9"],
    ),
    (
        "an index counted over the file",
        G,
        {"x": pa.array([[1.0], [2.0]]), "source": pa.array([[0], [1]]), "target": pa.array([[0], [1]]), "y": [0.0, 0.0]},
        [f"row 1 of `d.parquet`: `{f}[0]` is 1, allowed is 0..0 (axis `node` has 1 element here)" for f in ("source", "target")],
    ),
]


def mistakes(path: Path, graph: Graph) -> list[str]:
    with pytest.raises(AmpError) as caught:
        read(path, graph)
    assert caught.value.exit_code == 1
    for d in caught.value.diagnostics:
        assert render(d).startswith(f"error[{d.code}]: ")
    return [f"{d.code} {d.message}" for d in caught.value.diagnostics]


@pytest.mark.parametrize(("graph", "text", "want"), [pytest.param(*row[1:], id=row[0]) for row in LINES])
def test_wrong_json_lines(graph: Graph, text: str | bytes, want: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode() + b"\n")
    assert mistakes(Path("d.jsonl"), graph) == want


@pytest.mark.parametrize(("graph", "columns", "want"), [pytest.param(*row[1:], id=row[0]) for row in TABLES])
def test_wrong_tables(graph: Graph, columns: dict[str, Any], want: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table(columns)
    pq.write_table(table, "d.parquet")
    assert [m[7:] for m in mistakes(Path("d.parquet"), graph)] == want
    with pa.OSFile("d.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert [m[7:] for m in mistakes(Path("d.arrow"), graph)] == [w.replace("d.parquet", "d.arrow") for w in want]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('{"symbol": [1], "label": "3"}', "write the number without quotes: 3"),
        ('{"symbol": [1], "label": "good"}', "write numbers: classes, kinds and words are counted from 0"),
        ('[{"symbol": [1], "label": 3}]', "write one object a line: `jq -c '.[]' d.jsonl > new.jsonl`"),
    ],
)
def test_helps_for_json_lines(text: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.jsonl").write_text(text + "\n")
    with pytest.raises(AmpError) as caught:
        read("d.jsonl", LR)
    assert caught.value.diagnostics[0].help == remedy


def test_json_lines_may_end_in_json(tmp_path: Path) -> None:
    from ampc.data import find

    for split in ("train", "valid"):
        (tmp_path / f"{split}.json").write_text('{"symbol": [1], "label": 3}\n')
    assert read(tmp_path / "train.json", LR).n == 1
    assert sorted(find(tmp_path)) == ["train", "valid"]


def test_the_same_mistake_is_told_once_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("".join(f'{{"symbol": [{99 if i % 3 == 0 else 1}, {i % 5 + 11}], "label": 0}}\n' for i in range(30)))
    with pytest.raises(AmpError) as caught:
        read(path, LR)
    (told,) = caught.value.diagnostics
    assert told.message.startswith("row 0 (line 1) of ") and told.notes == ("21 more of this kind, in rows 3, 4, 6, ...",)


def test_reading_stops_after_twenty_wrong_rows(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"symbol": "a", "label": 0}\n' * 1000)
    with pytest.raises(AmpError) as caught:
        read(path, LR)
    assert caught.value.diagnostics[0].notes == ("19 more of this kind, in rows 1, 2, 3, ...", "reading stopped after 20 wrong rows")


def test_no_more_than_twenty_diagnostics(tmp_path: Path) -> None:
    wide = instance(*(F(f"f{i}", "int", below=2) for i in range(40)))
    path = tmp_path / "d.jsonl"
    path.write_text("{" + ", ".join(f'"f{i}": 5' for i in range(40)) + "}\n")
    with pytest.raises(AmpError) as caught:
        read(path, wide)
    assert len(caught.value.diagnostics) == 20
    assert caught.value.diagnostics[-1].notes == ("20 more kinds of mistake are not shown",)


def test_control_characters_reach_the_terminal_escaped(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"symbol": ["\\u001b[31m"], "label": 0}\n')
    with pytest.raises(AmpError) as caught:
        read(path, LR)
    assert "\x1b" not in render(caught.value.diagnostics[0])
