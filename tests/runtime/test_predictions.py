"""Files of predictions: each shape of an output, integers, what was never written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq

from ampc.ir.nodes import NPT, Output, Region, Type
from ampc.runtime import predictions
from runtime.fake import Q


def test_integer_outputs_are_int64() -> None:
    nodes = (NPT(id=0, op="argmax", outputs=(Type("", 1, True),)), Output(id=1, name="word", inputs=((0, 0),)))
    graph = msgspec.structs.replace(Q, nodes=nodes, regions=(Region(0, "instance"),))
    (word,) = predictions.with_integers(graph, {"word": [np.full((1, 1), 3, np.float32)]})["word"]
    assert word.dtype == np.int64 and word.tolist() == [[3]]


def test_predictions_of_every_shape(tmp_path: Path) -> None:
    shapes = [
        ("one", Type("", 1), 0),
        ("vector", Type("", 2), 0),
        ("word", Type("", 1, True), 0),
        ("rows", Type("token", 2), 0),
        ("each", Type("", 1), 1),
    ]
    nodes: list[Any] = []
    for i, (name, kind, region) in enumerate(shapes):
        nodes += [NPT(id=2 * i, op="relu", outputs=(kind,)), Output(id=2 * i + 1, name=name, region=region, inputs=((2 * i, 0),))]
    graph = msgspec.structs.replace(Q, nodes=tuple(nodes), regions=(Region(0, "instance"), Region(1, "each", 0, "token")))
    outputs = {
        "one": [np.ones((1, 1), np.float32)], "vector": [np.ones((1, 2), np.float32)], "word": [np.full((1, 1), 3, np.float32)],
        "rows": [np.ones((3, 2), np.float32)], "each": [np.ones((1, 1), np.float32)],
    }  # fmt: skip
    unwritten = {name: [a[0][:0]] for name, a in outputs.items()}
    predictions.write(str(tmp_path / "u.parquet"), graph, unwritten)
    assert pq.read_table(tmp_path / "u.parquet").to_pylist() == [{"one": None, "vector": None, "word": None, "rows": [], "each": []}]
    expected = {"one": 1.0, "vector": [1.0, 1.0], "word": 3, "rows": [[1.0, 1.0]] * 3, "each": [1.0]}
    for name in ("p.parquet", "p.jsonl"):
        predictions.write(str(tmp_path / name), graph, outputs)
    assert pq.read_table(tmp_path / "p.parquet").to_pylist() == [expected]
    assert json.loads((tmp_path / "p.jsonl").read_text()) == expected
