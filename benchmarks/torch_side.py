"""PyTorch as a contender: steps of a training loop, or calls without gradients, until the window is over. Batches are made before the clock starts.

Models and losses are of the parts; this module knows only how to count and how to step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


class Steps:
    """Calls `step(batch)` (which returns its loss) over `batches` in turn; `update()` after every `every` batches."""

    def __init__(self, batches: Sequence[Any], sizes: Sequence[int], step: Callable[[Any], Any], update: Callable[[], None], every: int = 1) -> None:
        self.batches, self.sizes, self.step, self.update, self.every = batches, sizes, step, update, every
        self.k = 0
        self.note = ""
        self.window(0.3)

    def window(self, seconds: float) -> tuple[int, float]:
        items, losses = 0, []
        began = time.perf_counter()
        while True:
            i = self.k % len(self.batches)
            losses.append(self.step(self.batches[i]))
            items += self.sizes[i]
            self.k += 1
            if self.k % self.every == 0:
                self.update()
            took = time.perf_counter() - began
            if took >= seconds:
                break
        self.note = f"loss {sum(float(x) for x in losses[-100:]) / len(losses[-100:]):.3f}"
        return items, took


class Calls:
    """Calls `forward(batch)` over `batches` in turn, without gradients."""

    def __init__(self, torch: Any, batches: Sequence[Any], sizes: Sequence[int], forward: Callable[[Any], Any]) -> None:
        self.batches, self.sizes, self.forward, self.torch = batches, sizes, forward, torch
        self.k = 0
        self.note = ""
        self.window(0.3)

    def window(self, seconds: float) -> tuple[int, float]:
        items = 0
        with self.torch.inference_mode():
            began = time.perf_counter()
            while True:
                i = self.k % len(self.batches)
                self.forward(self.batches[i])
                items += self.sizes[i]
                self.k += 1
                took = time.perf_counter() - began
                if took >= seconds:
                    return items, took


def updater(*optimizers: Any) -> Callable[[], None]:
    """Return a call that steps all optimizers and forgets the gradients."""

    def update() -> None:
        for o in optimizers:
            o.step()
            o.zero_grad(set_to_none=True)

    return update


def prepare(threads: int, seed: int = 0) -> Any:
    """Import PyTorch with so many threads; return the module."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    return torch


def words(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


__all__ = ["Calls", "Steps", "prepare", "updater", "words"]
