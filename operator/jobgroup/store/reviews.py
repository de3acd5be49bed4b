"""Pages of groups that a resync reviews, and groups that foreign clients took from the driver.

Every call does a bounded part of the work, so that Redis answers others in between.
"""

import base64
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup.definition.plan import pack
from jobgroup.model import names
from jobgroup.model.clock import TOMBSTONE_MS, now_ms
from jobgroup.model.snapshot import State
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.replies import read_value
from jobgroup.store.scripts import FOLDER, Script, load

PAGE = 100
INDEX_PAGE = 500
LEDGER_PAGE = 500
EVENTS = 1000
# Most groups of such a page are only looked at.
PRUNE_PAGE = 200
# How long a list may be so that a review reads it, and so that a thorough review does.
SHORT = 1000
LONG = 30_000


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last group of a page, and its score. An empty cursor begins a pass or ends it."""

    cursor: str = ""
    score: str = "0"


@dataclass(frozen=True, slots=True)
class Review(Cursor):
    """A page of review_groups.lua."""

    due: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Short(Cursor):
    """A page of find_short.lua."""

    due: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unparked(Cursor):
    """A page of find_unparked.lua."""

    unparked: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Released(Cursor):
    """A page of find_released.lua."""

    ended: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Due(Cursor):
    """A page of take_due.lua."""

    overdue: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pruned(Cursor):
    """A page of prune_groups.lua."""

    groups: list[str] = field(default_factory=list)
    owned: int = 0


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What foreign clients had taken from the wake-up list."""

    groups: list[str]
    workers: list[str]
    paused: bool


@dataclass(frozen=True, slots=True)
class Hints:
    """What new events of a queue say about groups."""

    last: str
    groups: list[str] = field(default_factory=list)
    more: bool = False


Page = TypeVar("Page", bound=Cursor)


class Reviews:
    """The groups of one Redis, page by page."""

    def __init__(
        self, redis: Redis, prefix: str, folder: Path = FOLDER, observer: Observer = SILENT
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._review = load("review_groups", folder, observer)
        self._claim = load("claim_reviews", folder, observer)
        self._find_short = load("find_short", folder, observer)
        self._find_unparked = load("find_unparked", folder, observer)
        self._find_released = load("find_released", folder, observer)
        self._take_due = load("take_due", folder, observer)
        self._prune = load("prune_groups", folder, observer)
        self._reclaim = load("reclaim_wakeups", folder, observer)
        self._read_hints = load("read_hints", folder, observer)

    async def claim(self, driver: str, lasts: int) -> bool:
        """Claim the reviews for some milliseconds; return whether this driver has them."""
        reviewer = names.reviewer_key(self._prefix)
        slots = {"reviewer": reviewer, "driver": driver, "lasts": lasts}
        return bool(await self._claim(self._redis, **slots))

    async def review(self, state: State, after: Cursor, short: int = SHORT) -> Review:
        """Review the parked groups of a state after a cursor; read lists of up to `short` jobs."""
        slots = {"state": state, "now": now_ms(), "limit": PAGE, "remembers": TOMBSTONE_MS}
        slots["short"] = short
        return await self._page(Review, self._review, after, **slots)

    async def short(self, state: State, after: Cursor) -> Short:
        """Find parked groups of a state whose ledgers lack jobs."""
        return await self._page(Short, self._find_short, after, state=state, limit=LEDGER_PAGE)

    async def unparked(self, queue: str, after: Cursor) -> Unparked:
        """Find groups of an owning queue that are not parked."""
        return await self._page(Unparked, self._find_unparked, after, queue=queue, limit=INDEX_PAGE)

    async def released(self, after: Cursor) -> Released:
        """Find groups to remove: they were released and have ended."""
        slots = {"released": names.released_key(self._prefix), "limit": PAGE}
        return await self._read(Released, self._find_released, after, **slots)

    async def due(self, after: Cursor) -> Due:
        """Find running groups to cancel, and remove ended ones, because their time has passed."""
        slots = {"due": names.due_key(self._prefix), "limit": PAGE, "remembers": TOMBSTONE_MS}
        return await self._read(Due, self._take_due, after, **slots)

    async def prune(
        self, state: State, age: int, after: Cursor, dry: bool = False, spare: bool = False
    ) -> Pruned:
        """Remove groups without a resource that ended in a state this many milliseconds ago.

        With `spare`, groups with a time to live of their own are left alone.
        """
        slots = {"state": state, "age": age, "spare": int(spare), "dry": int(dry)}
        slots |= {"limit": PRUNE_PAGE, "remembers": TOMBSTONE_MS}
        return await self._page(Pruned, self._prune, after, **slots)

    async def _page(self, kind: type[Page], script: Script, after: Cursor, **slots: Any) -> Page:
        parked = names.parked_key(self._prefix)
        return await self._read(kind, script, after, parked=parked, **slots)

    async def _read(self, kind: type[Page], script: Script, after: Cursor, **slots: Any) -> Page:
        reply = await script(
            self._redis,
            prefix=self._prefix,
            cursor=after.cursor,
            score=after.score,
            **slots,
        )
        return read_value(kind, names.ledger_key(self._prefix), reply)

    async def owning_queues(self) -> list[str]:
        """Return the queues that own a group."""
        found = await cast(Any, self._redis.smembers(names.owning_queues_key(self._prefix)))
        return sorted(found)

    async def workers(self) -> list[str]:
        """Return the connections of Node workers on the pseudo queue; BullMQ names them."""
        queue = base64.b64encode(names.LEDGER_QUEUE.encode()).decode()
        with contextlib.suppress(ResponseError):  # a user may not be allowed to list clients
            clients = await self._redis.client_list()
            named = [each for each in clients if each["name"].startswith(f"{self._prefix}:{queue}")]
            return sorted({f"{each['name']} at {each['addr']}" for each in named})
        return []

    async def reclaim(self) -> Reclaimed:
        """Put groups back on the wake-up list that foreign clients took from it."""
        reply = await self._reclaim(
            self._redis, wakeups=names.wakeups_key(self._prefix), prefix=self._prefix, limit=PAGE
        )
        return read_value(Reclaimed, names.ledger_key(self._prefix), reply)

    async def hints(self, queues: Mapping[str, str]) -> dict[str, Hints]:
        """Read the events of queues after an id each; skip a queue that cannot be read."""
        replies = await self._read_hints(
            self._redis,
            marker=names.marker_key(self._prefix),
            prefix=self._prefix,
            queues=pack([{"queue": queue, "after": after} for queue, after in queues.items()]),
            limit=EVENTS,
        )
        return {
            queue: read_value(Hints, f"Queue {queue}", reply)
            for queue, reply in zip(queues, replies, strict=True)
            if not isinstance(reply, Exception)
        }
