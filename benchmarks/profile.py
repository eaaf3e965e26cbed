"""Where the workers' time goes: by segment and direction (timed around each firing), and by function where Linux' `perf` is installed.

Usage: python -m benchmarks.profile sentiment_tree_lstm sst [--workers 2] [--set max_active_keys=128] [--param hidden=100]
Times are processor time. The timers cost about half a µs a firing. Nothing of this is in the engine: firings are wrapped when the kernels are loaded.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ours import Ours, data_folder
from benchmarks.report import text_table

MAX_WORKERS, MAX_QUEUES = 16, 1024
TIMES = np.zeros((MAX_WORKERS, MAX_QUEUES), np.int64)
"""Processor nanoseconds in the firings of each queue, by worker."""
NOW = np.zeros((MAX_WORKERS, 2), np.int64)
THREAD_CPU = 3
"""Linux' CLOCK_THREAD_CPUTIME_ID: other programs' turns on the core don't count."""
ADDRESSES: dict[int, str] = {}


def wrap() -> None:
    """Replace how kernels are published: remember their addresses, and put a timer around each firing."""
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    from ampc.runtime import compiled as native
    from ampc.runtime import native as names

    clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))

    @intrinsic
    def as_pointer(typingctx, address):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

        return types.voidptr(types.int64), codegen

    @intrinsic
    def load(typingctx, address):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

        return types.int64(types.int64), codegen

    @intrinsic
    def add(typingctx, address, amount):  # type: ignore[no-untyped-def]
        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            p = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
            builder.store(builder.add(builder.load(p), args[1]), p)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    times = int(NOW.ctypes.data)
    native_publish = native._publish

    def publish(function: Any, symbol: Any) -> Any:
        dispatcher = native_publish(function, symbol)
        _remember(dispatcher, function.__name__)
        return dispatcher

    def timed(function: Any) -> Any:
        symbol = native_firing(function)
        compiled = _compiled(native._alive[-1])
        plain = types.ExternalFunction(symbol.symbol + "_plain", native.FIRING)
        llvm.add_symbol(plain.symbol, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))
        name = function.__name__
        queue = 2 * int("".join(c for c in name if c.isdigit())) + name.lower().startswith("b")
        base = int(TIMES[0, queue:].ctypes.data)

        def around(F, I, D, XF, XI, O, w, n):  # type: ignore[no-untyped-def]  # noqa: E741
            now = times + 16 * w
            clock_gettime(THREAD_CPU, as_pointer(now))
            began = load(now) * 1000000000 + load(now + 8)
            plain(F, I, D, XF, XI, O, w, n)
            clock_gettime(THREAD_CPU, as_pointer(now))
            add(base + 8 * MAX_QUEUES * w, load(now) * 1000000000 + load(now + 8) - began)

        dispatcher = njit(native.FIRING, nogil=True)(around)
        made = _compiled(dispatcher)
        llvm.add_symbol(symbol.symbol, made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))
        native._alive.append(dispatcher)
        return symbol

    native_firing = native.firing
    native._publish = publish
    native.firing = names.firing = timed


def _compiled(dispatcher: Any) -> Any:
    return next(iter(dispatcher.overloads.values()))


def _remember(dispatcher: Any, name: str) -> None:
    compiled = _compiled(dispatcher)
    for symbol in (compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name):
        try:
            ADDRESSES[compiled.library.get_pointer_to_function(symbol)] = name
        except Exception:
            continue


