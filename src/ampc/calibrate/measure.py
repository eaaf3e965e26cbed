"""The measurements: rounds in which every figure is taken once, so that a disturbance hits all of them alike and shows as spread.

Rates are those of one core while all that the target is to have are at work, since that is how they will run.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ampc.calibrate import crossing, fit, handling, loops
from ampc.calibrate.crossing import NO_LIMIT
from ampc.calibrate.fit import Figure
from ampc.calibrate.threads import together
from ampc.place.target import Device, Precision
from ampc.place.work import flops_per_number
from ampc.runtime import blas, native

ROUNDS, FEWEST = 7, 3
SHAPES = ((16, 16), (64, 10), (64, 64), (128, 128), (256, 128), (400, 200), (512, 512), (784, 784), (512, 1280))
"""Inputs and outputs of the layers whose products are timed."""
ROWS = (1, 4, 16, 64, 256)
HALF_SHAPES = ((256, 256, 64), (400, 200, 64), (512, 1280, 50), (784, 784, 64))
"""Inputs, outputs and rows of products that the engine makes of bf16 factors."""
GATE = 4096
"""Numbers of the element-wise loop: they stay in the first cache, as a firing's rows do."""
WORKING_SETS = {"memory_bytes_per_s": 256 << 10, "memory_middle": 4 << 20, "memory_large": 128 << 20}
"""Figure -> bytes that are read and written again and again: a firing's rows, the values of the instances in flight, what no cache holds."""

CACHE_BYTES = 1 << 20
"""A core's own cache where the system doesn't tell how large it is."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Point:
    """The seconds of the three products of a layer over `rows` rows."""

    inputs: int
    outputs: int
    rows: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was measured. `fit_error`: median relative error of the products' seconds as their figures predict them; `pass_error`: of those of the
    engine's passes. cache_bytes: of a core.

    `slowdown`: how much longer the same product takes while all `cores` are at work than alone. With one core there are no figures of links.
    """

    cores: int
    provider: str
    seconds: float
    figures: tuple[Figure, ...]
    points: tuple[Point, ...]
    fit_error: float
    slowdown: float
    pass_error: float = 0.0
    cache_bytes: int = CACHE_BYTES

    def __getitem__(self, name: str) -> float:
        return next(f.median for f in self.figures if f.name == name)

    def __contains__(self, name: object) -> bool:
        return any(f.name == name for f in self.figures)


def measure(seconds: float, cores: int, say: Say = lambda what: None, between: Callable[[], None] = lambda: None) -> Calibration:
    """Measure for about `seconds`, on `cores` threads; the first time, compilation comes on top. `say` is told what is being done.

    `between` is called after each round, and takes its own time.
    """
    blas.one_thread_per_call()
    slot = seconds / ROUNDS
    say("compiling")
    products = _Products(cores, 0.15 * slot)
    single = [_Loop(cores, slot * share, *work) for share, work in zip((0.05, 0.04, 0.04, 0.08), _single_loops())]
    halves = _Halves(cores, 0.06 * slot) if blas.half_lacks() is None else None
    handled = handling.Handling(0.4 * slot)
    apart = crossing.Crossing(0.3 * slot) if cores > 1 else None
    spent = 0.0
    samples: dict[str, list[float]] = {}
    passes: list[list[handling.Spent]] = []
    crossed: list[crossing.Sample] = []
    for r in range(ROUNDS):
        if r >= FEWEST and spent > seconds:
            break  # the machine is busy with something else: rounds take longer than they compute
        say(f"round {r + 1} of {ROUNDS}")
        began = time.perf_counter()
        products.sample()
        found = {name: amount / loop.sample() for loop, (name, amount) in zip(single, _single_amounts())}
        if halves is not None:
            found["half_speed"] = halves.sample()
        passes.append(handled.sample())
        if apart is not None:
            crossed.append(apart.sample())
            found["handover_s"] = _handover(0.02 * slot)
        for name, value in found.items():
            samples.setdefault(name, []).append(value)
        spent += time.perf_counter() - began
        between()
    left_out: dict[str, list[float]] = {}
    for r in range(len(passes)):  # least squares magnify noise: of all rounds but one, in turn
        for name, value in _handled(passes[:r] + passes[r + 1 :], crossed[:r] + crossed[r + 1 :], products.fitted(r)).items():
            left_out.setdefault(name, []).append(value)
    samples |= left_out
    device = _by_itself(products.fitted())
    quick = handling.quick(passes)
    errors = handling.residuals(quick, device, handling.figures(quick, device))
    figures = tuple(Figure(name, *_WORDS[name], tuple(values)) for name, values in samples.items())
    points = products.points()
    return Calibration(
        cores=cores, provider=native.PROVIDER, seconds=spent, figures=figures, points=points,
        fit_error=products.fitted().error, slowdown=products.slowdown(), pass_error=float(np.median(np.abs(errors))),
        cache_bytes=cache_bytes(),
    )  # fmt: skip


def cache_bytes() -> int:
    """Return the bytes of a core's own cache, the second one."""
    try:
        told = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text("ascii").strip()
        return int(told.removesuffix("K")) << 10
    except (OSError, ValueError):
        return CACHE_BYTES


