"""Several processes compile functions that no cache holds: each takes the next one that no process is at, of this program or another that starts now.

They only fill the cache; who wants the functions loads them from there, and compiles itself what they did not manage. A process that is killed
leaves its function to the others: its lock goes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ampc.place import usable_cores
from ampc.runtime import cache

WORTH = 4
"""Functions from which on another process is worth its start of about a second."""
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
CHILD = "from ampc.runtime.compiling import main; main()"


def processes(functions: int) -> int:
    """Return how many processes compile so many functions: one for each core that this process may use, 0 if it had better do it itself."""
    n = min(usable_cores(), functions // (WORTH // 2))
    return n if n > 1 and functions >= WORTH and sys.executable else 0


def together(names: Sequence[str]) -> dict[str, float]:
    """Have functions compiled, in this order, by as many processes as pay; return name -> seconds of those that these compiled."""
    environment = {**os.environ, "AMPC_CACHE_DIR": str(cache.folder().parent)}
    package = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    started: list[subprocess.Popen[str]] = []
    seconds: dict[str, float] = {}
    try:
        for _ in range(processes(len(names))):
            try:
                started.append(subprocess.Popen([sys.executable, "-c", CHILD], env=environment, **PIPES))
            except OSError:  # no more processes here: those that run, or this one, do it
                break
            _hand_over(started[-1], names)
        for child in started:
            assert child.stdout is not None
            for line in child.stdout:
                name, _, took = line.rpartition(" ")
                seconds[name] = float(took)
            child.wait()
    finally:
        for child in started:
            if child.poll() is None:
                child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    return seconds


def _hand_over(child: subprocess.Popen[str], names: Sequence[str]) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write("\n".join(names))
        child.stdin.close()
    except OSError:  # it has ended already
        pass


def main() -> None:
    """Of a process for compiling: compile the functions named on standard input into the cache, but for those that another process is at."""
    from ampc.runtime import kernels
    from ampc.runtime.by_address import unresolved

    unresolved()
    for name in sys.stdin.read().split():
        function = kernels.function(name)
        began = time.perf_counter()
        if function is not None and function.keep():
            print(name, time.perf_counter() - began, flush=True)


__all__ = ["main", "processes", "together"]
