"""Golden texts of what the compiler makes: manifests, placements and pictures of small programs. `make golden` rewrites them; read the diff."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ampc.cli.compile import compile_model, emitted
from ampc.view import dot

GOLDEN = Path(__file__).parent / "golden" / "compile"
MODELS = ("sequence", "steps")  # programs of their own: `models/` may change


@pytest.mark.parametrize("name", MODELS)
def test_golden_manifest(name: str, golden: Callable[[Path, str], None]) -> None:
    done = compile_model(str(GOLDEN / f"{name}.amp"), target="cpu-2", strategy="round_robin")
    golden(GOLDEN / f"{name}.manifest.json", emitted(done, "manifest"))


@pytest.mark.parametrize("strategy", ["balanced", "round_robin"])
@pytest.mark.parametrize("name", MODELS)
def test_golden_placement(name: str, strategy: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / f"{name}.{strategy}.placement", emitted(compile_model(str(GOLDEN / f"{name}.amp"), target="cpu-4", strategy=strategy), "placement"))


@pytest.mark.parametrize("detail", ["paper", "layers"])
def test_golden_picture(detail: str, golden: Callable[[Path, str], None]) -> None:
    m = compile_model(str(GOLDEN / "sequence.amp"), target="cpu-2", strategy="round_robin").manifest
    assert m is not None
    golden(GOLDEN / f"sequence.{detail}.dot", dot(m.graph, m.placement, m.target, detail))  # type: ignore[arg-type]  # both are details


def test_golden_syntax_tree(golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / "sequence.ast", emitted(compile_model(str(GOLDEN / "sequence.amp"), stop_after="parse"), "ast"))
