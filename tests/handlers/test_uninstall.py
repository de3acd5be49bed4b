"""The chart is uninstalled: nothing is stuck, what runs is named, and goes on when it is back."""

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
from handlers.uninstall import Uninstaller
from jobgroup.decisions import FINALIZER, NOTE
from jobgroup.settings import read_settings
from testbed.apiserver import OPERATOR_NAMESPACE
from testbed.operators import OperatorProcess, environment
from testbed.proxy import Proxy
from testbed.resources import manifest
from testbed.sagas import job
from testbed.stages import PAY, PREFIX, SHIP, UNDOS, Stage
from testbed.stock import hangs, returns
from testbed.waiting import wait_for
from tests.builders import deeply_nested
from tests.handlers.looking import group_id, saga, traces

DEPLOYMENT = "jobgroup-operator"
# Nobody works on this queue before a test says so.
LATER = job("ship", "later")
LABELS = {"app": DEPLOYMENT}
# As much of a Deployment as the API server wants to see; nobody here runs its pods.
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
    """Give the hook to whoever runs it, and wherever that one looks."""

    def make(identity: Path, *namespaces: str) -> Uninstaller:
        caplog.set_level(logging.INFO)
        env = environment(
            identity,
            stage.redis.url,
            PREFIX,
            "uninstall",
            LEASE_NAME=stage.lease,
            KOPF_RUN_NAMESPACES=" ".join(namespaces),
        )
        monkeypatch.setenv("KUBECONFIG", env["KUBECONFIG"])
        return Uninstaller(read_settings(env))

    return make


@pytest.fixture
def hook(stage: Stage, hook_as: Callable[..., Uninstaller]) -> Uninstaller:
    """Give the hook as the chart runs it: with the operator's own identity and settings."""
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
    """Run the hook beside replicas that stop, as a kubelet has it, when the Deployment says so."""
    running = asyncio.create_task(hook.run(DEPLOYMENT))
    if living:
        await asyncio.to_thread(wait_for, lambda: replicas(stage) == 0)
        for replica in living:
            stop(replica)
    return await running


