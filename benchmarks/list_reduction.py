"""List reduction, a recurrent network of 128 columns: PyTorch one sequence at a time and bucketed by hand, against ampc without batching.

All update after 100 sequences, with Adam, without clipping. PyTorch's loop looks the input product up in a table (a third of the work of the
general form in ampc's program, which multiplies the embedding at every step).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, data_folder
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Steps, prepare, updater

HIDDEN, UPDATE = 128, 100


def sequences(data: str) -> list[tuple[Any, int]]:
    """Return (symbols, label) of every training sequence."""
    from benchmarks.ours import graph_of

    program = graph_of("list_reduction")
    d = program.read(data)
    at, symbol, label = d.axes["token"], d.columns["symbol"], d.columns["label"]
    return [(symbol[at[i] : at[i + 1]], int(label[i])) for i in range(d.n)]


def rival(data: str, batch: int, cell: str, threads: int) -> Steps:
    """PyTorch: `batch` sequences of one length at a time; `cell` is "loop" (addmm and relu a step) or "rnn" (nn.RNN)."""
    torch = prepare(threads)
    from torch import nn

    buckets: dict[int, list[tuple[Any, int]]] = {}
    for x, y in sequences(data)[: 20_000 if batch == 1 else None]:
        buckets.setdefault(len(x), []).append((x, y))
    batches = []
    for b in buckets.values():
        for i in range(0, len(b) - batch + 1, batch):
            part = b[i : i + batch]
            batches.append((torch.tensor(np.stack([x for x, _ in part]).T.copy()), torch.tensor([y for _, y in part])))
    order = np.random.default_rng(0).permutation(len(batches))
    batches = [batches[i] for i in order]
    embed, out = nn.Embedding(14, HIDDEN), nn.Linear(HIDDEN, 10)
    rnn = nn.RNN(HIDDEN, HIDDEN, nonlinearity="relu")
    w = nn.Parameter(torch.eye(HIDDEN) + 0.01 * torch.randn(HIDDEN, HIDDEN))
    parts = [*embed.parameters(), *out.parameters(), *(rnn.parameters() if cell == "rnn" else [w])]
    adam = torch.optim.Adam(parts, lr=1e-3, fused=True)
    every = UPDATE // batch

    def forward(x: Any) -> Any:
        e = embed(x)
        if cell == "rnn":
            return out(rnn(e)[1][0])
        h = None
        for column in e.unbind(0):
            h = torch.relu(column if h is None else torch.addmm(column, h, w))
        return out(h)

    def step(b: tuple[Any, Any]) -> Any:
        loss = nn.functional.cross_entropy(forward(b[0]), b[1])
        (loss / every if every > 1 else loss).backward()
        return loss.detach()

    return Steps(batches, [batch] * len(batches), step, updater(adam), every)


def contenders(data: str, active: int) -> list[Contender]:
    made = []
    for threads in (1, 2):
        for name, batch, cell in (("one sequence", 1, "loop"), ("100 by length, loop", 100, "loop"), ("100 by length, nn.RNN", 100, "rnn")):
            if batch == 1 and threads == 2:
                continue  # slower than with one
            arguments = {"data": data, "batch": batch, "cell": cell, "threads": threads}
            made.append(Contender(f"torch {name}, {threads} thread{'s' * (threads > 1)}", rival, arguments, threads))
    for workers in (1, 2):
        settings = {"workers": workers, "max_active_keys": active, "min_update_frequency": UPDATE, "clip_norm": 0.0}
        made.append(Contender(f"ampc, {workers} worker{'s' * (workers > 1)}", Ours, {"model": "list_reduction", "data": data, **settings}, workers))
    twice = {"model": "list_reduction", "data": data, "overrides": {"copies": 2}, **settings}
    made.append(Contender("two copies of a layer, ampc, 2 workers", Ours, twice, 2))
    return made


def goals(c: Comparison) -> list[Goal]:
    best = c.best("ampc")
    return [
        Goal("PyTorch's one-instance loop", c.ratio(best, c.best("torch one")), 20),
        Goal("PyTorch's best form, bucketed by hand", c.ratio(best, c.best("torch 100")), 1),
        Goal("the same, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("torch 100", "1 thread"), thrift=True), 1),
    ]


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--active", type=int, default=256, help="ampc's max_active_keys")
    a = p.parse_args(argv)
    data = str(data_folder("list_reduction"))
    c = compare("List reduction, hidden 128, an update every 100 sequences", "sequences/s", wanted(contenders(data, a.active), a.only), **lengths(a))
    publish("list_reduction", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
