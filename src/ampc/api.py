"""The public calls: `ampc.compile` and `ampc.load` give a `Program` with `.train`, `.evaluate`, `.predict`, `.load_weights`, `.save_weights`.

They are the calls that the command line makes. Mistakes raise `AmpError`; nothing is printed and no file is written unless a path was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ampc.diagnostics import AmpError
from ampc.runtime.program import Program
from ampc.runtime.summary import Summary

if TYPE_CHECKING:
    from ampc.manifest import Manifest
    from ampc.place import Target


def compile(
    path_or_text: str | Path, *, target: str | Path | Target | None = None, strategy: str = "balanced",
    overrides: Mapping[str, int | float | bool] | None = None, **parameters: int | float | bool,
) -> Program:  # fmt: skip
    """Return the program in an `.amp` file, or in a text (one that has a line break), compiled for `target`.

    parameters: the model's own, as in `ampc.compile("models/list_reduction.amp", hidden=64)`; `overrides` takes those whose names are taken here.
    target: a bundled target's name, a `.toml` file or a Target; the default is one device for each usable core.
    Raises AmpError with every mistake that the first failing stage finds.
    """
    from ampc.compiler import compile_file, compile_source
    from ampc.place import Target, load_target

    values = {**parameters, **(overrides or {})}
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        from ampc.source import remember

        hardware = target if isinstance(target, Target) or target is None else load_target(target)
        done = compile_source(remember("text.amp", path_or_text.encode(), "the text"), target=hardware, overrides=values, strategy=strategy)
        assert done.manifest is not None
        return Program(done.manifest)
    return Program(compile_file(path_or_text, target=target, overrides=values, strategy=strategy))


def load(path: str | Path) -> Program:
    """Return the program of a `manifest.json`, or of the folder that holds one. Raises AmpError AMP601 to AMP611 if it isn't sound."""
    from ampc.manifest import load as load_manifest

    return Program(load_manifest(path))


def save(program: Program | Manifest, path: str | Path) -> None:
    """Write a program's manifest to the file `path` (weights: `Program.save_weights`)."""
    from ampc.manifest import save as save_manifest

    save_manifest(program.manifest if isinstance(program, Program) else program, path)


__all__ = ["AmpError", "Program", "Summary", "compile", "load", "save"]
