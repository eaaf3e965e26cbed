"""A binary Tree-LSTM on the sentiment treebank: PyTorch by tree and by levels of 100 trees, DyNet's autobatching, against ampc without batching.

Hidden 256, embedding 128, five classes at every node, Adam (sparse for the embedding), no dropout. Levels: all nodes of one height of all trees
of a batch in one product, which is the best that batching by hand or a batching library reaches.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, compare, lengths, options, wanted
from benchmarks.ours import copied, data_folder, graph_of, ours
from benchmarks.report import Goal, publish
from benchmarks.torch_side import Calls, Steps, prepare, updater, words

HIDDEN, WIDTH, CLASSES = 256, 128, 5
TREES = 2000
UPDATE = 50
"""ampc's layers and the one-tree loop update after so many trees; the batches of the level form after each batch."""

MODEL = "sentiment_tree_lstm"


def settings() -> dict[str, Any]:
    """ampc's."""
    common = {"min_update_frequency": UPDATE, "clip_norm": 0.0, "instances": TREES}
    return {"max_active_keys": 128, "overrides": {"rate": 0.0}, **common}


def folder() -> str:
    return str(data_folder("sst"))


Tree = tuple[Any, Any, Any, Any]
"""word, left, right (-1: none) and label of the nodes, children before parents."""


def trees(data: str) -> tuple[list[Tree], int]:
    program = graph_of("sentiment_tree_lstm")
    d = program.read(data)
    at = d.axes["node"]
    chosen = np.random.default_rng(0).permutation(d.n)[:TREES]
    words = next(f.below for f in program.graph.fields if f.name == "word")
    return [by_height(*(d.columns[f][at[i] : at[i + 1]] for f in ("word", "left", "right", "label"))) for i in chosen], words


def by_height(word: Any, left: Any, right: Any, label: Any) -> Tree:
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
    """(words of the leaves, children of the inner nodes, labels): leaves first, as `by_height` puts them."""
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


def rival(data: str, batch: int, threads: int, compiled: bool = False, infer: bool = False) -> Any:
    """`batch` trees at a time by levels; 0 is one tree, node by node. compiled: the cell is."""
    torch = prepare(threads)
    them, n_words = trees(data)
    net = Net(torch, n_words)
    size, every = max(1, batch), UPDATE if batch == 0 else 1
    if batch == 0:
        batches = [by_node(torch, t) for t in them[:500]]
    else:
        batches = [by_level(torch, them[i : i + batch]) for i in range(0, len(them) - batch + 1, batch)]
    if compiled:
        net.join = torch.compile(net.join, dynamic=True)  # type: ignore[method-assign]  # the compiled one
    forward = net.nodes if batch == 0 else net.levels
    if infer:
        return Calls(torch, batches, [size] * len(batches), lambda b: forward(b[0], b[1]))
    dense = [p for layer in (net.leaves, net.joins, net.head) for p in layer.parameters()]
    update = updater(torch.optim.Adam(dense, lr=1e-3, fused=True), torch.optim.SparseAdam(list(net.embed.parameters()), lr=1e-3))

    def step(b: tuple[Any, ...]) -> Any:
        loss = torch.nn.functional.cross_entropy(forward(b[0], b[1]), b[2], reduction="sum") / size
        (loss / every).backward()
        return loss.detach()

    return Steps(batches, [size] * len(batches), step, update, every)


