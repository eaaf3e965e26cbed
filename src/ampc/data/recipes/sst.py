"""Stanford Sentiment Treebank: binary trees with a label at every node, from the published bracket form."""

from __future__ import annotations

import collections
import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ampc.data.recipes.base import Option, Product, Recipe, damaged, source_file
from ampc.data.write import ragged

README = """# Stanford Sentiment Treebank

Made by `ampc data sst` from the trees in bracket form: one tree a row, over its nodes, children before parents (the root comes last):

- `word`: the word's number at a leaf, null elsewhere. 0 is the unknown word; `vocabulary.txt` has the words, line k (from 0) for number k.
- `left`, `right`: positions of the children at a branch, null at a leaf.
- `label`: 0..4, very negative to very positive, at every node.

The vocabulary is that of the training trees, in order of frequency, then of first appearance. Words of the other parts that are not in it
are unknown (0). With `min_count` above 1, rarer training words are unknown too, so that a model learns a vector for them; without, that vector
is never trained.
`/` is written `\\/` and brackets `-LRB-` and `-RRB-`, as in the original; case is kept unless `lower` is set.
"""

UNKNOWN = "<unknown>"
MAX_BYTES = 64 << 20

Tree = tuple[list[str | None], list[int | None], list[int | None], list[int]]
"""Words, left and right children and labels of a tree's nodes, children first."""


def parse_tree(text: str) -> Tree:
    """Return the nodes of `(label word)` or `(label tree tree)`. Raises ValueError with the reason.

    Tokens are divided by the ASCII space only: a no-break space is part of its word.
    """
    words: list[str | None] = []
    left: list[int | None] = []
    right: list[int | None] = []
    labels: list[int] = []
    open_: list[tuple[int, list[int], list[str]]] = []  # label, finished children, words of each open bracket
    tokens = [t for t in text.replace("(", " ( ").replace(")", " ) ").split(" ") if t]
    i, done = 0, False
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if done:
            raise ValueError("something follows the tree")
        if token == "(":
            if i == len(tokens) or tokens[i] not in ("0", "1", "2", "3", "4"):
                raise ValueError("a bracket has no label 0..4")
            open_.append((int(tokens[i]), [], []))
            i += 1
        elif token != ")":
            if not open_:
                raise ValueError("a word stands outside the tree")
            open_[-1][2].append(token)
        else:
            if not open_:
                raise ValueError("a bracket is closed that wasn't opened")
            label, children, leaf = open_.pop()
            if (len(children), len(leaf)) not in ((2, 0), (0, 1)):
                raise ValueError(f"a node has {len(children)} children and {len(leaf)} words, expected two children or one word")
            words.append(leaf[0] if leaf else None)
            left.append(children[0] if children else None)
            right.append(children[1] if children else None)
            labels.append(label)
            if open_:
                open_[-1][1].append(len(labels) - 1)
            else:
                done = True
    if open_ or not done:
        raise ValueError("the tree isn't closed")
    return words, left, right, labels


def read_trees(path: Path) -> list[Tree]:
    """Return the trees of a file, one a line. Raises AmpError (AMP822) naming the line."""
    trees = []
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise damaged(path, f"it is larger than {MAX_BYTES >> 20} MB")
        for number, line in enumerate(data.decode("utf-8").split("\n"), 1):
            if line.strip("\r "):
                try:
                    trees.append(parse_tree(line.strip("\r")))
                except ValueError as why:
                    raise damaged(path, f"line {number}: {why}") from None
    except (OSError, EOFError, zlib.error) as failure:
        raise damaged(path, str(failure).lower()) from None
    except UnicodeDecodeError:
        raise damaged(path, "it isn't UTF-8 text") from None
    if not trees:
        raise damaged(path, "it has no tree")
    return trees


def build(source: Path | None, options: Mapping[str, Any], seed: int) -> Product:
    parts = {
        split: read_trees(source_file(source, f"{name}.txt.gz", f"{name}.txt"))
        for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
    }
    if options["lower"]:
        parts = {split: [_lower(t) for t in trees] for split, trees in parts.items()}
    counts = collections.Counter(w for tree in parts["train"] for w in tree[0] if w is not None)
    vocabulary = [UNKNOWN, *(w for w, k in counts.most_common() if k >= options["min_count"])]
    number = {w: i for i, w in enumerate(vocabulary)}
    tables = {split: _table(trees, number) for split, trees in parts.items()}
    unknown = {split: sum(w is not None and w not in number for t in trees for w in t[0]) for split, trees in parts.items()}
    meta = {"vocabulary": len(vocabulary), "classes": 5, "unknown_words": unknown}
    return Product(tables, README, meta, {"vocabulary.txt": "".join(f"{w}\n" for w in vocabulary)})


def _lower(tree: Tree) -> Tree:
    words, left, right, labels = tree
    return [w if w is None else w.lower() for w in words], left, right, labels


def _table(trees: list[Tree], number: dict[str, int]) -> Any:
    offsets = np.cumsum([0] + [len(t[3]) for t in trees])
    columns = {
        "word": [None if w is None else number.get(w, 0) for t in trees for w in t[0]],
        "left": [x for t in trees for x in t[1]],
        "right": [x for t in trees for x in t[2]],
        "label": [x for t in trees for x in t[3]],
    }
    return pa.table({name: ragged(offsets, pa.array(values, type=pa.int32())) for name, values in columns.items()})


RECIPE = Recipe(
    "sst",
    "sentiment treebank: binary trees of words, a label 0..4 at every node",
    True,
    build,
    (
        Option("lower", "flag", False, "write all words in lower case"),
        Option("min_count", "int", 1, "training words seen fewer times are unknown", 1),
    ),
    model="sentiment_tree_lstm",
)

__all__ = ["RECIPE", "parse_tree", "read_trees"]
