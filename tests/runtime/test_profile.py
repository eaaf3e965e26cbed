"""Profiles: what the log took is taken off, and what is left gives the pass again."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from ampc.codegen.plan import make_plan
from ampc.ir.graph import Graph
from ampc.place import Device, Links, Statistics, Target, measure
from ampc.runtime import profile
from ampc.runtime.log_cost import log_cost
from ampc.runtime.settings import JIT
from ampc.runtime.trace import LogCost, Trace
from ampc.simulate.costs import costs
from support import dataset, engine, random_rows, small

COST = LogCost(1e-9, 5e-9, 2e-10)


def seen(graph: Graph) -> Statistics:
    return measure(graph, dataset(graph, random_rows(graph, 100, 1)))


@pytest.fixture(scope="module")
def trace() -> Trace:
    graph = small("list_reduction")
    e = engine(graph, 1, min_update_frequency=8)
    e.run(dataset(graph, random_rows(graph, 100, 1)), np.arange(100), train=True, record=True)
    assert e.trace is not None
    return dataclasses.replace(e.trace, log_cost=LogCost())


def test_what_the_log_took_is_taken_off(trace: Trace) -> None:
    graph = small("list_reduction")
    plan = make_plan(graph, dict.fromkeys(graph.by_id, 0))
    without = profile.profile(trace, plan, seen(graph))
    found = profile.profile(dataclasses.replace(trace, log_cost=COST), plan, seen(graph))
    updates = np.bincount(trace.queue, trace.updates)
    for a, b in zip(found.queues, without.queues, strict=True):
        q = 2 * a.segment + (a.direction == "backward")
        assert a.seconds == pytest.approx(b.seconds - 1e-9 * (a.firings + 2 * updates[q]))
        assert a.update_s == pytest.approx(b.update_s - 1e-9 * updates[q])
    (a,), (b,) = found.devices, without.devices
    entries = 4e-9 * len(trace.start_s) + 2e-10 * trace.tokens.sum()
    assert a.overhead_s == pytest.approx(b.overhead_s - entries)
    assert a.busy_s == pytest.approx(sum(q.seconds for q in found.queues) + found.ordered_s)
    assert a.busy_s + a.waiting_s + a.overhead_s + a.idle_s + a.log_s == pytest.approx(found.seconds)


def test_no_log_takes_more_than_there_is(trace: Trace) -> None:
    graph = small("list_reduction")
    found = profile.profile(dataclasses.replace(trace, log_cost=LogCost(1.0, 1.0, 1.0)), make_plan(graph, dict.fromkeys(graph.by_id, 0)), seen(graph))
    assert all(q.seconds > 0 for q in found.queues) and found.devices[0].overhead_s > 0


def test_what_a_profile_tells_gives_its_pass_again(trace: Trace) -> None:
    """Firings by the cost model, refined by a profile, take the time of the profile's firings and of what lay between them."""
    graph = small("list_reduction")
    e = engine(graph, 1)
    data = dataset(graph, random_rows(graph, 100, 1))
    plan, told = make_plan(graph, dict.fromkeys(graph.by_id, 0)), seen(graph)
    found = profile.profile(dataclasses.replace(trace, log_cost=COST), plan, told)
    device = Device("core:0", "cpu", {"fp32": 1e11}, 1e10, 1 << 30, 1e-8, firing_overhead_s=1e-7)
    given = Target("one", (device,), Links("shared", 1e10, 1e-7))
    for target in (given, profile.refined(given, found)):
        factors = profile.factors(found, plan, told, target)
        e.bind(data)
        assert e._binding is not None
        on = {s.id: target.devices[0] for s in plan.segments}
        tables = costs(
            plan, e._binding.extents, on, dict.fromkeys(plan.layers, target.devices[0]), precision="fp32", chance=(0.0,) * 6, factors=factors
        )  # fmt: skip
        whole = spent = 0.0
        for q in (q for q in found.queues if factors.keys() & set(q.nodes)):  # others have no work that could take longer
            k = 2 * q.segment + (q.direction == "backward")
            rows = sum(tables.per_row[i] * tables.rows[tables.space[i]].mean() for i in range(tables.first[k], tables.first[k + 1]))
            whole += q.firings * tables.per_firing[k] + q.tokens * (tables.per_token[k] + rows) + q.update_s
            spent += q.seconds + q.firings * found.devices[0].overhead_s / sum(q.firings for q in found.queues)
        assert whole == pytest.approx(spent, rel=1e-2)


def test_a_log_costs_a_look_and_more_a_firing() -> None:
    found = log_cost()
    if JIT:
        assert 0 < 2 * found.look_s <= found.firing_s < 1e-3 and 0 <= found.token_s < 1e-4
    else:
        assert found == LogCost()


def test_files_keep_what_a_log_cost(trace: Trace, tmp_path: object) -> None:
    from ampc.runtime.trace import load

    dataclasses.replace(trace, log_cost=COST).save(str(tmp_path))
    assert load(str(tmp_path)).log_cost == COST
    assert msgspec.json.decode(b'{"name": "a", "busy_s": 1, "waiting_s": 0, "overhead_s": 0, "idle_s": 0}', type=profile.DeviceProfile).log_s == 0
