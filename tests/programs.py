"""Small programs for tests of lowering and passes, random instances for any program, and the numbers that the interpreter gives."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ampc.data.dataset import Dataset
from ampc.frontend import check, parse
from ampc.ir.graph import Graph
from ampc.ir.interpret import Interpreter
from ampc.ir.state import Instance
from ampc.ir.verify import verify
from ampc.lower import lower

MODELS = Path(__file__).parent.parent / "models"

FLAT = ("axis token", "x: float[token, 3]", "z: float[3]", "k: int < 3", "hot: flag", "word: int[token] < 5", "rest: int < 4 or none", "maybe: float or none", "y: float")
GRAPH = (
    "axis node, edge", "x: float[node, 3]", "source, target: node[edge]", "kind: int[edge] < 3", "away: node[edge] or none", "root: node or none", "t: float[node]", "y: float",
)
TREE = ("axis node, child[node]", "x: float[node, 3]", "left, right: node[node] or none", "mark: int[node] < 2", "kid: node[child]", "g: float[child]", "t: float[node]", "y: float")
KINDS = (*TREE, "kind: int[child] < 2", "may: node[child] or none")
WORDS = ("axis word, char[word]", "letter: int[char] < 4", "next: char[char] or none", "w: float[word, 2]", "t: float[word]", "y: float")

BODIES: dict[str, tuple[tuple[str, ...], str]] = {
    "loop_over_axis": (FLAT, "a = Linear(6, 3)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(a([x[t], h]))\nloss squared(sum(h), y)"),
    "loop_backwards": (FLAT, "a = Linear(6, 3)\nh = zeros(3)\nloop t in reversed(token) carry h:\n    h = tanh(a([x[t], h]))\nloss squared(sum(h), y)"),
    "loop_over_range": (FLAT, "a = Linear(3, 3)\nh = z\nloop t in range(3) carry h:\n    h = tanh(a(h) + z)\nloss squared(sum(h), y)"),
    "loop_of_no_turns": (FLAT, "a = Linear(3, 3)\nh = z\nloop t in range(0) carry h:\n    h = tanh(a(h) + z)\nloss squared(sum(h), y)"),
    "nested_loops": (
        FLAT,
        "a = Linear(3, 3)\nh = z\nn = zeros(1)\nloop t in token carry h, n:\n    g = x[t]\n    loop i in range(2) carry g, h:\n        g = tanh(a(g) + h)\n        h = h + 0.1 * g\n"
        "    n = n + sum(g)\nloss squared(sum(h) + n, y)",
    ),
    "rows_of_a_value_in_a_loop": (FLAT, "a = Linear(3, 3)\nv = tanh(a(x))\nh = zeros(3)\nloop t in reversed(token) carry h:\n    h = tanh(h * 0.5 + v[t])\nloss squared(sum(h), y)"),
    "loss_in_a_loop": (FLAT, "a = Linear(3, 1)\nh = zeros(3)\nloop t in token carry h:\n    h = tanh(h + x[t])\n    loss squared(a(h), y, weight = 0.5)\noutput h"),
    "branch_on_int": (FLAT, "w = Linear(3, 2) for i in 3\nbranch k as i:\n    h = w[i](z)\nmerge h\nloss squared(sum(h), y)"),
    "branch_on_flag_in_a_loop": (
        FLAT, "a = Linear(3, 3)\nb = Linear(3, 3)\nh = zeros(3)\nloop t in token carry h:\n    branch hot:\n        true: h = tanh(a(h) + x[t])\n        false: h = b(x[t])\n"
        "    merge h\nloss squared(sum(h), y)",
    ),
    "branch_with_a_loop": (
        FLAT, "a = Linear(3, 3)\nbranch k:\n    0:\n        h = z\n        loop t in token carry h:\n            h = tanh(a(h) + x[t])\n    1, 2: h = 2 * z\nmerge h\nloss squared(sum(h), y)",
    ),
    "branch_on_none_without_merge": (FLAT, "a = Linear(3, 1)\np = a(z)\nbranch maybe:\n    else: loss squared(p, maybe)\nbranch rest:\n    none: loss squared(2 * p, y)\n    2: loss absolute(p, y)\n    else: loss huber(p, y, delta = 0.5)"),
    "branches_in_branches": (
        FLAT, "a = Linear(3, 2)\nb = Linear(3, 2)\nbranch k:\n    0:\n        branch hot:\n            true: h = a(z)\n            false: h = b(z)\n        merge h\n    else: h = a(-z)\nmerge h\nloss squared(sum(h), y)",
    ),
    "branch_on_argmax": (FLAT, "r = Linear(3, 3)\nw = Linear(3, 2) for i in 3\np = softmax(r(z))\nbranch argmax(p) as i:\n    h = w[i](z) * max(p)\nmerge h\nloss squared(sum(h), y)"),
    "branch_on_comparison_in_a_loop": (
        FLAT, "a = Linear(3, 3)\nh = z\nloop t in token carry h:\n    branch sum(h) < sum(x[t]) and not sum(h) > 2:\n        true: h = tanh(a(h) + x[t])\n        false: h = h * 0.9\n    merge h\nloss squared(sum(h), y)",
    ),
    "while_loop": (FLAT, "a = Linear(3, 3)\nh = z\nn = zeros(1)\nloop while mean(h) < 0.4 at most 6 carry h, n:\n    h = h + abs(a(z)) * 0.3\n    n = n + 1\nloss squared(sum(h) + n, y)"),
    "while_loop_in_a_loop": (
        FLAT, "a = Linear(3, 3)\nh = z\nloop t in token carry h:\n    g = x[t]\n    loop while sum(g) < sum(h) + 1 at most 3 carry g:\n        g = g + abs(a(h)) * 0.3 + x[t] * 0.1\n    h = tanh(g)\nloss squared(sum(h), y)",
    ),
    "functions": (
        FLAT, "a = Linear(6, 3)\ndef cell(x, h, scale = 1.0):\n    g = a([x, h])\n    return scale * tanh(g), sum(g)\ndef twice(x, h):\n    h, s = cell(x, h)\n    h, s2 = cell(x, h, scale = 0.5)\n    return h, s + s2\n"
        "h = zeros(3)\ns = zeros(1)\nloop t in token carry h, s:\n    h, e = twice(x[t], h)\n    s = s + e\nloss squared(sum(h) + s, y)",
    ),
    "arithmetic": (
        FLAT, "a = Linear(3, 4)\nh = a(z)\ng = 2 ** h + h ** 2 - 1 / (2 + h * h) + (1 - h) / 3 + h[0:1] * h\nloss squared(sum(g) + max(h) - mean(h) + dot(h, g), y)",
    ),
    "embedding_and_whole_values": (FLAT, "e = Embedding(5, 3)\nn = LayerNorm(3)\nh = n(e(word)) + z\nloss squared(sum(max(token, h * x)) + sum(mean(token, h)), y)"),
    "slices_and_joins": (FLAT, "a = Linear(3, 6)\ng = a(z)\nh = sigmoid(g[0:2]) * tanh(g[2:4]) + g[4:]\nloss squared(sum([h, z]), y)"),
    "gather_and_sum": (GRAPH, "w = Linear(3, 2)\neach e in edge:\n    a[target[e]] += w(x[source[e]])\nloss squared(sum(sum(node, tanh(a))), y)"),
    "gather_by_kind": (
        GRAPH, "w = Linear(3, 3) for k in 3\nh = x\nloop i in range(2) carry h:\n    each e in edge:\n        branch kind[e] as k:\n            m = w[k](h[source[e]])\n        merge m\n        a[target[e]] += m\n"
        "    h = tanh(h + a)\nloss squared(sum(sum(node, h)), y)",
    ),
    "means_maxima_and_none": (
        GRAPH, "w = Linear(3, 2)\neach e in edge:\n    m = w(x[source[e]])\n    a[away[e]] mean= m\n    b[target[e]] max= m\n    c[target[e]] += m\n    c[source[e]] += 2 * m\n"
        "each n in node:\n    loss squared(sum(a[n] + b[n] * c[n]), t[n])",
    ),
    "sum_in_a_branch": (GRAPH, "w = Linear(3, 2)\neach e in edge:\n    branch kind[e]:\n        1: a[target[e]] += w(x[source[e]])\n        else: a[source[e]] += w(-x[target[e]])\neach n in node:\n    loss squared(sum(a[n]), t[n])"),
    "none_gives_zero": (GRAPH, "w = Linear(3, 3)\nh = w(x)\neach e in edge:\n    m = h[away[e]] + h[source[e]]\np = sum(edge, m)\nq = h[root]\nloss squared(sum(p) + sum(q), y)"),
    "attention_over_neighbours": (
        GRAPH, "w = Linear(3, 2)\ns = Linear(4, 1)\nh = w(x)\neach e in edge:\n    score = leaky_relu(s([h[source[e]], h[target[e]]]), slope = 0.2)\n    m[target[e]] max= stop_gradient(score)\n"
        "each e in edge:\n    p = exp(score[e] - m[target[e]])\n    z[target[e]] += p\neach e in edge:\n    a[target[e]] += p[e] / z[target[e]] * h[source[e]]\nloss squared(sum(sum(node, a)), y)",
    ),
    "loop_inside_each": (GRAPH, "w = Linear(3, 3)\neach n in node:\n    h = x[n]\n    loop i in range(2) carry h:\n        h = tanh(w(h) + x[n])\n    r = h\nloss squared(sum(sum(node, r)), y)"),
    "all_pairs": (GRAPH, "w = Linear(6, 1)\neach n in node:\n    s = zeros(1)\n    loop e in edge carry s:\n        s = s + w([x[n], x[source[e]]])\n    loss squared(s, t[n])"),
    "softmax_over_an_axis": (GRAPH, "s = Linear(3, 1)\nr = sum(node, softmax(node, s(x)) * x)\nloss squared(sum(r), y)"),
    "binary_tree": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nvisit n in node after left[n], right[n] carry h:\n    branch left[n]:\n        none: h = w(x[n])\n        else: h = tanh(u([h[left[n]], h[right[n]]]))\n"
        "    merge h\n    loss squared(sum(h), t[n])\nloss squared(sum(sum(node, h)), y)",
    ),
    "tree_without_branches": (TREE, "w = Linear(3, 2)\nvisit n in node after left[n], right[n] carry h:\n    h = tanh(w(x[n]) + h[left[n]] - 0.5 * h[right[n]])\nr = sum(node, h)\nloss squared(sum(r), y)"),
    "tree_from_the_root": (TREE, "w = Linear(5, 2)\nvisit n in node after right[n] carry h:\n    branch right[n]:\n        none: h = x[n][0:2]\n        else: h = tanh(w([x[n], h[right[n]]]))\n    merge h\nloss squared(sum(sum(node, h)), y)"),
    "choices_by_what_a_child_ended_with": (
        TREE, "w = Linear(3, 3) for i in 3\nvisit n in node after left[n], right[n] carry h:\n    branch argmax(h[left[n]]) as i:\n        s = w[i](x[n])\n    merge s\n    branch argmax(h[right[n]]):\n"
        "        1, 2: s = s + 0.5\n        else: s = s - x[n]\n    merge s\n    h = tanh(s)\nloss squared(sum(sum(node, h)), y)",
    ),
    "children": (TREE, "w = Linear(3, 2)\nvisit n in node after kid[n] carry h:\n    h = tanh(w(x[n]) + sum(child, h[kid] * g) + max(child, h[kid]))\n    loss squared(sum(h), t[n])"),
    "attention_over_children": (
        TREE, "w = Linear(3, 2)\ns = Linear(5, 1)\nvisit n in node after kid[n] carry h:\n    v = w(x[n])\n    h = tanh(v + sum(child, softmax(child, s([x[n], h[kid]])) * h[kid]))\n    loss squared(sum(h), t[n])",
    ),
    "children_in_an_arm": (
        TREE, "w = Linear(3, 2)\nvisit n in node after kid[n] carry h:\n    branch mark[n]:\n        0: h = tanh(w(x[n]) + sum(child, h[kid] * x[n][0:1]))\n        1: h = w(-x[n])\n    merge h\n    loss squared(sum(h), t[n])",
    ),
    "children_of_each_element": (
        TREE, "w = Linear(3, 2)\nh = tanh(w(x))\neach n in node:\n    r = sum(child, h[kid]) + mean(child, tanh(h[kid]) * g) - max(child, h[kid] * h[n])\n    loss squared(sum(r), t[n])",
    ),
    "attention_of_each_element": (
        TREE, "w = Linear(3, 2)\nk = Linear(2, 2)\nh = tanh(w(x))\nloop i in range(2) carry h:\n    each n in node:\n        a = softmax(child, k(h[kid]))\n        r = tanh(h[n] + sum(child, a * h[kid]))\n"
        "    h = r\nloss squared(sum(sum(node, h)), y)",
    ),
    "attention_as_a_local": (
        TREE, "w = Linear(3, 2)\nk = Linear(2, 2)\nvisit n in node after kid[n] carry h:\n    a = softmax(child, dot(k(h[kid]), w(x[n])))\n    s = sum(child, a * h[kid])\n    h = tanh(w(x[n]) + s)\n"
        "    loss squared(sum(h), t[n])",
    ),
    "ordered_children": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nvisit n in node after kid[n] carry h:\n    s = w(x[n])\n    loop c in child carry s:\n        s = tanh(u([s, h[kid[c]]]) + g[c])\n    h = s\n"
        "    loss squared(sum(h), t[n])",
    ),
    "ordered_children_from_the_last": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nvisit n in node after left[n], kid[n] carry h, r:\n    h = w(x[n]) + r[left[n]]\n    r = h\n    loop c in reversed(child) carry h, r:\n"
        "        h = tanh(u([h, h[kid[c]]]))\n        r = r * 0.5 + r[kid[c]] * g[c]\n    loss squared(sum(h + r), t[n])",
    ),
    "ordered_children_in_an_arm": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nvisit n in node after kid[n] carry h:\n    s = w(x[n])\n    branch mark[n]:\n        0:\n            loop c in child carry s:\n                s = tanh(u([s, h[kid[c]]]))\n"
        "        1: s = tanh(s + max(child, h[kid]))\n    merge s\n    branch sum(s) > 0:\n        true: s = s + sum(child, h[kid] * g)\n        false: s = 0.5 * s\n    merge s\n    h = s\n    loss squared(sum(h), t[n])",
    ),
    "each_child_in_a_visit": (
        KINDS, "w = Linear(3, 2)\nf = Linear(2, 2) for k in 2\nvisit n in node after kid[n] carry h:\n    each c in child:\n        branch kind[c] as k:\n            v = tanh(f[k](h[kid[c]]) + g[c])\n        merge v\n"
        "    h = tanh(w(x[n])) + sum(child, softmax(child, v) * v)\nloss squared(sum(sum(node, h)), y)",
    ),
    "visits_of_children_in_a_loop": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nr = tanh(w(x))\nloop i in range(2) carry r:\n    visit n in node after kid[n] carry h:\n        h = r[n]\n        each c in child:\n            v = tanh(u([h[kid[c]], r[kid[c]]]))\n"
        "        loop c in child carry h:\n            h = tanh(u([h, h[kid[c]] * v[c]]))\n        h = h + sum(child, v * r[kid])\n    r = tanh(h)\nloss squared(sum(sum(node, r)), y)",
    ),
    "children_that_may_be_none": (
        KINDS, "w = Linear(3, 2)\nu = Linear(4, 2)\nvisit n in node after may[n] carry h:\n    s = w(x[n])\n    loop c in child carry s:\n        s = tanh(u([s, h[may[c]]]))\n"
        "    h = s + sum(child, softmax(child, h[may]) * h[may])\n    loss squared(sum(h), t[n])\neach n in node:\n    loss squared(sum(max(child, h[may])), t[n])",
    ),
    "children_of_each_element_in_order": (
        TREE, "w = Linear(3, 2)\nu = Linear(4, 2)\nh = tanh(w(x))\nv = tanh(w(x[kid]))\neach n in node:\n    s = h[n]\n    loop c in child carry s:\n        s = tanh(u([s, h[kid[c]]]) * v[c] + h[left[kid[c]]])\n"
        "    each c in child:\n        q = s * h[kid[c]] + v[c]\n    r = s + sum(child, q * v)\n    loss squared(sum(r), t[n])",
    ),
    "two_carried": (
        TREE, "w = Linear(3, 4)\nvisit n in node after left[n], kid[n] carry h, c:\n    f = w(x[n])\n    c = tanh(f[0:2] + c[left[n]]) + sum(child, c[kid])\n    h = sigmoid(f[2:4]) * c + h[left[n]]\nloss squared(sum(sum(node, [h, c])), y)",
    ),
    "loop_over_a_nested_axis": (
        WORDS, "e = Embedding(4, 2)\na = Linear(4, 2)\neach v in word:\n    h = w[v]\n    loop c in char carry h:\n        h = tanh(a([e(letter[c]), h]))\n    r = h\n    loss squared(sum(h), t[v])\nloss squared(sum(sum(word, r)), y)",
    ),
    "sums_over_a_nested_axis": (
        WORDS, "e = Embedding(4, 2)\nv = e(letter)\nq = sum(char, v)\neach i in word:\n    own = e(letter)\n    s = sum(char, softmax(char, own) * own) + mean(char, v) * q[i]\n    loss squared(sum(s), t[i])",
    ),
    "rows_that_a_nested_field_names": (WORDS, "e = Embedding(4, 2)\neach i in word:\n    own = tanh(e(letter))\n    loss squared(sum(sum(char, own[next])) + sum(max(char, own[next])), t[i])"),
    "sums_over_a_nested_axis_in_an_arm": (
        (*WORDS, "big: flag[word]", "k: int < 2"), "e = Embedding(4, 2)\neach c in char:\n    s = tanh(e(letter[c]))\neach v in word:\n    branch big[v]:\n        true:\n            branch k:\n"
        "                0: h = max(char, s) * w[v]\n                else: h = sum(char, s)\n            merge h\n        else: h = w[v]\n    merge h\n    loss squared(sum(h), t[v])\n",
    ),
    "from_child_to_child": (
        WORDS, "e = Embedding(4, 2)\nv = tanh(e(letter))\neach i in word:\n    s = sum(char, v[next])\n    loop c in reversed(char) carry s:\n        s = tanh(s + v[c] - v[next[c]])\n        output s\n    each c in char:\n"
        "        q = v[next[c]] * v[c]\n    loss squared(sum(s + max(char, q)), t[i])",
    ),
    "losses_of_ones_own": (
        GRAPH, "w = Linear(3, 2)\nh = tanh(w(x))\nloss value(square(h), weight = 0.5)\nloss squared(h, 0.25)\neach n in node:\n    loss value(dot(h[n], h[n]))\n    loss huber(h[n], 1)\n"
        "metric error(h)\nmetric score(sum(node, h))\nloss binary_cross_entropy(sum(node, h), true)",
    ),
    "constants_that_pick": (
        FLAT, "e = Embedding(5, 3)\nh = e(2)\nloop t in token carry h:\n    h = tanh(e(word[t]) * h + e(0) + one_hot(1, 3))\neach t in token:\n    q = e(word[t]) + e(4) * one_hot(0, 3)\n"
        "n = e(3)\nloop while sum(n) < 1 at most 3 carry n:\n    n = n + 0.3 + square(e(1))\nloss squared(sum(h) + sum(sum(token, q)) + sum(n), y)",
    ),
    "places_and_turns": (
        FLAT, "a = Linear(3, 3)\nh = zeros(3)\nloop t in reversed(token) carry h:\n    h = tanh(a(h * cos(0.3 * number(t))) + x[t])\n    loop i in range(3) carry h:\n        h = h + 0.1 * number(i) * number(t) * a(h)\n"
        "each t in token:\n    p = x[t] * sin(number(t)) + number(t)\ng = a(z)\nloop i while sum(g) + number(i) < 3 at most 4 carry g:\n    g = g + number(i) * 0.2\nloss squared(sum(h) + sum(sum(token, p)) + sum(g), y)",
    ),
    "places_of_children": (
        WORDS, "e = Embedding(4, 2)\nv = e(letter)\neach i in word:\n    s = zeros(2)\n    loop c in char carry s:\n        s = tanh(s + v[c] * number(c) + 0.1 * number(i))\n    each c in char:\n        q = v[c] * (1 + number(c))\n"
        "    loop k in range(2) carry s:\n        s = s + sum(char, v * number(i) * number(k))\n    loss squared(sum(s + max(char, q)), t[i])",
    ),
    "places_in_a_visit": (TREE, "a = Linear(3, 3)\nvisit n in node after kid[n] carry h:\n    h = tanh(a(x[n]) * (0.5 + number(n)) + sum(child, h[kid] * number(n)))\nloss squared(sum(sum(node, h)), y)"),
    "index_field_in_a_loop": (WORDS, "e = Embedding(4, 2)\nv = e(letter)\nh = zeros(2)\nloop c in char carry h:\n    h = tanh(h + v[c] - v[next[c]])\nloss squared(sum(h), y)"),
}


def text(name: str) -> str:
    """Return the program of this name in `BODIES`."""
    return program(name, *BODIES[name])


def program(name: str, fields: Sequence[str], body: str) -> str:
    """Return a program with these fields and this body."""
    lines = [f"model {name}():", "    instance:", *(f"        {f}" for f in fields), *(f"    {line}" for line in body.splitlines())]
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=200)
def lowered(program: str, file: str = "model.amp", **overrides: int | float | bool) -> Graph:
    """Return the verified graph of a program; many tests ask for the same, and graphs don't change."""
    model = parse(program, file)
    check(model)
    graph = lower(model, overrides)
    verify(graph)
    return graph


