"""The manifest: round trip, the same bytes everywhere, atomic writing, and every way in which one can be wrong, with its message."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ampc.diagnostics import AmpError
from ampc.manifest import MAX_BYTES, Manifest, deepest, from_bytes, json_schema, load, save, to_bytes
from ampc.place import guess, load_target, place
from sample_graphs import list_reduction

Raw = dict[str, Any]


def manifest() -> Manifest:
    graph = list_reduction(hidden=8)
    target = load_target("cpu-2")
    return Manifest(graph, place(graph, target), target, guess(graph), {"list_reduction.amp": "0" * 64})


GOOD: Raw = json.loads(to_bytes(manifest()))


def test_round_trip(tmp_path: Path) -> None:
    m = manifest()
    save(m, tmp_path / "manifest.json")
    assert load(tmp_path / "manifest.json") == m
    assert load(tmp_path) == m
    assert to_bytes(load(tmp_path)) == to_bytes(m)


def test_format_and_version_stand_first() -> None:
    assert list(GOOD)[:3] == ["format", "version", "generator"]


def test_the_same_bytes_in_any_process() -> None:
    code = (
        "from ampc.compiler import compile_file; from ampc.manifest import to_bytes; import sys;"
        "sys.stdout.buffer.write(to_bytes(compile_file('sentiment_tree_lstm', target='cpu-4')))"
    )
    seen = set()
    for seed in ("0", "1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "HOME": f"/nowhere/{seed}", "USER": seed}
        seen.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout)
    assert len(seen) == 1


def test_no_path_of_this_machine_is_in_it() -> None:
    from ampc.compiler import compile_file

    text = to_bytes(compile_file(Path(__file__).parents[1] / "models" / "list_reduction.amp", target="cpu-1")).decode()
    assert str(Path(__file__).parents[1]) not in text
    assert json.loads(text)["sources"].keys() == {"list_reduction.amp"}


def test_writing_replaces_or_leaves_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("old")
    save(manifest(), file)
    assert load(file) == manifest()
    assert os.listdir(tmp_path) == ["manifest.json"]
    with pytest.raises(AmpError, match="AMP690.*no such file or directory") as caught:
        save(manifest(), tmp_path / "none" / "manifest.json")
    assert caught.value.exit_code == 4


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "manifest.json"
    file.write_text("old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AmpError, match="AMP690.*no space left on device"):
        save(manifest(), file)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_the_schema_names_every_field() -> None:
    text = json.dumps(json_schema())
    assert all(f'"{key}"' in text for key in GOOD)


# ------------------------------------------------------------------------------------------------ wrong manifests


def refused(content: bytes) -> tuple[str, str | None]:
    with pytest.raises(AmpError) as caught:
        from_bytes(content, "m.json")
    assert len(caught.value.diagnostics) == 1
    d = caught.value.diagnostics[0]
    return f"{d.code}: {d.message}", d.help


def changed(change: Callable[[Raw], object]) -> bytes:
    raw = copy.deepcopy(GOOD)
    change(raw)
    return json.dumps(raw).encode()


def put(path: str, value: object) -> Callable[[Raw], object]:
    """Return a change that sets `graph.nodes.3.op` to a value."""
    *way, last = path.split(".")

    def change(raw: Raw) -> None:
        at: Any = raw
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        at[int(last) if isinstance(at, list) else last] = value

    return change


def drop(path: str) -> Callable[[Raw], object]:
    *way, last = path.split(".")

    def change(raw: Raw) -> None:
        at: Any = raw
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        del at[last]

    return change


def index_of(kind: str, op: str = "") -> int:
    return next(i for i, n in enumerate(GOOD["graph"]["nodes"]) if n["kind"] == kind and n.get("op", "") == op)


LINEAR, RELU = index_of("PPT", "linear"), index_of("NPT", "relu")
WRONG: list[tuple[str, Callable[[Raw], object], str, str | None]] = [
    ("format", put("format", "onnx"), 'AMP604: `m.json` is not an ampc manifest: `$.format` must be "ampc-manifest"', "`ampc compile model.amp` writes a manifest"),
    ("format missing", drop("format"), 'AMP604: `m.json` is not an ampc manifest: `$.format` must be "ampc-manifest"', "`ampc compile model.amp` writes a manifest"),
    ("version", put("version", 1), "AMP605: `m.json` has version `1`, but this ampc reads version 2", "compile the model again"),
    ("version true", put("version", True), "AMP605: `m.json` has version `True`, but this ampc reads version 2", "compile the model again"),
    ("version missing", drop("version"), "AMP605: `m.json` has version none, but this ampc reads version 2", "compile the model again"),
    ("graph missing", drop("graph"), "AMP606: `$` of `m.json`: the field `graph` is missing", None),
    ("unknown field", put("graph.nods", []), "AMP606: `$.graph` of `m.json`: unknown field `nods`", "did you mean `nodes`?"),
    ("unknown kind", put(f"graph.nodes.{RELU}.kind", "NPTT"), f"AMP606: `$.graph.nodes[{RELU}].kind` of `m.json`: there is no kind `NPTT`", "did you mean `NPT`?"),
    ("wrong type", put(f"graph.nodes.{RELU}.id", "x"), f"AMP606: `$.graph.nodes[{RELU}].id` of `m.json`: expected `int`, got `str`", None),
    ("fraction", put(f"graph.nodes.{RELU}.id", 1.5), f"AMP606: `$.graph.nodes[{RELU}].id` of `m.json`: expected `int`, got `float`", None),
    ("null", put("graph.layers", None), "AMP606: `$.graph.layers` of `m.json`: expected `array`, got `null`", None),
    ("unknown field kind", put("graph.fields.0.kind", "text"), "AMP606: `$.graph.fields[0].kind` of `m.json`: `text` is not one of the allowed values", None),
    ("unknown operation", put(f"graph.nodes.{RELU}.op", "rleu"), f"AMP608: `$.graph.nodes[{RELU}].op` of `m.json`: there is no operation `rleu`", "did you mean `relu`?"),
    ("code as operation", put(f"graph.nodes.{RELU}.op", "__import__('os')"), f"AMP608: `$.graph.nodes[{RELU}].op` of `m.json`: there is no operation `__import__('os')`", None),
    ("huge columns", put(f"graph.nodes.{RELU}.outputs.0.cols", 2**21), f"AMP607: `$.graph.nodes[{RELU}].outputs[0].cols` of `m.json`: 2.09715e+06 is out of range; allowed are 0 to 1.04858e+06", None),
    ("negative columns", put(f"graph.nodes.{RELU}.outputs.0.cols", -1), f"AMP607: `$.graph.nodes[{RELU}].outputs[0].cols` of `m.json`: -1 is out of range; allowed are 0 to 1.04858e+06", None),
    ("huge integer", put("graph.parameters.hidden", 2**60), f"AMP607: `$.graph.parameters.hidden` of `m.json` is {2**60}; allowed are -{2**53} to {2**53}", None),
    ("long text", put("graph.name", "x" * 2000), "AMP607: `$.graph.name` of `m.json` has 2000 characters; allowed are 1000", None),
    ("half a character", put("graph.name", "\ud800"), "AMP607: `$.graph.name` of `m.json` holds half of a surrogate pair, which is no character", None),
    ("name", put("graph.name", "a b"), "AMP609: `$.graph` of `m.json`: model name `a b` is not an identifier of up to 64 letters, digits and underscores (AMP300)", None),
    ("path as name", put("graph.layers.0.name", "../../x"), "AMP609: `$.graph` of `m.json`: layer name `../../x` is not an identifier, perhaps with a member's number (AMP300)", None),
    ("layer", put(f"graph.nodes.{LINEAR}.layer", "stepp"), None, None),  # type: ignore[list-item]  # the verifier's words
    ("no such input", put(f"graph.nodes.{RELU}.inputs", [[999, 0]]), f"AMP609: `$.graph.nodes[{RELU}]` of `m.json`: node {RELU} (NPT `relu`): input 0 reads output 0 of node 999, which does not exist (AMP304)", None),
    ("node without device", drop("placement.device_of.0"), "AMP610: `$.placement.device_of` of `m.json`: node 0 has no device", None),
    ("device of no node", put("placement.device_of.999", 0), "AMP610: `$.placement.device_of` of `m.json`: the graph has no node 999", None),
    ("device out of range", put("placement.device_of.0", 7), "AMP607: `$.placement.device_of.0` of `m.json`: 7 is out of range; allowed are 0 to 1", None),
    ("device key", put("placement.device_of.x", 0), "AMP606: `$.placement.device_of` of `m.json`: expected `int`, got `str`", None),
    ("other devices", put("placement.devices", ["a", "b"]), "AMP611: `$.placement.devices` of `m.json`: these are not the devices of `$.target`, in their order", None),
    ("memory 0", put("target.devices.0.memory_bytes", 0), None, None),  # type: ignore[list-item]  # the target's words
    ("share", put("statistics.shares", {"symbol": {"0": 1.5}}), "AMP607: `$.statistics.shares.symbol.0` of `m.json`: 1.5 is out of range; allowed are 0 to 1", None),
    ("source path", put("sources", {"/etc/passwd": "0"}), "AMP607: `$.sources` of `m.json`: `/etc/passwd` is not a plain file name", None),
]


@pytest.mark.parametrize(("change", "message", "remedy"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong_manifest(change: Callable[[Raw], object], message: str | None, remedy: str | None) -> None:
    found = refused(changed(change))
    if message is not None:
        assert found == (message, remedy)


def test_words_of_the_verifier_and_the_target_reach_the_user() -> None:
    assert refused(changed(put(f"graph.nodes.{LINEAR}.layer", "stepp")))[0].startswith(f"AMP609: `$.graph.nodes[{LINEAR}]` of `m.json`: node ")
    found, _ = refused(changed(put("target.devices.0.memory_bytes", 0)))
    assert found.startswith("AMP607: `$.target` of `m.json`: `devices[0].memory_bytes` of `$.target` must be a whole number from 1024 to")


def test_a_layer_on_two_devices_is_refused() -> None:
    raw = copy.deepcopy(GOOD)
    step = next(n for n in raw["graph"]["nodes"] if n.get("layer") == "step")
    twin = next(n for n in raw["graph"]["nodes"] if n.get("layer") == "head")
    twin["layer"], twin["inputs"] = "step", twin["inputs"]
    raw["placement"]["device_of"][str(step["id"])] = 0
    raw["placement"]["device_of"][str(twin["id"])] = 1
    with pytest.raises(AmpError, match="AMP609|AMP610"):
        from_bytes(json.dumps(raw).encode())


NOT_JSON = [
    (b"", "AMP603: `m.json` is not JSON: it is empty"),
    (b'{"format": ', "AMP603: `m.json` is not JSON: expecting value at line 1, column 12"),
    (b"\xff{}", "AMP603: `m.json` is not JSON: byte 0 is not UTF-8"),
    (b'{"format": NaN}', "AMP603: `m.json` is not JSON: `NaN` is not a number"),
    (b'{"x": -Infinity}', "AMP603: `m.json` is not JSON: `-Infinity` is not a number"),
    (b'{"a": 1, "b": 2, "a": 3}', "AMP603: `m.json` is not JSON that can be trusted: the key `a` stands twice in one object"),
    (b'{"a": ' + b"9" * 5000 + b"}", f"AMP607: `m.json` holds an integer of 5000 digits; allowed are -{2**53} to {2**53}"),
    (b"[" * 100_000, "AMP602: `m.json` nests 100000 deep, but a manifest nests at most 64 deep"),
    (b'{"a":' * 65 + b"1" + b"}" * 65, "AMP602: `m.json` nests 65 deep, but a manifest nests at most 64 deep"),
    (b"[]", 'AMP604: `m.json` is not an ampc manifest: `$.format` must be "ampc-manifest"'),
    (b'"ampc-manifest"', 'AMP604: `m.json` is not an ampc manifest: `$.format` must be "ampc-manifest"'),
    (b'{"format": "ampc-manifest", "version": 2, "x": 1e999}', "AMP607: `$.x` of `m.json` is too large for a number"),
]


@pytest.mark.parametrize(("content", "message"), NOT_JSON, ids=range(len(NOT_JSON)))
def test_not_a_manifest(content: bytes, message: str) -> None:
    assert refused(content)[0] == message


@pytest.mark.parametrize("content", [b"", b'{"format": ', b"\xff{}"])
def test_a_manifest_that_was_cut_short_is_to_be_compiled_again(content: bytes) -> None:
    with pytest.raises(AmpError) as caught:
        from_bytes(content)
    assert caught.value.diagnostics[0].help == "compile the program again: `ampc compile model.amp` writes the manifest anew"


def test_a_program_is_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "expr.amp").write_text("model m():\n")
    with pytest.raises(AmpError) as caught:
        load(tmp_path / "expr.amp")
    d = caught.value.diagnostics[0]
    assert (d.code, d.message) == ("AMP604", f"`{tmp_path}/expr.amp` is a program, not a manifest")
    assert d.help == f"compile it first: `ampc compile {tmp_path}/expr.amp`"


def test_brackets_in_strings_do_not_nest() -> None:
    assert deepest(json.dumps({"a": "[[[[\\\"[["})) == 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match="AMP601.*there is no manifest"):
        load(tmp_path / "none.json")
    with pytest.raises(AmpError, match=r"AMP601.*there is no manifest `.*manifest\.json`"):
        load(tmp_path)
    with pytest.raises(AmpError, match="AMP601.*embedded null"):
        load("a\0b")
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(AmpError, match="AMP602.*has 67108865 bytes"):
        load(big)


def test_mutated_manifests_load_or_are_refused() -> None:
    """Nothing but AmpError escapes, whatever is changed; what loads is a manifest that can be written again."""
    draw = random.Random(7)
    values: list[object] = [None, True, -1, 0, 1, 7, 2**31, 2**53, 0.5, "", "x", "step", "__import__", [], {}, [0], [[0, 0]], {"kind": "Coord", "region": 9}]
    text = to_bytes(manifest())
    for _ in range(1500):
        if draw.random() < 0.3:
            at = draw.randrange(len(text))
            content = text[:at] + bytes([draw.randrange(256)]) + text[at + draw.randrange(2) :]
        else:
            raw = copy.deepcopy(GOOD)
            for _ in range(draw.choice((1, 1, 1, 2, 5))):
                _mutate(raw, draw, values)
            content = json.dumps(raw).encode("utf-8", "surrogatepass")
        try:
            to_bytes(from_bytes(content))
        except AmpError as e:
            assert all(d.code.startswith("AMP6") for d in e.diagnostics)


def _mutate(raw: Raw, draw: random.Random, values: list[object]) -> None:
    """Change one place, chosen by walking down at random."""
    at: Any = raw
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and draw.random() < 0.85:
            at = at[key]
            continue
        match draw.randrange(3):
            case 0 if isinstance(at, dict):
                del at[key]
            case 1 if isinstance(at, dict):
                at[draw.choice(("x", "op", "layer", "id", "inputs"))] = copy.deepcopy(draw.choice(values))
            case _:
                at[key] = copy.deepcopy(draw.choice(values))
        return
