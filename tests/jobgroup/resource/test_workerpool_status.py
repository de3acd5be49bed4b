"""What stands in a pool's status, how machines read it, and that the CRD describes all of it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.conditions import Trouble
from jobgroup.pool import WorkerPoolStatus, bounds_of
from jobgroup.pool_status import TARGET_MISSING, Scaling, Workload, pool_status, tells_more
from jobgroup.replicas import Backlog, Bounds, Decision

NOW = 1_700_000_000_000
LATER = NOW + 60_000
BACKLOG = Backlog(True, False, 2, 1, 4, 9, 3, None, "5-0")
WORKLOAD = Workload("/apis/x", "7", 3, 2)
DECISION = Decision(5, "10 jobs, 2 a replica", None)
SCALING = Scaling(3, 5, "10 jobs, 2 a replica", "42")
CONFLICT = Trouble("Conflict", "the WorkerPool other scales the same workload and is older")
AWAY = Trouble("RedisUnavailable", "the workload is left as it is: refused", stalled=False)
MISSING = Trouble(TARGET_MISSING, "there is no Deployment undoers in shop")

WHOLE = {"backlog": BACKLOG, "workload": WORKLOAD, "decision": DECISION, "scaling": SCALING}


def body(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    given = {"queueName": "payments:compensation", **spec}
    return {"metadata": {"generation": 4}, "spec": given, "status": status}


def told(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_a_scaling_is_told_whole() -> None:
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
            "reason": "10 jobs, 2 a replica",
        },
    }
    assert {each["message"] for each in conditions} == {"10 jobs, 2 a replica"}
    assert SCALING.news.message == "from 3 to 5: 10 jobs, 2 a replica"
    # The same again another day is news again.
    assert SCALING.news.which != replace(SCALING, version="43").news.which


def test_nothing_new_is_the_same_status_at_any_time() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    assert pool_status(body(first), LATER, BACKLOG, WORKLOAD, DECISION) == first


@pytest.mark.parametrize(
    ("spec", "known", "trouble", "conditions"),
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
    trouble: Trouble | None,
    conditions: dict[str, tuple[str, str]],
) -> None:
    backlog = replace(BACKLOG, known=known)
    status = pool_status(body(**spec), NOW, backlog, WORKLOAD, DECISION, None, trouble)
    assert told(status) == conditions


def test_a_queue_never_seen_is_named() -> None:
    status = pool_status(body(), NOW, replace(BACKLOG, known=False), WORKLOAD, DECISION)
    said = 'the queue "payments:compensation" has never been seen'
    assert status["conditions"][0]["message"] == said


def test_trouble_passes_without_a_trace() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    troubled = pool_status(body(first), LATER, trouble=AWAY)
    assert (troubled["backlog"], troubled["replicas"]) == (10, 3)
    after = pool_status(body(troubled), LATER, BACKLOG, WORKLOAD, DECISION)
    assert told(after) == told(first)
    assert after["conditions"][0]["lastTransitionTime"] == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize("trouble", [MISSING, CONFLICT])
def test_a_workload_that_is_missing_or_another_s_has_no_replicas(trouble: Trouble) -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    status = pool_status(body(first), NOW, BACKLOG, trouble=trouble)
    assert status.keys() & {"desiredReplicas", "replicas", "readyReplicas"} == set()


def test_a_count_is_less_than_news() -> None:
    first = pool_status(body(), NOW, BACKLOG, WORKLOAD, DECISION)
    busier, reason = replace(BACKLOG, waiting=9), replace(DECISION, reason="17 jobs, 2 a replica")
    counted = pool_status(body(first), NOW, busier, WORKLOAD, reason)
    assert counted != first
    assert not tells_more(counted, first)
    assert tells_more(pool_status(body(first), NOW, BACKLOG, WORKLOAD, DECISION, SCALING), first)
    assert tells_more(pool_status(body(first), NOW, trouble=AWAY), first)
    assert tells_more(first, {})


@pytest.mark.parametrize("trouble", [None, CONFLICT, AWAY, MISSING, Trouble("X", "y" * 5000)])
@pytest.mark.parametrize("known", [WHOLE, {}])
def test_every_status_fits_the_schema(known: dict[str, Any], trouble: Trouble | None) -> None:
    status = pool_status(body(), NOW, trouble=trouble, **known)
    assert WorkerPoolStatus.model_validate_json(json.dumps(status)).observedGeneration == 4


def test_bounds_are_those_of_the_spec() -> None:
    spec = {"minReplicas": 1, "maxReplicas": 4, "jobsPerReplica": 3, "cooldownSeconds": 9}
    assert bounds_of({**spec, "paused": True}) == Bounds(1, 4, 3, 9, True)
