"""More workers than cores: list reduction with eight workers against as many workers as there are cores. Waiting workers must back off.

With one copy of the recurrent layer most of the eight have next to nothing to do; with eight copies all of them have an eighth of it.
"""

from __future__ import annotations

import sys

from benchmarks.harness import CORES, Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, data_folder
from benchmarks.report import Goal, publish

MANY = 8


def contenders(data: str) -> list[Contender]:
    common = {"model": "list_reduction", "data": data, "max_active_keys": 1024, "min_update_frequency": 100, "clip_norm": 0.0}
    made = []
    for copies in (1, MANY):
        for n in (CORES, MANY):
            made.append(Contender(_name(n, copies), Ours, {**common, "overrides": {"copies": copies}, "workers": n}, min(n, CORES)))
    return made


def _name(workers: int, copies: int) -> str:
    return f"{workers} workers, {copies} cop{'y' if copies == 1 else 'ies'} of the layer"


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    data = str(data_folder("list_reduction"))
    c = compare(f"Eight workers on {CORES} cores, list reduction", "sequences/s", wanted(contenders(data), a.only), **lengths(a, 0.5, 3))
    goals = [Goal(_name(CORES, k), c.ratio(_name(MANY, k), _name(CORES, k)), 0.8) for k in (1, MANY)] if not a.only else []
    publish("oversubscription", [c], goals, write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
