"""Who listens to a queue: a table of what stock clients call their connections."""

import base64
from collections.abc import Collection

import pytest

from jobgroup.listeners import has_listener, nobody_listens
from jobgroup.snapshot import GroupJob, UndoStatus


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
def test_a_worker_is_known_by_its_connection(connection: str, listens: bool) -> None:
    assert has_listener("bull", "payments:compensation", ["", connection]) is listens


def test_a_plain_queue_has_one_spelling() -> None:
    assert has_listener("bull", "payments", ["bull:payments"])
    assert has_listener("bull", "payments", [f"bull:{b64('payments')}:w:x"])
    assert not has_listener("bull", "payments", ["bull:payments:compensation"])


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
            "3 undos wait in payments:compensation; no worker is listening",
        ),
        (
            jobs("payments", 1),
            {"bull:payments"},
            "1 undo waits in payments:compensation; no worker is listening",
        ),
        (jobs("payments", 3), THERE, ""),
        (jobs("payments", 3), None, ""),
        (jobs("payments", 3, "completed") + jobs("payments", 3, ""), set(), ""),
        (
            jobs("payments", 3) + jobs("mail", 2) + jobs("stock", 1),
            THERE,
            "2 undos wait in mail:compensation, 1 in stock:compensation; no worker is listening",
        ),
        (
            [job for name in "abcde" for job in jobs(name, 2)],
            set(),
            "2 undos wait in a:compensation, 2 in b:compensation, 2 in c:compensation,"
            " more in 2 other queues; no worker is listening",
        ),
        ([], set(), ""),
    ],
)
def test_undos_that_nobody_hears_are_named(
    undos: list[GroupJob], connections: Collection[str] | None, said: str
) -> None:
    assert nobody_listens("bull", undos, connections) == said
