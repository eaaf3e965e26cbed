"""Which training pass of a run is written down, and what becomes of it: the files `trace/` and `report/profile.json` of the run folder."""

from __future__ import annotations

from pathlib import Path

from ampc.data.dataset import Dataset
from ampc.place import measure
from ampc.runtime import profile
from ampc.runtime.contract import EngineLike
from ampc.runtime.options import RunOptions
from ampc.runtime.trace import Trace, join

FOLDER = "trace"


class Observer:
    """Keeps the trace of the last training pass, or of that of epoch `trace_epoch`; of nothing unless `trace` or `profile` is set."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self._epoch = -1
        self._parts: list[tuple[float, Trace]] = []
        self.profile: profile.Profile | None = None

    def wants(self, epoch: int) -> bool:
        """Whether the pass of `epoch` (from 0) is to be recorded."""
        o = self.options
        return (o.trace or o.profile) and o.trace_epoch in (0, epoch + 1)

    def add(self, epoch: int, offset_s: float, trace: Trace | None) -> None:
        """Take what a part of an epoch recorded, which began `offset_s` after the epoch's first part."""
        if epoch != self._epoch:
            self._epoch, self._parts = epoch, []
        if trace is not None:
            self._parts.append((offset_s, trace))

    @property
    def trace(self) -> Trace | None:
        """The pass that was recorded, as one trace."""
        if not self._parts:
            return None
        begin = self._parts[0][0]
        return join([(offset - begin, t) for offset, t in self._parts]) if len(self._parts) > 1 else self._parts[0][1]

    def finish(self, engine: EngineLike, training: Dataset, folder: Path | None) -> str:
        """Write what was asked for into the run folder, if there is one. Return what should be said about it, "" for nothing."""
        o, trace = self.options, self.trace
        if not (o.trace or o.profile):
            return ""
        if trace is None:
            return f"there is no trace: epoch {o.trace_epoch} was not trained" if o.trace_epoch else "there is no trace: nothing was trained"
        if o.profile:
            self.profile = profile.profile(trace, engine.plan, measure(engine.plan.graph, training))
            if folder is not None:
                profile.write(folder, self.profile)
        if o.trace and folder is not None:
            trace.save(folder / FOLDER)
        return f"the log of the pass was full: it lacks {trace.dropped:,} events at the end" if trace.dropped else ""
