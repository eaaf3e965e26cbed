"""What `make bench` is made of: contenders take turns, one's failure is a line, ratios stay within rounds, parts that aren't rerun are kept."""

from __future__ import annotations

import json
import math
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import against, report, scaling
from benchmarks.harness import Comparison, Contender, Figures, Window, compare
from benchmarks.ours import ROOT
from benchmarks.report import Goal, Table


class Counter:
    """A runner that counts `rate` a second, without measuring anything."""

    def __init__(self, rate: float) -> None:
        self.rate, self.note, self.facts = rate, "counted", {"rate": rate}

    def window(self, seconds: float) -> tuple[float, float]:
        time.sleep(0.001)
        return self.rate * seconds, seconds


def lacking() -> Counter:
    import a_rival_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401

    return Counter(0)


def broken() -> Counter:
    raise ValueError("no such form")


def test_contenders_take_turns_and_failures_are_lines() -> None:
    them = [
        Contender("ampc", Counter, {"rate": 300.0}), Contender("torch", Counter, {"rate": 100.0}), Contender("lacking", lacking),
        Contender("broken", broken), Contender("peak", Counter, {"rate": 1e6}, unit="GFLOP/s"),
    ]  # fmt: skip
    c = compare("a test", "instances/s", them, seconds=0.01, rounds=3)
    assert [len(f.windows) for f in c.figures] == [3, 3, 0, 0, 3]
    assert c.of("lacking").failed == "a_rival_that_is_not_installed isn't installed"
    assert c.of("broken").failed == "ValueError: no such form"
    assert c.ratio("ampc", "torch")[0] == pytest.approx(3) and c.of("ampc").facts == {"rate": 300.0}
    assert c.best("") == "ampc" and c.best("dynet") == ""  # what has a unit of its own is no contender
    lines = report.rows(c)
    assert lines[2][1] == "-" and lines[2][-1] == "a_rival_that_is_not_installed isn't installed" and lines[4][1] == "1,000,000 GFLOP/s"


def comparison(**rates: list[float]) -> Comparison:
    return Comparison("t", "instances/s", [Figures(name, 1, windows=[Window(r, 2 * r, 0.0) for r in them]) for name, them in rates.items()])


def test_ratios_are_of_the_same_round() -> None:
    c = comparison(here=[10.0, 200.0, 12.0], base=[5.0, 100.0, 4.0])
    assert c.ratio("here", "base") == (2.0, 2.0, 3.0)
    assert all(math.isnan(x) for x in c.ratio("here", "gone"))


def test_goals_are_honest() -> None:
    assert Goal("a", (2.0, 1.0, 3.0), 2).words()[-1] == "yes"
    assert Goal("a", (1.99, 1.0, 3.0), 2).words()[-1] == "**no**"
    assert Goal("a", (0.3, 0.1, 0.4), 0.2, most=True).words() == ["a", "0.3 x", "0.1–0.4", "≤ 0.2 x", "**no**"]


def test_parts_that_are_not_measured_again_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in (("JSON", "b.json"), ("MARKDOWN", "b.md")):
        monkeypatch.setattr(report, name, tmp_path / file)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    (tmp_path / "b.md").write_text(f"# Benchmarks\n\nwritten by hand\n\n{report.MARK}\n\nold")
    report.publish("tokens", [comparison(a=[1.0])], write=True)
    report.publish("mnist", [comparison(b=[2.0])], [Goal("b", (1.0, 1.0, 1.0), 1)], write=True, tables=[Table("More", ("", "x"), [["y", "1"]])])
    report.publish("tokens", [comparison(c=[3.0])], write=True)
    report.publish("babi", [comparison(d=[4.0])])  # only looked at
    text = (tmp_path / "b.md").read_text()
    assert text.startswith("# Benchmarks\n\nwritten by hand\n") and "old" not in text
    assert "| b | 2 |" in text and "| c | 3 |" in text and "| a | 1 |" not in text and "| d |" not in text and "## More" in text
    assert text.index("| b |") < text.index("| c |")  # in the order of the parts
    assert list(json.loads((tmp_path / "b.json").read_text())) == ["mnist", "tokens"]
    kept = [json.loads(p.read_text()) for p in (tmp_path / "results").iterdir() if p.name.startswith("babi")]
    assert kept[0]["comparisons"][0]["figures"][0]["windows"] == [{"rate": 4.0, "thrift": 8.0, "others": 0.0}]


def test_the_document_has_every_part_that_was_measured() -> None:
    """`docs/benchmarks.md` is made of `docs/benchmarks.json`."""
    entries = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").partition(report.MARK)[2]
    for entry in entries.values():
        assert all(f"## {t['title']}\n" in text for t in entry["tables"])
    assert set(entries) <= set(report.ORDER)


def test_exponents() -> None:
    sizes = (10, 100, 1000)
    assert scaling.slope(sizes, [1e-6 * s**1.2 for s in sizes]) == pytest.approx(1.2)
    c = comparison(**{str(s): [1 / s, 2 / s] for s in sizes})
    assert scaling.exponent(c, [str(s) for s in sizes], sizes) == pytest.approx((1.0, 1.0, 1.0))
    assert math.isnan(scaling.exponent(c, ["10", "gone"], (10, 20))[0])


@pytest.mark.parametrize("text", [scaling.CHAIN, scaling.GRAPH, scaling.deep(3)])
def test_programs_of_scaling_compile(text: str) -> None:
    import ampc

    assert ampc.compile(text).graph.layers


def test_data_of_scaling_fits_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ampc

    monkeypatch.setattr(scaling, "CACHE", tmp_path)
    monkeypatch.setattr(scaling, "ELEMENTS", 100)
    for name, text, size in (("chain", scaling.CHAIN, 10), ("graph", scaling.GRAPH, 20)):
        data = ampc.compile(text).read(scaling.written(name, size))
        assert data.n == max(4, 100 // size) and set(np.diff(data.axes[next(iter(data.axes))])) == {size}
    assert ampc.compile(scaling.deep(2)).read(scaling.written("deep", 0)).n == 4096


def test_commits_side_by_side() -> None:
    c = comparison(**{"base: a": [1.0, 2.0], "here: a": [3.0, 6.0], "base: b": [], "here: b": [1.0]})
    c.of("base: b").failed = "TypeError: an old engine"
    rows = against.ratios(c)
    assert rows[0][:5] == ["a", "1.5", "4.5", "3.000x", "3–3"] and rows[0][5] == "3.000x (3–3)"
    assert rows[1] == ["b", "-", "-", "-", "base: TypeError: an old engine", ""]


def test_a_base_is_checked_out_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> Any:
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.txt").write_text("old")
    git("add", "a.txt")
    git("commit", "-qm", "first")
    (tmp_path / "a.txt").write_text("new")
    git("commit", "-qam", "second")
    monkeypatch.setattr(against, "ROOT", tmp_path)
    monkeypatch.setattr(against, "CACHE", tmp_path / "runs" / "bench" / "data")
    with against.checked_out("HEAD~1") as (_, folder):
        assert (folder / "a.txt").read_text() == "old"
    assert not folder.exists() and (tmp_path / "a.txt").read_text() == "new"
    with pytest.raises(SystemExit, match="nowhere"), against.checked_out("nowhere"):
        pass
