"""Reads all queues, ledgers and groups at one moment, in one round trip."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from jobgroup.model import names
from jobgroup.store.replies import GroupReply, read_group, read_jobs
from jobgroup.store.scripts import Script, load
from tests.sagas.histories.job_model import ENDS, UNDOS, Place

LOOK = """
local function read_group(KEYS, ARGV) READ_GROUP end
local function read_jobs(KEYS, ARGV) READ_JOBS end
local prefix, queues, groups = ARGV[1], cjson.decode(ARGV[2]), cjson.decode(ARGV[3])
local books = prefix .. ":_jobgroups:"
local seen = { groups = {}, members = {}, jobs = {}, books = {}, missed = {}, ghosts = {},
  events = {}, hashed = {}, streams = {}, paused = {}, lists = {}, aside = {},
  index = {}, exists = {}, parents = {}, stuck = {}, retrying = {},
  owners = redis.call("SMEMBERS", books .. "saga:queues"),
  active_wakeups = redis.call("LRANGE", books .. "active", 0, -1),
  aside_wakeups = redis.call("LRANGE", books .. "paused", 0, -1),
  finished_wakeups = redis.call("ZRANGE", books .. "completed", 0, -1),
  failed_wakeups = redis.call("ZRANGE", books .. "failed", 0, -1),
  ledger_paused = redis.call("HEXISTS", books .. "meta", "paused"),
  ends = redis.call("LRANGE", prefix .. ":ENDS:"
    .. (redis.call("TYPE", prefix .. ":ENDS:wait").ok == "string" and "aside" or "wait"), 0, -1),
  parked = redis.call("ZRANGE", books .. "waiting-children", 0, -1, "WITHSCORES"),
  wakeups = redis.call("LRANGE", books .. "wait", 0, -1) }
for queue, last in pairs(queues) do
  local base = prefix .. ":" .. queue .. ":"
  local function found(place, ids)
    for _, id in ipairs(ids) do
      table.insert(seen.jobs, { id, place })
      if redis.call("HEXISTS", base .. id, "name") == 0 then table.insert(seen.ghosts, id) end
    end
  end
  if redis.call("HEXISTS", base .. "meta", "groups") == 1 then table.insert(seen.exists, queue) end
  if redis.call("EXISTS", base .. "events") == 1 then table.insert(seen.streams, queue) end
  if redis.call("HEXISTS", base .. "meta", "paused") == 1 then table.insert(seen.paused, queue) end
  for _, id in ipairs(redis.call("ZRANGE", base .. "groups", 0, -1)) do
    table.insert(seen.index, { id, queue })
  end
  seen.lists[queue] = redis.call("LRANGE", base .. "wait", 0, -1)
  seen.aside[queue] = redis.call("LRANGE", base .. "paused", 0, -1)
  found("waiting", redis.call("LRANGE", base .. "wait", 0, -1))
  found("waiting", redis.call("LRANGE", base .. "paused", 0, -1))
  found("active", redis.call("LRANGE", base .. "active", 0, -1))
  found("waiting", redis.call("ZRANGE", base .. "prioritized", 0, -1))
  for _, place in ipairs({ "delayed", "completed", "failed" }) do
    found(place, redis.call("ZRANGE", base .. place, 0, -1))
  end
  table.insert(seen.events, { queue, redis.call("XRANGE", base .. "events", "(" .. last, "+") })
end
local function noted(book, members)
  for _, key in ipairs(members) do
    table.insert(seen.books, { string.match(key, "[^:]+$"), book })
  end
