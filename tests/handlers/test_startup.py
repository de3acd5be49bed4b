"""kopf's settings, and the operator as a process against a real API server."""

import sys
from pathlib import Path

import kopf

from handlers import startup
from jobgroup import __version__
from testbed.apiserver import ApiServer
from testbed.processes import Server, on_free_port
from testbed.waiting import answers

MAIN = Path(__file__).resolve().parents[2] / "operator" / "main.py"


def test_kopf_posts_no_events_and_keeps_off_our_finalizer() -> None:
    settings = kopf.OperatorSettings()
    startup.choose(settings)
    assert settings.posting.enabled is False
    assert settings.persistence.finalizer == "jobgroups.dev/unused-by-kopf"


def test_the_operator_runs_under_its_own_identity(api: ApiServer, tmp_path: Path) -> None:
    log = tmp_path / "operator.log"

    def start(port: int) -> Server:
        url = f"http://127.0.0.1:{port}/healthz"
        command = [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--liveness", url]
        env = {"KUBECONFIG": str(api.operator), "PATH": ""}
        return Server("operator", [*command, str(MAIN)], log, lambda _: answers(url), env=env)

    operator, _ = on_free_port(start)
    operator.stop()
    said = log.read_text()
    assert f"jobgroup-operator {__version__}" in said
    assert "forbidden" not in said.lower()
