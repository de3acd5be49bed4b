"""Outages of the API server, of the network to it, and of Redis.

The operator stays up where waiting helps, says what is wrong on the objects and at /readyz, and
goes on by itself. Where it ends, as when the lease could not be renewed, it is started anew, as
kubelet does.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from redis import Redis

from testbed.servers.access import OPERATOR, restricted
from testbed.servers.apiserver import ApiServer
from testbed.servers.operator import MAIN, OperatorProcess
from testbed.servers.proxy import WRITES, Proxy
from testbed.support.resources import install_crds, manifest
from testbed.support.stages import PAY, PREFIX, SHIP, UNDOS, WAIT, Stage
from testbed.support.waiting import wait_for

LOST = (
    "Redis lost the group, or the operator uses another Redis; the group is not run again:"
    " check which jobs ran, then delete this JobGroup and create a new one"
)


@pytest.fixture
async def kept(quiet_api: ApiServer, tmp_path: Path) -> AsyncIterator[Stage]:
    """Start a stage whose Redis keeps its data after a crash."""
    async with Stage(tmp_path, quiet_api, persistent=True) as stage:
        yield stage


def by_proxy(stage: Stage, proxy: Proxy, **env: str) -> OperatorProcess:
    """Start an operator that reaches the API server through the proxy, and wait for its watch."""
    kubeconfig = stage.api.kubeconfig("by-proxy", proxy.url)
    operator = stage.operator("operator", kubeconfig, MAIN, **env)
    wait_for(lambda: proxy.watches > 0)
    return operator


def leads(operator: OperatorProcess) -> None:
    wait_for(lambda: "this replica leads" in operator.log)


def completes(stage: Stage, name: str) -> None:
    stage.resources.apply(manifest(name, PAY, SHIP))
    stage.resources.reaches(name, state="COMPLETED")


# The API server.


async def test_an_interrupted_watch_is_resumed(stage: Stage, proxy: Proxy) -> None:
    operator = by_proxy(stage, proxy)
    await stage.worker()
    for number in range(3):
        watches = proxy.watches
        proxy.cut_watches()
        completes(stage, f"order-{number}")
        wait_for(lambda: proxy.watches > watches)  # noqa: B023 (called at once)
    assert operator.server.code is None
    assert operator.probe("/livez") == (200, "ok\n")


async def test_writes_are_refused_with_429(stage: Stage, proxy: Proxy) -> None:
    def throttle(request: web.BaseRequest) -> web.Response | None:
        if request.method not in WRITES or "jobgroups" not in request.path:
            return None
        busy = {"kind": "Status", "code": 429, "message": "too many requests"}
        return web.json_response(busy, status=429, headers={"Retry-After": "1"})

    operator = by_proxy(stage, proxy)
    worker = await stage.worker()
    proxy.refuse = throttle
    stage.resources.apply(manifest("order", PAY, SHIP))
    wait_for(lambda: len(proxy.refused) > 2)
    proxy.refuse = lambda _: None
    stage.resources.reaches("order", state="COMPLETED")
    assert await stage.runs(worker, name="pay") == 1
    assert f"[{stage.namespace}/order] 429: too many requests; retrying in" in operator.log
    assert "Traceback" not in operator.log


async def test_the_api_server_does_not_answer_for_a_while(stage: Stage, proxy: Proxy) -> None:
    operator = by_proxy(stage, proxy)
    worker = await stage.worker()
    stage.resources.apply(manifest("order", PAY, WAIT, undos=UNDOS))
    stage.resources.reaches("order", state="ACTIVE")
    proxy.swallow()
    assert operator.server.wait() == 1
    await worker.release("wait")
    stage.resources.patch("order", cancel=True)
    proxy.go_on()
    heir = stage.operator("heir", stage.api.kubeconfig("by-proxy", proxy.url))
    stage.resources.condition("order", "Finished", "True")
    assert heir.probe("/livez") == (200, "ok\n")


async def test_the_api_server_crashes_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    with ApiServer(tmp_path / "api") as api:
        install_crds(api)
        async with Stage(tmp_path, api) as stage:
            operator = stage.operator()
            leads(operator)
            worker = await stage.worker()
            stage.resources.apply(manifest("order", PAY, WAIT))
            stage.resources.reaches("order", state="ACTIVE")
            api.crash()
            await worker.release("wait")
            await worker.heard("completed", name="wait")
            api.start_again()
            ended_or(operator, lambda: ended(stage, "order"))
            if operator.server.code is not None:  # it took longer than the lease
                operator = stage.operator("heir")
            stage.resources.reaches("order", state="COMPLETED")
            completes(stage, "another")
            assert operator.probe("/livez") == (200, "ok\n")
            assert await stage.runs(worker, name="pay") == 2


def ended(stage: Stage, name: str) -> bool:
    return bool(stage.resources.status(name)["state"] == "COMPLETED")


def ended_or(operator: OperatorProcess, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds or the operator has exited."""
    wait_for(lambda: operator.server.code is not None or holds())


