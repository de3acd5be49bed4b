"""What `make install` runs in the virtual environment: installs the stock workers and binaries.

`make demo` runs `python -m testbed.build.install demo`, which omits what only tests need.
"""

import errno
import filecmp
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from testbed.build import binaries
from testbed.build.helm import find_helm
from testbed.build.toolchain import npm
from testbed.servers.processes import leashed
from testbed.servers.redis import find_redis
from testbed.servers.stock import CLIENTS
from testbed.support import promql
from testbed.support.errors import Unavailable

# Before a demo, only steps that took longer are printed.
WORTH_PRINTING_SECONDS = 1.0


def install_workers() -> str:
    """Install the stock Node workers that package-lock.json pins."""
    lock, installed = CLIENTS / "package-lock.json", CLIENTS / "node_modules" / ".installed-lock"
    if installed.exists() and filecmp.cmp(lock, installed, shallow=False):
        return "already installed"
    print("Installing the stock BullMQ workers with npm (seconds).", flush=True)
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
    # Copied last: an interrupted npm ci leaves an incomplete folder.
    shutil.copy(lock, installed)
    return "installed"


def install_binaries(*more: str) -> str:
    """Find or build the binaries of a control plane."""
    return str(binaries.find(*binaries.ENVTEST, *more)["kube-apiserver"].parent)


def find_openssl() -> str:
    """Find openssl, which makes the key of the API server's service accounts."""
    found = shutil.which("openssl")
    if not found:
        raise Unavailable("There is no openssl on PATH; install it (apt-get install openssl).")
    return found


KUBERNETES = f"Kubernetes {binaries.KUBERNETES_VERSION}"
DEMO_STEPS: dict[str, Callable[[], str]] = {
    "openssl": find_openssl,
    "redis-server": lambda: str(find_redis()),
    "stock BullMQ workers": install_workers,
    KUBERNETES: install_binaries,
}
STEPS = {
    **DEMO_STEPS,
    KUBERNETES: lambda: install_binaries("kube-controller-manager"),
    "helm": lambda: str(find_helm()),
    "Prometheus' query engine": lambda: str(promql.engine()),
}


def main(goal: str = "install") -> int:
    """Run the steps, and print how long each took."""
    steps = DEMO_STEPS if goal == "demo" else STEPS
    try:
        for name, step in steps.items():
            started = time.monotonic()
            outcome = step()
            took = time.monotonic() - started
            if goal == "install" or took >= WORTH_PRINTING_SECONDS:
                print(f"  {name}: {outcome} ({took:.1f} s)", flush=True)
    except Unavailable as refusal:
        print(f"make {goal}: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"make {goal}: the disk is full; free some space and run it again.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"make {goal}: interrupted; run it again to continue.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
