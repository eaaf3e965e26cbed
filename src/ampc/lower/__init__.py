"""From a syntax tree to the paper's graph: parameters become numbers, functions are expanded, shapes inferred, states and keys derived.

The result keeps all that the program says, used or not; `ampc.passes` takes away what nothing reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from ampc.diagnostics import AmpError, Diagnostic
from ampc.frontend import ast
from ampc.ir.graph import Graph
from ampc.ir.nodes import Source
from ampc.ir.rules_bounds import beyond
from ampc.ir.rules_structure import origin_label
from ampc.lower import statements
from ampc.lower.constants import Number
from ampc.lower.context import Frame, Lowering, Stop
from ampc.lower.declare import Declarations, axes, parameters
from ampc.lower.scope import UNIT, Scope
from ampc.lower.values import Value


def lower(model: ast.Model, overrides: Mapping[str, Number] | None = None) -> Graph:
    """Return the graph of a checked program, with `overrides` for its parameters.

    Raises AmpError with every mistake found: wrong parameters first, then all shapes that don't fit.
    """
    constants, wrong = parameters(model, overrides or {})
    if wrong:
        raise AmpError(wrong)
    low = Lowering(model, constants, axes(model), {}, {}, {}, {f.name: f for f in model.functions})
    declared = Declarations(low)
    low.fields = declared.fields()
    low.layers, low.arrays = declared.layers()
    train = declared.train()
    low.raise_all()
    root = Scope(low.net, 0)
    source = low.net.add(Source, outputs=(UNIT,), origin=(str(model.span),), name="instance")
    root.source = Value(root, (source, 0), UNIT, model.span)
    frame = Frame(root)
    statements.block(low, frame, model.body)
    low.raise_all()
    _predictions(low)
    low.raise_all()
    numbers = {name: c.value for name, c in constants.items()}
    graph = low.net.finish(
        model.name, tuple(low.axes.values()), tuple(low.fields.values()), tuple(low.arrays.values()), train=train, parameters=numbers
    )
    help = "an integer is below the columns of its `argmax`, or 0 or 1 where it is a comparison: declare as many rows or columns"
    wrong = [Diagnostic("AMP262", reason, origin_label(node.origin), help=help) for node, reason in beyond(graph)]
    if wrong:
        raise AmpError(wrong)
    return graph


def _predictions(low: Lowering) -> None:
    """Without an `output` of its own, a model gives out what its losses judge, by name."""
    if low.outputs:
        return
    given: dict[str, set[tuple[int, int]]] = {}
    for value in low.predictions:
        refs = given.setdefault(value.name, set())
        if value.ref in refs:
            continue
        refs.add(value.ref)
        name = value.name if value.name not in low.outputs else f"{value.name}_{len(refs)}"
        try:
            statements.output(low, name, value)
        except Stop:
            continue


__all__ = ["lower"]
