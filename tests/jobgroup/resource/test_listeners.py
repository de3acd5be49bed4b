"""Which queues have workers: the connection names of stock clients."""

import base64
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from jobgroup.model.backlog import Backlog
from jobgroup.model.snapshot import GroupJob, UndoStatus
from jobgroup.resource.listeners import (
    NO_WORKER,
    NO_WORKER_OR_QUEUE,
    has_worker,
    is_unserved,
    missing_workers_message,
    waiting_jobs,
    waiting_jobs_message,
)


def b64(queue: str) -> str:
    return base64.b64encode(queue.encode()).decode()


@pytest.mark.parametrize(
    ("connection", "listens"),
    [
        ("bull:payments:compensation", True),  # Python, in either spelling
        ("bull:payments:compensation:w:anna", True),
        (f"bull:payments:{b64('compensation')}", True),  # Node, which refuses a colon
        (f"bull:payments:{b64('compensation')}:w:anna", True),
        (f"bull:{b64('payments:compensation')}", True),
        (f"bull:{b64('payments:compensation')}:w:a:w:b", True),
        (f"bull:payments:{b64('compensation')}:qe", False),  # it only hears events
        ("bull:payments", False),
        (f"bull:{b64('payments')}", False),
        ("bull:payments:compensation2", False),
        ("bull:orders:compensation", False),
        ("other:payments:compensation", False),
        (f"other:payments:{b64('compensation')}", False),
        ("", False),
    ],
)
def test_a_worker_is_recognized_by_its_connection(connection: str, listens: bool) -> None:
    assert has_worker("bull", "payments:compensation", ["", connection]) is listens


def test_a_queue_without_a_colon() -> None:
    assert has_worker("bull", "payments", ["bull:payments"])
    assert has_worker("bull", "payments", [f"bull:{b64('payments')}:w:x"])
    assert not has_worker("bull", "payments", ["bull:payments:compensation"])


def jobs(queue: str, count: int, undo: UndoStatus = "pending") -> list[GroupJob]:
    return [
        GroupJob(f"g-{n}", f"bull:{queue}:g-{n}", "completed", queue, undo) for n in range(count)
    ]


THERE = {"bull:payments:compensation"}


@pytest.mark.parametrize(
    ("undos", "connections", "said"),
    [
        (
            jobs("payments", 3),
            set(),
            f"3 undos wait in payments:compensation; {NO_WORKER}",
        ),
        (
            jobs("payments", 1),
            {"bull:payments"},
            f"1 undo waits in payments:compensation; {NO_WORKER}",
        ),
        (jobs("payments", 3), THERE, ""),
        (jobs("payments", 3), None, ""),
        (jobs("payments", 3, "completed") + jobs("payments", 3, ""), set(), ""),
        (
            jobs("payments", 3) + jobs("mail", 2) + jobs("stock", 1),
            THERE,
            f"2 undos wait in mail:compensation, 1 in stock:compensation; {NO_WORKER}",
        ),
        (
            [job for name in "abcde" for job in jobs(name, 2)],
            set(),
            "2 undos wait in a:compensation, 2 in b:compensation, 2 in c:compensation,"
            f" more in 2 other queues; {NO_WORKER}",
        ),
        ([], set(), ""),
    ],
)
def test_queues_without_workers_are_named(
    undos: list[GroupJob], connections: Collection[str] | None, said: str
) -> None:
    assert missing_workers_message("bull", undos, connections) == said


def test_only_jobs_that_wait_in_unserved_queues_count() -> None:
    members = [
        GroupJob("g-0", "bull:mail:g-0", "pending", "mail"),
        GroupJob("g-1", "bull:mail:g-1", "pending", "mail"),
        GroupJob("g-2", "bull:mail:g-2", "active", "mail"),
        GroupJob("g-3", "bull:stock:g-3", "pending", "stock"),
        GroupJob("g-4", "bull:pay:g-4", "pending", "pay"),
    ]
    waiting = waiting_jobs(members, {"mail", "stock"})
    message = f"2 jobs wait in mail, 1 in stock; {NO_WORKER_OR_QUEUE}"
    assert waiting_jobs_message(waiting) == message
    assert waiting_jobs_message(waiting_jobs(members, ())) == ""


NOTHING = Backlog(True, False, 0, 0, 0, 0, 0, None, "1-0")


@pytest.mark.parametrize(
    ("counts", "connected", "unknown", "alone"),
    [
        # Whether it is unserved with a worker, if workers are not listed, and without a worker.
        ({}, False, False, False),
        ({"delayed": 9}, False, False, False),
        ({"waiting": 1}, True, True, True),
        ({"prioritized": 1}, True, True, True),
        ({"waiting": 1, "active": 1}, False, False, True),
        ({"active": 1}, False, False, True),
        # Workers idle while all jobs are delayed.
        ({"delayed": 1, "due": 1}, False, True, True),
        ({"waiting": 1, "paused": True}, False, False, False),
        ({"waiting": 1, "paused": True, "active": 1}, False, False, True),
    ],
)
def test_jobs_that_nobody_runs(
    counts: dict[str, Any], connected: bool, unknown: bool, alone: bool
) -> None:
    backlog = replace(NOTHING, **counts)
    found = [is_unserved(backlog, each) for each in (True, None, False)]
    assert found == [connected, unknown, alone]
