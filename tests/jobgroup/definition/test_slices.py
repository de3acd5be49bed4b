"""Large definitions are processed in slices, with the same result as small ones."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from jobgroup.definition.digest import digest_group, digest_in_slices, write_exactly
from jobgroup.definition.plan import plan_group, plan_in_slices
from jobgroup.definition.slices import SLICE, SLICE_BYTES, Sliced, finish, slices
from jobgroup.definition.spec import parse_group, parse_group_in_slices
from jobgroup.errors import InvalidSpecError
from tests.jobgroup.definition.definitions import large_group

LARGE = 2 * SLICE + 10
PLACE = 2 * SLICE + 2


def breaks_of(computation: Sliced[Any]) -> int:
    """Return how many breaks a computation takes."""
    return sum(1 for _ in computation)


@pytest.mark.parametrize("size", [0, 1, SLICE, SLICE + 1, LARGE])
def test_slices_have_every_item_once_and_in_order(size: int) -> None:
    found = slices(range(size))
    assert [item for each in found for item in each] == list(range(size))
    assert all(0 < len(each) <= SLICE for each in found)


def test_slices_end_after_a_number_of_bytes() -> None:
    sizes = [SLICE_BYTES - 1, 1, SLICE_BYTES, 0, SLICE_BYTES // 2, 0]
    assert [len(each) for each in slices(range(6), sizes)] == [2, 1, 3]


@pytest.mark.parametrize("has_undos", [False, True])
def test_the_digest_of_few_jobs_with_much_data_is_that_of_its_canonical_json(
    has_undos: bool,
) -> None:
    given = large_group(9)
    for job, undo in zip(given["jobs"], given["compensation"].values(), strict=True):
        job["data"] = undo["data"] = {"text": "x" * SLICE_BYTES, "amount": 1.0}
    undos = given["compensation"] if has_undos else None
    group = parse_group("order", given["jobs"], undos)
    breaks = breaks_of(plan_in_slices(group, "g", "owner", "shop/order"))
    assert breaks >= 2 * 9 * (1 + has_undos)
    assert plan_group(group, "g").digest == digest_group(group)


def test_a_computation_is_finished_without_a_break() -> None:
    def adds() -> Sliced[int]:
        yield
        yield
        return 3

    assert finish(adds()) == 3


def test_each_part_of_a_large_group_takes_breaks() -> None:
    given = large_group(LARGE)
    breaks = 2 * len(slices(range(LARGE)))  # one after each slice of the jobs and of the undos
    parts = (given["name"], given["jobs"], given["compensation"], None)
    assert breaks_of(parse_group_in_slices(*parts)) >= breaks
    group = parse_group(*parts)
    assert breaks_of(digest_in_slices(group)) >= breaks
    assert breaks_of(plan_in_slices(group, "g", "owner", "shop/order")) >= 2 * breaks


@pytest.mark.parametrize("name", [None, "order"])
@pytest.mark.parametrize("has_undos", [False, True])
def test_the_digest_of_a_large_group_is_that_of_its_canonical_json(
    name: str | None, has_undos: bool
) -> None:
    given = large_group(LARGE)
    jobs, undos = given["jobs"], given["compensation"] if has_undos else None
    whole = {"jobs": jobs} | ({"compensation": undos} if undos else {})
    text = write_exactly(whole | ({"name": name} if name else {}))
    expected = "v1:" + b64encode(sha256(text).digest()).decode().rstrip("=")
    group = parse_group(name, jobs, undos, default_name="of the object")
    assert digest_group(group) == expected
    assert plan_group(group, "g").digest == expected


@pytest.mark.parametrize(
    ("job", "undo", "message"),
    [
        ({"queueName": "a b"}, {}, f"jobs[{PLACE}].queueName: Input should be 1 to 63 letters"),
        ({"after": "x"}, {}, f"jobs[{PLACE}].after: unknown field"),
        ({}, {"name": ""}, f"compensation.job-{PLACE}.name: String should have at least"),
        ({"name": 5}, {"name": ""}, f"jobs[{PLACE}].name: Input should be a string"),
    ],
)
def test_an_error_in_a_large_group_names_its_place(
    job: dict[str, Any], undo: dict[str, Any], message: str
) -> None:
    given = large_group(LARGE)
    undos = given["compensation"]
    undos[f"job-{PLACE}"] |= undo
    if "name" in job:
        del undos[f"job-{PLACE}"]  # the undo of a job that is not in the group is another error
    given["jobs"][PLACE] |= job
    with pytest.raises(InvalidSpecError) as refusal:
        parse_group(given["name"], given["jobs"], undos)
    assert str(refusal.value).startswith(message)
    assert refusal.value.is_final == ("after" not in job)
