"""Kubernetes, etcd and kind: found, downloaded, or built from the modules that testbed/go pins."""

import os
import shutil
import subprocess
from pathlib import Path

from testbed import TESTBED
from testbed.build.cache import cache_dir, locked
from testbed.build.modules import Module
from testbed.servers.processes import leashed
from testbed.support.errors import Unavailable

KUBERNETES_VERSION = "v1.36.3"
# What `setup-envtest` downloads, and what KUBEBUILDER_ASSETS holds by convention.
ENVTEST = ("etcd", "kube-apiserver", "kubectl")

_COMPONENT = "k8s.io/component-base/version"
MAJOR, MINOR, _ = KUBERNETES_VERSION[1:].split(".")

KUBERNETES = Module(
    folder=TESTBED / "go",
    version=KUBERNETES_VERSION,
    packages={
        **{
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubeadm",
                "kubectl",
                "kubelet",
            )
        },
        "etcd": "go.etcd.io/etcd/server/v3",
        "kind": "sigs.k8s.io/kind",
        "crictl": "sigs.k8s.io/cri-tools/cmd/crictl",
        "coredns": "./coredns",
        "pause": "./pause",
    },
    # Without these a server reports version v0.0.0, and clients refuse to use it.
    linker_flags=(
        f"-s -w -X {_COMPONENT}.gitVersion={KUBERNETES_VERSION}"
        f" -X {_COMPONENT}.gitMajor={MAJOR} -X {_COMPONENT}.gitMinor={MINOR}"
    ),
    minutes=10,
)


def find(*names: str) -> dict[str, Path]:
    """Return the path of each binary: given, else cached, else downloaded, else built."""
    wanted = [name for name in names if _given(name) is None]
    if any(name in ENVTEST and _cached(name) is None for name in wanted):
        _download_envtest()
    missing = [name for name in wanted if _cached(name) is None]
    # What the demo needs comes first, so that a demo does not wait for the rest of an installation.
    for part in ([n for n in missing if n in ENVTEST], [n for n in missing if n not in ENVTEST]):
        ensure(*part)
    return {name: _given(name) or _cached(name) or KUBERNETES.built / name for name in names}


def ensure(*names: str) -> Path:
    """Build those of the binaries that are missing, and return the folder that holds them."""
    return KUBERNETES.ensure(*names)


def module_dir(module: str) -> Path:
    """Return the folder of an unpacked module, downloaded if necessary."""
    KUBERNETES.go(["mod", "download", module], f"fetch the Go module {module}")
    return Path(KUBERNETES.go(["list", "-m", "-f", "{{.Dir}}", module], f"find {module}").strip())


def _given(name: str) -> Path | None:
    """Return the binary in the folder that KUBEBUILDER_ASSETS names, if it is there."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return None
    if not Path(assets).is_dir():
        raise Unavailable(
            f"KUBEBUILDER_ASSETS is {assets}, and there is no such folder; correct it, or unset it."
        )
    path = Path(assets) / name
    return path if path.exists() else None


def _cached(name: str) -> Path | None:
    folders = [
        *sorted((cache_dir() / "envtest" / "k8s").glob(f"{MAJOR}.{MINOR}.*")),
        KUBERNETES.built,
    ]
    return next((path for folder in folders if (path := folder / name).exists()), None)


def _download_envtest() -> None:
    """Download published binaries with setup-envtest; if that fails, they are built."""
    store = cache_dir() / "envtest"
    tool = store / "setup-envtest"
    with locked("download-envtest", "download published binaries"):
        store.mkdir(exist_ok=True)
        flags = ["-trimpath", "-ldflags", "-s -w", "-o", str(tool)]
        package = "sigs.k8s.io/controller-runtime/tools/setup-envtest"
        print("Downloading published binaries with setup-envtest.", flush=True)
        folder = str(KUBERNETES.folder / "envtest")
        KUBERNETES.go(["-C", folder, "build", *flags, package], "build setup-envtest")
        # It unpacks in place: the rest of a killed download must not be used.
        partial = store / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        use = [str(tool), "use", f"{MAJOR}.{MINOR}.x", "--bin-dir", str(partial)]
        done = subprocess.run(leashed(use), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            (partial / "k8s").rename(store / "k8s")
        else:
            print("They cannot be downloaded here; they will be built.", flush=True)
