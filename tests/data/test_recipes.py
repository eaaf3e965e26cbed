"""The bundled data sets: made whole, by the rules that their READMEs state, readable by the models they are for.

The original files are not in the repository; small ones of the same form stand in for them.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from data_graphs import LR, F, instance

from ampc import frontend, lower
from ampc.data import find, read
from ampc.data.recipes import RECIPES, babi15, images, list_reduction, made_up, sst
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph

IMAGES = {n: instance(F("image", "float", columns=n), F("label", "int", below=10)) for n in (64, 784)}
TREE = instance(
    F("word", "int", "node", below=18281, optional=True),
    F("left", "index", "node", of="node", optional=True),
    F("right", "index", "node", of="node", optional=True),
    F("label", "int", "node", below=5),
    axes="node",
)
STORY = instance(
    F("asked", "float", "node"),
    F("name", "int", "node", below=54),
    F("source", "index", "edge", of="node"),
    F("target", "index", "edge", of="node"),
    F("kind", "int", "edge", below=2),
    F("question", "index", of="node"),
    F("answer", "int", below=54),
    axes="node, edge",
)
QM9 = instance(
    F("feature", "float", "atom", columns=5),
    F("source", "index", "bond", of="atom"),
    F("target", "index", "bond", of="atom"),
    F("kind", "int", "bond", below=4),
    F("dipole", "float"),
    axes="atom, bond",
)


def rows(folder: Path, split: str) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = pq.read_table(folder / f"{split}.parquet").to_pylist()
    return out


def meta(folder: Path) -> dict[str, Any]:
    out: dict[str, Any] = json.loads((folder / "meta.json").read_text())
    return out


def refused(name: str, *args: Any, **more: Any) -> str:
    with pytest.raises(AmpError) as caught:
        RECIPES[name].make(*args, **more)
    (d,) = caught.value.diagnostics
    return f"{d.code} {d.message}"


# -------------------------------------------------------------------------------------------------- list reduction


def rule(symbols: list[int]) -> int:
    """The task in plain Python."""
    digits = symbols[1:]

    def mean(x: list[int]) -> float:
        return sum(x) / len(x) if x else 0.0

    match symbols[0] - 10:
        case 0:
            result = mean(digits)
        case 1:
            result = mean(digits[0::2]) - mean(digits[1::2])
        case 2:
            result = max(digits) - min(digits)
        case _:
            result = len(digits)
    return round(result) % 10


def test_list_reduction_follows_its_rule(tmp_path: Path) -> None:
    files = RECIPES["list_reduction"].make(tmp_path / "d", options={"train": 3000, "valid": "500"}, seed=3)
    assert [f.name for f in files] == ["README.md", "meta.json", "train.parquet", "valid.parquet"]
    for split, n in (("train", 3000), ("valid", 500)):
        found = rows(tmp_path / "d", split)
        assert len(found) == n
        for row in found:
            assert 10 <= row["symbol"][0] < 14 and all(0 <= s < 10 for s in row["symbol"][1:]) and 2 <= len(row["symbol"]) <= 10
            assert row["label"] == rule(row["symbol"])
    assert read(find(tmp_path / "d", ("train", "valid"))["valid"], LR).n == 500


def test_list_reduction_rounds_halves_to_even() -> None:
    digits = np.zeros((3, 9), np.int64)
    digits[0, :2], digits[1, :2], digits[2, :1] = (0, 1), (1, 2), (7,)
    assert list_reduction.labels(digits, np.array([2, 2, 1]), np.array([0, 0, 1])).tolist() == [0, 2, 7]


def test_list_reduction_is_made_in_full_in_three_seconds_with_its_split(tmp_path: Path) -> None:
    begin = time.process_time()
    RECIPES["list_reduction"].make(tmp_path / "d")
    assert time.process_time() - begin < 3
    train = {tuple(s) for s in pq.read_table(tmp_path / "d/train.parquet")["symbol"].to_pylist()}
    valid = [tuple(s) for s in pq.read_table(tmp_path / "d/valid.parquet")["symbol"].to_pylist()]
    assert not any(s in train for s in valid if len(s) - 1 >= list_reduction.DISJOINT_FROM)
    counted = {str(k): sum(s in train for s in valid if len(s) - 1 == k) for k in range(1, 10)}
    assert meta(tmp_path / "d")["valid_also_in_train_by_digits"] == counted
    lengths = np.bincount([len(s) - 1 for s in valid], minlength=10)[1:]
    assert lengths.min() > 950 and lengths.max() < 1280, "uniform 1..9"


def test_seeds_repeat_and_differ(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        RECIPES["list_reduction"].make(tmp_path / name, options={"train": 50, "valid": 5}, seed=seed)
    a, b, c = ((tmp_path / n / "train.parquet").read_bytes() for n in "abc")
    assert a == b != c


# ------------------------------------------------------------------------------------------------------ images


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    folder = tmp_path / "mnist"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for stem, n in (("train", 20), ("t10k", 6)):
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(rng.integers(0, 256, (n, 28, 28)))))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(n) % 10)))
    return folder


def test_mnist_is_scaled_and_split_as_in_the_paper(mnist: Path, tmp_path: Path) -> None:
    RECIPES["mnist"].make(tmp_path / "d", mnist)
    data = read(tmp_path / "d/valid.parquet", IMAGES[784])
    pixels = images.read_idx(mnist / "t10k-images-idx3-ubyte.gz").reshape(6, 784)
    assert np.array_equal(data.columns["image"], pixels.astype(np.float32) / np.float32(255))
    assert data.columns["label"].tolist() == [0, 1, 2, 3, 4, 5] and len(rows(tmp_path / "d", "train")) == 20
    RECIPES["mnist"].make(tmp_path / "h", mnist, {"holdout": 5})
    assert [len(rows(tmp_path / "h", s)) for s in ("train", "valid", "test")] == [15, 5, 6]
    assert refused("mnist", tmp_path / "x", mnist, {"holdout": 20}) == "AMP820 the option `holdout` is 20, but there are only 20 training images"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it doesn't begin like an IDX file of bytes"),
        (b"\0\0\x0d\x03", "it doesn't begin like an IDX file of bytes"),
        (b"\0\0\x08\x03\0\0", "its head says 0, but only 0 bytes follow"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 6, 28, 28) + b"1234", "its head says 6 x 28 x 28, but only 4 bytes follow"),
        (b"\0\0\x08\x01" + struct.pack(">I", 2) + b"123", "its head says 2, but more bytes follow"),
        (b"\0\0\x08\x03" + struct.pack(">3I", 2**31, 28, 28), "it claims to hold 1,683,627,180,032 bytes"),
        (b"\0\0\x08\x02" + struct.pack(">2I", 6, 1) + b"123456", "its shape is 6 x 1, expected n x 28 x 28"),
        (
            gzip.compress(b"\0\0\x08\x03" + struct.pack(">3I", 6, 28, 28) + bytes(range(256)) * 20)[:-40],
            "compressed file ended before the end-of-stream marker was reached",
        ),
        (b"\x1f\x8b" + b"\0" * 20, "unknown compression method"),
    ],
)
def test_damaged_idx_files_are_named(mnist: Path, tmp_path: Path, content: bytes, why: str) -> None:
    path = mnist / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    assert refused("mnist", tmp_path / "d", mnist) == f"AMP822 `{path}` isn't what was expected: {why}"
    assert sorted(os.listdir(tmp_path)) == ["mnist"], "nothing is left behind"


def test_missing_source_files_are_named(mnist: Path, tmp_path: Path) -> None:
    (mnist / "train-labels-idx1-ubyte.gz").unlink()
    assert refused("mnist", tmp_path / "d", mnist).startswith(f"AMP822 `{mnist}` has no `train-labels-idx1-ubyte.gz` or ")
    assert refused("mnist", tmp_path / "d") == "AMP822 the recipe `mnist` needs the folder with the original files"
    assert refused("mnist", tmp_path / "d", tmp_path / "no") == f"AMP822 there is no source folder `{tmp_path / 'no'}`"
    assert refused("list_reduction", tmp_path / "d", mnist) == "AMP822 the recipe `list_reduction` makes its data itself and takes no source folder"


def test_digits_come_with_scikit_learn(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    RECIPES["digits"].make(tmp_path / "d", options={"valid": 300})
    train, valid = (read(tmp_path / f"d/{s}.parquet", IMAGES[64]) for s in ("train", "valid"))
    assert (train.n, valid.n) == (1497, 300)
    assert train.columns["image"].min() == 0 and train.columns["image"].max() == 1


def test_digits_without_scikit_learn_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(AmpError) as caught:
        RECIPES["digits"].make(tmp_path / "d")
    assert caught.value.diagnostics[0].code == "AMP823" and caught.value.diagnostics[0].help == "pip install 'ampc[digits]'"


# ------------------------------------------------------------------------------------------------------- trees


def test_a_tree_lies_children_first() -> None:
    words, left, right, labels = sst.parse_tree("(3 (2 It) (4 (2 's) (3 1\xa01/2)))")
    assert words == ["It", "'s", "1\xa01/2", None, None]
    assert left == [None, None, None, 1, 0] and right == [None, None, None, 2, 3] and labels == [2, 2, 3, 4, 3]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(3 (2 a) (2 b)", "the tree isn't closed"),
        ("(3 (2 a)))", "a node has 1 children and 0 words, expected two children or one word"),
        ("(2 a))", "something follows the tree"),
        ("(2 a) (2 b)", "something follows the tree"),
        ("(7 a)", "a bracket has no label 0..4"),
        ("a", "a word stands outside the tree"),
        (")", "a bracket is closed that wasn't opened"),
        ("(2 a b)", "a node has 0 children and 2 words, expected two children or one word"),
        ("(", "a bracket has no label 0..4"),
    ],
)
def test_wrong_trees_say_why(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"(2 a)\n{text}\n")
    assert refused("sst", tmp_path / "d", tmp_path) == f"AMP822 `{path}` isn't what was expected: line 2: {why}"


def test_sst_has_a_vocabulary_and_unknown_words(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "train.txt.gz").write_bytes(gzip.compress(b"(3 (2 The) (2 film))\n(1 (1 film) (2 (2 the) (2 .)))\n"))
    (source / "dev.txt").write_text("(2 (2 film) (2 new))\n")
    (source / "test.txt").write_text("(2 The)\n")
    RECIPES["sst"].make(tmp_path / "d", source)
    assert (tmp_path / "d/vocabulary.txt").read_text().split() == ["<unknown>", "film", "The", "the", "."]
    assert rows(tmp_path / "d", "valid") == [{"word": [1, 0, None], "left": [None, None, 0], "right": [None, None, 1], "label": [2, 2, 2]}]
    assert meta(tmp_path / "d")["unknown_words"] == {"train": 0, "valid": 1, "test": 0} and meta(tmp_path / "d")["vocabulary"] == 5
    data = read(tmp_path / "d/train.parquet", TREE)
    assert data.lengths("node").tolist() == [3, 5]
    RECIPES["sst"].make(tmp_path / "l", source, {"lower": "yes", "min_count": 2})
    assert (tmp_path / "l/vocabulary.txt").read_text().split() == ["<unknown>", "the", "film"]
    assert rows(tmp_path / "l", "train")[1]["word"] == [2, 1, 0, None, None]


# ------------------------------------------------------------------------------------------------------- babi

STORY_TEXT = "1 1 2\n3 1 4\n2 2 4\n4 2 2\n? 1 1 4\n? 1 3 2\n"


def test_babi_reads_stories_and_mends_the_exchange_of_kinds(tmp_path: Path) -> None:
    swapped = "1 2 2\n3 2 4\n2 1 4\n4 1 2\n? 1 1 4\n? 1 3 2\n"
    for name, text in (("fold01_train", STORY_TEXT), ("fold01_test", STORY_TEXT), ("fold03_train", swapped), ("fold03_test", swapped)):
        (tmp_path / f"{name}_graphs.txt").write_text(f"{text}\n{text}\n")
    for fold in (1, 3):
        RECIPES["babi15"].make(tmp_path / f"d{fold}", tmp_path, {"fold": fold, "train": 1})
        assert rows(tmp_path / f"d{fold}", "train") == [
            {
                "asked": [1, 0, 0, 0],
                "name": [0, 1, 2, 3],
                "source": [0, 2, 1, 3],
                "target": [1, 3, 3, 1],
                "kind": [0, 0, 1, 1],
                "question": 0,
                "answer": 3,
            },
            {
                "asked": [0, 0, 1, 0],
                "name": [0, 1, 2, 3],
                "source": [0, 2, 1, 3],
                "target": [1, 3, 3, 1],
                "kind": [0, 0, 1, 1],
                "question": 2,
                "answer": 1,
            },
        ]
    RECIPES["babi15"].make(tmp_path / "h", tmp_path, {"train": 1, "holdout": 1, "both_ways": True})
    assert [len(rows(tmp_path / "h", s)) for s in ("train", "valid", "test")] == [2, 2, 4]
    assert rows(tmp_path / "h", "train")[0]["kind"] == [0, 0, 1, 1, 2, 2, 3, 3] and meta(tmp_path / "h")["kinds"] == 4
    assert refused("babi15", tmp_path / "x", tmp_path, {"train": 3}) == "AMP820 `train` and `holdout` ask for 3 and 0 stories, the fold has 2"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 1\n", "line 1: expected `s e t` or `? q n a`"),
        ("1 x 2\n", "line 1: expected `s e t` or `? q n a`"),
        ("\n\n", "it has no story"),
        ("1 1 2\n\n", "line 2: the story before it lacks edges or questions, or has numbers that are too small or kinds beyond 1 and 2"),
        (STORY_TEXT.replace("? 1 1 4", "? 1 1 3"), "its answers don't follow from its edges, whichever of the two kinds is taken first"),
    ],
)
def test_wrong_stories_say_why(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "fold01_train_graphs.txt"
    path.write_text(text)
    assert refused("babi15", tmp_path / "d", tmp_path) == f"AMP822 `{path}` isn't what was expected: {why}"


def test_inflated_stories_follow_the_rule(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        story = babi15.inflate(rng, 54, 5)
        first = {a: b for a, k, b in story.edges if k == 0}
        second = {a: b for a, k, b in story.edges if k == 1}
        assert len(first) == len(set(first.values())) == 27 and set(first.values()) == set(second)
        assert all(a != b for a, b in second.items()) and babi15.answers(story) and len({q for q, _ in story.questions}) == 5
    RECIPES["babi15_inflated"].make(tmp_path / "d", options={"train": 10, "valid": 3})
    data = read(tmp_path / "d/train.parquet", STORY)
    assert data.n == 40 and set(data.lengths("node").tolist()) == {54}
    assert data.columns["asked"].sum() == 40
    assert refused("babi15_inflated", tmp_path / "x", options={"nodes": 7}) == "AMP820 the option `nodes` is 7, expected an even number"
    assert "has 2 individuals" in refused("babi15_inflated", tmp_path / "x", options={"nodes": 4})


# -------------------------------------------------------------------------------------------------------- qm9


@pytest.fixture
def molecules(tmp_path: Path) -> Path:
    folder = tmp_path / "qm9"
    folder.mkdir()
    u8 = np.uint8
    np.savez(
        folder / "qm9_graphs.npz", n_atoms=np.array([3, 2, 1], u8), n_bonds=np.array([2, 1, 0], u8), atoms=np.array([3, 0, 0, 1, 2, 4], u8),
        bond_a=np.array([0, 0, 0], u8), bond_b=np.array([1, 2, 1], u8), bond_type=np.array([0, 0, 2], u8),
    )  # fmt: skip
    np.savez(
        folder / "qm9_targets.npz", gdb_index=np.array([3, 5, 8], np.int32), values=np.array([[18000, 30000, 0]], np.int32), scale=np.array([1e4])
    )
    (folder / "valid_idx_ggnn.txt").write_text("5\n99\n")
    return folder


def test_qm9_has_bonds_both_ways_and_a_scaled_target(molecules: Path, tmp_path: Path) -> None:
    RECIPES["qm9"].make(tmp_path / "d", molecules)
    assert rows(tmp_path / "d", "valid") == [
        {"feature": [[0, 1, 0, 0, 0], [0, 0, 1, 0, 0]], "element": [1, 2], "source": [0, 1], "target": [1, 0], "kind": [2, 2],
         "dipole": pytest.approx((3.0 - 0.9) / 0.9), "dipole_debye": 3.0}
    ]  # fmt: skip
    assert meta(tmp_path / "d")["dipole_mean"] == pytest.approx(0.9) and meta(tmp_path / "d")["dipole_std"] == pytest.approx(0.9)
    data = read(tmp_path / "d/train.parquet", QM9)
    assert sorted(data.lengths("bond").tolist()) == [0, 4] and np.allclose(np.sort(data.columns["dipole"][:, 0]), [-1, 1])
    assert len(rows(tmp_path / "d", "train")) == 2
    RECIPES["qm9"].make(tmp_path / "l", molecules, {"limit": 1})
    assert len(rows(tmp_path / "l", "train")) == 1


def test_damaged_molecules_are_refused(molecules: Path, tmp_path: Path) -> None:
    path = molecules / "qm9_graphs.npz"
    whole = dict(np.load(path))
    np.savez(path, **(whole | {"bond_b": np.array([1, 3, 1], np.uint8)}))
    assert refused("qm9", tmp_path / "d", molecules) == f"AMP822 `{path}` isn't what was expected: an atom, bond or element is out of range"
    np.savez(path, **(whole | {"n_atoms": np.array([3, 2, 2], np.uint8)}))
    assert refused("qm9", tmp_path / "d", molecules).endswith("its counts of atoms and bonds don't fit its flat arrays")
    np.savez(path, **{k: v for k, v in whole.items() if k != "atoms"})
    assert refused("qm9", tmp_path / "d", molecules).endswith("it has no array `atoms`")
    np.savez(path, **(whole | {"atoms": np.array([object()])}), allow_pickle=True)
    assert refused("qm9", tmp_path / "d", molecules).startswith("AMP822 ")
    path.write_bytes(path.read_bytes()[:100])
    assert refused("qm9", tmp_path / "d", molecules) == f"AMP822 `{path}` isn't what was expected: file is not a zip file"


# ------------------------------------------------------------------------------------------- folders and options


def test_an_occupied_folder_is_kept_unless_forced(tmp_path: Path) -> None:
    out = tmp_path / "d"
    out.mkdir()
    small = {"train": 5, "valid": 2}
    RECIPES["list_reduction"].make(out, options=small)
    before = (out / "train.parquet").read_bytes()
    assert refused("list_reduction", out, options=small, seed=1) == f"AMP821 the folder `{out}` isn't empty"
    assert (out / "train.parquet").read_bytes() == before
    (out / "mine.txt").write_text("keep")
    (out / "test.parquet").write_text("of another set")
    RECIPES["list_reduction"].make(out, options=small, seed=1, force=True)
    assert (out / "train.parquet").read_bytes() != before
    assert sorted(os.listdir(out)) == ["README.md", "meta.json", "mine.txt", "train.parquet", "valid.parquet"]
    (tmp_path / "file").write_text("")
    assert refused("list_reduction", tmp_path / "file") == f"AMP821 `{tmp_path / 'file'}` is a file, expected a folder to write into"


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet

    real, calls = pyarrow.parquet.write_table, []

    def failing(*args: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(*args, **more)

    monkeypatch.setattr(pyarrow.parquet, "write_table", failing)
    with pytest.raises(AmpError) as caught:
        RECIPES["list_reduction"].make(tmp_path / "d", options={"train": 5, "valid": 2})
    assert caught.value.exit_code == 4 and "no space left on device" in caught.value.diagnostics[0].message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trian": 5}, "the recipe `list_reduction` has no option `trian`"),
        ({"train": "many"}, "the option `train` is 'many', expected a whole number 1..1e+07"),
        ({"train": 0}, "the option `train` is '0', expected a whole number 1..1e+07"),
        ({"train": 1.5}, "the option `train` is '1.5', expected a whole number 1..1e+07"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert refused("list_reduction", tmp_path / "d", options=options) == f"AMP820 {message}"


def test_flags_take_words(tmp_path: Path) -> None:
    recipe = RECIPES["sst"]
    assert recipe.checked({"lower": "yes"})["lower"] is True and recipe.checked({"lower": False})["lower"] is False
    with pytest.raises(AmpError, match="expected true or false"):
        recipe.checked({"lower": "perhaps"})
    assert refused("list_reduction", tmp_path / "d", seed=-1) == "AMP820 the seed is -1, expected a whole number of 0 or more"


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_explains_itself(name: str) -> None:
    recipe = RECIPES[name]
    assert recipe.name == name and recipe.help and recipe.help[0].islower()
    assert all(o.help for o in recipe.options)


# ------------------------------------------------------------------------------------------------ bundled models

MODELS = Path(__file__).parents[2] / "models"


def graph_of(model: str, **overrides: int) -> Graph:
    parsed = frontend.parse((MODELS / f"{model}.amp").read_text(), f"{model}.amp")
    frontend.check(parsed)
    return lower.lower(parsed, dict(overrides))


@pytest.mark.parametrize("name", sorted(made_up.TASKS))
def test_made_up_tasks_fit_their_models(name: str, tmp_path: Path) -> None:
    RECIPES[name].make(tmp_path / "d", options={"train": 200, "valid": 20})
    graph = graph_of(name)
    files = find(tmp_path / "d", ("train", "valid"))
    data = read(files["train"], graph)
    assert data.n == 200 and read(files["valid"], graph).n == 20
    label = next((f.name for f in graph.fields if f.name in ("label", "tag", "alarm")), None)
    if label:
        assert len(np.unique(data.columns[label])) == (graph.field[label].below or 2), "every class occurs"


def test_published_data_fit_their_models(mnist: Path, molecules: Path, tmp_path: Path) -> None:
    (molecules / "train.txt").write_text("(3 (2 The) (2 film))\n")
    (molecules / "dev.txt").write_text("(2 new)\n")
    (molecules / "test.txt").write_text("(2 film)\n")
    for part in ("train", "test"):
        (molecules / f"fold01_{part}_graphs.txt").write_text(STORY_TEXT)
    for name, source, options in (("mnist", mnist, {}), ("qm9", molecules, {}), ("sst", molecules, {}), ("babi15", molecules, {"train": 1})):
        RECIPES[name].make(tmp_path / "out" / name, source, options)
        read(find(tmp_path / "out" / name)["train"], graph_of(RECIPES[name].model))
    small = {"train": 3, "valid": 1}
    RECIPES["babi15_inflated"].make(tmp_path / "b", options=small)
    assert read(find(tmp_path / "b")["train"], graph_of("babi15_ggsnn", names=54)).n == 12
    RECIPES["list_reduction"].make(tmp_path / "l", options=small)
    assert read(find(tmp_path / "l")["train"], graph_of("list_reduction")).n == 3


def test_every_model_has_data() -> None:
    assert {r.model for r in RECIPES.values()} == {p.stem for p in MODELS.glob("*.amp")}
