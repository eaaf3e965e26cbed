"""A perceptron on MNIST (784-784-784-784-10, ReLU), batches of 100: PyTorch against ampc with groups of 100 and four groups in flight.

Both update after every 100 images. SGD and Adam, without clipping; PyTorch's optimisers in their fused form.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, data_folder, graph_of
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Steps, prepare, updater

BATCH = 100
RATES = {"sgd": 0.1, "adam": 0.001}


def rival(data: str, optimizer: str, threads: int) -> Steps:
    torch = prepare(threads)
    from torch import nn

    d = graph_of("mnist_mlp").read(data)
    order = np.random.default_rng(0).permutation(d.n)
    x, y = torch.from_numpy(d.columns["image"][order]), torch.from_numpy(d.columns["label"][order])
    net = nn.Sequential(*(m for _ in range(3) for m in (nn.Linear(784, 784), nn.ReLU())), nn.Linear(784, 10))
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    update = updater(kind(net.parameters(), lr=RATES[optimizer], fused=True))

    def step(b: tuple[object, object]) -> object:
        loss = nn.functional.cross_entropy(net(b[0]), b[1])
        loss.backward()
        return loss.detach()

    batches = list(zip(x.split(BATCH), y.split(BATCH), strict=True))
    return Steps(batches, [len(b[1]) for b in batches], step, update)


def contenders(data: str, active: int) -> list[Contender]:
    made: list[Contender] = []
    arguments: dict[str, Any]
    for optimizer, rate in RATES.items():
        for threads in (1, 2):
            arguments = {"data": data, "optimizer": optimizer, "threads": threads}
            made.append(Contender(f"torch {optimizer}, {threads} thread{'s' * (threads > 1)}", rival, arguments, threads))
        for workers in (1, 2):
            settings = {"max_active_keys": active, "group": BATCH, "min_update_frequency": BATCH}
            arguments = {"model": "mnist_mlp", "data": data, "workers": workers, **settings}
            arguments |= {"optimizer": optimizer, "learning_rate": rate, "clip_norm": 0.0}
            made.append(Contender(f"ampc {optimizer}, {workers} worker{'s' * (workers > 1)}", Ours, arguments, workers))
        twice = {**arguments, "overrides": {"copies": 2}}
        made.append(Contender(f"two copies of the layers, ampc {optimizer}, 2 workers", Ours, twice, 2))
    return made


def goals(c: Comparison) -> list[Goal]:
    """For each optimiser, the best of each side."""
    found = []
    for o in RATES:
        found.append(Goal(f"PyTorch with {o}", c.ratio(c.best(f"ampc {o}"), c.best(f"torch {o}")), 1))
        per_core = c.ratio(c.best(f"ampc {o}", "1 worker"), c.best(f"torch {o}", "1 thread"), thrift=True)
        found.append(Goal(f"the same with {o}, by processor time, one core", per_core, 1))
    return found


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--active", type=int, default=4, help="ampc's max_active_keys (groups)")
    a = p.parse_args(argv)
    data = str(data_folder("mnist"))
    c = compare("MNIST perceptron, batches of 100", "images/s", wanted(contenders(data, a.active), a.only), **lengths(a))
    publish("mnist", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
