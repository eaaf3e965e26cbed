"""Whether a placement fits the devices' memory, and if not: by how much, what is largest, and what would help."""

from __future__ import annotations

from ampc.diagnostics import AmpError, Diagnostic, printable
from ampc.place.loads import Loads
from ampc.place.problem import Choice, Problem
from ampc.place.units import in_flight

MOST_LISTED = 5


def check_memory(problem: Problem, choice: Choice) -> None:
    """Raise AMP513, a diagnostic for each device that has too little memory (the first few of many)."""
    used = Loads(problem, choice).memory
    full = [d for d in range(problem.n_devices) if used[d] > problem.capacity[d]]
    if not full:
        return
    found = []
    for d in full[:MOST_LISTED]:
        device = problem.target.devices[d]
        name = f"device `{printable(device.name)}` of target `{printable(problem.target.name)}`"
        message = (
            f"{name} has {device.memory_bytes:,} bytes, but what is placed there needs {used[d]:,}: {used[d] - device.memory_bytes:,} too many"
        )
        found.append(Diagnostic("AMP513", message, notes=_largest(problem, choice, d), help="; ".join(_remedies(problem))))
    if len(full) > MOST_LISTED:
        notes = (*found[-1].notes, f"{len(full) - MOST_LISTED} more devices have too little memory")
        found[-1] = Diagnostic("AMP513", found[-1].message, notes=notes, help=found[-1].help)
    raise AmpError(found)


def _largest(problem: Problem, choice: Choice, device: int) -> tuple[str, ...]:
    """Return a line for each of the largest units on a device."""
    there = sorted((u for u in problem.units if choice[u.id] == device), key=lambda u: (-u.memory_bytes, u.id))
    lines = []
    for unit in there[:MOST_LISTED]:
        if unit.layers:
            what = f"layer `{unit.layer}`" if len(unit.layers) == 1 else f"the {len(unit.layers)} layers from `{unit.layer}` on"
            lines.append(f"{what}: {unit.layer_bytes:,} bytes of weights, gradients and optimiser state, {unit.value_bytes:,} of values")
        elif unit.value_bytes:
            what = problem.graph.by_id[unit.nodes[0]].name or f"node {unit.nodes[0]}"
            lines.append(f"values without parameters (`{printable(what)}`): {unit.value_bytes:,} bytes")
    return tuple(lines)


def _remedies(problem: Problem) -> list[str]:
    """Return what would make the program fit, each checked with numbers; the last is what always helps."""
    remedies = []
    capacity = int(problem.capacity.min())
    enough = devices_needed([u.memory_bytes for u in problem.units], capacity)
    if enough is None:
        largest = max(problem.units, key=lambda u: (u.layer_bytes > capacity, u.memory_bytes))
        alone = f"`{largest.layer}` alone needs {largest.memory_bytes:,}" if largest.layer else f"values of one node take {largest.memory_bytes:,}"
        remedies.append(f"no number of devices of {capacity:,} bytes is enough, for {alone}")
        if len(largest.layers) == 1 and problem.graph.layer[largest.layer].form == "linear":
            parts = -(-largest.layer_bytes // max(1, capacity - min(capacity - 1, largest.value_bytes)))
            remedies.append(f"`columns = {max(2, parts)}` splits that layer over several devices")
    elif enough > problem.n_devices:
        remedies.append(f"{enough} devices like these would be enough")
    plain = [u.value_bytes + sum(8 * problem.cost.layers[n].parameters for n in u.layers) for u in problem.units]
    if sum(plain) < sum(u.memory_bytes for u in problem.units) and (devices_needed(plain, capacity) or problem.n_devices + 1) <= problem.n_devices:
        remedies.append("it fits with `optimizer = sgd` in the `train:` block, which keeps no state")
    keys = in_flight(problem.graph)
    fewer = keys // 2
    while fewer >= 1:
        less = [u.layer_bytes + u.value_bytes * fewer // keys for u in problem.units]
        if (devices_needed(less, capacity) or problem.n_devices + 1) <= problem.n_devices:
            remedies.append(f"it fits with {fewer} instances in flight (`max_active_keys`) instead of {keys}")
            break
        fewer //= 2
    return [*remedies, "a target with more memory or more devices (`--target`) or a smaller model (`--set`) helps in any case"]


def devices_needed(sizes: list[int], capacity: int) -> int | None:
    """Return how many devices of `capacity` bytes hold parts of these sizes, the largest placed first; None if one part alone is too large."""
    left: list[int] = []
    for size in sorted(sizes, reverse=True):
        if size > capacity:
            return None
        i = next((i for i, room in enumerate(left) if room >= size), -1)
        if i < 0:
            left.append(capacity - size)
        else:
            left[i] -= size
    return max(1, len(left))


__all__ = ["check_memory", "devices_needed"]
