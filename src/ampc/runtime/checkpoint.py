"""Checkpoints: a set of files that is there whole or not at all, found again newest first.

`write` makes `checkpoints/<step>/` by way of a temporary folder, fsync and rename; the index inside a final name, with a SHA-256 of each
file, is the mark that it is complete. `load` takes the newest sound one and says which it had to pass over. It never repairs anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ampc.diagnostics import AmpError, error
from ampc.runtime.weights import Arrays, Shapes, cannot_write, decode, encode, sync_folder

VERSION = 1
INDEX_LIMIT = 64 << 20
FOLDER = "checkpoints"


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a checkpoint."""

    name: str
    size_bytes: int
    sha256: str


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run stands. `epoch`: epochs finished; `done_in_epoch`: instances of the next that are trained (the ledger lists them).

    `step`: the number of the checkpoint (`next_step`), the name of its folder. `instances`: trained in all. `rows`: instances in the training data.
    `elapsed_s`, `time_to_target_s`: training and validation time. `partial`: results of the parts of the unfinished epoch, as JSON data.
    `wall_s`, `compile_s`: of the whole run so far, as in the summary. `rates`: instances/s of each epoch. The learning rate follows from the
    schedule and these.
    """

    step: int
    instances: int
    epoch: int
    done_in_epoch: int
    seed: int
    rows: int
    shuffle: bool
    learning_rate: float
    elapsed_s: float
    watch: str = ""
    best_value: float | None = None
    best_epoch: int | None = None
    best_step: int | None = None
    epochs_since_best: int = 0
    time_to_target_s: float | None = None
    partial: list[dict[str, Any]] = []
    rates: list[float] = []
    wall_s: float = 0.0
    compile_s: float = 0.0
    updates: dict[str, int] = {}
    staleness: dict[str, list[int]] = {}


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`index.json`."""

    version: int
    program: str
    files: list[FileEntry]
    state: State
    shapes: dict[str, list[int]]
    ampc: str = ""
    python: str = ""
    numpy: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was loaded. `ledger`: int64, the instances of the unfinished epoch that are done. `warnings`: what was passed over, and why."""

    path: Path
    state: State
    weights: Arrays
    optimizer: Arrays
    ledger: npt.NDArray[np.int64]
    warnings: tuple[str, ...]


def write(
    run_folder: Path,
    program: str,
    state: State,
    weights: Arrays,
    optimizer: Arrays,
    ledger: npt.NDArray[np.int64],
    *,
    keep: int = 3,
    ampc_version: str = "",
) -> Path:
    """Write a checkpoint of a drained run and drop those that are neither among the last `keep` nor the best; return its folder.

    program: the hash of the program (`load` wants the same). Raises AMP730 (exit 4); the older checkpoints stay as they were.
    """
    parent = run_folder / FOLDER
    final = parent / f"{state.step:06d}"
    temporary = parent / f".tmp-{state.step:06d}-{os.getpid()}"
    contents = {
        "weights.safetensors": encode(weights),
        "optimizer.safetensors": encode(optimizer),
        "ledger.safetensors": encode({"done": np.asarray(ledger, dtype=np.int64)}),
    }
    try:
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        temporary.mkdir()
        entries = []
        for name, content in contents.items():
            _write(temporary / name, content)
            entries.append(FileEntry(name, len(content), hashlib.sha256(content).hexdigest()))
        shape = {name: list(a.shape) for name, a in weights.items()}
        index = Index(VERSION, program, entries, state, shape, ampc_version, platform.python_version(), np.__version__)
        _write(temporary / "index.json", msgspec.json.format(msgspec.json.encode(index), indent=1))
        sync_folder(temporary)
        os.rename(temporary, final)
        sync_folder(parent)
        sweep(parent)
        _prune(parent, keep, state.best_step)
    except OSError as e:
        shutil.rmtree(temporary, ignore_errors=True)
        raise cannot_write(final, e) from e
    return final


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb") as f:
        f.write(content)
        f.flush()
        os.fsync(f.fileno())


def steps(parent: Path) -> list[Path]:
    """Return the folders with a final name, the newest first."""
    if not parent.is_dir():
        return []
    return sorted((p for p in parent.iterdir() if p.is_dir() and p.name.isdigit()), key=lambda p: int(p.name), reverse=True)


def next_step(run_folder: Path) -> int:
    """Return the number of the next checkpoint: one more than any that was ever finished there, sound or not."""
    newest = steps(run_folder / FOLDER)
    return int(newest[0].name) + 1 if newest else 1


def sweep(parent: Path) -> None:
    """Remove what a killed run left half-written."""
    for path in parent.iterdir():
        if path.name.startswith(".tmp-"):
            shutil.rmtree(path, ignore_errors=True)


def _prune(parent: Path, keep: int, best_step: int | None) -> None:
    for path in steps(parent)[keep:]:
        if int(path.name) != best_step:
            shutil.rmtree(path, ignore_errors=True)


# ------------------------------------------------------------------------------------------ loading


class Unsound(Exception):
    """A checkpoint that can't be used; the text names the file."""


