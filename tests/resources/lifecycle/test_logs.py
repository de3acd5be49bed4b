"""A line about a JobGroup says which one it is about, to people and to programs."""

import json
from typing import Any

from handlers.cluster import Ref
from testbed.operators import OperatorProcess
from testbed.resources import manifest
from testbed.stages import LOSE, PAY, UNDOS, Stage
from testbed.waiting import wait_for


def lines(operator: OperatorProcess) -> list[dict[str, Any]]:
    """Return what was logged, but for a line that is being written just now."""
    whole = operator.log.rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def news(operator: OperatorProcess) -> dict[str, dict[str, Any]]:
    """Return the lines about groups, by their first word."""
    return {line["message"].split(":")[0]: line for line in lines(operator) if "group" in line}


async def test_a_program_reads_namespace_group_and_job(stage: Stage) -> None:
    operator = stage.operator(KOPF_RUN_LOG_FORMAT="json")
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    stage.resources.reaches("order", state="FAILED")
    wait_for(lambda: "Compensated" in news(operator))
    uid = stage.resources.get("order")["metadata"]["uid"]
    whose = {"namespace": stage.namespace, "jobgroup": "order", "group": uid}
    for line in news(operator).values():
        assert whose.items() <= line.items()
    failed = news(operator)["Failed"]
    assert failed["message"] == 'Failed: job "lose" failed: out of stock'
    assert (failed["job"], failed["severity"]) == ("lose", "warn")
    undone = news(operator)["Compensated"]
    assert ("job" in undone, undone["severity"]) == (False, "info")


async def test_a_person_reads_which_object_a_line_is_about(stage: Stage) -> None:
    operator = stage.operator()
    await stage.worker()
    stage.resources.apply(manifest("order", PAY, LOSE, undos=UNDOS))
    said = f'[{stage.namespace}/order] Failed: job "lose" failed: out of stock\n'
    wait_for(lambda: said in operator.log)
    stage.resources.reaches("order", state="FAILED")
    assert operator.log.count(said) == 1


def test_a_pool_is_no_group() -> None:
    ref = {"namespace": "shop", "name": "undo", "uid": "u-1"}
    assert Ref("shop", "undo", "u-1", "workerpools").context == {
        "namespace": "shop",
        "workerpool": "undo",
        "k8s_ref": ref,
    }
