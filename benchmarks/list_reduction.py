"""List reduction, a recurrent network of 128 columns: PyTorch one sequence at a time and bucketed by hand, JAX, against ampc without batching.

All update after 100 sequences, with Adam, without clipping. PyTorch's loop looks the input product up in a table (a third of the work of the
general form in ampc's program, which multiplies the embedding at every step).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.jax_side import JaxSteps, adam
from benchmarks.jax_side import prepare as prepare_jax
from benchmarks.ours import copied, data_folder, graph_of, ours
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Calls, Steps, prepare, updater, words

HIDDEN, UPDATE = 128, 100
MODEL = "list_reduction"
SETTINGS: dict[str, Any] = {"max_active_keys": 256, "min_update_frequency": UPDATE, "clip_norm": 0.0}
COPIES: dict[str, Any] = copied(SETTINGS)


def folder() -> str:
    return str(data_folder("list_reduction"))


def sequences(data: str) -> list[tuple[Any, int]]:
    """Return (symbols, label) of every training sequence."""
    d = graph_of(MODEL).read(data)
    at, symbol, label = d.axes["token"], d.columns["symbol"], d.columns["label"]
    return [(symbol[at[i] : at[i + 1]], int(label[i])) for i in range(d.n)]


def buckets(data: str, batch: int) -> list[tuple[Any, Any]]:
    """Return batches of sequences of one length, in random order: (symbols [length, batch], labels [batch])."""
    by_length: dict[int, list[tuple[Any, int]]] = {}
    for x, y in sequences(data)[: 20_000 if batch == 1 else None]:
        by_length.setdefault(len(x), []).append((x, y))
    batches = []
    for b in by_length.values():
        for i in range(0, len(b) - batch + 1, batch):
            part = b[i : i + batch]
            batches.append((np.stack([x for x, _ in part]).T.copy(), np.array([y for _, y in part])))
    return [batches[i] for i in np.random.default_rng(0).permutation(len(batches))]


def rival(data: str, batch: int, cell: str, threads: int, compiled: bool = False, infer: bool = False) -> Any:
    """PyTorch: `batch` sequences of one length at a time; `cell` is "loop" (addmm and relu a step) or "rnn" (nn.RNN)."""
    torch = prepare(threads)
    from torch import nn

    batches = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in buckets(data, batch)]
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

    if compiled:
        torch._dynamo.config.recompile_limit = 64  # one form for each length
        forward = torch.compile(forward)
        for n in {len(x) for x, _ in batches}:
            forward(next(x for x, _ in batches if len(x) == n)).sum().backward()
    if infer:
        return Calls(torch, batches, [batch] * len(batches), lambda b: forward(b[0]))

    def step(b: tuple[Any, Any]) -> Any:
        loss = nn.functional.cross_entropy(forward(b[0]), b[1])
        (loss / every if every > 1 else loss).backward()
        return loss.detach()

    return Steps(batches, [batch] * len(batches), step, updater(adam), every)


def jax_rival(data: str, batch: int) -> JaxSteps:
    """JAX: the same loop as a scan, one step compiled for each length."""
    jax, jnp = prepare_jax()
    draw = np.random.default_rng(0)
    weights = {
        "embed": jnp.asarray(draw.normal(size=(14, HIDDEN)), jnp.float32), "w": jnp.eye(HIDDEN, dtype=jnp.float32),
        "out": jnp.asarray(0.05 * draw.normal(size=(HIDDEN, 10)), jnp.float32), "b": jnp.zeros(10),
    }  # fmt: skip

    def loss(p: Any, b: Any) -> Any:
        e = p["embed"][b[0]]
        h, _ = jax.lax.scan(lambda h, x: (jax.nn.relu(x + h @ p["w"]), None), jnp.zeros((batch, HIDDEN)), e)
        scores = jax.nn.log_softmax(h @ p["out"] + p["b"])
        return -scores[jnp.arange(batch), b[1]].mean()

    batches = [tuple(jnp.asarray(x) for x in b) for b in buckets(data, batch)]
    return JaxSteps(batches, [batch] * len(batches), weights, *adam(jax, jnp, loss, 1e-3))


def contenders(data: str, compiled_too: bool = False) -> list[Contender]:
    made = []
    for name, batch, cell, threads, compiled in (
        ("one sequence", 1, "loop", 1, False), ("100 by length, loop", 100, "loop", 1, False), ("100 by length, nn.RNN", 100, "rnn", 1, False),
        ("100 by length, loop, compiled", 100, "loop", 1, True), ("100 by length, loop", 100, "loop", 2, False),
    ):  # fmt: skip
        if compiled and not compiled_too:
            continue
        arguments = {"data": data, "batch": batch, "cell": cell, "threads": threads, "compiled": compiled}
        made.append(Contender(f"torch {name}, {words(threads)}", rival, arguments, threads))
    made.append(Contender("jax 100 by length, scan, 1 thread", jax_rival, {"data": data, "batch": 100}))
    return made + ours(MODEL, data, settings=SETTINGS, second=(1,)) + ours(MODEL, data, (2,), "two copies", settings=COPIES, second=(2,))


def goals(c: Comparison) -> list[Goal]:
    best = c.best("ampc")
    return [
        Goal("PyTorch's one-instance loop", c.ratio(best, c.best("torch one")), 60),
        Goal("PyTorch's best form, bucketed by hand", c.ratio(best, c.best("torch 100")), 2.5),
        Goal("the same, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("torch 100", "1 thread"), thrift=True), 2.5),
        Goal("the same without MKL", c.ratio(c.best("ampc openblas"), c.best("torch 100")), 2.5),
        Goal("two workers against one", c.ratio(c.best("ampc", "2 workers"), c.best("ampc", "1 worker")), 1.8),
    ]


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    title = "List reduction, hidden 128, an update every 100 sequences"
    c = compare(title, "sequences/s", wanted(contenders(folder(), a.compile), a.only), **lengths(a))
    publish("list_reduction", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
