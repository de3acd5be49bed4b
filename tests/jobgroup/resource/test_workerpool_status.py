"""The status of a pool, its conditions, and that it matches the schema of the CRD."""

import json
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.backlog import Backlog
from jobgroup.resource.conditions import Problem
from jobgroup.resource.reasons import NOT_SCALABLE, TARGET_MISSING
from jobgroup.resource.replicas import Bounds, Decision
from jobgroup.resource.workerpool_spec import bounds_of
from jobgroup.resource.workerpool_status import (
    Scaling,
    WorkerPoolStatus,
    differs_beyond_counts,
    pool_status,
)
from jobgroup.resource.workload import MAX_INT32, Workload

NOW = 1_700_000_000_000
LATER = NOW + 60_000
BACKLOG = Backlog(True, False, 2, 1, 4, 9, 3, None, "5-0")
WORKLOAD = Workload("/apis/x", "7", 3, 2)
DECISION = Decision(5, "10 jobs, 2 per replica", None)
SCALING = Scaling(3, 5, "10 jobs, 2 per replica", "42")
CONFLICT = Problem("Conflict", "the WorkerPool other scales the same workload and is older")
AWAY = Problem("RedisUnavailable", "the workload is left as it is: refused", stalled=False)
MISSING = Problem(TARGET_MISSING, "there is no Deployment undoers in shop")
LOCKED = Problem(NOT_SCALABLE, "Deployment undoers is not scaled")

WHOLE = {"backlog": BACKLOG, "workload": WORKLOAD, "decision": DECISION, "scaling": SCALING}


def body(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    given = {"queueName": "payments:compensation", **spec}
    return {"metadata": {"generation": 4}, "spec": given, "status": status}


def conditions_by_type(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_the_status_of_a_scaling_has_every_field() -> None:
    status = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION, SCALING)
    conditions = status.pop("conditions")
    assert status == {
        "observedGeneration": 4,
        "backlog": 10,
        "jobs": {"waiting": 2, "prioritized": 1, "active": 4, "delayed": 9},
        "desiredReplicas": 5,
        "replicas": 5,
        "readyReplicas": 2,
        "lastScale": {
            "time": "2023-11-14T22:13:20Z",
            "fromReplicas": 3,
            "toReplicas": 5,
            "reason": "10 jobs, 2 per replica",
        },
    }
    assert {each["message"] for each in conditions} == {"10 jobs, 2 per replica"}
    assert SCALING.event.message == "from 3 to 5: 10 jobs, 2 per replica"
    # The same scaling at another time is another Event.
    assert SCALING.event.which != replace(SCALING, version="43").event.which


def test_the_same_pool_has_the_same_status_later() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    assert pool_status(body(first), LATER, BACKLOG, WORKLOAD, DECISION) == first


@pytest.mark.parametrize(
    ("spec", "known", "problem", "conditions"),
    [
        ({}, True, None, {"Ready": ("True", "Counting"), "ScalingActive": ("True", "Counting")}),
        (
            {},
            False,
            None,
            {"Ready": ("True", "QueueNeverSeen"), "ScalingActive": ("True", "QueueNeverSeen")},
        ),
        (
            {"paused": True},
            True,
            None,
            {"Ready": ("True", "Paused"), "ScalingActive": ("False", "Paused")},
        ),
        (
            {},
            True,
            CONFLICT,
            {
                "Ready": ("False", "Conflict"),
                "Stalled": ("True", "Conflict"),
                "ScalingActive": ("False", "Conflict"),
            },
        ),
        (
            {},
            True,
            AWAY,
            {
                "Ready": ("False", "RedisUnavailable"),
                "ScalingActive": ("False", "RedisUnavailable"),
            },
        ),
    ],
)
def test_conditions_as_kstatus_reads_them(
    spec: dict[str, Any],
    known: bool,
    problem: Problem | None,
    conditions: dict[str, tuple[str, str]],
) -> None:
    backlog = replace(BACKLOG, known=known)
    status = pool_status(body(**spec), NOW, backlog, WORKLOAD, DECISION, None, problem)
    assert conditions_by_type(status) == conditions


def test_a_queue_never_seen_is_named() -> None:
    status = pool_status(body(), NOW, replace(BACKLOG, known=False), WORKLOAD, DECISION)
    said = 'the queue "payments:compensation" is not in Redis yet; check spec.queueName'
    assert status["conditions"][0]["message"] == said


def test_a_queue_never_seen_does_not_hide_the_ceiling() -> None:
    capped = replace(DECISION, reason="minReplicas is 9", is_capped=True)
    status = pool_status(body(), NOW, replace(BACKLOG, known=False), WORKLOAD, capped)
    assert status["conditions"][0]["message"].endswith("check spec.queueName; minReplicas is 9")


def test_ready_replicas_that_are_not_a_number_are_left_out() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    status = pool_status(body(first), NOW, BACKLOG, replace(WORKLOAD, ready=None), DECISION)
    assert "readyReplicas" not in status
    assert status["replicas"] == 3


def test_a_transient_problem_keeps_the_counts() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    blocked = pool_status(body(first), LATER, problem=AWAY)
    assert (blocked["backlog"], blocked["replicas"]) == (10, 3)
    after = pool_status(body(blocked), LATER, BACKLOG, WORKLOAD, DECISION)
    assert conditions_by_type(after) == conditions_by_type(first)
    assert after["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize("problem", [MISSING, CONFLICT, LOCKED])
def test_a_workload_that_is_not_the_pools_own_has_no_replicas(problem: Problem) -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    status = pool_status(body(first), NOW, BACKLOG, problem=problem)
    assert status.keys() & {"desiredReplicas", "replicas", "readyReplicas"} == set()


def test_counts_alone_do_not_differ() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    busier, reason = replace(BACKLOG, waiting=9), replace(DECISION, reason="17 jobs, 2 per replica")
    counted = pool_status(body(first), NOW, busier, WORKLOAD, reason)
    assert counted != first
    assert not differs_beyond_counts(counted, first)
    assert differs_beyond_counts(
        pool_status(body(first), NOW, BACKLOG, WORKLOAD, DECISION, SCALING), first
    )
    assert differs_beyond_counts(pool_status(body(first), NOW, problem=AWAY), first)
    assert differs_beyond_counts(first, {})


@pytest.mark.parametrize("problem", [None, CONFLICT, AWAY, MISSING, Problem("X", "y" * 5000)])
@pytest.mark.parametrize("known", [WHOLE, {}])
def test_every_status_fits_the_schema(known: dict[str, Any], problem: Problem | None) -> None:
    status = pool_status(body(), NOW, problem=problem, **known)
    assert WorkerPoolStatus.model_validate_json(json.dumps(status)).observedGeneration == 4


@pytest.mark.parametrize("replicas", [20_000, MAX_INT32])
def test_the_status_of_a_workload_of_any_size_fits_the_schema(replicas: int) -> None:
    workload = Workload("/apis/x", "7", replicas, replicas)
    decision = Decision(replicas, "cooling down", None)
    scaling = replace(SCALING, before=replicas)
    status = pool_status(body(), NOW, BACKLOG, workload, decision, scaling)
    assert WorkerPoolStatus.model_validate_json(json.dumps(status)).readyReplicas == replicas


def test_bounds_are_those_of_the_spec() -> None:
    spec = {"minReplicas": 1, "maxReplicas": 4, "jobsPerReplica": 3, "cooldownSeconds": 9}
    assert bounds_of({**spec, "paused": True}) == Bounds(1, 4, 3, 9, True)
    assert bounds_of({**spec, "paused": True}, 7) == Bounds(1, 4, 3, 9, True, 7)
