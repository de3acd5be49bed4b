"""The fixtures have each key and field that docs/redis-keys.md lists, and are never rewritten."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from jobgroup.model.snapshot import STATES
from testbed import ROOT
from testbed.servers.redis import RedisServer
from testbed.servers.stock import FLAVOURS
from testbed.support.raw_keys import Keys
from tests.sagas.frozen.freeze import HERE, PREFIX, file_of, freeze, highest_format, main
from tests.sagas.frozen.stories import STORIES

PAGE = (ROOT / "docs/redis-keys.md").read_text()
FIXTURES: dict[str, dict[str, Any]] = {
    f"{path.parent.name}/{path.stem}": json.loads(path.read_text())
    for path in sorted(HERE.glob("format-*/*.json"))
}
LEDGERS = f"{PREFIX}:_jobgroups:"
# A stock client writes it if somebody uses it on the pseudo queue.
META = f"{LEDGERS}meta"
# A member that completed, or a resolved undo, names one of them as its parent.
NEVER = {"J:{id}:sealed", "J:{id}-undo:sealed"}
# Keys that a worker takes, or that expire before a slow machine reads them.
PASSING = {f"{LEDGERS}marker", f"{LEDGERS}saga:reviewer"}
PRIORITY_1 = 2**32


def first_cells(section: str) -> list[str]:
    """Return the first cell of each row of the first table after a heading."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    return [row for row in rows[1:] if not row.startswith("-")]


def pattern(key: str, fixture: dict[str, Any]) -> str:
    """Return a regular expression for a key of the page in a fixture."""
    groups = fixture["groups"]
    owners = {"headless", *(group["owner"] for group in groups.values())}
    found = re.escape(key).replace(r"\{id\}", f"(?:{'|'.join(map(re.escape, groups))})")
    found = found.replace(r"\{owner\}", f"(?:{'|'.join(owners)})")
    found = re.sub("^J", f"{PREFIX}:_jobgroups", found)
    return re.sub("^B", rf"{PREFIX}:(?!_jobgroups)[^:]+(?::compensation)?", found)


def documented_keys() -> set[str]:
    """Return the keys that the page lists."""
    text, _, _ = PAGE.partition("\n## ")
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return {key for row in rows for key in re.findall("`([^`]+)`", row)}


def is_ours(key: str) -> bool:
    """Return whether a key belongs to this project, and not to a queue."""
    return key.startswith(LEDGERS) or bool(re.match(rf"{PREFIX}:[^:]+:groups(:|$)", key))


