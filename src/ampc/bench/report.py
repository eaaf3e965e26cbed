"""What a bench says, as lines for people."""

from __future__ import annotations

from ampc.bench.measure import Bench
from ampc.bench.peak import SIDE

BUSY = 0.2
"""Cores that other programs may use before the figures are said to be disturbed."""
Rows = list[tuple[str, ...]]


def head(b: Bench) -> list[tuple[str, str]]:
    """Return name and value of what holds for all settings."""
    peak = f"{b.peak_flops_per_s / 1e9:.3g} GFLOP/s a core ({b.provider}, fp32, {SIDE} x {SIDE} x {SIDE})"
    rows = [
        ("work", f"{b.work}, {b.instances:,} instances"), ("GEMM peak", peak),
        ("FLOPs an instance", f"{number(b.matrix_flops)} of matrix products, {number(b.other_flops)} of all else"),
        ("an instance in flight", f"{size(b.predicted_instance_bytes)} predicted"), ("peak memory", size(b.peak_bytes)),
    ]  # fmt: skip
    if b.latency is not None:
        quantiles = ", ".join(f"{name} {time(b.latency.of_call(q))}" for name, q in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99)))
        rows += [("latency, one call", quantiles), ("latency, in a stream", time(b.latency.in_stream))]
    return rows


def table(b: Bench) -> Rows:
    """Return the rows of a table: a heading, then one for each setting."""
    rows: Rows = [(
        "workers", "in flight", "instances/s", "lowest–highest", "a core second", "of GEMM peak", "in firings", "engine", "waiting", "idle",
        "memory", "an instance",
    )]  # fmt: skip
    for f in b.figures:
        rows.append((
            str(f.workers), str(f.max_active_keys), number(f.rate), f"{number(min(f.rates))}–{number(max(f.rates))}", number(f.thrift),
            *(f"{100 * s:.1f} %" for s in (f.gemm_share, f.share.firings, f.share.engine, f.share.waiting, f.share.idle)),
            size(f.in_flight.peak_bytes), size(f.in_flight.instance_bytes),
        ))  # fmt: skip
    return rows


def warnings(b: Bench) -> list[str]:
    """Return what to tell about the figures."""
    said = []
    if not b.compiled:
        said.append("kernels run as plain Python here (NUMBA_DISABLE_JIT), whose times say nothing of a run")
    if b.others > BUSY:
        said.append(f"other programs used {b.others:.1f} cores meanwhile")
    return said


def number(x: float) -> str:
    """Return `x` with three or more significant digits, thousands apart."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def size(n: float) -> str:
    """Return a number of bytes as people write it."""
    for factor, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= factor:
            return f"{n / factor:.3g} {name}"
    return f"{n:.0f} B"


def time(seconds: float) -> str:
    """Return a time as people write it."""
    for factor, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


__all__ = ["head", "number", "size", "table", "time", "warnings"]
