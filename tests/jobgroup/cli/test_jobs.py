"""The verbs that find a failed group and show why it failed: list and jobs."""

import json

from redis.asyncio import Redis

from jobgroup import Driver, JobGroups
from jobgroup.model.snapshot import STATES
from jobgroup.model.text import time_of
from testbed.servers.stock import StockClient, fails, fails_for_good, returns
from tests.jobgroup.cli.command_line import ORDER, Cli, work

RETRIED = ORDER.replace("inventory}", "inventory, opts: {attempts: 2}}")


async def fail_to_undo(cli: Cli, groups: JobGroups, worker: StockClient) -> None:
    """Run an order whose second job fails and whose undo fails, too."""
    await work(worker, charge=returns(1), reserve=fails(9, "no stock"))
    await worker.work("payments:compensation", {"refund": fails_for_good("account closed")})
    cli("add", "-", stdin=RETRIED)
    driver = Driver(groups.store)
    await worker.heard("completed", name="charge")
    await worker.heard("failed", name="reserve")
    while (state := await groups.get_group_state("order-1")) and not state.ended:
        await driver.drain()


async def test_jobs_shows_why_jobs_and_undos_failed(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    prefix = groups.store.prefix
    assert cli("jobs", "order-1").stdout.splitlines()[1:] == [
        f"order-1-0  charge   payments   completed  failed  {prefix}:payments:order-1-0",
        f"order-1-1  reserve  inventory  failed     -       {prefix}:inventory:order-1-1",
        "order-1-0-undo refund in payments:compensation failed after 1 attempt: account closed",
        "order-1-1 reserve in inventory failed after 2 attempts: no stock",
    ]
    charge, reserve = map(json.loads, cli("jobs", "order-1", "--output=json").stdout.splitlines())
    assert charge["failure"] is None
    assert charge["undoFailure"] == {
        "jobId": "order-1-0-undo",
        "name": "refund",
        "queueName": "payments:compensation",
        "attemptsMade": 1,
        "reason": "account closed",
    }
    assert (reserve["name"], reserve["undoFailure"]) == ("reserve", None)
    assert reserve["failure"] == {
        "jobId": "order-1-1",
        "name": "reserve",
        "queueName": "inventory",
        "attemptsMade": 2,
        "reason": "no stock",
    }


async def test_jobs_of_which_the_queue_has_lost_some(
    cli: Cli, groups: JobGroups, redis: Redis, prefix: str
) -> None:
    cli("add", "-", stdin=ORDER)
    key = f"{prefix}:payments:order-1-0"
    await redis.lrem(f"{prefix}:payments:wait", 1, "order-1-0")
    await redis.delete(key)
    await redis.srem(f"{prefix}:_jobgroups:order-1:dependencies", key)
    cli("drive", "--once")
    assert cli("jobs", "order-1").stdout.splitlines()[1:] == [
        f"order-1-0  -     payments   failed     -     {key}",
        f"order-1-1  -     inventory  cancelled  -     {prefix}:inventory:order-1-1",
        "order-1-0 in payments failed: unknown: its queue no longer has the job",
    ]


async def test_a_limited_number_of_failures_is_read(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    charge, reserve = await groups.get_job_details("order-1", limit=0)
    assert (charge.name, charge.job.undo, charge.undo_failure) == ("charge", "failed", None)
    assert (reserve.name, reserve.job.status, reserve.failure) == ("reserve", "failed", None)


async def test_list_finds_the_groups_in_a_state(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    await groups.add_group("waits", [{"name": "ship", "queueName": "shipping"}], group_id="second")
    await groups.add_group("waits", [{"name": "ship", "queueName": "shipping"}], group_id="third")
    found = {state: cli("list", state).stdout.splitlines() for state in STATES}
    assert {state: [line.split()[0] for line in lines[1:]] for state, lines in found.items()} == {
        "ACTIVE": ["second", "third"],
        "COMPENSATING": [],
        "COMPLETED": [],
        "FAILED": [],
        "FAILED_COMPENSATION": ["order-1"],
    }
    (line,) = cli("list", "FAILED_COMPENSATION", "--output", "json").stdout.splitlines()
    assert json.loads(line)["id"] == "order-1"
    page = await groups.list_groups("ACTIVE", limit=1)
    assert [group.id for group in page.groups] == ["second"]
    assert cli("list", "LOST").returncode == 2


async def test_list_prints_a_table_of_all_pages(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    job = [{"name": "ship", "queueName": "shipping"}]
    many = [{"name": "waits", "jobs": job, "group_id": f"waits-{n}"} for n in range(1002)]
    await groups.add_groups(many)
    header, *lines = cli("list").stdout.splitlines()
    assert header.split() == ["id", "name", "state", "since", "completed", "undone", "reason"]
    assert len(lines) == 1003
    (line,) = (line for line in lines if line.startswith("order-1"))
    failed = await groups.get_group_state("order-1")
    assert failed
    since = time_of(failed.finished_at or 0)
    assert (
        line.split()
        == f"order-1 order FAILED_COMPENSATION {since} 1/2 0/1 order-1-1: no stock".split()
    )
    assert (
        len(cli("list", "ACTIVE", "--limit", "1001", "--output=json").stdout.splitlines()) == 1001
    )
    assert cli("list", "--name", "order", "--queue", "payments", "--owner=headless").stdout
    for nobody in (["--name=x"], ["--queue=x"], ["--owner=x"], ["--older-than=7d"], ["FAILED"]):
        assert cli("list", *nobody).stdout == ""
    for wrong in (["--older-than=7"], ["--older-than=-1d"], ["--limit=0"], ["--limit=x"]):
        assert cli("list", *wrong).returncode == 2


async def test_results_prints_what_jobs_returned(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    assert cli("results", "order-1").stdout.splitlines() == [
        "jobId      name    queueName  value",
        "order-1-0  charge  payments   1",
    ]
    (line,) = cli("results", "order-1", "--output=json").stdout.splitlines()
    assert json.loads(line) == {
        "jobId": "order-1-0",
        "name": "charge",
        "queueName": "payments",
        "value": 1,
    }
    assert cli("results", "nobody").returncode == 2


async def test_failed_undos_are_shown_retried_and_resolved(
    cli: Cli, groups: JobGroups, worker: StockClient
) -> None:
    await fail_to_undo(cli, groups, worker)
    failure = (
        "order-1-0-undo refund in payments:compensation failed after 1 attempt: account closed"
    )
    listing = cli("show", "order-1").stdout.splitlines()
    assert listing[-1] == failure
    assert not any(line.startswith(("retries", "attempt")) for line in listing)

    await worker.manage("payments:compensation", "pause")
    retried = cli("retry-undos", "order-1", "--job", "charge", LOGNAME="ann")
    assert retried.returncode == 0
    assert retried.stdout.startswith("order-1 order COMPENSATING: 1/2 completed, 1 failed, 0/1 un")
    assert "a driver must finish it" in retried.stderr
    again = cli("retry-undos", "order-1", "--job", "charge", "--job", "order-1-0")
    assert (again.returncode, again.stdout) == (0, retried.stdout)

    resolved = cli("resolve", "order-1", "charge", "--reason", "ticket 4711", "--by", "bob")
    assert (resolved.returncode, resolved.stderr) == (0, "")
    assert resolved.stdout.startswith(
        "order-1 order FAILED: 1/2 completed, 1 failed, 0/1 undone, 1 resolved "
    )
    listing = cli("show", "order-1").stdout.splitlines()
    assert listing[-1] == "order-1-0-undo was resolved by bob: ticket 4711"
    assert [line.split(maxsplit=1)[1] for line in listing[-3:-1]] == [
        "retryUndos order-1-0 by ann",
        "resolve order-1-0 by bob: ticket 4711",
    ]
    fields = [line.split() for line in listing]
    assert ["retries", "1"] in fields
    assert ["resolvedCount", "1"] in fields
    assert ["attempt", "2"] in fields
    assert "resolved by bob: ticket 4711" in cli("jobs", "order-1").stdout
    (charge, _) = map(json.loads, cli("jobs", "order-1", "--output=json").stdout.splitlines())
    assert (charge["resolvedBy"], charge["resolvedReason"]) == ("bob", "ticket 4711")
    assert (charge["undo"], charge["undoFailure"]) == ("resolved", None)

    for args, sentence in (
        (("retry-undos", "order-1"), "Cannot retry undos of group in state FAILED"),
        (("resolve", "order-1", "charge"), "required: --reason"),
        (("resolve", "order-1", "charge", "--reason", " "), "reason: say why"),
        (("resolve", "order-1", "nobody", "--reason", "x"), 'has no job "nobody"'),
        (("resolve", "order-1", "reserve", "--reason", "x"), "undo of group in state FAILED"),
    ):
        answer = cli(*args)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert sentence in answer.stderr
