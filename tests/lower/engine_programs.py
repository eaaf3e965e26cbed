"""Run by `test_engine`: small and random programs through the engine's generated text as plain Python, which needs no compilation.

Prints a line for each program whose gradients or loss differ from the interpreter's.
"""

from __future__ import annotations

import random
import traceback

import numpy as np

from ampc.ir.graph import Graph
from ampc.ir.init import initial_parameters
from ampc.passes import run_passes
from tests.generated import generate
from tests.programs import BODIES, dataset_of, lowered, numbers, random_instances, text
from tests.support import engine


def differs(graph: Graph, seed: int) -> str:
    """Return how the engine differs from the interpreter on some instances ("" if it doesn't)."""
    instances = random_instances(graph, 5, seed)
    expected = numbers(graph, initial_parameters(graph, 0), instances)
    if not abs(expected.loss) < 1e4:  # float32 has nothing to say about it
        return ""
    data = dataset_of(graph, instances)
    e = engine(graph, seed % 3 + 1, seed=0, max_active_keys=(1, 4, 64)[seed % 3], driver="step")
    found = e.gradients(data, np.random.default_rng(seed).permutation(data.n))
    for name, gradient in expected.gradients.items():
        error, scale = np.abs(found[name] - gradient).max(initial=0), max(1e-2, np.abs(gradient).max(initial=0))
        if not error <= 1e-3 * scale:  # float32 against float64, through loops
            return f"gradient of {name} is off by {error} of {scale}"
    loss = e.run(data, np.arange(data.n), train=False).loss
    return "" if abs(loss - expected.loss / data.n) <= 1e-4 * (1 + abs(loss)) else f"loss {loss}, expected {expected.loss / data.n}"


def main() -> None:
    programs = [(name, text(name)) for name in BODIES] + [(f"generated {seed}", generate(random.Random(seed))) for seed in range(12)]
    for number, (name, program) in enumerate(programs):
        graph = lowered(program)
        for form, made in (("lowered", graph), ("after passes", run_passes(graph))):
            try:
                wrong = differs(made, number)
            except Exception as problem:
                wrong = f"{type(problem).__name__}: {problem} at {traceback.extract_tb(problem.__traceback__)[-1].name}"
            if wrong:
                print(f"{name}, {form}: {wrong}", flush=True)


if __name__ == "__main__":
    main()
