"""The printed lines of the demo, its expected outcome, and its screen."""

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.demo import story
from testbed.demo.outcome import ORDERS, Unexpected, check_books
from testbed.demo.parts import must_run, timed_start
from testbed.demo.screen import CODE, Screen, paint, printable
from testbed.servers.processes import Server
from testbed.support.errors import Unavailable
from testbed.support.examples import BOOKS

FULFILLED, REFUSED = ORDERS
REASONS = ["Failed", "Compensating", "Compensated"]


def group(state: str = "", progress: str = "0/2", undone: str = "", **jobs: str) -> dict[str, Any]:
    """Return a JobGroup; a job's value is its status, and after a slash that of its undo."""
    lines = []
    for name, told in jobs.items():
        how, _, undo = told.partition("/")
        lines.append({"name": name, "status": how, **({"undo": undo} if undo else {})})
    status = {"state": state, "progress": progress, "undone": undone, "jobs": lines}
    spec = {"jobs": [{"name": "pay", "queueName": "money"}, {"name": "ship", "queueName": "sea"}]}
    return {"metadata": {"name": "order"}, "spec": spec, **({"status": status} if state else {})}


def plain(lines: list[str]) -> list[str]:
    return [CODE.sub("", line) for line in lines]


# Groups


def test_a_group_that_is_not_created_yet_has_no_lines() -> None:
    assert story.of_group(None, group()) == []
    assert story.of_group(None, group("PENDING")) == []


def test_jobs_are_printed_when_they_end_and_in_the_order_of_the_spec() -> None:
    active = group("ACTIVE", pay="pending", ship="active")
    assert plain(story.of_group(None, active)) == ["order       ACTIVE        0/2 completed"]
    done = group("COMPLETED", "2/2", ship="completed", pay="completed")
    assert plain(story.of_group(active, done)) == [
        "order       COMPLETED     2/2 completed",
        "              ✓ pay               completed",
        "              ✓ ship              completed",
    ]


def test_only_changes_are_printed() -> None:
    before = group("ACTIVE", "1/2", pay="completed", ship="active")
    assert story.of_group(before, before) == []
    undoing = group("COMPENSATING", "1/2", "0/1", pay="completed/pending", ship="failed")
    assert plain(story.of_group(before, undoing)) == [
        "order       COMPENSATING  1/2 completed, 0/1 undone",
        "              ↺ pay               being undone",
        "              ✗ ship              failed",
    ]
    undone = group("FAILED", "1/2", "1/1", pay="completed/completed", ship="failed")
    assert plain(story.of_group(undoing, undone)) == [
        "order       FAILED        1/2 completed, 1/1 undone",
        "              ↺ pay               undone",
    ]


def test_a_big_group_is_printed_in_few_lines() -> None:
    names = [f"job-{n}" for n in range(100)]
    big = group("COMPLETED", "100/100", **dict.fromkeys(names, "completed"))
    big["spec"] = {"jobs": [{"name": name} for name in names]}
    told = plain(story.of_group(None, big))
    assert len(told) == 12
    assert told[-1].strip() == "and 90 more jobs"


def test_a_group_that_was_never_created_can_end() -> None:
    assert plain(story.of_group(None, group("FAILED", ""))) == [
        "order       FAILED        nothing completed"
    ]


def test_queues_without_workers_are_named() -> None:
    (told,) = plain(story.of_queues(group(), ["money", "land"]))
    assert told.strip() == "queue sea has no worker here; there are workers for money, land"


def test_control_characters_of_a_worker_do_not_reach_the_terminal() -> None:
    assert printable("a\033[2Jb\r") == "a [2Jb "
    assert "\033[2J" not in story.of_worker("worker.py", "\033[2J")
    about = {"name": "order-124"}
    event = {"type": "Warning", "reason": "Failed", "message": "\033[2J", "involvedObject": about}
    assert "\033[2J" not in story.of_event(event)


def test_an_event_names_its_object() -> None:
    about = {"name": "order-124"}
    event = {"type": "Normal", "reason": "Compensated", "message": "done", "involvedObject": about}
    assert plain([story.of_event(event)]) == ["event       order-124 Compensated: done"]


# The end


def test_the_expected_end_is_accepted() -> None:
    FULFILLED.check({"state": "COMPLETED", "progress": "3/3"}, [])
    REFUSED.check({"state": "FAILED", "progress": "2/3", "undone": "2/2"}, REASONS)
    check_books(BOOKS)


