"""Targets: the bundled ones, the distances of each topology, and every way in which a file can be wrong, with its message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.place import Network, Target, bundled_targets, load_target, parse_target
from ampc.place.target import verify_target

GOOD = """
name = "two"

[[devices]]
name = "core"
count = 2
kind = "cpu"
matrix_flops_per_s = { fp32 = 80e9 }
vector_flops_per_s = 40e9
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
    sizes = {
        "cluster_2x16": 32, "cpu-1": 1, "cpu-2": 2, "cpu-4": 4, "cpu-8": 8, "fpga_1tflops": 8, "fpga_mesh_4x4": 16, "fpga_tiny_memory": 16,
        "manycore_64": 64,
    }
    assert bundled_targets() == list(sizes)
    for name in bundled_targets():
        target = load_target(name)
        assert target.name == name
        assert len(target.devices) == sizes[name]
        assert verify_target(target, name) == []
        assert msgspec.convert(msgspec.to_builtins(target), Target) == target


def test_count_makes_numbered_devices() -> None:
    assert [d.name for d in parse_target(GOOD, "t.toml").devices] == ["core:0", "core:1"]
    assert [d.name for d in parse_target(GOOD.replace("count = 2\n", ""), "t.toml").devices] == ["core"]


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
        "AMP504: `devices[0].memory_bytes` of `t.toml` must be a whole number from 1024 to 1.1259e+15 bytes, got 0",
    ),
    (GOOD.replace("2_000_000_000", '"2 GB"'), "AMP503: `devices[0].memory_bytes` of `t.toml` must be a number of bytes, got text"),
    (GOOD.replace("2_000_000_000", "1e10"), None),
    (
        GOOD.replace("2_000_000_000", "5000.5"),
        "AMP504: `devices[0].memory_bytes` of `t.toml` must be a whole number from 1024 to 1.1259e+15 bytes, got 5000.5",
    ),
    (GOOD.replace("8e9", "0"), "AMP504: `links.bytes_per_s` of `t.toml` must be from 1 to 1e+18 bytes a second, got 0"),
    (GOOD.replace("0.5e-6", "1e9"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got 1e+09"),
    (GOOD.replace("0.5e-6", "-1"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got -1"),
    (GOOD.replace("0.5e-6", "nan"), "AMP504: `links.latency_s` of `t.toml` must be from 0 to 10 seconds, got nan"),
    (
        GOOD.replace("80e9", "inf"),
        "AMP504: `devices[0].matrix_flops_per_s.fp32` of `t.toml` must be from 1000 to 1e+21 floating-point operations a second, got inf",
    ),
    (
        GOOD.replace("80e9", "true"),
        "AMP503: `devices[0].matrix_flops_per_s.fp32` of `t.toml` must be a number of floating-point operations a second, got true or false",
    ),
    (GOOD.replace('"cpu"', '"gpu"'), "AMP504: `devices[0].kind` of `t.toml` must be one of `cpu`, `fpga`, got `gpu` (did you mean `cpu`?)"),
    (
        GOOD.replace('"shared"', '"cube"'),
        "AMP504: `links.topology` of `t.toml` must be one of `shared`, `full`, `star`, `ring`, `mesh`, `torus`, `tree`, `hosts`, `links`, got `cube`",
    ),
    (GOOD.replace("count = 2", "count = 0"), "AMP504: `devices[0].count` of `t.toml` must be a whole number from 1 to 65536 devices, got 0"),
    (GOOD.replace('"shared"', '"mesh"\ncolumns = 3'), "AMP504: `links.columns` of `t.toml` must divide the number of devices (2), so that they fill every row; got 3"),
    (
        GOOD.replace('"shared"', '"ring"\ncolumns = 2'),
        "AMP503: `links.columns` of `t.toml` belongs to the topology `mesh` and `torus`, not `ring` (remove `columns`)",
    ),
    (
        GOOD.replace("vector_flops_per_s = 40e9", "peak_flops_per_s = 80e9"),
        "AMP503: `t.toml` has an unknown key `devices[0].peak_flops_per_s` (rates are apart: `matrix_flops_per_s = { fp32 = ... }` for matrix products, "
        "`vector_flops_per_s` for all other operations)",
    ),
    (
        GOOD.replace("{ fp32 = 80e9 }", "80e9"),
        "AMP503: `devices[0].matrix_flops_per_s` of `t.toml` must be a table by precision, got a number "
        "(write `matrix_flops_per_s = { fp32 = 1e12 }`, with `bf16` or `fp16` beside it where the hardware has them)",
    ),
    (
        GOOD.replace('"shared"', '"ring"') + "level = [{ bytes_per_s = 1e9, latency_s = 0 }]",
        "AMP503: `links.level` of `t.toml` belongs to the topology `tree`, not `ring` (remove `level`)",
    ),
    (
        GOOD.replace('"shared"', '"tree"\nbranching = 2') + "[[links.level]]\nbytes_per_s = -1\nlatency = 1e-6",
        "AMP503: `t.toml` has an unknown key `links.level[0].latency` (did you mean `latency_s`?)",
    ),
    (GOOD.replace('"shared"', '"tree"\nbranching = 2') + "level = 3", "AMP503: `links.level` of `t.toml` must be a list of tables"),
    (GOOD.replace("{ fp32 = 80e9 }", "{ bf16 = 80e9 }"), "AMP503: `t.toml` lacks the key `devices[0].matrix_flops_per_s.fp32`"),
    (
        GOOD.replace("{ fp32 = 80e9 }", "{ fp32 = 80e9, fp31 = 1e9 }"),
        "AMP503: `t.toml` has an unknown key `devices[0].matrix_flops_per_s.fp31` (did you mean `fp32`?)",
    ),
    (GOOD.replace("40e9", "0.0"), "AMP504: `devices[0].vector_flops_per_s` of `t.toml` must be from 1000 to 1e+21 floating-point operations a second, got 0"),
    (GOOD.replace("40e9", "1" + "0" * 400), "AMP504: `devices[0].vector_flops_per_s` of `t.toml` must be from 1000 to 1e+21 floating-point operations a second, got a number of hundreds of digits"),
    (GOOD.replace("40e9", "1" + "0" * 5000), "AMP502: target file `t.toml` is not TOML: "),
    (GOOD.replace('"shared"', '"mesh"'), "AMP503: `t.toml` lacks the key `links.columns` (devices a row)"),
    (GOOD.replace('"shared"', '"tree"\nbranching = 1'), "AMP504: `links.branching` of `t.toml` must be a whole number from 2 to 65536 devices or switches below each switch, got 1"),
    (GOOD.replace('"shared"', '"hosts"\nhost_devices = 3') + "network = { bytes_per_s = 1e9, latency_s = 1e-6 }", "AMP504: `links.host_devices` of `t.toml` must divide the number of devices (2), so that they fill every host; got 3"),
    (GOOD.replace('"shared"', '"hosts"\nhost_devices = 1'), "AMP503: `t.toml` lacks the key `links.network`"),
    (GOOD.replace('"shared"', '"hosts"\nhost_devices = 1') + "network = { bytes_per_s = 0 }", "AMP503: `t.toml` lacks the key `links.network.latency_s` (seconds)"),
    (GOOD.replace('"shared"', '"hosts"\nhost_devices = 1') + "network = 1", "AMP503: `links.network` of `t.toml` must be a table, got a whole number (write it as `[links.network]`)"),
    (GOOD.replace('"core"', '"co\\nre"'), "AMP504: `devices[0].name` of `t.toml` holds a character that can't be printed: `co\\nre`"),
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


LISTED = GOOD.replace('"shared"', '"links"').replace("count = 2", "count = 4") + """
[[links.link]]
from = "core:0"
to = "core:1"

[[links.link]]
from = "core:1"
to = "core:2"
bytes_per_s = 1e9

[[links.link]]
from = "core:2"
to = "core:3"
latency_s = 3e-6
"""


def test_listed_links_take_what_they_lack_from_the_table() -> None:
    found = parse_target(LISTED, "t.toml").links.link
    assert [(x.source, x.to, x.bytes_per_s, x.latency_s, x.one_way) for x in found] == [
        ("core:0", "core:1", 8e9, 0.5e-6, False), ("core:1", "core:2", 1e9, 0.5e-6, False), ("core:2", "core:3", 8e9, 3e-6, False),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LISTED.replace('from = "core:2"', 'from = "core:9"'), "AMP504: `links.link[2].from` of `t.toml`: there is no device `core:9` (did you mean `core:3`?)"),
        (LISTED.replace('from = "core:2"\nto', 'from = "core:3"\nto'), "AMP504: `links.link[2].to` of `t.toml` leads from `core:3` to itself (a device needs no link to itself)"),
        (LISTED.replace('"core:3"', '"core:1"'), "AMP504: `t.toml` has two links from `core:2` to `core:1` (a link carries messages both ways unless it is `one_way`)"),
        (LISTED[: LISTED.rindex("[[")], "AMP505: `t.toml`: no link leads from `core:0` to `core:3`, not even over others (add `[[links.link]]` tables until every device is reached)"),
        (LISTED[: LISTED.index("[[links")] + "link = []", "AMP505: `t.toml`: no link leads from `core:0` to `core:1`, `core:2`, `core:3`, not even over others"),
        (LISTED + "one_way = true", "AMP505: `t.toml`: no link leads to `core:0` from `core:3`, not even over others"),
        (LISTED + "one_way = 1", "AMP503: `links.link[2].one_way` of `t.toml` must be true or false, got a whole number"),
        (LISTED + "bytes_per_s = 0", "AMP504: `links.link[2].bytes_per_s` of `t.toml` must be from 1 to 1e+18 bytes a second, got 0"),
        (LISTED + "speed = 0", "AMP503: `t.toml` has an unknown key `links.link[2].speed`"),
        (LISTED[: LISTED.index("[[links")] + "link = 1", "AMP503: `links.link` of `t.toml` must be a list of tables"),
        (LISTED[: LISTED.index("[[links")], "AMP505: `t.toml`: no link leads from `core:0` to `core:1`, `core:2`, `core:3`, not even over others"),
        (LISTED.replace('"links"', '"ring"'), "AMP503: `links.link` of `t.toml` belongs to the topology `links`, not `ring` (remove `link`)"),
    ],
)
def test_wrong_links(text: str, message: str) -> None:
    assert refused(text)[0].startswith(message)


def test_all_mistakes_are_told_at_once() -> None:
    assert len(refused(GOOD.replace("80e9", "0").replace("8e9", "0").replace("cpu", "gpu"))) == 3
    assert len(refused(LISTED.replace("40e9", "0").replace('"core:0"', '"a"').replace("1e9", "-1"))) == 3


_VALUES = st.one_of(
    st.integers(), st.integers(0, 70_000), st.floats(), st.booleans(), st.text(max_size=8), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["fp32", "bf16", "bytes_per_s", "latency_s", "from", "to"]), st.integers() | st.just("core:0"), max_size=3),
    st.sampled_from(["links", "hosts", "mesh", "tree", "torus", "ring", "core:0", "core:1"]),
)
_PLACES = st.sampled_from([
    ("name",), ("description",), ("devices",), ("links",), *((("devices", k)) for k in (
        "name", "kind", "count", "matrix_flops_per_s", "vector_flops_per_s", "memory_bytes", "memory_bytes_per_s", "message_overhead_s",
        "firing_overhead_s", "messages_per_firing", "matrix_half_rows", "cores", "x",
        "matrix_half_columns", "value_overhead_s", "row_overhead_s", "number_overhead_s", "product_overhead_s", "instance_overhead_s",
        "update_overhead_s", "copy_bytes_per_s",
    )), *((("links", k)) for k in (
        "topology", "bytes_per_s", "latency_s", "overhead_s", "message_overhead_s", "columns", "branching", "host_devices", "network", "link", "x",
    )),
])


