"""The curves of a sweep: rate, how busy devices and links were, staleness, against the first axis; a line for each value of the others.

Needs matplotlib, the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ampc.diagnostics import error

COLOURS = ("#1b5e9c", "#d1661c", "#2e8b57", "#8e44ad", "#b8860b", "#5b6770", "#c2185b", "#00838f")
"""Told apart by people who see colours differently, also by lightness."""
MARKS = "os^Dvp*X"
PANELS = (
    ("instances_per_s", "instances/s", ""),
    ("mean_utilisation", "share of time busy", "devices, mean"),
    ("largest_staleness", "updates between forward and backward", "of the stalest layer"),
)


def draw(path: Path, rows: Sequence[Mapping[str, Any]], axes: Sequence[str], title: str = "") -> None:
    """Write the curves of `rows` to an .svg or .png file. Raises AmpError AMP925 without matplotlib, AMP824 where the file can't be written."""
    try:
        import matplotlib
    except ImportError:
        raise error("AMP925", "curves need matplotlib, which is not installed", help="install it: `pip install 'ampc[plots]'`", exit_code=4) from None
    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot as plt

    good = [r for r in rows if not r.get("error")]
    figure, panels = plt.subplots(1, len(PANELS), figsize=(4.6 * len(PANELS), 3.6), layout="constrained")
    x = axes[0]
    lines = list(dict.fromkeys(tuple(r[a] for a in axes[1:]) for r in good))
    logarithmic = _spread([r[x] for r in good])
    for panel, (name, label, note) in zip(panels, PANELS):
        for k, line in enumerate(lines):
            mine = [r for r in good if tuple(r[a] for a in axes[1:]) == line]
            colour, mark = COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]
            text = ", ".join(f"{a} {v}" for a, v in zip(axes[1:], line)) or None
            values = [r[name] for r in mine]
            panel.plot([r[x] for r in mine], values, color=colour, marker=mark, markersize=5, linewidth=1.6, label=text)
            if name == "instances_per_s" and len(mine) > 1 and x == "devices" and logarithmic:
                panel.plot([r[x] for r in mine], [values[0] * r[x] / mine[0][x] for r in mine], color=colour, linewidth=0.8, linestyle=":", alpha=0.7)
            if name == "mean_utilisation":
                panel.plot([r[x] for r in mine], [r["busiest_link"] for r in mine], color=colour, linewidth=1, linestyle="--", alpha=0.8)
        _axes(panel, x, logarithmic, [r[x] for r in good])
        panel.set_ylabel(label)
        panel.set_title(note, fontsize=10)
        if name == "instances_per_s":
            if logarithmic:
                panel.set_yscale("log")
            else:
                panel.set_ylim(bottom=0)
                panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        elif name == "mean_utilisation":
            panel.set_ylim(0, 1.05)
            panel.plot([], [], color="#555555", linewidth=1, linestyle="--", label="busiest link")
            panel.legend(fontsize=8, frameon=False)
        else:
            panel.set_ylim(bottom=0)
    if len(lines) > 1:
        panels[0].legend(fontsize=8, frameon=False)
    if title:
        figure.suptitle(title + " (simulated)", fontsize=11)
    try:
        figure.savefig(path, dpi=140, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as e:
        raise error("AMP824", f"`{path}` can't be written: {(e.strerror or str(e)).lower()}", help="give another path", exit_code=4) from None
    finally:
        plt.close(figure)


def _spread(values: Sequence[Any]) -> bool:
    """Whether values are numbers over more than a decade, so that equal factors should look alike."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) > 1 and min(numbers) > 0 and max(numbers) / min(numbers) > 8


def _axes(panel: Any, name: str, logarithmic: bool, ticks: Sequence[Any]) -> None:
    panel.set_xlabel(name.replace("_", " "))
    panel.grid(color="#e0e0e0", linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    if logarithmic:
        panel.set_xscale("log", base=2)
    if ticks and all(isinstance(t, int | float) for t in ticks) and len(set(ticks)) <= 12:
        shown = sorted(set(ticks))
        panel.set_xticks(shown, [f"{t:g}" for t in shown])
        panel.minorticks_off()


__all__ = ["draw"]
