"""Keys are spelt in two places, Python and Lua: they must agree."""

import json

import pytest
from redis.asyncio import Redis

from jobgroup import keys
from jobgroup.scripts import FOLDER

KEYS_OF = (FOLDER / "includes/keys_of.lua").read_text()


@pytest.mark.parametrize("prefix", ["bull", "{bull}"])
async def test_python_and_lua_name_the_same_keys(redis: Redis, prefix: str) -> None:
    source = f"{KEYS_OF}\nreturn cjson.encode(keys_of(ARGV[1], ARGV[2], ARGV[3]))"
    spelt = json.loads(await redis.eval(source, 0, prefix, "g1", "payments"))
    assert spelt["books"] == keys.books(prefix)
    assert spelt["parent"] == keys.parent(prefix, "g1")
    assert spelt["parked"] == keys.parked(prefix)
    assert spelt["wakeups"] == keys.wakeups(prefix)
    assert spelt["events"] == keys.events(prefix, "payments")
    assert spelt["undo"] == keys.parent(prefix, "g1") + keys.UNDO


def test_an_entry_of_the_wake_up_list_leads_to_its_group() -> None:
    assert keys.group_of("g1") == keys.group_of("g1-undo") == "g1"
    assert keys.group_of("undo") == "undo"


def test_a_jobs_key_is_where_bullmq_looks_for_it() -> None:
    assert keys.job("bull", "payments", "g1-0") == "bull:payments:g1-0"
    assert keys.marker("bull") == "bull:_jobgroups:marker"


def test_what_an_owner_is_told_stands_under_its_name() -> None:
    assert keys.changed("bull", "c1") == "bull:_jobgroups:changed:c1"
    assert keys.heard("bull", "c1") == "bull:_jobgroups:heard:c1"
