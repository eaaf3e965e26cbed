"""Checkpoints and weights: whole or not at all, found again behind damaged ones, refused by name and shape where they don't fit."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph, Layer, Param
from ampc.ir.nodes import Region
from ampc.runtime import checkpoint, weights
from ampc.runtime.checkpoint import State

SHAPES = {"w.w": (2, 3), "w.b": (3,)}


def arrays(value: float) -> weights.Arrays:
    return {"w.w": np.full((2, 3), value, np.float32), "w.b": np.full(3, value, np.float32)}


def save(folder: Path, n: int, *, keep: int = 3, best: int | None = None, program: str = "p") -> Path:
    state = State(step=n, instances=10 * n, epoch=n, done_in_epoch=0, seed=1, rows=10, shuffle=True, learning_rate=0.1, elapsed_s=1.0, best_step=best)
    return checkpoint.write(folder, program, state, arrays(n), {"m": np.full(2, n, np.float32)}, np.arange(n), keep=keep)


def load(folder: Path) -> checkpoint.Checkpoint:
    return checkpoint.load(folder, "p", SHAPES)


def test_round_trip(tmp_path: Path) -> None:
    save(tmp_path, 1)
    found = load(tmp_path)
    assert found.state.instances == 10 and found.warnings == ()
    assert found.weights["w.w"].tobytes() == arrays(1)["w.w"].tobytes()
    assert list(found.optimizer["m"]) == [1, 1] and list(found.ledger) == [0]
    index = json.loads((found.path / "index.json").read_text())
    assert index["version"] == 1 and {f["name"] for f in index["files"]} == {"weights.safetensors", "optimizer.safetensors", "ledger.safetensors"}


def test_the_last_three_and_the_best_are_kept(tmp_path: Path) -> None:
    for n in range(1, 8):
        save(tmp_path, n, best=2 if n >= 2 else None)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["000002", "000005", "000006", "000007"]
    assert checkpoint.next_step(tmp_path) == 8


def cut(size: float) -> Callable[[Path], str]:
    def damage(path: Path) -> str:
        file = path / "weights.safetensors"
        file.write_bytes(file.read_bytes()[: int(size * file.stat().st_size)])
        return "weights.safetensors"

    return damage


def flip(path: Path) -> str:
    content = bytearray((path / "optimizer.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "optimizer.safetensors").write_bytes(content)
    return "optimizer.safetensors"


def no_index(path: Path) -> str:
    (path / "index.json").unlink()
    return "index.json"


def bad_index(path: Path) -> str:
    (path / "index.json").write_text("[" * 100_000)
    return "index.json"


def other_index(path: Path) -> str:
    index = json.loads((path / "index.json").read_text())
    index["files"][0]["name"] = "../../secret"
    (path / "index.json").write_text(json.dumps(index))
    return "index.json"


def newer_index(path: Path) -> str:
    (path / "index.json").write_text((path / "index.json").read_text().replace('"version": 1', '"version": 2'))
    return "index.json"


def empty(path: Path) -> str:
    shutil.rmtree(path)
    path.mkdir()
    return "index.json"


def missing_file(path: Path) -> str:
    (path / "ledger.safetensors").unlink()
    return "ledger.safetensors"


DAMAGES = [cut(0), cut(0.5), flip, no_index, bad_index, other_index, newer_index, empty, missing_file]
NAMES = ["cut_to_0", "cut_in_half", "flipped", "no_index", "bad_index", "other_index", "newer_index", "empty", "missing_file"]


@pytest.mark.parametrize("damage", DAMAGES, ids=NAMES)
def test_damaged_checkpoint_is_named_and_the_older_one_is_used(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    for n in (1, 2, 3):
        save(tmp_path, n)
    bad = damage(tmp_path / "checkpoints" / "000003")
    said: list[str] = []
    found = checkpoint.load(tmp_path, "p", SHAPES, said.append)
    assert found.state.step == 2 and len(said) == 1 and found.warnings == tuple(said)
    assert f"000003/{bad}" in said[0] and "going back to an older checkpoint" in said[0]
    for n in (1, 2):
        damage(tmp_path / "checkpoints" / f"00000{n}")
    with pytest.raises(AmpError, match=r"AMP708.*none of the 3 checkpoints") as e:
        load(tmp_path)
    assert len(e.value.diagnostics[0].notes) == 3 and e.value.exit_code == 1


def test_every_flipped_byte_of_a_file_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "checkpoints" / "000002" / "weights.safetensors"
    content = path.read_bytes()
    for i in range(len(content)):
        path.write_bytes(content[:i] + bytes([content[i] ^ 0x10]) + content[i + 1 :])
        assert load(tmp_path).state.step == 1


def test_a_kill_while_writing_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system call of a write fails once; the older checkpoint always loads, and what was left is swept away by the next write."""
    save(tmp_path, 1)
    calls = ["open", "fsync", "rename"]
    for name in calls:
        for nth in range(20):
            seen = 0
            real = getattr(os, name)

            def failing(*args: object, real: Callable[..., object] = real, nth: int = nth, **kw: object) -> object:
                nonlocal seen
                seen += 1
                if seen == nth + 1:
                    raise OSError(5, "Input/output error")
                return real(*args, **kw)

            monkeypatch.setattr(os, name, failing)
            try:
                save(tmp_path, 2)
                failed = False
            except AmpError as e:
                failed = True
                assert e.exit_code == 4 and e.diagnostics[0].code == "AMP730" and "000002" in e.diagnostics[0].message
            monkeypatch.undo()
            assert load(tmp_path).state.step in (1, 2)
            shutil.rmtree(tmp_path / "checkpoints" / "000002", ignore_errors=True)
            if not failed:
                break
    (tmp_path / "checkpoints" / ".tmp-000009-1").mkdir()
    save(tmp_path, 2)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["000001", "000002"]


