"""The cost per unit for more members, groups and queues.

Times are from the slow log of Redis; the result is the fastest round.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.harness import Bench, create, group
from bench.rows import Row, row
from jobgroup import JobGroups, Store

SAMPLE = 100  # jobs or groups that are created and given up in each measurement
# Milliseconds per unit: to create it, and to give it up.
Cost = tuple[float, float]


async def growth(bench: Bench) -> list[Row]:
    """Compare the cost per unit at each size with the cost per unit at size 100."""
    rows = []
    beside = {size: JobGroups(Store(bench.redis, f"at-{size}")) for size in bench.sizes.existing}

    async def members(size: int) -> Cost:
        """Return the cost per member in groups of this size."""
        return await cost(bench, bench.groups, max(1, SAMPLE // size), size, jobs=size, undo=True)

    async def queues(size: int) -> Cost:
        """Return the cost per member if each has its own queue."""
        of = {"jobs": size, "queues": [f"queue-{n}" for n in range(size)], "undo": True}
        return await cost(bench, bench.groups, max(1, SAMPLE // size), size, **of)

    async def groups(size: int) -> Cost:
        """Return the cost per group while the queues have this number of other groups."""
        return await cost(bench, beside[size], SAMPLE, 1)

    await bench.redis.flushall()
    rows += await compare(bench, "members in a group", bench.sizes.members, members)
    rows += await compare(bench, "queues of a group", bench.sizes.queues, queues)
    await bench.redis.flushall()
    await bench.watch_scripts(False)
    for size, there in beside.items():
        await create(there, size, size=200, lanes=2)
    rows += await compare(bench, "existing groups", bench.sizes.existing, groups)
    return rows


async def compare(
    bench: Bench, unit: str, sizes: Sequence[int], measure: Callable[[int], Awaitable[Cost]]
) -> list[Row]:
    """Measure all sizes in turn, and compare the cost of each with the cost at size 100."""
    costs: dict[int, list[Cost]] = {size: [] for size in sizes}
    for _ in range(bench.sizes.rounds):
        for size in sizes:
            costs[size].append(await measure(size))
    rows = []
    for n, verb in enumerate(("create", "give-up")):
        cost = {size: min(seen[n] for seen in costs[size]) for size in sizes}
        for size in sizes:
            if size != 100:
                rows.append(row(f"growth.{verb}", cost[size] / cost[100], f"{size:,} {unit}"))
    return rows


async def cost(bench: Bench, groups: JobGroups, count: int, units: int, **of: Any) -> Cost:
    """Create this number of groups and give them up; return the cost per unit."""
    await bench.watch_scripts()
    nodes = await groups.add_groups([group(**of) for _ in range(count)])
    created = sum(await bench.script_ms())
    ids = [node.group_id for node in nodes if not isinstance(node, Exception)]
    while ids:
        settled = await groups.store.settle(ids, "DeadlineExceeded")
        ids = [
            group_id
            for group_id, one in zip(ids, settled, strict=True)
            if one and not isinstance(one, Exception) and one.more
        ]
    return created / count / units, sum(await bench.script_ms()) / count / units
