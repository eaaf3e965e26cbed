"""A compiled program to train, evaluate and predict with: the same calls for Python and the command line.

It joins a manifest, data, settings and weights to a `Session`; it decides nothing about how instances are executed.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ampc.data import Dataset, find, read, split_to_predict
from ampc.diagnostics import error
from ampc.ir.graph import Graph
from ampc.manifest import Manifest
from ampc.place import Links, Placement, Target, load_target, place, usable_cores
from ampc.runtime import blas, weights
from ampc.runtime.contract import EngineFactory, EngineLike
from ampc.runtime.events import Array, Listener, ignore
from ampc.runtime.options import EngineOptions, RunOptions, Value, resolve
from ampc.runtime.predictions import output_types, targets, with_integers
from ampc.runtime.profile import Profile
from ampc.runtime.run_folder import RunFolder
from ampc.runtime.session import Session
from ampc.runtime.summary import Summary
from ampc.runtime.trace import Trace

if TYPE_CHECKING:
    from ampc.runtime.kernels import Loaded
    from ampc.runtime.predictor import Predictor

Data = Any
"""A data folder, a file, a list of files, a pyarrow Table or RecordBatch, a list of dicts, or a `Dataset` that was read before."""


def program_hash(graph: Graph) -> str:
    """Return the hash that checkpoints are tied to: of what the program computes, not of where its source stands or on what it is placed."""
    bare = msgspec.structs.replace(
        graph, train={}, nodes=tuple(msgspec.structs.replace(n, origin=()) for n in graph.nodes),
        layers=tuple(msgspec.structs.replace(x, settings={}, device="") for x in graph.layers),
    )  # fmt: skip
    return hashlib.sha256(msgspec.json.encode(bare)).hexdigest()


class Program:
    """A program and its weights (`parameters`; None until it is trained or `load_weights` was called; a training draws those that lack)."""

    def __init__(self, manifest: Manifest, *, make_engine: EngineFactory | None = None) -> None:
        self.manifest = manifest
        self.graph = manifest.graph
        self.parameters: dict[str, Array] | None = None
        self.trace: Trace | None = None
        """Of the last training with `trace` or `profile` set; `profile` too."""
        self.profile: Profile | None = None
        self._make = make_engine or self._real_engine
        self._last: tuple[EngineOptions, EngineLike] | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.graph.name

    def __repr__(self) -> str:
        size = sum(int(np.prod(s)) for s in weights.shapes(self.graph).values())
        return f"<Program {self.name}: {len(self.graph.nodes)} nodes, {len(self.graph.layers)} layers, {size} parameters>"

    # ------------------------------------------------------------------------------------------ settings

    def options(
        self,
        settings: Mapping[str, Value | None] | None = None,
        *,
        sets: Iterable[str] = (),
        config: Path | None = None,
        per_layer: Mapping[str, Mapping[str, Value]] | None = None,
        resume: Path | None = None,
        spelt: str = "--",
    ) -> RunOptions:
        """Return the settings of a run: `settings` over `per_layer` and `sets` over the resumed run's over the `train:` block over `config`.

        spelt: how messages name one of `settings`: "--" as a flag of the command line, "=" as an argument in Python.
        """
        sets = [*sets, *(f"{layer}.{name}={_text(v)}" for layer, given in (per_layer or {}).items() for name, v in given.items())]
        resolved = resolve(
            flags=settings, sets=sets, train=self.graph.train, layers={x.name: x.settings for x in self.graph.layers},
            model_parameters=self.graph.parameters, config=config if resume is None else resume / "config.toml",
            resumed={} if resume is None else stored_settings(resume), spelt=spelt,
        )  # fmt: skip
        return resolved if resolved.workers else dataclasses.replace(resolved, workers=self._workers(resolved))

    def _workers(self, o: RunOptions) -> int:
        """As many as the program was placed on, if these are cores of this machine; one for `step`."""
        if o.driver == "step":
            return 1
        cores = usable_cores()
        devices = self.manifest.target.devices
        return min(len(devices), cores) if all(d.kind == "cpu" for d in devices) else cores

    def placement(self, workers: int) -> Placement:
        """Return the manifest's placement, or one made anew where it isn't on so many cores."""
        target = self.manifest.target
        if len(target.devices) == workers and all(d.kind == "cpu" for d in target.devices):
            return self.manifest.placement
        strategy = self.manifest.placement.strategy
        return place(self.graph, cores(target, workers), "balanced" if strategy == "manual" else strategy, self.manifest.statistics)

    def _real_engine(self, options: EngineOptions, parameters: dict[str, Array] | None) -> EngineLike:
        began = time.perf_counter()
        from ampc.runtime.engine import Engine  # compiles what kernels call, the first time for half a minute: loaded when something runs

        imported = time.perf_counter() - began
        engine = Engine(self.graph, self.placement(options.workers), options=options, parameters=parameters)
        engine.compile_seconds += imported
        return engine

    # ------------------------------------------------------------------------------------------ weights

    def load_weights(self, *sources: str | Path, names: str | Path | None = None, partial: bool = False) -> list[str]:
        """Take over parameters from safetensors files, later ones winning; return the names left out (empty unless `partial`).

        A source is a file of the whole program, a run folder (its best weights, else its last), a checkpoint's folder, or "layer=file" for one
        layer. `names`: the file holds a PyTorch state dict; a map file, or "torch" where modules are called as the layers. Raises AMP705, AMP710,
        AMP711, AMP712.
        """
        found, left = weights.initialise(
            [str(s) for s in sources], self.graph, names=None if names is None else Path(names), partial=partial
        )
        self.parameters = {**(self.parameters or {}), **found}
        return left

    def save_weights(self, path: str | Path, *, names: str | Path | None = None) -> None:
        """Write the weights as safetensors, under the names of a PyTorch state dict if `names` is given (a map file, or "torch")."""
        self.check_weights()
        out: Mapping[str, Array] = self.parameters or {}
        if names is not None:
            out = weights.to_torch(out, self.graph, weights.name_map(self.graph, Path(names)))
        weights.save_weights(Path(path), out, {"program": program_hash(self.graph)})

    def check_weights(self) -> None:
        """Raise AMP717 unless every parameter was trained or loaded: random weights would give figures that look like results."""
        lacking = [name for name in weights.shapes(self.graph) if name not in (self.parameters or {})]
        if not lacking:
            return
        what = "the program has no weights yet" if not self.parameters else "the program has no weights yet for " + weights.listed(lacking)
        raise error("AMP717", what, help="train it, or take over weights: `--init RUN_DIR`, in Python `program.load_weights(RUN_DIR)`")

    # ------------------------------------------------------------------------------------------ data

    def read(self, data: Data, split: str = "train", *, on_nan: str = "stop") -> Dataset:
        """Return the instances of `data`; of a folder, those of `split` ("train", "valid", "test"). Raises AmpError 8xx."""
        if isinstance(data, Dataset):
            return data
        if isinstance(data, (str, Path)):
            data = find(data, (split,))[split]
        return read(data, self.graph, on_nan=on_nan)  # type: ignore[arg-type]  # checked as a setting

    def read_unlabelled(self, data: Data, split: str | None = None) -> Dataset:
        """Return the instances of `data` for a prediction: fields that only losses and metrics read need not be there.

        Of a folder those of `split`, else of `test` if it has one, else of `valid`.
        """
        if isinstance(data, Dataset):
            return data
        if isinstance(data, (str, Path)):
            chosen = split_to_predict(data, split)
            data = find(data, (chosen,))[chosen]
        unread, graph = self._needed
        found = read(data, graph)
        filled = dict(found.columns)
        for f in self.graph.fields:
            if f.name in unread:
                n = int(found.axes[f.axis][-1]) if f.axis else found.n
                filled[f.name] = np.zeros((n, f.columns), np.float32) if f.kind == "float" else np.zeros(n, np.int64)
        return dataclasses.replace(found, columns=filled, fields=self.graph.fields)

    @functools.cached_property
    def _needed(self) -> tuple[set[str], Graph]:
        """The fields that predictions do without, and the graph without them."""
        unread = targets(self.graph)
        return unread, msgspec.structs.replace(self.graph, fields=tuple(f for f in self.graph.fields if f.name not in unread))

    def split_data(self, data: Data, validation: Data | None, options: RunOptions) -> tuple[Dataset, Dataset | None]:
        """Return (training, validation or None): of a folder its `train.*` and, unless `validation` is given, its `valid.*`."""
        if validation is None and isinstance(data, (str, Path)) and Path(data).is_dir():
            validation = find(data).get("valid")
        training = self.read(data, on_nan=options.on_nan)
        return training, None if validation is None else self.read(validation, "valid", on_nan=options.on_nan)

    # ------------------------------------------------------------------------------------------ runs

    def session(
        self,
        options: RunOptions,
        *,
        folder: RunFolder | None = None,
        inputs: dict[str, Any] | None = None,
        on_event: Listener = ignore,
    ) -> Session:
        """Return a session with this program's weights and settings. Raises AMP734 if products can't be made in their precision here."""
        blas.require(options.precision)

        def make(o: EngineOptions, parameters: dict[str, Array] | None) -> EngineLike:
            if self._last is None or self._last[0] != o:
                self._last = (o, self._make(o, parameters))
            return self._last[1]

        return Session(
            self.graph, options, make, program=program_hash(self.graph), folder=folder, inputs=inputs, initial=self.parameters, on_event=on_event
        )

    def train(
        self,
        data: Data,
        validation: Data | None = None,
        *,
        run_folder: str | Path | None = None,
        force: bool = False,
        resume: str | Path | None = None,
        per_layer: Mapping[str, Mapping[str, Value]] | None = None,
        on_event: Listener = ignore,
        **settings: Value,
    ) -> Summary:
        """Train on `data` and return the summary; the weights are then this program's.

        data: a folder with `train.*` (and `valid.*`), a file, a pyarrow table, a list of dicts. settings: as of `ampc run` (epochs=..., until=...,
        learning_rate=...); per_layer: {"embed": {"learning_rate": 0.1}}. run_folder: where metrics, weights and checkpoints go (None: nowhere).
        resume: a run folder to continue. on_event: receives progress. Raises AmpError for wrong input (nothing is left behind) and for a failed run.
        """
        options = self.options(settings, per_layer=per_layer, resume=None if resume is None else Path(resume), spelt="=")
        where = run_folder or resume
        folder = None if where is None else RunFolder(Path(where), force=force)
        training, valid = self.split_data(data, validation, options)
        self._last = None  # moments and accumulators of an earlier run are none of this one's
        session = self.session(options, folder=folder, inputs={"data": str(data) if isinstance(data, (str, Path)) else None}, on_event=on_event)
        try:
            return session.train(training, valid, resume=None if resume is None else Path(resume))
        finally:
            if session.made:
                self.parameters = session.engine.parameters
            self.trace, self.profile = session.observer.trace, session.observer.profile

    def evaluate(self, data: Data, *, split: str = "valid", on_event: Listener = ignore, **settings: Value) -> dict[str, float | None]:
        """Return the mean loss and the metrics on `data` (of a folder, on `split`); a metric that is undefined is None.

        Raises AMP717 if the program has no weights: train it or call `load_weights` first.
        """
        options = self.options(settings, spelt="=")
        self.check_weights()
        return self.session(options, on_event=on_event).evaluate(self.read(data, split, on_nan=options.on_nan))

    def check_outputs(self) -> None:
        """Raise AMP717 if the program has nothing to predict."""
        if not output_types(self.graph):
            raise error(
                "AMP717", f"the program `{self.name}` has no output to predict", help="add a line `output logits` to the model and compile it again"
            )

    def predict(self, data: Data, *, split: str | None = None, on_event: Listener = ignore, **settings: Value) -> dict[str, list[Array]]:
        """Return for each `output` of the program one [rows, columns] array per instance of `data`, in its order: float32, int64 for integers.

        Fields that only losses and metrics read need not be in the data. Of a folder `split` is read, by default `test` if it has one, else `valid`.
        Raises AMP717 if the program has no output, or no weights: train it or call `load_weights` first.
        """
        options = self.options(settings, spelt="=")
        self.check_outputs()
        self.check_weights()
        return with_integers(self.graph, self.session(options, on_event=on_event).predict(self.read_unlabelled(data, split)))


    def compile_kernels(self, **settings: Value) -> Loaded:
        """Compile what a run with these settings will run, into the cache (`ampc doctor` says where); return what was compiled, and the seconds.

        It takes next to no time if the cache has them already. No weights are needed.
        """
        began = time.perf_counter()
        from ampc.runtime.runner import generated_for
        from ampc.runtime.forward import generated_alone
        from ampc.runtime.kernels import load

        options = self.options(settings, spelt="=").engine()
        training = generated_for(self.graph, self.placement(options.workers), options).functions
        _, _, alone = generated_alone(self.graph, options)
        found = load(training).joined(load(alone.functions), "of passes that don't train")
        return dataclasses.replace(found, seconds=time.perf_counter() - began)

    def predictor(self, **settings: Value) -> Predictor:
        """Return a function of one instance (a dict of its fields) that gives what `predict` gives for it: output -> [rows, columns].

        For answers one at a time: nothing is set up again from call to call, and the calling thread does the work. It keeps the weights that the
        program has now. Raises AMP717 like `predict`.
        """
        options = self.options(settings, spelt="=")
        self.check_outputs()
        self.check_weights()
        from ampc.runtime.predictor import Predictor, SingleEngine  # compiles: loaded when something runs

        engine = SingleEngine(self.graph, self.placement(1), options=options.engine(), parameters=self.parameters or {})
        integer = frozenset(name for name, kind in output_types(self.graph).items() if kind.integer)
        return Predictor(engine, self.read_unlabelled, integer)


def stored_settings(folder: Path) -> dict[str, Value]:
    """Return the settings in a run folder's `config.toml`, without those of layers; AMP708 if it has none."""
    import tomllib

    try:
        table = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))["run"]
        return {k: v for k, v in table.items() if k != "layer"}
    except (OSError, ValueError, KeyError, AttributeError) as e:
        raise error(
            "AMP708", f"`{folder}` is no run folder: it has no readable `config.toml`", help="give the folder that an earlier `ampc run` printed"
        ) from e


def cores(target: Target, n: int) -> Target:
    """Return a target of `n` equal cores of one host: the first CPU device of `target`, or of the bundled one."""
    base = target if any(d.kind == "cpu" for d in target.devices) else load_target("cpu-2")
    device = next(d for d in base.devices if d.kind == "cpu")
    links = Links("shared", base.links.bytes_per_s, base.links.latency_s, base.links.overhead_s, base.links.message_overhead_s)
    return Target(f"cpu-{n}", tuple(msgspec.structs.replace(device, name=f"core:{i}" if n > 1 else "core") for i in range(n)), links)


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
