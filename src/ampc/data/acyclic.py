"""Cycles among elements that wait for each other (`visit n in node after kid[n]`): found before a run, named node by node."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ampc.data.dataset import Dataset, Ints
from ampc.diagnostics import AmpError, Diagnostic

SHOWN = 12  # nodes of one cycle, and cycles in all


def check_acyclic(dataset: Dataset, axis: str, fields: Iterable[str]) -> None:
    """Raise AmpError (AMP817) naming each instance's elements of `axis` that lie on a cycle through the index fields `fields`.

    A field lies over `axis`, or over an axis nested in it (child lists). What merely waits for a cycle, or is waited for, is not named.
    """
    names = tuple(fields)
    waits, waited = _edges(dataset, axis, names)
    if not len(waits) or (waited < waits).all() or (waited > waits).all():
        return  # in order already, as most files are
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    total = int(dataset.axes[axis][-1])
    graph = coo_matrix((np.ones(len(waits), np.int8), (waits, waited)), shape=(total, total)).tocsr()
    count, component = connected_components(graph, directed=True, connection="strong")
    cyclic = np.bincount(component, minlength=count) > 1
    cyclic[component[waits[waits == waited]]] = True
    nodes = np.flatnonzero(cyclic[component])
    if len(nodes):
        raise AmpError(_diagnostics(dataset, axis, names, nodes, component[nodes]))


def _edges(dataset: Dataset, axis: str, names: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Return flat elements of `axis`: who waits, and for whom."""
    kinds = {f.name: f for f in dataset.fields}
    parents = {a.name: a.parent for a in dataset.axis_decls}
    waits, waited = [], []
    for name in names:
        values = dataset.columns[name]
        over = kinds[name].axis
        begin = np.repeat(dataset.axes[axis][:-1], np.diff(dataset.axes[over]) if over else 1)
        owner = np.arange(len(values), dtype=np.int64)
        while over != axis:
            owner = np.searchsorted(dataset.inner[over], owner, side="right") - 1
            over = parents[over]
        there = values >= 0
        waits.append(owner[there])
        waited.append((values + begin)[there])
    return np.concatenate(waits), np.concatenate(waited)


def _diagnostics(dataset: Dataset, axis: str, names: tuple[str, ...], nodes: Ints, component: Ints) -> list[Diagnostic]:
    order = np.lexsort((nodes, component))
    groups = np.split(nodes[order], np.flatnonzero(np.diff(component[order])) + 1)
    groups.sort(key=lambda g: int(g[0]))
    through = " and ".join(f"`{n}`" for n in names)
    out: list[Diagnostic] = []
    for group in groups[:SHOWN]:
        row = int(np.searchsorted(dataset.axes[axis], group[0], side="right")) - 1
        inside = [str(int(x) - int(dataset.axes[axis][row])) for x in group[:SHOWN]]
        more = f" and {len(group) - SHOWN} more" if len(group) > SHOWN else ""
        text = (
            f"element {inside[0]} of axis `{axis}` waits for itself"
            if len(group) == 1
            else f"elements {', '.join(inside)}{more} of axis `{axis}` wait for each other in a cycle"
        )
        note = (f"{len(groups) - SHOWN} more cycles",) if len(groups) > SHOWN and len(out) == SHOWN - 1 else ()
        out.append(
            Diagnostic(
                "AMP817",
                f"{dataset.where(row)}: {text} through {through}",
                notes=note,
                help="an element is visited after those it names, so no element may lead back to itself",
            )
        )
    return out


__all__ = ["check_acyclic"]
