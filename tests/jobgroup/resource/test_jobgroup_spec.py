"""A raw object of the API -> settings and a definition, or the sentence that says what is wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobgroup.definition import read_plans
from jobgroup.errors import EmptyGroupError, InvalidSpecError, UnknownCompensationError
from jobgroup.resource import MAX_SPEC, Settings, check_size, parse_definition, parse_resource
from jobgroup.spec import Group

ORDERS = Path(__file__).resolve().parents[2] / "examples/order-fulfilment"
JOB = {"name": "charge", "queueName": "payments"}
EXPONENTIAL = {"type": "exponential", "delay": 60_000}


def parse(spec: Any) -> tuple[Settings, Group]:
    return parse_resource({"metadata": {"name": "order-123"}, "spec": spec})


def refusal(spec: Any) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        parse(spec)
    return str(caught.value)


def test_a_resource_may_leave_out_all_but_its_jobs() -> None:
    settings, group = parse({"jobs": [JOB]})
    assert group.name == "order-123"
    assert [job.name for job in group.jobs] == ["charge"]
    assert group.compensation == {}
    assert settings.model_dump() == {
        "deletionPolicy": "Compensate",
        "cancel": False,
        "suspend": False,
        "activeDeadlineSeconds": None,
        "ttlSecondsAfterFinished": None,
    }


def test_a_resource_may_say_everything() -> None:
    asked = {
        "deletionPolicy": "Orphan",
        "cancel": True,
        "suspend": True,
        "activeDeadlineSeconds": 1,
        "ttlSecondsAfterFinished": 0,
    }
    undo = {"charge": {"name": "refund"}}
    settings, group = parse({"name": "order", "jobs": [JOB], "compensation": undo, **asked})
    assert settings.model_dump() == asked
    assert group.name == "order"
    assert group.compensation["charge"].name == "refund"


@pytest.mark.parametrize("jobs", [None, []])
def test_no_jobs_are_an_empty_group(jobs: Any) -> None:
    with pytest.raises(EmptyGroupError):
        parse({"jobs": jobs})


def test_the_contracts_refusals_are_kept() -> None:
    with pytest.raises(UnknownCompensationError):
        parse({"jobs": [JOB], "compensation": {"x": {"name": "undo"}}})


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (None, "spec: Input should be a mapping"),
        ([], "spec: Input should be a mapping"),
        ({"jobs": [JOB, JOB]}, 'Job "charge" stands twice in one group'),
        ({"jobs": [JOB], "retries": 3}, "spec.retries: there is no such option"),
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
            " at most 7 attempts fit",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(spec: Any, sentence: str) -> None:
    assert refusal(spec) == sentence


def test_a_spec_has_a_largest_size() -> None:
    spec = {"jobs": [JOB | {"data": ""}]}
    room = MAX_SPEC - len('{"jobs":[{"name":"charge","queueName":"payments","data":""}]}')
    spec["jobs"][0]["data"] = "x" * room
    check_size(spec)
    # Bytes count, not characters.
    spec["jobs"][0]["data"] = "x" * (room - 1) + "é"
    assert refusal(spec) == "spec has 513 KB, and at most 512 KB fit into a resource"


def test_data_that_nobody_could_read_is_refused() -> None:
    data: Any = []
    for _ in range(5000):
        data = [data]
    assert refusal({"jobs": [{**JOB, "data": data}]}) == "spec: it is nested too deeply"
    # Half a surrogate pair has no UTF-8, but it can be counted.
    check_size({"jobs": [{**JOB, "data": "\ud800"}]})


@pytest.mark.parametrize("name", ["order.yaml", "order-refused.yaml"])
def test_an_example_is_a_resource(name: str) -> None:
    body = yaml.safe_load((ORDERS / name).read_text())
    assert parse_definition(body).name == "order-fulfillment"


def test_what_a_manifest_means_is_known_in_one_place() -> None:
    text = (ORDERS / "order.yaml").read_text() + "  activeDeadlineSeconds: 3600\n"
    with pytest.raises(InvalidSpecError, match=r"spec\.activeDeadlineSeconds: only the operator"):
        read_plans(text, "order.yaml")
