"""Valid definitions, and the message of every invalid one."""

from typing import Any

import pytest

from jobgroup.definition.options import Backoff, RetryOptions, undo_options
from jobgroup.definition.spec import RESERVED_IDS, Group, check_group_id, parse_group
from jobgroup.errors import (
    EmptyGroupError,
    InvalidSpecError,
    JobInFlowError,
    JobInGroupError,
    UnknownCompensationError,
)

JOB = {"name": "charge", "queueName": "payments"}
SURROGATE = "\ud800"


def parse(jobs: Any = (JOB,), compensation: Any = None, name: Any = "order") -> Group:
    return parse_group(name, jobs, compensation)


def refusal(**definition: Any) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        parse(**definition)
    return str(caught.value)


def test_only_names_and_queues_are_required() -> None:
    group = parse([JOB], {"charge": {"name": "refund"}})
    (job,) = group.jobs
    assert (job.data, job.opts.model_dump(exclude_none=True)) == ({}, {})
    undo = group.compensation["charge"]
    assert (undo.data, undo.when, undo.opts.model_dump(exclude_none=True)) == ({}, "Completed", {})


def test_a_definition_with_every_field() -> None:
    opts = {
        "attempts": 3,
        "backoff": {"type": "exponential", "delay": 1000},
        "delay": 0,
        "priority": 2_097_151,
        "lifo": True,
        "removeOnComplete": {"age": 3600, "count": 10},
        "removeOnFail": 0,
        "keepLogs": 5,
        "stackTraceLimit": 0,
    }
    undo = {
        "name": "refund",
        "queueName": "refunds",
        "data": [1],
        "opts": {"attempts": 5, "backoff": 7},
        "when": "Started",
    }
    group = parse([{**JOB, "data": None, "opts": opts}], {"charge": undo})
    assert group.jobs[0].opts.model_dump(exclude_none=True) == opts
    assert group.compensation["charge"].model_dump() == undo


@pytest.mark.parametrize(
    ("definition", "error", "sentence"),
    [
        ({"jobs": []}, EmptyGroupError, "Group must contain at least one job"),
        (
            {"compensation": {"x": {"name": "undo"}}},
            UnknownCompensationError,
            'Compensation key "x" does not match any job name',
        ),
        (
            {"jobs": [{**JOB, "opts": {"parent": {"id": "1", "queue": "q"}}}]},
            JobInFlowError,
            "A job cannot belong to both a group and a flow",
        ),
        (
            {"jobs": [{**JOB, "name": "x", "opts": {"group": {"id": "1"}}}]},
            JobInGroupError,
            'Job "x" already belongs to a group',
        ),
    ],
)
def test_the_messages_of_the_contract(
    definition: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as caught:
        parse(**definition)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("opts", "sentence"),
    [
        ({"attempts": 0}, ".attempts: Input should be greater than or equal to 1"),
        ({"attempts": 1001}, ".attempts: Input should be less than or equal to 1000"),
        ({"attempts": "3"}, ".attempts: Input should be an integer"),
        ({"attempts": True}, ".attempts: Input should be an integer"),
        ({"attempts": 1.5}, ".attempts: Input should be an integer"),
        ({"priority": -1}, ".priority: Input should be greater than or equal to 0"),
        ({"priority": 2_097_152}, ".priority: Input should be less than or equal to 2097151"),
        ({"delay": -1}, ".delay: Input should be greater than or equal to 0"),
        ({"delay": 10**12}, ".delay: Input should be less than or equal to 315360000000"),
        ({"lifo": 1}, ".lifo: Input should be true or false"),
        ({"keepLogs": -1}, ".keepLogs: Input should be greater than or equal to 0"),
        ({"stackTraceLimit": -1}, ".stackTraceLimit: Input should be greater than or equal to 0"),
        ({"backoff": 0}, ".backoff: Input should be greater than 0"),
        ({"backoff": -5}, ".backoff: Input should be greater than 0"),
        ({"backoff": "fast"}, ".backoff: Input should be an integer or a mapping"),
        (
            {"backoff": {"type": "linear", "delay": 1}},
            ".backoff.type: Input should be 'fixed' or 'exponential'",
        ),
        (
            {"backoff": {"type": "fixed", "delay": 0}},
            ".backoff.delay: Input should be greater than 0",
        ),
        ({"backoff": {"type": "fixed"}}, ".backoff.delay: Field required"),
        (
            {"backoff": {"type": "fixed", "delay": 1, "jitter": 0.5}},
            ".backoff.jitter: unknown field",
        ),
        (
            {"removeOnComplete": -1},
            ".removeOnComplete: Input should be greater than or equal to 0",
        ),
        ({"removeOnFail": -1}, ".removeOnFail: Input should be greater than or equal to 0"),
        (
            {"removeOnFail": {"count": -1}},
            ".removeOnFail.count: Input should be greater than or equal to 0",
        ),
        (
            {"removeOnComplete": {"age": -1}},
            ".removeOnComplete.age: Input should be greater than or equal to 0",
        ),
        (
            {"removeOnFail": "never"},
            ".removeOnFail: Input should be true or false or an integer or a mapping",
        ),
        *(
            ({option: {}}, f".{option}: unknown field")
            for option in (
                "jobId",
                "deduplication",
                "debounce",
                "repeat",
                "failParentOnFailure",
                "ignoreDependencyOnFailure",
                "removeDependencyOnFailure",
                "continueParentOnFailure",
                "timestamp",
                "sizeLimit",
                "Attempts",
            )
        ),
        ("none", ": Input should be a mapping"),
        (None, ": Input should be a mapping"),
    ],
)
def test_options_are_refused_by_name(opts: Any, sentence: str) -> None:
    jobs = [JOB, {**JOB, "name": "ship", "opts": opts}]
    assert refusal(jobs=jobs) == f"jobs[1].opts{sentence}"


