"""What `ampc compile` did, step by step: stages, passes with their nodes before and after, kernels compiled and found; as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ampc.diagnostics import printable

if TYPE_CHECKING:
    from ampc.compiler import Compilation, Step
    from ampc.runtime.kernels import Loaded

FILE = "report/steps.json"


def report(done: Compilation, kernels: Loaded | None = None) -> dict[str, Any]:
    """Return the steps as `report/steps.json` holds them; `kernels`: of a run with the program's own settings, where they were made ready."""
    rows: list[dict[str, Any]] = [
        {"stage": s.stage, "name": s.name, "seconds": _rounded(s.seconds), "nodes_before": s.before, "nodes_after": s.after} for s in done.steps
    ]
    found: dict[str, Any] = {"steps": rows}
    if kernels is not None:
        found["kernels"] = {
            "seconds": _rounded(kernels.seconds), "functions": len(kernels.addresses), "shapes": kernels.shapes, "library": kernels.library,
            "cached": kernels.cached, "compiled": {name: _rounded(s) for name, s in kernels.compiled.items()},
        }  # fmt: skip
    return found


def table(done: Compilation, kernels: Loaded | None = None, *, detail: bool = False) -> list[str]:
    """Return a line for each stage; with `detail` one for each pass and each kernel that was compiled, too."""
    lines = [
        line("  " * (s.name != s.stage) + s.name, s.seconds, _nodes(s)) for s in done.steps if detail or s.name == s.stage
    ]  # fmt: skip
    if kernels is not None:
        words = f"{len(kernels.addresses)} functions of {kernels.shapes} shapes, {kernels.library} of the library; {len(kernels.compiled)} compiled"
        lines.append(line("kernels", kernels.seconds, f"{words}, {kernels.cached} from the cache"))
        if detail:
            slowest = sorted(kernels.compiled.items(), key=lambda item: -item[1])
            lines += [line(f"  {name}", seconds, "compiled") for name, seconds in slowest]
    return lines


def line(name: str, seconds: float, words: str = "") -> str:
    """Return a line of the table."""
    return f"{printable(name):14} {seconds:7.3f} s  {words}".rstrip()


def _nodes(step: Step) -> str:
    if step.after is None:
        return ""
    return f"{step.after} nodes" if step.before in (None, step.after) else f"{step.before} -> {step.after} nodes"


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


__all__ = ["FILE", "line", "report", "table"]
