"""The programs whose passes tell what the engine spends beside arithmetic: small ones, each with much of something.

What a model is made of is here once: values of all widths, recurrent cells, symbols, edges with and without kinds, attention, nested axes, computed
branches, losses of single steps, layers from 8 to 512 columns, updates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

INSTANCES = 4096
IN_FLIGHT, FEW = 64, 8
"""Instances in flight: as many as usual, and for programs of little else than firings few as well."""
TOKENS, NODES = 24, 16
"""The longest axes of an instance; lengths differ, as those of real data do."""

_HEAD = "model calibration():\n    instance:\n        axis token\n        x: float\n        symbol: int[token] < 8\n"
_KINDS = _HEAD.replace("()", "(kinds = 2)")
_LOOP = "    loop t in token carry "
_FEW = "        axis node, edge  # few\n        source, target: node[edge]\n        v: float[node, 8]\n"
_WORDS = "        axis word\n        axis char[word]\n        letter: int[char] < 8\n"
_TAGS = "        tag: int[word] < 4\n"
_EDGES = "        kind: int[edge] < kinds\n"
_GRAPH = "        axis node, edge\n        source, target: node[edge]\n        v: float[node, 8]\n"
_ROUNDS = """
    start = Linear(8, 8)
    end = Linear(8, 1)
    h = start(v)
    loop t in range(4) carry h:
        each e in edge:
            s[target[e]] += h[source[e]]
        h = tanh(s)
    loss squared(end(sum(node, h)), x)
"""

PROGRAMS: dict[str, str] = {
    "narrow values": f"""{_HEAD}
    start = Linear(1, 1)
    h = start(x)
{_LOOP}h:
        h = relu(h)
    loss squared(h, x)
""",
    "wide values": f"""{_HEAD}
    start = Linear(1, 128)
    end = Linear(128, 1)
    h = start(x)
{_LOOP}h:
        h = relu(h)
    loss squared(end(h), x)
""",
    "several values": f"""{_HEAD}
    start = Linear(1, 32)
    end = Linear(32, 1)
    a = start(x)
    b = relu(a)
    c = relu(b)
    d = relu(c)
{_LOOP}a, b, c, d:
        e = a + d
        a = relu(e + b)
        b = e + c
        c = b + e
        d = a + b
    loss squared(end(a + b + c + d), x)
""",
    "small products": f"""{_HEAD}
    start = Linear(1, 16)
    one = Linear(16, 16)
    two = Linear(16, 16)
    end = Linear(16, 1)
    h = start(x)
{_LOOP}h:
        h = relu(two(relu(one(h))))
    loss squared(end(h), x)
""",
    "one step": """model calibration():
    instance:
        x: float
    start = Linear(1, 8)
    end = Linear(8, 1)
    loss squared(end(relu(start(x))), x)
""",
    "layers": f"""{_HEAD}
    start = Linear(1, 64)
    one = Linear(64, 64)
    two = Linear(64, 64)
    three = Linear(64, 64)
    end = Linear(64, 1)
    h = start(x)
{_LOOP}h:
        h = relu(three(relu(two(relu(one(h))))))
    loss squared(end(h), x)
""",
    "large layers": f"""{_HEAD}
    start = Linear(1, 256)
    one = Linear(256, 256)
    two = Linear(256, 256)
    end = Linear(256, 1)
    h = start(x)
{_LOOP}h:
        h = relu(two(relu(one(h))))
    loss squared(end(h), x)
""",
    "a cell": f"""{_HEAD}
    start = Linear(1, 48)
    gates = Linear(96, 96)
    end = Linear(48, 1)
    h = start(x)
    c = tanh(h)
{_LOOP}h, c:
        g = gates([h, c])
        c = sigmoid(g[0:48]) * c + tanh(g[48:])
        h = tanh(c)
    loss squared(end(h), x)
""",
    "edges": f"""{_HEAD}{_GRAPH}{_ROUNDS}""",
    "few edges": f"""{_HEAD}{_FEW}{_ROUNDS}""",
    "words": f"""{_HEAD}{_WORDS}
    start = Linear(1, 16)
    end = Linear(16, 1)
    each w in word:
        s = start(x)
        loop c in char carry s:
            s = relu(s)
    loss squared(end(sum(word, s)), x)
""",
    "symbols": f"""{_HEAD}
    embed = Embedding(8, 8)
    end = Linear(8, 1)
    h = zeros(8)
{_LOOP}h:
        h = relu(embed(symbol[t]) + h)
    loss squared(end(h), x)
