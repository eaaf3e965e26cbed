"""`ampc doctor`: what is installed here and what ampc would use: versions, cores, BLAS, caches, renderer, targets."""

from __future__ import annotations

import json
import os
import platform
from typing import Annotated, Any

import typer

from ampc.cli.errors import version

PACKAGES = ("numba", "numpy", "scipy", "pyarrow", "msgspec", "lark", "pydot", "typer", "safetensors")
EXTRAS = {"mkl": "mkl", "digits": "scikit-learn", "plots": "matplotlib", "torch": "torch"}


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command("doctor", epilog="Example: ampc doctor --json")(doctor_command)


def doctor_command(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Show what is installed and what a run would use."""
    facts = examine()
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        print(f"{name:14} {value}")


def examine() -> dict[str, Any]:
    """Return the facts, by name."""
    from ampc import place
    from ampc.source import bundled_models
    from ampc.view import renderer

    return {
        "ampc": version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "usable cores": place.usable_cores(),
        "memory bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "packages": {p: _version(p) for p in PACKAGES},
        "extras": {extra: _version(p) for extra, p in EXTRAS.items()},
        "BLAS": blas(),
        "bf16": half(),
        "kernel cache": cache_state(),
        "renderer": renderer("svg") or "none: `pip install graphviz-pure`",
        "default target": place.this_machine().name,
        "targets": place.bundled_targets(),
        "models": bundled_models(),
    }


def blas() -> str:
    """Return the BLAS library that a run would use, with its version."""
    from ampc.runtime.blas import choose  # loads the library, so that it can be asked
    from ampc.runtime.settings import JIT
    from threadpoolctl import threadpool_info

    if not JIT:
        return "numpy's, since kernels run as plain Python (NUMBA_DISABLE_JIT)"
    name, _ = choose()
    api, folder = ("mkl", "") if name == "mkl" else ("openblas", "scipy.libs")  # numpy brings an OpenBLAS of its own
    found = [i for i in threadpool_info() if i["internal_api"] == api and folder in i["filepath"]]
    return " ".join([name, *(str(i["version"]) for i in found if i.get("version"))])


def half() -> str:
    """Return whether `precision = bf16` is to be had: by which instructions, or why not."""
    from ampc.runtime.blas import half_instructions, half_lacks

    lacks = half_lacks()
    return f"yes, by {half_instructions()}-BF16" if lacks is None else f"no: {lacks[0]}; {lacks[1]}"


def cache_state() -> str:
    """Return where compiled kernels are kept, and whether that folder can be trusted."""
    from ampc.runtime.cache import root

    folder = root()
    try:
        state = folder.stat()
    except OSError:
        return f"{folder} (not made yet)"
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        return f"{folder} (refused: others can write it; `chmod go-w` it, or set AMPC_CACHE_DIR)"
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    return f"{folder} ({size / 1e6:.1f} MB; safe to delete)"


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


__all__ = ["blas", "cache_state", "examine", "half", "register"]
