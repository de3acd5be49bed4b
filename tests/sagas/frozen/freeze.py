"""Writes the fixtures of stories.py that do not exist yet: `make freeze`.

Usage: python -m tests.sagas.frozen.freeze [STORY ...]. Without names, all stories that have no
fixture for the format that this release writes. A file that exists is never written again.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobgroup import GroupState, JobGroups
from jobgroup.model import names
from jobgroup.model.snapshot import STATES
from jobgroup.store.replies import read_group
from jobgroup.store.scripts import FOLDER, load
from testbed import ROOT
from testbed.servers.redis import RedisServer
from testbed.servers.stock import CLIENTS, StockClient
from testbed.support.raw_keys import dump_at_rest, to_text
from tests.sagas.frozen.stories import STORIES, Scene, Story

HERE = Path(__file__).parent
# The prefix of all keys in a fixture. No other text in it may contain the prefix and a colon.
PREFIX = "frozen"

_READ = load("read_group")


def highest_format() -> int:
    """Return the highest format that this release knows."""
    (found,) = re.findall(r"highest = (\d+)", (FOLDER / "includes/formats.lua").read_text())
    return int(found)


def file_of(story: Story) -> Path:
    """Return the fixture of a story, in the folder of its format."""
    return HERE / f"format-{story.format}" / f"{story.name}.json"


async def read(groups: JobGroups, group_id: str) -> dict[str, Any]:
    """Return what can be read of a group without settling it, with the names of its hash."""
    store = groups.store
    slots = {"parent": names.parent_key(store.prefix, group_id), "prefix": store.prefix}
    reply = await _READ(store.redis, **slots, gid=group_id)
    if not reply:
        return {"state": None, "jobs": None}
    found = read_group(group_id, reply)
    jobs = [[job.job_id, job.status, job.undo] for job in await groups.get_group_jobs(group_id)]
    return {"state": by_field(found.group), "derived": found.derived, "jobs": jobs}


def by_field(state: GroupState) -> dict[str, Any]:
    """Return a state with the names that its fields have in Redis."""
    fields = {names.field_name(name): value for name, value in asdict(state).items()}
    return {**fields, "records": list(fields["records"])}  # as JSON has them


async def freeze(story: Story, url: str) -> dict[str, Any]:
    """Run a story on an empty Redis, and return the fixture."""
    async with JobGroups.connect(url, PREFIX) as groups:
        await groups.store.redis.flushall()
        scene = Scene(url, groups, await StockClient.start(story.flavour, url, PREFIX))
        try:
            await story.tell(scene)
            keys = await dump_at_rest(groups.store.redis, PREFIX)
            assert len(keys) == await groups.store.redis.dbsize(), "each key has the prefix"
            listed = {state: await groups.store.listing.ids(state) for state in STATES}
            found = {
                group_id: {**scene.added[group_id], **scene.expected[group_id], **now}
                for group_id in scene.added
                for now in [await read(groups, group_id)]
            }
        finally:
            await scene.client.end()
    return {
        "about": story.about,
        "client": story.flavour,
        "groups": found,
        "listed": {state: ids for state, ids in listed.items() if ids},
        "behaviour": scene.behaviour,
        "runs": scene.runs,
        "queues": queues(scene),
        "keys": keys,
    }


def queues(scene: Scene) -> list[str]:
    """Return the queues on which workers continue."""
    members = {
        job["queueName"] for group in scene.added.values() for job in group["definition"]["jobs"]
    }
    undos = {names.undo_queue(queue) for queue in members}
    return sorted((members | undos | set(scene.more_queues)) - set(scene.idle_queues))


def main(wanted: Sequence[str]) -> int:
    """Write fixtures; return the status of the process."""
    if unknown := sorted(set(wanted) - STORIES.keys()):
        print(f"There is no story {', '.join(unknown)}.", file=sys.stderr)
        return 2
    files = {name: file_of(STORIES[name]) for name in wanted or STORIES}
    existing = [name for name, file in files.items() if file.exists()]
    if existing and wanted:
        print(f"{', '.join(existing)} exists. It is never written again.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place, RedisServer(Path(place)) as redis:
        asyncio.run(_write({n: f for n, f in files.items() if n not in existing}, redis.url))
    return 0


async def _write(files: Mapping[str, Path], url: str) -> None:
    for name, file in files.items():
        text = to_text(await freeze(STORIES[name], url))
        # Stack traces name files of this machine.
        for folder, neutral in ((CLIENTS / "node_modules", "/app/node_modules"), (ROOT, "/app")):
            text = text.replace(str(folder.resolve()), neutral)
        file.parent.mkdir(exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
        print(f"wrote {file.relative_to(HERE)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
