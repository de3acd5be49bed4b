"""The client of the API server: no write succeeds on a stale object."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import web

from handlers.jobgroups.cache import ObjectCache
from handlers.kube.client import ApiClient, ApiError, Conflict, StatusRefusedError
from handlers.kube.leader import Lease
from handlers.kube.ratelimit import TokenBucket
from handlers.kube.refs import ref_of
from jobgroup import Store, connect
from jobgroup.definition.plan import Plan
from jobgroup.model.clock import now_ms
from jobgroup.resource.decisions import FINALIZER, GROUP_ANNOTATION, RELEASE_ANNOTATION
from jobgroup.resource.events import ResourceEvent, to_kubernetes_event
from jobgroup.store.replies import GroupReading
from testbed.servers.apiserver import OPERATOR_NAMESPACE
from testbed.servers.proxy import Proxy
from testbed.support.resources import manifest
from testbed.support.stages import PAY, PREFIX, Stage
from testbed.support.waiting import PATIENCE_SECONDS
from tests.handlers.jobgroups.reconcilers import build_reconciler
from tests.handlers.kube.tunnels import tunnel

Body = dict[str, Any]
Write = Callable[[ApiClient, Body], Awaitable[Any]]


@pytest.fixture
async def client(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiClient]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    client = ApiClient(kopf.OperatorSettings())
    yield client
    await client.close()


def applied(stage: Stage) -> Body:
    stage.resources.apply(manifest("order", PAY))
    return stage.resources.get("order")


async def reconcile(client: ApiClient, store: Store, body: Body) -> float | None:
    """Reconcile an object once; return after how many seconds to reconcile it again."""
    return await build_reconciler(client, store).reconcile(ref_of(body))


# Includes all fields that have a default.
TOLD = {"state": "ACTIVE", "observedGeneration": 1}
PUTS: dict[str, Write] = {
    "status": lambda client, body: client.put_status(body, TOLD),
    "metadata": lambda client, body: client.put_metadata(body, {"finalizers": [FINALIZER]}),
}
WRITES: dict[str, Write] = {**PUTS, "delete": lambda client, body: client.delete(body)}


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_to_a_changed_object_is_refused(
    stage: Stage, client: ApiClient, write: str
) -> None:
    old = applied(stage)
    stage.resources.patch("order", deletionPolicy="Orphan")
    changed = stage.resources.get("order")
    with pytest.raises(Conflict):
        await WRITES[write](client, old)
    assert stage.resources.get("order") == changed
    await WRITES[write](client, changed)


async def test_a_status_that_does_not_match_the_schema_is_refused_and_counted(
    stage: Stage, client: ApiClient
) -> None:
    body = applied(stage)
    for times in (1, 2):
        with pytest.raises(StatusRefusedError, match="observedGeneration") as caught:
            await client.put_status(body, {**TOLD, "observedGeneration": "one"})
        assert caught.value.code == 422
        assert client.refused == {("JobGroup", 422): times}
    await client.put_status(body, TOLD)
    # The object has changed: a conflict, not a refusal.
    with pytest.raises(Conflict):
        await client.put_status(body, TOLD)
    assert client.refused == {("JobGroup", 422): 2}


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_to_another_object_of_the_same_name_is_refused(
    stage: Stage, client: ApiClient, write: str
) -> None:
    old = applied(stage)
    stage.resources.delete("order")
    heir = applied(stage)
    with pytest.raises(Conflict):
        await WRITES[write](client, old)
    assert stage.resources.get("order") == heir
    assert await client.read(ref_of(old)) is None


@pytest.mark.parametrize("write", PUTS)
async def test_a_write_returns_the_new_object(stage: Stage, client: ApiClient, write: str) -> None:
    body = applied(stage)
    written = await PUTS[write](client, body)
    del written["metadata"]["managedFields"]
    assert written == stage.resources.get("order") != body


@pytest.mark.parametrize("write", PUTS)
async def test_the_response_to_a_write_contains_only_metadata(
    stage: Stage, client: ApiClient, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Body] = []
    request = client.request

    async def noted(*arguments: Any, **options: Any) -> Body:
        answers.append(await request(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(client, "request", noted)
    await PUTS[write](client, applied(stage))
    (answer,) = answers
    assert answer.keys() == {"apiVersion", "kind", "metadata"}


# JSON encoders write these values in different ways.
STRANGE = {
    "numbers": [99.99, 1e20, 1e21, 5e-324, -0.0, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 2**70],
    "texts": ["é😀", "\u2028", "<&>", "\x7f", ""],
    "nothing": [None, {}, []],
}


async def test_a_claim_changes_only_the_finalizer_and_the_annotations(
    stage: Stage, client: ApiClient
) -> None:
    order = manifest("order", {**PAY, "data": STRANGE})
    theirs = {"labels": {"team": "a"}, "annotations": {"cost-centre": "7"}}
    order["metadata"] |= {**theirs, "finalizers": ["example.com/audit"]}
    stage.resources.apply(order)
    before = stage.resources.get("order")
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        await reconcile(client, store, before)
        note = {
            GROUP_ANNOTATION: f"{before['metadata']['uid']}/{await store.incarnation()}",
            RELEASE_ANNOTATION: "default/jobgroup-operator",
        }
    found = stage.resources.get("order")
    annotations = {**before["metadata"]["annotations"], **note}
    assert found["metadata"]["annotations"] == annotations
    assert found["metadata"]["labels"] == theirs["labels"]
    assert found["metadata"]["finalizers"] == ["example.com/audit", FINALIZER]
    assert (found["spec"], found["metadata"]["generation"]) == (before["spec"], 1)
    # No operator is running that would remove the finalizer.
    stage.resources.kubectl(
        *("patch", "jobgroup", "order", "--type=merge", "-p"), '{"metadata": {"finalizers": null}}'
    )


async def test_a_spec_that_a_webhook_changed_is_read_again(
    stage: Stage, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admission webhook may change an object in any write."""
    body = applied(stage)
    ref, request = ref_of(body), client.request

    async def mutated(method: str, path: str, sent: Any = None, **options: Any) -> Body:
        if method == "PUT" and path == ref.path:
            sent = {**sent, "spec": {**sent["spec"], "activeDeadlineSeconds": 3600}}
        return await request(method, path, sent, **options)

    monkeypatch.setattr(client, "request", mutated)
    async with connect(stage.redis.url) as redis:
        requeue_after = await reconcile(client, Store(redis, PREFIX), body)
    assert stage.resources.get("order")["metadata"]["generation"] == 2
    assert stage.resources.status("order")["observedGeneration"] == 2
    assert stage.resources.status("order")["state"] == "ACTIVE"
    assert requeue_after is not None  # at its deadline
    assert 3500 < requeue_after <= 3600


