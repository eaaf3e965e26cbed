"""The run folder: what a run was asked, what it ran on, what happened epoch by epoch, its weights and its summary.

Nothing is created before `create` is called, which is after all input was checked; no file is ever seen half-written but
`metrics.jsonl`, which grows by whole lines. A folder that isn't a run folder is never overwritten.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import platform
import shutil
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt

from ampc.diagnostics import error
from ampc.place import usable_cores
from ampc.runtime import checkpoint
from ampc.runtime.events import Epoch
from ampc.runtime.options import RunOptions, to_toml
from ampc.runtime.weights import cannot_write, save_weights, write_bytes

OWN = (
    "config.toml", "env.json", "metrics.jsonl", "summary.json", "weights.safetensors", "best.safetensors", checkpoint.FOLDER, "trace", "report",
    "trace.perfetto-trace",
)  # fmt: skip


def version() -> str:
    """Return the installed version of ampc, or "unknown" when it runs from its source."""
    try:
        return importlib.metadata.version("ampc")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def next_folder(model: str, root: Path = Path("runs")) -> Path:
    """Return `runs/<model>-<n>` with the smallest n above all that exist."""
    taken = [int(p.name.rpartition("-")[2]) for p in root.glob(f"{model}-*") if p.name.rpartition("-")[2].isdigit()] if root.is_dir() else []
    return root / f"{model}-{max(taken, default=0) + 1}"


class RunFolder:
    """One run's folder. `path` exists once `create` or `reopen` was called."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path
        self.force = force
        self.ours = False  # whether `create` or `reopen` has made it the folder of this run
        self._lock = -1

    def check(self) -> None:
        """Raise AMP707 if the folder may not be used; nothing is created or removed."""
        if self.path.exists() and not self.path.is_dir():
            raise error("AMP707", f"`{self.path}` exists and is no folder", help="give another path with `-o`")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not (self.path / "config.toml").is_file():
                raise error("AMP707", f"`{self.path}` exists and is no run folder", help="give another path with `-o`")
            if not self.force:
                raise error(
                    "AMP707",
                    f"the run folder `{self.path}` exists already",
                    help="`--force` overwrites it, `--resume` continues it, `-o` gives another",
                )

    def hold(self) -> None:
        """Keep other runs out of the folder until `release`, or the end of the process. Raises AMP707 if one is writing into it."""
        if self._lock >= 0:
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as e:
            raise cannot_write(self.path, e) from e
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise error(
                "AMP707", f"another run is writing into `{self.path}`", help="wait until it has ended, or give another path with `-o`"
            ) from None
        except OSError:
            pass  # a file system without locks
        self._lock = descriptor

    def release(self) -> None:
        """Let other runs use the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def create(self, options: RunOptions, inputs: Mapping[str, Any]) -> None:
        """Make the folder (dropping the files of an earlier run if `force`), and write `config.toml` and `env.json`."""
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.hold()
            self._sweep()
            for name in OWN:
                old = self.path / name
                if old.is_dir():
                    shutil.rmtree(old)
                else:
                    old.unlink(missing_ok=True)
        except OSError as e:
            raise cannot_write(self.path, e) from e
        self.describe(options, inputs)

    def reopen(self, options: RunOptions, inputs: Mapping[str, Any], epochs: int) -> dict[str, Any]:
        """Continue a folder: the new configuration replaces the old, records beyond the first `epochs` epochs go. Return the last that is kept."""
        path = self.path / "metrics.jsonl"
        kept: list[bytes] = []
        last: dict[str, Any] = {}
        for line in path.read_bytes().splitlines(keepends=True) if path.is_file() else []:
            try:
                record = msgspec.json.decode(line)
            except msgspec.MsgspecError:
                continue  # the last line of a killed run
            if isinstance(record, dict) and isinstance(record.get("epoch"), int) and record["epoch"] <= epochs and not record.get("interrupted"):
                kept.append(line if line.endswith(b"\n") else line + b"\n")
                last = record
        self._sweep()
        write_bytes(path, b"".join(kept))
        (self.path / "summary.json").unlink(missing_ok=True)
        self.describe(options, inputs)
        return last

    def _sweep(self) -> None:
        """Remove what a killed run left half-written."""
        for name in OWN:
            for path in self.path.glob(f".{name}.tmp*"):
                path.unlink(missing_ok=True)

    def describe(self, options: RunOptions, inputs: Mapping[str, Any]) -> None:
        """Write what the run was asked (`config.toml`, which `ampc.toml` could be) and what it runs on (`env.json`)."""
        self.ours = True
        lines = ["", "[input]"] + [f"{key} = {_toml(value)}" for key, value in inputs.items() if value is not None]
        write_bytes(self.path / "config.toml", (to_toml(options) + "\n".join(lines) + "\n").encode())
        write_bytes(self.path / "env.json", _json(environment()))

    def add(self, epoch: Epoch) -> None:
        """Append an epoch's record to `metrics.jsonl`."""
        try:
            with open(self.path / "metrics.jsonl", "ab") as f:
                f.write(msgspec.json.encode(epoch) + b"\n")
                f.flush()
                os.fsync(f.fileno())
        except OSError as e:
            raise cannot_write(self.path / "metrics.jsonl", e) from e

    def weights(self, arrays: Mapping[str, npt.NDArray[Any]], program: str, *, best: bool = False) -> Path:
        """Write `weights.safetensors` (the last) or `best.safetensors`; return its path."""
        path = self.path / ("best.safetensors" if best else "weights.safetensors")
        save_weights(path, arrays, {"program": program, "ampc": version()})
        return path

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`."""
        write_bytes(self.path / "summary.json", _json(summary))


def environment() -> dict[str, Any]:
    """Return what the figures of a run depend on beside its settings."""
    packages = {}
    for name in ("numpy", "numba", "llvmlite", "scipy", "mkl", "safetensors", "msgspec", "pyarrow"):
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "ampc": version(),
        "python": platform.python_version(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "usable_cores": usable_cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
        "byte_order": sys.byteorder,
        "packages": packages,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return next((line.partition(":")[2].strip() for line in f if line.startswith("model name")), platform.processor())
    except OSError:
        return platform.processor()


def read_inputs(folder: Path) -> dict[str, Any]:
    """Return the `[input]` table of a run folder's `config.toml` (empty if it can't be read)."""
    try:
        table = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8")).get("input", {})
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return msgspec.json.encode(str(value)).decode() if not isinstance(value, int | float) else repr(value)


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
