"""The table of operations. One entry is all that the compiler, the interpreter and the code generator know of an operation."""

from __future__ import annotations

from ampc.ir.op import Op, RowIndex, Scope, Segments, ShapeError
from ampc.ir.ops_columns import COLUMNS, INTEGERS, RANDOM, SOURCES
from ampc.ir.ops_elementwise import BINARY, UNARY
from ampc.ir.ops_losses import LOSSES, METRICS
from ampc.ir.ops_parameter import PARAMETER
from ampc.ir.ops_rows import ROWS

OPS: dict[str, Op] = {op.name: op for op in (*UNARY, *BINARY, *COLUMNS, *ROWS, *PARAMETER, *SOURCES, *INTEGERS, *RANDOM, *LOSSES, *METRICS)}
"""Name -> operation, in the order of the documentation."""


def metric_value(op: str, total: float, count: float) -> float | None:
    """Return the metric from its summed pair; None if nothing was counted."""
    if count <= 0:
        return None
    mean = total / count
    return float(mean**0.5) if OPS[op].finish == "root" else float(mean)


__all__ = ["OPS", "Op", "RowIndex", "Scope", "Segments", "ShapeError", "metric_value"]
