"""What `make install` runs once the virtual environment stands: the stock workers, the binaries."""

import errno
import filecmp
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from testbed import binaries
from testbed.errors import Unavailable
from testbed.processes import leashed
from testbed.redis_server import find_redis
from testbed.stock import CLIENTS
from testbed.toolchain import npm

TEST_BINARIES = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager")


def install_workers() -> str:
    """Install the stock Node workers that package-lock.json pins."""
    lock, installed = CLIENTS / "package-lock.json", CLIENTS / "node_modules" / ".installed-lock"
    if installed.exists() and filecmp.cmp(lock, installed, shallow=False):
        return "there already"
    done = subprocess.run(
        leashed([*npm(), "ci", "--ignore-scripts", "--no-progress"]),
        cwd=CLIENTS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(
            "npm could not install the stock workers; check that this machine reaches an npm"
            f" registry and has room on its disk. npm said: {' '.join(done.stderr.split())[:400]}"
        )
    # Copied last: npm ci leaves a half-filled folder behind when it is interrupted.
    shutil.copy(lock, installed)
    return "installed"


def install_binaries() -> str:
    """Find or build the control plane that the tests start."""
    return str(binaries.find(*TEST_BINARIES)["kube-apiserver"].parent)


def find_openssl() -> str:
    """Find what makes the key of the test API server's service accounts."""
    found = shutil.which("openssl")
    if not found:
        raise Unavailable("There is no openssl on PATH; install it (apt-get install openssl).")
    return found


STEPS: dict[str, Callable[[], str]] = {
    "openssl": find_openssl,
    "redis-server": lambda: str(find_redis()),
    "stock BullMQ workers": install_workers,
    f"Kubernetes {binaries.KUBERNETES_VERSION} for tests": install_binaries,
}


def main() -> int:
    """Run the steps and say how long each took."""
    try:
        for name, step in STEPS.items():
            started = time.monotonic()
            outcome = step()
            print(f"  {name}: {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    except Unavailable as refusal:
        print(f"make install: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print("make install: the disk is full; free some space and run it again.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make install: interrupted; run it again and it goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
