"""How well a simulation predicts this machine: instances/s of every bundled model on one and two cores, predicted and measured.

    python -m benchmarks.prediction [MODEL ...] [--seconds 0.1] [--rounds 2] [--write]
    python -m benchmarks.prediction MODEL ... --save a.json             # only measure
    python -m benchmarks.prediction --measured a.json b.json [--write]  # predict what was measured, as often as a prediction changes

Three predictions: from the target alone, which `ampc calibrate` measured; refined by the profile of a pass on one core; and the placement's figure.
Passes of one and of two workers take turns, also with the rounds of the calibration, so that all of it is of one period. Rankings: of two
placements whose measured rates differ by more than 10 %, the faster one is the one that was predicted to be faster.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from ampc.calibrate import calibrate
from ampc.calibrate.report import target_text
from ampc.codegen.plan import make_plan
from ampc.ir.graph import Graph
from ampc.place import Placement, Statistics, Target, estimate, load_target, parse_target, resized
from ampc.place.loads import Loads
from ampc.place.problem import Problem
from ampc.runtime import profile
from ampc.simulate.simulator import Conditions, Simulator
from benchmarks.harness import number
from benchmarks.measured import DATA, Measured, Program, collect, load, save
from benchmarks.ours import ROOT, NoData, data_folder
from benchmarks.report import markdown_table, processor, text_table

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


def predict(p: Program, found: list[Measured], target: Target) -> list[Case]:
    """Predict what was measured of one model."""
    graph, seen = p.graph, p.seen
    told = found[0].profile  # on as few cores as were measured: what messages between cores cost is the target's to say
    plan = make_plan(graph, found[0].device_of)
    out = []
    for m in found:
        on = resized(target, m.workers)
        better = profile.refined(on, told)
        rates = []
        for given, conditions in ((on, Conditions()), (better, Conditions(factors=profile.factors(told, plan, seen, better)))):
            placement = Placement(m.strategy, tuple(d.name for d in on.devices), m.device_of)
            result = Simulator(graph, placement, given, options=p.options, conditions=conditions).run(p.data, p.order(m.instances), train=True)
            rates.append(result.instances / result.seconds)
        out.append(Case(m.model, m.workers, m.strategy, m.rate, rates[0], rates[1], bound(graph, on, m.device_of, seen)))
    return out


def bound(graph: Graph, target: Target, device_of: dict[int, int], seen: Statistics) -> float:
    """Return the instances/s that the busiest device or link of a placement allows, by the cost model."""
    problem = Problem(graph, target, estimate(graph, seen), fine=True)
    return 1.0 / Loads(problem, [device_of[u.nodes[0]] for u in problem.units]).busiest_s()


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


def _present(models: Sequence[str]) -> list[str]:
    """Return the models whose data are here."""
    found = []
    for model in models:
        try:
            if model in DATA:
                data_folder(DATA[model][0], **DATA[model][1])
            found.append(model)
        except NoData as missing:
            print(f"{model} is left out: {missing}", file=sys.stderr)
    return found


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="MODEL", default=sorted(x.stem for x in (ROOT / "models").glob("*.amp")))
    p.add_argument("--target", type=Path, help="what `balanced` and `round_robin` place by; measured first without it. Of what was kept: predicts it")
    p.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    p.add_argument("--seconds", type=float, default=0.1)
    p.add_argument("--rounds", type=int, default=2, help="passes of each placement after each round of the calibration")
    p.add_argument("--save", type=Path, metavar="FILE", help="only measure, and keep what was measured with the calibration")
    p.add_argument("--measured", type=Path, nargs="+", metavar="FILE", help="predict what was kept, without measuring")
    p.add_argument("--write", action="store_true", help="put the table into docs/simulation.md")
    a = p.parse_args(argv)
    given = load_target(a.target) if a.target is not None else None
    if a.measured is not None:
        periods = [load(path) for path in a.measured]
    else:
        first = given or parse_target(target_text(calibrate()), "cpu.toml")
        periods, given = [collect(_present(a.models), first, a.workers, a.rounds, a.seconds)], None
    if a.save is not None:
        (period,) = periods
        save(a.save, period)
        print("\n".join(f"{m.model}  {m.workers}  {m.strategy}  {number(m.rate)}" for m in period.found))
        return
    found: list[Case] = []
    for period in periods:
        target = given or parse_target(period.target, "cpu.toml")
        known = [m for m in period.found if m.model in a.models and m.workers in a.workers]
        for model in dict.fromkeys(m.model for m in known):
            made = predict(Program(model), [m for m in known if m.model == model], target)
            for case in made:
                print("  " + "  ".join(case.row()), file=sys.stderr, flush=True)
            found += made
    found.sort(key=lambda c: (c.model, c.workers))
    body = [c.row() for c in found]
    print(text_table(HEADS, body))
    print("\n".join(summary(found)))
    if a.write:
        from experiments.document import put_part

        passes = statistics.median(len(m.rates) for period in periods for m in period.found)
        words = (
            f"Instances/s in training, of two passes of about {a.seconds:g} s the quicker, of {passes / 2:g} such pairs the upper quartile, in turn "
            "with the rounds of the calibration. "
            f"{processor()}. " + " ".join(summary(found))
        )
        text = f"### The figures\n\n{words}\n\n{markdown_table(HEADS, body)}"
        put_part("prediction", "python -m benchmarks.prediction --write", text, ROOT / "docs" / "simulation.md")


if __name__ == "__main__":
    main(sys.argv[1:])
