"""Families of Linears over the elements of an axis, in every surrounding that their kernels tell apart: equal to the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from differential import compare
from support import graph_of, random_rows

HEAD = """
model g(hidden = 3, members = {members}):
    instance:
        axis node, edge
        x: float[node, hidden]
        source: node[edge]{none}
        target: node[edge]
        kind: int[edge] < members
        y: float
    f = Linear(hidden, hidden) for k in members
    g = Linear(hidden, hidden) for k in members
    start = Linear(hidden, hidden)
    h = start(x)
"""

BODIES = {
    "gathered and summed": """
    each e in edge:
        branch kind[e] as k:
            m = f[k](h[source[e]])
        merge m
        a[target[e]] += m
""",
    "gathered, then more work": """
    each e in edge:
        branch kind[e] as k:
            m = f[k](h[source[e]])
        merge m
        a[target[e]] += tanh(m) * h[target[e]]
""",
    "not gathered, summed": """
    each e in edge:
        q = tanh(h[source[e]])
        branch kind[e] as k:
            m = f[k](q)
        merge m
        a[target[e]] += m
""",
    "not gathered, read twice": """
    each e in edge:
        q = tanh(h[source[e]])
        branch kind[e] as k:
            m = f[k](q)
        merge m
        a[target[e]] += m * m
""",
    "two families of one gather": """
    each e in edge:
        q = h[source[e]]
        branch kind[e] as k:
            m = f[k](q)
            n = g[k](q)
        merge m, n
        a[target[e]] += m + tanh(n)
""",
    "both ways": """
    each e in edge:
        branch kind[e] as k:
            m = f[k](h[source[e]])
            n = g[k](h[target[e]])
        merge m, n
        a[target[e]] += m
        a[source[e]] += n
""",
    "the mean": """
    each e in edge:
        branch kind[e] as k:
            m = f[k](h[source[e]])
        merge m
        a[target[e]] mean= m
""",
    "the largest": """
    each e in edge:
        branch kind[e] as k:
            m = f[k](h[source[e]])
        merge m
        a[target[e]] max= m
""",
}
TAIL = "    loss squared(sum(node, sum(tanh(a + h))), y)\n"


@pytest.mark.parametrize("body", list(BODIES))
@pytest.mark.parametrize(("members", "none"), [(1, ""), (3, ""), (3, " or none"), (17, "")])
def test_every_surrounding(body: str, members: int, none: str) -> None:
    graph = graph_of(HEAD.format(members=members, none=none) + BODIES[body] + TAIL)
    assert none or members == 1 or any(getattr(n, "op", "") == "linear_by" for n in graph.nodes)
    rows = random_rows(graph, 12, seed=3, longest=6)
    runs = [{"workers": w, "driver": d, "max_active_keys": 5} for w, d in ((1, "step"), (2, "step"), (1, "threads"))]
    assert compare(graph, rows, runs, seed=2, tolerance=1e-4) is None


def test_many_edges_of_one_node_and_kind_are_multiplied_once() -> None:
    """The firing's products have a row for each distinct pair, not for each edge: what is beyond stays as it was."""
    from ampc.runtime.segments import distinct_rows

    rng = np.random.default_rng(0)
    m, n, k = 50, 6, 3
    kinds, ids = rng.integers(-1, k, m), rng.integers(-1, n, m)
    words = np.full(4 * m + 2 * k + 2 + k * (n + 1), -7, np.int64)
    words[:m], words[m : 2 * m] = kinds, ids
    rows, pair, starts, table = 2 * m, 3 * m, 4 * m, 4 * m + 2 * k + 2
    distinct_rows(words, rows, starts, pair, 0, m, m, n, k, table)
    pairs = sorted({(a, b) for a, b in zip(kinds.tolist(), ids.tolist()) if a >= 0})
    assert words[starts + k] == len(pairs) and words[rows : rows + len(pairs)].tolist() == [b for _, b in pairs]
    assert [words[starts + j] for j in range(k)] == [sum(a < j for a, _ in pairs) for j in range(k)]
    assert words[pair : pair + m].tolist() == [pairs.index((a, b)) if a >= 0 else -1 for a, b in zip(kinds.tolist(), ids.tolist())]
    assert (words[rows + len(pairs) : 3 * m] == -7).all()


def test_a_family_without_elements() -> None:
    graph = graph_of(HEAD.format(members=3, none="") + BODIES["gathered and summed"] + TAIL)
    rows = [{"x": [[1.0, 2.0, 3.0]], "source": [], "target": [], "kind": [], "y": 0.5}, {"x": [], "source": [], "target": [], "kind": [], "y": 0.5}]
    assert compare(graph, rows, [{"workers": 1, "driver": "step"}], seed=2, tolerance=1e-5) is None
