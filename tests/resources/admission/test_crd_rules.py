"""The validation rules of the CRD and their messages, for small and for full objects.

A full object has 2,000 jobs and 2,000 compensations, which is close to the size limit.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from jobgroup.crd.jobgroup import BULLMQ_OPTIONS
from jobgroup.definition.options import JobOptions, RetryOptions
from jobgroup.resource.kinds import JOBGROUP
from testbed.servers.apiserver import ApiServer, KubectlError
from tests.resources.admission.applied import Kubectl, Object, first, job_group, last, undo

Edit = Callable[[Object], Any]

SIZES = {"small": 2, "full": 2000}
SAMPLES: dict[str, Any] = {"object": {"id": "1"}, "string": "x", "boolean": True, "integer": 1}


@pytest.fixture(scope="module", params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    return SIZES[request.param]


@pytest.fixture(scope="module")
def stored(quiet_api: ApiServer, size: int) -> Iterator[tuple[Kubectl, Object]]:
    """Create one object of each size; all tests share it, because every change is refused."""
    with Kubectl(quiet_api) as kubectl:
        body = job_group(size)
        kubectl.apply(body)
        # Set the state now: the rules skip a write that changes it.
        kubectl.write_status(state="PENDING")
        yield kubectl, body


def invalid(path: str, sentence: str, name: str = "order") -> str:
    return f'The {JOBGROUP.name} "{name}" is invalid: {path}: Invalid value: {sentence}'


BAD: dict[str, tuple[Edit, str, str]] = {
    "no jobs": (
        lambda body: body["spec"].update(jobs=[], compensation={}),
        "spec.jobs",
        "Group must contain at least one job",
    ),
    "jobs left out": (
        lambda body: (body["spec"].pop("jobs"), body["spec"].pop("compensation")),
        "spec.jobs",
        "Group must contain at least one job",
    ),
    "unknown compensation": (
        lambda body: body["spec"].update(compensation={"nobody": {"name": "undo"}}),
        "spec.compensation",
        'Compensation key "nobody" does not match any job name',
    ),
    "one unknown among the compensations": (
        lambda body: body["spec"]["compensation"].update(
            {"x": body["spec"]["compensation"].pop(last(body)["name"])}
        ),
        "spec.compensation",
        'Compensation key "x" does not match any job name',
    ),
    "flow": (
        lambda body: last(body)["opts"].update(parent={"id": "1", "queue": "q"}),
        "spec.jobs",
        "A job cannot belong to both a group and a flow",
    ),
    "group": (
        lambda body: (
            (last(body).update(name="x"), body["spec"].update(compensation={}))
            and last(body)["opts"].update(group={"id": "1"})
        ),
        "spec.jobs",
        'Job "x" already belongs to a group',
    ),
    "reserved queue": (
        lambda body: (
            (last(body).update(name="x", queueName="_jobgroups"))
            or body["spec"].update(compensation={})
        ),
        "spec.jobs",
        'Job "x": the queue "_jobgroups" is reserved',
    ),
    "reserved queue of an undo": (
        lambda body: undo(body).update(queueName="_jobgroups:compensation"),
        "spec.compensation",
        'Compensation "{last}": the queue "_jobgroups:compensation" is reserved',
    ),
    "reserved queue of onEnd": (
        lambda body: body["spec"].update(onEnd=[{"name": "x", "queueName": "_jobgroups"}]),
        "spec.onEnd",
        'onEnd: the queue "_jobgroups" is reserved',
    ),
    "option of onEnd": (
        lambda body: body["spec"].update(
            onEnd=[{"name": "x", "queueName": "q", "opts": {"jobId": "x"}}]
        ),
        "spec.onEnd",
        'onEnd "x": opts.jobId is not an option of a job of onEnd',
    ),
    "job option": (
        lambda body: last(body)["opts"].update(telemetry={}),
        "spec.jobs",
        'Job "{last}": opts.telemetry is not an option of a job in a group',
    ),
    "undo option": (
        lambda body: undo(body)["opts"].update(stackTraceLimit=1),
        "spec.compensation",
        'Compensation "{last}": opts.stackTraceLimit is not an option of an undo',
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_definition_is_refused(kubectl: Kubectl, size: int, case: str) -> None:
    edit, path, sentence = BAD[case]
    body = job_group(size)
    name = last(body)["name"]
    edit(body)
    assert kubectl.refusal(body) == invalid(path, sentence.format(last=name))


@pytest.mark.parametrize("option", sorted(BULLMQ_OPTIONS.keys() - JobOptions.model_fields.keys()))
def test_no_other_option_of_bullmq_is_one_of_a_job(kubectl: Kubectl, option: str) -> None:
    body = job_group()
    first(body)["opts"] = {option: SAMPLES[BULLMQ_OPTIONS[option]["type"]]}
    sentences = {
        "parent": "A job cannot belong to both a group and a flow",
        "group": f'Job "{first(body)["name"]}" already belongs to a group',
    }
    other = f'Job "{first(body)["name"]}": opts.{option} is not an option of a job in a group'
    assert kubectl.refusal(body) == invalid("spec.jobs", sentences.get(option, other))


@pytest.mark.parametrize("option", sorted(BULLMQ_OPTIONS.keys() - RetryOptions.model_fields.keys()))
def test_no_other_option_of_bullmq_is_one_of_an_undo(kubectl: Kubectl, option: str) -> None:
    body = job_group()
    undo(body)["opts"] = {option: SAMPLES[BULLMQ_OPTIONS[option]["type"]]}
    sentence = f'Compensation "{last(body)["name"]}": opts.{option} is not an option of an undo'
    assert kubectl.refusal(body) == invalid("spec.compensation", sentence)


CHANGES: dict[str, tuple[Edit, str]] = {
    "name given": (lambda body: body["spec"].update(name="order"), "name"),
    "data deep inside": (lambda body: last(body)["data"].update(n=-1), "jobs"),
    "option": (lambda body: last(body)["opts"].update(attempts=4), "jobs"),
    "order": (lambda body: body["spec"]["jobs"].reverse(), "jobs"),
    "job more": (
        lambda body: (
            body["spec"]["jobs"].insert(0, {"name": "new", "queueName": "q"})
            or body["spec"]["jobs"].pop()
        ),
        "jobs",
    ),
    "undo": (lambda body: undo(body).update(name="other"), "compensation"),
    "queue of an undo": (lambda body: undo(body).update(queueName="other"), "compensation"),
    "undo less": (
        lambda body: body["spec"]["compensation"].pop(last(body)["name"]),
        "compensation",
    ),
    "onEnd added": (
        lambda body: body["spec"].update(onEnd=[{"name": "x", "queueName": "q"}]),
        "onEnd",
    ),
    "no undo": (lambda body: body["spec"].pop("compensation"), "compensation"),
    "data, with a status": (
        lambda body: last(body)["data"].update(n=-1) or body.update(status={"state": "ACTIVE"}),
        "jobs",
    ),
    "undo, with a status": (
        lambda body: undo(body).update(name="other") or body.update(status={"progress": "1/2"}),
        "compensation",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_jobs_and_compensation_cannot_be_changed(stored: tuple[Kubectl, Object], case: str) -> None:
    kubectl, body = stored
    edit, field = CHANGES[case]
    changed = deepcopy(body)
    edit(changed)
    # Replace the object: a merge would only add jobs.
    with pytest.raises(KubectlError) as caught:
        kubectl("replace", "-f", "-", stdin=json.dumps(changed))
    expected = invalid(f"spec.{field}", f"{field} cannot be changed: create a new JobGroup")
    assert expected in str(caught.value)


def test_a_write_of_the_status_changes_only_the_status(kubectl: Kubectl) -> None:
    """The rules for jobs and compensation rely on this: they skip writes of the status."""
    kubectl.apply(job_group())
    kubectl.write_status(state="PENDING")
    before = kubectl.read()
    changed = deepcopy(before)
    last(changed)["data"].update(n=-1)
    undo(changed).update(name="other")
    changed["status"]["state"] = "ACTIVE"
    kubectl("replace", "--subresource=status", "-f", "-", stdin=json.dumps(changed))
    after = kubectl.read()
    assert after["status"]["state"] == "ACTIVE"
    assert after["spec"] == before["spec"]


def test_a_name_cannot_be_changed_or_removed(kubectl: Kubectl) -> None:
    body = job_group()
    body["spec"]["name"] = "a"
    kubectl.apply(body)
    expected = invalid("spec.name", "name cannot be changed: create a new JobGroup")
    assert kubectl.refusal(job_group()) == expected
    body["spec"]["name"] = "b"
    assert kubectl.refusal(body) == expected


def test_settings_may_be_changed(stored: tuple[Kubectl, Object]) -> None:
    kubectl, body = stored
    changed = deepcopy(body)
    settings = {
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
        "deletionPolicy": "Orphan",
        "suspend": True,
    }
    changed["spec"].update(settings)
    kubectl.apply(changed)
    assert kubectl.read()["spec"].items() >= settings.items()
    kubectl.apply(body)
    assert kubectl.read()["spec"]["suspend"] is False


def test_the_operators_status_passes_all_rules(stored: tuple[Kubectl, Object]) -> None:
    kubectl, _ = stored
    kubectl.write_status(state="ACTIVE", observedGeneration=1)
    kubectl.write_status(state="PENDING")
    assert kubectl.read()["status"] == {"state": "PENDING", "observedGeneration": 1}


def set_field(kubectl: Kubectl, **spec: Any) -> str:
    return kubectl("patch", "jobgroup", "order", "--type=merge", "-p", json.dumps({"spec": spec}))


def refused_field(kubectl: Kubectl, **spec: Any) -> str:
    with pytest.raises(KubectlError) as caught:
        set_field(kubectl, **spec)
    return str(caught.value)


ENDS = {
    "COMPLETED": "Cannot cancel a completed group",
    "COMPENSATING": "Cannot cancel group in state COMPENSATING",
    "FAILED": "Cannot cancel group in state FAILED",
    "FAILED_COMPENSATION": "Cannot cancel group in state FAILED_COMPENSATION",
}


def test_only_an_active_group_is_cancelled(kubectl: Kubectl, size: int) -> None:
    kubectl.apply(job_group(size))
    ends = list(ENDS)[: 1 if size > 2 else None]
    for state, sentence in ((state, ENDS[state]) for state in ends):
        kubectl.write_status(state=state)
        expected = f"spec.cancel: Invalid value: {sentence}"
        assert refused_field(kubectl, cancel=True).endswith(expected)
    kubectl.write_status(state="ACTIVE")
    set_field(kubectl, cancel=True)
    for taken_back in (False, None):
        assert refused_field(kubectl, cancel=taken_back).endswith(
            "cancel cannot be set back to false"
        )
    # The server accepts the same manifest again, and the final status.
    for state in ends:
        kubectl.write_status(state=state)
        set_field(kubectl, cancel=True, ttlSecondsAfterFinished=len(state))
    assert kubectl.read()["spec"]["cancel"] is True


def test_a_group_may_be_cancelled_before_its_first_reconcile(kubectl: Kubectl) -> None:
    kubectl.apply(job_group())
    set_field(kubectl, cancel=True)


def test_a_created_group_cannot_be_suspended(kubectl: Kubectl, size: int) -> None:
    kubectl.apply(job_group(size, suspend=True))
    kubectl.write_status(state="PENDING")
    for suspend in (False, True, False):
        set_field(kubectl, suspend=suspend)
    for state in ("ACTIVE", *ENDS)[: 1 if size > 2 else None]:
        kubectl.write_status(state=state)
        expected = (
            "spec.suspend: Invalid value: Cannot suspend a group whose jobs are already in Redis"
        )
        assert refused_field(kubectl, suspend=True).endswith(expected)


def test_answers_are_refused_on_creation(kubectl: Kubectl, size: int) -> None:
    body = job_group(size)
    answers = {last(body)["name"]: {"returnValue": {"limit": [1, None]}, "by": "ann"}}
    sentence = "complete cannot be set on creation: set it when the JobGroup exists"
    body["spec"]["complete"] = answers
    assert kubectl.refusal(body) == invalid("spec.complete", sentence)
    kubectl.apply(job_group(size))
    set_field(kubectl, complete=answers)
    assert kubectl.read()["spec"]["complete"] == answers
    kubectl.write_status(state="ACTIVE")
    # A manifest without the field keeps it, and it may be changed and removed.
    kubectl.apply(job_group(size))
    assert kubectl.read()["spec"]["complete"] == answers
    set_field(kubectl, complete={last(body)["name"]: {"returnValue": 5, "by": "ben"}})
    set_field(kubectl, complete=None)


BAD_ANSWERS: dict[str, tuple[Object, str]] = {
    "both": (
        {"{last}": {"returnValue": 1, "failed": "no", "by": "ann"}},
        '"spec.complete.{last}" must not validate the schema (not)',
    ),
    "nobody": ({"{last}": {"returnValue": 1}}, "spec.complete.{last}.by: Required value"),
    "no reason": ({"{last}": {"failed": "", "by": "ann"}}, "spec.complete.{last}.failed: Invalid"),
    "long reason": ({"{last}": {"failed": "x" * 1025, "by": "ann"}}, "Too long"),
    "unknown job": (
        {"nobody": {"by": "ann"}},
        'spec.complete: Invalid value: Key "nobody" of complete does not match any job name',
    ),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_is_refused(kubectl: Kubectl, size: int, case: str) -> None:
    answers, sentence = BAD_ANSWERS[case]
    body = job_group(size)
    kubectl.apply(body)
    name = last(body)["name"]
    refusal = refused_field(
        kubectl, complete={key.format(last=name): each for key, each in answers.items()}
    )
    assert sentence.format(last=name) in refusal


def test_retries_and_resolutions_are_refused_on_creation(kubectl: Kubectl, size: int) -> None:
    body = job_group(size)
    requests: Object = {
        "retryUndos": 1,
        "resolved": {last(body)["name"]: {"reason": "refunded by hand", "by": "ann"}},
    }
    sentences = {
        "retryUndos": "retryUndos cannot be set on creation: set it when undos have failed",
        "resolved": "resolved cannot be set on creation: set it when the JobGroup exists",
    }
    for field, sentence in sentences.items():
        copied = job_group(size)
        copied["spec"][field] = requests[field]
        assert kubectl.refusal(copied) == invalid(f"spec.{field}", sentence)
    kubectl.apply(body)
    kubectl.write_status(state="FAILED_COMPENSATION")
    set_field(kubectl, **requests)
    # A manifest without the fields keeps them, and they may be changed and removed.
    kubectl.apply(job_group(size))
    assert kubectl.read()["spec"].items() >= requests.items()
    set_field(kubectl, retryUndos=0, resolved={last(body)["name"]: {"reason": "it stays"}})
    set_field(kubectl, retryUndos=None, resolved=None)


def test_all_undos_of_a_group_may_be_resolved(kubectl: Kubectl, size: int) -> None:
    body = job_group(size)
    kubectl.apply(body)
    resolution = {"reason": "refunded by hand", "by": "ann"}
    body["spec"]["resolved"] = dict.fromkeys(body["spec"]["compensation"], resolution)
    kubectl.apply(body)
    assert len(kubectl.read()["spec"]["resolved"]) == size


BAD_RESOLUTIONS: dict[str, tuple[Object, str]] = {
    "no reason": ({"{last}": {"by": "ann"}}, "spec.resolved.{last}.reason: Required value"),
    "blank reason": ({"{last}": {"reason": " "}}, "spec.resolved.{last}.reason: Invalid value"),
    "long reason": ({"{last}": {"reason": "x" * 1025}}, "Too long"),
    "nobody": ({"{last}": {"reason": "gone", "by": ""}}, "spec.resolved.{last}.by: Invalid value"),
    "unknown job": (
        {"nobody": {"reason": "gone"}},
        'spec.resolved: Invalid value: Key "nobody" of resolved is not in compensation',
    ),
}


@pytest.mark.parametrize("case", BAD_RESOLUTIONS)
def test_a_bad_resolution_is_refused(kubectl: Kubectl, size: int, case: str) -> None:
    resolutions, sentence = BAD_RESOLUTIONS[case]
    body = job_group(size)
    kubectl.apply(body)
    name = last(body)["name"]
    given = {key.format(last=name): each for key, each in resolutions.items()}
    assert sentence.format(last=name) in refused_field(kubectl, resolved=given)


def test_retries_cannot_be_negative(kubectl: Kubectl) -> None:
    kubectl.apply(job_group())
    assert "spec.retryUndos: Invalid value" in refused_field(kubectl, retryUndos=-1)


ON_END = [{"when": "Failed", "queueName": "alerts", "name": "told", "data": {"n": [1]}}]


@pytest.mark.parametrize("changed", [None, [], [{**ON_END[0], "data": {"n": [2]}}], ON_END * 2])
def test_on_end_cannot_be_changed(kubectl: Kubectl, changed: list[Object] | None) -> None:
    body = job_group()
    body["spec"]["onEnd"] = ON_END
    kubectl.apply(body)
    if changed is None:
        del body["spec"]["onEnd"]
    else:
        body["spec"]["onEnd"] = changed
    with pytest.raises(KubectlError) as caught:
        kubectl("replace", "-f", "-", stdin=json.dumps(body))
    expected = invalid("spec.onEnd", "onEnd cannot be changed: create a new JobGroup")
    assert expected in str(caught.value)


def test_on_end_has_at_most_ten_entries(kubectl: Kubectl) -> None:
    body = job_group()
    body["spec"]["onEnd"] = ON_END * 11
    assert "spec.onEnd: Too many: 11: must have at most 10 items" in kubectl.refusal(body)
