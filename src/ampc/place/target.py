"""Targets: devices and the links between them, read from `targets/*.toml`.

`load_target` refuses what cannot be hardware (no memory, no bandwidth, endless latency) by file, key and value.
Nothing here knows graphs; costs are in `cost`, the choice of a device in `assign`.
"""

from __future__ import annotations

import math
import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable

MAX_TARGET_BYTES = 1 << 20
MAX_DEVICES = 65_536

Topology = Literal["shared", "full", "star", "ring", "mesh"]
"""shared: one memory, every pair is one hop. full: a link for each pair. star: over a switch, two hops. ring, mesh: as many as it takes."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place that fires nodes: a worker thread on a CPU core, or a tile of a simulated network."""

    name: str
    kind: Literal["cpu", "fpga"]
    peak_flops_per_s: float
    memory_bytes: int
    message_overhead_s: float
    cores: int = 1
    memory_bytes_per_s: float = 0.0
    """Bandwidth to the device's own memory; 0 leaves it out of the estimate."""


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a message between two devices meets on each hop. `columns` is the width of a mesh.

    `overhead_s`: busy seconds that messages sent at once to another device cost each of the two, beside their bytes and `message_overhead_s`.
    """

    topology: Topology
    bytes_per_s: float
    latency_s: float
    overhead_s: float = 0.0
    columns: int = 0


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine or a network of devices."""

    name: str
    devices: tuple[Device, ...]
    links: Links
    description: str = ""

    def hops(self, a: int, b: int) -> int:
        """Return how many links a message from device `a` to device `b` crosses."""
        n = len(self.devices)
        if a == b:
            return 0
        match self.links.topology:
            case "shared" | "full":
                return 1
            case "star":
                return 2
            case "ring":
                return min((a - b) % n, (b - a) % n)
            case "mesh":
                width = self.links.columns
                return abs(a // width - b // width) + abs(a % width - b % width)


_DEVICE_KEYS = ("name", "kind", "peak_flops_per_s", "memory_bytes", "message_overhead_s", "cores", "memory_bytes_per_s", "count")
_LINK_KEYS = ("topology", "bytes_per_s", "latency_s", "overhead_s", "columns")
_TOP_KEYS = ("name", "description", "devices", "links")

# Bounds of what is taken for hardware: (lowest, highest, unit). Wider than any machine, narrow enough that no estimate overflows.
_RANGES: dict[str, tuple[float, float, str]] = {
    "peak_flops_per_s": (1e3, 1e21, "floating-point operations a second"),
    "memory_bytes": (1024, 1 << 60, "bytes"),
    "message_overhead_s": (0.0, 10.0, "seconds"),
    "cores": (1, 65_536, "cores"),
    "memory_bytes_per_s": (1e3, 1e18, "bytes a second"),
    "bytes_per_s": (1.0, 1e18, "bytes a second"),
    "latency_s": (0.0, 10.0, "seconds"),
    "overhead_s": (0.0, 10.0, "seconds"),
    "columns": (1, MAX_DEVICES, "devices a row"),
    "count": (1, MAX_DEVICES, "devices"),
}


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its control group; 0 where none is told."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(file).read_text("ascii")))
        except (OSError, ValueError):  # no control group, or "max"
            continue
    return max(0, total)


def this_machine() -> Target:
    """Return the largest bundled CPU target with no more devices than there are usable cores, with this machine's memory dealt among them."""
    cores = usable_cores()
    bundled = load_target(f"cpu-{max(n for n in (1, 2, 4, 8) if n <= max(1, cores))}")
    share = machine_memory() // len(bundled.devices)
    devices = tuple(msgspec.structs.replace(d, memory_bytes=share or d.memory_bytes) for d in bundled.devices)
    return msgspec.structs.replace(bundled, devices=devices)


def bundled_targets() -> list[str]:
    """Return the names of the targets that come with ampc, sorted."""
    folder = resources.files("ampc") / "targets"
    return sorted((f.name[: -len(".toml")] for f in folder.iterdir() if f.name.endswith(".toml")), key=_natural)


def load_target(name_or_path: str | Path) -> Target:
    """Return the bundled target of that name, or the one in a `.toml` file.

    Raises AmpError AMP501 (not found), AMP502 (not a target file), AMP503 (unknown, missing or mistyped key), AMP504 (impossible value).
    """
    name = str(name_or_path)
    if not name.endswith(".toml") and "/" not in name:
        known = bundled_targets()
        if name not in known:
            remedy = did_you_mean(name, known) or "a target is one of " + ", ".join(f"`{k}`" for k in known) + ", or the path of a `.toml` file"
            raise error("AMP501", f"there is no target `{printable(name)}`", help=remedy)
        return parse_target((resources.files("ampc") / "targets" / f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path = Path(name_or_path)
    try:
        if path.stat().st_size > MAX_TARGET_BYTES:
            raise error("AMP502", f"target file `{name}` is larger than {MAX_TARGET_BYTES} bytes", help="a target is a few lines for each device")
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise error("AMP501", f"there is no target file `{printable(name)}`", help="`ampc doctor` lists the bundled targets") from None
    except OSError as e:
        raise error("AMP501", f"target file `{printable(name)}` cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise error("AMP502", f"target file `{printable(name)}` is not UTF-8 text") from None
    return parse_target(text, name)


def parse_target(text: str, file: str) -> Target:
    """Return the target that `text` (TOML) describes; raises AmpError AMP502 to AMP504, all mistakes at once."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise error("AMP502", f"target file `{file}` is not TOML: {printable(str(e))}") from None
    return _Reader(file).target(raw)


def verify_target(target: Target, where: str) -> list[Diagnostic]:
    """Return what is impossible about a target that did not come from a file here: the rules of `parse_target`."""
    raw = msgspec.to_builtins(target)
    for device in raw["devices"]:
        if device["memory_bytes_per_s"] == 0:
            del device["memory_bytes_per_s"]
    if target.links.topology != "mesh" and target.links.columns == 0:
        del raw["links"]["columns"]
    try:
        _Reader(where).target(raw)
    except AmpError as e:
        return list(e.diagnostics)
    return []


class _Reader:
    """Checks one file, collecting every mistake."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Diagnostic] = []

    def target(self, raw: dict[str, Any]) -> Target:
        self.keys(raw, _TOP_KEYS, ("name", "devices", "links"), "")
        name = self.text(raw, "name", "")
        description = self.text(raw, "description", "", "")
        devices = self.devices(raw.get("devices", []))
        links = self.links(raw.get("links", {}), len(devices))
        if self.found:
            raise AmpError(self.found)
        return Target(name=name, description=description, devices=tuple(devices), links=links)

    def devices(self, raw: Any) -> list[Device]:
        if not isinstance(raw, list | tuple) or not all(isinstance(d, dict) for d in raw):
            self.add("AMP503", f"`devices` of `{self.file}` must be a list of tables", "write one `[[devices]]` table for each device")
            return []
        if not raw and not self.found:
            self.add("AMP504", f"target `{self.file}` has no devices", "write at least one `[[devices]]` table")
        devices: list[Device] = []
        for i, d in enumerate(raw):
            where = f"devices[{i}]."
            self.keys(d, _DEVICE_KEYS, _DEVICE_KEYS[:5], where)
            count = int(self.number(d, "count", where, 1))
            name = self.text(d, "name", where)
            device = Device(
                name=name,
                kind=self.choice(d, "kind", where, ("cpu", "fpga")),
                peak_flops_per_s=self.number(d, "peak_flops_per_s", where),
                memory_bytes=int(self.number(d, "memory_bytes", where)),
                message_overhead_s=self.number(d, "message_overhead_s", where),
                cores=int(self.number(d, "cores", where, 1)),
                memory_bytes_per_s=self.number(d, "memory_bytes_per_s", where, 0),
            )
            if len(devices) + count > MAX_DEVICES:
                self.add("AMP504", f"target `{self.file}` has more than {MAX_DEVICES} devices")
                return devices
            # `count` devices of one kind are called `name:0`, `name:1`, ...
            devices += [device] if count == 1 else [msgspec.structs.replace(device, name=f"{name}:{k}") for k in range(count)]
        seen: set[str] = set()
        for device in devices:
            if device.name in seen:
                self.add("AMP504", f"two devices of `{self.file}` are called `{printable(device.name)}`", "give each device its own name")
            seen.add(device.name)
        return devices

    def links(self, raw: Any, n_devices: int) -> Links:
        if not isinstance(raw, dict):
            self.add("AMP503", f"`links` of `{self.file}` must be a table, got {_kind(raw)}")
            return Links("shared", 1.0, 0.0)
        self.keys(raw, _LINK_KEYS, _LINK_KEYS[:3], "links.")
        topology: Topology = self.choice(raw, "topology", "links.", get_args(Topology))
        columns = int(self.number(raw, "columns", "links.", 0))
        if topology == "mesh" and (columns < 1 or n_devices % columns):
            self.add("AMP504", f"`links.columns` of `{self.file}` must divide the number of devices ({n_devices}) of a mesh, got {columns}")
        if topology != "mesh" and "columns" in raw:
            self.add("AMP503", f"`links.columns` of `{self.file}` belongs to the topology `mesh`, not `{topology}`", "remove `columns`")
        overhead = self.number(raw, "overhead_s", "links.", 0.0)
        return Links(topology, self.number(raw, "bytes_per_s", "links."), self.number(raw, "latency_s", "links."), overhead, columns)

    # -------------------------------------------------------------------------------------------- single values

    def add(self, code: str, message: str, remedy: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, help=remedy))

    def keys(self, raw: dict[str, Any], known: tuple[str, ...], needed: tuple[str, ...], where: str) -> None:
        for key in raw:
            if key not in known:
                remedy = did_you_mean(key, known) or "known keys are " + ", ".join(f"`{k}`" for k in known)
                self.add("AMP503", f"`{self.file}` has an unknown key `{where}{printable(key)}`", remedy)
        for key in needed:
            if key not in raw:
                unit = f" ({_RANGES[key][2]})" if key in _RANGES else ""
                self.add("AMP503", f"`{self.file}` lacks the key `{where}{key}`{unit}")

    def text(self, raw: dict[str, Any], key: str, where: str, default: str | None = None) -> str:
        value = raw.get(key, default)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.add("AMP503", f"`{where}{key}` of `{self.file}` must be text, got {_kind(value)}")
            return ""
        if default is None and not 1 <= len(value) <= 200:
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must have 1 to 200 characters, got {len(value)}")
        return value

    def choice(self, raw: dict[str, Any], key: str, where: str, options: tuple[str, ...]) -> Any:
        value = raw.get(key, options[0])
        if value not in options:
            shown = f"`{printable(value)}`" if isinstance(value, str) else _kind(value)
            listed = ", ".join(f"`{o}`" for o in options)
            remedy = did_you_mean(value, options) if isinstance(value, str) else None
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must be one of {listed}, got {shown}", remedy)
            return options[0]
        return value

    def number(self, raw: dict[str, Any], key: str, where: str, default: float = 1.0) -> float:
        if key not in raw:
            return default
        value, (low, high, unit) = raw[key], _RANGES[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.add("AMP503", f"`{where}{key}` of `{self.file}` must be a number of {unit}, got {_kind(value)}")
            return default
        whole = key in ("memory_bytes", "cores", "columns", "count")
        if not math.isfinite(value) or not low <= value <= high or (whole and value != int(value)):
            kind = "a whole number " if whole else ""
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must be {kind}from {low:g} to {high:g} {unit}, got {value:g}")
            return default
        return value


def _kind(value: Any) -> str:
    names = {bool: "true or false", str: "text", list: "a list", dict: "a table", int: "a whole number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


def _natural(name: str) -> tuple[str, int]:
    """`cpu-8` before `cpu-16`."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)
