"""What a session needs of an engine, so that it can drive any: the compiled one, or a small one in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ampc.codegen.plan import Plan
from ampc.data.dataset import Dataset
from ampc.runtime.events import Array, EpochResult, Progress
from ampc.runtime.options import EngineOptions
from ampc.runtime.trace import Trace

Order = npt.NDArray[np.int64]


class EngineLike(Protocol):
    """What a session needs of an engine."""

    compile_seconds: float
    learning_rate: float  # the base rate times the factor of a schedule
    trace: Trace | None  # of the last pass that was recorded
    plan: Plan
    blas: str  # name of the library that makes matrix products

    def bind(self, dataset: Dataset, train: bool = True) -> None: ...

    def run(
        self,
        dataset: Dataset,
        order: Order,
        *,
        train: bool,
        epoch: int = 0,
        outputs: bool = False,
        measured: bool = True,
        record: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> EpochResult: ...

    @property
    def parameters(self) -> dict[str, Array]: ...

    def set_parameters(self, parameters: dict[str, Array]) -> None: ...

    def optimizer_state(self) -> dict[str, Array]: ...

    def set_optimizer_state(self, state: dict[str, Array]) -> None: ...


EngineFactory = Callable[[EngineOptions, dict[str, Array] | None], EngineLike]
