"""The command line, run as a person runs it: a process, its output and its exit code."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from jobgroup import Driver, JobGroups, __version__, keys
from jobgroup.__main__ import main
from testbed.fixtures import QueueNamer
from testbed.processes import free_port, leashed
from testbed.stock import PATIENCE_SECONDS, StockClient, fails_for_good, hangs, returns
from testbed.waiting import eventually

SOURCES = Path(__file__).resolve().parents[2] / "operator"
VERBS = ("add", "show", "jobs", "cancel", "remove", "follow", "drive")
ORDER = """\
name: order
groupId: order-1
jobs:
- {name: charge, queueName: payments}
- {name: reserve, queueName: inventory}
compensation:
  charge: {name: refund}
"""
Here = Callable[..., "subprocess.CompletedProcess[str]"]
SECRET = "hunter2"  # noqa: S105 (no secret: the tests look for it where it must not be)


class Cli:
    """Runs `python -m jobgroup` on one Redis, under one prefix."""

    def __init__(self, redis_url: str, prefix: str) -> None:
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            "PYTHONPATH": str(SOURCES),
            "REDIS_URL": redis_url,
            "BULLMQ_PREFIX": prefix,
            "COLUMNS": "120",
        }
        self.command = leashed([sys.executable, "-m", "jobgroup"])

    def __call__(
        self, *args: str, stdin: str = "", **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run to the end; whatever happens, nobody sees a traceback."""
        done = subprocess.run(
            [*self.command, *args],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    async def start(self, *args: str, **settings: Any) -> asyncio.subprocess.Process:
        """Start and leave running."""
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, **settings}
        return await asyncio.create_subprocess_exec(*self.command, *args, env=self.env, **pipes)


@pytest.fixture
def cli(redis_url: str, prefix: str) -> Cli:
    return Cli(redis_url, prefix)


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run the same in this process: quicker, where being a process is not the point."""

    def run(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        for name, value in {**cli.env, **env}.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(args)
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(args, code, *capsys.readouterr())

    return run


@pytest.fixture
async def groups(redis_url: str, prefix: str, queue: QueueNamer) -> AsyncIterator[JobGroups]:
    """Open the API; every group is removed afterwards, with what a removed group leaves behind."""
    for name in ("payments", "inventory", "shipping"):
        queue(name)
    async with JobGroups.connect(redis_url, prefix) as groups:
        yield groups
        redis, books = groups.store.redis, keys.books(prefix)
        parked = await redis.zrange(keys.parked(prefix), 0, -1)
        ended = await redis.zrange(f"{books}:saga:ended", 0, -1)
        for group_id in {keys.group_of(token) for token in [*parked, *ended]}:
            state = await groups.get_group_state(group_id)
            if state and not state.ended:
                await groups.cancel_group(group_id)
                await Driver(groups.store).drain()
            await groups.remove_group(group_id)
        tombs = [key async for key in redis.scan_iter(f"{books}:tomb:*")]
        await redis.delete(f"{books}:events", keys.marker(prefix), *tombs)


@pytest.fixture
async def worker(
    groups: JobGroups, start_client: Callable[[str], Awaitable[StockClient]]
) -> StockClient:
    """Start a stock client that is gone before the groups are removed."""
    return await start_client("bullmq6")


@pytest.fixture
async def driver(groups: JobGroups, cli: Cli) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `drive` beside the test, and end it as a service manager does."""
    process = await cli.start("drive")
    assert "driving" in await line_of(process.stderr)
    yield process
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await process.communicate()


async def line_of(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await stream.readline()).decode()


