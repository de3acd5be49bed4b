"""The operator's calls of the API server: none acts on what was read long ago."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from copy import deepcopy
from typing import Any

import kopf
import pytest
from aiohttp import web

from handlers.cluster import ApiError, Cluster, Conflict, Ref, ref_of
from handlers.reconcile import Reconciler
from handlers.workqueue import WorkQueue
from jobgroup import Store, connect
from jobgroup.answers import Found
from jobgroup.decisions import FINALIZER, NOTE
from jobgroup.plan import Plan
from testbed.proxy import Proxy
from testbed.resources import manifest
from testbed.stages import PAY, PREFIX, Stage

Body = dict[str, Any]
Write = Callable[[Cluster, Body], Awaitable[Any]]


@pytest.fixture
async def cluster(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setitem(os.environ, "KUBECONFIG", str(stage.api.operator))
    cluster = Cluster(kopf.OperatorSettings())
    yield cluster
    await cluster.close()


def applied(stage: Stage) -> Body:
    stage.resources.apply(manifest("order", PAY))
    return stage.resources.get("order")


async def reconcile(cluster: Cluster, store: Store, body: Body) -> WorkQueue[Ref]:
    """Do once what an operator does about an object, and return what is left to do later."""
    queue = WorkQueue[Ref]()
    await Reconciler(cluster, store, "cluster", queue, lambda: True).reconcile(ref_of(body))
    return queue


# All of it: what is left out of a status may have a default.
TOLD = {"state": "ACTIVE", "observedGeneration": 1}
PUTS: dict[str, Write] = {
    "status": lambda cluster, body: cluster.put_status(body, TOLD),
    "metadata": lambda cluster, body: cluster.put_metadata(body, {"finalizers": [FINALIZER]}),
}
WRITES: dict[str, Write] = {**PUTS, "delete": lambda cluster, body: cluster.delete(body)}


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_changes_nothing_of_an_object_that_has_changed(
    stage: Stage, cluster: Cluster, write: str
) -> None:
    old = applied(stage)
    stage.resources.patch("order", deletionPolicy="Orphan")
    changed = stage.resources.get("order")
    with pytest.raises(Conflict):
        await WRITES[write](cluster, old)
    assert stage.resources.get("order") == changed
    await WRITES[write](cluster, changed)


@pytest.mark.parametrize("write", WRITES)
async def test_a_write_changes_nothing_of_another_object_of_the_same_name(
    stage: Stage, cluster: Cluster, write: str
) -> None:
    old = applied(stage)
    stage.resources.delete("order")
    heir = applied(stage)
    with pytest.raises(Conflict):
        await WRITES[write](cluster, old)
    assert stage.resources.get("order") == heir
    assert await cluster.read(ref_of(old)) is None


@pytest.mark.parametrize("write", PUTS)
async def test_a_write_returns_the_object_as_it_is_then(
    stage: Stage, cluster: Cluster, write: str
) -> None:
    body = applied(stage)
    written = await PUTS[write](cluster, body)
    del written["metadata"]["managedFields"]
    assert written == stage.resources.get("order") != body


@pytest.mark.parametrize("write", PUTS)
async def test_what_was_written_is_not_sent_back(
    stage: Stage, cluster: Cluster, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Body] = []
    request = cluster.request

    async def noted(*arguments: Any, **options: Any) -> Body:
        answers.append(await request(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(cluster, "request", noted)
    await PUTS[write](cluster, applied(stage))
    (answer,) = answers
    assert answer.keys() == {"apiVersion", "kind", "metadata"}


# Each is written by the server in its own way.
STRANGE = {
    "numbers": [99.99, 1e20, 1e21, 5e-324, -0.0, 1.0, 2**53 + 1, 2**63 - 1, -(2**63), 2**70],
    "texts": ["é😀", "\u2028", "<&>", "\x7f", ""],
    "nothing": [None, {}, []],
}


async def test_a_claim_changes_nothing_but_what_is_claimed(stage: Stage, cluster: Cluster) -> None:
    order = manifest("order", {**PAY, "data": STRANGE})
    theirs = {"labels": {"team": "a"}, "annotations": {"cost-centre": "7"}}
    order["metadata"] |= {**theirs, "finalizers": ["example.com/audit"]}
    stage.resources.apply(order)
    before = stage.resources.get("order")
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        await reconcile(cluster, store, before)
        note = {NOTE: f"{before['metadata']['uid']}/{await store.epoch()}"}
    found = stage.resources.get("order")
    annotations = {**before["metadata"]["annotations"], **note}
    assert found["metadata"]["annotations"] == annotations
    assert found["metadata"]["labels"] == theirs["labels"]
    assert found["metadata"]["finalizers"] == ["example.com/audit", FINALIZER]
    assert (found["spec"], found["metadata"]["generation"]) == (before["spec"], 1)
    # Nobody else would let it go.
    stage.resources.kubectl(
        *("patch", "jobgroup", "order", "--type=merge", "-p"), '{"metadata": {"finalizers": null}}'
    )


async def test_a_spec_that_was_changed_on_its_way_is_read_before_it_is_acted_upon(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a webhook, which has its say in every write."""
    body = applied(stage)
    ref, request = ref_of(body), cluster.request

    async def mutated(method: str, path: str, sent: Any = None, **options: Any) -> Body:
        if method == "PUT" and path == ref.path:
            sent = {**sent, "spec": {**sent["spec"], "activeDeadlineSeconds": 3600}}
        return await request(method, path, sent, **options)

    monkeypatch.setattr(cluster, "request", mutated)
    async with connect(stage.redis.url) as redis:
        queue = await reconcile(cluster, Store(redis, PREFIX), body)
    assert stage.resources.get("order")["metadata"]["generation"] == 2
    assert stage.resources.status("order")["observedGeneration"] == 2
    assert stage.resources.status("order")["state"] == "ACTIVE"
    assert len(queue) == 1  # it is looked at again when its time is up


