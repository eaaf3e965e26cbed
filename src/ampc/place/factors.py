"""How much longer nodes really take than the cost model thinks: what the profile of an earlier run tells, applied to a cost.

A factor holds for a node, forward and backward, on whatever device: what a device does faster or slower than another is the target's to say.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ampc.place.cost import Cost, NodeCost

Factors = Mapping[int, tuple[float, float]]
"""Node id -> what its forward and its backward time is multiplied by; 1 for nodes that are not there."""
NONE: Factors = {}


def scaled(cost: Cost, factors: Factors) -> Cost:
    """Return `cost` with the work of each node multiplied, so that its time on any device is; no longer FLOPs that can be counted."""
    if not factors:
        return cost
    nodes = {i: _scaled(n, *factors[i]) if i in factors else n for i, n in cost.nodes.items()}
    return msgspec.structs.replace(cost, nodes=nodes)


def _scaled(node: NodeCost, forward: float, backward: float) -> NodeCost:
    return msgspec.structs.replace(
        node, fwd_matrix_flops=node.fwd_matrix_flops * forward, bwd_matrix_flops=node.bwd_matrix_flops * backward,
        fwd_vector_flops=node.fwd_vector_flops * forward, bwd_vector_flops=node.bwd_vector_flops * backward, fwd_bytes=node.fwd_bytes * forward,
        bwd_bytes=node.bwd_bytes * backward, product_flops=node.product_flops * (forward + 2 * backward) / 3,
        product_sides=node.product_sides * (forward + 2 * backward) / 3, product_calls=node.product_calls * (forward + 2 * backward) / 3,
        fwd_handled=node.fwd_handled * forward, bwd_handled=node.bwd_handled * backward,
    )  # fmt: skip


__all__ = ["NONE", "Factors", "scaled"]
