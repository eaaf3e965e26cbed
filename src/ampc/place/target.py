"""Targets: devices and the links between them, and how long work takes on a device. Read from `targets/*.toml` by `target_file`.

Nothing here knows graphs: what a node does is in `work`, how messages travel in `topology`, the choice of a device in `assign`.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from ampc.diagnostics import Diagnostic, did_you_mean, error, printable

MAX_TARGET_BYTES = 1 << 20
MAX_DEVICES = 65_536
ASSUMED_MESSAGES = 16.0
"""Messages that one firing is thought to take, in an estimate, on a device that takes as many as wait."""

Precision = Literal["fp32", "bf16", "fp16"]
"""Of the factors of matrix products. Their sums, and all else that is computed, kept or sent, is float32, as the engine has it."""
NUMBER_BYTES = 4
FACTOR_BYTES: dict[Precision, int] = {"fp32": 0, "bf16": 2, "fp16": 2}
"""Of the rounded copy that is kept beside each parameter."""

Topology = Literal["shared", "full", "star", "ring", "mesh", "torus", "tree", "hosts", "links"]
"""shared: one memory, every pair is one hop. full: a link for each pair. star: over a switch, two hops. ring, mesh, torus: as many as it takes.
tree: devices are the leaves, switches the rest. hosts: one memory in each host, a network between them. links: as listed."""


class Handling(msgspec.Struct, frozen=True):
    """What work costs beside counted arithmetic.

    `values`: payloads, fields and kept results that a firing looks for, of each message; `copied_bytes` of them; `rows` that are taken one by one;
    `numbers` that are: of a softmax.
    `sides`, `corners`: of each row of a k x n matrix product k + n and 1, what `matrix_half_columns` makes dearer.
    """

    rows: float = 0.0
    values: float = 0.0
    copied_bytes: float = 0.0
    sides: float = 0.0
    corners: float = 0.0
    numbers: float = 0.0

    def __add__(self, other: Handling) -> Handling:
        return Handling(
            self.rows + other.rows, self.values + other.values, self.copied_bytes + other.copied_bytes, self.sides + other.sides,
            self.corners + other.corners, self.numbers + other.numbers,
        )  # fmt: skip

    def __mul__(self, k: float) -> Handling:
        return Handling(self.rows * k, self.values * k, self.copied_bytes * k, self.sides * k, self.corners * k, self.numbers * k)


NOTHING = Handling()


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One place that fires nodes: a worker thread on a CPU core, or a tile of a simulated network. Rates are those of one of its `cores`."""

    name: str
    kind: Literal["cpu", "fpga"]
    matrix_flops_per_s: dict[Precision, float]
    """Of matrix products of many rows, by precision; "fp32" is always there."""
    vector_flops_per_s: float
    """Of everything else: element-wise operations, sums, updates."""
    memory_bytes: int
    message_overhead_s: float
    """Each message that waits in a queue and is taken out."""
    firing_overhead_s: float = 0.0
    messages_per_firing: int = 0
    """Most messages that one firing takes; 0: as many as wait."""
    matrix_half_rows: float = 0.0
    """Rows at which a matrix product reaches half of its rate; 0: any number of rows runs at the full rate."""
    memory_bytes_per_s: float = 0.0
    """Bandwidth to the device's own memory; 0 leaves it out of the estimate."""
    cores: int = 1
    value_overhead_s: float = 0.0
    """Each value that a firing looks for, for each message: a payload that came or leaves, a field, a result that is kept for backward."""
    row_overhead_s: float = 0.0
    """Each row that is taken one by one: by an index, a lookup, a group, a norm."""
    number_overhead_s: float = 0.0
    """Each number of a row whose softmax is taken, by a loss or by itself."""
    product_overhead_s: float = 0.0
    """Each matrix product that a firing calls for."""
    instance_overhead_s: float = 0.0
    """Each instance that is admitted and retired."""
    update_overhead_s: float = 0.0
    """Each update of a layer, beside its operations."""
    copy_bytes_per_s: float = 0.0
    """Rate at which values are copied between the memory of the instances in flight and that of a firing; 0 leaves it out of the estimate."""

    matrix_half_columns: float = 0.0
    """Added to both sides of the matrix of a product: small products do not reach the rate of large ones."""
    cache_bytes: int = 0
    """Weights and gradients of a layer up to which they stay in the device's own cache; 0: always."""
    far_bytes_per_s: float = 0.0
    """Rate at which each product reads the weights of a larger layer, and reads and writes their gradients; 0 leaves it out of the estimate."""

    def handling_s(self, h: Handling, precision: Precision = "fp32") -> float:
        """Return how long what is no counted arithmetic takes here."""
        copied_s = h.copied_bytes / self.copy_bytes_per_s if self.copy_bytes_per_s else 0.0
        c = self.matrix_half_columns
        narrow_s = 2.0 * c * (h.sides + c * h.corners) / self.matrix_flops_per_s[precision]
        called_s = h.rows * self.row_overhead_s + h.values * self.value_overhead_s + h.numbers * self.number_overhead_s
        return (called_s + copied_s + narrow_s) / self.cores

    def calls_s(self, product_flops: float, sides: float, calls: float, precision: Precision = "fp32") -> float:
        """Return what so many matrix products cost by being called for, whatever their rows: see `seconds` and `Handling`."""
        few = self.seconds(0.0, 0.0, 0.0, product_flops, precision)
        narrow = Handling(sides=sides, corners=calls) * self.matrix_half_rows
        return few + self.handling_s(narrow, precision) + calls * self.product_overhead_s / self.cores + self._far_s(product_flops, calls)

    def _far_s(self, product_flops: float, calls: float) -> float:
        """Return how long it takes to bring near what so many equal products multiply by, if it is too much for the cache.

        Forward reads the k x n weights, backward reads them for one product and reads and writes their gradients for the other: 16 bytes a weight
        for three products.
        """
        weights = product_flops / 2
        if not self.far_bytes_per_s or weights * 2 * NUMBER_BYTES <= self.cache_bytes * calls:
            return 0.0
        return weights * 4 * NUMBER_BYTES / 3 / self.far_bytes_per_s / self.cores

    def seconds(
        self, matrix_flops: float, vector_flops: float, size_bytes: float, product_flops: float = 0.0, precision: Precision = "fp32"
    ) -> float:
        """Return how long work takes here: the longer of its operations and its bytes.

        `product_flops`: 2·K·N of every matrix product in it, whatever its rows: what `matrix_half_rows` makes dearer. A product of r rows takes
        (r + matrix_half_rows)·2·K·N operations' time. Raises KeyError for a precision that the device lacks (`require` tells the user).
        """
        matrix_s = (matrix_flops + self.matrix_half_rows * product_flops) / self.matrix_flops_per_s[precision]
        work_s = matrix_s + vector_flops / self.vector_flops_per_s
        moved_s = size_bytes / self.memory_bytes_per_s if self.memory_bytes_per_s else 0.0
        return max(work_s / self.cores, moved_s)

    def update_s(self, flops: float, updates: float = 1.0) -> float:
        """Return how long so many updates of layers take, of so many element-wise operations together."""
        return self.seconds(0.0, flops, 0.0) + updates * self.update_overhead_s / self.cores

    @property
    def messages_together(self) -> float:
        """Messages that a firing is thought to take where nothing has been measured."""
        return float(self.messages_per_firing or ASSUMED_MESSAGES)

    @property
    def message_s(self) -> float:
        """Seconds of a message that waits in a queue, with its share of the firing that takes it."""
        return (self.message_overhead_s + self.firing_overhead_s / self.messages_together) / self.cores

    @property
    def copy_s(self) -> float:
        """Seconds of a byte that is copied."""
        return 1.0 / self.copy_bytes_per_s / self.cores if self.copy_bytes_per_s else 0.0


class HostNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between hosts: the rate of each host's network card, in and out, and the latency from host to host."""

    bytes_per_s: float
    latency_s: float


class GivenLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """A link of the topology `links`, both ways unless `one_way`."""

    source: str
    to: str
    bytes_per_s: float
    latency_s: float
    one_way: bool = False


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The links that lead up from the switches of one level of a tree."""

    bytes_per_s: float
    latency_s: float


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a message between two devices meets on each hop.

    `columns` is the width of a mesh or torus, `branching` what each switch of a tree joins, `level` its links from the lowest switches on up (the
    last one holds for all above), `host_devices` the devices of a host, `network` what joins hosts, `link` the links of the topology `links`.
    `overhead_s`: busy seconds that messages sent at once to another device cost each of the two; `message_overhead_s`: that each of them does,
    beside that of the queue from which it is taken (`Device.message_overhead_s`).
    In shared memory nobody carries bytes: the device that reads them spends `bytes / bytes_per_s` on it.
    """

    topology: Topology
    bytes_per_s: float
    latency_s: float
    overhead_s: float = 0.0
    message_overhead_s: float = 0.0
    columns: int = 0
    branching: int = 0
    host_devices: int = 0
    network: HostNetwork | None = None
    link: tuple[GivenLink, ...] = ()
    level: tuple[Level, ...] = ()

    @property
    def read_s(self) -> float:
        """Seconds of a byte that the receiving device spends on reading it where another has written it; 0 where links carry it."""
        return 1.0 / self.bytes_per_s if self.topology == "shared" else 0.0


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine or a network of devices."""

    name: str
    devices: tuple[Device, ...]
    links: Links
    description: str = ""

    def has(self, precision: Precision) -> bool:
        """Whether every device states a rate for `precision`."""
        return all(precision in d.matrix_flops_per_s for d in self.devices)

    def require(self, precision: Precision) -> None:
        """Raise AmpError AMP506 if a device states no rate for `precision`."""
        lacking = [d.name for d in self.devices if precision not in d.matrix_flops_per_s]
        if lacking:
            shown = ", ".join(f"`{printable(n)}`" for n in lacking[:8]) + (", ..." if len(lacking) > 8 else "")
            raise error(
                "AMP506", f"target `{printable(self.name)}` states no {precision} rate for {shown}",
                help=f"add `{precision} = ...` to `matrix_flops_per_s`, or estimate with another precision",
            )  # fmt: skip


def resized(target: Target, n: int) -> Target:
    """Return `target` with `n` devices, the first kind of device in its topology; raises AmpError AMP504 where that topology can't have as many.

    A mesh or torus becomes as square as `n` allows; hosts keep their size (a single host may be smaller).
    """
    if n == len(target.devices):
        return target
    first, links = target.devices[0], target.links
    stem = first.name.removesuffix(":0")
    if not 1 <= n <= MAX_DEVICES:
        raise error("AMP504", f"a target has 1 to {MAX_DEVICES} devices, not {n}")
    if links.topology in ("mesh", "torus"):
        rows = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
        links = msgspec.structs.replace(links, columns=n // rows)
    elif links.topology == "hosts" and n <= links.host_devices:
        links = msgspec.structs.replace(links, host_devices=n)
    elif links.topology == "hosts" and n % links.host_devices:
        raise error("AMP504", f"{n} devices don't fill hosts of {links.host_devices}", help=f"give a multiple of {links.host_devices}")
    elif links.topology == "links":
        body = f"target `{printable(target.name)}` lists its links, so that it can't be resized"
        raise error("AMP504", body, help="give it a `topology` of another kind")
    devices = tuple(msgspec.structs.replace(first, name=f"{stem}:{k}" if n > 1 else stem) for k in range(n))
    return msgspec.structs.replace(target, devices=devices, links=links)


# ---------------------------------------------------------------------------------------------------- this machine


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


# --------------------------------------------------------------------------------------------------------- reading


def bundled_targets() -> list[str]:
    """Return the names of the targets that come with ampc, sorted."""
    folder = resources.files("ampc") / "targets"
    return sorted((f.name[: -len(".toml")] for f in folder.iterdir() if f.name.endswith(".toml")), key=_natural)


def _natural(name: str) -> tuple[str, int]:
    """`cpu-8` before `cpu-16`."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)


