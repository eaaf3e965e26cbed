"""Reading of target files: every key and value checked, all mistakes collected.

Refuses what cannot be hardware (no memory, no bandwidth, endless latency, devices that no link reaches) by file, key and value.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from ampc.diagnostics import AmpError, Diagnostic, did_you_mean, error, printable
from ampc.place.target import MAX_DEVICES, Device, GivenLink, HostNetwork, Level, Links, Precision, Target, Topology

_TOP_KEYS = ("name", "description", "devices", "links")
_DEVICE_KEYS = (
    "name", "kind", "matrix_flops_per_s", "vector_flops_per_s", "memory_bytes", "message_overhead_s", "firing_overhead_s", "messages_per_firing",
    "matrix_half_rows", "matrix_half_columns", "memory_bytes_per_s", "cores", "count",
    "value_overhead_s", "row_overhead_s", "number_overhead_s", "product_overhead_s",
    "instance_overhead_s", "update_overhead_s", "copy_bytes_per_s", "cache_bytes", "far_bytes_per_s",
)  # fmt: skip
_LINK_KEYS = (
    "topology", "bytes_per_s", "latency_s", "overhead_s", "message_overhead_s", "columns", "branching", "host_devices", "network", "link", "level",
)  # fmt: skip
_GIVEN_KEYS = ("from", "to", "bytes_per_s", "latency_s", "one_way")

_BELONGS = {
    "columns": ("mesh", "torus"), "branching": ("tree",), "host_devices": ("hosts",), "network": ("hosts",), "link": ("links",),
    "level": ("tree",),
}
"""Key of `[links]` -> the topologies that have it, and need it."""
_MAY_LACK = ("link", "level")
"""Of these, what may be left out: a single device needs no link, and all links of a tree may be alike."""

# Bounds of what is taken for hardware: (lowest, highest, unit). Wider than any machine, narrow enough that no estimate overflows.
_RANGES: dict[str, tuple[float, float, str]] = {
    "matrix_flops_per_s": (1e3, 1e21, "floating-point operations a second"),
    "vector_flops_per_s": (1e3, 1e21, "floating-point operations a second"),
    "matrix_half_rows": (0.0, 1e6, "rows"),
    "matrix_half_columns": (0.0, 1e6, "columns"),
    "memory_bytes": (1024, 1 << 50, "bytes"),
    "memory_bytes_per_s": (1e3, 1e18, "bytes a second"),
    "message_overhead_s": (0.0, 10.0, "seconds"),
    "firing_overhead_s": (0.0, 10.0, "seconds"),
    "value_overhead_s": (0.0, 10.0, "seconds"),
    "row_overhead_s": (0.0, 10.0, "seconds"),
    "number_overhead_s": (0.0, 10.0, "seconds"),
    "instance_overhead_s": (0.0, 10.0, "seconds"),
    "product_overhead_s": (0.0, 10.0, "seconds"),
    "update_overhead_s": (0.0, 10.0, "seconds"),
    "copy_bytes_per_s": (1e3, 1e18, "bytes a second"),
    "far_bytes_per_s": (1e3, 1e18, "bytes a second"),
    "cache_bytes": (0, 1 << 50, "bytes"),
    "messages_per_firing": (0, 1 << 31, "messages"),
    "cores": (1, 65_536, "cores"),
    "count": (1, MAX_DEVICES, "devices"),
    "bytes_per_s": (1.0, 1e18, "bytes a second"),
    "latency_s": (0.0, 10.0, "seconds"),
    "overhead_s": (0.0, 10.0, "seconds"),
    "columns": (1, MAX_DEVICES, "devices a row"),
    "branching": (2, MAX_DEVICES, "devices or switches below each switch"),
    "host_devices": (1, MAX_DEVICES, "devices a host"),
}
MOST_TOLD = 20
"""Mistakes that are told of one file."""
MAX_LEVELS = 16
"""Of a tree of the most devices there may be, each switch joining two."""
_WHOLE = frozenset({"memory_bytes", "cache_bytes", "messages_per_firing", "cores", "count", "columns", "branching", "host_devices"})
_RENAMED = {
    "peak_flops_per_s": "rates are apart: `matrix_flops_per_s = { fp32 = ... }` for matrix products, `vector_flops_per_s` for all other operations",
}


def read(text: str, file: str) -> Target:
    """Return the target that `text` (TOML) describes; raises AmpError AMP502 to AMP505, all mistakes at once."""
    shown = printable(file)
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as e:  # ValueError: also an integer of thousands of digits
        raise error("AMP502", f"target file `{shown}` is not TOML: {printable(str(e))}") from None
    return _Reader(shown).target(raw)


def mistakes(target: Target, where: str) -> list[Diagnostic]:
    """Return what `read` would say against `target`."""
    raw = msgspec.to_builtins(target)
    for key in _BELONGS:
        if not raw["links"][key]:  # what the topology does not have
            del raw["links"][key]
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
        links = self.links(raw.get("links", {}), [d.name for d in devices])
        if self.found:
            raise AmpError(self.told())
        return Target(name=name, description=description, devices=tuple(devices), links=links)

    def told(self) -> list[Diagnostic]:
        """Return the mistakes; of very many the first, with how many there are beside them."""
        more = len(self.found) - MOST_TOLD
        if more <= 0:
            return self.found
        last = self.found[MOST_TOLD - 1]
        return [*self.found[: MOST_TOLD - 1], dataclasses.replace(last, notes=(*last.notes, f"{more} more mistakes like these"))]

    # ------------------------------------------------------------------------------------------------- devices

    def devices(self, raw: Any) -> list[Device]:
        if not isinstance(raw, list | tuple) or not all(isinstance(d, dict) for d in raw):
            self.add("AMP503", f"`devices` of `{self.file}` must be a list of tables", "write one `[[devices]]` table for each device")
            return []
        if not raw and not self.found:
            self.add("AMP504", f"target `{self.file}` has no devices", "write at least one `[[devices]]` table")
        devices: list[Device] = []
        for i, d in enumerate(raw):
            where = f"devices[{i}]."
            device = self.device(d, where)
            count = int(self.number(d, "count", where, 1))
            if len(devices) + count > MAX_DEVICES:
                self.add("AMP504", f"target `{self.file}` has more than {MAX_DEVICES} devices")
                return devices
            # `count` devices of one kind are called `name:0`, `name:1`, ...
            devices += [device] if count == 1 else [msgspec.structs.replace(device, name=f"{device.name}:{k}") for k in range(count)]
        twice = [f"`{printable(name)}`" for name in _repeated(d.name for d in devices)]
        if twice:
            names = ", ".join(twice[:4]) + (f" and {len(twice) - 4} names more" if len(twice) > 4 else "")
            self.add("AMP504", f"two devices of `{self.file}` are called {names}", "give each device its own name")
        return devices

    def device(self, d: dict[str, Any], where: str) -> Device:
        self.keys(d, _DEVICE_KEYS, _DEVICE_KEYS[:6], where)
        name = self.text(d, "name", where, longest=190 if "count" in d else 200)  # ":65535" comes behind it
        return Device(
            name=name,
            kind=self.choice(d, "kind", where, ("cpu", "fpga")),
            matrix_flops_per_s=self.rates(d, where),
            vector_flops_per_s=self.number(d, "vector_flops_per_s", where),
            memory_bytes=int(self.number(d, "memory_bytes", where)),
            message_overhead_s=self.number(d, "message_overhead_s", where),
            firing_overhead_s=self.number(d, "firing_overhead_s", where, 0.0),
            messages_per_firing=int(self.number(d, "messages_per_firing", where, 0)),
            matrix_half_rows=self.number(d, "matrix_half_rows", where, 0.0),
            matrix_half_columns=self.number(d, "matrix_half_columns", where, 0.0),
            memory_bytes_per_s=self.number(d, "memory_bytes_per_s", where, 0.0) if d.get("memory_bytes_per_s") != 0 else 0.0,
            cores=int(self.number(d, "cores", where, 1)),
            value_overhead_s=self.number(d, "value_overhead_s", where, 0.0),
            row_overhead_s=self.number(d, "row_overhead_s", where, 0.0),
            number_overhead_s=self.number(d, "number_overhead_s", where, 0.0),
            instance_overhead_s=self.number(d, "instance_overhead_s", where, 0.0),
            product_overhead_s=self.number(d, "product_overhead_s", where, 0.0),
            update_overhead_s=self.number(d, "update_overhead_s", where, 0.0),
            copy_bytes_per_s=self.number(d, "copy_bytes_per_s", where, 0.0) if d.get("copy_bytes_per_s") != 0 else 0.0,
            cache_bytes=int(self.number(d, "cache_bytes", where, 0)),
            far_bytes_per_s=self.number(d, "far_bytes_per_s", where, 0.0) if d.get("far_bytes_per_s") != 0 else 0.0,
        )

    def rates(self, d: dict[str, Any], where: str) -> dict[Precision, float]:
        """Return the rate of matrix products by precision."""
        raw = d.get("matrix_flops_per_s", {"fp32": 1e3})
        if not isinstance(raw, dict):
            self.add(
                "AMP503", f"`{where}matrix_flops_per_s` of `{self.file}` must be a table by precision, got {_kind(raw)}",
                "write `matrix_flops_per_s = { fp32 = 1e12 }`, with `bf16` or `fp16` beside it where the hardware has them",
            )  # fmt: skip
            return {"fp32": 1e3}
        inner = f"{where}matrix_flops_per_s."
        self.keys(raw, get_args(Precision), ("fp32",), inner)
        return {p: self.number(raw, p, inner, limits=_RANGES["matrix_flops_per_s"]) for p in get_args(Precision) if p in raw}

    # --------------------------------------------------------------------------------------------------- links

    def links(self, raw: Any, devices: list[str]) -> Links:
        """Return the links between `devices` (names)."""
        if not isinstance(raw, dict):
            self.add("AMP503", f"`links` of `{self.file}` must be a table, got {_kind(raw)}")
            return Links("shared", 1.0, 0.0)
        topology: Topology = self.choice(raw, "topology", "links.", get_args(Topology))
        needed = tuple(k for k, owners in _BELONGS.items() if topology in owners and k not in _MAY_LACK)
        self.keys(raw, _LINK_KEYS, (*_LINK_KEYS[:3], *needed), "links.")
        for key, owners in _BELONGS.items():
            if key in raw and topology not in owners:
                whose = " and ".join(f"`{o}`" for o in owners)
                self.add("AMP503", f"`links.{key}` of `{self.file}` belongs to the topology {whose}, not `{topology}`", f"remove `{key}`")
        links = Links(
            topology=topology,
            bytes_per_s=self.number(raw, "bytes_per_s", "links."),
            latency_s=self.number(raw, "latency_s", "links."),
            overhead_s=self.number(raw, "overhead_s", "links.", 0.0),
            message_overhead_s=self.number(raw, "message_overhead_s", "links.", 0.0),
            columns=int(self.number(raw, "columns", "links.", 0)) if "columns" in needed else 0,
            branching=int(self.number(raw, "branching", "links.", 0)) if "branching" in needed else 0,
            host_devices=int(self.number(raw, "host_devices", "links.", 0)) if "host_devices" in needed else 0,
            network=self.network(raw["network"]) if "network" in needed and "network" in raw else None,
            level=self.levels(raw["level"]) if topology == "tree" and "level" in raw else (),
        )
        self.whole_rows(links, len(devices))
        if topology == "links":
            return msgspec.structs.replace(links, link=self.given(raw.get("link", []), raw, devices))
        return links

    def network(self, raw: Any) -> HostNetwork | None:
        if not isinstance(raw, dict):
            self.add("AMP503", f"`links.network` of `{self.file}` must be a table, got {_kind(raw)}", "write it as `[links.network]`")
            return None
        keys = ("bytes_per_s", "latency_s")
        self.keys(raw, keys, keys, "links.network.")
        return HostNetwork(self.number(raw, "bytes_per_s", "links.network."), self.number(raw, "latency_s", "links.network."))

    def levels(self, raw: Any) -> tuple[Level, ...]:
        """Return the links of a tree above those of the devices."""
        if not isinstance(raw, list | tuple) or not all(isinstance(d, dict) for d in raw):
            self.add("AMP503", f"`links.level` of `{self.file}` must be a list of tables", "write one `[[links.level]]` table for each level")
            return ()
        if len(raw) > MAX_LEVELS:
            self.add("AMP504", f"`links.level` of `{self.file}` has {len(raw)} tables, more than {MAX_LEVELS}")
            return ()
        keys, found = ("bytes_per_s", "latency_s"), []
        for i, d in enumerate(raw):
            where = f"links.level[{i}]."
            self.keys(d, keys, keys, where)
            found.append(Level(self.number(d, "bytes_per_s", where), self.number(d, "latency_s", where)))
        return tuple(found)

    def whole_rows(self, links: Links, n: int) -> None:
        """Devices fill the rows of a mesh and the hosts of a cluster. `n` is 0 where devices could not be read: that has been told."""
        what = {"columns": "row", "host_devices": "host"}
        for key in ("columns", "host_devices"):
            size = getattr(links, key)
            if size and n % size:
                body = f"must divide the number of devices ({n}), so that they fill every {what[key]}; got {size}"
                self.add("AMP504", f"`links.{key}` of `{self.file}` {body}")

    def given(self, raw: Any, defaults: dict[str, Any], devices: list[str]) -> tuple[GivenLink, ...]:
        """Return the links of the topology `links`; a rate or latency that one does not state is that of `[links]`."""
        if not isinstance(raw, list | tuple) or not all(isinstance(d, dict) for d in raw):
            self.add("AMP503", f"`links.link` of `{self.file}` must be a list of tables", "write one `[[links.link]]` table for each link")
            return ()
        before = len(self.found)
        known = set(devices)
        links = []
        for i, d in enumerate(raw):
            where = f"links.link[{i}]."
            self.keys(d, _GIVEN_KEYS, _GIVEN_KEYS[:2], where)
            ends = [self.text(d, key, where) for key in ("from", "to")]
            for key, name in zip(("from", "to"), ends):
                if name and devices and name not in known:
                    remedy = did_you_mean(name, devices) if len(devices) <= 1000 else None
                    self.add("AMP504", f"`{where}{key}` of `{self.file}`: there is no device `{printable(name)}`", remedy)
            if ends[0] and ends[0] == ends[1]:
                self.add("AMP504", f"`{where}to` of `{self.file}` leads from `{printable(ends[0])}` to itself", "a device needs no link to itself")
            one_way = d.get("one_way", False)
            if not isinstance(one_way, bool):
                self.add("AMP503", f"`{where}one_way` of `{self.file}` must be true or false, got {_kind(one_way)}")
            rates = [self.number(d if key in d else {key: 1.0}, key, where) for key in ("bytes_per_s", "latency_s")]
            rates = [rate if key in d else self.quiet(defaults, key) for key, rate in zip(("bytes_per_s", "latency_s"), rates)]
            links.append(GivenLink(ends[0], ends[1], rates[0], rates[1], one_way is True))
        ways = [way for x in links if x.source != x.to for way in ((x.source, x.to), (x.to, x.source))[: 1 if x.one_way else 2]]
        for source, to in _repeated(ways):
            body = f"`{self.file}` has two links from `{printable(source)}` to `{printable(to)}`"
            self.add("AMP504", body, "a link carries messages both ways unless it is `one_way`")
        if devices and len(self.found) == before:
            self.connected(ways, devices)
        return tuple(links)

    def connected(self, ways: list[tuple[str, str]], devices: list[str]) -> None:
        """Every device reaches every other: the first reaches all, and all reach the first."""
        there: dict[str, list[str]] = {d: [] for d in devices}
        back: dict[str, list[str]] = {d: [] for d in devices}
        for source, to in ways:
            there[source].append(to)
            back[to].append(source)
        for next_of, told in ((there, "no link leads from `{}` to {}"), (back, "no link leads to `{}` from {}")):
            reached, stack = set(devices[:1]), devices[:1]
            while stack:
                new = [d for d in next_of[stack.pop()] if d not in reached]
                reached.update(new)
                stack += new
            lost = [f"`{printable(d)}`" for d in devices if d not in reached]
            if lost:
                names = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
                body = told.format(printable(devices[0]), names)
                self.add("AMP505", f"`{self.file}`: {body}, not even over others", "add `[[links.link]]` tables until every device is reached")
                return

    # -------------------------------------------------------------------------------------------- single values

    def add(self, code: str, message: str, remedy: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, help=remedy))

    def keys(self, raw: dict[str, Any], known: tuple[str, ...], needed: tuple[str, ...], where: str) -> None:
        for key in raw:
            if key not in known:
                remedy = _RENAMED.get(key) or did_you_mean(key, known) or "known keys are " + ", ".join(f"`{k}`" for k in known)
                self.add("AMP503", f"`{self.file}` has an unknown key `{where}{printable(key)}`", remedy)
        for key in needed:
            if key not in raw:
                unit = f" ({_RANGES[key][2]})" if key in _RANGES else ""
                self.add("AMP503", f"`{self.file}` lacks the key `{where}{key}`{unit}")

    def text(self, raw: dict[str, Any], key: str, where: str, default: str | None = None, longest: int = 200) -> str:
        """Return a name, or with a `default` a longer text that may be empty."""
        value = raw.get(key, default)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.add("AMP503", f"`{where}{key}` of `{self.file}` must be text, got {_kind(value)}")
            return ""
        low, high = (1, longest) if default is None else (0, 1000)
        if not low <= len(value) <= high:
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must have {low} to {high} characters, got {len(value)}")
        elif default is None and not value.isprintable():
            self.add("AMP504", f"`{where}{key}` of `{self.file}` holds a character that can't be printed: `{printable(value)}`")
        return value

    def choice(self, raw: dict[str, Any], key: str, where: str, options: tuple[str, ...]) -> Any:
        value = raw.get(key, options[0])
        if not isinstance(value, str) or value not in options:
            shown = f"`{printable(value)}`" if isinstance(value, str) else _kind(value)
            listed = ", ".join(f"`{o}`" for o in options)
            remedy = did_you_mean(value, options) if isinstance(value, str) else None
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must be one of {listed}, got {shown}", remedy)
            return options[0]
        return value

    def number(
        self, raw: dict[str, Any], key: str, where: str, default: float = 1.0, limits: tuple[float, float, str] | None = None
    ) -> float:
        if key not in raw:
            return default
        value, (low, high, unit) = raw[key], limits or _RANGES[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.add("AMP503", f"`{where}{key}` of `{self.file}` must be a number of {unit}, got {_kind(value)}")
            return default
        whole = key in _WHOLE
        # An integer may be too long for a float: it is compared, but not shown.
        if not low <= value <= high or (whole and value != int(value)):
            kind = "a whole number " if whole else ""
            shown = f"{value:g}" if isinstance(value, float) or abs(value) < 1e300 else "a number of hundreds of digits"
            self.add("AMP504", f"`{where}{key}` of `{self.file}` must be {kind}from {low:g} to {high:g} {unit}, got {shown}")
            return default
        return float(value) if not whole else value

    def quiet(self, raw: dict[str, Any], key: str) -> float:
        """Return a number that has been checked elsewhere."""
        return _Reader(self.file).number(raw, key, "")


def _repeated(items: Iterable[Any]) -> list[Any]:
    """Return what occurs more than once, each once, in order of the second occurrence."""
    seen: set[Any] = set()
    twice: dict[Any, None] = {}
    for item in items:
        if item in seen:
            twice[item] = None
        seen.add(item)
    return list(twice)


def _kind(value: Any) -> str:
    names = {bool: "true or false", str: "text", list: "a list", tuple: "a list", dict: "a table", int: "a whole number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


__all__ = ["mistakes", "read"]
