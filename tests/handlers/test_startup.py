"""kopf's settings, and the operator as a process against a real API server."""

import subprocess
import sys

import click
import kopf
import pytest

from handlers.kube.kopf_settings import configure_kopf, namespaces_of_command
from handlers.kube.watches import Watches
from jobgroup import __version__
from testbed.servers.operator import MAIN
from testbed.support.resources import until
from tests.resources.fixtures import Shared


def test_kopf_posts_no_events_and_uses_another_finalizer() -> None:
    settings = kopf.OperatorSettings()
    configure_kopf(settings, Watches(60))
    assert settings.posting.enabled is False
    assert settings.persistence.finalizer == "jobgroups.dev/unused-by-kopf"


def test_the_namespaces_of_the_command_that_was_started() -> None:
    assert namespaces_of_command() == ()
    with click.Context(click.Command("run")) as context:
        context.params["namespaces"] = ("shop", "bank")
        assert namespaces_of_command() == ("shop", "bank")


@pytest.mark.server
def test_the_garbage_collector_does_not_examine_imported_modules() -> None:
    script = "import gc, main; print(gc.get_freeze_count() > 10 * len(gc.get_objects()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=MAIN.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_the_operator_runs_under_its_own_identity(shared: Shared) -> None:
    until(
        lambda: shared.operator.probe("/readyz") == (200, "ok\n"),
        lambda: f"never ready: {shared.operator.probe('/readyz')}",
    )
    assert shared.operator.probe("/livez") == (200, "ok\n")
    said = shared.operator.log
    assert f"jobgroup-operator {__version__}" in said
    assert "forbidden" not in said.lower()
