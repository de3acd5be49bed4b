"""A raw object of the API -> settings and a group, and the message of every invalid object."""

import json
from typing import Any

import pytest
import yaml

from jobgroup.cli.manifest import read_plans
from jobgroup.definition.slices import finish
from jobgroup.definition.spec import Group
from jobgroup.errors import EmptyGroupError, InvalidSpecError, UnknownCompensationError
from jobgroup.resource.jobgroup_spec import (
    MAX_SPEC,
    Settings,
    check_size,
    parse_definition,
    parse_resource,
)
from testbed import ROOT

ORDERS = ROOT / "examples/order-fulfilment"
JOB = {"name": "charge", "queueName": "payments"}
EXPONENTIAL = {"type": "exponential", "delay": 60_000}


def parse(spec: Any) -> tuple[Settings, Group]:
    return parse_resource({"metadata": {"name": "order-123"}, "spec": spec})


def refusal(spec: Any) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        parse(spec)
    return str(caught.value)


def test_only_the_jobs_are_required() -> None:
    settings, group = parse({"jobs": [JOB]})
    assert group.name == "order-123"
    assert [job.name for job in group.jobs] == ["charge"]
    assert group.compensation == {}
    assert settings.model_dump() == {
        "deletionPolicy": "Compensate",
        "cancel": False,
        "suspend": False,
        "complete": {},
        "retryUndos": None,
        "resolved": {},
        "activeDeadlineSeconds": None,
        "ttlSecondsAfterFinished": None,
    }


def test_a_resource_with_every_field() -> None:
    asked = {
        "deletionPolicy": "Orphan",
        "cancel": True,
        "suspend": True,
        "complete": {},
        "retryUndos": None,
        "resolved": {},
        "activeDeadlineSeconds": 1,
        "ttlSecondsAfterFinished": 0,
    }
    undo = {"charge": {"name": "refund"}}
    settings, group = parse({"name": "order", "jobs": [JOB], "compensation": undo, **asked})
    assert settings.model_dump() == asked
    assert group.name == "order"
    assert group.compensation["charge"].name == "refund"


@pytest.mark.parametrize("jobs", [None, []])
def test_a_resource_without_jobs_is_refused(jobs: Any) -> None:
    with pytest.raises(EmptyGroupError):
        parse({"jobs": jobs})


def test_the_messages_of_the_contract() -> None:
    with pytest.raises(UnknownCompensationError):
        parse({"jobs": [JOB], "compensation": {"x": {"name": "undo"}}})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (None, "spec: Input should be a mapping"),
        ([], "spec: Input should be a mapping"),
        ({"jobs": [JOB, JOB]}, 'Job "charge" appears twice in one group'),
        ({"jobs": [JOB], "retries": 3}, "spec.retries: unknown field"),
        (
            {"jobs": [JOB], "deletionPolicy": "Keep"},
            "spec.deletionPolicy: Input should be 'Compensate' or 'Orphan'",
        ),
        ({"jobs": [JOB], "cancel": "yes"}, "spec.cancel: Input should be true or false"),
        (
            {"jobs": [JOB], "activeDeadlineSeconds": 0},
            "spec.activeDeadlineSeconds: Input should be greater than or equal to 1",
        ),
        (
            {"jobs": [JOB], "ttlSecondsAfterFinished": -1},
            "spec.ttlSecondsAfterFinished: Input should be greater than or equal to 0",
        ),
        (
            {"jobs": [JOB], "ttlSecondsAfterFinished": 10**9},
            "spec.ttlSecondsAfterFinished: Input should be less than or equal to 315360000",
        ),
        (
            {"jobs": [{**JOB, "opts": {"backoff": "soon"}}]},
            "jobs[0].opts.backoff: Input should be an integer or a mapping",
        ),
        (
            {"jobs": [{**JOB, "opts": {"attempts": 9, "backoff": EXPONENTIAL}}]},
            "jobs[0].opts: exponential backoff from 60000 ms would wait longer than 3600000 ms;"
            " set attempts to at most 7",
        ),
    ],
)
def test_the_message_of_an_invalid_spec(spec: Any, sentence: str) -> None:
    assert refusal(spec) == sentence


TOO_LONG = {**JOB, "opts": {"attempts": 9, "backoff": EXPONENTIAL}}
UNKNOWN = {**JOB, "after": "reserve"}


@pytest.mark.parametrize(
    ("spec", "is_final"),
    [
        # Immutable fields.
        ({"jobs": []}, True),
        ({"jobs": [JOB, JOB]}, True),
        ({"jobs": [TOO_LONG]}, True),
        ({"jobs": [JOB], "compensation": {"ship": {"name": "undo"}}}, True),
        ({"jobs": [{**JOB, "data": "x" * MAX_SPEC}]}, True),
        # Fields and choices that a newer release may know.
        ({"jobs": [UNKNOWN]}, False),
        ({"jobs": [TOO_LONG, UNKNOWN]}, False),
        ({"jobs": [JOB], "compensation": {"charge": {"name": "undo", "when": "Failed"}}}, False),
        ({"jobs": [JOB], "retries": 3}, False),
        # Fields that can be changed.
        ({"jobs": [JOB], "deletionPolicy": "Keep"}, False),
        ({"jobs": [JOB], "activeDeadlineSeconds": 0}, False),
        (None, False),
    ],
)
def test_a_refusal_is_final_if_only_known_immutable_fields_are_at_fault(
    spec: Any, is_final: bool
) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        parse(spec)
    assert caught.value.is_final is is_final


def test_a_spec_above_the_size_limit_is_refused() -> None:
    spec = {"jobs": [JOB | {"data": ""}]}
    room = MAX_SPEC - len('{"jobs":[{"name":"charge","queueName":"payments","data":""}]}')
    spec["jobs"][0]["data"] = "x" * room
    finish(check_size(spec))
    # Bytes count, not characters.
    spec["jobs"][0]["data"] = "x" * (room - 1) + "é"
    assert refusal(spec) == "spec has 513 KB; the limit is 512 KB"


def test_the_size_of_a_spec_is_that_of_its_compact_json() -> None:
    names = [f"job-{n}" for n in range(25)]
    spec: dict[str, Any] = {"cancel": True, "jobs": [JOB | {"name": name} for name in names]}
    spec["compensation"] = {name: {"name": "undo", "data": ""} for name in names}
    room = MAX_SPEC - len(json.dumps(spec, separators=(",", ":")))
    spec["compensation"]["job-24"]["data"] = "x" * room
    finish(check_size(spec))
    spec["compensation"]["job-24"]["data"] += "x"
    with pytest.raises(InvalidSpecError):
        finish(check_size(spec))


def test_unreadable_data_is_refused() -> None:
    data: Any = []
    for _ in range(5000):
        data = [data]
    assert refusal({"jobs": [{**JOB, "data": data}]}) == "spec: nested too deeply"
    # A lone surrogate has no UTF-8 encoding, but its size can be measured.
    finish(check_size({"jobs": [{**JOB, "data": "\ud800"}]}))


@pytest.mark.parametrize("name", ["order.yaml", "order-refused.yaml"])
def test_every_example_is_valid(name: str) -> None:
    body = yaml.safe_load((ORDERS / name).read_text())
    assert parse_definition(body).name == "order-fulfillment"


def test_the_command_line_refuses_fields_of_the_operator() -> None:
    text = (ORDERS / "order.yaml").read_text() + "  suspend: true\n"
    with pytest.raises(InvalidSpecError, match=r"spec\.suspend: only the operator"):
        read_plans(text, "order.yaml")
