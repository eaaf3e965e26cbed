"""The folder that `ampc compile` writes: manifest, kernels to read, picture, reports. Whole or not at all.

Only `manifest.json` is read again; `kernels.py` is for people, and a run never executes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from ampc import view
from ampc.compiler import Compilation
from ampc.diagnostics import AmpError, error, printable, write_remedy
from ampc.ir.graph import Graph
from ampc.manifest import FILE_NAME, FORMAT, Manifest, to_bytes
from ampc.place import Placement, estimate
from ampc.place.problem import rounded
from ampc.place.report import report

SUFFIX = ".ampx"


def write(done: Compilation, folder: str | Path | None = None, *, force: bool = False) -> Path:
    """Write a finished compilation into `folder` (default: the model's name with `.ampx`, here) and return it.

    A model that was compiled from a file of the same name is replaced, that of another file only with `force`; any other folder or file is left
    alone. Raises AmpError AMP920 (something else is there), AMP921 (exit code 4: the system refused).
    """
    manifest = done.manifest
    assert manifest is not None
    out = Path(folder) if folder is not None else Path(f"{manifest.name}{SUFFIX}")
    shown = printable(str(out))
    if out.exists() and not _ours(out):
        raise error("AMP920", f"`{shown}` is there already and holds no compiled model", help="give another folder with `-o`")
    other = [] if force else [name for name in _sources(out) if name not in manifest.sources]
    if other:
        raise error(
            "AMP920", f"`{shown}` holds a model that was compiled from another file, `{printable(other[0])}`",
            help="give another folder with `-o`, or replace it with `--force`",
        )  # fmt: skip
    temporary: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name[:80]}.", dir=out.parent))
        os.chmod(temporary, 0o755)
        for name, content in contents(done, manifest).items():
            file = temporary / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        _swap(temporary, out)
        return out
    except OSError as e:
        raise error("AMP921", f"`{shown}` cannot be written: {(e.strerror or str(e)).lower()}", help=write_remedy(out, e), exit_code=4) from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _ours(folder: Path) -> bool:
    """Whether what stands at `folder` may be replaced: an empty folder or a compiled model."""
    if not folder.is_dir():
        return False
    file = folder / FILE_NAME
    if file.is_file():
        with file.open("rb") as stream:
            return FORMAT.encode() in stream.read(200)
    return not any(folder.iterdir())


def _sources(folder: Path) -> list[str]:
    """Return the names of the files that the compiled model in `folder` comes from (none if there is none, or it can't be read)."""
    try:
        return list(msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=_Sources).sources)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return []


class _Sources(msgspec.Struct):
    """What of a manifest says where it comes from."""

    sources: dict[str, str] = {}


def _swap(temporary: Path, out: Path) -> None:
    """Put `temporary` in the place of `out`; the old folder is set aside first, since a folder that holds files can't be replaced."""
    if not out.exists():
        os.replace(temporary, out)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name[:80]}.old.", dir=out.parent))
    try:
        os.replace(out, aside / "old")
        os.replace(temporary, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def contents(done: Compilation, manifest: Manifest) -> dict[str, bytes]:
    """Return file name -> content of everything that goes into the folder. The picture is left out where nothing can draw it."""
    from ampc.codegen import generated, memory_report

    drawing = view.dot(manifest.graph, manifest.placement, manifest.target)
    program = generated(manifest.graph, manifest.placement)
    files = {
        FILE_NAME: to_bytes(manifest),
        "kernels.py": program.text.encode(),
        "graph.dot": drawing.encode(),
        "report/cost.json": _json(cost_report(manifest)),
        "report/placement.json": _json(placement_report(manifest.placement, manifest)),
        "report/memory.json": _json(memory_report(program, manifest.statistics)),
        "report/passes.json": _json(passes_report(done.graphs)),
    }
    if view.renderer("svg") is not None:
        try:
            files["graph.svg"] = view.render(drawing, "svg")
        except AmpError:
            pass  # the picture is an extra here: `ampc view` says what is wrong with the program that draws
    return files


def cost_report(manifest: Manifest) -> dict[str, Any]:
    """Return what an instance costs, by node and by layer, as `report/cost.json` holds it."""
    cost = estimate(manifest.graph, manifest.statistics, manifest.placement.precision)
    nodes = []
    for n in manifest.graph.nodes:
        title, below = view.describe(manifest.graph, n)
        c = cost.nodes[n.id]
        nodes.append({
            "id": n.id, "kind": type(n).__name__, "what": " ".join(x for x in (title, below) if x), "origin": list(n.origin),
            "fires": rounded(c.fires),
            "forward_flops": rounded(c.fwd_flops), "backward_flops": rounded(c.bwd_flops),
            "forward_bytes": rounded(c.fwd_bytes), "backward_bytes": rounded(c.bwd_bytes),
        })
    layers = {
        name: {"parameters": x.parameters, "memory_bytes": x.memory_bytes, "update_flops": rounded(x.update_flops)} for name, x in cost.layers.items()
    }
    return {
        "unit": "per instance, a mean over instances", "statistics": msgspec.to_builtins(manifest.statistics), "flops": rounded(cost.flops),
        "arena_bytes": rounded(cost.arena_bytes), "parameters": sum(x.parameters for x in cost.layers.values()), "layers": layers, "nodes": nodes,
    }


def placement_report(placement: Placement, manifest: Manifest) -> dict[str, Any]:
    """Return the placement by device and link, as `report/placement.json` holds it."""
    return report(manifest.graph, manifest.target, placement, manifest.statistics)


def passes_report(graphs: Any) -> dict[str, Any]:
    """Return how many nodes each pass left, as `report/passes.json` holds it."""
    rows, before = [], None
    for name, graph in graphs.items():
        assert isinstance(graph, Graph)
        rows.append({"name": name, "nodes": len(graph.nodes), "changed": before is None or graph is not before})
        before = graph
    return {"passes": rows}


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


__all__ = ["SUFFIX", "contents", "cost_report", "passes_report", "placement_report", "write"]
