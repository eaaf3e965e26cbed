"""Events a second of cost-only simulation, by number of devices: chains and trees of one node a device, on one core.

    python -m benchmarks.simulator                # a million events each
    python -m benchmarks.simulator --events 1e7   # what docs/simulation.md states

Seconds are those of the processor, so that a machine that others use as well gives the same. Making the tables is counted apart; compilation isn't.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

from ampc.place.target import load_target, resized
from ampc.simulate.cost_only import Settings, simulate
from ampc.simulate.flow import Flow, synthetic

Form = Literal["chain", "tree"]
SHAPES: tuple[tuple[Form, int, int, int], ...] = (
    ("chain", 1, 1, 1), ("chain", 10, 10, 1), ("chain", 100, 100, 1), ("chain", 1000, 1000, 1), ("chain", 10_000, 10_000, 1),
    ("tree", 10_000, 10_000, 1), ("tree", 10_000, 100, 1), ("tree", 10_000, 1, 1), ("chain", 1000, 100, 16), ("tree", 10_000, 1000, 16),
)  # fmt: skip
"""(form, nodes, devices, messages that a firing takes)."""


def measure(form: Form, nodes: int, devices: int, take: int, events: float) -> dict[str, Any]:
    """Return what one network does in about so many events."""
    began = time.process_time()
    flow = synthetic(form, nodes, devices, take=take)
    target = resized(load_target("fpga_1tflops" if take == 1 else "manycore_64"), devices)
    in_flight = max(4, min(256, devices))
    made = time.process_time() - began
    instances = max(1, round(events / _events(flow)))
    began = time.process_time()
    result = simulate(flow, target, instances, Settings(max_active_keys=in_flight))
    seconds = time.process_time() - began
    t = result.totals
    return {
        "form": form, "nodes": nodes, "devices": devices, "take": take, "in flight": in_flight, "instances": instances, "events": t.events,
        "tables_s": made, "seconds": seconds, "events_per_s": t.events / seconds, "utilisation": float(t.utilisation.mean()),
    }  # fmt: skip


def _events(flow: Flow) -> int:
    """Events an instance: the end of each firing, and each message between devices, forward and backward."""
    t = flow.tables
    sender = [s for s, n in zip(t.segment, t.sent_first[1:] - t.sent_first[:-1]) for _ in range(n)]
    crossing = sum(t.device[a] != t.device[t.segment[b]] for a, b in zip(sender, t.sent_to))
    return int(2 * len(t.segment) + 2 * crossing)


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--events", type=float, default=1e6, help="of each network, about (default 1e6)")
    a = p.parse_args(argv)
    simulate(synthetic("chain", 2, 2), load_target("fpga_1tflops"), 2)  # compiles
    print("| network | devices | a firing takes | in flight | instances | events | tables, s | seconds | events/s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for shape in SHAPES:
        r = measure(*shape, a.events)
        print(
            f"| {r['form']} of {r['nodes']:,} | {r['devices']:,} | {r['take']} | {r['in flight']} | {r['instances']:,} | {r['events']:,} "
            f"| {r['tables_s']:.2f} | {r['seconds']:.2f} | {r['events_per_s'] / 1e6:.2f} million |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