async def test_a_group_that_disappears_after_its_creation_is_read_again(
    stage: Stage, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = applied(stage)
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        make = store.create_and_read

        async def made_and_lost(plan: Plan) -> GroupReading:
            assert isinstance(await make(plan), GroupReading)
            return GroupReading(None, None, "")

        monkeypatch.setattr(store, "create_and_read", made_and_lost)
        await reconcile(client, store, body)
    assert stage.resources.status("order")["state"] == "ACTIVE"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_letters_are_sent_unescaped(stage: Stage, client: ApiClient) -> None:
    """With escaped letters, an object of the allowed size could exceed the request limit."""
    order = manifest("order", {**PAY, "data": "é" * 600_000})
    order["metadata"]["finalizers"] = [FINALIZER]
    text = json.dumps(order, ensure_ascii=False)
    stage.resources.kubectl("create", "-f", "-", stdin=text)
    body = stage.resources.get("order")
    released = await client.put_metadata(body, {"finalizers": []})
    assert "finalizers" not in released["metadata"]


async def test_only_the_status_is_replaced(stage: Stage, client: ApiClient) -> None:
    body = applied(stage)
    told = await client.put_status(body, {"state": "ACTIVE", "progress": "0/1"})
    told = await client.put_status(told, {"state": "COMPLETED", "observedGeneration": 1})
    found = stage.resources.get("order")
    assert found["status"] == told["status"] == {"state": "COMPLETED", "observedGeneration": 1}
    assert found["spec"] == body["spec"]
    for each in (found, body):
        del each["metadata"]["resourceVersion"]
    assert found["metadata"] == body["metadata"]


@pytest.mark.parametrize("write", PUTS)
async def test_a_manager_keeps_its_applied_fields_after_a_write(
    stage: Stage, client: ApiClient, write: str
) -> None:
    def apply(**labels: str) -> Body:
        order = manifest("order", PAY, deletionPolicy="Orphan" if labels else "Compensate")
        order["metadata"]["labels"] = labels
        by_flux = ("--server-side", "--field-manager=flux")
        stage.resources.kubectl("apply", *by_flux, "-f", "-", stdin=json.dumps(order))
        return stage.resources.get("order")

    labelled = apply(team="a")
    written = await PUTS[write](client, labelled)
    found = apply()
    assert "labels" not in found["metadata"]
    assert found["spec"]["deletionPolicy"] == "Compensate"
    assert found["status"] == written["status"]
    assert found["metadata"].get("finalizers") == written["metadata"].get("finalizers")


async def test_a_group_is_not_created_from_a_cached_object(stage: Stage, client: ApiClient) -> None:
    body = deepcopy(applied(stage))
    ref = ref_of(body)
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        cache = ObjectCache()
        reconciler = build_reconciler(client, store, cache=cache)
        note = {GROUP_ANNOTATION: f"{ref.uid}/{await store.incarnation()}"}
        body["metadata"] |= {"finalizers": [FINALIZER], "annotations": note}
        reconciler.enqueue(ref, body)
        assert cache.get(ref.uid)
        # The object is deleted, but the operator gets no watch event.
        stage.resources.delete("order")
        await reconciler.reconcile(ref)
        assert await store.read(ref.uid) is None
        assert ref.uid not in cache.running


async def test_an_expired_token_is_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(stage.api) as proxy:
        path = stage.api.kubeconfig("by-proxy", proxy.url)
        good = path.read_text()
        path.write_text(good.replace(json.loads(good)["users"][0]["user"]["token"], "ran-out"))
        monkeypatch.setitem(os.environ, "KUBECONFIG", str(path))
        client = ApiClient(kopf.OperatorSettings())
        with pytest.raises(ApiError, match="401"):
            await client.uid()
        refused = {("get", "namespaces", 401): 1}
        assert client.refusals.counts == refused

        def renewed(request: web.BaseRequest) -> None:
            path.write_text(good)

        proxy.refuse = renewed
        assert await client.uid()
        await client.close()
    # A request that succeeds with new credentials was not refused.
    assert client.refusals.counts == refused


async def test_a_request_without_the_right_is_counted(stage: Stage, client: ApiClient) -> None:
    with pytest.raises(ApiError, match="403"):
        await client.request("DELETE", "/api/v1/namespaces/kube-system")
    assert client.refusals.counts == {("delete", "namespaces", 403): 1}
    assert client.refusals.forbidden.is_set()


async def test_an_event_in_a_terminating_namespace_is_no_refusal(
    island: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A finalizer keeps the namespace.
    body = manifest("order", PAY)
    body["metadata"]["finalizers"] = [FINALIZER]
    island.resources.apply(body)
    island.api.kubectl("delete", "namespace", island.namespace, "--wait=false")
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(island.api.operator))
    client = ApiClient(kopf.OperatorSettings())
    stored = island.resources.get("order")
    event = to_kubernetes_event(ResourceEvent("Normal", "Tested", "one"), stored, now_ms())
    assert await client.post_event(island.namespace, event)
    await client.close()
    assert client.refusals.counts == {}


@pytest.mark.parametrize("announced", [True, False], ids=["error of HTTP", "incomplete JSON"])
async def test_an_incomplete_answer_is_an_error_of_the_api(
    stage: Stage, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    path = stage.api.kubeconfig("by-proxy", proxy.url)
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(path))
    client = ApiClient(kopf.OperatorSettings())
    proxy.announces_length, proxy.shorten = announced, lambda _: True
    with pytest.raises(ApiError, match="incomplete" if not announced else "cannot reach"):
        await client.uid()
    await client.close()


def kubeconfig_with_proxy(stage: Stage, proxy: str) -> Path:
    path = stage.api.kubeconfig("by-tunnel", stage.api.url)
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = proxy
    path.write_text(json.dumps(config))
    return path


async def test_the_client_connects_through_the_proxy_of_a_kubeconfig(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = applied(stage)
    with tunnel() as proxy:
        path = kubeconfig_with_proxy(stage, proxy.url)
        monkeypatch.setitem(os.environ, "KUBECONFIG", str(path))
        client = ApiClient(kopf.OperatorSettings())
        written = await client.put_status(body, TOLD)
        await client.close()
        assert proxy.targets == [stage.api.url.removeprefix("https://")]
    assert stage.resources.status("order") == written["status"]


async def test_the_operator_connects_through_the_proxy_of_a_kubeconfig(stage: Stage) -> None:
    with tunnel() as proxy:
        operator = stage.operator(kubeconfig=kubeconfig_with_proxy(stage, proxy.url))
        await stage.worker()
        stage.resources.apply(manifest("order", PAY))
        stage.resources.reaches("order", state="COMPLETED")
        operator.server.stop()
    assert set(proxy.targets) == {stage.api.url.removeprefix("https://")}


class Exhausted(TokenBucket):
    """A bucket that has no token and will never have one; it signals that a request waits."""

    def __init__(self) -> None:
        super().__init__(qps=1, burst=1)
        self.waiting = asyncio.Event()

    async def take(self) -> None:
        self.waiting.set()
        await asyncio.Event().wait()


async def test_requests_wait_for_the_limit_but_leader_election_does_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    limit = Exhausted()
    client = ApiClient(kopf.OperatorSettings(), limit)
    lease = Lease(client, OPERATOR_NAMESPACE, stage.lease, "me")
    reading = asyncio.create_task(client.uid())
    waiting = asyncio.create_task(limit.waiting.wait())
    await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
    assert not reading.done(), "the request did not wait"
    limit.waiting.clear()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await lease.acquire()
        assert lease.is_held
        await lease.release()
        assert not limit.waiting.is_set()
        assert not reading.done()
    finally:
        reading.cancel()
        await client.close()
