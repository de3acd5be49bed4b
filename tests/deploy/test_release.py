"""The chart on a real API server: installed, upgraded, uninstalled, installed again.

No pods run here. Where Helm waits for a pod to end, the test runs the command of its container.
"""

import json
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobgroup import __version__
from jobgroup.resource.decisions import RELEASE_ANNOTATION
from testbed import ROOT
from testbed.build.helm import find_helm
from testbed.servers.apiserver import ApiServer
from testbed.servers.operator import ask, environment, start_operator
from testbed.servers.processes import Server, on_free_port
from testbed.servers.redis import RedisServer
from testbed.servers.stock import StockClient
from testbed.support import audit
from testbed.support.chart import CHART, REDIS, Refused, Values, helm, render, with_values
from testbed.support.resources import Resources, install_crds, is_served, manifest, until
from testbed.support.sagas import job, undo
from testbed.support.waiting import wait_for
from testbed.support.workloads import Workloads, pool, workload
from tests.deploy.rendered import BUNDLED, WATCHED, config_map

RELEASE = "sagas"
NAME = "sagas-jobgroup-operator"
UNDOS = {"pay": undo("refund")}
DOCKERFILE = ROOT / "Dockerfile"
FROZEN = Path(__file__).resolve().parent / "frozen"
KINDS = (
    "serviceaccounts,services,deployments,statefulsets,jobs,poddisruptionbudgets,networkpolicies,"
    "roles,rolebindings,clusterroles,clusterrolebindings,customresourcedefinitions"
)
ALL_KNOWN: Values = {
    **BUNDLED,
    "networkPolicy": {"enabled": True},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "only", "operator": "Exists"}],
    "image": {"digest": f"sha256:{'0' * 64}"},
    "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
    "strategy": {"type": "Recreate"},
    "commonLabels": {"cost-center": "2024"},
    "deploymentAnnotations": {"note": "2024"},
    "podSecurityContext": {"runAsUser": None, "supplementalGroups": [7]},
    "securityContext": {"privileged": False},
    "extraArgs": ["--verbose"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca-bundle"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    "extraObjects": [config_map("more", key="value")],
}
SELECTED: Values = {"watch": {"labelSelector": "team=shop"}}
# Names that YAML would read as another type.
STRANGE: Values = {
    "redis": {
        "url": "rediss://redis:6379/0",
        "existingSecret": {"name": "2024", "usernameKey": "1", "passwordKey": "null"},
        "tls": {"caSecret": "2025", "caKey": "3"},
    },
    "watchNamespaces": ["2024"],
    "nameOverride": "2024",
    "fullnameOverride": "true",
    "serviceAccount": {"name": "2026"},
    "priorityClassName": "2024",
    "topologySpread": {"topologyKey": "2024"},
    "image": {"repository": "20", "tag": "24"},
}
STRANGE_REDIS: Values = {
    "redis": {
        "bundled": {"enabled": True, "image": "2024", "storage": "2024", "storageClass": "2024"}
    },
}


