"""The five models as PyTorch trains them fastest by hand: batches of many instances in one product, made before any clock starts.

Each is the network of the `.amp` file with the same initial weights, loss, optimiser settings and dropout. What they read is a `Dataset` of
ampc; a batch is whatever `forward` takes, with the answers last. Only the treebank's embedding has gradients of touched rows alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import babi, ggsnn, tree_lstm

Weights = Mapping[str, Tensor]
"""Parameters by "layer.name", as ampc has them: matrices [columns in, columns out]."""
Batch = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Form:
    """How a model is trained by hand.

    batch: (data, instances) -> a batch. forward: (weights, batch, training) -> what the loss and the metric look at, a row for each answer.
    loss: (rows, answers) -> the sum over a batch, which is divided by its instances. right: (rows, answers) -> (sum, count) of the metric.
    sparse: parameters with gradients of touched rows alone. alike: data -> for each instance a number; only equal ones may share a batch.
    """

    batch: Callable[[Any, Any], Batch]
    forward: Callable[[Weights, Batch, bool], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    right: Callable[[Tensor, Tensor], tuple[float, int]]
    sparse: tuple[str, ...] = ()
    alike: Callable[[Any], Any] = lambda d: np.zeros(d.n, np.int64)

    def parts(self, d: Any, size: int, draw: np.random.Generator) -> list[Any]:
        """Return the instances of each batch of a pass, at most `size`, in random order."""
        order = draw.permutation(d.n)
        kind = self.alike(d)[order]
        parts = [them[i : i + size] for k in np.unique(kind) for them in [order[kind == k]] for i in range(0, len(them), size)]
        return [parts[i] for i in draw.permutation(len(parts))]


def linear(w: Weights, layer: str, x: Tensor) -> Tensor:
    return torch.addmm(w[f"{layer}.b"], x, w[f"{layer}.w"])


def entropy(rows: Tensor, answers: Tensor) -> Tensor:
    return F.cross_entropy(rows, answers, reduction="sum")


def hits(rows: Tensor, answers: Tensor) -> tuple[float, int]:
    return float((rows.argmax(1) == answers).sum()), len(answers)


def huber(rows: Tensor, answers: Tensor) -> Tensor:
    return F.huber_loss(rows, answers, delta=0.2, reduction="sum")


def absolute(rows: Tensor, answers: Tensor) -> tuple[float, int]:
    return float((rows - answers).abs().sum()), len(answers)


# ---------------------------------------------------------------------------------------------------------- static, and sequences by length


def images(d: Any, chosen: Any) -> Batch:
    return torch.from_numpy(d.columns["image"][chosen]), torch.from_numpy(d.columns["label"][chosen].reshape(-1))


def perceptron(w: Weights, b: Batch, training: bool) -> Tensor:
    h = b[0]
    for layer in ("first", "second", "third"):
        h = torch.relu(linear(w, layer, h))
    return linear(w, "head", h)


def lengths(d: Any) -> Any:
    return np.diff(d.axes["token"])


def lists(d: Any, chosen: Any) -> Batch:
    """Sequences of one length: (symbols [length, sequences], labels)."""
    at, symbol, label = d.axes["token"], d.columns["symbol"].reshape(-1), d.columns["label"].reshape(-1)
    n = int(at[chosen[0] + 1] - at[chosen[0]])
    return torch.from_numpy(symbol[at[chosen] + np.arange(n)[:, None]]), torch.from_numpy(label[chosen])


def recurrent(w: Weights, b: Batch, training: bool) -> Tensor:
    """What a symbol adds is a row of a small table; a step is one product of the state."""
    width = w["embed.table"].shape[1]
    table = torch.addmm(w["step.b"], w["embed.table"], w["step.w"][:width])
    again = w["step.w"][width:]
    h = torch.relu(table.index_select(0, b[0][0]))
    for symbols in b[0][1:]:
        h = torch.relu(torch.addmm(table.index_select(0, symbols), h, again))
    return linear(w, "head", h)


# ------------------------------------------------------------------------------------------------------------------ trees, level by level


def trees(d: Any, chosen: Any) -> Batch:
    at = d.axes["node"]
    fields = [d.columns[f].reshape(-1) for f in ("word", "left", "right", "label")]
    return tree_lstm.by_level(torch, [tree_lstm.by_height(*(f[at[i] : at[i + 1]] for f in fields)) for i in chosen])


def tree_cell(w: Weights, b: Batch, training: bool) -> Tensor:
    words, plan, _ = b
    hidden = w["head.w"].shape[0]
    rows = F.embedding(words, w["embed.table"], sparse=True)
    put, new, out = linear(w, "leaves", F.dropout(rows, 0.5, training)).split(hidden, 1)
    c = torch.sigmoid(put) * torch.tanh(new)
    h = torch.sigmoid(out) * torch.tanh(c)
    seen = [h]
    for left, right, kept in plan:
        put, new, keep_left, keep_right, out = linear(w, "joins", torch.cat([h.index_select(0, left), h.index_select(0, right)], 1)).split(hidden, 1)
        both = torch.sigmoid(keep_left + 1) * c.index_select(0, left) + torch.sigmoid(keep_right + 1) * c.index_select(0, right)
        cn = torch.sigmoid(put) * torch.tanh(new) + both
        hn = torch.sigmoid(out) * torch.tanh(cn)
        seen.append(hn)
        h, c = (torch.cat([hn, h.index_select(0, kept)]), torch.cat([cn, c.index_select(0, kept)])) if len(kept) else (hn, cn)
    return linear(w, "head", F.dropout(torch.cat(seen), 0.5, training))


# ------------------------------------------------------------------------------------------------------------------- graphs, as one union


def molecules(d: Any, chosen: Any) -> Batch:
    atoms, bonds = d.axes["atom"], d.axes["bond"]
    source, target, kind = (d.columns[f].reshape(-1) for f in ("source", "target", "kind"))
    sizes = np.diff(atoms)[chosen]
    shift = np.repeat(np.cumsum(sizes) - sizes, np.diff(bonds)[chosen])
    atom, bond = (np.concatenate([np.arange(at[i], at[i + 1]) for i in chosen]) for at in (atoms, bonds))
    source, target, kind = source[bond] + shift, target[bond] + shift, kind[bond]
    cell = target * ggsnn.KINDS + kind
    count = np.bincount(cell, minlength=len(atom) * ggsnn.KINDS).reshape(-1, ggsnn.KINDS).astype(np.float32)
    arrays = (d.columns["feature"][atom], source, cell, count, np.repeat(np.arange(len(chosen)), sizes), d.columns["dipole"][chosen].reshape(-1))
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays)


def by_kind(w: Weights, layer: str, kinds: int) -> tuple[Tensor, Tensor]:
    """The matrices of all kinds below each other, their biases as rows."""
    return torch.cat([w[f"{layer}.{k}.w"] for k in range(kinds)]), torch.stack([w[f"{layer}.{k}.b"] for k in range(kinds)])


def messages(h: Tensor, source: Tensor, cell: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """Sum the sources by (target, kind), then one product for all kinds."""
    kinds = len(matrix) // h.shape[1]
    summed = h.new_zeros(len(h) * kinds, h.shape[1]).index_add(0, cell, h.index_select(0, source))
    return torch.addmm(bias, summed.view(len(h), -1), matrix)


def gru(w: Weights, h: Tensor, *heard: Tensor) -> Tensor:
    width = h.shape[1]
    g = torch.sigmoid(linear(w, "gates", torch.cat([*heard, h], 1)))
    z = g[:, :width]
    return (1 - z) * h + z * torch.tanh(linear(w, "news", torch.cat([*heard, g[:, width:] * h], 1)))


def dipoles(w: Weights, b: Batch, training: bool) -> Tensor:
    feature, source, cell, count, owner, answers = b
    matrix, bias = by_kind(w, "message", ggsnn.KINDS)
    h = F.pad(feature, (0, matrix.shape[1] - feature.shape[1]))
    fixed = count @ bias
    for _ in range(ggsnn.ROUNDS):
        h = gru(w, h, messages(h, source, cell, matrix, fixed))
    each = torch.sigmoid(linear(w, "gate", torch.cat([h, feature], 1))) * torch.tanh(linear(w, "value", h))
    whole = h.new_zeros(len(answers), h.shape[1]).index_add(0, owner, each)
    return linear(w, "last", torch.relu(linear(w, "inner", whole))).squeeze(1)


def stories(d: Any, chosen: Any) -> Batch:
    columns = next(f.below for f in d.fields if f.name == "name")
    return columns, *babi.union(torch, d, chosen, columns)


def deductions(w: Weights, b: Batch, training: bool) -> Tensor:
    columns, asked, source, target, along, against, n_along, n_against, place, answer = b
    sides = [(source, along, *by_kind(w, "along", babi.KINDS), n_along), (target, against, *by_kind(w, "against", babi.KINDS), n_against)]
    h = F.pad(asked, (0, babi.HIDDEN - 1))
    for _ in range(babi.ROUNDS):
        h = gru(w, h, *(messages(h, read, cell, matrix, count @ bias) for read, cell, matrix, bias, count in sides))
    scores = linear(w, "score", torch.tanh(linear(w, "inner", torch.cat([h, asked], 1)))).squeeze(1)
    return asked.new_zeros(len(answer) * columns).index_add(0, place, scores).view(len(answer), columns)


FORMS = {
    "mnist_mlp": Form(images, perceptron, entropy, hits),
    "list_reduction": Form(lists, recurrent, entropy, hits, alike=lengths),
    "sentiment_tree_lstm": Form(trees, tree_cell, entropy, hits, sparse=("embed.table",)),
    "babi15_ggsnn": Form(stories, deductions, entropy, hits),
    "qm9_ggsnn": Form(molecules, dipoles, huber, absolute),
}  # fmt: skip