@given(st.lists(st.tuples(_PLACES, _VALUES), max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_values_give_a_target_or_mistakes(changes: list[tuple[tuple[str, ...], Any]], listed: bool) -> None:
    raw = tomlkit.parse(LISTED if listed else GOOD).unwrap()
    for where, value in changes:
        try:
            inner = raw if len(where) == 1 else raw[where[0]][0] if where[0] == "devices" else raw[where[0]]
            inner[where[-1]] = value
        except (TypeError, IndexError, KeyError):
            continue
    _is_target_or_mistakes(tomlkit.dumps(raw))


@given(st.text(alphabet='[]{}="\\n.,#abclinks_0123456789 devices', max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_target_or_mistakes(text: str) -> None:
    _is_target_or_mistakes(text)
    _is_target_or_mistakes(GOOD + text)
    _is_target_or_mistakes(text + GOOD)


def _is_target_or_mistakes(text: str) -> None:
    try:
        target = parse_target(text, "t.toml")
    except AmpError as e:
        assert {d.code for d in e.diagnostics} <= {"AMP502", "AMP503", "AMP504", "AMP505"}
        return
    assert verify_target(target, "t.toml") == []
    network = Network(target)
    last = len(target.devices) - 1
    assert len(network.path(0, last)) == network.hops(0, last)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(AmpError, match=r"AMP501.*there is no target `cpu4`") as caught:
        load_target("cpu4")
    assert caught.value.diagnostics[0].help == "did you mean `cpu-4`?"
    with pytest.raises(AmpError, match="there is no target `cpu`") as caught:
        load_target("cpu")
    assert (caught.value.diagnostics[0].help or "").startswith("`ampc calibrate` measures this machine")


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


def test_of_very_many_mistakes_the_first_are_told() -> None:
    with pytest.raises(AmpError) as caught:
        parse_target(GOOD.replace("[links]", GOOD[GOOD.index("[[devices]]") : GOOD.index("[links]")].replace("count = 2", "count = 5000") + "[links]"), "t.toml")
    (one,) = caught.value.diagnostics
    assert one.message == "two devices of `t.toml` are called `core:0`, `core:1`"
    links = "".join(f'[[links.link]]\nfrom = "core:0"\nto = "no{i}"\n' for i in range(100))
    with pytest.raises(AmpError) as caught:
        parse_target(GOOD.replace('"shared"', '"links"') + links, "t.toml")
    assert len(caught.value.diagnostics) == 20
    assert caught.value.diagnostics[-1].notes == ("80 more mistakes like these",)
