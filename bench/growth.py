"""The cost per unit for more members, groups and queues, and the memory of a group.

Times are from the slow log of Redis; the result is the fastest round.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.harness import DATA, QUEUES, Bench, Row, create, group
from jobgroup import JobGroups, Store

SAMPLE = 100  # jobs or groups that are created and given up in each measurement
# Milliseconds per unit: to create it, and to give it up.
Cost = tuple[float, float]


async def growth(bench: Bench) -> list[Row]:
    """Compare the cost per unit at each size with the cost per unit at size 100."""
    rows = await memory(bench)
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
    for n, verb in enumerate(("create", "give up")):
        cost = {size: min(seen[n] for seen in costs[size]) for size in sizes}
        for size in sizes:
            if size != 100:
                what = f"{verb}: {size:,} {unit} over 100"
                bar = 1.5 if size == max(sizes) else None
                rows.append(Row(what, cost[size] / cost[100], at_most=bar))
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
            one.group.id for one in settled if one and not isinstance(one, Exception) and one.more
        ]
    return created / count / units, sum(await bench.script_ms()) / count / units


async def memory(bench: Bench) -> list[Row]:
    """Compare the memory of groups with the memory of jobs without a group."""
    count = bench.sizes.groups
    flow = {"count": count, "queues": QUEUES, "data": DATA, "size": 100, "lanes": 1}

    async def used(make: Awaitable[Any]) -> float:
        await bench.redis.flushall()
        await make
        pipeline = bench.redis.pipeline(transaction=False)
        async for key in bench.redis.scan_iter("*", count=1000):
            pipeline.memory_usage(key, samples=0)
        return float(sum(await pipeline.execute())) / count

    bare = await used(bench.bullmq("jobs", count=count, queues=QUEUES, data=DATA))
    flows = await used(bench.bullmq("flows", **flow))
    ours = await used(create(bench.groups, count))
    with_undos = await used(create(bench.groups, count, undo=True))
    return [
        Row("memory of a group of 3, over 3 bare jobs", ours / bare),
        Row("  each job with an undo", with_undos / bare),
        Row("  of a BullMQ flow of 3", flows / bare),
        Row("memory of 3 bare jobs", bare, "bytes"),
    ]
