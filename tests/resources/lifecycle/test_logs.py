"""Log lines about a JobGroup name it, in text and in JSON."""

import json
from typing import Any

from handlers.kube.refs import Ref
from testbed.servers.operator import OperatorProcess
from testbed.support.resources import manifest
from testbed.support.stages import LOSE, PAY, UNDOS, Stage
from testbed.support.waiting import wait_for


def lines(operator: OperatorProcess) -> list[dict[str, Any]]:
    """Return the complete lines of the log."""
    whole = operator.log.rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def group_lines(operator: OperatorProcess) -> dict[str, dict[str, Any]]:
    """Return the lines about groups, by their first word."""
    return {line["message"].split(":")[0]: line for line in lines(operator) if "group" in line}


async def test_json_logs_have_namespace_group_and_job(stage: Stage) -> None:
    operator = stage.operator(KOPF_RUN_LOG_FORMAT="json")
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    stage.resources.reaches("order", state="FAILED")
    wait_for(lambda: "Compensated" in group_lines(operator))
    uid = stage.resources.get("order")["metadata"]["uid"]
    whose = {"namespace": stage.namespace, "jobgroup": "order", "group": uid}
    for line in group_lines(operator).values():
        assert whose.items() <= line.items()
    failed = group_lines(operator)["Failed"]
    assert failed["message"] == 'Failed: job "lose" failed: out of stock'
    assert (failed["job"], failed["severity"]) == ("lose", "warn")
    undone = group_lines(operator)["Compensated"]
    assert ("job" in undone, undone["severity"]) == (False, "info")


async def test_text_logs_start_with_the_object(stage: Stage) -> None:
    operator = stage.operator()
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    said = f'[{stage.namespace}/order] Failed: job "lose" failed: out of stock\n'
    wait_for(lambda: said in operator.log)
    stage.resources.reaches("order", state="FAILED")
    assert operator.log.count(said) == 1


def test_log_lines_of_pools_have_no_group() -> None:
    ref = {"namespace": "shop", "name": "undo", "uid": "u-1"}
    assert Ref("shop", "undo", "u-1", "workerpools").context == {
        "namespace": "shop",
        "workerpool": "undo",
        "k8s_ref": ref,
    }