def _by_itself(found: fit.Products) -> Device:
    """Return a device on which products take what they take by themselves, without the calls for them."""
    rates: dict[Precision, float] = {"fp32": found.flops_per_s}
    return Device(
        "core", "cpu", rates, 1.0, 1 << 30, 0.0, matrix_half_rows=found.half_rows, matrix_half_columns=found.half_columns,
        cache_bytes=cache_bytes(), far_bytes_per_s=found.far_bytes_per_s,
    )  # fmt: skip


def _handled(rounds: list[list[handling.Spent]], crossed: list[crossing.Sample], found: fit.Products) -> dict[str, float]:
    """Return what the engine's passes in some rounds tell, on one core and on two, given what loops have told of products."""
    device = _by_itself(found)
    told = handling.figures(handling.quick(rounds), device)
    between = crossing.figures(crossed, device, told) if crossed else {}
    byte, flop, times = (told.pop(name) for name in ("copy_s_per_byte", "vector_s_per_flop", "product_times"))
    times = times if times > LEAST_TIMES else 1.0  # nothing but noise: a product takes no less within the engine
    told["copy_bytes_per_s"] = min(1 / byte, NO_LIMIT) if byte > 0 else NO_LIMIT
    told["vector_flops_per_s"] = min(1 / flop, NO_LIMIT) if flop > 0 else NO_LIMIT
    told |= {"product_flops_per_s": found.flops_per_s, "matrix_flops_per_s": found.flops_per_s / times}
    told |= {"matrix_half_rows": found.half_rows, "matrix_half_columns": found.half_columns}
    return told | between | ({"far_bytes_per_s": found.far_bytes_per_s / times} if found.far_bytes_per_s else {})


LEAST_TIMES = 0.1
"""Products in the engine that are faster by more than this than by themselves are noise."""

_WORDS = {
    "product_flops_per_s": ("matrix products of many rows, by themselves", "FLOP/s"),
    "matrix_flops_per_s": ("matrix products of many rows, in the engine", "FLOP/s"),
    "matrix_half_rows": ("rows at half of that rate", "rows"),
    "half_speed": ("products of bf16 factors, against float32", "times"),
    "far_bytes_per_s": ("weights that no cache holds, in products", "B/s"),
    "matrix_half_columns": ("columns at half of that rate", "columns"),
    "instance_overhead_s": ("an instance", "s"),
    "value_overhead_s": ("a value that a firing looks for", "s"),
    "row_overhead_s": ("a row that is taken by itself", "s"),
    "number_overhead_s": ("a number of a softmax", "s"),
    "product_overhead_s": ("a call for a matrix product", "s"),
    "update_overhead_s": ("an update of a layer", "s"),
    "copy_bytes_per_s": ("bytes to and from the memory of the instances", "B/s"),
    "gate_flops_per_s": ("element-wise operations by themselves", "FLOP/s"),
    "vector_flops_per_s": ("element-wise operations, in the engine", "FLOP/s"),
    "memory_bytes_per_s": ("memory, 256 kB again and again", "B/s"),
    "memory_middle": ("memory, 4 MB again and again", "B/s"),
    "memory_large": ("memory, 128 MB again and again", "B/s"),
    "message_overhead_s": ("a message taken from a queue", "s"),
    "firing_overhead_s": ("a firing", "s"),
    "latency_s": ("latency of a message to another core", "s"),
    "link_overhead_s": ("busy time of each side, messages that go together", "s"),
    "link_message_s": ("busy time of each side, each of them", "s"),
    "handover_s": ("a word to another core", "s"),
    "link_bytes_per_s": ("bytes to another core", "B/s"),
}
"""Figure -> what it is and its unit."""


# ------------------------------------------------------------------------------------------------------- loops


class _Loop:
    """A loop that every core runs at once, on arrays of its own, repeated until it takes long enough to be timed."""

    def __init__(self, cores: int, seconds: float, call: Callable[[Any, int], None], make: Callable[[], Any]) -> None:
        self.call, self.seconds = call, seconds
        self.arrays = [make() for _ in range(cores)]
        self.repeats = 1
        call(self.arrays[0], 1)
        while (took := self._once(self.arrays[0])) < seconds / 4 and self.repeats < 1 << 40:
            self.repeats = max(2 * self.repeats, int(self.repeats * min(100.0, seconds / max(took, 1e-9) / 2)))

    def _once(self, arrays: Any) -> float:
        """Return the processor's seconds: what else the machine does while this thread waits for it does not count."""
        began = time.thread_time()
        self.call(arrays, self.repeats)
        return time.thread_time() - began

    def alone(self) -> float:
        """Return the seconds of one repetition on one core with the others at rest."""
        return self._once(self.arrays[0]) / self.repeats

    def sample(self) -> float:
        """Return the seconds of one repetition, a mean over the cores."""
        if len(self.arrays) == 1:
            return self.alone()
        took = [0.0] * len(self.arrays)
        start = threading.Barrier(len(self.arrays))

        def run(k: int) -> None:
            start.wait()
            took[k] = self._once(self.arrays[k])

        together([functools.partial(run, k) for k in range(len(self.arrays))])
        return float(np.mean(took)) / self.repeats


