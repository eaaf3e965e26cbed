"""What the metrics of a program are called: by the name that they are given, else by their kind."""

from __future__ import annotations

from ampc.diagnostics import Span
from ampc.frontend import ast


def metrics(model: ast.Model) -> list[ast.Metric]:
    """Return the metrics of a program in order: those of its statements, then those of its functions."""
    bodies = [model.body, *(f.body for f in model.functions)]
    return [s for body in bodies for s in ast.walk(body) if isinstance(s, ast.Metric)]


def metric_names(model: ast.Model) -> dict[Span, str]:
    """Return the name of each metric by the place of its statement.

    Metrics without a name are called by their kind, with a number where there are several: `accuracy_0`, `accuracy_1`. A statement that is
    written out several times, in a function or a `branch ... as`, is one metric; and so are statements that are given one name.
    """
    found = metrics(model)
    out: dict[Span, str] = {}
    for kind in dict.fromkeys(s.call.function.id for s in found):
        plain = [s for s in found if not s.name and s.call.function.id == kind]
        out |= {s.span: kind if len(plain) == 1 else f"{kind}_{i}" for i, s in enumerate(plain)}
    return out | {s.span: s.name for s in found if s.name}
