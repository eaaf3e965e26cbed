"""Cycles are named exactly: against the definition, on random graphs, and at once for data that is in order."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from data_graphs import F, K, T, instance
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.data import check_acyclic, read
from ampc.diagnostics import AmpError
from ampc.ir.graph import Graph, Region

ONE = instance(F("up", "index", "node", of="node", optional=True), axes="node")


def on_cycles(edges: list[list[int]]) -> set[int]:
    """The nodes that can reach themselves, by the definition."""
    found = set()
    for start in range(len(edges)):
        seen: set[int] = set()
        stack = list(edges[start])
        while stack:
            node = stack.pop()
            if node == start:
                found.add(start)
                break
            if node not in seen:
                seen.add(node)
                stack += edges[node]
    return found


def named(call: Any) -> dict[int, set[int]]:
    try:
        call()
    except AmpError as failure:
        out: dict[int, set[int]] = {}
        for d in failure.diagnostics:
            match = re.match(r"row (\d+) of `data`: elements? ([\d, ]+?) of axis `node` wait", d.message)
            assert match and d.code == "AMP817"
            out.setdefault(int(match.group(1)), set()).update(int(x) for x in match.group(2).split(","))
        return out
    return {}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=6, max_size=6), min_size=1, max_size=3))
def test_exactly_the_nodes_on_cycles_are_named(rows: list[list[list[int]]]) -> None:
    data = read([{"v": [0.0] * 6, "kid": kids, "t": [0.0] * 6} for kids in rows], K)
    want = {i: nodes for i, kids in enumerate(rows) if (nodes := on_cycles(kids))}
    assert named(lambda: check_acyclic(data, "node", ("kid",))) == want


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)), min_size=5, max_size=5))
def test_several_fields_count_together(pairs: list[tuple[int | None, int | None]]) -> None:
    data = read([{"v": [0.0] * 5, "left": [p[0] for p in pairs], "right": [p[1] for p in pairs], "t": [0.0] * 5}], T)
    want = on_cycles([[x for x in p if x is not None] for p in pairs])
    assert named(lambda: check_acyclic(data, "node", ("left", "right"))) == ({0: want} if want else {})


def test_reading_checks_the_visits_of_the_model() -> None:
    regions = (Region(0, "instance"), Region(1, "visit", 0, axis="node", after=("up",)))
    visiting = Graph("m", ONE.axes, ONE.fields, (), regions, ())
    assert read([{"up": [1, 0]}], ONE).n == 1, "without a visit a cycle is a graph like any other"
    with pytest.raises(AmpError) as caught:
        read([{"up": [None, 0]}, {"up": [1, 2, 1, 0, None]}], visiting)
    assert [d.message for d in caught.value.diagnostics] == [
        "row 1 of `data`: elements 1, 2 of axis `node` wait for each other in a cycle through `up`"
    ]


def test_long_and_many_cycles_are_shortened() -> None:
    long = read([{"up": [(i + 1) % 100 for i in range(100)]}], ONE)
    with pytest.raises(AmpError, match=r"elements 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 88 more of axis `node`"):
        check_acyclic(long, "node", ("up",))
    many = read([{"up": [0]}] * 30, ONE)
    with pytest.raises(AmpError) as caught:
        check_acyclic(many, "node", ("up",))
    assert len(caught.value.diagnostics) == 12 and caught.value.diagnostics[-1].notes == ("18 more cycles",)


def test_a_chain_of_a_hundred_thousand_is_checked_at_once() -> None:
    n = 100_000
    chain = read([{"up": [None, *range(n - 1)]}], ONE)
    zigzag = read([{"up": [None, 2, 0, *range(1, n - 2)]}], ONE)  # not in the order of the positions
    begin = time.process_time()
    check_acyclic(chain, "node", ("up",))
    check_acyclic(zigzag, "node", ("up",))
    assert time.process_time() - begin < 2.0
