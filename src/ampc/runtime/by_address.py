"""Functions that are compiled once, kept, and called by their address, from machine code and from Python: the library's and the generated ones.

Callers of such a function need only its name to be compiled; its address is told before they run.
"""

from __future__ import annotations

import ctypes
import functools
import time
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ampc.runtime import cache
from ampc.runtime.saving import Saved, compiled
from ampc.runtime.settings import ENTRY


class Kernel:
    """A function that is compiled once, kept, and called by its address: callers are neither inlined into nor compiled again with it."""

    def __init__(self, function: Any, symbol: Any) -> None:
        self.function, self.symbol = function, symbol

    @functools.cached_property
    def made(self) -> Made:
        return Made(self.function, self.symbol.sig)


KERNELS: dict[str, Kernel] = {}
_POINTERS = {"F": types.float32, "XF": types.float32, "O": types.float32, "I": types.int64, "XI": types.int64, "G": types.int64, "D": types.float64}


def kernel(floats: str = "", doubles: str = "", unsigned: str = "", returns: Any = types.void) -> Any:
    """Make a function one that others call by address. Its types follow from names: memory, `floats`, `doubles`, `unsigned`, else int64."""
    given = ((floats, types.float32), (doubles, types.float64), (unsigned, types.uint64))
    special = {name: kind for names, kind in given for name in names.split()}

    def wrap(function: Any) -> Any:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        arguments = [types.CPointer(_POINTERS[n]) if n in _POINTERS else special.get(n, types.int64) for n in names]
        symbol = types.ExternalFunction(f"ampc_{function.__name__}", returns(*arguments))
        KERNELS[function.__name__] = Kernel(function, symbol)
        return symbol

    return wrap


def _parts(function: Any) -> tuple[list[Any], list[str]]:
    """Return (a function and the helpers that become part of it, the kernels that these call)."""
    parts: list[Any] = []
    kernels: dict[str, None] = {}

    def look(function: Any) -> None:
        function = getattr(function, "py_func", function)
        if function in parts:
            return
        parts.append(function)
        names, known = function.__code__.co_names, function.__globals__
        modules = [vars(known[n]) for n in names if isinstance(known.get(n), ModuleType)]
        for value in (space[n] for space in (known, *modules) for n in names if n in space):
            if isinstance(value, types.ExternalFunction) and (name := value.symbol.removeprefix("ampc_")) in KERNELS:
                kernels[name] = None
            elif hasattr(value, "py_func"):
                look(value)

    look(function)
    return parts, list(kernels)


def called(function: Any) -> list[str]:
    """Return the kernels that a function calls, by itself or in its helpers; none of those that these call."""
    return _parts(function)[1]


class Made:
    """A function of C's calling convention: `kept` tells whether the cache holds its code, `address` compiles or loads it."""

    def __init__(self, function: Any, signature: Any) -> None:
        self.dispatcher = compiled({**ENTRY, "no_cpython_wrapper": True})(function)
        self.signature = signature
        self.seconds = 0.0
        """That it took to compile or to load."""

    @property
    def size(self) -> int:
        """Bytes of byte code, with that of the helpers that become part of it: how long it takes to compile goes with that."""
        return sum(len(f.__code__.co_code) for f in _parts(self.dispatcher.py_func)[0])

    @property
    def kept(self) -> bool:
        """Whether the cache seems to hold the code."""
        saved = self.dispatcher._cache
        return isinstance(saved, Saved) and saved.holds(self.signature, self.dispatcher.targetctx)

    @functools.cached_property
    def address(self) -> int:
        """Where the code is. One process at a time compiles a function, others wait and find it in the cache."""
        with cache.locked(self._lock):
            return self._compiled()

    def keep(self) -> bool:
        """Compile the function into the cache unless it is there or another process is at it; return whether this one did."""
        with cache.locked(self._lock, wait=False) as mine:
            if mine and not self.kept:
                self._compiled()
                return True
        return False

    @property
    def _lock(self) -> str:
        function = self.dispatcher.py_func
        return f"{function.__module__}.{function.__name__}"

    def _compiled(self) -> int:
        began = time.perf_counter()
        self.dispatcher.compile(self.signature)
        code = self.dispatcher.overloads[tuple(self.signature.args)]
        address = int(code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name))
        self.seconds = time.perf_counter() - began
        return address


def needed(*functions: Any) -> dict[str, Made]:
    """Return the kernels that `functions` call, and those that these call: name -> kernel. A function is a Python function or a kernel's name."""
    found: dict[str, Made] = {}
    todo = [name for f in functions for name in ([f] if isinstance(f, str) else called(f))]
    while todo:
        name = todo.pop()
        if name not in found:
            entry = KERNELS[name]
            found[name] = entry.made
            todo += called(entry.function)
    return found


def ensure(*functions: Any) -> None:
    """Compile, or load from the cache, the kernels that `functions` call (see `needed`), and tell LLVM their addresses."""
    for name in [name for f in functions for name in ([f] if isinstance(f, str) else called(f))]:
        _resolve(name)


@functools.cache
def _resolve(name: str) -> None:
    """Tell LLVM a kernel's address, and before, those of the kernels that it calls."""
    entry = KERNELS[name]
    for other in called(entry.function):
        _resolve(other)
    llvm.add_symbol(entry.symbol.symbol, entry.made.address)


_f, _i, _d = types.CPointer(types.float32), types.CPointer(types.int64), types.CPointer(types.float64)
FIRING = types.void(_f, _i, _d, _f, _i, _f, types.int64, types.int64, types.int64)
"""A generated function: memory, worker, tokens, place of its numbers."""


_SOMEWHERE = 1 << 20


def unresolved() -> None:
    """Let kernels be compiled that call others which this process does not have: their code can be kept, but not run here."""
    for entry in KERNELS.values():
        llvm.add_symbol(entry.symbol.symbol, _SOMEWHERE)


@intrinsic
def call_kernel(typingctx, address, F, I, D, XF, XI, O, w, n, own):  # type: ignore[no-untyped-def]
    """Call the generated function at an address."""
    signature = types.void(types.int64, F, I, D, XF, XI, O, types.int64, types.int64, types.int64)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in args[1:]])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return signature, codegen


def place(array: Any) -> int:
    """The address of an array's memory, as `enter` takes it; it holds no reference."""
    return int(array.ctypes.data)


@functools.cache
def enter(name: str) -> Any:
    """Return kernel `name` for Python: memory by its `place`, numbers as they are. It runs without the GIL."""
    ensure(name)
    kinds = [ctypes.c_void_p if isinstance(t, types.CPointer) else ctypes.c_int64 for t in KERNELS[name].symbol.sig.args]
    result = None if KERNELS[name].symbol.sig.return_type == types.void else ctypes.c_int64
    return ctypes.CFUNCTYPE(result, *kinds)(KERNELS[name].made.address)


__all__ = ["FIRING", "KERNELS", "Kernel", "Made", "call_kernel", "called", "ensure", "enter", "kernel", "needed", "place", "unresolved"]
