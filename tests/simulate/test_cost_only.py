"""Cost-only passes: schedules reckoned by hand, what holds of every pass, limits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ampc.diagnostics import AmpError
from ampc.place.target import Target
from ampc.simulate.cost_only import Result, Settings, check_memory, simulate
from ampc.simulate.flow import Flow, synthetic
from tests.simulate.networks import check_pass, firings, target, varied

F, B = 0, 1


def run(flow: Flow, on: Target, instances: int, **values: Any) -> Result:
    result = simulate(flow, on, np.zeros(instances, np.int64), Settings(**{"events": 10_000, **values}))
    check_pass(flow, on, np.zeros(instances, int), values.get("max_active_keys", 32), result)
    return result


def pair() -> Flow:
    """Two nodes on two devices, 1 s forward and 2 s backward, 100 bytes between them: 1 s on the link, and 0.5 s of latency."""
    return synthetic("chain", 2, 2, seconds=1.0, message_bytes=84.0)


# ---------------------------------------------------------------------------------------- reckoned by hand


def test_one_instance_goes_there_and_back() -> None:
    r = run(pair(), target(2), 1)
    assert dict(firings(r)) == {
        (0, 2 + F, 0.0, 1.0): 1,  # then 1.0 to 2.0 on the link, there at 2.5
        (1, 4 + F, 2.5, 3.5): 1,
        (1, 4 + B, 3.5, 5.5): 1,  # then 5.5 to 6.5 on the link, there at 7.0
        (0, 2 + B, 7.0, 9.0): 1,
    }
    assert r.totals.seconds == 9.0 and r.totals.instances_per_s == 1 / 9
    assert r.totals.links == ("d0 -> d1", "d1 -> d0") and list(r.totals.link_busy_s) == [1.0, 1.0]


def test_two_instances_overlap_and_backward_goes_first() -> None:
    r = run(pair(), target(2), 2, max_active_keys=2)
    assert dict(firings(r)) == {
        (0, 2 + F, 0.0, 1.0): 1,
        (0, 2 + F, 1.0, 2.0): 1,
        (1, 4 + F, 2.5, 3.5): 1,
        (1, 4 + B, 3.5, 5.5): 1,  # before the second instance, which has waited since 3.5
        (1, 4 + F, 5.5, 6.5): 1,
        (1, 4 + B, 6.5, 8.5): 1,
        (0, 2 + B, 7.0, 9.0): 1,
        (0, 2 + B, 10.0, 12.0): 1,
    }
    assert r.trace is not None and list(r.trace.retired_s) == [9.0, 12.0]


def test_one_in_flight_means_one_after_the_other() -> None:
    assert run(pair(), target(2), 3, max_active_keys=1).totals.seconds == 27.0


def test_one_device_has_no_messages() -> None:
    r = run(synthetic("chain", 3, 1, seconds=1.0), target(1), 2)
    assert r.totals.seconds == 18.0 and r.totals.messages == 0 and list(r.totals.utilisation) == [1.0]


def test_a_node_waits_for_all_that_it_joins() -> None:
    """Root on device 0, leaves on 1 and 2; 16 bytes from the Source take 1 s, 32 bytes between nodes 2 s."""
    r = run(synthetic("tree", 3, 3, seconds=1.0, message_bytes=16.0), target(3, bytes_per_s=16.0, latency_s=0.0), 1)
    assert dict(firings(r)) == {
        (1, 4 + F, 1.0, 2.0): 1, (2, 6 + F, 1.0, 2.0): 1, (0, 2 + F, 4.0, 5.0): 1, (0, 2 + B, 5.0, 7.0): 1, (1, 4 + B, 9.0, 11.0): 1, (2, 6 + B, 9.0, 11.0): 1,
    }  # fmt: skip
    assert r.totals.seconds == 12.0


def test_a_firing_takes_what_waits_and_stops_where_a_layer_updates_itself() -> None:
    """A firing costs 1 s and 1 s a token (2 s backward). Three tokens: 0 to 4, 4 to 11; with an update (0.5 s) after two: 4 to 9.5, 9.5 to 12.5."""
    on = target(1, messages_per_firing=0)
    flow = synthetic("chain", 1, 1, seconds=1.0, firing_s=1.0, update_s=0.5, frequency=3.5, take=4)
    whole = run(flow, on, 3)
    assert dict(firings(whole)) == {(0, 2, 0.0, 4.0): 1, (0, 3, 4.0, 11.0): 1}
    assert list(whole.updates) == [1]  # at the end of the pass, with what was left
    flow = dataclasses.replace(flow, tables=flow.tables._replace(frequency=np.array([2.0])))
    stopped = run(flow, on, 3)
    assert dict(firings(stopped)) == {(0, 2, 0.0, 4.0): 1, (0, 3, 4.0, 9.5): 1, (0, 3, 9.5, 12.5): 1}
    assert list(stopped.updates) == [2]
    assert stopped.staleness[0, :3].tolist() == [2, 1, 0]
    assert stopped.totals.busy_s[0].tolist() == [4.0, 8.0, 0.5, 0.0]


def test_a_synchronous_pipeline_drains_updates_and_goes_on() -> None:
    """An instance takes 9 s. Then layer 1 is updated (0.25), the order travels (16 bytes, 0.66 s), layer 2 (0.25), the answer travels (0.66)."""
    flow = synthetic("chain", 2, 2, seconds=1.0, message_bytes=84.0, update_s=0.25)
    r = run(flow, target(2), 2, mode="sync", batch=1)
    assert r.totals.seconds == pytest.approx(2 * (9 + 2 * (0.25 + 0.66)))
    assert list(r.updates) == [2, 2] and r.staleness[:, 1:].sum() == 0


def test_a_filled_pipeline_updates_all_layers_after_the_same_instances_without_draining() -> None:
    flow = synthetic("chain", 3, 3, seconds=1.0)
    drained = run(flow, target(3, latency_s=0.0), 40, mode="sync", batch=8, max_active_keys=16)
    filled = run(flow, target(3, latency_s=0.0), 40, mode="filled", batch=8, max_active_keys=16)
    free = run(flow, target(3, latency_s=0.0), 40, max_active_keys=16)
    assert list(filled.updates) == list(drained.updates) == [5, 5, 5]
    assert free.totals.seconds <= filled.totals.seconds < drained.totals.seconds
    assert filled.staleness[:, 3:].sum() == 0  # only the batch before and its own can update a layer meanwhile


def test_messages_to_another_device_cost_both_sides_their_overhead() -> None:
    r = run(pair(), target(2, overhead_s=0.1), 1)
    assert r.totals.seconds == pytest.approx(9.0 + 4 * 0.1)
    r = run(pair(), target(2, overhead_s=0.1, each_s=0.03), 1)
    assert r.totals.seconds == pytest.approx(9.0 + 4 * 0.13)


def test_in_shared_memory_the_reader_spends_the_time_of_the_bytes() -> None:
    """A message is there after its latency; with two instances in flight the sender fires meanwhile as if nothing were carried."""
    carried, read = run(pair(), target(2), 1), run(pair(), target(2, topology="shared"), 1)
    assert read.totals.seconds == pytest.approx(carried.totals.seconds) == pytest.approx(9.0)
    assert read.totals.busy_s.sum() == pytest.approx(carried.totals.busy_s.sum() + carried.totals.link_busy_s.sum())
    assert read.totals.link_busy_s.sum() == 0.0 and read.totals.link_bytes.sum() == carried.totals.link_bytes.sum()


def test_the_loaded_rate_leaves_out_what_fills_and_drains() -> None:
    flow = synthetic("chain", nodes=4, devices=4, seconds=1.0, backward=1.0, message_bytes=0.0)
    quick = target(4, latency_s=0.0, bytes_per_s=1e12)
    alone, many = run(flow, quick, 40, max_active_keys=1), run(flow, quick, 40, max_active_keys=8)
    assert alone.loaded_instances_per_s == pytest.approx(1 / 8)
    assert many.totals.instances_per_s < many.loaded_instances_per_s == pytest.approx(1 / 2, rel=0.05)
    assert run(flow, quick, 1).loaded_instances_per_s == 0.0


# ------------------------------------------------------------------------------------------ any pass at all

shapes = st.tuples(st.sampled_from(["chain", "tree"]), st.integers(1, 9), st.integers(1, 5), st.integers(0, 10_000))


@given(
    shape=shapes, topology=st.sampled_from(["full", "ring", "star", "shared"]), n=st.integers(0, 12), in_flight=st.integers(1, 6), take=st.integers(1, 5),
    mode=st.sampled_from(["async", "sync", "filled"]), batch=st.integers(1, 5), jitter=st.sampled_from([0.0, 0.5]), failures=st.sampled_from([0.0, 0.2]),
)  # fmt: skip
@settings(max_examples=40)
def test_nothing_is_lost_and_nothing_happens_before_its_time(
    shape: Any, topology: Any, n: int, in_flight: int, take: int, mode: Any, batch: int, jitter: float, failures: float
) -> None:
    form, nodes, devices, seed = shape
    flow = varied(synthetic(form, nodes, devices, take=take, frequency=float(batch), update_s=0.3, firing_s=0.2), devices, seed)
    on = target(devices, topology=topology, messages_per_firing=0 if take > 1 else 1, overhead_s=0.05, each_s=0.02)
    chance = {"jitter": jitter, "failures_per_s": failures, "repair_s": 3.0, "seed": seed}
    values: dict[str, Any] = {"max_active_keys": in_flight, "mode": mode, "batch": batch, **chance}
    first, again = run(flow, on, n, **values), run(flow, on, n, **values)
    assert first.totals.seconds == again.totals.seconds and np.array_equal(first.staleness, again.staleness)
    if mode != "async":
        assert np.all(first.updates == -(-n // batch))
    if mode == "sync":
        assert first.staleness[:, 1:].sum() == 0


@given(shapes, st.integers(1, 10))
def test_more_in_flight_are_never_slower_on_a_chain_without_links(shape: Any, n: int) -> None:
    _, nodes, devices, seed = shape
    flow = varied(synthetic("chain", nodes, devices), devices, seed, scattered=False)
    on = target(devices, bytes_per_s=1e18, latency_s=0.0)
    one = run(flow, on, n, max_active_keys=1).totals.seconds
    assert one == pytest.approx(n * flow.tables.seconds.sum())
    busiest = np.bincount(flow.tables.device[flow.tables.segment], flow.tables.seconds.sum(axis=1)).max()
    assert n * busiest <= run(flow, on, n, max_active_keys=n).totals.seconds * (1 + 1e-12) <= one * (1 + 1e-9)


def test_tables_grow_when_many_messages_are_under_way() -> None:
    """A firing that sends to 2,500 leaves at once needs more room than the heap begins with."""
    flow = synthetic("tree", 5000, 2, seconds=1e-6)
    on = target(2, bytes_per_s=1e9, latency_s=1.0)
    r = run(flow, on, 1, events=100_000)
    assert r.totals.messages > 4500


def test_templates_are_drawn_equally_often_by_seed() -> None:
    from ampc.simulate.cost_only import order

    flow = dataclasses.replace(pair(), tables=pair().tables._replace(first=np.array([0, 3, 6, 9])))
    a, b = order(flow, 10, seed=1), order(flow, 10, seed=2)
    assert sorted(np.bincount(a).tolist()) == [3, 3, 4] and not np.array_equal(a, b)
    assert np.array_equal(a, order(flow, 10, seed=1))


# ------------------------------------------------------------------------------------------------- limits


def test_devices_without_a_node_are_idle() -> None:
    r = run(synthetic("chain", 4, 64, seconds=1.0), target(64), 8)
    assert np.count_nonzero(r.totals.utilisation) == 4 and np.all(r.totals.utilisation[4:] == 0.0)


def test_no_instance_takes_no_time() -> None:
    r = run(pair(), target(2), 0)
    assert r.totals.seconds == 0.0 and r.totals.instances_per_s == 0.0 and np.all(r.totals.utilisation == 0) and np.all(r.totals.link_utilisation == 0)
    assert np.all(np.isnan(r.mean_staleness())) and np.all(r.mean_depth == 0)


def test_free_work_and_free_links_end_at_once() -> None:
    r = run(synthetic("chain", 3, 2, seconds=0.0), target(2, bytes_per_s=1e18, latency_s=0.0), 5)
    assert r.totals.seconds < 1e-12 and np.all(r.totals.utilisation <= 1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_active_keys": 0}, "`max_active_keys` of a simulation must be from 1 to 1.04858e+06, got 0"),
        ({"batch": 0}, "`batch` of a simulation must be from 1 to 1e+12, got 0"),
        ({"jitter": -0.1}, "`jitter` of a simulation must be from 0 to 100, got -0.1"),
        ({"jitter": float("nan")}, "`jitter` of a simulation must be from 0 to 100, got nan"),
        ({"failures_per_s": float("inf")}, "`failures_per_s` of a simulation must be from 0 to 1e+09, got inf"),
        ({"mode": "asink"}, "`mode` of a simulation must be one of `async`, `sync`, `filled`, got `asink`"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(AmpError) as caught:
        simulate(pair(), target(2), 1, Settings(**values))
    assert [(d.code, d.message) for d in caught.value.diagnostics] == [("AMP551", message)]


def test_what_does_not_fit_a_device_is_refused_by_name_and_how_much() -> None:
    flow = synthetic("chain", 2, 2, layer_bytes=1000.0, kept_bytes=100.0)
    on = target(2, memory_bytes=1500)
    check_memory(flow, on, 5)
    with pytest.raises(AmpError) as caught:
        simulate(flow, on, 20, Settings(max_active_keys=8))
    assert [(d.code, d.message, d.help) for d in caught.value.diagnostics] == [
        ("AMP552", f"device `d{k}` of target `test` has 1,500 bytes, but needs 1,800: 1,000 for its layers and 100 for each of 8 instances in flight",
         "lower `max_active_keys` to 5") for k in (0, 1)
    ]  # fmt: skip
    assert simulate(flow, on, 5, Settings(max_active_keys=8)).totals.instances == 5  # no more than there are can be in flight
    with pytest.raises(AmpError, match="place fewer layers on it"):
        check_memory(flow, target(2, memory_bytes=1024), 1)


def test_a_simulation_that_does_not_fit_this_machine_is_refused() -> None:
    flow = synthetic("chain", 5000, 10)
    with pytest.raises(AmpError, match="AMP553"):
        simulate(flow, target(10), np.zeros(1 << 20, np.int64), Settings(max_active_keys=(1 << 20) - 1))


def test_failures_and_jitter_cost_time_and_lose_nothing() -> None:
    flow = synthetic("chain", 4, 4, seconds=1.0)
    plain = run(flow, target(4), 100, max_active_keys=8)
    shaky = run(flow, target(4), 100, max_active_keys=8, jitter=0.5, seed=3)
    broken = run(flow, target(4), 100, max_active_keys=8, failures_per_s=0.05, repair_s=10.0, seed=3)
    assert plain.totals.failures == 0 < broken.totals.failures
    assert broken.totals.seconds > plain.totals.seconds and shaky.totals.seconds != plain.totals.seconds
    assert broken.totals.busy_s[:, 3].sum() == pytest.approx(10.0 * broken.totals.failures)
    # 4 devices, 100 instances, 3 s each: 1200 busy seconds, so 60 failures on average.
    assert 35 < broken.totals.failures < 90


def test_a_full_log_drops_and_says_so() -> None:
    whole, cut = run(pair(), target(2), 20), simulate(pair(), target(2), np.zeros(20, np.int64), Settings(events=10))
    assert whole.trace is not None and cut.trace is not None
    assert len(cut.trace.start_s) == 10 and cut.trace.dropped == len(whole.trace.start_s) - 10
    assert cut.totals.seconds == whole.totals.seconds
    assert simulate(pair(), target(2), 3).trace is None
