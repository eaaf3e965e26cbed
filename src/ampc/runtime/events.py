"""What an engine reports: progress while it runs, the result of a pass over the data, the record of an epoch.

Plain data with units in the names; whoever shows or stores it decides how. No event is ever printed from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass is. `loss_sum` is over the `done` instances, `seconds` since the pass began.

    `staleness` is the mean over the updates so far (None: not known).
    """

    done: int
    total: int
    loss_sum: float
    in_flight: int
    seconds: float
    staleness: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class InFlight:
    """Values and counters of instances in flight, in bytes: of one (a mean over those that were admitted), of the largest; `number` is how many were
    in flight at most, `peak_bytes` what those that were in flight at once took at most, `pool_bytes` the stretch of memory in which they lay."""

    instance_bytes: float
    largest_bytes: int
    number: int
    peak_bytes: int
    pool_bytes: int


def merge_flights(parts: list[tuple[int, InFlight]]) -> InFlight | None:
    """Return the figures of several passes, each over so many instances, as those of one."""
    if not parts:
        return None
    n = sum(count for count, _ in parts)
    mean = sum(count * f.instance_bytes for count, f in parts) / n if n else parts[-1][1].instance_bytes
    most = [max(getattr(f, name) for _, f in parts) for name in ("largest_bytes", "number", "peak_bytes", "pool_bytes")]
    return InFlight(mean, *most)


@dataclasses.dataclass(frozen=True, slots=True)
class EpochResult:
    """One pass over (a part of) a data set.

    loss: mean over the instances that finished. metrics: name -> mean, None where it is undefined.
    updates: layer -> number of updates. staleness: layer -> histogram, index = updates between forward and backward, the last entry
    counts all that are larger. outputs: name -> one float32 [rows, columns] array per instance, in the order given.
    interrupted: `stop` was obeyed (after a drain). instances_done: the instances that finished, in any order (None: all).
    skipped: instances left out because a value was not finite. in_flight: what instances in flight took (None: not known).
    """

    instances: int
    seconds: float
    loss: float
    metrics: dict[str, float | None] = dataclasses.field(default_factory=dict)
    updates: dict[str, int] = dataclasses.field(default_factory=dict)
    staleness: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    outputs: dict[str, Sequence[Array]] = dataclasses.field(default_factory=dict)
    interrupted: bool = False
    instances_done: Array | None = None
    skipped: int = 0
    in_flight: InFlight | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """A pass begins: `name` is "train", "validate" or "predict"."""

    name: str
    epoch: int
    epochs: int
    total: int


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch:
    """The record of one epoch: a line of `metrics.jsonl` and of the plain progress.

    loss and metrics are of the training pass; validation holds "loss" and the metrics of the pass after it (empty without validation data).
    `undefined` says why a value is None. `learning_rate` is the one the epoch began with. Times in seconds, counted without compilation.
    """

    epoch: int
    loss: float | None
    metrics: dict[str, float | None]
    validation: dict[str, float | None]
    undefined: dict[str, str]
    learning_rate: float
    instances: int
    skipped: int
    train_s: float
    validation_s: float
    elapsed_s: float
    instances_per_s: float
    updates: dict[str, int]
    staleness: dict[str, float | None]
    best: bool = False
    interrupted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """A validation within an epoch (counted from 1), after so many of its instances; `elapsed_s` as in `Epoch`."""

    epoch: int
    instances: int
    validation: dict[str, float | None]
    elapsed_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something that the user should know and that stops nothing: a corrupted checkpoint passed over, rows left out."""

    text: str


Event = Progress | Phase | Epoch | Check | Note
Listener = Callable[[Event], None]


def ignore(_: Event) -> None:
    """The listener that does nothing."""


def mean_staleness(histogram: list[int]) -> float | None:
    """Return the mean of a staleness histogram (the overflow bin counts as its index); None if it is empty."""
    total = sum(histogram)
    return sum(i * n for i, n in enumerate(histogram)) / total if total else None


def merge_results(parts: list[EpochResult]) -> EpochResult:
    """Return the passes over the parts of one epoch as one result; losses and metrics are weighted by instances.

    Exact for the loss. A metric that counts rows is exact where every instance evaluates it equally often.
    """
    if len(parts) == 1:
        return parts[0]
    n = sum(p.instances for p in parts)
    updates: dict[str, int] = {}
    staleness: dict[str, list[int]] = {}
    for part in parts:
        for layer, count in part.updates.items():
            updates[layer] = updates.get(layer, 0) + count
        for layer, histogram in part.staleness.items():
            old = staleness.get(layer, [])
            size = max(len(old), len(histogram))
            staleness[layer] = [(old[i] if i < len(old) else 0) + (histogram[i] if i < len(histogram) else 0) for i in range(size)]
    done = [p.instances_done for p in parts if p.instances_done is not None]
    return EpochResult(
        instances=n,
        seconds=sum(p.seconds for p in parts),
        loss=sum(p.loss * p.instances for p in parts if p.instances) / n if n else 0.0,
        metrics={name: _weighted(parts, name) for name in dict.fromkeys(name for p in parts for name in p.metrics)},
        updates=updates,
        staleness=staleness,
        interrupted=parts[-1].interrupted if parts else False,
        instances_done=np.concatenate(done) if done else None,
        skipped=sum(p.skipped for p in parts),
        in_flight=merge_flights([(p.instances, p.in_flight) for p in parts if p.in_flight is not None]),
    )


def join_results(parts: list[EpochResult], order: npt.NDArray[np.int64], every: int) -> EpochResult:
    """Return the passes over the first parts of `order`, each of `every` instances, as one pass over it: outputs and what is done too."""
    merged = merge_results(parts)
    n, last = len(order), parts[-1]
    outputs: dict[str, Sequence[Array]] = {}
    for name in last.outputs:
        values = [v for p in parts for v in p.outputs[name]]
        outputs[name] = values + [values[0][:0]] * (n - len(values))
    before = order[: (len(parts) - 1) * every]
    final = order[len(before) : len(before) + every] if last.instances_done is None else last.instances_done
    done = np.concatenate([before, final])
    return dataclasses.replace(merged, outputs=outputs, interrupted=len(done) < n, instances_done=done if len(done) < n else None)


def shifted(receive: Callable[[Progress], None], before: list[EpochResult], total: int) -> Callable[[Progress], None]:
    """Return a receiver that turns the progress of a part into that of the whole, of which `before` is done."""
    done, seconds = sum(p.instances for p in before), sum(p.seconds for p in before)
    loss = sum(p.loss * p.instances for p in before)
    return lambda p: receive(dataclasses.replace(p, done=p.done + done, total=total, loss_sum=p.loss_sum + loss, seconds=p.seconds + seconds))


def _weighted(parts: list[EpochResult], name: str) -> float | None:
    known = [(p.metrics[name], p.instances) for p in parts if p.metrics.get(name) is not None]
    weight = sum(n for _, n in known)
    return sum(float(value) * n for value, n in known if value is not None) / weight if weight else None
