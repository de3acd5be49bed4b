"""claim_reviews.lua on a real Redis."""

import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import Store
from jobgroup.model import names
from jobgroup.store.scripts import FOLDER
from testbed.support.waiting import eventually

LONG = 3_600_000


@pytest.fixture
def key(prefix: str) -> str:
    return names.reviewer_key(prefix)


async def test_one_driver_reviews_until_its_claim_ends(
    redis: Redis, operator_redis: Redis, prefix: str, key: str
) -> None:
    reviews = Store(operator_redis, prefix).reviews
    assert await reviews.claim("first", LONG)
    assert not await reviews.claim("second", LONG)
    assert await reviews.claim("first", 50)

    async def second_reviews() -> bool:
        return await reviews.claim("second", LONG)

    await eventually(second_reviews)
    assert not await reviews.claim("first", LONG)
    assert 0 < await redis.pttl(key) <= LONG
    await redis.delete(key)


async def test_a_driver_of_a_newer_format_takes_over(
    redis: Redis, operator_redis: Redis, prefix: str, key: str, tmp_path: Path
) -> None:
    newer = tmp_path / "lua"
    (newer / "includes").mkdir(parents=True)
    for path in FOLDER.rglob("*.lua"):
        text = re.sub(r"highest = \d+", "highest = 10", path.read_text())
        (newer / path.relative_to(FOLDER)).write_text(text)
    old, new = Store(operator_redis, prefix).reviews, Store(operator_redis, prefix, newer).reviews
    assert await old.claim("old", LONG)
    assert await new.claim("new", LONG)
    assert not await old.claim("old", LONG)
    assert await new.claim("new", LONG)
    await redis.delete(key)


async def test_a_key_of_another_type_is_replaced(
    redis: Redis, operator_redis: Redis, prefix: str, key: str
) -> None:
    await redis.rpush(key, "a stranger")
    reviews = Store(operator_redis, prefix).reviews
    assert await reviews.claim("first", LONG)
    assert not await reviews.claim("second", LONG)
    await redis.delete(key)


@pytest.mark.parametrize("end", ["none", "later"])
async def test_a_claim_that_would_last_longer_than_any_is_taken_over(
    redis: Redis, prefix: str, key: str, end: str
) -> None:
    reviews = Store(redis, prefix).reviews
    assert await reviews.claim("first", LONG)
    assert not await reviews.claim("second", LONG)
    await (redis.persist(key) if end == "none" else redis.pexpire(key, 2 * LONG))
    assert await reviews.claim("second", LONG)
    assert not await reviews.claim("first", LONG)
    await redis.delete(key)
