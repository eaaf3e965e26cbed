"""What running an instance gives: losses, metrics, outputs, gradients."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ampc.ir.op import Array
from ampc.ir.state import State


class LossRecord(NamedTuple):
    """One evaluation of a loss, times its weight."""

    node: int
    state: State
    value: float


@dataclasses.dataclass
class Result:
    """What an instance gave.

    `loss` is the sum of `losses`; `metrics`: name -> (sum, count); `outputs`: name -> (state, [rows, cols]) in order of state;
    `gradients`: "layer.param" -> sum over all its messages, for the layers that were reached; `rows`: layer -> rows of gradient that came.
    """

    loss: float = 0.0
    losses: list[LossRecord] = dataclasses.field(default_factory=list)
    metrics: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    outputs: dict[str, list[tuple[State, Array]]] = dataclasses.field(default_factory=dict)
    gradients: dict[str, Array] = dataclasses.field(default_factory=dict)
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    messages: int = 0
