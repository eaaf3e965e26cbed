"""All comparisons, one after the other: `make bench`. A part whose data isn't here is left out, with a word about what it wants."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks import (
    babi, ggsnn, inference, list_reduction, memory, mnist, oversubscription, roofline, scaling, startup, tokens, tree_lstm, workers,
)  # fmt: skip
from benchmarks.ours import NoData

PARTS: dict[str, Callable[[list[str]], object]] = {
    "list_reduction": list_reduction.main,
    "mnist": mnist.main,
    "ggsnn": ggsnn.main,
    "tree_lstm": tree_lstm.main,
    "babi": babi.main,
    "workers": workers.main,
    "inference": inference.throughput,
    "latency": inference.latency,
    "roofline": roofline.main,
    "scaling": scaling.main,
    "memory": memory.main,
    "startup": startup.main,
    "tokens": tokens.main,
    "oversubscription": oversubscription.main,
}


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all by default")
    p.add_argument("--quick", action="store_true", help="few short windows, for a look; nothing is written")
    p.add_argument("--compile", action="store_true", help="torch.compile wherever it takes long to compile, too")
    p.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md and docs/benchmarks.json")
    p.add_argument("--seconds", help="length of a window")
    p.add_argument("--rounds", help="windows of each contender")
    a = p.parse_args(argv)
    unknown = [x for x in a.parts if x not in PARTS]
    if unknown:
        p.error(f"there is no part {', '.join(unknown)}; parts are {', '.join(PARTS)}")
    began = time.perf_counter()
    flags = ["--quick"] * a.quick + ["--compile"] * a.compile + ["--write"] * (a.write and not a.quick)
    flags += [word for name in ("seconds", "rounds") if getattr(a, name) for word in (f"--{name}", getattr(a, name))]
    for name in a.parts or PARTS:
        start = time.perf_counter()
        try:
            PARTS[name](flags)
        except NoData as missing:
            print(f"\n{name} is left out: {missing}", flush=True)
        print(f"  {name}: {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
