"""What one would ask first of a namespace where something went wrong, saved before it is gone.

Below E2E_FAILURES, or in the cache: a folder for each occasion, and one in it for each namespace.
"""

import os
from pathlib import Path

from testbed.cache import cache_dir
from testbed.kubectl import Kubectl

KINDS = "jobgroups,workerpools,deployments,statefulsets,pods,services,leases"


def save(occasion: str, *namespaces: Kubectl) -> Path:
    """Save the events, objects and logs of some namespaces, and return where they are."""
    folder = Path(os.environ.get("E2E_FAILURES") or cache_dir() / "e2e-failures") / occasion
    for each in namespaces:
        _save_namespace(each, folder / each.namespace)
    return folder


def _save_namespace(kubectl: Kubectl, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

    def save(name: str, *arguments: str) -> None:
        # What cannot be told is told, too.
        done = kubectl.attempt(*arguments)
        (folder / name).write_text(done.stdout + done.stderr)

    save("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp")
    save("objects.yaml", "get", KINDS, "--output=yaml")
    for pod in kubectl.attempt("get", "pods", "--output=name").stdout.split():
        name = pod.removeprefix("pod/")
        save(f"{name}.log", "logs", name, "--all-containers", "--prefix")
        save(f"{name}.previous.log", "logs", name, "--all-containers", "--prefix", "--previous")
