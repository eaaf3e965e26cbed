"""What a calibration says: a table for people, a JSON object, a target file with comments."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

from ampc.calibrate.fit import NOISY, Figure
from ampc.calibrate.measure import Calibration
from ampc.diagnostics import printable
from ampc.place.target import Target, load_target, machine_memory, parse_target

MARK = "# Measured by `ampc calibrate`"
"""How a file begins that may be written again."""


def table(c: Calibration) -> str:
    """Return the figures as lines of text, and what is to be said about them."""
    lines = [f"{'':48}{'median':>16}  spread"]
    lines += [f"{f.what:48}{shown(f.median, f.unit):>16}  {_percent(f.spread)}{'  noisy' if f.noisy else ''}" for f in c.figures]
    lines.append(f"these figures give the times of products by themselves within {_percent(c.fit_error)} (median over {len(c.points)} shapes)")
    lines.append(f"and those of the engine's passes within {_percent(c.pass_error)} (median over the programs)")
    if c.cores > 1:
        lines.append(f"a core is {c.slowdown:.2f} times as slow with all {c.cores} at work as alone; rates are those with all at work")
    return "\n".join(lines)


def warning(c: Calibration) -> str | None:
    """Return what to tell about figures that differ too much from round to round, or None."""
    noisy = [f.what for f in c.figures if f.noisy]
    if not noisy:
        return None
    return f"the spread is over {100 * NOISY:.0f} % for: {', '.join(noisy)}. Is the machine doing something else?"


def as_json(c: Calibration, file: str, target: Target) -> dict[str, Any]:
    """Return everything that was measured, and the target as its file says it."""
    import msgspec

    return {
        "file": file, "cores": c.cores, "processor": processor(), "blas": c.provider, "seconds": _four(c.seconds),
        "figures": [
            {"name": f.name, "what": f.what, "unit": f.unit, "median": _four(f.median), "spread": _finite(f.spread), "noisy": f.noisy,
             "samples": [_four(x) for x in f.samples]}
            for f in c.figures
        ],
        "fit_error": _four(c.fit_error), "pass_error": _four(c.pass_error), "cache_bytes": c.cache_bytes, "slowdown": _four(c.slowdown),
        "products": [{"inputs": p.inputs, "outputs": p.outputs, "rows": p.rows, "seconds": _four(p.seconds)} for p in c.points],
        "target": msgspec.to_builtins(target),
    }  # fmt: skip


def target_text(c: Calibration) -> str:
    """Return the target file. What can't be measured with one core is as in the bundled `cpu-2`, and said to be."""
    today = datetime.date.today().isoformat()
    known = {f.name: f for f in c.figures}
    other = load_target("cpu-2").links

    def line(key: str, name: str, otherwise: float = 0.0) -> str:
        found = known.get(name)
        value = found.median if found else otherwise
        return f"{key + ' = ' + _toml(value):42}# {_remark(found)}"

    def rates() -> str:
        single, half = known["matrix_flops_per_s"], known.get("half_speed")
        more = f", bf16 = {_toml(single.median * half.median)}" if half else ""
        remark = _remark(single) + (f"; bf16 {half.median:.3g} times as fast, {_remark(half)}" if half else "; no products of bf16 here")
        return f"{f'matrix_flops_per_s = {{ fp32 = {_toml(single.median)}{more} }}':42}# {remark}"

    lines = [
        f"{MARK} on {today}: {processor()}, {c.cores} {_cores(c)}, {c.provider}, {c.seconds:.0f} s.",
        "# Figures are medians over rounds; the spread is the width of the middle half of the measurements, as a part of the median.",
        "# Rates are those of a core with all of them at work.",
        'name = "cpu"',
        f'description = "{c.cores} {_cores(c)} of this machine, measured on {today}"',
        "",
        "[[devices]]",
        'name = "core"',
        'kind = "cpu"',
        f"count = {c.cores}",
        rates(),
        line("matrix_half_rows", "matrix_half_rows"),
        line("matrix_half_columns", "matrix_half_columns"),
        f"{f'cache_bytes = {c.cache_bytes}':42}# of a core",
        *([line("far_bytes_per_s", "far_bytes_per_s")] if "far_bytes_per_s" in known else []),
        line("product_overhead_s", "product_overhead_s"),
        line("vector_flops_per_s", "vector_flops_per_s"),
        f"{f'memory_bytes = {max(1 << 20, machine_memory() // c.cores)}':42}# share of the machine's memory",
        line("message_overhead_s", "message_overhead_s"),
        line("firing_overhead_s", "firing_overhead_s"),
        line("instance_overhead_s", "instance_overhead_s"),
        line("update_overhead_s", "update_overhead_s"),
        line("value_overhead_s", "value_overhead_s"),
        line("row_overhead_s", "row_overhead_s"),
        line("number_overhead_s", "number_overhead_s"),
        line("copy_bytes_per_s", "copy_bytes_per_s"),
        "",
        "[links]",
        'topology = "shared"',
        line("bytes_per_s", "link_bytes_per_s", other.bytes_per_s),
        line("latency_s", "latency_s", other.latency_s),
        line("overhead_s", "link_overhead_s", other.overhead_s),
        line("message_overhead_s", "link_message_s", other.message_overhead_s),
    ]
    text = "\n".join(lines) + "\n"
    parse_target(text, "cpu.toml")  # a figure out of bounds is an error here, and not at the first use
    return text


def _remark(f: Figure | None) -> str:
    if f is None:
        return "not measured: that takes two cores"
    return f"spread {_percent(f.spread)}{', NOISY' if f.noisy else ''}"


def _cores(c: Calibration) -> str:
    return "core" if c.cores == 1 else "cores"


def processor() -> str:
    """Return what this machine's processor calls itself."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    found = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "") or platform.machine()
    return printable(found)[:200]


def shown(value: float, unit: str) -> str:
    """Return a figure as people write it: `82.8 GFLOP/s`, `1.2 µs`, `3.4 rows`."""
    if unit in ("rows", "columns", "times"):
        return f"{value:.3g} {unit}"
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= factor:
                return f"{value / factor:.3g} {name}"
        return f"{value / 1e-9:.3g} ns"
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {name}{unit}"
    return f"{value:.3g} {unit}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if math.isfinite(part) else "?"


def _toml(value: float) -> str:
    """Return four digits, with an exponent that is a multiple of three: `82.83e9`."""
    if value == 0 or 1e-2 <= value < 1e4:
        return f"{value:.4g}" if value else "0.0"
    power = 3 * math.floor(math.log10(value) / 3)
    return f"{value / 10.0**power:.4g}e{power}"


def _four(value: float) -> float:
    return float(f"{value:.4g}")


def _finite(value: float) -> float | None:
    return _four(value) if math.isfinite(value) else None


__all__ = ["MARK", "as_json", "processor", "shown", "table", "target_text", "warning"]
