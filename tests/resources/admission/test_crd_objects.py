"""JobGroups on the API server: the schema, stored objects, and the output of kubectl."""

import json
from typing import Any

import pytest

from jobgroup.resource.jobgroup_spec import MAX_SPEC, parse_definition
from testbed.servers.apiserver import KubectlError
from testbed.support.waiting import wait_for
from tests.resources.admission.applied import Kubectl, Object, first, job_group, size_of, undo


@pytest.mark.parametrize(
    ("opts", "sentence"),
    [
        ({"attempts": 0}, "attempts in body should be greater than or equal to 1"),
        ({"attempts": 1.5}, 'spec.jobs[0].opts.attempts: Invalid value: "float64"'),
        ({"priority": 2_097_152}, "priority in body should be less than or equal to 2097151"),
        ({"backoff": 0}, "backoff in body should be greater than or equal to 1"),
        ({"backoff": {"type": "linear", "delay": 1}}, 'supported values: "fixed", "exponential"'),
        ({"backoff": {"type": "fixed"}}, "opts.backoff.delay: Required value"),
        ({"removeOnFail": {"age": -1}}, "age in body should be greater than or equal to 0"),
        ({"atempts": 3}, 'unknown field "spec.jobs[0].opts.atempts"'),
    ],
)
def test_the_schema_checks_options(kubectl: Kubectl, opts: Object, sentence: str) -> None:
    body = job_group(1)
    first(body)["opts"] = opts
    assert sentence in kubectl.refusal(body)


@pytest.mark.parametrize(
    ("queue", "accepted"),
    [("q" * 63, True), ("q" * 64, False), ("a:b", False), ("", False), ("A.b_c-9", True)],
)
def test_the_schema_checks_queue_names(kubectl: Kubectl, queue: str, accepted: bool) -> None:
    body = job_group(1)
    first(body)["queueName"] = queue
    if accepted:
        kubectl.apply(body)
    else:
        assert "spec.jobs[0].queueName" in kubectl.refusal(body)


def test_too_many_jobs_and_two_of_a_name_are_refused(kubectl: Kubectl) -> None:
    assert "must have at most 2000 items" in kubectl.refusal(job_group(2001))
    body = job_group(2)
    body["spec"]["jobs"] = [first(body)] * 2
    body["spec"]["compensation"] = {}
    duplicate = 'is invalid: spec.jobs[1]: Duplicate value: {"name":'
    assert duplicate in kubectl.refusal(body)
    assert "insert failed" not in kubectl.refusal(body)
    body["spec"]["compensation"] = {first(body)["name"]: {"name": "undo"}}
    refusal = kubectl.refusal(body)
    assert duplicate.partition("spec.")[2] in refusal
    assert "already exists evaluating rule: A compensation key does not match" in refusal


@pytest.mark.parametrize("data", [None, True, 7, 9.5, "text", [1, [None]], {}, {"a": {"b": None}}])
def test_data_is_stored_unchanged(kubectl: Kubectl, data: Any) -> None:
    body = job_group(1)
    first(body)["data"] = undo(body)["data"] = data
    kubectl.apply(body, "--server-side")
    group = parse_definition(kubectl.read())
    assert group.jobs[0].data == data
    assert group.compensation[group.jobs[0].name].data == data


@pytest.mark.parametrize("value", [True, False, 0, 5, {"age": 1}, {"count": 2, "age": 0}, {}])
def test_retention_may_be_of_several_kinds(kubectl: Kubectl, value: Any) -> None:
    body = job_group(1)
    first(body)["opts"] = {"removeOnComplete": value, "backoff": 5}
    kubectl.apply(body)
    found = parse_definition(kubectl.read()).jobs[0].opts.model_dump(exclude_none=True)
    assert found == {"removeOnComplete": value, "backoff": 5}


def test_the_status_of_a_new_object_has_no_observed_generation(kubectl: Kubectl) -> None:
    made = json.loads(kubectl.apply(job_group(1), "-o", "json"))
    assert made["status"] == {"observedGeneration": -1}
    assert kubectl.read()["status"] == {"observedGeneration": -1}


def test_a_status_in_a_new_object_is_ignored(kubectl: Kubectl) -> None:
    kubectl.apply(job_group(1) | {"status": {"state": "COMPLETED", "observedGeneration": 5}})
    assert kubectl.read()["status"] == {"observedGeneration": -1}


def test_defaults_are_stored(kubectl: Kubectl) -> None:
    body = job_group(1)
    del body["spec"]["compensation"]
    kubectl.apply(body)
    spec = kubectl.read()["spec"]
    del spec["jobs"]
    assert spec == {
        "compensation": {},
        "cancel": False,
        "suspend": False,
        "deletionPolicy": "Compensate",
    }


def padded(jobs: int, size: int) -> Object:
    """Return an object whose spec has exactly this size as JSON."""
    body = job_group(jobs)
    first(body)["data"] = ""
    first(body)["data"] = "x" * (size - size_of(body["spec"]))
    assert size_of(body["spec"]) == size
    return body


@pytest.mark.parametrize("jobs", [3, 100, 700])
def test_200_kb_pass_plain_apply(kubectl: Kubectl, jobs: int) -> None:
    body = padded(jobs, 200 * 1024)
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    parse_definition(kubectl.read())