def load(run_folder: Path, program: str, wanted: Shapes, warn: Callable[[str], None] = lambda _: None) -> Checkpoint:
    """Return the newest sound checkpoint of `run_folder`; call `warn` for each newer one that isn't, naming the bad file.

    Raises AMP708 if there is none that is sound, AMP709 if it is of another program (with the shapes found and wanted).
    """
    parent = run_folder / FOLDER
    folders = steps(parent)
    warnings: list[str] = []
    for path in folders:
        try:
            found = _read(path)
        except Unsound as e:
            warnings.append(f"{e}; going back to an older checkpoint")
            warn(warnings[-1])
            continue
        index, arrays = found
        _check_program(path, index, program, wanted)
        return Checkpoint(
            path, index.state, arrays["weights.safetensors"], arrays["optimizer.safetensors"], arrays["ledger.safetensors"]["done"], tuple(warnings)
        )
    if not run_folder.is_dir():
        raise error("AMP708", f"`{run_folder}` is no run folder", help="give `--resume` the folder that an earlier `ampc run` printed")
    if not folders:
        raise error("AMP708", f"`{run_folder}` holds no finished checkpoint", help="start the run anew without `--resume`")
    problem = f"none of the {len(folders)} checkpoints in `{parent}` is sound"
    raise error("AMP708", problem, notes=tuple(w.partition("; going back")[0] for w in warnings), help="start the run anew without `--resume`")


def _read(path: Path) -> tuple[Index, dict[str, Arrays]]:
    index_path = path / "index.json"
    try:
        if index_path.stat().st_size > INDEX_LIMIT:
            raise Unsound(f"`{index_path}` is larger than an index can be")
        index = msgspec.json.decode(index_path.read_bytes(), type=Index)
    except OSError as e:
        raise Unsound(f"`{index_path}` can't be read ({(e.strerror or str(e)).lower()})") from e
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise Unsound(f"`{index_path}` is damaged ({str(e).lower()[:200]})") from e
    if index.version != VERSION:
        raise Unsound(f"`{index_path}` has version {index.version}, this ampc reads version {VERSION}")
    if sorted(e.name for e in index.files) != ["ledger.safetensors", "optimizer.safetensors", "weights.safetensors"]:
        raise Unsound(f"`{index_path}` doesn't list the files of a checkpoint")
    return index, {entry.name: _read_file(path / entry.name, entry) for entry in index.files}


def _read_file(path: Path, entry: FileEntry) -> Arrays:
    try:
        size = path.stat().st_size
        if size != entry.size_bytes:
            raise Unsound(f"`{path}` has {size} bytes instead of {entry.size_bytes}")
        content = path.read_bytes()
    except OSError as e:
        raise Unsound(f"`{path}` can't be read ({(e.strerror or str(e)).lower()})") from e
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise Unsound(f"`{path}` is damaged (its SHA-256 isn't that of the index)")
    try:
        return decode(content, str(path))
    except AmpError as e:
        raise Unsound(e.diagnostics[0].message) from e


def _check_program(path: Path, index: Index, program: str, wanted: Shapes) -> None:
    found = {name: tuple(shape) for name, shape in index.shapes.items()}
    notes = [f"`{n}` has shape {list(found[n])}, the program wants {list(s)}" for n, s in wanted.items() if n in found and found[n] != tuple(s)]
    notes += [f"`{n}` {list(s)} is missing in the checkpoint" for n, s in wanted.items() if n not in found]
    notes += [f"`{n}` {list(s)} is in the checkpoint, but not in the program" for n, s in found.items() if n not in wanted]
    if not notes and index.program == program:
        return
    hint = "resume with the manifest that the run was started with"
    if not notes:
        hint += ", or start a new run from its weights with `--init`"
    raise error("AMP709", f"the checkpoint `{path}` is of another program", notes=tuple(notes[:40]), help=hint)
