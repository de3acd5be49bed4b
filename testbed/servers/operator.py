"""The operator as a process of its own, with its own identity and RBAC."""

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from testbed import ROOT
from testbed.servers.apiserver import OPERATOR_NAMESPACE
from testbed.servers.processes import Server, on_free_port

MAIN = ROOT / "operator" / "main.py"
# Modules that hide those of the development environment which the image does not contain.
IMAGE_PATH = Path(__file__).with_name("image_path")


def ask(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a probe; the status is 0 if there is no answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


class OperatorProcess:
    """One replica."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    @property
    def log(self) -> str:
        """Return its log so far."""
        return self.server.log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def probe(self, path: str) -> tuple[int, str]:
        """Return status and text of one of its endpoints."""
        return ask(self.port, path)


def measuring_coverage() -> dict[str, str]:
    """Return the variables with which a child process measures its coverage.

    It costs a replica a quarter of its start. A killed process writes no coverage, and most tests
    kill their replicas, so `environment` omits these variables.
    """
    return {key: value for key, value in os.environ.items() if key.startswith("COV")}


def environment(
    kubeconfig: Path, redis_url: str, prefix: str, name: str, **env: str
) -> dict[str, str]:
    """Return the environment of a replica."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "REDIS_URL": redis_url,
        "BULLMQ_PREFIX": prefix,
        "POD_NAME": name,
        "POD_NAMESPACE": OPERATOR_NAMESPACE,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{MAIN.parent}:{IMAGE_PATH}",
        **env,
    }


def start_operator(
    folder: Path,
    kubeconfig: Path,
    redis_url: str,
    prefix: str,
    name: str = "operator",
    script: Path = MAIN,
    /,
    **env: str,
) -> OperatorProcess:
    """Start a replica and wait until its probes answer; it need not be the leader yet."""

    def start(port: int) -> Server:
        settings = environment(kubeconfig, redis_url, prefix, name, **{"PORT": str(port), **env})
        where = [] if "KOPF_RUN_NAMESPACES" in env else ["--all-namespaces"]
        command = [sys.executable, "-m", "kopf", "run", *where, "--standalone"]
        log = folder / f"{name}.log"
        return Server(
            name,
            [*command, str(script)],
            log,
            lambda _: ask(port, "/livez")[0] != 0,
            env=settings,
        )

    server, port = on_free_port(start)
    return OperatorProcess(server, port)
