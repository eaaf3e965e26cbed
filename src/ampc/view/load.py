"""How loaded nodes and devices were in a pass, and the colours that say so in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ampc.ir.nodes import Ref
from ampc.place import Cost

if TYPE_CHECKING:
    from ampc.runtime.trace import Trace  # it brings pyarrow, which a picture without a load does not need

RAMP = ("#fff7ec", "#fee2b8", "#fdc387", "#fc8d59", "#df513a", "#a3140f")
"""Light to dark, in lightness alone apart for eyes that don't tell the hues."""
DARK = 4
"""From this step on, text is light."""
UNLOADED = "#f1f5f9"


class Load(msgspec.Struct, frozen=True):
    """`nodes`: node -> share of the pass within it, of those that compute; `devices`: device -> share of the pass within firings.

    `bytes`: output port -> bytes an instance that leave it, in one direction. `title`: what was measured.
    """

    nodes: dict[int, float]
    devices: dict[int, float]
    bytes: dict[Ref, float]
    title: str = ""

    @property
    def most(self) -> float:
        return max(self.nodes.values(), default=0.0)

    def colours(self, node: int) -> tuple[str, str]:
        """Return (fill, ink) of a node: by its share of the largest one."""
        share = self.nodes.get(node)
        if share is None:
            return UNLOADED, "#1f2937"
        step = min(len(RAMP) - 1, int(len(RAMP) * share / self.most)) if self.most > 0 else 0
        return RAMP[step], "#ffffff" if step >= DARK else "#1f2937"

    def legend(self) -> list[tuple[str, str]]:
        """Return (fill, words) of each step of the colours."""
        edges = [self.most * k / len(RAMP) for k in range(len(RAMP) + 1)]
        steps = [(fill, f"{_bare(edges[k])} to {percent(edges[k + 1])} of the time") for k, fill in enumerate(RAMP)]
        return [*(steps if self.most > 0 else []), (UNLOADED, "computes nothing")]


def load(trace: Trace, segments: Sequence[Sequence[int]], cost: Cost) -> Load:
    """Return the load that `trace` tells. segments: the nodes of each segment; those of one share its time as the cost model has it."""
    whole = trace.seconds or 1.0
    _, _, seconds = trace.by_queue()
    nodes: dict[int, float] = {}
    for s, members in enumerate(segments):
        spent = float(seconds[2 * s] + seconds[2 * s + 1])
        known = [cost.nodes[n] for n in members if n in cost.nodes]
        weights = np.array([c.flops + c.bytes for c in known]) if known else np.zeros(0)
        total = float(weights.sum())
        for n, weight in zip([n for n in members if n in cost.nodes], weights.tolist(), strict=True):
            nodes[n] = spent / whole * (weight / total if total > 0 else 1 / len(known))
    busy = {d: float(s) / whole for d, s in enumerate(trace.busy_s())}
    sent = {ref: count * size for ref, (count, size) in cost.messages.items() if count * size > 0}
    what = "measured" if trace.driver in ("threads", "step") else "simulated"
    n = len(trace.instance)
    rate = f", {n / whole:,.0f} instances/s" if n else ""
    return Load(nodes, busy, sent, f"load {what}{rate}")


def percent(share: float) -> str:
    """Return a share in per cent, with a digit behind the point where it is small."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value < 0.05 else f"{value:.1f} %"


def _bare(share: float) -> str:
    return percent(share).removesuffix(" %")


def amount(size_bytes: float) -> str:
    """Return bytes in few signs: `512 B`, `2.1 kB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 999.5 or unit == "GB":
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 99.5 else f"{size_bytes:.1f} {unit}"


__all__ = ["Load", "amount", "load", "percent"]
