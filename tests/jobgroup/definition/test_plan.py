"""A checked definition becomes the texts that stock clients read, and nothing else."""

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings

from jobgroup.definition.digest import digest_group
from jobgroup.definition.plan import (
    MAX_DEPTH,
    MAX_END_DATA,
    MAX_MAPPINGS,
    MAX_PAYLOAD,
    Plan,
    plan_group,
)
from jobgroup.definition.spec import parse_group
from jobgroup.errors import InvalidSpecError
from tests.json_values import json_values, same


def plan(data: Any = None, opts: Any = None, undo: Any = None, group_id: str = "g") -> Plan:
    job = {"name": "charge", "queueName": "payments", "data": data, "opts": opts or {}}
    return plan_group(parse_group("order", [job], {"charge": undo} if undo else None), group_id)


def unpack(plan: Plan) -> tuple[Any, Any]:
    """Return the members of a plan and the fields of their parent, except the first."""
    packed = msgpack.unpackb(plan.packed, unicode_errors="surrogateescape")
    return packed["members"], packed["parent"][2:]


def member(plan: Plan) -> dict[str, Any]:
    """Return the one member of a plan as a worker will read it."""
    members, _ = unpack(plan)
    (member,) = members
    return {**member, "data": json.loads(member["data"]), "opts": json.loads(member["opts"])}


def refusal(data: Any) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        plan(data)
    return str(caught.value)


def nested(levels: int) -> Any:
    value: Any = "deep"
    for n in range(levels):
        value = [value] if n % 2 else {"in": value}
    return value


def test_ids_are_the_groups_and_the_place_in_the_definition() -> None:
    jobs = [{"name": "a", "queueName": "q"}, {"name": "a", "queueName": "p"}]
    made = plan_group(parse_group("order", jobs), "o-1")
    assert (made.group_id, made.group_name, made.job_ids) == ("o-1", "order", ("o-1-0", "o-1-1"))


def test_options_are_spelt_as_stock_clients_read_them() -> None:
    opts = {"attempts": 2, "backoff": 5, "keepLogs": 3, "removeOnComplete": True, "removeOnFail": 7}
    assert member(plan(opts=opts))["opts"] == {
        "attempts": 2,
        "backoff": {"type": "fixed", "delay": 5},
        "kl": 3,
        # A removed job could not be undone, so what was asked for waits until the group has ended.
        # Stock clients keep all jobs if they are to keep -1.
        "removeOnComplete": -1,
        "removeOnFail": False,
        "group": {"id": "g", "name": "order"},
    }


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"removeOnComplete": True}, {"on_complete": {"count": 0}}),
        ({"removeOnComplete": 0}, {"on_complete": {"count": 0}}),
        ({"removeOnComplete": False, "removeOnFail": 7}, {"on_fail": {"count": 7}}),
        ({"removeOnFail": {"age": 0}}, {"on_fail": {"age": 0}}),
        (
            {"removeOnComplete": {"age": 5, "count": 2}, "removeOnFail": True},
            {"on_complete": {"count": 2, "age": 5}, "on_fail": {"count": 0}},
        ),
        ({"removeOnComplete": {}, "removeOnFail": False}, None),
        ({}, None),
    ],
)
def test_what_is_asked_of_retention_is_noted_for_later(asked: Any, kept: Any) -> None:
    _, fields = unpack(plan(opts=asked))
    if kept is None:
        assert fields == []
    else:
        assert fields[0] == "retention"
        assert json.loads(fields[1]) == [{"queue": "payments", "id": "g-0", **kept}]


def test_the_digest_is_that_of_the_definition() -> None:
    jobs = [{"name": "charge", "queueName": "payments"}]
    group = parse_group("order", jobs)
    plans = [
        plan_group(group, "g"),
        plan_group(group, "another"),
        plan_group(group, "g", "cluster"),
        plan_group(group, "g", "cluster", "shop/order"),
    ]
    assert len({made.packed for made in plans}) == len(plans)
    assert {made.digest for made in plans} == {digest_group(group)}
    assert plan_group(group, "g", is_id_generated=True).digest == ""


@settings(deadline=None)
@given(json_values)
def test_data_comes_back_from_json_as_it_was(data: Any) -> None:
    back = member(plan(data))["data"]
    assert same(back, data)


@pytest.mark.parametrize("data", ["\ud800", {"\udfff": ["\ud800 and 😀"]}, [10**4000], -0.0, 1e308])
def test_what_is_odd_but_json_comes_back_too(data: Any) -> None:
    assert same(member(plan(data))["data"], data)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        ({"a": [float("inf")]}, "Out of range float values are not JSON compliant"),
        (json.loads("1e400"), "Out of range float values are not JSON compliant"),
        ({1: "a"}, "the key 1 is not a text"),
        ([{"a": {None: "a"}}], "the key None is not a text"),
        ({True: "a"}, "the key True is not a text"),
        ({1, 2}, "Object of type set is not JSON serializable"),
        (b"bytes", "Object of type bytes is not JSON serializable"),
        ([10**5000], "Exceeds the limit (4300 digits) for integer string conversion"),
        (nested(MAX_DEPTH + 1), "it is nested more than 200 levels deep"),
        (nested(100_000), "it is nested more than 200 levels deep"),
    ],
)
def test_what_is_not_json_is_refused(data: Any, sentence: str) -> None:
    assert refusal(data).startswith(f"data cannot be written as JSON: {sentence}")