end
for _, group in ipairs(groups) do
  if redis.call("EXISTS", books .. group) == 1 then table.insert(seen.parents, group) end
  table.insert(seen.groups, read_group({ books .. group }, { prefix, group }) or "")
  table.insert(seen.members, read_jobs({ books .. group }, { prefix, group }) or "")
  for _, field in ipairs(redis.call("HKEYS", books .. group)) do
    local mark, id = string.match(field, "^(%l+):.*:([^:]+)$")
    if mark == "unlocked" then table.insert(seen.missed, id) end
    if mark == "stuck" then table.insert(seen.stuck, id) end
  end
  for _, field in ipairs(redis.call("HKEYS", books .. group .. "-undo")) do
    local id = string.match(field, "^retry:.*:([^:]+)$")
    if id then table.insert(seen.retrying, id) end
  end
  local row = seen.members[#seen.members]
  for _, key in ipairs(row ~= "" and cjson.decode(row).jobKey or {}) do
    local queue, id = string.match(key, "^(.*):([^:]+)$")
    if redis.call("EXISTS", key) == 1 then table.insert(seen.hashed, id) end
    local undo = id .. "-undo"
    if redis.call("EXISTS", queue .. ":compensation:" .. undo, prefix .. ":UNDOS:" .. undo) > 0 then
      table.insert(seen.hashed, id .. "-undo")
    end
  end
  for _, ledger in ipairs({ books .. group, books .. group .. "-undo" }) do
    noted("open", redis.call("SMEMBERS", ledger .. ":dependencies"))
    noted("done", redis.call("HKEYS", ledger .. ":processed"))
    noted("failed", redis.call("ZRANGE", ledger .. ":unsuccessful", 0, -1))
  end
end
return cjson.encode(seen)
"""

Event = dict[str, str]


@dataclass(frozen=True)
class Seen:
    """What was read; jobs are identified by their ids."""

    groups: dict[str, GroupReply | None]
    statuses: dict[str, str]
    places: list[tuple[str, Place]]
    books: list[tuple[str, str]]
    ghosts: list[str]
    missed: set[str]  # active members that the scripts found without a worker
    stuck: set[str]  # members that the scripts left in a list that is too long to search
    retrying: set[str]  # undos whose retry was accepted, and that are not in their queue yet
    hashed: set[str]  # members and undos that have a hash
    exists: set[str]  # queues that have had a group since they were obliterated or deleted
    streams: set[str]  # queues that have events
    paused: set[str]  # queues that are paused
    lists: dict[str, list[str]]  # the list `wait` of each queue
    aside: dict[str, list[str]]  # the list `paused` of each queue
    parked: dict[str, float]
    wakeups: list[str]
    # Entries of the wake-up list that a foreign client moved to other lists of the pseudo queue.
    active_wakeups: list[str]
    aside_wakeups: list[str]
    finished_wakeups: list[str]
    is_ledger_paused: bool
    parents: set[str]  # groups that have their pseudo parent
    index: set[tuple[str, str]]  # groups, each with the queue whose index lists it
    owners: set[str]  # the queues that own groups
    events: list[tuple[str, str, Event]]
    ends: list[str]  # the jobs of onEnd, the oldest first

    @property
    def stolen(self) -> set[str]:
        return {*self.active_wakeups, *self.aside_wakeups, *self.finished_wakeups}

    def is_woken(self, group_id: str) -> bool:
        return group_id in map(names.group_of_wakeup, self.wakeups)


class Looker:
    """Reads everything with one script that includes the read scripts of a folder."""

    def __init__(self, redis: Redis, prefix: str, folder: Path) -> None:
        self._redis = redis
        self._prefix = prefix
        text = LOOK.replace("UNDOS", UNDOS).replace("ENDS", ENDS)
        for name in ("read_group", "read_jobs"):
            text = text.replace(name.upper(), load(name, folder).source)
        self._look = Script("look", text, (), ("prefix", "queues", "groups"))

    async def look(self, queues: Mapping[str, str], groups: list[str]) -> Seen:
        """Read these groups and these queues, each queue with its events after an id."""
        slots = {"queues": json.dumps(queues), "groups": json.dumps(groups)}
        answer = await self._look(self._redis, prefix=self._prefix, **slots)
        return _parse(groups, json.loads(answer))


def _parse(groups: list[str], seen: dict[str, Any]) -> Seen:
    # Lua writes an empty list as {}.
    parked = list(seen["parked"])
    members = zip(groups, seen["members"], strict=True)
    jobs = [job for group, row in members if row for job in read_jobs(group, row)]
    return Seen(
        groups={
            group_id: read_group(group_id, row) if row else None
            for group_id, row in zip(groups, seen["groups"], strict=True)
        },
        statuses={job.job_id: job.status for job in jobs},
        places=sorted((job_id, place) for job_id, place in seen["jobs"]),
        books=sorted((job_id, book) for job_id, book in seen["books"]),
        ghosts=list(seen["ghosts"]),
        missed=set(seen["missed"]),
        stuck=set(seen["stuck"]),
        retrying=set(seen["retrying"]),
        hashed=set(seen["hashed"]),
        ends=list(reversed(list(seen["ends"]))),
        exists=set(seen["exists"]),
        streams=set(seen["streams"]),
        paused=set(seen["paused"]),
        lists={queue: list(ids) for queue, ids in seen["lists"].items()},
        aside={queue: list(ids) for queue, ids in seen["aside"].items()},
        parked={
            token: float(score) for token, score in zip(parked[::2], parked[1::2], strict=True)
        },
        wakeups=list(seen["wakeups"]),
        active_wakeups=list(seen["active_wakeups"]),
        aside_wakeups=list(seen["aside_wakeups"]),
        finished_wakeups=[*seen["finished_wakeups"], *seen["failed_wakeups"]],
        is_ledger_paused=bool(seen["ledger_paused"]),
        parents=set(seen["parents"]),
        index={(group_id, queue) for group_id, queue in seen["index"]},
        owners=set(seen["owners"]),
        events=[
            (queue, event_id, dict(zip(fields[::2], fields[1::2], strict=True)))
            for queue, entries in seen["events"]
            for event_id, fields in entries
        ],
    )
