"""How near every training task comes to what one core can do: share of the GEMM peak, share of the time outside of firings, and a picture.

All of it is measured in one run: the tasks on one worker, the peak of matrix products, and three working sets that are read and written again and
again. FLOPs and bytes are the cost model's; only matrix products count.
Rates are by processor time. `--draw` makes the picture anew from what was written last.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import ROOT, Products, ours, prepare, providers
from benchmarks.report import JSON, Goal, Table, publish
from benchmarks.tasks import TASKS, with_data

PICTURE = ROOT / "docs" / "images" / "roofline.svg"
SETS = {"256 kB": 256 << 10, "4 MB": 4 << 20, "128 MB": 128 << 20}
"""Name -> bytes: a firing's rows, the values of the instances in flight, what no cache holds."""
COLOURS = ("#1b5e9c", "#d1661c", "#2e8b57", "#8e44ad", "#b8860b", "#c2185b", "#00838f")
MARKS = "os^DvpX"


class Stream:
    """Reads and writes a working set again and again: counts GB."""

    def __init__(self, size: int) -> None:
        prepare()
        from ampc.calibrate import loops

        self.size, self.n, self.call = size, size // 8, loops.stream
        self.numbers = np.random.default_rng(0).random(2 * self.n, np.float32)
        self.note = ""

    def window(self, seconds: float) -> tuple[float, float]:
        import time

        done, began = 0, time.perf_counter()
        repeats = max(1, (4 << 20) // self.size)
        while (took := time.perf_counter() - began) < seconds:
            self.call(self.numbers, self.n, repeats)
            done += repeats
        return done * self.size / 1e9, took


def contenders() -> list[Contender]:
    blas = providers()[0]
    made = [Contender(f"GEMM peak, {blas}", Products, {"blas": blas}, unit="GFLOP/s")]
    made += [Contender(f"memory, {name}", Stream, {"size": size}, unit="GB/s") for name, size in SETS.items()]
    for t, data in with_data():
        mine = ours(t.model, data, (1,), t.name, settings={**t.settings, "told": True})
        made += [c for c in mine if c.name.startswith(f"ampc {blas}")]
    return made


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--draw", metavar="FILE", help="only draw, what was written last, into this .svg or .png file")
    a = p.parse_args(argv)
    if a.draw:
        draw(json.loads(JSON.read_text(encoding="utf-8"))["roofline"]["facts"], Path(a.draw))
        return []
    c = compare("One core: what it can do and what tasks reach", "instances/s", wanted(contenders(), a.only), **lengths(a, 0.5, 3))
    blas = providers()[0]
    peak = f"GEMM peak, {blas}"
    goals, rows, points = [], [], []
    for t in TASKS:
        name = c.best(f"ampc {blas}, {t.name}")
        if not name:
            continue
        f = c.of(name)
        gflop = f.facts["matrix_flops"] / 1e9
        share = tuple(100 * gflop * x for x in c.ratio(name, peak, thrift=True))  # one thread each
        outside = 100 * (1 - f.facts["firings"])
        intensity = f.facts["matrix_flops"] / f.facts["bytes"]
        points.append({"name": t.name, "flops_per_byte": intensity, "gflops": gflop * f.thrift})
        rows.append([
            t.name, f"{gflop * 1e3:.3g}", f"{f.facts['other_flops'] / 1e6:.3g}", f"{intensity:.3g}", f"{gflop * f.thrift:.3g}",
            f"{share[0]:.3g} %", f"{outside:.2g} %", f"{f.facts['tokens']:.3g}",
        ])  # fmt: skip
        if t.share:
            goals.append(Goal(f"share of the GEMM peak, {t.name}", (share[0], share[1], share[2]), t.share, unit="%"))
        goals.append(Goal(f"time outside of firings, {t.name}", (outside,) * 3, 10, most=True, unit="%"))
    heads = ("", "MFLOP of products", "MFLOP of all else", "FLOP a byte", "GFLOP/s", "of GEMM peak", "outside of firings", "tokens an instance")
    roofs = {f.name: f.thrift for f in c.figures if f.unit and f.windows}
    facts: dict[str, Any] = {"points": points, "roofs": roofs}
    words = ""
    if points and len(roofs) == 1 + len(SETS):
        if a.write:
            draw(facts, PICTURE)
            words = f"![Rates of the tasks below what a core can do](images/{PICTURE.name})"
        else:
            draw(facts, ROOT / "runs" / "bench" / PICTURE.name)
    tables = [Table("Training on one worker, beside what one core can do", heads, rows)]
    publish("roofline", [c], goals, write=a.write, tables=tables, facts=facts, words=words)
    return [c]


def draw(facts: dict[str, Any], path: Path) -> None:
    """Draw the roofs and the tasks below them; without matplotlib say so and leave it."""
    try:
        import matplotlib
    except ImportError:
        print("the roofline picture needs matplotlib: pip install 'ampc[plots]'", file=sys.stderr)
        return
    matplotlib.use("agg" if path.suffix == ".png" else "svg")
    matplotlib.rcParams["svg.hashsalt"] = "ampc"
    from matplotlib import pyplot as plt

    roofs, points = facts["roofs"], facts["points"]
    peak_name, peak = next((n, r) for n, r in roofs.items() if n.startswith("GEMM"))
    x = [p["flops_per_byte"] for p in points]
    low, high = min(0.3, *x) / 1.5, max(100.0, *x) * 2
    figure, plot = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlim(low, high)
    bottom = min([p["gflops"] for p in points] + [peak / 30]) / 2
    plot.set_ylim(bottom, peak * 1.9)
    plot.plot([low, high], [peak, peak], color="#333333", linewidth=1.4)
    plot.text(high / 1.1, peak * 1.06, f"{peak_name}: {peak:.3g} GFLOP/s", ha="right", va="bottom", fontsize=8, color="#333333")
    for name, style in zip(SETS, ("-.", "--", ":"), strict=True):
        rate = roofs[f"memory, {name}"]
        said = f"{name} again and again: {rate:.3g} GB/s"
        plot.plot([low, peak / rate], [low * rate, peak], color="#777777", linewidth=1, linestyle=style, label=said)
    for k, p in enumerate(points):
        colour, mark = COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]
        label = f"{p['name']}: {p['gflops']:.3g} GFLOP/s, {100 * p['gflops'] / peak:.0f} %"
        plot.plot([p["flops_per_byte"]], [p["gflops"]], color=colour, marker=mark, markersize=8, linestyle="none", label=label)
    plot.set_xlabel("FLOP of matrix products a byte, by the cost model")
    plot.set_ylabel("GFLOP/s of matrix products on one core")
    plot.grid(which="major", color="#e0e0e0", linewidth=0.6)
    plot.legend(fontsize=7.5, frameon=False, loc="lower right")
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
