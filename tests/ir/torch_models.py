"""The bundled models written by hand in PyTorch, one instance at a time: an independent statement of what they mean."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SUMMED = {"reduction": "sum"}


class Net:
    """Parameters by "layer.param" and the instance's fields as tensors."""

    def __init__(self, params: dict[str, Tensor], fields: dict[str, Tensor], lengths: dict[str, int], starts: dict[str, Tensor]) -> None:
        self.params, self.fields, self.lengths, self.starts = params, fields, lengths, starts

    def __call__(self, layer: str, x: Tensor) -> Tensor:
        y = x @ self.params[f"{layer}.w"]
        return y + self.params[f"{layer}.b"] if f"{layer}.b" in self.params else y

    def embed(self, layer: str, index: Tensor) -> Tensor:
        return self.params[f"{layer}.table"][index]

    def hidden(self, layer: str) -> int:
        return self.params[f"{layer}.w"].shape[1]


def zeros(n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.float64)


def entropy(logits: Tensor, label: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), label.reshape(-1), **SUMMED)


def list_reduction(n: Net) -> Tensor:
    h = zeros(n.hidden("step"))
    for s in n.fields["symbol"]:
        h = torch.relu(n("step", torch.cat([n.embed("embed", s), h])))
    return entropy(n("head", h), n.fields["label"])


def perceptron(*layers: str) -> Callable[[Net], Tensor]:
    def loss(n: Net) -> Tensor:
        h = n.fields["image"]
        for layer in layers:
            h = torch.relu(n(layer, h))
        return entropy(n("head", h), n.fields["label"])

    return loss


def gated_counter(n: Net) -> Tensor:
    h = zeros(n.hidden("add"))
    for command, value in zip(n.fields["command"], n.fields["value"], strict=True):
        h = (h + n("add", value), h - n("take", value), 0.5 * h, 0.5 * h)[int(command)]
    return ((n("count", h) - n.fields["result"]) ** 2).sum()


def typed_steps(n: Net) -> Tensor:
    width = n.hidden("quick")
    h, c = zeros(width), zeros(width)
    for kind, sudden, amount in zip(n.fields["kind"], n.fields["sudden"], n.fields["amount"], strict=True):
        x = n(f"change.{int(kind)}", amount)
        x = torch.relu(n("quick", x)) if sudden else torch.tanh(x)
        keep, add, new, out = n("gates", torch.cat([x, h])).split(width)
        c = torch.sigmoid(keep + 1) * c + torch.sigmoid(add) * torch.tanh(new)
        h = torch.sigmoid(out) * torch.tanh(c)
    pred, alarm = n("sum_up", h)[None], n("warn", h)
    first = F.huber_loss(pred, n.fields["total"], delta=1.0, **SUMMED)
    return first + 0.5 * F.binary_cross_entropy_with_logits(alarm, n.fields["alarm"].double(), **SUMMED)


def mixture_of_experts(n: Net) -> Tensor:
    x = n.fields["x"][0]
    p = torch.softmax(n("router", x), 0)
    k = int(p.argmax())
    return entropy(p.max() * n(f"outer.{k}", torch.relu(n(f"inner.{k}", x))), n.fields["label"])


def early_exit_rnn(n: Net) -> Tensor:
    x = n.fields["x"][0]
    h, left, logits, turn = torch.tanh(n("start", x)), torch.ones(1, dtype=torch.float64), zeros(n.hidden("head")), 0
    while left > 0.05 and turn < 16:
        h = torch.tanh(n("think", torch.cat([h, x])))
        share = left * torch.sigmoid(n("sure", h))
        logits, left, turn = logits + share * n("head", h), left - share, turn + 1
    return entropy(logits, n.fields["label"])


def char_word_rnn(n: Net) -> Tensor:
    h, loss = zeros(n.hidden("read")), zeros(1).sum()
    for w, tag in enumerate(n.fields["tag"]):
        s = zeros(n.hidden("spell"))
        for letter in n.fields["letter"][n.starts["char"][w] : n.starts["char"][w + 1]]:
            s = torch.tanh(n("spell", torch.cat([n.embed("embed", letter), s])))
        h = torch.tanh(n("read", torch.cat([s, h])))
        loss = loss + entropy(n("head", h), tag)
    return loss


def seq2seq(n: Net) -> Tensor:
    h, loss, vocabulary = zeros(n.hidden("encode")), zeros(1).sum(), n.hidden("head")
    for word in n.fields["word"]:
        h = torch.tanh(n("encode", torch.cat([n.embed("embed", word), h])))
    for previous, right in zip(n.fields["previous"], n.fields["right"], strict=True):
        h = torch.tanh(n("decode", torch.cat([n("known", F.one_hot(previous, vocabulary).double()), h])))
        loss = loss + entropy(n("head", h), right)
    return loss


def gather_add(n: int, index: Tensor, rows: Tensor) -> Tensor:
    return torch.zeros(n, rows.shape[1], dtype=torch.float64).index_add(0, index, rows)


def gated(n: Net, h: Tensor, *heard: Tensor) -> Tensor:
    width = h.shape[1]
    z, r = torch.sigmoid(n("gates", torch.cat([*heard, h], 1))).split(width, 1)
    return (1 - z) * h + z * torch.tanh(n("news", torch.cat([*heard, r * h], 1)))


