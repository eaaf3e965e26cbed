"""Targets, statistics of the data, the cost model, and the choice of a device for every node."""

from ampc.place.assign import STRATEGIES, Placement, fastest, place, precision_of
from ampc.place.cost import Cost, LayerCost, NodeCost, estimate
from ampc.place.report import report as placement_report
from ampc.place.statistics import AxisStatistics, Statistics, guess, measure
from ampc.place.target import (
    Device, GivenLink, HostNetwork, Level, Links, Precision, Target, bundled_targets, load_target, parse_target, resized, this_machine, usable_cores,
)
from ampc.place.topology import Link, Network
from ampc.place.work import Term, terms

__all__ = [
    "STRATEGIES", "AxisStatistics", "Cost", "Device", "GivenLink", "HostNetwork", "LayerCost", "Level", "Link", "Links", "Network", "NodeCost",
    "Placement", "Precision", "Statistics", "Target", "Term", "bundled_targets", "estimate", "fastest", "guess", "load_target", "measure",
    "parse_target", "place", "placement_report", "precision_of", "resized", "terms", "this_machine", "usable_cores",
]