def dynet_rival(data: str, batch: int) -> Steps:
    """DyNet, which groups like operations of different nodes and trees by itself; building the graph counts, as it is built for every batch."""
    import dynet_config  # a module of its own, read before the other

    dynet_config.set(mem=2048, autobatch=1, random_seed=1)
    import dynet as dy

    them, n_words = trees(data)
    model, h = dy.ParameterCollection(), HIDDEN
    embed = model.add_lookup_parameters((n_words, WIDTH))
    leaf_w, leaf_b = model.add_parameters((3 * h, WIDTH)), model.add_parameters(3 * h)
    join_w, join_b = model.add_parameters((5 * h, 2 * h)), model.add_parameters(5 * h)
    head_w, head_b = model.add_parameters((CLASSES, h)), model.add_parameters(CLASSES)
    trainer = dy.AdamTrainer(model)
    trainer.set_sparse_updates(True)

    def losses(tree: Tree) -> list[Any]:
        hs: list[Any] = []
        cs: list[Any] = []
        out = []
        for word, left, right, label in zip(*(x.tolist() for x in tree), strict=True):
            if left < 0:
                g = dy.affine_transform([leaf_b, leaf_w, embed[word]])
                c = dy.cmult(dy.logistic(g[:h]), dy.tanh(g[2 * h :]))
                hs.append(dy.cmult(dy.logistic(g[h : 2 * h]), dy.tanh(c)))
            else:
                g = dy.affine_transform([join_b, join_w, dy.concatenate([hs[left], hs[right]])])
                s = dy.logistic(g[: 4 * h])
                c = dy.cmult(s[:h], dy.tanh(g[4 * h :])) + dy.cmult(s[h : 2 * h], cs[left]) + dy.cmult(s[2 * h : 3 * h], cs[right])
                hs.append(dy.cmult(s[3 * h :], dy.tanh(c)))
            cs.append(c)
            out.append(dy.pickneglogsoftmax(dy.affine_transform([head_b, head_w, hs[-1]]), label))
        return out

    def step(part: list[Tree]) -> float:
        dy.renew_cg()
        loss = dy.esum([x for t in part for x in losses(t)]) / len(part)
        value = float(loss.value())
        loss.backward()
        return value

    def update(kept: Any = model) -> None:  # the trainer does not keep it alive
        trainer.update()

    batches = [them[i : i + batch] for i in range(0, len(them) - batch + 1, batch)]
    return Steps(batches, [batch] * len(batches), step, update)


def contenders(data: str, compiled_too: bool = False) -> list[Contender]:
    made = []
    for batch, threads, compiled in ((0, 1, False), (0, 2, False), (100, 1, False), (100, 2, False), (100, 2, True)):
        if compiled and not compiled_too:
            continue
        form = f"{batch} trees by levels" if batch else "one tree"
        name = f"torch {form}{', cell compiled' if compiled else ''}, {words(threads)}"
        made.append(Contender(name, rival, {"data": data, "batch": batch, "threads": threads, "compiled": compiled}, threads))
    made.append(Contender("dynet 25 trees, autobatching, 1 thread", dynet_rival, {"data": data, "batch": 25}))
    made += ours(MODEL, data, settings=settings(), second=(1,))
    return made + ours(MODEL, data, (2,), "two copies", settings=copied(settings()), second=(2,))


def goals(c: Comparison) -> list[Goal]:
    mine, best = c.best("ampc"), c.best("torch 100")
    return [
        Goal("PyTorch's one-tree loop", c.ratio(mine, c.best("torch one tree")), 15),
        Goal("PyTorch's best, 100 trees by levels", c.ratio(mine, best), 2),
        Goal("the same, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("torch 100", "1 thread"), thrift=True), 2),
        Goal("the same without MKL", c.ratio(c.best("ampc openblas"), best), 2),
        Goal("DyNet's autobatching, by processor time, one core", c.ratio(c.best("ampc", "1 worker"), c.best("dynet"), thrift=True), 2),
        Goal("two workers against one", c.ratio(c.best("ampc", "2 workers"), c.best("ampc", "1 worker")), 1.8),
    ]


def main(argv: list[str] | None = None) -> list[Comparison]:
    a = options(__doc__).parse_args(argv)
    title = "Binary Tree-LSTM on the sentiment treebank, hidden 256"
    c = compare(title, "trees/s", wanted(contenders(folder(), a.compile), a.only), **lengths(a))
    publish("tree_lstm", [c], goals(c), write=a.write)
    return [c]


if __name__ == "__main__":
    main(sys.argv[1:])
