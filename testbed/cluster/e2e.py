"""What `make e2e` runs: starts an engine and a cluster, installs the chart, runs tests/e2e.

  KEEP=1                                       keep the cluster, and a private engine
  E2E_CLUSTER=existing E2E_CONTEXT=<name>      run on the cluster of the current context
  E2E_IMAGE, E2E_REDIS_IMAGE, E2E_NODE_IMAGE, E2E_PYTHON_IMAGE    images that it can pull

Arguments are passed to pytest. The exit code is pytest's, or 2 if pytest was not started.
"""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType

from testbed import ROOT
from testbed.build.cache import cache_dir, locked
from testbed.build.helm import find_helm
from testbed.cluster import engine, installation, kind
from testbed.cluster.engine import Engine
from testbed.cluster.kind import Cluster, TestImages
from testbed.images import base
from testbed.images.builders import Docker
from testbed.servers.processes import leashed
from testbed.support.errors import Unavailable

GAVE_UP = 2
INTERRUPTED = 130
NO_TESTS = 5
STORIES = "tests/e2e"
# Stories mostly wait, so more of them run at once than the machine has cores.
SIDE_BY_SIDE = "5"
INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str]) -> int:
    """Run the end-to-end tests; an error is printed as one sentence."""
    for interrupt in INTERRUPTS:
        signal.signal(interrupt, _interrupt)
    try:
        # Otherwise kubectl caches data about these short-lived clusters in the home directory.
        os.environ.setdefault("KUBECACHEDIR", str(cache_dir() / "kubectl"))
        with locked("e2e", "finish with its cluster"):
            return _on_chosen_cluster(arguments)
    except Unavailable as refusal:
        print(refusal, file=sys.stderr)
        return GAVE_UP
    except KeyboardInterrupt:
        print("Interrupted; nothing is left running. The next run continues from here.")
        return INTERRUPTED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print("The disk is full; free some space, or set JOBGROUP_CACHE.", file=sys.stderr)
        return GAVE_UP


def _on_chosen_cluster(arguments: Sequence[str]) -> int:
    match os.environ.get("E2E_CLUSTER", "kind"):
        case "kind":
            return _on_own_cluster(arguments, keep=kind.is_kept())
        case "existing":
            return _on_existing_cluster(arguments)
        case other:
            raise Unavailable(
                f"E2E_CLUSTER is {other!r}; it can be kind (the default) or existing."
            )


def _on_own_cluster(arguments: Sequence[str], keep: bool) -> int:
    with _cleaned_up() as held:
        with _step("container engine"):
            docker = held.enter_context(engine.started(keep))
        with _step("node image"):
            node_image = base.node(Docker(docker))
        with _step("test images"):
            test_images = kind.made_images(docker)
        with _step(f"cluster {kind.NAME}"):
            chosen = held.enter_context(kind.created(docker, node_image, keep))
        with _step("loading the images into it"):
            kind.load(docker, kind.NAME, test_images.names)
        code = _stories(chosen, test_images, arguments)
    if keep:
        print(_ways(docker, chosen), flush=True)
    return code


def _ways(docker: Engine, kept: Cluster) -> str:
    """Return how to reach a kept cluster, to run the tests on it again, and to remove it."""
    programs = (kind.program("kubectl"), kind.program("kind"), find_helm())
    folders = ":".join(dict.fromkeys(str(path.parent) for path in programs))
    host = docker.env.get("DOCKER_HOST")
    return "\n".join(
        [
            "The cluster is kept. To inspect it with kubectl, kind, helm and docker:",
            f"  export KUBECONFIG={kept.kubeconfig} PATH={folders}:$PATH",
            *([f"  export DOCKER_HOST={host}"] if host else []),
            "To run the tests on it again, after that:",
            f"  E2E_CLUSTER=existing E2E_CONTEXT={kept.context} make e2e",
            "To remove it:",
            "  make e2e-clean",
        ]
    )


def _on_existing_cluster(arguments: Sequence[str]) -> int:
    chosen = kind.existing(os.environ.get("E2E_CONTEXT"))
    try:
        test_images = kind.named_images(chosen)
        os.environ["KUBECONFIG"] = str(chosen.kubeconfig)
        # Building images takes minutes, and loading them changes the nodes.
        before = installation.refuse_others()
        if test_images is None:
            docker = engine.running()
            with _step("test images"):
                test_images = kind.made_images(docker)
            with _step("loading the images"):
                kind.load(docker, str(chosen.kind_name), test_images.names)
        with _cleaned_up() as held:
            if not installation.is_installed():
                held.callback(installation.remove, before)
            return _stories(chosen, test_images, arguments)
    finally:
        # It contains the user's credentials.
        chosen.kubeconfig.unlink(missing_ok=True)


def _stories(chosen: Cluster, test_images: TestImages, arguments: Sequence[str]) -> int:
    """Install the chart and run the stories; first those that can run at the same time."""
    os.environ.update(test_images.environment)
    os.environ["KUBECONFIG"] = str(chosen.kubeconfig)
    os.environ["E2E_KUBECTL"] = str(kind.program("kubectl"))
    try:
        with _step("installing the chart"):
            installation.install(test_images.operator, test_images.redis)
    except Unavailable as refusal:
        # Not raised: an exception deletes a cluster that KEEP=1 must keep for inspection.
        print(refusal, file=sys.stderr, flush=True)
        return GAVE_UP
    with _step("stories side by side"):
        together = _pytest("-m", "not alone", "-n", SIDE_BY_SIDE, "--dist=loadfile", *arguments)
    with _step("stories that disturb the operator"):
        alone = _pytest("-m", "alone", *arguments)
    ran = [code for code in (together, alone) if code != NO_TESTS]
    return max(ran, default=NO_TESTS)


def _pytest(*arguments: str) -> int:
    command = [sys.executable, "-m", "pytest", *chosen_tests(arguments)]
    # In a session of its own, pytest gets one interrupt, from here. So a second Ctrl-C does not
    # stop it from cleaning up on a cluster that stays.
    with subprocess.Popen(leashed(command), cwd=ROOT, start_new_session=True) as tests:
        try:
            return tests.wait()
        except KeyboardInterrupt:
            tests.send_signal(signal.SIGINT)
            tests.wait()
            raise


def chosen_tests(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of pytest: all stories, unless the arguments name files of them."""
    are_named = any(each.startswith(STORIES) for each in arguments)
    return [*arguments] if are_named else [STORIES, *arguments]


@contextmanager
def _step(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    _print_time(name, began)


def _print_time(step: str, began: float) -> None:
    """Print how long a step took."""
    print(f"{time.monotonic() - began:7.1f} s  {step}", flush=True)


@contextmanager
def _cleaned_up() -> Iterator[ExitStack]:
    """Hold what a run starts, and end it all while interrupts are ignored."""
    began = time.monotonic()
    try:
        with ExitStack() as held:
            try:
                yield held
            finally:
                _ignore_interrupts()
                began = time.monotonic()
    finally:
        _print_time("clean-up", began)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Turn the first interrupt into an exception, and ignore the next ones."""
    _ignore_interrupts()
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    """Ignore interrupts during the clean-up, here and in children started from now on."""
    for interrupt in INTERRUPTS:
        signal.signal(interrupt, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
