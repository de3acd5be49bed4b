"""References to objects: which objects are large, and which references are equal."""

import pytest

from handlers.kube.refs import LARGE_BYTES, LARGE_JOBS, Ref, is_large, ref_of
from jobgroup.resource.kinds import JOBGROUP, WORKERPOOL
from testbed.support.resources import manifest
from testbed.support.sagas import job


@pytest.mark.parametrize(("jobs", "expected"), [(LARGE_JOBS, False), (LARGE_JOBS + 1, True)])
def test_an_object_with_many_jobs_is_large(jobs: int, expected: bool) -> None:
    body = manifest("order", *(job(f"pay-{n}") for n in range(jobs)))
    body["metadata"] |= {"namespace": "shop", "uid": "1"}
    assert ref_of(body).is_large == expected


@pytest.mark.parametrize("is_undo", [False, True])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("x" * (LARGE_BYTES // 2), False),
        ("x" * LARGE_BYTES, True),
        ({"values": [1] * (LARGE_BYTES // 10)}, True),
    ],
    ids=["half", "text", "numbers"],
)
def test_an_object_with_much_data_is_large(data: object, expected: bool, is_undo: bool) -> None:
    pay = job("pay") | ({} if is_undo else {"data": data})
    undos = {"pay": {"name": "refund", "data": data}} if is_undo else None
    assert is_large(manifest("order", pay, undos=undos)) == expected


@pytest.mark.parametrize("spec", [None, {}, {"jobs": None}])
def test_an_object_without_jobs_is_not_large(spec: object) -> None:
    meta = {"namespace": "shop", "name": "mail", "uid": "1"}
    assert ref_of({"kind": WORKERPOOL.name, "metadata": meta, "spec": spec}) == Ref(
        "shop", "mail", "1", WORKERPOOL.plural
    )


def test_an_object_that_grows_keeps_its_key() -> None:
    small, large = (Ref("shop", "order", "1", JOBGROUP.plural, each) for each in (False, True))
    assert {small: "queued"}[large] == "queued"