def test_a_value_that_holds_itself_is_refused() -> None:
    data: list[Any] = []
    data.append(data)
    assert refusal(data) == "data cannot be written as JSON: it is nested more than 200 levels deep"


def test_the_data_of_an_undo_obeys_the_same_rules() -> None:
    with pytest.raises(InvalidSpecError, match="the key 1 is not a text"):
        plan(undo={"name": "refund", "data": {1: 2}})


def test_as_deep_as_allowed_is_allowed() -> None:
    assert member(plan(nested(MAX_DEPTH)))["data"] == nested(MAX_DEPTH)


def test_a_payload_above_the_limit_is_refused_in_the_contracts_words() -> None:
    assert refusal("x" * int(12.3 * 1024 * 1024)) == (
        "Job payload size 12.3 MB exceeds limit of 10.0 MB"
    )
    # What counts are bytes, those of the options too.
    overhead = len(json.dumps(member(plan(""))["opts"], separators=(",", ":"))) + 2
    plan("é" * ((MAX_PAYLOAD - overhead) // 2))
    assert "exceeds limit" in refusal("é" * ((MAX_PAYLOAD - overhead) // 2 + 1))


def test_mappings_above_the_limit_are_refused() -> None:
    jobs = [{"name": name, "queueName": "payments"} for name in ("charge", "reserve")]

    def with_mappings(size: int) -> Plan:
        """Plan a group whose mappings have this many bytes, half of them each."""
        empty = {job["name"]: {"name": "undo", "data": ""} for job in jobs}
        rest = size - len(json.dumps(empty, separators=(",", ":")))
        data = ("x" * (rest // 2), "x" * (rest - rest // 2))
        undos = {
            job["name"]: {"name": "undo", "data": each}
            for job, each in zip(jobs, data, strict=True)
        }
        return plan_group(parse_group("order", jobs, undos), "g")

    with_mappings(MAX_MAPPINGS)
    with pytest.raises(InvalidSpecError, match="compensation has more than 12 MB of JSON"):
        with_mappings(MAX_MAPPINGS + 1)


def plan_of(**rest: Any) -> dict[str, Any]:
    """Return the plan of a group of one job with this compensation or onEnd."""
    made = plan_group(parse_group("order", [{"name": "charge", "queueName": "q"}], **rest), "g")
    packed: dict[str, Any] = msgpack.unpackb(made.packed)
    return packed


@pytest.mark.parametrize(
    ("rest", "is_newer"),
    [
        ({}, False),
        ({"compensation": {"charge": {"name": "refund"}}}, False),
        ({"compensation": {"charge": {"name": "refund", "queueName": "q:compensation"}}}, False),
        ({"compensation": {"charge": {"name": "refund", "queueName": "refunds"}}}, True),
        ({"on_end": []}, False),
        ({"on_end": [{"name": "told", "queueName": "alerts"}]}, True),
    ],
)
def test_the_format_is_the_lowest_that_describes_the_group(
    rest: dict[str, Any], is_newer: bool
) -> None:
    made = plan_of(**rest)
    for fields in (made["parent"], made["fields"]):
        found = dict(zip(fields[::2], fields[1::2], strict=True))
        assert found.get("format") == ("2" if is_newer else None)
    assert ("on_end" in made) == bool(rest.get("on_end"))


def test_on_end_is_written_as_a_driver_reads_it() -> None:
    opts = {"attempts": 5, "priority": 2, "lifo": True, "delay": 7}
    data = [1.0, "\ud800", "/"]
    entry = {"when": "Failed", "queueName": "alerts", "name": "told", "data": data, "opts": opts}
    made = plan_of(on_end=[entry, {"queueName": "mails", "name": "mail"}])
    assert made["end_queues"] == ["alerts", "mails"]
    first, second = json.loads(made["on_end"])
    assert json.loads(first.pop("data")) == data
    assert json.loads(first.pop("opts")) == opts
    assert first == {
        "when": "Failed",
        "queue": "alerts",
        "name": "told",
        "delay": 7,
        "priority": 2,
        "lifo": True,
    }
    assert second == {
        "when": "Always",
        "queue": "mails",
        "name": "mail",
        "opts": '{"attempts":0}',
        "data": "{}",
    }


@pytest.mark.parametrize("too_many", [0, 1])
def test_the_data_of_an_entry_of_on_end_is_limited(too_many: int) -> None:
    entry = {"queueName": "q", "name": "x", "data": "x" * (MAX_END_DATA - 2 + too_many)}
    if not too_many:
        plan_of(on_end=[entry])
        return
    with pytest.raises(InvalidSpecError, match=r"^onEnd\[0\].data has 65 KB; the limit is 64 KB$"):
        plan_of(on_end=[entry])
