"""The event core against an independent model in SimPy: the same makespan and the same retirements on random networks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.simulate.cost_only import Settings, simulate
from ampc.simulate.flow import synthetic
from tests.simulate.networks import digest, target, varied
from tests.simulate.simpy_model import Model


def compare(form: Any, nodes: int, devices: int, topology: Any, instances: int, in_flight: int, seed: int) -> None:
    flow = varied(synthetic(form, nodes, devices, frequency=1e9), devices, seed)
    on = target(devices, topology=topology, bytes_per_s=120.0, latency_s=0.3)
    want = Model(flow, on, instances, in_flight)
    got = simulate(flow, on, np.zeros(instances, np.int64), Settings(max_active_keys=in_flight, events=10_000))
    # Sums of the same times in another order: a few units in the last place.
    assert got.totals.seconds == pytest.approx(want.makespan, rel=1e-12)
    assert got.trace is not None
    assert np.allclose(got.trace.retired_s, [want.retired[i] for i in range(instances)], rtol=1e-12)


@given(
    form=st.sampled_from(["chain", "tree"]), nodes=st.integers(1, 8), devices=st.integers(1, 5), topology=st.sampled_from(["full", "ring", "star"]),
    instances=st.integers(1, 10), in_flight=st.integers(1, 6), seed=st.integers(0, 1 << 20),
)  # fmt: skip
@settings(max_examples=60)
def test_the_makespan_is_that_of_a_model_in_simpy(
    form: Any, nodes: int, devices: int, topology: Any, instances: int, in_flight: int, seed: int
) -> None:
    compare(form, nodes, devices, topology, instances, in_flight, seed)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(20))
def test_compiled_loops_give_the_same(seed: int) -> None:
    compare(["chain", "tree"][seed % 2], 3 + seed, 2 + seed % 4, ["full", "ring", "star"][seed % 3], 20, 1 + seed % 6, seed)


@pytest.mark.long  # compiles the kernels of every model
@pytest.mark.compiled
def test_compiled_loops_give_the_same_as_plain_python_to_the_last_bit() -> None:
    root = Path(__file__).parents[2]
    folders = os.pathsep.join(str(root / x) for x in ("src", "tests", "."))
    command = [sys.executable, "-c", "from tests.simulate.networks import digest; print(digest())"]
    plain = subprocess.run(command, cwd=root, env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": folders}, capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.strip() == digest()
