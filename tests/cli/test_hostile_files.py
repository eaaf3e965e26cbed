"""Targets, profiles, traces and settings files that were damaged in any way: one clear error and a code by convention, never a bug report."""

from __future__ import annotations

import json
import random
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ampc.cli.main import main
from tests.support import MODELS, random_rows, small
from tests.trace_samples import pipeline

ROOT = Path(__file__).parents[2]
MODEL = str(MODELS / "list_reduction.amp")
WRONG: tuple[Any, ...] = (None, True, -1, 0, 1e-300, 1e300, "", "x\n\x00", "größe", [], [1], {}, {"fp32": "x"}, 10**30, [[[[1]]]], float("inf"))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *args: str, codes: tuple[int, ...] = (0, 1)) -> str:
    """Run a command; return what went to standard error, where it ends in a mistake that is told by convention."""
    code = main(list(args))
    err = capsys.readouterr().err
    assert code in codes, (code, args, err)
    assert "Traceback" not in err and "AMP970" not in err, err
    assert code == 0 or "error[AMP" in err, err
    return err


def damaged(text: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few of them changed, cut out, repeated, or the end missing."""
    data = bytearray(text)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randrange(1, 20)]
            case 2:
                data[at:at] = data[at : at + rng.randrange(1, 20)]
            case 3:
                data[at:at] = rng.choice([b"[", b"]", b'"', b"{", b"\n", b"nan", b"-", b"9" * 30, b"\xff"])
            case _:
                del data[at:]
    return bytes(data)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value inside of a JSON value."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*at, key))


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a place; `...` takes it away."""
    copy = json.loads(json.dumps(value))
    inside = copy
    for key in at[:-1]:
        inside = inside[key]
    if new is ...:
        del inside[at[-1]]
    else:
        inside[at[-1]] = new
    return copy


def toml(value: Any) -> str:
    """Return a value as TOML, on one line."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return {float("inf"): "inf"}.get(value, repr(value))
        case int():
            return str(value)
        case str():
            return json.dumps(value)
        case list():
            return "[" + ", ".join(toml(v) for v in value) + "]"
        case dict():
            return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
        case _:
            return '"none"'


@pytest.mark.parametrize("name", ["cpu-2", "fpga_mesh_4x4", "cluster_2x16", "fpga_tiny_memory"])
def test_targets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "targets" / f"{name}.toml").read_bytes()
    rng, path = random.Random(name), Path("t.toml")
    for _ in range(15):
        path.write_bytes(damaged(text, rng))
        told(capsys, "check", "t.toml")
    good = tomllib.loads(text.decode())
    for at in places(good):
        for new in (..., rng.choice(WRONG)):
            path.write_text("\n".join(f"{json.dumps(k)} = {toml(v)}" for k, v in changed(good, at, new).items()), encoding="utf-8")
            told(capsys, "check", "t.toml")


def test_targets_that_are_taken_can_be_placed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """What `check` lets pass has no effect that placement or a simulation can't bear."""
    Path("d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in random_rows(small("list_reduction"), 4, seed=1)), encoding="utf-8")
    good = tomllib.loads((ROOT / "targets" / "fpga_mesh_4x4.toml").read_text(encoding="utf-8"))
    rng, path = random.Random(5), Path("t.toml")
    for at in rng.sample(list(places(good)), 12):
        new = rng.choice((1, 3, 1e-9, 1e12, 2.5))
        path.write_text("\n".join(f"{json.dumps(k)} = {toml(v)}" for k, v in changed(good, at, new).items()), encoding="utf-8")
        told(capsys, "simulate", MODEL, "--set", "hidden=4", "--target", "t.toml", "--data", "d.jsonl", "--cost-only", "--json")


def test_traces(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline().save("good")
    rng = random.Random(3)
    for table in ("firings", "taken", "messages", "instances"):
        for _ in range(12):
            shutil.rmtree("bad", ignore_errors=True)
            shutil.copytree("good", "bad")
            path = Path("bad") / f"{table}.parquet"
            path.write_bytes(damaged(path.read_bytes(), rng))
            told(capsys, "trace", "bad", "--json")
        path.unlink()
        told(capsys, "trace", "bad", codes=(1,))


def test_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(json.dumps(r) + "\n" for r in random_rows(small("list_reduction"), 8, seed=1))
    Path("d.jsonl").write_text(rows, encoding="utf-8")
    assert main(["compile", MODEL, "--set", "hidden=4", "-o", "m.ampx"]) == 0
    assert main(["run", "m.ampx", "--data", "d.jsonl", "--epochs", "1", "--profile", "-o", "run", "--quiet"]) == 0
    capsys.readouterr()
    path = Path("run/report/profile.json")
    text, rng = path.read_bytes(), random.Random(8)
    for _ in range(30):
        path.write_bytes(damaged(text, rng))
        told(capsys, "place", "m.ampx", "--profile", "run", "--json")
    good = json.loads(text)
    ways = list(places(good))
    path.write_text(json.dumps(changed(good, ("queues", 0, "seconds"), -1.0)), encoding="utf-8")
    assert "not from 0 to" in told(capsys, "place", "m.ampx", "--profile", "run", codes=(1,))
    for at in rng.sample(ways, min(30, len(ways))):
        new = rng.choice((..., *(w for w in WRONG if w != float("inf"))))
        path.write_text(json.dumps(changed(good, at, new)), encoding="utf-8")
        told(capsys, "place", "m.ampx", "--profile", "run", "--json")
