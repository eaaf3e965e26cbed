"""Small tasks with known rules for the bundled models that have no published data set; each is named like its model.

They are for trying a model, not for comparing it: the rules are in `TASKS` and in the folder's README.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ampc.data.recipes.base import Option, Product, Recipe

Rng = np.random.Generator
Row = dict[str, Any]
Make = Callable[[Rng], Row]

_TEACHER = np.random.default_rng(1705)  # of fixed rules only: the data's own numbers come from the seed that is asked for
_KIND_WEIGHTS = _TEACHER.normal(size=(3, 4))
_HIDDEN, _OUT = _TEACHER.normal(size=(8, 24)), _TEACHER.normal(size=(24, 3))


def gated_counter(rng: Rng) -> Row:
    n = int(rng.integers(0, 9))
    command, value, result = rng.integers(0, 4, n), rng.normal(size=n), 0.0
    for c, v in zip(command, value, strict=True):
        result = result + v if c == 0 else result - v if c == 1 else 0.5 * result
    return {"command": command, "value": value, "result": result}


def typed_steps(rng: Rng) -> Row:
    n = int(rng.integers(1, 11))
    kind, sudden, amount = rng.integers(0, 3, n), rng.random(n) < 0.3, rng.normal(size=(n, 4))
    change = (amount * _KIND_WEIGHTS[kind]).sum(axis=1)
    total = float(np.where(sudden, np.maximum(change, 0), np.tanh(change)).sum())
    return {"kind": kind, "sudden": sudden, "amount": amount, "total": total, "alarm": bool((sudden & (change > 1)).any())}


def mixture_of_experts(rng: Rng) -> Row:
    x = rng.normal(size=16)
    region = int(x[:4].argmax())
    looked_at = -x[4:8] if region == 3 else x[4 * region + 4 : 4 * region + 8]
    return {"x": x, "label": int(looked_at.argmax())}


def early_exit_rnn(rng: Rng) -> Row:
    x = rng.normal(size=8)
    return {"x": x, "label": int((np.tanh(x @ _HIDDEN) @ _OUT).argmax())}


def gat(rng: Rng) -> Row:
    n = int(rng.integers(3, 13))
    vote, heard = rng.integers(0, 3, n), rng.random(n) < 0.5
    feature = np.concatenate([np.eye(3)[vote], heard[:, None], 0.3 * rng.normal(size=(n, 4))], axis=1)
    degree = rng.integers(0, 5, n)
    target = np.repeat(np.arange(n), degree)
    source = rng.integers(0, n, len(target))
    votes = np.zeros((n, 3))
    np.add.at(votes, (target, vote[source]), heard[source])
    label = np.where(votes.sum(axis=1) > 0, votes.argmax(axis=1), vote)
    return {"feature": feature, "source": source, "target": target, "label": label}


def child_sum_tree_lstm(rng: Rng) -> Row:
    n = int(rng.integers(1, 16))
    word = rng.integers(0, 100, n)
    kid: list[list[int]] = [[] for _ in range(n)]
    label = (word >= 85).astype(int) + (word >= 96)
    for i in range(n - 1):  # the root is the last: every other node hangs below a later one
        parent = int(rng.integers(i + 1, n))
        kid[parent].append(i)
    for i in range(n):
        label[i] = max([int(label[i]), *(int(label[k]) for k in kid[i])])
    return {"word": word, "kid": kid, "label": label}


def char_word_rnn(rng: Rng) -> Row:
    words = [rng.integers(0, 64, int(rng.integers(1, 8))) for _ in range(int(rng.integers(1, 9)))]
    before = [0, *map(len, words)]
    tag = [4 if w[0] >= 48 else int(w[-1] % 2) + 2 * (before[i] > 3) for i, w in enumerate(words)]
    return {"letter": words, "tag": tag}


def seq2seq(rng: Rng) -> Row:
    word = rng.integers(1, 20, int(rng.integers(1, 9)))
    right = [*word[::-1].tolist(), 0]
    return {"word": word, "previous": [0, *right[:-1]], "right": right}


INT, FLOAT, INTS, FLOATS = pa.int32(), pa.float32(), pa.list_(pa.int32()), pa.list_(pa.float32())
TASKS: dict[str, tuple[Make, dict[str, Any], str]] = {
    "gated_counter": (
        gated_counter,
        {"command": INTS, "value": FLOATS, "result": FLOAT},
        "`result` begins at 0; each token adds `value` (command 0), takes it away (1), or halves the result (2 and 3). 0 to 8 tokens.",
    ),
    "typed_steps": (
        typed_steps,
        {"kind": INTS, "sudden": pa.list_(pa.bool_()), "amount": pa.list_(pa.list_(FLOAT, 4)), "total": FLOAT, "alarm": pa.bool_()},
        "Each of 1 to 10 steps changes `total` by a fixed linear function of `amount`, one for each kind, through a ReLU if the step is `sudden`, "
        "else through tanh. `alarm` is set if a sudden step's change was more than 1.",
    ),
    "mixture_of_experts": (
        mixture_of_experts,
        {"x": pa.list_(FLOAT, 16), "label": INT},
        "The largest of the first four numbers chooses a rule: the label is the position of the largest number in the second, third or fourth "
        "group of four, or of the smallest in the second.",
    ),
    "early_exit_rnn": (
        early_exit_rnn,
        {"x": pa.list_(FLOAT, 8), "label": INT},
        "`label` is the answer of a fixed network with one hidden layer of 24.",
    ),
    "gat": (
        gat,
        {"feature": pa.list_(pa.list_(FLOAT, 8)), "source": INTS, "target": INTS, "label": INTS},
        "A node's first three features are its vote, the fourth says whether it is heard, the others are noise. `label` is the vote most given "
        "by those sources of a node that are heard (the lowest of equals), its own vote where none is. 3 to 12 nodes, 0 to 4 sources each.",
    ),
    "child_sum_tree_lstm": (
        child_sum_tree_lstm,
        {"word": INTS, "kid": pa.list_(INTS), "label": INTS},
        "Words 0..84 are of class 0, 85..95 of class 1, 96..99 of class 2; `label` is the highest class in the node's subtree. "
        "Trees of 1 to 15 nodes, the root last.",
    ),
    "char_word_rnn": (
        char_word_rnn,
        {"letter": pa.list_(INTS), "tag": INTS},
        "`tag` is 4 if the word's first letter is 48 or more; else the last letter modulo 2, and 2 more if the word before has more than 3 letters. "
        "1 to 8 words of 1 to 7 letters.",
    ),
    "seq2seq": (
        seq2seq,
        {"word": INTS, "previous": INTS, "right": INTS},
        "`right` is `word` backwards, then 0; `previous` is `right` a place later, beginning with 0. 1 to 8 words 1..19.",
    ),
}


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, list) else value


def table(name: str, rng: Rng, n: int) -> Any:
    """Return `n` instances of the task."""
    make, types, _ = TASKS[name]
    rows = [make(rng) for _ in range(n)]
    return pa.table({field: pa.array([_plain(r[field]) for r in rows], type=kind) for field, kind in types.items()})


def _recipe(name: str) -> Recipe:
    rule = TASKS[name][2]

    def build(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
        rng = np.random.default_rng(seed)
        readme = f"# A task for {name}\n\nMade by `ampc data {name}`; the fields are those of `models/{name}.amp`.\n\n{rule}\n"
        return Product({split: table(name, rng, options[split]) for split in ("train", "valid")}, readme)

    options = (
        Option("train", "int", 4000, "how many training instances", 1, 1_000_000),
        Option("valid", "int", 500, "how many validation instances", 1, 1_000_000),
    )
    return Recipe(name, f"a made-up task for the model {name}", False, build, options, model=name)


RECIPES = tuple(_recipe(name) for name in TASKS)

__all__ = ["RECIPES", "TASKS", "table"]