class Counting(Ours):
    """Adds up the firings and tokens of all passes."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.firings: collections.Counter[str] = collections.Counter()
        self.tokens: collections.Counter[str] = collections.Counter()
        super().__init__(*arguments, **settings)

    def _pass(self, size: int) -> float:
        took = super()._pass(size)
        for what, firings, tokens in self.engine.firings():
            self.firings[what] += firings
            self.tokens[what] += tokens
        return took


def measure(a: argparse.Namespace) -> None:
    """Run passes and print the table of segments; write what `perf` needs to know of addresses."""
    wrap()
    from ampc.runtime import worker

    _remember(worker.run, "worker loop")
    settings = dict(_pair(s) for s in a.set)
    data = str(data_folder(a.data, **({"limit": 8000} if a.data == "qm9" else {})))
    ours = Counting(a.model, data, dict(_pair(s) for s in a.param), a.instances, workers=a.workers, **settings)
    ours.window(1.0)
    TIMES[:] = 0
    ours.firings.clear()
    ours.tokens.clear()
    _sampling(a.control, "enable")
    began, items = time.perf_counter(), 0
    cpu = time.process_time()
    while time.perf_counter() - began < a.seconds:
        items += ours.window(0.5)[0]
    took = time.perf_counter() - began
    _sampling(a.control, "disable")
    cpu = time.process_time() - cpu
    each = ", ".join(f"{t * 1e-9 / took:.2f}" for t in TIMES.sum(axis=1)[: a.workers])
    seconds = TIMES.sum(axis=0) * 1e-9
    body = []
    names = {2 * int(w.split()[0]) + (w.split()[1] == "backward"): w for w in ours.firings}
    for q in np.argsort(-seconds):
        if seconds[q] <= 0:
            break
        w = names.get(int(q), f"queue {q}")
        f, t = ours.firings[w] or 1, ours.tokens[w]
        took_us = 1e6 * seconds[q]
        body.append([w[:70], f"{100 * seconds[q] / cpu:.1f} %", f"{took_us / items:.2f}", f"{t / items:.1f}", f"{t / f:.1f}", f"{took_us / f:.1f}"])
    rest = cpu - seconds.sum()
    what = "outside of firings: turns, spinning, start and end of a pass"
    body.append([what, f"{100 * rest / cpu:.1f} %", f"{1e6 * rest / items:.2f}", "", "", ""])
    cost = f"{1e6 * cpu / items:.1f} µs of processor time an instance, {cpu / took:.2f} cores used ({each} in firings of each worker)"
    print(f"{a.model}, {a.workers} workers: {items / took:,.0f} instances/s, {cost}")
    print(text_table(("segment", "time", "µs an instance", "tokens an instance", "tokens a firing", "µs a firing"), body), flush=True)
    Path(a.child).write_text(json.dumps({str(k): v for k, v in ADDRESSES.items()}), encoding="utf-8")


def _sampling(control: str, word: str) -> None:
    if control:
        Path(control).write_text(word + "\n", encoding="ascii")


def _pair(text: str) -> tuple[str, Any]:
    from ampc.runtime.options import parse_value

    name, _, value = text.partition("=")
    return name, parse_value(value)


# ------------------------------------------------------------------------------------------ perf


def by_function(samples: Path, addresses: dict[int, str], top: int) -> list[list[str]]:
    """Return (function, share) over the samples of all threads but the main one."""
    text = subprocess.run(["perf", "script", "-i", str(samples), "-F", "pid,tid,ip,sym,dso"], capture_output=True, text=True, check=True).stdout
    starts = sorted(addresses)
    counts: collections.Counter[str] = collections.Counter()
    for line in text.splitlines():
        words = line.split(None, 2)
        if len(words) < 3:
            continue
        pid, _, tid = words[0].partition("/")
        if pid == tid:
            continue
        ip, symbol = int(words[1], 16), words[2]
        if symbol.startswith("[unknown]"):
            k = bisect.bisect_right(starts, ip) - 1
            near = k >= 0 and ip - starts[k] < 1 << 16
            symbol = addresses[starts[k]] if near else "compiled code of no name"
        counts[symbol.replace(" ([", "  [").split("  ")[0][:70]] += 1
    total = sum(counts.values()) or 1
    return [[name, f"{100 * n / total:.1f} %"] for name, n in counts.most_common(top)]


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="a bundled model")
    p.add_argument("data", help="the recipe of its data")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the run")
    p.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the model")
    p.add_argument("--instances", type=int, default=0, help="use so many of the data's instances; 0 is all")
    p.add_argument("--seconds", type=float, default=4.0)
    p.add_argument("--top", type=int, default=30)
    p.add_argument("--child", default="", help=argparse.SUPPRESS)
    p.add_argument("--control", default="", help=argparse.SUPPRESS)
    a = p.parse_args(argv)
    if a.child:
        measure(a)
        return
    with tempfile.TemporaryDirectory() as folder:
        table, samples = Path(folder, "addresses.json"), Path(folder, "perf.data")
        command = [sys.executable, "-m", "benchmarks.profile", *(sys.argv[1:] if argv is None else argv), "--child", str(table)]
        if shutil.which("perf"):
            control = Path(folder, "control")
            os.mkfifo(control)
            how = ["-q", "-e", "cpu-clock", "-F", "1999", "--delay=-1", f"--control=fifo:{control}", "-o", str(samples)]
            command = ["perf", "record", *how, "--", *command, "--control", str(control)]
        subprocess.run(command, check=True)
        if samples.exists():
            addresses = {int(k): v for k, v in json.loads(table.read_text(encoding="utf-8")).items()}
            print("\n" + text_table(("function (workers' threads, by sampling)", "share"), by_function(samples, addresses, a.top)))


if __name__ == "__main__":
    main()
