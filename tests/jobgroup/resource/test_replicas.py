"""Desired replicas: tables of cases, and properties of any load."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobgroup.model.backlog import Backlog
from jobgroup.resource.replicas import LEAD_SECONDS, WAKE_SECONDS, Bounds, desired_replicas, wake_in

NOTHING = Backlog(True, False, 0, 0, 0, 0, 0, None, "0-0")
BOUNDS = Bounds(minimum=0, maximum=10, jobs_per_replica=5, cooldown_seconds=60)


def jobs(**counts: Any) -> Backlog:
    return replace(NOTHING, **counts)


@pytest.mark.parametrize(
    ("backlog", "wanted", "why"),
    [
        (jobs(), 0, "no job needs a worker"),
        (jobs(waiting=1), 1, "1 job, 5 per replica"),
        (jobs(waiting=5), 1, "5 jobs, 5 per replica"),
        (jobs(waiting=6), 2, "6 jobs, 5 per replica"),
        (jobs(waiting=2, prioritized=2, active=1, delayed=9, due=1), 2, "6 jobs, 5 per replica"),
        (jobs(delayed=100), 0, "no job needs a worker"),
        (jobs(delayed=100, due=5), 1, "5 jobs, 5 per replica"),
        (jobs(active=3), 1, "3 jobs, 5 per replica"),
        (jobs(waiting=50), 10, "50 jobs, 5 per replica"),
        (jobs(waiting=1000), 10, "1000 jobs need 200 replicas, maxReplicas is 10"),
        (jobs(paused=True, waiting=9, prioritized=9, due=9), 0, "the queue is paused"),
        (jobs(paused=True, waiting=99, active=6), 2, "6 jobs, 5 per replica"),
        (jobs(known=False), 0, "no job needs a worker"),
    ],
)
def test_it_scales_up_in_one_step(backlog: Backlog, wanted: int, why: str) -> None:
    decision = desired_replicas(BOUNDS, backlog, 0, None, 0.0)
    assert (decision.replicas, decision.reason, decision.calm_since) == (wanted, why, None)


@pytest.mark.parametrize(
    ("backlog", "wanted", "why"),
    [
        (jobs(), 2, "no job needs a worker, minReplicas is 2"),
        (jobs(waiting=1), 2, "1 job, minReplicas is 2"),
        (jobs(waiting=11), 3, "11 jobs, 5 per replica"),
    ],
)
def test_the_minimum_is_kept(backlog: Backlog, wanted: int, why: str) -> None:
    decision = desired_replicas(replace(BOUNDS, minimum=2), backlog, 1, None, 0.0)
    assert (decision.replicas, decision.reason) == (wanted, why)


@pytest.mark.parametrize(
    ("bounds", "backlog", "wanted", "why"),
    [
        (
            replace(BOUNDS, maximum=9000),
            jobs(waiting=1000),
            100,
            "1000 jobs, 5 per replica; the operator allows at most 100 replicas",
        ),
        (
            replace(BOUNDS, maximum=150),
            jobs(waiting=1000),
            100,
            "1000 jobs need 200 replicas, maxReplicas is 150;"
            " the operator allows at most 100 replicas",
        ),
        (
            replace(BOUNDS, minimum=9000, maximum=9000),
            jobs(),
            100,
            "no job needs a worker, minReplicas is 9000; the operator allows at most 100 replicas",
        ),
        # The ceiling changes nothing, so the reason does not mention it.
        (replace(BOUNDS, maximum=9000), jobs(waiting=500), 100, "500 jobs, 5 per replica"),
        (BOUNDS, jobs(waiting=1000), 10, "1000 jobs need 200 replicas, maxReplicas is 10"),
    ],
)
def test_no_pool_exceeds_the_ceiling_of_the_operator(
    bounds: Bounds, backlog: Backlog, wanted: int, why: str
) -> None:
    decision = desired_replicas(replace(bounds, ceiling=100), backlog, 0, None, 0.0)
    assert (decision.replicas, decision.reason) == (wanted, why)
    assert decision.is_capped == ("the operator allows" in why)
    # The reason stays when the workload has reached the ceiling.
    assert desired_replicas(replace(bounds, ceiling=100), backlog, wanted, None, 1.0) == decision


def test_replicas_above_the_ceiling_are_removed_only_when_the_queue_is_quiet() -> None:
    capped = replace(BOUNDS, maximum=9000, ceiling=100)
    assert desired_replicas(capped, jobs(active=900), 500, 0.0, 1e6).replicas == 500
    assert desired_replicas(capped, jobs(waiting=2000), 500, 0.0, 60.0).replicas == 100


def test_it_scales_down_exactly_when_the_cooldown_is_over() -> None:
    first = desired_replicas(BOUNDS, NOTHING, 3, None, 100.0)
    assert (first.replicas, first.calm_since, first.requeue_after) == (3, 100.0, 60.0)
    assert first.reason == "cooling down from 3 to 0"
    early = desired_replicas(BOUNDS, NOTHING, 3, first.calm_since, 159.75)
    assert (early.replicas, early.calm_since, early.requeue_after) == (3, 100.0, 0.25)
    there = desired_replicas(BOUNDS, NOTHING, 3, early.calm_since, 160.0)
    assert (there.replicas, there.reason, there.calm_since) == (0, "no job needs a worker", None)


def test_without_a_cooldown_it_scales_down_at_once() -> None:
    assert (
        desired_replicas(replace(BOUNDS, cooldown_seconds=0), NOTHING, 3, None, 7.0).replicas == 0
    )


def test_an_active_job_restarts_the_cooldown() -> None:
    busy = desired_replicas(BOUNDS, jobs(active=1), 3, 100.0, 1000.0)
    assert (busy.replicas, busy.calm_since) == (3, None)
    assert busy.reason == "1 job active, not scaling down"


def test_jobs_for_all_replicas_restart_the_cooldown() -> None:
    assert desired_replicas(BOUNDS, jobs(waiting=15), 3, 100.0, 1000.0).calm_since is None


def test_above_the_maximum_it_scales_down_only_when_quiet() -> None:
    assert desired_replicas(BOUNDS, jobs(active=60), 12, None, 0.0).replicas == 12
    assert desired_replicas(BOUNDS, jobs(waiting=60), 12, 0.0, 60.0).replicas == 10


def test_a_paused_pool_does_not_scale() -> None:
    for backlog in (NOTHING, jobs(waiting=100)):
        decision = desired_replicas(replace(BOUNDS, paused=True), backlog, 3, 0.0, 1e6)
        assert (decision.replicas, decision.reason) == (3, "the pool is paused")
        assert (decision.calm_since, decision.requeue_after) == (None, None)


@pytest.mark.parametrize(
    ("backlog", "seconds"),
    [
        (jobs(), None),
        (jobs(delayed=1, next_in=900_000), 840.0),
        (jobs(delayed=1, next_in=61_001), 1.001),
        (jobs(delayed=1, next_in=60_001), WAKE_SECONDS),
        (jobs(delayed=1, next_in=900_000, paused=True), None),
    ],
)
def test_it_wakes_a_cooldown_before_a_delayed_job_is_due(
    backlog: Backlog, seconds: float | None
) -> None:
    assert wake_in(BOUNDS, backlog) == seconds


def test_without_a_cooldown_it_wakes_a_little_before_a_delayed_job_is_due() -> None:
    none = replace(BOUNDS, cooldown_seconds=0)
    assert none.horizon_seconds == LEAD_SECONDS
    assert wake_in(none, jobs(delayed=1, next_in=5000)) == 5.0 - LEAD_SECONDS


COUNTS = st.integers(0, 1000)
BACKLOGS = st.builds(
    lambda **counts: jobs(**counts),
    paused=st.booleans(),
    waiting=COUNTS,
    prioritized=COUNTS,
    active=st.integers(0, 3),
    delayed=COUNTS,
    due=COUNTS,
)
ANY_BOUNDS = st.builds(
    lambda minimum, more, per, cooldown, ceiling: Bounds(
        minimum, minimum + more, per, cooldown, ceiling=ceiling
    ),
    st.integers(0, 20),
    st.integers(1, 20),
    st.integers(1, 50),
    st.integers(0, 600),
    st.none() | st.integers(1, 50),
)
TIMES = st.floats(0, 1e6)


@given(ANY_BOUNDS, BACKLOGS, st.integers(0, 60), st.none() | TIMES, TIMES)
def test_bounds_are_kept_and_busy_workers_are_not_stopped(
    bounds: Bounds, backlog: Backlog, current: int, since: float | None, now: float
) -> None:
    wanted = desired_replicas(bounds, backlog, current, since, now).replicas
    ceiling = bounds.maximum if bounds.ceiling is None else bounds.ceiling
    least, most = min(bounds.minimum, ceiling), min(bounds.maximum, ceiling)
    assert wanted == current or least <= wanted <= most
    if backlog.active:
        assert wanted >= current
    if wanted > current:
        again = desired_replicas(bounds, backlog, wanted, None, now)
        assert again.replicas == wanted


@given(ANY_BOUNDS, BACKLOGS, st.integers(0, 60), st.lists(st.floats(0.01, 900), max_size=20))
def test_a_constant_load_never_flaps(
    bounds: Bounds, backlog: Backlog, current: int, steps: list[float]
) -> None:
    now, since, changes = 0.0, None, []
    for step in [0.0, *steps]:
        now += step
        decision = desired_replicas(bounds, backlog, current, since, now)
        since = decision.calm_since
        if decision.replicas != current:
            changes.append(decision.replicas)
            current = decision.replicas
    assert len(changes) <= 1


@given(ANY_BOUNDS, st.integers(0, 60), st.lists(st.tuples(BACKLOGS, st.floats(0, 300))))
def test_it_scales_down_only_after_a_whole_cooldown(
    bounds: Bounds, current: int, load: list[tuple[Backlog, float]]
) -> None:
    now, since, enough_since = 0.0, None, None
    for backlog, step in load:
        now += step
        needed = -(-backlog.demand // bounds.jobs_per_replica)
        wanted = min(max(needed, bounds.minimum), bounds.maximum)
        wanted = wanted if bounds.ceiling is None else min(wanted, bounds.ceiling)
        calm = wanted < current and not backlog.active
        enough_since = (now if enough_since is None else enough_since) if calm else None
        decision = desired_replicas(bounds, backlog, current, since, now)
        since = decision.calm_since
        if decision.replicas < current:
            assert enough_since is not None
            assert now - enough_since >= bounds.cooldown_seconds
            enough_since = None
        current = decision.replicas
