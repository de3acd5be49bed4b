"""One function for each verb: it prints text or JSON and returns the exit code."""

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
from jobgroup.cli.output import (
    failure_lines,
    group_fields,
    group_line,
    group_listing,
    job_fields,
    job_object,
    live_line,
    program,
    table,
    undo_lines,
)
from jobgroup.errors import GroupExistsError, GroupNotFoundError, GroupRemovedError
from jobgroup.model.snapshot import GroupState
from jobgroup.model.text import time_of

OK, NOT_COMPLETED, REFUSED = 0, 1, 2
POLL_SECONDS = 0.25
MOST_REMEMBERED = 10_000


async def add(groups: JobGroups, args: Namespace) -> int:
    results = await groups.store.create(args.plans)
    code, made = OK, []
    for plan, result in zip(args.plans, results, strict=True):
        if isinstance(result, JobGroupError):
            advice = "; --id and --new-id create another group" if is_taken(result) else ""
            code = complain(f"{args.source}: {result}{advice}", REFUSED)
        else:
            if not result:
                complain(f"{args.source}: group {plan.group_id} exists already; added nothing", OK)
            made.append(plan.group_id)
    if args.wait:
        return max(code, await watch(groups, args, made))
    for group_id in made:
        say(render(args, await state_of(groups, group_id)))
    return code


def is_taken(refusal: JobGroupError) -> bool:
    """Return whether another id would help."""
    return isinstance(refusal, GroupExistsError | GroupRemovedError)


async def show(groups: JobGroups, args: Namespace) -> int:
    group = await state_of(groups, args.id)
    lines = [render(args, group, group_listing)]
    if args.output == "text" and group.undo_failed_count + group.resolved_count:
        lines += undo_lines(await groups.get_job_details(args.id))
    say("\n".join(lines))
    return OK


async def jobs(groups: JobGroups, args: Namespace) -> int:
    found = await groups.get_job_details(args.id)
    if args.output == "json":
        lines = [json.dumps(job_object(job)) for job in found]
    else:
        lines = [table([job_fields(job) for job in found]), *failure_lines(found)]
    say("\n".join(lines))
    return OK


async def cancel(groups: JobGroups, args: Namespace) -> int:
    return tell_given_up(args, await groups.cancel_group(args.id, args.by))


async def retry_undos(groups: JobGroups, args: Namespace) -> int:
    return tell_given_up(args, await groups.retry_undos(args.id, args.job, args.by))


async def resolve(groups: JobGroups, args: Namespace) -> int:
    group = await groups.resolve_undo(args.id, args.job, args.reason, args.by)
    return tell_given_up(args, group)


def tell_given_up(args: Namespace, group: GroupState) -> int:
    """Show a group that was given up; say so if a driver must finish it."""
    say(render(args, group))
    if not group.ended:
        drivers = f"the operator, or `{program()} drive`"
        complain(f"{group.id} has not ended yet; a driver must finish it: {drivers}", OK)
    return OK


async def complete(groups: JobGroups, args: Namespace) -> int:
    group = await groups.complete_job(args.id, args.job, args.value, args.by)
    say(render(args, group))
    return OK


async def fail(groups: JobGroups, args: Namespace) -> int:
    return tell_given_up(args, await groups.fail_job(args.id, args.job, args.reason, args.by))


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

    def report(group: GroupState) -> None:
        if states.pop(group.id, "ACTIVE") != group.state:
            say(render(args, group, stamped))
        if not group.ended:
            states[group.id] = group.state
        if len(states) > MOST_REMEMBERED:  # another driver may have ended the oldest
            del states[next(iter(states))]

    logging.basicConfig(format="jobgroup: %(message)s")
    driver = Driver(groups.store, on_settled=report, group_ttl_seconds=args.group_ttl_seconds)
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
    """Show groups after each change until all have ended."""
    live = len(group_ids) == 1 and args.output == "text" and is_terminal()
    running, shown, code = list(group_ids), dict[str, str](), OK
    try:
        while running:
            for group_id in list(running):
                group = await state_of(groups, group_id)
                text = render(args, group)
                if shown.get(group_id) != text:
                    shown[group_id] = text
                    if live:
                        width = shutil.get_terminal_size().columns
                        text = f"\r\033[K{text if group.ended else live_line(group, width)}"
                    say(text, end="" if live and not group.ended else "\n")
                if group.ended:
                    running.remove(group_id)
                    code = code if group.state == "COMPLETED" else NOT_COMPLETED
            if running:
                await asyncio.sleep(POLL_SECONDS)
    finally:
        if live and running:
            say("")
    return code


def is_terminal() -> bool:
    """Return whether a line of the output can be overwritten."""
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


def complain(message: object, code: int) -> int:
    sys.stderr.write(f"jobgroup: {message}\n")
    return code