async def ending_of(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        output, complaints = await process.communicate()
    return process.returncode, (output or b"").decode(), (complaints or b"").decode()


async def keys_of(redis: Redis, prefix: str) -> list[str]:
    return [key async for key in redis.scan_iter(f"{prefix}*")]


async def work(worker: StockClient, **behaviour: Any) -> None:
    for queue in ("payments", "inventory"):
        await worker.work(queue, behaviour)


# -- help and usage


def test_help_names_every_verb_and_exit_code(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    assert set(VERBS) <= set(re.findall(r"^    (\w+)", done.stdout, re.MULTILINE))
    assert re.findall(r"^  (\d+)  ", done.stdout, re.MULTILINE) == [
        "0",
        "1",
        "2",
        "3",
        "130",
        "141",
    ]
    assert "REDIS_URL" in done.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(here: Here, verb: str) -> None:
    done = here(verb, "--help", REDIS_URL=f"redis://:{SECRET}@host")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: python -m jobgroup {verb} ")
    assert "--redis URL" in done.stdout
    assert SECRET not in done.stdout


def test_version(here: Here) -> None:
    assert here("--version").stdout == f"jobgroup {__version__}\n"


@pytest.mark.parametrize("args", [[], ["dance"], ["show"], ["show", "a", "--out", "json"]])
def test_wrong_usage(here: Here, args: list[str]) -> None:
    done = here(*args)
    assert done.returncode == 2
    assert "usage: python -m jobgroup" in done.stderr


def test_wrong_usage_is_told_without_the_password(here: Here) -> None:
    done = here("show", "a", "--reds", f"redis://:{SECRET}@host")
    assert done.returncode == 2
    assert "unrecognized arguments: --reds redis://***@host" in done.stderr
    assert SECRET not in done.stderr


# -- add, show, jobs, cancel, remove


async def test_a_life_in_texts(cli: Cli, groups: JobGroups) -> None:
    added = cli("add", "-", stdin=ORDER)
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "order-1 order ACTIVE: 0/2 completed\n"
    again = cli("add", "-", stdin=ORDER)
    assert (again.returncode, again.stdout) == (0, added.stdout)

    shown = cli("show", "order-1")
    assert shown.returncode == 0
    assert re.search(r"^state +ACTIVE$", shown.stdout, re.MULTILINE)
    listed = cli("jobs", "order-1").stdout.splitlines()
    assert [line.split()[:3] for line in listed] == [
        ["jobId", "queueName", "status"],
        ["order-1-0", "payments", "pending"],
        ["order-1-1", "inventory", "pending"],
    ]

    running = cli("remove", "order-1")
    assert (running.returncode, running.stdout) == (2, "")
    assert running.stderr == "jobgroup: Cannot remove group in state ACTIVE\n"
    cancelled = cli("cancel", "order-1")
    assert cancelled.returncode == 0
    assert cancelled.stdout == "order-1 order FAILED: 0/2 completed, 2 cancelled (cancelled)\n"
    twice = cli("cancel", "order-1")
    assert (twice.returncode, twice.stderr) == (
        2,
        "jobgroup: Cannot cancel group in state FAILED\n",
    )
    removed = cli("remove", "order-1")
    assert (removed.returncode, removed.stdout) == (0, "order-1 REMOVED\n")
    revived = cli("add", "-", stdin=ORDER)
    assert (revived.returncode, revived.stdout) == (2, "")
    assert "standard input: Group order-1 was removed" in revived.stderr


@pytest.mark.parametrize("verb", ["show", "jobs", "cancel", "remove", "follow"])
def test_nobody_knows_the_group(here: Here, verb: str) -> None:
    done = here(verb, "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jobgroup: Group nobody not found\n"


def test_an_id_that_cannot_be_one(here: Here) -> None:
    done = here("show", "order:1")
    assert done.returncode == 2
    assert done.stderr.startswith("jobgroup: Group id 'order:1' must be")


async def test_json_has_the_fields_of_the_text(cli: Cli, groups: JobGroups) -> None:
    added = json.loads(cli("--output", "json", "add", "-", stdin=ORDER).stdout)
    shown = json.loads(cli("show", "order-1", "--output", "json").stdout)
    assert added == shown
    listing = dict(line.split(None, 1) for line in cli("show", "order-1").stdout.splitlines())
    empty = (None, "")
    assert listing == {k: "-" if v in empty else str(v) for k, v in shown.items()}

    rows = [
        json.loads(line) for line in cli("jobs", "order-1", "--output=json").stdout.splitlines()
    ]
    header, *lines = (line.split() for line in cli("jobs", "order-1").stdout.splitlines())
    assert [dict(zip(header, line, strict=True)) for line in lines] == [
        {k: v or "-" for k, v in row.items()} for row in rows
    ]

    assert json.loads(cli("cancel", "order-1", "--output", "json").stdout)["state"] == "FAILED"
    removed = json.loads(cli("remove", "order-1", "--output", "json").stdout)
    assert removed == {"id": "order-1", "state": "REMOVED"}


async def test_a_file_of_each_kind(cli: Cli, groups: JobGroups, tmp_path: Path) -> None:
    plain = {"name": "Zoë's", "jobs": [{"name": "charge", "queueName": "payments"}]}
    manifest = {
        "apiVersion": "jobgroups.dev/v1alpha1",
        "kind": "JobGroup",
        "metadata": {"name": "manifest"},
        "spec": {"jobs": plain["jobs"]},
    }
    (tmp_path / "plain.json").write_text(json.dumps(plain, indent="\t"))
    (tmp_path / "both.yaml").write_text(f"{json.dumps(plain)}\n---\n{json.dumps(manifest)}\n")
    (tmp_path / "marked.yaml").write_text(json.dumps(manifest), encoding="utf-8-sig")
    assert cli("add", str(tmp_path / "plain.json"), "--id", "a").stdout.startswith("a Zoë's ACTIVE")
    both = cli("add", str(tmp_path / "both.yaml")).stdout.splitlines()
    assert [line.split()[1] for line in both] == ["Zoë's", "manifest"]
    assert cli("add", str(tmp_path / "marked.yaml"), "--id", "b").stdout.startswith("b manifest ")
    narrow = cli("show", "a", PYTHONIOENCODING="ascii")
    assert (narrow.returncode, "Zo\\xeb's" in narrow.stdout) == (0, True)


async def test_of_several_groups_one_is_refused(cli: Cli, groups: JobGroups) -> None:
    assert cli("add", "-", stdin=ORDER).returncode == 0
    changed = ORDER.replace("charge", "bill")
    other = ORDER.replace("order-1", "order-2")
    done = cli("add", "-", stdin=f"{changed}---\n{other}")
    assert done.returncode == 2
    sentence = "standard input: Group order-1 already exists with another definition"
    assert done.stderr == f"jobgroup: {sentence}\n"
    assert done.stdout == "order-2 order ACTIVE: 0/2 completed\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "there is no group in it"),
        ("- a\n- b\n", "a group should be a mapping"),
        (
            "name: a\njobs:\n\t- b\n",
            "line 3, column 1: YAML is indented with spaces, not with tabs",
        ),
        ("name: a\nname: b\n", 'line 2, column 1: the key "name" stands twice in one mapping'),
        (b"name: a\njobs: \xff\n", "line 2 is not UTF-8 text"),
        (f"{ORDER}---\nname: b\n", "document 2: Group must contain at least one job"),
    ],
)
async def test_a_bad_file_writes_nothing(
    cli: Cli, redis: Redis, prefix: str, tmp_path: Path, content: str | bytes | None, sentence: str
) -> None:
    file = tmp_path / "order.yaml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    done = cli("add", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        rf"jobgroup: {re.escape(str(file))}[:,] {re.escape(sentence)}\n", done.stderr
    )
    assert await keys_of(redis, prefix) == []


