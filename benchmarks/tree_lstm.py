"""A binary Tree-LSTM on the sentiment treebank: PyTorch by tree and by levels of 25 and 100 trees, against ampc without batching.

Hidden 256, embedding 128, five classes at every node, Adam (sparse for the embedding), no dropout. Levels: all nodes of one height of all trees
of a batch in one product, which is the best that batching by hand or a batching library reaches.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import Ours, data_folder, graph_of
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Steps, prepare, updater

HIDDEN, WIDTH, CLASSES = 256, 128, 5
TREES = 2000
UPDATE = 50
"""ampc's layers and the one-tree loop update after so many trees; the batches of the level form after each batch."""

Tree = tuple[Any, Any, Any, Any]
"""word, left, right (-1: none) and label of the nodes, children before parents."""


def trees(data: str) -> tuple[list[Tree], int]:
    program = graph_of("sentiment_tree_lstm")
    d = program.read(data)
    at = d.axes["node"]
    chosen = np.random.default_rng(0).permutation(d.n)[:TREES]
    words = next(f.below for f in program.graph.fields if f.name == "word")
    return [_sorted(*(d.columns[f][at[i] : at[i + 1]] for f in ("word", "left", "right", "label"))) for i in chosen], words


def _sorted(word: Any, left: Any, right: Any, label: Any) -> Tree:
    """Renumber the nodes by height, so that children come first whatever the file's order."""
    height = _heights(left, right)
    order = np.argsort(height, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    left, right = (np.where(x < 0, -1, place[x]) for x in (left, right))
    return word[order], left[order], right[order], label[order]


def _heights(left: Any, right: Any) -> Any:
    height = np.zeros(len(left), np.int64)
    for _ in range(len(left)):
        new = np.where(left < 0, 0, 1 + np.maximum(height[left], height[right]))
        if (new == height).all():
            break
        height = new
    return height


def by_node(torch: Any, tree: Tree) -> tuple[Any, ...]:
    """(words of the leaves, children of the inner nodes, labels): leaves first, as `_sorted` puts them."""
    word, left, right, label = tree
    leaves = int((left < 0).sum())
    return torch.tensor(word[:leaves]), list(zip(left[leaves:].tolist(), right[leaves:].tolist(), strict=True)), torch.tensor(label)


def by_level(torch: Any, part: list[Tree]) -> tuple[Any, ...]:
    """(words of all leaves; per level the rows of left, right and of those that still wait for a parent; labels in order of levels)."""
    shift = np.cumsum([0, *(len(t[0]) for t in part)])
    word, label = (np.concatenate([t[k] for t in part]) for k in (0, 3))
    left, right = (np.concatenate([np.where(t[k] < 0, -1, t[k] + s) for t, s in zip(part, shift, strict=False)]) for k in (1, 2))
    height = np.concatenate([_heights(t[1], t[2]) for t in part])
    alive = np.flatnonzero(height == 0)
    words, labels, plan = torch.tensor(word[alive]), [label[alive]], []
    for level in range(1, int(height.max()) + 1):
        now = np.flatnonzero(height == level)
        row = np.full(len(word), -1)
        row[alive] = np.arange(len(alive))
        taken = np.zeros(len(word), bool)
        taken[left[now]] = taken[right[now]] = True
        kept = alive[~taken[alive]]
        plan.append(tuple(torch.tensor(row[x]) for x in (left[now], right[now], kept)))
        labels.append(label[now])
        alive = np.concatenate([now, kept])
    return words, plan, torch.tensor(np.concatenate(labels))


class Net:
    """The cells, as functions of rows."""

    def __init__(self, torch: Any, words: int) -> None:
        nn = torch.nn
        self.torch = torch
        self.embed = nn.Embedding(words, WIDTH, sparse=True)
        self.leaves, self.joins, self.head = nn.Linear(WIDTH, 3 * HIDDEN), nn.Linear(2 * HIDDEN, 5 * HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def leaf(self, words: Any) -> tuple[Any, Any]:
        t = self.torch
        i, o, u = self.leaves(self.embed(words)).chunk(3, 1)
        c = t.sigmoid(i) * t.tanh(u)
        return t.sigmoid(o) * t.tanh(c), c

    def join(self, hl: Any, hr: Any, cl: Any, cr: Any) -> tuple[Any, Any]:
        t = self.torch
        g = self.joins(t.cat([hl, hr], 1))
        i, fl, fr, o = t.sigmoid(g[:, : 4 * HIDDEN]).chunk(4, 1)
        c = i * t.tanh(g[:, 4 * HIDDEN :]) + fl * cl + fr * cr
        return o * t.tanh(c), c

    def nodes(self, words: Any, children: list[tuple[int, int]]) -> Any:
        h, c = self.leaf(words)
        hs, cs = list(h.split(1)), list(c.split(1))
        for left, right in children:
            hn, cn = self.join(hs[left], hs[right], cs[left], cs[right])
            hs.append(hn)
            cs.append(cn)
        return self.head(self.torch.cat(hs))

    def levels(self, words: Any, plan: list[tuple[Any, Any, Any]]) -> Any:
        cat = self.torch.cat
        h, c = self.leaf(words)
        seen = [h]
        for left, right, kept in plan:
            hn, cn = self.join(*(x.index_select(0, rows) for x in (h, c) for rows in (left, right)))
            seen.append(hn)
            h, c = (cat([hn, h.index_select(0, kept)]), cat([cn, c.index_select(0, kept)])) if len(kept) else (hn, cn)
        return self.head(cat(seen))


def rival(data: str, batch: int, threads: int) -> Steps:
    """`batch` trees at a time by levels; 0 is one tree, node by node."""
    torch = prepare(threads)
    them, words = trees(data)
    net = Net(torch, words)
    size, every = max(1, batch), UPDATE if batch == 0 else 1
    if batch == 0:
        batches = [by_node(torch, t) for t in them[:500]]
    else:
        batches = [by_level(torch, them[i : i + batch]) for i in range(0, len(them) - batch + 1, batch)]
    forward = net.nodes if batch == 0 else net.levels
    dense = [p for layer in (net.leaves, net.joins, net.head) for p in layer.parameters()]
    update = updater(torch.optim.Adam(dense, lr=1e-3, fused=True), torch.optim.SparseAdam(list(net.embed.parameters()), lr=1e-3))

    def step(b: tuple[Any, ...]) -> Any:
        loss = torch.nn.functional.cross_entropy(forward(b[0], b[1]), b[2], reduction="sum") / size
        (loss / every).backward()
        return loss.detach()

    return Steps(batches, [size] * len(batches), step, update, every)


def contenders(data: str, active: int) -> list[Contender]:
    made = []
    for threads in (1, 2):
        for batch in (0, 25, 100):
            words = f"{f'{batch} trees by levels' if batch else 'one tree'}, {threads} thread{'s' * (threads > 1)}"
            made.append(Contender(f"torch {words}", rival, {"data": data, "batch": batch, "threads": threads}, threads))
    for workers in (1, 2):
        settings = {"workers": workers, "max_active_keys": active, "min_update_frequency": UPDATE, "clip_norm": 0.0}
        arguments = {"model": "sentiment_tree_lstm", "data": data, "overrides": {"rate": 0.0}, "instances": TREES, **settings}
        made.append(Contender(f"ampc, {workers} worker{'s' * (workers > 1)}", Ours, arguments, workers))
    twice = {**arguments, "overrides": {"rate": 0.0, "copies": 2}, "max_active_keys": 2 * active}  # as many for each copy
    made.append(Contender("ampc, two copies of the layers, 2 workers", Ours, twice, 2))
    return made


def goals(c: Comparison) -> list[Goal]:
    ours = c.best("ampc")
    return [
        Goal("PyTorch's one-tree loop", c.ratio(ours, c.best("torch one tree")), 10),
        Goal("PyTorch, 25 trees by levels", c.ratio(ours, c.best("torch 25")), 1),
        Goal("PyTorch, 100 trees by levels", c.ratio(ours, c.best("torch 100")), 1),
        Goal("the same, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("torch 100", "1 thread"), thrift=True), 1),
    ]


def main(argv: list[str] | None = None) -> list[Comparison]:
    p = options(__doc__)
    p.add_argument("--active", type=int, default=128, help="ampc's max_active_keys")
    a = p.parse_args(argv)
    data = str(data_folder("sst"))
    c = compare("Binary Tree-LSTM on the sentiment treebank, hidden 256", "trees/s", wanted(contenders(data, a.active), a.only), **lengths(a))
    publish("tree_lstm", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
