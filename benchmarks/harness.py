"""Runs contenders in turn, one process each, in short windows (A B C A B C ...), and prints medians, ranges and ratios.

A window is disturbed if other programs left too few cores free; disturbed windows count only where too few others exist. Nothing here
knows what is measured.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
FREE = 0.2
"""A window may lose so much of a core to other programs and still count as quiet."""
QUIET_WANTED = 2


class Runner(Protocol):
    """Something that trains or predicts. `note` is shown beside its figures (a loss, the BLAS that it calls).

    It may have `facts`, numbers by name that hold for all its windows.
    """

    note: str

    def window(self, seconds: float) -> tuple[float, float]:
        """Train for about `seconds`; return (instances, or whatever is counted, and the seconds that they took)."""
        ...


@dataclasses.dataclass(frozen=True)
class Contender:
    """A name and how its process makes a Runner: `make(**arguments)`, a function of a module. `threads`: cores that it can use.

    `unit`: what it counts a second, where that is not the table's.
    """

    name: str
    make: Callable[..., Runner]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    threads: int = 1
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Window:
    """What one window gave: instances a second, instances a second of processor time, and the cores that other programs used meanwhile."""

    rate: float
    thrift: float
    others: float


@dataclasses.dataclass
class Figures:
    """All windows of one contender."""

    name: str
    threads: int
    note: str = ""
    failed: str = ""
    unit: str = ""
    windows: list[Window] = dataclasses.field(default_factory=list)
    facts: dict[str, float] = dataclasses.field(default_factory=dict)
    processor_s: float = 0.0
    """Of its process so far, getting ready included: what the whole comparison costs is their sum."""

    def quiet(self, w: Window) -> bool:
        return w.others <= CORES - min(self.threads, CORES) + FREE

    def counted(self) -> list[Window]:
        quiet = [w for w in self.windows if self.quiet(w)]
        return quiet if len(quiet) >= QUIET_WANTED else self.windows

    @property
    def median(self) -> float:
        return statistics.median(w.rate for w in self.counted()) if self.windows else float("nan")

    @property
    def thrift(self) -> float:
        """Median of instances a second of processor time."""
        return statistics.median(w.thrift for w in self.counted()) if self.windows else float("nan")

    @property
    def span(self) -> tuple[float, float]:
        rates = [w.rate for w in self.counted()]
        return (min(rates), max(rates)) if rates else (float("nan"), float("nan"))


@dataclasses.dataclass
class Comparison:
    """A table: what was measured, in which unit, and the figures of each contender."""

    title: str
    unit: str
    figures: list[Figures]

    def of(self, name: str) -> Figures:
        return next(f for f in self.figures if f.name == name)

    def best(self, start: str, end: str = "") -> str:
        """Return the name of the fastest contender whose name begins with `start` and ends with `end`; "" if there is none."""
        them = [f for f in self.figures if f.windows and not f.unit and f.name.startswith(start) and f.name.endswith(end)]
        return max(them, key=lambda f: f.median).name if them else ""

    def ratio(self, a: str, b: str, *, thrift: bool = False) -> tuple[float, float, float]:
        """Return (median, lowest, highest) of a's rate over b's in the same round; rounds where both were quiet, if there are enough.

        thrift: the rates are those by processor time, which programs beside ours disturb least. Not for more threads than one: waiting costs nothing.
        """
        if not a or not b or not {a, b} <= {f.name for f in self.figures}:
            return (float("nan"),) * 3
        one, other = self.of(a), self.of(b)
        pairs = list(zip(one.windows, other.windows, strict=False))
        quiet = [(x, y) for x, y in pairs if one.quiet(x) and other.quiet(y)]
        ratios = [x.thrift / y.thrift if thrift else x.rate / y.rate for x, y in (quiet if len(quiet) >= QUIET_WANTED else pairs)]
        return (statistics.median(ratios), min(ratios), max(ratios)) if ratios else (float("nan"),) * 3


Answer = tuple[Window, str, dict[str, float], float]
"""A window, the note, the facts, and the processor seconds of the process so far."""


def compare(title: str, unit: str, contenders: Sequence[Contender], *, seconds: float, rounds: int) -> Comparison:
    """Run `rounds` windows of `seconds` for each contender, in turn; one that fails is reported and left out."""
    figures = [Figures(c.name, c.threads, unit=c.unit) for c in contenders]
    rivals: list[_Process] = []
    try:
        rivals += [_Process(c) for c in contenders]
        _say(f"\r  {title}: {len(rivals)} contenders get ready")
        with concurrent.futures.ThreadPoolExecutor(CORES) as pool:  # of threads that wait for a process
            for f, failed in zip(figures, pool.map(lambda r: r.warm_up(min(0.3, seconds)), rivals), strict=True):
                f.failed = failed
        for rival, f in zip(rivals, figures, strict=True):  # once more, alone: a rate that was taken beside others is no guide
            if not f.failed:
                f.failed = rival.warm_up(min(0.1, seconds))
        for turn in range(rounds):
            for rival, f in zip(rivals, figures, strict=True):
                if not f.failed:
                    _one(rival, f, seconds)
            _say(f"\r  {title}: round {turn + 1} of {rounds}")
    finally:
        for rival in rivals:
            rival.end()
    _say("\r" + " " * 78 + "\r")
    return Comparison(title, unit, figures)


def _one(rival: _Process, f: Figures, seconds: float) -> None:
    try:
        window, f.note, f.facts, f.processor_s = rival.window(seconds)
        f.windows.append(window)
    except RuntimeError as problem:
        f.failed = str(problem)


class _Process:
    """A contender in a process of its own, which sleeps between its windows."""

    def __init__(self, contender: Contender) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, contender), daemon=True)
        self.process.start()
        theirs.close()

    def warm_up(self, seconds: float) -> str:
        """Build, compile, run for a while; return what failed, or nothing."""
        try:
            self.window(seconds)
        except RuntimeError as problem:
            return str(problem)
        return ""

    def window(self, seconds: float) -> Answer:
        try:
            self.pipe.send(seconds)
            answer = self.pipe.recv()
        except (BrokenPipeError, EOFError):
            raise RuntimeError(f"ended with exit code {self.process.exitcode}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        found: Answer = answer
        return found

    def end(self) -> None:
        try:
            self.pipe.send(None)
            self.process.join(10)
        except OSError:
            pass
        if self.process.is_alive():
            self.process.terminate()


def _serve(pipe: Connection, contender: Contender) -> None:
    runner: Runner | None = None
    while (seconds := pipe.recv()) is not None:
        try:
            runner = runner or contender.make(**contender.arguments)
            began, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
            items, took = runner.window(seconds)
            wall = time.perf_counter() - began
            own = time.process_time() - own
            others = max(0.0, (busy_seconds() - busy - own) / wall)
            pipe.send((Window(items / took, items / max(own, 1e-9), others), runner.note, getattr(runner, "facts", {}), time.process_time()))
        except ModuleNotFoundError as problem:
            pipe.send(f"{problem.name} isn't installed")
            return
        except Exception as problem:  # one contender's failure is a line of the table, not the end of the others
            pipe.send(f"{type(problem).__name__}: {str(problem).splitlines()[0][:160] if str(problem) else ''}")
            return


def busy_seconds() -> float:
    """Return the core-seconds that all programs of this machine have used; 0 where the system doesn't say."""
    try:
        with open("/proc/stat", encoding="ascii") as f:
            words = [int(x) for x in f.readline().split()[1:9]]
    except OSError:
        return 0.0
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------------ output


