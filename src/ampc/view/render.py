"""DOT to SVG or PNG: by `dot` where Graphviz is installed, else by graphviz-pure, a program that pip installs beside ampc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ampc.diagnostics import error, printable

FORMATS = ("svg", "png", "pdf")
PNG_DPI = "144"
TIMEOUT_S = 120


def renderer(format: str = "svg") -> str | None:
    """Return the path of the program that draws `format`, or None."""
    system = shutil.which("dot")
    if system is not None:
        return system
    if format == "pdf":  # graphviz-pure draws SVG and PNG alone
        return None
    folders = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent, Path(sysconfig.get_path("scripts", f"{os.name}_user"))]
    for folder in folders:
        program = folder / ("graphviz-pure.exe" if os.name == "nt" else "graphviz-pure")
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return shutil.which("graphviz-pure")


def render(dot: str, format: str) -> bytes:
    """Return the picture of `dot` as SVG or PNG.

    Raises AmpError AMP906 if no program is there that draws, AMP907 if the one that is there fails.
    """
    program = renderer(format)
    if program is None:
        raise error(
            "AMP906", f"drawing `.{format}` needs Graphviz, and neither `dot` nor `graphviz-pure` was found",
            help="install it (`pip install graphviz-pure`, or the system's `graphviz`), or write `-o graph.dot`, which needs neither",
        )
    command = [program, f"-T{format}"] + ([f"-Gdpi={PNG_DPI}"] if format == "png" else [])
    try:
        done = subprocess.run(command, input=dot.encode("utf-8"), capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise error("AMP907", f"`{printable(program)}` could not be run: {e}", help="write `-o graph.dot` and draw it elsewhere") from None
    if done.returncode != 0 or not done.stdout:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = printable(lines[0]) if lines else "it said nothing"
        name = printable(Path(program).name)
        raise error("AMP907", f"`{name}` failed to draw the graph: {said}", help="write `-o graph.dot` and draw it elsewhere")
    return done.stdout
