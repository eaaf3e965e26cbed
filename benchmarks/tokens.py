"""What the engine costs by itself: tokens through nodes that do nothing worth naming, on one worker, in µs a token.

A token is one message of one instance, forward or backward, that is taken from a queue and fired; they are counted exactly, by the queues.
`one at a time` has one instance in flight, so nothing can be fired together and each token pays for a whole turn of the worker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import CACHE, Ours
from benchmarks.report import Goal, publish

TURNS = 200
INSTANCES = 4096

LOOP = f"""
model relay():
    instance:
        x: float
    start = Linear(1, 1)
    h = start(x)
    loop t in range({TURNS}) carry h:
        h = relu(h)
    loss squared(h, x)
"""

BRANCHES = """
model relays():
    instance:
        axis turn
        x: float
        way: int[turn] < 4
    start = Linear(1, 1)
    h = start(x)
    loop t in turn carry h:
        branch way[t]:
            0: h = relu(h)
            1: h = abs(h)
            2: h = tanh(h)
            3: h = sigmoid(h)
        merge h
    loss squared(h, x)
"""


class Relays(Ours):
    """Counts tokens instead of instances."""

    def _tokens(self) -> int:
        from ampc.codegen.layout import H
        from ampc.runtime.tokens import HEAD, QUEUE

        binding = self.engine._binding  # the only one who knows how many tokens went through
        return sum(int(binding.I[binding.I[H.QUEUE0] + q * QUEUE + HEAD]) for q in range(2 * len(self.engine.plan.segments)))

    def window(self, seconds: float) -> tuple[int, float]:
        before = self._tokens()
        instances, took = super().window(seconds)
        tokens = self._tokens() - before
        self.note = f"{tokens / instances:.0f} tokens an instance, {1e6 * took / tokens:.3f} µs a token"
        return tokens, took


def instances(folder: Path, branches: bool) -> str:
    """Write the instances; return the file's path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"x": pa.array(rng.uniform(0.5, 1, INSTANCES).astype(np.float32))}
    if branches:
        columns["way"] = pa.array(list(rng.integers(0, 4, (INSTANCES, TURNS))), pa.list_(pa.int64()))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("relays.parquet" if branches else "relay.parquet")
    pq.write_table(pa.table(columns), path)
    return str(path)


def contenders() -> list[Contender]:
    made = []
    for name, text in (("a loop of one node", LOOP), ("a loop over four ways", BRANCHES)):
        data = instances(CACHE / "tokens", text is BRANCHES)
        for words, active in (("one at a time", 1), ("16 in flight", 16), ("256 in flight", 256)):
            settings = {"model": text, "data": data, "workers": 1, "max_active_keys": active, "optimizer": "sgd", "learning_rate": 0.0}
            made.append(Contender(f"{name}, {words}", Relays, settings))
    return made


def goals(c: Comparison) -> list[Goal]:
    out = []
    for f in c.figures:
        if f.windows:
            low, high = f.span
            out.append(Goal(f.name, (1e6 / f.median, 1e6 / high, 1e6 / low), 0.3, most=True, unit="µs"))
    return out


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("Empty nodes, one worker, forward and backward", "tokens/s", wanted(contenders(), a.only), **lengths(a, 0.5, 3))
    publish("tokens", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