def options(doc: str | None, **more: Any) -> argparse.ArgumentParser:
    """Return a parser with what all parts take."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true", help="few short windows")
    p.add_argument("--seconds", type=float, help="length of a window")
    p.add_argument("--rounds", type=int, help="windows of each contender")
    p.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md and docs/benchmarks.json")
    p.add_argument("--compile", action="store_true", help="torch.compile wherever it takes long to compile, too (half a minute for each)")
    p.add_argument("--only", default="", help="contenders whose names contain one of these words, separated by commas")
    p.set_defaults(**more)
    return p


def lengths(a: argparse.Namespace, seconds: float = 0.6, rounds: int = 5) -> dict[str, Any]:
    """Return `seconds` and `rounds` as asked for, else these; less for a quick look."""
    return {"seconds": a.seconds or (min(0.4, seconds) if a.quick else seconds), "rounds": a.rounds or (2 if a.quick else rounds)}


def wanted(contenders: Sequence[Contender], only: str) -> list[Contender]:
    """Return those that `--only` names; all if it names none."""
    words = [w.strip() for w in only.split(",") if w.strip()]
    return [c for c in contenders if not words or any(w in c.name for w in words)]


def number(x: float) -> str:
    """Return `x` with three or more significant digits, thousands apart."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def span(low: float, high: float) -> str:
    return f"{number(low)}–{number(high)}"


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


__all__ = ["Comparison", "Contender", "Figures", "Runner", "Window", "busy_seconds", "compare", "lengths", "number", "options", "span", "wanted"]