@pytest.mark.parametrize(
    ("order", "status", "events", "sentence"),
    [
        (
            FULFILLED,
            {"state": "FAILED", "progress": "2/3", "undone": "2/2", "failure": {"reason": "no"}},
            REASONS,
            "order-123 should be COMPLETED with 3/3 completed, and is FAILED with 2/3 completed"
            " and 2/2 undone (no).",
        ),
        (
            REFUSED,
            {"state": "FAILED_COMPENSATION", "progress": "2/3", "undone": "1/2"},
            REASONS,
            "order-124 should be FAILED with 2/3 completed and 2/2 undone, and is"
            " FAILED_COMPENSATION with 2/3 completed and 1/2 undone.",
        ),
        (
            REFUSED,
            {"state": "FAILED", "progress": "2/3", "undone": "2/2"},
            ["Failed"],
            "order-124 lacks the events Compensated, Compensating.",
        ),
        (FULFILLED, {}, [], "order-123 should be COMPLETED with 3/3 completed, and is PENDING."),
    ],
    ids=["failed", "not undone", "no events", "not seen"],
)
def test_another_end_is_an_error(
    order: Any, status: dict[str, Any], events: list[str], sentence: str
) -> None:
    with pytest.raises(Unexpected) as refusal:
        order.check(status, events)
    assert str(refusal.value) == sentence


def test_an_order_is_over_when_it_has_ended_with_its_events() -> None:
    good = {"state": "FAILED", "progress": "2/3", "undone": "2/2"}
    assert not REFUSED.is_over({"state": "COMPENSATING"}, REASONS)
    assert not REFUSED.is_over(good, ["Failed"])
    assert REFUSED.is_over(good, REASONS)
    assert REFUSED.is_over({"state": "COMPLETED"}, [])


def test_books_that_keep_a_payment_are_an_error() -> None:
    wrong = {**BOOKS, "payments": {"pay-123": "99.99", "pay-124": "99.99"}}
    with pytest.raises(Unexpected, match=r"and has pay-123 99\.99, pay-124 99\.99, res-123 2"):
        check_books(wrong)
    with pytest.raises(Unexpected, match="and has nothing"):
        check_books({})


def test_a_part_that_ended_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["sh", "-c", "echo out of memory; exec sleep 600"]
    with Server("the moon", command, log, lambda _: "out" in log.read_text()) as server:
        must_run([server])
        server.kill()
        with pytest.raises(Unavailable, match=r"the moon ended with code -9: [^\0]*out of memory"):
            must_run([server])


# Pods


def pod(phase: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": "undoer-1", **metadata}, "status": {"phase": phase}}


def test_a_pod_is_printed_when_it_starts_and_when_it_ends() -> None:
    life = [
        None,
        pod("Pending"),
        pod("Pending"),
        pod("Running"),
        pod("Running", deletionTimestamp="now"),
        pod("Succeeded", deletionTimestamp="now"),
        None,
    ]
    told = [plain(story.of_pod(*change)) for change in itertools.pairwise(life)]
    said = [line.removeprefix("pod         undoer-1 ") for lines in told for line in lines]
    assert said == ["starts", "runs", "is terminating", "is gone"]
    assert told[1] == told[4] == [], "these changes are not printed"


# The screen


class Terminal(io.StringIO):
    encoding = "utf-8"

    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "env", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_are_used_only_if_the_terminal_supports_them(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, env: dict[str, str], colours: bool
) -> None:
    for name, value in {"NO_COLOR": "", "FORCE_COLOR": "", "TERM": "xterm", **env}.items():
        monkeypatch.setenv(name, value)
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    Screen().write(f"all {paint('green', 'well')}")
    assert terminal.getvalue() == ("all \033[32mwell\033[0m\n" if colours else "all well\n")


def test_a_terminal_that_supports_only_ascii_gets_only_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal(is_terminal=False)
    terminal.encoding = "ascii"
    monkeypatch.setattr(sys, "stdout", terminal)
    Screen().write("✓ ✗ ↺ é")
    assert terminal.getvalue() == "+ x < ?\n"


def test_a_closed_screen_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(Terminal):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    screen = Screen()
    with pytest.raises(KeyboardInterrupt):
        screen.write("hello")
    screen.write("is anybody there?")
    sys.stdout.close()


def test_a_message_while_a_part_starts_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    timed_start(screen.write, "Redis", lambda: None)
    timed_start(screen.write, "etcd", lambda: print("Waiting for another run.\nBuilt etcd."))
    quick, label, *messages, slow = capsys.readouterr().out.splitlines()
    assert quick.split() == ["Redis", "0.0", "s"]
    assert label.split() == ["etcd"]
    assert messages == ["Waiting for another run.", "Built etcd."]
    assert slow.split() == ["etcd", "0.0", "s"]