def by_kind(n: Net, layer: str, kinds: Tensor, rows: Tensor) -> Tensor:
    return torch.stack([n(f"{layer}.{int(k)}", row) for k, row in zip(kinds, rows, strict=True)]) if len(rows) else rows


def babi15_ggsnn(n: Net) -> Tensor:
    asked, source, target, kinds = (n.fields[f] for f in ("asked", "source", "target", "kind"))
    nodes, width = n.lengths["node"], n.hidden("news")
    h = F.pad(asked, (0, width - 1))
    for _ in range(2):
        a = gather_add(nodes, target, by_kind(n, "along", kinds, h[source]))
        b = gather_add(nodes, source, by_kind(n, "against", kinds, h[target]))
        h = gated(n, h, a, b)
    names = F.one_hot(n.fields["name"], 8).double()
    return entropy((names * n("score", torch.tanh(n("inner", torch.cat([h, asked], 1))))).sum(0), n.fields["answer"])


def qm9_ggsnn(n: Net) -> Tensor:
    feature, source, target, kinds = (n.fields[f] for f in ("feature", "source", "target", "kind"))
    h = F.pad(feature, (0, n.hidden("news") - feature.shape[1]))
    for _ in range(4):
        h = gated(n, h, gather_add(n.lengths["atom"], target, by_kind(n, "message", kinds, h[source])))
    whole = (torch.sigmoid(n("gate", torch.cat([h, feature], 1))) * torch.tanh(n("value", h))).sum(0)
    y = n("last", F.relu(n("inner", whole)))
    return F.huber_loss(y, n.fields["dipole"][0], delta=0.2, reduction="sum")


def attend(n: Net, mind: str, look: str, own: str, h: Tensor) -> Tensor:
    """Attention as a softmax over the edges that arrive at each node."""
    v, source, target = n(look, h), n.fields["source"], n.fields["target"]
    score = F.leaky_relu(n(mind, torch.cat([v[source], v[target]], 1)), 0.2).clamp(-20, 20)
    rows = []
    for node in range(len(h)):
        weights = torch.exp(score[target == node])
        rows.append((weights * v[source][target == node]).sum(0) / (weights.sum() + 1e-9))
    return F.elu((torch.stack(rows) if rows else v) + n(own, h))


def gat(n: Net) -> Tensor:
    h = attend(n, "mind1", "look1", "own1", n.fields["feature"])
    h = attend(n, "mind2", "look2", "own2", h)
    return entropy(n("head", h), n.fields["label"])


def child_sum_tree_lstm(n: Net) -> Tensor:
    width, loss, hs, cs = n.hidden("seen"), zeros(1).sum(), [], []
    for node in range(n.lengths["node"]):
        kids = n.fields["kid"][n.starts["child"][node] : n.starts["child"][node + 1]].tolist()
        x = n.embed("embed", n.fields["word"][node])
        g = n("inputs", x) + n("sums", sum((hs[k] for k in kids), zeros(width)))
        kept = sum((torch.sigmoid(n("seen", x) + n("heard", hs[k])) * cs[k] for k in kids), zeros(width))
        put, new, out = g.split(width)
        cs.append(torch.sigmoid(put) * torch.tanh(new) + kept)
        hs.append(torch.sigmoid(out) * torch.tanh(cs[-1]))
        loss = loss + entropy(n("head", hs[-1]), n.fields["label"][node])
    return loss


def sentiment_tree_lstm(n: Net) -> Tensor:
    width, loss, hs, cs = n.hidden("leaves") // 3, zeros(1).sum(), [], []
    none = zeros(width)
    for node in range(n.lengths["node"]):
        left, right, word = (int(n.fields[f][node]) for f in ("left", "right", "word"))
        if left < 0:
            put, new, out = n("leaves", n.params["embed.table"][word] * (word >= 0)).split(width)
            c = torch.sigmoid(put) * torch.tanh(new)
        else:
            hr, cr = (hs[right], cs[right]) if right >= 0 else (none, none)
            put, new, keep_left, keep_right, out = n("joins", torch.cat([hs[left], hr])).split(width)
            c = torch.sigmoid(put) * torch.tanh(new) + torch.sigmoid(keep_left + 1) * cs[left] + torch.sigmoid(keep_right + 1) * cr
        cs.append(c)
        hs.append(torch.sigmoid(out) * torch.tanh(c))
        loss = loss + entropy(n("head", hs[-1]), n.fields["label"][node])
    return loss


LOSSES: dict[str, Callable[[Net], Tensor]] = {
    "babi15_ggsnn": babi15_ggsnn, "char_word_rnn": char_word_rnn, "child_sum_tree_lstm": child_sum_tree_lstm,
    "digits_mlp": perceptron("first", "second"), "early_exit_rnn": early_exit_rnn, "gat": gat, "gated_counter": gated_counter,
    "list_reduction": list_reduction, "mixture_of_experts": mixture_of_experts, "mnist_mlp": perceptron("first", "second", "third"),
    "qm9_ggsnn": qm9_ggsnn, "sentiment_tree_lstm": sentiment_tree_lstm, "seq2seq": seq2seq, "typed_steps": typed_steps,
}
