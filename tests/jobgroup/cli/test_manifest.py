"""The plans of a file, and the message of every invalid file."""

import json
import re
from typing import Any

import msgpack
import pytest

from jobgroup.cli.manifest import read_plans
from jobgroup.definition.plan import Plan
from jobgroup.errors import InvalidSpecError

PLAIN = """\
name: order
jobs:
- {name: charge, queueName: payments, data: DATA}
"""
MANIFEST = """\
apiVersion: jobgroups.dev/v1alpha1
kind: JobGroup
metadata: {name: order-123, uid: 1b4e28ba, labels: {team: shop}}
spec:
  jobs:
  - {name: charge, queueName: payments}
status: {state: ACTIVE}
"""


def read(
    text: str, source: str = "order.yaml", group_id: str | None = None, new_id: bool = False
) -> list[Plan]:
    return read_plans(text, source, group_id, new_id)


def refusal(text: str, source: str = "order.yaml", group_id: str | None = None) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        read(text, source, group_id)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def data_of(plan: Plan) -> Any:
    """Return the data of the first job, as a worker gets it."""
    return json.loads(msgpack.unpackb(plan.packed)["members"][0]["data"])


def test_a_plain_definition() -> None:
    (plan,) = read(PLAIN)
    assert (plan.group_name, len(plan.job_ids)) == ("order", 1)


def test_json_is_read_as_json_even_where_yaml_differs() -> None:
    text = (
        '{\n\t"name": "order",\n\t"jobs": [{"name": "a", "queueName": "q", "data": [1e3, "é"]}]\n}'
    )
    for source in ("order.json", "standard input"):
        (plan,) = read(text, source)
        assert data_of(plan) == [1000.0, "é"]


def test_the_name_of_a_manifest_is_the_default_name_of_its_group() -> None:
    (plan,) = read(MANIFEST)
    assert plan.group_name == "order-123"
    (plan,) = read(MANIFEST.replace("spec:", "spec:\n  name: fulfillment"))
    assert plan.group_name == "fulfillment"


def test_a_manifest_may_have_the_defaults_of_the_operator() -> None:
    defaults = "spec:\n  cancel: false\n  suspend: false\n  activeDeadlineSeconds: null\n"
    (plan,) = read(MANIFEST.replace("spec:\n", defaults + "  deletionPolicy: Orphan\n"))
    assert plan.group_name == "order-123"


def test_the_id_is_given_or_from_the_file_or_new() -> None:
    mine = PLAIN + "groupId: mine\n"
    assert [plan.group_id for plan in read(mine)] == ["mine"]
    assert [plan.group_id for plan in read(mine, group_id="other")] == ["other"]
    assert read(PLAIN)[0].group_id != read(PLAIN)[0].group_id


@pytest.mark.parametrize(
    ("metadata", "group_id"),
    [
        ("{name: order-123}", "default.order-123"),
        ("{name: order-123, namespace: shop}", "shop.order-123"),
        ("{name: order-123, namespace: null}", "default.order-123"),
        (f"{{name: {'o' * 120}}}", f"default.{'o' * 120}"),
    ],
)
def test_the_id_of_a_manifest_is_its_namespace_and_name(metadata: str, group_id: str) -> None:
    text = re.sub("metadata: .*", f"metadata: {metadata}", MANIFEST)
    assert [plan.group_id for plan in read(text)] == [group_id]
    assert [plan.group_id for plan in read(text, group_id="other")] == ["other"]


@pytest.mark.parametrize("text", [MANIFEST, PLAIN + "groupId: mine\n"])
def test_a_new_id_replaces_every_other(text: str) -> None:
    ids = [plan.group_id for _ in range(2) for plan in read(text, new_id=True)]
    assert len(set(ids)) == 2
    assert all(re.fullmatch(r"[A-Za-z][0-9A-Za-z]{21}", each) for each in ids)


def test_a_manifest_without_a_name_gets_a_new_id() -> None:
    text = re.sub("metadata: .*", "metadata: {generateName: order-}", MANIFEST)
    text = text.replace("spec:", "spec:\n  name: fulfillment")
    assert read(text)[0].group_id != read(text)[0].group_id


