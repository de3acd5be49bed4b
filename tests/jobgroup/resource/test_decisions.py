"""Object x group x epoch x now -> the next step, and when to look again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.decisions import FINALIZER, NOTE, TROUBLES, Resource, Step, look_again_at, next_step
from jobgroup.snapshot import ENDED, GroupState
from jobgroup.status import derive_status
from tests.builders import group

UID = "0b5c"
EPOCH = "e1"
NOW = 100_000

FRESH = Resource(
    uid=UID,
    generation=1,
    deleting=False,
    claimed=False,
    note="",
    cancel=False,
    suspend=False,
    orphan=False,
    deadline_seconds=None,
    ttl_seconds=None,
    observed=-1,
    state="",
    finished_at=None,
)
CLAIMED = replace(FRESH, claimed=True, note=f"{UID}/{EPOCH}")
# An object that brings along what another one was given.
COPIED = replace(FRESH, claimed=True, note=f"another/{EPOCH}")
OLD = replace(CLAIMED, note=f"{UID}/e0")
DELETED = replace(CLAIMED, deleting=True)

ACTIVE, COMPENSATING = group("ACTIVE"), group("COMPENSATING", failed_at=2_000)
COMPLETED, FAILED, HALF_UNDONE = (
    group(state, finished_at=90_000) for state in ("COMPLETED", "FAILED", "FAILED_COMPENSATION")
)


def told(resource: Resource, state: str, **fields: Any) -> Resource:
    """Say that a status stands there already."""
    finished = 90_000 if state in ENDED else None
    return replace(resource, state=state, observed=1, finished_at=finished, **fields)


def _id(value: object) -> str | None:
    return value.name if isinstance(value, Step) else None


NOT_WANTED: list[tuple[dict[str, Any], Step]] = [
    ({"suspend": True}, Step.SUSPENDED),
    ({"cancel": True}, Step.CANCELLED),
    ({"cancel": True, "suspend": True}, Step.CANCELLED),
]

BEFORE_CREATION = [
    (FRESH, Step.CLAIM),
    (told(FRESH, "PENDING"), Step.CLAIM),
    (CLAIMED, Step.CREATE),
    # One without the other: both are written together, but anybody may take one away.
    (replace(CLAIMED, claimed=False), Step.CLAIM),
    (replace(CLAIMED, note=""), Step.CLAIM),
    (replace(CLAIMED, note="garbage"), Step.CLAIM),
    (replace(CLAIMED, note=f"{UID}x/{EPOCH}"), Step.CLAIM),
    (replace(CLAIMED, note=UID), Step.CLAIM),
    # Before the claim, and after it: what was claimed need not have been created.
    *(
        (replace(each, **wish), step)
        for each in (FRESH, CLAIMED, told(CLAIMED, "PENDING"), replace(CLAIMED, claimed=False))
        for wish, step in NOT_WANTED
    ),
    # A copy is a new object.
    (COPIED, Step.CLAIM),
    (replace(COPIED, suspend=True), Step.SUSPENDED),
    (replace(COPIED, cancel=True), Step.CANCELLED),
    (replace(COPIED, note="another/e0"), Step.CLAIM),
    # Another life of Redis, or another Redis.
    (OLD, Step.LOST),
    (replace(OLD, claimed=False), Step.LOST),
    (replace(OLD, cancel=True), Step.LOST),
    (replace(OLD, suspend=True), Step.LOST),
    # It had a group, in whichever life: a backup of Redis has no less of a name than the original.
    *(
        (told(each, state, **wish), Step.LOST)
        for each in (
            OLD,
            CLAIMED,
            FRESH,
            replace(CLAIMED, note=""),
            replace(CLAIMED, claimed=False),
        )
        for state in ("ACTIVE", "COMPENSATING")
        for wish in ({}, *(wish for wish, _ in NOT_WANTED))
    ),
    # A deadline and a time to live begin with the group.
    (replace(FRESH, deadline_seconds=1, ttl_seconds=0), Step.CLAIM),
    (replace(CLAIMED, deadline_seconds=1, ttl_seconds=0), Step.CREATE),
]


@pytest.mark.parametrize(("resource", "step"), BEFORE_CREATION, ids=_id)
def test_before_there_is_a_group(resource: Resource, step: Step) -> None:
    assert next_step(resource, None, EPOCH, NOW) is step


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("resource", [CLAIMED, OLD, FRESH, replace(CLAIMED, cancel=True)])
def test_what_has_ended_is_not_run_again_though_its_group_is_gone(
    resource: Resource, state: str
) -> None:
    ended = told(resource, state)
    assert next_step(ended, None, EPOCH, NOW) is Step.NOTHING
    # Its finishedAt is 90,000.
    for ttl, step in ((0, Step.DELETE), (10, Step.DELETE), (11, Step.NOTHING)):
        assert next_step(replace(ended, ttl_seconds=ttl), None, EPOCH, NOW) is step
    # A changed object is to be seen, or tools would wait for it for ever.
    assert next_step(replace(ended, generation=2), None, EPOCH, NOW) is Step.REPORT


WITH_A_GROUP = [
    # A group that is there goes before all that the object says of itself.
    *((each, ACTIVE, Step.REPORT) for each in (CLAIMED, OLD)),
    # Let go when the operator was uninstalled, or replaced by one that says nothing of us: held
    # again before anything else happens to it.
    *(
        (told(replace(CLAIMED, **gone), each.state, **wish), each, Step.CLAIM)
        for each in (ACTIVE, COMPENSATING, COMPLETED, FAILED, HALF_UNDONE)
        for gone in ({"claimed": False}, {"note": ""}, {"claimed": False, "note": ""})
        for wish in ({}, {"cancel": True}, {"deadline_seconds": 1, "ttl_seconds": 0})
    ),
    (COPIED, ACTIVE, Step.CLAIM),
    (told(CLAIMED, "ACTIVE"), ACTIVE, Step.REPORT),
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
    # Time to live, from the end; and the end is told before anything is deleted.
    (replace(CLAIMED, ttl_seconds=0), ACTIVE, Step.REPORT),
    (replace(CLAIMED, ttl_seconds=0), COMPENSATING, Step.REPORT),
    (replace(CLAIMED, ttl_seconds=0), COMPLETED, Step.REPORT),
    (told(CLAIMED, "ACTIVE", ttl_seconds=0), COMPLETED, Step.REPORT),
    (told(CLAIMED, "COMPLETED"), COMPLETED, Step.REPORT),
    *(
        (told(CLAIMED, each.state, ttl_seconds=ttl), each, step)
        for each in (COMPLETED, FAILED, HALF_UNDONE)
        for ttl, step in ((0, Step.DELETE), (10, Step.DELETE), (11, Step.REPORT))
    ),
    (told(CLAIMED, "FAILED", ttl_seconds=0), HALF_UNDONE, Step.REPORT),
]


@pytest.mark.parametrize(("resource", "state", "step"), WITH_A_GROUP, ids=_id)
def test_while_there_is_a_group(resource: Resource, state: GroupState, step: Step) -> None:
    assert next_step(resource, state, "", NOW) is step


@pytest.mark.parametrize(
    ("state", "compensate", "orphan"),
    [
        (None, Step.RENOUNCE, Step.RENOUNCE),
        (ACTIVE, Step.CANCEL, Step.DISOWN),
        (COMPENSATING, Step.LEAVE, Step.DISOWN),
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
        {"note": f"{UID}/e0"},
        {"note": ""},
        {"state": "ACTIVE"},
        {"state": "COMPLETED", "finished_at": 1},
        {"deadline_seconds": 1, "ttl_seconds": 0},
    ],
    ids=str,
)
def test_when_the_object_is_deleted_nothing_else_matters(
    wish: dict[str, Any], state: GroupState | None, compensate: Step, orphan: Step
) -> None:
    deleted = replace(DELETED, **wish)
    assert next_step(deleted, state, EPOCH, NOW) is compensate
    assert next_step(replace(deleted, orphan=True), state, EPOCH, NOW) is orphan
    # Nothing holds it: it is as good as gone, and a missing object never cancels anything.
    for policy in (False, True):
        released = replace(deleted, claimed=False, orphan=policy)
        assert next_step(released, state, EPOCH, NOW) is Step.NOTHING


def test_each_step_that_makes_no_group_has_its_reason() -> None:
    assert {step: (each.reason, each.stalled) for step, each in TROUBLES.items()} == {
        Step.SUSPENDED: ("Suspended", False),
        Step.CANCELLED: ("Cancelled", True),
        Step.LOST: ("RedisStateLost", True),
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
        (told(CLAIMED, "COMPLETED", ttl_seconds=0), COMPLETED, 90_000),
        # Redis knows the end to the millisecond.
        (told(CLAIMED, "COMPLETED", ttl_seconds=0), replace(COMPLETED, finished_at=90_999), 90_999),
        (replace(DELETED, **BOTH), ACTIVE, None),
        (replace(DELETED, **BOTH), COMPLETED, None),
    ],
)
def test_time_alone_calls_for_a_step(resource: Resource, state: GroupState, at: int | None) -> None:
    assert look_again_at(resource, state) == at


@pytest.mark.parametrize("milliseconds", [0, 1, 999])
@pytest.mark.parametrize(
    ("state", "step"), [(ACTIVE, Step.EXPIRE), (COMPLETED, Step.DELETE), (FAILED, Step.DELETE)]
)
def test_a_look_at_that_time_finds_the_step(
    state: GroupState, step: Step, milliseconds: int
) -> None:
    """Else it would be looked at again and again, or never."""
    state = replace(state, created_at=1_000 + milliseconds)
    if state.finished_at:
        state = replace(state, finished_at=90_000 + milliseconds)
    body = body_of(
        {"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30},
        derive_status(1, {}, NOW, replace(state, id=UID)),
        finalizers=[FINALIZER],
        annotations={NOTE: f"{UID}/{EPOCH}"},
    )
    resource = Resource.read(body)
    at = look_again_at(resource, state)
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
def test_little_is_read_of_an_object_that_says_little(body: dict[str, Any]) -> None:
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
    annotations={NOTE: f"{UID}/{EPOCH}", "other": "one"},
)


def test_all_is_read_of_an_object_that_says_all() -> None:
    resource = Resource.read(FULL)
    assert resource == Resource(
        uid=UID,
        generation=7,
        deleting=True,
        claimed=True,
        note=f"{UID}/{EPOCH}",
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
    assert resource.is_noted
    assert (resource.is_of(EPOCH), resource.is_of("e0")) == (True, False)


def test_a_status_of_another_object_is_not_believed() -> None:
    """Backups restore it under a new uid; that neither ends a saga nor deletes an object."""
    spec = {"ttlSecondsAfterFinished": 0}
    status = {**FULL["status"], "groupId": "another"}
    copy = Resource.read(body_of(spec, status, annotations={NOTE: f"another/{EPOCH}"}))
    assert (copy.state, copy.finished_at, copy.observed) == ("", None, -1)
    assert next_step(copy, None, EPOCH, NOW) is Step.CLAIM
    ours = replace(copy, claimed=True, note=f"{UID}/{EPOCH}")
    assert next_step(ours, COMPLETED, "", NOW) is Step.REPORT


def test_what_was_cancelled_before_creation_has_ended_without_a_group() -> None:
    status = derive_status(1, {"state": "FAILED"}, 90_000, trouble=TROUBLES[Step.CANCELLED])
    resource = Resource.read(body_of({"cancel": True, "ttlSecondsAfterFinished": 10}, status))
    assert resource.ended
    assert next_step(resource, None, EPOCH, 99_999) is Step.NOTHING
    assert next_step(resource, None, EPOCH, 100_000) is Step.DELETE
    assert look_again_at(resource, None) == 100_000


def run(body: dict[str, Any], state: GroupState | None) -> list[Step]:
    """Take the steps of a whole life as the operator does, each time looking anew."""
    steps: list[Step] = []
    while len(steps) < 20:
        step = next_step(Resource.read(body), state, EPOCH, NOW)
        steps.append(step)
        match step:
            case Step.CLAIM:
                body["metadata"].update(
                    finalizers=[FINALIZER], annotations={NOTE: f"{UID}/{EPOCH}"}
                )
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
        ({"cancel": True}, {}, "CANCELLED"),
        ({"suspend": True}, {}, "SUSPENDED"),
        (
            {"cancel": True},
            {"finalizers": [FINALIZER], "annotations": {NOTE: f"{UID}/{EPOCH}"}},
            "CANCELLED",
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
