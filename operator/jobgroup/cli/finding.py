"""The verbs that find groups, remove old ones, and print what the jobs of a group returned."""

import json
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator
from typing import Any

from jobgroup import GroupState, JobGroups, JobResult
from jobgroup.cli.output import group_row, job_value, rows
from jobgroup.cli.verbs import OK, complain, render, say
from jobgroup.groups import PRUNED_STATES
from jobgroup.store.listing import MAX_GROUPS

_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def duration(text: str) -> int:
    """Return the seconds of a duration such as 7d."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise ArgumentTypeError(f"{text!r} must be a number with a unit, such as 30s, 15m, 12h, 7d")
    return int(found[1]) * _SECONDS[found[2]]


def whole_number(text: str) -> int:
    """Return a number of at least 1."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a number from 1 on")
    return int(text)


async def list_(groups: JobGroups, args: Namespace) -> int:
    widths: list[int] = []
    async for page in _pages(groups, args):
        if args.output == "json":
            say("\n".join(render(args, group) for group in page))
        else:
            # A page at a time: there may be a million groups.
            say("\n".join(rows([group_row(group) for group in page], widths)))
    return OK


async def _pages(groups: JobGroups, args: Namespace) -> AsyncIterator[list[GroupState]]:
    """Yield pages of at least one group, and together at most as many as were asked for."""
    left, cursor = args.limit, None
    while left is None or left > 0:
        page = await groups.list_groups(
            args.state,
            args.name,
            args.queue,
            args.older_than,
            args.owner,
            MAX_GROUPS if left is None else min(left, MAX_GROUPS),
            cursor,
        )
        found = list(page.groups[:left])
        if found:
            yield found
        left = None if left is None else left - len(found)
        cursor = page.cursor
        if cursor is None:
            return


async def results(groups: JobGroups, args: Namespace) -> int:
    widths: list[int] = []
    cursor = None
    while True:
        page = await groups.get_group_results(args.id, cursor)
        if page.results:
            say("\n".join(_lines(args, page.results, widths)))
        cursor = page.cursor
        if cursor is None:
            return OK


async def prune(groups: JobGroups, args: Namespace) -> int:
    states = args.state or list(PRUNED_STATES)
    done, removed, owned = "WOULD BE REMOVED" if args.dry_run else "REMOVED", 0, 0
    async for page in groups.prune_groups(args.older_than, states, args.dry_run):
        removed, owned = removed + len(page.group_ids), owned + page.owned
        for group_id in page.group_ids:
            gone = {"id": group_id, "was": page.state, "state": done}
            say(json.dumps(gone) if args.output == "json" else " ".join(gone.values()))
    what = "would remove" if args.dry_run else "removed"
    kept = f"; kept {_count(owned)} whose JobGroups own them" if owned else ""
    return complain(f"{what} {_count(removed)}{kept}", OK)


def _count(number: int) -> str:
    return f"{number} group" if number == 1 else f"{number} groups"


def _lines(args: Namespace, found: tuple[JobResult, ...], widths: list[int]) -> list[str]:
    values: list[dict[str, Any]] = [job_value(each) for each in found]
    if args.output == "json":
        return [json.dumps(value) for value in values]
    texts = [{**value, "value": json.dumps(value["value"])} for value in values]
    return rows(texts, widths)
