"""The workers of JobGroups without servers: how long they rest after a large object."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from handlers.jobgroups import reconciler
from handlers.jobgroups.reconciler import MAX_REST_SECONDS, RESTS
from handlers.kube.client import ApiClient
from handlers.kube.refs import Ref, ref_of
from jobgroup import Store
from jobgroup.resource.decisions import FINALIZER, GROUP_ANNOTATION, RELEASE_ANNOTATION
from jobgroup.resource.kinds import JOBGROUP
from tests.handlers.jobgroups.reconcilers import build_reconciler

# A timeout for a test that hangs.
PATIENCE = 30


async def rests(monkeypatch: pytest.MonkeyPatch, took: float, large: bool) -> list[float]:
    """Run a worker until it has reconciled two objects; return how long it rested."""
    now, found, done = 0.0, list[float](), asyncio.Event()
    built = build_reconciler(cast(ApiClient, None), cast(Store, None))
    refs = [Ref("shop", name, name, is_large=large) for name in ("first", "second")]

    async def reconcile(ref: Ref) -> None:
        nonlocal now
        now += took
        if ref is refs[-1]:
            done.set()

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(reconciler, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(reconciler, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(built, "reconcile", reconcile)
    for ref in refs:
        built._queue.add(ref)
    working: asyncio.Task[Any] = asyncio.create_task(built.work(large))
    async with asyncio.timeout(PATIENCE):
        await done.wait()
        # The worker waits for a third object.
        while len(built._queue):
            await asyncio.sleep(0)
        await asyncio.sleep(0)
    working.cancel()
    return found


async def test_after_a_large_object_a_worker_rests_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await rests(monkeypatch, 0.25, large=True) == [RESTS * 0.25] * 2


async def test_a_worker_does_not_rest_longer_because_the_api_server_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await rests(monkeypatch, 30.0, large=True) == [MAX_REST_SECONDS] * 2


async def test_after_a_small_object_no_worker_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await rests(monkeypatch, 0.25, large=False) == []


@pytest.mark.parametrize("release", ["", "default/jobgroup-operator", "sagas/other"])
async def test_a_start_queues_no_object_that_has_ended(release: str) -> None:
    """Also if an older operator claimed it, which wrote no release."""
    built = build_reconciler(cast(ApiClient, None), cast(Store, None))
    meta = {
        "namespace": "shop",
        "name": "order",
        "uid": "1",
        "resourceVersion": "1",
        "generation": 1,
        "finalizers": [FINALIZER],
        "annotations": {GROUP_ANNOTATION: "1/e1", RELEASE_ANNOTATION: release},
    }
    status = {"state": "COMPLETED", "observedGeneration": 1}
    body = {"kind": JOBGROUP.name, "metadata": meta, "spec": {"jobs": []}, "status": status}
    built.enqueue(ref_of(body), body)
    assert len(built._queue) == 0
    body["status"] = {**status, "state": "ACTIVE"}
    built.enqueue(ref_of(body), body)
    assert len(built._queue) == 1