def test_checkpoint_of_another_program_is_refused_with_shapes(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(AmpError) as e:
        checkpoint.load(tmp_path, "other", {"w.w": (2, 64), "v.b": (3,)})
    (d,) = e.value.diagnostics
    assert d.code == "AMP709"
    assert d.notes == (
        "`w.w` has shape [2, 3], the program wants [2, 64]",
        "`v.b` [3] is missing in the checkpoint",
        "`w.b` [3] is in the checkpoint, but not in the program",
    )
    with pytest.raises(AmpError, match=r"AMP709") as e:
        checkpoint.load(tmp_path, "other", SHAPES)
    assert "--init" in str(e.value.diagnostics[0].help)


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match=r"AMP708.*is no run folder"):
        load(tmp_path / "absent")
    with pytest.raises(AmpError, match=r"AMP708.*holds no finished checkpoint"):
        load(tmp_path)


# ------------------------------------------------------------------------------------------ weights

G = Graph(
    name="g",
    axes=(),
    fields=(),
    layers=(
        Layer("embed", "embedding", (Param("table", (5, 2)),)),
        Layer("step", "linear", (Param("w", (2, 3)), Param("b", (3,)))),
        Layer("m.0", "linear", (Param("w", (3, 3)),)),
        Layer("m.1", "linear", (Param("w", (3, 3)),)),
    ),
    regions=(Region(0, "instance"),),
    nodes=(),
)


def drawn() -> weights.Arrays:
    rng = np.random.default_rng(0)
    return {n: rng.normal(size=s).astype(np.float32) for n, s in weights.shapes(G).items()}


def same(a: weights.Arrays, b: weights.Arrays) -> bool:
    return a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() for n in a)


def test_weights_round_trip(tmp_path: Path) -> None:
    weights.save_weights(tmp_path / "w.safetensors", drawn())
    loaded, left = weights.load_weights(tmp_path / "w.safetensors", G)
    assert same(loaded, drawn()) and left == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["w.safetensors"]


def test_names_and_shapes_have_to_agree(tmp_path: Path) -> None:
    a = drawn()
    a["stpe.b"] = a.pop("step.b")
    a["embed.table"] = np.zeros((5, 9), np.float32)
    weights.save_weights(tmp_path / "w.safetensors", a)
    with pytest.raises(AmpError) as e:
        weights.load_weights(tmp_path / "w.safetensors", G)
    (d,) = e.value.diagnostics
    assert d.code == "AMP710" and d.notes == (
        "`embed.table` has shape [5, 9], the program wants [5, 2]",
        "`step.b` [3] is missing in the file",
        "`stpe.b` [3] is in the file, but the program has no such parameter (did you mean `step.b`?)",
    )
    with pytest.raises(AmpError, match=r"AMP710"):
        weights.load_weights(tmp_path / "w.safetensors", G, partial=True)


