"""Kubernetes, etcd and kind: found, downloaded, or built from the modules testbed/go pins."""

import hashlib
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from testbed.cache import cache_dir, locked, require_space
from testbed.errors import Unavailable
from testbed.processes import leashed
from testbed.toolchain import go, go_env

KUBERNETES_VERSION = "v1.36.3"
MODULE = Path(__file__).resolve().parent / "go"

PACKAGES = {
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
}
# What `setup-envtest` downloads, and what KUBEBUILDER_ASSETS holds by convention.
ENVTEST = ("etcd", "kube-apiserver", "kubectl")
BUILD_GIGABYTES = 6

_COMPONENT = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = KUBERNETES_VERSION[1:].split(".")
# Without these a server calls itself v0.0.0 and clients refuse to speak to it.
_LINKER_FLAGS = (
    f"-s -w -X {_COMPONENT}.gitVersion={KUBERNETES_VERSION}"
    f" -X {_COMPONENT}.gitMajor={_MAJOR} -X {_COMPONENT}.gitMinor={_MINOR}"
)


def find(*names: str) -> dict[str, Path]:
    """Return where each binary is; the order is given, cached, downloaded, built."""
    wanted = [name for name in names if _given(name) is None]
    if any(name in ENVTEST and _cached(name) is None for name in wanted):
        _download_envtest()
    ensure(*(name for name in wanted if _cached(name) is None))
    return {name: _given(name) or _cached(name) or _built_dir() / name for name in names}


def ensure(*names: str) -> Path:
    """Build what is missing of these binaries and return the folder that holds them."""
    folder = _built_dir()
    with locked("build"):
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            _build(missing, folder)
    return folder


def module_dir(module: str) -> Path:
    """Return the folder of an unpacked module, fetched if need be."""
    _go(["mod", "download", module], f"fetch the Go module {module}")
    return Path(_go(["list", "-m", "-f", "{{.Dir}}", module], f"find {module}").strip())


def _given(name: str) -> Path | None:
    """Honour KUBEBUILDER_ASSETS, the field's name for binaries one already has."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return None
    if not Path(assets).is_dir():
        raise Unavailable(f"KUBEBUILDER_ASSETS is {assets}, and there is no such folder.")
    path = Path(assets) / name
    return path if path.exists() else None


def _cached(name: str) -> Path | None:
    folders = [
        *sorted((cache_dir() / "envtest" / "k8s").glob(f"{_MAJOR}.{_MINOR}.*")),
        _built_dir(),
    ]
    return next((path for folder in folders if (path := folder / name).exists()), None)


def _built_dir() -> Path:
    """Name the folder after all that decides what is in it."""
    sources = [MODULE / "go.mod", MODULE / "go.sum", *sorted(MODULE.glob("*/main.go"))]
    digest = hashlib.sha256(_LINKER_FLAGS.encode())
    for source in sources:
        digest.update(source.read_bytes())
    machine = f"{sys.platform}-{platform.machine()}"
    return cache_dir() / "bin" / f"{KUBERNETES_VERSION}-{machine}-{digest.hexdigest()[:12]}"


def _download_envtest() -> None:
    """Fetch published binaries with the field's own tool; where that fails, building is next."""
    store = cache_dir() / "envtest"
    tool = store / "setup-envtest"
    with locked("build"):
        store.mkdir(exist_ok=True)
        flags = ["-trimpath", "-ldflags", "-s -w", "-o", str(tool)]
        package = "sigs.k8s.io/controller-runtime/tools/setup-envtest"
        print("Asking for published binaries with setup-envtest.", flush=True)
        _go(["-C", str(MODULE / "envtest"), "build", *flags, package], "build setup-envtest")
        # It unpacks in place: what a killed download left must never be taken for binaries.
        partial = store / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        use = [str(tool), "use", f"{_MAJOR}.{_MINOR}.x", "--bin-dir", str(partial)]
        done = subprocess.run(leashed(use), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            (partial / "k8s").rename(store / "k8s")
        else:
            print("They cannot be downloaded here; they will be built.", flush=True)


def _build(names: Iterable[str], folder: Path) -> None:
    """Build into a folder of its own and move whole binaries over, so none is ever half there."""
    require_space(cache_dir(), BUILD_GIGABYTES)
    packages = {name: PACKAGES[name] for name in names}
    print(
        f"Building {', '.join(packages)} from Go modules: about 10 minutes the first time on two"
        " cores, seconds when Go's cache is warm. Ctrl-C is safe, the next run goes on from there.",
        flush=True,
    )
    started = time.monotonic()
    task = f"resolve the modules of {', '.join(packages)}"
    total = len(_go(["list", "-deps", *packages.values()], task).splitlines())
    partial = folder / f".partial-{os.getpid()}"
    for stale in folder.glob(".partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        flags = ["-v", "-mod=readonly", "-trimpath", "-ldflags", _LINKER_FLAGS, "-o", f"{partial}/"]
        _go_with_progress(["build", *flags, *packages.values()], total, started)
        for name, package in packages.items():
            (partial / _output_name(package)).rename(folder / name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"Built {', '.join(packages)} in {time.monotonic() - started:.0f} s.", flush=True)


def _output_name(package: str) -> str:
    """Say how `go build` calls a package's binary: its last path element that is no version."""
    elements = package.split("/")
    return elements[-2] if elements[-1] == "v3" else elements[-1]


def _go(arguments: list[str], task: str) -> str:
    done = subprocess.run(
        leashed([str(go()), *arguments]),
        cwd=MODULE,
        env=go_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise _explained(task, done.stderr)
    return done.stdout


def _go_with_progress(arguments: list[str], total: int, started: float) -> None:
    """Run a `go build -v`, which names each package as it compiles it, and count them."""
    said: list[str] = []
    last = started
    with subprocess.Popen(
        leashed([str(go()), *arguments]),
        cwd=MODULE,
        env=go_env(),
        stderr=subprocess.PIPE,
        text=True,
    ) as build:
        try:
            for line in build.stderr or ():
                said.append(line)
                if (now := time.monotonic()) - last >= 15:
                    last = now
                    print(progress(len(said), total, now - started), flush=True)
        except BaseException:
            # An interrupted go removes its work folder, a terminated one leaves it.
            build.send_signal(signal.SIGINT)
            raise
    if build.returncode != 0:
        raise _explained("build the binaries", "".join(said[-20:]))


def progress(done: int, total: int, seconds: float) -> str:
    """Say how far a build is, and how long it takes if it goes on like this."""
    left = math.ceil(seconds / done * (total - done) / 60)
    return f"  {done} of at most {total} packages in {seconds:.0f} s, at most {left} min more"


def _explained(task: str, said: str) -> Unavailable:
    """Turn Go's words into the sentence a person needs."""
    words = " ".join(said.split())[-400:]
    if "no space left on device" in said:
        reason = "the disk is full; free about 6 GB, or point JOBGROUP_CACHE and GOCACHE elsewhere"
    elif any(sign in said for sign in ("GOPROXY", "dial tcp", "no such host", "proxyconnect")):
        reason = "the Go module proxy is out of reach; check the network and GOPROXY"
    else:
        reason = "Go refused"
    return Unavailable(f"Could not {task}: {reason}. Go said: {words}")