def small(path: Path) -> Graph:
    """Return the graph of a bundled model with few columns, and without dropout, whose draws depend on the numbers of nodes."""
    program = path.read_text(encoding="utf-8")
    head = re.search(r"model \w+\((.*?)\)", program, re.S)
    assert head is not None
    sizes = {"hidden": 5, "vocabulary": 6, "inputs": 5, "pixels": 5, "width": 3}
    graph = lowered(program, path.name, **{k: v for k, v in sizes.items() if re.search(rf"\b{k}\b", head[1])})
    return without_dropout(graph)


def without_dropout(graph: Graph) -> Graph:
    nodes = (msgspec.structs.replace(n, attrs={"rate": 0.0}) if getattr(n, "op", "") == "dropout" else n for n in graph.nodes)
    return graph.with_nodes(tuple(nodes))


def random_instance(graph: Graph, rng: np.random.Generator, number: int = 0, most: int = 4) -> Instance:
    """Return an instance with up to `most` elements on each axis; what a visit waits for comes before it."""
    lengths: dict[str, int] = {}
    starts: dict[str, Any] = {}
    for a in graph.axes:
        if not a.parent:
            lengths[a.name] = int(rng.integers(0, most + 1))
        else:
            counts = rng.integers(0, 3, lengths[a.parent])
            # The first element has none before it to name; the last has none behind it.
            counts[-1 if any(f.name == "up" and f.axis == a.name for f in graph.fields) else 0 :][:1] = 0
            starts[a.name] = np.concatenate([[0], np.cumsum(counts)])
            lengths[a.name] = int(counts.sum())
    after = {name for region in graph.regions for name in region.after}
    fields: dict[str, Any] = {}
    for f in graph.fields:
        n = lengths[f.axis] if f.axis else 1
        if f.kind == "float":
            values = rng.normal(size=(n, f.columns))
        elif f.name in after:
            owner = np.arange(n) if f.axis == f.of else np.repeat(np.arange(lengths[f.of]), np.diff(starts[f.axis]))
            if f.name == "up":  # which leads to elements behind
                owner = lengths[f.of] - 1 - owner
            values = np.array([rng.integers(0, o) if o else -1 for o in owner], np.int64).reshape(n)
            values = np.where(values >= 0, lengths[f.of] - 1 - values, -1) if f.name == "up" else values
        else:
            high = {"flag": 2, "int": f.below or 5, "index": lengths.get(f.of, 0)}[f.kind]
            values = rng.integers(0, high, n) if high else np.full(n, -1)
        if f.optional:
            values = np.where((rng.random(n) < 0.3).reshape(n, *[1] * (values.ndim - 1)), np.nan if f.kind == "float" else -1, values)
        fields[f.name] = values
    lengths_of_missing = {f.axis: 0 for f in graph.fields if f.kind == "index" and f.axis and not f.optional and not lengths[f.of] and lengths[f.axis]}
    if lengths_of_missing:  # an index field without a target has no rows
        return random_instance(graph, rng, number, most)
    return Instance(lengths, fields, starts, number)


