"""Events of a session shown to a person: a bar on a terminal, else one plain line an epoch. All of it goes to standard error.

A pass that takes long gets a plain line now and then too, a few at most. Nothing here changes what a run does.
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, TextIO

from ampc.diagnostics import printable
from ampc.runtime.events import Check, Epoch, Event, Note, Phase, Progress

QUIET_S = 30.0
"""Seconds without a line after which a plain display says where a pass is."""


def is_terminal(stream: TextIO) -> bool:
    """Return whether `stream` can show a bar: a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown", "")


class Display:
    """A listener for a session, and a context that puts the terminal back. `quiet` shows notes only."""

    def __init__(self, *, quiet: bool = False, color: bool = True, stream: TextIO | None = None) -> None:
        self.color = color and not os.environ.get("NO_COLOR")
        self.stream = stream if stream is not None else sys.stderr
        self.quiet = quiet
        self.phase = Phase("train", 0, 0, 0)
        self.spoke = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Display:
        if not self.quiet and is_terminal(self.stream):
            self._start_bar()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, event: Event) -> None:
        match event:
            case Note(text):
                self._line(f"note: {printable(text)}")
            case Phase():
                self.phase = event
                if self._bar is not None:
                    self._bar.reset(self._task, total=event.total, description=phase_text(event), visible=True, rest="")
            case Progress():
                self._progress(event)
            case Epoch():
                if not self.quiet:
                    self._line(epoch_line(event, self.phase.epochs))
            case Check():
                if not self.quiet:
                    found = "".join(f"  {name} {number(v):<6}" for name, v in event.validation.items())
                    self._line(f"epoch {event.epoch}, after {event.instances:,}  | valid{found}")

    def _progress(self, p: Progress) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=p.done, total=p.total, rest=progress_text(p))
        elif not self.quiet and time.monotonic() - self.spoke > QUIET_S:
            self._line(f"{phase_text(self.phase)}: {p.done:,} of {p.total:,}, {progress_text(p)}")

    def _line(self, text: str) -> None:
        self.spoke = time.monotonic()
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            print(text, file=self.stream, flush=True)
        except (BrokenPipeError, ValueError):  # whoever read it has gone: the run goes on
            self.quiet = True

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(file=self.stream, stderr=True, no_color=not self.color)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.fields[rest]}"))
        self._bar = Bar(*columns, console=console, transient=True, refresh_per_second=4)
        self._task = self._bar.add_task("preparing", total=None, rest="")
        self._bar.start()


def phase_text(p: Phase) -> str:
    """Return "epoch 3/10 train"."""
    return f"epoch {p.epoch + 1}/{p.epochs} {p.name}" if p.epochs else p.name


def progress_text(p: Progress) -> str:
    """Return rate, mean loss so far, instances in flight and mean staleness."""
    parts = [f"{p.done / p.seconds:,.0f}/s" if p.seconds > 0 else "", f"loss {p.loss_sum / p.done:.4g}" if p.done else "", f"{p.in_flight} in flight"]
    if p.staleness is not None:
        parts.append(f"staleness {p.staleness:.2g}")
    return "  ".join(part for part in parts if part)


def epoch_line(e: Epoch, epochs: int) -> str:
    """Return an epoch's record as one line; a value is as wide as its widest, so that lines stand in columns."""
    values = [("loss", e.loss), *e.metrics.items()]
    text = f"epoch {e.epoch:>{len(str(epochs))}}/{epochs}" + "".join(f"  {name} {number(v):<6}" for name, v in values)
    if e.validation:
        text += "  | valid" + "".join(f"  {name} {number(v):<6}" for name, v in e.validation.items())
    staleness = [s for s in e.staleness.values() if s is not None]
    text += f"  | {e.instances_per_s:>9,.0f} instances/s  {e.train_s + e.validation_s:5.1f} s"
    if staleness and max(staleness) > 0:
        text += f"  staleness {max(staleness):.2g}"
    return text + ("  best" if e.best else "")


def number(value: float | None) -> str:
    """Return a value with four digits, or "undefined"."""
    return "undefined" if value is None else f"{value:.4g}"
