"""ampc as a contender: a bundled model on a data set, trained by the engine in passes of about a window's length.

The clock runs around whole passes: it includes their start, their drain and the flush of part-filled accumulators.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "runs" / "bench" / "data"
SOURCES = {"mnist": "mnist", "sst": "sst", "qm9": "qm9", "babi15": "babi15"}
"""Recipe -> the folder with its original files, in $AMPC_DATA or `data/` of the repository."""


class NoData(Exception):
    """The original files of a data set aren't here."""


def data_folder(recipe: str, **settings: Any) -> Path:
    """Return the folder with the product of `recipe`, made if it isn't there. Raises NoData."""
    from ampc.data.recipes import RECIPES

    name = "-".join([recipe, *(f"{k}={v}" for k, v in sorted(settings.items()))])
    out = CACHE / name
    if not out.is_dir():
        source = None
        if recipe in SOURCES:
            source = next((p for p in (Path(r, SOURCES[recipe]) for r in (os.environ.get("AMPC_DATA", ""), ROOT / "data") if r) if p.is_dir()), None)
            if source is None:
                raise NoData(f"no original files of {recipe}: set AMPC_DATA to the folder that holds `{SOURCES[recipe]}/`")
        RECIPES[recipe].make(out, source, settings)
    return out


def graph_of(model: str, **overrides: Any) -> Any:
    """Return the compiled graph of a bundled model, or of program text."""
    import ampc

    return ampc.compile(model if "\n" in model else ROOT / "models" / f"{model}.amp", **overrides)


class Ours:
    """A model and a data folder in an engine; `settings` over the model's `train:` block."""

    def __init__(self, model: str, data: str, overrides: dict[str, Any] | None = None, instances: int = 0, **settings: Any) -> None:
        from ampc.runtime import native

        self.program = graph_of(model, **(overrides or {}))
        self.data = self.program.read(data)
        self.session = self.program.session(self.program.options({"until": "", **settings}))
        self.engine: Any = self.session.engine
        self.engine.bind(self.data)
        self.n = min(instances or self.data.n, self.data.n)
        self.rng = np.random.default_rng(0)
        self.provider = native.PROVIDER
        self.rate = 0.0
        self.epoch = 0
        self.last: Any = None
        self.note = ""
        probe = max(1, self.n // 50)
        for _ in range(2):
            self._pass(probe)

    def _pass(self, size: int) -> float:
        order = self.rng.permutation(self.n)[:size]
        began = time.perf_counter()
        self.last = self.engine.run(self.data, order, train=True, epoch=self.epoch)
        took = time.perf_counter() - began
        self.epoch += 1
        self.rate = len(order) / took
        self.note = f"{self.provider}, loss {self.last.loss:.3f}"
        return took

    def window(self, seconds: float) -> tuple[int, float]:
        items, took = 0, 0.0
        while took < 0.7 * seconds:
            size = min(self.n, max(1, int(self.rate * (seconds - took))))
            took += self._pass(size)
            items += size
        return items, took


__all__ = ["CACHE", "ROOT", "NoData", "Ours", "data_folder", "graph_of"]
