"""More workers than cores: list reduction with eight workers against as many workers as there are cores. Waiting workers must back off."""

from __future__ import annotations

import sys

from benchmarks.harness import CORES, Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, data_folder
from benchmarks.report import Goal, publish

MANY = 8


def contenders(data: str) -> list[Contender]:
    common = {"model": "list_reduction", "data": data, "max_active_keys": 1024, "min_update_frequency": 100, "clip_norm": 0.0}
    counts = dict.fromkeys((1, CORES, MANY))
    return [Contender(f"{n} workers", Ours, {**common, "workers": n}, min(n, CORES)) for n in counts]


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    data = str(data_folder("list_reduction"))
    c = compare(f"Eight workers on {CORES} cores, list reduction", "sequences/s", wanted(contenders(data), a.only), **lengths(a))
    goals = [Goal(f"{CORES} workers", c.ratio(f"{MANY} workers", f"{CORES} workers"), 0.8)] if not a.only else []
    publish("oversubscription", [c], goals, write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
