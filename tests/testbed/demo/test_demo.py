"""`make demo` as a user runs it: the output, the commands to try, and the clean-up."""

import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import ROOT
from testbed.demo.picture import draw, excerpt
from testbed.demo.screen import CODE
from testbed.demo.story import JOBS, SUMMARY
from testbed.servers.processes import is_running
from testbed.support.waiting import wait_for

PICTURE = ROOT / "docs" / "demo.svg"
# -o: treat the virtual environment as installed.
MAKE = ("make", "--no-print-directory", "-o", ".venv/.installed", "demo")
BARE = (sys.executable, "-m", "testbed.demo")

Starter = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Starter]:
    """Start demos with all their files in the test's folder; kill them after the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*command: str, **env: str) -> subprocess.Popen[str]:
        unwanted = ("CI", "NO_COLOR", "FORCE_COLOR", "TEAPOTS", "WORK_MS", "MAKEFLAGS")
        inherited = {key: value for key, value in os.environ.items() if key not in unwanted}
        with (tmp_path / "stderr").open("w") as complaints:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**inherited, "PYTHONPATH": "operator:.", "TMPDIR": str(tmp_path), **env},
                stdout=subprocess.PIPE,
                stderr=complaints,
                encoding="utf-8",
                start_new_session=True,
            )
        running.append(process)
        return process

    yield start
    for process in running:
        with process:
            process.kill()


def left(folder: Path) -> list[str]:
    """Return the commands of the processes that use a folder; all parts of a demo use one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # Redis overwrites its environment with its title, but works in the folder.
            about = f"{(process / 'cwd').readlink()} {(process / 'environ').read_text('latin-1')}"
            command = (process / "cmdline").read_text("latin-1").replace("\0", " ")
        except OSError:
            continue
        if str(folder) in f"{about} {command}" and is_running(int(process.name)):
            found.append(command)
    return found


def read_until(process: subprocess.Popen[str], *texts: str) -> str:
    """Read the output of a demo until it contains all of these texts."""
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if all(text in output for text in texts):
            return output
    raise AssertionError(f"the demo never printed {texts}, but {output}")


def steady(lines: list[str]) -> set[str]:
    """Return the lines without parts that differ in each run: times, ages, short states."""
    passing = "|".join(words for _, _, words in JOBS.values())
    kept = set()
    for line in lines:
        text = re.sub(r"^ *\d+\.\d s", "", CODE.sub("", line)).strip()
        if not re.search(rf"ACTIVE|COMPENSATING|^\S \S+ +({passing})$", text):
            kept.add(re.sub(r"\d+s$", "", text).strip())
    return kept


def test_it_ends_by_itself_and_is_what_the_picture_shows(demo: Starter, tmp_path: Path) -> None:
    process = demo(*MAKE, "CI=1", FORCE_COLOR="1")
    printed, _ = process.communicate()
    assert process.returncode == 0, (printed, (tmp_path / "stderr").read_text())
    assert left(tmp_path) == []
    assert list(tmp_path.glob("jobgroup-demo-*")) == []
    assert "\033[32mCOMPLETED" in printed
    plain = CODE.sub("", printed)
    for pattern in (
        r"order-123 +ACTIVE +0/3 completed",
        r"order-123 +COMPLETED +3/3 completed",
        r"worker.mjs +charged 99.99 for order 124",
        r"worker.py +book-shipping failed: no carrier goes to Atlantis \(attempt 3 of 3\)",
        r"order-124 +COMPENSATING +2/3 completed",
        r"event +order-124 Compensating: undoing the completed jobs: 2 of 3 jobs had completed",
        r"worker.mjs +refunded pay-124: order cancelled",
        r"order-124 +FAILED +2/3 completed, 2/2 undone\n +↺ charge-payment +undone",
        r"In the shop's books: pay-123 99.99, res-123 2, box-123 Lisbon\n" + SUMMARY,
    ):
        assert re.search(pattern, plain), pattern
    drawn = ElementTree.parse(PICTURE).getroot().findall("{http://www.w3.org/2000/svg}text")  # noqa: S314
    shown = ["".join(text.itertext()) for text in drawn]
    assert steady(shown) == steady(excerpt(printed)), "run `make picture`"


