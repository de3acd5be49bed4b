"""The digest of a definition: what it covers, and canonical JSON as other languages write it."""

import json
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobgroup.cli.manifest import read_plans
from jobgroup.definition.digest import canonical_json, digest_group, write_exactly
from jobgroup.definition.spec import parse_group
from jobgroup.errors import InvalidSpecError
from jobgroup.resource.jobgroup_spec import parse_definition
from testbed.build.toolchain import node
from tests.json_values import json_values, texts

JOB = {"name": "charge", "queueName": "payments"}
UNDO = {"name": "refund"}
EXPONENTIAL = {"type": "exponential", "delay": 1000}

# An independent client: reads the JSON of a value, and prints what the digest of that value is.
PEER = """
const { createHash } = require("node:crypto");
const write = (value) => {
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const field = (key) => `${JSON.stringify(key)}:${write(value[key])}`;
  return `{${Object.keys(value).sort().map(field).join(",")}}`;
};
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const hash = createHash("sha256").update(write(JSON.parse(line)), "utf8");
  console.log("v1:" + hash.digest("base64").replace("=", ""));
});
"""


def digest(
    job: dict[str, Any] | None = None, undo: dict[str, Any] | None = None, name: str = "order"
) -> str:
    """Return the digest of a group of one job, which has these fields in addition."""
    compensation = None if undo is None else {"charge": {**UNDO, **undo}}
    return digest_group(parse_group(name, [{**JOB, **(job or {})}], compensation))


