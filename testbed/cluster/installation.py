"""The operator as a user installs it: the chart, with its bundled Redis for evaluation."""

from pathlib import Path

from testbed.build import binaries
from testbed.cluster import diagnostics
from testbed.cluster.kubectl import Kubectl
from testbed.support.chart import CHART, RELEASE, Refused, helm
from testbed.support.commands import run
from testbed.support.errors import Unavailable

NAMESPACE = "jobgroup-e2e"
REDIS_POD = f"{RELEASE}-redis-0"
REDIS_HOST = f"{RELEASE}-redis.{NAMESPACE}.svc.cluster.local"
REDIS_URL = f"redis://{REDIS_HOST}:6379/0"
# The example's workers expect Redis in their own namespace, under this name.
REDIS_ALIAS = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "redis"},
    "spec": {"type": "ExternalName", "externalName": REDIS_HOST},
}
WAIT = ("--namespace", NAMESPACE, "--wait", "--timeout=3m")


def install(operator_image: str, redis_image: str, **values: str) -> None:
    """Install the chart, or upgrade it, and wait until its pods are ready."""
    repository, _, tag = operator_image.rpartition(":")
    settings = {
        "image.repository": repository,
        "image.tag": tag,
        "redis.bundled.enabled": "true",
        "redis.bundled.image": redis_image,
        **values,
    }
    options = [f"--set={name}={value}" for name, value in settings.items()]
    try:
        helm("upgrade", "--install", RELEASE, CHART, *options, "--create-namespace", *WAIT)
    except Refused as refusal:
        # helm reports that a pod is not ready, but not why.
        folder = diagnostics.save("installing", Kubectl(str(_program()), NAMESPACE))
        raise Unavailable(f"{refusal}\nLogs and events are in {folder}.") from refusal


def uninstall() -> None:
    """Uninstall the chart and wait until its objects are gone."""
    helm("uninstall", RELEASE, *WAIT)


def refuse_others() -> None:
    """Raise Unavailable if the operator is installed in the cluster already."""
    owner = "{.items[*].metadata.annotations.meta\\.helm\\.sh/release-namespace}"
    selector = ("--field-selector", "metadata.name=jobgroups.jobgroups.dev")
    asked = ("get", "crds", *selector, "--output", f"jsonpath={owner} {{.items[*].metadata.name}}")
    found = _kubectl(*asked, doing="Checking whether the operator is installed")
    if found and NAMESPACE not in found.split():
        raise Unavailable(
            "The operator is installed in this cluster already; uninstall it and delete its CRDs, "
            "or run the tests on another cluster."
        )


def remove() -> None:
    """Remove everything that the tests added to a cluster, including the CRDs."""
    uninstall()
    _kubectl("delete", "namespace", NAMESPACE, doing=f"Deleting the namespace {NAMESPACE}")
    kinds = ("crds", "jobgroups.jobgroups.dev", "workerpools.jobgroups.dev")
    _kubectl("delete", *kinds, doing="Deleting the CRDs")


def _kubectl(*arguments: str, doing: str) -> str:
    return run(_program(), *arguments, doing=doing)


def _program() -> Path:
    return binaries.find("kubectl")["kubectl"]
