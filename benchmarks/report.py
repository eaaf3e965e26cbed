"""Tables of comparisons: on the terminal, and on request in docs/benchmarks.md and docs/benchmarks.json.

The document is made from the JSON file alone, so a part can be measured again without the others.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import CORES, Comparison, number, span
from benchmarks.ours import ROOT

JSON = ROOT / "docs" / "benchmarks.json"
MARKDOWN = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "runs" / "bench" / "results"
ORDER = (
    "list_reduction", "mnist", "ggsnn", "tree_lstm", "babi", "workers", "inference", "latency", "roofline", "scaling", "memory", "startup", "tokens",
    "oversubscription",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio or cost against a bound: at least `bound`, or at most it where `most` is set."""

    what: str
    value: tuple[float, float, float]
    bound: float
    most: bool = False
    unit: str = "x"

    @property
    def reached(self) -> bool:
        return self.value[0] <= self.bound if self.most else self.value[0] >= self.bound

    def words(self) -> list[str]:
        sign = "≤" if self.most else "≥"
        reached = "yes" if self.reached else "**no**"
        return [self.what, f"{number(self.value[0])} {self.unit}", span(*self.value[1:]), f"{sign} {self.bound:g} {self.unit}", reached]


RIVALS = ("torch", "torch_geometric", "dyNET38", "jax")


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    return {
        "processor": processor(), "cores": CORES, "python": platform.python_version(), **{name: _version(name) for name in RIVALS},
        "numpy": _version("numpy"), "numba": _version("numba"), "mkl": _version("mkl"), "ampc_blas": _blas(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }  # fmt: skip


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def _blas() -> str:
    from benchmarks.ours import providers

    return " and ".join(f"{p} {_version('mkl')}" if p == "mkl" else "scipy's openblas" for p in providers())


# ------------------------------------------------------------------------------------------ rows


def rows(c: Comparison) -> list[list[str]]:
    out = []
    for f in c.figures:
        if f.failed or not f.windows:
            out.append([f.name, "-", "", "", "", f.failed])
            continue
        quiet = sum(f.quiet(w) for w in f.windows)
        unit = f" {f.unit}" if f.unit else ""
        out.append([f.name, number(f.median) + unit, span(*f.span), number(f.thrift), f"{quiet}/{len(f.windows)}", f.note])
    return out


def text_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return an aligned table for a terminal."""
    widths = [max(len(r[k]) for r in [list(heads), *map(list, body)]) for k in range(len(heads))]
    lines = ["  " + "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in [list(heads), *body]]
    return "\n".join([lines[0], "  " + "  ".join("-" * w for w in widths), *lines[1:]])


def markdown_table(heads: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    return "\n".join(["| " + " | ".join(r) + " |" for r in [list(heads), ["---"] * len(heads), *body]])


HEADS = ("", "median", "lowest–highest", "by processor time", "quiet windows", "")
GOALS = ("ampc against", "median", "lowest–highest", "goal", "reached")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of other columns than a comparison's."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    unit: str = ""

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "unit": self.unit, "heads": list(self.heads), "rows": [list(r) for r in self.rows]}


def publish(
    part: str, comparisons: Sequence[Comparison], goals: Sequence[Goal] = (), *, write: bool = False, words: str = "", tables: Sequence[Table] = (),
    facts: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Print the tables and keep every window under `runs/bench/results`; with `write` put the tables into the documents."""
    all_tables = [*(Table(c.title, HEADS, rows(c), c.unit) for c in comparisons), *tables]
    for t in all_tables:
        print(f"\n{t.title}{f' ({t.unit})' if t.unit else ''}\n" + text_table(t.heads, t.rows))
    goals = [g for g in goals if g.value[0] == g.value[0]]  # a contender may have been left out
    if goals:
        print("\n" + text_table(GOALS, [[w.replace("**", "") for w in g.words()] for g in goals]))
    print(f"\n  {processor()}, {CORES} cores, torch {_version('torch')}, ampc's BLAS: {_blas()}\n", flush=True)
    made = machine()
    raw = {
        "part": part, "commit": commit(), "machine": made, "facts": facts or {},
        "goals": [dataclasses.asdict(g) | {"reached": g.reached} for g in goals],
        "comparisons": [dataclasses.asdict(c) for c in comparisons], "tables": [t.data() for t in tables],
    }  # fmt: skip
    keep(part, raw)
    if write:
        entry = {"tables": [t.data() for t in all_tables], "goals": [g.words() for g in goals], "words": words, "machine": made, "facts": facts or {}}
        record(part, entry)


def keep(part: str, raw: dict[str, Any]) -> None:
    """Write what was measured into a file of its own, named by part, commit and time."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    _replace(RESULTS / f"{part}-{raw['commit']}-{stamp}.json", json.dumps(raw, indent=1, ensure_ascii=False) + "\n")


def commit() -> str:
    """Return the short name of the commit that is checked out, with a + if files were changed since; "unknown" outside of a repository."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def record(part: str, entry: dict[str, Any]) -> None:
    """Put one part into the JSON file and make the document anew."""
    known: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {}
    known[part] = entry
    ordered = {k: known[k] for k in sorted(known, key=lambda k: ORDER.index(k) if k in ORDER else len(ORDER))}
    _replace(JSON, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    old = MARKDOWN.read_text(encoding="utf-8") if MARKDOWN.exists() else "# Benchmarks\n"
    head = old.partition(MARK)[0].rstrip() + "\n\n"
    _replace(MARKDOWN, head + MARK + "\n\n" + "\n".join(_section(e) for e in ordered.values()))


MARK = "<!-- made by `make bench`: edit what is above -->"


def _section(entry: dict[str, Any]) -> str:
    lines = []
    for t in entry["tables"]:
        lines += [f"## {t['title']}", "", f"In {t['unit']}." if t["unit"] else "", "", markdown_table(t["heads"], t["rows"]), ""]
    if entry["goals"]:
        lines += [markdown_table(GOALS, entry["goals"]), ""]
    if entry["words"]:
        lines += [entry["words"], ""]
    m = entry["machine"]
    rivals = ", ".join(f"{name} {m[name]}" for name in RIVALS if m.get(name, "-") != "-")
    versions = f"Python {m['python']}, numba {m['numba']}, {rivals}, ampc's BLAS {m['ampc_blas']}"
    lines += [f"{m['date']}: {m['processor']}, {m['cores']} cores; {versions}.", ""]
    return "\n".join(lines)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


__all__ = ["Goal", "Table", "commit", "keep", "machine", "markdown_table", "publish", "record", "text_table"]
