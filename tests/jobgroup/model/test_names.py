"""Python, Lua and the docs use the same ids, queue names and keys."""

import json
import re
import string
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup.definition.plan import plan_group
from jobgroup.definition.spec import RESERVED_IDS, check_group_id, generate_group_id, parse_group
from jobgroup.model import names
from jobgroup.store.scripts import FOLDER
from jobgroup.store.store import Store
from testbed import ROOT
from testbed.support.fixtures import ClientStarter

BULLMQ = ROOT / "testbed/workers/node_modules"
# What the scripts of BullMQ append to the key of a job or of a parent.
KEY_OF_A_JOB = r"""(?:job|jobId|parent)Key \.\. ["']:([a-z-]+)["']"""
# The columns of docs/redis-keys.md use these names.
PLACEHOLDERS = {"bull:{queue}": "B", "bull:_jobgroups": "J"}


async def run_lua(redis: Redis, *includes: str, expression: str) -> Any:
    """Evaluate a Lua expression with some includes."""
    texts = [(FOLDER / f"includes/{name}.lua").read_text() for name in includes]
    return json.loads(
        await redis.eval("\n".join([*texts, f"return cjson.encode({expression})"]), 0)
    )


async def keys_in_lua(redis: Redis, prefix: str, group_id: str, queue: str) -> dict[str, str]:
    expression = f'keys_of("{prefix}", "{group_id}", "{queue}")'
    found: dict[str, str] = await run_lua(redis, "names", "keys_of", expression=expression)
    return found


async def owned_keys(redis: Redis, prefix: str, group_id: str, queue: str) -> set[str]:
    expression = f'owned_keys(keys_of("{prefix}", "{group_id}", "{queue}"))'
    return set(await run_lua(redis, "names", "keys_of", "owned_keys", expression=expression))


async def test_python_and_lua_use_the_same_names(redis: Redis) -> None:
    expression = (
        '{ names.job_id("g-1", 7), names.undo_id("g-1-7"), names.undo_queue("payments"),'
        ' names.job_key("bull", "payments", "g-1-7"), names.headless,'
        ' names.index_of("bull:payments:g-1-7"), names.group_of_wakeup("g-1-undo"),'
        ' names.end_job_id("g-1", 3, 12) }'
    )
    assert await run_lua(redis, "names", expression=expression) == [
        names.job_id("g-1", 7),
        names.undo_id("g-1-7"),
        names.undo_queue("payments"),
        names.job_key("bull", "payments", "g-1-7"),
        names.HEADLESS,
        names.job_index("g-1-7"),
        names.group_of_wakeup("g-1-undo"),
        names.end_job_id("g-1", 3, 12),
    ]


@pytest.mark.parametrize("bits", [0, 1, 61, 62, 2**64, 2**127, 2**128 - 1])
def test_a_generated_id_has_all_bits_and_is_no_integer(bits: int) -> None:
    made = names.generated_id(bits)
    assert check_group_id(made) == made
    assert re.fullmatch("[A-Za-z][A-Za-z0-9]{21}", made)
    digits = string.ascii_letters + string.digits
    value = 0
    for digit in made:
        value = value * 62 + digits.index(digit)
    assert value == bits


