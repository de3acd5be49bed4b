"""Object x group x incarnation x now -> the next step and the time of the next reconcile."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.snapshot import ENDED, GroupState
from jobgroup.resource.decisions import (
    FINALIZER,
    GROUP_ANNOTATION,
    OTHERS,
    PROBLEMS,
    RELEASE_ANNOTATION,
    Claimant,
    Resource,
    Step,
    next_step,
    patience,
    requeue_at,
)
from jobgroup.resource.status import derive_status
from tests.builders import group

UID = "0b5c"
INCARNATION = "e1"
NOW = 100_000

FRESH = Resource(
    uid=UID,
    generation=1,
    deleting=False,
    claimed=False,
    annotation="",
    release="",
    cancel=False,
    suspend=False,
    orphan=False,
    deadline_seconds=None,
    ttl_seconds=None,
    observed=-1,
    state="",
    finished_at=None,
)
RELEASE = "sagas/leader"
CLAIMED = replace(FRESH, claimed=True, annotation=f"{UID}/{INCARNATION}", release=RELEASE)
# The annotations of the same.
CLAIM = {GROUP_ANNOTATION: f"{UID}/{INCARNATION}", RELEASE_ANNOTATION: RELEASE}
# An object with the annotation of another one.
COPIED = replace(CLAIMED, annotation=f"another/{INCARNATION}")
OLD = replace(CLAIMED, annotation=f"{UID}/e0")
DELETED = replace(CLAIMED, deleting=True)

ACTIVE, COMPENSATING = group("ACTIVE"), group("COMPENSATING", failed_at=2_000)
COMPLETED, FAILED, HALF_UNDONE = (
    group(state, finished_at=90_000) for state in ("COMPLETED", "FAILED", "FAILED_COMPENSATION")
)


def reported(resource: Resource, state: str, **fields: Any) -> Resource:
    """Return the resource with a status that was written before."""
    finished = 90_000 if state in ENDED else None
    return replace(resource, state=state, observed=1, finished_at=finished, **fields)


def _id(value: object) -> str | None:
    return value.name if isinstance(value, Step) else None


NOT_WANTED: list[tuple[dict[str, Any], Step]] = [
    ({"suspend": True}, Step.BLOCK_SUSPENDED),
    ({"cancel": True}, Step.BLOCK_CANCELLED),
    ({"cancel": True, "suspend": True}, Step.BLOCK_CANCELLED),
]

BEFORE_CREATION = [
    (FRESH, Step.CLAIM),
    (reported(FRESH, "PENDING"), Step.CLAIM),
    (CLAIMED, Step.CREATE),
    # One without the other: both are written together, but a user may remove one.
    (replace(CLAIMED, claimed=False), Step.CLAIM),
    (replace(CLAIMED, annotation=""), Step.CLAIM),
    (replace(CLAIMED, annotation="garbage"), Step.CLAIM),
    (replace(CLAIMED, annotation=f"{UID}x/{INCARNATION}"), Step.CLAIM),
    (replace(CLAIMED, annotation=UID), Step.CLAIM),
    # Of an older operator, or a user removed the release.
    (replace(CLAIMED, release=""), Step.CLAIM),
    (replace(OLD, release=""), Step.BLOCK_LOST),
    # Before the claim and after it: a claimed object need not have a group.
    *(
        (replace(each, **wish), step)
        for each in (FRESH, CLAIMED, reported(CLAIMED, "PENDING"), replace(CLAIMED, claimed=False))
        for wish, step in NOT_WANTED
    ),
    # A copy is a new object.
    (COPIED, Step.CLAIM),
    (replace(COPIED, suspend=True), Step.BLOCK_SUSPENDED),
    (replace(COPIED, cancel=True), Step.BLOCK_CANCELLED),
    (replace(COPIED, annotation="another/e0"), Step.CLAIM),
    # Another incarnation of Redis, or another Redis.
    (OLD, Step.BLOCK_LOST),
    (replace(OLD, claimed=False), Step.BLOCK_LOST),
    (replace(OLD, cancel=True), Step.BLOCK_LOST),
    (replace(OLD, suspend=True), Step.BLOCK_LOST),
    # It had a group, in any incarnation: a restored backup of Redis has the same incarnation.
    *(
        (reported(each, state, **wish), Step.BLOCK_LOST)
        for each in (
            OLD,
            CLAIMED,
            FRESH,
            replace(CLAIMED, annotation=""),
            replace(CLAIMED, claimed=False),
        )
        for state in ("ACTIVE", "COMPENSATING")
        for wish in ({}, *(wish for wish, _ in NOT_WANTED))
    ),
    # A deadline and a time to live start with the group.
    (replace(FRESH, deadline_seconds=1, ttl_seconds=0), Step.CLAIM),
    (replace(CLAIMED, deadline_seconds=1, ttl_seconds=0), Step.CREATE),
]


@pytest.mark.parametrize(("resource", "step"), BEFORE_CREATION, ids=_id)
def test_before_there_is_a_group(resource: Resource, step: Step) -> None:
    assert next_step(resource, None, INCARNATION, NOW) is step


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("resource", [CLAIMED, OLD, FRESH, replace(CLAIMED, cancel=True)])
def test_an_ended_group_that_is_gone_is_not_run_again(resource: Resource, state: str) -> None:
    ended = reported(resource, state)
    assert next_step(ended, None, INCARNATION, NOW) is Step.NOTHING
    # Its finishedAt is 90,000. A failed compensation does not expire.
    past = Step.NOTHING if state == "FAILED_COMPENSATION" else Step.DELETE
    for ttl, step in ((0, past), (10, past), (11, Step.NOTHING)):
        assert next_step(replace(ended, ttl_seconds=ttl), None, INCARNATION, NOW) is step
    # The status must observe a new generation, or tools would wait for it without end.
    assert next_step(replace(ended, generation=2), None, INCARNATION, NOW) is Step.REPORT


WITH_A_GROUP = [
    # An existing group takes precedence over the annotation of the object.
    *((each, ACTIVE, Step.REPORT) for each in (CLAIMED, OLD)),
    # Released by an uninstall, or replaced without finalizer and annotation: claimed again first.
    *(
        (reported(replace(CLAIMED, **gone), each.state, **wish), each, Step.CLAIM)
        for each in (ACTIVE, COMPENSATING, COMPLETED, FAILED, HALF_UNDONE)
        for gone in (
            {"claimed": False},
            {"annotation": ""},
            {"claimed": False, "annotation": "", "release": ""},
        )
        for wish in ({}, {"cancel": True}, {"deadline_seconds": 1, "ttl_seconds": 0})
    ),
    (COPIED, ACTIVE, Step.CLAIM),
    # A claim that names no release is completed, but not that of an object that has ended: a start
    # after an upgrade would write them all.
    *(
        (reported(replace(CLAIMED, release=""), before), state, step)
        for before, state, step in (
            ("", ACTIVE, Step.CLAIM),
            ("ACTIVE", ACTIVE, Step.CLAIM),
            ("ACTIVE", COMPLETED, Step.CLAIM),
            ("COMPENSATING", COMPENSATING, Step.CLAIM),
            ("COMPLETED", COMPLETED, Step.REPORT),
            ("FAILED", HALF_UNDONE, Step.REPORT),
        )
    ),
    (reported(CLAIMED, "ACTIVE"), ACTIVE, Step.REPORT),
    (replace(CLAIMED, suspend=True), ACTIVE, Step.REPORT),
    (replace(CLAIMED, cancel=True), ACTIVE, Step.CANCEL),
    (replace(CLAIMED, cancel=True), COMPENSATING, Step.REPORT),
    (replace(CLAIMED, cancel=True), COMPLETED, Step.REPORT),
    # The deadline counts from 1,000, when the group was created.
    (replace(CLAIMED, deadline_seconds=100), ACTIVE, Step.REPORT),
    (replace(CLAIMED, deadline_seconds=99), ACTIVE, Step.EXPIRE),
    (replace(CLAIMED, deadline_seconds=98), ACTIVE, Step.EXPIRE),
    (replace(CLAIMED, deadline_seconds=98, cancel=True), ACTIVE, Step.CANCEL),
    (replace(CLAIMED, deadline_seconds=1), COMPENSATING, Step.REPORT),
    (replace(CLAIMED, deadline_seconds=1), COMPLETED, Step.REPORT),
    # Time to live, from the end; the end is reported before anything is deleted.
    (replace(CLAIMED, ttl_seconds=0), ACTIVE, Step.REPORT),
    (replace(CLAIMED, ttl_seconds=0), COMPENSATING, Step.REPORT),
    (replace(CLAIMED, ttl_seconds=0), COMPLETED, Step.REPORT),
    (reported(CLAIMED, "ACTIVE", ttl_seconds=0), COMPLETED, Step.REPORT),
    (reported(CLAIMED, "COMPLETED"), COMPLETED, Step.REPORT),
    *(
        (reported(CLAIMED, each.state, ttl_seconds=ttl), each, step)
        for each in (COMPLETED, FAILED)
        for ttl, step in ((0, Step.DELETE), (10, Step.DELETE), (11, Step.REPORT))
    ),
    # A person has to act on a failed compensation.
    (reported(CLAIMED, "FAILED_COMPENSATION", ttl_seconds=0), HALF_UNDONE, Step.REPORT),
    # It ended again since its status was written.
    (reported(CLAIMED, "FAILED", ttl_seconds=10), replace(FAILED, finished_at=NOW), Step.REPORT),
    (reported(CLAIMED, "FAILED", ttl_seconds=0), HALF_UNDONE, Step.REPORT),
]


@pytest.mark.parametrize(("resource", "state", "step"), WITH_A_GROUP, ids=_id)
def test_while_there_is_a_group(resource: Resource, state: GroupState, step: Step) -> None:
    assert next_step(resource, state, "", NOW) is step


@pytest.mark.parametrize(
    ("state", "compensate", "orphan"),
    [
        (None, Step.TOMBSTONE, Step.TOMBSTONE),
        (ACTIVE, Step.CANCEL, Step.ORPHAN),
        (COMPENSATING, Step.AWAIT_COMPENSATION, Step.ORPHAN),
        (COMPLETED, Step.REMOVE, Step.REMOVE),
        (FAILED, Step.REMOVE, Step.REMOVE),
        (HALF_UNDONE, Step.REMOVE, Step.REMOVE),
    ],
    ids=lambda value: value.state if isinstance(value, GroupState) else _id(value),
)
@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"cancel": True},
        {"suspend": True},
        {"annotation": f"{UID}/e0"},
        {"annotation": ""},
        {"state": "ACTIVE"},
        {"state": "COMPLETED", "finished_at": 1},
        {"deadline_seconds": 1, "ttl_seconds": 0},
    ],
    ids=str,
)
def test_a_deletion_takes_precedence(
    wish: dict[str, Any], state: GroupState | None, compensate: Step, orphan: Step
) -> None:
    deleted = replace(DELETED, **wish)
    assert next_step(deleted, state, INCARNATION, NOW) is compensate
    assert next_step(replace(deleted, orphan=True), state, INCARNATION, NOW) is orphan
    # Without our finalizer the object is about to disappear: nothing is cancelled.
    for policy in (False, True):
        released = replace(deleted, claimed=False, orphan=policy)
        assert next_step(released, state, INCARNATION, NOW) is Step.NOTHING


CLAIMS = [
    FRESH,
    CLAIMED,
    OLD,
    DELETED,
    reported(CLAIMED, "ACTIVE", deadline_seconds=0),
    reported(CLAIMED, "COMPLETED", ttl_seconds=0),
    replace(CLAIMED, cancel=True),
]


@pytest.mark.parametrize("claimant", OTHERS)
@pytest.mark.parametrize("state", [None, ACTIVE, COMPENSATING, COMPLETED])
@pytest.mark.parametrize("resource", CLAIMS)
def test_an_object_of_another_release_is_left_alone(
    resource: Resource, state: GroupState | None, claimant: Claimant
) -> None:
    assert next_step(resource, state, INCARNATION, NOW, claimant) is Step.LEAVE


TAKEN_OVER = [
    (CLAIMED, None, Step.CLAIM),
    (CLAIMED, ACTIVE, Step.CLAIM),
    (reported(CLAIMED, "ACTIVE"), COMPLETED, Step.CLAIM),
    # The group is in another Redis: the claim stays, for the release that has the group.
    (OLD, None, Step.BLOCK_LOST),
    (reported(CLAIMED, "ACTIVE"), None, Step.BLOCK_LOST),
    (replace(CLAIMED, suspend=True), None, Step.BLOCK_SUSPENDED),
    (reported(CLAIMED, "COMPLETED"), None, Step.NOTHING),
    (DELETED, None, Step.TOMBSTONE),
    (DELETED, ACTIVE, Step.CANCEL),
    (DELETED, COMPLETED, Step.REMOVE),
]


@pytest.mark.parametrize(("resource", "state", "step"), TAKEN_OVER, ids=_id)
def test_an_object_of_a_release_that_is_gone_is_taken_over(
    resource: Resource, state: GroupState | None, step: Step
) -> None:
    assert next_step(resource, state, INCARNATION, NOW, Claimant.GONE) is step


def test_a_copied_claim_and_a_claim_without_a_release_are_of_no_release() -> None:
    ours = {GROUP_ANNOTATION: f"{UID}/e0", RELEASE_ANNOTATION: RELEASE}
    for annotations, release in (
        (ours, RELEASE),
        ({**ours, GROUP_ANNOTATION: "another/e0"}, ""),
        ({RELEASE_ANNOTATION: RELEASE}, ""),
        ({GROUP_ANNOTATION: f"{UID}/e0"}, ""),
    ):
        found = Resource.read(body_of({}, {}, annotations=annotations, finalizers=[FINALIZER]))
        assert found.claimed_by == release


def test_each_step_without_a_group_has_a_reason() -> None:
    assert {step: (each.reason, each.stalled) for step, each in PROBLEMS.items()} == {
        Step.BLOCK_SUSPENDED: ("Suspended", False),
        Step.BLOCK_CANCELLED: ("Cancelled", True),
        Step.BLOCK_LOST: ("RedisStateLost", True),
    }


BOTH: dict[str, Any] = {"deadline_seconds": 60, "ttl_seconds": 30}


@pytest.mark.parametrize(
    ("resource", "state", "at"),
    [
        (CLAIMED, ACTIVE, None),
        (CLAIMED, COMPLETED, None),
        (replace(CLAIMED, **BOTH), ACTIVE, 61_000),
        (replace(CLAIMED, **BOTH), COMPENSATING, None),
        (replace(CLAIMED, **BOTH), COMPLETED, 120_000),
        (replace(CLAIMED, **BOTH), FAILED, 120_000),
        (replace(CLAIMED, **BOTH), HALF_UNDONE, None),
        (reported(CLAIMED, "COMPLETED", ttl_seconds=0), COMPLETED, 90_000),
        # Redis knows the end to the millisecond.
        (
            reported(CLAIMED, "COMPLETED", ttl_seconds=0),
            replace(COMPLETED, finished_at=90_999),
            90_999,
        ),
        (replace(DELETED, **BOTH), ACTIVE, None),
        (replace(DELETED, **BOTH), COMPLETED, None),
    ],
)
def test_when_time_requires_a_step(resource: Resource, state: GroupState, at: int | None) -> None:
    assert requeue_at(resource, state) == at


@pytest.mark.parametrize("milliseconds", [0, 1, 999])
@pytest.mark.parametrize(
    ("state", "step"), [(ACTIVE, Step.EXPIRE), (COMPLETED, Step.DELETE), (FAILED, Step.DELETE)]
)
def test_a_reconcile_at_that_time_takes_the_step(
    state: GroupState, step: Step, milliseconds: int
) -> None:
    """Otherwise the object would be reconciled again and again, or never."""
    state = replace(state, created_at=1_000 + milliseconds)
    if state.finished_at:
        state = replace(state, finished_at=90_000 + milliseconds)
    body = body_of(
        {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30},
        derive_status(1, {}, NOW, replace(state, id=UID)),
        finalizers=[FINALIZER],
        annotations=CLAIM,
    )
    resource = Resource.read(body)
    at = requeue_at(resource, state)
    assert at is not None
    assert next_step(resource, state, "", at) is step
    assert next_step(resource, state, "", at - 1_000) is Step.REPORT


def body_of(
    spec: Mapping[str, Any] | None, status: Mapping[str, Any] | None, **meta: Any
) -> dict[str, Any]:
    body: dict[str, Any] = {"metadata": {"uid": UID, "name": "x", "generation": 1, **meta}}
    if spec is not None:
        body["spec"] = dict(spec)
    if status is not None:
        body["status"] = dict(status)
    return body


@pytest.mark.parametrize(
    "body",
    [
        body_of(None, None),
        body_of({}, {}),
        body_of({"jobs": []}, {"observedGeneration": -1}),
        body_of({"cancel": False, "suspend": False, "deletionPolicy": "Compensate"}, {}),
        body_of({"activeDeadlineSeconds": None, "ttlSecondsAfterFinished": None}, None),
        body_of(None, None, finalizers=None, annotations=None),
        body_of(None, None, finalizers=["foregroundDeletion"], annotations={"a": "b"}),
    ],
)
def test_an_empty_object_is_read(body: dict[str, Any]) -> None:
    assert Resource.read(body) == FRESH
    assert Resource.read({**body, "metadata": {"uid": UID}}) == replace(FRESH, generation=0)


FULL = body_of(
    {
        "cancel": True,
        "suspend": True,
        "deletionPolicy": "Orphan",
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
    },
    {
        "observedGeneration": 6,
        "groupId": UID,
        "state": "COMPLETED",
        "finishedAt": "2023-11-14T22:13:20Z",
    },
    generation=7,
    deletionTimestamp="2023-11-14T22:13:20Z",
    finalizers=["other/one", FINALIZER],
    annotations={
        GROUP_ANNOTATION: f"{UID}/{INCARNATION}",
        RELEASE_ANNOTATION: "sagas/leader",
        "other": "one",
    },
)


def test_a_full_object_is_read() -> None:
    resource = Resource.read(FULL)
    assert resource == Resource(
        uid=UID,
        generation=7,
        deleting=True,
        claimed=True,
        annotation=f"{UID}/{INCARNATION}",
        release="sagas/leader",
        cancel=True,
        suspend=True,
        orphan=True,
        deadline_seconds=60,
        ttl_seconds=0,
        observed=6,
        state="COMPLETED",
        finished_at=1_700_000_000_000,
    )
    assert resource.ended
    assert resource.is_annotated
    assert (resource.is_from(INCARNATION), resource.is_from("e0")) == (True, False)


def test_a_status_copied_from_another_object_is_ignored() -> None:
    """Backups restore a status under a new uid. It must not end a saga or delete an object."""
    spec = {"ttlSecondsAfterFinished": 0}
    status = {**FULL["status"], "groupId": "another"}
    copy = Resource.read(
        body_of(spec, status, annotations={GROUP_ANNOTATION: f"another/{INCARNATION}"})
    )
    assert (copy.state, copy.finished_at, copy.observed) == ("", None, -1)
    assert next_step(copy, None, INCARNATION, NOW) is Step.CLAIM
    ours = replace(copy, claimed=True, annotation=CLAIMED.annotation, release=RELEASE)
    assert next_step(ours, COMPLETED, "", NOW) is Step.REPORT


def test_a_group_cancelled_before_creation_has_ended() -> None:
    status = derive_status(1, {"state": "FAILED"}, 90_000, problem=PROBLEMS[Step.BLOCK_CANCELLED])
    resource = Resource.read(body_of({"cancel": True, "ttlSecondsAfterFinished": 10}, status))
    assert resource.ended
    assert next_step(resource, None, INCARNATION, 99_999) is Step.NOTHING
    assert next_step(resource, None, INCARNATION, 100_000) is Step.DELETE
    assert requeue_at(resource, None) == 100_000


def run(body: dict[str, Any], state: GroupState | None) -> list[Step]:
    """Take all steps as the operator does, and read the object before each."""
    steps: list[Step] = []
    while len(steps) < 20:
        step = next_step(Resource.read(body), state, INCARNATION, NOW)
        steps.append(step)
        match step:
            case Step.CLAIM:
                body["metadata"].update(finalizers=[FINALIZER], annotations=CLAIM)
            case Step.CREATE:
                state = replace(ACTIVE, id=UID)
            case Step.CANCEL | Step.EXPIRE if state:
                state = replace(state, state="FAILED", finished_at=90_000)
            case Step.REPORT:
                status = derive_status(1, body.get("status", {}), NOW, state)
                if status == body.get("status"):
                    return steps
                body["status"] = status
            case Step.DELETE:
                body["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
            case _:
                return steps
    raise AssertionError(steps)


@pytest.mark.parametrize(
    ("spec", "meta", "steps"),
    [
        ({}, {}, "CLAIM CREATE REPORT REPORT"),
        ({"cancel": True}, {}, "BLOCK_CANCELLED"),
        ({"suspend": True}, {}, "BLOCK_SUSPENDED"),
        (
            {"cancel": True},
            {"finalizers": [FINALIZER], "annotations": CLAIM},
            "BLOCK_CANCELLED",
        ),
        ({"activeDeadlineSeconds": 1}, {}, "CLAIM CREATE EXPIRE REPORT REPORT"),
        (
            {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0},
            {},
            "CLAIM CREATE EXPIRE REPORT DELETE REMOVE",
        ),
    ],
)
def test_steps_come_to_an_end(spec: dict[str, Any], meta: dict[str, Any], steps: str) -> None:
    assert " ".join(step.name for step in run(body_of(spec, None, **meta), None)) == steps


# A group that was created at 1,000.
@pytest.mark.parametrize(
    ("resource", "group", "now", "wait"),
    [
        pytest.param(CLAIMED, ACTIVE, 1_000, 500, id="new"),
        pytest.param(CLAIMED, ACTIVE, 1_499, 1, id="nearly old"),
        pytest.param(CLAIMED, ACTIVE, 1_500, 0, id="old"),
        pytest.param(CLAIMED, ACTIVE, 999, 0, id="created by another clock"),
        pytest.param(CLAIMED, COMPENSATING, 1_000, 0, id="failed"),
        pytest.param(CLAIMED, COMPLETED, 1_000, 0, id="completed"),
        pytest.param(replace(CLAIMED, state="PENDING"), ACTIVE, 1_000, 0, id="pending"),
        pytest.param(replace(CLAIMED, state="ACTIVE"), ACTIVE, 1_000, 0, id="reported"),
    ],
)
def test_only_the_first_report_of_a_new_group_that_runs_gives_way(
    resource: Resource, group: GroupState, now: int, wait: int
) -> None:
    assert patience(resource, group, now) == wait