def load_target(name_or_path: str | Path) -> Target:
    """Return the bundled target of that name, or the one in a `.toml` file.

    Raises AmpError AMP501 (not found), AMP502 (not a target file), AMP503 (unknown, missing or mistyped key), AMP504 (impossible value),
    AMP505 (a device that no link reaches).
    """
    name = str(name_or_path)
    if not name.endswith(".toml") and "/" not in name:
        known = bundled_targets()
        if name not in known:
            raise error("AMP501", f"there is no target `{printable(name)}`", help=_nearest(name, known))
        return parse_target((resources.files("ampc") / "targets" / f"{name}.toml").read_text("utf-8"), f"{name}.toml")
    path, shown = Path(name_or_path), printable(name)
    try:
        if path.stat().st_size > MAX_TARGET_BYTES:
            raise error("AMP502", f"target file `{shown}` is larger than {MAX_TARGET_BYTES} bytes", help="a target is a few lines for each device")
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        remedy = "`ampc calibrate` writes `cpu.toml`" if path.name == "cpu.toml" else "`ampc doctor` lists the bundled targets"
        raise error("AMP501", f"there is no target file `{shown}`", help=remedy) from None
    except UnicodeDecodeError:
        raise error("AMP502", f"target file `{shown}` is not UTF-8 text") from None
    except (OSError, ValueError) as e:  # ValueError: a null character in the path
        raise error("AMP501", f"target file `{shown}` cannot be read: {getattr(e, 'strerror', None) or e}") from None
    return parse_target(text, name)


def _nearest(name: str, known: list[str]) -> str:
    listed = ", ".join(f"`{k}`" for k in known)
    if name == "cpu":
        return f"`ampc calibrate` measures this machine and writes `cpu.toml`, for `--target cpu.toml`; bundled are {listed}"
    return did_you_mean(name, known) or f"a target is one of {listed}, or the path of a `.toml` file"


def parse_target(text: str, file: str) -> Target:
    """Return the target that `text` (TOML) describes; raises AmpError AMP502 to AMP505, all mistakes at once."""
    from ampc.place.target_file import read  # which imports the types of this module

    return read(text, file)


def verify_target(target: Target, where: str) -> list[Diagnostic]:
    """Return what is impossible about a target that did not come from a file here: the rules of `parse_target`."""
    from ampc.place.target_file import mistakes

    return mistakes(target, where)
