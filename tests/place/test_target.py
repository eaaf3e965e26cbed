"""Targets: the bundled ones, the distances of each topology, and every way in which a file can be wrong, with its message."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ampc.diagnostics import AmpError
from ampc.place import Target, bundled_targets, load_target, parse_target
from ampc.place.target import verify_target

GOOD = """
name = "two"

[[devices]]
name = "core"
count = 2
kind = "cpu"
peak_flops_per_s = 80e9
memory_bytes = 2_000_000_000
message_overhead_s = 0.2e-6

[links]
topology = "shared"
bytes_per_s = 8e9
latency_s = 0.5e-6
"""


def refused(text: str) -> list[str]:
    with pytest.raises(AmpError) as caught:
        parse_target(text, "t.toml")
    assert caught.value.exit_code == 1
    return [f"{d.code}: {d.message}" + (f" ({d.help})" if d.help else "") for d in caught.value.diagnostics]


def test_bundled_targets_load() -> None:
    assert bundled_targets() == ["cpu-1", "cpu-2", "cpu-4", "cpu-8", "fpga-4"]
    for name in bundled_targets():
        target = load_target(name)
        assert target.name == name
        assert len(target.devices) == int(name.rpartition("-")[2])
        assert verify_target(target, name) == []


def test_count_makes_numbered_devices() -> None:
    assert [d.name for d in parse_target(GOOD, "t.toml").devices] == ["core:0", "core:1"]
    assert [d.name for d in parse_target(GOOD.replace("count = 2\n", ""), "t.toml").devices] == ["core"]


@pytest.mark.parametrize(
    ("topology", "a", "b", "hops"),
    [("shared", 0, 5, 1), ("full", 0, 5, 1), ("star", 1, 2, 2), ("ring", 0, 5, 1), ("ring", 0, 3, 3), ("mesh", 0, 5, 3), ("mesh", 4, 4, 0)],
)
def test_hops(topology: str, a: int, b: int, hops: int) -> None:
    columns = "\ncolumns = 3" if topology == "mesh" else ""
    target = parse_target(GOOD.replace("count = 2", "count = 6").replace('"shared"', f'"{topology}"{columns}'), "t.toml")
    assert target.hops(a, b) == target.hops(b, a) == hops


WRONG = [
    ("name = 'x", "AMP502: target file `t.toml` is not TOML: "),
    (GOOD.replace('name = "two"\n', ""), "AMP503: `t.toml` lacks the key `name`"),
    (GOOD.replace("latency_s = 0.5e-6", ""), "AMP503: `t.toml` lacks the key `links.latency_s` (seconds)"),
    (
        GOOD.replace("memory_bytes", "memory_byte"),
        "AMP503: `t.toml` has an unknown key `devices[0].memory_byte` (did you mean `memory_bytes`?)",
    ),
    (
        GOOD.replace("2_000_000_000", "0"),
        "AMP504: `devices[0].memory_bytes` of `t.toml` must be a whole number from 1024 to 1.15292e+18 bytes, got 0",
    ),
    (GOOD.replace("2_000_000_000", '"2 GB"'), "AMP503: `devices[0].memory_bytes` of `t.toml` must be a number of bytes, got text"),
    (GOOD.replace("2_000_000_000", "1e10"), None),
    (
        GOOD.replace("2_000_000_000", "5000.5"),
        "AMP504: `devices[0].memory_bytes` of `t.toml` must be a whole number from 1024 to 1.15292e+18 bytes, got 5000.5",
    ),
    (GOOD.replace("8e9", "0"), "AMP504: `links.bytes_per_s` of `t.toml` must be from 1 to 1e+18 bytes a second, got 0"),
    (GOOD.replace("0.5e-6", "1e9"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got 1e+09"),
    (GOOD.replace("0.5e-6", "-1"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got -1"),
    (GOOD.replace("0.5e-6", "nan"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got nan"),
    (
        GOOD.replace("80e9", "inf"),
        "AMP504: `devices[0].peak_flops_per_s` of `t.toml` must be from 1000 to 1e+21 floating-point operations a second, got inf",
    ),
    (
        GOOD.replace("80e9", "true"),
        "AMP503: `devices[0].peak_flops_per_s` of `t.toml` must be a number of floating-point operations a second, got true or false",
    ),
    (GOOD.replace('"cpu"', '"gpu"'), "AMP504: `devices[0].kind` of `t.toml` must be one of `cpu`, `fpga`, got `gpu` (did you mean `cpu`?)"),
    (
        GOOD.replace('"shared"', '"torus"'),
        "AMP504: `links.topology` of `t.toml` must be one of `shared`, `full`, `star`, `ring`, `mesh`, got `torus`",
    ),
    (GOOD.replace("count = 2", "count = 0"), "AMP504: `devices[0].count` of `t.toml` must be a whole number from 1 to 65536 devices, got 0"),
    (GOOD.replace('"shared"', '"mesh"\ncolumns = 3'), "AMP504: `links.columns` of `t.toml` must divide the number of devices (2) of a mesh, got 3"),
    (
        GOOD.replace('"shared"', '"ring"\ncolumns = 2'),
        "AMP503: `links.columns` of `t.toml` belongs to the topology `mesh`, not `ring` (remove `columns`)",
    ),
    (
        GOOD[: GOOD.index("[[devices]]")] + "devices = []\n" + GOOD[GOOD.index("[links]") :],
        "AMP504: target `t.toml` has no devices (write at least one",
    ),
    (GOOD.replace("[[devices]]", "[devices]"), "AMP503: `devices` of `t.toml` must be a list of tables"),
    (GOOD.replace("[links]", "[[links]]"), "AMP503: `links` of `t.toml` must be a table, got a list"),
    (GOOD.replace('"two"', '""'), "AMP504: `name` of `t.toml` must have 1 to 200 characters, got 0"),
    (
        GOOD.replace("count = 2", "") + GOOD[GOOD.index("[[devices]]") : GOOD.index("[links]")].replace("count = 2", ""),
        "AMP504: two devices of `t.toml` are called `core`",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_target(text: str, message: str | None) -> None:
    if message is None:
        assert parse_target(text, "t.toml").devices[0].memory_bytes == 10_000_000_000
        return
    assert refused(text)[0].startswith(message)


def test_all_mistakes_are_told_at_once() -> None:
    assert len(refused(GOOD.replace("80e9", "0").replace("8e9", "0").replace("cpu", "gpu"))) == 3


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(AmpError, match=r"AMP501.*there is no target `cpu4`") as caught:
        load_target("cpu4")
    assert caught.value.diagnostics[0].help == "did you mean `cpu-4`?"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match=r"AMP501.*there is no target file"):
        load_target(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(AmpError, match=r"AMP502.*is not UTF-8"):
        load_target(tmp_path / "latin.toml")
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(AmpError, match=r"AMP501.*cannot be read: Is a directory"):
        load_target(tmp_path / "dir.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (1 << 20) + b"\n#")
    with pytest.raises(AmpError, match=r"AMP502.*is larger than 1048576 bytes"):
        load_target(tmp_path / "big.toml")


def test_names_with_odd_signs_are_kept(tmp_path: Path) -> None:
    names = ["core:0", "tile<1,2>", 'say "hi"', "a->b", "node", "über", "back\\slash", "50%"]
    text = GOOD.replace('name = "core"\ncount = 2', "name = 'core:0'")
    head, tail = text[: text.index("[links]")], text[text.index("[links]") :]
    block = head[head.index("[[devices]]") :]
    text = head[: head.index("[[devices]]")] + "".join(block.replace("'core:0'", f"'''{n}'''") for n in names) + tail
    assert [d.name for d in parse_target(text, "t.toml").devices] == names


def test_a_target_from_a_manifest_is_checked_again() -> None:
    target: Target = load_target("cpu-2")
    poor = msgspec.structs.replace(target, links=msgspec.structs.replace(target.links, bytes_per_s=0.0))
    assert [d.code for d in verify_target(poor, "$.target")] == ["AMP504"]
