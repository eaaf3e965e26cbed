"""Virtual time: how long a placed graph takes on a target that need not exist.

`core` holds the events and the links, `flow` the messages of instances, `cost_only` runs them without numerics, `estimate` is the formula
of the AMPNet paper. Whatever runs gives a `Trace`, the same as a measured run does.
"""
