"""The textual graph of some programs, as lowered and after all passes; `AMPC_UPDATE_GOLDEN=1` rewrites the expected files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs import lowered

from ampc.ir.text import from_text, to_text
from ampc.passes import run_passes

GOLDEN = Path(__file__).parent.parent / "golden" / "ir"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.amp")), ids=lambda p: p.stem)
def test_golden_graphs(path: Path) -> None:
    program = path.read_text(encoding="utf-8")
    flags = program.splitlines()[0].removeprefix("# ").split()
    overrides = {name: int(value) for name, _, value in (flag.partition("=") for flag in flags if flag != "--set")}
    graph = lowered(program, path.name, **overrides)
    for kind, made in (("lowered", graph), ("passes", run_passes(graph))):
        found = to_text(made)
        expected = path.with_suffix(f".{kind}.expect")
        if os.environ.get("AMPC_UPDATE_GOLDEN"):
            expected.write_text(found, encoding="utf-8")
        assert found == expected.read_text(encoding="utf-8"), f"{expected.name}: `make golden` rewrites it"
        assert from_text(found) == made
