"""Memory: what every task takes at most, and what one more instance in flight takes, beside what the cost model of `ampc compile` says.

Each task runs twice in a process of its own, with one and with many instances in flight; the difference of the resident memory is shared out, too.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, providers
from benchmarks.report import Goal, Table, publish
from benchmarks.tasks import TASKS, with_data

TIMES = 8
"""So many times as many in flight as in training: the difference then stands out from what processes differ by anyway (some megabytes)."""

LEAST = 50e6
"""Bytes of all instances in flight from which on the difference of two processes says something about them."""


def contenders() -> list[Contender]:
    made = []
    for t, data in with_data():
        for k in (1, TIMES * t.settings["max_active_keys"]):
            arguments: dict[str, Any] = {**t.settings, "model": t.model, "data": data, "workers": 1, "blas": providers()[0], "told": True}
            made.append(Contender(f"{t.name}, {k} in flight", Ours, {**arguments, "max_active_keys": k}))
    return made


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("Memory", "instances/s", wanted(contenders(), a.only), **lengths(a, 0.3, 1))
    rows, goals = [], []
    for t in TASKS:
        found = [f for f in c.figures if f.name.startswith(f"{t.name}, ") and f.windows]
        if len(found) != 2:
            continue
        one, many = (f.facts for f in found)
        resident = (many["rss_bytes"] - one["rss_bytes"]) / max(1.0, many["number"] - one["number"])
        measured, predicted = many["instance_bytes"], many["predicted_bytes"]
        rows.append([
            t.name, f"{many['number']:,.0f}", f"{one['peak_bytes'] / 1e6:,.0f}", f"{many['peak_bytes'] / 1e6:,.0f}",
            f"{many['all_bytes'] / 1e6:,.3g}", f"{resident / 1e3:,.1f}" if many["all_bytes"] > LEAST else "", f"{measured / 1e3:,.1f}",
            f"{predicted / 1e3:,.1f}",
        ])  # fmt: skip
        goals.append(Goal(f"an instance in flight to what is predicted, {t.name}", (measured / predicted,) * 3, 1.1, most=True))
    heads = (
        "", "in flight", "peak with one, MB", "peak with many, MB", "all in flight, MB", "each, resident, kB", "each, by the engine, kB",
        "each, predicted, kB",
    )  # fmt: skip
    publish("memory", [], goals, write=a.write, tables=[Table("Memory of training on one worker", heads, rows)])
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
