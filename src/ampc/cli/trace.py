"""`ampc trace`: what a recorded pass did, as figures, as a file for Perfetto, as a Gantt picture. `ampc run --trace` uses its parts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ampc.cli.errors import note
from ampc.diagnostics import error, printable

if TYPE_CHECKING:
    from ampc.manifest import Manifest
    from ampc.runtime.trace import Trace
    from ampc.view import Load

PERFETTO = "trace.perfetto-trace"
Window = tuple[float, float]


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("trace", epilog="Example: ampc trace runs/list_reduction-1 -o first.perfetto-trace --window 0:0.01")(trace_command)


def trace_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR|TRACE_DIR...", help="Folders with a trace; several for `--gantt`.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a trace for Perfetto (ui.perfetto.dev).")] = None,
    gantt: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw what each device does over time: .svg, .png or .pdf.")] = None,
    title: Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Title of a panel of `--gantt`; once for each folder.")] = None,
    window: Annotated[str | None, typer.Option(metavar="A:B", help="Seconds of the pass that files and pictures show.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as one JSON object on stdout.")] = False,
) -> None:
    """Show what a recorded pass did: figures on stdout, a file for Perfetto with `-o`, a Gantt picture with `--gantt`.

    Measured (`ampc run --trace`) and simulated (`ampc simulate --trace`) passes are the same here; `--gantt` puts several below each other.
    """
    from ampc.runtime.trace import load

    shown = parse_window(window)
    if len(folders) > 1 and (gantt is None or output is not None or as_json):
        raise error("AMP903", "several traces are for `--gantt` alone", help="name one folder, or give `--gantt FILE`", exit_code=2)
    if title and (gantt is None or len(title) != len(folders)):
        message = f"{len(title)} titles for {len(folders)} panels" if gantt is not None else "`--title` is of the panels of `--gantt`"
        raise error("AMP903", message, help="give `--gantt FILE`, and one `--title` for each folder", exit_code=2)
    traces = [load(f) for f in folders]
    for folder, trace in zip(folders, traces, strict=True):
        for problem in trace.problems():
            note(f"warning: the trace in `{printable(str(folder))}` contradicts itself: {problem}")
    if gantt is not None:
        from ampc.view.gantt import gantt as draw

        draw(list(zip(title or [_title(f, t) for f, t in zip(folders, traces)], traces, strict=True)), gantt, window=shown)
        note(f"{printable(str(gantt))}: {len(traces)} panel{'s' if len(traces) > 1 else ''}")
    if output is not None:
        write_perfetto(traces[0], output, shown)
    if as_json:
        print(json.dumps(figures(traces[0])))
    elif gantt is None and output is None:
        print_figures(traces[0])


def _title(folder: Path, trace: Trace) -> str:
    name = folder.resolve().name
    return f"{folder.resolve().parent.name if name == 'trace' else name} ({trace.driver})"


def parse_window(text: str | None) -> Window | None:
    """Return (begin, end) in seconds of `A:B`; either may be left out. Raises AmpError AMP908 (exit code 2)."""
    if text is None:
        return None
    first, colon, second = text.partition(":")
    try:
        begin, end = float(first or 0.0), float(second or math.inf)
    except ValueError:
        begin, end = math.nan, math.nan
    if not colon or not 0.0 <= begin < end:
        message = f"a window of time expects `A:B`, seconds of which the second is larger, got `{printable(text)}`"
        raise error("AMP908", message, help="for instance `0:0.05`, or `0.5:` for all that comes later", exit_code=2)
    return begin, end


def write_perfetto(trace: Trace, path: Path, window: Window | None) -> None:
    """Write a file for Perfetto, and say what it holds."""
    from ampc.view import perfetto

    done = perfetto.write(trace, path, window=window)
    left = f"; {done.left_out:,} later firings are left out for its size (a window shows others)" if done.left_out else ""
    note(f"{printable(str(path))}: {done.firings:,} firings, {done.flows:,} arrows, {done.size_bytes / 1e6:.1f} MB{left}")


def figures(trace: Trace) -> dict[str, Any]:
    """Return what a trace adds up to, for `--json`."""
    spent = trace.activity()
    firings, tokens, seconds = trace.by_queue()
    times, flying = trace.in_flight()
    mean = float((flying[:-1] * (times[1:] - times[:-1])).sum() / (times[-1] - times[0])) if len(times) > 1 and times[-1] > times[0] else 0.0
    queues = [
        {"queue": name, "firings": int(f), "tokens": int(n), "seconds": float(s)}
        for name, f, n, s in zip(trace.names(), firings, tokens, seconds, strict=True)
        if f
    ]
    return {
        "driver": trace.driver, "seconds": trace.seconds, "instances": len(trace.instance), "firings": len(trace.start_s),
        "tokens": int(trace.tokens.sum()), "updates": int(trace.updates.sum()), "messages": len(trace.sent_s), "dropped": trace.dropped,
        "in_flight": {"mean": mean, "most": int(flying.max(initial=0))}, "queues": queues,
        "devices": [
            {"device": name, **{f"{what}_s": float(spent[what][d]) for what in ("busy", "waiting", "overhead", "idle")}}
            for d, name in enumerate(trace.devices)
        ],
    }  # fmt: skip


def print_figures(trace: Trace) -> None:
    """Print what a trace adds up to: the whole, its devices, its queues."""
    found = figures(trace)
    whole = found["seconds"] or 1.0
    rows = [
        ("driver", found["driver"]), ("seconds", f"{found['seconds']:.6g}"),
        ("instances", f"{found['instances']:,} ({found['instances'] / whole:,.0f} a second)"),
        ("in flight", f"{found['in_flight']['mean']:.1f}, at most {found['in_flight']['most']}"),
        ("firings", f"{found['firings']:,} of {found['tokens'] / max(1, found['firings']):.1f} tokens"),
        ("updates", f"{found['updates']:,}"), ("messages between devices", f"{found['messages']:,}"),
    ]  # fmt: skip
    if found["dropped"]:
        rows.append(("events left out", f"{found['dropped']:,} at the end: the log was full"))
    for name, value in rows:
        print(f"{name:<24} {value}")
    print()
    keys = ("busy_s", "waiting_s", "overhead_s", "idle_s")
    devices = [(d["device"], *(f"{100 * d[key] / whole:.1f} %" for key in keys)) for d in found["devices"]]
    print_columns([("device", "busy", "waiting for messages", "between firings", "before and after"), *devices])
    print()
    queues = sorted(found["queues"], key=lambda q: -q["seconds"])
    listed = [(q["queue"], f"{q['firings']:,}", f"{q['tokens']:,}", f"{q['tokens'] / q['firings']:.1f}", f"{q['seconds']:.4g}") for q in queues]
    print_columns([("queue", "firings", "tokens", "tokens/firing", "seconds"), *listed])


def print_columns(rows: list[tuple[str, ...]], left: int = 1) -> None:
    """Print a table; the first `left` columns stand at the left, the others at the right."""
    shown = [tuple(printable(cell) for cell in row) for row in rows]
    widths = [max(len(row[c]) for row in shown) for c in range(len(shown[0]))]
    for row in shown:
        print("  ".join(cell.ljust(w) if c < left else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip())


def load_of(folder: Path, manifest: Manifest) -> Load:
    """Return the load of a placed program that the trace in `folder` tells, and whose placement it ran on.

    Raises AmpError AMP720 (no trace), AMP915 (of another program or placement).
    """
    from ampc.codegen.plan import make_plan, segment_names
    from ampc.place import estimate, guess
    from ampc.runtime.trace import load
    from ampc.view import load as loaded

    trace = load(folder)
    placement = manifest.placement
    plan = make_plan(manifest.graph, placement.device_of)
    if trace.segments != segment_names(plan) or len(trace.devices) != len(placement.devices):
        placed = f"{len(placement.devices)} device{'' if len(placement.devices) == 1 else 's'} of the target `{manifest.target.name}`"
        raise error(
            "AMP915", f"the trace in `{printable(str(folder))}` is of another program, or of another placement than on {placed}",
            help="name the program that ran, placed as it ran: `--target`, `--strategy`, `--at`, `--data`, of `ampc compile` or of an `.amp` file",
            notes=(f"it has {len(trace.devices)} devices and {len(trace.segments)} segments, the program {len(plan.segments)} segments",),
        )  # fmt: skip
    cost = estimate(manifest.graph, manifest.statistics or guess(manifest.graph))
    return loaded(trace, [[n.id for n in s.nodes] for s in plan.segments], cost)


__all__ = ["PERFETTO", "load_of", "parse_window", "print_columns", "print_figures", "register", "write_perfetto"]
