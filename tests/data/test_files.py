"""Finding the parts of a data folder, refusing what isn't a data file, and staying within memory and time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_graphs import LR, F, G, Q, instance
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.data import find, jsonl, memory, read
from ampc.data.recipes import RECIPES
from ampc.diagnostics import AmpError

ROW = '{"x": [1], "y": 1}\n'


def fail(folder: Path, *need: str) -> str:
    with pytest.raises(AmpError) as caught:
        find(folder, need or ("train",))
    return f"{caught.value.diagnostics[0].code} {caught.value.diagnostics[0].message}".replace(str(folder), "DIR")


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(ROW)


def test_splits_by_name_and_synonym(tmp_path: Path) -> None:
    make(tmp_path, "train.jsonl", "dev.ndjson", "test.jsonl", "README.md", "meta.json", ".train.jsonl", "trainer.jsonl")
    assert {k: [p.name for p in v] for k, v in find(tmp_path, ("train", "valid")).items()} == {
        "train": ["train.jsonl"],
        "valid": ["dev.ndjson"],
        "test": ["test.jsonl"],
    }


def test_shards_in_order(tmp_path: Path) -> None:
    make(tmp_path, "train-00001.jsonl", "train-00000.jsonl", "train-00002.jsonl", "valid.jsonl")
    files = find(tmp_path)["train"]
    assert [p.name[6:11] for p in files] == ["00000", "00001", "00002"]
    assert read(files, Q).n == 3


def test_a_single_file_is_enough_where_one_part_is(tmp_path: Path) -> None:
    make(tmp_path, "rows.jsonl")
    assert find(tmp_path / "rows.jsonl", ("test",)) == {"test": (tmp_path / "rows.jsonl",)}
    assert fail(tmp_path / "rows.jsonl", "train", "valid") == "AMP802 `DIR` is a single file, expected a folder with `train.*` and `valid.*`"


def test_missing_and_doubled_parts(tmp_path: Path) -> None:
    assert fail(tmp_path / "no") == "AMP801 there is no data folder or file `DIR`"
    assert fail(tmp_path) == "AMP802 `DIR` has no train data: found no data file"
    (tmp_path / "train.csv").write_text("a,b\n")
    assert fail(tmp_path) == "AMP802 `DIR` has no train data: `train.csv` is of a kind that isn't read"
    (tmp_path / "train.csv").unlink()
    make(tmp_path, "training_set.jsonl", "valid.jsonl")
    assert fail(tmp_path) == "AMP802 `DIR` has no train data: found `training_set.jsonl`, `valid.jsonl`"
    make(tmp_path, "val.jsonl")
    assert fail(tmp_path) == "AMP803 `DIR` has the valid data more than once: `val.jsonl` and `valid.jsonl`"
    (tmp_path / "val.jsonl").unlink()
    make(tmp_path, "train.jsonl", "train-0.jsonl")
    assert fail(tmp_path) == "AMP803 `DIR` has the train data more than once: `train-0.jsonl` and `train.jsonl`"


def test_what_is_no_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.parquet").write_text(ROW)
    Path("b.jsonl").write_bytes(b"PAR1\0\0\0\0")
    Path("c.csv").write_text("x,y\n1,2\n")
    Path("d.arrow").write_bytes(b"ARROW1\0\0" + b"\0" * 64)
    Path("e.parquet").write_bytes(b"\x89PNG\r\n\x1a\n")
    Path("g.arrow").write_bytes(b"\xff\xff\xff\xff" + b"\x7f" * 64)
    Path("folder.jsonl").mkdir()
    os.mkfifo("pipe.jsonl")
    want = {
        "a.parquet": '`a.parquet` is not a Parquet file: it begins with `{"x": [1`',
        "b.jsonl": "`b.jsonl` is not a text file of JSON lines: it is a Parquet file",
        "c.csv": "`c.csv` is neither Parquet, Arrow nor JSON lines",
        "e.parquet": "`e.parquet` is not a Parquet file: it begins with the bytes 89 50 4e 47 0d 0a 1a 0a",
        "folder.jsonl": "`folder.jsonl` is a folder, expected a data file",
        "pipe.jsonl": "`pipe.jsonl` is not a regular file",
        "nothing.jsonl": "there is no data file `nothing.jsonl`",
    }
    for name, message in want.items():
        with pytest.raises(AmpError) as caught:
            read(name, Q)
        assert caught.value.diagnostics[0].message == message
        assert caught.value.diagnostics[0].code == ("AMP801" if name in ("folder.jsonl", "pipe.jsonl", "nothing.jsonl") else "AMP804")
    for name in ("d.arrow", "g.arrow"):
        with pytest.raises(AmpError) as caught:
            read(name, Q)
        assert caught.value.diagnostics[0].message.startswith(f"`{name}` is damaged: ")


def test_python_data_of_no_kind_is_refused() -> None:
    for source, message in (
        (5, "`data` is a int"),
        ({"x": 1}, "`data` is a dict"),
        ([], "`data` holds no instances"),
        ([3], "row 0 of `data`: expected an object"),
    ):
        with pytest.raises(AmpError) as caught:
            read(source, Q)
        assert caught.value.diagnostics[0].message.startswith(message)


def test_nothing_left_after_skipping_is_an_error() -> None:
    with pytest.raises(AmpError, match=r"AMP805.*all 2 hold NaN or infinity"):
        read([{"x": [float("nan")], "y": 0}, {"x": [], "y": float("inf")}], Q, on_nan="skip")


def test_skipping_counts_over_files(tmp_path: Path) -> None:
    tables = [{"x": [[1.0], [np.nan]], "y": [1.0, 2.0]}, {"x": [[np.inf], [3.0]], "y": [3.0, 4.0]}]
    for i, columns in enumerate(tables):
        pq.write_table(pa.table(columns), tmp_path / f"{i}.parquet")
    data = read([tmp_path / "0.parquet", tmp_path / "1.parquet"], Q, on_nan="skip")
    assert data.kept is not None and data.kept.tolist() == [0, 3] and data.skipped == 2
    assert data.where(1) == f"row 1 of `{tmp_path / '1.parquet'}`"


def test_an_axis_without_a_field_is_refused() -> None:
    with pytest.raises(AmpError, match=r"AMP826.*axis `edge` has no field"):
        read([{"x": [1]}], instance(F("x", "float", "node"), axes="node, edge"))


def test_memory_is_looked_at_first(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[0.0] * 100_000], "y": [1.0], "other": ["a" * 10_000_000]}), tmp_path / "d.parquet")
    assert read(tmp_path / "d.parquet", Q, limit_bytes=4_000_000).n == 1, "what isn't declared isn't read"
    with pytest.raises(AmpError) as caught:
        read(tmp_path / "d.parquet", Q, limit_bytes=1_000_000)
    assert caught.value.exit_code == 4 and caught.value.diagnostics[0].code == "AMP818"
    (tmp_path / "d.jsonl").write_text(ROW * 1000)
    with pytest.raises(AmpError, match="MB in memory"):
        read(tmp_path / "d.jsonl", Q, limit_bytes=10_000)
    assert (memory.available_bytes() or 1 << 40) > 1 << 20


def test_a_file_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    """A run-length encoded column of a few bytes can stand for gigabytes; the footer tells."""
    pq.write_table(pa.table({"x": pa.array([[0.0] * 3_000_000]), "y": [1.0]}), tmp_path / "d.parquet")
    table = pa.table({"x": pa.array([[0.0] * 3_000_000]), "y": [1.0]})
    with (
        pa.OSFile(str(tmp_path / "d.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as w,
    ):
        w.write_table(table)
    for name in ("d.parquet", "d.arrow"):
        assert (tmp_path / name).stat().st_size < 100_000
        with pytest.raises(AmpError, match="are available"):
            read(tmp_path / name, Q, limit_bytes=20_000_000)
        assert read(tmp_path / name, instance(F("y", "float")), limit_bytes=1_000_000).n == 1, "what isn't declared isn't unpacked"


@settings(max_examples=150, deadline=None)
@given(
    cut=st.floats(0, 1),
    flips=st.lists(st.tuples(st.floats(0, 0.9999), st.integers(0, 255)), max_size=4),
    suffix=st.sampled_from([".parquet", ".arrow", ".jsonl"]),
)
def test_damage_never_ends_in_a_traceback(tmp_path_factory: pytest.TempPathFactory, cut: float, flips: list[tuple[float, int]], suffix: str) -> None:
    folder = tmp_path_factory.mktemp("damage")
    table = pa.table({"x": [[1.0, 2.0], [], [3.0]], "source": [[0], [], [0]], "target": [[1], [], [0]], "y": [1.0, 2.0, 3.0]})
    path = folder / f"d{suffix}"
    if suffix == ".parquet":
        pq.write_table(table, path)
    elif suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text('{"x": [1.0, 2.0], "source": [0], "target": [1], "y": 1.0}\n' * 3)
    content = bytearray(path.read_bytes())
    for where, byte in flips:
        content[int(where * len(content))] = byte
    path.write_bytes(content[: max(1, int(cut * len(content)))] if not flips else content)
    try:
        data = read(path, G, limit_bytes=1 << 28)
    except AmpError:
        return
    assert all(o[0] == 0 and (np.diff(o) >= 0).all() for o in data.axes.values())
    for f, axis in (("x", "node"), ("source", "edge"), ("target", "edge")):
        assert len(data.columns[f]) == data.axes[axis][-1]
    for f in ("source", "target"):
        limits = np.repeat(data.lengths("node"), data.lengths("edge"))
        assert (data.columns[f] >= 0).all() and (data.columns[f] < limits).all()


def test_a_hundred_thousand_rows_are_read_in_less_than_a_second(tmp_path: Path) -> None:
    RECIPES["list_reduction"].make(tmp_path / "d")
    best = []
    for _ in range(3):
        begin = time.process_time()
        assert read(find(tmp_path / "d")["train"], LR).n == 100_000
        best.append(time.process_time() - begin)
    assert min(best) < 1.0


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1 << 20)
    (tmp_path / "d.jsonl").write_text(ROW + '{"x": [' + "1," * (1 << 20))
    with pytest.raises(AmpError) as caught:
        read(tmp_path / "d.jsonl", Q)
    assert caught.value.diagnostics[0].message == f"line 2 of `{tmp_path / 'd.jsonl'}` is longer than 1 MB"


def test_long_files_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "CHUNK_ROWS", 7)
    (tmp_path / "d.jsonl").write_text("".join(f'{{"x": {list(range(i % 4))}, "y": {i}}}\n' for i in range(50)))
    data = read(tmp_path / "d.jsonl", Q)
    assert data.columns["y"][:, 0].tolist() == list(range(50)) and data.lengths("token").tolist() == [i % 4 for i in range(50)]


def test_a_bad_file_among_shards_is_the_one_named(tmp_path: Path) -> None:
    (tmp_path / "train-0.jsonl").write_text(ROW)
    (tmp_path / "train-1.jsonl").write_text(ROW + '{"x": [1]}\n')
    with pytest.raises(AmpError) as caught:
        read(find(tmp_path)["train"], Q)
    assert caught.value.diagnostics[0].message == f"row 1 (line 2) of `{tmp_path / 'train-1.jsonl'}`: the field `y` is missing; it has `x`"


def test_unreadable_files_are_a_matter_of_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.jsonl").write_text(ROW)

    def refuse(self: Path, *args: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(AmpError) as caught:
        read(tmp_path / "d.jsonl", Q)
    assert caught.value.exit_code == 4 and caught.value.diagnostics[0].message.endswith("can't be read: permission denied")


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = pa.table([pa.array([[1.0]]), pa.array([[2.0]]), pa.array([1.0])], names=["x", "x", "y"])
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for source in (table, tmp_path / "d.arrow"):
        with pytest.raises(AmpError, match=r"AMP808.*the column `x` is there twice"):
            read(source, Q)
    assert read(table, instance(F("y", "float"))).n == 1
