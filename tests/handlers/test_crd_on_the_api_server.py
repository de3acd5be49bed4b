"""What the API server makes of JobGroups: each rule by its sentence, on small and on full objects.

A full one has 2,000 jobs and as many compensations, near the largest size.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from jobgroup.crd import BULLMQ_OPTIONS
from jobgroup.options import JobOptions, RetryOptions
from jobgroup.resource import API_VERSION, KIND, MAX_SPEC, parse_definition
from testbed.apiserver import ApiServer, KubectlError

Object = dict[str, Any]
Edit = Callable[[Object], Any]

SIZES = {"small": 2, "full": 2000}
SAMPLES: dict[str, Any] = {"object": {"id": "1"}, "string": "x", "boolean": True, "integer": 1}


def job_group(jobs: int = 2, name: str = "order", **spec: Any) -> Object:
    # Names as long as a full object has room for.
    names = [f"job-{n:04}".ljust(60, "x") for n in range(jobs)]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {
            "jobs": [
                {"name": name, "queueName": "payments", "data": {"n": n}, "opts": {"attempts": 3}}
                for n, name in enumerate(names)
            ],
            "compensation": {name: {"name": "undo", "opts": {"attempts": 2}} for name in names},
            **spec,
        },
    }


def size_of(spec: Object) -> int:
    return len(json.dumps(spec, separators=(",", ":")))


class Kubectl:
    """kubectl in a namespace; small objects are applied as people do, full ones as they must be."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self._api.kubectl("-n", self._namespace, *arguments, stdin=stdin)

    def apply(self, body: Object, *flags: str) -> str:
        if len(body["spec"].get("jobs", ())) > 100:
            flags = ("--server-side", *flags)
        return self("apply", "-f", "-", *flags, stdin=json.dumps(body))

    def refusal(self, body: Object, *flags: str) -> str:
        with pytest.raises(KubectlError) as caught:
            self.apply(body, *flags)
        return str(caught.value)

    def read(self, name: str = "order") -> Object:
        found: Object = json.loads(self("get", "jobgroup", name, "-o", "json"))
        return found

    def write_status(self, name: str = "order", **status: Any) -> None:
        patch = json.dumps({"status": status})
        self("patch", "jobgroup", name, "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture
def kubectl(jobgroup_crd: ApiServer, namespace: str) -> Kubectl:
    return Kubectl(jobgroup_crd, namespace)


@pytest.fixture(scope="module", params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    return SIZES[request.param]


@pytest.fixture(scope="module")
def stored(jobgroup_crd: ApiServer, size: int) -> Iterator[tuple[Kubectl, Object]]:
    """Keep one object of each size for all edits that are refused, for they leave it as it was."""
    name = f"stored-{size}"
    jobgroup_crd.kubectl("create", "namespace", name)
    kubectl, body = Kubectl(jobgroup_crd, name), job_group(size, name="order")
    kubectl.apply(body)
    yield kubectl, body
    jobgroup_crd.kubectl("delete", "namespace", name, "--wait=false")


def first(body: Object) -> Object:
    found: Object = body["spec"]["jobs"][0]
    return found


def last(body: Object) -> Object:
    found: Object = body["spec"]["jobs"][-1]
    return found


def undo(body: Object) -> Object:
    """Return the compensation of the last job."""
    found: Object = body["spec"]["compensation"][last(body)["name"]]
    return found


def invalid(path: str, sentence: str, name: str = "order") -> str:
    return f'The {KIND} "{name}" is invalid: {path}: Invalid value: {sentence}'


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
    "undo less": (
        lambda body: body["spec"]["compensation"].pop(last(body)["name"]),
        "compensation",
    ),
    "no undo": (lambda body: body["spec"].pop("compensation"), "compensation"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_was_applied_stays(stored: tuple[Kubectl, Object], case: str) -> None:
    kubectl, body = stored
    edit, field = CHANGES[case]
    changed = deepcopy(body)
    edit(changed)
    # Replaced as a whole: a merge would only ever add to the jobs.
    with pytest.raises(KubectlError) as caught:
        kubectl("replace", "-f", "-", stdin=json.dumps(changed))
    expected = invalid(f"spec.{field}", f"{field} cannot be changed: make a new JobGroup")
    assert expected in str(caught.value)


def test_a_name_cannot_be_changed_or_taken_away(kubectl: Kubectl) -> None:
    body = job_group()
    body["spec"]["name"] = "a"
    kubectl.apply(body)
    expected = invalid("spec.name", "name cannot be changed: make a new JobGroup")
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
        assert refused_field(kubectl, cancel=taken_back).endswith("cancel cannot be taken back")
    # Who applies the same again, or writes the end into the status, is not refused.
    for state in ends:
        kubectl.write_status(state=state)
        set_field(kubectl, cancel=True, ttlSecondsAfterFinished=len(state))
    assert kubectl.read()["spec"]["cancel"] is True


def test_a_group_may_be_cancelled_before_anybody_looked(kubectl: Kubectl) -> None:
    kubectl.apply(job_group())
    set_field(kubectl, cancel=True)


def test_jobs_that_were_let_go_cannot_be_held(kubectl: Kubectl, size: int) -> None:
    kubectl.apply(job_group(size, suspend=True))
    kubectl.write_status(state="PENDING")
    for suspend in (False, True, False):
        set_field(kubectl, suspend=suspend)
    for state in ("ACTIVE", *ENDS)[: 1 if size > 2 else None]:
        kubectl.write_status(state=state)
        expected = "spec.suspend: Invalid value: Cannot suspend a group whose jobs were let go"
        assert refused_field(kubectl, suspend=True).endswith(expected)


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
def test_the_schema_judges_options(kubectl: Kubectl, opts: Object, sentence: str) -> None:
    body = job_group(1)
    first(body)["opts"] = opts
    assert sentence in kubectl.refusal(body)


@pytest.mark.parametrize(
    ("queue", "accepted"),
    [("q" * 63, True), ("q" * 64, False), ("a:b", False), ("", False), ("A.b_c-9", True)],
)
def test_the_schema_judges_queues(kubectl: Kubectl, queue: str, accepted: bool) -> None:
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
    assert 'spec.jobs[1]: Duplicate value: {"name":' in kubectl.refusal(body)


@pytest.mark.parametrize("data", [None, True, 7, 9.5, "text", [1, [None]], {}, {"a": {"b": None}}])
def test_data_comes_back_as_it_was(kubectl: Kubectl, data: Any) -> None:
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


def test_a_new_object_was_seen_by_nobody(kubectl: Kubectl) -> None:
    made = json.loads(kubectl.apply(job_group(1), "-o", "json"))
    assert made["status"] == {"observedGeneration": -1}
    assert kubectl.read()["status"] == {"observedGeneration": -1}


def test_a_status_that_comes_with_an_object_is_not_taken(kubectl: Kubectl) -> None:
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
    """Return an object whose spec, as JSON, has exactly this size."""
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
    # Beside it there is room for a status of 64 KB.
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


def test_above_that_somebody_says_so(kubectl: Kubectl) -> None:
    too_long = kubectl.refusal(padded(3, 300 * 1024))
    assert "metadata.annotations: Too long" in too_long
    # Stored, for no rule can count what is opaque; the operator refuses it.
    kubectl.apply(padded(3, 600 * 1024), "--server-side")
    larger = padded(3, 1600 * 1024)
    larger["metadata"]["name"] = "larger"
    assert "is too large" in kubectl.refusal(larger, "--server-side")


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
    # A job that another manager adds would join the list, were the list not fixed.
    with pytest.raises(KubectlError, match="jobs cannot be changed"):
        apply("ops", {"jobs": [{"name": "new", "queueName": "q"}]})


def test_who_owns_what_stays_small(kubectl: Kubectl) -> None:
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


def test_a_dry_run_judges_and_stores_nothing(kubectl: Kubectl) -> None:
    body = job_group()
    assert "(server dry run)" in kubectl.apply(body, "--dry-run=server")
    assert kubectl("get", "jobgroups", "-o", "name") == ""
    body["spec"]["jobs"] = []
    assert "Group must contain at least one job" in kubectl.refusal(body, "--dry-run=server")


def columns(table: str) -> list[list[str]]:
    """Cut a table of kubectl's into cells: columns stand three spaces apart."""
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
    )
    for name in ("jg", "jobgroups"):
        head, row = columns(kubectl("get", name))
        assert [cell.strip() for cell in head] == [
            *("NAME", "STATE", "PROGRESS", "UNDONE", "FAILED JOB", "AGE")
        ]
        assert [cell.strip() for cell in row][:5] == ["order", "FAILED", "1/2", "1/1", "charge"]
    assert "jobgroup.jobgroups.dev/order" in kubectl("get", "sagas", "-o", "name").split()
    head, row = columns(kubectl("get", "jg", "-o", "wide"))
    assert [cell.strip() for cell in head][5:] == ["REASON", "GROUP ID", "FINISHED", "AGE"]
    assert [cell.strip() for cell in row][5:7] == ["no money", "123"]
    kubectl.apply(job_group(name="other"))
    found = kubectl("get", "jg", "--field-selector", "status.state=FAILED", "-o", "name")
    assert found.split() == ["jobgroup.jobgroups.dev/order"]
    assert kubectl("get", "all", "-o", "name") == ""


def test_explain_reads_as_documentation(kubectl: Kubectl) -> None:
    tree = kubectl("explain", "jobgroup.spec", "--recursive")
    assert "deletionPolicy" in tree
    for path, words in {
        "spec": "Seconds after status.finishedAt when the resource is deleted",
        "spec.jobs": "The BullMQ queue the job goes to",
        "spec.jobs.opts": "How often the job is tried before it has failed for good.",
        "spec.jobs.opts.backoff": "Milliseconds of the first wait.",
        "spec.compensation": "How often the undo is tried",
        "status": "Completed jobs of all jobs, as in 2/3.",
        "status.conditions": "Why, in a sentence for people.",
    }.items():
        said = " ".join(kubectl("explain", f"jobgroup.{path}").split())
        assert words in said
        assert "<no description>" not in said
