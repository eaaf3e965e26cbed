"""Passes: graph to graph, the same numbers before and after. Each graph is verified; a pass can be left out by its name."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from ampc.diagnostics import did_you_mean, error, printable
from ampc.ir.graph import Graph
from ampc.ir.verify import verify
from ampc.passes.bulk import bulk
from ampc.passes.drop_dead import drop_dead
from ampc.passes.hoist import hoist
from ampc.passes.part import part
from ampc.passes.peel import peel
from ampc.passes.replicate import replicate
from ampc.passes.rows_first import rows_first
from ampc.passes.share import share
from ampc.passes.simplify import simplify
from ampc.passes.split import split


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """`run` returns a graph that computes the same; `help` says in a sentence what becomes better."""

    name: str
    help: str
    run: Callable[[Graph], Graph]


PIPELINE: tuple[Pass, ...] = (
    Pass("drop-dead", "drop what no loss, metric or output needs", drop_dead),  # first: the others needn't look at it
    Pass("share", "compute equal things once", share),  # before simplify, whose rules ask for values with one reader
    Pass("simplify", "take out operations that do nothing, fold constants", simplify),
    Pass(
        "bulk", "compute whole axes at once: gather, matrix product over all rows, scatter", bulk
    ),  # after share and simplify: fewer values to follow
    Pass("part", "one Split instead of several slices", part),  # after the rest: slices of slices and of joins are gone by now
    Pass("rows-first", "multiply rows before they are gathered or repeated", rows_first),  # after bulk: it makes the gathers
    Pass("hoist", "multiply once what stays the same in all turns of a loop", hoist),  # after rows-first: what is gathered may stay the same
    Pass("peel", "take a loop's first turn out of it where that multiplies zeros", peel),  # after part: it slices what is a Split by then
    Pass("split", "split Linears with `columns` or `rows` into parts for different devices", split),  # before replicate, which copies parts
    Pass("replicate", "make the copies of layers with `replicas` real, each in an arm of its own", replicate),  # last: the arms differ in names alone
)


OnPass = Callable[[str, Graph, float], None]


def run_passes(graph: Graph, disable: Sequence[str] = (), on_pass: OnPass = lambda name, graph, seconds: None) -> Graph:
    """Return the graph after all passes but those in `disable` (`drop-dead` or `drop_dead`); each result is verified.

    on_pass: called with the name of each pass that ran, the graph it made and the seconds that it took, verification too.
    Raises AMP401 for an unknown name.
    """
    known = [p.name for p in PIPELINE]
    left_out = {name.replace("_", "-") for name in disable}
    for name in sorted(left_out - set(known)):
        raise error(
            "AMP401", f"there is no pass `{printable(name)}`", help=did_you_mean(name, known) or "passes are " + ", ".join(f"`{k}`" for k in known)
        )
    verify(graph)
    for p in PIPELINE:
        if p.name in left_out:
            continue
        began = time.perf_counter()
        made = p.run(graph)
        if made is not graph:
            verify(made)
        graph = made
        on_pass(p.name, graph, time.perf_counter() - began)
    return graph


__all__ = ["PIPELINE", "Pass", "run_passes"]