def test_a_folder_is_no_file(here: Here, tmp_path: Path) -> None:
    done = here("add", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"jobgroup: {tmp_path}: cannot be read: Is a directory\n"


# -- Redis


def test_redis_is_out_of_reach(cli: Cli) -> None:
    where = f"127.0.0.1:{free_port()}"
    for args in (["show", "a"], ["drive", "--once"]):
        done = cli(*args, "--redis", f"redis://user:{SECRET}@{where}/0")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"jobgroup: Redis at {where} is out of reach: ")
        assert done.stderr.count("\n") == 1
        assert SECRET not in done.stderr


def test_redis_refuses_the_password(here: Here, redis_url: str) -> None:
    done = here("show", "a", "--redis", re.sub("//(.*@)?", f"//nobody:{SECRET}@", redis_url))
    assert done.returncode == 3
    assert " does not obey: " in done.stderr
    assert SECRET not in done.stderr


async def test_redis_does_not_obey(cli: Cli, redis: Redis, prefix: str) -> None:
    await redis.set(keys.parent(prefix, "odd"), "not a hash")
    done = cli("show", "odd")
    await redis.delete(keys.parent(prefix, "odd"))
    assert done.returncode == 3
    assert "does not obey: " in done.stderr
    assert "WRONGTYPE" in done.stderr


