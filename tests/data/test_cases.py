"""Data files that broke other tools, with the values or the messages that are right."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_graphs import CASES, EDGES, GN, LR, MOLECULE, WIDE, F, G, K, Q, T, instance

from ampc.data import Dataset, check_acyclic, read
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph


def sums(data: Dataset) -> list[float]:
    """What model Q predicts with w = 1."""
    return [float(data.columns["x"][a:b].sum()) for a, b in zip(data.axes["token"][:-1], data.axes["token"][1:], strict=True)]


def messages(path: str, graph: Graph, **more: Any) -> list[str]:
    with pytest.raises(AmpError) as caught:
        data = read(CASES / path, graph, **more)
        if graph is K:
            check_acyclic(data, "node", ("kid",))
    assert caught.value.exit_code == 1
    return [d.message.replace(str(CASES / path), "FILE") for d in caught.value.diagnostics]


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


def test_nested_columns_in_several_row_groups_and_chunks_read_the_same() -> None:
    want = expected("D02")["predictions"]
    assert sums(read(CASES / "D02/one_group.parquet", Q)) == want
    assert sums(read(CASES / "D02/groups_1_0_4_7.parquet", Q)) == want
    table = pq.read_table(CASES / "D02/one_group.parquet")
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 6), table.slice(7)])
    assert chunked.column("x").num_chunks > 1
    assert sums(read(chunked, Q)) == want
    assert sums(read(table.to_batches(max_chunksize=5), Q)) == want
    assert sums(read(table.slice(3, 4), Q)) == want[3:7]


def test_first_rows_with_empty_lists_do_not_fix_a_type() -> None:
    data = read(CASES / "D04/train.jsonl", G)
    assert data.lengths("node").tolist() == [0, 0, 0, 2]
    assert [data.columns[n].tolist() for n in ("source", "target", "y")] == [[0], [1], [[0], [0], [0], [1]]]
    empty = read(CASES / "D04/all_empty_null_type.parquet", G)
    assert empty.lengths("edge").tolist() == [0, 0]
    assert empty.columns["x"].dtype == np.float32 and empty.columns["source"].dtype == np.int64


def test_missing_extra_misspelt_and_doubled_keys() -> None:
    assert messages("D06/missing.jsonl", LR) == ["row 1 (line 2) of `FILE`: the field `label` is missing; it has `symbol`"]
    assert read(CASES / "D06/extra.jsonl", LR).columns["symbol"].tolist() == [1]
    assert messages("D06/twice.jsonl", LR) == ["row 0 (line 1) of `FILE`: the key `label` is given twice"]
    with pytest.raises(AmpError) as caught:
        read(CASES / "D06/misspelt.jsonl", LR)
    assert "did you mean `symbol`?" in (caught.value.diagnostics[0].help or "")


def test_other_number_types_are_converted_and_checked() -> None:
    assert np.allclose(sums(read(CASES / "D07/float64.parquet", Q)), expected("D07")["float64"], rtol=1e-7)
    assert sums(read(CASES / "D07/int32.parquet", Q)) == expected("D07")["int32"]
    assert messages("D07/too_big.parquet", Q) == ["row 0 of `FILE`: `x[0]` is 1e+300, which doesn't fit a float32 (at most 3.4028235e+38)"]
    assert messages("D07/strings.parquet", Q) == ["row 0 of `FILE`: `x` holds strings, the first is '1', expected numbers"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("flat", "row 0 (line 1) of `FILE`: `f` is of shape [4], expected shape [node, 2]"),
        ("width3", "row 0 (line 1) of `FILE`: `f[1]` is of shape [3], expected shape [2]"),
        ("too_deep", "row 0 (line 1) of `FILE`: `f` is of shape [1, 1, 2], expected shape [node, 2]"),
        ("scalar", "row 0 (line 1) of `FILE`: `f` is the number 1, expected shape [node, 2]"),
    ],
)
def test_wrong_nesting_is_never_reshaped(file: str, message: str) -> None:
    assert messages(f"D10/{file}.jsonl", WIDE) == [message]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("zero_bytes.jsonl", "`FILE` is empty: it holds no instances"),
        ("newlines.jsonl", "`FILE` holds no instances"),
        ("zero_rows.parquet", "`FILE` holds no instances: it has columns but no row"),
        ("not_parquet.parquet", "`FILE` is damaged: its end isn't that of a Parquet file"),
        ("truncated.jsonl", "row 1 (line 2) of `FILE`: the line ends in the middle of a value"),
    ],
)
def test_empty_and_damaged_files_are_named(file: str, message: str) -> None:
    assert messages(f"D12/{file}", Q) == [message]


def test_positions_outside_the_instance() -> None:
    assert messages("I01/train.jsonl", G) == ["row 1 (line 2) of `FILE`: `target[1]` is 3, allowed is 0..2 (axis `node` has 3 elements here)"]
    assert [m.split(": ")[1].split(" is ")[0] for m in messages("I01/ids_not_positions.jsonl", G)] == ["`source[0]`", "`target[0]`"]
    with pytest.raises(AmpError) as caught:
        read(CASES / "I01/train.jsonl", G)
    assert "positions start at 0" in (caught.value.diagnostics[0].help or "")


def test_minus_one_is_not_none() -> None:
    assert messages("I02/train.jsonl", LR) == ["row 1 (line 2) of `FILE`: `symbol[1]` is -1, allowed is 0..13"]
    assert [re.sub(".*FILE`: ", "", m) for m in messages("I02/tree.jsonl", T)] == [
        f"`{f}[0]` is -1, allowed is 0..2 (axis `node` has 3 elements here)" for f in ("left", "right")
    ]
    with pytest.raises(AmpError) as caught:
        read(CASES / "I02/tree.jsonl", T)
    assert [d.help for d in caught.value.diagnostics] == ["write null for none"] * 2


@pytest.mark.parametrize("file", ["two_cycle", "self", "hanging_off"])
def test_cycles_are_named_node_by_node(file: str) -> None:
    (message,) = messages(f"I05/{file}.jsonl", K)
    inside = re.search(r"elements? ([\d, ]+?) of axis `node`", message)
    assert inside
    assert [int(x) for x in inside.group(1).split(",")] == expected("I05")["cycle_nodes"][file]


def test_another_format_is_told_by_its_fields() -> None:
    assert messages("I08/triples.jsonl", MOLECULE) == [
        "row 0 (line 1) of `FILE`: the fields `feature`, `source`, `target`, `kind`, `dipole` are missing; it has `targets`, `graph`, `node_features`"
    ]
    assert messages("I08/kind_from_1.jsonl", MOLECULE) == ["row 0 (line 1) of `FILE`: `kind[1]` is 4, allowed is 0..3"]


def test_nan_and_infinity_follow_the_policy() -> None:
    bad = expected("N04")["bad_rows"]
    with pytest.raises(AmpError, match="AMP816"):
        read(CASES / "N04/train.parquet", Q, on_nan="stop")
    assert messages("N04/train.parquet", Q) == ["row 2 of `FILE`: `x[0]` is NaN, expected a finite number"]
    whole = pq.read_table(CASES / "N04/train.parquet")
    data = read(CASES / "N04/train.parquet", Q, on_nan="skip")
    good = [i for i in range(whole.num_rows) if i not in bad]
    assert data.kept is not None and data.kept.tolist() == good and data.skipped == len(bad) and data.n == len(good)
    without = read(whole.take(good), Q)
    assert all(np.array_equal(data.columns[f], without.columns[f]) for f in ("x", "y"))
    assert np.array_equal(data.axes["token"], without.axes["token"])
    assert data.where(2) == f"row {good[2]} of `{CASES / 'N04/train.parquet'}`"
    assert read(CASES / "N04/train.parquet", Q, on_nan="ignore").n == whole.num_rows


def test_null_targets_need_a_declaration() -> None:
    assert messages("N10/train.jsonl", Q) == ["row 1 (line 2) of `FILE`: `y` is null, but `y` isn't declared `or none`"]
    optional = instance(F("x", "float", "token"), F("y", "float", optional=True), axes="token")
    y = read(CASES / "N10/train.jsonl", optional).columns["y"][:, 0]
    assert np.isnan(y).tolist() == [False, True, False, True] and y[[0, 2]].tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("file", "graph", "lengths"),
    [
        ("E01/train.jsonl", G, {"node": [3, 1, 2], "edge": [0, 0, 1]}),
        ("E04/rows.jsonl", GN, {"node": [3, 2], "edge": [2, 0]}),
        ("E05/train.jsonl", Q, {"token": [2, 0, 1, 0]}),
        ("E07/rows.jsonl", K, {"node": [1, 3, 4], "child": [0, 2, 3]}),
        ("E09/star_ones.parquet", G, {"node": [100_001], "edge": [100_000]}),
        ("E11/rows.jsonl", instance(F("s", "float", "item"), F("x", "float", "item"), F("y", "float"), axes="item"), {"item": [0, 1, 7]}),
        ("N07/rows.jsonl", GN, {"node": [1, 3], "edge": [0, 0]}),
        ("N09/train.jsonl", Q, {"token": [1] * 6}),
        ("N12/valid.jsonl", instance(F("x", "float", "token"), F("label", "int", below=3), axes="token"), {"token": [1] * 20}),
        ("N01/rows.jsonl", instance(F("z", "float", columns=2), F("label", "int", below=2)), {}),
        ("N01/binary.jsonl", instance(F("z", "float"), F("b", "flag")), {}),
    ],
)
def test_degenerate_structure_is_read(file: str, graph: Graph, lengths: dict[str, list[int]]) -> None:
    data = read(CASES / file, graph)
    assert {a: data.lengths(a).tolist() for a in data.axes} == lengths


def test_children_lie_end_to_end() -> None:
    data = read(CASES / "E07/rows.jsonl", K)
    assert data.inner["child"].tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 5]
    assert data.columns["kid"].tolist() == [0, 1, 0, 1, 2]


def test_extra_columns_serve_other_models() -> None:
    assert EDGES[0].name in pq.read_schema(CASES / "E09/star_ones.parquet").names
    assert read(CASES / "E09/star_ones.parquet", instance(F("y", "float"))).n == 1
