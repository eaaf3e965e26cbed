"""Fixtures of several modules of this folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ampc.manifest
from ampc.runtime.program import Program
from runtime.fake import FakeEngine
from runtime.small_run import MANIFEST, ROWS


@pytest.fixture
def small_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A place of its own with data, and the small engine in place of the compiled one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ampc.manifest, "load", lambda path: MANIFEST)
    monkeypatch.setattr(Program, "_real_engine", lambda self, o, p: FakeEngine(o, p))
    Path("data").mkdir()
    for split in ("train", "valid"):
        Path(f"data/{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