@pytest.mark.parametrize(
    "url",
    [
        f"http://:{SECRET}@host",
        f"host:6379?password={SECRET}",
        f"redis://:{SECRET}/x@host:6379",
        f"redis://:12{SECRET}#@host:6379",
        f"redis://{SECRET}?@host:6379",
        f"redis://:{SECRET}@[::1:6379",
        f"redis://:{SECRET}@host:6379/0?socket_timeout=soon",
        f"redis://:{SECRET}@host:6379/0?colour=red",
    ],
)
def test_a_url_that_is_none(here: Here, url: str) -> None:
    done = here("show", "a", "--redis", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jobgroup: the Redis URL ")
    assert SECRET not in done.stderr


def test_a_socket_is_a_place_too(here: Here, tmp_path: Path) -> None:
    done = here("show", "a", "--redis", f"unix://{tmp_path}/redis.sock")
    assert done.returncode == 3
    assert f"Redis at {tmp_path}/redis.sock is out of reach" in done.stderr


# -- follow, --wait and drive


async def test_follow_says_what_changes_until_the_end(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=hangs(returns(1)), reserve=hangs(returns(2)))
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    watching = await cli.start("follow", "order-1", "--output", "json")
    assert await line_of(following.stdout) == "order-1 order ACTIVE: 0/2 completed\n"
    assert json.loads(await line_of(watching.stdout))["state"] == "ACTIVE"
    await worker.release("charge")
    assert await line_of(following.stdout) == "order-1 order ACTIVE: 1/2 completed\n"
    await worker.release("reserve")
    code, output, complaints = await ending_of(following)
    assert (code, complaints) == (0, "")
    assert output.splitlines()[-1] == "order-1 order COMPLETED: 2/2 completed"
    code, output, complaints = await ending_of(watching)
    assert (code, complaints) == (0, "")
    assert json.loads(output.splitlines()[-1])["state"] == "COMPLETED"
    assert cli("follow", "order-1").stdout == "order-1 order COMPLETED: 2/2 completed\n"


async def test_wait_ends_with_the_group_undone(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=hangs(fails_for_good("no stock")))
    await worker.work("payments:compensation", {"refund": hangs()})
    adding = await cli.start("add", "-", "--wait", stdin=asyncio.subprocess.PIPE)
    assert adding.stdin is not None
    adding.stdin.write(ORDER.encode())
    adding.stdin.write_eof()
    await worker.heard("completed", name="charge")
    await worker.release("reserve")
    await worker.heard("started", name="refund")
    undoing = (
        "order-1 order COMPENSATING: 1/2 completed, 1 failed, 0/1 undone (order-1-1: no stock)"
    )
    while await line_of(adding.stdout) != f"{undoing}\n":
        pass
    await worker.release("refund")
    code, output, complaints = await ending_of(adding)
    ended = undoing.replace("COMPENSATING", "FAILED").replace("0/1", "1/1")
    assert (code, output, complaints) == (1, f"{ended}\n", "")
    for line in (undoing, ended):
        stamped = re.escape(line) + "\n"
        assert re.fullmatch(rf"\d{{4}}-\S+Z {stamped}", await line_of(driver.stdout))


async def test_drive_says_each_state_once(
    cli: Cli, worker: StockClient, groups: JobGroups, driver: asyncio.subprocess.Process
) -> None:
    order = ORDER + "  reserve: {name: release}\n"
    order = order.replace("compensation:", "- {name: ship, queueName: shipping}\ncompensation:")
    await work(worker, charge=hangs(fails_for_good()), reserve=returns(1))
    await worker.work("shipping", {"ship": hangs()})
    await worker.work("inventory:compensation", {"release": hangs()})
    cli("add", "-", stdin=order)
    await worker.heard("completed", name="reserve")
    await worker.heard("started", name="ship")
    await worker.release("charge")
    assert " COMPENSATING: " in await line_of(driver.stdout)
    before = await groups.get_group_state("order-1")
    await worker.release("release")

    async def counted() -> bool:
        now = await groups.get_group_state("order-1")
        return now is not None and before is not None and now.revision > before.revision

    await eventually(counted)
    await worker.release("ship")
    assert " FAILED: 2/3 completed, 1 failed, 1/1 undone" in await line_of(driver.stdout)


async def test_wait_for_several_groups(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=returns(2), bill=fails_for_good())
    good = ORDER.replace("order-1", "good")
    bad = ORDER.replace("order-1", "bad").replace("charge", "bill")
    done = cli("add", "-", "--wait", stdin=f"{good}---\n{bad}")
    assert done.returncode == 1
    ends = {line.split()[0]: line.split()[2] for line in done.stdout.splitlines()}
    assert ends == {"good": "COMPLETED:", "bad": "FAILED:"}


async def test_a_terminal_gets_one_line_that_is_written_over(
    cli: Cli, worker: StockClient, driver: asyncio.subprocess.Process
) -> None:
    await work(worker, charge=returns(1), reserve=hangs(returns(2)))
    cli("add", "-", stdin=ORDER)
    cli.env["TERM"] = "xterm"
    terminal, end = os.openpty()
    following = await cli.start("follow", "order-1", stdout=end)
    os.close(end)
    seen = ""
    while "1/2 completed" not in seen:
        seen += (await asyncio.to_thread(os.read, terminal, 1000)).decode()
    await worker.release("reserve")
    assert (await ending_of(following))[0] == 0
    seen += os.read(terminal, 1000).decode()
    os.close(terminal)
    *_, last = seen.split("\r\033[K")
    assert "\n" not in seen.removesuffix("\r\n")
    assert last == "order-1 order COMPLETED: 2/2 completed\r\n"
    assert "[##########..........] order-1 order ACTIVE: 1/2 completed" in seen


async def test_an_interrupted_terminal_is_left_on_a_new_line(cli: Cli, groups: JobGroups) -> None:
    cli("add", "-", stdin=ORDER)
    cli.env["TERM"] = "xterm"
    terminal, end = os.openpty()
    following = await cli.start("follow", "order-1", stdout=end)
    os.close(end)
    seen = (await asyncio.to_thread(os.read, terminal, 1000)).decode()
    following.send_signal(signal.SIGINT)
    assert (await ending_of(following))[::2] == (130, "")
    seen += os.read(terminal, 1000).decode()
    os.close(terminal)
    assert seen.endswith("order-1 order ACTIVE: 0/2 completed\r\n")


async def test_interrupted(cli: Cli, groups: JobGroups) -> None:
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    await line_of(following.stdout)
    following.send_signal(signal.SIGINT)
    assert await ending_of(following) == (130, "", "")


async def test_a_group_that_goes_away_under_its_follower(
    cli: Cli, groups: JobGroups, prefix: str
) -> None:
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1", "--output", "json")
    await line_of(following.stdout)
    parent, elsewhere = keys.parent(prefix, "order-1"), keys.parent(prefix, "elsewhere")
    await groups.store.redis.rename(parent, elsewhere)
    ending = await ending_of(following)
    await groups.store.redis.rename(elsewhere, parent)
    assert ending == (2, "", "jobgroup: Group order-1 not found\n")


async def test_a_follower_says_that_nobody_drives(cli: Cli, worker: StockClient) -> None:
    await work(worker)
    cli("add", "-", stdin=ORDER)
    following = await cli.start("follow", "order-1")
    said = await line_of(following.stderr)
    assert said == "jobgroup: nobody drives order-1; run `python -m jobgroup drive`\n"
    once = cli("drive", "--once", "--output", "json")
    assert (once.returncode, json.loads(once.stdout)["state"]) == (0, "COMPLETED")
    code, output, _ = await ending_of(following)
    assert (code, output.splitlines()[-1]) == (0, "order-1 order COMPLETED: 2/2 completed")


async def test_drive_once_finds_what_nobody_was_woken_for(
    cli: Cli, groups: JobGroups, prefix: str
) -> None:
    cli("add", "-", stdin=ORDER)
    redis = groups.store.redis
    await redis.lrem(f"{prefix}:payments:wait", 1, "order-1-0")
    await redis.delete(f"{prefix}:payments:order-1-0")
    await redis.srem(
        f"{keys.parent(prefix, 'order-1')}:dependencies", f"{prefix}:payments:order-1-0"
    )
    done = cli("drive", "--once")
    assert done.returncode == 0
    assert "order-1 order FAILED" in done.stdout
    assert "order-1-0: removed from its queue" in done.stdout
    assert done.stderr == "jobgroup: resync repaired 1 groups\n"
    quiet = cli("drive", "--once")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_drive_ends_well_when_told(
    driver: asyncio.subprocess.Process, stop: signal.Signals
) -> None:
    driver.send_signal(stop)
    assert await ending_of(driver) == (0, "", "")


async def test_drive_waits_for_a_redis_that_is_away(cli: Cli) -> None:
    driving = await cli.start("drive", "--redis", f"redis://:{SECRET}@127.0.0.1:{free_port()}")
    assert "driving" in await line_of(driving.stderr)
    said = await line_of(driving.stderr)
    assert said.startswith("jobgroup: redis: Error ")
    driving.send_signal(signal.SIGTERM)
    code, _, complaints = await ending_of(driving)
    assert code == 0
    assert SECRET not in said + complaints


# -- pipes


@pytest.mark.parametrize("args", [["show", "order-1"], ["follow", "order-1"]])
async def test_a_reader_that_saw_enough(cli: Cli, groups: JobGroups, args: list[str]) -> None:
    cli("add", "-", stdin=ORDER)
    reader, writer = os.pipe()
    os.close(reader)
    process = await cli.start(*args, stdout=writer)
    os.close(writer)
    assert await ending_of(process) == (141, "", "")


async def test_head(cli: Cli, groups: JobGroups) -> None:
    jobs = [{"name": "charge", "queueName": "payments"}] * 2000
    cli("add", "-", "--id", "long", stdin=json.dumps({"name": "long", "jobs": jobs}))
    command = f"{' '.join(cli.command)} jobs long | head -1"
    cli.command = ["sh", "-c", command]
    code, output, complaints = await ending_of(await cli.start())
    assert (code, output.split()[0], complaints) == (0, "jobId", "")
