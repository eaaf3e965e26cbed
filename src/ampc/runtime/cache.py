"""Where compiled code is kept: a private folder, one inside it for each state of the sources that compiled code was made from.

numba's cache files are pickles, and they know only the file of a function, not the files of what it calls. So the folder's name is a hash
of all runtime sources, numba's version, the processor and the BLAS, by which some products are made otherwise; and it is refused if others could
write to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from ampc.diagnostics import error
from ampc.runtime import blas

SOURCES = (
    "runtime/settings.py", "runtime/lanes.py", "runtime/tiles.py", "runtime/by_address.py", "runtime/compiled.py", "runtime/packing.py",
    "runtime/panels.py", "runtime/products.py", "runtime/native.py", "runtime/rows.py", "runtime/half.py", "runtime/segments.py", "runtime/losses.py",
    "runtime/tokens.py", "runtime/room.py", "runtime/log.py", "runtime/optimizer.py", "runtime/worker.py", "runtime/single.py", "codegen/layout.py",
    "simulate/core.py", "simulate/tables.py", "simulate/cost_tables.py", "simulate/cost_queues.py", "simulate/cost_layers.py",
)  # fmt: skip


def root() -> Path:
    """The cache folder: $AMPC_CACHE_DIR, else $XDG_CACHE_HOME/ampc, else ~/.cache/ampc, else one in the temporary folder."""
    chosen = os.environ.get("AMPC_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "ampc"
    try:
        return Path.home() / ".cache" / "ampc"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"ampc-{os.getuid()}"


def _prepare(path: Path) -> None:
    """Make a private folder; raise `AmpError` AMP790 if it cannot be made or is not private."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.stat()
    except OSError as problem:
        raise error(
            "AMP790", f"the cache folder `{path}` can't be used: {problem.strerror}", help="set AMPC_CACHE_DIR to a folder that you own", exit_code=4
        ) from None
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise error(
            "AMP790", f"the cache folder `{path}` can be written by others, and what is in it gets executed",
            help=f"run `chmod go-w '{path}'` or set AMPC_CACHE_DIR to a folder that only you can write", exit_code=4,
        )  # fmt: skip


@functools.cache
def folder() -> Path:
    """The folder for compiled code of these very sources, made if need be."""
    package = Path(__file__).resolve().parent.parent
    seal = hashlib.sha256()
    for name in SOURCES:
        seal.update((package / name).read_bytes())
    seal.update(f"{version('numba')} {platform.machine()} {_processor()} {platform.python_version()} {blas.provider()}".encode())
    path = root()
    try:
        _prepare(path)
    except Exception:
        # A read-only home must not stop a run: compile anew, in a private temporary folder.
        if os.environ.get("AMPC_CACHE_DIR") or path.exists():
            raise
        path = Path(tempfile.mkdtemp(prefix="ampc-"))
    path = path / seal.hexdigest()[:20]
    _prepare(path)
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("flags", "Features"))), platform.processor())


@contextlib.contextmanager
def locked(what: str, wait: bool = True) -> Iterator[bool]:
    """Hold `what` in the cache while compiling it, so that processes that start at once compile it once and never read half a file.

    Yields whether it is held. Without `wait` it is not where another process holds it; nor is it where no file can be made, and work goes on.
    """
    try:
        place = folder() / "locks"
        place.mkdir(mode=0o700, exist_ok=True)
        file = open(place / hashlib.sha256(what.encode()).hexdigest()[:32], "w")  # noqa: SIM115  # closed below
    except OSError:
        yield wait
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield wait
            return
        yield True  # closing the file gives it back, as the end of a process does
