"""References to objects: which objects are large, and which references are equal."""

import pytest

from handlers.kube.refs import LARGE_JOBS, Ref, ref_of
from jobgroup.resource.kinds import JOBGROUP, WORKERPOOL
from testbed.support.resources import manifest
from testbed.support.sagas import job


@pytest.mark.parametrize(("jobs", "expected"), [(LARGE_JOBS, False), (LARGE_JOBS + 1, True)])
def test_an_object_with_many_jobs_is_large(jobs: int, expected: bool) -> None:
    body = manifest("order", *(job(f"pay-{n}") for n in range(jobs)))
    body["metadata"] |= {"namespace": "shop", "uid": "1"}
    assert ref_of(body).is_large == expected


@pytest.mark.parametrize("spec", [None, {}, {"jobs": None}])
def test_an_object_without_jobs_is_not_large(spec: object) -> None:
    meta = {"namespace": "shop", "name": "mail", "uid": "1"}
    assert ref_of({"kind": WORKERPOOL.name, "metadata": meta, "spec": spec}) == Ref(
        "shop", "mail", "1", WORKERPOOL.plural
    )


def test_an_object_that_grows_keeps_its_key() -> None:
    small, large = (Ref("shop", "order", "1", JOBGROUP.plural, each) for each in (False, True))
    assert {small: "queued"}[large] == "queued"