def backwards(value: Any) -> Any:
    """Return the same value with all keys in reverse order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return [backwards(item) for item in value] if isinstance(value, list) else value


# A change of these digests needs another version: groups in Redis and other clients have them.
@pytest.mark.parametrize(
    ("definition", "canonical"),
    [
        (
            {"name": "order", "jobs": [JOB]},
            '{"jobs":[{"name":"charge","queueName":"payments"}],"name":"order"}',
        ),
        (
            {
                "name": "ordér",
                "jobs": [
                    {**JOB, "data": {"b": 1.0, "a": [99.99, None]}, "opts": {"attempts": 1}},
                    {"name": "ship", "queueName": "shipping", "data": []},
                ],
                "compensation": {
                    "ship": {"name": "recall", "when": "Started", "data": 2**53 + 1},
                    "charge": {"name": "refund", "opts": {"attempts": 5, "backoff": 7}},
                },
            },
            '{"compensation":{"charge":{"name":"refund","opts":{"attempts":5,"backoff":7}},'
            '"ship":{"data":9007199254740993,"name":"recall","when":"Started"}},'
            '"jobs":[{"data":{"a":[99.99,null],"b":1},"name":"charge","opts":{"attempts":1},'
            '"queueName":"payments"},{"data":[],"name":"ship","queueName":"shipping"}],'
            '"name":"ordér"}',
        ),
        (
            {
                "name": "order",
                "jobs": [JOB],
                "compensation": {"charge": {"name": "refund", "queueName": "refunds"}},
                "on_end": [{"name": "told", "queueName": "alerts", "when": "Failed", "data": 1.0}],
            },
            '{"compensation":{"charge":{"name":"refund","queueName":"refunds"}},'
            '"jobs":[{"name":"charge","queueName":"payments"}],"name":"order",'
            '"onEnd":[{"data":1,"name":"told","queueName":"alerts","when":"Failed"}]}',
        ),
    ],
)
def test_what_is_digested(
    definition: dict[str, Any], canonical: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[bytes] = []

    class Hash:
        def __init__(self, content: bytes) -> None:
            digested.append(content)

        def digest(self) -> bytes:
            return b"0123"

    monkeypatch.setattr("jobgroup.definition.digest.sha256", Hash)
    assert digest_group(parse_group(**definition)) == "v1:MDEyMw"
    assert digested == [canonical.encode()]


def test_a_digest_is_a_sha256() -> None:
    assert digest() == "v1:mpVOY79cB/eOlOJHODxFKbnDl1oA3Un1kF5CdsvFT80"


@pytest.mark.parametrize(
    "job",
    [
        {"data": {}},
        {"opts": {}},
        {"opts": {"attempts": None, "backoff": None, "delay": None}},
        {"opts": {"delay": 0, "priority": 0, "lifo": False}},
        {"opts": {"removeOnComplete": False, "removeOnFail": False}},
    ],
)
def test_a_default_of_a_job_digests_like_an_omitted_field(job: dict[str, Any]) -> None:
    assert digest(job) == digest()


@pytest.mark.parametrize(
    "undo",
    [
        {"data": {}},
        {"opts": {}},
        {"opts": {"attempts": 3}},
        {"opts": {"backoff": EXPONENTIAL}},
        {"opts": {"attempts": 3, "backoff": EXPONENTIAL}},
        {"when": "Completed"},
        {"queueName": "payments:compensation"},
        {"queueName": None},
    ],
)
def test_a_default_of_an_undo_digests_like_an_omitted_field(undo: dict[str, Any]) -> None:
    assert digest(undo=undo) == digest(undo={})


def test_no_compensation_digests_like_an_empty_one() -> None:
    assert digest_group(parse_group("order", [JOB], {})) == digest()


def test_every_other_change_is_another_digest() -> None:
    values: list[Any] = [None, [], "", 0, False, {"a": {}}, {"a": 1}, {"a": "1"}]
    jobs: list[dict[str, Any]] = [
        {},
        {"name": "another"},
        {"queueName": "another"},
        *({"data": data} for data in values),
        *({"opts": {"attempts": count}} for count in (1, 3)),
        *({"opts": {"backoff": backoff}} for backoff in (7, {"type": "fixed", "delay": 7})),
        {"opts": {"backoff": EXPONENTIAL}},
        *({"opts": {option: 1}} for option in ("delay", "priority", "keepLogs")),
        {"opts": {"keepLogs": 0}},
        {"opts": {"lifo": True}},
        # 0 removes every job, false none; true removes every job, 1 all but one.
        *(
            {"opts": {option: kept}}
            for option in ("removeOnComplete", "removeOnFail")
            for kept in (0, 1, True, {}, {"age": 0}, {"count": 0})
        ),
    ]
    undos: list[dict[str, Any]] = [
        {},
        {"name": "another"},
        {"data": None},
        {"opts": {"attempts": 4}},
        {"opts": {"backoff": 1000}},
        {"opts": {"backoff": {"type": "exponential", "delay": 1001}}},
        {"when": "Started"},
        {"queueName": "refunds"},
        {"queueName": "shipping:compensation"},
    ]
    made = [digest(job) for job in jobs] + [digest(undo=undo) for undo in undos]
    made += [digest(name="another")]
    made += [digest_group(parse_group("order", pair)) for pair in two_jobs()]
    assert len(set(made)) == len(made)


def test_a_queue_of_undos_is_the_default_if_it_is_that_of_every_job_with_the_name() -> None:
    def made(queue: str | None, other: str) -> str:
        jobs = [JOB, {**JOB, "queueName": other}]
        return digest_group(parse_group("order", jobs, {"charge": {**UNDO, "queueName": queue}}))

    assert made("payments:compensation", "payments") == made(None, "payments")
    assert made("payments:compensation", "bank") != made(None, "bank")


def test_the_digest_of_a_large_group_has_the_queues_of_its_undos() -> None:
    def made(queue: str) -> str:
        jobs = [{**JOB, "name": f"charge-{n}"} for n in range(150)]
        undos: dict[str, Any] = {job["name"]: UNDO for job in jobs}
        undos["charge-149"] = {**UNDO, "queueName": queue}
        return digest_group(parse_group("order", jobs, undos))

    assert len({made("payments:compensation"), made("refunds"), made("banks")}) == 3


def two_jobs() -> list[list[dict[str, Any]]]:
    other = {"name": "ship", "queueName": "shipping"}
    return [[JOB, other], [other, JOB], [JOB, JOB]]


END = {"queueName": "alerts", "name": "told"}


def digest_with(*entries: Any, jobs: Any = (JOB,)) -> str:
    return digest_group(parse_group("order", list(jobs), on_end=entries))


@pytest.mark.parametrize(
    "entry", [{"when": "Always"}, {"data": {}}, {"opts": {}}, {"opts": {"delay": 0, "lifo": False}}]
)
def test_a_default_of_on_end_digests_like_an_omitted_field(entry: dict[str, Any]) -> None:
    assert digest_with({**END, **entry}) == digest_with(END)


def test_no_on_end_digests_like_an_empty_one() -> None:
    assert digest_with() == digest()


@pytest.mark.parametrize("jobs", [1, 150])
def test_every_other_change_of_on_end_is_another_digest(jobs: int) -> None:
    several = [{**JOB, "name": f"charge-{n}"} for n in range(jobs)]
    entries: list[list[dict[str, Any]]] = [
        [],
        [END],
        [END, END],
        *([{**END, "when": when}] for when in ("Completed", "Failed", "FailedCompensation")),
        [{**END, "name": "another"}],
        [{**END, "queueName": "another"}],
        [{**END, "data": None}],
        [{**END, "opts": {"removeOnComplete": False}}],
        [{**END, "opts": {"attempts": 5}}],
        [END, {**END, "name": "another"}],
        [{**END, "name": "another"}, END],
    ]
    made = [digest_with(*each, jobs=several) for each in entries]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("spec_name", ["order", None])
def test_only_a_name_that_the_user_gave_is_digested(spec_name: str | None) -> None:
    spec = {"jobs": [JOB], **({"name": spec_name} if spec_name else {})}
    header = {"apiVersion": "jobgroups.dev/v1alpha1", "kind": "JobGroup"}
    bodies = [{**header, "metadata": {"name": name}, "spec": spec} for name in ("one", "other")]
    expected = digest_group(parse_group(spec_name, [JOB], default_name="any"))
    assert [digest_group(parse_definition(body)) for body in bodies] == [expected] * 2
    plans = [plan for body in bodies for plan in read_plans(json.dumps(body), "order.json")]
    assert [plan.digest for plan in plans] == [expected] * 2
    assert [plan.group_name for plan in plans] == [spec_name or "one", spec_name or "other"]
    # The name of a plain definition and of the Python API is always one that the user gave.
    (plain,) = read_plans(json.dumps({"name": "order", "jobs": [JOB]}), "order.json", "mine")
    assert plain.digest == digest()
    assert (expected == digest()) is (spec_name is not None)


def test_a_resource_cannot_set_what_only_the_parser_knows() -> None:
    body = {"metadata": {"name": "order"}, "spec": {"jobs": [JOB], "explicit_name": True}}
    with pytest.raises(InvalidSpecError, match=r"spec\.explicit_name: unknown field"):
        parse_definition(body)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-1.0, "-1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (-99.99, "-99.99"),
        (100.0, "100"),
        (123.456e10, "1234560000000"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e21, "-1.5e+21"),
        (0.0001, "0.0001"),
        (0.00001, "0.00001"),
        (1.5e-6, "0.0000015"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1.25e-10, "-1.25e-10"),
        (2**53, "9007199254740992"),
        (2.0**53, "9007199254740992"),
        (2**53 + 1, "9007199254740993"),
        (-(10**25), "-10000000000000000000000000"),
        (True, "true"),
    ],
)
def test_numbers(number: Any, text: str) -> None:
    assert canonical_json([number]) == f"[{text}]".encode()
    assert write_exactly(number) == text.encode()


# The bits of a double, and its text: the limits of every form, and numbers that round with care.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000001", "9007199254740994"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
    ],
)
def test_the_limits_of_numbers(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json([number]) == f"[{text}]".encode()


def test_keys_are_sorted_by_utf16_code_units() -> None:
    keys = ["\r", "1", "\x80", "ö", "€", "\U0001f600", "\ufb33"]
    assert sorted(keys) != keys
    written = canonical_json(dict.fromkeys(sorted(keys), 0))
    assert list(json.loads(written)) == keys


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('\x00\x1f\b\t\n\f\r"\\/', r'"\u0000\u001f\b\t\n\f\r\"\\/"'),
        ("\x7fé\u2028😀", '"\x7fé\u2028😀"'),
        ("\ud83d\ude00", '"😀"'),
        ("a\ud83dZ\ude00", r'"a\ud83dZ\ude00"'),
    ],
)
def test_texts(text: str, written: str) -> None:
    assert canonical_json([text]) == f"[{written}]".encode()


def test_what_looks_like_a_number_in_a_text_stays_as_it_is() -> None:
    looks = {"a,1.0]": ':1.0,"x",1e5', "b": 1.0}
    assert canonical_json(looks) == b'{"a,1.0]":":1.0,\\"x\\",1e5","b":1}'


@settings(deadline=None)
@given(json_values)
def test_the_fast_way_writes_the_same(value: Any) -> None:
    assert canonical_json([value]) == write_exactly([value])


@settings(deadline=None)
@given(json_values)
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_json([backwards(value)]) == canonical_json([value])
    assert digest({"data": backwards(value)}) == digest({"data": value})


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_an_integer_and_the_equal_float_are_the_same(number: int) -> None:
    assert digest({"data": [number]}) == digest({"data": [float(number)]})


@given(st.integers())
def test_an_integer_is_written_with_all_its_digits(number: int) -> None:
    assert canonical_json([number, 0.5, "😀"]) == f'[{number},0.5,"😀"]'.encode()


@pytest.fixture(scope="module")
def peer() -> Iterator["subprocess.Popen[str]"]:
    """Start the client in Node."""
    with subprocess.Popen(
        [str(node()), "-e", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin
        process.stdin.close()


# JavaScript reads no integer beyond 2^53 exactly.
shared_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
).filter(lambda value: value != {})


@pytest.mark.server
@settings(deadline=None, max_examples=300)
@given(shared_values)
def test_node_computes_the_same_digest(peer: "subprocess.Popen[str]", data: Any) -> None:
    assert peer.stdin
    assert peer.stdout
    definition = {"jobs": [{"data": data, **JOB}], "name": "order"}
    peer.stdin.write(json.dumps(definition) + "\n")
    peer.stdin.flush()
    assert peer.stdout.readline().strip() == digest({"data": data})
