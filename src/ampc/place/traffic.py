"""Messages as the engine sends them: between nodes that compute. Cond, Phi, Isu, Bcast, Flatmap and Ungroup are ways, not stops.

A message between neighbours on one device is free: they fire back to back. Any other waits in a queue, and costs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ampc.ir.graph import Graph
from ampc.ir.nodes import NPT, PPT, AnyNode, Bcast, Concat, Flatmap, Group, Loss, Metric, Output, Phi, Ref, Source, Split, Ungroup
from ampc.place.cost import Cost

STOPS = (Source, PPT, NPT, Loss, Metric, Output, Concat, Split, Group)


class Route(msgspec.Struct, frozen=True):
    """`messages` an instance from `source` to `reader`, forward (as many come back), each of `size` bytes.

    `bursts`: how often some are sent; a Flatmap or Ungroup on the way sends many at once. `direct`: nothing but copying lies between, so that
    both may fire as one where they share a device.
    """

    source: int
    reader: int
    messages: float
    bursts: float
    size: float
    direct: bool


def is_stop(node: AnyNode) -> bool:
    """Whether messages wait at `node`, so that where it is placed matters."""
    return isinstance(node, STOPS)


def routes(graph: Graph, cost: Cost) -> list[Route]:
    """Return every way from a stop to the next, in the order of the readers."""
    out: list[Route] = []
    for node in graph.nodes:
        if not is_stop(node):
            continue
        bare = [ref for ref in node.inputs if graph.type_of(ref).cols == 0]
        for ref in node.inputs:
            if ref in bare and len(bare) < len(node.inputs) and not isinstance(node, Group):
                continue  # a trigger beside a payload of the same state is not sent
            size = cost.messages[ref][1]
            for source, messages, bursts, direct in _sources(graph, cost, ref):
                out.append(Route(source, node.id, messages, bursts, size, direct and not isinstance(node, Group | Source)))
    return out


def _sources(graph: Graph, cost: Cost, ref: Ref) -> Iterator[tuple[int, float, float, bool]]:
    """Yield (stop, messages, bursts, direct) for each stop whose messages arrive at `ref`; a Phi's are shared out by what each input brings."""
    whole = cost.messages[ref][0]
    stack: list[tuple[Ref, float, float, bool]] = [(ref, whole, whole, True)]
    seen: set[Ref] = set()
    while stack:
        at, messages, bursts, direct = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        node = graph.by_id[at[0]]
        if is_stop(node):
            yield node.id, messages, min(bursts, messages), direct and not isinstance(node, Source)
        elif isinstance(node, Phi):
            brought = [cost.messages[r][0] for r in node.inputs]
            share = 1 / (sum(brought) or 1.0)
            stack += [(r, messages * b * share, bursts * b * share, False) for r, b in zip(node.inputs, brought)]
        elif isinstance(node, Flatmap | Ungroup):
            made = cost.messages[at][0]
            narrowed = bursts * cost.messages[node.inputs[0]][0] / made if made else bursts
            stack.append((node.inputs[0], messages, narrowed, False))
        else:
            stack += [(r, messages, bursts, direct and isinstance(node, Bcast)) for r in node.inputs[:1]]


def ways(graph: Graph, device_of: dict[int, int]) -> dict[int, int]:
    """Return the device of every node that is no stop: its producer's, seen through other such nodes; the reader's behind the Source."""
    out: dict[int, int] = {}
    for node in graph.nodes:
        if is_stop(node):
            continue
        producer = _stop_before(graph, node)
        if isinstance(graph.by_id[producer], Source):
            producer = _stop_behind(graph, node, producer)
        out[node.id] = device_of[producer]
    return out


def _stop_before(graph: Graph, node: AnyNode) -> int:
    while not is_stop(node):
        node = graph.by_id[node.inputs[0][0]]
    return node.id


def _stop_behind(graph: Graph, node: AnyNode, otherwise: int) -> int:
    seen: set[int] = set()
    stack = [node]
    while stack:
        at = stack.pop()
        if is_stop(at):
            return at.id
        if at.id not in seen:
            seen.add(at.id)
            stack += [graph.by_id[graph.readers[at.id, p][0]] for p in reversed(range(len(at.outputs))) if (at.id, p) in graph.readers]
    return otherwise


__all__ = ["Route", "is_stop", "routes", "ways"]
