"""The operator as a user installs it: the chart, with its bundled Redis for evaluation."""

from collections.abc import Collection, Sequence
from pathlib import Path

from jobgroup.resource.kinds import API_GROUP, KINDS
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
# The Redis of the example's workers, in place of the one of redis.yaml.
REDIS_SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "order-redis"},
    "stringData": {"url": REDIS_URL},
}
CRDS = tuple(f"{kind.plural}.{API_GROUP}" for kind in KINDS)
# The namespace of a test has this label.
STORY_LABEL = "jobgroup-operator-story"
NAME = ".metadata.name"
MOST_LISTED = 3
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


def refuse_others() -> list[str]:
    """Raise Unavailable if the cluster has an operator or objects that no test created.

    Return the names of the CRDs that are installed already: a run must leave these.
    """
    owner = r".metadata.annotations.meta\.helm\.sh/release-namespace"
    doing = "Checking whether the operator is installed"
    found = _table("crds", *CRDS, "--ignore-not-found", columns=[NAME, owner], doing=doing)
    if any(owner != NAMESPACE for _, owner in found):
        raise Unavailable(
            "The operator is installed in this cluster already; uninstall it and delete its CRDs, "
            "or run the tests on another cluster."
        )
    names = [name for name, _ in found]
    if strangers := _strangers(names):
        raise Unavailable(
            f"This cluster has objects that no test created: {_list(strangers)}. The tests would "
            "run and remove the operator of these; delete them, or use another cluster."
        )
    return names


def is_installed() -> bool:
    """Return whether a kept cluster has the operator of an earlier run: a run must leave it."""
    asked = ("namespaces", NAMESPACE, "--ignore-not-found")
    doing = "Checking whether an earlier run installed the operator"
    return bool(_table(*asked, columns=[NAME], doing=doing))


def remove(before: Collection[str] = ()) -> None:
    """Remove what the tests added to a cluster: not the CRDs that were there before."""
    uninstall()
    _kubectl("delete", "namespace", NAMESPACE, doing=f"Deleting the namespace {NAMESPACE}")
    added = [name for name in CRDS if name not in before]
    if strangers := _strangers(added):
        # With a CRD, all its objects are deleted.
        print(f"Kept the CRDs: no test created {_list(strangers)}.", flush=True)
    elif added:
        _kubectl("delete", "crds", *added, doing="Deleting the CRDs")


def _strangers(crds: Collection[str]) -> list[str]:
    """Return the objects of these CRDs that are in no namespace of a test."""
    if not crds:
        return []
    doing = "Looking for objects that no test created"
    ours = _table("namespaces", "--selector", STORY_LABEL, columns=[NAME], doing=doing)
    columns = [".metadata.namespace", NAME]
    found = _table(",".join(crds), "--all-namespaces", columns=columns, doing=doing)
    return ["/".join(each) for each in found if each[:1] not in ours]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _table(*asked: str, columns: Sequence[str], doing: str) -> list[list[str]]:
    """Return these fields of objects."""
    output = ",".join(f"C{number}:{column}" for number, column in enumerate(columns))
    options = ("--no-headers", "--output", f"custom-columns={output}")
    return [line.split() for line in _kubectl("get", *asked, *options, doing=doing).splitlines()]


def _kubectl(*arguments: str, doing: str) -> str:
    return run(_program(), *arguments, doing=doing)


def _program() -> Path:
    return binaries.find("kubectl")["kubectl"]