@pytest.mark.parametrize("name", ["o" * 121, "order-undo", "order 123"])
def test_an_id_that_a_manifest_cannot_have(name: str) -> None:
    text = MANIFEST.replace("order-123", name)
    said = refusal(text)
    assert said.startswith(f"order.yaml: Group id 'default.{name}' ")
    assert said.endswith("; use --id to choose another one")
    assert [plan.group_id for plan in read(text, group_id="short")] == ["short"]


@pytest.mark.parametrize("metadata", ["{name: 123}", "{name: a, namespace: [b]}"])
def test_metadata_of_a_wrong_type(metadata: str) -> None:
    text = re.sub("metadata: .*", f"metadata: {metadata}", MANIFEST)
    text = text.replace("spec:", "spec:\n  name: fulfillment")
    assert re.fullmatch(r"order.yaml: metadata.(name|namespace) should be a string", refusal(text))


def test_each_document_is_a_group_and_empty_ones_are_skipped() -> None:
    plans = read(f"---\n{PLAIN}---\n# nothing\n---\n{MANIFEST}---\n")
    assert [plan.group_name for plan in plans] == ["order", "order-123"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("12:30", "12:30"),
        ("12:30:45.5", "12:30:45.5"),
        ("00123x", "00123x"),
        ("0899", "0899"),
        ("1.2.3", "1.2.3"),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("-7", -7),
        ("1_000", 1000),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 15),
        ("0", 0),
        ("99.99", 99.99),
        ("12345678901234567890", 12345678901234567890),
        ("yes", True),
        ("~", None),
        ("{1: a, true: b, 2026-01-02: c}", {"1": "a", "true": "b", "2026-01-02": "c"}),
        ("[&x {a: 1}, {<<: *x, a: 2}]", [{"a": 1}, {"a": 2}]),
    ],
)
def test_yaml_is_read_as_kubectl_reads_it(written: str, meant: Any) -> None:
    (plan,) = read(PLAIN.replace("DATA", written))
    assert data_of(plan) == meant


