"""Objects that lose the operator's finalizer and annotation because a user replaces them."""

import json

from testbed.support.resources import manifest
from testbed.support.stages import PAY, UNDOS, WAIT, Stage
from testbed.support.waiting import wait_for

ORDER = manifest("order", PAY, WAIT, undos=UNDOS)


def replace(stage: Stage, order: dict[str, object]) -> None:
    stage.resources.kubectl("replace", "-f", "-", stdin=json.dumps(order))


def is_held(stage: Stage, name: str) -> bool:
    meta = stage.resources.get(name)["metadata"]
    return bool(meta.get("finalizers") and meta.get("annotations"))


async def test_a_replaced_object_of_a_running_group_is_claimed_again(stage: Stage) -> None:
    stage.operator()
    worker = await stage.worker()
    stage.resources.apply(ORDER)
    stage.resources.reaches("order", progress="1/2")
    replace(stage, ORDER)
    wait_for(lambda: is_held(stage, "order"))
    stage.resources.delete("order")
    await worker.heard("started", name="refund")
    await worker.release("wait")
    stage.resources.goes("order")
    assert await stage.runs(worker, name="pay") == 1


async def test_a_replaced_object_of_an_ended_group_is_claimed_again(stage: Stage) -> None:
    stage.operator()
    await stage.worker()
    order = manifest("order", PAY)
    stage.resources.apply(order)
    stage.resources.reaches("order", state="COMPLETED")
    uid = stage.resources.get("order")["metadata"]["uid"]
    replace(stage, order)
    wait_for(lambda: is_held(stage, "order"))
    stage.resources.delete("order")
    stage.resources.goes("order")
    left = [key for key in stage.store.scan_iter(f"*{uid}*") if ":tomb:" not in key]
    assert left == []


async def test_an_object_without_its_annotation_and_group_is_not_run_again(stage: Stage) -> None:
    worker = await stage.worker()
    with stage.operator():
        stage.resources.apply(ORDER)
        stage.resources.reaches("order", state="ACTIVE", progress="1/2")
    replace(stage, ORDER)
    stage.store.flushall()
    stage.operator("heir")
    stage.resources.stalls("order", "RedisStateLost")
    assert await stage.runs(worker, name="pay") == 1
