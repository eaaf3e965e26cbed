"""The long forms of AMP55x: simulation in virtual time."""

from ampc.explanation import Explanation

CODES: dict[str, Explanation] = {
    "AMP550": Explanation(
        "there is no instance to simulate",
        "A simulation without numerics goes through what instances do, so it needs at least one.",
    ),
    "AMP551": Explanation(
        "a setting of a simulation makes no sense",
        "Instances in flight and in a batch are counted from 1; jitter, failures and repairs are not negative, and bounded.",
        "max_active_keys = 0",
        "max_active_keys = 32",
    ),
    "AMP552": Explanation(
        "what is in flight does not fit a device",
        "A device holds its layers (weights, gradients, the optimiser's state) and, of each instance in flight, the results that its nodes keep from "
        "forward to backward, their gradients, and what other devices sent. A simulation refuses more instances than the smallest device can hold.",
    ),
    "AMP553": Explanation(
        "the simulation does not fit this machine",
        "For each instance in flight the simulation keeps some words for every firing of the longest instance. Fewer in flight need less.",
    ),
    "AMP554": Explanation(
        "the paper's estimate does not apply",
        "The formula is for a gated graph network: a loop with a square matrix for each kind of edge and a cell that takes message and state. "
        "All its inputs are positive numbers.",
        "ampc simulate list_reduction.amp --estimate",
        "ampc simulate qm9_ggsnn.amp --estimate",
    ),
    "AMP559": Explanation(
        "internal fault of the simulator",
        "Instances are in flight and nothing is on its way any more, or a message goes between devices that were not thought to communicate. Neither "
        "can happen by a program, a target or a setting: please report it.",
    ),
}
