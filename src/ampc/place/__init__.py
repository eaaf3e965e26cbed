"""Targets, statistics of the data, the cost model, and the choice of a device for every node."""

from ampc.place.assign import STRATEGIES, Placement, place
from ampc.place.cost import Cost, LayerCost, NodeCost, estimate
from ampc.place.statistics import AxisStatistics, Statistics, guess, measure
from ampc.place.target import Device, Links, Target, bundled_targets, load_target, parse_target, this_machine, usable_cores

__all__ = [
    "STRATEGIES", "AxisStatistics", "Cost", "Device", "LayerCost", "Links", "NodeCost", "Placement", "Statistics", "Target", "bundled_targets",
    "estimate", "guess", "load_target", "measure", "parse_target", "place", "this_machine", "usable_cores",
]
