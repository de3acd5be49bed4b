"""The command line as a process: its output and its exit code."""

import json
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from jobgroup import JobGroups, __version__
from jobgroup.cli.commands import main
from jobgroup.model import names
from testbed.servers.processes import free_port
from tests.jobgroup.cli.command_line import ORDER, SECRET, Cli, Here, keys_of

VERBS = (
    "add",
    "list",
    "show",
    "jobs",
    "cancel",
    "complete",
    "fail",
    "retry-undos",
    "resolve",
    "remove",
    "follow",
    "drive",
)


NO_COLUMN = {"undoQueue", "answer", "resolvedBy", "resolvedReason"}


# -- help and usage


def test_help_names_every_verb_and_exit_code(cli: Cli) -> None:
    done = cli("--help")
    assert done.returncode == 0
    assert set(VERBS) <= set(re.findall(r"^    ([a-z-]+)", done.stdout, re.MULTILINE))
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


@pytest.mark.parametrize(
    ("argv0", "prog"),
    [
        ("/usr/bin/jobgroup", "jobgroup"),
        ("jobgroup.exe", "jobgroup"),
        ("/site-packages/jobgroup/__main__.py", "python -m jobgroup"),
    ],
)
def test_help_shows_how_the_command_line_was_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv0: str, prog: str
) -> None:
    monkeypatch.setattr("sys.argv", [argv0, "--help"])
    with pytest.raises(SystemExit):
        main()
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {prog} ")
    assert f"Run `{prog} VERB --help`" in text


def test_version(here: Here) -> None:
    assert here("--version").stdout == f"jobgroup {__version__}\n"


@pytest.mark.parametrize("args", [[], ["dance"], ["show"], ["show", "a", "--out", "json"]])
def test_wrong_usage(here: Here, args: list[str]) -> None:
    done = here(*args)
    assert done.returncode == 2
    assert "usage: python -m jobgroup" in done.stderr


def test_a_usage_error_hides_the_password(here: Here) -> None:
    done = here("show", "a", "--reds", f"redis://:{SECRET}@host")
    assert done.returncode == 2
    assert "unrecognized arguments: --reds redis://***@host" in done.stderr
    assert SECRET not in done.stderr


# -- add, show, jobs, cancel, remove


async def test_every_verb_prints_text(cli: Cli, groups: JobGroups) -> None:
    added = cli("add", "-", stdin=ORDER)
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "order-1 order ACTIVE: 0/2 completed\n"
    again = cli("add", "-", stdin=ORDER)
    assert (again.returncode, again.stdout) == (0, added.stdout)
    sentence = "standard input: group order-1 exists already; added nothing"
    assert again.stderr == f"jobgroup: {sentence}\n"

    shown = cli("show", "order-1")
    assert shown.returncode == 0
    assert re.search(r"^state +ACTIVE$", shown.stdout, re.MULTILINE)
    listed = cli("jobs", "order-1").stdout.splitlines()
    assert [line.split()[:4] for line in listed] == [
        ["jobId", "name", "queueName", "status"],
        ["order-1-0", "charge", "payments", "pending"],
        ["order-1-1", "reserve", "inventory", "pending"],
    ]

    running = cli("remove", "order-1")
    assert (running.returncode, running.stdout) == (2, "")
    assert running.stderr == "jobgroup: Cannot remove group in state ACTIVE\n"
    cancelled = cli("cancel", "order-1", LOGNAME="ann")
    assert (cancelled.returncode, cancelled.stderr) == (0, "")
    why = "a cancellation was requested by ann"
    assert cancelled.stdout == f"order-1 order FAILED: 0/2 completed, 2 cancelled ({why})\n"
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


