"""Planning a large object lets other tasks run."""

import asyncio
from typing import Any

from handlers.jobgroups.planning import plan_object
from handlers.kube.refs import ref_of
from jobgroup.definition.plan import plan_group
from jobgroup.resource.jobgroup_spec import parse_definition
from tests.jobgroup.definition.definitions import large_group


def made(jobs: int) -> dict[str, Any]:
    """Return an object as the API server returns it."""
    metadata = {"name": "order", "namespace": "shop", "uid": "u"}
    return {"kind": "JobGroup", "metadata": metadata, "spec": large_group(jobs)}


async def turns_during_plan(body: dict[str, Any]) -> int:
    """Plan an object; return how many turns another task had meanwhile."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(other())
    plan = await plan_object(ref_of(body), body, "cluster")
    task.cancel()
    assert plan == plan_group(parse_definition(body), "u", "cluster", "shop/order")
    return turns


async def test_other_tasks_run_between_the_slices_of_a_large_plan() -> None:
    assert await turns_during_plan(made(2000)) > 100


async def test_other_tasks_run_between_the_slices_of_few_jobs_with_much_data() -> None:
    body = made(50)
    for job in body["spec"]["jobs"]:
        job["data"] = {"values": [[n, 1.5, "x"] for n in range(500)]}
    assert await turns_during_plan(body) > 30


async def test_a_small_plan_is_not_interrupted() -> None:
    assert await turns_during_plan(made(3)) == 0