@pytest.mark.parametrize("jobs", [3, 2000])
def test_512_kb_pass_server_side_apply(kubectl: Kubectl, jobs: int) -> None:
    body = padded(jobs, MAX_SPEC)
    kubectl.apply(body, "--server-side")
    kubectl.apply(body, "--server-side")
    # There is still room for a status of 64 KB.
    kubectl.write_status(
        jobs=[{"name": f"{n}", "undo": "pending"} for n in range(100)],
        conditions=[
            {
                "type": f"Type{n}",
                "status": "True",
                "reason": "Why",
                "message": "m" * 2048,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for n in range(16)
        ],
        events=[{"type": "t", "message": "m" * 1024} for _ in range(10)],
    )


def test_larger_objects_are_refused_by_kubectl_the_operator_or_the_server(kubectl: Kubectl) -> None:
    too_long = kubectl.refusal(padded(3, 300 * 1024))
    assert "metadata.annotations: Too long" in too_long
    # The server stores it, because no rule can measure data; the operator refuses it.
    kubectl.apply(padded(3, 600 * 1024), "--server-side")
    larger = padded(3, 1600 * 1024)
    larger["metadata"]["name"] = "larger"
    assert "is too large" in kubectl.refusal(larger, "--server-side")
    largest = padded(3, 2900 * 1024)
    largest["metadata"]["name"] = "largest"
    assert "ResourceExhausted" in kubectl.refusal(largest, "--server-side")


def test_two_managers_share_an_object(kubectl: Kubectl) -> None:
    body = job_group()
    bare = {key: body[key] for key in ("apiVersion", "kind", "metadata")}

    def apply(manager: str, spec: Object) -> str:
        flags = ("--server-side", f"--field-manager={manager}")
        return kubectl("apply", "-f", "-", *flags, stdin=json.dumps(bare | {"spec": spec}))

    apply("shop", body["spec"] | {"deletionPolicy": "Compensate"})
    apply("ops", {"activeDeadlineSeconds": 60})
    apply("shop", body["spec"] | {"deletionPolicy": "Compensate"})
    assert kubectl.read()["spec"]["activeDeadlineSeconds"] == 60
    with pytest.raises(KubectlError, match="conflict"):
        apply("ops", {"deletionPolicy": "Orphan"})
    # Without the rule, the server would add the job of another manager to the list.
    with pytest.raises(KubectlError, match="jobs cannot be changed"):
        apply("ops", {"jobs": [{"name": "new", "queueName": "q"}]})


def test_managed_fields_stay_small(kubectl: Kubectl) -> None:
    body = job_group(1)
    first(body)["data"] = {f"field-{n}": {"deep": n} for n in range(100)}
    kubectl.apply(body, "--server-side")
    fields = kubectl(
        "get",
        "jobgroup",
        "order",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields}",
    )
    assert "field-1" not in fields
    assert "f:compensation" in fields


def test_a_dry_run_validates_and_stores_nothing(kubectl: Kubectl) -> None:
    body = job_group()
    assert "(server dry run)" in kubectl.apply(body, "--dry-run=server")
    assert kubectl("get", "jobgroups", "-o", "name") == ""
    body["spec"]["jobs"] = []
    assert "Group must contain at least one job" in kubectl.refusal(body, "--dry-run=server")


def columns(table: str) -> list[list[str]]:
    """Split a table of kubectl into cells; at least three spaces separate two columns."""
    return [[cell for cell in line.split("   ") if cell.strip()] for line in table.splitlines()]


def test_what_kubectl_get_shows(kubectl: Kubectl) -> None:
    kubectl.apply(job_group())
    kubectl.write_status(
        state="FAILED",
        progress="1/2",
        undone="1/1",
        groupId="123",
        failure={"jobName": "charge", "reason": "no money", "attemptsMade": 3},
        finishedAt="2026-01-01T00:00:00Z",
        conditions=[
            {
                "type": "Ready",
                "status": "False",
                "reason": "Failed",
                "message": "failed, 1 of 1 undone",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    )
    for name in ("jg", "jobgroups"):
        head, row = columns(kubectl("get", name))
        assert [cell.strip() for cell in head] == [
            *("NAME", "STATE", "PROGRESS", "UNDONE", "FAILED JOB", "REASON", "AGE")
        ]
        assert [cell.strip() for cell in row][:6] == [
            *("order", "FAILED", "1/2", "1/1", "charge", "Failed")
        ]
    assert "jobgroup.jobgroups.dev/order" in kubectl("get", "sagas", "-o", "name").split()
    head, row = columns(kubectl("get", "jg", "-o", "wide"))
    assert [cell.strip() for cell in head][6:] == [
        *("AGE", "GROUP ID", "FINISHED", "FAILURE", "MESSAGE")
    ]
    assert [cell.strip() for cell in row][7] == "123"
    assert [cell.strip() for cell in row][9:] == ["no money", "failed, 1 of 1 undone"]
    kubectl.apply(job_group(name="other"))
    found = kubectl("get", "jg", "--field-selector", "status.state=FAILED", "-o", "name")
    assert found.split() == ["jobgroup.jobgroups.dev/order"]
    assert kubectl("get", "all", "-o", "name") == ""


def test_explain_reads_as_documentation(kubectl: Kubectl) -> None:
    def is_published() -> bool:
        try:
            return "deletionPolicy" in kubectl("explain", "jobgroup.spec", "--recursive")
        except KubectlError:
            return False

    # The API server publishes the schema of a new CRD after it has begun to serve it.
    wait_for(is_published)
    for path, words in {
        "spec": "Seconds after status.finishedAt. The JobGroup is deleted then",
        "spec.jobs": "The BullMQ queue of the job",
        "spec.jobs.opts": "The number of attempts before the job fails for good.",
        "spec.jobs.opts.backoff": "The first wait in milliseconds.",
        "spec.compensation": "Attempts and backoff of the undo.",
        "status": "Completed jobs and all jobs, for example 2/3.",
        "status.conditions": "The reason for the status, a sentence for people.",
    }.items():
        said = " ".join(kubectl("explain", f"jobgroup.{path}").split())
        assert words in said
        assert "<no description>" not in said
