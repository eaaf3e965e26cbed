"""How long it takes until something runs: the command line, a compilation, the first step of training with kernels that are cached and that are not.

PyTorch beside it: the import, and a first training step, eager and compiled. Everything is a process of its own; seconds on the clock and of the
processor (of all threads, so it may be more).
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness import Comparison, options
from benchmarks.ours import ROOT, data_folder
from benchmarks.report import Goal, Table, publish

INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment in which the byte code of modules is kept, as that of an installed package is."""
STEP = """
import torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
forward = {forward}
torch.optim.Adam(net.parameters()).zero_grad()
forward(torch.zeros(100, 128)).sum().backward()
"""


def commands(folder: str) -> dict[str, tuple[list[str], bool]]:
    """Return name -> (command, whether it begins with an empty cache, which makes it long)."""
    ampc = [sys.executable, "-m", "ampc"]
    data = str(data_folder("list_reduction", train=500, valid=100))
    model = str(ROOT / "models" / "list_reduction.amp")
    run = [*ampc, "run", f"{folder}/m.ampx", "--data", data, "--epochs", "1", "--set", "until=", "--workers", "1", "--force", "-q", "-o"]
    return {
        "python": ([sys.executable, "-c", "pass"], False),
        "ampc --help": ([*ampc, "--help"], False),
        "ampc check list_reduction": ([*ampc, "check", model], False),
        "ampc compile list_reduction": ([*ampc, "compile", model, "-o", f"{folder}/m.ampx"], False),
        "ampc run, an epoch of 500, kernels cached": ([*run, f"{folder}/run"], False),
        "ampc run, the same for the first time": ([*run, f"{folder}/first"], True),
        "import torch": ([sys.executable, "-c", "import torch"], False),
        "torch, a first step": ([sys.executable, "-c", STEP.format(forward="net")], False),
        "torch, a first step, compiled": ([sys.executable, "-c", STEP.format(forward="torch.compile(net)")], True),
    }


def once(command: list[str], environment: Mapping[str, str]) -> tuple[float, float] | None:
    """Return (seconds on the clock, of the processor); None if the command failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env={**INSTALLED, **environment}, check=False)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (took, used) if done.returncode == 0 else None


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    rounds = a.rounds or (2 if a.quick else 5)
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        them = commands(folder)
        once(them["ampc compile list_reduction"][0], {})
        once(them["ampc run, an epoch of 500, kernels cached"][0], {})  # so that they are
        for r in range(rounds):
            for name, (command, long) in them.items():
                if long and (r or a.quick):
                    continue
                empty = {"AMPC_CACHE_DIR": str(Path(folder) / "kernels"), "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor")} if long else {}
                result = once(command, empty)
                if result is not None:
                    found.setdefault(name, []).append(result)
    rows, goals = [], []
    for name, results in found.items():
        wall, used = (sorted(x) for x in zip(*results, strict=True))
        rows.append([name, f"{statistics.median(wall):.3g}", f"{wall[0]:.3g}–{wall[-1]:.3g}", f"{statistics.median(used):.3g}"])
        if name == "ampc --help":
            goals.append(Goal("ampc --help", (1e3 * statistics.median(wall), 1e3 * wall[0], 1e3 * wall[-1]), 200, most=True, unit="ms"))
    table = Table("Starting", ("", "median", "lowest–highest", "of the processor"), rows, "seconds")
    publish("startup", [], goals, write=a.write, tables=[table])
    return []


if __name__ == "__main__":
    main(sys.argv[1:])
