"""The uninstall hook: it releases all objects, and a new operator continues their groups."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from handlers import uninstall
from handlers.kube import releases
from handlers.settings import read_settings
from handlers.uninstall import Uninstaller
from jobgroup.model.names import released_key
from jobgroup.resource.decisions import FINALIZER, GROUP_ANNOTATION, RELEASE_ANNOTATION
from testbed.servers.apiserver import OPERATOR_NAMESPACE
from testbed.servers.operator import OperatorProcess, environment, measuring_coverage
from testbed.servers.proxy import Proxy
from testbed.servers.stock import fails_for_good, hangs, returns
from testbed.support.resources import manifest
from testbed.support.sagas import job
from testbed.support.stages import PAY, PREFIX, SHIP, UNDOS, Stage, lease_rights
from testbed.support.waiting import wait_for
from tests.builders import deeply_nested
from tests.resources.looking import group_id, saga, traces

DEPLOYMENT = "jobgroup-operator"
# A queue without a worker until a test starts one.
LATER = job("ship", "later")
LABELS = {"app": DEPLOYMENT}
# The smallest valid Deployment; no pods run here.
MANIFEST = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": DEPLOYMENT, "namespace": OPERATOR_NAMESPACE},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "operator", "image": "none"}]},
        },
    },
}


@pytest.fixture
def deployment(stage: Stage) -> Iterator[None]:
    stage.api.kubectl("apply", "-f", "-", stdin=json.dumps(MANIFEST))
    yield
    stage.api.kubectl("delete", "deployment", DEPLOYMENT, "-n", OPERATOR_NAMESPACE)


@pytest.fixture
def hook_as(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> Callable[..., Uninstaller]:
    """Return a function that builds the hook with an identity and namespaces."""

    def make(identity: Path, *namespaces: str, **more: str) -> Uninstaller:
        caplog.set_level(logging.INFO)
        env = environment(
            identity,
            stage.redis.url,
            PREFIX,
            "uninstall",
            LEASE_NAME=stage.lease,
            KOPF_RUN_NAMESPACES=" ".join(namespaces),
            **more,
        )
        monkeypatch.setenv("KUBECONFIG", env["KUBECONFIG"])
        return Uninstaller(read_settings(env))

    return make


@pytest.fixture
def hook(stage: Stage, hook_as: Callable[..., Uninstaller]) -> Uninstaller:
    """Build the hook as the chart runs it: with the identity and settings of the operator."""
    return hook_as(stage.api.operator)


def replicas(stage: Stage) -> int:
    asked = ("get", "deployment", DEPLOYMENT, "-n", OPERATOR_NAMESPACE, "-o", "json")
    return int(json.loads(stage.api.kubectl(*asked))["spec"]["replicas"])


def finalizers(stage: Stage, name: str) -> list[str]:
    return list(stage.resources.get(name)["metadata"].get("finalizers", []))


def stop(replica: OperatorProcess) -> None:
    replica.server.signal(signal.SIGTERM)
    assert replica.server.wait() == 0


async def lets_go(stage: Stage, hook: Uninstaller, *living: OperatorProcess) -> bool:
    """Run the hook with replicas that stop when the Deployment is scaled to 0."""
    running = asyncio.create_task(hook.run(DEPLOYMENT))
    if living:
        await asyncio.to_thread(wait_for, lambda: replicas(stage) == 0)
        for replica in living:
            stop(replica)
    return await running


async def test_a_new_installation_continues_running_groups_and_runs_no_job_twice(
    stage: Stage, deployment: None, hook: Uninstaller, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stage.operator("first"), stage.operator("second")
    worker = await stage.worker()
    for name, jobs in (("running", (PAY, LATER)), ("done", (PAY, SHIP))):
        stage.resources.apply(manifest(name, *jobs, undos=UNDOS))
    stage.resources.reaches("running", progress="1/2")
    stage.resources.reaches("done", state="COMPLETED")
    note = stage.resources.get("running")["metadata"]["annotations"][GROUP_ANNOTATION]

    assert await lets_go(stage, hook, first, second)

    uid = group_id(stage.resources, "running")
    assert f"{stage.namespace}/running ({uid}) is still running" in caplog.text
    assert f"{stage.namespace}/done" not in caplog.text
    assert "released 2 JobGroups, 1 of them running" in caplog.text
    ((kind, reason, message),) = stage.resources.events("running")
    assert (kind, reason) == ("Warning", "OperatorUninstalled")
    text = "this group does not advance and is not undone until the operator is installed again"
    assert message == text
    assert [finalizers(stage, name) for name in ("running", "done")] == [[], []]
    assert stage.lease_spec()["holderIdentity"] == ""

    stage.operator("third")
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("running", state="COMPLETED")
    assert await stage.runs(worker, name="pay") == 2
    assert stage.resources.get("running")["metadata"]["annotations"][GROUP_ANNOTATION] == note
    # The objects are claimed again, so their deletion removes all keys.
    for name in ("running", "done"):
        wait_for(lambda: finalizers(stage, name) == [FINALIZER])  # noqa: B023 (called at once)
        uid = group_id(stage.resources, name)
        stage.resources.delete(name)
        stage.resources.goes(name)
        wait_for(lambda: traces(stage.store, uid) == [])  # noqa: B023 (called at once)


async def test_deleted_objects_are_released_and_undone_later(
    stage: Stage, deployment: None, hook: Uninstaller, caplog: pytest.LogCaptureFixture
) -> None:
    operator = stage.operator()
    worker = await stage.worker({"refund": hangs()})
    orders = {
        "held": {},
        "active": {},
        "orphan": {"deletionPolicy": "Orphan"},
    }
    for name, wish in orders.items():
        stage.resources.apply(manifest(name, PAY, LATER, undos=UNDOS, **wish))
        stage.resources.reaches(name, progress="1/2")
    stage.resources.apply(manifest("done", PAY))
    stage.resources.reaches("done", state="COMPLETED")
    ids = {name: group_id(stage.resources, name) for name in (*orders, "done")}
    stage.resources.delete("held")
    stage.resources.reaches("held", state="COMPENSATING")
    stop(operator)
    for name in ("active", "orphan", "done"):
        stage.resources.delete(name)

    assert await lets_go(stage, hook)

    for name in ids:
        stage.resources.goes(name)
    states = {name: saga(stage.store, "payments", ids[name]).get("state") for name in ids}
    assert states == {
        "held": "COMPENSATING",
        "active": "COMPENSATING",
        "orphan": "ACTIVE",
        "done": None,
    }
    for name in orders:
        assert stage.store.hget(f"{PREFIX}:_jobgroups:{ids[name]}", "owner") is None
        assert f"{stage.namespace}/{name} ({ids[name]}) is deleted" in caplog.text
    # Drivers remove these after their end; the user wants to keep the third.
    released = stage.store.zrange(released_key(PREFIX), 0, -1)
    assert set(released) == {ids["held"], ids["active"]}
    assert "is still running" not in caplog.text
    assert await stage.runs(worker, name="pay") == 4


async def test_a_group_with_a_failed_undo_stays_if_its_namespace_is_deleted(
    stage: Stage, deployment: None, hook: Uninstaller, caplog: pytest.LogCaptureFixture
) -> None:
    operator = stage.operator()
    await stage.worker({"refund": fails_for_good("the bank is closed")})
    for name in ("kept", "gone"):
        stage.resources.apply(manifest(name, PAY, job("lose"), undos=UNDOS))
        stage.resources.reaches(name, state="FAILED_COMPENSATION")
    ids = {name: group_id(stage.resources, name) for name in ("kept", "gone")}
    stop(operator)
    # Deleted by itself: somebody has seen it.
    stage.resources.delete("gone")
    assert await lets_go(stage, hook)
    stage.resources.goes("gone")
    assert traces(stage.store, ids["gone"]) == []

    operator = stage.operator("again")
    wait_for(lambda: finalizers(stage, "kept") == [FINALIZER])
    stop(operator)
    stage.resources.delete("kept")
    stage.api.user.delete("Namespace", stage.namespace)
    assert await lets_go(stage, hook)
    stage.resources.goes("kept")
    assert saga(stage.store, "payments", ids["kept"])["state"] == "FAILED_COMPENSATION"
    assert stage.store.hget(f"{PREFIX}:_jobgroups:{ids['kept']}", "owner") is None
    assert (
        f"{stage.namespace}/kept ({ids['kept']}) is deleted with its namespace; its group stays in"
        " Redis, because an undo failed for good"
    ) in caplog.text


async def test_objects_are_released_without_redis(
    stage: Stage,
    deployment: None,
    hook: Uninstaller,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uninstall, "REDIS_SECONDS", 0)
    operator = stage.operator()
    for name in ("running", "going"):
        stage.resources.apply(manifest(name, LATER))
        stage.resources.reaches(name, state="ACTIVE")
    stop(operator)
    stage.resources.delete("going")
    stage.redis.stop()

    assert await lets_go(stage, hook)

    stage.resources.goes("going")
    assert finalizers(stage, "running") == []
    assert "does not answer; releasing the JobGroups without it" in caplog.text
    assert f"{stage.namespace}/going" in caplog.text
    assert "is deleted, but its group is still in Redis" in caplog.text
    assert f"{stage.namespace}/running" in caplog.text


async def test_nothing_is_released_while_a_replica_runs(
    stage: Stage,
    deployment: None,
    hook: Uninstaller,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uninstall, "LEASE_SECONDS", 1)
    stage.operator()
    await stage.worker()
    stage.resources.apply(manifest("running", LATER))
    stage.resources.reaches("running", state="ACTIVE")

    assert not await hook.run(DEPLOYMENT)

    assert f"cannot acquire the lease {stage.lease}" in caplog.text
    assert finalizers(stage, "running") == [FINALIZER]
    stage.resources.apply(manifest("order", PAY))
    stage.resources.reaches("order", state="COMPLETED")


def leave_running(stage: Stage, *names: str) -> None:
    """Create running groups, and stop the operator."""
    operator = stage.operator()
    for name in names:
        stage.resources.apply(manifest(name, LATER))
        stage.resources.reaches(name, state="ACTIVE")
    stop(operator)


async def test_only_the_watched_namespaces_are_released(
    stage: Stage, deployment: None, hook_as: Callable[..., Uninstaller]
) -> None:
    leave_running(stage, "running")
    for namespaces, left in ((["default", "kube-public"], [FINALIZER]), ([stage.namespace], [])):
        assert await hook_as(stage.api.operator, *namespaces).run(DEPLOYMENT)
        assert finalizers(stage, "running") == left


async def test_only_objects_that_match_the_label_selector_are_released(
    stage: Stage, deployment: None, hook_as: Callable[..., Uninstaller]
) -> None:
    leave_running(stage, "ours", "theirs")
    stage.resources.kubectl("label", "jobgroup", "ours", "team=shop")
    hook = hook_as(stage.api.operator, WATCH_LABEL_SELECTOR="team=shop")
    assert await hook.run(DEPLOYMENT)
    assert (finalizers(stage, "ours"), finalizers(stage, "theirs")) == ([], [FINALIZER])


async def test_objects_of_another_living_release_are_left_to_it(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = f"other-{stage.namespace}"
    stage.api.user.create(*lease_rights(other))
    living = stage.operator("other", LEASE_NAME=other)
    await stage.worker()
    for name in ("running", "going"):
        stage.resources.apply(manifest(name, PAY, LATER, undos=UNDOS))
        stage.resources.reaches(name, progress="1/2")
    # The other release is alive, and does not react for now.
    living.server.signal(signal.SIGSTOP)
    stage.resources.delete("going")
    assert await hook_as(stage.api.operator).run(DEPLOYMENT)
    assert f"left 2 JobGroups to the release {OPERATOR_NAMESPACE}/{other}" in caplog.text
    assert [finalizers(stage, name) for name in ("running", "going")] == [[FINALIZER]] * 2
    for name in ("running", "going"):
        uid = group_id(stage.resources, name)
        assert saga(stage.store, "payments", uid)["state"] == "ACTIVE"
        assert stage.store.hget(f"{PREFIX}:_jobgroups:{uid}", "owner") is not None
    living.server.kill()
    stage.api.user.within(OPERATOR_NAMESPACE).delete("Lease", other)
    assert await hook_as(stage.api.operator).run(DEPLOYMENT)
    assert finalizers(stage, "running") == []
    assert RELEASE_ANNOTATION not in stage.resources.get("running")["metadata"]["annotations"]
    stage.resources.goes("going")


async def test_a_second_pass_releases_the_objects_of_a_release_that_is_gone(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, name in (
        (uninstall, "CHECK_SECONDS"),
        (releases, "CHECK_SECONDS"),
        (releases, "UNCHANGED_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.1)
    leave_running(stage, "ours")
    other = f"other-{stage.namespace}"
    stage.api.user.create(*lease_rights(other))
    gone = stage.operator("other", LEASE_NAME=other)
    stage.resources.apply(manifest("theirs", LATER))
    stage.resources.reaches("theirs", state="ACTIVE")
    gone.server.kill()
    long_ago = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    stage.api.user.within(OPERATOR_NAMESPACE).patch("Lease", other, long_ago)
    failures = [500]

    def refuse(request: web.BaseRequest) -> web.Response | None:
        is_ours = request.method == "PUT" and request.path.endswith("/jobgroups/ours")
        if not is_ours or not failures:
            return None
        return web.json_response({"message": "not now"}, status=failures.pop())

    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse
        identity = stage.api.kubeconfig("by-proxy", proxy.url)
        assert await hook_as(identity, stage.namespace).run(DEPLOYMENT)
    assert [finalizers(stage, name) for name in ("ours", "theirs")] == [[], []]
    assert f"cannot release {stage.namespace}/ours: 500: not now" in caplog.text
    assert "released 2 JobGroups, 2 of them running" in caplog.text
    assert f"to the release {OPERATOR_NAMESPACE}/{other}" not in caplog.text


def rights_in_one_namespace(stage: Stage) -> Path:
    """Return an identity with the operator's permissions in the test's namespace alone."""
    account = f"of-{stage.namespace}"
    stage.api.kubectl("create", "serviceaccount", account, "-n", OPERATOR_NAMESPACE)
    for role, namespace in (
        ("--role=jobgroup-operator-replicas", OPERATOR_NAMESPACE),
        ("--clusterrole=jobgroup-operator", stage.namespace),
    ):
        who = f"--serviceaccount={OPERATOR_NAMESPACE}:{account}"
        stage.api.kubectl("create", "rolebinding", account, role, who, "-n", namespace)
    return stage.api.identity(OPERATOR_NAMESPACE, account)


async def test_a_deleted_namespace_does_not_fail_the_hook(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "running")
    identity = rights_in_one_namespace(stage)
    # A retry would not help, so the hook succeeds.
    assert await hook_as(identity, "deleted", stage.namespace).run(DEPLOYMENT)
    assert finalizers(stage, "running") == []
    message = "skipped the namespace deleted: no permission to list JobGroups: 403: "
    assert message in caplog.text


async def test_the_hook_fails_without_permission_to_list(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "running")
    assert not await hook_as(rights_in_one_namespace(stage)).run(DEPLOYMENT)
    assert "cannot list the JobGroups of the cluster: 403: " in caplog.text
    assert finalizers(stage, "running") == [FINALIZER]


async def test_an_error_delays_no_other_object_and_the_hook_can_be_repeated(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "one", "two")
    codes = {
        ("GET", "/namespaces/default/jobgroups"): 500,
        ("PUT", f"/namespaces/{stage.namespace}/jobgroups/one"): 409,
        ("GET", f"/namespaces/{stage.namespace}/jobgroups/one"): 500,
    }

    def refuse(request: web.BaseRequest) -> web.Response | None:
        path = request.path.removeprefix("/apis/jobgroups.dev/v1alpha1")
        code = codes.get((request.method, path))
        return web.json_response({"message": "not now"}, status=code) if code else None

    with Proxy(stage.api) as proxy:
        proxy.refuse = refuse
        identity = stage.api.kubeconfig("by-proxy", proxy.url)
        assert not await hook_as(identity, "default", stage.namespace).run(DEPLOYMENT)
        assert "cannot list the JobGroups of the namespace default: 500: not now" in caplog.text
        assert f"cannot release {stage.namespace}/one: 500: not now" in caplog.text
        assert [finalizers(stage, name) for name in ("one", "two")] == [[FINALIZER], []]
        codes.clear()
        assert await hook_as(identity, "default", stage.namespace).run(DEPLOYMENT)
        assert finalizers(stage, "one") == []


async def test_an_unexpected_error_about_one_object_ends_no_other(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "one", "two")

    def misunderstand(request: web.BaseRequest) -> web.Response | None:
        is_one = request.method == "PUT" and request.path.endswith("/jobgroups/one")
        return web.json_response([]) if is_one else None

    with Proxy(stage.api) as proxy:
        proxy.refuse = misunderstand
        identity = stage.api.kubeconfig("by-proxy", proxy.url)
        assert not await hook_as(identity, stage.namespace).run(DEPLOYMENT)
    assert f"cannot release {stage.namespace}/one" in caplog.text
    assert "TypeError" in caplog.text
    assert [finalizers(stage, name) for name in ("one", "two")] == [[FINALIZER], []]


def run(stage: Stage, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the hook in a process of its own, as the chart does."""
    settings = environment(stage.api.operator, stage.redis.url, PREFIX, "uninstall")
    return subprocess.run(
        [sys.executable, "-m", "handlers.uninstall", *arguments],
        env={**settings, **measuring_coverage(), "LEASE_NAME": stage.lease, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_exit_codes_of_the_hook(stage: Stage) -> None:
    """Cases: no Deployment, no API server, wrong arguments, wrong settings."""
    done = run(stage, DEPLOYMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "released 0 JobGroups, 0 of them running\n"
    away = stage.api.kubeconfig("away", "https://127.0.0.1:1")
    done = run(stage, DEPLOYMENT, KUBECONFIG=str(away))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("cannot reach the API server: ")
    done = run(stage)
    assert (done.returncode, "usage: " in done.stdout) == (2, True)
    done = run(stage, DEPLOYMENT, WORKERS="many")
    assert done.returncode == 2
    assert done.stdout == "WORKERS: 'many' must be a number from 1 to 256\n"


def test_an_object_with_deeply_nested_data_is_released(stage: Stage) -> None:
    order = manifest("order", PAY)
    order["metadata"]["finalizers"] = [FINALIZER]
    stage.resources.kubectl("create", "-f", "-", stdin=deeply_nested(order))
    done = run(stage, DEPLOYMENT)
    assert done.returncode == 0, done.stderr
    stage.resources.delete("order")
    assert not stage.resources.exists("order")
