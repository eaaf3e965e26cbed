"""How well a simulation predicts this machine: instances/s of every bundled model on one and two cores, predicted and measured.

    python -m benchmarks.prediction [MODEL ...] [--target cpu.toml] [--seconds 0.5] [--rounds 5] [--write]

Three predictions: from the target alone, which `ampc calibrate` measured; refined by the profile of a pass as
placed by `balanced` on as many cores; and the placement's figure.
Passes of one and of two workers take turns. Rankings: of two placements whose measured rates differ by more than 10 %, the faster one is the one
that was predicted to be faster.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ampc.calibrate import calibrate
from ampc.calibrate.report import target_text
from ampc.codegen.plan import make_plan
from ampc.place import Placement, Target, load_target, measure, parse_target, place, resized
from ampc.runtime import profile
from ampc.runtime.engine import Engine
from ampc.simulate.simulator import Conditions, Simulator
from benchmarks.harness import number
from benchmarks.ours import ROOT, NoData, data_folder, graph_of
from benchmarks.report import markdown_table, processor, text_table

DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "babi15_ggsnn": ("babi15", {"train": 1000, "fold": 1}), "list_reduction": ("list_reduction", {}), "mnist_mlp": ("mnist", {}),
    "qm9_ggsnn": ("qm9", {"limit": 8000}), "sentiment_tree_lstm": ("sst", {}),
}  # fmt: skip
"""Model -> its data; the others get random instances."""
RANDOM, REPEATED, LONGEST = 2000, 8, 12
"""Random instances, how often each is there (so that passes are long beside what they begin with), longest axis."""
HEADS = ("model", "workers", "placement", "measured", "predicted", "error", "with a profile", "error", "placement")


@dataclasses.dataclass
class Case:
    """A program with its data on so many devices by one strategy, and what was found."""

    model: str
    workers: int
    strategy: str
    measured: float
    predicted: float
    profiled: float
    bound: float

    def row(self) -> list[str]:
        return [
            self.model, str(self.workers), self.strategy, number(self.measured), number(self.predicted), _error(self.predicted, self.measured),
            number(self.profiled), _error(self.profiled, self.measured), number(self.bound),
        ]  # fmt: skip


def _error(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.0f} %"


def rows_for(model: str) -> tuple[Any, Any]:
    """Return (program, its training data)."""
    program = graph_of(model)
    if model in DATA:
        recipe, options = DATA[model]
        return program, program.read(data_folder(recipe, **options), "train")
    sys.path.insert(0, str(ROOT))
    from tests.support import random_rows

    return program, program.read([*random_rows(program.graph, RANDOM, seed=0, longest=LONGEST)] * REPEATED)


def cases(model: str, target: Target, a: argparse.Namespace) -> list[Case]:
    """Measure and predict one model."""
    program, data = rows_for(model)
    graph, seen = program.graph, measure(program.graph, data)
    options = program.options({"workers": 1}).engine()
    ones = {n: resized(target, n) for n in a.workers}
    placements: list[tuple[int, str, Placement]] = []
    for n, on in ones.items():
        for strategy in ("balanced", "round_robin") if n > 1 else ("balanced",):
            found = place(graph, on, strategy, seen)
            if not any(p.device_of == found.device_of and w == n for w, _, p in placements):
                placements.append((n, strategy, found))
    engines = [(n, s, p, Engine(graph, p, options=dataclasses.replace(options, workers=n))) for n, s, p in placements]
    count = _count(engines[0][3], data, a.seconds)
    order = np.arange(data.n)[:count]
    rates: list[list[float]] = [[] for _ in engines]
    for _ in range(a.rounds):
        for k, (*_, engine) in enumerate(engines):
            result = engine.run(data, order, train=True)
            rates[k].append(result.instances / result.seconds)
    better, factors = {}, {}
    for n, strategy, placement, engine in engines:
        if strategy == "balanced":
            engine.run(data, order, train=True, record=True)
            told = profile.profile(engine.trace, engine.plan, seen)
            better[n] = profile.refined(ones[n], told)
            factors[n] = profile.factors(told, make_plan(graph, placement.device_of), seen, better[n])
    out = []
    for (n, strategy, placement, _), found in zip(engines, rates):
        rate = []
        for on, conditions in ((ones[n], Conditions()), (better[n], Conditions(factors=factors[n]))):
            result = Simulator(graph, placement, on, options=options, conditions=conditions).run(data, order, train=True)
            rate.append(result.instances / result.seconds)
        out.append(Case(model, n, strategy, statistics.median(found), rate[0], rate[1], placement.instances_per_s))
    return out


def _count(engine: Engine, data: Any, seconds: float) -> int:
    """Return how many instances take about so long, compilation left out."""
    n = min(data.n, 200)
    engine.run(data, np.arange(min(n, 20)), train=True)
    began = time.perf_counter()
    engine.run(data, np.arange(n), train=True)
    return int(max(min(data.n, 50), min(data.n, n * seconds / max(1e-6, time.perf_counter() - began))))


def summary(found: list[Case]) -> list[str]:
    """Return the medians and how often a ranking was right, as sentences."""
    lines = []
    for name, of in (
        ("from the target alone", lambda c: c.predicted), ("with a profile", lambda c: c.profiled), ("by the placement", lambda c: c.bound),
    ):
        for n in sorted({c.workers for c in found}):
            errors = [abs(of(c) / c.measured - 1) for c in found if c.workers == n]
            median, largest = 100 * statistics.median(errors), 100 * max(errors)
            lines.append(f"Predicted {name}, workers {n}: median error {median:.0f} %, largest {largest:.0f} %.")
        right = wrong = 0
        for a, b in itertools.combinations(found, 2):
            if a.model == b.model and abs(a.measured / b.measured - 1) > 0.1:
                good = (of(a) > of(b)) == (a.measured > b.measured)
                right, wrong = right + good, wrong + (not good)
        if right + wrong:
            lines.append(f"Of {right + wrong} pairs of placements that differ by more than 10 %, {right} are ranked right {name}.")
    return lines


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL", default=sorted(x.stem for x in (ROOT / "models").glob("*.amp")))
    p.add_argument("--target", type=Path, help="what `ampc calibrate` wrote; measured now without it")
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--seconds", type=float, default=0.5)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--write", action="store_true", help="put the table into docs/simulation.md")
    a = p.parse_args(argv)
    target = load_target(a.target) if a.target is not None else parse_target(target_text(calibrate()), "cpu.toml")
    found: list[Case] = []
    for model in a.models:
        try:
            found += cases(model, target, a)
        except NoData as missing:
            print(f"{model} is left out: {missing}", file=sys.stderr)
            continue
        for case in found:
            if case.model == model:
                print("  " + "  ".join(case.row()), file=sys.stderr, flush=True)
    body = [c.row() for c in found]
    print(text_table(HEADS, body))
    print("\n".join(summary(found)))
    if a.write:
        from experiments.document import put_part

        words = f"Instances/s in training, medians of {a.rounds} passes of about {a.seconds:g} s. {processor()}. " + " ".join(summary(found))
        text = f"## Predictions for this machine\n\n{words}\n\n{markdown_table(HEADS, body)}"
        put_part("prediction", "python -m benchmarks.prediction --write", text, ROOT / "docs" / "simulation.md")


if __name__ == "__main__":
    main(sys.argv[1:])