# Redis.


async def test_redis_is_down_at_the_start(stage: Stage) -> None:
    stage.redis.kill()
    operator = stage.operator()
    wait_for(lambda: operator.probe("/readyz")[0] == 503)
    assert operator.probe("/livez") == (200, "ok\n")
    failure = f"Redis at 127.0.0.1:{stage.redis.port} failed"
    assert failure in operator.probe("/readyz")[1]
    stage.resources.apply(manifest("order", PAY, SHIP))
    stage.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
    stage.redis.start_again()
    await stage.worker()
    stage.resources.reaches("order", state="COMPLETED")
    wait_for(lambda: operator.probe("/readyz") == (200, "ok\n"))
    back = f"Redis at 127.0.0.1:{stage.redis.port} works again"
    wait_for(lambda: operator.log.count(back) == 1)
    assert operator.log.index(failure) < operator.log.index(back)
    assert operator.server.code is None
    assert "Traceback" not in operator.log


async def test_redis_is_down_for_a_while(kept: Stage) -> None:
    operator = kept.operator()
    worker = await kept.worker()
    kept.resources.apply(manifest("order", PAY, WAIT, undos=UNDOS))
    kept.resources.reaches("order", progress="1/2")
    kept.redis.kill()
    said = kept.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
    assert str(kept.redis.port) in said["message"] or "onnection" in said["message"]
    assert kept.resources.status("order")["state"] == "ACTIVE"
    wait_for(lambda: operator.probe("/readyz")[0] == 503)
    assert operator.probe("/livez") == (200, "ok\n")
    kept.redis.start_again()
    kept.resources.condition("order", "Reconciling", "True", "Running")
    wait_for(lambda: operator.probe("/readyz") == (200, "ok\n"))
    kept.resources.patch("order", cancel=True)
    kept.resources.reaches("order", state="COMPENSATING", undone="1/1")
    await worker.release("wait")
    kept.resources.reaches("order", state="FAILED")
    assert await kept.runs(worker, name="refund") == 1
    assert operator.server.code is None


@pytest.mark.parametrize(
    ("ill", "well", "said"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "maxmemory"),
    ],
    ids=["read-only", "full"],
)
async def test_redis_refuses_writes_for_a_while(
    stage: Stage, ill: str, well: str, said: str
) -> None:
    operator = stage.operator()
    wait_for(lambda: operator.probe("/readyz") == (200, "ok\n"))
    stage.store.execute_command(*ill.split())  # type: ignore[no-untyped-call]
    wait_for(lambda: operator.probe("/readyz")[0] == 503)
    assert said in operator.probe("/readyz")[1]
    stage.resources.apply(manifest("order", PAY, SHIP))
    stage.resources.condition("order", "Reconciling", "True", "RedisUnavailable")
    assert operator.probe("/livez") == (200, "ok\n")
    stage.store.execute_command(*well.split())  # type: ignore[no-untyped-call]
    await stage.worker()
    stage.resources.reaches("order", state="COMPLETED")
    wait_for(lambda: operator.probe("/readyz") == (200, "ok\n"))
    assert operator.server.code is None
    assert "Traceback" not in operator.log


