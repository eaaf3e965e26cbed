"""A training run from the first epoch to the last: order, schedule, validation, target, patience, checkpoints, interrupts, records.

The session knows what an epoch is and nothing of how instances are executed: it drives anything with an engine's methods. An order depends
on the seed and the epoch alone. All state that a resumed run needs is in `Standing` and in the engine.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ampc.data import no_validation
from ampc.data.dataset import Dataset
from ampc.diagnostics import AmpError, error
from ampc.ir.graph import Graph
from ampc import until
from ampc.runtime import checkpoint, schedule
from ampc.runtime.checkpoint import State
from ampc.runtime.contract import EngineFactory, EngineLike, Order
from ampc.runtime.events import Array, Check, Epoch, EpochResult, Listener, Note, Phase, Progress, mean_staleness, merge_results, ignore
from ampc.runtime.interrupts import Interrupts, StopNow
from ampc.runtime.observer import Observer
from ampc.runtime.options import RunOptions, is_command
from ampc.runtime.order import ends, epoch_order
from ampc.runtime.run_folder import RunFolder, version
from ampc.runtime.standing import Standing, resumed
from ampc.runtime.summary import Summary, defined_values, is_better_when_higher, undefined_reasons, values_of
from ampc.runtime.weights import shapes

UNDONE_LIMIT = 3
"""With `on_nan = skip`, so many epochs in succession may be undone before the run fails."""


class Session:
    """One run of one program. Everything that can be wrong with the settings is found by the constructor or before the first update."""

    def __init__(
        self,
        graph: Graph,
        options: RunOptions,
        make_engine: EngineFactory,
        *,
        program: str = "",
        folder: RunFolder | None = None,
        inputs: dict[str, Any] | None = None,
        initial: dict[str, Array] | None = None,
        on_event: Listener = ignore,
    ) -> None:
        """`program`: the hash that checkpoints are tied to. `folder` None: nothing is written. `initial`: parameters to begin with (or some)."""
        self.graph, self.options, self.make_engine, self.program = graph, options, make_engine, program
        self.folder, self.inputs, self.initial, self.on_event = folder, inputs or {}, initial, on_event
        self.watch = options.watch or next(iter(graph.metrics), "loss")
        self.condition = self._conditions()
        self.rising = is_better_when_higher(graph, self.watch)
        self.state = Standing()
        self.summary = Summary(graph.name, target=options.until, seed=options.seed, workers=options.engine().workers, precision=options.precision)
        self.began = time.perf_counter()
        self.observer = Observer(options)
        self._engine: EngineLike | None = None

    def _conditions(self) -> until.Condition | None:
        """Return the condition of `until`; it and `watch` may only name what the run has. Raises AMP703, AMP704 (exit 2 for a flag)."""
        known, o, name = until.values(self.graph), self.options, "until"
        try:
            condition = until.parse(o.until) if o.until.strip() else None
            if condition is not None:
                until.check_names(condition, o.until, known)
            name = "watch"
            until.check_watch(self.watch, known)
            return condition
        except AmpError as e:
            origin = o.origins.get(name, "")
            if is_command(origin):
                raise AmpError(e.diagnostics, exit_code=2) from None
            (d,) = e.diagnostics  # its place is one in a flag
            raise AmpError(dataclasses.replace(d, primary=None, notes=(*d.notes, *([f"`{name}` {origin}"] if origin else [])))) from None

    # ------------------------------------------------------------------------------------------ the engine

    @property
    def engine(self) -> EngineLike:
        """The engine, made when it is first needed."""
        if self._engine is None:
            self._engine = self.make_engine(self.options.engine(), None)
            self.summary.blas = self._engine.blas
            if self.initial:
                self._engine.set_parameters({**self._engine.parameters, **self.initial})
        return self._engine

    @property
    def made(self) -> bool:
        """Whether there is an engine yet."""
        return self._engine is not None

    def _timed(self, dataset: Dataset, order: Order, **how: Any) -> tuple[EpochResult, float]:
        """Run a pass; return its result and the time that it took: wall time without compilation, or the engine's own if that is virtual."""
        compiled, began = self.engine.compile_seconds, time.perf_counter()
        result = self.engine.run(dataset, order, **how)
        if self.options.driver == "simulate":
            return result, result.seconds
        return result, max(0.0, time.perf_counter() - began - (self.engine.compile_seconds - compiled))

    # ------------------------------------------------------------------------------------------ forward only

    def evaluate(self, dataset: Dataset) -> dict[str, float | None]:
        """Return the mean loss and the metrics of the current weights on `dataset`; None where a metric is undefined."""
        _not_empty(dataset)
        self.engine.bind(dataset, train=False)
        self.on_event(Phase("validate", 0, 0, dataset.n))
        return defined_values(self._forward(dataset))

    def predict(self, dataset: Dataset) -> dict[str, list[Array]]:
        """Return for each `output` of the program one float32 [rows, columns] array per instance, in the order of `dataset`."""
        _not_empty(dataset)
        self.engine.bind(dataset, train=False)
        self.on_event(Phase("predict", 0, 0, dataset.n))
        return {name: list(arrays) for name, arrays in self._forward(dataset, outputs=True).outputs.items()}

    def _forward(self, dataset: Dataset, *, outputs: bool = False) -> EpochResult:
        with Interrupts() as interrupts:
            interrupts.draining = True
            order = np.arange(dataset.n)
            how: dict[str, Any] = {"outputs": True, "measured": False} if outputs else {}
            result = self.engine.run(dataset, order, train=False, on_progress=self.on_event, stop=interrupts.requested, **how)
        if result.interrupted:
            raise StopNow(interrupts.exit_code)
        return result

    # ------------------------------------------------------------------------------------------ training

    def train(self, training: Dataset, validation: Dataset | None = None, *, resume: Path | None = None) -> Summary:
        """Train until the epochs are done, the target holds, patience ends or a signal comes; return the summary.

        resume: a run folder whose newest sound checkpoint is continued. A first SIGINT or SIGTERM drains, writes a checkpoint and returns a
        summary with `interrupted`; a second one raises `StopNow`. Raises AmpError: before the first update for wrong input, AMP715 (exit 3)
        for a loss that isn't finite.
        """
        try:
            return self._train(training, validation, resume)
        finally:
            if self.folder is not None:
                self.folder.release()

    def _train(self, training: Dataset, validation: Dataset | None, resume: Path | None) -> Summary:
        self.began = time.perf_counter()
        _not_empty(training)
        if validation is not None:
            _not_empty(validation)
        if self.folder is not None and resume is None:
            self.folder.check()
        interrupts = Interrupts()
        try:
            with interrupts:
                if self.folder is not None and resume is not None and self.folder.path.is_dir():
                    self.folder.hold()
                loaded = self._load(resume, training) if resume is not None else None
                for dataset in (validation, training):
                    if dataset is not None:
                        self.engine.bind(dataset, train=dataset is training)
                if self.folder is not None:
                    if loaded is None:
                        self.folder.create(self.options, self.inputs)
                        self.folder.weights(self.engine.parameters, self.program)
                    else:
                        last = self.folder.reopen(self.options, self.inputs, self.state.epoch)
                        self.summary.training = {"loss": last.get("loss"), **last.get("metrics", {})} if last else {}
                        self.summary.validation, self.summary.undefined = last.get("validation", {}), last.get("undefined", {})
                self.summary.skipped = training.skipped
                if training.skipped:
                    self.on_event(
                        Note(f"{training.skipped} of {training.n + training.skipped} training instances are left out: a value isn't finite")
                    )
                if validation is None and self.options.driver != "simulate":  # which validates only if it is asked to
                    self.on_event(Note(self._unvalidated()))
                self._epochs(training, validation, interrupts)
            said = self.observer.finish(self.engine, training, None if self.folder is None else self.folder.path)
            if said:
                self.on_event(Note(said))
        except StopNow as stop:
            self._finish("interrupted", stop.exit_code)
            raise
        except AmpError as e:
            self._finish("failed", e.exit_code)
            raise
        code = interrupts.exit_code if self.summary.stopped == "interrupted" else 0
        return self._finish(self.summary.stopped, code)

    def _unvalidated(self) -> str:
        """Return the note of a run without validation data: where it was looked for, and what is judged by the training passes instead."""
        named = [] if self.condition is None else [n for n in until.names(self.condition) if not n.startswith("train.")]
        judged = [f"`until` (`{named[0]}`)"] if named else []
        judged += [f"the best epoch (`{self.watch}`)"]
        text = f"{' and '.join(judged)} {'are' if len(judged) > 1 else 'is'} judged by the training data"
        return f"{no_validation(self.inputs.get('data'))}: {text}"

    def _epochs(self, training: Dataset, validation: Dataset | None, interrupts: Interrupts) -> None:
        state, o = self.state, self.options
        while state.epoch < o.epochs:
            epoch = state.epoch
            before = (self.engine.parameters, self.engine.optimizer_state()) if o.on_nan == "skip" else None
            interrupts.draining = True
            result, rate, checked = self._pass(training, validation, epoch, interrupts)
            if result is None:
                self.summary.stopped = "interrupted"
                self._checkpoint(training.n)
                return
            bad = "" if o.on_nan == "ignore" else self._not_finite_in(result)
            if bad:
                self._not_finite(bad, epoch, before)
                continue
            state.undone = 0
            if checked is None:
                checked = self._validate(validation, epoch, interrupts)
            if checked is not None and checked.interrupted:
                self.summary.stopped = "interrupted"
                self._checkpoint(training.n)
                return
            improved = self._record(result, checked, rate)
            self.summary.stopped = self._why_stop(interrupts)
            last = self.summary.stopped != "" or state.epoch == o.epochs
            if last or (o.checkpoint_every and state.epoch % o.checkpoint_every == 0):
                self._checkpoint(training.n, best=improved)
            if self.summary.stopped:
                return
        self.summary.stopped = "epochs"

    def _pass(
        self, training: Dataset, validation: Dataset | None, epoch: int, interrupts: Interrupts
    ) -> tuple[EpochResult | None, float, EpochResult | None]:
        """Train what is left of an epoch, part by part.

        Return (its result, or None after an interrupt; the learning rate it began with; the validation within it at which `until` held, if one did).
        """
        state, o = self.state, self.options
        order = epoch_order(training.n, o.seed, epoch, o.shuffle)
        todo = order[~np.isin(order, state.ledger)] if len(state.ledger) else order
        self.on_event(Phase("train", epoch, o.epochs, training.n))
        first_rate = o.learning_rate * schedule.factor(o, *schedule.tick(o, epoch, training.n, 0))
        for stop_at in ends(o, training.n, len(state.ledger)):
            done = len(state.ledger)
            self._set_rate(schedule.factor(o, *schedule.tick(o, epoch, training.n, done)))
            part, todo = todo[: stop_at - done], todo[stop_at - done :]
            how = {"record": True} if self.observer.wants(epoch) else {}
            shown = self._shifted(training.n)
            result, seconds = self._timed(training, part, train=True, epoch=epoch, on_progress=shown, stop=interrupts.requested, **how)
            if how:
                self.observer.add(epoch, state.elapsed_s, self.engine.trace)
            finished = part if result.instances_done is None else np.asarray(result.instances_done, np.int64)
            state.parts.append(dataclasses.replace(result, seconds=seconds, instances_done=None))
            state.ledger = np.concatenate([state.ledger, finished])
            state.instances += len(finished)
            state.elapsed_s += seconds
            if interrupts.requested() or result.interrupted:
                return None, first_rate, None
            if stop_at == training.n:
                break
            if o.checkpoint_instances and stop_at % o.checkpoint_instances == 0:
                self._checkpoint(training.n)
            if o.validate_instances and stop_at % o.validate_instances == 0:
                checked = self._validate(validation, epoch, interrupts)
                if checked is None:
                    continue
                if checked.interrupted:
                    return None, first_rate, None
                self.on_event(Check(epoch + 1, stop_at, defined_values(checked), state.elapsed_s))
                if self._reached(merge_results(state.parts), checked):
                    return merge_results(state.parts), first_rate, checked
        return merge_results(state.parts), first_rate, None

    def _reached(self, result: EpochResult, checked: EpochResult) -> bool:
        """Whether `until` holds."""
        return self.condition is not None and until.holds(self.condition, values_of(result, checked))

    def _shifted(self, total: int) -> Callable[[Progress], None]:
        """Return a receiver that turns the progress of a part into that of the epoch."""
        before = len(self.state.ledger)
        loss = sum(p.loss * p.instances for p in self.state.parts)
        seconds = sum(p.seconds for p in self.state.parts)
        return lambda p: self.on_event(
            dataclasses.replace(p, done=p.done + before, total=total, loss_sum=p.loss_sum + loss, seconds=p.seconds + seconds)
        )

    def _set_rate(self, factor: float) -> None:
        self.engine.learning_rate = self.options.learning_rate * factor

    def _validate(self, validation: Dataset | None, epoch: int, interrupts: Interrupts) -> EpochResult | None:
        """Return the pass over the validation data, its seconds those by this session's clock; None without such data."""
        if validation is None:
            return None
        self.on_event(Phase("validate", epoch, self.options.epochs, validation.n))
        order = np.arange(validation.n)
        result, seconds = self._timed(validation, order, train=False, epoch=epoch, on_progress=self.on_event, stop=interrupts.requested)
        if not result.interrupted:
            self.state.elapsed_s += seconds
        return dataclasses.replace(result, seconds=seconds)

    def _record(self, result: EpochResult, checked: EpochResult | None, rate: float) -> bool:
        """Close the epoch: best value, target, the line in `metrics.jsonl`. Return whether it is the best so far."""
        state = self.state
        trained, validated = defined_values(result), {} if checked is None else defined_values(checked)
        values = values_of(result, checked)
        improved = self._improved(values.get(self.watch))
        state.epoch += 1
        state.since_best = 0 if improved else state.since_best + (values.get(self.watch) is not None)
        if improved:
            state.best_value, state.best_epoch = values[self.watch], state.epoch
        if self.condition is not None and state.time_to_target_s is None and until.holds(self.condition, values):
            state.time_to_target_s = state.elapsed_s
        seconds = sum(p.seconds for p in state.parts)
        per_s = result.instances / seconds if seconds > 0 else 0.0
        state.rates.append(per_s)
        epoch = Epoch(
            state.epoch,
            trained.pop("loss"),
            trained,
            validated,
            undefined_reasons(trained, validated),
            rate,
            result.instances,
            self.summary.skipped + result.skipped,
            seconds,
            0.0 if checked is None else checked.seconds,
            state.elapsed_s,
            per_s,
            result.updates,
            {layer: mean_staleness(h) for layer, h in result.staleness.items()},
            improved,
        )
        self.summary.add(result, epoch)
        state.parts, state.ledger = [], np.zeros(0, np.int64)
        if self.folder is not None:
            self.folder.add(epoch)
            if improved:
                self.folder.weights(self.engine.parameters, self.program, best=True)
        self.on_event(epoch)
        return improved

    def _improved(self, value: float | None) -> bool:
        """Whether `value` is the best so far; an undefined one never is."""
        if value is None or not math.isfinite(value):
            return False
        best = self.state.best_value
        return best is None or (value > best if self.rising else value < best)

    def _why_stop(self, interrupts: Interrupts) -> str:
        if interrupts.requested():
            return "interrupted"
        if self.state.time_to_target_s is not None:
            return "target"
        if self.options.patience and self.state.since_best >= self.options.patience:
            return "patience"
        return ""

    def _not_finite_in(self, result: EpochResult) -> str:
        """Return what isn't finite after a pass, "" if all is; weights may be poisoned by the last updates while the loss still looks well."""
        if not math.isfinite(result.loss):
            return "the loss"
        return next((f"a weight of `{name}`" for name, a in self.engine.parameters.items() if not np.isfinite(a).all()), "")

    def _not_finite(self, what: str, epoch: int, before: tuple[dict[str, Array], dict[str, Array]] | None) -> None:
        """Obey `on_nan`: fail, or undo the epoch and go on with the next."""
        state = self.state
        state.undone += 1
        if before is None or state.undone >= UNDONE_LIMIT:
            times = f" in {state.undone} epochs in succession" if before is not None else f" in epoch {epoch + 1}"
            raise error(
                "AMP715",
                f"{what} is not a finite number{times}",
                exit_code=3,
                help="lower `learning_rate`, or set `clip_norm`; the last checkpoint is from before",
                notes=(f"`on_nan` is `{self.options.on_nan}`",),
            )
        self.engine.set_parameters(before[0])
        self.engine.set_optimizer_state(before[1])
        state.parts, state.ledger, state.epoch = [], np.zeros(0, np.int64), epoch + 1
        self.on_event(Note(f"{what} is not a finite number after epoch {epoch + 1}: the epoch is undone"))

    # ------------------------------------------------------------------------------------------ checkpoints

    def _checkpoint(self, rows: int, *, best: bool = False) -> None:
        """Write a checkpoint of the drained engine, and the last weights."""
        if self.folder is None:
            return
        s, o = self.state, self.options
        step = checkpoint.next_step(self.folder.path)
        if best:
            s.best_step = step
        wall_s, compile_s = self._spent()
        parts = [msgspec.to_builtins(dataclasses.replace(p, outputs={}, instances_done=None)) for p in s.parts]
        record = State(
            step=step,
            instances=s.instances,
            epoch=s.epoch,
            done_in_epoch=len(s.ledger),
            seed=o.seed,
            rows=rows,
            shuffle=o.shuffle,
            learning_rate=o.learning_rate,
            elapsed_s=s.elapsed_s,
            watch=self.watch,
            best_value=s.best_value,
            best_epoch=s.best_epoch,
            best_step=s.best_step,
            epochs_since_best=s.since_best,
            time_to_target_s=s.time_to_target_s,
            partial=parts,
            rates=s.rates,
            wall_s=wall_s,
            compile_s=compile_s,
            updates=self.summary.updates,
            staleness={k: v["histogram"] for k, v in self.summary.staleness.items()},
        )
        weights = self.engine.parameters
        checkpoint.write(
            self.folder.path, self.program, record, weights, self.engine.optimizer_state(), s.ledger, keep=o.keep, ampc_version=version()
        )
        self.folder.weights(weights, self.program)

    def _spent(self) -> tuple[float, float]:
        """Return (wall time, compilation) of this run and those that it resumes, in seconds."""
        compiled = self._engine.compile_seconds if self._engine is not None else 0.0
        return self.state.wall_s + time.perf_counter() - self.began, self.state.compile_s + compiled

    def _load(self, folder: Path, training: Dataset) -> checkpoint.Checkpoint:
        """Take over the newest sound checkpoint. Raises AMP708, AMP709, or AMP716 if this run could not be the same."""
        found = checkpoint.load(folder, self.program, shapes(self.graph), lambda text: self.on_event(Note(text)))
        c, o = found.state, self.options
        if c.rows != training.n:
            raise error(
                "AMP716", f"the checkpoint's run had {c.rows} training instances, this data has {training.n}", help="resume with the same data"
            )
        for name, old, new in (("seed", c.seed, o.seed), ("shuffle", c.shuffle, o.shuffle)):
            if old != new:
                raise error(
                    "AMP716",
                    f"`{name}` was `{old}` in the run that is resumed, got `{new}`",
                    help=f"leave `{name}` as it was: it decides the order of instances",
                )
        self.engine.set_parameters(dict(found.weights))
        self.engine.set_optimizer_state(dict(found.optimizer))
        self.state = resumed(found, self.watch)
        self.summary.updates = dict(c.updates)
        self.summary.staleness = {k: {"mean": mean_staleness(h), "max": None, "histogram": h} for k, h in c.staleness.items()}
        self.summary.resumed_from = str(found.path)
        return found

    def _finish(self, stopped: str, exit_code: int) -> Summary:
        """Fill the summary and write it if there is a folder (there is none if nothing has begun)."""
        s, state = self.summary, self.state
        s.stopped, s.interrupted, s.exit_code = stopped, stopped == "interrupted", exit_code
        s.epochs, s.instances, s.elapsed_s, s.time_to_target_s = state.epoch, state.instances, state.elapsed_s, state.time_to_target_s
        s.target_reached = state.time_to_target_s is not None
        s.train_instances_per_s = statistics.median(state.rates) if state.rates else None
        s.wall_s, s.compile_s = self._spent()
        if state.best_epoch is not None:
            s.best = {"value": state.best_value, "name": self.watch, "epoch": state.best_epoch}
        if self.folder is not None and self.folder.ours:
            s.run_folder = str(self.folder.path)
            self.folder.summary(dataclasses.asdict(s))
        return s


# ------------------------------------------------------------------------------------------ small pieces


def _not_empty(dataset: Dataset) -> None:
    if dataset.n == 0:
        raise error("AMP717", f"`{dataset.source}` holds no instance", help="give data with at least one row")
