"""Groups by state, age and other filters, and the return values of jobs, page by page.

A cursor is an opaque text: pass it back unchanged.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from jobgroup.definition.spec import is_group_id
from jobgroup.errors import GroupNotFoundError, InvalidSpecError
from jobgroup.model import names
from jobgroup.model.snapshot import STATES, GroupPage, JobResult, ResultPage, State
from jobgroup.store.observer import SILENT, Observer
from jobgroup.store.replies import GroupReply, read_value, refusal
from jobgroup.store.scripts import FOLDER, load

MAX_GROUPS = 1000
RESULTS = 200
RESULT_BYTES = 1_000_000
_PHASES = ("", "woken", "parked", "merged")
_MAX_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Filters:
    """Which groups to list; an empty filter admits all. The age is in milliseconds."""

    state: State | None = None
    age: int = -1
    name: str = ""
    queue: str = ""
    owner: str = ""


@dataclass(frozen=True, slots=True)
class _Ids:
    """A page of list_groups.lua, and where it ends."""

    state: State
    phase: str = ""
    cursor: str = ""
    score: str = "0"
    groups: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The reply of list_groups.lua."""

    groups: list[str]
    phase: str
    cursor: str
    score: str


@dataclass(frozen=True, slots=True)
class _Result:
    """One value in a reply of read_results.lua, as JSON."""

    job_id: str
    queue_name: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class _Results:
    """The reply of read_results.lua."""

    results: list[_Result]
    next: int


class Listing:
    """The groups below one prefix, page by page; `read` reads groups by their ids."""

    def __init__(
        self,
        redis: Redis,
        prefix: str,
        read: Callable[[Sequence[str]], Awaitable[list[GroupReply]]],
        folder: Path = FOLDER,
        observer: Observer = SILENT,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._read = read
        self._list = load("list_groups", folder, observer)
        self._results = load("read_results", folder, observer)

    async def groups(self, filters: Filters, limit: int, cursor: str | None) -> GroupPage:
        """Return a page of groups, each in the state that follows from its ledger."""
        page = await self._page(filters, limit, cursor)
        found = [replace(each.group, state=each.derived) for each in await self._read(page.groups)]
        wanted = [group for group in found if filters.state in (None, group.state)]
        return GroupPage(tuple(wanted), _next_cursor(filters, page))

    async def ids(self, state: State, limit: int = MAX_GROUPS) -> list[str]:
        """Return the ids on the first page of the groups in a state."""
        return (await self._page(Filters(state), limit, None)).groups

    async def _page(self, filters: Filters, limit: int, cursor: str | None) -> _Ids:
        after = _read_cursor(filters, cursor)
        reply = await self._list(
            self._redis,
            parked=names.parked_key(self._prefix),
            wakeups=names.wakeups_key(self._prefix),
            prefix=self._prefix,
            state=after.state,
            age=filters.age,
            name=filters.name,
            queue=filters.queue,
            owner=filters.owner,
            limit=limit,
            phase=after.phase,
            cursor=after.cursor,
            score=after.score,
        )
        listed = read_value(_Listed, names.ledger_key(self._prefix), reply)
        return _Ids(after.state, listed.phase, listed.cursor, listed.score, listed.groups)

    async def results(self, group_id: str, cursor: str | None) -> ResultPage:
        """Return a page of the return values of the jobs of a group."""
        first = "0" if cursor is None else cursor
        if not _is_number(first):
            raise _no_cursor(first)
        try:
            reply = await self._results(
                self._redis,
                parent=names.parent_key(self._prefix, group_id),
                prefix=self._prefix,
                gid=group_id,
                first=first,
                limit=RESULTS,
                bytes=RESULT_BYTES,
            )
        except ResponseError as error:
            raise refusal(error) from None
        if reply is None:
            raise GroupNotFoundError(group_id)
        found = read_value(_Results, f"The results of group {group_id}", reply)
        results = tuple(
            JobResult(each.job_id, each.name, each.queue_name, _value(each.value))
            for each in found.results
        )
        return ResultPage(results, None if found.next < 0 else str(found.next))


def _value(text: str) -> Any:
    """Return a value; a text that is not JSON, which only a foreign worker writes, as it is."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _next_cursor(filters: Filters, page: _Ids) -> str | None:
    """Return the cursor after a page; after the last one of a state, that of the next state."""
    if page.phase:
        return ":".join((page.state, page.phase, page.score, page.cursor))
    later = STATES[STATES.index(page.state) + 1 :]
    return f"{later[0]}::0:" if later and filters.state is None else None


def _read_cursor(filters: Filters, cursor: str | None) -> _Ids:
    if cursor is None:
        return _Ids(filters.state or STATES[0])
    state, phase, score, after = (cursor.split(":") + [""] * 3)[:4]
    if (
        cursor.count(":") != 3
        or state not in (STATES if filters.state is None else (filters.state,))
        or phase not in _PHASES
        or not _is_number(score)
        or not (after == "" or is_group_id(after))
    ):
        raise _no_cursor(cursor)
    return _Ids(state, phase, after, score)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _no_cursor(cursor: str) -> InvalidSpecError:
    return InvalidSpecError(
        f"cursor: {cursor[:100]!r} is not the cursor of a page with the same filters"
    )