@pytest.mark.parametrize(
    ("delay", "fitting"),
    [
        (1, 23),
        (1000, 13),
        (1_800_000, 3),
        (1_800_001, 2),
        (3_600_000, 2),
        (3_600_001, 1),
    ],
)
def test_exponential_backoff_stays_below_an_hour(delay: int, fitting: int) -> None:
    backoff = {"type": "exponential", "delay": delay}
    parse([{**JOB, "opts": {"attempts": fitting, "backoff": backoff}}])
    assert refusal(jobs=[{**JOB, "opts": {"attempts": fitting + 1, "backoff": backoff}}]) == (
        f"jobs[0].opts: exponential backoff from {delay} ms would wait longer than 3600000 ms;"
        f" set attempts to at most {fitting}"
    )
    fixed = {"type": "fixed", "delay": delay}
    parse([{**JOB, "opts": {"attempts": fitting + 1, "backoff": fixed}}])


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ({}, (3, Backoff(type="exponential", delay=1000))),
        ({"attempts": 5}, (5, Backoff(type="exponential", delay=1000))),
        ({"backoff": 7}, (3, 7)),
        (
            {"backoff": {"type": "fixed", "delay": 9}},
            (3, Backoff(type="fixed", delay=9)),
        ),
        ({"attempts": 1, "backoff": 7}, (1, 7)),
    ],
)
def test_an_undos_options_override_the_defaults_field_by_field(
    given: dict[str, Any], merged: tuple[int, Any]
) -> None:
    options = undo_options(RetryOptions.model_validate(given))
    assert (options.attempts, options.backoff) == merged


@pytest.mark.parametrize(
    ("opts", "sentence"),
    [
        (
            {"attempts": 14},
            ": exponential backoff from 1000 ms would wait longer than 3600000 ms;"
            " set attempts to at most 13",
        ),
        (
            {"backoff": {"type": "exponential", "delay": 2_000_000}},
            ": exponential backoff from 2000000 ms would wait longer than 3600000 ms;"
            " set attempts to at most 2",
        ),
        ({"delay": 5}, ".delay: unknown field"),
        ({"attempts": 0}, ".attempts: Input should be greater than or equal to 1"),
    ],
)
def test_invalid_options_of_an_undo_are_refused(opts: dict[str, Any], sentence: str) -> None:
    compensation = {"charge": {"name": "refund", "opts": opts}}
    assert refusal(compensation=compensation) == f"compensation.charge.opts{sentence}"


