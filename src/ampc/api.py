"""The public calls: `ampc.compile` and `ampc.load` give a `Program` with `.train`, `.evaluate`, `.predict`, `.load_weights`, `.save_weights`.

They are the calls that the command line makes. Mistakes raise `AmpError`; nothing is printed and no file is written unless a path was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ampc.diagnostics import AmpError
from ampc.runtime.program import Program
from ampc.runtime.summary import Summary

if TYPE_CHECKING:
    from ampc.manifest import Manifest
    from ampc.place import Target

MOST_COPIES = 16
"""Of a layer with `replicas="auto"`; there are never more than devices."""


def compile(
    path_or_text: str | Path, *, target: str | Path | Target | None = None, strategy: str = "balanced",
    overrides: Mapping[str, int | float | bool] | None = None, replicas: Literal["auto"] | Mapping[str, int] | None = None,
    **parameters: int | float | bool,
) -> Program:  # fmt: skip
    """Return the program in an `.amp` file, or in a text (one that has a line break), compiled for `target`.

    parameters: the model's own, as in `ampc.compile("models/list_reduction.amp", hidden=64)`; `overrides` takes those whose names are taken here.
    target: a bundled target's name, a `.toml` file or a Target; the default is one device for each usable core.
    replicas: copies of layers, by name as with the command line's `--replicas LAYER=N`; "auto" makes them where that is predicted to pay.
    Raises AmpError with every mistake that the first failing stage finds.
    """
    from ampc.compiler import compile_source
    from ampc.place import Target, load_target
    from ampc.source import read_source, remember

    values = {**parameters, **(overrides or {})}
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        source = remember("text.amp", path_or_text.encode(), "the text")
    else:
        source = read_source(path_or_text)
    hardware = target if isinstance(target, Target) or target is None else load_target(target)
    copies = MOST_COPIES if replicas == "auto" else 1
    asked = replicas if isinstance(replicas, Mapping) else None
    done = compile_source(source, target=hardware, overrides=values, strategy=strategy, copies=copies, replicas=asked)
    assert done.manifest is not None
    return Program(done.manifest)


def load(path: str | Path) -> Program:
    """Return the program of a `manifest.json`, or of the folder that holds one. Raises AmpError AMP601 to AMP611 if it isn't sound."""
    from ampc.manifest import load as load_manifest

    return Program(load_manifest(path))


def save(program: Program | Manifest, path: str | Path) -> None:
    """Write a program's manifest to the file `path` (weights: `Program.save_weights`)."""
    from ampc.manifest import save as save_manifest

    save_manifest(program.manifest if isinstance(program, Program) else program, path)


__all__ = ["AmpError", "Program", "Summary", "compile", "load", "save"]
