"""What a pass gave, read from the tables that it left: loss, metrics, updates, staleness, outputs, instances in flight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ampc.codegen.layout import LAYER, H, L
from ampc.ir.nodes import Metric, Output
from ampc.ir.ops import metric_value
from ampc.runtime.binding import Binding
from ampc.runtime.events import Array, EpochResult
from ampc.runtime.footprint import Ints

UNWRITTEN = np.uint32(0x7FC0DEAD)
"""Bits (of a NaN) that no operation gives: an output's row that no message wrote."""


def result_of(b: Binding, O: Array, places: dict[int, tuple[int, int]], order: Ints, seconds: float, train: bool) -> EpochResult:
    """Return the result of the pass over `order` that has ended. O: outputs; places: where those of an Output node begin, and how many rows."""
    I, D, graph = b.I, b.D, b.graph
    done, total = int(I[H.DONE]), int(I[H.TOTAL])
    sums = D[: I[H.HYPER0]].reshape(b.workers, -1).sum(axis=0)
    judged = {n.id: sums[1 + 2 * k : 3 + 2 * k] for k, n in enumerate(n for n in graph.nodes if isinstance(n, Metric))}
    metrics = {name: metric_value(nodes[0].op, *sum(judged[n.id] for n in nodes)) for name, nodes in graph.metrics.items()}
    layers = b.plan.layers
    retired = I[I[H.ORDER0] + total : I[H.ORDER0] + 2 * total] == 1
    ran = I[I[H.ORDER0] : I[H.ORDER0] + total]
    predicted: dict[str, Sequence[Array]] = {}
    for node in graph.nodes:
        if isinstance(node, Output) and node.id in places and node.name not in predicted:
            start, rows = places[node.id]
            cols = graph.type_of(node.inputs[0]).cols
            table = O[start : start + rows * cols].reshape(rows, cols)
            predicted[node.name] = _by_instance(table, *b.output_spans(node, order))
    return EpochResult(
        instances=done,
        seconds=seconds,
        loss=float(sums[0] / done) if done else 0.0,
        metrics=metrics,
        updates=dict(zip(layers, layer_records(b)[:, L.UPDATES].tolist(), strict=True)) if train else {},
        staleness=dict(zip(layers, _trimmed(b.staleness), strict=True)) if train else {},
        outputs=predicted,
        interrupted=done < total,
        instances_done=None if done == total else ran[retired].copy(),
        in_flight=b.in_flight(ran[: int(I[H.ADMITTED])]),
    )


def layer_records(b: Binding) -> Ints:
    """Return the layers' records, a view: int64 [layers, LAYER]."""
    records: Ints = b.I[b.I[H.LAYER0] : b.I[H.LAYER0] + len(b.plan.layers) * LAYER].reshape(-1, LAYER)
    return records


def _by_instance(table: Array, starts: Ints, stops: Ints) -> Sequence[Array]:
    """Return the written rows of each span of an output's rows: all but those of turns after a loop's exit and of branches not taken.

    Where each has one row, that is one array [instances, 1, columns]: no object is made for an instance that nobody looks at.
    """
    written = table[:, 0].view(np.uint32) != UNWRITTEN
    missing = np.concatenate([[0], np.cumsum(~written)])
    whole = missing[stops] == missing[starts]
    if whole.all() and (stops - starts == 1).all():
        one: Array = table[starts][:, None]
        return one  # type: ignore[return-value]  # it is a sequence of arrays
    return [table[a:b] if all_of else table[a:b][written[a:b]] for a, b, all_of in zip(starts.tolist(), stops.tolist(), whole.tolist(), strict=True)]


def _trimmed(histograms: Ints) -> list[list[int]]:
    """Return each row up to its last bin that is not empty."""
    bins = np.arange(1, histograms.shape[1] + 1)
    lengths = np.where(histograms > 0, bins, 0).max(axis=1, initial=0).tolist()
    most = max(lengths, default=0)
    return [row[:length] for row, length in zip(histograms[:, :most].tolist(), lengths, strict=True)]


__all__ = ["UNWRITTEN", "layer_records", "result_of"]