def test_partial_load_lists_what_was_left(tmp_path: Path) -> None:
    a = drawn()
    a["stpe.b"] = a.pop("step.b")
    weights.save_weights(tmp_path / "w.safetensors", a)
    loaded, left = weights.load_weights(tmp_path / "w.safetensors", G, partial=True)
    assert left == ["step.b", "stpe.b"] and "step.b" not in loaded
    with pytest.raises(AmpError, match=r"AMP710"):
        weights.fit({"zzz": np.zeros(1, np.float32)}, weights.shapes(G), "f", partial=True)
    with pytest.raises(AmpError, match=r"AMP710"):
        weights.fit({**drawn(), "step.b": np.zeros(3, np.int64)}, weights.shapes(G), "f")


def test_other_floating_point_widths_are_converted() -> None:
    loaded, _ = weights.fit({n: a.astype(np.float64) for n, a in drawn().items()}, weights.shapes(G), "f")
    assert same(loaded, drawn())


def header(text: str, payload: bytes = b"") -> bytes:
    return struct.pack("<Q", len(text)) + text.encode() + payload


ONE = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        b"PK\x03\x04 a zip file of PyTorch",
        struct.pack("<Q", 2**60) + b"{}",
        header("not json"),
        header("{" + ONE + "}", b"\0\0"),
        header("{" + ONE + "}", b"\0" * 8),
        header("{" + ONE + "," + ONE + "}", b"\0" * 4),
        header('{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', b"\0" * 4),
        header('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b"\0" * 4),
        header('{"a":' * 50_000),
    ],
)
def test_unsound_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(content)
    with pytest.raises(AmpError, match=r"AMP711.*w.safetensors` is no sound safetensors file"):
        weights.load_weights(tmp_path / "w.safetensors", G)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match=r"AMP711.*absent.safetensors` can't be read: no such file"):
        weights.load_weights(tmp_path / "absent.safetensors", G)


def test_one_layer_from_a_file_of_its_own(tmp_path: Path) -> None:
    vectors = np.arange(10, dtype=np.float32).reshape(5, 2)
    weights.save_weights(tmp_path / "v.safetensors", {"glove": vectors})
    found, _ = weights.initialise([f"embed={tmp_path / 'v.safetensors'}"], G)
    assert list(found) == ["embed.table"] and (found["embed.table"] == vectors).all()
    weights.save_weights(tmp_path / "s.safetensors", {"w": drawn()["step.w"], "b": drawn()["step.b"]})
    found, _ = weights.initialise([f"step={tmp_path / 's.safetensors'}"], G)
    assert same(found, {n: drawn()[n] for n in ("step.w", "step.b")})
    with pytest.raises(AmpError, match=r"AMP705.*no layer `embd`"):
        weights.initialise([f"embd={tmp_path / 'v.safetensors'}"], G)
    with pytest.raises(AmpError, match=r"AMP710"):
        weights.initialise([f"step={tmp_path / 'v.safetensors'}"], G)


def test_pytorch_names_and_orientation(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('step = "rnn.cell"\n"embed.table" = "tok"\nm = "heads"\n')
    names = weights.name_map(G, tmp_path / "map.toml")
    assert names == {
        "embed.table": "tok",
        "step.w": "rnn.cell.weight",
        "step.b": "rnn.cell.bias",
        "m.0.w": "heads.0.weight",
        "m.1.w": "heads.1.weight",
    }
    state = weights.to_torch(drawn(), G, names)
    assert state["rnn.cell.weight"].shape == (3, 2) and state["tok"].shape == (5, 2)
    back, left = weights.from_torch(state, G, names, "f")
    assert same(back, drawn()) and left == []
    weights.save_weights(tmp_path / "t.safetensors", weights.to_torch(drawn(), G, weights.name_map(G, None)))
    found, _ = weights.initialise([str(tmp_path / "t.safetensors")], G, names=Path("torch"))
    assert same(found, drawn())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("stpe = 'a'", "`stpe` in .* is neither a layer nor a parameter"),
        ("step = 3", "expects one text for each name"),
        ("step", "can't be read"),
        ('"step.w" = "a"\n"step.b" = "a"', "two parameters share the name `a`"),
    ],
)
def test_wrong_name_map(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(AmpError, match=r"AMP712.*" + part):
        weights.name_map(G, tmp_path / "map.toml")
