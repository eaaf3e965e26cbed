"""Basic deduction (bAbI 15), a gated graph network of 5 columns on 8 nodes: next to no arithmetic, all overhead. PyTorch by instance and by union.

All have two rounds over two kinds of edges in both directions, and Adam. Updates are after 10 instances, but for PyTorch's batches of 100.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import copied, data_folder, graph_of, ours
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Calls, Steps, prepare, updater, words

HIDDEN, KINDS, NAMES, ROUNDS = 5, 2, 8, 2
UPDATE = 10
MODEL = "babi15_ggsnn"
SETTINGS: dict[str, Any] = {"max_active_keys": 64, "min_update_frequency": UPDATE, "told": True}

ELEMENTWISE = "element by element"
"""The graph as the AMPNet paper has it: a message for each node and edge, where the passes make one of a whole axis."""


def folder() -> str:
    return str(data_folder("babi15", fold=1, train=1000))


def union(torch: Any, d: Any, chosen: Any, names: int = NAMES) -> tuple[Any, ...]:
    """One graph of several instances: asked, cells (node, kind) that messages go to along and against the edges, their nodes, what is counted."""
    nodes, edges = d.axes["node"], d.axes["edge"]
    sizes = np.diff(nodes)[chosen]
    shift = np.cumsum(sizes) - sizes

    def joined(field: str, at: Any) -> Any:
        return np.concatenate([d.columns[field][at[i] : at[i + 1]] for i in chosen])

    moved = np.repeat(shift, np.diff(edges)[chosen])
    source, target = (joined(f, edges) + moved for f in ("source", "target"))
    kind, n = joined("kind", edges), int(sizes.sum())
    along, against = target * KINDS + kind, source * KINDS + kind
    counts = [np.bincount(c, minlength=n * KINDS).reshape(n, KINDS).astype(np.float32) for c in (along, against)]
    place = np.repeat(np.arange(len(chosen)), sizes) * names + joined("name", nodes)
    arrays = (joined("asked", nodes).reshape(-1, 1), source, target, along, against, *counts, place, d.columns["answer"][chosen])
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)


def rival(data: str, batch: int, threads: int, compiled: bool = False, infer: bool = False) -> Any:
    """PyTorch: the union of `batch` instances; messages by one product over summed sources, for each direction."""
    torch = prepare(threads)
    from torch import nn

    d = graph_of(MODEL).read(data)
    order = np.random.default_rng(0).permutation(d.n)[: 1000 if batch == 1 else None]
    batches = [union(torch, d, order[i : i + batch]) for i in range(0, len(order) - batch + 1, batch)]
    linear = {"gates": nn.Linear(3 * HIDDEN, 2 * HIDDEN), "news": nn.Linear(3 * HIDDEN, HIDDEN)}
    linear |= {"inner": nn.Linear(HIDDEN + 1, HIDDEN), "score": nn.Linear(HIDDEN, 1)}
    w = [nn.Parameter(torch.randn(KINDS * HIDDEN, HIDDEN) / HIDDEN**0.5) for _ in range(2)]
    bias = [nn.Parameter(torch.zeros(KINDS, HIDDEN)) for _ in range(2)]

    def forward(asked: Any, source: Any, target: Any, along: Any, against: Any, n_along: Any, n_against: Any, place: Any, answer: Any) -> Any:
        n = len(asked)
        h = torch.cat([asked, asked.new_zeros(n, HIDDEN - 1)], 1)
        fixed = [n_along @ bias[0], n_against @ bias[1]]
        for _ in range(ROUNDS):
            sums = []
            for k, (read, cell) in enumerate(((source, along), (target, against))):
                summed = asked.new_zeros(n * KINDS, HIDDEN).index_add(0, cell, h.index_select(0, read))
                sums.append(torch.addmm(fixed[k], summed.view(n, KINDS * HIDDEN), w[k]))
            g = torch.sigmoid(linear["gates"](torch.cat([*sums, h], 1)))
            z = g[:, :HIDDEN]
            h = (1 - z) * h + z * torch.tanh(linear["news"](torch.cat([*sums, g[:, HIDDEN:] * h], 1)))
        scores = linear["score"](torch.tanh(linear["inner"](torch.cat([h, asked], 1)))).squeeze(1)
        return asked.new_zeros(len(answer) * NAMES).index_add(0, place, scores).view(len(answer), NAMES)

    if compiled:
        forward = torch.compile(forward, dynamic=True)
    if infer:
        return Calls(torch, batches, [batch] * len(batches), lambda b: forward(*b))
    parameters = [*(q for m in linear.values() for q in m.parameters()), *w, *bias]
    every = max(1, UPDATE // batch)

    def step(b: tuple[Any, ...]) -> Any:
        loss = nn.functional.cross_entropy(forward(*b), b[-1])
        (loss / every if every > 1 else loss).backward()
        return loss.detach()

    return Steps(batches, [batch] * len(batches), step, updater(torch.optim.Adam(parameters, lr=0.005, fused=True)), every)


def contenders(data: str, compiled_too: bool = False) -> list[Contender]:
    made = []
    for batch, threads, compiled in ((1, 1, False), (10, 1, False), (100, 1, False), (100, 2, False), (100, 1, True)):
        if compiled and not compiled_too:
            continue
        name = f"torch {batch if batch > 1 else 'one'} instance{'s' * (batch > 1)}{', compiled' * compiled}, {words(threads)}"
        made.append(Contender(name, rival, {"data": data, "batch": batch, "threads": threads, "compiled": compiled}, threads))
    made += ours(MODEL, data, settings=SETTINGS)
    made += ours(MODEL, data, (2,), "two copies", settings=copied(SETTINGS))
    return made + ours(MODEL, data, (1,), ELEMENTWISE, settings={**SETTINGS, "left_out": ("bulk",)})


def goals(c: Comparison) -> list[Goal]:
    best = c.best("ampc")
    found = [
        Goal("PyTorch's one-instance loop", c.ratio(best, c.best("torch one")), 20),
        Goal("PyTorch's best form, batched by hand", c.ratio(best, c.best("torch")), 20),
    ]
    for what, name in (("", f"{c.best('ampc', '1 worker')}"), (", element by element", c.best("ampc", f"{ELEMENTWISE}, 1 worker"))):
        if name:
            f = c.of(name)
            tokens = f.facts.get("tokens", float("nan"))
            rates = [w.thrift * tokens / 1e6 for w in f.counted()]
            found.append(Goal(f"tokens of one core{what}", (f.thrift * tokens / 1e6, min(rates), max(rates)), 5, unit="M/s"))
    return found


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    title = "Deduction on graphs (bAbI 15), hidden 5"
    c = compare(title, "instances/s", wanted(contenders(folder(), a.compile), a.only), **lengths(a))
    publish("babi", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