def random_instances(graph: Graph, n: int, seed: int = 0, most: int = 4) -> list[Instance]:
    rng = np.random.default_rng(seed)
    return [random_instance(graph, rng, i, most) for i in range(n)]


def dataset_of(graph: Graph, instances: Sequence[Instance]) -> Dataset:
    """Return instances as the engine reads them."""
    def joined(parts: list[Any], dtype: Any) -> Any:
        return np.ascontiguousarray(np.concatenate(parts).astype(dtype))

    axes = {a.name: np.cumsum([0] + [i.lengths[a.name] for i in instances]).astype(np.int64) for a in graph.axes}
    inner = {
        a.name: joined([axes[a.name][k : k + 1] + i.starts[a.name][:-1] for k, i in enumerate(instances)] + [axes[a.name][-1:]], np.int64)
        for a in graph.axes if a.parent
    }
    columns = {f.name: joined([i.fields[f.name] for i in instances], np.float32 if f.kind == "float" else np.int64) for f in graph.fields}
    return Dataset(len(instances), axes, inner, columns, "generated", graph.axes, graph.fields)


def random_parameters(graph: Graph, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {f"{x.name}.{p.name}": rng.normal(size=p.shape) * 0.5 for x in graph.layers for p in x.params}


@dataclasses.dataclass
class Numbers:
    """What some instances give: the summed loss, the summed gradients, each instance's outputs and metrics."""

    loss: float
    gradients: dict[str, Any]
    outputs: list[dict[str, Any]]
    metrics: list[dict[str, Any]]


def numbers(graph: Graph, parameters: Mapping[str, Any], instances: Sequence[Instance], schedule: int | None = None) -> Numbers:
    """Return the numbers of the instances in float64; a layer that was not reached has a gradient of zeros."""
    interpreter = Interpreter(graph, parameters, np.float64, schedule=schedule)
    found = Numbers(0.0, {name: np.zeros_like(value) for name, value in parameters.items()}, [], [])
    for instance in instances:
        result = interpreter.run(instance)
        found.loss += result.loss
        for name, gradient in result.gradients.items():
            found.gradients[name] = found.gradients[name] + gradient
        found.outputs.append({name: np.concatenate([rows for _, rows in rows_]) for name, rows_ in result.outputs.items()})
        found.metrics.append(dict(result.metrics))
    return found


def assert_same(a: Numbers, b: Numbers, tolerance: float = 1e-9) -> None:
    """Assert that two forms of a program give the same; the tolerance is for sums in another order in float64."""
    np.testing.assert_allclose(a.loss, b.loss, rtol=tolerance, atol=tolerance)
    for name, gradient in a.gradients.items():
        other = b.gradients.get(name, np.zeros_like(gradient))
        np.testing.assert_allclose(other, gradient, rtol=tolerance, atol=tolerance, err_msg=name)
    for x, y in zip(a.outputs, b.outputs, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_allclose(y[name], x[name], rtol=tolerance, atol=tolerance, err_msg=name)
    for x, y in zip(a.metrics, b.metrics, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_allclose(y[name], x[name], rtol=tolerance, atol=tolerance, err_msg=name)
