"""Helm: the one that HELM names, else the machine's own if it is a recent 3, else a built one."""

import os
import re
import shutil
from pathlib import Path

from testbed import TESTBED
from testbed.build.binaries import MAJOR, MINOR
from testbed.build.modules import Module
from testbed.support.commands import completed
from testbed.support.errors import Unavailable

HELM_VERSION = "v3.22.0"
# Older versions do not know the API versions that the chart uses.
OLDEST = (3, 14)

_HELM = "helm.sh/helm/v3"
_KUBERNETES = [
    f"-X {_HELM}/{package}.k8sVersion{part}={number}"
    for package in ("pkg/chartutil", "pkg/lint/rules")
    for part, number in (("Major", MAJOR), ("Minor", MINOR))
]
# Separate from testbed/go, because it needs other versions of the same modules.
MODULE = Module(
    folder=TESTBED / "go-helm",
    version=f"helm-{HELM_VERSION}",
    packages={"helm": f"{_HELM}/cmd/helm"},
    # Without these it reports v3.22, and assumes an old cluster where it cannot ask one.
    linker_flags=" ".join(
        ["-s -w", f"-X {_HELM}/internal/version.version={HELM_VERSION}", *_KUBERNETES]
    ),
    minutes=2,
)


def find_helm() -> Path:
    """Return the path of helm, built if there is none."""
    if given := os.environ.get("HELM"):
        if not (found := shutil.which(given)):
            raise Unavailable(
                f"HELM is {given}, and there is no such program; correct it, or unset it."
            )
        return Path(found)
    own = shutil.which("helm")
    return Path(own) if own and _is_recent(own) else MODULE.ensure("helm") / "helm"


def _is_recent(program: str) -> bool:
    said = completed([program, "version", "--template", "{{.Version}}"], None).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    # The chart is tested with Helm 3 only.
    return version is not None and OLDEST <= (int(version[1]), int(version[2])) < (4, 0)
