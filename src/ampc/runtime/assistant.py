"""A second thread for a predictor: it makes half of the columns of large products, see `products`.

It is started when a call finds none awake, and leaves by itself some 10 ms after the last offer: nothing runs while nobody asks.
"""

from __future__ import annotations

import threading
from typing import Any

from ampc.codegen.layout import B
from ampc.runtime import native
from ampc.runtime.events import Array


class Assistant:
    """Helps whoever makes products in the memory `floats` and `table`; `box` is the place of its words (`layout.B`) in `table`."""

    def __init__(self, floats: Array, table: Any, box: int) -> None:
        self._memory = floats, table  # kept for as long as the thread may look at it
        self._words = table[box : box + B.END].data
        self._assist, self._box = native.enter("assist"), box

    def wake(self) -> None:
        """See to it that the thread looks for offers, soon."""
        if not self._words[B.AWAKE]:
            self._words[B.AWAKE] = 1
            # No daemon: an interpreter that ends waits for it, so that its memory stays until it has left.
            threading.Thread(target=self._run, name="ampc assistant").start()

    def _run(self) -> None:
        floats, table = self._memory
        self._assist(native.place(floats), native.place(table), self._box)

    def leave(self) -> None:
        """Let the thread return, for good."""
        self._words[B.LEAVE] = 1


__all__ = ["Assistant"]
