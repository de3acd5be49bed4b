"""The loader: headers become signatures, includes become one text."""

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup.model import names
from jobgroup.store.scripts import FOLDER, ScriptError, load

HEADER = """--[[
  Add.

  KEYS[1] total   string
  ARGV[1] amount  an integer
]]
"""


def write(folder: Path, **scripts: str) -> Path:
    (folder / "includes").mkdir()
    for name, text in scripts.items():
        (folder / f"{name.replace('__', '/')}.lua").write_text(text)
    return folder


def test_the_header_is_the_signature(tmp_path: Path) -> None:
    script = load("add", write(tmp_path, add=HEADER))
    assert (script.keys, script.args) == (("total",), ("amount",))


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.lua")))
def test_every_call_declares_a_key_that_never_exists(name: str) -> None:
    script = load(name)
    slots = {slot: f"{{x}}:{slot}" for slot in script.keys + script.args}
    command, _, number, *values = script.command(**slots)
    assert command == "EVALSHA"
    keys = [slots[slot] for slot in script.keys]
    assert keys
    assert values[:number] == [*keys, names.guard_key(keys[0])]
    assert values[number:] == [slots[slot] for slot in script.args]
    assert names.guard_key(keys[0]).startswith("{x}:")


async def test_slots_reach_the_script_by_name(tmp_path: Path, redis: Redis, prefix: str) -> None:
    add = load("add", write(tmp_path, add=HEADER + 'return KEYS[1] .. " " .. ARGV[1]'))
    assert await add(redis, amount=3, total=f"{prefix}:t") == f"{prefix}:t 3"


async def test_a_script_survives_a_flush_of_the_servers_cache(tmp_path: Path, redis: Redis) -> None:
    add = load("add", write(tmp_path, add=HEADER + "return ARGV[1]"))
    assert await add(redis, amount=1, total="t") == "1"
    await redis.script_flush()
    assert await add(redis, amount=2, total="t") == "2"


async def test_a_script_survives_a_flush_after_it_was_loaded(
    tmp_path: Path, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = load("add", write(tmp_path, add=HEADER + "return ARGV[1]"))
    script_load, loads = redis.script_load, 0

    async def load_and_flush_once(source: str) -> Any:
        nonlocal loads
        loads += 1
        loaded = await script_load(source)
        if loads == 1:
            await redis.script_flush()
        return loaded

    monkeypatch.setattr(redis, "script_load", load_and_flush_once)
    await redis.script_flush()
    assert await add(redis, amount=1, total="t") == "1"
    assert loads == 2


@pytest.mark.parametrize("slots", [{}, {"total": 1}, {"total": 1, "amount": 1, "more": 1}])
async def test_a_wrong_slot_is_a_type_error(
    tmp_path: Path, redis: Redis, slots: dict[str, Any]
) -> None:
    add = load("add", write(tmp_path, add=HEADER))
    with pytest.raises(TypeError, match="add takes"):
        await add(redis, **slots)


async def test_a_refusal_arrives_as_the_script_wrote_it(tmp_path: Path, redis: Redis) -> None:
    add = load("add", write(tmp_path, add=HEADER + 'return redis.error_reply("TOOMUCH of it")'))
    with pytest.raises(ResponseError, match=r"^TOOMUCH of it$"):
        await add(redis, amount=1, total="t")


def test_includes_come_first_depth_first_and_once(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        verb=HEADER + "-- @include outer\n-- @include inner\n-- verb",
        includes__outer="-- @include inner\n-- outer",
        includes__inner="-- @include outer\n-- inner",
    )
    words = [line for line in load("verb", folder).source.splitlines() if line.startswith("-- ")]
    assert [word for word in words if "@" not in word] == ["-- inner", "-- outer", "-- verb"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("return 1", "does not begin with"),
        ("--[[ KEYS[2] total  x ]]", "does not number its KEYS"),
        ("--[[\n KEYS[1] a  x\n ARGV[1] a  x\n]]", "name twice"),
        ("--[[ ]]\n-- @include nobody", "there is no nobody.lua"),
    ],
)
def test_an_invalid_script_is_refused_with_the_reason(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(ScriptError, match=complaint):
        load("verb", write(tmp_path, verb=text))


def test_every_shipped_script_loads() -> None:
    names = [path.stem for path in FOLDER.glob("*.lua")]
    assert names
    for name in names:
        assert load(name).name == name
