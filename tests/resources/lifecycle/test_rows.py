"""What `kubectl get` prints for an object in each state, and with each reason of a status."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.backlog import Backlog
from jobgroup.resource import reasons
from jobgroup.resource.conditions import Problem
from jobgroup.resource.decisions import PROBLEMS, Step
from jobgroup.resource.kinds import API_VERSION, JOBGROUP, WORKERPOOL
from jobgroup.resource.replicas import Decision
from jobgroup.resource.status import derive_status
from jobgroup.resource.workerpool_status import pool_status
from jobgroup.resource.workload import Workload
from testbed.servers.apiserver import ApiServer
from testbed.support.resources import manifest
from testbed.support.sagas import job
from tests.builders import group
from tests.jobgroup.resource.statuses import (
    COMPENSATING,
    COMPLETED,
    FAILED,
    HALF_UNDONE,
    NOW,
    derive,
)
from tests.resources.admission.applied import Kubectl

Status = dict[str, Any]

RUNNING = group(completed_count=1)
NO_UNDO = replace(FAILED, undo_count=0, undone_count=0)
ON_REQUEST = replace(FAILED, failed_job_id="", reason="cancelled")


def blocked(reason: str, stalled: bool = True, before: Status | None = None) -> Status:
    """Return the status of an object with a problem; it had no group, or this status before."""
    return derive(None, before or {}, Problem(reason, "a problem", stalled))


def refused(step: Step, state: str) -> Status:
    return derive(None, {"state": state}, PROBLEMS[step])


ACTIVE = derive(RUNNING)
UNDOING = derive(COMPENSATING)

GROUPS: dict[str, Status] = {
    "Pending PENDING": derive(),
    "Running ACTIVE 1/4": ACTIVE,
    "NoWorker ACTIVE 1/4": derive_status(1, {}, NOW, RUNNING, remark="1 job waits in mail"),
    "Compensating COMPENSATING 2/4 1/2 charge": UNDOING,
    "NoUndoWorker COMPENSATING 2/4 1/2 charge": derive_status(
        1, {}, NOW, COMPENSATING, names={COMPENSATING.failed_job_id: "charge"}, remark="1 undo"
    ),
    "Completed COMPLETED 4/4": derive(COMPLETED),
    "Failed FAILED 2/4 2/2 charge": derive(FAILED),
    "Failed FAILED 2/4 charge": derive(NO_UNDO),
    "Failed FAILED 2/4 2/2": derive(ON_REQUEST),
    "CompensationFailed FAILED_COMPENSATION 2/4 1/2 charge": derive(HALF_UNDONE),
    "Suspended PENDING": refused(Step.BLOCK_SUSPENDED, "PENDING"),
    "Cancelled FAILED": refused(Step.BLOCK_CANCELLED, "FAILED"),
    "InvalidSpec PENDING": blocked(reasons.INVALID_SPEC),
    "InvalidSpec FAILED": blocked(reasons.INVALID_SPEC, before={"state": "FAILED"}),
    "GroupExists PENDING": blocked(reasons.GROUP_EXISTS),
    "GroupRemoved PENDING": blocked(reasons.GROUP_REMOVED),
    "JobExists PENDING": blocked(reasons.JOB_EXISTS),
    "RedisStateLost PENDING": blocked(reasons.REDIS_STATE_LOST),
    "RedisStateLost ACTIVE 1/4": derive(None, ACTIVE, PROBLEMS[Step.BLOCK_LOST]),
    "NewerFormat ACTIVE 1/4": blocked(reasons.NEWER_FORMAT, before=ACTIVE),
    "CorruptKey COMPENSATING 2/4 1/2 charge": blocked(reasons.CORRUPT_KEY, before=UNDOING),
    "RedisUnavailable PENDING": blocked(reasons.REDIS_UNAVAILABLE, stalled=False),
    "RedisUnavailable ACTIVE 1/4": blocked(reasons.REDIS_UNAVAILABLE, False, ACTIVE),
    "RedisError ACTIVE 1/4": blocked(reasons.REDIS_ERROR, False, ACTIVE),
}

BACKLOG = Backlog(True, False, 2, 1, 4, 9, 3, None, "5-0")
NEW = Backlog(False, False, 0, 0, 0, 0, 0, None, "")
WORKLOAD = Workload("/apis/x", "7", 3, 2)
DECISION = Decision(5, "10 jobs, 2 per replica", None)


def pool(
    problem: str = "", backlog: Backlog | None = BACKLOG, workload: bool = True, **spec: Any
) -> Status:
    body = {"metadata": {"generation": 1}, "spec": {"queueName": "mail", **spec}}
    reported = Problem(problem, "a problem") if problem else None
    if not workload:
        return pool_status(body, NOW, backlog, problem=reported)
    return pool_status(body, NOW, backlog, WORKLOAD, DECISION, problem=reported)


POOLS: dict[str, Status] = {
    "Counting mail 10 4 3 2": pool(),
    "QueueNeverSeen mail 0 0 3 2": pool(backlog=NEW),
    "Paused mail 10 4 3 2": pool(paused=True),
    **{
        f"{reason} mail 10 4": pool(reason, workload=False)
        for reason in (
            reasons.TARGET_MISSING,
            reasons.TARGET_REFUSED,
            reasons.NOT_SCALABLE,
            reasons.CONFLICT,
            reasons.HORIZONTAL_POD_AUTOSCALER,
        )
    },
    "RedisUnavailable mail": pool(reasons.REDIS_UNAVAILABLE, backlog=None, workload=False),
    "RedisError mail": pool(reasons.REDIS_ERROR, backlog=None, workload=False),
}

# Reasons of Events alone.
EVENTS = {
    reasons.DEADLINE_EXCEEDED,
    reasons.COMPENSATED,
    reasons.UNDOS_RETRIED,
    reasons.UNDO_RESOLVED,
    reasons.JOB_ANSWERED,
    reasons.LATE_CHANGE,
    reasons.OPERATOR_UNINSTALLED,
    reasons.STATUS_REFUSED,
    reasons.CLAIMED_BY_OTHER_RELEASE,
    reasons.SCALED,
}


def test_every_reason_has_a_row() -> None:
    constants = {value for value in vars(reasons).values() if isinstance(value, str)}
    known = {value for value in constants if value.isalpha()} - EVENTS
    assert {row.partition(" ")[0] for row in (*GROUPS, *POOLS)} == known


@pytest.fixture(scope="module")
def kubectl(quiet_api: ApiServer) -> Iterator[Kubectl]:
    with Kubectl(quiet_api) as kubectl:
        yield kubectl
        kubectl("delete", "workerpools", "--all")


def rows(
    kubectl: Kubectl, kind: str, objects: Mapping[str, tuple[Mapping[str, Any], Status]]
) -> dict[str, str]:
    """Create objects with their statuses; return their printed rows without name and age."""
    kubectl("create", "-f", "-", stdin=as_list(body for body, _ in objects.values()))
    for name, (_, status) in objects.items():
        patch = json.dumps({"status": status})
        kubectl("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch)
    printed = [line.split() for line in kubectl("get", kind, "--no-headers").splitlines()]
    return {name: " ".join(cells) for name, *cells, _ in printed}


def as_list(items: Iterator[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


def with_reason_last(row: str) -> str:
    reason, _, others = row.partition(" ")
    return f"{others} {reason}"


def test_the_row_of_a_job_group_in_each_state_has_the_reason(kubectl: Kubectl) -> None:
    wanted = {f"order-{n}": row for n, row in enumerate(GROUPS)}
    objects = {
        name: (manifest(name, job("charge", "payments")), GROUPS[row])
        for name, row in wanted.items()
    }
    assert rows(kubectl, JOBGROUP.plural, objects) == {
        name: with_reason_last(row) for name, row in wanted.items()
    }


def test_the_row_of_a_pool_in_each_state_has_the_reason(kubectl: Kubectl) -> None:
    wanted = {f"pool-{n}": row for n, row in enumerate(POOLS)}
    objects = {
        name: (
            {
                "apiVersion": API_VERSION,
                "kind": WORKERPOOL.name,
                "metadata": {"name": name},
                "spec": {"queueName": "mail", "scaleTargetRef": {"name": name}},
            },
            POOLS[row],
        )
        for name, row in wanted.items()
    }
    assert rows(kubectl, WORKERPOOL.plural, objects) == {
        name: with_reason_last(row) for name, row in wanted.items()
    }
