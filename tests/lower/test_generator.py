"""What random programs and random instances are made of: nothing that the language has is left to chance for long."""

from __future__ import annotations

import random
import re

import pytest
from generated import WORLDS, generate
from generated.graphs import HEAD
from support import graph_of, random_rows

FEATURES = {
    "graphs": [
        r"visit \w+ in node after left\[\w+\], right", r"visit \w+ in node after kid\[\w+\] carry", r"visit \w+ in node after up\[", r"loop \w+ in child", r"loop \w+ in reversed\(child",
        r"\w+\[kid\[child\w+\]\]|\w+\[kid\[c\d+\]\]", r"each c\d+ in child", r"sum\(child, softmax\(child", r"sum\(over, softmax\(over", r"mean\(over", r"max\(child", r"branch argmax\(.* as k",
        r"branch argmax\(.*:\n +0:", r"loop while .* at most \d", r"in range\(0\)", r"in reversed\(token\)", r"mean= ", r"max= ", r"\+= ", r"branch \w+\[\w+\]:\n +none:", r"branch kind\[\w+\] as",
        r"sum\(node, softmax", r"sum\(token, softmax", r"number\(", r"\[root\]", r"cell\(",
    ],
    "words": [
        r"loop \w+ in char", r"loop \w+ in reversed\(char", r"each char\d+ in char", r"sum\(char, softmax", r"sum\(word, softmax", r"mean\(char", r"max\(char", r"\[peer\]", r"visit \w+ in word after before",
        r"cross_entropy", r"binary_cross_entropy", r"huber", r"absolute\(", r"top_k", r"binary_accuracy", r"accuracy", r"root_mean_square_error", r"branch argmax", r"loop while", r"in range\(0\)",
        r"branch mark\[", r"tag\[\w+\] as", r"mean= ", r"max= ", r"mixed\(",
    ],
}  # fmt: skip


@pytest.mark.parametrize("world", FEATURES)
def test_programs_have_all_that_the_language_has(world: str) -> None:
    texts = [generate(random.Random(seed), world).removeprefix(WORLDS[world].head) for seed in range(400)]
    rare = {f: n for f in FEATURES[world] if (n := sum(bool(re.search(f, t)) for t in texts)) < 3}
    assert rare == {}
    nested = max(len(line) - len(line.lstrip()) for t in texts for line in t.splitlines()) // 4
    assert nested >= 5, "blocks in blocks"


def test_instances_have_every_shape() -> None:
    graph = graph_of(HEAD + "    visit n in node after left[n], right[n], kid[n] carry h:\n        h = v[n] + sum(child, h[kid])\n    visit n in node after up[n] carry g:\n        g = v[n] + sum(over, g[up])\n    output h\n    output g\n")
    rows = [r for seed in range(40) for r in random_rows(graph, 3, seed, longest=4)]
    assert any(not r["v"] for r in rows) and any(not r["x"] for r in rows) and any(not r["source"] and r["v"] for r in rows), "empty axes"
    assert any(len(r["v"]) == 1 for r in rows), "a tree of one leaf"
    assert any(len({len(kids) for kids in r["kid"]}) >= 3 for r in rows), "lists of children of different lengths"
    assert any(len(all_) > len(set(all_)) for r in rows for all_ in [[k for kids in r["kid"] for k in kids]]), "a child of several parents"
    assert all(k < n for r in rows for n, kids in enumerate(r["kid"]) for k in kids), "children come before"
    assert all(k > n for r in rows for n, over in enumerate(r["up"]) for k in over) and any(r["up"] and r["up"][0] for r in rows), "`up` leads behind"
