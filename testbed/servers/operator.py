"""The operator as a process of its own: its own identity and RBAC, a Redis, and nothing else."""

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.apiserver import OPERATOR_NAMESPACE
from testbed.processes import Server, on_free_port

MAIN = Path(__file__).resolve().parents[1] / "operator" / "main.py"


def ask(port: int, path: str) -> tuple[int, str]:
    """Return what a probe answers, 0 if nobody does."""
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
        """Return all it said so far."""
        return self.server.log.read_text(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.stop()

    def probe(self, path: str) -> tuple[int, str]:
        """Ask one of its endpoints."""
        return ask(self.port, path)


def environment(
    kubeconfig: Path, redis_url: str, prefix: str, name: str, **env: str
) -> dict[str, str]:
    """Return all that a replica knows of the world."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "REDIS_URL": redis_url,
        "BULLMQ_PREFIX": prefix,
        "POD_NAME": name,
        "POD_NAMESPACE": OPERATOR_NAMESPACE,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(MAIN.parent),
        # Coverage of processes is asked for this way.
        **{key: value for key, value in os.environ.items() if key.startswith("COV")},
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
    """Start a replica and wait until its probes answer; whether it leads is another matter."""

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