async def test_jobs_are_completed_and_failed(cli: Cli, groups: JobGroups) -> None:
    cli("add", "-", stdin=ORDER)
    done = cli("complete", "order-1", "reserve", "--value", '{"limit": 500}', LOGNAME="ann")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "order-1 order ACTIVE: 1/2 completed\n"
    again = cli("complete", "order-1", "order-1-1", "--value", '{"limit":5e2}', "--by", "ben")
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    other = cli("complete", "order-1", "reserve")
    assert (other.returncode, other.stdout) == (2, "")
    assert other.stderr == (
        'jobgroup: Cannot complete job "reserve" of group order-1: it was already completed by ann'
        " with another answer: the first answer holds\n"
    )
    failed = cli("fail", "order-1", "charge", "--reason", "no funds", "--by", "ben")
    assert (failed.returncode, failed.stderr) == (0, "")
    ended = "order-1 order FAILED: 1/2 completed, 1 failed (order-1-0: no funds)\n"
    assert failed.stdout == ended
    *_, first, second = cli("show", "order-1").stdout.splitlines()
    assert first.endswith("Z complete order-1-1 by ann")
    assert second.endswith("Z fail order-1-0 by ben: no funds")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("complete", "order-1"), "the following arguments are required: JOB"),
        (
            ("complete", "order-1", "charge", "--value", "{"),
            "argument --value: not JSON: Expecting",
        ),
        (("complete", "order-1", "charge", "--value", "NaN"), "argument --value: NaN is not JSON"),
        (("fail", "order-1", "charge"), "the following arguments are required: --reason"),
        (("fail", "order-1", "charge", "--reason", " "), "reason: say why, in at least one word"),
        (("complete", "order-1", "charge"), "jobgroup: Group order-1 not found"),
    ],
)
def test_an_answer_that_is_refused(here: Here, args: tuple[str, ...], complaint: str) -> None:
    done = here(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_cancel_reports_that_a_driver_must_finish_a_large_group(
    groups: JobGroups, cli: Cli
) -> None:
    jobs = [{"name": "charge", "queueName": "payments"}] * 250
    cli("add", "-", stdin=json.dumps({"name": "order", "groupId": "order-1", "jobs": jobs}))
    cancelled = cli("cancel", "order-1")
    assert cancelled.returncode == 0
    assert cancelled.stdout.startswith("order-1 order COMPENSATING: ")
    drivers = "the operator, or `python -m jobgroup drive`"
    assert (
        cancelled.stderr
        == f"jobgroup: order-1 has not ended yet; a driver must finish it: {drivers}\n"
    )
    cli("drive", "--once")
    assert json.loads(cli("show", "order-1", "--output", "json").stdout)["state"] == "FAILED"


@pytest.mark.parametrize("verb", ["show", "jobs", "cancel", "remove", "follow"])
def test_a_group_that_does_not_exist(here: Here, verb: str) -> None:
    done = here(verb, "nobody")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jobgroup: Group nobody not found\n"


def test_an_invalid_id(here: Here) -> None:
    done = here("show", "order:1")
    assert done.returncode == 2
    assert done.stderr.startswith("jobgroup: Group id 'order:1' must be")


async def test_json_has_the_fields_of_the_text(cli: Cli, groups: JobGroups) -> None:
    added = json.loads(cli("--output", "json", "add", "-", stdin=ORDER).stdout)
    shown = json.loads(cli("show", "order-1", "--output", "json").stdout)
    assert added == shown
    assert shown.pop("records") == []
    listing = dict(line.split(None, 1) for line in cli("show", "order-1").stdout.splitlines())
    empty = (None, "")
    # The text leaves out what only a group has whose undos failed.
    for name, value in (("attempt", 1), ("retries", 0), ("resolvedCount", 0)):
        assert shown.pop(name) == value
    assert shown.pop("compensatingAt") is None
    assert listing == {k: "-" if v in empty else str(v) for k, v in shown.items()}

    rows = [
        json.loads(line) for line in cli("jobs", "order-1", "--output=json").stdout.splitlines()
    ]
    header, *lines = (line.split() for line in cli("jobs", "order-1").stdout.splitlines())
    failures = {"failure": None, "undoFailure": None}
    assert [dict(zip(header, line, strict=True)) | failures for line in lines] == [
        {k: v or (v if k in failures else "-") for k, v in row.items() if k not in NO_COLUMN}
        for row in rows
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


async def test_a_manifest_that_is_added_twice_is_one_group(
    cli: Cli, groups: JobGroups, redis: Redis, prefix: str
) -> None:
    manifest = json.dumps(
        {
            "apiVersion": "jobgroups.dev/v1alpha1",
            "kind": "JobGroup",
            "metadata": {"name": "order-1", "namespace": "shop"},
            "spec": {"jobs": [{"name": "charge", "queueName": "payments"}]},
        }
    )
    first = cli("add", "-", stdin=manifest)
    assert (first.stdout, first.stderr) == ("shop.order-1 order-1 ACTIVE: 0/1 completed\n", "")
    again = cli("add", "-", stdin=manifest)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    sentence = "standard input: group shop.order-1 exists already; added nothing"
    assert again.stderr == f"jobgroup: {sentence}\n"
    assert await redis.llen(f"{prefix}:payments:wait") == 1
    changed = cli("add", "-", stdin=manifest.replace("charge", "bill"))
    assert (changed.returncode, changed.stdout) == (2, "")
    assert "Group shop.order-1 already exists with another definition" in changed.stderr
    assert cli("add", "-", "--new-id", stdin=manifest).returncode == 0
    assert await redis.llen(f"{prefix}:payments:wait") == 2
    both = cli("add", "-", "--new-id", "--id", "a", stdin=manifest)
    assert both.returncode == 2
    assert "not allowed with argument" in both.stderr


async def test_one_of_several_groups_is_refused(cli: Cli, groups: JobGroups) -> None:
    assert cli("add", "-", stdin=ORDER).returncode == 0
    changed = ORDER.replace("charge", "bill")
    other = ORDER.replace("order-1", "order-2")
    done = cli("add", "-", stdin=f"{changed}---\n{other}")
    assert done.returncode == 2
    sentence = "standard input: Group order-1 already exists with another definition"
    assert done.stderr == f"jobgroup: {sentence}; --id and --new-id create another group\n"
    assert done.stdout == "order-2 order ACTIVE: 0/2 completed\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        ("", "the file contains no group"),
        ("- a\n- b\n", "a group should be a mapping"),
        (
            "name: a\njobs:\n\t- b\n",
            "line 3, column 1: YAML is indented with spaces, not with tabs",
        ),
        ("name: a\nname: b\n", 'line 2, column 1: the key "name" appears twice in one mapping'),
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


def test_a_folder_is_not_a_file(here: Here, tmp_path: Path) -> None:
    done = here("add", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"jobgroup: {tmp_path}: cannot be read: Is a directory\n"


# -- Redis


def test_redis_cannot_be_reached(cli: Cli) -> None:
    where = f"127.0.0.1:{free_port()}"
    for args in (["show", "a"], ["drive", "--once"]):
        done = cli(*args, "--redis", f"redis://user:{SECRET}@{where}/0")
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith(f"jobgroup: Redis at {where} cannot be reached: ")
        assert done.stderr.count("\n") == 1
        assert SECRET not in done.stderr


def test_redis_refuses_the_password(here: Here, redis_url: str) -> None:
    done = here("show", "a", "--redis", re.sub("//(.*@)?", f"//nobody:{SECRET}@", redis_url))
    assert done.returncode == 3
    assert " rejected the command: " in done.stderr
    assert SECRET not in done.stderr


async def test_redis_rejects_the_command(cli: Cli, redis: Redis, prefix: str) -> None:
    await redis.set(names.parent_key(prefix, "odd"), "not a hash")
    done = cli("show", "odd")
    await redis.delete(names.parent_key(prefix, "odd"))
    assert done.returncode == 3
    assert "rejected the command: " in done.stderr
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
def test_an_invalid_url(here: Here, url: str) -> None:
    done = here("show", "a", "--redis", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jobgroup: --redis: ")
    assert SECRET not in done.stderr


def test_a_unix_socket(here: Here, tmp_path: Path) -> None:
    done = here("show", "a", "--redis", f"unix://{tmp_path}/redis.sock")
    assert done.returncode == 3
    assert f"Redis at {tmp_path}/redis.sock cannot be reached" in done.stderr
