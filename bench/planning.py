"""How long a reconcile that creates a large JobGroup holds the event loop of the operator.

All objects share one event loop, so that the longest step of one delays all others. No worker runs
the jobs.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.field import FOLDER, Field, ready, the_field
from bench.harness import DATA, Bench
from bench.rows import Row, row
from testbed.servers.operator import start_operator
from testbed.support.resources import manifest
from testbed.support.waiting import eventually

STEPPED = Path(__file__).with_name("stepped.py")
UNDO = {"name": "undoes", "data": {"note": "x"}}


async def planning(bench: Bench) -> list[Row]:
    """Create large JobGroups one after the other, with and without undos."""
    count, jobs = bench.sizes.large_plans, bench.sizes.large_jobs
    member = {"queueName": "unattended", "data": {"note": DATA["note"][:40]}}
    names = [f"job-{n}" for n in range(jobs)]
    members = [{"name": name, **member} for name in names]
    undos = dict.fromkeys(names, UNDO)
    cases = {f"{jobs:,} jobs": manifest("plain", *members)}
    cases[f"{jobs:,} jobs with undos"] = manifest("undone", *members, undos=undos)
    async with the_field() as field:
        file = field.folder / "steps"
        with start_operator(
            *(field.folder, field.api.operator, field.redis.url, "bull", "stepped", STEPPED),
            STEPS_FILE=str(file),
        ) as process:
            await ready(field, process)
            for n in range(count):
                for made in cases.values():
                    await create(field, made, f"{made['metadata']['name']}-{n}")
        longest: dict[str, list[float]] = defaultdict(list)
        for line in file.read_text().splitlines():
            name, milliseconds = line.split()
            longest[name].append(float(milliseconds))
    return [
        row(
            "planning.longest-step",
            [max(longest[f"{made['metadata']['name']}-{n}"]) for n in range(count)],
            case,
        )
        for case, made in cases.items()
    ]


async def create(field: Field, made: dict[str, Any], name: str) -> None:
    """Create an object; wait until its status is ACTIVE."""
    await field.admin.request("POST", FOLDER, {**made, "metadata": {"name": name}})
    active = f"{FOLDER}?fieldSelector=metadata.name={name},status.state=ACTIVE"

    async def is_active() -> bool:
        return bool((await field.admin.request("GET", active))["items"])

    await eventually(is_active)