def test_generated_ids_are_not_reserved_and_differ() -> None:
    assert not any(len(word) == len(names.generated_id(0)) for word in RESERVED_IDS)
    made = [generate_group_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    # Every position after the first varies: no bit is lost.
    assert all(len(set(position)) > 30 for position in list(zip(*made, strict=True))[2:])


def test_only_one_include_spells_the_names() -> None:
    spelt = re.compile(f'{names.UNDO_SUFFIX}["\':]|{names.UNDO_QUEUE_SUFFIX}|"{names.HEADLESS}"')
    files = {path.name for path in FOLDER.rglob("*.lua") if spelt.search(path.read_text())}
    assert files == {"names.lua"}


def test_a_job_id_ends_with_its_index() -> None:
    assert names.job_index(names.job_id("g-1", 7)) == 7


@pytest.mark.parametrize("prefix", ["bull", "{bull}"])
async def test_python_and_lua_name_the_same_keys(redis: Redis, prefix: str) -> None:
    keys = await keys_in_lua(redis, prefix, "g1", "payments")
    assert keys["ledger"] == names.ledger_key(prefix)
    assert keys["group"] == names.group_key(prefix, "payments", "g1")
    assert keys["parent"] == names.parent_key(prefix, "g1")
    assert keys["undo"] == names.undo_id(names.parent_key(prefix, "g1"))
    assert keys["parked"] == names.parked_key(prefix)
    assert keys["wakeups"] == names.wakeups_key(prefix)
    assert keys["marker"] == names.marker_key(prefix)
    assert keys["wakeup_events"] == names.events_key(prefix, names.LEDGER_QUEUE)
    assert keys["owner_changes"] == names.owner_changes_key(prefix, "")
    assert keys["events"] == names.events_key(prefix, "payments")
    assert keys["released"] == names.released_key(prefix)
    assert keys["queues"] == names.owning_queues_key(prefix)
    assert keys["tomb"] == names.tombstone_key(prefix, "g1")


async def test_every_key_belongs_to_one_group_or_to_all(redis: Redis) -> None:
    keys = await keys_in_lua(redis, "bull", "g1", "payments")
    shared = {"ledger", "parked", "wakeups", "marker", "wakeup_events", "owner_changes"}
    shared |= {"index", "events", "released", "due", "queues", "tomb"}
    owned = await owned_keys(redis, "bull", "g1", "payments")
    never = {"sealed", "undo_sealed"}
    assert owned == {key for name, key in keys.items() if name not in shared | never}


async def all_keys(redis: Redis) -> set[str]:
    """Return the keys that Lua or Python use, apart from those of BullMQ's queues."""
    keys = await keys_in_lua(redis, "bull", "{id}", "{queue}")
    own = {key for name, key in keys.items() if name not in {"ledger", "events", "owner_changes"}}
    return own | {
        names.incarnation_key("bull"),
        names.reviewer_key("bull"),
        names.owner_changes_key("bull", "{owner}"),
        names.checkpoints_key("bull", "{owner}"),
    }


async def test_the_docs_list_every_key(redis: Redis) -> None:
    # BullMQ's own hash of a queue has a field of ours.
    expected = await all_keys(redis) | {names.job_key("bull", "{queue}", "meta")}
    for base, letter in PLACEHOLDERS.items():
        expected = {re.sub(f"^{re.escape(base)}(?=:)", letter, key) for key in expected}
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs/redis-keys.md").read_text(), re.MULTILINE)
    assert {key for row in rows for key in re.findall("`([^`]+)`", row)} == expected


async def test_no_group_can_have_an_id_that_is_another_key(redis: Redis) -> None:
    below = [
        key.split(":")[2] for key in await all_keys(redis) if key.startswith("bull:_jobgroups:")
    ]
    ours = {word for word in below if "{id}" not in word}
    assert ours <= RESERVED_IDS
    for version in ("bullmq5", "bullmq6"):
        text = (BULLMQ / version / "dist/cjs/classes/queue-keys.js").read_text()
        bullmqs = set(re.findall(r"^ +'([a-z-]+)',", text, re.MULTILINE))
        assert {"wait", "meta", "events"} < bullmqs <= RESERVED_IDS


def test_no_group_has_a_key_that_looks_like_one_of_a_job() -> None:
    backend = (BULLMQ / "bullmq6/dist/cjs/classes/redis-queue-backend.js").read_text()
    (orphans,) = re.findall(r"jobSubKeySuffixes = \[(.*?)\]", backend, re.DOTALL)
    words = set(re.findall("'([a-z-]+)'", orphans))
    assert {"logs", "lock", "processed"} < words
    for version in ("bullmq5", "bullmq6"):
        scripts = (BULLMQ / version / "dist/cjs/commands").rglob("*.lua")
        texts = [path.read_text() for path in scripts]
        words |= {each for text in texts for each in re.findall(KEY_OF_A_JOB, text)}
    assert words <= RESERVED_IDS


async def test_removing_orphaned_jobs_deletes_no_group(
    redis: Redis, operator_redis: Redis, prefix: str, start_client: ClientStarter
) -> None:
    source = (BULLMQ / "bullmq6/dist/cjs/classes/redis-queue-backend.js").read_text()
    words = set(re.findall("'([a-z]+)'", source))
    assert words & RESERVED_IDS
    store = Store(operator_redis, prefix)
    group = parse_group("order", [{"name": "charge", "queueName": "payments"}])
    ids = sorted(words - RESERVED_IDS)
    assert set(await store.create([plan_group(group, group_id) for group_id in ids])) == {True}
    client = await start_client("bullmq6")
    # BullMQ takes the sorted set `groups` for a job.
    assert await client.manage("payments", "removeOrphanedJobs") <= 1
    assert [found.id for found in await store.read_many(ids)] == ids
    await redis.delete(*[key async for key in redis.scan_iter(f"{prefix}:*", count=1000)])


def test_an_entry_of_the_wake_up_list_names_its_group() -> None:
    assert names.group_of_wakeup("g1") == names.group_of_wakeup("g1-undo") == "g1"
    assert names.group_of_wakeup("undo") == "undo"


def test_streams_and_checkpoints_have_the_name_of_their_owner() -> None:
    assert names.owner_changes_key("bull", "c1") == "bull:_jobgroups:changed:c1"
    assert names.checkpoints_key("bull", "c1") == "bull:_jobgroups:heard:c1"
