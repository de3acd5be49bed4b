"""An undo receives the exact result of its member, and a refusal writes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup import JobGroupError, JobGroups, Store
from jobgroup.definition.spec import RESERVED_IDS
from tests.json_values import json_values, same, texts
from tests.sagas.histories import instant
from tests.sagas.histories.instant import run
from tests.sagas.histories.stock_queue import StockConnection, StockQueue

RELAXED = settings(
    deadline=None,
    derandomize=False,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
QUEUES = ("a", "b")


@pytest.fixture
def client(admin_url: str, prefix: str) -> Iterator[Redis]:
    """Open a blocking client, which is not one of the project: it may do everything."""
    redis = instant.connect(admin_url, prefix)
    yield redis
    run(clear(redis, prefix))
    run(redis.aclose())


async def keys_under(redis: Redis, prefix: str) -> set[str]:
    cursor, found = 0, set[str]()
    while True:
        cursor, page = await redis.scan(cursor, f"{prefix}:*", count=1000)
        found.update(map(str, page))
        if cursor == 0:
            return found


async def clear(redis: Redis, prefix: str) -> None:
    if left := await keys_under(redis, prefix):
        await redis.unlink(*left)


async def put(redis: Redis, key: str) -> None:
    await redis.set(key, "in the way")


async def undo_data(redis: Redis, prefix: str, value: Any, escaped: bool) -> tuple[str, str]:
    """Run one member that returns a value and one that fails; return the value in the ledger
    and the data of the undo.
    """
    groups = JobGroups(Store(redis, prefix))
    queue = StockQueue(StockConnection(redis), prefix, "a")
    jobs = [{"name": name, "queueName": "a"} for name in ("charge", "ship")]
    undo = {"name": "refund", "data": {"order": 1}}
    await groups.add_group("order", jobs, {"charge": undo}, "g")
    first, second = await queue.take("t1"), await queue.take("t2")
    assert first
    assert second
    await first.complete(value, escaped)
    await second.fail("sold out", finally_=True)
    ((_, settled),) = await groups.store.wakeups.settle()
    assert settled is not None
    noted = await redis.hget(f"{prefix}:_jobgroups:g:processed", f"{prefix}:a:g-0")
    data = await redis.hget(f"{prefix}:a:compensation:g-0-undo", "data")
    return str(noted), str(data)


@RELAXED
@given(value=json_values, escaped=st.booleans())
def test_an_undo_receives_exactly_the_result_of_its_member(
    client: Redis, prefix: str, value: Any, escaped: bool
) -> None:
    noted, data = run(undo_data(client, prefix, value, escaped))
    run(clear(client, prefix))
    assert f'"originalReturnValue":{noted},"compensationData"' in data
    undo = json.loads(data)
    assert same(undo.pop("originalReturnValue"), value)
    assert undo == {
        "groupId": "g",
        "originalJobName": "charge",
        "originalJobId": "g-0",
        "compensationData": {"order": 1},
    }


def sometimes(right: st.SearchStrategy[Any], wrong: st.SearchStrategy[Any]) -> Any:
    """Draw a valid value in nine of ten cases, else an invalid one."""
    return st.integers(0, 9).flatmap(lambda n: wrong if n == 9 else right)


opts = st.fixed_dictionaries(
    {},
    optional={
        "attempts": sometimes(st.integers(1, 3), json_values),
        "delay": sometimes(st.integers(0, 10**6), json_values),
        "priority": sometimes(st.integers(0, 9), json_values),
        "lifo": sometimes(st.booleans(), json_values),
        "backoff": sometimes(st.integers(1, 10**6), json_values),
        "removeOnFail": sometimes(st.booleans(), json_values),
    },
)
jobs = st.lists(
    st.fixed_dictionaries(
        {
            "name": sometimes(st.sampled_from(["charge", "ship"]), json_values),
            "queueName": sometimes(st.sampled_from(QUEUES), json_values),
        },
        optional={
            "data": sometimes(json_values, st.just({1: 2})),
            "opts": sometimes(opts, json_values),
            "extra": json_values,
        },
    ),
    max_size=4,
)
compensation = st.none() | st.dictionaries(
    st.sampled_from(["charge", "ship"]),
    st.fixed_dictionaries(
        {"name": sometimes(st.just("undo"), json_values)},
        optional={"data": json_values, "opts": sometimes(st.just({"attempts": 2}), opts)},
    ),
)
group_ids = st.sampled_from(["g", "order-1", *RESERVED_IDS]) | texts


@RELAXED
@given(
    name=sometimes(st.just("order"), json_values),
    jobs=jobs,
    compensation=sometimes(compensation, json_values),
    group_id=group_ids,
)
def test_a_refused_group_leaves_no_keys(
    client: Redis, prefix: str, name: Any, jobs: Any, compensation: Any, group_id: str
) -> None:
    groups = JobGroups(Store(client, prefix))
    try:
        node = run(groups.add_group(name, jobs, compensation, group_id))
    except JobGroupError:
        assert run(keys_under(client, prefix)) == set()
        return
    assert {job.job_key for job in node.jobs} <= run(keys_under(client, prefix))
    state = run(groups.get_group_state(node.group_id))
    assert state is not None
    assert (state.name, state.total_jobs) == (name, len(jobs))
    run(clear(client, prefix))


@pytest.mark.parametrize(
    ("key", "opts"),
    [
        ("b:meta", {}),
        ("b:wait", {}),
        ("b:marker", {}),
        ("b:events", {}),
        ("b:delayed", {"delay": 1000}),
        ("b:prioritized", {"priority": 1}),
        ("a:groups", {}),
        ("a:groups:g", {}),
        ("a:groups:g:jobs", {}),
        ("_jobgroups:g", {}),
        ("_jobgroups:g:dependencies", {}),
        ("_jobgroups:waiting-children", {}),
    ],
)
def test_a_conflicting_key_refuses_the_whole_group(
    client: Redis, prefix: str, key: str, opts: dict[str, Any]
) -> None:
    run(put(client, f"{prefix}:{key}"))
    jobs: list[dict[str, Any]]
    jobs = [{"name": "first", "queueName": "a"}, {"name": "x", "queueName": "b", "opts": opts}]
    with pytest.raises((JobGroupError, ResponseError)):
        run(JobGroups(Store(client, prefix)).add_group("order", jobs, None, "g"))
    assert run(keys_under(client, prefix)) == {f"{prefix}:{key}"}
