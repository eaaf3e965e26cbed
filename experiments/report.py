"""The runs as a table and as curves, in docs/results.md and docs/results/*.svg. Asynchronous against synchronous, medians over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import number
from benchmarks.report import markdown_table, processor, text_table
from experiments.document import put_part
from experiments.records import FOLDER, Record
from experiments.tasks import TASKS, Task

HEADS = ("task", "target", "mode", "runs at target", "epochs", "seconds", "instances/s", "staleness", "epochs to sync", "time to sync")
COLOURS = {"async": "#c03a2b", "sync": "#2b6cb0"}


def middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def rows(records: Sequence[Record]) -> list[list[str]]:
    """A row for each task and mode that has runs."""
    out = []
    for task in TASKS:
        of = {mode: current(records, task, mode) for mode in task.modes}
        for mode, runs in of.items():
            if runs:
                out.append(_row(task, mode, runs, of.get("sync", []) if mode == "async" else []))
    return out


def current(records: Sequence[Record], task: Task, mode: str) -> list[Record]:
    """The runs that were made with the task's present settings."""
    return [r for r in records if r.task == task.name and r.mode == mode and r.fingerprint == task.fingerprint(mode, r.seed)]


def _row(task: Task, mode: str, runs: list[Record], sync: list[Record]) -> list[str]:
    reached = [r for r in runs if r.reached]
    both = {r.seed for r in reached} & {r.seed for r in sync if r.reached}

    def ratio(of: Any) -> str:
        mine, theirs = middle([of(r) for r in reached if r.seed in both]), middle([of(r) for r in sync if r.seed in both])
        return f"{mine / theirs:.2f}x" if mine is not None and theirs else ""

    epochs, seconds = middle([r.epochs for r in reached]), middle([r.spent for r in reached])
    disturbed = any(r.disturbed for r in runs)
    return [
        task.title, f"{task.target:g}{' ' + task.unit if task.unit else ''}", mode, f"{len(reached)} of {len(runs)}",
        "-" if epochs is None else f"{epochs:.3g}", "-" if seconds is None else f"{seconds:.1f}{' †' if disturbed else ''}",
        "-" if disturbed else number(statistics.median(r.rate for r in runs)),
        f"{statistics.mean(r.staleness for r in runs):.2f}", ratio(lambda r: r.epochs), ratio(lambda r: r.spent),
    ]  # fmt: skip


BESIDE_HEADS = ("task", "PyTorch: runs at target", "threads", "epochs", "seconds", "ampc: epochs", "seconds", "PyTorch's seconds to ampc's")

BESIDE_WORDS = (
    "PyTorch in its best form by hand (sequences in buckets of one length, trees level by level, graphs as one union; fused optimisers), from the "
    "same initial weights, with the settings of the synchronous mode: its batches are as large as ampc's updates. They are made before the clock "
    "starts, once for all epochs; ampc makes none. One thread or two, whichever was faster in a trial. Medians over seeds that reached the "
    "target both ways; seconds of training and validation. Tasks that PyTorch was not trained on are left out."
)


def beside(records: Sequence[Record]) -> list[list[str]]:
    """A row for each task that PyTorch was trained on; ratios over the seeds that reached the target both ways."""
    named, out = {t.name: t for t in TASKS}, []
    for task in TASKS:
        theirs = {r.seed: r for r in current(records, named[task.same_network or task.name], "torch")}
        ours = {r.seed: r for r in current(records, task, "async")}
        both = [s for s in theirs if theirs[s].reached and s in ours and ours[s].reached]
        if not both:
            continue

        def of(runs: dict[int, Record], what: Any, seeds: Sequence[int] = both) -> float:
            return statistics.median(what(runs[s]) for s in seeds)

        mark = " †" if any(r.disturbed for s in both for r in (ours[s], theirs[s])) else ""
        threads = "–".join(str(n) for n in sorted({theirs[s].workers for s in both}))
        seconds = of(theirs, lambda r: r.spent), of(ours, lambda r: r.spent)
        out.append([
            task.title, f"{sum(r.reached for r in theirs.values())} of {len(theirs)}", threads, f"{of(theirs, lambda r: r.epochs):.3g}",
            f"{seconds[0]:.3g}{mark}", f"{of(ours, lambda r: r.epochs):.3g}", f"{seconds[1]:.3g}{mark}", f"{seconds[0] / seconds[1]:.2f}x",
        ])  # fmt: skip
    return out


def plot(task: Task, records: Sequence[Record]) -> str | None:
    """Draw a task's curves, against epochs and against time; return the file's name, None if there is nothing to draw."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    runs = [r for mode in task.modes for r in current(records, task, mode)]
    if not runs:
        return None
    plt.rcParams.update({"svg.hashsalt": task.name, "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    timed = not any(r.disturbed for r in runs)
    figure, axes = plt.subplots(1, 1 + timed, figsize=(4 + 4 * timed, 2.8), sharey=True, layout="constrained", squeeze=False)
    axes = axes[0]
    labelled = set()
    for r in runs:
        values = [v for _, _, v in r.curve]
        for axis, along in zip(axes, ([e for e, _, _ in r.curve], [s for _, s, _ in r.curve]), strict=False):
            label = r.mode if (axis is axes[0] and r.mode not in labelled) else None
            axis.plot(along, values, color=COLOURS[r.mode], alpha=0.7, linewidth=1.3, marker=".", markersize=4, label=label)
        labelled.add(r.mode)
    for axis, what in zip(axes, ("epochs", "seconds of training and validation"), strict=False):
        axis.axhline(task.target, color="#555555", linewidth=0.8, linestyle="--")
        axis.set_xlabel(what)
        axis.set_xlim(left=0)
    axes[0].set_ylabel(task.metric.replace("_", " ") + (f" [{task.unit}]" if task.unit else ""))
    axes[0].legend(frameon=False)
    figure.suptitle(task.title, fontsize=10)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / f"{task.name}.svg", metadata={"Date": None})
    plt.close(figure)
    return f"{task.name}.svg"


def write(records: Sequence[Record]) -> None:
    """Print the table; put it and the plots into the documents."""
    body = rows(records)
    if not body:
        print("nothing has been run yet")
        return
    print(text_table(HEADS, body))
    drawn = [(t, file) for t in TASKS for file in [plot(t, records)] if file]
    pictures = "\n\n".join(f"![{t.title}](results/{file})" for t, file in drawn)
    words = (
        "Every run starts from fresh weights and ends with the first validation at which the metric has reached its target: there are some within "
        "each epoch, for which a pass drains. Medians over those that reached it. Seconds are of training and validation, without compilation "
        "and reading. The last two columns divide the asynchronous median by the synchronous one, over seeds that reached the target both ways. "
        "Staleness: updates of a layer between an "
        f"instance's forward and its backward, mean of the layer where it is largest. {processor()}. Each run is a line of "
        "[results/runs.jsonl](results/runs.jsonl), with its curve, its share of the processor and the load before it. †: one worker, beside "
        "other programs; seconds are of its processor time."
    )
    text = f"## Experiments\n\n{words}\n\n{markdown_table(HEADS, body)}\n\n{pictures}"
    if rivals := beside(records):
        print(text_table(BESIDE_HEADS, rivals))
        text += f"\n\n### Time to the target beside PyTorch\n\n{BESIDE_WORDS}\n\n{markdown_table(BESIDE_HEADS, rivals)}"
    put_part("experiments", "make experiments", text)