def test_it_waits_for_the_user_and_ctrl_c_ends_it(demo: Starter, tmp_path: Path) -> None:
    process = demo(*MAKE)
    printed = read_until(process, "Ctrl-C ends the demo")
    assert "\033" not in printed
    _, _, invitation = printed.partition("Your turn, in another terminal:")
    enter, set_up, *commands = re.findall(r"^  (\S.+)$", invitation, re.MULTILINE)
    endless = [command for command in commands if command.endswith("--watch")]
    assert len(commands) > 5
    assert len(endless) == 1

    def paste(command: str) -> str:
        command = f"timeout 2 {command}" if command in endless else command
        lines = f"{enter}\n{set_up}\n{command}\n"
        return subprocess.run(
            ["bash", "-c", lines],
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout

    said = "".join(paste(command) for command in commands)
    for expected in (
        "order-123   COMPLETED   3/3",
        'jobgroup-operator  job "book-shipping" failed: no carrier goes to Atlantis',
        "jobgroup.jobgroups.dev/order-125 created",
        "jobgroup.jobgroups.dev/order-126 condition met",
        "jobgroup.jobgroups.dev/order-126 patched",
        "Cannot cancel a completed group",
        "FIELDS:",
        'jobgroup.jobgroups.dev "order-123" deleted',
    ):
        assert expected in said
    # The demo reports a queue without workers, and a job fails if no worker knows it.
    strange = """
        {"apiVersion": "jobgroups.dev/v1alpha1", "kind": "JobGroup", "metadata": {"name": "song"},
         "spec": {"jobs": [{"name": "sing", "queueName": "%s"}]}}"""
    for queue, name in (("operas", "song"), ("payments", "tune")):
        manifest = (strange % queue).replace("song", name)
        assert "created" in paste(f"echo '{manifest}' | kubectl apply -f -")
    read_until(
        process,
        "order-123   deleted",
        "order-125   COMPLETED",
        "order-126   FAILED        2/3 completed, 2/2 undone",
        "refunded pay-126",
        "queue operas has no worker here; there are workers for payments, inventory, shipping",
        'tune Failed: job "sing" failed: no worker of payments knows how to sing',
    )
    assert len(left(tmp_path)) > 7
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate()
    assert printed.endswith("All processes are stopped, and all files are removed.\n")
    assert left(tmp_path) == []
    assert list(tmp_path.glob("jobgroup-demo-*")) == []


def test_an_unexpected_end_is_a_failure(demo: Starter, tmp_path: Path) -> None:
    process = demo(*MAKE, "CI=1", TEAPOTS="1", WORK_MS="0")
    process.communicate()
    assert process.returncode != 0
    complaint = (tmp_path / "stderr").read_text()
    assert "make demo: order-123 should be COMPLETED with 3/3 completed, and is FAILED" in complaint
    assert "there are not 2 of teapot" in complaint
    assert left(tmp_path) == []
    (logs,) = tmp_path.glob("jobgroup-demo-*")
    assert f"The logs are in {logs}." in complaint
    assert "reserve-stock failed" in (logs / "worker.py.log").read_text()


def test_an_interrupted_start_leaves_nothing_behind(demo: Starter, tmp_path: Path) -> None:
    process = demo(*BARE)
    read_until(process, "Starting")
    wait_for(lambda: len(left(tmp_path)) > 1)
    process.terminate()
    process.communicate()
    assert process.returncode == 130
    assert "make demo: interrupted; nothing is left running" in (tmp_path / "stderr").read_text()
    assert left(tmp_path) == []
    assert list(tmp_path.glob("jobgroup-demo-*")) == []


def test_all_parts_end_with_a_killed_demo(demo: Starter, tmp_path: Path) -> None:
    process = demo(*BARE)
    read_until(process, "$ kubectl apply")
    assert len(left(tmp_path)) > 6
    process.kill()
    wait_for(lambda: not left(tmp_path))


def test_a_picture_has_the_colours_and_the_text() -> None:
    lines = ["\033[1m$ kubectl\033[0m <&>", "  plain  "]
    drawn = draw(lines)
    assert '<tspan class="bold">$ kubectl</tspan> &lt;&amp;&gt;</text>' in drawn
    texts = ElementTree.fromstring(drawn).findall("{http://www.w3.org/2000/svg}text")  # noqa: S314
    assert ["".join(text.itertext()) for text in texts] == ["$ kubectl <&>", "  plain  "]
