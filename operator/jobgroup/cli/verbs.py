"""What each verb of the command line does; what it prints is for people, or JSON for programs."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress

from jobgroup import Driver, JobGroupError, JobGroups
from jobgroup.errors import GroupNotFoundError
from jobgroup.progress import (
    group_fields,
    group_line,
    is_overdue,
    job_fields,
    listing,
    live_line,
    table,
    time_of,
)
from jobgroup.snapshot import GroupState, Settled

OK, NOT_COMPLETED, REFUSED = 0, 1, 2
LOOK_SECONDS = 0.25
# So many looks without a change, at a group a driver would move on at once: nobody drives.
LOOKS_BEFORE_HINT = 12
MOST_REMEMBERED = 10_000


async def add(groups: JobGroups, args: Namespace) -> int:
    answers = await groups.store.create(args.plans)
    code, made = OK, []
    for plan, answer in zip(args.plans, answers, strict=True):
        if isinstance(answer, JobGroupError):
            code = complain(f"{args.source}: {answer}", REFUSED)
        else:
            made.append(plan.group_id)
    if args.wait:
        return max(code, await watch(groups, args, made))
    for group_id in made:
        say(render(args, await state_of(groups, group_id)))
    return code


async def show(groups: JobGroups, args: Namespace) -> int:
    say(render(args, await state_of(groups, args.id), lambda group: listing(group_fields(group))))
    return OK


async def jobs(groups: JobGroups, args: Namespace) -> int:
    rows = [job_fields(job) for job in await groups.get_group_jobs(args.id)]
    say("\n".join(map(json.dumps, rows)) if args.output == "json" else table(rows))
    return OK


async def cancel(groups: JobGroups, args: Namespace) -> int:
    say(render(args, await groups.cancel_group(args.id)))
    return OK


async def remove(groups: JobGroups, args: Namespace) -> int:
    await groups.remove_group(args.id)
    gone = {"id": args.id, "state": "REMOVED"}
    say(json.dumps(gone) if args.output == "json" else " ".join(gone.values()))
    return OK


async def follow(groups: JobGroups, args: Namespace) -> int:
    return await watch(groups, args, [args.id])


async def drive(groups: JobGroups, args: Namespace) -> int:
    states: dict[str, str] = {}

    def stamped(group: GroupState) -> str:
        return f"{time_of(group.updated_at)} {group_line(group)}"

    def report(settled: Settled) -> None:
        group = settled.group
        if states.pop(group.id, "ACTIVE") != group.state:
            say(render(args, group, stamped))
        if not group.ended:
            states[group.id] = group.state
        if len(states) > MOST_REMEMBERED:  # another driver may have seen the end of the oldest
            del states[next(iter(states))]

    logging.basicConfig(format="jobgroup: %(message)s")
    driver = Driver(groups.store, on_settled=report)
    if args.once:
        await driver.drain()
        await driver.resync()
        await driver.drain()
        return OK
    running = asyncio.ensure_future(driver.run())
    for stop in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(stop, running.cancel)
    complain(f"driving the groups under {args.prefix} at {args.where}", OK)
    with suppress(asyncio.CancelledError):
        await running
    return OK


async def watch(groups: JobGroups, args: Namespace, group_ids: Sequence[str]) -> int:
    """Show groups whenever they changed, until all have ended."""
    live = len(group_ids) == 1 and args.output == "text" and is_terminal()
    running, shown, code, looks = list(group_ids), dict[str, str](), OK, 0
    try:
        while running:
            for group_id in list(running):
                group = await state_of(groups, group_id)
                text = render(args, group)
                if shown.get(group_id) != text:
                    shown[group_id], looks = text, 0
                    if live:
                        width = shutil.get_terminal_size().columns
                        text = f"\r\033[K{text if group.ended else live_line(group, width)}"
                    say(text, end="" if live and not group.ended else "\n")
                if group.ended:
                    running.remove(group_id)
                    code = code if group.state == "COMPLETED" else NOT_COMPLETED
                elif looks == LOOKS_BEFORE_HINT and is_overdue(group):
                    complain(f"nobody drives {group_id}; run `python -m jobgroup drive`", OK)
            if running:
                looks += 1
                await asyncio.sleep(LOOK_SECONDS)
    finally:
        if live and running:
            say("")
    return code


def is_terminal() -> bool:
    """Say whether a line that was written can be written over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def state_of(groups: JobGroups, group_id: str) -> GroupState:
    group = await groups.get_group_state(group_id)
    if group is None:
        raise GroupNotFoundError(group_id)
    return group


def render(
    args: Namespace, group: GroupState, text: Callable[[GroupState], str] = group_line
) -> str:
    return json.dumps(group_fields(group)) if args.output == "json" else text(group)


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def complain(sentence: object, code: int) -> int:
    sys.stderr.write(f"jobgroup: {sentence}\n")
    return code
