"""The meaning of a graph: an interpreter in plain numpy, one instance at a time.

It updates no parameters and is not fast. How messages move is in `messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ampc.ir.graph import Graph
from ampc.ir.messages import Run
from ampc.ir.op import Array
from ampc.ir.result import LossRecord, Result
from ampc.ir.state import Instance


class Interpreter:
    """Runs instances through a verified graph with fixed parameters ("layer.param" -> array), in `dtype` arithmetic.

    `schedule`: None delivers messages in the order they were sent, an integer in an order drawn with that seed (same result up to rounding).
    `seed` is that of dropout.
    """

    def __init__(
        self, graph: Graph, params: Mapping[str, Array], dtype: Any = np.float32, *, seed: int = 0, schedule: int | None = None,
    ) -> None:
        self.graph = graph
        self.params = {name: np.asarray(value, dtype) for name, value in params.items()}
        self.dtype = dtype
        self.seed = seed
        self.schedule = schedule

    def run(self, instance: Instance, train: bool = True) -> Result:
        """Return what the instance gives; without `train` no gradients are sent and dropout is the identity.

        Raises AMP390 if messages are left waiting for others that never come.
        """
        with np.errstate(all="ignore"):
            return Run(self.graph, self.params, self.dtype, instance, train, self.seed, self.schedule).finish()


__all__ = ["Interpreter", "LossRecord", "Result"]