async def test_what_runs_goes_on_after_an_uninstall_and_nothing_runs_twice(
    stage: Stage, deployment: None, hook: Uninstaller, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = stage.operator("first"), stage.operator("second")
    worker = await stage.worker()
    for name, jobs in (("running", (PAY, LATER)), ("done", (PAY, SHIP))):
        stage.resources.apply(manifest(name, *jobs, undos=UNDOS))
    stage.resources.reaches("running", progress="1/2")
    stage.resources.reaches("done", state="COMPLETED")
    note = stage.resources.get("running")["metadata"]["annotations"][NOTE]

    assert await lets_go(stage, hook, first, second)

    uid = group_id(stage.resources, "running")
    assert f"{stage.namespace}/running ({uid}) still runs" in caplog.text
    assert f"{stage.namespace}/done" not in caplog.text
    assert "let go of 2 JobGroups, of which 1 run" in caplog.text
    ((kind, reason, message),) = stage.resources.events("running")
    assert (kind, reason) == ("Warning", "OperatorUninstalled")
    assert message == "nobody drives or undoes this group until the operator is installed again"
    assert [finalizers(stage, name) for name in ("running", "done")] == [[], []]
    assert stage.lease_spec()["holderIdentity"] == ""

    stage.operator("third")
    await worker.work("later", {"ship": returns(None)})
    stage.resources.reaches("running", state="COMPLETED")
    assert await stage.runs(worker, name="pay") == 2
    assert stage.resources.get("running")["metadata"]["annotations"][NOTE] == note
    # Held again, so that deleting them cleans up.
    for name in ("running", "done"):
        wait_for(lambda: finalizers(stage, name) == [FINALIZER])  # noqa: B023 (called at once)
        uid = group_id(stage.resources, name)
        stage.resources.delete(name)
        stage.resources.goes(name)
        wait_for(lambda: traces(stage.store, uid) == [])  # noqa: B023 (called at once)


async def test_what_is_being_deleted_goes_and_is_undone_later(
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
        assert stage.store.hget(f"{PREFIX}:_jobgroups:{ids[name]}", "owner") == "headless"
        assert f"{stage.namespace}/{name} ({ids[name]}) goes" in caplog.text
    assert "still runs" not in caplog.text
    assert await stage.runs(worker, name="pay") == 4


async def test_without_redis_nothing_is_stuck_either(
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
    assert "going on without Redis at 127.0.0.1:" in caplog.text
    assert f"{stage.namespace}/going" in caplog.text
    assert "goes, and Redis does not know of it" in caplog.text
    assert f"{stage.namespace}/running" in caplog.text


async def test_a_replica_that_does_not_stop_keeps_its_objects(
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

    assert f"the lease {stage.lease} is not to be had" in caplog.text
    assert finalizers(stage, "running") == [FINALIZER]
    stage.resources.apply(manifest("order", PAY))
    stage.resources.reaches("order", state="COMPLETED")


def leave_running(stage: Stage, *names: str) -> None:
    """Leave groups behind that run, and no operator."""
    operator = stage.operator()
    for name in names:
        stage.resources.apply(manifest(name, LATER))
        stage.resources.reaches(name, state="ACTIVE")
    stop(operator)


async def test_only_the_namespaces_it_looked_after_are_its_own(
    stage: Stage, deployment: None, hook_as: Callable[..., Uninstaller]
) -> None:
    leave_running(stage, "running")
    for namespaces, left in ((["default", "kube-public"], [FINALIZER]), ([stage.namespace], [])):
        assert await hook_as(stage.api.operator, *namespaces).run(DEPLOYMENT)
        assert finalizers(stage, "running") == left


def rights_in_one_namespace(stage: Stage) -> Path:
    """Return an identity that may do in the stage's namespace alone what the operator may."""
    account = f"of-{stage.namespace}"
    stage.api.kubectl("create", "serviceaccount", account, "-n", OPERATOR_NAMESPACE)
    for role, namespace in (
        ("--role=jobgroup-operator-replicas", OPERATOR_NAMESPACE),
        ("--clusterrole=jobgroup-operator", stage.namespace),
    ):
        who = f"--serviceaccount={OPERATOR_NAMESPACE}:{account}"
        stage.api.kubectl("create", "rolebinding", account, role, who, "-n", namespace)
    return stage.api.identity(OPERATOR_NAMESPACE, account)


async def test_a_namespace_that_took_its_rights_along_holds_up_no_other(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "running")
    identity = rights_in_one_namespace(stage)
    # Again and again would not help: the chart may go.
    assert await hook_as(identity, "deleted", stage.namespace).run(DEPLOYMENT)
    assert finalizers(stage, "running") == []
    said = "nothing is let go in deleted, for nobody may look there any more: 403: "
    assert said in caplog.text


async def test_without_a_look_at_the_cluster_the_chart_stays(
    stage: Stage,
    deployment: None,
    hook_as: Callable[..., Uninstaller],
    caplog: pytest.LogCaptureFixture,
) -> None:
    leave_running(stage, "running")
    assert not await hook_as(rights_in_one_namespace(stage)).run(DEPLOYMENT)
    assert "the cluster cannot be looked through: 403: " in caplog.text
    assert finalizers(stage, "running") == [FINALIZER]


async def test_what_goes_wrong_with_one_holds_up_no_other_and_is_tried_again(
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
        assert "default cannot be looked through: 500: not now" in caplog.text
        assert f"{stage.namespace}/one cannot be let go: 500: not now" in caplog.text
        assert [finalizers(stage, name) for name in ("one", "two")] == [[FINALIZER], []]
        codes.clear()
        assert await hook_as(identity, "default", stage.namespace).run(DEPLOYMENT)
        assert finalizers(stage, "one") == []


def run(stage: Stage, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the hook as the chart does, in a process of its own."""
    settings = environment(stage.api.operator, stage.redis.url, PREFIX, "uninstall")
    return subprocess.run(
        [sys.executable, "-m", "handlers.uninstall", *arguments],
        env={**settings, "LEASE_NAME": stage.lease, **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_ends_as_a_job_is_to_end(stage: Stage) -> None:
    """Without a Deployment, as when it was deleted by hand, and with what cannot work."""
    done = run(stage, DEPLOYMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "let go of 0 JobGroups, of which 0 run\n"
    away = stage.api.kubeconfig("away", "https://127.0.0.1:1")
    done = run(stage, DEPLOYMENT, KUBECONFIG=str(away))
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("the API server is out of reach: ")
    done = run(stage)
    assert (done.returncode, "usage: " in done.stdout) == (2, True)
    done = run(stage, DEPLOYMENT, WORKERS="many")
    assert done.returncode == 2
    assert done.stdout == "WORKERS: 'many' must be a number from 1 to 256\n"


def test_it_lets_go_of_an_object_however_deep_its_data_is_nested(stage: Stage) -> None:
    order = manifest("order", PAY)
    order["metadata"]["finalizers"] = [FINALIZER]
    stage.resources.kubectl("create", "-f", "-", stdin=deeply_nested(order))
    done = run(stage, DEPLOYMENT)
    assert done.returncode == 0, done.stderr
    stage.resources.delete("order")
    assert not stage.resources.exists("order")