TOO_FEW = "String should have at least 1 character"
TOO_MANY = "String should have at most 253 characters"
HALF = "Input should be valid Unicode without lone surrogates"
QUEUE = "Input should be 1 to 63 letters, digits, dots, underscores or hyphens"


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        ({"name": ""}, f"name: {TOO_FEW}"),
        ({"name": "x" * 254}, f"name: {TOO_MANY}"),
        ({"name": None}, "name: Input should be a string"),
        ({"name": SURROGATE}, f"name: {HALF}"),
        ({"jobs": [{**JOB, "name": ""}]}, f"jobs[0].name: {TOO_FEW}"),
        ({"jobs": [{**JOB, "name": "x" * 254}]}, f"jobs[0].name: {TOO_MANY}"),
        ({"jobs": [{**JOB, "name": 1}]}, "jobs[0].name: Input should be a string"),
        ({"jobs": [{**JOB, "name": []}]}, "jobs[0].name: Input should be a string"),
        ({"jobs": [{**JOB, "name": SURROGATE}]}, f"jobs[0].name: {HALF}"),
        ({"jobs": [{"queueName": "q"}]}, "jobs[0].name: Field required"),
        ({"jobs": [{"name": "charge"}]}, "jobs[0].queueName: Field required"),
        *(
            ({"jobs": [{**JOB, "queueName": name}]}, f"jobs[0].queueName: {QUEUE}")
            for name in ("", "a:b", "payments:compensation", "a b", "é", "a\n", "x" * 64)
        ),
        (
            {"jobs": [JOB, {**JOB, "queueName": "_jobgroups"}]},
            'jobs[1].queueName: "_jobgroups" is reserved',
        ),
        ({"jobs": [{**JOB, "queue": "q"}]}, "jobs[0].queue: unknown field"),
        ({"jobs": [JOB, "ship"]}, "jobs[1]: Input should be a mapping"),
        ({"jobs": [None]}, "jobs[0]: Input should be a mapping"),
        ({"jobs": "charge"}, "jobs: Input should be a list"),
        ({"jobs": {"charge": JOB}}, "jobs: Input should be a list"),
        ({"jobs": None}, "jobs: Input should be a list"),
        ({"jobs": [JOB] * 2001}, "jobs: 2001 jobs exceed the limit of 2000 in a group"),
        ({"compensation": [JOB]}, "compensation: Input should be a mapping"),
        ({"compensation": "charge"}, "compensation: Input should be a mapping"),
        ({"compensation": {"charge": None}}, "compensation.charge: Input should be a mapping"),
        ({"compensation": {"charge": {}}}, "compensation.charge.name: Field required"),
        (
            {"compensation": {"charge": {"name": SURROGATE}}},
            f"compensation.charge.name: {HALF}",
        ),
        (
            {"compensation": {"charge": {"name": "refund", "when": "Failed"}}},
            "compensation.charge.when: Input should be 'Completed' or 'Started'",
        ),
        (
            {"compensation": {"charge": {"name": "refund", "queue": "q"}}},
            "compensation.charge.queue: unknown field",
        ),
        *(
            (
                {"compensation": {"charge": {"name": "refund", "queueName": name}}},
                f"compensation.charge.queueName: {QUEUE}",
            )
            for name in ("", "a:b", ":compensation", "q:compensation:compensation", "x" * 64)
        ),
        *(
            (
                {"compensation": {"charge": {"name": "refund", "queueName": name}}},
                f'compensation.charge.queueName: "{name}" is reserved',
            )
            for name in ("_jobgroups", "_jobgroups:compensation")
        ),
        (
            {"compensation": {"charge": {"name": "refund", "queueName": 1}}},
            "compensation.charge.queueName: Input should be a string",
        ),
        (
            {
                "jobs": [{**JOB, "name": "Backoff"}],
                "compensation": {"Backoff": {"name": "u", "opts": {"attempts": 0}}},
            },
            "compensation.Backoff.opts.attempts: Input should be greater than or equal to 1",
        ),
    ],
)
def test_the_message_names_the_field(definition: dict[str, Any], sentence: str) -> None:
    assert refusal(**definition) == sentence


def test_two_thousand_jobs_of_one_name_are_a_group() -> None:
    assert len(parse([JOB] * 2000).jobs) == 2000


@pytest.mark.parametrize("group_id", ["a", "0", "123", "A.b_c-9", "x" * 128, "undo", "-undo-"])
def test_a_valid_id_is_returned_unchanged(group_id: str) -> None:
    assert check_group_id(group_id) == group_id


@pytest.mark.parametrize("group_id", ["", "a:b", "a b", "é", "a\n", "x" * 129, SURROGATE, 5, None])
def test_a_malformed_id_is_refused(group_id: Any) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        check_group_id(group_id)
    assert str(caught.value) == (
        f"Group id {group_id!r} must be 1 to 128 letters, digits, dots, underscores or hyphens"
    )


@pytest.mark.parametrize("group_id", [*sorted(RESERVED_IDS), "order-undo", "-undo"])
def test_a_reserved_id_is_refused(group_id: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        check_group_id(group_id)
    assert str(caught.value) == f"Group id {group_id!r} is reserved"


END = {"queueName": "alerts", "name": "told"}


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({}, "onEnd: Input should be a list"),
        ("told", "onEnd: Input should be a list"),
        ([END] * 11, "onEnd: at most 10 entries"),
        ([END, None], "onEnd[1]: Input should be a mapping"),
        ([{"name": "told"}], "onEnd[0].queueName: Field required"),
        ([{"queueName": "alerts"}], "onEnd[0].name: Field required"),
        ([{**END, "name": SURROGATE}], f"onEnd[0].name: {HALF}"),
        ([{**END, "queueName": "a:b"}], f"onEnd[0].queueName: {QUEUE}"),
        ([{**END, "queueName": "_jobgroups"}], 'onEnd[0].queueName: "_jobgroups" is reserved'),
        ([{**END, "queue": "q"}], "onEnd[0].queue: unknown field"),
        ([{**END, "opts": {"jobId": "x"}}], "onEnd[0].opts.jobId: unknown field"),
        (
            [{**END, "when": "Ended"}],
            "onEnd[0].when: Input should be"
            " 'Always', 'Completed', 'Failed' or 'FailedCompensation'",
        ),
    ],
)
def test_a_bad_on_end_is_refused(entries: Any, sentence: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        parse_group("order", [JOB], on_end=entries)
    assert str(caught.value) == sentence


def test_the_defaults_of_on_end() -> None:
    (entry,) = parse_group("order", [JOB], on_end=[END]).onEnd
    assert (entry.when, entry.data, entry.opts.model_dump(exclude_none=True)) == ("Always", {}, {})
