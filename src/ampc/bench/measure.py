"""The measurements of `ampc bench`: all settings take turns in short windows, so that whatever slows the machine down slows all of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ampc.bench.peak import SIDE, Peak
from ampc.bench.subject import Subject, Window, Work, quantile
from ampc.data.dataset import Dataset
from ampc.place import Cost
from ampc.runtime import native
from ampc.runtime.events import InFlight
from ampc.runtime.options import RunOptions
from ampc.runtime.profile import Profile
from ampc.runtime.program import Program

CALLED = 256
"""Instances that latency is measured on."""
Say = Callable[[str], None]
OptionsOf = Callable[[int | None, int | None], RunOptions]
"""Settings of a run with so many workers and instances in flight; None: as the program and the command line have them."""


@dataclasses.dataclass(frozen=True)
class Share:
    """Parts of the workers' time in a recorded pass: within firings; between two of them, waiting for another worker's messages or not (the
    engine's own work); before the first and after the last, where a worker without firings is all the time.
    """

    firings: float
    engine: float
    waiting: float
    idle: float


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of one setting. gemm_share: FLOP/s of the matrix products, over the measured peak of as many cores as there are workers.

    in_flight: what instances in flight took.
    """

    workers: int
    max_active_keys: int
    windows: tuple[Window, ...]
    share: Share
    gemm_share: float
    in_flight: InFlight

    @property
    def rates(self) -> list[float]:
        return [w.rate for w in self.windows]

    @property
    def rate(self) -> float:
        """Median instances a second."""
        return statistics.median(self.rates)

    @property
    def thrift(self) -> float:
        """Median instances a second of processor time."""
        return statistics.median(w.thrift for w in self.windows)


@dataclasses.dataclass(frozen=True)
class Latency:
    """Seconds of one instance with nothing else in flight: calls of one instance each, and a stream in which each waits for the one before."""

    call_s: tuple[float, ...]
    stream_s: tuple[float, ...]

    def of_call(self, q: float) -> float:
        """The `q`-quantile of the calls."""
        return quantile(self.call_s, q)

    @property
    def in_stream(self) -> float:
        """Median over windows of the mean time of an instance."""
        return statistics.median(self.stream_s)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Everything that was measured. FLOPs are the cost model's, of an instance in this kind of work; `peak_flops_per_s` is that of one core."""

    model: str
    work: Work
    instances: int
    provider: str
    compiled: bool
    peak_flops_per_s: float
    matrix_flops: float
    other_flops: float
    predicted_instance_bytes: float
    figures: tuple[Figures, ...]
    latency: Latency | None
    compile_s: float
    peak_bytes: int

    @property
    def others(self) -> float:
        """Median cores that other programs used while this one measured."""
        return statistics.median(w.others for f in self.figures for w in f.windows)


def measure(
    program: Program, data: Dataset, options_of: OptionsOf, workers: Sequence[int | None], in_flight: Sequence[int | None], *,
    work: Work = "training", latency: bool = False, seconds: float = 1.0, rounds: int = 5, say: Say = lambda what: None,
) -> Bench:  # fmt: skip
    """Measure each of `workers` with each of `in_flight` in `rounds` windows of about `seconds`, in turn.

    Raises AmpError 7xx for settings that can't be, 73x where memory does not suffice for all settings at once.
    """
    subjects: list[Subject] = []
    for w in workers:
        for k in in_flight:
            say(f"compile and warm up: {_said(w, k)}")
            subject = Subject(program, data, options_of(w, k), work)
            subject.warm_up()
            subjects.append(subject)
    peak, peaks = Peak(), []
    windows: list[list[Window]] = [[] for _ in subjects]
    for r in range(rounds):
        say(f"round {r + 1} of {rounds}")
        peaks.append(peak.window(min(0.2, seconds / 2)))
        for subject, found in zip(subjects, windows, strict=True):
            found.append(subject.window(seconds))
    say("where the time goes")
    shares = [share(s.profile(min(seconds, 0.5))) for s in subjects]
    top = statistics.median(peaks)
    cost = subjects[0].cost()
    matrix, others = flops(cost, work)
    figures = []
    for s, found, of in zip(subjects, windows, shares, strict=True):
        assert s.in_flight is not None
        gemm = statistics.median(w.rate for w in found) * matrix / (top * s.options.workers)
        figures.append(Figures(s.options.workers, s.options.max_active_keys, tuple(found), of, gemm, s.in_flight))
    calls = None
    if latency:
        say("latency")
        calls = _latency(program, data, options_of, work, seconds, rounds)
    return Bench(
        model=program.name, work=work, instances=data.n, provider=native.PROVIDER, compiled=native.JIT, peak_flops_per_s=top, matrix_flops=matrix,
        other_flops=others, predicted_instance_bytes=subjects[0].predicted_bytes(), figures=tuple(figures), latency=calls,
        compile_s=sum(s.engine.compile_seconds for s in subjects), peak_bytes=peak_bytes(),
    )  # fmt: skip


def _said(workers: int | None, in_flight: int | None) -> str:
    said = [f"{workers} workers" * (workers is not None), f"{in_flight} in flight" * (in_flight is not None)]
    return ", ".join(s for s in said if s) or "the program's own settings"


def share(found: Profile) -> Share:
    """Return how the workers of a recorded pass spent their time, without that of its log; the parts add up to one."""
    times = [(d.busy_s, d.overhead_s, d.waiting_s, d.idle_s) for d in found.devices]
    whole = sum(map(sum, times)) or 1.0
    return Share(*(sum(column) / whole for column in zip(*times, strict=True)))


def flops(cost: Cost, work: Work) -> tuple[float, float]:
    """Return the floating-point operations of an instance: of matrix products, and of all else."""
    nodes = cost.nodes.values()
    if work == "inference":
        return sum(n.fwd_matrix_flops for n in nodes), sum(n.fwd_vector_flops for n in nodes)
    updates = sum(x.update_flops for x in cost.layers.values())
    return sum(n.matrix_flops for n in nodes), sum(n.vector_flops for n in nodes) + updates


def _latency(program: Program, data: Dataset, options_of: OptionsOf, work: Work, seconds: float, rounds: int) -> Latency:
    few = data.select(np.arange(min(CALLED, data.n)))
    options = dataclasses.replace(options_of(1, 1), group=1, group_by_length=False)
    subject = Subject(program, few, options, work)
    subject.warm_up()
    call_s: list[float] = []
    stream_s = []
    for _ in range(rounds):
        call_s += subject.calls(seconds / 2)
        stream_s.append(1.0 / max(1e-12, subject.window(seconds / 2).rate))
    return Latency(tuple(call_s), tuple(stream_s))


def peak_bytes() -> int:
    """Return the most memory that this process has had so far, 0 where the system doesn't say."""
    try:
        import resource
    except ImportError:  # not a Unix
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024


def as_json(b: Bench) -> dict[str, Any]:
    """Return everything that was measured, as JSON data."""
    found = {
        "form": 1, "model": b.model, "work": b.work, "instances": b.instances, "blas": b.provider, "compiled": b.compiled,
        "peak": {"flops_per_s": b.peak_flops_per_s, "side": SIDE}, "matrix_flops": b.matrix_flops, "other_flops": b.other_flops,
        "predicted_instance_bytes": b.predicted_instance_bytes, "compile_s": b.compile_s, "peak_bytes": b.peak_bytes, "others_cores": b.others,
        "settings": [
            {
                "workers": f.workers, "max_active_keys": f.max_active_keys, "instances_per_s": f.rate, "rates": f.rates,
                "instances_per_processor_s": f.thrift, "gemm_share": f.gemm_share, "time": dataclasses.asdict(f.share),
                "in_flight": dataclasses.asdict(f.in_flight),
            }
            for f in b.figures
        ],
    }  # fmt: skip
    if b.latency is not None:
        quantiles = {f"call_p{round(100 * q)}_s": b.latency.of_call(q) for q in (0.5, 0.9, 0.99)}
        found["latency"] = {**quantiles, "calls": len(b.latency.call_s), "stream_s": b.latency.in_stream}
    return found


__all__ = ["Bench", "Figures", "Latency", "Share", "as_json", "flops", "measure", "peak_bytes", "share"]
