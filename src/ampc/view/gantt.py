"""The Gantt picture of the paper: what each device does over time, forward, backward and updates told apart, one panel for each trace.

Idle time is the bare row. In a row with more boxes than can be told apart, their shares of narrow parts of the time are
drawn as heights, so a picture stays small however long the trace is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ampc.data.write import replacing
from ampc.diagnostics import did_you_mean, error, printable
from ampc.runtime.trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")
FORWARD, BACKWARD, UPDATE = "#0072b2", "#f0a830", "#1b1b1b"
"""Blue, orange and near-black: apart in hue for any eye, and in lightness where there is no colour."""
IDLE, INK, MUTED = "#e9ecef", "#1f2937", "#6b7280"
COLOURS = (FORWARD, BACKWARD, UPDATE)
KINDS = ("forward", "backward", "update")
EDGED = 1 / 250
"""Of the width: boxes that are wider have an edge, which sets them apart from their neighbours."""
MOST_BOXES = 1500
"""Of a row; where there are more, their shares are drawn in their place."""
HALF = 0.42
"""Of a row's height, in rows."""
BINS = 400
"""Parts of the time of such a row."""
FINEST = 1 / 1200
"""Of the width: boxes of which half are narrower than this, about a dot, would only look pale."""
FEW_ROWS, MOST_ROWS = 16, 64
"""So many devices are all shown; of more those that fire; and of very many those that fire most."""

Spans = npt.NDArray[np.float64]


def gantt(
    panels: Sequence[tuple[str, Trace]], path: str | Path, *, window: tuple[float, float] | None = None, same_scale: bool = True
) -> None:
    """Draw the panels (title, trace) one below the other into `path` (.svg, .png or .pdf).

    window: seconds that are shown, of each trace. same_scale: all panels have one time axis, so that a shorter pass is seen to be shorter.
    Raises AmpError: AMP925 without matplotlib, AMP904 for another ending, AMP824 (exit code 4) for what the system refuses.
    """
    path = Path(path)
    form = path.suffix[1:].lower()
    if form not in FORMATS:
        listed = ", ".join(f"`.{f}`" for f in FORMATS)
        raise error("AMP904", f"`{printable(str(path))}` must end in one of {listed}", help=did_you_mean(form, FORMATS), exit_code=2)
    plt = pyplot()
    begin = window[0] if window is not None else 0.0
    ends = [window[1] if window is not None else t.seconds for _, t in panels]
    if same_scale:
        ends = [max(ends, default=1.0)] * len(panels)
    rows = [_rows(t) for _, t in panels]
    heights = [0.9 + _pitch(len(r)) * len(r) for r in rows]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(10.0, sum(heights) + 0.75), squeeze=False, height_ratios=heights, layout="constrained",
    )  # fmt: skip
    try:
        for k, ((title, trace), axis, devices, end) in enumerate(zip(panels, axes[:, 0], rows, ends, strict=True)):
            _panel(axis, title, trace, devices, begin, end or 1.0, not same_scale or k == len(panels) - 1)
        handles = [plt.Rectangle((0, 0), 1, 1, facecolor=c, edgecolor="none") for c in (*COLOURS, IDLE)]
        figure.legend(handles, [*KINDS, "idle"], loc="outside upper right", ncols=4, frameon=False, fontsize=10, handlelength=1.2, columnspacing=1.4)
        with replacing(path) as temporary:
            metadata = {"Date": None} if form == "svg" else {"CreationDate": None} if form == "pdf" else {}
            figure.savefig(temporary, format=form, dpi=160, metadata=metadata)
    finally:
        plt.close(figure)


