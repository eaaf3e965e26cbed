"""Predictions and data sets reach a file whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ampc.data import write_predictions
from ampc.data.write import replacing
from ampc.diagnostics import AmpError


def read_back(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_every_form_of_column(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    write_predictions(
        path,
        {
            "one": np.array([1.5, 2.5], np.float32),
            "vector": np.array([[1, 2], [3, 4]], np.float32),
            "rows": [np.array([[1.0, 2.0]]), np.zeros((0, 2))],
            "flat": [np.array([1, 2, 3]), np.array([], np.int64)],
            "offsets": (np.array([0, 2, 3]), np.array([1, 2, 3])),
            "none": [None, 3],
            "wide": (np.array([0, 1, 2]), np.array([[1.0], [2.0]])),
            "nothing": np.zeros((2, 0)),
        },
    )
    assert read_back(path) == [
        {"one": 1.5, "vector": [1, 2], "rows": [[1, 2]], "flat": [1, 2, 3], "offsets": [1, 2], "none": None, "wide": [[1]], "nothing": []},
        {"one": 2.5, "vector": [3, 4], "rows": [], "flat": [], "offsets": [3], "none": 3, "wide": [[2]], "nothing": []},
    ]
    assert os.listdir(tmp_path) == [path.name]


def test_nan_is_null_in_json(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", {"y": np.array([np.nan, 1.0])})
    assert (tmp_path / "p.jsonl").read_text() == '{"y":null}\n{"y":1.0}\n'


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("p.csv", {"y": np.zeros(1)}, "doesn't say in which form to write"),
        ("p.parquet", {"y": np.zeros(1), "z": np.zeros(2)}, "the columns have different numbers of instances: `y` 1, `z` 2"),
        ("p.parquet", {"y": np.zeros((1, 1, 1))}, "`y` is an array of float64 with 3 dimensions, expected numbers in 1 or 2"),
        ("p.parquet", {"y": np.array(["a"])}, "`y` is an array of <U1 with 1 dimensions, expected numbers in 1 or 2"),
        ("p.parquet", {"y": "text"}, "`y` is a str, expected an array, a list or a pair of offsets and values"),
        ("p.parquet", {"y": (np.array([0, 3]), np.zeros(2))}, "the offsets of `y` don't fit its 2 values"),
        ("p.parquet", {"y": (np.array([0, 2, 1, 2]), np.zeros(2))}, "the offsets of `y` don't fit its 2 values"),
        ("p.parquet", {"y": [object()]}, "`y` can't be written: "),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, name: str, columns: dict[str, Any], message: str) -> None:
    (tmp_path / name).write_text("old")
    with pytest.raises(AmpError) as caught:
        write_predictions(tmp_path / name, columns)
    assert message in caught.value.diagnostics[0].message and caught.value.diagnostics[0].code == "AMP825"
    assert (tmp_path / name).read_text() == "old" and os.listdir(tmp_path) == [name]


def test_a_refusal_of_the_system_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AmpError) as caught:
        write_predictions(path, {"y": np.zeros(3)})
    assert caught.value.exit_code == 4 and caught.value.diagnostics[0].code == "AMP824"
    assert caught.value.diagnostics[0].message == f"`{path}` can't be written: no space left on device"
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["p.parquet"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(AmpError) as caught:
        write_predictions(tmp_path / "no" / "p.parquet", {"y": np.zeros(3)})
    assert caught.value.diagnostics[0].message.endswith("can't be written: no such file or directory")


def test_an_exception_inside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "p") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_predictions(tmp_path / "p.jsonl", {"y": np.zeros(1)})
    finally:
        os.umask(old)
    assert (tmp_path / "p.jsonl").stat().st_mode & 0o777 == 0o640