def hashes(name: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Return the hashes of a kind: fixture, key and content."""
    for title, fixture in FIXTURES.items():
        for key, found in fixture["keys"].items():
            if re.fullmatch(pattern(name, fixture), key):
                yield title, key, found["value"]


def test_every_documented_key_is_frozen() -> None:
    seen = {
        key
        for key in documented_keys()
        for fixture in FIXTURES.values()
        if any(re.fullmatch(pattern(key, fixture), each) for each in fixture["keys"])
    }
    assert documented_keys() - seen == NEVER


def test_every_frozen_key_is_documented() -> None:
    strange = {
        f"{title}: {key}"
        for title, fixture in FIXTURES.items()
        for key in fixture["keys"]
        if is_ours(key) and key != META
        if not any(re.fullmatch(pattern(each, fixture), key) for each in documented_keys())
    }
    assert strange == set()


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("Fields of the hash of a group", "B:groups:{id}"),
        ("Fields of the pseudo parent", "J:{id}"),
    ],
)
def test_the_frozen_fields_are_those_that_are_documented(section: str, key: str) -> None:
    listed = {field for row in first_cells(section) for field in row.split(", ")}
    frozen = {
        re.sub(rf":{PREFIX}:.*", ":{key}", field) for *_, value in hashes(key) for field in value
    }
    # Only while more than 200 undos of a group are retried.
    assert frozen == listed - {"retrying"}


def test_the_pseudo_parent_of_undos_lists_each_undo_and_what_happened_to_some() -> None:
    fields = {field for *_, value in hashes("J:{id}-undo") for field in value}
    # What stock clients read of a job; groups of earlier releases lack it.
    fields -= {"name", "timestamp", "delay", "priority"}
    undos = {field for field in fields if field.startswith(f"{PREFIX}:")}
    notes = {field.partition(":")[0] for field in fields - undos}
    assert undos
    # The note `started` is about an undo that BullMQ 5 lost together with a list.
    assert notes == {"removed", "defa"}


def members() -> Iterator[tuple[Keys, str, str, dict[str, str]]]:
    """Return the members that exist: all keys, the base key of the queue, id and hash."""
    for fixture in FIXTURES.values():
        keys = fixture["keys"]
        ids = "|".join(map(re.escape, fixture["groups"]))
        for key, found in keys.items():
            base, _, job_id = key.rpartition(":")
            if re.fullmatch(rf"({ids})-\d+(-undo)?", job_id) and "name" in found["value"]:
                yield keys, base, job_id, found["value"]


def test_the_fields_of_members_have_each_of_their_meanings() -> None:
    found = [(job_id, job) for _, _, job_id, job in members() if not job_id.endswith("-undo")]
    parents = {job["parentKey"].replace(job_id.rpartition("-")[0], "{id}") for job_id, job in found}
    assert parents == {f"{LEDGERS}{{id}}", f"{LEDGERS}{{id}}:sealed"}
    values = [job.get("returnvalue") for _, job in found]
    assert None in values
    assert "null" in values
    assert set(values) - {None, "null"}
    doomed = [job for _, job in found if "defa" in job]
    assert doomed
    assert all('"removeOnFail":true' in job["opts"] for job in doomed)
    assert any('"removeOnFail":false' in job["opts"] for _, job in found)


def place(keys: Keys, base: str, job_id: str) -> str:
    """Return where a job is in its queue."""
    places = ("wait", "paused", "active", "delayed", "prioritized", "completed", "failed")
    (found,) = [
        name
        for name in (*places, "waiting-children")
        if job_id in keys.get(f"{base}:{name}", {"value": ()})["value"]
    ]
    if found == "prioritized" and keys[f"{base}:{found}"]["value"][job_id] < PRIORITY_1:
        return "held"
    return str(found)


def test_members_and_undos_are_wherever_they_can_be() -> None:
    seen: dict[bool, set[str]] = {False: set(), True: set()}
    for keys, base, job_id, _ in members():
        seen[job_id.endswith("-undo")].add(place(keys, base, job_id))
    anywhere = {"wait", "active", "delayed", "held", "completed", "failed"}
    assert seen[True] == anywhere
    assert seen[False] == anywhere | {"paused", "prioritized", "waiting-children"}


def test_there_are_groups_in_every_state_and_members_of_every_status() -> None:
    assert {value["state"] for *_, value in hashes("B:groups:{id}")} == set(STATES)
    statuses = {status for *_, value in hashes("B:groups:{id}:jobs") for status in value.values()}
    assert statuses == {"pending", "active", "completed", "failed", "cancelled"}
    assert {fixture["client"] for fixture in FIXTURES.values()} == set(FLAVOURS)


def test_each_story_has_a_fixture_in_the_folder_of_its_format() -> None:
    assert set(HERE.glob("format-*/*.json")) == set(map(file_of, STORIES.values()))
    assert {story.format for story in STORIES.values()} <= set(range(1, highest_format() + 1))


def test_an_existing_fixture_is_not_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(STORIES["waiting"])
    before = file.read_bytes()
    assert main(["waiting"]) == 2
    assert "waiting exists. It is never written again." in capsys.readouterr().err
    assert main([]) == 0
    assert file.read_bytes() == before


@pytest.fixture(scope="module")
def empty_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Redis for stories, which delete all its keys."""
    with RedisServer(tmp_path_factory.mktemp("stories")) as redis:
        yield redis.url


@pytest.mark.parametrize("name", STORIES)
async def test_this_release_writes_what_others_of_its_format_need(
    empty_redis: str, name: str
) -> None:
    """More keys and fields are allowed: earlier releases of the format do not read them."""
    frozen: Keys = json.loads(file_of(STORIES[name]).read_text())["keys"]
    written: Keys = (await freeze(STORIES[name], empty_redis))["keys"]
    assert {key for key in frozen.keys() - written.keys() if is_ours(key)} <= PASSING
    for key in filter(is_ours, frozen.keys() & written.keys()):
        assert written[key]["type"] == frozen[key]["type"]
        if frozen[key]["type"] == "hash":
            assert frozen[key]["value"].keys() <= written[key]["value"].keys()