async def test_a_group_that_is_gone_as_soon_as_it_is_made_is_looked_for_again(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = applied(stage)
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        make = store.make

        async def made_and_lost(plan: Plan) -> Found:
            assert isinstance(await make(plan), Found)
            return Found(None, None, "")

        monkeypatch.setattr(store, "make", made_and_lost)
        await reconcile(cluster, store, body)
    assert stage.resources.status("order")["state"] == "ACTIVE"


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_letters_are_sent_as_they_are(stage: Stage, cluster: Cluster) -> None:
    """Escaped, what fits into an object would be more than the server takes."""
    order = manifest("order", {**PAY, "data": "é" * 600_000})
    order["metadata"]["finalizers"] = [FINALIZER]
    text = json.dumps(order, ensure_ascii=False)
    stage.resources.kubectl("create", "-f", "-", stdin=text)
    body = stage.resources.get("order")
    released = await cluster.put_metadata(body, {"finalizers": []})
    assert "finalizers" not in released["metadata"]


async def test_a_status_is_replaced_and_nothing_else(stage: Stage, cluster: Cluster) -> None:
    body = applied(stage)
    told = await cluster.put_status(body, {"state": "ACTIVE", "progress": "0/1"})
    told = await cluster.put_status(told, {"state": "COMPLETED", "observedGeneration": 1})
    found = stage.resources.get("order")
    assert found["status"] == told["status"] == {"state": "COMPLETED", "observedGeneration": 1}
    assert found["spec"] == body["spec"]
    for each in (found, body):
        del each["metadata"]["resourceVersion"]
    assert found["metadata"] == body["metadata"]


@pytest.mark.parametrize("write", PUTS)
async def test_who_applied_something_still_owns_it_after_a_write(
    stage: Stage, cluster: Cluster, write: str
) -> None:
    def apply(**labels: str) -> Body:
        order = manifest("order", PAY, deletionPolicy="Orphan" if labels else "Compensate")
        order["metadata"]["labels"] = labels
        by_flux = ("--server-side", "--field-manager=flux")
        stage.resources.kubectl("apply", *by_flux, "-f", "-", stdin=json.dumps(order))
        return stage.resources.get("order")

    labelled = apply(team="a")
    written = await PUTS[write](cluster, labelled)
    found = apply()
    assert "labels" not in found["metadata"]
    assert found["spec"]["deletionPolicy"] == "Compensate"
    assert found["status"] == written["status"]
    assert found["metadata"].get("finalizers") == written["metadata"].get("finalizers")


async def test_a_group_is_not_made_on_the_word_of_a_memory(stage: Stage, cluster: Cluster) -> None:
    body = deepcopy(applied(stage))
    ref = ref_of(body)
    async with connect(stage.redis.url) as redis:
        store = Store(redis, PREFIX)
        reconciler = Reconciler(cluster, store, "cluster", WorkQueue(), lambda: True)
        note = {NOTE: f"{ref.uid}/{await store.epoch()}"}
        body["metadata"] |= {"finalizers": [FINALIZER], "annotations": note}
        reconciler.notice(ref, body)
        assert reconciler.memory.recall(ref.uid)
        # It goes, and nobody hears of it.
        stage.resources.delete("order")
        await reconciler.reconcile(ref)
        assert await store.read(ref.uid) is None
        assert ref.uid not in reconciler.memory.running


async def test_a_token_that_ran_out_is_read_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Proxy(stage.api) as proxy:
        path = stage.api.kubeconfig("by-proxy", proxy.url)
        good = path.read_text()
        path.write_text(good.replace(json.loads(good)["users"][0]["user"]["token"], "ran-out"))
        monkeypatch.setitem(os.environ, "KUBECONFIG", str(path))
        cluster = Cluster(kopf.OperatorSettings())
        with pytest.raises(ApiError, match="401"):
            await cluster.uid()

        def renewed(request: web.BaseRequest) -> None:
            path.write_text(good)

        proxy.refuse = renewed
        assert await cluster.uid()
        await cluster.close()