""",
    "labels": f"""{_HEAD}
    start = Linear(1, 8)
    h = start(x)
{_LOOP}h:
        h = relu(h)
        loss cross_entropy(h, symbol[t])
        metric accuracy(h, symbol[t])
""",
    "a wide layer": """model calibration():
    instance:
        x: float
    start = Linear(1, 512)
    one = Linear(512, 512)
    end = Linear(512, 1)
    loss squared(end(relu(one(relu(start(x))))), x)
""",
    "kinds of edges": f"""{_KINDS}{_GRAPH}{_EDGES}
    along = Linear(8, 8) for k in kinds
    news = Linear(16, 8)
    end = Linear(8, 1)
    h = tanh(v)
    loop t in range(4) carry h:
        each e in edge:
            branch kind[e] as k:
                m = along[k](h[source[e]])
            merge m
            a[target[e]] += m
        z = sigmoid(news([a, h]))
        h = (1 - z) * h + z * tanh(a)
    loss squared(end(sum(node, h)), x)
""",
    "attention": f"""{_HEAD}{_GRAPH}
    start = Linear(8, 16)
    mind = Linear(32, 1)
    end = Linear(16, 1)
    h = start(v)
    each e in edge:
        w = exp(clip(leaky_relu(mind([h[source[e]], h[target[e]]]), slope = 0.2), -20, 20))
        s[target[e]] += w
        a[target[e]] += w * h[source[e]]
    h = elu(a / (s + 0.001))
    loss squared(end(sum(node, h)), x)
""",
    "experts": """model calibration(kinds = 4):
    instance:
        x: float
    route = Linear(1, kinds)
    one = Linear(1, 16) for k in kinds
    two = Linear(16, 4) for k in kinds
    p = softmax(route(x))
    branch argmax(p) as k:
        y = two[k](relu(one[k](x)))
    merge y
    loss squared(max(p) * sum(y), x)
""",
    "folded symbols": f"""{_HEAD}
    embed = Embedding(8, 64)
    step = Linear(128, 64)
    end = Linear(64, 1)
    h = zeros(64)
{_LOOP}h:
        h = relu(step([embed(symbol[t]), h]))
    loss squared(end(h), x)
""",
    "letters": f"""{_HEAD}{_WORDS}{_TAGS}
    embed = Embedding(8, 16)
    spell = Linear(32, 16)
    read = Linear(32, 16)
    head = Linear(16, 4)
    each w in word:
        s = zeros(16)
        loop c in char carry s:
            s = tanh(spell([embed(letter[c]), s]))
    h = zeros(16)
    loop w in word carry h:
        h = tanh(read([s[w], h]))
        loss cross_entropy(head(h), tag[w])
        metric accuracy(head(h), tag[w])
""",
}
"""What a program has much of -> its text."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A program with so many instances in flight; `updated`: layers update themselves, each after so many instances (0: never)."""

    name: str
    in_flight: int = IN_FLIGHT
    updated: int = 0


def cases() -> list[Case]:
    """Return what is measured of `PROGRAMS`."""
    found = [Case(name) for name in PROGRAMS]
    found += [Case(name, FEW) for name in FEWER if name in PROGRAMS]
    return found + [Case(name, updated=16) for name in UPDATED if name in PROGRAMS]


FEWER = ("narrow values", "small products", "layers", "large layers", "kinds of edges", "experts", "folded symbols", "letters")
UPDATED = ("small products", "one step", "layers")


def instances(text: str) -> list[dict[str, Any]]:
    """Return instances for a program: axes of 1 to `TOKENS` and `NODES` elements, twice as many edges."""
    rng = np.random.default_rng(0)
    out: list[dict[str, Any]] = []
    for k in range(INSTANCES):
        row: dict[str, Any] = {"x": k / INSTANCES, "symbol": rng.integers(0, 8, rng.integers(1, TOKENS + 1)).tolist()}
        if _GRAPH in text or _FEW in text:
            nodes = int(rng.integers(1, (NODES if _GRAPH in text else 3) + 1))
            row |= {"v": rng.uniform(-1, 1, (nodes, 8)).tolist()}
            row |= {name: rng.integers(0, nodes, 2 * nodes).tolist() for name in ("source", "target")}
            row["kind"] = rng.integers(0, 2, 2 * nodes).tolist()
        if _WORDS in text:
            row["letter"] = [rng.integers(0, 8, rng.integers(1, 8)).tolist() for _ in range(rng.integers(1, 5))]
            row["tag"] = rng.integers(0, 4, len(row["letter"])).tolist()
        out.append(row)
    return out


__all__ = ["FEW", "FEWER", "INSTANCES", "IN_FLIGHT", "PROGRAMS", "UPDATED", "Case", "cases", "instances"]