def test_merge_keys_may_be_nested() -> None:
    anchors = "[&a {x: 1}, &b {<<: *a, x: 2}, {<<: *b, x: 3}]"
    (plan,) = read(PLAIN.replace("DATA", anchors))
    assert data_of(plan) == [{"x": 1}, {"x": 2}, {"x": 3}]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "order.yaml: the file contains no group"),
        ("---\n# only a comment\n", "order.yaml: the file contains no group"),
        ("- name: order\n", "order.yaml: a group should be a mapping"),
        ("42", "order.yaml: a group should be a mapping"),
        ("order", "order.yaml: a group should be a mapping"),
        (
            "name: order\njobs:\n\t- name: a\n",
            "order.yaml: line 3, column 1: YAML is indented with spaces, not with tabs",
        ),
        (
            "name: order\njobs: []\nname: other\n",
            'order.yaml: line 3, column 1: the key "name" appears twice in one mapping',
        ),
        (
            PLAIN.replace("DATA", "[{a: 1, a: 2}]"),
            'order.yaml: line 3, column 53: the key "a" appears twice in one mapping',
        ),
        ("name: order\njobs: []", "order.yaml: Group must contain at least one job"),
        ("name: order", "order.yaml: Group must contain at least one job"),
        (
            PLAIN + "compensation: {refund: {name: x}}",
            'order.yaml: Compensation key "refund" does not match any job name',
        ),
        (PLAIN + "compensations: {}", "order.yaml: compensations: unknown field"),
        (
            PLAIN + "groupId: a b",
            "order.yaml: Group id 'a b' must be 1 to 128 letters, digits, dots, underscores or"
            " hyphens",
        ),
        (
            MANIFEST.replace("v1alpha1", "v9"),
            "order.yaml: apiVersion and kind must be jobgroups.dev/v1alpha1 JobGroup, not"
            " jobgroups.dev/v9 JobGroup",
        ),
        (
            MANIFEST.replace("JobGroup", "Job"),
            "order.yaml: apiVersion and kind must be jobgroups.dev/v1alpha1 JobGroup, not"
            " jobgroups.dev/v1alpha1 Job",
        ),
        (MANIFEST + "data: {}", "order.yaml: data: unknown field"),
        (
            MANIFEST.replace("spec:", "spec:\n  paused: true"),
            "order.yaml: spec.paused: unknown field",
        ),
        (
            MANIFEST.replace("spec:", "spec:\n  suspend: true"),
            "order.yaml: spec.suspend: only the operator supports this field; remove it",
        ),
        (
            MANIFEST.replace("spec:", "spec:\n  activeDeadlineSeconds: 0"),
            "order.yaml: spec.activeDeadlineSeconds: Input should be a whole number of seconds from"
            " 1 to 315360000",
        ),
        (
            MANIFEST.replace("spec:", "spec:\n  ttlSecondsAfterFinished: soon"),
            "order.yaml: spec.ttlSecondsAfterFinished: Input should be a whole number of seconds"
            " from 0 to 315360000",
        ),
        (
            MANIFEST.replace("spec:", "spec:\n  ttlSeconds: 1"),
            "order.yaml: spec.ttlSeconds: unknown field",
        ),
        (
            "name: order\nttlSeconds: true\njobs: [{name: a, queueName: b}]",
            "order.yaml: ttlSeconds: Input should be a whole number of seconds from 0 to 315360000",
        ),
        (MANIFEST.partition("spec:")[0], "order.yaml: spec should be a mapping"),
        (
            f"{PLAIN}---\nname: other\njobs: []\n",
            "order.yaml, document 2: Group must contain at least one job",
        ),
        (
            PLAIN.replace("DATA", "!!binary aGk="),
            "order.yaml: data cannot be written as JSON: Object of type bytes is not JSON"
            " serializable",
        ),
        (
            PLAIN.replace("DATA", "!!bool maybe"),
            "order.yaml: a value does not match its tag: 'maybe'",
        ),
    ],
)
def test_the_message_of_an_invalid_file(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN.replace("name: order\n", ""), "name: "),
        (PLAIN.replace("order", "7"), "name: "),
        ("name: order\njobs: {a: 1}", "jobs: "),
        ("name: order\njobs: [a]", "jobs[0]: "),
        ("name: order\njobs: [{name: [a], queueName: q}]", "jobs[0].name: "),
        ("name: order\njobs: [{name: a}]", "jobs[0].queueName: "),
        (PLAIN + "compensation: [charge]", "compensation: "),
        (PLAIN + "groupId: 7", "Group id 7 must be"),
        ("name: [order", "line "),
        ("name: order: fulfillment", "line 1, column 12"),
        ("name: *nobody", "line 1, column 7"),
        ("? [name]\n: order", "line 1, column 3: found unhashable key"),
        ("name: !!python/object:os.system x", "line 1, column 7"),
        ("name: a\x07b", "control characters are not allowed"),
        (PLAIN.replace("DATA", "!!timestamp soon"), "a value does not match its tag"),
        (PLAIN.replace("DATA", "9" * 5000), "4300 digits"),
        (PLAIN.replace("DATA", "&x [*x]"), "data cannot be written as JSON"),
        (PLAIN.replace("DATA", ".nan"), "data cannot be written as JSON"),
        ('{"a":' * 100_000, "nested"),
    ],
)
def test_the_message_of_a_parser_has_the_place(text: str, said: str) -> None:
    sentence = refusal(text)
    assert sentence.startswith("order.yaml: ")
    assert said in sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '{"name": "order",}',
            "order.json: line 1, column 17: Illegal trailing comma before end of object",
        ),
        ("name: order", "order.json: line 1, column 1: Expecting value"),
        ("", "order.json: line 1, column 1: Expecting value"),
        ('{"name": 1, "name": 2}', 'order.json: the key "name" appears twice in one mapping'),
    ],
)
def test_a_json_file_must_contain_json(text: str, sentence: str) -> None:
    said = refusal(text, "order.json")
    # Since Python 3.13 the message for a trailing comma differs.
    assert said == sentence or "Expecting property name" in said


def test_an_id_for_several_groups_is_refused() -> None:
    sentence = "order.yaml: --id names one group, but the file contains 2"
    assert refusal(f"{PLAIN}---\n{PLAIN}", group_id="mine") == sentence
