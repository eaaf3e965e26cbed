"""What a simulated run says: rates, how busy devices and links were, the bottleneck, the critical path, staleness. As data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ampc.diagnostics import printable
from ampc.runtime.trace import Trace
from ampc.simulate.critical import critical_path
from ampc.simulate.totals import Totals

PARTS = ("forward", "backward", "update")
SHOWN = 16
"""Devices, links and queues that the text lists; the data has all."""


def report(totals: Totals, trace: Trace | None = None, staleness: Mapping[str, float | None] | None = None) -> dict[str, Any]:
    """Return a pass as plain data; with a trace also the critical path and how deep queues were. Seconds are virtual ones."""
    used, crossed = totals.utilisation, totals.link_utilisation
    devices = [
        {
            "name": name, "utilisation": _r(used[k]), "forward_s": _r(totals.busy_s[k, 0]), "backward_s": _r(totals.busy_s[k, 1]),
            "update_s": _r(totals.busy_s[k, 2]), "stopped_s": _r(totals.busy_s[k, 3]), "firings": int(totals.fired[k]),
        }
        for k, name in enumerate(totals.devices)
    ]  # fmt: skip
    links = [
        {
            "name": name, "utilisation": _r(crossed[k]), "bytes": _r(totals.link_bytes[k]),
            "bits_per_s": _r(8 * totals.link_bytes[k] / max(totals.seconds, 1e-30)), "messages": int(totals.link_messages[k]),
        }
        for k, name in enumerate(totals.links)
    ]  # fmt: skip
    out: dict[str, Any] = {
        "seconds": _r(totals.seconds), "instances": totals.instances, "instances_per_s": _r(totals.instances_per_s), "events": totals.events,
        "messages_between_devices": totals.messages, "failures": totals.failures, "mean_utilisation": _r(float(used.mean())) if len(used) else 0.0,
        "bottleneck": bottleneck(totals), "devices": devices, "links": links,
    }  # fmt: skip
    if staleness:
        out["staleness"] = {layer: None if x is None else _r(x) for layer, x in staleness.items()}
    if trace is not None:
        out["critical_path"] = _path(trace)
        out["queues"] = _queues(trace)
    return out


def bottleneck(totals: Totals) -> str:
    """Return the device or link that was busy for the largest share of the pass."""
    candidates = [*zip(totals.utilisation, totals.devices), *zip(totals.link_utilisation, totals.links)]
    return max(candidates, key=lambda c: float(c[0]), default=(0.0, ""))[1]


def _path(trace: Trace) -> dict[str, Any]:
    path = critical_path(trace)
    total = path.seconds or 1.0
    return {
        "firings": path.firings, "messages_share": _r(path.messages_s / total), "waiting_share": _r(path.waiting_s / total),
        "devices": {k: _r(v / total) for k, v in sorted(path.by_device.items(), key=lambda x: -x[1])},
        "queues": {k: _r(v / total) for k, v in sorted(path.by_queue.items(), key=lambda x: -x[1])},
    }  # fmt: skip


def _queues(trace: Trace) -> list[dict[str, Any]]:
    """Return for each queue that fired: firings, tokens of one, seconds, and how long tokens waited where messages tell."""
    firings, tokens, seconds = trace.by_queue()
    return [
        {"name": name, "firings": int(firings[q]), "tokens_per_firing": _r(tokens[q] / firings[q]), "seconds": _r(seconds[q])}
        for q, name in enumerate(trace.names()) if firings[q]
    ]  # fmt: skip


def text(found: Mapping[str, Any], predicted: float = 0.0) -> str:
    """Return a report as lines for people; `predicted`: what the placement promised."""
    seconds = found["seconds"] or 1.0
    beside = f" (placement predicts {predicted:,.0f})" if predicted else ""
    lines = [
        f"{found['instances_per_s']:,.0f} instances/s{beside}: {found['instances']:,} instances in {found['seconds']:.6g} virtual seconds, "
        f"{found['events']:,} events",
        f"busiest: {printable(found['bottleneck'])}; devices {100 * found['mean_utilisation']:.0f} % busy on average"
        + (f"; {found['failures']} failures" if found["failures"] else ""),
        "",
    ]
    lines += _table(
        ("device", "busy", "forward", "backward", "update", "firings"),
        [
            (d["name"], _percent(d["utilisation"]), *(_percent(d[f"{k}_s"] / seconds) for k in PARTS), f"{d['firings']:,}")
            for d in _most(found["devices"])
        ],
        len(found["devices"]),
    )  # fmt: skip
    if found["links"]:
        lines += ["", *_table(
            ("link", "busy", "Gb/s", "messages"),
            [(x["name"], _percent(x["utilisation"]), f"{x['bits_per_s'] / 1e9:.3g}", f"{x['messages']:,}") for x in _most(found["links"])],
            len(found["links"]),
        )]  # fmt: skip
    path = found.get("critical_path")
    if path is not None:
        parts = [f"{printable(k)} {_percent(v)}" for k, v in list(path["queues"].items())[:6]]
        lines += ["", f"critical path: {path['firings']:,} firings, {_percent(path['messages_share'])} on links; " + ", ".join(parts)]
    stale = {k: v for k, v in found.get("staleness", {}).items() if v is not None}
    if stale:
        lines += ["staleness: " + ", ".join(f"{printable(k)} {v:.2g}" for k, v in list(stale.items())[:SHOWN])]
    return "\n".join(lines) + "\n"


def _most(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all of a few rows; of many the busiest, in their own order, without those that did nothing."""
    if len(rows) <= SHOWN:
        return rows
    kept = {id(r) for r in sorted(rows, key=lambda r: -r["utilisation"])[:SHOWN] if r["utilisation"] > 0}
    return [r for r in rows if id(r) in kept]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], total: int) -> list[str]:
    cells = [head, *((printable(r[0]), *r[1:]) for r in rows)]
    widths = [max(len(c[i]) for c in cells) for i in range(len(head))]
    lines = ["  ".join(x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(c, widths))) for c in cells]
    return lines + ([f"... and {total - len(rows)} more, less busy"] if total > len(rows) else [])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def _r(value: Any) -> float:
    return float(np.format_float_positional(float(value), precision=6, fractional=False, trim="-")) if np.isfinite(value) else float(value)


__all__ = ["bottleneck", "report", "text"]
