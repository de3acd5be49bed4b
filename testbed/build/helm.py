"""Helm: the one HELM names, the machine's own if it is a recent 3, else one built from modules."""

import os
import re
import shutil
from pathlib import Path

from testbed.binaries import MAJOR, MINOR
from testbed.building import Module
from testbed.commands import completed
from testbed.errors import Unavailable

HELM_VERSION = "v3.22.0"
# What charts are rendered and upgraded with must know the API versions the chart names.
OLDEST = (3, 14)

_HELM = "helm.sh/helm/v3"
_KUBERNETES = [
    f"-X {_HELM}/{package}.k8sVersion{part}={number}"
    for package in ("pkg/chartutil", "pkg/lint/rules")
    for part, number in (("Major", MAJOR), ("Minor", MINOR))
]
# Apart from testbed/go: it needs other versions of the same modules.
MODULE = Module(
    folder=Path(__file__).resolve().parent / "go-helm",
    version=f"helm-{HELM_VERSION}",
    packages={"helm": f"{_HELM}/cmd/helm"},
    # Without these it takes itself for v3.22, and a cluster it has not met for an age-old one.
    linker_flags=" ".join(
        ["-s -w", f"-X {_HELM}/internal/version.version={HELM_VERSION}", *_KUBERNETES]
    ),
    minutes=2,
)


def find_helm() -> Path:
    """Return a helm command, built if there is none."""
    if given := os.environ.get("HELM"):
        if not (found := shutil.which(given)):
            raise Unavailable(f"HELM is {given}, and there is no such program.")
        return Path(found)
    own = shutil.which("helm")
    return Path(own) if own and _is_recent(own) else MODULE.ensure("helm") / "helm"


def _is_recent(program: str) -> bool:
    said = completed([program, "version", "--template", "{{.Version}}"], None).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    # Helm 4 may come to differ; the chart is tested with 3.
    return version is not None and OLDEST <= (int(version[1]), int(version[2])) < (4, 0)
