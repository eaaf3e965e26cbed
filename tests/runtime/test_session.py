"""The epochs of a run, on a small engine: order, schedules, target, patience, interrupts, checkpoints, what lands in the run folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ampc.diagnostics import AmpError
from ampc.runtime.events import Check, Epoch, Event, Note
from ampc.runtime.interrupts import StopNow
from ampc.runtime.options import RunOptions
from ampc.runtime.run_folder import RunFolder, next_folder
from ampc.runtime.session import Session, epoch_order
from runtime.fake import FakeEngine, Q, q_data

DATA = q_data([[1.0]] * 8, [float(y) for y in range(8)])
VALID = q_data([[1.0], [2.0]], [1.0, 2.0], "valid.jsonl")


def options(**given: Any) -> RunOptions:
    base: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.01, "min_update_frequency": 1, "workers": 1, "epochs": 3}
    return RunOptions(**(base | given))


class Run:
    """A session whose engine and events are kept."""

    def __init__(self, folder: Path | None = None, *, prepare: Any = lambda engine: None, force: bool = False, **given: Any) -> None:
        self.events: list[Event] = []
        self.folder = RunFolder(folder, force=force) if folder is not None else None

        def make(o: Any, p: Any) -> FakeEngine:
            self.engine = FakeEngine(o, p)
            prepare(self.engine)
            return self.engine

        self.session = Session(Q, options(**given), make, program="hash", folder=self.folder, on_event=self.events.append)

    @property
    def epochs(self) -> list[Epoch]:
        return [e for e in self.events if isinstance(e, Epoch)]


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_order_depends_on_seed_and_epoch_alone() -> None:
    assert (epoch_order(50, 1, 2, True) == epoch_order(50, 1, 2, True)).all()
    assert (epoch_order(50, 1, 2, True) != epoch_order(50, 1, 3, True)).any()
    assert (epoch_order(50, 2, 2, True) != epoch_order(50, 1, 2, True)).any()
    assert sorted(epoch_order(50, 1, 2, True)) == list(range(50))
    assert list(epoch_order(3, 1, 2, False)) == [0, 1, 2]
    one, four = Run(workers=1), Run(workers=4)
    one.session.train(DATA)
    four.session.train(DATA)
    assert one.engine.seen == four.engine.seen


def test_run_folder_holds_what_is_promised(tmp_path: Path) -> None:
    run = Run(tmp_path / "r")
    summary = run.session.train(DATA, VALID)
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [
        "best.safetensors", "checkpoints", "config.toml", "env.json", "metrics.jsonl", "summary.json", "weights.safetensors",
    ]  # fmt: skip
    written = json.loads((tmp_path / "r" / "summary.json").read_text())
    wanted = {
        "epochs",
        "train_instances_per_s",
        "validation",
        "time_to_target_s",
        "wall_s",
        "staleness",
        "workers",
        "seed",
        "interrupted",
        "target_reached",
    }
    assert wanted <= set(written)
    assert written["epochs"] == 3 and written["stopped"] == "epochs" and summary.epochs == 3
    assert written["validation"]["loss"] == pytest.approx(run.epochs[-1].validation["loss"])
    assert [line["epoch"] for line in lines(tmp_path / "r")] == [1, 2, 3]
    assert sorted(p.name for p in (tmp_path / "r" / "checkpoints").iterdir()) == ["000001", "000002", "000003"]
    assert json.loads((tmp_path / "r" / "env.json").read_text())["packages"]["numpy"] == np.__version__
    assert written["staleness"]["w"]["mean"] == 0 and written["updates"] == {"w": 24}


def test_undefined_metric_is_null_with_a_reason_and_never_best(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", watch="accuracy", patience=1)
    summary = run.session.train(DATA, VALID)
    assert summary.epochs == 3 and summary.best == {}
    assert lines(tmp_path / "r")[0]["validation"]["accuracy"] is None
    assert "accuracy" in summary.undefined
    assert not (tmp_path / "r" / "best.safetensors").exists()


def test_target_stops_the_run_and_takes_its_time(tmp_path: Path) -> None:
    summary = Run(tmp_path / "r", epochs=50, until="loss < 30 and absolute_error < 10").session.train(DATA, VALID)
    assert summary.stopped == "target" and summary.target_reached and summary.epochs == 1
    assert summary.time_to_target_s is not None and 0 < summary.time_to_target_s <= summary.wall_s
    missed = Run(until="loss < -1").session.train(DATA, VALID)
    assert missed.stopped == "epochs" and not missed.target_reached and missed.time_to_target_s is None


def test_until_reads_the_training_pass_where_there_is_no_validation() -> None:
    assert Run(epochs=5, until="loss < 1e9").session.train(DATA).epochs == 1
    assert Run(epochs=5, until="train.loss < 1e9 and loss < 1e9").session.train(DATA, VALID).epochs == 1


def test_unknown_name_in_until_is_found_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(AmpError, match=r"AMP704.*`acuracy` is no value of this run"):
        Run(tmp_path / "r", until="acuracy > 1")
    with pytest.raises(AmpError, match=r"AMP704"):
        Run(tmp_path / "r", watch="acuracy")
    assert not (tmp_path / "r").exists()


def test_patience_counts_epochs_without_a_better_value() -> None:
    summary = Run(epochs=50, patience=2, watch="loss", learning_rate=0.0).session.train(DATA, VALID)
    assert summary.stopped == "patience" and summary.epochs == 3 and summary.best["epoch"] == 1


def test_step_schedule_is_the_same_after_a_resume(tmp_path: Path) -> None:
    given: dict[str, Any] = {"learning_rate": 1.0, "schedule": "step", "schedule_every": 4, "schedule_factor": 0.1}
    zeros = q_data([[0.0]] * 3, [0.0] * 3)
    Run(tmp_path / "whole", epochs=7, **given).session.train(zeros)
    Run(tmp_path / "parts", epochs=3, **given).session.train(zeros)
    Run(tmp_path / "parts", epochs=7, **given).session.train(zeros, resume=tmp_path / "parts")
    expected = [1, 1, 1, 1, 0.1, 0.1, 0.1]
    for name in ("whole", "parts"):
        assert [line["learning_rate"] for line in lines(tmp_path / name)] == pytest.approx(expected)
        assert [line["epoch"] for line in lines(tmp_path / name)] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("clock", ["epochs", "instances"])
def test_cosine_schedule_is_the_same_after_an_interrupt_within_an_epoch(tmp_path: Path, clock: str) -> None:
    given: dict[str, Any] = {"epochs": 4, "schedule": "cosine", "schedule_clock": clock, "warmup": 2, "optimizer": "momentum"}
    whole = Run(tmp_path / "whole", **given)
    whole.session.train(DATA)

    def interrupt(engine: FakeEngine) -> None:
        engine.on_pass = lambda train, epoch: os.kill(os.getpid(), signal.SIGINT) if epoch == 2 else None

    first = Run(tmp_path / "parts", prepare=interrupt, **given)
    assert first.session.train(DATA).exit_code == 130
    second = Run(tmp_path / "parts", **given)
    second.session.train(DATA, resume=tmp_path / "parts")
    assert [e["learning_rate"] for e in lines(tmp_path / "parts")] == [e["learning_rate"] for e in lines(tmp_path / "whole")]
    assert second.engine.w == pytest.approx(whole.engine.w, rel=1e-6)  # weights are stored in float32


def test_interrupted_epoch_sees_each_row_once_and_the_next_has_another_order(tmp_path: Path) -> None:
    rows = q_data([[1.0]] * 64, [float(y) for y in range(64)])
    run = Run(tmp_path / "r", epochs=3)
    original = run.session.on_event

    def on_event(event: Event) -> None:
        original(event)
        if getattr(event, "done", 0) == 20 and run.session.state.epoch == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    run.session.on_event = on_event
    summary = run.session.train(rows)
    assert (summary.stopped, summary.exit_code, summary.interrupted, summary.epochs) == ("interrupted", 143, True, 1)
    again = Run(tmp_path / "r", epochs=3)
    again.session.train(rows, resume=tmp_path / "r")
    first = run.engine.seen[1] + again.engine.seen[0]
    assert len(run.engine.seen[1]) == 20 and sorted(first) == list(range(64)) and sum(first) == 2016
    assert first != again.engine.seen[1]
    assert lines(tmp_path / "r")[1]["instances"] == 64
    whole = Run(tmp_path / "w", epochs=3)
    whole.session.train(rows)
    assert again.engine.w == pytest.approx(whole.engine.w, rel=1e-6)  # weights are stored in float32
    assert lines(tmp_path / "w")[1]["loss"] == pytest.approx(lines(tmp_path / "r")[1]["loss"], rel=1e-6)


def test_interrupt_during_validation_repeats_only_the_validation(tmp_path: Path) -> None:
    def interrupt(engine: FakeEngine) -> None:
        engine.on_pass = lambda train, epoch: os.kill(os.getpid(), signal.SIGINT) if epoch == 1 and not train else None

    Run(tmp_path / "r", prepare=interrupt).session.train(DATA, VALID)
    again = Run(tmp_path / "r")
    summary = again.session.train(DATA, VALID, resume=tmp_path / "r")
    assert len(again.engine.seen) == 1 and summary.epochs == 3
    assert [line["epoch"] for line in lines(tmp_path / "r")] == [1, 2, 3]


def test_second_interrupt_stops_now_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    def interrupt(engine: FakeEngine) -> None:
        def twice(train: bool, epoch: int) -> None:
            if epoch == 1:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

        engine.on_pass = twice

    with pytest.raises(StopNow) as stop:
        Run(tmp_path / "r", prepare=interrupt).session.train(DATA)
    assert stop.value.exit_code == 130
    assert [p.name for p in (tmp_path / "r" / "checkpoints").iterdir()] == ["000001"]
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["interrupted"] is True
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_checkpoints_within_an_epoch_change_nothing_but_where_it_drains(tmp_path: Path) -> None:
    whole, parts = Run(), Run(tmp_path / "r", checkpoint_instances=3, keep=100)
    whole.session.train(DATA)
    parts.session.train(DATA)
    assert parts.engine.w == whole.engine.w
    assert [len(s) for s in parts.engine.seen] == [3, 3, 2] * 3
    assert len(list((tmp_path / "r" / "checkpoints").iterdir())) == 9
    assert parts.epochs[0].loss == pytest.approx(whole.epochs[0].loss)


def test_validation_within_an_epoch_ends_the_run_where_the_target_holds(tmp_path: Path) -> None:
    whole, often = Run(epochs=50, until="absolute_error <= 0.6"), Run(tmp_path / "r", epochs=50, until="absolute_error <= 0.6", validate_instances=3)
    late, early = whole.session.train(DATA, VALID), often.session.train(DATA, VALID)
    checks = [e for e in often.events if isinstance(e, Check)]
    assert checks and all(c.instances % 3 == 0 and c.instances < 8 for c in checks)
    assert early.stopped == late.stopped == "target" and early.instances < late.instances
    last = often.epochs[-1]
    assert last.instances < 8 and last.validation == checks[-1].validation  # the epoch ended there
    assert sum(len(s) for s in often.engine.seen) == early.instances
    assert [line["epoch"] for line in lines(tmp_path / "r")] == list(range(1, early.epochs + 1))


def test_validation_within_an_epoch_changes_no_weights() -> None:
    whole, often = Run(), Run(validate_instances=3)
    whole.session.train(DATA, VALID)
    often.session.train(DATA, VALID)
    assert often.engine.w == whole.engine.w
    assert [e.loss for e in often.epochs] == pytest.approx([e.loss for e in whole.epochs])
    alone = Run(validate_instances=3)
    alone.session.train(DATA)  # without validation data there is nothing to do
    assert not [e for e in alone.events if isinstance(e, Check)]


@pytest.mark.parametrize("step", range(1, 9))
def test_resume_from_any_checkpoint_gives_the_same_bits(tmp_path: Path, step: int) -> None:
    import shutil

    given: dict[str, Any] = {"checkpoint_instances": 3, "keep": 100, "optimizer": "momentum"}
    whole = Run(tmp_path / "w", **given)
    whole.session.train(DATA)
    for path in (tmp_path / "w" / "checkpoints").iterdir():
        if int(path.name) > step:
            shutil.rmtree(path)
    again = Run(tmp_path / "w", **given)
    again.session.train(DATA, resume=tmp_path / "w")
    assert again.engine.parameters["w.w"] == pytest.approx(whole.engine.parameters["w.w"], rel=1e-6)
    assert [line["epoch"] for line in lines(tmp_path / "w")] == [1, 2, 3]


def test_loss_that_is_not_finite_stops_the_run_and_names_the_epoch(tmp_path: Path) -> None:
    run = Run(tmp_path / "r", prepare=lambda e: e.nan_epochs.add(1))
    with pytest.raises(AmpError, match=r"AMP715.*in epoch 2") as e:
        run.session.train(DATA)
    assert e.value.exit_code == 3
    written = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert (written["stopped"], written["epochs"], written["exit_code"]) == ("failed", 1, 3)
    assert [p.name for p in (tmp_path / "r" / "checkpoints").iterdir()] == ["000001"]


def test_poisoned_weights_are_noticed_before_they_are_saved(tmp_path: Path) -> None:
    def poison(engine: FakeEngine) -> None:
        def on_pass(train: bool, epoch: int) -> None:
            if epoch == 1:
                engine.set_parameters({"w.w": np.full((1, 1), np.inf)})
                engine.nan_epochs = set()

        engine.on_pass = on_pass

    run = Run(tmp_path / "r", prepare=poison, learning_rate=0.0)
    with pytest.raises(AmpError, match=r"AMP715.*is not a finite number in epoch 2"):
        run.session.train(q_data([[0.0]], [0.0]))
    assert [p.name for p in (tmp_path / "r" / "checkpoints").iterdir()] == ["000001"]


def test_skip_undoes_the_epoch_and_ignore_goes_on(tmp_path: Path) -> None:
    skip = Run(tmp_path / "s", prepare=lambda e: e.nan_epochs.add(1), on_nan="skip")
    summary = skip.session.train(DATA)
    assert summary.epochs == 3 and [line["epoch"] for line in lines(tmp_path / "s")] == [1, 3]
    assert any(isinstance(e, Note) and "epoch 2" in e.text and "undone" in e.text for e in skip.events)
    ignore = Run(tmp_path / "i", prepare=lambda e: e.nan_epochs.add(1), on_nan="ignore")
    ignore.session.train(DATA)
    assert [line["loss"] is None for line in lines(tmp_path / "i")] == [False, True, False]
    forever = Run(tmp_path / "f", prepare=lambda e: e.nan_epochs.update(range(99)), on_nan="skip", epochs=99)
    with pytest.raises(AmpError, match=r"AMP715.*3 epochs in succession"):
        forever.session.train(DATA)


def test_nothing_is_left_behind_by_a_mistake_before_the_first_update(tmp_path: Path) -> None:
    def refuse(engine: FakeEngine) -> None:
        def bind(dataset: Any, train: bool = True) -> None:
            raise AmpError((), 4)

        engine.bind = bind  # type: ignore[method-assign]

    with pytest.raises(AmpError):
        Run(tmp_path / "r", prepare=refuse).session.train(DATA)
    with pytest.raises(AmpError, match=r"AMP717"):
        Run(tmp_path / "r").session.train(q_data([], []))
    assert list(tmp_path.iterdir()) == []


def test_run_folder_is_never_overwritten_unasked(tmp_path: Path) -> None:
    Run(tmp_path / "r").session.train(DATA)
    with pytest.raises(AmpError, match=r"AMP707.*exists already"):
        Run(tmp_path / "r").session.train(DATA)
    Run(tmp_path / "r", force=True, epochs=1).session.train(DATA)
    assert len(lines(tmp_path / "r")) == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(AmpError, match=r"AMP707.*no run folder"):
        Run(tmp_path / "mine", force=True).session.train(DATA)
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_two_runs_never_write_into_one_folder(tmp_path: Path) -> None:
    """The first is under way when the others ask for its folder; once it has ended, they may have it."""
    refused = []

    def ask(engine: FakeEngine) -> None:
        for again, resume in ((Run(tmp_path / "r", force=True), None), (Run(tmp_path / "r"), tmp_path / "r")):
            with pytest.raises(AmpError, match=r"AMP707.*another run is writing") as e:
                again.session.train(DATA, resume=resume)
            refused.append(e.value.exit_code)

    first = Run(tmp_path / "r", epochs=2)
    first.session.on_event = lambda event: ask(first.engine) if isinstance(event, Epoch) and event.epoch == 1 else None
    first.session.train(DATA)
    assert refused == [1, 1]
    assert len(lines(tmp_path / "r")) == 2, "the first run is whole"
    (tmp_path / "r" / ".best.safetensors.tmp123").write_text("half-written by a run that was killed")
    Run(tmp_path / "r", epochs=3).session.train(DATA, resume=tmp_path / "r")
    assert len(lines(tmp_path / "r")) == 3
    assert not list((tmp_path / "r").glob(".*"))


def test_folders_are_numbered(tmp_path: Path) -> None:
    assert next_folder("q", tmp_path / "runs") == tmp_path / "runs" / "q-1"
    for n in (1, 2, 10):
        (tmp_path / "runs" / f"q-{n}").mkdir(parents=True)
    assert next_folder("q", tmp_path / "runs") == tmp_path / "runs" / "q-11"


def test_resuming_a_finished_run_changes_nothing_and_reports_its_values(tmp_path: Path) -> None:
    first = Run(tmp_path / "r").session.train(DATA, VALID)
    again = Run(tmp_path / "r").session.train(DATA, VALID, resume=tmp_path / "r")
    assert (again.epochs, again.validation, again.training) == (3, first.validation, first.training)
    assert len(lines(tmp_path / "r")) == 3


def test_a_run_of_no_epochs_writes_the_weights_it_began_with(tmp_path: Path) -> None:
    summary = Run(tmp_path / "r", epochs=0).session.train(DATA)
    assert summary.epochs == 0 and (tmp_path / "r" / "weights.safetensors").is_file()


def test_resume_with_other_data_or_seed_is_refused(tmp_path: Path) -> None:
    Run(tmp_path / "r", epochs=1).session.train(DATA)
    with pytest.raises(AmpError, match=r"AMP716.*8 training instances, this data has 2"):
        Run(tmp_path / "r").session.train(VALID, resume=tmp_path / "r")
    with pytest.raises(AmpError, match=r"AMP716.*`seed` was `0`"):
        Run(tmp_path / "r", seed=5).session.train(DATA, resume=tmp_path / "r")


def test_full_disk_is_exit_code_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(tmp_path / "r", epochs=1).session.train(DATA)

    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(AmpError, match=r"AMP730.*no space left") as e:
        Run(tmp_path / "r", epochs=2).session.train(DATA, resume=tmp_path / "r")
    assert e.value.exit_code == 4
    monkeypatch.undo()
    assert Run(tmp_path / "r", epochs=2).session.train(DATA, resume=tmp_path / "r").epochs == 2