async def test_the_user_of_redis_lacks_a_right_for_a_while(stage: Stage) -> None:
    access = restricted(stage.redis)
    operator = stage.operator(REDIS_URL=access.url)
    await stage.worker()
    completes(stage, "before")
    stage.redis.call("ACL", "SETUSER", OPERATOR, "-zcard")
    stage.resources.apply(manifest("order", PAY, SHIP))
    sentence = "the Redis user lacks a right: "
    found = stage.resources.condition("order", "Ready", "False", "RedisError")
    assert sentence in found["message"]
    stage.redis.call("ACL", "SETUSER", OPERATOR, "-evalsha")
    wait_for(lambda: f"redis: {sentence}" in operator.log)
    wait_for(lambda: sentence in operator.probe("/readyz")[1])
    code, text = operator.probe("/readyz")
    assert code == 503
    assert "permissions to run the 'evalsha' command" in text
    access.grant(PREFIX)
    stage.resources.reaches("order", state="COMPLETED")
    wait_for(lambda: operator.probe("/readyz")[0] == 200)


async def test_redis_restarts_with_its_data(kept: Stage) -> None:
    operator = kept.operator()
    worker = await kept.worker()
    kept.resources.apply(manifest("order", PAY, WAIT))
    kept.resources.reaches("order", progress="1/2")
    kept.redis.stop()
    kept.redis.start_again()
    await worker.release("wait")
    kept.resources.reaches("order", state="COMPLETED")
    assert operator.server.code is None


async def test_redis_restarts_without_its_data(stage: Stage) -> None:
    operator = stage.operator()
    await stage.worker()
    completes(stage, "ended")
    finished = stage.resources.get("ended")
    stage.resources.apply(manifest("order", PAY, WAIT, undos=UNDOS))
    stage.resources.reaches("order", progress="1/2")
    stage.redis.kill()
    stage.redis.start_again()
    assert stage.resources.stalls("order", "RedisStateLost") == LOST
    assert keys_of(stage, "order") == []
    assert stage.resources.get("ended") == finished
    completes(stage, "another")
    assert operator.server.code is None


async def test_redis_is_flushed(stage: Stage) -> None:
    operator = stage.operator()
    worker = await stage.worker()
    for name in ("first", "second"):
        stage.resources.apply(manifest(name, PAY, WAIT, undos=UNDOS))
        stage.resources.reaches(name, state="ACTIVE")
    stage.resources.reaches("first", progress="1/2")
    with Redis.from_url(stage.redis.url) as redis:
        redis.flushall()
    for name in ("first", "second"):
        assert stage.resources.stalls(name, "RedisStateLost") == LOST
        assert stage.resources.status(name)["state"] == "ACTIVE"
        assert keys_of(stage, name) == []
    stage.resources.delete("first")
    stage.resources.goes("first")
    completes(stage, "another")
    assert await stage.runs(worker, name="pay") == 3
    assert operator.server.code is None


@pytest.mark.parametrize("gone", ["*{uid}*", "bull:payments:*", "bull:_jobgroups:{uid}*"])
async def test_a_running_group_is_deleted_from_redis_by_hand(stage: Stage, gone: str) -> None:
    operator = stage.operator()
    stage.resources.apply(manifest("order", PAY, WAIT, undos=UNDOS))
    stage.resources.reaches("order", state="ACTIVE")
    uid = stage.resources.get("order")["metadata"]["uid"]
    incarnation = stage.store.get(f"{PREFIX}:_jobgroups:saga:epoch")
    stage.store.delete(*stage.store.scan_iter(gone.format(uid=uid)))
    assert stage.resources.stalls("order", "RedisStateLost") == LOST
    left = keys_of(stage, "order")
    is_looked_at_again(stage)
    assert keys_of(stage, "order") == left
    assert stage.resources.status("order")["state"] == "ACTIVE"
    assert stage.store.get(f"{PREFIX}:_jobgroups:saga:epoch") == incarnation
    stage.resources.delete("order")
    stage.resources.goes("order")
    assert operator.server.code is None


def is_looked_at_again(stage: Stage) -> None:
    """Change an object, and wait until it was reconciled."""
    stage.resources.patch("order", ttlSecondsAfterFinished=60)
    stage.resources.reaches("order", observedGeneration=2)


def keys_of(stage: Stage, name: str) -> list[str]:
    """Return the keys of a group."""
    uid = stage.resources.get(name)["metadata"]["uid"]
    with Redis.from_url(stage.redis.url, decode_responses=True) as redis:
        return sorted(redis.scan_iter(f"{PREFIX}:*{uid}*"))
