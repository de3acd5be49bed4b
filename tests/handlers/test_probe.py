"""The command that prints the answer of a probe."""

import pytest

from handlers.probe import main
from testbed.servers.processes import free_port
from testbed.support.stages import Stage
from testbed.support.waiting import wait_for


@pytest.mark.parametrize("arguments", [[], ["healthz"], ["livez", "readyz"]])
def test_other_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, {}) == 2
    said = "usage: python -m handlers.probe livez|readyz|metrics\n"
    assert capsys.readouterr().err == said


def test_an_invalid_port_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["readyz"], {"PORT": "http"}) == 2
    assert capsys.readouterr().err == "PORT: 'http' must be a number from 0 to 65535\n"


@pytest.mark.server
def test_an_operator_that_does_not_answer_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["readyz"], {"PORT": str(port)}) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"the operator does not answer at port {port}: ")
    assert shown.err.count("\n") == 1


def test_the_answer_of_a_failing_probe_is_printed(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = stage.operator()
    stage.redis.kill()
    wait_for(lambda: operator.probe("/readyz")[0] == 503)
    assert main(["readyz"], {"PORT": str(operator.port)}) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("redis: Redis at 127.0.0.1:")
    assert printed.endswith("\n")
    assert not printed.endswith("\n\n")
    assert main(["livez"], {"PORT": str(operator.port)}) == 0
    assert capsys.readouterr().out == "ok\n"
