"""Ctrl-C and SIGTERM while a run is under way: once asks for a drain, twice stops at once.

Only the main thread can have signal handlers; elsewhere `requested` stays false and Python's own rules hold. Handlers are put back at the end.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class StopNow(KeyboardInterrupt):
    """A KeyboardInterrupt that knows its signal: a second one, or a first one where nothing is in flight.

    `exit_code` is 130 (SIGINT) or 143 (SIGTERM).
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class Interrupts:
    """A context in which signals are counted. `draining` is true while a pass can stop by itself: then a first signal only sets a flag."""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = 130
        self.draining = False
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.exit_code = 128 + number
        if self.count > 1 or not self.draining:
            raise StopNow(self.exit_code)

    def requested(self) -> bool:
        """Return whether a stop was asked for."""
        return self.count > 0
