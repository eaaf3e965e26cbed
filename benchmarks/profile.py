"""Where the workers' time goes: by segment and direction, from a recorded pass, and by function where Linux' `perf` is installed.

Usage: python -m benchmarks.profile sentiment_tree_lstm sst [--workers 2] [--set max_active_keys=128] [--param hidden=100] [--infer] [--replicas auto]
Samples are of passes that are not recorded; recording costs some 0.1 µs a firing.
"""

from __future__ import annotations

import argparse
import bisect
import collections
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.ours import Ours, data_folder
from benchmarks.report import text_table


def measure(a: argparse.Namespace) -> None:
    """Run passes, sampled if asked for, and print the table of segments of a recorded one; write what `perf` needs to know of addresses."""
    settings = dict(_pair(s) for s in a.set)
    data = str(data_folder(a.data, **({"limit": 8000} if a.data == "qm9" else {})))
    ours = Ours(
        a.model, data, dict(_pair(s) for s in a.param), a.instances, "infer" if a.infer else "train", replicas=a.replicas or None, workers=a.workers,
        **settings,
    )  # fmt: skip
    from ampc.place import measure as measure_data
    from ampc.runtime.by_address import KERNELS
    from ampc.runtime.kernels import _made, name_of
    from ampc.runtime.profile import profile

    ours.window(0.5)
    _sampling(a.control, "enable")
    began, cpu, items = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < a.seconds:
        items += ours.window(0.5)[0]
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    _sampling(a.control, "disable")
    engine = ours.engine
    each = f"{1e6 * cpu / items:.2f} µs of processor time an instance, {cpu / took:.2f} cores used"
    print(f"{a.model}, {a.workers} workers: {items / took:,.0f} instances/s, {each}")
    ours._pass(min(ours.n, max(1, int(0.5 * ours.rate))), record=True)
    found = profile(engine.trace, engine.traced, measure_data(ours.program.graph, ours.data))
    whole = sum(d.busy_s + d.waiting_s + d.overhead_s + d.idle_s for d in found.devices)
    body = []
    for q in sorted(found.queues, key=lambda q: -q.seconds):
        body.append([
            f"{q.segment} {q.direction} {q.title}"[:70], f"{100 * q.seconds / whole:.1f} %", f"{1e6 * q.seconds / found.instances:.2f}",
            f"{q.tokens / found.instances:.1f}", f"{q.tokens / q.firings:.1f}", f"{1e6 * q.seconds / q.firings:.1f}", f"{1e-9 * q.flops_per_s:.1f}",
        ])  # fmt: skip
    for what in ("overhead", "waiting", "idle"):
        seconds = sum(getattr(d, f"{what}_s") for d in found.devices)
        body.append([f"outside of firings: {what}", f"{100 * seconds / whole:.1f} %", f"{1e6 * seconds / found.instances:.2f}", "", "", "", ""])
    print(text_table(("segment", "time", "µs an instance", "tokens an instance", "tokens a firing", "µs a firing", "GFLOP/s"), body), flush=True)
    made = {name: entry.made for name, entry in KERNELS.items() if "made" in vars(entry) and "address" in vars(entry.made)}
    made |= {f"{'bwd' if f.queue & 1 else 'fwd'}_{f.queue // 2}": _made(name_of(f.text)) for f in engine._ran.program.functions}
    named: dict[int, str] = {}
    for name, kernel in made.items():
        for compiled in kernel.dispatcher.overloads.values():
            for symbol in (compiled.fndesc.llvm_cfunc_wrapper_name, compiled.fndesc.llvm_func_name):
                with contextlib.suppress(Exception):  # what became part of another function has no place
                    named[compiled.library.get_pointer_to_function(symbol)] = name
    Path(a.child).write_text(json.dumps({str(k): v for k, v in named.items()}), encoding="utf-8")


def _sampling(control: str, word: str) -> None:
    if control:
        Path(control).write_text(word + "\n", encoding="ascii")


def _pair(text: str) -> tuple[str, Any]:
    from ampc.runtime.options import parse_value

    name, _, value = text.partition("=")
    return name, parse_value(value)


# ------------------------------------------------------------------------------------------ perf


def by_function(samples: Path, addresses: dict[int, str], top: int) -> list[list[str]]:
    """Return (function, share) over the samples of all threads; what is neither compiled by numba nor a library's is Python's."""
    text = subprocess.run(["perf", "script", "-i", str(samples), "-F", "ip,sym,dso"], capture_output=True, text=True, check=True).stdout
    starts = sorted(addresses)
    counts: collections.Counter[str] = collections.Counter()
    for line in text.splitlines():
        words = line.split(None, 1)
        if len(words) < 2:
            continue
        ip, symbol = int(words[0], 16), words[1]
        if symbol.startswith("[unknown]"):
            k = bisect.bisect_right(starts, ip) - 1
            near = k >= 0 and ip - starts[k] < 1 << 16
            symbol = addresses[starts[k]] if near else "code of no name"
        counts[symbol.replace(" (", "  (").split("  (")[0][:70]] += 1
    total = sum(counts.values()) or 1
    return [[name, f"{100 * n / total:.1f} %"] for name, n in counts.most_common(top)]


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", help="a bundled model")
    p.add_argument("data", help="the recipe of its data")
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the run")
    p.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the model")
    p.add_argument("--infer", action="store_true", help="predictions in place of training")
    p.add_argument("--replicas", default="", help="as of `ampc compile`")
    p.add_argument("--instances", type=int, default=0, help="use so many of the data's instances; 0 is all")
    p.add_argument("--seconds", type=float, default=4.0)
    p.add_argument("--top", type=int, default=30)
    p.add_argument("--child", default="", help=argparse.SUPPRESS)
    p.add_argument("--control", default="", help=argparse.SUPPRESS)
    a = p.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        if a.child:
            measure(a)
            return
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
            print("\n" + text_table(("function, by sampling", "share"), by_function(samples, addresses, a.top)))


if __name__ == "__main__":
    main()
