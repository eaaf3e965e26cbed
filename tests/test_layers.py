"""Imports point down only: what each part of ampc may import of the others, as a table."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "ampc"

BASE = {"diagnostics", "explanation"}
ALLOWED: dict[str, set[str]] = {
    "diagnostics": set(),
    "explanation": set(),
    "source": BASE,
    "frontend": BASE | {"grammar"},
    "ir": BASE,
    "passes": BASE | {"ir"},
    "lower": BASE | {"frontend", "ir"},
    "place": BASE | {"ir"},
    "manifest": BASE | {"ir", "place"},
    "codegen": BASE | {"ir", "place", "manifest"},
    "data": BASE | {"ir"},
    "runtime": BASE | {"until", "manifest", "ir", "place", "codegen", "data"},
    "simulate": BASE | {"until", "manifest", "ir", "place", "codegen", "data", "runtime"},
    "until": BASE | {"ir"},
    "transform": BASE | {"ir", "passes", "place"},
    "compiler": BASE | {"transform", "until", "source", "frontend", "lower", "passes", "ir", "place", "manifest"},
    "view": BASE | {"ir", "place", "manifest", "data", "runtime"},
    "calibrate": BASE | {"source", "compiler", "manifest", "place", "codegen", "runtime"},
    "bench": BASE | {"manifest", "ir", "place", "codegen", "data", "runtime", "calibrate"},
    "artefact": BASE | {"compiler", "codegen", "view", "manifest", "ir", "place"},
    "api": BASE | {"source", "compiler", "manifest", "place", "runtime", "simulate"},
}
"""Part -> the parts that it may import beside itself. `cli`, `codes` and `ampc` itself may import everything."""

FREE = {"cli", "codes", "__init__", "__main__"}


def parts() -> set[str]:
    return {p.stem if p.is_file() else p.name for p in ROOT.iterdir() if (p.suffix == ".py" or (p / "__init__.py").exists()) and not p.is_symlink()}


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, part) for each import of another part of ampc, wherever it stands."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module="ampc", level=0, names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("ampc."):
                yield node.lineno, module.split(".")[1]
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.startswith("ampc."):
                        yield node.lineno, alias.name.split(".")[1]
            case ast.ImportFrom(level=level) if level > 0:
                yield node.lineno, "a relative import"
            case _:
                pass


def files(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py")) if (ROOT / part).is_dir() else [ROOT / f"{part}.py"]


def test_every_part_is_in_the_table() -> None:
    assert parts() - FREE == set(ALLOWED)


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_a_part_imports_only_what_lies_below_it(part: str) -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {other}"
        for file in files(part)
        for line, other in imports(file)
        if other not in ALLOWED[part] | {part}
    ]
    assert wrong == []


def test_nothing_runs_text_as_code_or_reads_pickles() -> None:
    """Files come from strangers: no `eval`, no pickle, no shell, one place that executes generated kernels."""
    banned = {"pickle", "marshal", "shelve", "cloudpickle", "yaml", "dill"}
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="eval" | "exec" | "__import__" as name)):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {name}")
                case ast.Import(names=names):
                    found += [f"{file.relative_to(ROOT)}:{node.lineno} imports {a.name}" for a in names if a.name.split(".")[0] in banned]
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] in banned:
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} imports {module}")
                case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} runs a shell")
                case _:
                    pass
    assert found == []
