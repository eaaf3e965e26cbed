"""ampc as a contender: a bundled model on a data set, trained or asked by the engine in passes of about a window's length.

The clock runs around whole passes: it includes their start, their drain and the flush of part-filled accumulators. The package may be that of
another folder (`source`), so that two commits can take turns.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness import Contender

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "runs" / "bench" / "data"
SOURCES = {"mnist": "mnist", "sst": "sst", "qm9": "qm9", "babi15": "babi15"}
"""Recipe -> the folder with its original files, in $AMPC_DATA or `data/` of the repository."""
CALLED = 256
"""Instances that single calls go through."""

Work = Literal["train", "infer", "stream", "pass", "call"]
"""Training; predictions; with one instance in flight; a pass for each instance; a predictor's call for each, whose instance is read already."""


class NoData(Exception):
    """The original files of a data set aren't here."""


def data_folder(recipe: str, **settings: Any) -> Path:
    """Return the folder with the product of `recipe`, made if it isn't there. Raises NoData."""
    name = "-".join([recipe, *(f"{k}={v}" for k, v in sorted(settings.items()))])
    out = CACHE / name
    if not out.is_dir():
        from ampc.data.recipes import RECIPES

        source = None
        if recipe in SOURCES:
            source = next((p for p in (Path(r, SOURCES[recipe]) for r in (os.environ.get("AMPC_DATA", ""), ROOT / "data") if r) if p.is_dir()), None)
            if source is None:
                raise NoData(f"no original files of {recipe}: set AMPC_DATA to the folder that holds `{SOURCES[recipe]}/`")
        RECIPES[recipe].make(out, source, settings)
    return out


def graph_of(model: str, root: Path = ROOT, left_out: tuple[str, ...] = (), replicas: str | None = None, **overrides: Any) -> Any:
    """Return the compiled program of a bundled model, or of program text; `left_out`: passes over the graph; `replicas`: as of `ampc.compile`."""
    if left_out:
        from ampc.compiler import compile_file
        from ampc.place import this_machine
        from ampc.runtime.program import Program

        return Program(compile_file(root / "models" / f"{model}.amp", target=this_machine(), overrides=overrides, disable=left_out))
    import ampc

    given: dict[str, Any] = {"replicas": replicas} if replicas else {}  # what an older package doesn't know is not asked of it
    return ampc.compile(model if "\n" in model else root / "models" / f"{model}.amp", **given, **overrides)


