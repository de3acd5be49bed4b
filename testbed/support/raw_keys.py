"""The raw keys below a prefix as JSON, and back: type, content, and time to live of each key.

Hashes and lists keep their order. A time to live is in milliseconds, rounded up to a second.
"""

import asyncio
import json
import math
from typing import Any, cast

from redis.asyncio import Redis

from testbed.support.waiting import PATIENCE_SECONDS

Keys = dict[str, dict[str, Any]]
WIDTH = 100


async def dump(redis: Redis, prefix: str) -> Keys:
    """Read all keys below a prefix, by name."""
    names = sorted([key async for key in redis.scan_iter(f"{prefix}:*", count=1000)])
    keys = {name: await _read(redis, name) for name in names}
    return {name: key for name, key in keys.items() if key["type"] != "none"}


async def dump_at_rest(redis: Redis, prefix: str) -> Keys:
    """Read all keys below a prefix as soon as two reads in a row find the same."""
    before: Keys = {}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while without_ttl(before) != without_ttl(keys := await dump(redis, prefix)):
            before = keys
            await asyncio.sleep(0.1)
    return keys


def without_ttl(keys: Keys) -> Keys:
    """Return the keys without their times to live, which pass."""
    return {
        name: {part: value for part, value in key.items() if part != "ttl"}
        for name, key in keys.items()
    }


async def _read(redis: Redis, name: str) -> dict[str, Any]:
    kind = await redis.type(name)
    key: dict[str, Any] = {"type": kind}
    if (ttl := await redis.pttl(name)) > 0:
        key["ttl"] = math.ceil(ttl / 1000) * 1000
    match kind:
        case "string":
            value: Any = await redis.get(name)
        case "hash":
            value = await cast(Any, redis.hgetall(name))
        case "list":
            value = await cast(Any, redis.lrange(name, 0, -1))
        case "set":
            value = sorted(await cast(Any, redis.smembers(name)))
        case "zset":
            pairs = cast(Any, await redis.zrange(name, 0, -1, withscores=True))
            value = {member: _number(score) for member, score in pairs}
        case "stream":
            value = [list(entry) for entry in cast(Any, await redis.xrange(name))]
        case "none":  # it is gone since then
            value = None
        case _:
            raise ValueError(f"{name} is a {kind!s}")
    return {**key, "value": value}


def _number(score: float) -> float:
    return int(score) if score.is_integer() else score


async def restore(redis: Redis, keys: Keys) -> None:
    """Write keys that do not exist yet."""
    pipeline: Any = redis.pipeline(transaction=True)
    for name, key in keys.items():
        value = key["value"]
        match key["type"]:
            case "string":
                pipeline.set(name, value)
            case "hash":
                pipeline.hset(name, mapping=value)
            case "list":
                pipeline.rpush(name, *value)
            case "set":
                pipeline.sadd(name, *value)
            case "zset":
                pipeline.zadd(name, value)
            case "stream":
                for entry, fields in value:
                    pipeline.xadd(name, fields, id=entry)
        if ttl := key.get("ttl"):
            pipeline.pexpire(name, ttl)
    await pipeline.execute()


def to_text(value: Any) -> str:
    """Return JSON in which each value that fits has a line of its own."""
    return _layout(value, 0) + "\n"


def _layout(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    fits = depth > 2 and len(flat) + depth <= WIDTH
    if fits or not value or not isinstance(value, (dict, list, tuple)):
        return flat
    inner = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        names = [json.dumps(name, ensure_ascii=False) for name in value]
        contents = [_layout(each, depth + 1) for each in value.values()]
        parts = [f"{name}: {each}" for name, each in zip(names, contents, strict=True)]
        return f"{{{inner}{f',{inner}'.join(parts)}\n{' ' * depth}}}"
    parts = [_layout(each, depth + 1) for each in value]
    return f"[{inner}{f',{inner}'.join(parts)}\n{' ' * depth}]"