def pyplot() -> Any:
    """Return matplotlib's pyplot, set so that it needs no screen and writes the same bytes each time. Raises AmpError AMP925 if it isn't there."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot as plt
    except ImportError:
        raise error("AMP925", "charts need matplotlib, which is not installed", help="install it: `pip install 'ampc[plots]'`", exit_code=4) from None
    plt.rcParams.update({"svg.hashsalt": "ampc", "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]})
    return plt


def _pitch(rows: int) -> float:
    """Return the inches of a row."""
    return 0.34 if rows <= 8 else 0.26 if rows <= 16 else 0.16


def _rows(trace: Trace) -> list[int]:
    """Return the devices that a panel shows: all, or of many those that fire, and of these the busiest."""
    if len(trace.devices) <= FEW_ROWS:
        return list(range(len(trace.devices)))
    fired = np.unique(trace.device).tolist()
    if len(fired) <= MOST_ROWS:
        return fired or [0]
    busy = trace.busy_s()
    return sorted(np.argsort(-busy, kind="stable")[:MOST_ROWS].tolist())


def _panel(axis: Axes, title: str, trace: Trace, devices: list[int], begin: float, end: float, labelled: bool) -> None:
    scale, unit = _unit(end - begin)
    last = min(end, trace.seconds)  # after it the row is bare: the pass is over
    busy = np.zeros(len(devices))
    dense = False
    for row, d in enumerate(devices):
        _draw(axis, row, np.array([[begin, max(begin, last)]]) * scale, IDLE, 0.0)
        kinds = [_within(spans, begin, end) for spans in boxes(trace, d)]
        busy[row] = sum(float((spans[:, 1] - spans[:, 0]).sum()) for spans in kinds)
        count = sum(map(len, kinds))
        if count > MOST_BOXES or _pale(kinds, FINEST * (end - begin)):
            dense = True
            _shares(axis, row, kinds, begin, last, scale)
            continue
        for colour, spans in zip(COLOURS, kinds, strict=True):
            wide = spans[:, 1] - spans[:, 0] > EDGED * (end - begin)
            _draw(axis, row, spans[wide] * scale, colour, 0.5)
            _draw(axis, row, spans[~wide] * scale, colour, 0.0)
    for row in range(len(devices)):
        share = busy[row] / (last - begin) if last > begin else 0.0
        axis.text(1.008, row, f"{100 * share:.0f} %", transform=axis.get_yaxis_transform(), va="center", fontsize=_size(devices), color=MUTED)
    axis.set_xlim(begin * scale, end * scale)
    axis.set_ylim(len(devices) - 0.5, -0.5)
    axis.set_yticks(range(len(devices)), [_escaped(trace.devices[d], 28) for d in devices], fontsize=_size(devices), color=INK)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=9, colors=MUTED)
    axis.set_xlabel(f"time ({unit})" if labelled else "", fontsize=9, color=MUTED, labelpad=1)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#c4c9d0")
    axis.set_title(_escaped(title, 80), loc="left", fontsize=11.5, color=INK, fontweight="bold", pad=6)
    facts = f"{100 * busy.mean() / (last - begin):.0f} % busy" if last > begin and len(devices) else ""
    done = int(np.isfinite(trace.retired_s).sum())
    if done:
        facts += f", {done / trace.seconds:,.0f} instances/s"
    if dense:
        width, short = _unit((last - begin) / BINS)
        facts += f", heights are shares of {(last - begin) / BINS * width:.1f} {short}"
    if len(devices) < len(trace.devices):
        idle = len(trace.devices) - len(np.unique(trace.device))
        facts += f", {len(devices)} of {len(trace.devices)} devices" + (f" ({idle} idle)" if idle else "")
    axis.set_title(facts, loc="right", fontsize=9.5, color=MUTED, pad=6)


def _pale(kinds: Sequence[Spans], width: float) -> bool:
    """Whether most boxes of a row are narrower than `width`, and there are more than a few."""
    widths = np.concatenate([spans[:, 1] - spans[:, 0] for spans in kinds])
    return len(widths) > 100 and float(np.median(widths)) < width


def _draw(axis: Axes, row: int, spans: Spans, colour: str, edge: float) -> None:
    """Draw all spans as one path, which is far smaller in a file than one for each."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    if not len(spans):
        return
    x = spans[:, [0, 0, 1, 1, 0]]
    y = np.tile([row + HALF, row - HALF, row - HALF, row + HALF, row + HALF], (len(spans), 1))
    codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY] * len(spans)
    outline = Outline(np.stack([x, y], axis=2).reshape(-1, 2), codes)
    axis.add_patch(PathPatch(outline, facecolor=colour, edgecolor="white", linewidth=edge, zorder=1 if colour == IDLE else 2, snap=False))


def _size(devices: list[int]) -> float:
    return 10.0 if len(devices) <= 16 else 7.0


def boxes(trace: Trace, device: int) -> tuple[Spans, Spans, Spans]:
    """Return float64 [n, 2] spans of a device, all disjoint: within forward firings, within backward ones, and within updates.

    Updates are firings by order, and the end of those in which layers updated themselves.
    """
    mine = trace.device == device
    start, end, queue = trace.start_s[mine], trace.end_s[mine], trace.queue[mine]
    ordered = queue == 2 * len(trace.segments)
    spent = np.where(ordered, end - start, trace.update_s[mine] if len(trace.update_s) else 0.0)
    work = np.stack([start, end - spent], axis=1)
    updates = np.stack([end - spent, end], axis=1)
    return work[~ordered & (queue & 1 == 0)], work[~ordered & (queue & 1 == 1)], updates[spent > 0]


def shares(kinds: Sequence[Spans], begin: float, end: float, bins: int) -> Spans:
    """Return float64 [kinds, bins]: which share of each of `bins` equal parts of the time the spans of each kind cover."""
    edges = np.linspace(begin, end, bins + 1)
    return np.stack([np.diff(_covered(spans, edges)) / np.diff(edges) for spans in kinds])


def _shares(axis: Axes, row: int, kinds: Sequence[Spans], begin: float, end: float, scale: float) -> None:
    """Draw a row whose boxes could not be told apart: their shares of narrow parts of the time, as heights."""
    edges = np.linspace(begin, end, BINS + 1) * scale
    bottom = np.full(BINS, row + HALF)
    for colour, share in zip(COLOURS, shares(kinds, begin, end, BINS), strict=True):
        top = bottom - 2 * HALF * share  # rows are numbered downwards
        axis.fill_between(edges, np.append(bottom, bottom[-1]), np.append(top, top[-1]), step="post", facecolor=colour, linewidth=0, zorder=2)
        bottom = top


def _within(spans: Spans, begin: float, end: float) -> Spans:
    """Return the parts of spans that lie within a window."""
    return np.clip(spans[(spans[:, 1] > begin) & (spans[:, 0] < end)], begin, end)


def _covered(spans: Spans, times: Spans) -> Spans:
    """Return how many seconds of disjoint spans lie before each of `times`."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    total = np.concatenate([[0.0], np.cumsum(spans[:, 1] - spans[:, 0])])
    k = np.searchsorted(spans[:, 0], times, side="right")
    last = np.concatenate([[-np.inf], spans[:, 1]])[k]
    return np.asarray(total[k] - np.maximum(last - times, 0.0), np.float64)


def _unit(seconds: float) -> tuple[float, str]:
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * scale >= 2:
            return scale, unit
    return 1e9, "ns"


def _escaped(name: str, most: int) -> str:
    """Return a name as matplotlib shows it, shortened: dollars would begin a formula."""
    text = printable(name)
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


__all__ = ["FORMATS", "boxes", "gantt", "pyplot", "shares"]