def copied(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for copies of layers (`--replicas auto`), with as many instances in flight for each of two."""
    return {**settings, "replicas": "auto", "max_active_keys": 2 * settings["max_active_keys"]}


def providers() -> tuple[str, ...]:
    """Return the BLAS libraries that can be chosen between: with the extra `mkl` two, else one."""
    try:
        importlib.metadata.version("mkl")
    except importlib.metadata.PackageNotFoundError:
        return ("openblas",)
    return ("mkl", "openblas")


def prepare(blas: str = "", source: str = "") -> None:
    """Choose the BLAS and the folder that `ampc` is imported from: before anything of it is. Raises RuntimeError if that did not work."""
    if source:
        sys.path.insert(0, str(Path(source) / "src"))
    if blas == "openblas":
        os.environ["AMPC_BLAS"] = blas
    elif blas:
        os.environ.pop("AMPC_BLAS", None)
    import ampc
    from ampc.runtime import native

    if source and Path(source).resolve() not in Path(ampc.__file__).resolve().parents:
        raise RuntimeError(f"ampc is imported from {ampc.__file__}, not from {source}")
    if blas and blas not in native.PROVIDER:
        raise RuntimeError(f"the BLAS is {native.PROVIDER}, not {blas}")


class Ours:
    """A model and a data folder in an engine; `settings` over the model's `train:` block.

    work: what a window does. blas: "mkl" or "openblas". left_out: passes over the graph. replicas: copies of layers. told: whether `facts` holds
    FLOPs, the engine's share of the time and memory.
    """

    def __init__(
        self, model: str, data: str, overrides: dict[str, Any] | None = None, instances: int = 0, work: Work = "train", blas: str = "",
        source: str = "", left_out: tuple[str, ...] = (), told: bool = False, replicas: str | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        prepare(blas, source)
        from ampc.runtime import native

        if work in ("stream", "pass", "call"):
            settings |= {"workers": settings.get("workers", 1) if work == "call" else 1, "max_active_keys": 1, "group": 1}
        self.program = graph_of(model, Path(source) if source else ROOT, left_out, replicas, **(overrides or {}))
        self.data = self.program.read(data)
        used = min(instances or self.data.n, CALLED if work in ("pass", "call") else self.data.n)
        if used < self.data.n:
            self.data = self.data.select(np.arange(used))  # what isn't used is not copied into the engine's tables
        self.work = work
        self.session = self.program.session(self.program.options({"until": "", **settings}))
        self.engine: Any = self.session.engine
        learns = {} if work == "train" or "train" not in inspect.signature(self.engine.bind).parameters else {"train": False}
        self.engine.bind(self.data, **learns)
        self.n = self.data.n
        self.rng = np.random.default_rng(0)
        self.provider = native.PROVIDER
        self.rate = 0.0
        self.epoch = 0
        self.last: Any = None
        self.note = ""
        self.facts: dict[str, float] = {}
        if work == "call":
            from ampc.runtime.predictor import SingleEngine

            given = self.session.options.engine()
            self.single = SingleEngine(self.program.graph, self.program.placement(1), options=given, parameters=self.engine.parameters)
            self.instances = [self.data.select([i]) for i in range(self.n)]
            for instance in self.instances:  # makes room for the longest
                self.single.one(instance)
        probe = max(1, self.n // 50)
        for _ in range(2):
            self._pass(probe)
        if told:
            self.facts = self._facts()

    def _pass(self, size: int, record: bool = False) -> float:
        order = self.rng.permutation(self.n)[:size]
        train = self.work == "train"
        began = time.perf_counter()
        how: dict[str, Any] = {"record": True} if record else {}  # what an older engine doesn't know is not asked of it
        if not train and "measured" in inspect.signature(self.engine.run).parameters:
            how["measured"] = False
        self.last = self.engine.run(self.data, order, train=train, epoch=self.epoch, outputs=not train, **how)
        took = time.perf_counter() - began
        self.epoch += 1
        self.rate = len(order) / took
        self.note = f"{self.provider}, loss {self.last.loss:.3f}" if train else self.provider
        return took

    def _calls(self, seconds: float) -> tuple[int, float]:
        items, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds or not items:
            self.single.one(self.instances[items % self.n])
            items += 1
        return items, took

    def window(self, seconds: float) -> tuple[int, float]:
        if self.work == "call":
            return self._calls(seconds)
        items, took = 0, 0.0
        while took < 0.7 * seconds:
            size = 1 if self.work == "pass" else min(self.n, max(1, int(self.rate * (seconds - took))))
            took += self._pass(size)
            items += size
        return items, took

    def _facts(self) -> dict[str, float]:
        """FLOPs and bytes of an instance by the cost model; share of a recorded pass that lies outside of firings; memory."""
        from ampc.bench.measure import flops, peak_bytes, share
        from ampc.codegen.arena import predicted_bytes
        from ampc.place import estimate, measure
        from ampc.runtime.profile import profile

        self._pass(max(1, min(self.n, int(0.1 * self.rate))))
        self._pass(max(1, min(self.n, int(0.4 * self.rate))), record=True)
        flying = self.last.in_flight
        plan, graph = self.engine.plan, self.program.graph
        seen = measure(graph, self.data)
        found = profile(self.engine.trace, plan, seen)
        spent = share(found)
        cost = estimate(graph, seen, together={n.id: s.id for s in plan.segments for n in s.nodes})
        matrix, other = flops(cost, "training" if self.work == "train" else "inference")
        return {
            "matrix_flops": matrix, "other_flops": other, "bytes": sum(n.bytes for n in cost.nodes.values()), "firings": spent.firings,
            "engine": spent.engine, "waiting": spent.waiting, "idle": spent.idle, "peak_bytes": float(peak_bytes()),
            "rss_bytes": float(resident_bytes()), "instance_bytes": flying.instance_bytes, "all_bytes": float(flying.peak_bytes),
            "predicted_bytes": predicted_bytes(self.engine.program, seen)[0], "number": float(flying.number),
            "tokens": sum(q.tokens for q in found.queues) / max(1, found.instances),
        }  # fmt: skip


def resident_bytes() -> int:
    """Return the memory that this process has now; 0 where the system doesn't say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class Products:
    """The GEMM peak of one core: counts GFLOP."""

    def __init__(self, blas: str) -> None:
        prepare(blas)
        from ampc.bench.peak import SIDE, Peak

        self.peak = Peak()
        self.note = f"{SIDE} x {SIDE} x {SIDE}"

    def window(self, seconds: float) -> tuple[float, float]:
        began = time.perf_counter()
        return self.peak.run(seconds) / 1e9, time.perf_counter() - began


def ours(
    model: str, data: str, workers: tuple[int, ...] = (1, 2), name: str = "", *, settings: dict[str, Any], second: tuple[int, ...] = ()
) -> list[Contender]:
    """Return ampc with each number of workers, named "ampc mkl, NAME, 2 workers"; `settings` as of `Ours`.

    second: workers with the other BLAS, where there are two.
    """
    made = []
    for blas, numbers in zip(providers(), (workers, second), strict=False):
        for n in numbers:
            words = ", ".join(w for w in (f"ampc {blas}", name, f"{n} worker{'s' * (n > 1)}") if w)
            made.append(Contender(words, Ours, {"model": model, "data": data, "blas": blas, **settings, "workers": n}, n))
    return made


__all__ = ["CACHE", "ROOT", "NoData", "Ours", "Products", "Work", "copied", "data_folder", "graph_of", "ours", "prepare", "providers"]