def _single_loops() -> list[tuple[Callable[[Any, int], None], Callable[[], Any]]]:
    rng = np.random.default_rng(0)

    def numbers(n: int) -> Callable[[], Any]:
        return lambda: np.concatenate([rng.uniform(-2, 2, n), np.zeros(n)]).astype(np.float32)

    found: list[tuple[Callable[[Any, int], None], Callable[[], Any]]] = [(lambda F, r: loops.elementwise(F, GATE, r), numbers(GATE))]
    return found + [(_streamed(size // 8), numbers(size // 8)) for size in WORKING_SETS.values()]


def _streamed(n: int) -> Callable[[Any, int], None]:
    return lambda F, repeats: loops.stream(F, n, repeats)


def _single_amounts() -> list[tuple[str, float]]:
    """Return the figure of each of `_single_loops`, and the operations or bytes of one repetition."""
    gate = flops_per_number("sigmoid") + flops_per_number("tanh") + flops_per_number("mul")
    return [("gate_flops_per_s", gate * GATE), *((name, float(size)) for name, size in WORKING_SETS.items())]


def quick(seconds: Sequence[float]) -> float:
    """Return the one at the lower quartile: what else a machine does makes times longer only."""
    return sorted(seconds)[(len(seconds) - 1) // 4]


class _Products:
    """The products of all shapes and rows."""

    def __init__(self, cores: int, seconds: float) -> None:
        self.keys = [(k, n, rows) for k, n in SHAPES for rows in ROWS]
        each = seconds / len(self.keys)
        self.loops = [_Loop(cores, each, _product(k, n, m), _operands(k, n, m)) for k, n, m in self.keys]
        self.seen: list[list[float]] = [[] for _ in self.keys]

    def sample(self) -> None:
        """Measure all of them once."""
        for loop, seen in zip(self.loops, self.seen):
            seen.append(loop.sample())

    def fitted(self, without: int | None = None) -> fit.Products:
        """Return the figures that give the times of all shapes, each the one at the lower quartile of the rounds; of all but one."""
        rounds = [[s for r, s in enumerate(seen) if r != without] for seen in self.seen]
        return fit.products([(m, k, n) for k, n, m in self.keys], [quick(seen) for seen in rounds], cache_bytes())

    def points(self) -> tuple[Point, ...]:
        return tuple(Point(k, n, m, quick(seen)) for (k, n, m), seen in zip(self.keys, self.seen))

    def slowdown(self) -> float:
        """Return how much longer a product of 64 rows takes with all cores at work than alone, as measured now."""
        loop = self.loops[self.keys.index((256, 128, 64))]
        pairs = [(loop.sample(), loop.alone()) for _ in range(ROUNDS)]
        return float(np.median([a / b for a, b in pairs])) if len(loop.arrays) > 1 else 1.0


class _Halves:
    """Products of bf16 factors beside the same of float32."""

    def __init__(self, cores: int, seconds: float) -> None:
        each = seconds / len(HALF_SHAPES) / 2
        self.pairs = [
            (_Loop(cores, each, _product(k, n, m), _operands(k, n, m)), _Loop(cores, each, _half_product(k, n, m), _operands(k, n, m, halves=True)))
            for k, n, m in HALF_SHAPES
        ]

    def sample(self) -> float:
        """Return how many times as fast bf16 is, the median of all shapes."""
        return float(np.median([single.sample() / half.sample() for single, half in self.pairs]))


def _half_product(k: int, n: int, rows: int) -> Callable[[Any, int], None]:
    return lambda arrays, repeats: loops.products_half()(*arrays, rows, k, n, repeats)


def _product(k: int, n: int, rows: int) -> Callable[[Any, int], None]:
    return lambda arrays, repeats: loops.products(*arrays, rows, k, n, repeats)


def _operands(k: int, n: int, rows: int, halves: bool = False) -> Callable[[], Any]:
    def make() -> Any:
        x, w = np.full(rows * k, 0.5, np.float32), np.full(k * n, 1e-3, np.float32)
        more = (rows * k + k * n + rows * n) // 2 + 1 if halves else 0
        return np.concatenate([x, w, np.zeros(rows * n + rows * k + k * n + more, np.float32)]), loops.scratch()

    return make


# ------------------------------------------------------------------------------------------------- between cores


def _handover(seconds: float) -> float:
    """Return the seconds in which a word is written on one core and read on another: the fastest of many windows."""
    F, G = np.zeros(2, np.float32), np.zeros(1, np.int64)
    rounds, windows = 500, 100
    took: list[float] = []
    until = time.perf_counter() + seconds

    def run(side: int) -> None:
        for w in range(windows):
            began = time.perf_counter()
            loops.exchange(F, G, side, 1, w * rounds, rounds)
            if side == 0:
                took.append(time.perf_counter() - began)

    while not took or time.perf_counter() < until:
        G[0] = 0
        together([functools.partial(run, side) for side in (0, 1)])
    return min(took) / rounds / 2


__all__ = ["Calibration", "Point", "measure"]
