"""Diagnostics of a namespace in which a test failed: events, objects and logs, saved as files.

They are below the folder E2E_FAILURES, or in the cache: <occasion>/<namespace>/.
"""

import os
from pathlib import Path

from jobgroup.resource.kinds import KINDS
from testbed.build.cache import cache_dir
from testbed.cluster.kubectl import Kubectl

OF_KUBERNETES = ("deployments", "statefulsets", "pods", "services", "leases")
SAVED = ",".join([*(kind.plural for kind in KINDS), *OF_KUBERNETES])


def save(occasion: str, *namespaces: Kubectl) -> Path:
    """Save the events, objects and logs of some namespaces, and return the folder."""
    folder = Path(os.environ.get("E2E_FAILURES") or cache_dir() / "e2e-failures") / occasion
    for each in namespaces:
        _save_namespace(each, folder / each.namespace)
    return folder


def _save_namespace(kubectl: Kubectl, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, *arguments: str) -> None:
        # If a command fails, its error is saved.
        done = kubectl.attempt(*arguments)
        (folder / name).write_text(done.stdout + done.stderr)

    save("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp")
    save("objects.yaml", "get", SAVED, "--output=yaml")
    for pod in kubectl.attempt("get", "pods", "--output=name").stdout.split():
        name = pod.removeprefix("pod/")
        save(f"{name}.log", "logs", name, "--all-containers", "--prefix")
        save(f"{name}.previous.log", "logs", name, "--all-containers", "--prefix", "--previous")