class Release:
    """One release, in a namespace of its own."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.where = ["--namespace", namespace, "--kubeconfig", str(api.admin)]

    def helm(self, *arguments: str | Path) -> str:
        return helm(*arguments, *self.where)

    def install(self, values: Values) -> str:
        """Install the chart, and wait until the API server serves its CRDs."""
        said = self.helm("install", RELEASE, CHART, *with_values(values))
        wait_for(lambda: is_served(self.api))
        return said

    def objects(self) -> dict[tuple[str, str, str], str]:
        """Return the uids of all objects of the release."""
        label = f"app.kubernetes.io/instance={RELEASE}"
        found = self.api.kubectl("get", KINDS, "--all-namespaces", "-l", label, "-o", "json")
        return {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each[
                "metadata"
            ]["uid"]
            for each in json.loads(found)["items"]
        }


@pytest.fixture
def release(bare_api: ApiServer) -> Iterator[Release]:
    name = f"release-{secrets.token_hex(4)}"
    for namespace in (name, *WATCHED["watchNamespaces"], *STRANGE["watchNamespaces"]):
        content = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        bare_api.kubectl("apply", "-f", "-", stdin=json.dumps(content))
    release = Release(bare_api, name)
    yield release
    release.helm("uninstall", RELEASE, "--no-hooks", "--ignore-not-found")
    bare_api.kubectl("delete", "crd", "--all", "--wait=false")
    wait_for(lambda: not bare_api.kubectl("get", "crd", "-o", "name"))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (REDIS, RELEASE),
        (ALL_KNOWN, RELEASE),
        ({**REDIS, **WATCHED}, RELEASE),
        (STRANGE, "on"),
        (STRANGE_REDIS, RELEASE),
    ],
    ids=["plain", "everything", "watched", "strange", "strange-redis"],
)
def test_the_api_server_accepts_every_field(release: Release, values: Values, name: str) -> None:
    objects = render(values, name, release.namespace, {})
    release.api.kubectl(
        "create",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=yaml.safe_dump_all(objects),
    )


def test_an_upgrade_from_the_first_chart_recreates_nothing(
    release: Release, tmp_path: Path
) -> None:
    """frozen/ contains what the first chart rendered. Names and selectors must not change."""
    old = tmp_path / "old"
    (old / "templates").mkdir(parents=True)
    (old / "Chart.yaml").write_text("apiVersion: v2\nname: jobgroup-operator\nversion: 0.0.1\n")
    frozen = (FROZEN / "manifest.yaml").read_text().replace("frozen-namespace", release.namespace)
    (old / "manifest.yaml").write_text(frozen)
    (old / "templates" / "all.yaml").write_text('{{ .Files.Get "manifest.yaml" }}')
    release.helm("install", RELEASE, old, "--values", FROZEN / "values.yaml")
    before = release.objects()
    release.helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values")
    after = release.objects()
    assert before
    assert before.items() <= after.items()


def test_crds_applied_by_hand_can_be_adopted(release: Release) -> None:
    install_crds(release.api)
    with pytest.raises(Refused, match="cannot be imported into the current release"):
        release.install(REDIS)
    release.helm("install", RELEASE, CHART, "--take-ownership", *with_values({}))


def test_it_is_uninstalled_and_installed_again(release: Release, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis:
        values = {"redis": {"url": redis.url}}
        said = release.install(values)
        assert f"rollout status deployment/{NAME}" in said
        identity = release.api.identity(release.namespace, NAME)
        settings = {"POD_NAMESPACE": release.namespace, "LEASE_NAME": NAME}
        resources = Resources(release.api, "shop")
        with start_operator(tmp_path, identity, redis.url, "bull", **settings):
            resources.apply(manifest("order", job("pay")))
            resources.reaches("order", state="ACTIVE")
        assert "shop/order" in uninstall(release, identity, redis.url)
        assert release.objects() == {}
        # The objects of users still exist, without our finalizer.
        assert resources.get("order")["metadata"].get("finalizers") is None

        release.install(values)
        identity = release.api.identity(release.namespace, NAME)
        with start_operator(tmp_path, identity, redis.url, "bull", "again", **settings):
            resources.delete("order")
            resources.goes("order")


def test_a_job_that_was_rendered_and_applied_releases_the_objects(
    release: Release, tmp_path: Path
) -> None:
    """Tools that only render the chart do not run its hook."""
    with RedisServer(tmp_path) as redis:
        values = {"redis": {"url": redis.url}}
        release.install(values)
        identity = release.api.identity(release.namespace, NAME)
        settings = {"POD_NAMESPACE": release.namespace, "LEASE_NAME": NAME}
        resources = Resources(release.api, "shop")
        with start_operator(tmp_path, identity, redis.url, "bull", **settings):
            resources.apply(manifest("order", job("pay")))
            resources.reaches("order", state="ACTIVE")
        only = ("--show-only", "templates/uninstall.yaml")
        text = release.helm("template", RELEASE, CHART, *only, *with_values(values))
        release.api.kubectl("apply", "-f", "-", stdin=text)
        assert "shop/order" in run_the_hook(release, identity, redis.url)
        assert resources.get("order")["metadata"].get("finalizers") is None
        where = ("deployment", NAME, "-n", release.namespace, "-o", "jsonpath={.spec.replicas}")
        assert release.api.kubectl("get", *where) == "0"
        release.api.kubectl("delete", "-f", "-", stdin=text)
        resources.delete("order")
        resources.goes("order")


@pytest.mark.parametrize(
    "values", [{}, WATCHED, SELECTED], ids=["everywhere", "watched", "selected"]
)
def test_the_rendered_command_starts_the_operator(
    release: Release, tmp_path: Path, values: Values
) -> None:
    with RedisServer(tmp_path) as redis:
        release.install({"redis": {"url": redis.url}, **values})
        identity = release.api.identity(release.namespace, NAME)
        where = ("deployment", NAME, "-n", release.namespace)
        found = json.loads(release.api.kubectl("get", *where, "-o", "json"))
        (container,) = found["spec"]["template"]["spec"]["containers"]
        env = told(container) | {"POD_NAMESPACE": release.namespace}
        (entry,) = re.findall(r'ENTRYPOINT \["python3", "/app/(.+)"\]', DOCKERFILE.read_text())
        assert "command" not in container
        command = [sys.executable, str(DOCKERFILE.parent / entry), *container["args"]]

        def start(port: int) -> Server:
            settings = environment(identity, redis.url, "bull", "pod") | env | {"PORT": str(port)}
            log, is_up = tmp_path / "pod.log", lambda _: ask(port, "/livez")[0] != 0
            return Server("pod", command, log, is_up, settings)

        with on_free_port(start)[0]:
            (line,) = [
                each
                for each in (tmp_path / "pod.log").read_text().splitlines()
                if each.endswith(f"jobgroup-operator {__version__}")
            ]
            assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ", line)
            shop = Resources(release.api, "shop")
            order = manifest("order", job("pay"))
            shop.apply({**order, "metadata": {"name": "unlabelled"}})
            shop.apply({**order, "metadata": {"name": "order", "labels": {"team": "shop"}}})
            shop.reaches("order", state="ACTIVE")
            if values == SELECTED:
                assert "state" not in shop.status("unlabelled")
            else:
                shop.reaches("unlabelled", state="ACTIVE")
            for name in ("unlabelled", "order"):
                shop.delete(name)
                shop.goes(name)


async def test_rights_in_watched_namespaces_are_enough_and_all_used(
    release: Release, tmp_path: Path, audit_log: Path
) -> None:
    with RedisServer(tmp_path) as redis:
        values = {"redis": {"url": redis.url}, **WATCHED}
        release.install(values)
        identity = release.api.identity(release.namespace, NAME)
        shop, elsewhere = Resources(release.api, "shop"), Resources(release.api, "default")
        for each in (shop, elsewhere):
            each.apply(manifest("order", job("pay"), job("ship", "later"), undos=UNDOS))
        with start_operator(tmp_path, identity, redis.url, "bull", **watching(release)) as operator:
            take_over(shop, release.namespace)
            await see_everything(shop, redis.url)
            assert "state" not in elsewhere.status("order")
            assert "permissions" not in operator.log
            assert "a right is missing" not in operator.log
        uninstall(release, identity, redis.url)
    granted = audit.grants(render(values, RELEASE, release.namespace, {}), release.namespace, NAME)
    called = calls(release, audit_log)
    assert audit.missing(granted, called) == []
    # The namespace bank has no objects, so the rights in it are not used.
    assert audit.unused({each for each in granted if each.namespace != "bank"}, called) == []


def calls(release: Release, audit_log: Path) -> set[audit.Call]:
    """Return the requests of the operator of a release from the audit log."""
    return audit.calls(audit_log.read_text().splitlines(), release.namespace, NAME)


def take_over(shop: Resources, namespace: str) -> None:
    """Claim an order for a release that has no Lease; wait until the operator claims it."""
    shop.reaches("order", state="ACTIVE")
    gone = f"{RELEASE_ANNOTATION}={namespace}/gone"
    shop.kubectl("annotate", "jobgroup", "order", "--overwrite", gone)

    def claim() -> str:
        return str(shop.get("order")["metadata"]["annotations"][RELEASE_ANNOTATION])

    until(lambda: claim() == f"{namespace}/{NAME}", claim)


async def see_everything(shop: Resources, redis_url: str) -> None:
    """Delete an order while it runs, let one expire, and scale pools."""
    async with await StockClient.start("bullmq6", redis_url, "bull") as client:
        await client.work("payments")
        shop.reaches("order", completedCount=1)
        # The operator keeps the object until it is undone, and checks its namespace.
        shop.delete("order")
        shop.reaches("order", state="COMPENSATING")
        await client.work("payments:compensation")
        shop.goes("order")
        shop.apply(manifest("brief", job("pay"), ttlSecondsAfterFinished=0))
        shop.goes("brief")

        workloads = Workloads(shop)
        for kind in ("Deployment", "StatefulSet"):
            name = kind.lower()
            target = {"kind": kind, "name": name}
            workloads.apply(
                workload(name, kind=kind),
                pool(name, f"{name}-jobs", scaleTargetRef=target, jobsPerReplica=1),
            )
            await client.add(f"{name}-jobs", "pay")
            workloads.scales_to(name, 1, kind)
        # The operator ignores this change, so its next write of the status is refused and it
        # reads the pool again.
        shop.kubectl("annotate", "workerpool", "deployment", "note=changed")
        await client.add("deployment-jobs", "pay")
        workloads.scales_to("deployment", 2)
        until(
            lambda: workloads.status("deployment")["replicas"] == 2,
            lambda: str(workloads.status("deployment")),
        )


def watching(release: Release) -> dict[str, str]:
    """Return the environment of an operator that watches some namespaces."""
    return {
        "POD_NAMESPACE": release.namespace,
        "LEASE_NAME": NAME,
        "KOPF_RUN_NAMESPACES": " ".join(WATCHED["watchNamespaces"]),
    }


def told(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a container, except values that only a cluster can provide."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def uninstall(release: Release, identity: Path, redis_url: str) -> str:
    """Uninstall a release and return the output of its hook."""
    command = [str(find_helm()), "uninstall", RELEASE, *release.where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as leaving:
        hook = run_the_hook(release, identity, redis_url)
        said, _ = leaving.communicate()
    assert leaving.returncode == 0
    assert f'release "{RELEASE}" uninstalled' in said
    return hook


def run_the_hook(release: Release, identity: Path, redis_url: str) -> str:
    """Run the command of the hook's pod, mark its Job as complete, and return its output."""
    name = f"{NAME}-uninstall"

    def kubectl(*arguments: str) -> str:
        return release.api.kubectl(*arguments, "-n", release.namespace)

    wait_for(lambda: bool(kubectl("get", "job", name, "--ignore-not-found", "-o", "name")))
    found: dict[str, Any] = json.loads(kubectl("get", "job", name, "-o", "json"))
    (container,) = found["spec"]["template"]["spec"]["containers"]
    env = told(container) | {"POD_NAMESPACE": release.namespace}
    done = subprocess.run(
        [sys.executable, *container["command"][1:]],
        env=environment(identity, redis_url, "bull", name) | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done
    now = found["metadata"]["creationTimestamp"]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    times = {"startTime": now, "completionTime": now}
    status = {"status": {"conditions": conditions, "succeeded": 1, **times}}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps(status))
    kubectl("patch", "job", name, *patch)
    return done.stdout
