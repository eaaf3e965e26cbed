"""Makes a program's functions ready to be called: each text is a file in the private cache under a name made from its content, compiled once.

The name fixes the content, so compiled code is found again by the next process, and by other programs that have a function of the same shape; the
file is always one that this process would write itself. What is compiled nowhere yet is compiled by several processes at once (`compiling`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ampc.codegen.kernels import Function
from ampc.runtime import cache, compiling, half, losses, native, rows, segments, single, worker

if TYPE_CHECKING:
    from ampc.runtime.by_address import Made

LIBRARY = (half, losses, rows, segments, single, worker)
"""Modules whose kernels the text names, or that begin all; importing them makes them known."""
PREFIX = "ampc_kernel_"


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Functions that are ready.

    addresses: queue -> where its function is, as long as `modules` live. shapes: how many different texts they have; library: how many functions
    these call in turn. compiled: those of both that no cache held -> seconds; seconds: of all, loading too.
    """

    addresses: dict[int, int]
    modules: tuple[ModuleType, ...] = ()
    shapes: int = 0
    library: int = 0
    compiled: dict[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    @property
    def cached(self) -> int:
        """How many of both the cache held."""
        return self.shapes + self.library - len(self.compiled)

    def joined(self, other: Loaded, what: str) -> Loaded:
        """Return these functions and those of another program, which `what` tells apart; numbers of its queues follow the last of these."""
        behind = 1 + max(self.addresses, default=-1)
        modules = tuple({m.__name__: m for m in (*self.modules, *other.modules)}.values())
        return Loaded(
            self.addresses | {behind + q: address for q, address in other.addresses.items()}, modules, len(modules), max(self.library, other.library),
            self.compiled | {f"{name} {what}" if name.startswith(("fwd_", "bwd_")) else name: s for name, s in other.compiled.items()},
            self.seconds + other.seconds,
        )  # fmt: skip


def load(functions: Iterable[Function]) -> Loaded:
    """Return a program's functions, compiled now or found compiled in the cache."""
    began = time.perf_counter()
    named = {f.queue: name_of(f.text) for f in functions}
    modules = {name_of(f.text): _module(name_of(f.text), f.text) for f in functions}
    if not native.JIT:
        from ampc.runtime.plain import FUNCTIONS

        FUNCTIONS.update({id(m.kernel): m.kernel for m in modules.values()})
        places = {queue: id(modules[name].kernel) for queue, name in named.items()}
        return Loaded(places, tuple(modules.values()), len(modules), seconds=time.perf_counter() - began)
    from ampc.runtime.by_address import ensure, needed

    ours = {name: _made(name) for name in modules}
    library = {entry: made for m in modules.values() for entry, made in needed(m.kernel).items()} | needed("turns")
    lacking = {name: made for name, made in (ours | library).items() if not made.kept}
    lacking = dict(sorted(lacking.items(), key=lambda item: -item[1].size))  # the last ones to be compiled should be short
    seconds = compiling.together(list(lacking)) if lacking else {}
    ensure("turns", *(m.kernel for m in modules.values()))
    addresses = {queue: ours[name].address for queue, name in named.items()}
    spent = {_title(name, named): seconds.get(name, made.seconds) for name, made in lacking.items()}
    return Loaded(addresses, tuple(modules.values()), len(modules), len(library), spent, time.perf_counter() - began)


def function(name: str) -> Made | None:
    """Return the function of that name, of the library or of a file in the cache; None if there is none."""
    from ampc.runtime.by_address import KERNELS

    if name in KERNELS:
        return KERNELS[name].made
    try:
        text = (cache.folder() / f"{name}.py").read_text(encoding="utf-8")
    except OSError:
        return None
    if name_of(text) != name:
        return None
    _module(name, text)
    return _made(name)


def name_of(text: str) -> str:
    """Return the name of the module that holds a function's text."""
    return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _title(name: str, named: dict[int, str]) -> str:
    """Return a function's name for people: for one of the program which segments have it, "fwd_2, fwd_3"."""
    return ", ".join(f"{'bwd' if q & 1 else 'fwd'}_{q // 2}" for q, own in named.items() if own == name) or name


@functools.cache
def _made(name: str) -> Made:
    from ampc.runtime.by_address import FIRING, Made

    return Made(sys.modules[name].kernel, FIRING)


def _module(name: str, text: str) -> ModuleType:
    """Return the module of a function's text."""
    if name not in sys.modules:
        path = _file(name, text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # numba finds the functions of a cached module by name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _file(name: str, text: str) -> Path:
    path = cache.folder() / f"{name}.py"
    # numba's index goes by the file's time and size: leave a good file alone, never trust another one.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    return path
