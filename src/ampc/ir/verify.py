"""Says whether a graph keeps the rules that the interpreter and the engine rely on. Run after every pass and on every manifest.

One rule a function, each with its own code. The first rule that is broken ends the search, since later rules assume earlier ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from ampc.diagnostics import AmpError
from ampc.ir import rules_bounds
from ampc.ir import rules_meaning as meaning
from ampc.ir import rules_structure as structure
from ampc.ir.graph import Graph

Rule = Callable[[Graph], structure.Wrongs]

RULES: tuple[Rule, ...] = (
    structure.limits,
    structure.declarations,
    structure.regions,
    structure.numbering,
    structure.wiring,
    structure.arity,
    structure.references,
    structure.tests,
    meaning.state_maps,
    meaning.input_regions,
    meaning.operations,
    meaning.types,
    rules_bounds.bounds,
    meaning.loops,
    meaning.cycles,
)
MOST = 20  # diagnostics that one run shows


def verify(graph: Graph) -> None:
    """Raise `AmpError` with codes AMP300 to AMP314 if the graph is not sound; the diagnostics name nodes and source places."""
    for rule in RULES:
        if wrong := list(itertools.islice(rule(graph), MOST)):
            raise AmpError(wrong)
