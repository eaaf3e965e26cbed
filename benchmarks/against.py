"""This commit against another one: `make bench-compare BASE=<commit>`. Both sides' ampc take turns in one run, on the same data.

    python -m benchmarks.against BASE [--only mnist,tree] [--work train,infer,stream]

The base commit is checked out into a folder of its own (`runs/bench/base`), whose package and models its contenders load; what drives and counts is
this commit's on both sides. A setting or a model that the base doesn't know is a line of the table.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Comparison, Contender, compare, lengths, number, options, span, wanted
from benchmarks.ours import CACHE, ROOT, Ours, copied, providers
from benchmarks.report import Table, commit, publish
from benchmarks.tasks import with_data

WORKS = {
    "train": ("training", (1, 2)), "copies": ("training, copies", (2,)), "infer": ("predictions", (1,)), "stream": ("one in flight", (1,)),
    "pass": ("a pass each", (1,)), "call": ("a call each", (1,)),
}  # fmt: skip


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextlib.contextmanager
def checked_out(base: str) -> Iterator[tuple[str, Path]]:
    """Check `base` out beside this one; yield its short name and the folder, which is removed at the end."""
    name = _git("rev-parse", "--short", f"{base}^{{commit}}")
    folder = CACHE.parent / "base" / name
    _git("worktree", "prune")
    if not folder.exists():
        _git("worktree", "add", "--detach", str(folder), name)
    try:
        yield name, folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def contenders(works: list[str], source: Path) -> list[Contender]:
    """Return for each task and kind of work the base and this commit, one behind the other."""
    made = []
    for t, data in with_data():
        for work in works:
            for n in WORKS[work][1]:
                settings = {**t.settings, "told": False, "model": t.model, "data": data, "workers": n, "blas": providers()[0]}
                settings = copied(settings) if work == "copies" else {**settings, "work": work}
                name = f"{t.name}, {WORKS[work][0]}{f', {n} workers' if n > 1 else ''}"
                for side, folder in (("base", source), ("here", ROOT)):
                    made.append(Contender(f"{side}: {name}", Ours, {**settings, "source": str(folder)}, n))
    return made


def ratios(c: Comparison) -> list[list[str]]:
    """Return a row for each pair: medians of both sides, and their ratio within rounds (for one worker by processor time as well)."""
    rows = []
    for f in c.figures:
        name = f.name.removeprefix("here: ")
        if name == f.name:
            continue
        base = c.of(f"base: {name}")
        failed = base.failed or f.failed
        if failed or not f.windows or not base.windows:
            rows.append([name, "-", "-", "-", f"{'base: ' * bool(base.failed)}{failed}", ""])
            continue
        ratio = c.ratio(f.name, base.name)
        thrift = c.ratio(f.name, base.name, thrift=True) if f.threads == 1 else None
        rows.append([
            name, number(base.median), number(f.median), f"{ratio[0]:.3f}x", span(*ratio[1:]),
            "" if thrift is None else f"{thrift[0]:.3f}x ({span(*thrift[1:])})",
        ])  # fmt: skip
    return rows


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("base", metavar="BASE", help="a commit, a branch or a tag")
    p.add_argument("--work", default="train,infer,stream", help=f"some of {', '.join(WORKS)}, separated by commas")
    a = p.parse_args(argv)
    works = [w.strip() for w in a.work.split(",") if w.strip()]
    unknown = [w for w in works if w not in WORKS]
    if unknown:
        p.error(f"there is no work {', '.join(unknown)}; there are {', '.join(WORKS)}")
    if a.write:
        p.error("a comparison of commits isn't written into the documents; what it measured is kept under runs/bench/results")
    with checked_out(a.base) as (name, folder):
        them: list[Any] = wanted(contenders(works, folder), a.only)
        c = compare(f"{commit()} against {name}", "instances/s", them, **lengths(a, 0.5, 5))
    heads = ("", f"base {name}", f"here {commit()}", "here to base", "lowest–highest", "by processor time")
    publish("against", [], tables=[Table(f"{commit()} against {name}, instances/s", heads, ratios(c))], facts={"base": name})
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
