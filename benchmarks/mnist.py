"""A perceptron on MNIST (784-784-784-784-10, ReLU), batches of 100: PyTorch and JAX against ampc with groups of 100 and four groups in flight.

All update after every 100 images. SGD and Adam, without clipping; PyTorch's optimisers in their fused form.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from benchmarks import jax_side
from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import copied, data_folder, graph_of, ours
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Calls, Steps, prepare, updater, words

BATCH = 100
RATES = {"sgd": 0.1, "adam": 0.001}
MODEL = "mnist_mlp"
SIZES = (784, 784, 784, 784, 10)
INSTANCES = 10_000
"""Images that all sides go through: what is copied for each contender stays small."""


def settings(optimizer: str) -> dict[str, Any]:
    return {
        "max_active_keys": 4, "group": BATCH, "min_update_frequency": BATCH, "optimizer": optimizer, "learning_rate": RATES[optimizer],
        "clip_norm": 0.0,
    }  # fmt: skip


SETTINGS = settings("sgd")


def folder() -> str:
    return str(data_folder("mnist"))


def images(data: str) -> tuple[Any, Any]:
    d = graph_of(MODEL).read(data)
    order = np.random.default_rng(0).permutation(d.n)[:INSTANCES]
    return d.columns["image"][order], d.columns["label"][order]


def rival(data: str, optimizer: str, threads: int, batch: int = BATCH, compiled: bool = False, infer: bool = False) -> Any:
    torch = prepare(threads)
    from torch import nn

    x, y = (torch.from_numpy(a) for a in images(data))
    net = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(784, 784), nn.ReLU())), nn.Linear(784, 10))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    update = updater(kind(net.parameters(), lr=RATES[optimizer], fused=True))
    forward = torch.compile(net) if compiled else net
    batches = list(zip(x.split(batch), y.split(batch), strict=True))
    sizes = [len(b[1]) for b in batches]
    if infer:
        return Calls(torch, batches, sizes, lambda b: forward(b[0]))

    def step(b: tuple[Any, Any]) -> Any:
        loss = nn.functional.cross_entropy(forward(b[0]), b[1])
        loss.backward()
        return loss.detach()

    return Steps(batches, sizes, step, update)


def jax_rival(data: str, optimizer: str) -> jax_side.JaxSteps:
    jax, jnp = jax_side.prepare()
    draw = np.random.default_rng(0)
    weights = [
        (jnp.asarray(draw.normal(size=(k, n)) * (2 / k) ** 0.5, jnp.float32), jnp.zeros(n)) for k, n in itertools.pairwise(SIZES)
    ]

    def loss(p: Any, b: Any) -> Any:
        h = b[0]
        for w, bias in p[:-1]:
            h = jax.nn.relu(h @ w + bias)
        scores = jax.nn.log_softmax(h @ p[-1][0] + p[-1][1])
        return -scores[jnp.arange(BATCH), b[1]].mean()

    x, y = images(data)
    batches = [(jnp.asarray(x[i : i + BATCH]), jnp.asarray(y[i : i + BATCH])) for i in range(0, len(x), BATCH)]
    return jax_side.JaxSteps(batches, [BATCH] * len(batches), weights, *getattr(jax_side, optimizer)(jax, jnp, loss, RATES[optimizer]))


def contenders(data: str) -> list[Contender]:
    made: list[Contender] = []
    for optimizer in RATES:
        for threads in (1, 2):
            arguments: dict[str, Any] = {"data": data, "optimizer": optimizer, "threads": threads}
            made.append(Contender(f"torch {optimizer}, {words(threads)}", rival, arguments, threads))
    arguments = {"data": data, "optimizer": "sgd", "threads": 2, "compiled": True}
    made.append(Contender("torch sgd, compiled, 2 threads", rival, arguments, 2))
    made.append(Contender("jax sgd, 1 thread", jax_rival, {"data": data, "optimizer": "sgd"}))
    for optimizer in RATES:
        given = {**settings(optimizer), "instances": INSTANCES}
        made += ours(MODEL, data, name=optimizer, settings=given, second=(1, 2))
        made += ours(MODEL, data, (2,), f"two copies, {optimizer}", settings=copied(given), second=(2,))
    return made


def goals(c: Comparison) -> list[Goal]:
    """For each optimiser, the best of each side."""
    found = []
    for o in RATES:
        mine = {n: c.best("ampc", f"{o}, {n}") for n in ("1 worker", "2 workers")}
        best = max((m for m in mine.values() if m), key=lambda m: c.of(m).median, default="")
        found.append(Goal(f"PyTorch with {o}", c.ratio(best, c.best(f"torch {o}")), 1))
        per_core = c.ratio(mine["1 worker"], c.best(f"torch {o}", "1 thread"), thrift=True)
        found.append(Goal(f"the same with {o}, by processor time, one core", per_core, 1))
        found.append(Goal(f"PyTorch with {o}, without MKL", c.ratio(c.best("ampc openblas", f"{o}, 2 workers"), c.best(f"torch {o}")), 1))
        found.append(Goal(f"two workers against one, {o}", c.ratio(mine["2 workers"], mine["1 worker"]), 1.8))
    return found


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    c = compare("MNIST perceptron, batches of 100", "images/s", wanted(contenders(folder()), a.only), **lengths(a))
    publish("mnist", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
